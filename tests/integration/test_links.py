"""Links that break in ways only a network can (faults.md section 1: B03, B08, B10, B12, B13, B15's agent side, B23).

Two network namespaces with a cable; cuts are drop rules, never resets. Where it could go wrong: connectd's liveness (bytes
that arrived, not a socket that takes bytes), write deadline, resolver (file read anew, never blocking), address race,
netlink watch, backoff caps.
"""
import time

import pytest

from lib import proc
from lib.agent import ROLES
from lib.checks import CommonChecks
from lib.fakehub import PATH, FakeHub
from lib.net import Dns, Proxy
from lib.proc import wait_for
from lib.status import link, link_cause

pytestmark = [pytest.mark.root, pytest.mark.timeout(150)]

TICK = "i=0; while [ $i -lt 1000000 ]; do echo line $i; i=$((i+1)); sleep 0.02; done"


@pytest.fixture
def netdev(agent, net, nethub):
    """A connected device on the far side of the cable; the hub by its name in /etc/hosts."""
    def make(**kw):
        kw.setdefault("conf", {})
        kw["conf"].setdefault("hub", {}).setdefault("url", f"wss://hub.test:{nethub.port}{PATH}")
        a = agent(hub=nethub, ns=net.dev, **kw)
        return a
    return make


def check_lines(run):
    whole = [x for x in run.text.decode().splitlines(keepends=True) if x.endswith("\n")]
    assert [x.strip() for x in whole] == [f"line {i}" for i in range(len(whole))]


@pytest.mark.parametrize("direction", ["both", "in", "out"])
@pytest.mark.parametrize("edgeward", [False, True], ids=["cloop", "edgeward"])
def test_b03_half_open_link(netdev, net, nethub, direction, edgeward):
    """Dropped in both directions or in one: noticed within two heartbeats, back after the cut, no byte missing."""
    nethub.b.edgeward = edgeward
    a = netdev(conf={"link": {"heartbeat": "1s", "dead-after": "2s"}})
    run = nethub.start(TICK)
    nethub.wait("output", lambda: run.log.received > 100, 10)
    with CommonChecks(a, nethub, codes={"lost", "stalled", "timeout", "no-route", "dead", "silent", "dead-link"}):
        s = nethub.session()
        net.cut(direction)
        cut_at = time.monotonic()
        wait_for(lambda: link(a) != "connected", 6, "the dead link is noticed")
        noticed = time.monotonic() - cut_at
        assert noticed < 4.5, f"noticed after {noticed:.1f} s"
        assert proc.alive(run.started["pid"])
        nethub.wait("a while", lambda: time.monotonic() > cut_at + 6, 10)
        net.heal()
        healed = time.monotonic()
        nethub.session(15, after=s)
        assert time.monotonic() - healed < 15
        had = run.log.received
        nethub.wait("output goes on", lambda: run.log.received > had, 10)
    nethub.signal(run, "kill")
    nethub.finish(run)
    check_lines(run)


