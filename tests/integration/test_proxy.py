"""Proxies: HTTP CONNECT and SOCKS5, from the configuration and the environment (B19, B21).

Where it could go wrong: connectd's proxy code (answers other than success, authentication, secrets in messages), the one
dial function (no second path without the proxy), no_proxy matching.
"""
import base64
import socket
import struct
import threading

import pytest

from lib.proc import wait_for
from lib.status import link_cause

pytestmark = pytest.mark.timeout(60)

PASSWORD = "canary-pr0xy-passw0rd"


class ScriptedProxy:
    """Blocking, one thread per connection. kind: "http" or "socks". answer: bytes instead of the right answer."""

    def __init__(self, kind, user=None, password=None, host="127.0.0.1", port=0):
        self.kind, self.user, self.password = kind, user, password
        self.answer = None          # http: bytes; socks: (method reply, auth reply, connect reply), None = right
        self.extra = b""
        self.targets, self.seen, self.wrong = [], [], []
        self.names = {}             # what the proxy resolves by itself
        self.sock = socket.socket()
        self.sock.bind((host, port))
        self.sock.listen(32)
        self.port = self.sock.getsockname()[1]
        self.stopped = False
        threading.Thread(target=self._main, daemon=True).start()

    def _main(self):
        while not self.stopped:
            try:
                s, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(s,), daemon=True).start()

    def _one(self, s):
        s.settimeout(10)
        try:
            target = self._http(s) if self.kind == "http" else self._socks(s)
            if target is not None:
                self._relay(s, target)
        except OSError:
            pass
        finally:
            s.close()

    def _http(self, s):
        head = b""
        while b"\r\n\r\n" not in head:
            data = s.recv(4096)
            if not data:
                return None
            head += data
        self.seen.append(head)
        line = head.split(b"\r\n")[0].decode()
        method, target, version = line.split(" ")
        if method != "CONNECT" or version != "HTTP/1.1":
            self.wrong.append(line)
        if self.user is not None:
            want = b"Proxy-Authorization: Basic " + base64.b64encode(f"{self.user}:{self.password}".encode())
            if want.lower() not in head.lower() and want not in head:
                s.sendall(b"HTTP/1.1 407 Auth\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n")
                return None
        if self.answer is not None:
            s.sendall(self.answer)
            return None
        s.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n" + self.extra)
        host, port = target.rsplit(":", 1)
        return host.strip("[]"), int(port)

    def _socks(self, s):
        method_reply, auth_reply, connect_reply = self.answer or (None, None, None)
        _, n = s.recv(2)
        methods = s.recv(n)
        want = 2 if self.user is not None else 0
        s.sendall(method_reply if method_reply is not None else bytes([5, want if want in methods else 255]))
        if method_reply is not None or want not in methods:
            return None
        if want == 2:
            _, n = s.recv(2)
            user = s.recv(n)
            n = s.recv(1)[0]
            password = s.recv(n)
            good = (user.decode(), password.decode()) == (self.user, self.password)
            s.sendall(auth_reply if auth_reply is not None else bytes([1, 0 if good else 1]))
            if auth_reply is not None or not good:
                return None
        head = s.recv(4)
        self.seen.append(head)
        if head[3] == 3:
            host = s.recv(s.recv(1)[0]).decode()
        else:
            host = socket.inet_ntop(socket.AF_INET if head[3] == 1 else socket.AF_INET6, s.recv(4 if head[3] == 1 else 16))
        port = struct.unpack("!H", s.recv(2))[0]
        s.sendall(connect_reply if connect_reply is not None else b"\x05\0\0\x01\x7f\0\0\x01\0\x01" + self.extra)
        return None if connect_reply is not None else (host, port)

    def _relay(self, s, target):
        self.targets.append(target)
        up = socket.create_connection((self.names.get(target[0], target[0]), target[1]), 5)
        s.settimeout(None)

        def copy(a, b):
            try:
                while data := a.recv(65536):
                    b.sendall(data)
            except OSError:
                pass
            for x in (a, b):
                try:
                    x.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        t = threading.Thread(target=copy, args=(up, s), daemon=True)
        t.start()
        copy(s, up)
        t.join()
        up.close()

    def url(self, user=None, password=None, kind=None):
        auth = f"{user}:{password}@" if user else ""
        return f"{kind or ('http' if self.kind == 'http' else 'socks5')}://{auth}127.0.0.1:{self.port}"


