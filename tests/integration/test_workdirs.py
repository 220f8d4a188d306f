"""What a workload can do to the directories of others: nothing (design.md section 1, B84).

Every runner id may make names in the work root. A workload does not see the root (but one that works in the root itself, and
one without a view), so what is planted here is planted by a process of that id outside. Where it could go wrong: workerd takes
the owner of a directory for its runner, workinit takes what it finds for what it was told to make.
"""
import os
import signal
import subprocess

import pytest

from lib.workdrv import FORBIDDEN_PATH, POOL_COUNT, POOL_FIRST, POOL_GID, START_FAILED, Device

pytestmark = pytest.mark.root


@pytest.fixture
def dev():
    with Device() as d:
        yield d


def sh(dev, script, work_dir):
    return dev.run(["/bin/sh", "-c", script], work_dir=work_dir).data.decode()


def outside(dev, script, work_dir):
    """The same script as the runner of that directory, but not in its sandbox."""
    cwd = f"{dev.dir}/work/{work_dir}"
    return subprocess.Popen(["/bin/sh", "-c", script], cwd=cwd, user=os.stat(cwd).st_uid, group=POOL_GID, extra_groups=[])


@pytest.mark.parametrize("plant", ["mkdir -m 777 ../b", "mv ../a ../b", "ln -s a ../b", "ln -s victim ../b"])
def test_b84_a_name_that_another_runner_made(dev, plant):
    """The next workload's directory is made, moved or linked there before it comes."""
    assert sh(dev, "echo secret > s; echo done", "victim") == "done\n"
    uid, said = sh(dev, "id -u; " + plant + " 2>&1", "a").split("\n", 1)
    assert int(uid) - POOL_FIRST in range(1, POOL_COUNT)
    assert not os.path.lexists(f"{dev.dir}/work/b"), said
    assert outside(dev, plant, "a").wait() == 0
    err = dev.start(["/bin/sh", "-c", "id -u; cat s"], work_dir="b", expect=FORBIDDEN_PATH)
    assert "was made by the runner of another directory" in err
    # also in a workerd that knows it only from its state
    dev.kill_workerd()
    dev.connect()
    dev.start(["/bin/sh", "-c", "id -u; cat s"], work_dir="b", expect=FORBIDDEN_PATH)
    assert sh(dev, "cat s", "victim") == "secret\n"
    subprocess.run(["rm", "-rf", f"{dev.dir}/work/b"], check=True)
    assert sh(dev, "ls; echo empty", "b") == "empty\n"


def test_b84_a_name_made_between_decision_and_start(dev):
    """workerd has given a fresh id to a directory that is not there; another runner makes it first, in a tight loop."""
    assert sh(dev, "echo a", "a") == "a\n"
    spam = outside(dev, "while :; do mkdir -m 777 ../r0 ../r1 ../r2 ../r3 ../r4 ../r5 ../r6 ../r7 ../r8 ../r9; done 2>/dev/null", "a")
    uids = []
    for n in range(10):
        handle, ident = dev.ask_start(["/bin/sh", "-c", "stat -c %u ."], work_dir=f"r{n}")
        refusal, _, err, _ = dev.answer(ident)
        if refusal == 0:
            dev.sub(dev.runs[handle], 0)
            uids.append(dev.finish(dev.runs[handle]).data.decode().strip())
        else:
            assert refusal in (FORBIDDEN_PATH, START_FAILED), (refusal, err)
    spam.send_signal(signal.SIGKILL)
    spam.wait()
    squatter = str(os.stat(f"{dev.dir}/work/a").st_uid)
    assert squatter not in uids


def test_what_the_root_itself_made_is_its_own(dev):
    """A workload in the root owns what it makes there; the same id goes on in it."""
    uid = sh(dev, "mkdir made; id -u", "")
    assert uid == f"{POOL_FIRST}\n"
    assert sh(dev, "id -u", "made") == uid


def test_an_operators_directory_is_given_once(dev):
    for name in ("one", "two"):
        os.mkdir(f"{dev.dir}/work/{name}", 0o700)
        os.chown(f"{dev.dir}/work/{name}", POOL_FIRST + 9, -1)
    assert sh(dev, "id -u", "one") == f"{POOL_FIRST + 9}\n"
    assert sh(dev, "id -u", "one/deeper") == f"{POOL_FIRST + 9}\n"
    dev.start(["/bin/true"], work_dir="two", expect=FORBIDDEN_PATH)
