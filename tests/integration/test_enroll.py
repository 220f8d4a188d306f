"""Enrollment and identity (protocol reference 14.1, section 2).

Where it could go wrong: connectd/cred.c and statefile.c (what is on disk), enrollment in connectd's session code (which
secret is used when, when the token file goes), connectd/backoff.c (what is tried again).
"""
import base64
import json
import os
import stat
import time

import pytest

from lib import proc
from lib.agent import is_root
from lib.fakehub import PATH
from lib.fakehub import http_answer
from lib.proc import wait_for
from lib.status import link, link_cause

pytestmark = pytest.mark.timeout(60)


def load(a):
    with open(a.credential_file, encoding="utf-8") as f:
        return json.load(f)


def test_first_hello_and_stored_credential(device, hub):
    s = hub.session()
    assert s.hello["agent_id"] == ""
    caps = s.hello["capabilities"]
    assert caps["os"] == "linux" and caps["cpus"] >= 1 and caps["max_concurrent"] == 8
    assert caps["workdir_root"] == device.root and caps["memory_mb"] > 0
    cred = wait_for(lambda: os.path.exists(device.credential_file) and load(device), 5, "credential file")
    assert cred["credential"] in hub.credentials and cred["agent_id"] == s.agent_id
    assert cred["server"] == hub.url()
    mode = os.stat(device.credential_file)
    assert stat.S_IMODE(mode.st_mode) == 0o600
    if is_root():
        assert mode.st_uid == device.net_uid
    wait_for(lambda: not os.path.exists(device.token_file), 5, "the token file is removed")


def test_later_connections_use_the_credential(device, hub):
    first = hub.session()
    hub.cut()
    second = hub.session(after=first)
    assert second.bearer in hub.credentials and second.hello["agent_id"] == first.agent_id
    assert list(hub.tokens.values()) == ["spent"]


def test_identity_survives_a_restart_of_everything(device, hub):
    first = hub.session()
    before = wait_for(lambda: os.path.exists(device.credential_file) and load(device), 5, "credential file")
    assert device.stop() == []
    device.start()
    second = hub.session(after=first)
    assert second.hello["agent_id"] == first.agent_id and load(device) == before


def test_a_loose_mode_is_warned_about(device, hub):
    assert device.stop() == []
    os.chmod(device.credential_file, 0o644)
    device.start()
    hub.session(after=hub.sessions[0])
    lines = [x for x in device.log_text().splitlines() if "credential" in x and ("mode" in x or "permission" in x)]
    assert lines, device.log_tail()


def test_neither_token_nor_credential(agent, hub):
    a = agent(token=False)
    wait_for(lambda: link(a) == "unenrolled", 10, "status unenrolled")
    assert "enroll" in a.ctl("status").out
    assert hub.accepts == []


def test_token_refused_is_retried_and_named(agent, hub):
    a = agent(token="clet1.AAAAAAAAAAAAAAAA.B.C")
    hub.wait("two attempts", lambda: len(hub.requests) >= 2, 20)
    assert all(r.bearer == "clet1.AAAAAAAAAAAAAAAA.B.C" for r in hub.requests)
    wait_for(lambda: link_cause(a) == "token-refused", 5, "cause token-refused")
    assert os.path.exists(a.token_file), "the token file goes only after a success"


def test_token_is_spent_when_the_welcome_never_came(agent, hub):
    """15.19: the hub spends the token at the upgrade. Do not hammer it with a token that can only be refused."""
    hub.b.upgraded = "fin"
    a = agent()
    hub.wait("first attempt", lambda: hub.requests, 10)
    wait_for(lambda: link_cause(a) == "token-spent", 10, "told so")
    hub.b.upgraded = None
    count = len(hub.requests)
    time.sleep(3)               # nothing must happen: it can only be waited out
    assert len(hub.requests) == count, "a spent token is tried again"
    a.give_token(hub.token())   # an operator's new token in the file is the way out
    a.ctl("reconnect")
    hub.session()


