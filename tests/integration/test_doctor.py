"""edgectl doctor: an installation broken in each of the ways, and the check and cause it must name.

B10, B26 (boot without a name server, clock in 1970), B21 (a proxy nobody understands), B81 (secrets in diagnosis), B22 and B67 in
their part: doctor needs no daemon, and the proxy it tells of is connectd's. Where the kinds can occur: edgectl/doctor/ judges,
connectd/netprobe.c goes the way to the hub, without the credential and never as root.
"""
import base64
import contextlib
import datetime as dt
import json
import os
import pwd
import signal
import socket
import subprocess
import tarfile
import threading
import time
import urllib.parse

import pytest

from lib import fakedaemon as fd
from lib import proc
from lib.agent import Agent, exe, is_root
from lib.certs import CA
from lib.clockshim import Clock
from lib.fakedaemon import FakeDaemon
from lib.jsonschema import validate
from lib.proc import wait_for

pytestmark = pytest.mark.timeout(60)
UTC = dt.timezone.utc
BOUND = 15      # 10 s, and a machine that is busy
CA_OLD = dt.datetime(2001, 1, 1, tzinfo=UTC), dt.datetime(2002, 1, 1, tzinfo=UTC)
CA_NEW = dt.datetime(2098, 1, 1, tzinfo=UTC), dt.datetime(2099, 1, 1, tzinfo=UTC)
SCHEMA = json.load(open(os.path.join(fd.REPO, "edgectl/edgectl.schema.json"), encoding="utf-8"))
ENV = {"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=0"}
NETWORK = ["dns", "connect", "proxy-connect", "tls", "tls-chain", "tls-name", "tls-dates", "tls-pin", "upgrade"]


class Report:
    def __init__(self, doc, rc, seconds):
        self.doc, self.rc, self.seconds = doc, rc, seconds
        self.checks = {c["check"]: c for c in doc["checks"]}

    def __getitem__(self, name):
        return self.checks[name]

    def says(self, name, state, cause=""):
        got = self.checks[name]
        assert (got["state"], got["cause"]) == (state, cause), got
        assert got["detail"] and "\n" not in got["detail"]
        return got


def run(site, *args, env=None, user=None, text=False):
    argv = [exe("edgectl")] + ([] if text else ["-j"]) + ["-r", site.run, "doctor", *args]
    begin = time.monotonic()
    kw = {"user": user, "group": user, "extra_groups": []} if user else {}
    p = subprocess.run(argv, capture_output=True, text=True, timeout=30, env={**ENV, **(env or {})}, stdin=subprocess.DEVNULL,
                       check=False, **kw)
    seconds = time.monotonic() - begin
    assert "Sanitizer" not in p.stderr and "runtime error" not in p.stderr, p.stderr
    if text:
        return p
    assert p.stderr == ""
    doc = json.loads(p.stdout)
    assert validate(doc, SCHEMA["$defs"]["doctor"], SCHEMA) == [], p.stdout
    states = [c["state"] for c in doc["checks"]]
    assert [doc[s] for s in ("ok", "warn", "fail", "skipped")] == [states.count(s) for s in ("ok", "warn", "fail", "skipped")]
    assert doc["state"] == ("fail" if "fail" in states else "warn" if "warn" in states else "ok")
    assert p.returncode == {"ok": 0, "warn": 3, "fail": 1}[doc["state"]]
    for c in doc["checks"]:
        assert (c["cause"] == "") == (c["state"] in ("ok", "skipped")), c
    return Report(doc, p.returncode, seconds)


@pytest.fixture
def site(hub, ca):
    """An installation as run-foreground leaves it, with nothing running."""
    a = Agent(hub=hub, ca=ca, token=False)
    a.ca = ca
    for name, uid in (("connectd", a.net_uid), ("workerd", a.work_uid)):
        path = os.path.join(a.state, name)
        os.makedirs(path)
        os.chmod(path, 0o700)
        if is_root():
            os.chown(path, uid, uid)
    os.mkdir(a.run, 0o755)
    os.mkdir(a.root)
    os.chmod(a.root, 0o1770)
    if is_root():
        os.chown(a.root, a.work_uid, a.work_uid)
    yield a
    a.remove()


