"""A session from hello to its end, and what a hub may send wrongly in it (protocol reference 14.4, 14.5, sections 1-4).

Where it could go wrong: connectd's session and cloop codec (frames in, frames out, versions), its heartbeat and dead-link
timers, backoff.c (what follows which end). Each fault must leave the process, the other work and the next session alone.
"""
import json
import statistics
import time

import pytest

from lib import proc, ws
from lib.conn import http_answer
from lib.proc import wait_for
from lib.status import link, link_cause

pytestmark = pytest.mark.timeout(90)


def works(hub, timeout=15, after=None):
    """The link is as good as new: a workload runs and its output arrives."""
    s = hub.session(timeout, after)
    run = hub.start("echo fine")
    hub.finish(run)
    assert run.text == b"fine\n" and run.exit_code == 0
    return s


def hello_frame(s):
    return next(f for _, f in s.frames if f["type"] == "hello")


def test_hello_and_version(device, hub):
    s = hub.session()
    frame = hello_frame(s)
    assert frame["v"] == 1 and frame["id"] == "hello" and frame["payload"]["protocol_version"] == 20
    assert frame["payload"]["agent_version"] not in ("", "1", "unknown")
    assert frame["payload"]["agent_version"] in device.ctl("version", json_out=False).out
    assert hub.requests[0].offers_edgeward


def test_dialect_cloop_offers_no_subprotocol(agent, hub):
    agent(conf={"hub": {"dialect": "cloop"}})
    works(hub)
    assert not hub.requests[0].offers_edgeward and not hub.session().edgeward


@pytest.mark.parametrize("maximum", [1, 2, 6, 20, 21])
def test_negotiation(agent, hub, maximum):
    hub.b.version = maximum
    agent()
    works(hub)
    assert hub.session().version == min(maximum, 20)


def test_a_frame_above_the_negotiated_version_ends_the_session(agent, hub):
    """Below and at it is fine (errors are stamped 1); what is above was not agreed on, whatever this agent could speak."""
    hub.b.version = 3
    agent()
    s = hub.session()
    for v in (1, 3):
        s.send_text(json.dumps({"v": v, "type": "status_req", "id": f"v{v}", "handle": "nobody", "payload": {}}))
        hub.wait("the answer", lambda v=v: any(f.get("id") == f"v{v}" for _, f in s.frames), 10)
    s.send_text('{"v":4,"type":"status_req","id":"v4","handle":"nobody","payload":{}}')
    hub.wait("the end", lambda: not s.alive, 10)
    assert not any(f.get("id") == "v4" for _, f in s.frames)
    hub.session(after=s)


@pytest.mark.parametrize("version", [0, -1, 21, 99, "1", 1.5, None, 2**40])
def test_welcome_of_a_version_we_did_not_offer(agent, hub, version):
    hub.b.welcome = lambda p: {**p, "protocol_version": version}
    agent()
    hub.wait("that session ends", lambda: hub.sessions and not hub.sessions[0].alive, 15)
    hub.b.welcome = None


@pytest.mark.parametrize("change", [
    {"executor_id": None}, {"executor_id": ""}, {"executor_id": "x" * 100}, {"executor_id": 5},
    {"resume_accepted": 5}, {"resume_accepted": [5]}, {"resume_accepted": [{}]},
])
def test_malformed_welcome(agent, hub, change):
    hub.b.welcome = lambda p: {**p, **change}
    a = agent()
    hub.wait("it survives or starts again", lambda: hub.sessions and (not hub.sessions[0].alive or hub.sessions[0].beats),
             15)
    assert proc.alive(a.pid("connectd"))
    hub.allow("")


def test_unknown_keys_and_zero_times_are_tolerated(agent, hub):
    hub.b.welcome = lambda p: {**p, "new_thing": {"a": [1, 2]}, "heartbeat_seconds": 1000000, "at": "0001-01-01T00:00:00Z"}
    agent()
    s = works(hub)
    s.send("heartbeat_ack", {"seq": 10**15, "server_time": "0001-01-01T00:00:00Z", "x": None}, id="hb-1", extra=1)
    s.send("heartbeat_ack", {"seq": 1}, id="hb-1")
    s.send("log_ack", {"offset": 5}, handle="nobody")
    works(hub)
    assert s.alive


