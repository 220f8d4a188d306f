"""Ethernet segments: an interface in a workload, joined to one of the operator's through hub, connectd, workerd, privhelper (B116, B118, B120, B121).

Where the kinds could occur: common/tap.c (making, names, what is optional), common/netns.c and privhelper/tap.c (whose namespace), workerd/l2.c
(the lease), workinit (addresses), connectd/l2dev.c and proto/hub/l2rec.c (frames), hub/l2.c and cli_l2.c. Everything is in namespaces the test made.
"""
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

import pytest

from lib import proc
from lib.agent import exe
from lib.netns import Namespace
from lib.proc import wait_for

D = "edge-test"
POLICY = {"work": {"network": "none"}, "devices": {"l2": "yes"}}
pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/net/tun"), reason="needs root and /dev/net/tun")]


@pytest.fixture
def dev(ehub_agent):
    return ehub_agent(policy=POLICY)


@pytest.fixture
def side():
    ns = Namespace()
    ns.sh("ip link set lo up")
    yield ns
    ns.holder.kill()
    ns.holder.wait()


SERVER = """
import socket, threading
s = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
def serve(c):
    while True:
        d = c.recv(1 << 16)
        if not d: break
        if d[:4] == b"sink": continue
        c.sendall(d)
while True:
    c, _ = s.accept()
    threading.Thread(target=serve, args=(c,), daemon=True).start()
"""


def start(ehub, script=SERVER):
    h = ehub.call("run", D, "--detach", "--", "/usr/bin/python3", "-uc", script)
    assert h.returncode == 0, h
    handle = h.stdout.decode().strip()
    wait_for(lambda: b"ready" in ehub.call("logs", handle).stdout, 20, "the workload runs")
    return handle