def doctor(site, *args, **kw):
    return run(site, "-c", site.conf_file, "-p", site.policy_file, *args, **kw)


def configure(site, **hub):
    site.conf["hub"].update({k.replace("_", "-"): v for k, v in hub.items()})
    site.write_conf()


# ---- whole ----

def test_all_is_well(agent, hub):
    a = agent()
    a.connected()
    r = doctor(a)
    assert [c for c in r.doc["checks"] if c["state"] == "fail"] == []
    for name in ("config-connectd", "config-workerd", "state-connectd", "state-workerd", "run-dir", "socket-connectd", "work-root",
                 "clock", "hub", "proxy", *NETWORK, "credential", "authentication", "disk-work", "namespaces", "seccomp", "connectd",
                 "workerd", "launcher", "privhelper", "introduction"):
        if name not in ("proxy-connect", "tls-pin"):
            r.says(name, "ok")
    r.says("proxy-connect", "skipped")
    r.says("tls-pin", "skipped")
    # One more request came to the hub, and without a secret.
    assert sum(q.bearer is None for q in hub.requests) == 1


def test_order_and_text(site):
    p = doctor(site, text=True)
    names = [line[8:24].strip() for line in p.stdout.splitlines()[:-1] if not line.startswith("      ")]
    order = ["config-connectd", "configuration", "clock", "route", "hub", "proxy", *NETWORK, "credential", "authentication", "disk-work",
             "cgroup", "namespaces", "landlock", "seccomp", "vhci", "tun", "filter", "engine", "accounts", "pool", "units", "connectd", "keys",
             "pending-upgrade", "releases", "upgrade-conf", "remote-upgrade"]
    assert [n for n in names if n in order] == order
    assert "try: " in p.stdout and "\033" not in p.stdout and p.returncode == 1
    assert p.stdout.splitlines()[-1].endswith("skipped" if os.geteuid() == 0 else "skipped (root may see more)")


# ---- broken, one by one ----

def _bad_line(site):
    with open(site.conf_file, "a", encoding="ascii") as f:
        f.write("[link]\nheartbeet = 1s\n")


def _no_conf(site):
    os.unlink(site.conf_file)


def _bad_policy(site):
    with open(site.policy_file, "w", encoding="ascii") as f:
        f.write("[work]\nstart = perhaps\n")


def _open_policy(site):
    with open(site.policy_file, "w", encoding="ascii") as f:
        f.write("[work]\nstart = yes\n")
    os.chmod(site.policy_file, 0o666)


def _open_state(site):
    os.chmod(os.path.join(site.state, "connectd"), 0o755)


def _no_state(site):
    os.rmdir(os.path.join(site.state, "workerd"))


def _state_is_file(site):
    _no_state(site)
    open(os.path.join(site.state, "workerd"), "w", encoding="ascii").close()


def _no_work_root(site):
    os.rmdir(site.root)


def _open_work_root(site):
    os.chmod(site.root, 0o777)


def _no_rundir(site):
    os.rmdir(site.run)


def _open_rundir(site):
    os.chmod(site.run, 0o777)


def _credential(site, text='{"agent_id":"x"}', mode=0o600, owner=True):
    path = site.credential_file
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path, mode)
    if is_root() and owner:
        os.chown(path, site.net_uid, site.net_uid)


def _disk(site):
    site.conf["work"]["disk-low"] = "1000000G"
    site.write_conf()


def _pool_junk(site):
    with open(os.path.join(site.dir, "d", "pool"), "w", encoding="ascii") as f:
        f.write("many\n")


def _no_hub(site):
    del site.conf["hub"]["url"]
    site.write_conf()


