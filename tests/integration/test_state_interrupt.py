"""B69, B71, B93 for every state file that is not an upgrade's own (that is test_upgrade_interrupt.py): the writer is killed before each of its
system calls that changes a file, and the power is cut there: what was not synced is lost, or is there in length alone (zeros).

The calls are enumerated by tests/tools/killat.c (ptrace), not sampled; the writers are the daemons' own code (tests/tools/statelife.c), and
edgectl itself for an operator's request. After each point what is loaded is the old or the new state (of a file that is appended to: a
beginning of what was written, every part of it right), and the same change works again. The ledger lies on a tmpfs, so nothing but kill -9
is a case for it. Where this kind of fault could occur: common/fdutil.c's fd_replace_file(), connectd/statefile.c, workerd/owners.c,
journal.c, segment.c, spool.c, result.c, common/audit.c, usbledger.c, eventlog.c, edgectl/upgrade.c; connectd/upstage.c, upjob.c and upgrader.c
for what a hub asks for, from its frame to the request that privupgrade takes. privaccount's pool is in test_privaccount.py.
"""
import json
import os
import shutil
import subprocess
import tempfile

import pytest

from lib.agent import BUILD, is_root
from lib.release import EDGECTL, ENV, manifest, PROGRAMS, compile_tool, make_key, pack

LIFE = os.path.join(BUILD, "tests/tools/statelife")
NEXT = LIFE + "-next"       # of a release whose schema numbers are one higher
pytestmark = [pytest.mark.skipif(shutil.which("cc") is None, reason="skipped: no cc"), pytest.mark.timeout(300)]
MODES = {"kill": [], "lost": ["-p"], "zeros": ["-z"]}


@pytest.fixture(name="killat", scope="module")
def fixture_killat(tmp_path_factory):
    return compile_tool("killat", str(tmp_path_factory.mktemp("tools")))


@pytest.fixture(name="where")
def fixture_where():
    with tempfile.TemporaryDirectory(prefix="edgeward-state-", dir="/dev/shm") as where:
        yield where


def life(kind, step, where, exe=LIFE):
    p = subprocess.run([exe, kind, step, where], capture_output=True, text=True, env=ENV, check=False, timeout=60)
    assert p.returncode == 0, (kind, step, p.stderr[-2000:])
    return p.stdout.strip()


def each_point(killat, mode, where, command, pristine):
    """Runs command to each of its points in a fresh copy of pristine: yields (number, name of the call)."""
    for n in range(1, 500):
        shutil.rmtree(where)
        shutil.copytree(pristine, where, symlinks=True)
        p = subprocess.run([killat, *MODES[mode], str(n), *command], capture_output=True, text=True, env=ENV, timeout=60, check=False)
        assert "Sanitizer" not in p.stderr and "not so" not in p.stderr, p.stderr
        name = p.stdout.split()[-1]
        yield n, name
        if name == "-":
            return
    raise AssertionError("it does not end")


@pytest.mark.parametrize("kind, modes, least", [("credential", MODES, 5), ("clock", MODES, 5), ("owners", MODES, 5), ("journal", MODES, 8), ("spool", MODES, 10),
                                                ("audit", MODES, 5), ("ledger", ["kill"], 3), ("told", MODES, 6), ("events", MODES, 4),
                                                ("result", MODES, 5)])
def test_b69_every_call(killat, where, kind, modes, least):
    pristine, at = os.path.join(where, "pristine"), os.path.join(where, "at")
    os.mkdir(pristine)
    os.mkdir(at)
    if kind == "told":
        for name in ("box", "releases"):
            os.mkdir(os.path.join(pristine, name))
    life(kind, "old", pristine)
    every_call(killat, pristine, at, kind, modes, least)


