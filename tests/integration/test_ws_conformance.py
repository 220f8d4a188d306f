"""RFC 6455 client conformance: hand-made frames of a server, and what connectd's connection answers.

One wsprobe process (tests/tools) makes an attempt per case and sends every message back, as a conformance suite expects.
The client's bytes are taken apart by wsproto, which refuses unmasked or malformed frames. Every case runs twice: whole,
and chopped into pieces of one byte (or of a size that keeps large ones quick).
"""
import base64
import hashlib
import json
import os
import socket
import ssl
import struct
import subprocess
import threading

import pytest
from wsproto import ConnectionType  # noqa: F401  (python3-wsproto is what this file needs; fail early without it)
from wsproto.frame_protocol import FrameProtocol, Opcode

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("EDGEWARD_BUILD", os.path.join(REPO, "build")))
WSPROBE = os.path.join(BUILD, "tests/tools/wsprobe")
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MAX = 1 << 20

pytestmark = pytest.mark.skipif(not os.path.exists(WSPROBE), reason="skipped: not built: wsprobe")


def frame(op, payload=b"", fin=True, rsv=0, mask=None, length=None):
    """length: (bytes of the length field to write as they are) instead of the right one."""
    first = (0x80 if fin else 0) | rsv << 4 | op
    n = len(payload)
    bit = 0x80 if mask else 0
    if length is not None:
        head = bytes([first]) + length
    elif n < 126:
        head = struct.pack(">BB", first, bit | n)
    elif n < 65536:
        head = struct.pack(">BBH", first, bit | 126, n)
    else:
        head = struct.pack(">BBQ", first, bit | 127, n)
    if mask:
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
        head += mask
    return head + payload


def text(s, **kw):
    return frame(1, s.encode() if isinstance(s, str) else s, **kw)


def close(code=None, reason=b""):
    return frame(8, b"" if code is None else struct.pack(">H", code) + reason)


class Case:
    """sent: bytes of the server. back: messages expected as (opcode, payload). code: of the client's close frame
    (None = an empty one), cause: code of wsprobe's end."""

    def __init__(self, name, sent, back=(), code=1000, cause="closed", chop=1):
        self.name, self.sent, self.back, self.code, self.cause, self.chop = name, sent, list(back), code, cause, chop


def good(name, sent, back, chop=1):
    return Case(name, sent + close(1000), back, chop=chop)


def bad(name, sent, back=(), code=1002, chop=1):
    return Case(name, sent, back, code, "ws-protocol", chop)


T, B, PING, PONG = 1, 2, 9, 10