def test_heartbeats_start_at_once_vary_and_count_on(agent, hub):
    """14.5, 15.23: the first beat comes right after the welcome; +-25 % jitter; the counter goes on over reconnects."""
    agent()
    s = hub.session()
    hub.wait("beats", lambda: len(s.beats) >= 12, 15)
    assert s.beats[0][0] - s.welcomed < 0.5
    gaps = [b[0] - a[0] for a, b in zip(s.beats, s.beats[1:])]
    assert all(0.33 < g < 0.85 for g in gaps), gaps
    assert statistics.pstdev(gaps) > 0.02, f"no jitter: {gaps}"
    s.cut()
    t = hub.session(after=s)
    hub.wait("a beat", lambda: t.beats, 5)
    assert t.beats[0][1] in (s.beats[-1][1] + 1, s.beats[-1][1] + 2)


def test_b03_no_acks_means_dead(device, hub):
    """A hub that takes everything and says nothing: liveness is bytes that arrived, not a socket that accepts bytes."""
    s = hub.session()
    hub.b.ack_beats = hub.b.ack_logs = False
    begin = time.monotonic()
    hub.wait("the session is given up", lambda: not s.alive, 10)
    assert 1.0 < s.ended_at - begin < 5.0
    hub.b.ack_beats = hub.b.ack_logs = True
    works(hub, after=s)


def test_b03_bytes_without_acknowledgements_are_no_life_either(device, hub):
    """Only our own direction may be dead: what the hub sends by itself proves nothing about it. Acks decide."""
    s = hub.session()
    hub.b.ack_beats = False
    while s.alive and len(hub.sessions) == 1:
        s.send("something_new", {"x": 1})
        time.sleep(0.2)             # a steady trickle is the point
        assert time.monotonic() - s.welcomed < 10, "a hub that acknowledges nothing is believed"
    hub.b.ack_beats = True
    works(hub, after=s)


@pytest.mark.parametrize("frame", [
    {"type": "device_open", "id": "x", "payload": {}}, {"type": "no_such_frame", "payload": {"a": [1] * 1000}},
    {"type": "no_such_frame"}, {"type": "attach_open", "id": "q", "handle": "h", "payload": {"session_id": "s"}},
    {"type": "upgrade", "id": "u", "payload": {"target_version": "v9"}}, {"type": "revoke", "id": "r", "payload": {}},
    {"type": "error", "payload": {"code": "protocol", "message": "x" * 5000}}, {"type": "error", "payload": {}},
    {"type": "error"}, {"type": "heartbeat_ack"}, {"type": "started", "handle": "x", "payload": {}},
    {"type": "log_ack", "handle": "x", "payload": {}}, {"type": "log_ack", "handle": "x", "payload": {"offset": -1}},
    {"type": "hello", "payload": {}}, {"type": "log_ack", "handle": "x", "payload": {"offset": 2**63}},
])
def test_odd_frames_keep_the_session(device, hub, dialect_free, frame):
    s = hub.session()
    s.send_text(json.dumps({"v": 1, **frame}))
    run = hub.start("echo fine")
    hub.finish(run)
    assert s.alive and s is hub.current


@pytest.fixture
def dialect_free(hub):
    """Answers of the agent to frames it does not know may be errors with any id."""
    hub.allow("unknown channel")


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", "5", '"x"', "{}", '{"v":1}', '{"v":1,"type":""}', '{"v":1,"type":5}', '{"type":"bye"}',
    '{"v":0,"type":"heartbeat_ack","payload":{}}', '{"v":2,"type":"heartbeat_ack","payload":{}}',
    '{"v":"1","type":"heartbeat_ack","payload":{}}', '{"v":99999999999999999999,"type":"x"}',
    '{"v":1,"type":"x"} trailing', '{"v":1,"type":"start","id":"i","payload":{}}', "[" * 100000,
    '{"v":1,"v":1,"type":"x","type":"bye","payload":{"reconnect":false}}',
    '{"v":1,"type":"log_ack","payload":{"offset":1}}', '{"v":1.0,"type":"x"}',
])
def test_broken_envelopes(device, hub, text):
    """A broken envelope may cost the session, never the process; work goes on and the next session is good."""
    s = hub.session()
    pid = device.pid("connectd")
    run = hub.start("while :; do echo x; sleep 0.1; done")
    s.send_text(text)
    wait_for(lambda: not s.alive or len(s.beats) >= 2, 10, "reaction")
    now = hub.session()
    assert device.pid("connectd") == pid and proc.alive(run.started["pid"])
    before = run.log.received
    hub.wait("output goes on", lambda: run.log.received > before, 5)
    hub.signal(run, "kill", session=now)
    hub.finish(run)


def test_binary_on_cloop_ends_the_session(agent, hub):
    hub.b.edgeward = False
    agent()
    s = hub.session()
    s.send_binary(b"\x01" + bytes(15) + b"x")
    hub.wait("end", lambda: not s.alive, 5)
    works(hub, after=s)