class Forward:
    """edgehub l2 forward in the namespace of the operator's side."""

    def __init__(self, ehub, side, handle, *args, tap="tap0"):
        self.side = side
        whose = ["--for", handle] if handle else []
        self.p = subprocess.Popen([*side.enter, exe("edgehub"), "-j", "-d", ehub.data, "l2", "forward", D, *whose, "--tap", tap, *args],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
        line = self.p.stdout.readline()
        self.info = json.loads(line) if line.strip() else None

    def up(self, addr="10.9.0.1/24", tap="tap0"):
        assert self.info, self.p.stderr.read()
        self.side.sh(f"ip addr add {addr} dev {tap}; ip link set {tap} mtu {self.info['mtu']} up")
        return self

    def end(self):
        if self.p.poll() is None:
            self.p.terminate()
        self.p.wait(10)
        return self.p.stderr.read()


def ping(side, dest, n=20, size=56):
    """Echo requests, answered by the kernel of the workload's side. How many came back."""
    def run():
        s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        s.settimeout(5)
        got = 0
        for i in range(n):
            body = struct.pack("!HH", 77, i) + bytes(size)
            total = sum(struct.unpack(f"!{len(body) // 2}H", body)) + 0x0800
            total = (total >> 16) + (total & 0xffff)
            s.sendto(struct.pack("!BBH", 8, 0, ~(total + (total >> 16)) & 0xffff) + body, (dest, 0))
            while True:
                try:
                    p = s.recv(65536)
                except TimeoutError:
                    break
                if p[20] == 0 and p[24:28] == body[:4] and p[28:] == body[4:]:
                    got += 1
                    break
        return got
    return side.call(run)


def echo(side, dest, data):
    """The same bytes back over TCP; MB/s both ways."""
    def run():
        s = socket.create_connection((dest, 7000), 20)
        s.settimeout(60)
        t = time.monotonic()
        sender = threading.Thread(target=s.sendall, args=(data,))
        sender.start()
        back = bytearray()
        while len(back) < len(data):
            d = s.recv(1 << 18)
            assert d, "the connection ended"
            back += d
        sender.join()
        assert bytes(back) == data
        return len(data) / (time.monotonic() - t) / 1e6
    return side.call(run)


def ours():
    """Interfaces of our making outside of every namespace."""
    return [n for n in os.listdir("/sys/class/net") if n.startswith("ewt")]


def inside(dev, command):
    """A command of this machine's root in the network of the one workload."""
    pid = dev.ctl("workloads").json["workloads"][0]["pid"]
    p = subprocess.run(["nsenter", "-t", str(pid), "-n", "sh", "-ec", command], capture_output=True, text=True, check=False)
    assert p.returncode == 0, p
    return p.stdout


@pytest.mark.parametrize("offload", [False, True])
def test_two_namespaces(dev, ehub, side, offload):
    """Pinged, and bytes echoed over TCP, IPv4 and IPv6, through the whole chain."""
    handle = start(ehub)
    f = Forward(ehub, side, handle, "--address", "10.9.0.2/24", "--address", "fd09::2/64", "--mac", "02:00:00:00:00:07", "--mtu", "1400",
                *(["--offload"] if offload else [])).up()
    assert f.info.pop("name").startswith("l2-") and f.info == {"interface": "eth1", "mac": "02:00:00:00:00:07", "mtu": 1400, "offload": offload}
    assert ping(side, "10.9.0.2") == 20
    assert ping(side, "10.9.0.2", 5, 1300) == 5
    echo(side, "10.9.0.2", os.urandom(3_000_000))
    assert ours() == []
    assert dev.ctl("status").rc == 0
    assert f.end() == ""
    assert ehub.call("signal", handle, "KILL").returncode == 0


SWITCH = r"""
# A program of the operator's at the socket: each frame of its interface is a record of the stream, and back.
import fcntl, os, socket, struct, sys, threading
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH", b"tap0", 0x1002))      # TUNSETIFF: IFF_TAP | IFF_NO_PI
at = socket.socket(socket.AF_UNIX)
at.bind(sys.argv[1])
at.listen(1)
print("ready", flush=True)
c, _ = at.accept()
def whole(n):
    got = b""
    while len(got) < n:
        d = c.recv(n - len(got))
        if not d: os._exit(0)
        got += d
    return got
def out():
    while True:
        f = os.read(tun, 65536)
        c.sendall(struct.pack("!H", len(f)) + f)
threading.Thread(target=out, daemon=True).start()
while True:
    os.write(tun, whole(struct.unpack("!H", whole(2))[0]))
"""


class Plug:
    """edgehub l2 forward --unix, and the test at the socket."""

    def __init__(self, ehub, handle, *args, path=None, listen=True):
        self.dir = tempfile.mkdtemp()
        self.path = path or f"{self.dir}/plug"
        self.at = socket.socket(socket.AF_UNIX)
        if listen:
            self.at.bind(self.path)
            self.at.listen(1)
            self.at.settimeout(20)
        self.p = ehub.popen("-j", "l2", "forward", D, "--for", handle, "--unix", self.path, *args)
        self.c = None
        if listen:
            self.c, _ = self.at.accept()
            self.c.settimeout(10)

    def opened(self):
        line = self.p.stdout.readline()
        assert line, self.p.stderr.read()
        return json.loads(line)

    def whole(self, n):
        got = b""
        while len(got) < n:
            d = self.c.recv(n - len(got))
            assert d, "the hub closed it"
            got += d
        return got

    def over(self):
        """(exit code, what it said)."""
        code = self.p.wait(20)
        for s in (self.at, self.c):
            if s is not None:
                s.close()
        return code, self.p.stderr.read().decode()


def who_has(dest, source):
    """An ARP request, as frame."""
    mac = bytes.fromhex("020000000009")
    return (b"\xff" * 6 + mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + mac + socket.inet_aton(source) + bytes(6) +
            socket.inet_aton(dest)).ljust(60, b"\0")


def test_a_program_at_a_socket(dev, ehub, side):
    """--unix: pinged, and bytes echoed, through a program that has nothing but a stream socket; it ends, and the segment with it."""
    handle, path = start(ehub), f"{tempfile.mkdtemp()}/switch"
    switch = subprocess.Popen([*side.enter, "/usr/bin/python3", "-uc", SWITCH, path], stdout=subprocess.PIPE)
    assert switch.stdout.readline() == b"ready\n"
    side.sh("ip addr add 10.9.0.1/24 dev tap0; ip link set tap0 up")
    p = ehub.popen("-j", "l2", "forward", D, "--for", handle, "--unix", path, "--address", "10.9.0.2/24")
    info = json.loads(p.stdout.readline())
    assert info["interface"] == "eth1" and info["mtu"] == 1500 and info["offload"] is False
    assert ping(side, "10.9.0.2") == 20
    assert ping(side, "10.9.0.2", 5, 1400) == 5
    echo(side, "10.9.0.2", os.urandom(3_000_000))
    switch.kill()
    switch.wait()
    assert p.wait(20) == 1 and b"its end here was closed" in p.stderr.read()
    wait_for(lambda: dev.ctl("devices").json["devices"] == [], 10, "the device knows")
    assert ours() == []
    assert ehub.call("signal", handle, "KILL").returncode == 0


@pytest.mark.parametrize("offload", [False, True])
def test_what_a_program_at_a_socket_may_say(dev, ehub, offload):
    """Records in pieces and together, too short and too long, none that can be; the answer is told from the device's side."""
    handle = start(ehub)
    plug = Plug(ehub, handle, "--address", "10.9.0.2/24", *(["--offload"] if offload else []))
    assert plug.opened()["offload"] is offload
    head, vnet = ("!I", bytes(10)) if offload else ("!H", b"")

    def record(frame):
        return struct.pack(head, len(vnet + frame)) + vnet + frame

    def answered():
        while True:     # what the kernel there says of itself comes, too
            frame = plug.whole(struct.unpack(head, plug.whole(struct.calcsize(head)))[0])[len(vnet):]
            if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\x02" and frame[28:32] == socket.inet_aton("10.9.0.2"):
                return True

    for b in record(who_has("10.9.0.2", "10.9.0.1")):       # a byte at a time
        plug.c.sendall(bytes([b]))
    assert answered()
    # Nothing, no frame, one that is too long: each is one record, and what follows is read as it should be.
    plug.c.sendall(struct.pack(head, 0) + record(b"x" * 13) + record(b"x" * 9000) + record(who_has("10.9.0.2", "10.9.0.1")) * 3)
    assert answered() and answered() and answered()
    segment, = dev.ctl("devices").json["devices"]
    assert segment["state"] == "ready"
    if offload:
        plug.c.sendall(struct.pack("!I", 1 << 24))
        code, text = plug.over()
        assert code == 1 and "the stream is not one of frames" in text, text
    else:
        plug.c.sendall(b"\xff")     # half a length, and gone
        plug.c.close()
        assert plug.over() == (1, "edgehub: its end here was closed\n")
    wait_for(lambda: "1 too long, 2 too short" in dev.log_text(), 10, lambda: dev.log_tail(10))
    wait_for(lambda: dev.ctl("devices").json["devices"] == [], 10, "nothing is left")
    assert ehub.call("signal", handle, "KILL").returncode == 0


def test_a_program_that_reads_late(dev, ehub):
    """What it has not taken waits for it; when it reads again the segment goes on (hub/forward.c: a full socket is watched)."""
    handle = start(ehub)
    plug = Plug(ehub, handle, "--address", "10.9.0.2/24")
    assert plug.opened()["interface"] == "eth1"
    asked = who_has("10.9.0.2", "10.9.0.1")
    asked = struct.pack("!H", len(asked)) + asked
    for _ in range(200):
        plug.c.sendall(asked * 200)
    answers = 0
    plug.c.settimeout(3)
    with pytest.raises(TimeoutError):
        while True:
            answers += plug.whole(struct.unpack("!H", plug.whole(2))[0])[12:14] == b"\x08\x06"
    assert answers > 8000, answers       # more than its socket holds
    plug.c.settimeout(10)
    plug.c.sendall(asked)
    while plug.whole(struct.unpack("!H", plug.whole(2))[0])[12:14] != b"\x08\x06":
        pass
    plug.p.terminate()
    assert plug.over() == (0, "")
    assert ehub.call("signal", handle, "KILL").returncode == 0


def test_a_socket_that_is_none(dev, ehub):
    """Each says what is wrong with the path, and the device hears of none of it."""
    handle, where = start(ehub), tempfile.mkdtemp()
    with open(f"{where}/file", "w", encoding="ascii"):
        pass
    bound = []
    for name, kind in (("datagram", socket.SOCK_DGRAM), ("packets", socket.SOCK_SEQPACKET), ("nobody", socket.SOCK_STREAM)):
        bound.append(socket.socket(socket.AF_UNIX, kind))
        bound[-1].bind(f"{where}/{name}")
    bound[1].listen(1)
    for name, text in (("nothing", "No such file or directory"), ("file", "is no socket"), ("", "is no socket"), ("datagram", "is no stream socket"),
                       ("packets", "is no stream socket"), ("nobody", "nobody listens there"), ("x" * 120, "at most 107 bytes")):
        plug = Plug(ehub, handle, path=f"{where}/{name}", listen=False)
        code, said = plug.over()
        assert code == 1 and said.startswith(f"edgehub: {where}/{name}: ") and text in said, said
    assert ehub.call("l2", "forward", D, "--for", handle, "--unix", "").returncode == 2
    assert "l2-" not in dev.log_tail(1000)
    assert ehub.call("signal", handle, "KILL").returncode == 0


SHIM = r"""
#include <errno.h>
#include <linux/if_tun.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int
ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;
	long r;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (REFUSED) {
		errno = EINVAL;
		return -1;
	}
	r = syscall(SYS_ioctl, fd, request, arg);
	if (r == 0 && request == TUNGETFEATURES)
		*(unsigned *)arg &= ~(unsigned)LACKS;
	return (int)r;
}
"""
OLD = {"the feature": ("IFF_VNET_HDR", ()), "a way to ask": ("0", ["TUNGETFEATURES"]), "the header's size": ("0", ["TUNSETVNETHDRSZ"]),
       "its byte order": ("0", ["TUNSETVNETLE"]), "the offloads": ("0", ["TUNSETOFFLOAD"])}


@pytest.mark.parametrize("lacks", OLD)
def test_b120_a_kernel_without_offload(ehub, ehub_agent, side, shared, lacks):
    """workerd/l2.c, common/tap.c: what is optional is asked for once, and then the segment works without it."""
    where = tempfile.mkdtemp(dir=shared)
    os.chmod(where, 0o755)
    features, calls = OLD[lacks]
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", f"-DLACKS={features}", f"-DREFUSED={' || '.join(f'request == {c}' for c in calls) or 0}",
                    "-o", f"{where}/tun.so", "-x", "c", "-"], input=SHIM, text=True, check=True)
    device = ehub_agent(policy=POLICY, env={"LD_PRELOAD": f"{where}/tun.so"})
    handle = start(ehub)
    f = Forward(ehub, side, handle, "--address", "10.9.0.2/24", "--offload").up()
    assert f.info["offload"] is False
    assert ping(side, "10.9.0.2") == 20
    echo(side, "10.9.0.2", os.urandom(300_000))
    record = [r["text"].split(" ", 3)[3] for r in device.ctl("audit", "-f", f"{device.state}/privhelper/audit").json["records"]]
    assert record == ["tap name=eth1 mtu=1500 offload=1 result=EOPNOTSUPP", "tap name=eth1 mtu=1500 offload=0 result=ok"]
    assert ours() == [] and f.end() == ""
    assert ehub.call("signal", handle, "KILL").returncode == 0