def cases():
    c = []
    # 1 framing: every length at which the header changes, both kinds
    for n in (0, 1, 125, 126, 127, 128, 65535, 65536):
        c.append(good(f"text of {n}", text("*" * n), [(T, b"*" * n)], chop=1 if n < 1000 else 997))
        data = bytes(i & 255 for i in range(n))
        c.append(good(f"binary of {n}", frame(B, data), [(B, data)], chop=1 if n < 1000 else 997))
    c.append(good("two messages", text("a") + frame(B, b"b"), [(T, b"a"), (B, b"b")]))
    # 2 pings and pongs
    c.append(good("empty ping", frame(PING), [(PONG, b"")]))
    c.append(good("ping", frame(PING, b"hello"), [(PONG, b"hello")]))
    c.append(good("binary ping", frame(PING, b"\0\xff\xfe"), [(PONG, b"\0\xff\xfe")]))
    c.append(good("ping of 125", frame(PING, b"\xfe" * 125), [(PONG, b"\xfe" * 125)]))
    c.append(bad("ping of 126", frame(PING, b"\xfe" * 126)))
    c.append(good("unasked pong", frame(PONG), []))
    c.append(good("unasked pong, then ping", frame(PONG, b"x") + frame(PING, b"y"), [(PONG, b"y")]))
    c.append(good("ten pings", b"".join(frame(PING, b"%d" % i) for i in range(10)), [(PONG, b"%d" % i) for i in range(10)]))
    # 3 reserved bits
    for rsv in range(1, 8):
        c.append(bad(f"rsv {rsv} on text", text("ok") + text("bad", rsv=rsv), [(T, b"ok")]))
    c.append(bad("rsv on ping", frame(PING, rsv=4)))
    c.append(bad("rsv on close", frame(8, struct.pack(">H", 1000), rsv=1)))
    # 4 opcodes
    for op in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        c.append(bad(f"opcode {op}", frame(op)))
        c.append(bad(f"opcode {op} after text", text("ok") + frame(op, b"payload"), [(T, b"ok")]))
    # 5 fragmentation
    c.append(bad("fragmented ping", frame(PING, b"a", fin=False) + frame(0, b"b")))
    c.append(bad("fragmented pong", frame(PONG, b"a", fin=False) + frame(0, b"b")))
    c.append(bad("fragmented close", frame(8, struct.pack(">H", 1000), fin=False)))
    c.append(good("two fragments", text("a", fin=False) + frame(0, b"b"), [(T, b"ab")]))
    c.append(good("ping between fragments", text("a", fin=False) + frame(PING, b"p") + frame(0, b"b"),
                  [(PONG, b"p"), (T, b"ab")]))
    c.append(good("empty fragments", text("", fin=False) + frame(0, b"", fin=False) + frame(0, b""), [(T, b"")]))
    c.append(good("empty around full", text("", fin=False) + frame(0, b"m", fin=False) + frame(0, b""), [(T, b"m")]))
    c.append(bad("continuation of nothing", frame(0, b"x")))
    c.append(bad("continuation of nothing, not final", frame(0, b"x", fin=False)))
    c.append(bad("continuation after a whole message", text("a") + frame(0, b"x"), [(T, b"a")]))
    c.append(bad("text inside text", text("a", fin=False) + text("b")))
    c.append(bad("binary inside text", text("a", fin=False) + frame(B, b"b", fin=False)))
    c.append(good("a hundred fragments", frame(B, b"0", fin=False) + b"".join(frame(0, b"x", fin=False) for _ in range(98)) +
                  frame(0, b"1"), [(B, b"0" + b"x" * 98 + b"1")]))
    # 6 UTF-8
    valid = ["κόσμε", "𐀀", "\u07ff", "\uffff", "\U0010ffff", "\ud7ff", "\ue000", "\ufffd", "\u0080", "\x00", "\x7f",
             "Hello-µ@ßöäüàá-UTF-8!!"]
    for s in valid:
        c.append(good(f"valid {s!r}", text(s), [(T, s.encode())]))
    whole = "κόσμε-µ@ß𐀀".encode()
    for cut in range(1, len(whole)):
        c.append(good(f"code point cut at {cut}", text(whole[:cut], fin=False) + frame(0, whole[cut:]), [(T, whole)]))
    broken = [b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xed\xa0\x80", b"\xed\xbf\xbf",
              b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3\x28",
              b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"]
    for raw in broken:
        c.append(bad(f"invalid {raw!r}", text(raw), code=1007))
    c.append(bad("invalid in a fragment, told before the end", text(b"a\xff", fin=False), code=1007))
    c.append(good("binary may be anything", frame(B, b"\xff\xfe\xc0"), [(B, b"\xff\xfe\xc0")]))
    # 7 closing
    c.append(Case("close without code", close(), code=None))
    for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999):
        c.append(Case(f"close {code}", close(code), code=code))
    c.append(Case("close with reason", close(1000, b"bye"), code=1000))
    c.append(Case("close with 123 bytes", close(1000, b"r" * 123), code=1000))
    c.append(bad("close with 124 bytes", close(1000, b"r" * 124)))
    c.append(bad("close of one byte", frame(8, b"\x03")))
    c.append(bad("close with a reason that is not UTF-8", close(1000, b"\xce\xba\xff"), code=1007))
    for code in (0, 999, 1004, 1005, 1006, 1012, 1016, 1100, 2000, 2999, 5000, 65535):
        c.append(bad(f"close {code}", close(code)))
    c.append(Case("nothing counts after close", close(1000) + text("late") + frame(PING, b"late"), code=1000))
    c.append(Case("two closes", close(1000) + close(1001), code=1000))
    c.append(Case("close inside a fragmented message", text("a", fin=False) + close(1000), code=1000))
    # masks and lengths
    c.append(bad("masked by the server", text("a", mask=b"abcd")))
    c.append(bad("length not minimal, 16 bit", frame(T, b"hello", length=b"\x7e\x00\x05")))
    c.append(bad("length not minimal, 64 bit", frame(T, b"hello", length=b"\x7f" + struct.pack(">Q", 5))))
    c.append(bad("length with the top bit", frame(B, b"x", length=b"\x7f\x80" + bytes(7))))
    # 9 limits
    big = bytes(range(256)) * (MAX // 256)
    c.append(good("1 MiB", frame(B, big), [(B, big)], chop=65536))
    parts = [big[i:i + 4096] for i in range(0, MAX, 4096)]
    many = frame(B, parts[0], fin=False) + b"".join(frame(0, p, fin=False) for p in parts[1:-1]) + frame(0, parts[-1])
    c.append(good("1 MiB in 256 fragments", many, [(B, big)], chop=65536))
    c.append(bad("1 MiB and a byte", frame(B, big + b"x"), code=1009, chop=65536))
    c.append(bad("1 MiB and a byte, fragmented", frame(B, big, fin=False) + frame(0, b"x"), code=1009, chop=65536))
    c.append(bad("a length of 2^62", frame(B, b"x", length=b"\x7f\x40" + bytes(7)), code=1009))
    c.append(bad("endless empty fragments", frame(B, b"", fin=False) + frame(0, b"", fin=False) * 20000, code=1009, chop=4096))
    return c


CASES = cases()
assert len({c.name for c in CASES}) == len(CASES)


class Server:
    """Plays the cases in order, one connection each, every one whole and then chopped."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.seen = {}
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        for case in CASES:
            for chopped in (False, True):
                conn, _ = self.listener.accept()
                with conn:
                    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    conn.settimeout(20)
                    try:
                        self.seen[case.name, chopped] = self.play(conn, case, chopped)
                    except Exception as e:      # the test shows it
                        self.seen[case.name, chopped] = e

    @staticmethod
    def upgrade(conn):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            more = conn.recv(1)
            assert more, "closed during the upgrade"
            head += more
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        assert b"Sec-WebSocket-Extensions" not in fields and b"Origin" not in fields
        accept = base64.b64encode(hashlib.sha1(fields[b"Sec-WebSocket-Key"] + GUID).digest())
        conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")

    def play(self, conn, case, chopped):
        self.upgrade(conn)
        got = Collector(conn)
        reader = threading.Thread(target=got.run)
        reader.start()
        try:
            step = case.chop if chopped else len(case.sent)
            for i in range(0, len(case.sent), step):
                conn.sendall(case.sent[i:i + step])
        except OSError:
            pass        # a refused message is not read to its end
        reader.join()
        return got


class Collector:
    """Messages and the close frame of the client, until its close frame or the end."""

    def __init__(self, conn):
        self.conn, self.messages, self.close, self.error = conn, [], "none", None

    def run(self):
        protocol = FrameProtocol(client=False, extensions=[])
        partial = {}
        try:
            while self.close == "none":
                data = self.conn.recv(1 << 16)
                if not data:
                    return
                protocol.receive_bytes(data)
                for f in protocol.received_frames():
                    if f.opcode == Opcode.CLOSE:
                        code = int(f.payload[0])
                        self.close = None if code == 1005 else code
                        self.conn.shutdown(socket.SHUT_WR)
                        return
                    payload = f.payload.encode() if isinstance(f.payload, str) else bytes(f.payload)
                    partial[f.opcode] = partial.get(f.opcode, b"") + payload
                    if f.message_finished:
                        self.messages.append((int(f.opcode), partial.pop(f.opcode)))
        except Exception as e:  # wsproto refused a frame, or a reset
            self.error = e


@pytest.fixture(scope="module")
def played():
    server = Server()
    server.thread.start()
    n = 2 * len(CASES)
    out = subprocess.run([WSPROBE, "-r", str(n), f"ws://127.0.0.1:{server.port}/"], stdout=subprocess.PIPE, text=True,
                         timeout=110, check=True).stdout
    server.thread.join(10)
    ends = [json.loads(line) for line in out.splitlines() if '"event":"ended"' in line]
    assert len(ends) == n
    keys = [(c.name, chopped) for c in CASES for chopped in (False, True)]
    return {key: (server.seen[key], end) for key, end in zip(keys, ends)}


@pytest.mark.parametrize("chopped", [False, True], ids=["whole", "chopped"])
@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_client(played, case, chopped):
    got, end = played[case.name, chopped]
    assert isinstance(got, Collector), got
    assert got.error is None
    assert end["code"] == case.cause, end
    # What was good before something bad may be lost to the closing, as the RFC allows; what comes back is never wrong.
    if case.cause == "closed":
        assert got.messages == case.back
    else:
        assert got.messages == case.back[:len(got.messages)]
    assert got.close == case.code
    if case.cause == "closed":
        assert end["close_code"] == (1005 if case.code is None else case.code)


def test_with_websockets_over_tls(tmp_path):
    """The other packaged peer, over TLS: text and binary of many sizes come back as they went."""
    asyncio = pytest.importorskip("asyncio")
    websockets = pytest.importorskip("websockets")
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                   check=True, stderr=subprocess.DEVNULL)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    sizes = [0, 1, 125, 126, 65535, 65536, 300000, MAX]
    problems, done = [], []

    async def serve(ws):
        assert ws.subprotocol == "edgeward.1"
        for n in sizes:
            data = os.urandom(n)
            await ws.send(data)
            if await ws.recv() != data:
                problems.append(f"binary of {n}")
            s = "é" * (n // 2)
            await ws.send(s)
            if await ws.recv() != s:
                problems.append(f"text of {n}")
        await ws.ping()
        done.append(True)
        await ws.close(4001, "enough")

    async def main():
        async with websockets.serve(serve, "localhost", 0, ssl=tls, subprotocols=["edgeward.1"], max_size=MAX) as server:
            port = server.sockets[0].getsockname()[1]
            p = await asyncio.create_subprocess_exec(WSPROBE, "-e", "-k", cert, f"wss://localhost:{port}/",
                                                     stdout=asyncio.subprocess.PIPE)
            out, _ = await asyncio.wait_for(p.communicate(), 60)
            return [json.loads(line) for line in out.splitlines()]

    events = asyncio.run(main())
    assert done and not problems
    assert events[-1]["code"] == "closed" and events[-1]["close_code"] == 4001
    assert [e for e in events if e["event"] == "opened"][0]["edgeward1"] is True