@pytest.fixture(params=["http", "socks"])
def scripted(request):
    p = ScriptedProxy(request.param)
    yield p
    p.stopped = True
    p.sock.close()
    assert not p.wrong, p.wrong


def fine(hub, p):
    hub.session()
    run = hub.finish(hub.start("echo through"))
    assert run.text == b"through\n"
    assert p.targets == [("localhost", hub.port)] or p.targets[0][1] == hub.port


def test_from_the_configuration(agent, hub, scripted):
    a = agent(conf={"hub": {"proxy": scripted.url()}})
    fine(hub, scripted)
    assert str(scripted.port) in a.ctl("status").json["connectd"]["proxy"]


def far(agent, net, nethub, env):
    """A device whose hub is not on its loopback; the proxy lives on the hub's side of the cable."""
    made = net.hub.call(lambda: ScriptedProxy("http", host="10.77.0.1", port=3128))
    made.names["hub.test"] = "10.77.0.1"
    agent(hub=nethub, ns=net.dev, env={k: v.replace("PROXY", "http://10.77.0.1:3128") for k, v in env.items()},
          conf={"hub": {"url": f"wss://hub.test:{nethub.port}/api/executors/connect"}})
    nethub.session()
    made.stopped = True
    return made


@pytest.mark.root
@pytest.mark.parametrize("env,used", [
    ({"https_proxy": "PROXY"}, True), ({"HTTPS_PROXY": "PROXY"}, True), ({"all_proxy": "PROXY"}, True),
    ({"http_proxy": "PROXY"}, False),
    ({"https_proxy": "PROXY", "no_proxy": "hub.test"}, False), ({"https_proxy": "PROXY", "no_proxy": "*"}, False),
    ({"https_proxy": "PROXY", "no_proxy": "x.example,test"}, False), ({"https_proxy": "PROXY", "no_proxy": ".test"}, False),
    ({"https_proxy": "PROXY", "no_proxy": "ub.test"}, True), ({"https_proxy": "PROXY", "no_proxy": "hub.test.x"}, True),
    ({"https_proxy": "PROXY", "no_proxy": "est, 10.77.0.1"}, True),
], ids=lambda v: ",".join(f"{k}={x}" for k, x in v.items()) if isinstance(v, dict) else str(v))
def test_from_the_environment(agent, net, nethub, env, used):
    made = far(agent, net, nethub, env)
    assert bool(made.targets) == used, made.targets


def test_a_hub_on_the_loopback_needs_no_proxy_of_the_environment(agent, hub, scripted):
    agent(env={"https_proxy": scripted.url()})
    hub.session()
    assert scripted.targets == []


def test_none_in_the_configuration_ignores_the_environment(agent, hub, scripted):
    agent(conf={"hub": {"proxy": "none"}}, env={"https_proxy": scripted.url()})
    hub.session()
    assert scripted.targets == []


def test_b21_with_password(agent, hub, scripted):
    scripted.user, scripted.password = "u", PASSWORD
    a = agent(conf={"hub": {"proxy": scripted.url("u", PASSWORD)}})
    fine(hub, scripted)
    shown = a.log_text() + a.ctl("status").out + a.ctl("status", json_out=False).out
    assert PASSWORD not in shown and base64.b64encode(f"u:{PASSWORD}".encode()).decode() not in shown


def test_b21_wrong_password(agent, hub, scripted):
    scripted.user, scripted.password = "u", "other"
    a = agent(conf={"hub": {"proxy": scripted.url("u", PASSWORD)}})
    wait_for(lambda: link_cause(a) == "proxy-auth", 15, lambda: f"proxy-auth, is {link_cause(a)}")
    assert PASSWORD not in a.log_text() + a.ctl("status").out
    assert hub.accepts == []


