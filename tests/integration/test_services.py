"""Services of a device through the hub: http streams, the router, `edgehub services` and `edgehub proxy` (railgrid.md section 2).

Where it could go wrong: connectd/svcstream.c (a stream that outlives its request), svcrelay.c (one framing taken for the other), svcconn.c (dialled
before it was judged), svcjudge.c, hub/pipe.c and hub/proxyconn.c (an end that is not passed on). B17, B18 (a tunnel leaves something behind, or works
only in the first session): test_reconnect, test_ten_thousand.py. B08, B37 (a slow reader; a body held whole): test_stalled_consumer, test_large_bodies.
B12 (limits count from the last progress): test_slow_but_steady. Heads, chunks and addresses one by one: unit/test_services.c.
"""
import asyncio
import hashlib
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import pytest

from lib import openmetrics, proc
from lib.services import REPORTS, Service, Site, Tls, exchange, get, header, say
from lib.proc import wait_for
from lib.session import DATA, END, RESET, WINDOW

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def service():
    s = Service()
    yield s
    s.close()


@pytest.fixture(scope="module")
def site(service):
    d = Site([service])
    yield d
    d.close()


@pytest.fixture(scope="module")
def port(site, service):
    return site.proxy(service.port).port


# ---- bodies both ways ----

def test_answers_in_each_framing(site, service, port):
    status, head, body = get(port, "/hello")
    assert (status, body, header(head, "Server")) == (200, b"hello", "tests")
    assert header(head, "X-Railgrid-Svc-Policy") is None, "what the service says of the policy counts for nothing"
    assert get(port, "/chunked")[2] == b"".join(b"%d," % i * (i + 1) for i in range(100))
    assert get(port, "/close")[2] == b"old " * 5000
    assert get(port, "/nothing")[0] == 404
    assert get(port, "/hello", method="HEAD")[2] == b""
    assert f"Host: 127.0.0.1:{service.port}" in service.heads[-1] or f"Host: localhost:{service.port}" in service.heads[-1]