@pytest.mark.skipif(shutil.which("signify-openbsd") is None, reason="skipped: no signify-openbsd")
def test_b69_a_hubs_request(killat, where):
    """connectd fetches, stages and asks, killed at each call: privupgrade never finds a request without its whole release, a job that was
    accepted is never forgotten, and the next start of connectd brings it to its end."""
    pristine, at = os.path.join(where, "pristine"), os.path.join(where, "at")
    os.mkdir(at)
    for name in ("box", "releases", "keys"):
        os.makedirs(os.path.join(pristine, name))
    pub, sec = make_key(where, "k")
    shutil.copy(pub, os.path.join(pristine, "keys"))
    with open(os.path.join(pristine, "x.release"), "wb") as f:
        f.write(pack({n: os.urandom(20_000) for n in PROGRAMS}, where, sec, 7, "7.0"))
    life("upgrade", "old", pristine)
    every_call(killat, pristine, at, "upgrade", MODES, 24)


def every_call(killat, pristine, at, kind, modes, least):
    points = 0
    for mode in modes:
        seen = set()
        for n, name in each_point(killat, mode, at, [LIFE, kind, "new", at], pristine):
            # A start, the same change again, and the next start.
            found = life(kind, "check", at)
            seen.add(found)
            life(kind, "new", at)
            assert life(kind, "check", at) == "new", (mode, n, name)
            points += name != "-"
        assert {"old", "new"} <= seen and (mode != "kill" or "gone" not in seen), (mode, seen)
    assert points >= least * len(modes)
    print(f"{kind}: {points} points, 0 lost")


@pytest.mark.skipif(not is_root(), reason="skipped: needs root")
def test_b69_an_operators_request(killat, where):
    """edgectl upgrade FILE: until the request is there in whole there is none, and with it the release is complete."""
    state, pristine, release = (os.path.join(where, n) for n in ("state", "pristine", "x.release"))
    files = {n: os.urandom(200_000) for n in PROGRAMS}
    data = b"untrusted comment: x\nAAAA\n" + manifest(files, 7, "7.0").encode() + b"".join(files.values())
    with open(release, "wb") as f:
        f.write(data)
    os.makedirs(os.path.join(pristine, "upgrade/queue"))
    os.mkdir(state)
    queue = os.path.join(state, "upgrade/queue")
    command = [EDGECTL, "upgrade", release, "--no-wait", "--state", state]
    points = 0
    for mode in ("kill", "lost", "zeros"):
        seen = set()
        for n, name in each_point(killat, mode, state, command, pristine):
            queued = os.path.exists(os.path.join(queue, "request"))
            seen.add(queued)
            if not queued:
                subprocess.run(command, check=True, env=ENV, capture_output=True)
            with open(os.path.join(queue, "request"), "rb") as f:
                assert f.read().startswith(b"edgeward-upgrade-request 1\nsequence 7\n"), (mode, n, name)
            with open(os.path.join(queue, "release"), "rb") as f:
                assert f.read() == data, (mode, n, name)
            points += name != "-"
        assert seen == {True, False}
    print(f"request: {points} points, 0 lost")
    assert points > 15


# ---- what one release writes the one before it can read ----

# File, where its schema number stands, and its bytes there. state-1/ has what a release of these numbers wrote. A release that goes back leaves its
# state to the one before: so whoever raises a number reads both and keeps a copy of what it replaces (common/keptcopy.h), and changes this
# table then.
SCHEMAS = {"credential": ("credential.json", None, b'"format":1,'), "job": ("upgrade-job", 0, b"edgeward-upgrade-job 1\n"), "clock": ("clock", 0, b"edgeward-clock 1 "), "journal": ("journal", 4, b"\x01\0"),
           "owners": ("owners", 4, b"\x01\0\0\0"), "spool": ("spool/w.a.0000000000000000", 8, b"\x01\0\0\0"), "audit": ("audit", 0, b"1 ")}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_state_is_written_in_the_schema_of_before(where, kind):
    life(kind, "old", where)
    name, at, number = SCHEMAS[kind]
    with open(os.path.join(where, name), "rb") as f:
        data = f.read()
    assert number in data if at is None else data[at:at + len(number)] == number


@pytest.mark.parametrize("kind", ["credential", "clock", "journal", "audit"])
def test_state_of_before_is_read(where, kind):
    at = os.path.join(where, kind)
    shutil.copytree(os.path.join(os.path.dirname(os.path.abspath(__file__)), "state-1", kind), at)
    for name in os.listdir(at):
        os.chmod(os.path.join(at, name), 0o600)
    assert life(kind, "check", at) == "old"
    life(kind, "new", at)
    assert life(kind, "check", at) == "new"


