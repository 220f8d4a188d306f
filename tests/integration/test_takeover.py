"""What code that took over connectd or workerd could do: nothing beyond its job (design.md section 1, "stays a part").

System calls are made from inside the running daemons (lib/inject.py), under the filter, the Landlock domain, the user and the
capabilities they really have. Where it could go wrong: the tables in */sandbox.c, the order of the start-up, what Landlock
does not cover, run-foreground's set-up.
"""
import errno
import os
import platform

import pytest

from lib import proc
from lib.inject import KILLED, NR, Injector
from lib.proc import wait_for

pytestmark = [pytest.mark.root, pytest.mark.timeout(90),
              pytest.mark.skipif(platform.machine() != "x86_64", reason="skipped: registers of x86-64 only")]

AT_FDCWD = 2**64 - 100
NEWNS, NEWUSER = 0x20000, 0x10000000
# Calls that no daemon may ever make; each must end the process.
FORBIDDEN = [("execve", (b"/bin/true", 0, 0)), ("execveat", (AT_FDCWD, b"/bin/true", 0, 0, 0)), ("fork", ()),
             ("vfork", ()), ("clone", (17, 0, 0, 0, 0)), ("clone3", (0, 0)), ("ptrace", (16, 1, 0, 0)),
             ("unshare", (NEWUSER,)), ("setns", (0, 0)), ("mount", (b"none", b"/", b"tmpfs", 0, 0)),
             ("setuid", (0,)), ("capset", (0, 0)), ("bpf", (0, 0, 0)), ("io_uring_setup", (1, 0)),
             ("process_vm_readv", (1, 0, 0, 0, 0, 0)), ("pidfd_getfd", (0, 0, 0)), ("init_module", (0, 0, b"")),
             ("chroot", (b"/",)), ("perf_event_open", (0, 0, 0, 0, 0)), ("userfaultfd", (0,)), ("keyctl", (0, 0, 0)),
             ("chown", (b"/tmp", 0, 0)), ("mknod", (b"/tmp/edgeward-implant", 0o20666, 0x103)), ("kill", (1, 0)), ("personality", (0,)),
             ("symlinkat", (b"/etc/passwd", AT_FDCWD, b"/tmp/edgeward-implant"))]


def idle(pid):
    """Waits until the process sleeps in its event loop."""
    wait_for(lambda: proc.stat(pid)[1] == "S", 10, "the daemon sleeps")
    return pid


@pytest.mark.parametrize("role", ["connectd", "workerd"])
@pytest.mark.parametrize("name,args", FORBIDDEN, ids=[n for n, _ in FORBIDDEN])
def test_forbidden_calls_end_the_process(device, hub, role, name, args):
    """The process dies by SIGSYS (or the call is refused, never done); everything goes on without it."""
    run = hub.start("sleep 1000")
    pid = idle(device.pid(role))
    device.expect_broken = "31|Bad system call|SIGSYS"
    with Injector(pid) as inj:
        result = inj.call(name, *args)
    assert result == KILLED, f"{role}: {name} gave {result}"
    device.restarted(role, pid)
    hub.session(20)
    assert proc.alive(run.started["pid"])
    hub.signal(run, "kill")
    hub.finish(run)


def refused(result):
    return result == KILLED or isinstance(result, int) and result < 0


def opens(device, role, *paths, flags=os.O_RDONLY, mode=0):
    """Tries to open each path; -> the ones that could be opened."""
    done = []
    for path in paths:
        pid = idle(device.pid(role))
        with Injector(pid) as inj:
            result = inj.call("openat", AT_FDCWD, path.encode(), flags | os.O_CLOEXEC, mode)
        if not refused(result):
            done.append(path)
        if result == KILLED:
            device.restarted(role, pid)
    return done


def test_connectd_reads_only_its_own(device, hub):
    """Not work, not workerd's state, not /proc of others, not home directories; not even with a path that exists."""
    hub.finish(hub.start("echo secret > file", work_dir="w"))
    hub.session()
    device.expect_broken = "31|Bad system call|SIGSYS"
    paths = [os.path.join(device.root, "w", "file"), device.root, os.path.join(device.state, "workerd"), "/proc/1/environ",
             f"/proc/{device.pid('workerd')}/maps", "/root", "/home", "/dev/mem", "/dev/kmsg", "/sys/kernel", "/boot",
             "/var/log", "/usr/bin/env", "/tmp"]
    assert opens(device, "connectd", *[p for p in paths if os.path.exists(p)]) == []


