"""A workload's own network with an egress firewall (issue 3 point 8, cloop.md 5.6): what may be reached is reached, nothing else is, and
no start gets more than policy.conf has. A world of namespaces: servers on allowed and denied addresses, in both families.

Where it could break: proto/ipc/firewall.c (what a rule means), workerd/launcher/ruleset.c and netns.c (the rules, pasta, the check),
workerd/permit.c (whose word counts), view.c (resolv.conf). Faults of peers: B61 (what was made in the kernel outlives its maker).
"""
import ipaddress
import os
import shutil
import signal
import socket
import struct
import subprocess

import pytest

from lib import proc
from lib.world import (DEVICE4, DEVICE6, LINK4, METADATA4, METADATA6, NEAR4, NEAR6, OTHER4, OTHER6, OTHER_PORT, PORT, PUBLIC4,
                       PUBLIC6, World)
from lib.workdrv import OK, POLICY, SANDBOX, SIGNALLED

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]
NONE, FILTERED = b"\1", 2
RESOLVER = "10.77.0.1"


@pytest.fixture(scope="module")
def world():
    if shutil.which("pasta") is None or shutil.which("nft") is None:
        pytest.skip("skipped: no pasta (package passt) or no nft (package nftables)")
    w = World()
    yield w
    w.close()


@pytest.fixture(scope="module")
def dev(world):
    """Filtered by policy: the near addresses on one port, and a resolver."""
    with world.device(f"[work]\nnetwork = filtered\n[network]\nallow = {NEAR4} {NEAR6} 10.77.0.0/28 10.77.5.0/24\n"
                      f"deny = {OTHER4}\nports = {PORT}\nresolvers = {RESOLVER}\n") as d:
        yield d


@pytest.fixture(scope="module")
def host(world):
    with world.device("") as d:
        yield d


def cidrs(items):
    nets = [ipaddress.ip_network(i) for i in items]
    return struct.pack("=I", len(nets)) + b"".join(
        struct.pack("=BBI", n.version == 6, n.prefixlen, 16) + n.network_address.packed.ljust(16, b"\0") for n in nets)


def endpoint(address, port):
    ip = ipaddress.ip_address(address)
    return struct.pack("=BHI", ip.version == 6, port, 16) + ip.packed.ljust(16, b"\0")


def firewall(public=False, allow=(), deny=(), ports=(), resolvers=(), proxy=None):
    return (struct.pack("=B", public) + cidrs(allow) + cidrs(deny) + struct.pack("=I", len(ports)) +
            b"".join(struct.pack("=H", p) for p in ports) + struct.pack("=I", len(resolvers)) + b"".join(endpoint(*r) for r in resolvers) +
            (b"\0" if proxy is None else b"\1" + endpoint(*proxy)))


def rules(bound=None, **kw):
    return struct.pack("=B", FILTERED) + firewall(**kw) + (b"\0" if bound is None else b"\1" + firewall(**bound))


def at(address, port=PORT):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def check(world, dev, reached, refused, **kw):
    before = len(world.seen)
    got = world.reach(dev, *[at(*t) if isinstance(t, tuple) else at(t) for t in (*reached, *refused)], **kw)
    ok = {k for k, v in got.items() if v == "world"}
    assert ok == {at(*t) if isinstance(t, tuple) else at(t) for t in reached}, got
    assert "device" not in got.values()
    wanted = {(t[0] if isinstance(t, tuple) else t) for t in reached}
    assert {a for _, a, _ in world.seen[before:]} <= wanted      # and nothing else saw so much as a connection


def test_the_policy_alone(world, dev):
    check(world, dev, [NEAR4, NEAR6],
          [OTHER4, OTHER6, (NEAR4, OTHER_PORT), (NEAR6, OTHER_PORT), PUBLIC4, PUBLIC6, METADATA4, METADATA6, LINK4, DEVICE4, DEVICE6,
           "127.0.0.1", "::1", "192.0.0.1", f"::ffff:{OTHER4}"])


