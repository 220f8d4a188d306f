"""The launcher's own upgrade: it becomes the file that lies at its path now, by execve, and touches no workload.

lib/workdrv.py plays connectd; the launcher is a copy in the test's directory that the test replaces.
"""
import os
import shutil
import signal
import time

import pytest

from lib import proc, workdrv
from lib.agent import exe
from lib.proc import wait_for
from lib.workdrv import Device

pytestmark = pytest.mark.root
MAGIC = b"1LWE"         # of the state that is handed over, as it stands in the program


@pytest.fixture
def dev(request):
    d = Device(own_launcher=True, slots=64)
    d.__enter__()
    yield d
    d.__exit__(*((AssertionError, None, None) if request.node.session.testsfailed else (None, None, None)))


def replace(dev, content=None):
    """Another file at the launcher's path, by rename as a package manager does it."""
    new = dev.program + ".new"
    shutil.copy2(exe("launcher"), new)
    if content is not None:
        with open(new, "wb") as f:
            f.write(content)
    os.rename(new, dev.program)


def is_new(dev):
    return os.path.samefile(f"/proc/{dev.launcher.pid}/exe", dev.program)


def caps(pid):
    return {k: int(proc.status(pid)[k], 16) for k in ("CapInh", "CapPrm", "CapEff", "CapAmb")}


def test_becomes_the_new_file_and_work_goes_on(dev):
    """All states a workload can be in: writing, silent, ended and not delivered, its tree still dying."""
    writes = dev.start(["sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.01; done"])
    silent = dev.start(["sh", "-c", "read x < /dev/null; sleep 1000; exit 3"])
    ended = dev.start(["sh", "-c", "echo over; exit 7"])
    dev.finish(ended, deliver=False)
    pid, before, pids = dev.launcher.pid, caps(dev.launcher.pid), (writes.info["pid"], silent.info["pid"])
    for _ in range(3):          # each time from what the time before handed over
        replace(dev)
        assert not is_new(dev)
        dev.reload()
        assert is_new(dev)
        assert caps(pid) == before and before["CapAmb"] == 0 and before["CapInh"] == 0
        assert proc.status(pid)["NoNewPrivs"] == "1" and proc.status(pid)["Seccomp"] == "2"
        assert all(proc.alive(p) for p in pids)
        assert {writes.handle, silent.handle, ended.handle} == set(dev.snapshot_handles())
    assert ended.info["exit_code"] == 7
    dev.deliver(ended)
    dev.signal(writes, signal.SIGTERM)
    dev.signal(silent, signal.SIGKILL)
    dev.finish(writes)
    dev.finish(silent)
    lines = bytes(writes.data).split()
    assert lines == [str(i).encode() for i in range(len(lines))], "output was lost or repeated"
    late = dev.start(["sh", "-c", "echo late; exit 4"])
    dev.finish(late)
    assert late.info["exit_code"] == 4
    assert dev.settled()


def test_an_end_while_it_changes_is_told(dev):
    """Workloads end before, during and after the exec: each outcome is told once and right."""
    rs = []
    for i in range(40):
        rs.append(dev.start(["sh", "-c", f"sleep 0.{i:02d}; exit {i}"]))
    replace(dev)
    dev.reload()
    for i, r in enumerate(rs):
        dev.finish(r)
        assert (r.info["outcome"], r.info["exit_code"]) == (workdrv.EXITED, i)
    assert is_new(dev)
    assert dev.settled()


def slow_workerd(dev, first):
    """Workerds that take half a second to say HELLO; the first one of a new launcher may end at once instead."""
    dev.worker = f"{dev.dir}/workerd"
    with open(dev.worker, "w", encoding="ascii") as f:
        f.write(f"""#!/bin/sh
case " $* " in *" -n "*) ;; *)
    [ ! -e {dev.dir}/fail ] || {{ rm {dev.dir}/fail; exit 1; }}
    sleep 0.5;;
esac
exec {exe("workerd")} "$@"
""")
    os.chmod(dev.worker, 0o755)
    os.chmod(dev.dir, 0o777)        # for the one that removes the mark
    if first:
        dev.write("fail", "")