def test_second_welcome(device, hub):
    s = hub.session()
    s.send("welcome", {"protocol_version": 1, "executor_id": "somebodyelse1234", "heartbeat_seconds": 15,
                       "resume_accepted": []}, id="hello")
    wait_for(lambda: not s.alive or len(s.beats) >= 3, 10, "reaction")
    works(hub)
    assert hub.session().agent_id == s.agent_id


def test_message_of_exactly_the_limit_and_one_more(device, hub):
    s = hub.session()
    head, tail = b'{"v":1,"type":"no_such","payload":{"x":"', b'"}}'
    s.send_text(head + b"y" * ((1 << 20) - len(head) - len(tail)) + tail)
    works(hub)
    assert s.alive and hub.current is s
    s.send_text(head + b"y" * ((1 << 20) + 1 - len(head) - len(tail)) + tail)
    hub.wait("end", lambda: not s.alive, 5)
    assert s.end[:2] == ("close", 1009)
    works(hub, after=s)


@pytest.mark.parametrize("raw", [
    ws.frame(ws.TEXT, b'{"v":1,"type":"x"}', length=5000), ws.frame(ws.TEXT, b"", length=2**62),
    b"\x81", b"\x81\x7e\x00", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 4,
    ws.frame(ws.TEXT, b'{"v":1', fin=False), ws.frame(ws.TEXT, b"x" * 100, fin=False) * 2,
])
def test_close_in_mid_frame_and_garbage(device, hub, raw):
    s = hub.session()
    s.send_raw(raw)
    s.cut(rst=False)
    works(hub, after=s)


def test_ping_is_answered_and_none_is_sent(device, hub):
    s = hub.session()
    s.send_raw(ws.frame(ws.PING, b"are you there?") + ws.frame(ws.PONG, b"unsolicited"))
    s.wait_frame("(pong)", lambda f: f["payload"] == b"are you there?", 5)
    hub.wait("beats", lambda: len(s.beats) >= 3, 5)
    assert s.pings == 0


@pytest.mark.parametrize("code,reason", [(1000, ""), (1000, "superseded"), (1001, "going away"), (1011, "é" * 50),
                                         (1002, "x" * 123), (3000, ""), (4999, "private")])
def test_close_codes_are_answered_and_survived(agent, hub, code, reason):
    agent()
    s = hub.session()
    s.close(code, reason)
    hub.wait("end", lambda: not s.alive, 5)
    assert s.end[0] == "close" and s.end[1] in (code, 1000, 1002)


@pytest.mark.parametrize("code", [1012, 1013])
def test_b02_hub_restart_spreads_and_reconnect_wakes(device, hub, code):
    """After a planned stop of the hub the first retry is spread over 30 s; an operator can cut the wait short."""
    s = hub.session()
    s.close(code, "service restart")
    hub.wait("end", lambda: not s.alive, 5)
    wait_for(lambda: link(device) in ("waiting", "connected"), 5, "waiting")
    waits = []
    status = device.ctl("status").json["connectd"]
    if status["link"] == "waiting":
        waits.append(status["next_retry_ms"])
        assert status["next_retry_ms"] <= 30000
        count = len(hub.accepts)
        begin = time.monotonic()
        assert device.ctl("reconnect").rc == 0
        hub.wait("an attempt", lambda: len(hub.accepts) > count, 3)
        assert hub.accepts[-1] - begin < 1.5
    works(hub, after=s)


def test_b23_reconnect_wakes_a_long_wait(device, hub):
    """No wait is beyond an operator's reach: `edgectl reconnect` gives an attempt within a second."""
    a = device
    s = hub.session()
    s.close(1013, "try again later")
    wait_for(lambda: link(a) == "waiting" and a.ctl("status").json["connectd"]["next_retry_ms"] > 2000 or
             link(a) == "connected", 10, "a long wait")
    hub.b.tcp = "rst"
    if hub.current.alive:           # the dice gave a short wait; any later failure waits a second at most here
        hub.cut()
    for _ in range(3):
        count, begin = len(hub.accepts), time.monotonic()
        assert a.ctl("reconnect").rc == 0
        hub.wait("an attempt", lambda c=count: len(hub.accepts) > c, 3)
        assert hub.accepts[count] - begin < 1.2
    hub.b.tcp = None
    assert a.ctl("reconnect").rc == 0
    works(hub, after=s)