def test_no_way_around(world, dev):
    """From inside: no capability to change the rules, no raw socket, pasta out of reach, no datagram, no other namespace."""
    script = ("nft flush ruleset 2>&1; ip route add 10.0.0.0/8 dev lo 2>&1; ip link del edgeward0 2>&1; ping -c1 -W1 " + NEAR4 + " 2>&1;"
              "cat /proc/2/environ /proc/2/maps 2>&1; ls /proc/2/fd 2>&1; ls /proc/2/root/etc 2>&1; nsenter -t 2 -n true 2>&1;"
              "python3 -c 'import socket as s; u=s.socket(s.AF_INET,s.SOCK_DGRAM); u.sendto(b\"x\",(\"" + NEAR4 + "\"," + str(PORT) + "))' 2>&1")
    out = dev.run(["/bin/sh", "-c", script]).data.decode()
    assert out.count("not permitted") >= 4, out
    assert "ermission denied" in out and "PATH=" not in out and "passwd" not in out, out
    comm = dev.run(["/bin/sh", "-c", "cat /proc/2/comm; grep -c . /proc/2/status"]).data.decode()
    assert comm.startswith("passt"), comm                        # it was pasta that we failed to look into
    check(world, dev, [NEAR4], [OTHER4, PUBLIC4])


WAYS = r"""
import errno, os, socket as s, struct, sys
near4, near6, device4, device6, gate, port = *sys.argv[1:6], int(sys.argv[6])
link = s.if_nametoindex("edgeward0")
def way(name, f):
    try:
        f()
        print("open", name)
    except OSError as e:
        print("shut", name, errno.errorcode.get(e.errno, e))
def datagram(a, p, size=1, flags=0):
    with s.socket(s.AF_INET6 if ":" in a else s.AF_INET, s.SOCK_DGRAM) as u:
        u.setsockopt(s.SOL_SOCKET, s.SO_BROADCAST, 1)
        u.setsockopt(s.SOL_SOCKET, s.SO_SNDBUF, 1 << 20)
        for last in (flags, 0):
            u.sendto(b"x" * size, last, (a, p, 0, link) if ":" in a else (a, p))
def stream(a, p, kind=s.SOCK_STREAM, proto=0, fast=False):
    with s.socket(s.AF_INET6 if ":" in a else s.AF_INET, kind, proto) as c:
        c.settimeout(3)
        to = (a, p, 0, link) if ":" in a else (a, p)
        c.sendto(b"x", 0x20000000, to) if fast else c.connect(to)
        c.recv(1)
for a in (near4, near6, device4, device6, "127.0.0.2", "192.0.0.1", "fe80::1", "10.77.0.255", "255.255.255.255", "224.0.0.251", "ff02::1", "ff02::fb"):
    for p in (53, port):
        if not a.startswith("127."):
            way(f"udp {a} {p}", lambda: datagram(a, p))
way("udp in pieces", lambda: datagram(near4, port, 60000))
way("udp more", lambda: datagram(near4, port, 10, 0x8000))
way("resolver, another port", lambda: datagram(gate, port))
for a in (device4, device6, "192.0.0.1", "fe80::1", "0.0.0.0", "::", "127.0.0.1", "::1", "::ffff:" + device4):
    way(f"tcp {a}", lambda: stream(a, port))
way("fast open", lambda: stream(device4, port, fast=True))
way("mptcp", lambda: stream(device4, port, proto=262))
way("sctp", lambda: stream(near4, port, proto=132))
way("udplite", lambda: stream(near4, port, s.SOCK_DGRAM, 136))
way("dccp", lambda: stream(near4, port, 6, 33))
way("ping", lambda: s.socket(s.AF_INET, s.SOCK_DGRAM, 1))
way("ping6", lambda: s.socket(s.AF_INET6, s.SOCK_DGRAM, 58))
for proto in (1, 6, 17, 255):
    way(f"raw {proto}", lambda: s.socket(s.AF_INET, s.SOCK_RAW, proto))
way("raw6", lambda: s.socket(s.AF_INET6, s.SOCK_RAW, 58))
way("packet", lambda: s.socket(s.AF_PACKET, s.SOCK_RAW, 0x300))
way("packet dgram", lambda: s.socket(s.AF_PACKET, s.SOCK_DGRAM, 0x300))
def abstract(kind):
    with s.socket(s.AF_UNIX, kind) as u:
        u.connect("\0edgeward-escape")
way("abstract", lambda: abstract(s.SOCK_STREAM))
def tun():
    os.open("/dev/net/tun", os.O_RDWR)
way("tun", tun)
"""


