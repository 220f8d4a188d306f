"""A compromised part stays a part (design.md section 1): a hostile connectd, workerd or peer tries what its row forbids.

tests/implant/ enters the real confinement of connectd and of workerd under an ordinary uid and makes one attempt. "SIGSYS" is
the filter, "EACCES" and "EPERM" are Landlock or permissions. Files are tried with the permissions they have on a device and
once more open to everyone, where Landlock alone refuses. What is not refused is written down too.
"""
import array
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

import pytest

from lib import proc, workdrv
from lib.agent import BUILD, exe
from lib.workdrv import BAD_SPEC, HDR, POOL_COUNT, VERSION, Device

ROOT = os.geteuid() == 0
NET, WORK, OTHER = (61761, 61762, 61763) if ROOT else (os.geteuid(),) * 3

FILTERED = ["execve", "execveat", "fork", "newuser", "clone3", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_open",
            "kill", "tgkill", "prlimit", "setuid", "setresuid", "setgid", "dumpable", "mount", "chroot", "unshare", "mmap",
            "mprotect", "io_uring", "bpf", "keyctl", "packet", "netlink", "rtnetlink", "unix-dgram", "unix-stream", "inet-raw",
            "vsock"]
ONLY_WORK = ["inet", "inet6-dgram"]
# What these do to a file is no right of Landlock everywhere, so the filter has none of them.
FILE_FILTERED = ["truncate", "chmod", "symlink", "link"]
# Succeed for any user without a privilege: if they fail with -o as well, the attempt itself is broken.
WITHOUT = ["execve", "execveat", "fork", "mmap", "mprotect", "kill", "dumpable", "netlink", "rtnetlink", "unix-dgram", "unix-stream",
           "inet", "inet6-dgram"]


class Place:
    """A device's directories, and a daemon of each kind that is taken over in them."""

    def __init__(self, wide):
        self.dir = tempfile.mkdtemp(prefix="ewimplant.", dir="/tmp")
        os.chmod(self.dir, 0o755)
        self.made("net", NET, 0o700, wide, {"credential": 0o600})
        self.made("work", WORK, 0o700, wide, {"journal": 0o600})
        self.made("root", WORK, 0o1770, wide, {"file": 0o600})
        self.made("conf", 0, 0o755, wide, {"token": 0o644})
        self.made("other", OTHER, 0o755, wide, {"shadow": 0o600})

    def made(self, name, uid, mode, wide, files):
        top = f"{self.dir}/{name}"
        os.mkdir(top)
        for file, file_mode in files.items():
            with open(f"{top}/{file}", "w") as f:
                f.write("secret")
            os.chmod(f"{top}/{file}", 0o666 if wide else file_mode)
            if ROOT:
                os.chown(f"{top}/{file}", uid, uid)
        if ROOT:
            os.chown(top, uid, uid)
        os.chmod(top, 0o777 if wide else mode)

    def run(self, kind, case, path="", confined=True):
        uid = NET if kind == "net" else WORK
        args = [f"{BUILD}/tests/implant/implant_{kind}", *([] if confined else ["-o"]), "-s", f"{self.dir}/{kind}",
                "-t", f"{self.dir}/conf/token", "-w", f"{self.dir}/root", case, path]
        who = {"user": uid, "group": uid, "extra_groups": []} if ROOT else {}
        p = subprocess.run(args, capture_output=True, text=True, timeout=30, check=False, cwd="/",
                           env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}, **who)
        lines = p.stdout.splitlines()
        head = "confined " if confined else "open"
        assert len(lines) >= 2 and lines[0].startswith(head) and lines[1] == f"trying {case}", (p.returncode, p.stdout, p.stderr)
        assert "Sanitizer" not in p.stderr
        self.abi = int(lines[0].split()[1]) if confined else 0
        if p.returncode == -signal.SIGSYS:
            assert len(lines) == 2
            return "SIGSYS"
        assert p.returncode == 0 and len(lines) == 3, (p.returncode, p.stdout, p.stderr)
        return lines[2].removeprefix("refused ")


