"""What a connectd or a workerd that was taken over gets from privhelper's TAP verb by saying what it must not: no interface, anywhere.

The real privhelper under its own filter, with a real /dev/net/tun, as in test_usb_implant.py. Where the kinds could occur: privhelper/rules.c (type, size,
descriptors, order), proto/ipc/priv.c (name, address, MTU), common/netns.c (whose namespace it is), common/tap.c (what exists already).
"""
import contextlib
import os
import re
import socket
import stat
import struct
import subprocess

import pytest

from lib.proc import wait_for
from test_privhelper import CONNECTD, HDR, HELLO, NET, WORK, WORKERD, Client, hello, record
from test_usb_implant import Root, attach, refusals

pytestmark = [pytest.mark.timeout(100), pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/net/tun"),
                                                           reason="skipped: needs root and /dev/net/tun")]
TAP, ANSWER = 0x0120, 0x0121
POOL = 70000
PERM, EXIST = -1, -17


def tap(name=b"eth1", mac=b"\x02\0\0\0\0\1", mtu=1500, offload=0, reserved=0, tail=b""):
    return struct.pack("=16s6sHII", name, mac, mtu, offload, reserved) + tail


MALFORMED = {
    "a byte short": tap()[:-1], "a byte long": tap(tail=b"x"), "empty": b"", "as long as can be": tap(tail=b"\0" * 464),
    "no name": tap(b""), "a name without an end": tap(b"abcdefghijklmnop"), "bytes behind the name": tap(b"eth1\0x"),
    "lo": tap(b"lo"), "dot": tap(b"."), "dots": tap(b".."), "a slash": tap(b"eth/1"), "an option": tap(b"-eth1"), "a number": tap(b"1eth"),
    "a space": tap(b"eth 1"), "a pattern": tap(b"eth%d"), "a colon": tap(b"eth1:0"), "a newline": tap(b"eth1\n"), "not ASCII": tap(b"eth\xc3\xa9"),
    "an address of many": tap(mac=b"\x03\0\0\0\0\1"), "a maker's address": tap(mac=b"\0\x1b!\0\0\1"), "no address": tap(mac=b"\0" * 6),
    "broadcast": tap(mac=b"\xff" * 6), "MTU 0": tap(mtu=0), "MTU 575": tap(mtu=575), "MTU 9001": tap(mtu=9001), "MTU 65535": tap(mtu=65535),
    "offload 2": tap(offload=2), "offload -1": tap(offload=0xffffffff), "reserved": tap(reserved=1),
}


class TapRoot(Root):
    """privhelper -l yes, with the /dev/net/tun of this kernel in its /dev."""

    def __init__(self, open_path):
        os.makedirs(open_path / "dev/net")
        os.mknod(open_path / "dev/net/tun", 0o666 | stat.S_IFCHR, os.makedev(10, 200))
        super().__init__(open_path, "-u 'ff 07 08' -l yes")


class Network:
    """A process with a user and a network namespace of its own, made by uid."""

    def __init__(self, uid):
        self.proc = subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "unshare", "-Urn", "sh", "-c", "echo; sleep 60"],
                                     stdout=subprocess.PIPE)
        self.proc.stdout.readline()

    def open(self, kind="net"):
        return os.open(f"/proc/{self.proc.pid}/ns/{kind}", os.O_RDONLY)

    def links(self):
        out = subprocess.run(["nsenter", f"--net=/proc/{self.proc.pid}/ns/net", "ip", "-o", "link"], stdout=subprocess.PIPE, check=True, text=True).stdout
        return sorted(line.split(": ")[1] for line in out.splitlines())

    def close(self):
        self.proc.kill()
        self.proc.wait()
        self.proc.stdout.close()


def ours():
    """Interfaces of privhelper's making in this namespace, where they begin."""
    return [n for n in os.listdir("/sys/class/net") if n.startswith("ewt")]


def ask(c, payload, *fds, nfds=None):
    """(status, descriptors) of the answer; "ended" when the channel ends instead."""
    data = struct.pack(HDR, TAP, record(HELLO)[2], len(fds) if nfds is None else nfds, len(payload), 7, 0) + payload
    with contextlib.suppress(BrokenPipeError):
        socket.send_fds(c.sock, [data], list(fds)) if fds else c.sock.send(data)
    while True:
        try:
            raw, got, _, _ = socket.recv_fds(c.sock, 1024, 8)
        except ConnectionResetError:
            return "ended"
        if not raw:
            return "ended"
        kind, _, _, _, number, status = struct.unpack_from(HDR, raw)
        if kind == ANSWER:
            assert number == 7
            return status, got
        for fd in got:
            os.close(fd)


@pytest.fixture
def root(open_path):
    # Other tests' segments may begin in this namespace while this one runs: only new ones that stay count.
    before = set(ours())
    r = TapRoot(open_path)
    yield r
    err = r.stop()
    assert "runtime error" not in err and "Sanitizer" not in err and r.proc.returncode == 0, err
    wait_for(lambda: set(ours()) <= before, 10, "no interface is left")


@pytest.fixture
def runner():
    n = Network(POOL)
    yield n
    n.close()


def nothing(root, runner):
    assert runner.links() == ["lo"]
    audit = open(f"{root.dir}/state/privhelper/audit", encoding="ascii").read()
    assert "result=ok" not in audit, audit


@pytest.mark.parametrize("name", MALFORMED)
def test_a_workerd_that_says_it_wrong_gets_nothing(root, runner, name):
    fd = runner.open()
    assert ask(root.client(WORK, WORKERD), MALFORMED[name], fd) == "ended"
    os.close(fd)
    nothing(root, runner)


