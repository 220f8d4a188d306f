"""privupgrade under attack and in need: what must hold when the disk is full, and what a taken-over connectd cannot bring about.

Where these kinds of fault could occur: privupgrade/trial.c (B91: back() saves a state before it switches), store.c (B90, B92: what counts as a
try of a release), inbox.c (B88: what is taken and removed), main.c (B97: what is in force).

What a release or a request may be attacked with, and the test of each:

    links, FIFO, device, directory, socket in place    test_b88_planted in test_upgrade.py
    staged file changed between check and use           test_b88_changed_while_it_is_used there
    cut, padded, each byte flipped                       unit/test_verify.c (all of them), test_b98_every_byte_is_covered there
    huge lengths                                         test_b98_huge_lengths, unit/test_verify.c
    duplicate entries                                    test_duplicate_entries
    wrong architecture, other format, expired            test_b95_metadata there, test_wrong_machine
    older, equal, strange sequence                       test_b97_sequence, test_b97_downgrade_by_the_operator_alone_and_once there
    another key                                          test_keys there
    a request again                                      test_b97_a_replayed_request
    a flood of requests                                  test_flood there, test_a_flood_gets_slower_and_does_not_hold_up_the_operator
    a malformed request                                  test_bad_requests there
"""
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time

import pytest

from lib.agent import is_root
from lib.release import ENV, PRIVUPGRADE, Release, Rig
from test_upgrade import refused, wait_for

pytestmark = [pytest.mark.skipif(not is_root(), reason="skipped: needs root"),
              pytest.mark.skipif(shutil.which("signify-openbsd") is None or shutil.which("cc") is None, reason="skipped: no signify-openbsd or cc")]


@pytest.fixture(name="rig")
def fixture_rig(tmp_path_factory):
    with tempfile.TemporaryDirectory(prefix="edgeward-upgrade-", dir="/var/tmp") as where:    # pytest's own are closed to nobody
        rig = Rig(where, tmp_path_factory.mktemp("tools"))
        yield rig
        rig.stop_units()


@pytest.fixture(name="small")
def fixture_small(rig):
    """The state on a file system of its own, which can be filled."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "tmpfs", rig.state], check=True)
    os.mkdir(os.path.join(rig.state, "connectd"), 0o700)
    os.chown(os.path.join(rig.state, "connectd"), 65533, 65533)
    for name in ("current", "updater"):
        os.symlink(rig.packaged, os.path.join(rig.state, name))
    yield rig
    rig.stop_units()
    subprocess.run(["umount", "-l", rig.state], check=True)


def fill(path):
    with open(path, "wb", buffering=0) as f:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    f.write(b"x" * size)
            except OSError:
                pass


def test_b91_goes_back_on_a_full_disk(small):
    """Work may fill the disk while a release is on trial. Going back takes no space: the old release serves again at once, and when there is
    room again it is on record."""
    rig = small
    rig.start_units()
    rig.queue(Release(rig), settle=30)
    p = subprocess.Popen(rig.args("-t", "1000"), env=ENV)
    wait_for(lambda: rig.current() == "releases/2")
    fill(os.path.join(rig.state, "connectd/full"))
    os.rename(os.path.join(rig.run_dir, "probe"), os.path.join(rig.run_dir, "hidden"))
    p.wait(60)
    assert rig.current() == rig.packaged
    with open(os.path.join(rig.where, "systemctl.log"), encoding="ascii") as f:
        assert f.read().count("restart edgeward-connectd") == 3    # at the start, to the new one, back
    os.unlink(os.path.join(rig.state, "connectd/full"))
    os.rename(os.path.join(rig.run_dir, "hidden"), os.path.join(rig.run_dir, "probe"))
    rig.boot()
    rig.run()
    assert rig.current() == rig.updater() == rig.packaged and not rig.leftovers()
    assert rig.last()[0] in ("rolled-back", "failed"), rig.history()


# ---- what is signed and wrong all the same: by mistake, or with a stolen key ----

@pytest.mark.parametrize("length", [0, "-1", "+5", "05", 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 5, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 5, "9" * 40, ""])
def test_b98_huge_lengths(rig, length):
    """Of one file, and of two whose sum would be right again modulo 2^64: refused before anything is read by them or made room for."""
    def change(text):
        return re.sub(r"^(data note.txt) \d+", rf"\1 {length}", text, flags=re.M)
    refused(rig, Release(rig, change=change), "bad-manifest bad-size")
    if isinstance(length, int) and 0 < length < 2**64:
        def both(text):
            return re.sub(r"^(program edgectl) (\d+)", lambda m: f"{m[1]} {2**64 - length + int(m[2]) + 26}", change(text), flags=re.M)
        refused(rig, Release(rig, change=both), "bad-manifest bad-size")


@pytest.mark.parametrize("change", [
    lambda t: re.sub(r"^(program connectd .*\n)", r"\1\1", t, flags=re.M).replace("end 9", "end 10"),
    lambda t: re.sub(r"^(program connectd .*\n)", r"\1\1", t, flags=re.M),
    lambda t: re.sub(r"^(data note.txt .*\n)", r"\1\1", t, flags=re.M).replace("end 9", "end 10"),
    lambda t: re.sub(r"^program edgectl .*\n", "", t, flags=re.M).replace("data note.txt", "program connectd"),
    lambda t: re.sub(r"^program (edgectl .*\n)", r"program \1data \1", t, flags=re.M).replace("end 9", "end 10"),
    *[lambda t, k=k: re.sub(rf"^({k} .*\n)", r"\1\1", t, flags=re.M) for k in ("version", "sequence", "channel", "arch", "protocol", "expires", "end")],
])
def test_duplicate_entries(rig, change):
    """A file twice, a program that is data, too, each key twice: which of the two would count is nobody's to guess."""
    made = Release(rig)
    assert change(made.manifest.decode()) != made.manifest.decode()
    refused(rig, Release(rig, change=change), "bad-manifest bad-signature bad-size")