@pytest.fixture(params=["as installed", "open to everyone"])
def place(request):
    p = Place(request.param != "as installed")
    p.wide = request.param != "as installed"
    yield p
    shutil.rmtree(p.dir)


@pytest.fixture
def wide():
    p = Place(True)
    yield p
    shutil.rmtree(p.dir)


def landlock(place, outcome):
    if place.abi == 0:
        pytest.skip("skipped: this kernel has no Landlock")
    assert outcome == "EACCES"


@pytest.mark.parametrize("kind", ["net", "work"])
@pytest.mark.parametrize("case", ["control", "getpid"])
def test_the_control_is_allowed(place, kind, case):
    """A confinement that refused everything, or a process that ended before its attempt, would pass everything else."""
    assert place.run(kind, case) == "done"
    assert place.run(kind, case, confined=False) == "done"


@pytest.mark.parametrize("case", ONLY_WORK)
def test_connectd_keeps_its_own_sockets(wide, case):
    assert wide.run("net", case) == "done"


@pytest.mark.parametrize("kind,case", [(k, c) for k in ("net", "work") for c in FILTERED + (ONLY_WORK if k == "work" else [])])
def test_the_filter_ends_it(wide, kind, case):
    assert wide.run(kind, case) == "SIGSYS"


@pytest.mark.parametrize("kind", ["net", "work"])
@pytest.mark.parametrize("case", FILE_FILTERED)
def test_the_filter_ends_it_for_a_file(wide, kind, case):
    assert wide.run(kind, case, f"{wide.dir}/root/file") == "SIGSYS"


FILES = [(kind, case, path) for kind, other in (("net", "work/journal"), ("work", "net/credential")) for case, path in [
    ("open", "other/shadow"), ("write", "other/shadow"), ("open", other), ("write", other), ("list", os.path.dirname(other)),
    ("create", os.path.dirname(other) + "/new"), ("remove", other), ("take", other), ("open", "root/file"), ("write", "root/file"),
    ("create", "root/new"), ("list", "root"), ("from-state", f"../{other}"), ("from-state", "../root/file"), ("create", "conf/new"),
    ("write", "conf/token"), ("create", "new")]] + [
    ("work", "from-root", "file"), ("work", "openat2", "root/file"), ("work", "open", "conf/token")]


@pytest.mark.parametrize("kind,case,path", FILES, ids=lambda v: v.replace("/", "."))
def test_files_that_are_not_its_own(place, kind, case, path):
    path = path if case.startswith("from-") else f"{place.dir}/{path}"
    outcome = place.run(kind, case, path)
    if place.wide or case == "list":
        landlock(place, outcome)
    else:
        assert outcome in ("EACCES", "EPERM")
    assert not os.path.exists(f"{place.dir}/new")


@pytest.mark.parametrize("kind", ["net", "work"])
@pytest.mark.parametrize("case,path", [("open", "/proc/1/environ"), ("open", "/proc/self/mem"), ("open", "/proc/self/environ"),
                                       ("open", "/usr/bin/env"), ("list", "/"), ("list", "/tmp"),
                                       ("write", "/dev/null")])
def test_the_system_around_it(wide, kind, case, path):
    landlock(wide, wide.run(kind, case, path))


@pytest.mark.parametrize("kind", ["net", "work"])
def test_nothing_is_left_in_tmp(wide, kind):
    with tempfile.TemporaryDirectory(dir="/tmp") as free:
        os.chmod(free, 0o1777)
        for path in (f"{free}/new", f"{wide.dir}-{kind}"):
            outcome = wide.run(kind, "create", path)
            if os.path.exists(path):
                os.unlink(path)
            landlock(wide, outcome)


