"""What else confines a command, without an agent: bwrap by hand and runc, each started anew for every command.

Both get what a workload of ours gets in the full sandbox: namespaces for users, processes, IPC, host name and mounts, the system read-only,
/proc, /dev and /tmp of its own, no capability, the machine's network. Neither has a filter of system calls or Landlock rules, which ours has.
"""
import json
import os
import pathlib
import shutil
import subprocess

from .agents import Floor
from .proc import BenchError, figures, run

RUNNER, NOBODYS_ROOT = 65499, 65498     # numeric ids; nothing is added to /etc
SYSTEM = [pathlib.Path("/", name) for name in "usr opt etc bin sbin lib lib32 lib64 libx32 sys/devices/system".split()]
ECHO = ["/bin/echo", "x"]


class Sandbox(Floor):
    """Started by the floor's driver: posix_spawn and a pipe."""

    def __init__(self, out, cert, argv):
        super().__init__(out, cert)
        self.argv = argv
        tried = subprocess.run([*argv, *self.command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        if tried.returncode != 0 or tried.stdout != "x\n":
            raise BenchError(f"skipped: does not start here: ...{tried.stderr.strip()[-100:]}")

    def latency(self, count):
        return figures(run(self.floor, "cmd", count, 1, *self.argv, *self.command))


class Bwrap(Sandbox):
    name = "bwrap"
    command = ECHO

    def __init__(self, out, cert):
        bwrap = shutil.which("bwrap")
        if not bwrap:
            raise BenchError("skipped: no bubblewrap")
        argv = [bwrap, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent",
                "--cap-drop", "ALL", "--uid", str(RUNNER), "--gid", str(RUNNER)]
        for path in SYSTEM:
            if path.is_symlink():
                argv += ["--symlink", os.readlink(path), str(path)]
            elif path.is_dir():
                argv += ["--ro-bind", str(path), str(path)]
        argv += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp", "--dir", "/work", "--chdir", "/work"]
        super().__init__(out, cert, argv)


class Runc(Sandbox):
    """One bundle, made here; `runc run` makes a container and its cgroup, starts the command in it, and removes both. No resource has a limit."""
    name = "runc"
    command = []                        # it is in the bundle

    def __init__(self, out, cert):
        runc = shutil.which("runc", path="/usr/sbin:/usr/bin")
        if not runc:
            raise BenchError("skipped: no runc")
        if os.geteuid() != 0:
            raise BenchError("skipped: needs root")
        bundle = out / "runc"
        shutil.rmtree(bundle, ignore_errors=True)
        rootfs = bundle / "rootfs"
        for name in ("proc", "dev", "tmp", "work"):
            (rootfs / name).mkdir(parents=True)
        (rootfs / "tmp").chmod(0o1777)  # the tmpfs there gets the mode of what it covers
        for path in SYSTEM:
            inside = rootfs / path.relative_to("/")
            if path.is_symlink():
                inside.symlink_to(os.readlink(path))
            elif path.is_dir():
                inside.mkdir(parents=True)
        (bundle / "config.json").write_text(json.dumps(bundle_config(rootfs), indent=1))
        super().__init__(out, cert, [runc, "--root", str(bundle / "state"), "run", "--bundle", str(bundle), "edgeward-bench"])


def bundle_config(rootfs):
    def mount(to, kind, source, *options):
        return {"destination": to, "type": kind, "source": source, "options": ["nosuid", *options]}

    mounts = [mount(str(path), "bind", str(path), "rbind", "ro", "nodev") for path in SYSTEM if path.is_dir() and not path.is_symlink()]
    mounts += [mount("/proc", "proc", "proc", "nodev", "noexec"), mount("/dev", "tmpfs", "tmpfs", "mode=755"),
               mount("/dev/pts", "devpts", "devpts", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
               mount("/dev/shm", "tmpfs", "tmpfs", "nodev", "mode=1777"), mount("/tmp", "tmpfs", "tmpfs", "nodev")]
    # runc wants a root in the namespace to set it up; the command runs as the other one.
    ids = [{"containerID": inside, "hostID": outside, "size": 1} for inside, outside in ((0, NOBODYS_ROOT), (RUNNER, RUNNER))]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": RUNNER, "gid": RUNNER}, "args": ECHO, "env": ["PATH=/usr/bin:/bin", "LANG=C.UTF-8"], "cwd": "/work",
            "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")},
            "noNewPrivileges": True,
        },
        "root": {"path": str(rootfs), "readonly": True},
        "hostname": "bench",
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": kind} for kind in ("user", "pid", "ipc", "uts", "mount")],
            "uidMappings": ids, "gidMappings": ids,
            "cgroupsPath": "/edgeward-bench-runc",
        },
    }
