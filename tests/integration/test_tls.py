"""TLS, pins and plaintext (protocol reference 14.3, 1.4) and the clock floor (B26, B28).

Where it could go wrong: connectd's TLS context and verification (netenv.c, tls code), the pin check (must be in addition
to the chain and the name, never instead), the plaintext rule (URL parser), configuration check at start (-n).
"""
import datetime as dt
import os
import ssl
import subprocess
import tempfile
import time

import pytest

from lib import proc
from lib.agent import exe
from lib.certs import CA, DEFAULT_NAMES
from lib.clockshim import Clock
from lib.fakehub import FakeHub
from lib.proc import wait_for
from lib.status import link, link_cause

pytestmark = pytest.mark.timeout(60)
UTC = dt.timezone.utc


def refused(a, hub, cause):
    """The dial fails with that cause, no HTTP request was ever sent, and it is tried again."""
    wait_for(lambda: link_cause(a) == cause, 15, lambda: f"cause {cause}, is {link_cause(a)}{a.log_tail()}")
    assert hub.requests == [], "a secret was sent to a hub that was not verified"
    hub.wait("another attempt", lambda: len(hub.accepts) >= 2, 15)
    assert proc.alive(a.pid("connectd"))


def test_good_certificate_and_pin(agent, hub, leaf):
    agent(conf={"hub": {"pin": leaf.pin}})
    hub.session()


@pytest.mark.parametrize("form", ["urlsafe", "bare", "unpadded", "two", "spaces"])
def test_pin_forms(agent, hub, leaf, form):
    b64 = leaf.pin[7:]
    other = "A" * 43 + "="
    pin = {"urlsafe": "sha256:" + b64.replace("+", "-").replace("/", "_"), "bare": b64, "unpadded": b64.rstrip("="),
           "two": f"sha256:{other},{leaf.pin}", "spaces": f"sha256:{other} {b64}"}[form]
    agent(conf={"hub": {"pin": pin}})
    hub.session()


def test_pin_mismatch(agent, hub):
    a = agent(conf={"hub": {"pin": "sha256:" + "A" * 43 + "="}})
    refused(a, hub, "tls-pin")


def test_rotation_of_the_key(agent, hub, ca, leaf):
    """Two pins stage it; a key that no pin names is refused."""
    new, third = ca.leaf(), ca.leaf()
    agent(conf={"hub": {"pin": f"{leaf.pin},{new.pin}"}})
    first = hub.session()
    hub.set_leaf(new)
    hub.cut()
    second = hub.session(after=first)
    hub.set_leaf(third)
    hub.cut()
    hub.wait("a refusal", lambda: hub.handshakes and hub.handshakes[-1] is not None or len(hub.accepts) >= 4, 15)
    assert hub.current is second


def test_pin_does_not_replace_the_chain(agent, hub, tmp_path):
    """A matching pin on a certificate of an unknown CA is worth nothing."""
    stranger = CA(str(tmp_path / "other"), "Stranger").leaf()
    hub.set_leaf(stranger)
    a = agent(conf={"hub": {"pin": stranger.pin}})
    refused(a, hub, "tls-untrusted")


def test_pin_does_not_replace_the_name(agent, hub, ca):
    wrong = ca.leaf(names=("other.test",))
    hub.set_leaf(wrong)
    a = agent(conf={"hub": {"pin": wrong.pin}})
    refused(a, hub, "tls-name")


def test_unknown_ca(agent, hub, tmp_path):
    hub.set_leaf(CA(str(tmp_path / "other"), "Stranger").leaf())
    refused(agent(), hub, "tls-untrusted")


def test_without_ca_file_only_the_system_is_trusted(agent, hub):
    a = agent(start=False)
    del a.conf["hub"]["ca-file"]
    a.write_conf()
    a.start()
    refused(a, hub, "tls-untrusted")


def test_wrong_name(agent, hub, ca):
    hub.set_leaf(ca.leaf(names=("other.test", "*.localhost", "10.1.2.3", "fd00::1")))
    a = agent()
    refused(a, hub, "tls-name")
    assert "not for localhost but for other.test, *.localhost, 10.1.2.3, fd00::1" in a.ctl("status").json["connectd"]["detail"]


def test_wrong_name_of_a_certificate_full_of_names(agent, hub, ca):
    """What is told of them is bounded."""
    hub.set_leaf(ca.leaf(names=[f"{'n' * 50}{i}.test" for i in range(40)]))
    a = agent()
    refused(a, hub, "tls-name")
    detail = a.ctl("status").json["connectd"]["detail"]
    assert f"but for {'n' * 50}0.test, ...: one of" in detail and len(detail) < 200


def test_address_must_be_in_the_certificate(agent, hub, ca):
    hub.set_leaf(ca.leaf(names=("localhost",)))
    a = agent(conf={"hub": {"url": hub.url("127.0.0.1")}})
    refused(a, hub, "tls-name")