BROKEN = {
    "unknown key": (_bad_line, "config-connectd", "fail", "config"),
    "unknown key, workerd": (_bad_line, "config-workerd", "fail", "config"),
    "no configuration": (_no_conf, "configuration", "fail", "missing"),
    "bad policy": (_bad_policy, "config-workerd", "fail", "config"),
    "policy writable for all": (_open_policy, "policy", "fail", "mode"),
    "state readable for all": (_open_state, "state-connectd", "fail", "mode"),
    "no state": (_no_state, "state-workerd", "fail", "missing"),
    "state is a file": (_state_is_file, "state-workerd", "fail", "type"),
    "no work root": (_no_work_root, "work-root", "fail", "missing"),
    "work root open": (_open_work_root, "work-root", "fail", "mode"),
    "no run directory": (_no_rundir, "run-dir", "fail", "missing"),
    "run directory open": (_open_rundir, "run-dir", "fail", "mode"),
    "no socket": (lambda s: None, "socket-connectd", "fail", "missing"),
    "no hub": (_no_hub, "hub", "fail", "unconfigured"),
    "bad url": (lambda s: configure(s, url="wss://"), "hub", "fail", "config"),
    "plaintext": (lambda s: configure(s, url="ws://hub.example/"), "hub", "fail", "config"),
    "no ca file": (lambda s: configure(s, ca_file="/nonexistent.pem"), "hub", "fail", "config"),
    "bad pin": (lambda s: configure(s, pin="sha256:short"), "config-connectd", "fail", "config"),
    "nobody listens": (lambda s: s.hub.unlisten(), "connect", "fail", "refused"),
    "proxy is not there": (lambda s: configure(s, proxy="http://127.0.0.1:1"), "connect", "fail", "proxy"),
    "another name": (lambda s: s.hub.set_leaf(s.ca.leaf(names=("other.example",))), "tls-name", "fail", "tls-name"),
    "expired": (lambda s: s.hub.set_leaf(s.ca.leaf(before=CA_OLD[0], after=CA_OLD[1])), "tls-dates", "fail", "tls-expired"),
    "not yet": (lambda s: s.hub.set_leaf(s.ca.leaf(before=CA_NEW[0], after=CA_NEW[1])), "tls-dates", "fail", "tls-not-yet-valid"),
    "unknown root": (lambda s: s.hub.set_leaf(CA(os.path.join(s.dir, "ca")).leaf()), "tls-chain", "fail", "tls-untrusted"),
    "another key": (lambda s: configure(s, pin="sha256:" + "A" * 43 + "="), "tls-pin", "fail", "tls-pin"),
    "no TLS at all": (lambda s: setattr(s.hub.b, "tls", b"HTTP/1.0 400 Bad\r\n\r\n"), "tls", "fail", "tls"),
    "wrong path": (lambda s: setattr(s.hub.b, "http", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "upgrade", "fail",
                   "http-bad"),
    "not HTTP": (lambda s: setattr(s.hub.b, "http", b"SSH-2.0-OpenSSH_9.2\r\n"), "upgrade", "fail", "http-bad"),
    "hub is down": (lambda s: setattr(s.hub.b, "http", b"HTTP/1.1 502 Bad Gateway\r\n\r\n"), "upgrade", "fail", "http-5xx"),
    "hub is slow": (lambda s: setattr(s.hub.b, "http", b"HTTP/1.1 429 Slow\r\n\r\n"), "upgrade", "warn", "http-bad"),
    "hub's clock": (lambda s: setattr(s.hub.b, "http", b"HTTP/1.1 401 No\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"),
                    "clock-hub", "warn", "clock-offset"),
    "not enrolled": (lambda s: None, "credential", "fail", "unenrolled"),
    "credential empty": (lambda s: _credential(s, text=""), "credential", "fail", "credential-damaged"),
    "credential readable": (lambda s: _credential(s, mode=0o644), "credential", "warn", "mode"),
    "disk": (_disk, "disk-work", "fail", "disk-low"),
    "pool": (_pool_junk, "pool", "fail", "pool"),
    "daemon is down": (lambda s: None, "connectd", "fail", None),
}


@pytest.mark.parametrize("row", BROKEN, ids=lambda r: r.replace(" ", "-"))
def test_broken(site, row):
    breaks, check, state, cause = BROKEN[row]
    breaks(site)
    r = doctor(site)
    got = r[check]
    assert got["state"] == state and (cause is None or got["cause"] == cause), got
    assert r.seconds < BOUND
    if check in NETWORK:    # what lies behind is not guessed at
        for later in NETWORK[NETWORK.index(check) + 1:]:
            r.says(later, "skipped")
            assert "not reached: " + check in r[later]["detail"]


def test_a_mistake_has_file_and_line(site):
    _bad_line(site)
    line = open(site.conf_file, encoding="ascii").read().count("\n")
    assert f"{site.conf_file}:{line}: " in doctor(site)["config-connectd"]["detail"]


@pytest.mark.root
def test_owners(site):
    os.chown(os.path.join(site.state, "connectd"), 0, 0)
    _credential(site, owner=False)
    r = doctor(site)
    # run-foreground of an ordinary user has no other owner; as root it is the wrong one.
    assert r["credential"]["state"] == "ok" and r["state-connectd"]["state"] == "ok"
    os.chown(os.path.join(site.state, "connectd"), site.net_uid, site.net_uid)
    doctor(site).says("credential", "fail", "credential-unreadable")


# ---- time ----

def test_bounded_whatever_hangs(site):
    """A name server, a hub or a proxy that never answers: its check says timeout, and all is over within 10 s."""
    site.hub.b.tls = "hang"
    r = doctor(site)
    r.says("tls", "fail", "timeout")
    assert r.seconds < BOUND
    sink = socket.create_server(("127.0.0.1", 0))
    configure(site, proxy=f"socks5://127.0.0.1:{sink.getsockname()[1]}")
    r = doctor(site)
    r.says("proxy-connect", "fail", "timeout")
    assert r.seconds < BOUND
    sink.close()


def test_a_check_that_hangs_is_named(site):
    """The process that checks is stopped, as one is that waits for a dead file system: the other one says so and ends."""
    site.hub.b.tls = "hang"
    argv = [exe("edgectl"), "-j", "-r", site.run, "doctor", "-c", site.conf_file]
    begin = time.monotonic()
    p = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=ENV)
    try:
        def below(parent, name):
            return [c for c in proc.descendants(p.pid) if (st := proc.stat(c)) and st[2] == parent and st[0] == name]
        child = wait_for(lambda: below(p.pid, "edgectl"), 10, "the process that checks")[0]
        wait_for(lambda: below(child, "netprobe"), 10, "netprobe runs")
        os.kill(child, signal.SIGSTOP)
        out, _ = p.communicate(timeout=25)
    finally:
        p.kill()
    doc = json.loads(out)
    assert p.returncode == 1 and 9 < time.monotonic() - begin < 20
    assert [(c["check"], c["state"], c["cause"]) for c in doc["checks"]][:2] == [("ask", "fail", "timeout"),
                                                                                 ("configuration", "skipped", "")]
    wait_for(lambda: not proc.alive(child), 5, "the process that checks is gone")


