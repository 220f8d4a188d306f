"""B21: what connectd's connection does with every answer of a proxy, against proxies scripted here.

Where the kind can occur: connectd/proxytalk.c understands the answers, connectd/dial.c makes the end of an attempt of them.
test_proxy.py has the daemon's side; here it is wsprobe (tests/tools), one attempt a row.
"""
import base64
import json
import os
import socket
import subprocess
import threading
import time

import pytest

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("EDGEWARD_BUILD", os.path.join(REPO, "build")))
WSPROBE = os.path.join(BUILD, "tests/tools/wsprobe")
CANARY = "c4naryPassw0rd"

pytestmark = pytest.mark.skipif(not os.path.exists(WSPROBE), reason="skipped: not built: wsprobe")


class Peer:
    """A listener whose script(conn) plays one connection after the other."""

    def __init__(self, script):
        self.script, self.error, self.said = script, None, b""
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                conn, _ = self.sock.accept()
            except OSError:
                return
            conn.settimeout(20)
            try:
                self.script(self, conn)
            except OSError:
                pass
            except Exception as e:
                self.error = e
            conn.close()

    def read_head(self, conn):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            more = conn.recv(1)
            if not more:
                raise OSError("closed")
            head += more
        self.said = head
        return head


def probe(url, proxy, *args, env=None, timeout=30):
    p = subprocess.run([WSPROBE, "-i", *(["-x", proxy] if proxy is not None else []), *args, url], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=timeout, env={**os.environ, **(env or {})})
    assert CANARY not in p.stdout and base64.b64encode(f"user:{CANARY}".encode()).decode() not in p.stdout
    assert p.returncode == 0, p.stdout
    return [json.loads(line) for line in p.stdout.splitlines()]


def hub_script(peer, conn):
    """A hub that upgrades and closes with 1000; enough to see that the tunnel carries both ways."""
    import hashlib
    head = peer.read_head(conn)
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    key = fields[b"Sec-WebSocket-Key"] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    conn.sendall(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
                 base64.b64encode(hashlib.sha1(key).digest()) + b"\r\n\r\n\x88\x02\x03\xe8")
    while conn.recv(100):
        conn.shutdown(socket.SHUT_WR)


def relay(a, b):
    def pump(src, dst):
        try:
            while data := src.recv(65536):
                dst.sendall(data)
            dst.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    t = threading.Thread(target=pump, args=(a, b), daemon=True)
    t.start()
    pump(b, a)
    t.join(5)


def need_basic(user, password):
    want = b"Proxy-Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode())

    def script(peer, conn):
        head = peer.read_head(conn)
        if want not in head.split(b"\r\n"):
            conn.sendall(b"HTTP/1.1 407 Authentication required\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n")
            return
        host, port = head.split()[1].decode().rsplit(":", 1)
        with socket.create_connection((host, int(port))) as up:
            conn.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            relay(conn, up)
    return script


def socks(user=None, password=None):
    def script(peer, conn):
        version, n = conn.recv(2)
        methods = conn.recv(n)
        assert version == 5
        if user is None:
            conn.sendall(b"\5\0")
        else:
            assert 2 in methods
            conn.sendall(b"\5\2")
            assert conn.recv(1) == b"\1"
            got_user = conn.recv(conn.recv(1)[0]).decode()
            got_password = conn.recv(conn.recv(1)[0]).decode()
            ok = (got_user, got_password) == (user, password)
            conn.sendall(b"\1\0" if ok else b"\1\1")
            if not ok:
                return
        assert conn.recv(3) == b"\5\1\0"
        kind = conn.recv(1)[0]
        host = conn.recv(conn.recv(1)[0]).decode() if kind == 3 else socket.inet_ntoa(conn.recv(4))
        port = int.from_bytes(conn.recv(2), "big")
        peer.said = host.encode()
        with socket.create_connection(("127.0.0.1", port)) as up:
            conn.sendall(b"\5\0\0\1\0\0\0\0\0\0")
            relay(conn, up)
    return script


@pytest.mark.parametrize("scheme,auth", [("http", False), ("http", True), ("socks5", False), ("socks5h", True)])
def test_b21_through(scheme, auth):
    hub = Peer(hub_script)
    make = need_basic if scheme == "http" else socks
    proxy = Peer(make("user", CANARY) if auth or scheme == "http" else make())
    creds = f"user:{CANARY}@" if auth or scheme == "http" else ""
    events = probe(f"ws://127.0.0.1:{hub.port}/x", f"{scheme}://{creds}127.0.0.1:{proxy.port}")
    assert proxy.error is None and hub.error is None
    assert [e["event"] for e in events][-2:] == ["opened", "ended"]
    assert events[-1]["code"] == "closed"
    assert events[-2]["peer"] == f"proxy 127.0.0.1:{proxy.port}"
    assert 2 in [e.get("stage") for e in events]


def test_b21_name_goes_to_the_proxy():
    """The proxy resolves: a name nobody here knows reaches it as it is, and no question goes to a name server."""
    hub = Peer(hub_script)
    proxy = Peer(socks())
    events = probe(f"ws://hub.invalid:{hub.port}/", f"socks5://127.0.0.1:{proxy.port}")
    assert proxy.said == b"hub.invalid" and events[-1]["code"] == "closed"


def answer(*parts, pause=0.0):
    def script(peer, conn):
        peer.read_head(conn)
        for part in parts:
            conn.sendall(part)
            time.sleep(pause)
        time.sleep(0.3)
    return script