HTTP_ANSWERS = {
    "407 negotiate": (b"HTTP/1.1 407 x\r\nProxy-Authenticate: Negotiate\r\nContent-Length: 0\r\n\r\n", "proxy-auth"),
    "407 three": (b"HTTP/1.1 407 x\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate: NTLM\r\n"
                  b"Proxy-Authenticate: Digest realm=\"y\"\r\nContent-Length: 0\r\n\r\n", "proxy-auth"),
    "403": (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nnope", "proxy"),
    "502": (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "proxy"),
    "302": (b"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\n\r\n", "proxy"),
    "long": (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n", "proxy"),
    "cut": (b"HTTP/1.1 200 O", "proxy"),
    "garbage": (b"\x05\x00garbage\r\n\r\n", "proxy"),
    "nothing": (b"", "proxy"),
}


@pytest.mark.parametrize("name", sorted(HTTP_ANSWERS))
def test_b21_http_answers(agent, hub, name):
    p = ScriptedProxy("http")
    p.answer, cause = HTTP_ANSWERS[name]
    a = agent(conf={"hub": {"proxy": p.url("u", PASSWORD)}})
    wait_for(lambda: link_cause(a) == cause, 15, lambda: f"{cause}, is {link_cause(a)}{a.log_tail()}")
    wait_for(lambda: len(p.seen) >= 2, 15, "tried again")
    assert hub.accepts == [] and PASSWORD not in a.log_text() + a.ctl("status").out
    p.answer = None
    fine(hub, p)


SOCKS_ANSWERS = {"no method": (b"\x05\xff", None, None), "version 4": (b"\x04\x00", None, None),
                 "other method": (b"\x05\x01", None, None), "cut": (b"\x05", None, None), "nothing": (b"", None, None)}
SOCKS_ANSWERS.update({f"reply {n}": (None, None, bytes([5, n, 0, 1, 0, 0, 0, 0, 0, 0])) for n in range(1, 9)})
SOCKS_ANSWERS.update({f"cut {n}": (None, None, b"\x05\0\0\x01\x7f\0\0\x01\0\x01"[:n]) for n in range(1, 10)})
SOCKS_ANSWERS["bad address type"] = (None, None, b"\x05\0\0\x09\x7f\0\0\x01\0\x01")


@pytest.mark.parametrize("name", sorted(SOCKS_ANSWERS))
def test_b21_socks_answers(agent, hub, name):
    p = ScriptedProxy("socks")
    p.answer = SOCKS_ANSWERS[name]
    a = agent(conf={"hub": {"proxy": p.url()}})
    wait_for(lambda: link_cause(a) in ("proxy", "proxy-auth", "refused", "no-route"), 15,
             lambda: f"a proxy cause, is {link_cause(a)}{a.log_tail()}")
    assert hub.accepts == []
    p.answer = None
    fine(hub, p)


def test_b21_bytes_behind_the_answer_belong_to_the_tunnel(agent, hub, scripted):
    """A proxy that sends more than its answer is not trusted blindly: the TLS handshake decides; no crash, tried again."""
    scripted.extra = b"HTTP/1.1 400 what\r\n\r\n"
    a = agent(conf={"hub": {"proxy": scripted.url()}})
    wait_for(lambda: link_cause(a) in ("tls", "proxy"), 15, lambda: f"a cause, is {link_cause(a)}")
    scripted.extra = b""
    hub.session()


def test_proxy_that_is_not_there(agent, hub):
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    a = agent(conf={"hub": {"proxy": f"http://127.0.0.1:{s.getsockname()[1]}"}})
    wait_for(lambda: link_cause(a) in ("proxy", "refused"), 15, lambda: f"a cause, is {link_cause(a)}")
    assert hub.accepts == []
    s.close()


@pytest.mark.root
def test_b19_nothing_goes_around_the_proxy(agent, net, nethub):
    """The namespace lets only the proxy's port through and counts the rest; the proxy resolves, so no DNS either."""
    net.dev.nft(f"""table inet only {{ counter others {{ }}
        chain out {{ type filter hook output priority 0; oifname lo accept; icmpv6 type {{ nd-neighbor-solicit,
        nd-neighbor-advert, nd-router-solicit, mld2-listener-report }} accept; meta l4proto 2 accept;
        tcp dport {nethub.port + 1} accept; tcp sport 1-65535 ct state established accept;
        counter name others drop;
        }}
        }}""")
    # Threads begin in the namespace of the thread that starts them, so the whole proxy lives on the hub's side.
    made = net.hub.call(lambda: ScriptedProxy("http", host="10.77.0.1", port=nethub.port + 1))
    made.names["hub.test"] = "10.77.0.1"
    net.hosts()
    net.resolv("nameserver 10.77.0.1\n")
    agent(hub=nethub, ns=net.dev, conf={"hub": {"url": f"wss://hub.test:{nethub.port}/api/executors/connect",
                                                "proxy": f"http://10.77.0.1:{nethub.port + 1}"}})
    nethub.session()
    run = nethub.finish(nethub.start("echo through"))
    assert run.text == b"through\n" and made.targets
    nethub.cut()
    nethub.session(after=nethub.sessions[0])
    counted = net.dev.run("nft", "list", "counter", "inet", "only", "others").stdout
    assert "packets 0 " in counted, counted