def test_the_record_is_compared_with_what_was_told(dev, ehub, side):
    """edgectl audit verify: a chain that ends too early is whole in itself; workerd knows its last line."""
    path = f"{dev.state}/privhelper/audit"
    handle = start(ehub)
    for name in ("eth1", "eth2"):
        Forward(ehub, side, handle, "--name", name).end()
    good = open(path, "rb").read()
    assert good.count(b"\n") == 2

    def verified(text, *args):
        with open(path, "r+b") as f:
            f.truncate(0)
            f.write(text)
        return dev.ctl("audit", "verify", "-f", path, *args)

    last = good.splitlines()[-1].decode().split()[-1]
    p = verified(good)
    assert p.rc == 0 and p.err == "" and p.json == {"whole": True, "compared": True, "lines": 2, "sequence": 2, "head": last}
    for cut, n in ((b"", 0), (good.splitlines(True)[0], 1)):
        p = verified(cut)
        assert p.rc == 1 and p.json["whole"] is False and p.json["compared"] is True and p.json["lines"] == n
        assert "lines are missing at the end: number 2, digest " + last in p.err
    p = dev.ctl("audit", "verify", "-f", path, json_out=False)
    assert p.rc == 1 and p.out == ""
    # A new file goes on where the old one ended.
    line = f"1 1.000 continues {last}"
    p = verified(f"{line} {hashlib.sha256((last + line).encode()).hexdigest()}\n".encode())
    assert p.rc == 0 and p.json["whole"] is True and p.json["compared"] is True and p.json["lines"] == 1
    # A copy by itself, and a device whose workerd is away: the chain alone.
    p = subprocess.run([exe("edgectl"), "audit", "verify", "-f", path], capture_output=True, text=True, check=False)
    assert p.returncode == 0 and "only the chain itself was checked" in p.stdout and "this is a copy" in p.stdout
    p = subprocess.run([exe("edgectl"), "-r", "/nonexistent", "audit", "verify", "-f", path], capture_output=True, text=True, check=False)
    assert p.returncode == 0 and "only the chain itself was checked" in p.stdout and "workerd does not answer" in p.stdout
    assert verified(good).rc == 0
    assert ehub.call("signal", handle, "KILL").returncode == 0