REFUSALS = [
    ("right user, other answer", answer(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n"), "proxy-auth", 407,
     "refused the user or password"),
    ("negotiate only", answer(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\n\r\n"), "proxy-auth", 407, "only Basic"),
    ("three schemes", answer(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM\r\n"
                             b"Proxy-Authenticate: Basic realm=x\r\n\r\n"), "proxy-auth", 407, "refused the user or password"),
    ("403", answer(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 5\r\n\r\nnope!"), "proxy", 403, "403"),
    ("502", answer(b"HTTP/1.1 502 Bad gateway\r\n\r\n"), "proxy", 502, "502"),
    ("302", answer(b"HTTP/1.1 302 Portal\r\nLocation: http://portal/\r\n\r\n"), "proxy", 302, "302"),
    ("200 and more", answer(b"HTTP/1.1 200 OK\r\n\r\nextra bytes"), "proxy", 0, "more than its answer"),
    ("64 kB of headers", answer(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 11000), "proxy", 0, "too long"),
    ("a header of 64 kB", answer(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 65536 + b"\r\n\r\n"), "proxy", 0, "too long"),
    ("closed in the head", answer(b"HTTP/1.1 200 OK\r\nX: "), "proxy", 0, "in the middle"),
    ("closed at once", answer(), "proxy", 0, "without an answer"),
    ("no HTTP", answer(b"220 mail ready\r\n"), "proxy", 0, "not HTTP"),
]


@pytest.mark.parametrize("name,script,code,status,says", REFUSALS, ids=[r[0] for r in REFUSALS])
def test_b21_http_refusals(name, script, code, status, says):
    proxy = Peer(script)
    end = probe("wss://hub.example/", f"http://user:{CANARY}@127.0.0.1:{proxy.port}")[-1]
    assert (end["event"], end["code"], end["http_status"]) == ("ended", code, status)
    assert says in end["detail"]
    assert not end["answered"]


def test_b21_slow_head():
    """Progress keeps the attempt alive beyond the limit on silence; a head that never ends does not for ever."""
    hub = Peer(hub_script)

    def slow(peer, conn):
        peer.read_head(conn)
        with socket.create_connection(("127.0.0.1", hub.port)) as up:
            for byte in b"HTTP/1.1 200 OK\r\n\r\n":
                conn.sendall(bytes([byte]))
                time.sleep(0.05)
            relay(conn, up)
    proxy = Peer(slow)
    assert probe(f"ws://127.0.0.1:{hub.port}/", f"http://127.0.0.1:{proxy.port}", "-t", "400")[-1]["code"] == "closed"

    def endless(peer, conn):
        peer.read_head(conn)
        conn.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            conn.sendall(b"y")
            time.sleep(0.05)
    proxy = Peer(endless)
    start = time.monotonic()
    end = probe("wss://hub.example/", f"http://127.0.0.1:{proxy.port}", "-t", "400")[-1]
    assert (end["code"], end["stage"]) == ("timeout", 2)
    assert 1.0 < time.monotonic() - start < 6


SOCKS = [("no method", b"\5\xff", None, "proxy-auth"), ("wrong version", b"\4\0", None, "proxy"), ("method nobody offered", b"\5\1", None, "proxy")]
SOCKS += [(f"reply {n}", b"\5\0", bytes([5, n, 0, 1, 0, 0, 0, 0, 0, 0]), "proxy") for n in range(1, 9)]
SOCKS += [(f"cut after {n}", b"\5\0", b"\5\0\0\1\1\2\3\4\0\1"[:n], "proxy") for n in range(0, 10)]


@pytest.mark.parametrize("name,method,reply,code", SOCKS, ids=[s[0] for s in SOCKS])
def test_b21_socks(name, method, reply, code):
    def script(peer, conn):
        conn.recv(3)
        conn.sendall(method)
        if reply is not None:
            conn.recv(100)
            conn.sendall(reply)
            conn.shutdown(socket.SHUT_WR)
        time.sleep(0.2)
    proxy = Peer(script)
    end = probe("wss://hub.example/", f"socks5://127.0.0.1:{proxy.port}")[-1]
    assert (end["event"], end["code"]) == ("ended", code), end
    assert len(end["detail"]) > 15


def test_b21_socks_wrong_password():
    proxy = Peer(socks("user", "other"))
    end = probe("wss://hub.example/", f"socks5://user:{CANARY}@127.0.0.1:{proxy.port}")[-1]
    assert end["code"] == "proxy-auth" and "refused the user or password" in end["detail"]


def test_environment():
    """https_proxy for names beyond loopback; no_proxy, "none" and the configuration's own take precedence."""
    seen = []

    def script(peer, conn):
        seen.append(peer.read_head(conn).split()[1])
        conn.sendall(b"HTTP/1.1 403 No\r\n\r\n")
    proxy, other = Peer(script), Peer(answer(b"HTTP/1.1 402 No\r\n\r\n"))
    env = {"https_proxy": f"http://127.0.0.1:{proxy.port}", "no_proxy": "exempt.invalid"}
    assert probe("wss://hub.invalid/", "", env=env)[-1]["http_status"] == 403
    assert seen == [b"hub.invalid:443"]
    assert probe("wss://exempt.invalid/", "", env=env)[-1]["code"] in ("dns", "timeout")
    assert probe("wss://hub.invalid/", "none", env=env)[-1]["code"] in ("dns", "timeout")
    assert probe("wss://hub.invalid/", f"http://127.0.0.1:{other.port}", env=env)[-1]["http_status"] == 402
    assert probe("wss://127.0.0.1:1/", "", env=env)[-1]["code"] == "refused"
    assert len(seen) == 1
