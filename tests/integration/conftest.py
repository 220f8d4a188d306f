"""Integration tests: the real executables of a build directory (EDGEWARD_BUILD, default build/) with a scripted hub.

Fixtures: ca (one for the session), hub (scripted, TLS, fresh), agent (factory: agent(...) starts a device), ehub and ehub_agent (the same with
edgehub), edgehub (for scripted agents), net (two network namespaces; root only). The fixtures fail a test whose hub saw the agent break the protocol, whose agent logged a
sanitizer's report or a filter hit, or left a process, cgroup or socket behind.

EDGEWARD_SOAK=1 runs the long forms too.
"""
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lib import agent as agent_lib      # noqa: E402
from lib.agent import Agent, exe, is_root       # noqa: E402
from lib.certs import CA        # noqa: E402
from lib.edgehub import EdgeHub     # noqa: E402
from lib.fakehub import FakeHub     # noqa: E402
from lib.livehub import LiveHub     # noqa: E402
from lib.net import Dns, Proxy      # noqa: E402
from lib.netns import Net       # noqa: E402

SOAK = os.environ.get("EDGEWARD_SOAK") == "1"


def pytest_configure(config):
    # Started in the background of a script: what we start would ignore Ctrl-C as we do.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "soak: long form, run with EDGEWARD_SOAK=1")
    config.addinivalue_line("markers", "root: needs root (several uids, namespaces)")
    config.addinivalue_line("markers", "needs(*names): executables this test needs in the build directory")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("soak") and not SOAK:
            item.add_marker(pytest.mark.skip(reason="skipped: long form, set EDGEWARD_SOAK=1"))
        if item.get_closest_marker("root") and not is_root():
            item.add_marker(pytest.mark.skip(reason="skipped: needs root"))
        if "agent" in getattr(item, "fixturenames", ()):
            missing = [n for n in agent_lib.PATHS if n not in ("edgehub", "edgectl") and not os.path.exists(exe(n))]
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"skipped: not built: {', '.join(missing)}"))


@pytest.fixture(scope="session")
def shared():
    """A directory that every user may read, and that no other test run prunes."""
    directory = tempfile.mkdtemp(prefix="edgeward-shared.", dir=os.environ.get("EDGEWARD_TMP", "/tmp"))
    os.chmod(directory, 0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def open_path():
    """As tmp_path, but every user may enter it. A pytest that starts beside this one shuts /tmp/pytest-of-root to all others again."""
    directory = tempfile.mkdtemp(prefix="edgeward-open.", dir=os.environ.get("EDGEWARD_TMP", "/tmp"))
    os.chmod(directory, 0o755)
    yield pathlib.Path(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def ca(shared):
    return CA(os.path.join(shared, "ca"))


@pytest.fixture(scope="session")
def leaf(ca):
    return ca.leaf()


@pytest.fixture
def hub(leaf):
    h = FakeHub(leaf).listen()
    yield h
    h.stop()
    assert not h.errors, f"the scripted hub itself failed: {h.errors}"
    assert not h.violations, "the agent broke the protocol:\n" + "\n".join(h.violations[:20])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    for a in getattr(item, "agents", []):
        if report.failed:
            report.sections.append((f"log of {a.dir}", a.log_tail(60)))


@pytest.fixture
def agent(hub, ca, request):
    """agent(**kw) makes, starts and returns a device that dials `hub`; agent(start=False) only makes it."""
    made = request.node.agents = []

    def factory(start=True, wait=True, **kw):
        kw.setdefault("hub", hub)
        kw.setdefault("ca", getattr(kw["hub"], "ca_file", ca))
        a = Agent(**kw)
        made.append(a)
        if start:
            a.start(wait=wait)
        return a
    yield factory
    problems = []
    for a in made:
        problems += a.stop()
        problems += a.broken()
    if problems:
        tails = "".join(a.log_tail(40) for a in made)
        raise AssertionError("\n".join(problems) + tails)
    for a in made:
        a.remove()


@pytest.fixture
def edgehub():
    """edgehub itself, for agents that are scripted."""
    h = EdgeHub().start()
    yield h
    problems = h.stop()
    assert not problems, "\n".join(problems)
    h.remove()


@pytest.fixture
def ehub():
    """edgehub itself, for devices."""
    h = LiveHub().start()
    yield h
    h.close()


@pytest.fixture
def ehub_agent(agent, ehub):
    """As agent(), for a device that dials `ehub` and is edge-test there; connected when it is returned."""
    def factory(**kw):
        a = agent(hub=ehub, token=ehub.token("--name", "edge-test"), **kw)
        ehub.connected()
        return a
    return factory


@pytest.fixture(params=["cloop", "edgeward"])
def dialect(request, hub):
    """Runs the test once on each dialect."""
    hub.b.edgeward = request.param == "edgeward"
    return request.param


@pytest.fixture
def device(agent, hub):
    """A device that is enrolled and connected."""
    a = agent()
    a.connected()
    return a


@pytest.fixture
def net():
    if not is_root():
        pytest.skip("skipped: network namespaces need root")
    n = Net()
    yield n
    n.close()


@pytest.fixture
def nethub(net, leaf):
    """A scripted hub on the far side of the cable."""
    h = FakeHub(leaf, host="0.0.0.0", port=8443, netns=net.hub).listen()
    yield h
    h.stop()
    assert not h.errors, f"the scripted hub itself failed: {h.errors}"
    assert not h.violations, "the agent broke the protocol:\n" + "\n".join(h.violations[:20])


@pytest.fixture
def proxy(hub):
    p = Proxy(hub.port)
    yield p
    p.close()


@pytest.fixture
def dns(net):
    d = Dns("10.77.0.1", netns=net.hub)
    yield d
    d.close()
