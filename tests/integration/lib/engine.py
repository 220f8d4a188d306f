"""Podman with an image made here, behind a socket in a directory of the test's: for tests of containers. No registry is asked.

Podman's storage, configuration and network are the test's own. On a hybrid hierarchy crun refuses to work: the service then runs in a mount
namespace without the v2 tree, which stays mounted everywhere else.
"""
import json
import os
import shutil
import stat
import subprocess
import tempfile

import pytest

from lib.proc import wait_for

IMAGE = "localhost/edgeward-test:1"
APPLETS = ("sh sleep echo cat id ls env seq head dd touch wget ps printf true false kill rm mkdir test stat ln readlink yes mount").split()
CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
"""


def needed():
    """Why there can be no engine here, or None."""
    for program, package in (("podman", "podman"), ("crun", "crun"), ("busybox", "busybox-static")):
        if shutil.which(program) is None:
            return f"skipped: no {program} (package {package})"
    return None if os.getuid() == 0 else "skipped: an engine of root's needs root"


class Engine:
    """The service of one module. socket is given to group gid."""

    def __init__(self, gid):
        why = needed()
        if why:
            pytest.skip(why)
        self.dir = tempfile.mkdtemp(prefix="ewengine.")
        os.chmod(self.dir, 0o755)
        self.socket = f"{self.dir}/podman.sock"
        self.gid, self.service = gid, None
        with open(f"{self.dir}/containers.conf", "w") as f:
            f.write(CONF)
        self.start()
        self.make_image()

    def start(self):
        podman = ["podman", "--root", f"{self.dir}/root", "--runroot", f"{self.dir}/run", "--storage-driver", "vfs", "system", "service", "--time",
                  "0", f"unix://{self.socket}"]
        # With a null device of its own: what an engine does to it must not be done to the machine's.
        os.makedirs(f"{self.dir}/dev", exist_ok=True)
        script = (f'mount --make-rprivate /; [ ! -d /sys/fs/cgroup/unified ] || umount /sys/fs/cgroup/unified; mount -t tmpfs -o mode=755 none {self.dir}/dev; '
                  f'mknod -m 666 {self.dir}/dev/null c 1 3; mount --bind {self.dir}/dev/null /dev/null; exec "$@" </dev/null')
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        self.log = open(f"{self.dir}/log", "ab")
        self.service = subprocess.Popen(["unshare", "-m", "sh", "-c", script, "sh"] + podman, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, env={**os.environ, "CONTAINERS_CONF": f"{self.dir}/containers.conf"})
        wait_for(lambda: os.path.exists(self.socket), 30, "podman's socket")
        os.chown(self.socket, 0, self.gid)
        os.chmod(self.socket, 0o660)

    def null(self):
        """Owner, group and mode of the engine's /dev/null."""
        st = os.stat(os.path.join(f"/proc/{self.service.pid}/root", "dev/null"))
        return st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)

    def stop(self):
        self.service.kill()
        self.service.wait()
        self.log.close()

    def run(self, *args, check=True):
        r = subprocess.run(["podman", "--url", f"unix://{self.socket}", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
                           check=False)
        assert not check or r.returncode == 0, (args, r.stdout, r.stderr)
        return r.stdout

    def make_image(self):
        top = f"{self.dir}/image"
        os.makedirs(f"{top}/bin")
        os.makedirs(f"{top}/workspace")
        shutil.copy(shutil.which("busybox"), f"{top}/bin/busybox")
        for name in APPLETS:
            os.symlink("busybox", f"{top}/bin/{name}")
        subprocess.run(["tar", "-C", top, "-cf", f"{self.dir}/image.tar", "."], check=True)
        self.run("import", f"{self.dir}/image.tar", IMAGE)

    def containers(self, *filters):
        """What podman has, as it tells it: the names."""
        args = [a for f in filters for a in ("--filter", f)]
        return sorted(self.run("ps", "--all", "--format", "{{.Names}}", *args).split())

    def inspect(self, name):
        return json.loads(self.run("inspect", "--type", "container", name))[0]

    def close(self):
        for name in self.containers():
            self.run("rm", "--force", "--time", "0", name, check=False)
        self.stop()
        with open("/proc/self/mountinfo") as f:
            below = [line.split()[4] for line in f if line.split()[4].startswith(self.dir + "/")]
        for where in sorted(below, reverse=True):
            subprocess.run(["umount", "-l", where], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)
