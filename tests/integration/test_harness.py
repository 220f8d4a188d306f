"""The harness itself: a tool that cannot see a fault proves nothing. The scripted hub against a scripted agent whose
WebSocket is wsproto, so by other authors; then each thing the hub must notice, planted by hand."""
import json
import os
import socket
import ssl
import time

import pytest
import wsproto

from lib import ws
from lib.fakehub import FakeHub
from lib.model import Log
from lib.net import Dns, Proxy
from lib.proc import wait_for
from lib.stubagent import StubAgent
from lib.xxh3 import xxh3_128

pytestmark = pytest.mark.timeout(60)


def stub(hub, ca, **kw):
    return StubAgent(hub.url(), ca.file, kw.pop("bearer", None) or hub.token(), **kw)


def test_enrol_and_come_back(hub, ca):
    a = stub(hub, ca)
    welcome = a.hello()
    assert welcome["credential"].startswith("clac1.") and welcome["protocol_version"] == 1
    b = stub(hub, ca, bearer=welcome["credential"], agent_id=welcome["executor_id"])
    assert "credential" not in b.hello()
    hub.session(after=hub.sessions[0])


@pytest.mark.parametrize("edgeward", [False, True])
def test_one_workload(hub, ca, edgeward):
    a = stub(hub, ca, edgeward=edgeward)
    a.hello()
    run = hub.send_start(["x"])
    a.run_one(b"some output\n", 7)
    hub.finish(run)
    assert (run.state, run.exit_code, run.text) == ("exited", 7, b"some output\n")
    a.beat(1)
    assert a.expect("heartbeat_ack")["payload"]["seq"] == 1
    assert run.log.acked == 12


def test_a_token_works_once(hub, ca):
    token = hub.token()
    stub(hub, ca, bearer=token).hello()
    assert stub(hub, ca, bearer=token).rejected == 401


@pytest.mark.parametrize("plant,expect", [
    ("unmasked", "without mask"), ("version", "stamped v"), ("twice", "second hello"), ("early", "before the hello"),
    ("unknown key", "unknown key"), ("binary", "binary message on plain cloop"), ("origin", "Origin"),
    ("seq", "heartbeat seq"), ("jump", "log_chunk over"), ("after", "output after the terminal"),
    ("differs", "other bytes"), ("wrong time", "no UTC time"),
])
def test_the_hub_notices(hub, ca, plant, expect):
    a = stub(hub, ca, origin="https://evil.example" if plant == "origin" else None)
    if plant == "early":
        a.beat(1)
    a.hello()
    if plant == "unmasked":
        a._out(ws.frame(ws.TEXT, b"{}"))
    elif plant == "version":
        a.send("heartbeat", {"seq": 1}, id="hb-1", v=2)
    elif plant == "twice":
        a.send("hello", {"protocol_version": 1, "agent_id": a.agent_id, "capabilities": {"os": "l", "arch": "a"}},
               id="hello")
    elif plant == "unknown key":
        a.send("heartbeat", {"seq": 1, "health": []}, id="hb-1")
    elif plant == "binary":
        a.binary(1, 2, 0, b"x")
    elif plant == "seq":
        a.beat(1)
        a.beat(3)
    elif plant in ("jump", "after", "differs", "wrong time"):
        run = hub.send_start(["x"])
        handle = a.run_one()
        now = "2026-01-01T00:00:00Z" if plant != "wrong time" else "2026-01-01T00:00:00+02:00"
        text = "y" * 40000 if plant == "jump" else "h3llo" if plant == "differs" else "more"
        a.send("log_chunk", {"stream": "combined", "offset": 0 if plant == "differs" else 6, "text": text, "time": now},
               handle)
        hub.finish(run)
    hub.wait("the violation", lambda: any(expect in v for v in hub.violations), 5)
    hub.allow("")


def test_misbehaviour_reaches_the_client(leaf, ca):
    hub = FakeHub(leaf).listen()
    hub.b.http = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    assert stub(hub, ca).rejected == 503
    hub.b.http, hub.b.upgraded = None, "rst"
    with pytest.raises((ConnectionError, AssertionError, ssl.SSLError)):
        stub(hub, ca).hello()
    hub.b.upgraded, hub.b.tcp = None, "rst"
    with pytest.raises((ConnectionError, ssl.SSLError)):
        stub(hub, ca)
    hub.stop()


def test_a_stalled_hub_reads_nothing(hub, ca):
    a = stub(hub, ca)
    a.hello()
    session = hub.session()
    session.stall()
    a.sock.settimeout(0.5)
    with pytest.raises((socket.timeout, TimeoutError, ssl.SSLWantWriteError)):
        for _ in range(400):
            a.beat(1, ["x" * 60000])
    hub.allow("")


def test_missing_heartbeat_entry_is_seen(hub, ca):
    a = stub(hub, ca)
    a.hello()
    run = hub.send_start(["x"])
    start = a.expect("start")
    a.send("started", {"handle_id": run.handle, "started_at": "2026-01-01T00:00:00Z"}, run.handle, start["id"])
    a.beat(1, [])
    hub.wait("noticed", lambda: run.missing == [(0, 1)], 5)


def test_a_beat_from_before_the_end_delivers_nothing(hub, ca):
    a = stub(hub, ca)
    a.hello()
    a.beat(1)
    hub.wait("the beat", lambda: hub.session().beats, 5)
    run = hub.send_start(["x"])
    a.run_one()
    with pytest.raises(AssertionError, match="forgotten"):
        hub.delivered(run, 0.3)
    a.beat(2)
    hub.delivered(run)


