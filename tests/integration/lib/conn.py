"""One accepted TCP connection of the scripted hub: raw socket, TLS through memory buffers, HTTP upgrade.

TLS is pumped by hand so that a test decides how many raw bytes are read and when: a hub that reads one byte every five
seconds, or none at all while the kernel goes on answering, is one line in a test.
"""
import asyncio
import base64
import socket
import ssl
import struct

from lib import ws

CHUNK = 262144


class Conn:
    def __init__(self, loop, sock, ctx, number):
        self.loop, self.sock, self.number = loop, sock, number
        self.gate = asyncio.Event()     # clear it: nothing is read any more
        self.gate.set()
        self.read_size = CHUNK          # raw bytes at a time
        self.read_pause = 0.0           # seconds before each read
        self.wlock = asyncio.Lock()
        self.raw_rx = self.raw_tx = 0
        self.closed = False
        self.rst = False                # the next close sends RST
        self.task = None                # serves this connection
        self.eof = None                 # how the peer ended: "fin", "rst", "tls"
        self.request = None
        self.tls = None
        if ctx is not None:
            self.inb, self.outb = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.tls = ctx.wrap_bio(self.inb, self.outb, server_side=True)

    async def handshake(self):
        """Raises ssl.SSLError when the client refuses us."""
        if self.tls is None:
            return
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
                if self.eof:
                    raise ssl.SSLError(f"peer left in the handshake ({self.eof})") from None
        await self._flush()

    async def _fill(self):
        data = await self.read_raw()
        if data:
            self.inb.write(data)
        else:
            self.inb.write_eof()

    async def read_raw(self):
        await self.gate.wait()
        if self.read_pause:
            await asyncio.sleep(self.read_pause)
        try:
            data = await self.loop.sock_recv(self.sock, self.read_size)
        except (ConnectionError, OSError):
            self.eof = self.eof or "rst"
            return b""
        if not data:
            self.eof = self.eof or "fin"
        self.raw_rx += len(data)
        return data

    async def read(self):
        """What there is, b"" at the end."""
        if self.tls is None:
            return await self.read_raw()
        parts = []
        while True:
            try:
                data = self.tls.read(CHUNK)
                if not data:
                    return b"".join(parts)
                parts.append(data)
                if sum(map(len, parts)) >= CHUNK:
                    return b"".join(parts)
            except ssl.SSLWantReadError:
                if parts:
                    return b"".join(parts)
                await self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self.eof = "tls" if self.eof is None else self.eof
                return b"".join(parts)
            except ssl.SSLError as e:
                self.eof = f"tls: {e.reason}"
                return b"".join(parts)

    async def _flush(self):
        if self.outb.pending:
            data = self.outb.read()
            self.raw_tx += len(data)
            await self.loop.sock_sendall(self.sock, data)

    async def write(self, data):
        async with self.wlock:
            await self.write_locked(data)

    async def write_locked(self, data):
        if self.tls is None:
            self.raw_tx += len(data)
            await self.loop.sock_sendall(self.sock, data)
        else:
            self.tls.write(data)
            await self._flush()

    def close(self, rst=False, notify=False):
        """Ends the TCP connection: by FIN, or by RST. notify sends TLS close_notify first."""
        if self.closed:
            return
        self.closed = True
        try:
            if notify and self.tls is not None:
                try:
                    self.tls.unwrap()
                except ssl.SSLError:
                    pass
                self.sock.send(self.outb.read())
            if rst or self.rst:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass
        self.sock.close()

    async def abort(self, rst=False):
        """Ends the connection while its task is inside a read: the task first, so that no reader outlives its descriptor."""
        self.rst = rst
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()
            await asyncio.wait([self.task], timeout=1)
        self.close(rst)


class Request:
    """The client's upgrade request and what is wrong with it."""

    def __init__(self, raw):
        self.raw = raw
        self.wrong = []
        lines = raw.decode("latin-1").split("\r\n")
        self.method, self.target, self.http = (lines[0].split(" ") + ["", ""])[:3]
        self.headers = []
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                self.wrong.append(f"header line {line!r}")
            self.headers.append((name.lower(), value.strip()))
        self._check()

    def get(self, name):
        found = [v for n, v in self.headers if n == name]
        return found[0] if found else None

    def _check(self):
        def need(cond, text):
            if not cond:
                self.wrong.append(text)
        names = [n for n, _ in self.headers]
        need(self.method == "GET" and self.http == "HTTP/1.1", f"request line {self.method} {self.http}")
        need(len(set(names)) == len(names), f"a header twice: {sorted(names)}")
        need(self.get("host"), "no Host")
        need((self.get("upgrade") or "").lower() == "websocket", "Upgrade")
        need("upgrade" in (self.get("connection") or "").lower(), "Connection")
        need(self.get("sec-websocket-version") == "13", "Sec-WebSocket-Version")
        need("origin" not in names, "an Origin header is sent")
        need("sec-websocket-extensions" not in names, "an extension is offered")
        need("token=" not in self.target, "a token in the URL")
        try:
            need(len(base64.b64decode(self.get("sec-websocket-key") or "", validate=True)) == 16, "key length")
        except ValueError:
            self.wrong.append("key is not base64")
        need(self.get("sec-websocket-protocol") in (None, "edgeward.1"), "Sec-WebSocket-Protocol")

    @property
    def offers_edgeward(self):
        return self.get("sec-websocket-protocol") == "edgeward.1"

    @property
    def bearer(self):
        value = self.get("authorization") or ""
        return value[7:].strip() if value.startswith("Bearer ") else None

    def accept(self, subprotocol=None, extra=""):
        key = ws.accept_key((self.get("sec-websocket-key") or "").encode()).decode()
        proto = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
        return (f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Accept: {key}\r\n{proto}{extra}\r\n").encode()


async def read_request(conn, limit=65536):
    """The request head, or None when the peer leaves first."""
    buf = b""
    while b"\r\n\r\n" not in buf:
        data = await conn.read()
        if not data or len(buf) > limit:
            return None
        buf += data
    head, rest = buf.split(b"\r\n\r\n", 1)
    request = Request(head)
    if rest:
        request.wrong.append("bytes before the answer to the upgrade")
    return request


def http_answer(status, body, ctype="application/json", extra="", reason="Answer"):
    body = body.encode() if isinstance(body, str) else body
    return (f"HTTP/1.1 {status} {reason}\r\nContent-Type: {ctype}\r\nContent-Length: {len(body)}\r\n"
            f"{extra}Connection: close\r\n\r\n").encode() + body