def test_credential_that_cannot_be_stored(agent, hub):
    """The session has failed, the token file stays, and the text says that a new token is needed."""
    if not is_root():
        pytest.skip("skipped: needs root")
    a = agent(start=False)
    hub.b.tcp = "rst"
    a.start()
    state = os.path.join(a.state, "connectd")
    os.chmod(state, 0o500)
    hub.b.tcp = None
    hub.wait("a hello", lambda: any(s.hello for s in hub.sessions), 20)
    hub.wait("end of that session", lambda: not hub.sessions[0].alive, 10)
    assert os.path.exists(a.token_file)
    wait_for(lambda: "token" in a.ctl("status").out, 5, "status says what to do")
    assert not os.path.exists(a.credential_file)


def test_hello_refused_unauthorized_stops_for_good(agent, hub):
    hub.b.on_hello = lambda s, p: [{"v": 1, "type": "error", "id": "hello",
                                    "payload": {"code": "unauthorized", "message": "identity mismatch"}}]
    a = agent()
    hub.wait("the hello", lambda: hub.sessions and hub.sessions[0].hello, 10)
    wait_for(lambda: link(a) == "stopped", 10, "stopped")
    count = len(hub.accepts)
    time.sleep(2)               # the absence of attempts
    assert len(hub.accepts) == count


def test_version_unsupported_stops_for_good(agent, hub):
    hub.b.on_hello = lambda s, p: [{"v": 1, "type": "error", "id": "hello",
                                    "payload": {"code": "version_unsupported", "message": "too old"}}]
    a = agent()
    wait_for(lambda: link(a) == "stopped", 10, "stopped")


def test_handshake_error_of_another_code_is_retried(agent, hub):
    agent()
    first = hub.session()
    hub.b.on_hello = lambda s, p: [{"v": 1, "type": "error", "id": "hello", "payload": {"code": "busy", "message": "x"}}]
    first.cut()
    hub.wait("two more hellos", lambda: len([s for s in hub.sessions if s.hello]) >= 3, 20)
    hub.b.on_hello = None
    hub.session(after=first)


def test_welcome_without_credential_while_enrolling(agent, hub):
    """Enrollment without a credential is no enrollment: nothing may be stored and nothing deleted."""
    hub.b.issue_credential = False
    a = agent()
    hub.wait("the session ends", lambda: hub.sessions and not hub.sessions[0].alive, 15)
    assert not os.path.exists(a.credential_file)


@pytest.mark.parametrize("bad", ["", "x" * 600, "clac1.with\nnewline", "clac1.with space", 7, None, {}])
def test_welcome_with_a_credential_that_cannot_be_one(agent, hub, bad):
    hub.b.welcome = lambda p: {**p, "credential": bad}
    a = agent()
    hub.wait("the session ends", lambda: hub.sessions and not hub.sessions[0].alive, 15)
    assert not os.path.exists(a.credential_file)


def test_revoked_device_keeps_state_and_slows_down(device, hub):
    """15.17: 401 again and again leads to long waits and a visible state, not to hammering; nothing is deleted."""
    hub.revoke()
    hub.cut()
    wait_for(lambda: link_cause(device) == "http-401", 10, "cause http-401")
    assert os.path.exists(device.credential_file)
    detail = device.ctl("status").json["connectd"]["detail"]
    assert "get a token at the hub" in detail and "edgectl enroll --replace --token-file" in detail
    hub.wait("a few refusals", lambda: len(hub.requests) >= 4, 30)
    status = wait_for(lambda: (j := device.ctl("status").json)["connectd"]["next_retry_ms"] > 1000 and j, 20,
                      "a wait that became long")
    assert status


def bundle(hub, token, pin=None, **more):
    obj = {"server": hub.url(), "token": token, **({"pin": pin} if pin else {}), **more}
    return "cloopenroll1." + base64.urlsafe_b64encode(json.dumps(obj).encode()).rstrip(b"=").decode()