def test_expired(agent, hub, ca):
    hub.set_leaf(ca.leaf(before=dt.datetime(2020, 1, 1, tzinfo=UTC), after=dt.datetime(2021, 1, 1, tzinfo=UTC)))
    refused(agent(), hub, "tls-expired")


def test_not_yet_valid(agent, hub, ca):
    now = dt.datetime.now(UTC)
    hub.set_leaf(ca.leaf(before=now + dt.timedelta(days=2), after=now + dt.timedelta(days=30)))
    refused(agent(), hub, "tls-not-yet-valid")


@pytest.mark.parametrize("version,works", [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True),
                                           (ssl.TLSVersion.TLSv1_3, True)])
@pytest.mark.parametrize("pinned", [False, True])
def test_versions(agent, hub, leaf, version, works, pinned):
    hub.ctx.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    hub.ctx.maximum_version = version
    if version == ssl.TLSVersion.TLSv1_1:
        hub.ctx.set_ciphers("ALL:@SECLEVEL=0")
    a = agent(conf={"hub": {"pin": leaf.pin}} if pinned else {})
    if works:
        hub.session()
    else:
        refused(a, hub, "tls")


@pytest.mark.parametrize("what", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 100, b"\x16\x03\x01\xff\xff" + b"x" * 70000,
                                  "fin"])
def test_something_else_on_the_port(agent, hub, what):
    hub.b.tls = what
    a = agent()
    hub.wait("two attempts", lambda: len(hub.accepts) >= 2, 15)
    assert link_cause(a) in ("tls", "lost", "refused")


def test_b12_silent_tls_ends_at_the_limit(agent, hub):
    hub.b.tls = "hang"
    a = agent(conf={"link": {"connect-timeout": "1s"}})
    hub.wait("two attempts", lambda: len(hub.accepts) >= 2, 15)
    wait_for(lambda: link_cause(a) == "timeout", 5, "cause timeout")
    assert 0.9 < hub.accepts[1] - hub.accepts[0] < 4


def check_conf(a, *args):
    p = subprocess.run([exe("connectd"), "-n", "-c", a.conf_file, "-p", a.policy_file, *args], capture_output=True,
                       text=True, check=False, timeout=20)
    return p.returncode, p.stderr


@pytest.mark.parametrize("hub_conf", [
    {"url": "ws://hub.example/x"}, {"url": "http://192.0.2.1/x"}, {"url": "ws://127.0.0.1.example.com/"},
    {"url": "ws://localhost.example.com/"}, {"url": "ws://[::2]/"}, {"url": "ws://[[::1]]/"},
    {"url": "ws://127.0.0.1/", "pin": "sha256:" + "A" * 43 + "="},
    {"url": "wss://h/", "pin": "sha256:AAAA"}, {"url": "wss://h/", "pin": "sha1:AAAA"}, {"url": "wss://h/", "pin": ","},
    {"url": "wss://h/", "pin": "sha256:" + "A" * 44 + "="}, {"url": "ftp://h/"}, {"url": "wss://"}, {"url": "h"},
    {"url": "wss://user:pw@h/"}, {"url": "wss://h:0/"}, {"url": "wss://h:65536/"}, {"url": "wss://h/ x"},
    {"url": "wss://h/", "ca-file": "/nonexistent.pem"}, {"url": "wss://h/", "proxy": "gopher://p"},
    {"url": "wss://h/", "insecure-transport": "maybe"}, {"url": "wss://h/", "nonsense": "1"},
])
def test_bad_configuration_is_fatal_at_start(agent, hub, hub_conf):
    a = agent(start=False, token=False)
    a.conf["hub"] = hub_conf
    a.write_conf()
    rc, err = check_conf(a)
    assert rc == 1 and err.strip(), (rc, err)
    assert len(err.strip().splitlines()) == 1, err


@pytest.mark.parametrize("url", ["ws://localhost:1/x", "ws://a.localhost:1/x", "ws://127.0.0.1:1/", "http://127.9.9.9:1/",
                                 "ws://[::1]:1/", "wss://hub.example/", "https://hub.example:8443/a/b"])
def test_good_urls(agent, hub, url):
    a = agent(start=False, token=False)
    a.conf["hub"] = {"url": url}
    a.write_conf()
    assert check_conf(a) == (0, "")


def test_plaintext_to_loopback(agent):
    plain = FakeHub(None).listen()
    agent(hub=plain)
    plain.session()
    plain.stop()
    assert not plain.violations and not plain.errors