def test_every_other_way(world, dev):
    """Datagrams, other protocols, the far end of the cable, the device's own sockets: tried where somebody listens, and nobody hears a byte."""
    heard, ns = [], world.net.dev
    for space, where in ((ns, "device"), (world.net.hub, "world")):
        for port in (53, PORT):
            if (where, port) == ("world", 53):
                continue        # its resolver
            u = space.call(lambda p=port: world.bound(socket.SOCK_DGRAM, p))
            u.setblocking(False)
            heard.append((where, port, u))
    a = ns.call(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    a.bind("\0edgeward-escape")
    a.listen(1)
    before = len(world.seen)
    r = dev.run(["/usr/bin/python3", "-c", WAYS, NEAR4, NEAR6, DEVICE4, DEVICE6, RESOLVER, str(PORT)])
    a.close()
    out = r.data.decode()
    assert r.info["exit_code"] == 0 and out.count("\n") > 45, out
    assert world.seen[before:] == []
    for where, port, u in heard:
        with pytest.raises(BlockingIOError):
            pytest.fail(f"{where} {port} heard {u.recv(100)}")
    assert [w for w in out.splitlines() if w.startswith("open")] == [], out


def test_names_and_rebinding(world, dev):
    """What a name leads to is checked each time, because addresses are what is checked."""
    world.answers.update({"good.test": NEAR4, "six.test": NEAR6})
    assert world.reach(dev, f"good.test:{PORT}", f"six.test:{PORT}") == {f"good.test:{PORT}": "world", f"six.test:{PORT}": "world"}
    for trap in ("127.0.0.1", METADATA4, DEVICE4, OTHER4, METADATA6, "::1"):
        world.answers["good.test"] = trap
        got = world.reach(dev, f"good.test:{PORT}")[f"good.test:{PORT}"]
        assert got not in ("world", "device"), trap
    out = dev.run(["/bin/cat", "/etc/resolv.conf"]).data.decode()
    assert out == f"nameserver {RESOLVER}\n"


@pytest.mark.parametrize("link", ["../run/systemd/resolve/stub-resolv.conf", "/run/NetworkManager/resolv.conf", "other.conf", None])
def test_resolv_conf_wherever_it_is(world, dev, link):
    """A file, a link to where a resolver of the device keeps its own, a link beside it; the device's own is never seen."""
    net = world.net
    try:
        if link is None:
            net.resolv("nameserver 10.9.9.9\n")
        else:
            net.dev.sh(f"echo nameserver 10.9.9.9 > /etc/other.conf; ln -sfn {link} /etc/resolv.conf")
        assert dev.run(["/bin/cat", "/etc/resolv.conf"]).data.decode() == f"nameserver {RESOLVER}\n"
    finally:
        net.resolv("")


def test_a_start_narrows(world, dev):
    """egress_rules of the hub inside of the policy; outside of it the start is refused, by the policy's line and the address."""
    check(world, dev, [NEAR4], [NEAR6, OTHER4], network=rules(allow=[NEAR4], ports=[PORT]))
    for kw, why in (({"allow": [PUBLIC4], "ports": [PORT]}, f"address {PUBLIC4}"), ({"public": True, "ports": [PORT]}, "address"),
                    ({"allow": [NEAR4]}, "port (every one)"), ({"allow": [NEAR4], "ports": [22]}, "port 22"),
                    ({"allow": ["10.77.0.0/27"], "ports": [PORT]}, "address 10.77.0.16"),
                    ({"resolvers": [("1.1.1.1", 53)]}, "resolver 1.1.1.1:53"), ({"resolvers": [(RESOLVER, 5353)]}, "resolver")):
        err = dev.start(["/bin/true"], expect=POLICY, network=rules(**kw))
        assert err.startswith("policy:2: network = filtered") and why in err, err
    err = dev.start(["/bin/true"], expect=POLICY, network=rules(bound={"allow": [NEAR6]}, allow=[NEAR4], ports=[PORT]))
    assert "egress_bound" in err and NEAR4 in err
    # inside of both: the bound's denies hold, too
    check(world, dev, [NEAR4], [NEAR6], network=rules(bound={"allow": [NEAR4, NEAR6], "deny": [NEAR6]}, allow=[NEAR4, NEAR6], ports=[PORT]))


def test_nothing_is_nothing(dev):
    """A firewall without a destination, and no network at all: no cable, no pasta."""
    for net in (NONE, rules(), rules(deny=["10.0.0.0/8"])):
        out = dev.run(["/bin/sh", "-c", "cat /proc/net/dev | wc -l; ls -d /proc/[0-9]* | wc -l"], network=net).data.decode().split()
        assert out[0] == "3" and int(out[1]) <= 5, out


def test_the_hub_narrows_an_open_device(world, host):
    check(world, host, [PUBLIC4, PUBLIC6], [NEAR4, NEAR6, METADATA4, METADATA6, LINK4, DEVICE4, "127.0.0.1"], network=rules(public=True))
    check(world, host, [METADATA4], [LINK4, METADATA6], network=rules(allow=[METADATA4]))
    check(world, host, [LINK4], [METADATA4], network=rules(allow=["169.254.0.0/16"]))
    check(world, host, [NEAR4, OTHER4], [DEVICE4, "127.0.0.1", f"::ffff:{PUBLIC4}"], network=rules(allow=["10.0.0.0/8", "127.0.0.0/9"]))


@pytest.mark.parametrize("proxy", [OTHER4, OTHER6])
def test_the_route_to_the_egress_proxy_is_opened(world, dev, host, proxy):
    """Version 18: that one address at that one port, in either family; not on this device, and not where the policy does not go."""
    check(world, host, [NEAR4, (proxy, OTHER_PORT)], [proxy, (NEAR4, OTHER_PORT), PUBLIC4],
          network=rules(allow=[NEAR4], ports=[PORT], proxy=(proxy, OTHER_PORT)))
    check(world, host, [(proxy, OTHER_PORT)], [NEAR4, proxy], network=rules(proxy=(proxy, OTHER_PORT)))
    own = DEVICE6 if proxy == OTHER6 else DEVICE4
    check(world, host, [NEAR4], [(own, OTHER_PORT), proxy], network=rules(allow=[NEAR4], ports=[PORT], proxy=(own, OTHER_PORT)))
    err = dev.start(["/bin/true"], expect=POLICY, network=rules(allow=[NEAR4], ports=[PORT], proxy=(proxy, OTHER_PORT)))
    assert err.startswith("policy:2: network = filtered") and "proxy" in err and proxy in err, err


def test_pasta_ends_the_workload(dev):
    r = dev.start(["/bin/sleep", "1000"])
    with open(f"{dev.cgroup}/w.{r.handle}/cgroup.procs") as f:
        pids = [int(p) for p in f]
    pasta = [p for p in pids if proc.stat(p)[0].startswith("pas")]
    assert len(pasta) == 1
    assert os.stat(f"/proc/{pasta[0]}").st_uid in (0, os.stat(f"/proc/{pids[0]}").st_uid)
    os.kill(pasta[0], signal.SIGKILL)
    dev.finish(r)
    assert r.info["outcome"] == SIGNALLED and "pasta" in r.info["error"], r.info


def test_b61_nothing_is_left(world, dev):
    """A whole life leaves no process, no interface and no namespace, also when all of it is killed."""
    def namespaces():
        out = subprocess.run(["lsns", "-t", "net", "-n", "-o", "NS"], capture_output=True, text=True, check=True).stdout
        return set(out.split())
    dev.run(["/bin/true"])
    assert dev.settled()
    before = namespaces(), world.net.dev.sh("ip -o link; nft list ruleset")
    handles = [dev.start(["/bin/sleep", "1000"]) for _ in range(3)]
    # Theirs, by their processes: the machine may have others that come and go.
    ours = set()
    for r in handles:
        with open(f"{dev.cgroup}/w.{r.handle}/cgroup.procs") as f:
            ours |= {os.readlink(f"/proc/{p}/ns/net").strip("net:[]") for p in f.read().split()}
    ours -= before[0]
    assert len(ours) >= 3 and ours <= namespaces()
    for r in handles:
        dev.signal(r, signal.SIGKILL)
    for r in handles:
        dev.finish(r)
    assert dev.settled()
    dev.wait("the namespaces are gone", lambda: not namespaces() & ours)
    assert world.net.dev.sh("ip -o link; nft list ruleset") == before[1]


def test_as_an_ordinary_user(world):
    """No pool, no cgroup: the pid namespace ends pasta with the rest."""
    with world.device(f"[work]\nnetwork = filtered\n[network]\nallow = {NEAR4}\n", plain=True) as d:
        check(world, d, [NEAR4, (NEAR4, OTHER_PORT)], [OTHER4, NEAR6, DEVICE4, "127.0.0.1"])


def test_what_is_missing_is_named(world):
    """Without pasta, or with one that cannot work, a start is refused by name; one that needs no filter is taken."""
    world.net.dev.sh("touch /mnt/none; mount --bind /mnt/none /usr/bin/passt")
    try:
        with world.device(f"[work]\nnetwork = filtered\n[network]\nallow = {NEAR4}\n") as d:
            err = d.start(["/bin/true"], expect=SANDBOX)
            assert "filtered network" in err and ("pasta" in err), err
            assert d.run(["/bin/true"], network=NONE).info["exit_code"] == 0
    finally:
        world.net.dev.sh("umount /usr/bin/passt")
    world.net.dev.sh("chmod 600 /dev/net/tun")
    try:
        with world.device(f"[work]\nnetwork = filtered\n[network]\nallow = {NEAR4}\n") as d:
            assert "/dev/net/tun" in d.start(["/bin/true"], expect=SANDBOX)
    finally:
        world.net.dev.sh("chmod 666 /dev/net/tun")


def test_it_breaks_after_the_start(world):
    """The launcher found it working; then pasta is replaced by something that passes no check."""
    with world.device(f"[work]\nnetwork = filtered\n[network]\nallow = {NEAR4}\n") as d:
        assert d.run(["/bin/true"]).info["exit_code"] == 0
        world.net.dev.sh("printf '#!/bin/sh\\necho 1\\nexec sleep 1000\\n' > /mnt/fake; chmod 755 /mnt/fake; mount --bind /mnt/fake /usr/bin/passt")
        try:
            err = d.start(["/bin/echo", "ran"], expect=SANDBOX)
            assert "the check that it holds" in err, err
        finally:
            world.net.dev.sh("umount /usr/bin/passt")
        world.net.dev.sh("printf '#!/bin/sh\\nexit 0\\n' > /mnt/fake; mount --bind /mnt/fake /usr/sbin/nft")
        try:
            err = d.start(["/bin/echo", "ran"], expect=SANDBOX)
            assert "the check that it holds" in err, err
        finally:
            world.net.dev.sh("umount /usr/sbin/nft")
        assert d.settled()
        assert d.start(["/bin/true"], expect=OK) is not None
