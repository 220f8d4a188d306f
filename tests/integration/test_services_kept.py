"""A connection to a service that serves more than one request (connectd/svcanswer.c, svcconn.c, svcstream.c).

Where it could go wrong: an answer that belongs to another request (bytes behind an answer), a request sent twice that may not be, one that is lost with
its connection, a policy that has changed meanwhile, a connection that stays; and at the operator's end a proxy that ends with its hub
(hub/cli_proxy.c, hub/proxyconn.c).
"""
import os
import signal
import socket
import time

import pytest

from lib.proc import wait_for
from lib.services import Service, Site, Tls, exchange, get, say

pytestmark = pytest.mark.timeout(120)


class Keeper(Service):
    """Serves one request after the other on a connection, until it is closed or a route says so by raising."""

    def talk(self, c):
        data = b""
        while (got := self.head_of(c, data)) is not None:
            head, data = got
            data = self.routes[head.split(" ", 2)[1]](c, head, data) or b""


class KeeperTls(Tls, Keeper):
    """Tls makes it, Keeper serves."""


def hello(c, head, rest):
    say(c, "hello")


def post(c, head, rest):
    while len(rest) < 3:
        rest += c.recv(100)
    say(c, rest[:3])


@pytest.fixture
def made():
    """Site, service and the port of a proxy, of a service with these routes."""
    ends = []

    def make(policy=None, **routes):
        s = Keeper(routes={"/hello": hello, "/post": post, **{"/" + k: v for k, v in routes.items()}})
        d = Site([s], policy=policy)
        ends.extend([d, s])
        return d, s, d.proxy(s.port).port
    yield make
    for e in ends:
        e.close()


