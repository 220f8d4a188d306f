"""Local services for a device under test, and a site of edgehub and device that reaches them."""
import asyncio
import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import threading

from lib.agent import Agent
from lib.livehub import LiveHub
from lib.proc import wait_for


class Service:
    """An HTTP/1.1 server by hand, so that it can also be a bad one. Routes: path -> function(conn, head, body so far)."""

    def __init__(self, path=None, host="127.0.0.1", routes=None):
        if path is not None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.bind(path)
            os.chmod(path, 0o666)
            self.sock.listen(128)
        else:
            self.sock = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128)
            self.port = self.sock.getsockname()[1]
        self.routes = dict(ROUTES, **(routes or {}))
        self.heads, self.conns, self.lock = [], 0, threading.Lock()
        self.open = set()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                c, _ = self.sock.accept()
            except OSError:
                return
            with self.lock:
                self.conns += 1
                self.open.add(c)
            threading.Thread(target=self._one, args=(c,), daemon=True).start()

    def _one(self, c):
        try:
            self.talk(c)
        except OSError:
            pass
        finally:
            with self.lock:
                self.open.discard(c)
            c.close()

    def talk(self, c):
        """Serves one request."""
        if (got := self.head_of(c)) is not None:
            head, rest = got
            self.routes.get(head.split(" ", 2)[1].split("?")[0], not_found)(c, head, rest)

    def head_of(self, c, data=b""):
        """The head of the next request, whose first bytes are data, and what came behind it; None at the end of the connection."""
        while b"\r\n\r\n" not in data:
            got = c.recv(65536)
            if not got:
                return None
            data += got
        head, rest = data.split(b"\r\n\r\n", 1)
        head = head.decode("latin-1")
        with self.lock:
            self.heads.append(head)
        return head, rest

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def close(self):
        # Only this ends an accept() that is under way.
        if self.sock.fileno() >= 0:
            self.sock.shutdown(socket.SHUT_RDWR)
            self.sock.close()
        with self.lock:
            for c in self.open:
                try:
                    c.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class Tls(Service):
    """The same behind TLS, with this certificate."""

    def __init__(self, leaf, host="127.0.0.1", **limits):
        self.ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ctx.load_cert_chain(leaf.cert_file, leaf.key_file)
        for name, value in limits.items():
            setattr(self.ctx, name, value)
        super().__init__(host=host)

    def _one(self, c):
        try:
            wrapped = self.ctx.wrap_socket(c, server_side=True)
        except OSError:
            c.close()
            wrapped = None
        with self.lock:
            self.open.discard(c)
        if wrapped is not None:
            super()._one(wrapped)


def header(head, name):
    for line in head.split("\r\n")[1:]:
        k, v = line.split(":", 1)
        if k.lower() == name.lower():
            return v.strip()
    return None


def more_of(c):
    got = c.recv(65536)
    if not got:
        raise OSError("the request ends early")
    return got


def body_of(c, head, rest):
    """Every byte of the request's body, whatever its framing."""
    if header(head, "Transfer-Encoding") == "chunked":
        body = b""
        while True:
            while b"\r\n" not in rest:
                rest += more_of(c)
            size, rest = rest.split(b"\r\n", 1)
            n = int(size, 16)
            while len(rest) < n + 2:
                rest += more_of(c)
            body, rest = body + rest[:n], rest[n + 2:]
            if n == 0:
                return body
    want = int(header(head, "Content-Length") or 0)
    parts, have = [rest], len(rest)
    while have < want:
        got = c.recv(1 << 18)
        if not got:
            break
        parts.append(got)
        have += len(got)
    return b"".join(parts)


def say(c, body, status="200 OK", more=""):
    body = body if isinstance(body, bytes) else body.encode()
    c.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body)


def not_found(c, head, rest):
    say(c, "no such thing", "404 Not Found")


def hello(c, head, rest):
    say(c, "hello", more="Server: tests\r\nX-Railgrid-Svc-Policy: forged\r\n")


REPORTS = []


def echo(c, head, rest):
    body = body_of(c, head, rest)
    if body.startswith(b"report: "):
        REPORTS.append(body[8:].decode())
    say(c, body, more="Content-Type: application/octet-stream\r\n")


def digest(c, head, rest):
    say(c, hashlib.sha256(body_of(c, head, rest)).hexdigest())


def chunked(c, head, rest):
    c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n")
    for i in range(100):
        piece = b"%d," % i * (i + 1)
        c.sendall(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece))
    c.sendall(b"0\r\nX-T: 1\r\n\r\n")


def until_close(c, head, rest):
    c.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + b"old " * 5000)


def big(c, head, rest):
    n = int(head.split(" ")[1].split("?")[1])
    c.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n".encode())
    piece = bytes(range(256)) * 256
    while n > 0:
        n -= c.send(piece[:min(n, len(piece))])


def switch(c, head, rest):
    """101 with bytes in the same segment, then an echo."""
    c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly of the service.")
    if rest:
        c.sendall(rest)
    while got := c.recv(65536):
        c.sendall(got)