def test_b116_what_is_there_is_refused(dev, ehub, side):
    handle = start(ehub)
    a = Forward(ehub, side, handle, "--address", "10.9.0.2/24").up()
    b = Forward(ehub, side, handle, "--id", "second", tap="tap1")
    assert b.info is None and "an interface eth1 is there already" in b.end()
    lo = Forward(ehub, side, handle, "--name", "lo", tap="tap1")
    assert lo.info is None and "--name" in lo.end()
    assert ping(side, "10.9.0.2", 3) == 3, "the first one is what it was"
    again = Forward(ehub, side, handle, "--name", "eth2", "--address", "10.10.0.2/24", tap="tap1").up("10.10.0.1/24", "tap1")
    assert ping(side, "10.10.0.2", 3) == 3
    a.end()
    again.end()


@pytest.mark.parametrize("policy, text", [
    ({"work": {"network": "none"}}, "l2 = no"), ({"devices": {"l2": "yes"}}, "without a network of its own")])
def test_refused_by_policy(ehub, ehub_agent, side, policy, text):
    ehub_agent(policy=policy)
    handle = start(ehub)
    f = Forward(ehub, side, handle)
    assert f.info is None and text in f.end()


def test_no_such_workload(dev, ehub, side):
    f = Forward(ehub, side, "nobody")
    assert f.info is None and "no workload nobody runs here" in f.end()