def test_b03_with_a_full_spool(netdev, net, nethub):
    """Unsent data in the queue must not be taken for life."""
    a = netdev(conf={"link": {"heartbeat": "1s", "dead-after": "2s"}, "work": {"overflow": "wait-forever"}})
    run = nethub.start("while :; do echo 0123456789012345678901234567890123456789; done")
    nethub.wait("output", lambda: run.log.received > 100000, 10)
    s = nethub.session()
    net.cut()
    wait_for(lambda: link(a) != "connected", 6, "the dead link is noticed")
    net.heal()
    nethub.session(15, after=s)
    had = run.log.received
    nethub.wait("output goes on", lambda: run.log.received > had + 100000, 10)
    nethub.signal(run, "kill")
    nethub.finish(run)
    want = b"0123456789012345678901234567890123456789\n"
    assert run.text == (want * (len(run.text) // len(want) + 1))[:len(run.text)]


def test_b03_cable_gone(netdev, net, nethub):
    """The interface itself vanishes and comes back: an address event wakes the device from a long wait (B23)."""
    a = netdev(conf={"link": {"heartbeat": "1s", "dead-after": "2s", "retry-max-local": "60s", "retry-max": "60s",
                              "retry-min": "1s"}})
    s = nethub.session()
    net.dev.sh("ip link set ew-dev down")
    wait_for(lambda: link(a) == "waiting" and device_waits(a) > 6000, 60, "a long wait")
    net.dev.sh("ip link set ew-dev up")
    net.dev.sh("ip addr del 10.77.0.2/24 dev ew-dev; ip addr add 10.77.0.2/24 dev ew-dev")
    up = time.monotonic()
    nethub.session(10, after=s)
    assert time.monotonic() - up < 5.5


def device_waits(a):
    return a.ctl("status").json["connectd"]["next_retry_ms"]


def test_b23_a_storm_of_address_events(netdev, net, nethub):
    """1000 events a second do not become more attempts than the floor of the backoff allows."""
    nethub.b.tcp = "rst"
    a = netdev(conf={"link": {"retry-min": "1s", "retry-max-local": "5s", "retry-max": "5s"}}, wait=False)
    nethub.wait("an attempt", lambda: nethub.accepts, 15)
    count = len(nethub.accepts)
    begin = time.monotonic()
    net.dev.sh("for i in $(seq 1 250); do for j in 1 2 3 4; do ip addr add 10.9.$((i % 250)).$j/32 dev lo; done; done")
    spent = time.monotonic() - begin
    assert len(nethub.accepts) - count <= spent + 3, f"{len(nethub.accepts) - count} attempts in {spent:.1f} s"
    assert a.pid("connectd")


@pytest.mark.parametrize("every", [None, 0.25])
@pytest.mark.parametrize("edgeward", [False, True], ids=["cloop", "edgeward"])
def test_b08_hub_stops_reading(agent, leaf, ca, every, edgeward):
    """The kernel goes on answering window probes; nothing is read, or a byte now and then. The session ends at the write
    deadline, memory stays bounded, and afterwards every byte is there."""
    hub = FakeHub(leaf)
    hub.b.rcvbuf, hub.b.edgeward = 4096, edgeward
    hub.listen()
    a = agent(hub=hub, conf={"link": {"write-timeout": "2s", "heartbeat": "1s", "dead-after": "60s"},
                             "work": {"overflow": "wait-forever"}})
    s = hub.session()
    other = hub.start(TICK)
    pss = proc.pss_kb(a.pid("connectd"))
    run = hub.start(["/usr/bin/python3", "-c", "import sys,time\ntime.sleep(0.5)\nfor i in range(280000): "
                     "sys.stdout.write(f'line {i:09d} of the numbered output\\n')"])
    if every is None:
        s.stall()
    else:
        s.conn.read_size, s.conn.read_pause = 1, every
    begin = time.monotonic()
    wait_for(lambda: link(a) != "connected" or not s.alive or hub.current is not s, 20, "the session is given up")
    took = time.monotonic() - begin
    assert 1.5 < took < 6, f"given up after {took:.1f} s"      # half a second to the first byte, two to the deadline
    grown = proc.pss_kb(a.pid("connectd")) - pss
    assert grown < (5 << 10 if not proc.sanitized(a.pid("connectd")) else 20 << 10), f"{grown} kB more"
    hub.b.rcvbuf = None
    s.cut()
    t = hub.session(20, after=s)
    t.conn.read_size, t.conn.read_pause = 262144, 0
    hub.finish(run, 60)
    assert run.text == "".join(f"line {i:09d} of the numbered output\n" for i in range(280000)).encode()
    hub.signal(other, "kill")
    hub.finish(other)
    check_lines(other)
    hub.stop()
    assert hub.violations == [] and hub.errors == []


@pytest.mark.parametrize("state", ["empty", "missing", "dead server", "no route", "lo down", "servfail", "nxdomain"])
def test_b10_no_dns_at_boot(netdev, net, nethub, dns, state):
    """Nothing of the outside world is fatal at start; a good resolver file is used within seconds."""
    dns.records["hub.test"] = ["10.77.0.1"]
    net.hosts()
    if state == "empty":
        net.resolv("")
    elif state == "missing":
        net.resolv(None)
    elif state == "dead server":
        net.resolv("nameserver 192.0.2.1\n")
    elif state in ("servfail", "nxdomain"):
        dns.mode = state
        net.resolv("nameserver 10.77.0.1\n")
    else:
        net.resolv("nameserver 10.77.0.1\n")
        net.dev.sh("ip link set ew-dev down" if state == "no route" else "ip link set lo down; ip link set ew-dev down")
    a = netdev(conf={"link": {"retry-max-local": "2s", "retry-max": "4s"}})
    wait_for(lambda: link_cause(a) in ("dns", "no-route", "timeout"), 20, lambda: f"a cause, is {link_cause(a)}")
    pids = a.pids()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        got = a.ctl("status")
        assert got.rc == 3
        time.sleep(0.3)             # it is watched over some seconds: nobody may end
    dns.mode = "ok"
    if state in ("no route", "lo down"):
        net.dev.sh("ip link set lo up; ip link set ew-dev up; ip addr replace 10.77.0.2/24 dev ew-dev")
    net.resolv("nameserver 10.77.0.1\n")
    fixed = time.monotonic()
    nethub.session(15)
    assert time.monotonic() - fixed < 15
    assert a.pids() == pids


def test_b13_hub_moves_to_another_address(netdev, net, nethub, dns, leaf):
    """TTL 3600 in the old answer: a new attempt asks again."""
    dns.records["hub.test"] = ["10.77.0.1"]
    net.hosts()
    net.resolv("nameserver 10.77.0.1\n")
    netdev()
    s = nethub.session()
    net.hub.sh("ip addr add 10.77.0.9/24 dev ew-hub")
    other = FakeHub(leaf, host="10.77.0.9", port=nethub.port, netns=net.hub)
    nethub.unlisten()
    other.listen()
    other.credentials, other.runs = nethub.credentials, nethub.runs
    dns.records["hub.test"] = ["10.77.0.9"]
    s.cut()
    moved = time.monotonic()
    other.session(15)
    assert time.monotonic() - moved < 5
    other.stop()
    assert other.violations == []


def test_b13_dead_and_refused_addresses_first(netdev, net, nethub, dns):
    """[dead v6, refused v4, good v4]: connected in less than two seconds."""
    net.hub.sh("ip addr add 10.77.0.8/24 dev ew-hub")
    net.hub.nft("table inet t { chain input { type filter hook input priority 0; ip6 daddr fd77::dead drop;\n}\n}")
    dns.records["hub.test"] = ["fd77::dead", "10.77.0.8", "10.77.0.1"]
    nethub.unlisten()
    nethub.host = "10.77.0.1"
    nethub.listen()
    net.hosts()
    net.resolv("nameserver 10.77.0.1\n")
    a = netdev(wait=False)
    wait_for(lambda: a.pids().get("connectd"), 15, "connectd runs")
    begin = time.monotonic()
    nethub.session(15)
    assert time.monotonic() - begin < 3
    s = nethub.session()
    cut_at = time.monotonic()
    s.cut()
    nethub.session(15, after=s)
    assert time.monotonic() - cut_at < 2


def test_b13_fifty_records(netdev, net, nethub, dns):
    """All refused but the last: one round per attempt, bounded time. The answer needs TCP."""
    for n in range(49):
        net.hub.sh(f"ip addr add 10.77.1.{n + 1}/32 dev ew-hub")
    net.dev.sh("ip route add 10.77.1.0/24 dev ew-dev")
    dns.records["hub.test"] = [f"10.77.1.{n + 1}" for n in range(49)] + ["10.77.0.1"]
    nethub.unlisten()
    nethub.host = "10.77.0.1"
    nethub.listen()
    net.hosts()
    net.resolv("nameserver 10.77.0.1\n")
    a = netdev()
    nethub.session(40)
    assert a.pid("connectd")


def test_b13_answer_that_changes_its_mind(netdev, net, nethub, dns):
    """NXDOMAIN and SERVFAIL for a while: no exit, no negative answer kept."""
    dns.records["hub.test"] = ["10.77.0.1"]
    net.hosts()
    net.resolv("nameserver 10.77.0.1\n")
    a = netdev()
    s = nethub.session()
    for mode in ("nxdomain", "servfail", "silent"):
        dns.mode = mode
        count = len(dns.queries)
        s.cut()
        wait_for(lambda c=count: len(dns.queries) > c + 2, 20, "it asks again")
        assert a.ctl("status").rc == 3
        dns.mode = "ok"
        s = nethub.session(15, after=s)
    assert set(a.pids()) == set(ROLES)


def test_b10_dns_that_never_answers_does_not_block_the_loop(netdev, net, nethub, dns):
    dns.mode = "silent"
    net.hosts()
    net.resolv("nameserver 10.77.0.1\n")
    a = netdev()
    for _ in range(5):
        got = a.ctl("status")
        assert got.rc == 3 and got.ms < 1500
        time.sleep(0.2)             # asked over a while, in every stage of an attempt
    dns.mode = "ok"
    dns.records["hub.test"] = ["10.77.0.1"]
    nethub.session(25)


def test_ipv6_only(netdev, net, nethub, dns):
    six = FakeHub(nethub.leaf, host="fd77::1", port=9443, netns=net.hub).listen()
    dns.records["hub.test"] = ["fd77::1"]
    net.hosts()
    net.resolv("nameserver 10.77.0.1\n")
    a = netdev(conf={"hub": {"url": f"wss://hub.test:9443{PATH}"}}, token=six.token())
    six.session(15)
    assert "fd77::1" in a.ctl("status").json["connectd"]["peer"]
    six.stop()


@pytest.mark.timeout(240)
def test_b12_satellite_link(agent, hub, proxy):
    """3 s round trip, 32 kbit/s, a tenth of the packets lost, with the limits as they are configured by default: enrol, 100 kB of
    output, no reconnect. The limits count from the last progress, not the total."""
    proxy.delay, proxy.rate, proxy.loss = 1.5, 4000, 0.1
    a = agent(conf={"hub": {"url": f"wss://localhost:{proxy.port}{PATH}"},
                    "link": {"connect-timeout": "30s", "handshake-timeout": "15s", "heartbeat": "15s", "dead-after": "30s",
                             "write-timeout": "20s"}}, wait=False)
    s = hub.session(60)
    run = hub.start("head -c 100000 /dev/zero | tr '\\0' y", timeout=30)
    hub.finish(run, 110)
    assert run.text == b"y" * 100000 and hub.current is s and len(hub.sessions) == 1
    assert a.pid("connectd")


def test_b15_old_connections_that_linger(agent, hub):
    """connectd killed and started again and again through a proxy that holds each old connection open: the newest wins."""
    p = Proxy(hub.port)
    p.linger = 3.0
    a = agent(conf={"hub": {"url": f"wss://localhost:{p.port}{PATH}"}})
    run = hub.start(TICK)
    for _ in range(5):
        s = hub.session()
        old = a.kill9("connectd")
        a.restarted("connectd", old)
        hub.session(15, after=s)
    last = hub.current
    n = len(last.beats)
    hub.wait("beats", lambda: len(last.beats) >= n + 6, 10)
    assert hub.current is last and last.alive
    hub.signal(run, "kill")
    hub.finish(run)
    check_lines(run)
    p.close()


def test_dns_server_sees_every_attempt(netdev, net, nethub, dns):
    assert isinstance(dns, Dns)
    dns.records["hub.test"] = ["10.77.0.1"]
    net.hosts()
    net.resolv("nameserver 10.77.0.1\n")
    netdev()
    s = nethub.session()
    for _ in range(3):
        count = len(dns.queries)
        s.cut()
        s = nethub.session(15, after=s)
        assert len(dns.queries) > count