def test_connectd_writes_only_its_own_state(device, hub):
    hub.session()
    device.expect_broken = "31|Bad system call|SIGSYS"
    flags = os.O_WRONLY | os.O_CREAT
    paths = ["/etc/edgeward-implant", "/tmp/edgeward-implant"]
    assert opens(device, "connectd", *paths, device.conf_file, device.policy_file,
                 os.path.join(device.root, "x"), flags=flags, mode=0o600) == []
    assert not any(os.path.exists(p) for p in paths)


def test_workerd_reads_nothing_of_connectd(device, hub):
    hub.session()
    wait_for(lambda: os.path.exists(device.credential_file), 5, "credential file")
    device.expect_broken = "31|Bad system call|SIGSYS"
    assert opens(device, "workerd", device.credential_file, os.path.join(device.state, "connectd"), "/proc/1/environ",
                 f"/proc/{device.pid('connectd')}/mem", "/root", "/dev/mem") == []


@pytest.mark.parametrize("family,kind,proto,what", [(2, 1, 0, "inet"), (10, 1, 0, "inet6"), (16, 3, 0, "netlink route"),
                                                    (17, 3, 0, "packet"), (2, 3, 1, "raw"), (38, 5, 0, "alg"),
                                                    (40, 1, 0, "vsock"), (2, 2, 0, "udp")])
def test_workerd_has_no_network(device, hub, family, kind, proto, what):
    hub.session()
    device.expect_broken = "31|Bad system call|SIGSYS"
    with Injector(idle(device.pid("workerd"))) as inj:
        result = inj.call("socket", family, kind, proto)
    assert refused(result), f"workerd has a socket of kind {what}"


@pytest.mark.parametrize("family,kind,proto,what", [(17, 3, 0, "packet"), (2, 3, 1, "raw"), (38, 5, 0, "alg"),
                                                    (40, 1, 0, "vsock"), (16, 3, 12, "netfilter")])
def test_connectd_has_only_the_sockets_it_needs(device, hub, family, kind, proto, what):
    hub.session()
    device.expect_broken = "31|Bad system call|SIGSYS"
    with Injector(idle(device.pid("connectd"))) as inj:
        result = inj.call("socket", family, kind, proto)
    assert refused(result), f"connectd has a socket of kind {what}"


@pytest.mark.parametrize("role", ["connectd", "workerd"])
def test_no_memory_that_can_be_written_and_executed(device, hub, role):
    hub.session()
    device.expect_broken = "31|Bad system call|SIGSYS"
    with Injector(idle(device.pid(role))) as inj:
        result = inj.call("mmap", 0, 4096, 7, 0x22, 2**64 - 1, 0)
    assert refused(result), f"{role} got writable and executable memory at {result:#x}"


@pytest.mark.parametrize("role", ["connectd", "workerd"])
def test_what_landlock_abi_2_lacks_is_closed_by_seccomp(device, hub, role):
    """truncate, chmod, utimes by path: on a file the user owns, so that only the filter can say no."""
    victim = os.path.join(device.dir, "victim")
    with open(victim, "w", encoding="ascii") as f:
        f.write("content")
    uid = device.net_uid if role == "connectd" else device.work_uid
    os.chown(victim, uid, uid)
    os.chmod(victim, 0o600)
    hub.session()
    device.expect_broken = "31|Bad system call|SIGSYS"
    before = os.stat(victim)
    for name, args in (("truncate", (victim.encode(), 0)), ("chmod", (victim.encode(), 0o777)),
                       ("utimensat", (AT_FDCWD, victim.encode(), 0, 0))):
        pid = idle(device.pid(role))
        with Injector(pid) as inj:
            result = inj.call(name, *args)
        assert refused(result), (name, result)
        if result == KILLED:
            device.restarted(role, pid)
    after = os.stat(victim)
    assert (after.st_size, after.st_mode, after.st_mtime_ns) == (before.st_size, before.st_mode, before.st_mtime_ns)


def test_the_injector_itself_works(device, hub):
    """A call that is allowed gives a result, and the daemon goes on as if nothing had been."""
    s = hub.session()
    pid = idle(device.pid("connectd"))
    with Injector(pid) as inj:
        assert inj.call("read", 2**32 - 1, 0, 0) == -errno.EBADF
    n = len(s.beats)
    hub.wait("beats", lambda: len(s.beats) >= n + 3, 10)
    assert s.alive and device.pid("connectd") == pid and NR["read"] == 0