def test_clock_in_1970(site):
    clock = Clock(site.dir)
    clock.set(-time.time())
    r = doctor(site, env={**clock.env, "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0"})
    r.says("clock", "warn", "clock-implausible")


# ---- proxy ----

def test_proxy_of_the_environment(site, proxy):
    r = doctor(site, env={"https_proxy": f"http://127.0.0.1:{proxy.port}"})
    assert "none" in r.says("proxy", "ok")["detail"], "a loopback hub is not reached through the environment's proxy"
    configure(site, proxy=f"http://user:c4nary@127.0.0.1:{proxy.port}")
    p = doctor(site, text=True)
    assert "c4nary" not in p.stdout and "with user and password" in p.stdout
    r = doctor(site)
    assert r["proxy"]["detail"].endswith("from [hub] proxy")


def scripted(answer):
    sock = socket.create_server(("127.0.0.1", 0))

    def main():
        while True:
            try:
                conn, _ = sock.accept()
            except OSError:
                return
            conn.recv(4096)
            conn.sendall(answer)
            conn.close()
    threading.Thread(target=main, daemon=True).start()
    return sock, sock.getsockname()[1]


@pytest.mark.parametrize("answer,cause", [(b"HTTP/1.1 407 Auth\r\nProxy-Authenticate: Basic realm=x\r\n\r\n", "proxy-auth"),
                                          (b"HTTP/1.1 403 Forbidden\r\n\r\n", "proxy"), (b"nonsense\r\n\r\n", "proxy")])