def test_a_field_of_a_later_release_is_no_damage(where):
    """What a later release may add to the credential without another number, this one reads over."""
    life("credential", "old", where)
    path = os.path.join(where, "credential.json")
    with open(path, encoding="ascii") as f:
        value = json.load(f)
    with open(path, "w", encoding="ascii") as f:
        json.dump({**value, "later": {"a": [1, 2]}}, f)
    assert life("credential", "check", where) == "old"


@pytest.mark.parametrize("kind", ["clock", "journal", "owners"])
def test_state_of_an_unknown_schema_is_kept(where, kind):
    """A number this release does not know: it starts, what was there is kept aside, and its own state works from then on."""
    life(kind, "old", where)
    name, at, number = SCHEMAS[kind]
    path = os.path.join(where, name)
    with open(path, "rb") as f:
        data = f.read()
    later = data[:at] + number.replace(b"\x01", b"\x02").replace(b"1", b"2") + data[at + len(number):]
    with open(path, "wb") as f:
        f.write(later)
    subprocess.run([LIFE, kind, "new", where], env=ENV, check=True, capture_output=True, timeout=60)
    kept = [n for n in os.listdir(where) if ".bad" in n]
    assert len(kept) == 1, os.listdir(where)
    with open(os.path.join(where, kept[0]), "rb") as f:
        assert f.read() == later
    assert os.path.exists(path)


KEPT = ["credential", "clock", "job", "owners", "journal"]


def contents(where):
    found = {}
    for name in os.listdir(where):
        with open(os.path.join(where, name), "rb") as f:
            found[name] = f.read()
    return found


@pytest.mark.parametrize("kind", KEPT)
def test_state_that_a_later_release_wrote_goes_back_with_it(where, kind):
    """A release with a higher schema number reads what is there, writes its own, and goes back: the one before has its state as it was, and the
    later one's is kept, too. It comes again: it reads what the one before has written since."""
    name = SCHEMAS[kind][0]
    kept = f"{name}.schema-1"
    life(kind, "old", where)
    first = contents(where)
    assert life(kind, "check", where, NEXT) == "old"
    life(kind, "new", where, NEXT)
    assert life(kind, "check", where, NEXT) == "new"
    later = contents(where)
    assert later[kept] == first[name] and later[name] != first[name]
    assert life(kind, "check", where) == "old"
    back = contents(where)
    assert back[name] == first[name] and back[f"{name}.schema-2"] == later[name] and not any(".bad" in n for n in back)
    life(kind, "new", where)
    assert life(kind, "check", where) == "new"
    again = contents(where)
    assert life(kind, "check", where, NEXT) == "new"
    life(kind, "new", where, NEXT)
    assert life(kind, "check", where, NEXT) == "new" and contents(where)[kept] in (first[name], again[name])


@pytest.mark.parametrize("kind", KEPT)
def test_b69_every_call_of_raising_and_of_going_back(killat, where, kind):
    """The later release is ended at each call of its first write, the one before at each call of taking its copy back: it always has its state."""
    pristine, raised, at = (os.path.join(where, n) for n in ("pristine", "raised", "at"))
    for d in (pristine, at):
        os.mkdir(d)
    life(kind, "old", pristine)
    shutil.copytree(pristine, raised)
    life(kind, "new", raised, NEXT)
    points = 0
    for mode in MODES:
        for n, name in each_point(killat, mode, at, [NEXT, kind, "new", at], pristine):
            assert life(kind, "check", at, NEXT) in ("old", "between", "new"), (mode, n, name)
            assert life(kind, "check", at) == "old", (mode, n, name)
            points += name != "-"
        for n, name in each_point(killat, mode, at, [LIFE, kind, "check", at], raised):
            assert life(kind, "check", at) == "old", (mode, n, name)
            life(kind, "new", at)
            assert life(kind, "check", at) == "new", (mode, n, name)
            points += name != "-"
    assert points > 30
    print(f"{kind}, raised and back: {points} points, 0 lost")