def test_etc_is_connectds_to_read_and_nothing_more(wide):
    """The resolver and the CA bundle live there. What root alone may read is kept by its permissions."""
    assert wide.run("net", "open", "/etc/passwd") == "done"
    landlock(wide, wide.run("net", "write", "/etc/passwd"))
    assert wide.run("net", "openat2", "/etc/passwd") == "SIGSYS"
    if ROOT:
        assert wide.run("net", "open", "/etc/shadow") == "EACCES"
    landlock(wide, wide.run("work", "open", "/etc/passwd"))


@pytest.mark.parametrize("kind", ["net", "work"])
def test_sockets_that_are_not_its_own(wide, kind):
    """connect() to a name in the file system is no right of Landlock's: privhelper's socket must stay reachable. There the
    permissions of the socket decide, and in the units the mounts. Abstract names are closed from ABI 6 on."""
    assert wide.run(kind, "bind", f"{wide.dir}/{kind}/s") == "SIGSYS"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        name = f"edgeward-implant-{os.getpid()}"
        s.bind("\0" + name)
        s.listen(4)
        assert wide.run(kind, "connect", "@" + name) == ("EPERM" if wide.abi >= 6 else "done")
        assert wide.run(kind, "connect", "@" + name, confined=False) == "done"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        path = f"{wide.dir}/other/sock"
        s.bind(path)
        s.listen(4)
        os.chmod(path, 0o666)
        assert wide.run(kind, "connect", path) == "done"
        if ROOT:
            os.chmod(path, 0o660)
            assert wide.run(kind, "connect", path) == "EACCES"


@pytest.mark.parametrize("kind", ["net", "work"])
def test_without_the_confinement_it_succeeds(wide, kind):
    """The same program, not confined: what an ordinary user may do is done, and nothing dies by the filter."""
    for case in FILTERED + ONLY_WORK:
        outcome = wide.run(kind, case, confined=False)
        assert outcome != "SIGSYS", case
        if case in WITHOUT and not (case == "kill" and ROOT):    # the parent is root's
            assert outcome == "done", (case, outcome)
    for case, path in (("open", "other/shadow"), ("open", "root/file"), ("list", "work"), ("list", "net"), ("create", "new-" + kind),
                       ("create", "root/new"), ("write", "conf/token"), ("truncate", "other/shadow")):
        if case != "create" or "/" in path:
            assert wide.run(kind, case, f"{wide.dir}/{path}", confined=False) == "done", (case, path)
    assert os.path.getsize(f"{wide.dir}/other/shadow") == 0


# ---- a hostile workerd on the real launcher's channel

READY, HELD_END, START, ANSWER, KILL, FORGET = 0x400, 0x404, 0x410, 0x411, 0x412, 0x416
STAND_IN = """#!/usr/bin/python3
import socket, sys, time
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
    s.connect(sys.argv[sys.argv.index("-r") + 1] + "/introduce.sock")
    socket.send_fds(s, [b"x"], [3])
while True:
    time.sleep(60)
"""