@pytest.mark.parametrize("at, value", [(4, 1), (5, 2), (16, 1), (18, 40), (18, 8)])
def test_wrong_machine(rig, at, value):
    """The manifest says it is for this machine; class, byte order, kind or machine in the program say it is not."""
    wrong = bytearray(rig.program("workerd", "2.0", "ok"))
    wrong[at] = value
    refused(rig, Release(rig, files={"workerd": bytes(wrong)}), "bad-file wrong-arch")


def test_b92_a_damaged_copy_is_no_try_of_the_release(rig):
    """A copy of a signed release that was damaged on its way, by a taken-over connectd for one, says nothing of the release: it must not
    bring it to be marked bad, which would last."""
    good = Release(rig)
    for at in range(1, 5):
        assert rig.upgrade(good.data[:-at] + b"?" * at, sequence=2)[1] == "bad-file"
    assert rig.upgrade(good) == ("done", "ok"), rig.history()


def test_b90_a_full_disk_is_no_try_of_the_release(small):
    """A taken-over connectd, or work, can fill the disk when a good release comes. It is refused as often as that lasts and never marked bad;
    a request that cannot even be answered stays until it can."""
    rig = small
    good = Release(rig)
    full = os.path.join(rig.state, "connectd/full")
    with open(full, "wb") as f:
        f.truncate(0)
        os.posix_fallocate(f.fileno(), 0, 50 << 20)
    for _ in range(5):
        assert rig.upgrade(good) == ("refused", "no-space")
    os.unlink(full)
    rig.queue(good)
    fill(full)
    for _ in range(4):
        assert rig.run(check=False).returncode == 1 and rig.current() == rig.packaged
    os.unlink(full)
    rig.run()
    assert rig.last() == ("done", "ok") and not rig.leftovers(), rig.history()


def make_read_only(rig):
    subprocess.run(["mount", "-o", "remount,ro", rig.state], check=True)
    return lambda: subprocess.run(["mount", "-o", "remount,rw", rig.state], check=True)


def make_noexec(rig):
    subprocess.run(["mount", "-o", "remount,noexec", rig.state], check=True)
    return lambda: subprocess.run(["mount", "-o", "remount,exec", rig.state], check=True)


def make_directory(rig):
    """In place of the link; what is in force is not to be told then, so it is the packaged one."""
    path = os.path.join(rig.state, "current")
    os.unlink(path)
    os.makedirs(os.path.join(path, "x"))
    return lambda: (shutil.rmtree(path), os.symlink(rig.packaged, path))


def make_release_directory(rig):
    """Something that is no release, and deep, where the release goes."""
    path = os.path.join(rig.state, "releases/2")
    os.makedirs(os.path.join(path, "x/y"))
    return lambda: shutil.rmtree(path)


def make_immutable(rig):
    if subprocess.run(["chattr", "+i", os.path.join(rig.state, "releases")], capture_output=True, check=False).returncode != 0:
        pytest.skip("skipped: no immutable files here")
    return lambda: subprocess.run(["chattr", "-i", os.path.join(rig.state, "releases")], check=True)


