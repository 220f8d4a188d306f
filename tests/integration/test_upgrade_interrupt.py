"""B93, B69 for upgrades: privupgrade is killed before each of its system calls that changes a file, and the power is cut there (what was
written and not synced is lost). Then the machine starts: privupgrade -b, and the service that goes on with what is open.

The calls are enumerated by tests/tools/killat.c (ptrace), not sampled. After each point the release in force is complete and all of one
version, the history tells the truth about it, nothing is left over, and the next upgrade works. What recovers is interrupted at each of its
own calls, too: the boot service, and the service that goes on, from each state that a power cut can leave. B103: the same again and again,
without end, in each phase. Where these kinds of fault could occur: privupgrade/store.c, stage.c, trial.c, inbox.c and common/fdutil.c's
fd_replace_file().
"""
import os
import shutil
import subprocess
import tempfile

import pytest

from lib.agent import is_root
from lib.release import ENV, Release, Rig, compile_tool

pytestmark = [pytest.mark.skipif(not is_root(), reason="skipped: needs root"),
              pytest.mark.skipif(shutil.which("signify-openbsd") is None or shutil.which("cc") is None, reason="skipped: no signify-openbsd or cc")]
# active until `current` is the new release, which then is said to have failed
FAILING = r"""#!/bin/sh
[ "$1" = show ] || exit 0
s=active
case $(readlink {state}/current) in releases/2) s=failed ;; esac
for i in 1 2 3; do printf 'ActiveState=%s\nMainPID=0\nNRestarts=0\n\n' $s; done
"""
INACTIVE = r"""#!/bin/sh
[ "$1" = show ] && printf 'ActiveState=inactive\nMainPID=0\nNRestarts=0\n\nActiveState=inactive\nMainPID=0\nNRestarts=0\n\nActiveState=inactive\nMainPID=0\nNRestarts=0\n\n'
exit 0
"""


def killat(rig, tool, n, power, *more):
    """Runs privupgrade, or with -b what runs at boot, and ends it before call n: (how many there were, the call's name or "-")."""
    p = subprocess.run([tool, *(["-p"] if power else []), str(n), *rig.args("-t", "200", *more)], capture_output=True, text=True, env=ENV, timeout=60,
                       check=False)
    count, name = p.stdout.split()[-2:]
    assert "Sanitizer" not in p.stderr, p.stderr
    return int(count), name


def settled(rig, point):
    """As after a start of the machine. The release in force, and that all is in order."""
    rig.run("-b", "-t", "200")
    for _ in range(4):      # the path unit starts the service while there is something to do
        rig.run("-t", "200")
        if not os.path.exists(os.path.join(rig.state, "upgrade/state")) and not os.listdir(os.path.join(rig.state, "upgrade/taken")) and \
           not os.listdir(os.path.join(rig.state, "connectd")):
            break
    version, history = rig.complete(), rig.history()
    assert not rig.leftovers(), (point, rig.leftovers())
    assert not os.path.exists(os.path.join(rig.state, "upgrade/state")), point
    done = [h for h in history if h["outcome"] == "done" and h["to"] == "2"]
    if version == "2.0":
        assert done and history[-1]["outcome"] == "done" and rig.current() == rig.updater() == "releases/2", (point, history)
    else:
        assert version == "1.0" and not done and rig.current() == rig.updater() == rig.packaged, (point, history)
    attempts = [h["attempt"] for h in history]
    assert len(attempts) == len(set(attempts)), (point, history)
    return version, history


@pytest.fixture(name="tools", scope="module")
def fixture_tools(tmp_path_factory):
    return tmp_path_factory.mktemp("tools")


def sweep(tools, script, power, expect, after):
    tool = compile_tool("killat", str(tools))
    with tempfile.TemporaryDirectory(prefix="edgeward-upgrade-", dir="/dev/shm") as where:
        rig = Rig(where, tools)
        rig._put(rig.systemctl, script.replace("{state}", rig.state).encode(), 0o755)
        release, next_one = Release(rig), Release(rig, 3, "3.0")
        rig.run()
        pristine = os.path.join(rig.where, "pristine")
        shutil.copytree(rig.state, pristine, symlinks=True)
        seen, points = set(), 0
        for n in range(1, 1000):
            shutil.rmtree(rig.state)
            subprocess.run(["cp", "-a", pristine, rig.state], check=True)
            os.chown(os.path.join(rig.state, "connectd"), 65533, 65533)
            rig.queue(release)
            _, name = killat(rig, tool, n, power)
            version, history = settled(rig, (n, name))
            seen.add((version, history[-1]["outcome"]))
            if name == "-":
                break
            points += 1
            if n % 10 == 0:
                rig.queue(next_one)      # it is not stuck
                rig.run("-t", "200")
                assert rig.last() == after, (n, name, rig.last())
        assert name == "-" and points > 40
        assert expect <= seen, seen
        return points