def test_bye_for_good(device, hub):
    run = hub.start("sleep 1000")
    s = hub.session()
    s.send("bye", {"reason": "credential revoked", "reconnect": False})
    hub.wait("end", lambda: not s.alive, 5)
    wait_for(lambda: link(device) == "stopped", 5, "stopped")
    count = len(hub.accepts)
    time.sleep(2)               # the absence of attempts
    assert len(hub.accepts) == count
    assert proc.alive(run.started["pid"]), "bye ends the link, not the work"
    assert "revoked" in device.ctl("status").out


@pytest.mark.parametrize("payload", [{"reconnect": True, "reason": "restart"}, {"reconnect": True}])
def test_bye_with_reconnect(device, hub, payload):
    s = hub.session()
    s.send("bye", payload)
    hub.wait("end", lambda: not s.alive, 5)
    device.ctl("reconnect")
    works(hub, after=s)


def test_hello_never_answered(agent, hub):
    hub.b.on_hello = lambda s, p: []
    a = agent(conf={"link": {"handshake-timeout": "1s"}})
    hub.wait("given up", lambda: hub.sessions and not hub.sessions[0].alive, 10)
    s = hub.sessions[0]
    assert not s.beats, "no heartbeat before the welcome"
    wait_for(lambda: link_cause(a) not in ("", None), 5, "a cause")


@pytest.mark.parametrize("first", [
    {"v": 1, "type": "heartbeat_ack", "payload": {"seq": 1}}, {"v": 1, "type": "bye", "payload": {"reconnect": True}},
    {"v": 1, "type": "start", "id": "a", "handle": "h", "payload": {"handle_id": "h", "spec": {"argv": ["x"]}}},
    {"v": 1, "type": "welcome", "id": "other", "payload": {"protocol_version": 1, "executor_id": "AAAAAAAAAAAAAAAA"}},
    {"v": 1, "type": "welcome", "id": "hello"}, b"\x82\x00", ws.frame(ws.TEXT, b"{}"), ws.frame(ws.CLOSE, b""),
])
def test_anything_but_a_welcome(agent, hub, first):
    sent = []

    def answer(session, payload):
        sent.append(1)
        return [first]
    hub.b.on_hello = answer
    hub.allow("error before the welcome")       # to say what was wrong is fine
    a = agent(conf={"link": {"handshake-timeout": "1s"}})
    hub.wait("given up", lambda: sent and not hub.sessions[0].alive, 10)
    assert proc.alive(a.pid("connectd")) and not hub.runs