@pytest.mark.root
def test_plaintext_beyond_loopback_warns_at_every_dial(agent, net, ca):
    plain = FakeHub(None, host="0.0.0.0", port=8080, netns=net.hub).listen()
    a = agent(hub=plain, ns=net.dev, conf={"hub": {"url": "ws://10.77.0.1:8080/api/executors/connect",
                                                   "insecure-transport": "yes"}})
    first = plain.session()
    plain.cut()
    plain.session(after=first)
    plain.b.tcp = "rst"
    plain.cut()
    plain.wait("attempts that fail", lambda: len(plain.accepts) >= 5, 10)
    plain.stop()

    def warned():
        return [x for x in a.log_text().splitlines() if "insecure" in x or "plaintext" in x or "not encrypted" in x]
    wait_for(lambda: len(warned()) >= 5, 3, lambda: f"{len(warned())} warnings for 5 dials{a.log_tail(40)}")


def test_stored_pin_is_used_after_a_restart(agent, hub, ca, leaf):
    a = agent(conf={"hub": {"pin": leaf.pin}})
    first = hub.session()
    wait_for(lambda: os.path.exists(a.credential_file), 5, "credential file")
    assert a.stop() == []
    del a.conf["hub"]["pin"]
    a.write_conf()
    hub.set_leaf(ca.leaf())
    a.start()
    wait_for(lambda: link_cause(a) == "tls-pin", 15, "the stored pin refuses the new key")
    assert hub.current is first


def test_explicit_pin_wins_and_is_written_back(agent, hub, ca, leaf):
    a = agent(conf={"hub": {"pin": leaf.pin}})
    first = hub.session()
    new = ca.leaf()
    assert a.stop() == []
    a.conf["hub"]["pin"] = new.pin
    a.write_conf()
    hub.set_leaf(new)
    a.start()
    second = hub.session(after=first)
    wait_for(lambda: new.pin in open(a.credential_file, encoding="utf-8").read(), 5, "written back")
    del a.conf["hub"]["pin"]
    assert a.stop() == []
    a.write_conf()
    a.start()
    hub.session(after=second)


# ---- clock ----

YEAR = 365 * 86400


@pytest.fixture
def clock(shared):
    return Clock(tempfile.mkdtemp(dir=shared))


def test_b26_clock_in_1970_touches_no_work(agent, hub, clock):
    """Places: certificate check (connectd), stamps of workloads (workerd), deadlines (all on the boot clock)."""
    a = agent(env=clock.env)
    run = hub.start("echo $$; sleep 1000")
    pid = run.started["pid"]
    first = hub.session()
    hub.b.tcp = "rst"
    first.cut()
    clock.set(-(time.time() - 60))
    wait_for(lambda: a.ctl("status").json["connectd"]["clock_implausible"], 10, "status says so")
    assert proc.alive(pid) and not run.terminal
    hub.b.tcp = None
    hub.session(after=first, timeout=20)
    hub.signal(run, "kill")
    hub.finish(run)


@pytest.mark.parametrize("jump", [-86400, 70 * YEAR, 86400, -1, 1])
def test_b26_b30_clock_steps_while_connected(agent, hub, clock, jump):
    a = agent(env=clock.env)
    s = hub.session()
    run = hub.start("while :; do echo x; sleep 0.1; done")
    hub.wait("output", lambda: run.log.received, 5)
    beats = len(s.beats)
    clock.set(jump)
    hub.wait("more beats", lambda: len(s.beats) >= beats + 4, 10)
    assert s.alive, f"the session ended: {s.end}"
    times = [b[0] for b in s.beats[beats:]]
    assert all(0.3 < y - x < 0.9 for x, y in zip(times, times[1:])), times
    hub.signal(run, "kill")
    hub.finish(run)
    assert a.pid("connectd")


def test_b28_dead_battery_still_connects(agent, hub, clock):
    """1970 at boot, no saved time: the build time is the floor."""
    clock.set(-time.time() + 3600)
    agent(env=clock.env)
    hub.session()


def test_b28_future_clock_without_session_poisons_nothing(agent, hub, clock):
    a = agent(env=clock.env)
    first = hub.session()
    saved = os.path.join(a.state, "connectd", "clock")
    before = open(saved, "rb").read() if os.path.exists(saved) else None
    hub.b.tcp = "rst"
    first.cut()
    clock.set(75 * YEAR)
    hub.wait("attempts", lambda: len(hub.accepts) >= 3, 10)
    clock.set(0)
    hub.b.tcp = None
    hub.session(after=first)
    after = open(saved, "rb").read() if os.path.exists(saved) else None
    assert after == before


def test_b28_expired_before_the_saved_time_is_refused_in_1970(agent, hub, ca, clock):
    a = agent(env=clock.env)
    first = hub.session()
    wait_for(lambda: os.path.exists(os.path.join(a.state, "connectd", "clock")), 10, "a saved time")
    now = dt.datetime.now(UTC)
    hub.set_leaf(ca.leaf(names=DEFAULT_NAMES, before=dt.datetime(1970, 1, 1, tzinfo=UTC), after=now - dt.timedelta(hours=1)))
    clock.set(-time.time() + 3600)
    first.cut()
    wait_for(lambda: link_cause(a) == "tls-expired", 15, "tls-expired")
    assert link(a) != "connected"