def make_no_judge(rig):
    """The updater in force has lost its second half."""
    copy, link = os.path.join(rig.where, "half"), os.path.join(rig.state, "updater")
    os.mkdir(copy)
    shutil.copy(PRIVUPGRADE, copy)
    os.unlink(link)
    os.symlink(copy, link)
    return lambda: (os.unlink(link), os.symlink(rig.packaged, link))


@pytest.mark.parametrize("make", [make_read_only, make_noexec, make_directory, make_release_directory, make_immutable, make_no_judge])
def test_b90_a_swap_that_cannot_be_done(small, make):
    """Whatever keeps the switch from being made: the tries are bounded, over restarts of the machine too; what runs is not touched; and when
    the cause is gone a newer release is installed."""
    rig = small
    rig.run()
    rig.start_units()
    rig.probe(connected="yes")
    log = os.path.join(rig.where, "systemctl.log")
    before = open(log, encoding="ascii").read()
    undo = make(rig)
    bad, half = Release(rig), os.path.join(rig.where, "half/privupgrade")
    try:
        for n in range(10):
            if make is not make_read_only:
                rig.queue(bad)
            p = subprocess.run([half, *rig.args()[1:]], capture_output=True, text=True, timeout=60, env=ENV, check=False) if make is make_no_judge else \
                rig.run(check=False)
            assert "Sanitizer" not in p.stderr, p.stderr
            if n % 3 == 2:
                rig.run("-b", check=False)
        tries = [h for h in rig.history() if h["outcome"] == "failed"]
        assert len(tries) <= 3 and all(h["code"] in ("io", "self-test", "interrupted") for h in tries), rig.history()
        assert open(log, encoding="ascii").read() == before     # no unit was restarted for it
    finally:
        undo()
    rig.run(check=False)
    rig.boot()
    assert rig.complete() in ("1.0", "2.0")     # a request that could not even be answered was kept until it could
    assert rig.upgrade(Release(rig, 3, "3.0")) == ("done", "ok") and rig.complete() == "3.0", rig.history()
    assert not rig.leftovers()


def test_b88_a_tree_that_is_filled_all_the_while(rig):
    """A directory in place of the request, held open and filled by its owner without an end: it is out of the way at once, and the next
    request is served."""
    rig.run()
    box = os.path.join(rig.state, "connectd")
    os.makedirs(os.path.join(box, "upgrade-request/deep"))
    fd, stop = os.open(os.path.join(box, "upgrade-request/deep"), os.O_RDONLY), threading.Event()

    def grow():
        n = 0
        while not stop.is_set():
            os.mkdir(f"d{n}", dir_fd=fd)
            n += 1
            time.sleep(0.0005)

    t = threading.Thread(target=grow)
    t.start()
    try:
        rig.run(timeout=20)
        assert rig.last() == ("refused", "bad-request") and not rig.leftovers()
        assert rig.upgrade(Release(rig)) == ("done", "ok")
    finally:
        stop.set()
        t.join()
        os.close(fd)


def test_b97_what_is_in_force_is_damaged(rig):
    """The manifest of the release in force cannot be read, then its link is lost, too: what is older than what was installed does not count as
    newer; and what runs is never overwritten, even without a history."""
    assert rig.upgrade(Release(rig, 5, "5.0")) == ("done", "ok") and rig.upgrade(Release(rig, 7, "7.0")) == ("done", "ok")
    with open(os.path.join(rig.state, "releases/7/manifest"), "r+b") as f:
        f.write(b"x")
    old = [Release(rig, n, f"{n}.0") for n in (5, 6, 7)]
    for release in old:
        assert rig.upgrade(release)[0] == "refused" and rig.last()[1] in ("old-sequence", "already-current") and rig.complete() == "7.0"
    for name in ("current", "updater"):
        os.unlink(os.path.join(rig.state, name))
    rig.boot()
    assert rig.current() == rig.packaged
    for release in old[:2]:
        assert rig.upgrade(release) == ("refused", "old-sequence") and rig.complete() == "1.0"
    assert rig.upgrade(old[2]) == ("done", "ok") and rig.complete() == "7.0"
    os.unlink(os.path.join(rig.state, "upgrade/history"))
    with open(os.path.join(rig.state, "releases/7/manifest"), "r+b") as f:
        f.write(b"x")
    assert rig.upgrade(old[2]) == ("refused", "already-current") and rig.complete() == "7.0"