class Client:
    """One connection of a browser's."""

    def __init__(self, port):
        self.port, self.s = port, socket.create_connection(("127.0.0.1", port), timeout=30)
        self.f = self.s.makefile("rb")

    def ask(self, path, method="GET", body=b""):
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        self.s.sendall(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{length}\r\n".encode() + body)
        return self.answer(method)

    def answer(self, method="GET"):
        status, n = int(self.f.readline().split()[1]), 0
        while (line := self.f.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                n = int(line.split(b":")[1])
        return status, self.f.read(n if method != "HEAD" else 0)

    def close(self):
        self.f.close()
        self.s.close()


def test_one_connection_for_many_requests(made):
    d, service, port = made()
    c = Client(port)
    for _ in range(30):
        assert c.ask("/hello") == (200, b"hello")
    assert service.conns == 1 and not any("Connection" in h for h in service.heads)
    assert c.ask("/post", "POST", b"abc") == (200, b"abc")
    assert service.conns == 2, "what may not be sent twice goes on a connection that nobody can have closed meanwhile"
    assert c.ask("/hello") == (200, b"hello")
    other = Client(port)
    assert other.ask("/hello") == (200, b"hello")
    assert service.conns == 3, "another stream has one of its own"
    wait_for(lambda: not service.open, 20, "what is not used again is closed, though the clients stay")
    assert c.ask("/hello") == other.ask("/hello") == (200, b"hello")
    c.close()
    other.close()


def test_behind_tls(leaf):
    """One handshake for all of them; the session tickets behind it are nothing the service says."""
    service = KeeperTls(leaf)
    service.routes["/hello"] = hello
    d = Site([service])
    try:
        c = Client(d.proxy(f"https://127.0.0.1:{service.port}").port)
        for _ in range(30):
            assert c.ask("/hello") == (200, b"hello")
        assert service.conns == 1
        wait_for(lambda: not service.open, 20, "what is not used again is closed")
        assert c.ask("/hello") == (200, b"hello")
        c.close()
    finally:
        d.close()
        service.close()


@pytest.mark.parametrize("head", ["304 Not Modified", "204 No Content"])
@pytest.mark.parametrize("how", ["Content-Length: 40", "Transfer-Encoding: chunked"])
def test_a_body_where_there_is_none(made, head, how):
    """It comes behind its head: the next request gets its own answer, and not this one."""
    def late(c, _head, rest):
        c.sendall(f"HTTP/1.1 {head}\r\n{how}\r\n\r\n".encode())
        time.sleep(0.1)
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother")

    _, _, port = made(late=late)
    c = Client(port)
    c.s.sendall(f"GET /late HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    assert c.f.readline().split()[1] == head.split()[0].encode()
    while c.f.readline() != b"\r\n":
        pass
    assert c.ask("/hello") == (200, b"hello")
    c.close()


def test_requests_sent_ahead(made):
    d, service, port = made()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        s.sendall(b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port * 20)
        s.shutdown(socket.SHUT_WR)
        got = s.makefile("rb").read()
    assert got.count(b"HTTP/1.1 200") == 20 and got.endswith(b"hello")
    assert service.conns == 1


def test_a_client_that_says_close(made):
    d, service, port = made()
    assert get(port, "/hello")[2] == b"hello"
    assert "Connection: close" in service.heads[-1]
    old = exchange(port, b"GET /hello HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
    assert old.endswith(b"hello") and "Connection: close" in service.heads[-1]


def test_a_kept_connection_that_ends_in_the_moment_of_use(made):
    """The service takes the request and closes without a byte: asked once more, on a new connection. A request that changes something is not."""
    def second(c, head, rest):
        if service.conns == 1:
            raise OSError("closes instead of answering")
        say(c, "second")
    d, service, port = made(second=second)
    c = Client(port)
    assert c.ask("/hello") == (200, b"hello")
    assert c.ask("/second") == (200, b"second")
    assert [h.split(" ")[1] for h in service.heads] == ["/hello", "/second", "/second"] and service.conns == 2
    c.close()


def test_nothing_is_asked_a_third_time(made):
    def never(c, head, rest):
        raise OSError("never an answer")

    def half(c, head, rest):
        c.sendall(b"HTTP/1.1 2")
        raise OSError("no more of it")
    d, service, port = made(never=never, half=half)
    for path, times in (("/never", 2), ("/half", 1)):
        before = len(service.heads)
        c = Client(port)
        assert c.ask("/hello") == (200, b"hello")
        assert c.ask(path)[0] == 502
        assert [h.split(" ")[1] for h in service.heads[before:]] == ["/hello"] + [path] * times
        c.close()


@pytest.mark.parametrize("pause", [0, 0.3])
def test_bytes_behind_an_answer_are_no_answer(made, pause):
    """They end the connection, whether they come with the answer or while nothing was asked."""
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"

    def more(c, head, rest):
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmore" + (forged if pause == 0 else b""))
        if pause:
            time.sleep(pause / 2)
            c.sendall(forged)
    d, service, port = made(more=more)
    c = Client(port)
    for _ in range(3):
        assert c.ask("/more") == (200, b"more")
        time.sleep(pause)
        assert c.ask("/hello") == (200, b"hello")
    assert service.conns == 4
    c.close()


def test_a_head_with_a_body(made):
    d, service, port = made()
    c = Client(port)
    assert c.ask("/hello", "HEAD")[0] == 200
    assert c.ask("/hello") == (200, b"hello")
    assert service.conns == 2
    c.close()


@pytest.mark.parametrize("how", ["HTTP/1.1 200 OK\r\nConnection: close", "HTTP/1.0 200 OK"])
def test_a_service_that_does_not_keep_it(made, how):
    def closing(c, head, rest):
        c.sendall(f"{how}\r\nContent-Length: 2\r\n\r\nno".encode())
    d, service, port = made(closing=closing)
    c = Client(port)
    for _ in range(3):
        assert c.ask("/closing") == (200, b"no")
    assert service.conns == 3
    c.close()


def test_the_policy_of_now_counts(made):
    """A kept connection is no permission: taken off the list, the service is refused at the next request."""
    d, service, port = made()
    c = Client(port)
    assert c.ask("/hello") == (200, b"hello")
    d.agent.policy["services"]["allow"] = "127.0.0.1:1"
    d.agent.write_conf()
    os.kill(d.agent.pid("connectd"), signal.SIGHUP)
    deadline = time.monotonic() + 30
    while (answer := c.ask("/hello"))[0] == 200 and time.monotonic() < deadline:
        pass
    assert answer[0] == 403 and b"not in the list" in answer[1]
    c.close()


def test_the_proxy_outlives_the_hub():
    """Who comes meanwhile is told, and nobody hangs: not even one whose request the old hub had and did not answer."""
    service = Service()
    d = Site([service])
    try:
        p = d.proxy(service.port)
        assert get(p.port, "/hello")[0] == 200
        for again in range(2):
            d.hub.proc.send_signal(signal.SIGSTOP)
            with socket.create_connection(("127.0.0.1", p.port), 20) as early:
                early.settimeout(20)
                early.sendall(f"GET /hello HTTP/1.1\r\nHost: 127.0.0.1:{p.port}\r\n\r\n".encode())
                time.sleep(0.5)
                d.hub.kill9()
                assert early.recv(4096).startswith(b"HTTP/1.1 503 ")
            status, _, body = get(p.port, "/hello")
            assert status == 503 and b"the hub is gone" in body
            assert p.poll() is None
            time.sleep(1.2)
            d.hub.start()
            d.connected()
            wait_for(lambda: get(p.port, "/hello")[0] == 200, 20, "the same port serves again")
        p.send_signal(signal.SIGINT)
        err = p.communicate(timeout=15)[1].decode()
        assert p.returncode == 0 and err.count("the hub is gone") == 2 and err.count("the hub is back") == 2, err
        # Ctrl-C while it waits.
        p = d.proxy(service.port)
        d.hub.kill9()
        wait_for(lambda: get(p.port, "/hello")[0] == 503, 20, "it waits")
        p.send_signal(signal.SIGINT)
        assert p.wait(15) == 0
    finally:
        if d.hub.proc.poll() is not None:
            d.hub.start()
        d.close()
        service.close()