def page(c, head, rest):
    say(c, PAGE, more="Content-Type: text/html\r\n")


PAGE = """<!doctype html><title>device</title><body><p id=t>loading</p><script>
fetch('/hello').then(r => r.text()).then(h => {
  const ws = new WebSocket('ws://' + location.host + '/ws');
  ws.onopen = () => ws.send('from the browser');
  ws.onmessage = m => fetch('/echo', {method: 'POST', body: 'report: ' + h + ' and ' + m.data});
  ws.onerror = () => fetch('/echo', {method: 'POST', body: 'report: websocket failed'});
});
</script>"""


def websocket(c, head, rest):
    """RFC 6455 by hand: echoes text; a page of another origin is sent away, as real services do."""
    import base64
    origin = header(head, "Origin")
    if origin is not None and origin != "http://" + header(head, "Host"):
        say(c, "bad origin", "403 Forbidden")
        return
    key = base64.b64encode(hashlib.sha1((header(head, "Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    c.sendall(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {key}\r\n\r\n".encode())
    data = rest
    while True:
        while len(data) < 2 or len(data) < frame_len(data):
            got = c.recv(65536)
            if not got:
                return
            data += got
        n = frame_len(data)
        frame, data = data[:n], data[n:]
        skip = {126: 4, 127: 10}.get(frame[1] & 127, 2)
        mask, payload = frame[skip:skip + 4], frame[skip + 4:]
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
        if frame[0] & 15 == 8:
            c.sendall(bytes([0x88, len(payload)]) + payload)
            return
        size = bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + len(payload).to_bytes(2, "big")
        c.sendall(bytes([frame[0]]) + size + payload)


def frame_len(data):
    n = data[1] & 127
    if n == 126:
        return 8 + int.from_bytes(data[2:4], "big") if len(data) >= 4 else 1 << 30
    return 6 + n


ROUTES = {"/hello": hello, "/echo": echo, "/digest": digest, "/chunked": chunked, "/close": until_close, "/big": big, "/switch": switch,
          "/page": page, "/ws": websocket, "/": hello}


def run_async(coroutine):
    return asyncio.run(coroutine)


class Site:
    """edgehub and one device. services: Service objects whose ports the policy lists. ns: the network namespace both are in."""

    def __init__(self, services=(), policy=None, conf=None, name="dev", ns=None):
        self.hub = LiveHub(ns=ns.enter if ns is not None else None).start()
        allow = " ".join(f"127.0.0.1:{s.port}" for s in services if hasattr(s, "port"))
        rules = {"allow": allow} if allow else {}
        rules.update(policy or {})
        self.name, self.clients = name, []
        self.agent = Agent(conf={"hub": {"url": self.hub.url(), "ca-file": self.hub.ca_file.file}, **(conf or {})},
                           policy={"services": rules}, name=name, token=False, ns=ns)
        self.agent.give_token(self.hub.token("--name", name))
        self.agent.write_conf()
        self.agent.start(wait=False)
        self.connected()

    def connected(self):
        return self.hub.connected(self.name, 40)

    def proxy(self, to, *args):
        """edgehub proxy; its port."""
        p = self.hub.popen("-j", "proxy", self.name, "--to", str(to), *args)
        self.clients.append(p)
        line = p.stdout.readline()
        assert line, p.communicate(timeout=10)[1].decode()
        p.port = int(json.loads(line)["listen"].rsplit(":", 1)[1])
        return p

    def events(self, *kinds):
        found = self.agent.ctl("events").json["events"]
        return [e for e in found if e["event"] in kinds] if kinds else found

    def close(self):
        for p in self.clients:
            if p.poll() is None:
                p.send_signal(signal.SIGINT)
                try:
                    p.communicate(timeout=15)
                except subprocess.TimeoutExpired:
                    p.kill()
        problems = self.agent.stop()
        problems += self.agent.broken_lines() if hasattr(self.agent, "broken_lines") else []
        self.hub.close()
        assert not problems, problems


def exchange(port, data, timeout=20, host="127.0.0.1", end=False):
    """Sends, reads to the end of the connection."""
    with socket.create_connection((host, port), timeout=timeout) as s:
        s.settimeout(timeout)
        s.sendall(data)
        if end:
            s.shutdown(socket.SHUT_WR)
        out = b""
        while got := s.recv(65536):
            out += got
    return out


def get(port, path, more="", host=None, method="GET"):
    answer = exchange(port, f"{method} {path} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{port}'}\r\nConnection: close\r\n{more}\r\n".encode())
    head, body = answer.split(b"\r\n\r\n", 1)
    return int(head.split(b" ")[1]), head.decode("latin-1"), dechunk(body) if b"chunked" in head.lower() else body


def dechunk(data):
    body = b""
    while True:
        size, data = data.split(b"\r\n", 1)
        n = int(size, 16)
        if n == 0:
            assert data == b"\r\n", data
            return body
        body += data[:n]
        assert data[n:n + 2] == b"\r\n"
        data = data[n + 2:]


__all__ = ["Service", "Site", "Tls", "exchange", "get", "header", "say", "wait_for", "run_async"]