def test_b97_a_replayed_request(rig):
    """The same request and the same file again: right after it was done, after a newer one, and while a newer one is on trial."""
    two, three = Release(rig), Release(rig, 3, "3.0")
    assert rig.upgrade(two) == ("done", "ok")
    assert rig.upgrade(two) == ("refused", "already-current")
    assert rig.upgrade(three) == ("done", "ok")
    assert rig.upgrade(two) == ("refused", "old-sequence") and rig.complete() == "3.0"
    rig.start_units()
    rig.probe(connected="yes")
    rig.queue(Release(rig, 4, "4.0"), settle=3)
    p = subprocess.Popen(rig.args(), env=ENV)
    wait_for(lambda: rig.current() == "releases/4")
    rig.queue(two)
    assert p.wait(30) == 0 and rig.last() == ("done", "ok")
    rig.run()
    assert rig.last() == ("refused", "old-sequence") and rig.complete() == "4.0"


def test_a_hub_cannot_make_the_trial_a_moment(rig):
    """Settle 1 from the hub: at least settle-min. From the operator: as asked. What upgrade.conf says is the ceiling."""
    rig._put(rig.conf, b"channel stable\nsettle 60\nsettle-max 4\nsettle-min 3\n", 0o644)
    rig.start_units()
    for n, (source, settle, least) in enumerate((("hub", 1, 3), ("operator", 1, 1), ("hub", 600, 4))):
        begin = time.monotonic()
        assert rig.upgrade(Release(rig, 2 + n, f"{n + 2}.0"), source=source, settle=settle) == ("done", "ok")
        with open(os.path.join(rig.state, "upgrade/progress"), encoding="ascii") as f:
            assert f", {least} s to settle\n" in f.read()
        assert time.monotonic() - begin >= least


def test_a_pid_that_is_no_work_is_no_reason_to_go_back(rig):
    """A taken-over workerd names a process that never ends as its workload, and does not know of it afterwards. Nobody else's process can
    be held against a release: only what is in the cgroup of its unit counts."""
    tree = "/sys/fs/cgroup/unified" if os.path.isdir("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"
    mine = os.path.join(tree, f"edgeward-test-{os.getpid()}")
    try:
        for name in ("", "launch", "w.a"):
            os.mkdir(os.path.join(mine, name))
    except OSError as e:
        pytest.skip(f"skipped: no cgroup to be had: {e}")
    rig.start_units()
    inside, outside = (subprocess.Popen(["sleep", "1000"]) for _ in range(2))

    def move(pid, where):
        with open(os.path.join(where, "cgroup.procs"), "w", encoding="ascii") as f:
            f.write(str(pid))

    try:
        with open(os.path.join(rig.where, "pid.launcher"), encoding="ascii") as f:
            move(int(f.read()), os.path.join(mine, "launch"))
        move(inside.pid, os.path.join(mine, "w.a"))
        for pid, expect in ((outside.pid, ("done", "ok")), (inside.pid, ("rolled-back", "lost-work"))):
            rig.probe(active=1, work=[("job-1", pid)])
            rig.queue(Release(rig, 2 if expect[0] == "done" else 3, "2.0" if expect[0] == "done" else "3.0"), settle=4)
            p = subprocess.Popen(rig.args(), env=ENV)
            wait_for(lambda e=expect: rig.current() == ("releases/2" if e[0] == "done" else "releases/3"))
            rig.probe(active=0)
            assert p.wait(60) == 0 and rig.last() == expect, (expect, rig.history())
    finally:
        for p in (inside, outside):
            p.kill()
            p.wait()
        rig.stop_units()
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                for name in ("launch", "w.a", ""):
                    if os.path.isdir(os.path.join(mine, name)):
                        os.rmdir(os.path.join(mine, name))
                break
            except OSError:
                time.sleep(0.1)


def test_a_flood_gets_slower_and_does_not_hold_up_the_operator(rig):
    """Each refusal after another makes the pause longer, so that a flood cannot wear out a flash by being recorded. A request of the operator
    ends the pause."""
    rig.run()
    bad = os.path.join(rig.state, "connectd/upgrade-request")
    for _ in range(3):
        rig._put(bad, b"x", 0o600)
        rig.run()
    rig._put(bad, b"x", 0o600)
    begin = time.monotonic()
    rig.run("-f", "300")
    assert time.monotonic() - begin >= 2.3     # 300 ms, doubled three times
    rig._put(bad, b"x", 0o600)
    p = subprocess.Popen(rig.args("-f", "60000"), env=ENV)
    wait_for(lambda: len(rig.history()) == 5)
    assert p.poll() is None
    rig.queue(Release(rig), source="operator")
    assert p.wait(10) == 0
    rig.run()
    assert rig.last() == ("done", "ok")