def test_a_segment_waits_for_the_start_that_names_it(dev, ehub, side):
    """device_open without a handle, then start.devices: one start has it, another is refused, a start with a network as well."""
    f = Forward(ehub, side, None, "--id", "later", "--address", "10.9.0.2/24", "--offload").up()
    assert f.info["name"] == "later" and f.info["offload"] is False
    assert ping(side, "10.9.0.2", 1, 8) == 0, "there is nothing at its other end yet"
    segment, = dev.ctl("devices").json["devices"]
    assert segment["state"] == "waits" and segment["handle"] == ""
    assert b"device nothere is not attached" in ehub.call("run", D, "--device", "nothere", "--", "/bin/true").stderr
    h = ehub.call("run", D, "--device", "later", "--detach", "--", "/usr/bin/python3", "-uc", SERVER).stdout.decode().strip()
    wait_for(lambda: b"ready" in ehub.call("logs", h).stdout, 20, "the workload runs")
    wait_for(lambda: ping(side, "10.9.0.2", 1) == 1, 20, lambda: dev.log_tail(20))
    echo(side, "10.9.0.2", os.urandom(300_000))
    again = ehub.call("run", D, "--device", "later", "--", "/bin/true")
    assert b"device later is leased to workload " + h.encode() in again.stderr, again
    segment, = dev.ctl("devices").json["devices"]
    assert (segment["id"], segment["kind"], segment["state"], segment["handle"], segment["interface"]) == ("later", "l2", "ready", h, "eth1")
    assert ehub.call("signal", h, "KILL").returncode == 0
    assert f.p.wait(20) == 1 and "the workload has ended" in f.p.stderr.read()
    assert dev.ctl("devices").json["devices"] == []


def test_the_end_of_the_workload_ends_it(dev, ehub, side):
    handle = start(ehub)
    f = Forward(ehub, side, handle, "--address", "10.9.0.2/24").up()
    assert ehub.call("signal", handle, "KILL").returncode == 0
    assert f.p.wait(20) == 1 and "the workload has ended" in f.p.stderr.read()