class Hostile(Device):
    """A real launcher whose workerd is a stand-in that hands us its channel."""

    def take_over(self):
        self.introduce.settimeout(10)
        conn, _ = self.introduce.accept()
        with conn:
            _, fds, _, _ = socket.recv_fds(conn, 1, 1)
        self.drop()
        self.chan = socket.socket(fileno=fds[0])
        self.chan.settimeout(10)
        self.chan.send(self.record(1, workdrv.HELLO.pack(2, os.getpid(), 0, b"implant")))
        while self.record_of()[0] != HELD_END:
            pass

    def record_of(self):
        data, fds, _, _ = socket.recv_fds(self.chan, 4096, 6)
        if not data:
            return None
        typ, _, _, _, _, status = HDR.unpack_from(data)
        return typ, status, fds

    def ended(self):
        try:
            return self.record_of() is None
        except ConnectionResetError:
            return True

    def give(self, typ, data, fds=(), nfds=None):
        head = HDR.pack(typ, VERSION, len(fds) if nfds is None else nfds, len(data), 7, 0)
        self.chan.sendmsg([head + data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


SEAL_BITS = [fcntl.F_SEAL_SEAL, fcntl.F_SEAL_WRITE, fcntl.F_SEAL_GROW, fcntl.F_SEAL_SHRINK]
SEALS = sum(SEAL_BITS)


def memory(content=b"", seals=0):
    fd = os.memfd_create("t", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def start_struct(handle=b"good", slot=0, nofile=0, memory=0, io_rate=0, io_major=0, pids=0, cpu=0, nice=0, oom=0, parts=0x1df, stage=0, show=b""):
    return struct.pack("=72sIIQQIIIIiiII200s", handle, slot, nofile, memory, io_rate, io_major, 0, pids, cpu, nice, oom, parts, stage, show)


@pytest.fixture
def hostile(monkeypatch):
    script = tempfile.mkdtemp(prefix="ewimplant.", dir="/tmp")
    os.chmod(script, 0o755)
    with open(f"{script}/workerd", "w") as f:
        f.write(STAND_IN)
    os.chmod(f"{script}/workerd", 0o755)
    monkeypatch.setattr(workdrv, "exe", lambda name: f"{script}/workerd" if name == "workerd" else exe(name))
    d = Hostile()
    try:
        d.spawn()
        d.take_over()
        yield d
    finally:
        d.__exit__(None, None, None)
        shutil.rmtree(script)


def start_fds(dev, handle="good", seals=SEALS, script="echo here; sleep 60"):
    spec = memory(workdrv.encode_spec(handle, ["/bin/sh", "-c", script]), seals)
    return [spec, memory(), memory(bytes(64), SEALS & ~fcntl.F_SEAL_WRITE), os.open(f"{dev.dir}/work", os.O_RDONLY | os.O_DIRECTORY)]


def close(fds):
    for fd in fds:
        os.close(fd)


def nothing_runs(dev):
    assert dev.launcher.poll() is None
    assert not dev.cgroup or dev.workload_cgroups() == []
    assert not dev.pool or not proc.by_uid(set(range(workdrv.POOL_FIRST, workdrv.POOL_FIRST + POOL_COUNT)))


def works(dev):
    """A start as workerd makes it: the same descriptors and struct, so that a refusal before was for its reason."""
    fds = start_fds(dev)
    dev.give(START, start_struct(), fds)
    typ, status, got = dev.record_of()
    assert (typ, status, len(got)) == (ANSWER, 0, 2)
    end, data = time.monotonic() + 10, b""
    while data != b"here\n" and time.monotonic() < end:
        try:
            data += os.read(got[0], 100)
        except BlockingIOError:
            time.sleep(0.02)
    assert data == b"here\n"
    close(fds + got)


@pytest.mark.parametrize("bad", [
    {"slot": POOL_COUNT if ROOT else 1}, {"slot": 0xffffffff}, {"slot": 1 << 31}, {"handle": b"a/b"}, {"handle": b"../launch"},
    {"handle": b""}, {"handle": b"x" * 72}, {"handle": b"good\0x"}, {"nice": -1}, {"nice": 20}, {"nice": -(1 << 31)}, {"oom": -1000}, {"oom": -1},
    {"oom": 1001}, {"oom": (1 << 31) - 1}, {"nofile": 1 << 30}, {"nofile": (1 << 20) + 1}, {"stage": 1 << 16}, {"stage": 16}, {"io_rate": 1},
    {"parts": 0x5df}, {"parts": 0x200}, {"parts": 0x200 | 0x1df}, {"parts": 0x3ff & ~0x80}, {"parts": 0x3ff & ~0x2}, {"parts": 1 << 12}, {"parts": 0x2},
    {"parts": 1 << 9}, {"parts": 1 << 31}, {"parts": 0x4}, {"parts": 0x1de}, {"show": b"usr"}, {"show": b"/a/../b"}, {"show": b"/a//b"},
    {"show": b"/a/."}, {"show": b"/"}, {"show": b"/a /b "}, {"show": b"/a\0x"}, {"show": b"/" + b"x" * 199}], ids=str)
def test_the_launcher_checks_every_field(hostile, bad):
    fds = start_fds(hostile)
    hostile.give(START, start_struct(**bad), fds)
    typ, status, got = hostile.record_of()
    assert (typ, status, got) == (ANSWER, -22, [])
    close(fds)
    nothing_runs(hostile)
    works(hostile)


@pytest.mark.parametrize("limit,controller", [({"memory": 1 << 26}, "memory"), ({"pids": 50}, "pids"), ({"cpu": 500}, "cpu"), ({"io_rate": 1 << 20, "io_major": 8}, "io")],
                         ids=["memory", "pids", "cpu", "io"])
def test_the_launcher_promises_no_limit_it_cannot_keep(hostile, limit, controller):
    with open(f"{workdrv.V2}/cgroup.controllers", encoding="ascii") as f:
        if controller in f.read().split():
            pytest.skip(f"skipped: this machine has the controller {controller}")
    fds = start_fds(hostile)
    hostile.give(START, start_struct(**limit), fds)
    typ, status, got = hostile.record_of()
    assert typ == ANSWER and status < 0 and got == []
    close(fds)
    nothing_runs(hostile)
    works(hostile)


@pytest.mark.skipif(not ROOT, reason="skipped: without root there are no other users")
@pytest.mark.parametrize("where", ["/", "/etc", "run", "state"])
def test_another_work_root_is_no_way_to_what_is_not_the_runners(hostile, where):
    """workerd gives the work root as a descriptor: what lies there is opened as the runner, whose files they are not."""
    os.makedirs(f"{hostile.dir}/net", exist_ok=True)
    with open(f"{hostile.dir}/net/credential", "w", encoding="ascii") as f:
        f.write("secret")
    os.chmod(f"{hostile.dir}/net/credential", 0o600)
    os.chown(f"{hostile.dir}/net/credential", workdrv.NET_UID, workdrv.NET_UID)
    fds = start_fds(hostile, script=f"cat {hostile.dir}/net/credential /etc/shadow; echo x >/etc/edgeward-implant; echo x >/usr/edgeward-implant; "
                                    f"cat {hostile.dir}/state/*; echo ended; sleep 60")
    os.close(fds[3])
    fds[3] = os.open(where if where.startswith("/") else f"{hostile.dir}/{where}", os.O_RDONLY | os.O_DIRECTORY)
    hostile.give(START, start_struct(), fds)
    _, status, got = hostile.record_of()
    end, data = time.monotonic() + 10, b""
    while status == 0 and b"ended" not in data and time.monotonic() < end:
        try:
            more = os.read(got[0], 4096)
            if not more:
                break
            data += more
        except BlockingIOError:
            time.sleep(0.02)
    assert b"secret" not in data and b"root:" not in data
    assert not os.path.exists("/etc/edgeward-implant") and not os.path.exists("/usr/edgeward-implant")
    close(fds + got)


@pytest.mark.parametrize("seals", [0, None, *(SEALS & ~bit for bit in SEAL_BITS)])
def test_the_launcher_takes_only_a_sealed_specification(hostile, seals):
    fds = start_fds(hostile, seals=seals or 0)
    if seals is None:       # no memfd at all
        os.close(fds[0])
        fds[0] = os.open("/etc/passwd", os.O_RDONLY)
    hostile.give(START, start_struct(), fds)
    assert hostile.record_of()[:2] == (ANSWER, -22)
    close(fds)
    nothing_runs(hostile)
    works(hostile)


@pytest.mark.parametrize("report", [lambda: memory(bytes(64)), lambda: os.open("/etc/passwd", os.O_RDONLY)], ids=["unsealed", "a file"])
def test_the_launcher_writes_reports_into_memory_only(hostile, report):
    fds = start_fds(hostile)
    os.close(fds[2])
    fds[2] = report()
    hostile.give(START, start_struct(), fds)
    assert hostile.record_of()[:2] == (ANSWER, -22)
    close(fds)
    nothing_runs(hostile)
    works(hostile)


@pytest.mark.parametrize("what", ["three", "six", "none", "count lies", "short", "long", "oversize", "forget", "kill with descriptor",
                                  "unknown", "second hello"])
def test_a_record_that_fits_no_row_ends_workerd(hostile, what):
    fds, ok = start_fds(hostile), start_struct()
    send = {"three": lambda: hostile.give(START, ok, fds[:3]), "six": lambda: hostile.give(START, ok, fds + fds[:2]),
            "none": lambda: hostile.give(START, ok), "count lies": lambda: hostile.give(START, ok, fds[:3], nfds=4),
            "short": lambda: hostile.give(START, ok[:-1], fds), "long": lambda: hostile.give(START, ok + b"\0", fds),
            "oversize": lambda: hostile.give(START, ok + bytes(8000), fds),
            "forget": lambda: hostile.give(FORGET, b"good".ljust(72, b"\0")),
            "kill with descriptor": lambda: hostile.give(KILL, b"good".ljust(72, b"\0"), fds[:1]),
            "unknown": lambda: hostile.give(0x4fe, b""),
            "second hello": lambda: hostile.give(1, workdrv.HELLO.pack(2, 1, 0, b"implant"))}
    send[what]()
    assert hostile.ended()
    close(fds)
    nothing_runs(hostile)
    hostile.take_over()     # started again by the launcher, which stayed
    works(hostile)


def test_kill_and_forget_name_only_its_own_work(hostile):
    works(hostile)
    for name in (b"../launch", b"a/b", b"other", b""):
        hostile.give(KILL, name.ljust(72, b"\0"))
    fds = start_fds(hostile)
    hostile.give(START, start_struct(), fds)    # the handle is taken, and its work still runs
    assert hostile.record_of()[:2] == (ANSWER, -17)
    close(fds)
    assert hostile.launcher.poll() is None


# ---- a hostile connectd on the real workerd's channel

@pytest.fixture(scope="module")
def device():
    with Device() as d:
        yield d


@pytest.mark.parametrize("seals", [0, None, *(SEALS & ~bit for bit in SEAL_BITS), SEALS])
def test_workerd_takes_only_a_sealed_specification(device, seals):
    handle = device.handle()
    fd = memory(workdrv.encode_spec(handle, ["/bin/true"]), seals or 0)
    if seals is None:
        os.close(fd)
        fd = os.open("/etc/passwd", os.O_RDONLY)
    device.ids += 1
    socket.send_fds(device.chan, [HDR.pack(workdrv.START_T, VERSION, 1, 0, device.ids, 0)], [fd])
    os.close(fd)
    refusal = device.answer(device.ids)[0]
    if seals == SEALS:
        assert refusal == workdrv.OK
        device.sub(device.runs[handle], 0)
        device.finish(device.runs[handle])
    else:
        assert refusal == BAD_SPEC and handle not in device.runs


@pytest.mark.parametrize("handle", ["a/b", "../w.x", "/etc", "", ".", "x" * 65])
def test_workerd_takes_no_foreign_handle(device, handle):
    device.ids += 1
    device.send(workdrv.START_T, workdrv.encode_spec(handle, ["/bin/true"]), device.ids)
    assert device.answer(device.ids)[0] == BAD_SPEC
    assert device.run(["/bin/echo", "on"]).data == b"on\n"


@pytest.mark.parametrize("what", ["three descriptors", "count lies", "oversize", "surplus descriptor"])
def test_workerd_drops_the_channel(device, what):
    spec = workdrv.encode_spec(device.handle(), ["/bin/true"])
    fd = memory(spec, SEALS)
    data = {"oversize": spec + bytes(65536 + 65 - len(spec)), "surplus descriptor": struct.pack("=II", 1, 2)}.get(what, b"")
    typ = workdrv.SESSION_T if what == "surplus descriptor" else workdrv.START_T
    fds = {"three descriptors": [fd, fd, fd], "oversize": []}.get(what, [fd])
    nfds = 2 if what == "count lies" else len(fds)
    head = HDR.pack(typ, VERSION, nfds, len(data), 9, 0)
    device.chan.sendmsg([head + data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
    os.close(fd)
    with pytest.raises(ConnectionError):
        while device.step(5) is not None:
            pass
    device.connect()
    assert device.run(["/bin/echo", "on"]).data == b"on\n"


ATTACH_REQ, FILE_REQ, HARNESS_REQ, DEVICE_REQ, L2_REQ = 0x288, 0x2a0, 0x2c0, 0x260, 0x280


def attach_record(handle="h", session=b"", flags=0, rows=24, cols=80, who=b"implant", at=0):
    return struct.pack("=128s72s64sIHHQ", session, handle.encode(), who, flags, rows, cols, at)


def file_record(handle="h", work_dir=b"", path=b"f", size=0, put=0, mode=0, sha=bytes(32), who=b"implant"):
    return struct.pack("=72s1024s1024s32sQII64s", handle.encode(), work_dir, path, sha, size, put, mode, who)


def harness_record(name=b"claude"):
    return struct.pack("=72s", name)


def device_record(ident=b"cam", handle=b"", busid=b"1-1", devid=0x10002, speed=3):
    return struct.pack("=32s72s32sIIHHI", ident, handle, busid, devid, speed, 1, 2, 0)


def l2_record(ident=b"eth", handle=b"", name=b"eth1", mac=b"\x02\0\0\0\0\x01", mtu=1500, offload=0, naddrs=0):
    return struct.pack("=32s72s16s6sHII80s", ident, handle, name, mac, mtu, offload, naddrs, bytes(80))


def ask(dev, typ, data, fds=()):
    """A record as a hostile connectd sends it: (first number of the answer, its text), or None if workerd ended the channel."""
    dev.ids += 1
    ident = dev.ids
    head = HDR.pack(typ, VERSION, len(fds), len(data), ident, 0)
    dev.chan.sendmsg([head + data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            body, got, _, _ = socket.recv_fds(dev.chan, 1 << 17, 4)
        except ConnectionResetError:
            body, got = b"", []
        close(got)
        if not body:
            return None
        if HDR.unpack_from(body)[0] == typ + 1 and HDR.unpack_from(body)[4] == ident:
            answer = body[HDR.size:]
            first = answer[0] if typ == HARNESS_REQ else struct.unpack_from("=I", answer)[0]
            return first, len(got), answer.replace(b"\0", b"").decode(errors="replace")
    raise AssertionError(f"no answer to {typ:x}")


VERBS = [(ATTACH_REQ, attach_record, "attach = no"), (FILE_REQ, file_record, "files = no"), (HARNESS_REQ, harness_record, "harnesses install is no"),
         (DEVICE_REQ, device_record, "usb = no"), (L2_REQ, l2_record, "l2 = no")]


@pytest.mark.parametrize("typ,record,line", VERBS, ids=[line for _, _, line in VERBS])
def test_what_connectd_asks_for_is_measured_by_workerds_policy(device, typ, record, line):
    """A connectd that was taken over skips its own checks; those of workerd and its own copy of policy.conf stand."""
    run = device.start(["sleep", "60"], work_dir="pol")
    command = memory(b"\0\0\0\0\1\0\0\0\7\0\0\0/bin/sh", SEALS)
    first, fds, text = ask(device, typ, record(handle=run.handle) if typ in (ATTACH_REQ, FILE_REQ) else record(), [command] if typ == ATTACH_REQ else [])
    os.close(command)
    assert fds == 0 and line in text, text
    assert first == (workdrv.POLICY if typ == ATTACH_REQ else 0)
    device.signal(run, 9)
    device.finish(run)


MALFORMED = [
    (ATTACH_REQ, attach_record(handle="a/b")), (ATTACH_REQ, attach_record(flags=0x20)), (ATTACH_REQ, attach_record(session=b"x" * 128)),
    (ATTACH_REQ, attach_record(who=b"x" * 64)), (ATTACH_REQ, attach_record()[:-1]), (ATTACH_REQ, attach_record() + b"\0"),
    (FILE_REQ, file_record(path=b"../f")), (FILE_REQ, file_record(path=b"/etc/passwd")), (FILE_REQ, file_record(path=b"")),
    (FILE_REQ, file_record(path=b"a//b")), (FILE_REQ, file_record(path=b"x" * 1024)), (FILE_REQ, file_record(put=2)),
    (FILE_REQ, file_record(mode=0o4755, put=1)), (FILE_REQ, file_record(handle="../x")), (FILE_REQ, file_record()[:-1]),
    (FILE_REQ, file_record(who=b"x" * 64)), (FILE_REQ, file_record(who=b"a\0b")),
    (HARNESS_REQ, harness_record(b"../claude")), (HARNESS_REQ, harness_record(b"a b")), (HARNESS_REQ, harness_record(b"")),
    (HARNESS_REQ, harness_record(b"x" * 72)), (HARNESS_REQ, harness_record(b"a\0b")),
    (DEVICE_REQ, device_record(ident=b"../x")), (DEVICE_REQ, device_record(busid=b"1 1")), (DEVICE_REQ, device_record(handle=b"a/b")),
    (DEVICE_REQ, device_record(ident=b"x" * 32)), (DEVICE_REQ, device_record()[:-1]),
    (L2_REQ, l2_record(name=b"a/b")), (L2_REQ, l2_record(ident=b"../x")), (L2_REQ, l2_record(mtu=1)), (L2_REQ, l2_record(offload=2)),
    (L2_REQ, l2_record(naddrs=5)), (L2_REQ, l2_record(mac=b"\x01\0\0\0\0\1")), (L2_REQ, l2_record()[:-1]),
]


@pytest.fixture
def lenient():
    """Everything is permitted, so that what is refused is refused for its form."""
    with Device(policy="[work]\nattach = yes\nfiles = write\n[devices]\nusb = yes\nl2 = yes\n[harnesses]\ninstall = yes\n") as d:
        yield d


@pytest.mark.parametrize("n", range(len(MALFORMED)))
def test_what_connectd_says_wrong_gets_nothing(lenient, n):
    """Ended or refused, never obeyed; and the next connectd is served."""
    typ, data = MALFORMED[n]
    answer = ask(lenient, typ, data)
    if answer is None:
        lenient.connect()
    else:
        assert answer[1] == 0 and (answer[0] != 0 if typ == ATTACH_REQ else answer[0] == 0), answer
    assert lenient.run(["/bin/echo", "on"]).data == b"on\n"


@pytest.mark.parametrize("what", ["no command", "two commands", "unsealed", "a directory", "empty", "cut off"])
def test_the_command_of_an_attach_is_sealed_memory(lenient, what):
    run = lenient.start(["sleep", "60"], work_dir="att")
    good = b"\0\0\0\0\1\0\0\0\7\0\0\0/bin/sh"
    fds = {"no command": lambda: [], "two commands": lambda: [memory(good, SEALS), memory(good, SEALS)], "unsealed": lambda: [memory(good)],
           "a directory": lambda: [os.open("/etc", os.O_RDONLY)], "empty": lambda: [memory(b"", SEALS)],
           "cut off": lambda: [memory(good[:-1], SEALS)]}[what]()
    answer = ask(lenient, ATTACH_REQ, attach_record(handle=run.handle), fds)
    close(fds)
    if answer is None:
        lenient.connect()
    else:
        assert answer[0] != 0 and answer[1] == 0, answer
    assert lenient.run(["/bin/echo", "on"]).data == b"on\n"
    lenient.signal(run, 9)
    lenient.finish(run)