HTTP = {
    "401": (http_answer(401, '{"error":"unauthorized"}'), "http-401"),
    "403": (http_answer(403, '{"error":"origin"}'), "http-403"),
    "500": (http_answer(500, '{"error":"executor unavailable"}'), "http-5xx"),
    "503 retry": (http_answer(503, "", extra="Retry-After: 1\r\n"), "http-5xx"),
    "200 html": (http_answer(200, "<html>hello</html>", ctype="text/html"), "http-bad"),
    "302": (http_answer(302, "", extra="Location: https://evil.example/\r\n"), "http-bad"),
    "404": (http_answer(404, ""), "http-bad"),
    "garbage": (b"\x00\x01\x02" * 100 + b"\r\n\r\n", "http-bad"),
    "smtp": (b"220 mail ready\r\n\r\n", "http-bad"),
    "http/1.0": (b"HTTP/1.0 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", "http-bad"),
    "long headers": (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 70000 + b"\r\n\r\n", "http-bad"),
    "many headers": (b"HTTP/1.1 101 X\r\n" + b"A: b\r\n" * 20000 + b"\r\n", "http-bad"),
    "no accept": (b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "http-bad"),
    "wrong accept": (b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n", "http-bad"),
    "folded": (b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n folded\r\n\r\n", "http-bad"),
    "nothing": (b"\r\n\r\n", "http-bad"),
}


@pytest.mark.parametrize("name", sorted(HTTP))
def test_answers_that_are_no_upgrade(agent, hub, name):
    hub.b.http, cause = HTTP[name]
    a = agent()
    causes = {cause, "token-refused"} if cause == "http-401" else {cause}
    wait_for(lambda: link_cause(a) in causes, 15, lambda: f"{cause}, is {link_cause(a)}{a.log_tail()}")
    if "retry" in name:         # it is spread over half a minute behind what the hub named
        assert a.ctl("reconnect").rc == 0
    hub.wait("another attempt", lambda: len(hub.requests) >= 2, 20)
    assert all("evil" not in r.target for r in hub.requests)


@pytest.mark.parametrize("headers,proto", [("Sec-WebSocket-Extensions: permessage-deflate\r\n", None), ("", "edgeward.2"),
                                           ("", "EDGEWARD.1"), ("Sec-WebSocket-Protocol: edgeward.1\r\n", "edgeward.1")])
def test_upgrade_with_something_we_did_not_ask_for(agent, hub, headers, proto):
    hub.b.extra_headers, hub.b.subprotocol = headers, proto
    a = agent()
    wait_for(lambda: link_cause(a) == "http-bad", 15, lambda: f"http-bad, is {link_cause(a)}")


def test_first_frame_in_the_packet_of_the_upgrade(agent, hub):
    """Bytes behind the 101 belong to the WebSocket; a reader that drops them hangs."""
    hub.b.piggyback = ws.frame(ws.PING, b"early")
    agent()
    s = works(hub)
    s.wait_frame("(pong)", lambda f: f["payload"] == b"early", 5)


def test_upgrade_at_one_byte_a_time(agent, hub):
    """Progress counts, not only completion; and every split of the answer is the same answer."""
    hub.b.drip = 0.003
    agent()
    works(hub)


def test_upgrade_never_answered(agent, hub):
    hub.b.http_hang = True
    a = agent(conf={"link": {"connect-timeout": "1s", "handshake-timeout": "1s"}})
    hub.wait("two attempts", lambda: len(hub.accepts) >= 2, 15)
    wait_for(lambda: link_cause(a) == "timeout", 5, "cause timeout")


def test_b05_b06_many_failed_attempts_leave_nothing(agent, hub):
    """Every kind of failure in turn: descriptors and memory as before. Places: hubconn (owner of an attempt), netenv
    (resolver), the session's timers."""
    a = agent(conf={"link": {"retry-min": "1ms", "retry-max-local": "2ms", "retry-max": "5ms"}})
    s = hub.session()
    pid = a.pid("connectd")
    kinds = ["rst", "fin", "tls", "http", "upgraded", "upgraded-rst"]

    def turn(kind):
        b = hub.b
        b.tcp = kind if kind in ("rst", "fin") else None
        b.tls = b"plain" if kind == "tls" else None
        b.http = http_answer(503, "") if kind == "http" else None
        # Also an attempt that had passed the earlier stages when the kind changed comes to nothing.
        b.upgraded = {"": None, "upgraded-rst": "rst"}.get(kind, "fin")

    def storm(n):
        for i in range(n):
            hub.sync(turn, kinds[i % len(kinds)])       # in the loop, so that no attempt falls between two of them
            count = len(hub.accepts)
            hub.wait("an attempt", lambda: len(hub.accepts) > count, 10)

    def calm():
        hub.sync(turn, "")
        t = hub.session(20, after=hub.current)
        hub.wait("beats", lambda: len(t.beats) >= 2, 5)
        return proc.settled_fds(pid), proc.pss_kb(pid)

    hub.b.tcp = "rst"
    s.cut()
    storm(60)
    fds, pss = calm()
    hub.b.tcp = "rst"
    hub.cut()
    storm(300)
    fds2, pss2 = calm()
    assert a.pid("connectd") == pid
    assert fds2 == fds
    assert pss2 - pss < (6000 if proc.sanitized(pid) else 256), (pss, pss2)


def test_superseded_by_itself_is_fine(device, hub):
    """The hub closes the old session because a newer one came; nothing of the old may disturb the new."""
    s = hub.session()
    assert device.ctl("reconnect").rc == 0
    t = hub.session(after=s)
    hub.wait("beats", lambda: len(t.beats) >= 4, 10)
    assert t.alive and hub.current is t


@pytest.mark.parametrize("frame", [
    bytes([2, 1, 0, 0]) + bytes(12), bytes([2, 0, 0, 1]) + bytes(12), bytes([9, 0, 0, 0]) + bytes(12), b"short", b"",
    bytes([0] * 16), bytes([2, 0, 0, 0, 0, 0, 0, 0]) + bytes(8), bytes([2, 0, 0, 0]) + bytes(12) + b"payload",
    bytes([4, 0, 0, 0, 0, 0, 0, 2]) + bytes(8), bytes([3, 0, 0, 0, 0, 0, 0, 2]) + bytes(8) + b"123",
    bytes([1, 0, 0, 0, 0, 0, 0, 2]) + bytes(8) + b"x" * 65537,
])
def test_broken_stream_frames_end_the_session_with_1002(agent, hub, frame):
    agent()
    s = hub.session()
    assert s.edgeward
    s.send_binary(frame)
    hub.wait("end", lambda: not s.alive, 5)
    assert s.end[:2] == ("close", 1002), s.end
    works(hub, after=s)
