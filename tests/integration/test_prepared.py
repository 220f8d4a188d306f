"""A process prepared ahead of its workload (workerd/prepared.c): the same confinement, never somebody else's, and gone by itself."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import pytest

from lib import proc, workdrv
from lib.proc import wait_for
from lib.workdrv import Device

PY = "/usr/bin/python3"
pytestmark = pytest.mark.root

# Everything a workload can see of what was done to it.
SEEN = r"""
import json, os, resource
def lines(path):
    with open(path) as f:
        return f.read().splitlines()
def names(path):
    try:
        return sorted(os.listdir(path))
    except OSError as e:
        return e.errno
mounts = [l.split() for l in lines("/proc/self/mountinfo")]
print(json.dumps({
    "mounts": sorted([m[3:6] + m[6:] for m in mounts]),
    "status": [l for l in lines("/proc/self/status") if l.split(":")[0] in ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff",
               "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "SigBlk", "SigIgn", "Umask")],
    "files": {d: names(d) for d in ("/", "/dev", "/run/empty", "/etc/edgeward", "/proc/self/fd")},
    "passwd": lines("/etc/passwd"), "group": lines("/etc/group"), "cwd": os.getcwd(), "env": dict(os.environ),
    "written": [p for p in ("/x", "/run/x", "/run/passwd", "/usr/x", "/run/empty/x", "/tmp/x", "x") if os.system("touch %s 2>/dev/null" % p) == 0],
    "oom": lines("/proc/self/oom_score_adj"), "core": resource.getrlimit(resource.RLIMIT_CORE), "nofile": resource.getrlimit(resource.RLIMIT_NOFILE),
    "parent": lines("/proc/%d/comm" % os.getppid()) if os.getppid() else None}))
"""


def waiting(dev):
    """Names of the groups in which a process waits."""
    return [n for n in os.listdir(dev.cgroup) if n.startswith("w.prepared-") and dev.is_prepared(n) and comms(dev, n) == ["prepared"]]


def comms(dev, name):
    try:
        with open(f"{dev.cgroup}/{name}/cgroup.procs", encoding="ascii") as f:
            return [s[0] for p in f.read().split() if (s := proc.stat(int(p))) is not None]
    except OSError:
        return []


def warm(dev, argv=("true",), **kw):
    """Runs something and waits until the next of its kind is prepared."""
    dev.run(list(argv), **kw)
    wait_for(lambda: waiting(dev), 10, "one is prepared")
    dev.run_loop = time.monotonic() + 0.1
    while time.monotonic() < dev.run_loop:       # workerd has read that it waits
        dev.step(0.02)


def in_group(dev, **kw):
    return dev.run(["grep", "-o", "w[.].*", "/proc/self/cgroup"], **kw).data.decode().strip()


@pytest.fixture(params=["", "sandbox-level = uid\n"], ids=["namespaces", "uid"])
def dev(request):
    with Device(policy="[work]\n" + request.param if request.param else "") as d:
        yield d


def test_it_is_used_and_nothing_differs(dev):
    cold = json.loads(dev.run([PY, "-I", "-c", SEEN], work_dir="p/q").data)
    warm(dev, work_dir="p/q")
    r = dev.start([PY, "-I", "-c", SEEN], work_dir="p/q")
    dev.finish(r)
    got = json.loads(r.data)
    for what in cold:
        assert got[what] == cold[what], what
    warm(dev, work_dir="p/q")
    name, = waiting(dev)
    assert in_group(dev, work_dir="p/q") == name
    assert dev.settled()


def test_another_directory_of_the_same_runner(dev):
    """The runner's id decides, not the directory below: that one comes with the start."""
    warm(dev, work_dir="p/a")
    name, = waiting(dev)
    r = dev.run(["sh", "-c", "pwd; grep -o 'w[.].*' /proc/self/cgroup; grep edgeward-run /etc/passwd | cut -d: -f6"], work_dir="p/b/c")
    pwd, group, *home = r.data.decode().split()
    assert pwd == f"{dev.dir}/work/p/b/c" and group == name and home in ([pwd], []), r.data      # at level uid it has no line there


def test_never_for_another_runner(dev):
    warm(dev, work_dir="a")
    assert in_group(dev, work_dir="b").startswith("w.h"), "another runner's process ran it"
    assert dev.settled()


def test_not_when_something_to_see_has_changed():
    shown = f"/tmp/ewshown.{os.getpid()}"
    os.mkdir(shown, 0o755)
    try:
        with Device(conf=f"show = {shown}\n") as dev:
            warm(dev)
            os.rename(shown, shown + ".old")
            os.mkdir(shown, 0o755)
            with open(f"{shown}/new", "w", encoding="ascii"):
                pass
            assert dev.run(["ls", shown]).data == b"new\n"
    finally:
        shutil.rmtree(shown, ignore_errors=True)
        shutil.rmtree(shown + ".old", ignore_errors=True)


@pytest.fixture(name="shown")
def shown_directory():
    path = tempfile.mkdtemp(prefix="ewshown.")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


def test_not_when_a_link_to_it_leads_elsewhere(shown):
    """show = LINK: the launcher follows it."""
    os.mkdir(f"{shown}/v", 0o755)
    os.symlink(f"{shown}/v", f"{shown}/current")
    with Device(conf=f"show = {shown}/current\n") as dev:
        warm(dev)
        os.rename(f"{shown}/v", f"{shown}/old")
        os.mkdir(f"{shown}/v", 0o755)
        with open(f"{shown}/v/new", "w", encoding="ascii"):
            pass
        assert dev.run(["ls", f"{shown}/current/"]).data == b"new\n"


def test_not_when_something_was_mounted_below(shown):
    """Neither what is mounted there by now may be missing, nor what is gone be there."""
    os.mkdir(f"{shown}/disk", 0o755)
    with Device(conf=f"show = {shown}\n", enter=["unshare", "-m"]) as dev:
        def outside(script):
            subprocess.run(["nsenter", "-t", str(dev.launcher.pid), "-m", "sh", "-ec", script], check=True)
        warm(dev)
        outside(f"mount -t tmpfs none {shown}/disk; touch {shown}/disk/file")
        assert dev.run(["ls", f"{shown}/disk"]).data == b"file\n"
        warm(dev)
        outside(f"umount {shown}/disk")
        assert dev.run(["ls", f"{shown}/disk"]).data == b""


@pytest.mark.parametrize("name", ["passwd", "group"])
def test_not_when_the_names_of_users_were_written(shown, name):
    """As useradd does it: another file gets the name, and what the view has laid over the old one is gone with that."""
    etc = f"{shown}/etc"
    shutil.copytree("/etc", etc, symlinks=True)
    with Device(enter=["unshare", "-m", "sh", "-ec", f'mount --bind {etc} /etc; exec "$@"', "sh"]) as dev:
        warm(dev)
        shutil.copy2(f"{etc}/{name}", f"{etc}/{name}+")
        os.rename(f"{etc}/{name}+", f"{etc}/{name}")
        assert dev.run(["cut", "-d:", "-f1", f"/etc/{name}"]).data == b"edgeward-run\n"


def test_its_name_is_no_hubs(dev):
    """A workload can see the name in /proc/self/cgroup and tell it: a start under the one that waits would be a rename onto itself."""
    warm(dev)
    name, = waiting(dev)
    pid = dev.workerd_pid()
    for handle in (name[2:], "prepared-", "prepared-7-1"):
        assert "prepared-" in dev.start(["true"], handle=handle, expect=workdrv.BAD_SPEC)
    assert dev.run(["true"], handle="prepared").info["outcome"] == workdrv.EXITED and dev.workerd_pid() == pid


def test_not_for_what_it_cannot_run(dev):
    """A start with a secret never takes one: none is made for the next, and one that waits is not kept by it."""
    item = struct.pack("=II", 2, 0) + b"".join(struct.pack("=I", len(s)) + s for s in (b"l", b"g", b"", b"K", b""))
    secret = {"secrets": item, "env": ["K=canary-Zk3vT0x9mZ2dLr8A", "PATH=/usr/bin:/bin"]}
    dev.run(["true"], **secret)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        dev.step(0.05)
    assert not waiting(dev)
    warm(dev)
    name, = waiting(dev)
    end = time.monotonic() + 8
    while waiting(dev) == [name]:
        assert time.monotonic() < end, "it is kept by starts that are not for it"
        dev.run(["true"], **secret)


FAULT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
static volatile sig_atomic_t add, second;
static void on_usr1(int signo) { add = 1; }
static void on_usr2(int signo) { second = 2; }
__attribute__((constructor)) static void start(void) { signal(SIGUSR1, on_usr1); signal(SIGUSR2, on_usr2); }
int epoll_ctl(int e, int op, int fd, struct epoll_event *ev)
{
	int (*next)(int, int, int, struct epoll_event *) = dlsym(RTLD_NEXT, "epoll_ctl");
	if (add && op == EPOLL_CTL_ADD) { add = 0; errno = ENOSPC; return -1; }
	return next(e, op, fd, ev);
}
ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	ssize_t (*next)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, "sendmsg");
	if (second != 0 && --second == 0) { errno = ENOMEM; return -1; }
	return next(fd, m, flags);
}
"""


@pytest.mark.parametrize("sig", [signal.SIGUSR1, signal.SIGUSR2], ids=["its channel", "go"])
def test_one_that_cannot_be_told_ends(shown, sig):
    """workerd has promised it and cannot say so: the workload is lost. It must not wait on with its start unanswered."""
    with open(f"{shown}/fault.c", "w", encoding="ascii") as f:
        f.write(FAULT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", f"{shown}/fault.so", f"{shown}/fault.c", "-ldl"], check=True)
    with Device(env={"LD_PRELOAD": f"{shown}/fault.so", "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:verify_asan_link_order=0"}) as dev:
        warm(dev)
        os.kill(dev.workerd_pid(), sig)
        time.sleep(0.1)
        r = dev.start(["echo", "x"])
        dev.finish(r)
        assert r.info["outcome"] == workdrv.LOST and not r.data
        assert dev.run(["echo", "on"]).data == b"on\n" and dev.settled()


def test_it_goes_by_itself(dev):
    warm(dev)
    end = time.monotonic() + 8
    while waiting(dev) and time.monotonic() < end:
        dev.step(0.1)
    assert not waiting(dev)
    assert [n for n in os.listdir(dev.cgroup) if n.startswith("w.")] == []
    assert proc.by_uid(set(range(workdrv.POOL_FIRST, workdrv.POOL_FIRST + workdrv.POOL_COUNT))) == []


@pytest.mark.parametrize("who", ["workerd", "launcher"])
def test_it_survives_nobody(dev, who):
    """A workerd that comes after another, and the end of the launcher, leave none."""
    warm(dev)
    name, = waiting(dev)
    if who == "workerd":
        dev.kill_workerd()
        dev.connect()
    else:
        dev.stop_launcher()
    wait_for(lambda: not os.path.exists(f"{dev.cgroup}/{name}"), 10, "its group is gone")
    if who == "workerd":
        assert dev.run(["echo", "on"]).data == b"on\n"


def test_one_that_was_killed_is_not_asked(dev):
    warm(dev)
    name, = waiting(dev)
    with open(f"{dev.cgroup}/{name}/cgroup.kill", "w", encoding="ascii") as f:
        f.write("1")
    wait_for(lambda: not os.path.exists(f"{dev.cgroup}/{name}"), 10, "its group is gone")
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        dev.step(0.05)
    assert re.match("w[.](h|prepared-)", in_group(dev)) and dev.settled()


def test_stopped_at_once(dev):
    """A signal right behind the start finds the workload, whoever runs it."""
    for _ in range(10):
        warm(dev, ["true"])
        handle, ident = dev.ask_start(["sleep", "60"])
        dev.request(workdrv.SIGNAL_T, workdrv.SIGNAL.pack(handle.encode(), signal.SIGKILL, 0))
        dev.answer(ident)
        r = dev.runs.get(handle)
        if r is not None:
            dev.sub(r, 0)
            dev.finish(r)
            assert r.info["outcome"] in (workdrv.CANCELLED, workdrv.LOST)
    assert dev.settled()