def test_proxy_refuses(site, answer, cause):
    sock, port = scripted(answer)
    configure(site, proxy=f"http://127.0.0.1:{port}")
    r = doctor(site)
    r.says("proxy-connect", "fail", cause)
    r.says("connect", "ok")
    sock.close()


# ---- what the daemons say ----

@contextlib.contextmanager
def status_of(site, **fields):
    """connectd says this."""
    daemon = FakeDaemon(site.run, "connectd", answers={fd.STATUS: fd.net_status(**fields)})
    yield daemon
    daemon.close()


@pytest.mark.parametrize("cause", ["http-401", "token-spent", "credential-unreadable"])
def test_identity_by_status(site, cause):
    with status_of(site, link=9, cause=cause, detail="so it is"):
        r = doctor(site)
    assert r.says("authentication", "fail", cause)["detail"] == "so it is"


def test_a_device_that_was_revoked_has_failed(site):
    """The hub said goodbye for good; a goodbye with a return is none of identity."""
    for link, state, cause in ((10, "fail", "hub-bye"), (9, "skipped", "")):
        with status_of(site, link=link, cause="hub-bye", detail="credential revoked; enroll again"):
            assert "credential revoked" in doctor(site).says("authentication", state, cause)["detail"]


def test_network_cause_is_not_blamed_on_identity(site):
    with status_of(site, link=9, cause="refused", detail="the hub refused"):
        doctor(site).says("authentication", "skipped")


# ---- who may see what ----

@pytest.mark.root
def test_as_an_ordinary_user(site):
    _credential(site)
    for path in (site.dir, os.path.join(site.dir, "d"), site.state):
        os.chmod(path, 0o755)
    nobody = pwd.getpwnam("nobody").pw_uid
    r = doctor(site, user=nobody)
    assert "root" in r.says("credential", "skipped")["detail"]
    r.says("config-connectd", "ok")
    r.says("upgrade", "ok")


def test_no_secret_anywhere(site, hub):
    """B81: a canary in every place that may hold one, and every way it could be written."""
    _credential(site, text=json.dumps({"server": hub.url(), "agent_id": "ag_1", "credential": "canary-credential"}))
    configure(site, proxy="http://canary-user:canary-password@127.0.0.1:1", token_file=os.path.join(site.dir, "canary-token-dir", "t"))
    os.mkdir(os.path.join(site.dir, "canary-token-dir"))
    with open(os.path.join(site.dir, "canary-token-dir", "t"), "w", encoding="ascii") as f:
        f.write("clet1.canary-token")
    for text in (doctor(site, text=True).stdout, json.dumps(doctor(site).doc)):
        for canary in ("canary-credential", "canary-user", "canary-password", "clet1.", "Y2FuYXJ5LXVzZXI6Y2FuYXJ5LXBhc3N3b3Jk"):
            assert canary not in text


def test_nothing_is_changed(site):
    _credential(site, text="damaged")

    def listing():
        found = {}
        for where, dirs, names in os.walk(site.dir):
            for n in dirs + names:
                st = os.lstat(os.path.join(where, n))
                found[os.path.join(where, n)] = (st.st_mode, st.st_uid, st.st_size, st.st_mtime_ns, st.st_ino)
        return found
    before = listing()
    doctor(site)
    assert listing() == before