def test_bundle_by_edgectl(agent, hub, leaf):
    a = agent(token=False)
    del a.conf["hub"]["url"]
    text = bundle(hub, hub.token(), leaf.pin, enrollment_id="x", name="edge-1", expires_at="2099-01-01T00:00:00Z")
    got = a.enroll(text)
    assert got.rc == 0, got
    hub.session()
    cred = wait_for(lambda: os.path.exists(a.credential_file) and load(a), 5, "credential file")
    assert cred["pin"] == leaf.pin and cred["server"] == hub.url()


def test_token_by_edgectl(agent, hub):
    a = agent(token=False)
    got = a.enroll(hub.token())
    assert got.rc == 0, got
    s = hub.session()
    assert s.agent_id in got.out


def test_a_wrong_pin_by_edgectl_does_not_blame_the_configuration(agent, hub):
    """Neither in the answer nor in the status: the pin came with the command. Afterwards the device is what it was."""
    a = agent(token=False)
    got = a.enroll(hub.token(), "--pin", "sha256:" + "A" * 43 + "=")
    assert got.rc == 1 and "tls-pin" in got.err and "enroll again" in got.err and "[hub] pin" not in got.err, got
    assert "[hub] pin" not in a.ctl("status", json_out=False).out
    wait_for(lambda: link_cause(a) == "unenrolled", 10, "cause unenrolled")
    assert "edgehub token create" in a.ctl("status", json_out=False).out


@pytest.mark.parametrize("text", ["", "x", "clet1.", "cloopenroll1.", "cloopenroll1.!!!!", "cloopenroll1.e30",
                                  "cloopenroll1." + base64.urlsafe_b64encode(b'{"server":"wss://x/"}').decode().rstrip("="),
                                  "clac1.AAAAAAAAAAAAAAAA.B.C", "cloopenroll1." + "A" * 500])
def test_bad_tokens_by_edgectl(agent, hub, text):
    a = agent(token=False)
    got = a.enroll(text)
    assert got.rc in (1, 2), got
    assert got.err.strip() or got.out.strip()
    assert hub.sessions == []
    if len(text) > 20:
        assert text not in got.err + got.out


def test_edgectl_enroll_does_not_replace_an_identity_by_itself(device, hub):
    before = wait_for(lambda: os.path.exists(device.credential_file) and load(device), 5, "credential file")
    got = device.enroll(hub.token())
    assert got.rc == 1 and load(device) == before


def test_path_of_the_endpoint(device, hub):
    assert hub.requests[0].target == PATH
    assert proc.alive(device.pid("connectd"))


def test_http_500_body_is_not_trusted(agent, hub):
    hub.b.http = http_answer(500, "\x1b[31m<html>" + "x" * 3000, ctype="text/html")
    a = agent()
    wait_for(lambda: link_cause(a) == "http-5xx", 10, "cause http-5xx")
    assert "\x1b" not in a.ctl("status", json_out=False).out and "\x1b" not in a.log_text()


@pytest.mark.root
def test_b78_identity_is_the_stored_key(agent, net, nethub):
    """What is around the device changes at each start: address of the interface, its name, machine-id, host name. It stays the same device."""
    a = agent(hub=nethub, ns=net.dev, conf={"hub": {"url": f"wss://hub.test:{nethub.port}{PATH}"}})
    a.connected()
    path = a.credential_file
    wait_for(lambda: os.path.exists(path), 10, "the credential is stored")
    first, ids, name = open(path, "rb").read(), {nethub.session().agent_id}, "ew-dev"
    for n in range(6):
        a.crash()
        new = f"ew-n{n}"
        net.dev.sh(f"ip link set {name} down; ip link set {name} address 02:00:00:00:{n:02x}:01 name {new}; ip link set {new} up; "
                   f"ip addr add 10.77.0.2/24 dev {new} 2>/dev/null || true; echo {n:032x} > /etc/machine-id; echo h{n} > /etc/hostname")
        name, before = new, len(nethub.sessions)
        a.start()
        nethub.wait("it is back", lambda b=before: len(nethub.sessions) > b and nethub.sessions[-1].alive, 30)
        ids.add(nethub.session().agent_id)
    assert len(ids) == 1 and open(path, "rb").read() == first
