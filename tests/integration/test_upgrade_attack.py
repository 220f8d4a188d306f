"""privupgrade under attack and in need: what must hold when the disk is full, and what a taken-over connectd cannot bring about.

Where these kinds of fault could occur: privupgrade/trial.c (B91: back() saves a state before it switches), main.c (B90, B92: what counts as a
try of a release).
"""
import os
import shutil
import subprocess
import tempfile

import pytest

from lib.agent import is_root
from lib.release import ENV, Release, Rig
from test_upgrade import wait_for

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


def test_b92_a_damaged_copy_is_no_try_of_the_release(rig):
    """A copy of a signed release that was damaged on its way, by a taken-over connectd for one, says nothing of the release: it must not
    bring it to be marked bad, which would last."""
    good = Release(rig)
    for at in range(1, 5):
        assert rig.upgrade(good.data[:-at] + b"?" * at, sequence=2)[1] == "bad-file"
    assert rig.upgrade(good) == ("done", "ok"), rig.history()