# ---- support bundle ----

def bundle(site, name="b.tar", rc=0, env=None):
    path = os.path.join(site.dir, name)
    p = subprocess.run([exe("edgectl"), "-r", site.run, "support", "bundle", path], capture_output=True, text=True, timeout=60,
                       env={**ENV, **(env or {})}, check=False)
    assert p.returncode == rc and "Sanitizer" not in p.stderr, p
    return path, p


def linked(site):
    """As run-foreground leaves it: the run directory leads to the configuration."""
    os.symlink(site.conf_file, os.path.join(site.run, "edgeward.conf"))
    os.symlink(site.policy_file, os.path.join(site.run, "policy.conf"))


def test_bundle(site):
    linked(site)
    path, p = bundle(site)
    st = os.stat(path)
    assert st.st_mode & 0o777 == 0o600 and path in p.stdout
    with tarfile.open(path) as tar:
        members = {m.name.removeprefix("edgeward-support/"): m for m in tar.getmembers()}
        text = {n: tar.extractfile(m).read().decode() for n, m in members.items()}
    assert set(text) == {"doctor.json", "status.json", "versions.json", "kernel.txt", "os-release", "edgeward.conf", "policy.conf",
                         "units.txt", "journal.txt"}
    assert all(m.isreg() and m.mode == 0o600 and abs(m.mtime - time.time()) < 3600 for m in members.values())
    assert json.loads(text["doctor.json"])["checks"] and json.loads(text["status.json"])["healthy"] is False
    assert json.loads(text["versions.json"])["connectd"] is None
    assert f"url = {site.hub.url()}" in text["edgeward.conf"] and "[work]" in text["edgeward.conf"]
    subprocess.run(["tar", "-tf", path], check=True, capture_output=True)


def test_bundle_is_never_written_over_another_file(site):
    linked(site)
    path, _ = bundle(site)
    before = open(path, "rb").read()
    assert "exists" in bundle(site, rc=1)[1].stderr
    assert open(path, "rb").read() == before
    os.symlink(os.path.join(site.dir, "elsewhere"), os.path.join(site.dir, "link.tar"))
    bundle(site, "link.tar", rc=1)
    assert not os.path.exists(os.path.join(site.dir, "elsewhere"))


def test_no_secret_in_a_bundle(site):
    """B81: canaries in the credential, the token, the proxy's address, comments, unknown and harmless keys; no form of them leaves."""
    linked(site)
    secrets = {"credential": "canary-credential-1", "user": "canary-user-2", "password": "canary-password-3",
               "comment": "canary-comment-4", "unknown": "canary-unknown-5", "env": "canary-env-6", "label": "canary-label-7"}
    _credential(site, text=json.dumps({"server": site.hub.url(), "agent_id": "ag_1", "credential": secrets["credential"]}))
    configure(site, proxy=f"http://{secrets['user']}:{secrets['password']}@127.0.0.1:1")
    site.conf["device"].update(labels=f"password={secrets['label']}", name=secrets["credential"])
    site.conf["link"]["mistake"] = secrets["unknown"]
    site.write_conf()
    with open(site.conf_file, "a", encoding="ascii") as f:
        f.write(f"# {secrets['comment']} clet1.canary-token-8\n")
    path, _ = bundle(site, env={"https_proxy": f"http://u:{secrets['env']}@127.0.0.1:2"})
    raw = open(path, "rb").read()
    pair = f"{secrets['user']}:{secrets['password']}"
    for s in [*secrets.values(), "canary-token", pair]:
        for form in (s.encode(), base64.b64encode(s.encode())[:len(s) // 3 * 4], s.encode().hex().encode(),
                     urllib.parse.quote(s, safe="").encode()):
            assert form not in raw, s


def test_usage(site):
    for args in (["-x"], ["more"]):
        p = subprocess.run([exe("edgectl"), "doctor", *args], capture_output=True, text=True, env=ENV, check=False)
        assert p.returncode == 2 and "usage: edgectl" in p.stderr