@pytest.mark.parametrize("how", ["exec", "exec, workerd fails once", "kill"])
def test_an_end_before_workerd_has_said_hello_is_told(how):
    """A workload ends in the moment when there is a channel to the next workerd and nothing was said on it."""
    d = Device(own_launcher=True, slots=64)
    slow_workerd(d, False)
    with d:
        early, late = (d.start(["sh", "-c", f"sleep {s}; exit {x}"]) for s, x in ((0.3, 5), (3, 6)))
        if how == "kill":
            d.kill_workerd()
            d.connect()
        else:
            replace(d)
            slow_workerd(d, "fails" in how)
            d.reload()
            assert is_new(d)
        for r, code in ((early, 5), (late, 6)):
            d.finish(r)
            assert (r.info["outcome"], r.info["exit_code"]) == (workdrv.EXITED, code)
        assert "Protocol error" not in d.log_text()
        assert d.log_text().count("workerd ended") == 1 + ("fails" in how)
        assert d.settled()


@pytest.mark.parametrize("kind", ["script", "empty", "other version", "hangs"])
def test_a_file_that_cannot_go_on_is_not_used(dev, kind):
    """The check fails: the old one goes on, says so once, and does not try that file again."""
    r = dev.start(["sleep", "1000"])
    with open(exe("launcher"), "rb") as f:
        good = f.read()
    assert MAGIC in good
    content = {"script": b"#!/bin/sh\nexit 1\n", "empty": b"", "other version": good.replace(MAGIC, b"9LWE"),
               "hangs": b"#!/bin/sh\nexec sleep 1000\n"}[kind]
    replace(dev, content)
    for _ in range(2):
        dev.reload()
        assert not is_new(dev)
        assert proc.alive(r.info["pid"])
    assert dev.log_text().count("this one goes on") == 1
    replace(dev)
    dev.reload()
    assert is_new(dev)
    dev.signal(r, signal.SIGTERM)
    dev.finish(r)
    assert dev.settled()


def test_another_pool_is_not_taken(dev):
    """The ids of running workloads would mean other users: the file is right, the pool is not."""
    r = dev.start(["sleep", "1000"])
    replace(dev)
    dev.write("pool", f"{workdrv.POOL_FIRST + 1} {workdrv.POOL_COUNT} {workdrv.POOL_GID}\n")
    dev.reload()
    assert not is_new(dev)
    assert "pool of runner ids was changed" in dev.log_text()
    dev.signal(r, signal.SIGTERM)
    dev.finish(r)


def test_descriptors_do_not_grow(dev):
    rs = [dev.start(["sleep", "1000"]) for _ in range(8)]
    replace(dev)
    dev.reload()
    count = len(os.listdir(f"/proc/{dev.launcher.pid}/fd"))
    for _ in range(4):
        replace(dev)
        dev.reload()
        assert is_new(dev)
    wait_for(lambda: len(os.listdir(f"/proc/{dev.launcher.pid}/fd")) == count, 5)
    for r in rs:
        dev.signal(r, signal.SIGKILL)
    for r in rs:
        dev.finish(r)
    time.sleep(0.1)
    assert dev.settled()


def test_the_variable_is_for_itself_alone(tmp_path):
    """Set by somebody else it is refused or names nothing that could be taken."""
    import subprocess
    for value in ("3", "x", "-1", "99999999999", "1000"):
        p = subprocess.run([exe("launcher"), "-n"], env={"EDGEWARD_LAUNCHER_STATE": value}, capture_output=True, text=True, timeout=20)
        assert p.returncode == 1 and len(p.stderr.splitlines()) == 1, p.stderr
    fd = os.memfd_create("state")
    os.write(fd, b"x" * 1000)
    high = 77
    os.dup2(fd, high, inheritable=True)
    p = subprocess.run([exe("launcher"), "-n"], env={"EDGEWARD_LAUNCHER_STATE": str(high)}, capture_output=True, text=True, timeout=20,
                       pass_fds=(high,))
    os.close(high)
    assert p.returncode == 1 and "state" in p.stderr