BOTH = pytest.mark.parametrize("power", [True, pytest.param(False, marks=pytest.mark.skipif("EDGEWARD_ALL" not in os.environ, reason=(
    "skipped: a power cut loses all that a kill does and more; EDGEWARD_ALL=1 runs both")))], ids=["power", "kill"])


@BOTH
def test_b93_every_call_of_a_good_upgrade(tools, power):
    points = sweep(tools, INACTIVE, power, {("1.0", "failed"), ("2.0", "done")}, ("done", "ok"))
    print(f"{points} points, 0 bricks")


@BOTH
def test_b93_every_call_of_one_that_goes_back(tools, power):
    points = sweep(tools, FAILING, power, {("1.0", "rolled-back"), ("1.0", "failed")}, ("rolled-back", "unhealthy"))
    print(f"{points} points, 0 bricks")


# ---- the recovery itself ----

def phase(rig):
    """What is open on the disk, and what is in force: (phase, current); None."""
    path = os.path.join(rig.state, "upgrade/state")
    if not os.path.exists(path):
        return None
    with open(path, encoding="ascii") as f:
        words = dict(line.split(" ", 1) for line in f.read().splitlines())
    return words["phase"], rig.current() == "releases/2", rig.updater() == "releases/2"


def restore(rig, copy):
    shutil.rmtree(rig.state)
    subprocess.run(["cp", "-a", copy, rig.state], check=True)
    os.chown(os.path.join(rig.state, "connectd"), 65533, 65533)


def left_open(rig, tool, script, release):
    """Each state that a power cut during an upgrade leaves open, by its phase and links, once: {phase: a copy of the directory}."""
    rig._put(rig.systemctl, script.replace("{state}", rig.state).encode(), 0o755)
    pristine, found = os.path.join(rig.where, "pristine"), {}
    if not os.path.isdir(pristine):
        shutil.copytree(rig.state, pristine, symlinks=True)
    for n in range(1, 1000):
        restore(rig, pristine)
        rig.queue(release)
        _, name = killat(rig, tool, n, True)
        if name == "-":
            return found
        what = phase(rig)
        if what is not None and what not in found:
            found[what] = os.path.join(rig.where, "open-" + "-".join(map(str, what)))
            shutil.copytree(rig.state, found[what], symlinks=True)
    raise AssertionError("it does not end")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", [INACTIVE, FAILING], ids=["good", "bad"])
def test_b93_every_call_of_the_recovery(tools, script):
    """Power is cut once, then again at every call of what runs at boot and of the service that goes on."""
    tool, points = compile_tool("killat", str(tools)), 0
    with tempfile.TemporaryDirectory(prefix="edgeward-upgrade-", dir="/dev/shm") as where:
        rig = Rig(where, tools)
        rig.run()
        states = left_open(rig, tool, script, Release(rig))
        assert {p for p, _, _ in states} == ({"staging", "trial", "commit"} if script is INACTIVE else {"staging", "trial", "back"}), states
        for what, copy in states.items():
            for more in (["-b"], []):
                for n in range(1, 300):
                    restore(rig, copy)
                    _, name = killat(rig, tool, n, True, *more)
                    version, history = settled(rig, (what, more, n, name))
                    assert len(history) == 1 and (version == "1.0" or history[0]["outcome"] == "done"), (what, more, n, name)
                    if name == "-":
                        break
                    points += 1
                assert name == "-"
    print(f"{points} points of {len(states)} states, 0 bricks")


@pytest.mark.parametrize("script", [INACTIVE, FAILING], ids=["good", "bad"])
def test_b103_a_phase_that_is_interrupted_without_end(tools, script):
    """Each time it is entered, the phase is interrupted, fifty times over: what is kept of it does not grow, a release that is complete is in
    force all the while, and the first time it is left alone it ends."""
    tool = compile_tool("killat", str(tools))
    with tempfile.TemporaryDirectory(prefix="edgeward-upgrade-", dir="/dev/shm") as where:
        rig = Rig(where, tools)
        rig.run()
        states = left_open(rig, tool, script, Release(rig))
        for what, copy in states.items():
            restore(rig, copy)
            sizes = set()
            for n in range(50):
                if phase(rig) is None:
                    break
                killat(rig, tool, 1 + n % 3, True, *(["-b"] if n % 2 else []))
                rig.complete()
                path = os.path.join(rig.state, "upgrade/state")
                sizes.add(os.path.getsize(path) if os.path.exists(path) else 0)
            assert len(sizes) < 8 and max(sizes) < 1024, (what, sizes)
            _, history = settled(rig, what)
            assert len(history) == 1, (what, history)