@pytest.mark.timeout(1500 if os.environ.get("EDGEWARD_ALL") else 120)
def test_b118_kill9(dev, ehub, side):
    """Any daemon, again and again: nothing is left, and the next one is up at once."""
    handle = start(ehub)
    for i in range(100 if os.environ.get("EDGEWARD_ALL") else 8):
        f = Forward(ehub, side, handle, "--address", "10.9.0.2/24", "--id", f"round-{i}")
        if f.info:
            f.up()
            assert ping(side, "10.9.0.2", 2) == 2
        role = ("connectd", "workerd", "privhelper")[i % 3]
        dev.kill9(role)
        if role == "connectd":
            assert f.p.wait(20) == 1
        f.end()
        ehub.connected()
        wait_for(lambda: dev.ctl("status").rc == 0, 20, "all is well again")
        assert ours() == []

        def gone():
            g = Forward(ehub, side, handle, "--address", "10.9.0.2/24", "--id", f"check-{i}-{time.monotonic_ns()}")
            ok = g.info is not None
            g.end()
            return ok
        wait_for(gone, 20, "it can be had again")


@pytest.mark.parametrize("role", ["connectd", "workerd", "privhelper"])
def test_b118_a_stopped_process_is_no_obstacle(dev, ehub, side, role):
    """What a stopped process holds goes when the watchdog kills it, and the next segment comes up under the same name. While privhelper or workerd
    stand still the segment that is there goes on: neither is between the two interfaces."""
    handle = start(ehub)
    f = Forward(ehub, side, handle, "--address", "10.9.0.2/24", "--id", "first").up()
    assert ping(side, "10.9.0.2", 2) == 2
    pid = dev.pid(role)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(1)
        assert ping(side, "10.9.0.2", 2) == (0 if role == "connectd" else 2)
    finally:
        os.kill(pid, signal.SIGKILL)
    if role == "connectd":
        assert f.p.wait(20) == 1
    f.end()
    ehub.connected()
    wait_for(lambda: dev.ctl("status").rc == 0, 20, "all is well again")
    assert ours() == []

    def again():
        g = Forward(ehub, side, handle, "--address", "10.9.0.2/24", "--id", f"again-{time.monotonic_ns()}")
        works = g.info is not None and ping(g.up().side, "10.9.0.2", 2) == 2
        g.end()
        return works
    wait_for(again, 20, lambda: dev.log_tail(20))
    assert ours() == []


def test_b121_changes_of_the_link_are_followed(dev, ehub, side):
    """Down and up, another MTU, another MAC, on either side, a bridge above it: the segment goes on. Removed on either side: it
    ends, with the reason, and the next one works."""
    handle = start(ehub)
    f = Forward(ehub, side, handle, "--address", "10.9.0.2/24").up()

    def goes_on(what):
        for flush in (side.sh, lambda c: inside(dev, c)):
            flush("ip neigh flush all")     # who knows the old address would go on with it
        wait_for(lambda: ping(side, "10.9.0.2", 1) == 1, 20, what)
        assert f.p.poll() is None, f.p.stderr.read()
    goes_on("at first")
    for change in ("ip link set {} down; sleep 0.2; ip link set {} up", "ip link set {} mtu 1000", "ip link set {} mtu 1500",
                   "ip link set {} address 02:00:00:00:00:99", "ip link set {} promisc on; ip link set {} promisc off"):
        inside(dev, change.format("eth1", "eth1"))
        goes_on(f"the workload's: {change}")
        side.sh(change.format("tap0", "tap0").replace(":99", ":98"))
        goes_on(f"the operator's: {change}")
    side.sh("ip addr flush dev tap0; ip link add br0 type bridge; ip link set tap0 master br0; ip addr add 10.9.0.1/24 dev br0; ip link set br0 up")
    goes_on("below a bridge")
    side.sh("ip link set tap0 nomaster; ip link del br0; ip addr add 10.9.0.1/24 dev tap0")
    goes_on("and alone again")
    inside(dev, "ip link del eth1")
    assert f.p.wait(20) == 1 and "removed its interface" in f.p.stderr.read()
    g = Forward(ehub, side, handle, "--address", "10.9.0.2/24").up()
    assert ping(side, "10.9.0.2", 2) == 2
    side.sh("ip link del tap0")
    assert g.p.wait(20) == 1 and "its end here was closed" in g.p.stderr.read()
    wait_for(lambda: "eth1" not in inside(dev, "ip -o link"), 10, "the workload's interface is gone")
    assert ours() == []