def test_parser_agrees_with_wsproto():
    """Every split of a stream with all forms of a frame gives the same messages as wsproto's parser."""
    payloads = [b"", b"a", b"x" * 125, b"y" * 126, b"z" * 65535, b"w" * 65536]
    stream = b"".join(ws.frame(ws.BINARY, p, mask=os.urandom(4)) for p in payloads)
    stream += ws.frame(ws.TEXT, "ä".encode()[:1], fin=False, mask=b"1234") + ws.frame(ws.PING, b"p", mask=b"abcd")
    stream += ws.frame(ws.CONT, "ä".encode()[1:], mask=b"4321")
    for step in (1, 7, 4096, len(stream)):
        p, got = ws.Parser(), []
        for i in range(0, len(stream), step):
            got += p.feed(stream[i:i + step])
        assert got == [(ws.BINARY, x) for x in payloads] + [(ws.PING, b"p"), (ws.TEXT, "ä".encode())]
    peer = wsproto.connection.Connection(wsproto.ConnectionType.SERVER)
    peer.receive_data(stream)
    assert sum(1 for e in peer.events() if getattr(e, "message_finished", False)) == len(payloads) + 1


@pytest.mark.parametrize("bad", [
    ws.frame(3, b"", mask=b"1234"), ws.frame(ws.TEXT, b"a", rsv=4, mask=b"1234"), ws.frame(ws.TEXT, b"a"),
    ws.frame(ws.PING, b"a" * 126, mask=b"1234"), ws.frame(ws.PING, b"a", fin=False, mask=b"1234"),
    ws.frame(ws.CONT, b"a", mask=b"1234"), ws.frame(ws.TEXT, b"\xff", mask=b"1234"),
    ws.frame(ws.TEXT, b"a", form=16, mask=b"1234"), ws.frame(ws.TEXT, b"a", form=64, mask=b"1234"),
    ws.frame(ws.CLOSE, ws.close_payload(1005), mask=b"1234"), ws.frame(ws.CLOSE, b"a", mask=b"1234"),
    ws.frame(ws.TEXT, b"", length=(1 << 20) + 1, mask=b"1234"),
])
def test_parser_refuses(bad):
    with pytest.raises(ws.WsError):
        ws.Parser().feed(bad)


def test_log_rules():
    log = Log()
    assert log.add(0, b"abc", True) == [] and log.add(1, b"bcd", True) == [] and log.bytes() == b"abcd"
    assert log.dup == 2
    assert log.add(0, b"abX", True) == ["other bytes at [0,3) than before"]
    assert "without GAP" in log.add(10, b"z", True)[0] and log.gaps == [(4, 10, None)]
    log = Log()
    log.add(0, b"abc", True)
    assert log.gap(3, 9, 1) == [] and log.received == 9 and log.add(9, b"x", True) == []
    assert log.gap(20, 21, 1) and log.gap(3, 3, 1) and log.gap(10, 11, 9)


def test_xxh3_known_values():
    assert xxh3_128(b"").hex() == "99aa06d3014798d86001c324468d497f"
    assert xxh3_128(b"a").hex() == "a96faf705af16834e6c632b61e964e1f"


def test_proxy_holds_and_cuts(hub, ca):
    proxy = Proxy(hub.port)
    a = StubAgent(f"wss://localhost:{proxy.port}/x", ca.file, hub.token())
    a.hello()
    proxy.hold = {"up"}
    a.beat(1)
    time.sleep(0.3)             # the absence of something can only be waited out
    session = hub.session()
    assert not session.beats
    proxy.hold = set()
    hub.wait("the beat", lambda: session.beats, 5)
    proxy.cut()
    session.wait_end(5)
    proxy.close()


def test_a_hub_can_move_and_come_back(leaf, ca):
    hub = FakeHub(leaf).listen()
    port = hub.port
    hub.unlisten()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)
    hub.port = port
    hub.listen()
    assert hub.port == port
    stub(hub, ca).hello()
    hub.stop()


@pytest.mark.root
def test_net_cut_is_silent(net, nethub, dns):
    dns.records["hub.example"] = ["10.77.0.1"]
    net.resolv("nameserver 10.77.0.1\n")
    out = net.dev.run("getent", "ahostsv4", "hub.example").stdout
    assert "10.77.0.1" in out
    sock = net.dev.call(lambda: socket.create_connection(("10.77.0.1", nethub.port), 5))
    net.cut("in")
    with pytest.raises((socket.timeout, TimeoutError)):
        net.dev.call(lambda: socket.create_connection(("10.77.0.1", nethub.port), 0.5))
    sock.close()
    net.heal()
    net.dev.call(lambda: socket.create_connection(("10.77.0.1", nethub.port), 5)).close()
    nethub.allow("")


def test_dns_answers_over_tcp_when_long():
    server = Dns.__new__(Dns)           # without sockets: port 53 needs a namespace, the answer itself does not
    server.records, server.mode, server.ttl, server.queries = {"x": [f"10.0.0.{i}" for i in range(50)]}, "ok", 1, []
    query = b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0" + b"\x01x\0" + b"\0\x01\0\x01"
    answer = server._answer(query)
    assert answer[:2] == b"\x12\x34" and int.from_bytes(answer[6:8], "big") == 50 and len(answer) > 512


def test_wait_for_says_what():
    with pytest.raises(AssertionError, match="the moon"):
        wait_for(lambda: False, 0.05, "the moon")


def test_json_of_the_hub_is_json(hub, ca):
    a = stub(hub, ca)
    a.hello()
    hub.session().send_text(json.dumps({"v": 1, "type": "bye", "payload": {"reconnect": False}}))
    assert a.expect("bye")["payload"] == {"reconnect": False}
