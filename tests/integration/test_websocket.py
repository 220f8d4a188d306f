"""RFC 6455, a client's side: a table of cases with hand-made frames, and two servers by other authors as peers.

What decides: wslay under connectd's hubconn, with its limits set. A hub must be able to rely on: valid sequences are taken
whatever their shape, invalid ones end the connection with the right code, and nothing after the fault is acted upon.
"""
import asyncio
import json
import os
import ssl
import threading

import pytest
import websockets

from lib import ws
from lib.fakehub import PATH
from lib.proc import wait_for

pytestmark = pytest.mark.timeout(60)

PING = ws.frame(ws.PING, b"still here")
ACK = json.dumps({"v": 1, "type": "heartbeat_ack", "payload": {"seq": 1}, "text": "äöü€😀"}, ensure_ascii=False).encode()


def pieces(payload, n, op=ws.TEXT, between=b""):
    """The message in fragments of n bytes, with frames between them."""
    parts = [payload[i:i + n] for i in range(0, len(payload), n)] or [b""]
    out = b""
    for i, part in enumerate(parts):
        out += ws.frame(op if i == 0 else ws.CONT, part, fin=i == len(parts) - 1)
        if i < len(parts) - 1:
            out += between
    return out


GOOD = {
    "text": ws.frame(ws.TEXT, ACK),
    "16-bit length": ws.frame(ws.TEXT, ACK + b" " * 200),
    "64-bit length": ws.frame(ws.TEXT, ACK + b" " * 70000),
    "fragments of 1": pieces(ACK, 1),
    "fragments of 7": pieces(ACK, 7),
    "pings between": pieces(ACK, 10, between=ws.frame(ws.PING, b"x")),
    "pongs between": pieces(ACK, 10, between=ws.frame(ws.PONG, b"x")),
    "empty first fragment": ws.frame(ws.TEXT, b"", fin=False) + ws.frame(ws.CONT, ACK),
    "empty last fragment": ws.frame(ws.TEXT, ACK, fin=False) + ws.frame(ws.CONT, b""),
    "empty middle fragments": ws.frame(ws.TEXT, ACK[:9], fin=False) + ws.frame(ws.CONT, b"", fin=False) * 5 +
    ws.frame(ws.CONT, ACK[9:]),
    "ping of 125": ws.frame(ws.PING, b"p" * 125),
    "empty ping": ws.frame(ws.PING, b""),
    "pong unasked": ws.frame(ws.PONG, b"q" * 125),
    "many pings": ws.frame(ws.PING, b"m") * 500,
}

BAD = {
    "rsv1": (ws.frame(ws.TEXT, ACK, rsv=4), 1002),
    "rsv2": (ws.frame(ws.TEXT, ACK, rsv=2), 1002),
    "rsv3 on ping": (ws.frame(ws.PING, b"", rsv=1), 1002),
    "opcode 3": (ws.frame(3, b"x"), 1002),
    "opcode 7": (ws.frame(7, b""), 1002),
    "opcode 11": (ws.frame(11, b""), 1002),
    "opcode 15": (ws.frame(15, b"abc"), 1002),
    "masked by the server": (ws.frame(ws.TEXT, ACK, mask=b"abcd"), 1002),
    "ping of 126": (ws.frame(ws.PING, b"p" * 126), 1002),
    "fragmented ping": (ws.frame(ws.PING, b"p", fin=False), 1002),
    "fragmented close": (ws.frame(ws.CLOSE, b"", fin=False), 1002),
    "continuation first": (ws.frame(ws.CONT, ACK), 1002),
    "text in fragments": (ws.frame(ws.TEXT, b"a", fin=False) + ws.frame(ws.TEXT, ACK), 1002),
    "binary in fragments": (ws.frame(ws.TEXT, b"a", fin=False) + ws.frame(ws.BINARY, b"b"), 1002),
    "16-bit length too long a form": (ws.frame(ws.TEXT, b"{}", form=16), 1002),
    "64-bit length too long a form": (ws.frame(ws.TEXT, b"{}", form=64), 1002),
    "length with the top bit": (b"\x81\x7f\xff" + b"\xff" * 7, 1002),
    "invalid text": (ws.frame(ws.TEXT, b'{"a":"\xff"}'), 1007),
    "surrogate": (ws.frame(ws.TEXT, b'{"a":"\xed\xa0\x80"}'), 1007),
    "overlong": (ws.frame(ws.TEXT, b'{"a":"\xc0\xaf"}'), 1007),
    "beyond unicode": (ws.frame(ws.TEXT, b'{"a":"\xf4\x90\x80\x80"}'), 1007),
    "cut character": (ws.frame(ws.TEXT, b'{"a":"\xe2\x82'), 1007),
    "invalid over fragments": (ws.frame(ws.TEXT, b"\xe2\x82", fin=False) + ws.frame(ws.CONT, b"("), 1007),
    "close with one byte": (ws.frame(ws.CLOSE, b"\x03"), 1002),
    "close 0": (ws.frame(ws.CLOSE, b"\0\0"), 1002),
    "close 999": (ws.frame(ws.CLOSE, ws.close_payload(999)), 1002),
    "close 1005": (ws.frame(ws.CLOSE, ws.close_payload(1005)), 1002),
    "close 1006": (ws.frame(ws.CLOSE, ws.close_payload(1006)), 1002),
    "close 1015": (ws.frame(ws.CLOSE, ws.close_payload(1015)), 1002),
    "close 5000": (ws.frame(ws.CLOSE, ws.close_payload(5000)), 1002),
    "close reason not UTF-8": (ws.frame(ws.CLOSE, b"\x03\xe8\xff\xff"), 1007),
    "message over 1 MiB": (pieces(b"x" * ((1 << 20) + 1), 65536), 1009),
    "frame over 1 MiB": (ws.frame(ws.TEXT, b"", length=(1 << 20) + 1), 1009),
    "endless fragments": (ws.frame(ws.TEXT, b"x", fin=False) + ws.frame(ws.CONT, b"y" * 65000, fin=False) * 40, 1009),
}