@pytest.mark.parametrize("raw", ["no", "yes"])
def test_b121_a_workload_cannot_change_it(ehub, ehub_agent, side, raw):
    """Whatever l2-raw says: no capability in its own network, so it can neither change nor remove the interface, nor make frames of its own."""
    ehub_agent(policy={"work": {"network": "none"}, "devices": {"l2": "yes", "l2-raw": raw}})
    handle = start(ehub, """
import fcntl, os, socket, struct, time
print("ready", flush=True)
while not os.path.exists("/sys/class/net/eth1") and not any(l.strip().startswith("eth1:") for l in open("/proc/net/dev")):
    time.sleep(0.05)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for name, call, arg in (("down", 0x8914, struct.pack("16sh14x", b"eth1", 0)), ("mtu", 0x8922, struct.pack("16si12x", b"eth1", 900)),
                        ("mac", 0x8924, struct.pack("16sH6s8x", b"eth1", 1, bytes([2, 0, 0, 0, 0, 1])))):
    try:
        fcntl.ioctl(s, call, arg)
        print(name, "done", flush=True)
    except OSError as e:
        print(name, e.errno, flush=True)
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    print("raw done", flush=True)
except OSError as e:
    print("raw refused", flush=True)
print([l.split()[1] for l in open("/proc/self/status") if l.startswith("CapEff")], "end", flush=True)
time.sleep(600)
""")
    f = Forward(ehub, side, handle, "--address", "10.9.0.2/24").up()
    wait_for(lambda: b"end" in ehub.call("logs", handle).stdout, 20, lambda: ehub.call("logs", handle))
    assert ehub.call("logs", handle).stdout.decode().split("\n")[1:-1] == ["down 1", "mtu 1", "mac 1", "raw refused", "['0000000000000000'] end"]
    assert ping(side, "10.9.0.2", 2) == 2
    f.end()


def test_b121_what_does_not_fit_is_counted(dev, ehub, side):
    """Frames beyond the MTU, with a VLAN tag and without: dropped whole, counted, and what fits goes on."""
    handle = start(ehub)
    f = Forward(ehub, side, handle, "--address", "10.9.0.2/24", "--mtu", "1400").up()
    side.sh("ip link set tap0 mtu 9000")

    def send():
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        s.bind(("tap0", 0))
        for size in [5000] * 7 + [1400 + 19] * 4 + [1400 + 18, 1414, 60, 14]:
            s.send(b"\xff" * 6 + bytes(6) + b"\x88\xb5" + bytes(size - 14))
            time.sleep(0.01)        # not more at once than the queue of an interface has room for
    side.call(send)
    assert ping(side, "10.9.0.2", 3, 1300) == 3
    f.end()
    wait_for(lambda: "dropped: 11 too long, 0 too short" in dev.log_tail(20), 20, lambda: dev.log_tail(20))


def test_b121_storm_and_control(dev, ehub, side):
    """A flood of frames, of all sizes, from the operator's side: the control channel answers, the log flows, and then the segment works."""
    handle = start(ehub)
    f = Forward(ehub, side, handle, "--address", "10.9.0.2/24").up()
    stop = threading.Event()

    def flood():
        def run():
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            s.bind(("tap0", 0))
            sizes, to = (14, 60, 1514, 1518), (b"\xff" * 6, b"\x01\x00\x5e\x00\x00\x09", b"\x02" * 6)
            n = 0
            while not stop.is_set():
                try:
                    s.send(to[n % 3] + os.urandom(6) + b"\x88\xb5" + bytes(sizes[n % 4] - 14))
                except OSError:
                    time.sleep(0.001)
                n += 1
        side.call(run)
    t = threading.Thread(target=flood)
    t.start()
    try:
        worst, trips = 0.0, []
        for _ in range(5):
            begin = time.monotonic()
            p = ehub.call("run", D, "--", "/bin/echo", "x")
            worst = max(worst, time.monotonic() - begin)
            assert p.returncode == 0 and p.stdout == b"x\n"
            assert dev.ctl("status").rc == 0
            begin = time.monotonic()
            assert b"no workload nobody" in ehub.call("l2", "forward", D, "--for", "nobody", "--tap", "tap9").stderr
            trips.append(time.monotonic() - begin)
    finally:
        stop.set()
        t.join()
    assert worst < 10, worst
    assert sorted(trips)[2] < 1, f"a question to workerd and its answer, with a command's start and end: {trips}"
    assert ping(side, "10.9.0.2", 3) == 3
    f.end()