def test_an_old_client(port):
    answer = exchange(port, b"GET /chunked HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
    assert answer.startswith(b"HTTP/1.1 200") and b"chunked" not in answer.split(b"\r\n\r\n")[0]
    assert answer.split(b"\r\n\r\n", 1)[1] == b"".join(b"%d," % i * (i + 1) for i in range(100))


def test_many_requests_on_one_connection(port):
    """Sent ahead, in pieces, each answered in order."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        one = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 3\r\n\r\n%03d"
        data = b"".join(one % (port, i) for i in range(50))
        for i in range(0, len(data), 700):
            s.sendall(data[i:i + 700])
        got = b""
        while got.count(b"HTTP/1.1 200") < 50 or not got.endswith(b"049"):
            more = s.recv(65536)
            assert more, got[-300:]
            got += more
        assert [p.split(b"\r\n\r\n")[1][:3] for p in got.split(b"HTTP/1.1 200 OK\r\n")[1:]] == [b"%03d" % i for i in range(50)]


def test_large_bodies(site, port):
    """B37: 24 MiB up, chunked and by length, and down; no process grows by it."""
    pid = site.agent.pid("connectd")
    before = proc.pss_kb(pid)
    block = os.urandom(1 << 20)
    want = hashlib.sha256(block * 24).hexdigest().encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(b"POST /digest HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (port, 24 << 20))
        for _ in range(24):
            s.sendall(block)
        assert s.makefile("rb").read().endswith(want)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(b"POST /digest HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" % port)
        for _ in range(24):
            s.sendall(b"100000\r\n" + block + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        assert s.makefile("rb").read().endswith(want)
    n, h = 24 << 20, hashlib.sha256()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(b"GET /big?%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % (n, port))
        f = s.makefile("rb")
        while f.readline() != b"\r\n":
            pass
        while data := f.read(1 << 18):
            h.update(data)
            n -= len(data)
    assert n == 0 and h.hexdigest() == hashlib.sha256(bytes(range(256)) * (24 << 12)).hexdigest()
    assert proc.pss_kb(pid) - before < (8192 if not proc.sanitized(pid) else 24576)


def test_upgrade_with_early_bytes(port):
    """Bytes sent with the request for the upgrade, and those the service sends with its 101, both arrive."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(b"GET /switch HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly of the client." % port)
        got = b""
        while b"early of the client." not in got:
            more = s.recv(65536)
            assert more, got
            got += more
        head, rest = got.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101") and header(head.decode(), "Upgrade") == "echo"
        assert rest == b"early of the service.early of the client."
        s.sendall(b"\0\r\n\r\nraw")
        assert s.recv(100) == b"\0\r\n\r\nraw"


def test_upgrade_that_is_refused(port):
    """The service's own answer, whole, and then the end: what follows is no request to anybody."""
    out = exchange(port, b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nGET /echo HTTP/1.1\r\n\r\n" % port)
    assert out.count(b"HTTP/1.1") == 1 and out.endswith(b"hello") and b"Connection: close" in out


def test_websocket_client(port):
    websockets = pytest.importorskip("websockets")

    async def talk():
        async with websockets.connect(f"ws://127.0.0.1:{port}/ws", origin=f"http://127.0.0.1:{port}") as ws:
            for text in ("a", "b" * 200, "c" * 60000):
                await ws.send(text)
                assert await ws.recv() == text
    asyncio.run(asyncio.wait_for(talk(), 30))


def test_browser(site, port):
    """A page with a script that fetches and opens a websocket, in a real browser. Without one: test_websocket_client."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("skipped: no chromium")
    home = os.path.join(site.agent.dir, "browser")
    os.makedirs(home, exist_ok=True)
    p = subprocess.Popen([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={home}",
                          "--remote-debugging-port=0", f"http://127.0.0.1:{port}/page"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         env={"PATH": os.environ["PATH"], "HOME": home})
    try:
        wait_for(lambda: REPORTS, 80, "the page tells what it got")
    finally:
        p.kill()
        p.wait()
    assert REPORTS == ["hello and from the browser"]


# ---- who may use the listener ----

def test_the_listener_is_for_its_own_pages(port):
    assert get(port, "/hello", host=f"localhost:{port}")[0] == 200
    assert get(port, "/hello", host="rebound.example")[0] == 421
    assert get(port, "/hello", more="Origin: http://evil.example\r\n")[0] == 403
    assert get(port, "/hello", more="Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n")[0] == 403
    for bad in (b"GET / HTTP/1.1\r\nHost: x\nHost: y\r\n\r\n", b"\x16\x03\x01" + b"x" * 50 + b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: " + b"x" * 20000):
        assert exchange(port, bad).startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))


@pytest.mark.parametrize("bad,status", [(b"GET /hello HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 421), (b"no request\r\n\r\n", 400),
                                        (b"GET /hello HTTP/1.1\r\nOrigin: http://evil.example\r\nHost: 127.0.0.1:%d\r\n\r\n", 403),
                                        (b"GET /hello HTTP/1.1\r\nA: " + b"x" * 20000, 431)], ids=[421, 400, 403, 431])
def test_a_later_request_is_refused_in_its_place(port, service, bad, status):
    """Behind the answers before it, whole, whether they are there already or not; what comes behind it is not looked at."""
    n = len(service.heads)
    good = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port
    bad = bad.replace(b"%d", b"%d" % port)
    refused = b"HTTP/1.1 %d" % status
    answer = exchange(port, good + good + bad + good)
    assert answer.count(b"HTTP/1.1 200") == 2 and answer.count(b"hello") == 2 and answer.count(refused) == 1, answer
    assert answer.index(refused) > answer.rindex(b"hello") and b"Connection: close" in answer.split(refused)[1]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(good)
        got = b""
        while not got.endswith(b"hello"):
            got += s.recv(65536)
        s.sendall(bad)
        assert s.makefile("rb").read().startswith(refused)
    assert len(service.heads) == n + 3
    # Whoever said that no more follows gets no more.
    assert exchange(port, good.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + bad).endswith(b"hello")


def test_a_device_that_is_not_there_is_told_at_once(site):
    """Before there is an address that a browser would find out with."""
    p = site.hub.call("proxy", "nosuch", "--to", "8080")
    assert p.returncode == 1 and p.stdout == b"" and b"no device nosuch" in p.stderr


def test_beyond_loopback_only_when_told(site, service):
    p = site.hub.call("proxy", "dev", "--to", str(service.port), "--listen", "0.0.0.0:0")
    assert p.returncode == 2 and b"--any-address" in p.stderr
    q = site.proxy(service.port, "--listen", "0.0.0.0:0", "--any-address", "--host", "panel.example")
    assert get(q.port, "/hello", host=f"panel.example:{q.port}")[0] == 200


# ---- what the policy says ----

def test_refusals_name_the_line(site, service):
    other = Service()
    q = site.proxy(other.port)
    status, head, body = get(q.port, "/hello")
    assert status == 403 and header(head, "X-Railgrid-Svc-Policy") == "enforce"
    counted = openmetrics.parse(site.agent.ctl("metrics", json_out=False).out)
    assert openmetrics.value(counted, "edgeward_service_requests_total", outcome="refused") >= 1
    assert openmetrics.value(counted, "edgeward_service_requests_total", outcome="connected") >= 1
    assert b"target host not allowed" in body and b"policy.conf:2: services allow" in body
    assert other.conns == 0, "not dialled"
    for target in ("http://169.254.169.254", "http://[fe80::1]", "http://224.0.0.1", "http://0.0.0.0:80", "http://192.0.2.1", "http://a.b.svc"):
        q = site.proxy(target)
        assert get(q.port, "/")[0] == 403, target
    events = [e for e in site.events("service") if e["subject"] == f"localhost:{other.port}"]
    assert events and "refused for uid" in events[0]["text"] and "policy.conf:2" in events[0]["text"]
    other.close()


def test_the_record_says_who_and_what(site, service, port):
    get(port, "/hello")
    assert any(e["subject"].endswith(f":{service.port}") and e["text"] == f"connected for uid {os.geteuid()}" for e in site.events("service"))


def test_list(site, service):
    found = site.hub.json("services", "dev")["services"]
    mine = [s for s in found if s["port"] == service.port]
    assert mine and mine[0]["source"] == "found" and mine[0]["server"] == "tests" and mine[0]["target"] == f"http://localhost:{service.port}"
    assert any(e["text"] == f"listed for uid {os.geteuid()}" for e in site.events("services"))
    assert get(site.proxy(mine[0]["name"]).port, "/hello")[2] == b"hello"
    p = site.hub.call("proxy", "dev", "--to", "nothing")
    assert p.returncode == 1 and b"has no service nothing" in p.stderr


def test_declared_services_and_sockets():
    """By name: a socket that the policy names, one that it does not; a port that answers nothing is not listed."""
    tmp_path = pathlib.Path(tempfile.mkdtemp(prefix="ew-svc."))		# a line of a configuration is short
    os.chmod(tmp_path, 0o755)
    web, app = Service(), Service(path=str(tmp_path / "app.sock"))
    silent = socket.create_server(("127.0.0.1", 0))
    hidden = str(tmp_path / "hidden.sock")
    dead = silent.getsockname()[1]
    site = Site([web], policy={"allow": f"127.0.0.1:{web.port} 127.0.0.1:{dead}", "sockets": "app"},
                conf={"services": {"declare": f"web=http://127.0.0.1:{web.port} app=unix:{tmp_path}/app.sock hidden=unix:{hidden}"}})
    try:
        begin = time.monotonic()
        listed = {s["name"]: s for s in site.hub.json("services", "dev")["services"]}
        assert time.monotonic() - begin < 30
        assert set(listed) == {"web", "app", "hidden"} and listed["app"]["ready"] and listed["web"]["scheme"] == "http"
        assert not listed["hidden"]["ready"] and "services sockets" in listed["hidden"]["reasons"][0]
        assert get(site.proxy("app").port, "/hello")[2] == b"hello"
        assert "Host: localhost" in app.heads[-1]
        assert get(site.proxy("web").port, "/hello")[2] == b"hello"
        status, _, body = get(site.proxy("hidden").port, "/hello")
        assert status == 403 and b"services sockets: hidden is not in the list" in body
    finally:
        site.close()
        silent.close()
        web.close()
        app.close()
        shutil.rmtree(tmp_path)


def test_everything_off(service):
    site = Site([service], policy={"serve": "no"})
    try:
        p = site.hub.call("services", "dev")
        assert p.returncode == 1 and b"policy.conf" in p.stderr and b"services serve = no" in p.stderr
        p = site.hub.call("proxy", "dev", "--to", str(service.port))
        assert p.returncode == 1 and p.stdout == b"" and b"services serve = no" in p.stderr
        p = site.hub.call("ssh-proxy", "dev")
        assert p.returncode == 1 and b"services serve = no" in p.stderr
        assert any("http stream refused" in e["text"] for e in site.events("service"))
    finally:
        site.close()


# ---- services that are bad ----

def bad_head(c, head, rest):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")


def no_head(c, head, rest):
    c.sendall(b"HTTP/1.1 200 O")


def short_body(c, head, rest):
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")


def bad_chunk(c, head, rest):
    c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX")


def unasked_switch(c, head, rest):
    c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")


def interim(c, head, rest):
    c.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    say(c, "after")


def early_refusal(c, head, rest):
    say(c, "too much", "413 Payload Too Large")


def test_services_that_break_the_rules():
    s = Service(routes={"/bad": bad_head, "/none": no_head, "/short": short_body, "/chunk": bad_chunk, "/switch": unasked_switch, "/interim": interim,
                        "/early": early_refusal})
    site = Site([s])
    try:
        port = site.proxy(s.port).port
        for path in ("/bad", "/none", "/switch"):
            status, _, body = get(port, path)
            assert status == 502 and b"upstream error" in body, path
        answer = exchange(port, b"GET /short HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
        assert answer.endswith(b"short") and b"Content-Length: 100" in answer, "the client sees that it is cut short"
        answer = exchange(port, b"GET /short HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\nno request\r\n\r\n" % port)
        assert answer.endswith(b"short"), "no answer of another's stands in it"
        answer = exchange(port, b"GET /chunk HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
        assert b"hello" in answer and not answer.endswith(b"0\r\n\r\n")
        answer = exchange(port, b"GET /interim HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % port)
        assert answer.startswith(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n") and answer.endswith(b"after")
        answer = exchange(port, b"POST /early HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 1000000\r\n\r\nx" % port)
        assert answer.startswith(b"HTTP/1.1 413") and answer.endswith(b"too much")
        s.close()
        status, _, body = get(port, "/hello")
        assert status == 502 and b"refused" in body
    finally:
        site.close()
        s.close()


def test_slow_but_steady():
    """B12: what moves is never too slow; what does not move ends at its limit, with 504 or a cut."""
    def slow(c, head, rest):
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")
        for i in range(8):
            time.sleep(0.4)
            c.sendall(b"%d" % i)

    def never(c, head, rest):
        c.recv(1)

    def stuck(c, head, rest):
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n0")
        c.recv(1)
    s = Service(routes={"/slow": slow, "/never": never, "/stuck": stuck})
    site = Site([s], conf={"services": {"idle-timeout": "1500ms", "answer-timeout": "1500ms"}})
    try:
        port = site.proxy(s.port).port
        assert get(port, "/slow")[2] == b"01234567"
        status, _, body = get(port, "/never")
        assert status == 504 and b"did not answer in time" in body
        assert exchange(port, b"GET /stuck HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port).endswith(b"\r\n\r\n0")
    finally:
        site.close()
        s.close()


@pytest.mark.parametrize("bad", [b"5;x\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\nX: trailer\r\n\r\n", b"zz\r\n"])
def test_what_is_not_taken_is_answered(port, service, bad):
    """Chunk extensions and trailers, legal but not for requests here: 400, behind the answers before it, and nothing behind it is looked at."""
    host = b"Host: 127.0.0.1:%d\r\n" % port
    n = len(service.heads)
    answer = exchange(port, b"GET /hello HTTP/1.1\r\n" + host + b"\r\nPOST /digest HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n" + bad +
                      b"GET /hello HTTP/1.1\r\n" + host + b"\r\n")
    first, second = answer.split(b"hello", 1)
    assert first.startswith(b"HTTP/1.1 200") and second.startswith(b"HTTP/1.1 400") and second.count(b"HTTP/1.1") == 1, answer
    assert b"chunked" in second and len(service.heads) <= n + 2


# ---- the stream itself, with a hub by hand ----

class Raw:
    """A stream of a scripted hub's session."""
    channels = {}

    def __init__(self, hub, purpose="svc", **fields):
        self.s = hub.session()
        self.channel = Raw.channels[id(self.s)] = Raw.channels.get(id(self.s), 99) + 2
        self.answer = hub.request("stream_open", {"channel": self.channel, "kind": "http", "purpose": purpose, **fields})
        self.sent = 0

    def send(self, data):
        self.s.send_stream(DATA, self.channel, self.sent, data)
        self.sent += len(data)

    def end(self):
        self.s.send_stream(END, self.channel, self.sent)

    def frames(self):
        return [f for f in self.s.stream_frames if f[1] == self.channel]

    @property
    def got(self):
        return b"".join(f[3] for f in self.frames() if f[0] == DATA)

    def wait(self, what, pred, timeout=20):
        return self.s.wait(what, pred, timeout)

    def ended(self):
        return any(f[0] in (END, RESET) for f in self.frames())


TARGET = "X-Railgrid-Svc-Target: http://127.0.0.1:%d\r\n"


@pytest.fixture
def device(agent, hub, service):
    agent(policy={"services": {"allow": f"127.0.0.1:{service.port}"}})
    return hub


def test_the_device_itself(device, service):
    st = Raw(device, "status", actor="a test")
    assert st.answer["type"] == "stream_opened"
    st.send(b"GET /status HTTP/1.1\r\nHost: edge-agent\r\n\r\nGET /k8s/x HTTP/1.1\r\nHost: edge-agent\r\n\r\n")
    st.wait("both answers", lambda: b"k8s proxy not available in server mode" in st.got)
    assert b'{"status":"ok"}' in st.got and st.got.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    st.end()
    st.wait("the end", st.ended)
    assert [f[0] for f in st.frames()][-1] == END
    for purpose in ("", "shell", None):
        assert Raw(device, purpose).answer["payload"]["code"] == "protocol"
    answer = Raw(device, "ssh").answer
    assert answer["payload"]["code"] == "policy" and "services ssh = no" in answer["payload"]["message"]


SMUGGLED = ["Content-Length: 4\r\nContent-Length: 5\r\n", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "Content-Length : 4\r\n",
            "X: y\r\n Content-Length: 4\r\n", "Transfer-Encoding: chunked\nX: y\r\n", "Transfer-Encoding: gzip, chunked\r\n", "A: " + "x" * 17000 + "\r\n",
            "".join(f"A{i}: x\r\n" for i in range(70))]


def test_smuggling_ends_the_stream(device, service):
    """One answer, no byte to the service, and the end: nothing behind such a head is ever looked at."""
    before = len(service.heads)
    for bad in SMUGGLED:
        st = Raw(device)
        st.send(("POST /svc/echo HTTP/1.1\r\nHost: edge-agent\r\n" + TARGET % service.port + bad + "\r\n").encode() +
                ("GET /svc/hello HTTP/1.1\r\nHost: edge-agent\r\n" + TARGET % service.port + "\r\n").encode())
        st.wait("the end", st.ended)
        assert st.got.count(b"HTTP/1.1 ") == 1 and st.got.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431")), (bad[:60], st.got)
    assert len(service.heads) == before
    # A chunk that is none, when the service is already there: it sees an end, not a request, and whoever sent it an answer.
    for bad in (b"5\nhello\r\n0\r\n\r\n", b"-1\r\n", b"5;x\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\nX: trailer\r\n\r\n"):
        st = Raw(device)
        st.send(("POST /svc/echo HTTP/1.1\r\nHost: edge-agent\r\n" + TARGET % service.port + "Transfer-Encoding: chunked\r\n\r\n").encode() + bad)
        st.wait("the end", st.ended)
        assert st.got.startswith(b"HTTP/1.1 400") and st.got.count(b"HTTP/1.1 ") == 1 and b"Connection: close" in st.got, (bad, st.got)
    assert device.session().live


def test_a_cap_on_streams(agent, hub, service):
    agent(conf={"services": {"streams": 3}}, policy={"services": {"allow": f"127.0.0.1:{service.port}"}})
    streams = [Raw(hub) for _ in range(4)]
    assert [s.answer["type"] for s in streams] == ["stream_opened"] * 3 + ["error"]
    assert streams[3].answer["payload"]["code"] == "busy"
    streams[0].end()
    streams[0].wait("its end", streams[0].ended)
    assert Raw(hub).answer["type"] == "stream_opened"


class Kept:
    """A connection to edgehub proxy that stays open."""

    def __init__(self, port, request=b""):
        self.s = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.s.sendall(request.replace(b"PORT", b"%d" % port))

    def answer(self):
        data = b""
        while not data.endswith(b"hello"):
            got = self.s.recv(4096)
            assert got, data
            data += got
        return data


HELLO = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n"


def test_who_asks_for_nothing_takes_no_stream():
    """Half a head, and connections that are kept, do not keep out who has a request; when all are busy that is said."""
    s = Service()
    site = Site([s], conf={"services": {"streams": 4}})
    open_now = []
    try:
        port = site.proxy(s.port).port
        open_now += [Kept(port, HELLO[:20]) for _ in range(150)]
        assert get(port, "/hello")[2] == b"hello"
        for c in open_now[-20:]:        # those that came last are there still, and may go on
            c.s.sendall(HELLO[20:].replace(b"PORT", b"%d" % port))
            assert b" 200 OK" in c.answer()
        kept = []
        for _ in range(12):
            kept.append(Kept(port, HELLO))
            open_now.append(kept[-1])
            assert b" 200 OK" in kept[-1].answer()
        kept[-1].s.sendall(HELLO.replace(b"PORT", b"%d" % port))
        assert b" 200 OK" in kept[-1].answer(), "the last one that served has not given way"
        assert kept[0].s.recv(1) == b"", "the first one has"
        assert site.hub.call("services", "dev").returncode == 0
        stalled = [Kept(port, HELLO.replace(b"/hello", b"/big?200000000")) for _ in range(4)]
        open_now += stalled
        for c in stalled:
            assert c.s.recv(1) == b"H"
        status, head, body = get(port, "/hello")
        assert status == 503 and header(head, "Retry-After") is not None and b"as many http streams are open" in body
        stalled[0].s.close()
        wait_for(lambda: get(port, "/hello")[0] == 200, 20, "room again")
    finally:
        for c in open_now:
            c.s.close()
        site.close()
        s.close()


# ---- flow ----

def test_stalled_consumer(site, service, port):
    """B08: who does not read stalls its own stream; the others, a run's log and the heartbeat go on, and memory is bounded."""
    pid = site.agent.pid("connectd")
    before = proc.pss_kb(pid)
    stalled = []
    try:
        for _ in range(8):
            s = socket.create_connection(("127.0.0.1", port), timeout=20)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(b"GET /big?200000000 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
            stalled.append(s)
        for _ in range(20):
            assert get(port, "/hello")[2] == b"hello"
        out = site.hub.cli("run", "dev", "--", "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x")
        assert len(out) == 300000
        assert site.hub.device("dev")["state"] == "connected"
        assert proc.pss_kb(pid) - before < (8 * 700 if not proc.sanitized(pid) else 8 * 3000)
    finally:
        for s in stalled:
            s.close()
    wait_for(lambda: get(port, "/hello")[2] == b"hello", 20)


def test_mixed_load(site, service, port):
    """A run's log of 20 MB and a download of 40 MB go their way; small requests beside them are answered while both run, and all bytes are right."""
    done = {}

    def log():
        out = site.hub.cli("run", "dev", "--", "sh", "-c", "yes 0123456789abcde | head -c 20971520", timeout=100)
        done["log"] = len(out), hashlib.sha256(out).hexdigest()

    def download():
        n, h = 40 << 20, hashlib.sha256()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
            s.sendall(b"GET /big?%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % (n, port))
            f = s.makefile("rb")
            while f.readline() != b"\r\n":
                pass
            while data := f.read(1 << 18):
                h.update(data)
                n -= len(data)
        done["download"] = n, h.hexdigest()
    threads = [threading.Thread(target=f) for f in (log, download)]
    for t in threads:
        t.start()
    answered = 0
    while answered < 10 or (any(t.is_alive() for t in threads) and answered < 500):
        assert get(port, "/hello")[2] == b"hello"
        answered += 1
    for t in threads:
        t.join(100)
    assert done["log"] == (20 << 20, hashlib.sha256(b"0123456789abcde\n" * (20 << 16)).hexdigest())
    assert done["download"] == (0, hashlib.sha256(bytes(range(256)) * (40 << 12)).hexdigest())


def test_reconnect(site, service):
    """B17: after the link was cut, services work as in the first session; what was open ended, and it was said."""
    p = site.proxy(service.port)
    with socket.create_connection(("127.0.0.1", p.port), timeout=30) as s:
        s.sendall(b"GET /switch HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n" % p.port)
        assert s.recv(1000).startswith(b"HTTP/1.1 101")
        old = site.agent.kill9("connectd")
        s.settimeout(30)
        while s.recv(1000):
            pass
    site.agent.restarted("connectd", old)
    wait_for(lambda: get(p.port, "/hello")[0] == 200, 40, every=0.2)


def test_a_service_behind_tls(leaf):
    """On the device's own loopback no certificate is asked for; bodies, an upgrade with early bytes and the ends are as without TLS."""
    service = Tls(leaf)
    d = Site([service])
    try:
        port = d.proxy(f"https://127.0.0.1:{service.port}").port
        assert get(port, "/hello")[2] == b"hello"
        assert get(port, "/chunked")[2] == b"".join(b"%d," % i * (i + 1) for i in range(100))
        assert get(port, "/close")[2] == b"old " * 5000
        n, h = 8 << 20, hashlib.sha256()
        body = exchange(port, b"GET /big?%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % (n, port)).split(b"\r\n\r\n", 1)[1]
        h.update(body)
        assert len(body) == n and h.digest() == hashlib.sha256(bytes(range(256)) * (n >> 8)).digest()
        block = os.urandom(1 << 20)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
            s.sendall(b"POST /digest HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (port, 4 << 20))
            for _ in range(4):
                s.sendall(block)
            assert s.makefile("rb").read().endswith(hashlib.sha256(block * 4).hexdigest().encode())
        with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
            s.sendall(b"GET /switch HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly." % port)
            got = b""
            while b"early." not in got:
                got += s.recv(65536)
            assert got.startswith(b"HTTP/1.1 101")
            s.sendall(b"later.")
            while b"later." not in got:
                got += s.recv(65536)
        wait_for(lambda: not service.open, 20, "its connections are closed")
        # Plain HTTP to it is an answer of the service's, TLS to one that has none is a 502 with its cause.
        plain = Service()
        try:
            assert get(d.proxy(service.port).port, "/hello")[0] in (400, 502)
        finally:
            plain.close()
    finally:
        d.close()
        service.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_that_comes_to_nothing(leaf):
    """Too old, none at all, and one that never answers: a 502 or 504 each, and the next request is served."""
    old, plain, good = Tls(leaf, maximum_version=ssl.TLSVersion.TLSv1_1, minimum_version=ssl.TLSVersion.TLSv1), Service(), Tls(leaf)
    silent = socket.create_server(("127.0.0.1", 0))
    class Mute:     # noqa: E306
        port = silent.getsockname()[1]
    d = Site([old, plain, good, Mute], conf={"services": {"dial-timeout": "2s"}})
    try:
        for port, want in ((old.port, (502,)), (plain.port, (502, 504)), (Mute.port, (502, 504))):
            status, _, body = get(d.proxy(f"https://127.0.0.1:{port}").port, "/hello")
            assert status in want, (status, body)
        assert get(d.proxy(f"https://localhost:{good.port}").port, "/hello")[2] == b"hello"
    finally:
        d.close()
        silent.close()
        for s in (old, plain, good):
            s.close()