@pytest.mark.parametrize("count", [0, 2, 3])
def test_one_descriptor_and_no_other_number(root, runner, count):
    fds = [runner.open() for _ in range(count)]
    assert ask(root.client(WORK, WORKERD), tap(), *fds) == "ended"
    nothing(root, runner)
    for fd in fds:
        os.close(fd)


def test_a_header_that_lies_about_its_descriptors(root, runner):
    fd = runner.open()
    assert ask(root.client(WORK, WORKERD), tap(), fd, nfds=0) == "ended"
    nothing(root, runner)
    os.close(fd)


def test_a_descriptor_with_a_verb_that_takes_none(root, runner):
    c, fd = root.client(WORK, WORKERD), runner.open()
    socket.send_fds(c.sock, [struct.pack(HDR, 0x0110, record(HELLO)[2], 1, 8, 1, 0) + attach()], [fd])
    while (got := c.take()) is not None:
        assert got[0] not in (0x0111, ANSWER)
    nothing(root, runner)
    os.close(fd)


FOREIGN = {     # what is sent instead of a runner's network namespace
    "this machine's network": lambda n: os.open("/proc/self/ns/net", os.O_RDONLY),
    "a runner's user namespace": lambda n: n.open("user"),
    "its mount namespace": lambda n: n.open("mnt"),
    "its pid namespace": lambda n: n.open("pid"),
    "a file": lambda n: os.open("/etc/hostname", os.O_RDONLY),
    "a directory": lambda n: os.open(f"/proc/{n.proc.pid}/ns", os.O_RDONLY),
    "a device": lambda n: os.open("/dev/net/tun", os.O_RDWR),
    "/dev/null": lambda n: os.open("/dev/null", os.O_RDWR),
    "a pidfd": lambda n: os.pidfd_open(n.proc.pid),
    "a socket": lambda n: socket.socketpair()[0].detach(),
    "a path alone": lambda n: os.open(f"/proc/{n.proc.pid}/ns/net", os.O_PATH),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_network_of_a_runner_is_refused(root, runner, name):
    fd = FOREIGN[name](runner)
    answer = ask(root.client(WORK, WORKERD), tap(b"ewimplant"), fd)
    assert answer == "ended" or (answer[0] < 0 and answer[1] == []), answer
    os.close(fd)
    assert "ewimplant" not in os.listdir("/sys/class/net")
    nothing(root, runner)


@pytest.mark.parametrize("uid", [0, POOL - 1, POOL + 4, WORK, NET])
def test_a_network_that_somebody_else_made_is_refused(root, runner, uid):
    other = Network(uid)
    try:
        fd = other.open()
        assert ask(root.client(WORK, WORKERD), tap(), fd) == (PERM, [])
        assert other.links() == ["lo"]
        os.close(fd)
    finally:
        other.close()
    nothing(root, runner)


def test_what_is_there_is_refused_and_stays(root, runner):
    """B116, asked by one who means it: not even by way of a name."""
    subprocess.run(["nsenter", f"--net=/proc/{runner.proc.pid}/ns/net", f"--user=/proc/{runner.proc.pid}/ns/user", "ip", "link", "add", "eth1", "type",
                    "bridge"], check=True)
    kept, fd = runner.links(), runner.open()
    assert ask(root.client(WORK, WORKERD), tap(), fd) == (EXIST, [])
    assert runner.links() == kept
    os.close(fd)


def test_before_hello(root, runner):
    fd = runner.open()
    assert ask(Client(root.path, WORK), tap(), fd) == "ended"
    os.close(fd)
    wait_for(lambda: os.path.exists(f"{root.dir}/state/privhelper/audit"), 10, "privhelper is up")
    nothing(root, runner)


def test_connectd_has_no_such_verb(root, runner):
    for c in (lambda: root.client(NET, CONNECTD), lambda: Client(root.path, NET, hello(WORKERD))):
        fd = runner.open()
        assert ask(c(), tap(), fd) == "ended"
        os.close(fd)
    nothing(root, runner)


def test_asked_without_end_it_is_paced(root, runner):
    """A flood of requests makes a bounded number of interfaces and of lines in the record; each dies with its descriptor."""
    c, fd = root.client(WORK, WORKERD), runner.open()
    answers = [ask(c, tap(b"eth%d" % i), fd) for i in range(200)]
    made = [a for a in answers if a[0] == 0]
    assert 1 <= len(made) < 100 and all(a[0] in (0, -11) for a in answers), {a[0] for a in answers}
    lines = open(f"{root.dir}/state/privhelper/audit", encoding="ascii").read().count("\n")
    assert lines <= len(made) + 3
    root.proc.terminate()
    root.proc.wait(20)
    refused = refusals(root)
    assert sum(refused.values()) == 200 - len(made) and all(re.fullmatch("tap name=eth[0-9]+ result=EAGAIN", k) for k in refused), refused
    for _, (end,) in made:
        os.close(end)
    os.close(fd)
    wait_for(lambda: runner.links() == ["lo"], 10, "they are gone")


def test_and_the_same_verb_by_whom_it_is_for(root, runner):
    """So that the cases above fail for what is wrong with them."""
    fd = runner.open()
    status, (end,) = ask(root.client(WORK, WORKERD), tap(), fd)
    assert status == 0 and runner.links() == ["eth1", "lo"]
    os.close(end)
    wait_for(lambda: runner.links() == ["lo"], 10, "it lives and dies with its descriptor")
    os.close(fd)