@pytest.mark.parametrize("name", sorted(GOOD))
def test_valid_sequences_are_taken(device, hub, name):
    s = hub.session()
    s.send_raw(GOOD[name] + PING)
    s.wait_frame("(pong)", lambda f: f["payload"] == b"still here", 10)
    assert s.alive
    hub.finish(hub.start("true"))
    assert hub.current is s


@pytest.mark.parametrize("step", [1, 2, 5])
def test_any_split_of_the_bytes(device, hub, step):
    s = hub.session()
    data = b"".join(GOOD[n] for n in ("text", "fragments of 7", "ping of 125")) + PING
    s.send_split(data, step)
    s.wait_frame("(pong)", lambda f: f["payload"] == b"still here", 10)
    assert s.alive


@pytest.mark.parametrize("name", sorted(BAD))
def test_invalid_sequences_end_the_connection(device, hub, name):
    raw, code = BAD[name]
    s = hub.session()
    s.send_raw(raw + ws.frame(ws.PING, b"after the fault"))
    s.wait_end(10)
    assert s.end[0] == "close" and s.end[1] == code, s.end
    assert not [f for _, f in s.frames if f.get("payload") == b"after the fault"], "a frame behind the fault was answered"
    t = hub.session(after=s)
    hub.finish(hub.start("true", session=t))


def test_close_is_echoed_and_nothing_follows(device, hub):
    s = hub.session()
    s.close(1000, "done")
    s.wait_end(5)
    assert s.end[:2] == ("close", 1000)
    hub.session(after=s)


def test_masks_are_fresh(device, hub):
    """Every frame of a client has its own unpredictable mask."""
    s = hub.session()
    run = hub.start("for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.05; done")
    hub.finish(run)
    assert s.parser.frames > 5 and len(s.parser.masks) == s.parser.frames
    assert b"\0\0\0\0" not in s.parser.masks


def test_peer_websockets_library(agent, leaf, hub):
    """A whole session against python-websockets: its own parser, its own handshake."""
    got, done = [], threading.Event()
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(leaf.cert_file, leaf.key_file)

    async def serve(sock):
        hello = json.loads(await sock.recv())
        got.append((sock.path, sock.request_headers["Authorization"][:13], hello["type"]))
        await sock.send(json.dumps({"v": 1, "type": "welcome", "id": "hello", "payload": {
            "protocol_version": 1, "executor_id": "AAAAAAAAAAAAAAAA", "credential": "clac1.AAAAAAAAAAAAAAAA.s.m",
            "heartbeat_seconds": 15}}))
        await sock.send(json.dumps({"v": 1, "type": "start", "id": "c1", "handle": "h1", "payload": {
            "handle_id": "h1", "spec": {"work_dir": "", "argv": ["/bin/echo", "over websockets"], "resource_limits": {}},
            "sandbox": {}}}))
        async for message in sock:
            frame = json.loads(message)
            got.append(frame)
            if frame["type"] == "heartbeat":
                await sock.send(json.dumps({"v": 1, "type": "heartbeat_ack", "id": frame["id"],
                                            "payload": {"seq": frame["payload"]["seq"]}}))
            if frame["type"] == "status":
                await sock.ping()
                await sock.close(1001, "enough")
                done.set()
                return

    async def main(started):
        async with websockets.serve(serve, "127.0.0.1", 0, ssl=ctx) as server:
            started.append(server.sockets[0].getsockname()[1])
            while not done.is_set():
                await asyncio.sleep(0.05)

    started = []
    thread = threading.Thread(target=lambda: asyncio.run(main(started)), daemon=True)
    thread.start()
    wait_for(lambda: started, 5, "server")
    a = agent(conf={"hub": {"url": f"wss://localhost:{started[0]}{PATH}", "dialect": "cloop"}}, token=hub.token())
    assert done.wait(20), a.log_tail()
    assert got[0] == (PATH, "Bearer clet1.", "hello")
    text = "".join(f["payload"]["text"] for f in got[1:] if f["type"] == "log_chunk")
    assert text == "over websockets\n"
    assert os.path.exists(a.credential_file)
    thread.join(5)
