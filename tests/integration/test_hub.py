"""edgehub against a scripted agent: enrollment, sessions, resume, logs, runs. Both dialects where both have the thing."""
import errno
import json
import os
import platform
import random
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from fakeagent import DATA, END, FakeAgent
from lib import proc
from lib.edgehub import EdgeHub
from lib.inject import KILLED, Injector
from lib.proc import wait_for
from lib.xxh3 import xxh3_128

pytestmark = pytest.mark.timeout(120)
BOTH = pytest.mark.parametrize("edgeward", [True, False], ids=["edgeward.1", "cloop"])


def run(hub, agent, *args, channel=2, **kw):
    """Starts a run on the agent: (client process, handle, start payload)."""
    p = hub.popen("run", "dev", *args, "--", *kw.pop("argv", ["true"]))
    start = agent.take_start(channel=channel, **kw)
    return p, start["handle_id"], start


def output(p, timeout=20):
    out, err = p.communicate(timeout=timeout)
    return out, err.decode(), p.returncode


# ---- harnesses ----

@BOTH
def test_harnesses_of_a_device(edgehub, edgeward):
    """The list is asked anew; an installation is told as it went, and what the device can do now is stored."""
    a = FakeAgent.enroll(edgehub, edgeward=edgeward)

    def answer(want, kind, payload):
        frame = a.expect(want)
        a.send(kind, payload, id=frame["id"])
        return frame["payload"]
    p = edgehub.popen("-j", "harness", "list", "dev")
    answer("inventory_req", "inventory", {"capabilities": {"harnesses": ["claude", "x; rm", "codex", 7]}})
    out, _, code = output(p)
    assert code == 0 and json.loads(out) == {"connected": True, "harnesses": ["claude", "codex"]}

    p = edgehub.popen("harness", "install", "dev", "gemini")
    asked = answer("install_harness", "harness_installed", {"installed": True, "harness": "gemini", "path": "/w/\x1b[31mgemini", "version": "1.2"})
    assert asked == {"harness": "gemini", "reason": "operator"}
    answer("inventory_req", "inventory", {"capabilities": {"harnesses": ["gemini"], "os": "linux"}})
    out, err, code = output(p)
    assert (code, out, err) == (0, b"installed: /w/?[31mgemini, 1.2\n", "")
    wait_for(lambda: edgehub.json("devices")[0]["capabilities"] == {"harnesses": ["gemini"], "os": "linux"}, 5, "the hub knows")

    p = edgehub.popen("harness", "install", "dev", "codex")
    answer("install_harness", "harness_installed", {"installed": False, "reason": "no installer\nis known"})
    out, err, code = output(p)
    assert (code, out) == (1, b"") and err == "edgehub: not installed: no installer\nis known\n"

    p = edgehub.popen("harness", "install", "dev", "codex")
    a.expect("install_harness")
    a.cut()
    out, err, code = output(p)
    assert code == 1 and err, "nobody waits for a device that is gone"
    out, err, code = output(edgehub.popen("harness", "list", "dev"))
    assert (code, out) == (0, b"gemini\n") and "not connected" in err
    for bad in (["install", "dev", "../x"], ["install", "dev"], ["list"], ["lits", "dev"], []):
        assert output(edgehub.popen("harness", *bad))[2] == 2, bad


# ---- enrollment and identity ----

def test_one_of_eight_concurrent_redeems_wins(edgehub):
    token = edgehub.token("--name", "edge-1")
    results, barrier = [], threading.Barrier(8)

    def redeem():
        barrier.wait()
        agent = FakeAgent(edgehub, token)
        results.append(agent.rejected or agent.hello()["executor_id"])
    threads = [threading.Thread(target=redeem) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(r == 401 for r in results) == [False] + [True] * 7
    devices = edgehub.json("devices")
    assert [d["name"] for d in devices] == ["edge-1"] and devices[0]["id"] in results


def test_bad_tokens_look_all_the_same(edgehub):
    good = edgehub.token()
    expired = edgehub.token("--ttl", "1s")
    credential = FakeAgent.enroll(edgehub).credential
    time.sleep(1.1)
    tampered = good[:-1] + ("0" if good[-1] != "0" else "1")
    for bearer in (expired, tampered, "clet1.x.y.z", "garbage", credential[:-1] + "g", good.replace("clet1", "clac1")):
        assert FakeAgent(edgehub, bearer).rejected == 401, bearer
    # A tampered copy has not spent the genuine one.
    assert FakeAgent(edgehub, good).hello()["credential"].startswith("clac1.")
    assert FakeAgent(edgehub, good).rejected == 401


def test_revoked_device_is_told_and_stays_out(edgehub):
    agent = FakeAgent.enroll(edgehub)
    edgehub.cli("revoke", "dev")
    bye = agent.expect("bye")
    assert bye["payload"]["reconnect"] is False and agent.gone()[0] == 1000
    assert FakeAgent(edgehub, agent.credential, agent.agent_id).rejected == 401
    assert [d["state"] for d in edgehub.json("devices", "--all")] == ["revoked"] and edgehub.json("devices") == []
    assert edgehub.cli("devices") == b"" and b"devices --all" in edgehub.last.stderr and b"revoked" in edgehub.cli("devices", "--all")
    edgehub.cli("run", "dev", "--", "true", rc=125)
    assert b"was revoked" in edgehub.last.stderr
    edgehub.cli("revoke", "nobody", rc=1)


@BOTH
@pytest.mark.parametrize("there", [True, False], ids=["connected", "away"])
def test_runs_of_a_revoked_device_are_lost(edgehub, edgeward, there):
    """Whoever waits for one is told; none stays open for ever."""
    agent = FakeAgent.enroll(edgehub, edgeward)
    p, handle, _ = run(edgehub, agent)
    if not there:
        agent.cut()
        wait_for(lambda: edgehub.json("devices")[0]["state"] == "offline", 10, "it is away")
    edgehub.cli("revoke", "dev")
    _, err, rc = output(p)
    assert rc == 122 and "revoked" in err, (rc, err)
    assert edgehub.json("runs", "--open") == [] and edgehub.run_info(handle)["state"] == "lost"


def test_revoked_token(edgehub):
    fresh, used = edgehub.token("--name", "a"), edgehub.token("--name", "b")
    agent = FakeAgent(edgehub, used)
    agent.credential = agent.hello()["credential"]
    tokens = {t["name"]: t for t in edgehub.json("token", "list")}
    assert (tokens["a"]["state"], tokens["b"]["state"], tokens["b"]["device"]) == ("open", "used", agent.agent_id)
    assert used not in edgehub.cli("token", "list").decode() and fresh.split(".")[2] not in json.dumps(tokens)
    for t in tokens.values():
        edgehub.cli("token", "revoke", t["id"])
    assert FakeAgent(edgehub, fresh).rejected == 401
    assert agent.expect("bye")["payload"]["reconnect"] is False
    assert FakeAgent(edgehub, agent.credential, agent.agent_id).rejected == 401
    edgehub.cli("token", "revoke", "nothing", rc=1)


def test_finished_runs_are_removed_in_time(edgehub):
    edgehub.options += ["-k", "1s"]
    edgehub.restart()
    agent = FakeAgent.enroll(edgehub)
    p, done, _ = run(edgehub, agent)
    agent.data(2, 0, b"abc")
    agent.finish(done, b"abc")
    output(p)
    p, going, _ = run(edgehub, agent, channel=4)
    agent.data(4, 0, b"def")
    agent.beat_wait(1, [going])
    time.sleep(1.5)
    edgehub.restart()
    agent = agent.again([agent.offer(going, 3, 6)])
    wait_for(lambda: [r["handle"] for r in edgehub.json("runs")] == [going], 10, "one run is left")
    assert os.listdir(os.path.join(edgehub.data, "logs")) == ["w." + going]
    agent.finish(going, b"def", channel=6)
    assert output(p)[::2] == (b"def", 0)


def test_identity_mismatch_is_refused(edgehub):
    a, b = FakeAgent.enroll(edgehub, name="a"), FakeAgent.enroll(edgehub, name="b")
    c = FakeAgent(edgehub, a.credential, b.agent_id)
    c.send("hello", {"protocol_version": 1, "agent_id": b.agent_id, "capabilities": {}}, id="hello")
    error = c.expect("error")
    assert error["payload"]["code"] == "unauthorized" and error["id"] == "hello"
    c.gone()
    # Nobody was thrown out.
    a.beat_wait(1)
    b.beat_wait(1)
    enrolling = FakeAgent(edgehub, edgehub.token(), agent_id="somebody")
    enrolling.send("hello", {"protocol_version": 1, "agent_id": "somebody", "capabilities": {}}, id="hello")
    assert enrolling.expect("error")["payload"]["code"] == "unauthorized"


@pytest.mark.parametrize("says,gets", [(1, 1), (2, 1), (99, 1), (0, None), (-5, None)])
def test_version_negotiation(edgehub, says, gets):
    agent = FakeAgent(edgehub, edgehub.token())
    agent.send("hello", {"protocol_version": says, "agent_id": "", "capabilities": {}}, id="hello")
    if gets is None:
        assert agent.expect("error")["payload"]["code"] == "version_unsupported"
        agent.gone()
    else:
        assert agent.expect("welcome")["payload"]["protocol_version"] == gets


def http(hub, text):
    ctx = ssl.create_default_context(cafile=hub.ca)
    with ctx.wrap_socket(socket.create_connection(("127.0.0.1", hub.port), 5), server_hostname="localhost") as s:
        s.sendall(text.encode())
        data = b""
        while piece := s.recv(4096):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body, head.decode()


UPGRADE = ("Host: hub.example:8443\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
PATH = "/api/executors/connect"


@pytest.mark.parametrize("target,headers,status,body", [
    (PATH, UPGRADE, 401, {"error": "missing bearer token"}),
    (PATH, UPGRADE + "Authorization: Basic eDp5\r\n", 401, {"error": "missing bearer token"}),
    (PATH, UPGRADE + "Authorization: bearer x\r\n", 401, {"error": "missing bearer token"}),
    (PATH, UPGRADE + "Authorization: Bearer x\r\n", 401, {"error": "unauthorized"}),
    (PATH, UPGRADE + "Origin: https://evil.example\r\n", 403, None),
    (PATH, UPGRADE + "Origin: https://hub.example.evil\r\n", 403, None),
    (PATH, UPGRADE + "Origin: https://evil-hub.example\r\n", 403, None),
    (PATH, UPGRADE + "Origin: null\r\n", 403, None),
    (PATH, UPGRADE + "Origin: https://hub.example/\r\n", 403, None),
    (PATH, UPGRADE + "Origin: https://hub.example\r\n", 401, None),
    (PATH, UPGRADE + "Origin: http://localhost:3000\r\n", 401, None),
    (PATH, UPGRADE + "Origin: http://127.0.0.1.evil.example\r\n", 403, None),
    ("/", UPGRADE, 404, None),
    (PATH + "x", UPGRADE, 404, None),
    (PATH + "?token=clet1", UPGRADE, 401, {"error": "missing bearer token"}),
    (PATH, "Host: x\r\n", 426, None),
    (PATH, UPGRADE.replace("13", "8"), 426, None),
    (PATH, UPGRADE.replace("dGhl", "dGh"), 400, None),
    (PATH, UPGRADE + "Broken\r\n", 400, None),
    (PATH, "X: " + "a" * 20000 + "\r\n", 431, None),
])
def test_http_answers(edgehub, target, headers, status, body):
    got, text, head = http(edgehub, f"GET {target} HTTP/1.1\r\n{headers}\r\n")
    assert got == status and "application/json" in head
    assert body is None or json.loads(text) == body
    assert "error" in json.loads(text)


def test_tls_floor_and_own_certificate(edgehub, tmp_path):
    ctx = ssl.create_default_context(cafile=edgehub.ca)
    ctx.maximum_version = ssl.TLSVersion.TLSv1_2
    with ctx.wrap_socket(socket.create_connection(("127.0.0.1", edgehub.port), 5), server_hostname="127.0.0.1") as s:
        assert "ECDHE" in s.cipher()[0]
    ctx.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    ctx.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(OSError):
        ctx.wrap_socket(socket.create_connection(("127.0.0.1", edgehub.port), 5), server_hostname="localhost")
    # The pin survives a restart and a new name; keys are nobody else's.
    pin = edgehub.pin
    edgehub.options += ["-n", "hub.example"]
    edgehub.restart()
    assert edgehub.pin == pin
    ctx = ssl.create_default_context(cafile=edgehub.ca)
    with ctx.wrap_socket(socket.create_connection(("127.0.0.1", edgehub.port), 5), server_hostname="hub.example"):
        pass
    for name, mode in (("ca.key", 0o600), ("server.key", 0o600), ("hub.key", 0o600), ("hub.db", 0o600),
                       ("ca.pem", 0o644), ("admin.sock", 0o600)):
        assert os.stat(os.path.join(edgehub.data, name)).st_mode & 0o777 == mode, name
    # A certificate of the operator's own; a chain file with a key that does not fit is refused in one line.
    other = EdgeHub("-C", os.path.join(edgehub.data, "server.pem"), "-K", os.path.join(edgehub.data, "server.key")).start()
    assert other.pin == pin and other.stop() == []
    other.options = ["-C", os.path.join(edgehub.data, "server.pem"), "-K", os.path.join(edgehub.data, "ca.key")]
    other.start(expect=1)
    assert "server.pem" in other.tail(1) or "ca.key" in other.tail(1)
    other.remove()


@BOTH
def test_a_name_that_is_taken_is_said_before_it_is_given_again(edgehub, edgeward):
    agent = FakeAgent.enroll(edgehub, edgeward, name="press")
    assert edgehub.token("--name", "press").startswith("clet1.")    # a token all the same: it may replace the old one
    assert f"edgehub revoke {agent.agent_id}".encode() in edgehub.last.stderr
    edgehub.token("--name", "pres")
    assert edgehub.last.stderr == b""
    edgehub.cli("revoke", "press")
    edgehub.token("--name", "press")
    assert edgehub.last.stderr == b""


# ---- runs and their logs ----

@BOTH
@pytest.mark.parametrize("state,code,more,expect", [
    ("exited", 0, {}, 0), ("exited", 7, {}, 7), ("exited", 255, {}, 255),
    ("killed", -1, {"error": "signal: terminated"}, 143), ("killed", -1, {"signal": 11, "outcome": "signalled"}, 139),
    ("killed", -1, {"signal": 9, "outcome": "timeout"}, 124), ("failed", -1, {"outcome": "lost"}, 122),
    ("failed", 3, {"error": "no such file"}, 3), ("killed", -1, {"outcome": "limit", "limit": "memory", "signal": 9}, 137),
])
def test_run_exit_codes(edgehub, edgeward, state, code, more, expect):
    agent = FakeAgent.enroll(edgehub, edgeward)
    p, handle, _ = run(edgehub, agent)
    agent.finish(handle, b"", code=code, state=state, **dict(more))
    out, err, rc = output(p)
    assert (out, rc) == (b"", expect), err


@BOTH
def test_run_refused(edgehub, edgeward):
    agent = FakeAgent.enroll(edgehub, edgeward)
    p, handle, _ = run(edgehub, agent, answer=False)
    agent.refuse(handle, "no container engine here", "unsupported")
    out, err, rc = output(p)
    assert rc == 123 and "no container engine here" in err
    p, handle, _ = run(edgehub, agent, answer=False)
    agent.send("error", {"code": "busy", "message": "4 of 4 workloads held"}, id=agent.start_id)
    out, err, rc = output(p)
    assert rc == 123 and "4 of 4" in err and "busy" in err
    assert {r["state"] for r in edgehub.json("runs")} == {"refused"}


def test_run_not_started(edgehub):
    agent = FakeAgent.enroll(edgehub)
    agent.cut()
    wait_for(lambda: edgehub.json("devices")[0]["state"] == "offline", 10, "offline")
    edgehub.cli("run", "dev", "--", "true", rc=125)
    assert b"not connected" in edgehub.last.stderr
    edgehub.cli("run", "nope", "--", "true", rc=125)
    edgehub.cli("run", rc=125)
    edgehub.cli("run", "dev", "--env", "novalue", "--", "true", rc=125)
    edgehub.cli("run", "dev", "--", b"\xff", rc=125)
    edgehub.cli("logs", "nope", rc=1)
    edgehub.cli("signal", "nope", rc=1)
    edgehub.cli("bogus", rc=2)
    edgehub.cli("-S", edgehub.dir + "/nobody.sock", "status", rc=4)
    assert edgehub.json("runs") == []


def test_two_devices_of_one_name(edgehub):
    """The sentence that refuses is the same wherever a device is named: it has both ids; the old one that was revoked does not count."""
    old, new = FakeAgent.enroll(edgehub), FakeAgent.enroll(edgehub)
    old.cut()
    wait_for(lambda: sorted(d["state"] for d in edgehub.json("devices")) == ["connected", "offline"], 10, "one is away")
    said = set()
    for args in (["run", "dev", "--", "true"], ["runs", "dev"], ["revoke", "dev"], ["services", "dev"], ["harness", "list", "dev"], ["upgrade", "dev"],
                 ["cp", "dev:h/x", "/tmp/none"], ["ssh-proxy", "dev"], ["shell", "dev"]):
        p = subprocess.run(edgehub.argv(*args), capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
        assert p.returncode != 0, args
        said.add(p.stderr)
    assert len(said) == 1, said
    text = said.pop()
    assert f"{old.agent_id} (offline)" in text and f"{new.agent_id} (connected)" in text and "edgehub revoke" in text
    edgehub.cli("revoke", old.agent_id)
    p, handle, _ = run(edgehub, new)
    new.finish(handle, b"")
    assert output(p)[2] == 0
    assert [d["id"] for d in edgehub.json("devices")] == [new.agent_id]
    assert {d["id"] for d in edgehub.json("devices", "--all")} == {old.agent_id, new.agent_id}


def test_who_follows_is_told_that_the_device_is_away(edgehub):
    """run and logs -f say it, and when it is back; not in JSON; Ctrl-C says that nothing was sent, SIGTERM leaves."""
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    logs, quiet, left = edgehub.popen("logs", handle, "-f"), edgehub.popen("-j", "logs", handle, "-f"), edgehub.popen("run", "dev", "--", "true")
    other = agent.take_start(channel=4)["handle_id"]
    wait_for(lambda: len([r for r in edgehub.json("runs", "--open") if r["device_connected"]]) == 2, 10, "both run")
    agent.cut()
    lines = [p.stderr.readline().decode(), logs.stderr.readline().decode()]
    for line in lines:
        assert "dev is away, last heard" in line and "waiting for it" in line and "edgehub revoke" in line, line
    assert "Ctrl-C does not reach it" in lines[0] and "Ctrl-C leaves it alone" in lines[1]
    assert [r["device_connected"] for r in edgehub.json("runs", "--open")] == [False, False]
    assert edgehub.cli("runs").count(b" away ") == 2
    p.send_signal(signal.SIGINT)
    assert "the device is away, nothing was sent" in p.stderr.readline().decode()
    assert "dev is away" in left.stderr.readline().decode()
    left.send_signal(signal.SIGTERM)
    out, err, rc = output(left)
    assert rc == 121 and f"edgehub logs {other} -f" in err
    agent = agent.again(resume=[agent.offer(handle, 0, 2), agent.offer(other, 0, 4)])
    assert p.stderr.readline().decode() == "edgehub: dev is back\n"
    agent.data(2, 0, b"done\n")
    agent.finish(handle, b"done\n")
    for client, rc in ((p, 0), (logs, 0), (quiet, 0)):
        out, err, code = output(client)
        assert (out, code) == (b"done\n", rc), err
        assert "away" not in err or client is not quiet


def test_who_follows_is_told_that_the_device_is_silent(edgehub):
    """Nothing heard for more than a heartbeat, while the connection stands: told long before the hub gives it up; output tells that it is back."""
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    begun = time.monotonic()
    line = p.stderr.readline().decode()
    assert "dev is silent, last heard" in line and "Ctrl-C does not reach it" in line and time.monotonic() - begun < 40
    assert edgehub.json("devices")[0]["state"] == "connected"
    agent.data(2, 0, b"x")
    agent.finish(handle, b"x")
    out, err, rc = output(p)
    assert (out, rc) == (b"x", 0)


@BOTH
def test_spec_as_sent(edgehub, edgeward):
    agent = FakeAgent.enroll(edgehub, edgeward)
    p, handle, start = run(edgehub, agent, "--workdir", "src", "--env", "A=1", "--env", "B=x y", "--timeout", "90s",
                           argv=["sh", "-c", "echo \"ä\" 'q' \\ \n", ""])
    assert start["spec"]["argv"] == ["sh", "-c", "echo \"ä\" 'q' \\ \n", ""]
    assert start["spec"]["work_dir"] == "src" and start["spec"]["timeout_minutes"] == 2
    assert start["spec"]["labels"] == {"edgeward.timeout": "90"}
    assert start["spec"]["env"][:2] == ["A=1", "B=x y"] and any(e.startswith("PATH=") for e in start["spec"]["env"])
    agent.finish(handle, b"")
    assert output(p)[2] == 0
    p, handle, start = run(edgehub, agent)
    assert "env" not in start["spec"] and "timeout_minutes" not in start["spec"] and "labels" not in start["spec"]
    agent.finish(handle, b"")
    assert output(p)[2] == 0
    # More than one record of the admin socket carries.
    big = [c * 100000 for c in "xyz"]
    p, handle, start = run(edgehub, agent, argv=["true"] + big)
    assert start["spec"]["argv"][1:] == big
    agent.finish(handle, b"")
    assert output(p)[2] == 0
    assert edgehub.json("runs")[0]["command"].startswith("true")


def test_an_environment_leaves_every_file_once_the_device_has_it(edgehub):
    """B80: neither the database nor its write-ahead log keeps it, and other runs do."""
    agent = FakeAgent.enroll(edgehub)
    p = edgehub.popen("run", "dev", "--env", "TOKEN=canary-4711-canary", "--", "true")
    handle = agent.take_start(answer=False)["handle_id"]

    def kept():
        return [name for name in os.listdir(edgehub.data) if os.path.isfile(os.path.join(edgehub.data, name)) and
                b"canary-4711" in open(os.path.join(edgehub.data, name), "rb").read()]
    assert kept(), "this test does not see it even while it must be there"
    agent.send("started", {"handle_id": handle, "pid": 1, "started_at": "0001-01-01T00:00:00Z"}, handle, agent.start_id)
    wait_for(lambda: not kept(), 10, lambda: f"still in {kept()}")
    agent.finish(handle, b"")
    assert output(p)[2] == 0 and edgehub.run_info(handle)["state"] == "exited"


def test_an_ack_asked_for_while_bytes_are_flushed_covers_all_of_them(edgehub):
    """Two heartbeats at once: the bytes before the second come while those before the first are on their way to the disk."""
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    sent = 0
    for seq in range(1, 41):
        agent.binary(DATA, 2, sent, b"0123456789")
        sent += 10
        agent.beat(seq, [handle])
        if seq % 2 == 0:
            agent.until(lambda: agent.acks.get(handle) == sent)     # with no further heartbeat
    agent.finish(handle, b"0123456789" * 40)
    assert output(p)[2] == 0


def test_a_restart_asks_devices_back_in_a_time_that_fits_their_number(edgehub):
    agents = [FakeAgent.enroll(edgehub)]
    edgehub.proc.terminate()
    bye = agents[0].expect("bye")["payload"]
    assert bye["reconnect"] is True and 0 < bye["retry_from_ms"] < bye["retry_to_ms"] <= 1000
    assert edgehub.proc.wait(10) == 0
    edgehub.start()
    agents = [FakeAgent.enroll(edgehub, name=f"d{n}") for n in range(30)]
    edgehub.proc.terminate()
    assert 2000 <= agents[0].expect("bye")["payload"]["retry_to_ms"] <= 4000
    assert edgehub.proc.wait(10) == 0
    edgehub.start()


def test_listens_on_a_name():
    h = EdgeHub(host="localhost").start()
    try:
        assert h.url.startswith("wss://localhost:")
        FakeAgent.enroll(h)
    finally:
        assert h.stop() == []
    bad = EdgeHub(host="no-such-name.invalid").start(expect=1)
    assert "no address of that name" in bad.tail()
    bad.stop()


@pytest.mark.root
@pytest.mark.skipif(platform.machine() != "x86_64", reason="skipped: registers of x86-64 only")
def test_the_hub_is_confined(edgehub):
    """No capability, a filter over all its threads, its own files alone; B129: nobody looks into it."""
    FakeAgent.enroll(edgehub)
    tasks = os.listdir(f"/proc/{edgehub.proc.pid}/task")
    assert len(tasks) == 3
    for task in tasks:
        st = proc.status(f"{edgehub.proc.pid}/task/{task}")
        assert (st["Seccomp"], st["NoNewPrivs"]) == ("2", "1")
        assert not any(int(st[k], 16) for k in ("CapInh", "CapPrm", "CapEff", "CapAmb"))
    with Injector(edgehub.proc.pid) as inj:
        for path in (b"/etc/passwd", b"/root", b"/dev/null"):
            assert inj.call("openat", 2**64 - 100, path, os.O_RDONLY, 0) == -errno.EACCES, path
    with Injector(edgehub.proc.pid) as inj:
        assert inj.call("execve", b"/bin/true", 0, 0) == KILLED
    edgehub.restart()


@BOTH
def test_output_streams_and_signals_go_through(edgehub, edgeward):
    agent = FakeAgent.enroll(edgehub, edgeward)
    p, handle, _ = run(edgehub, agent)
    text = "first ä line\n".encode()
    if edgeward:
        agent.data(2, 0, text)
    else:
        agent.chunk(handle, 0, text.decode())
    assert p.stdout.read(len(text)) == text      # before the end
    for signo, name in ((signal.SIGINT, "interrupt"), (signal.SIGINT, "terminate"), (signal.SIGINT, "kill")):
        p.send_signal(signo)
        sig = agent.expect("signal")
        assert sig["handle"] == handle and sig["payload"]["signal"] == name
        agent.status(handle, "running", id=sig["id"])
    agent.finish(handle, text, state="killed", code=-1, signal=9)
    assert output(p)[2] == 137
    assert edgehub.cli("logs", handle) == text


@BOTH
def test_overlap_duplicate_and_gap(edgehub, edgeward):
    agent = FakeAgent.enroll(edgehub, edgeward)
    p, handle, _ = run(edgehub, agent)

    def put(offset, data):
        if edgeward:
            agent.data(2, offset, data)
        else:
            agent.chunk(handle, offset, data.decode())
    put(0, b"0123456789")
    put(0, b"0123456789")       # duplicate
    put(5, b"XXXXXabc")         # overlap: what is known stays
    put(3, b"YY")
    if edgeward:
        agent.gap(2, 13, 20)
        agent.gap(2, 13, 20)
    put(20, b"after")
    for seq in range(1, 5):     # a beat may find a sync under way that began before the last bytes came: the next one tells
        agent.beat_wait(seq, [handle])
        if agent.acks[handle] == 25:
            break
    assert agent.acks[handle] == 25
    agent.finish(handle, b"0" * 25)
    out, err, rc = output(p)
    assert out == b"0123456789abcafter" and rc == 0 and "bytes 13 to 20 of the log are lost" in err
    assert "[13,20)" in err
    r = edgehub.run_info(handle)
    assert (r["log_verify"], r["log_gapped"], r["log_bytes"], r["log_gaps"]) == ("gap", True, 25, 1)
    # From an offset in the gap, before and behind it.
    assert edgehub.cli("logs", handle, "--from", "12") == b"cafter"
    assert edgehub.cli("logs", handle, "--from", "15") == b"after"
    assert edgehub.cli("logs", handle, "--from", "22") == b"ter"
    assert edgehub.cli("logs", handle, "--from", "99999") == b""
    assert edgehub.cli("logs", "verify", handle, rc=3) == b"gap\n"
    doc = json.loads(edgehub.cli("-j", "logs", "verify", handle, rc=3))
    assert doc["result"] == "gap" and [(g["from"], g["to"]) for g in doc["gaps"]] == [(13, 20)] and doc["gap_count"] == 1


def test_jump_without_gap_resets_the_channel(edgehub):
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    agent.data(2, 0, b"abc")
    agent.binary(DATA, 2, 10, b"jump")
    agent.until(lambda: agent.resets.get(2) == 1)
    # The session lives, the run too; a new session sends the rest.
    agent.beat_wait(1, [handle])
    agent.cut()
    agent = agent.again([agent.offer(handle, 6, 4)])
    assert agent.welcome["resume_accepted"] == [{"handle_id": handle, "from_offset": 3, "action": "continue"}]
    agent.data(4, 3, b"def")
    agent.finish(handle, b"abcdef", channel=4)
    out, err, rc = output(p)
    assert (out, rc) == (b"abcdef", 0) and edgehub.run_info(handle)["log_verify"] == "verified"


def test_window_is_held(edgehub):
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    block = bytes(65536)
    for i in range(4):
        agent.binary(DATA, 2, i * 65536, block)
    agent.until(lambda: agent.window.get(2, 0) > 262144)
    limit = agent.window[2]
    agent.binary(DATA, 2, 262144, block)
    agent.beat_wait(1, [handle])
    agent.binary(DATA, 2, agent.window[2] - 65535, block)
    agent.until(lambda: 2 in agent.resets)
    assert agent.resets[2] == 2 and limit >= 512 * 1024


@BOTH
def test_digest_and_final_offset(edgehub, edgeward):
    agent = FakeAgent.enroll(edgehub, edgeward)
    data = bytes(range(256)) * 3 if edgeward else "ä€😀 text\n".encode() * 20

    def one(final, digest, channel):
        p, handle, _ = run(edgehub, agent, channel=channel)
        if edgeward:
            agent.data(channel, 0, data)
            agent.end(channel, len(data), data)
            agent.status(handle, final=final, digest=digest, outcome="exited")
        else:
            agent.chunk(handle, 0, data.decode())
            agent.status(handle, final=final, digest=digest)
        out, err, rc = output(p)
        assert (out, rc) == (data, 0)
        return edgehub.run_info(handle)["log_verify"], err
    good = xxh3_128(data)
    if edgeward:
        assert one(len(data), good, 2)[0] == "verified"
        assert one(len(data) + 5, good, 6)[0] == "gap"
    else:
        assert one(len(data), None, 2)[0] == "unverified"
        assert one(len(data) + 5, None, 2)[0] == "gap"


def test_digest_mismatch(edgehub):
    agent = FakeAgent.enroll(edgehub)
    for size in (100, 3 << 20):         # compared in the loop, and in the thread
        channel = 2 if size == 100 else 4
        p, handle, _ = run(edgehub, agent, channel=channel)
        data = os.urandom(size)
        reader = threading.Thread(target=lambda p=p: output(p))
        agent.data(channel, 0, data)
        agent.end(channel, size, data[:-1] + b"?")
        agent.status(handle, final=size, outcome="exited")
        reader.start()
        reader.join()
        assert edgehub.wait_run(handle, lambda r: r["log_verify"] != "unverified")["log_verify"] == "mismatch"
        assert edgehub.cli("logs", "verify", handle, rc=1) == b"mismatch\n"
        assert edgehub.cli("logs", handle) == data


def test_verify_reads_the_stored_log_again(edgehub):
    """What happened to the file after the run had ended is noticed; a running one and one without a digest prove nothing."""
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    data = os.urandom(200_000)
    agent.data(2, 0, data)
    assert edgehub.cli("logs", "verify", handle, rc=3) == b"unverified\n"
    agent.end(2, len(data), data)
    agent.status(handle, final=len(data), outcome="exited")
    output(p)
    assert edgehub.cli("logs", "verify", handle, rc=0) == b"verified\n"
    doc = json.loads(edgehub.cli("-j", "logs", "verify", handle))
    assert doc["result"] == "verified" and doc["device_xxh3"] == doc["stored_xxh3"] and doc["bytes"] == len(data)
    path = next(os.path.join(d, f) for d, _, fs in os.walk(edgehub.dir) for f in fs if f == f"w.{handle}")
    with open(path, "r+b") as f:
        f.seek(77_777)
        f.write(bytes([data[77_777] ^ 1]))
    assert edgehub.cli("logs", "verify", handle, rc=1) == b"mismatch\n"
    os.truncate(path, 1000)
    assert edgehub.cli("logs", "verify", handle, rc=1) == b"mismatch\n"
    assert edgehub.run_info(handle)["log_verify"] == "verified", "what was found at the end stays as it was"
    edgehub.cli("logs", "verify", "nobody", rc=1)
    edgehub.cli("logs", "verify", rc=2)
    edgehub.cli("logs", "verify", handle, "-f", rc=2)


def test_end_must_fit(edgehub):
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    agent.data(2, 0, b"abc")
    agent.binary(END, 2, 9)
    agent.until(lambda: agent.resets.get(2) == 1)
    agent.status(handle, final=3)
    assert output(p)[2] == 0


def test_detached_run_and_follower(edgehub):
    agent = FakeAgent.enroll(edgehub)
    p = edgehub.popen("run", "dev", "--detach", "--", "true")
    handle = agent.take_start()["handle_id"]
    assert output(p) == (f"{handle}\n".encode(), "", 0)
    follower = edgehub.popen("logs", "-f", handle[:6])
    agent.data(2, 0, b"one ")
    assert follower.stdout.read(4) == b"one "
    assert edgehub.cli("logs", handle) == b"one "        # without -f it does not wait
    agent.data(2, 4, b"two")
    agent.finish(handle, b"one two")
    assert output(follower)[::2] == (b"two", 0)
    r = edgehub.run_info(handle)
    assert (r["state"], r["exit_code"], r["log_verify"]) == ("exited", 0, "verified")


def test_slow_reader_costs_nothing(edgehub):
    agent = FakeAgent.enroll(edgehub)
    data = os.urandom(8 << 20)
    r, w = os.pipe()
    p = edgehub.popen("run", "dev", "--", "true", stdout=w)
    os.close(w)
    handle = agent.take_start()["handle_id"]
    agent.data(2, 0, data)              # the reader takes nothing, the device is not held up
    agent.finish(handle, data)
    agent.beat_wait(1, [handle])
    assert edgehub.run_info(handle)["state"] == "exited"
    got = b""
    while piece := os.read(r, 1 << 20):
        got += piece
    os.close(r)
    assert got == data and p.wait(20) == 0


def test_quit_leaves_the_run_alone(edgehub):
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    agent.data(2, 0, b"x")
    assert p.stdout.read(1) == b"x"     # so it has heard of its run, too: before, it could only leave without a handle
    p.send_signal(signal.SIGQUIT)
    out, err, rc = output(p)
    assert rc == 121 and handle in err
    agent.cut()
    # A signal for a device that is away says so.
    wait_for(lambda: edgehub.json("devices")[0]["state"] == "offline", 10, "offline")
    edgehub.cli("signal", handle, "KILL", rc=1)
    assert b"not connected" in edgehub.last.stderr
    q = edgehub.popen("logs", "-f", handle)
    time.sleep(0.3)
    q.send_signal(signal.SIGINT)
    assert output(q)[2] in (130, -2)
    assert edgehub.run_info(handle)["state"] == "running"


def test_signals_while_the_hub_is_away(edgehub):
    """Nothing is sent, and nothing is told as sent; whoever ends the machine does not wait for us."""
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    agent.data(2, 0, b"x")
    assert p.stdout.read(1) == b"x"
    edgehub.kill9()
    assert b"waiting for it" in p.stderr.readline()
    p.send_signal(signal.SIGINT)
    assert b"nothing was sent" in p.stderr.readline()
    p.send_signal(signal.SIGTERM)
    out, err, rc = output(p)
    assert rc == 121 and f"edgehub logs {handle} -f" in err
    edgehub.start()


def test_a_signal_behind_dashes_is_the_one_that_was_named(edgehub):
    """A handle that begins with '-' must stand behind --. To a run that has ended no signal goes, and that is said."""
    agent = FakeAgent.enroll(edgehub)
    p, handle, start = run(edgehub, agent)
    for args, name in (((handle,), "terminate"), ((handle, "KILL"), "kill"), (("--", handle, "INT"), "interrupt"), (("--", handle), "terminate")):
        q = edgehub.popen("signal", *args)
        sig = agent.expect("signal")
        assert sig["handle"] == handle and sig["payload"]["signal"] == name, args
        agent.status(handle, "running", id=sig["id"])
        assert output(q)[2] == 0
    agent.finish(handle, b"")
    output(p)
    edgehub.cli("signal", handle, "KILL")
    assert b"it has ended already" in edgehub.last.stderr


def test_hub_timeout_ends_a_run(edgehub):
    agent = FakeAgent.enroll(edgehub)
    p, handle, start = run(edgehub, agent, "--timeout", "1s")
    sig = agent.expect("signal", timeout=5)
    assert sig["payload"]["signal"] == "terminate" and sig["handle"] == handle
    agent.status(handle, "running", id=sig["id"])
    agent.finish(handle, b"", state="killed", code=-1, signal=15, outcome="cancelled")
    out, err, rc = output(p)
    assert rc == 124 and "timeout" in err


# ---- sessions ----

@BOTH
def test_missing_handle_in_a_heartbeat(edgehub, edgeward):
    agent = FakeAgent.enroll(edgehub, edgeward)
    p, handle, _ = run(edgehub, agent)
    q = edgehub.popen("run", "dev", "--", "later")
    pending = agent.take_start(answer=False)["handle_id"]
    agent.beat_wait(1, [handle])        # a start that is not answered yet is exempt
    assert edgehub.run_info(pending)["state"] == "pending"
    agent.beat_wait(2, [])
    out, err, rc = output(p)
    assert rc == 122 and "lost" in err
    assert edgehub.run_info(handle)["log_verify"] == "lost"
    edgehub.cli("logs", "verify", handle, rc=3)
    assert b"the device lost the run" in edgehub.last.stderr
    assert edgehub.run_info(handle)["state"] == "lost" and edgehub.run_info(pending)["state"] == "pending"
    # Final is final, and what is offered later is told to stop.
    agent.finish(handle, b"")
    agent.beat_wait(3, [])
    assert edgehub.run_info(handle)["state"] == "lost"
    agent.cut()
    agent = agent.again([agent.offer(handle, 0, 2)])
    verdict = agent.welcome["resume_accepted"][0]
    assert verdict["action"] == "terminate" and verdict["reason"]
    q.kill()


@BOTH
def test_offers_nobody_knows(edgehub, edgeward):
    a = FakeAgent.enroll(edgehub, edgeward, name="dev")
    b = FakeAgent.enroll(edgehub, edgeward, name="other")
    _, handle, _ = run(edgehub, a)
    b.cut()
    offers = [b.offer(f"invented-{i}", 5, 2 * i + 2) for i in range(4096)] + [b.offer(handle, 0)]
    b = b.again(offers)
    verdicts = b.welcome["resume_accepted"]
    assert len(verdicts) == 256 and all(v["action"] == "terminate" and v["reason"] for v in verdicts)
    assert edgehub.run_info(handle)["state"] == "running"


@BOTH
def test_b15_newest_session_wins(edgehub, edgeward):
    """B15: connections of one device overlap; the late end of an old one must not touch the new one."""
    agents = [FakeAgent.enroll(edgehub, edgeward)]
    for _ in range(20):
        agents.append(agents[-1].again())
    for old in agents[:-1]:
        code, reason = old.gone()
        assert reason == "superseded"
    devices = edgehub.json("devices")
    assert len(devices) == 1 and devices[0]["state"] == "connected" and devices[0]["epoch"] == 21
    p, handle, _ = run(edgehub, agents[-1])
    for old in agents[:-1]:
        old.cut()
    agents[-1].finish(handle, b"")
    assert output(p)[2] == 0
    assert edgehub.json("devices")[0]["state"] == "connected"
    with open(edgehub.log) as f:
        text = f.read()
    assert text.rindex("connected from") > text.rindex(": disconnected")


@BOTH
def test_b17_every_session_has_all_its_parts(edgehub, edgeward):
    """B17: what belongs to a session is made anew in each; 60 reconnects, each with a run, a signal and an ack."""
    agent = FakeAgent.enroll(edgehub, edgeward)
    for i in range(60):
        p, handle, _ = run(edgehub, agent)
        data = b"x" * 40000
        if edgeward:
            agent.data(2, 0, data)
        else:
            agent.chunk(handle, 0, data[:30000].decode())
            agent.chunk(handle, 30000, data[30000:].decode())
        agent.until(lambda h=handle: agent.acks.get(h) == len(data))
        p.send_signal(signal.SIGTERM)
        sig = agent.expect("signal")
        agent.status(handle, "running", id=sig["id"])
        agent.finish(handle, data, code=i % 7)
        assert output(p)[::2] == (data, i % 7)
        agent.cut()
        agent = agent.again()
    assert edgehub.json("status")["connections"] <= 3


def test_a_signal_before_the_hub_has_answered_the_start(edgehub):
    """At any moment of the asking: either nothing was started, or the signal follows the start. No run is left that nobody watches."""
    agent, followed = FakeAgent.enroll(edgehub), 0
    for i in range(60):
        p = edgehub.popen("run", "dev", "--", "true")
        time.sleep(i % 20 * 0.002)
        p.send_signal(signal.SIGTERM)
        if not agent.quiet("start", 0.3 if p.poll() is None else 0.1):
            handle = agent.take_start()["handle_id"]
            assert agent.expect("signal")["payload"]["signal"] == "terminate"
            agent.finish(handle, b"", code=3)
            assert output(p)[2] == 3
            followed += 1
        else:
            assert output(p)[2] in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert followed > 0


@BOTH
@pytest.mark.parametrize("order", ["before", "twice", "after final"])
def test_b54_orders_of_start_answers(edgehub, edgeward, order):
    """B54: answers that come early, twice or late: each run ends once, with the first final word."""
    agent = FakeAgent.enroll(edgehub, edgeward)
    p = edgehub.popen("run", "dev", "--", "true")
    handle = agent.take_start(answer=order == "twice")["handle_id"]
    if order == "twice":
        agent.send("started", {"handle_id": handle, "pid": 1, "started_at": "0001-01-01T00:00:00Z"}, handle, agent.start_id)
        agent.finish(handle, b"", code=3)
    else:
        if edgeward:
            agent.send("log_open", {"handle": handle, "channel": 2}, handle)
        agent.finish(handle, b"", code=3)
        agent.send("started", {"handle_id": handle, "pid": 1, "started_at": "2026-01-01T00:00:00Z"}, handle, agent.start_id)
    agent.status(handle, "killed", -1)
    agent.status(handle, "running")
    agent.beat_wait(1, [handle])
    assert output(p)[2] == 3
    assert [(r["state"], r["exit_code"]) for r in edgehub.json("runs")] == [("exited", 3)]


def test_start_is_sent_again_when_the_link_was_cut(edgehub):
    """The device never got it, or got it and its answer was lost: one start, one run."""
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent, answer=False)
    agent.cut()
    agent = agent.again()
    start = agent.take_start()
    assert start["handle_id"] == handle
    agent.cut()
    agent = agent.again([agent.offer(handle, 0, 2)])
    agent.beat_wait(1, [handle])
    assert not any(f["type"] == "start" for f in agent.inbox)
    agent.finish(handle, b"")
    assert output(p)[2] == 0


def test_start_lost_on_cloop_is_not_guessed(edgehub):
    agent = FakeAgent.enroll(edgehub, edgeward=False)
    p, handle, _ = run(edgehub, agent, answer=False)
    agent.cut()
    agent.again()
    assert output(p)[2] == 122


@BOTH
def test_b33_late_repeats_are_quiet(edgehub, edgeward):
    """B33: chunks for what has ended or was never there do not fill the log, and get one clear answer."""
    agent = FakeAgent.enroll(edgehub, edgeward)
    p, handle, _ = run(edgehub, agent)
    agent.finish(handle, b"")
    assert output(p)[2] == 0
    lines = len(open(edgehub.log).readlines())
    for i in range(500):
        if edgeward:
            agent.binary(DATA, 2, i, b"x")
            agent.binary(DATA, 100, i, b"x")
        else:
            agent.chunk(handle, i, "x")
    agent.beat_wait(1, [])
    assert len(open(edgehub.log).readlines()) - lines <= 2
    assert edgehub.cli("logs", handle) == b""
    if edgeward:
        assert agent.resets == {2: 4, 100: 4}
    else:
        agent.chunk("unknown", 0, "x")
        agent.until(lambda: "unknown_handle" in agent.errors)


def test_binary_on_plain_cloop_ends_the_session(edgehub):
    agent = FakeAgent.enroll(edgehub, edgeward=False)
    agent.binary(DATA, 2, 0, b"x")
    assert agent.gone()[0] == 1003


def test_cloop_only_hub():
    hub = EdgeHub("-x", "cloop").start()
    agent = FakeAgent(hub, hub.token(), edgeward=True)
    agent.hello()
    assert agent.edgeward is False
    assert hub.stop() == []
    hub.remove()


@pytest.mark.parametrize("frame", [
    bytes(15), bytes(16), b"\x01\x01" + bytes(14) + b"x", b"\x01\0\0\1" + bytes(12) + b"x", b"\x07" + bytes(3) + b"\0\0\0\2" + bytes(8),
    b"\x01" + bytes(3) + bytes(4) + bytes(8) + b"x", b"\x01" + bytes(3) + b"\0\0\0\2" + bytes(8),
    b"\x01" + bytes(3) + b"\0\0\0\2" + bytes(8) + bytes(65537), b"\x04" + bytes(3) + b"\0\0\0\2" + bytes(8) + bytes(9),
], ids=lambda f: f[:4].hex() + f"-{len(f)}")
def test_malformed_stream_frames(edgehub, frame):
    agent = FakeAgent.enroll(edgehub)
    agent.raw(frame)
    assert agent.gone()[0] == 1002


@pytest.mark.parametrize("text", ["", "[]", "{", '{"v":1}', '{"v":2,"type":"heartbeat"}', '{"v":1,"type":"status"}',
                                  '{"v":1,"type":"status","handle":"../x","payload":{}}', '"' + "x" * 100])
def test_malformed_text_frames(edgehub, text):
    agent = FakeAgent.enroll(edgehub)
    agent.raw(text)
    assert agent.gone()[0] == 1002 and "protocol" in agent.errors


def test_wrong_but_harmless_frames(edgehub):
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    agent.send("no_such_type", {})
    agent.send("hello", {"protocol_version": 1, "agent_id": agent.agent_id, "capabilities": {}})
    agent.send("started", {"pid": "x"}, handle)
    agent.send("status", {"status": {"state": "sleeping"}}, handle)
    agent.send("heartbeat", {"seq": "x"})
    agent.send("log_open", {"handle": handle, "channel": 3})
    agent.send("log_open", {"handle": handle, "channel": 8})
    agent.send("status", {"status": {"state": "exited"}}, "unknown")
    agent.send("inventory", {}, id="c77")
    agent.beat_wait(1, [handle])
    assert agent.errors.count("protocol") == 6 and agent.errors.count("unknown_handle") == 1
    agent.finish(handle, b"")
    assert output(p)[2] == 0


def test_huge_message(edgehub):
    agent = FakeAgent.enroll(edgehub)
    agent.send("heartbeat", {"seq": 1, "pad": "x" * (1 << 20)})
    assert agent.gone()[0] == 1009
    agent = agent.again()
    agent.send("heartbeat", {"seq": 2, "pad": "x" * ((1 << 20) - 200)})
    assert agent.expect("heartbeat_ack")["payload"]["seq"] == 2


def test_messages_in_fragments_and_pings(edgehub):
    from wsproto.events import Ping, TextMessage
    agent = FakeAgent.enroll(edgehub)
    text = json.dumps({"v": 1, "type": "heartbeat", "id": "hb-1", "payload": {"seq": 1}})
    for i, c in enumerate(text):
        agent._out(agent.ws.send(TextMessage(c, message_finished=i == len(text) - 1)))
        if i % 10 == 0:
            agent._out(agent.ws.send(Ping(b"x" * i)))
    assert agent.expect("heartbeat_ack")["id"] == "hb-1"
    # A flood of pings from one that reads nothing is bounded.
    flood = agent.ws.send(Ping(b"y" * 125)) * 200
    agent.sock.settimeout(2)
    try:
        for _ in range(2000):
            agent.sock.sendall(flood)
    except (socket.timeout, OSError):
        pass
    with open(f"/proc/{edgehub.proc.pid}/status") as f:
        rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    assert rss < 400 << 10      # with the sanitizer's own
    edgehub.cli("status")


@pytest.mark.timeout(100)
def test_silence_of_45_seconds(edgehub):
    quiet, beating = FakeAgent.enroll(edgehub, name="dev"), FakeAgent.enroll(edgehub, name="beating")
    p, handle, _ = run(edgehub, quiet)
    t0 = time.monotonic()
    for i in range(6):
        time.sleep(8)
        beating.beat_wait(i)
    states = wait_for(lambda: (d := {d["name"]: d["state"] for d in edgehub.json("devices")})["dev"] == "offline" and d, 10)
    assert states == {"dev": "offline", "beating": "connected"} and 44 < time.monotonic() - t0 < 56
    assert edgehub.run_info(handle)["state"] == "running"
    p.kill()


def test_no_hello(edgehub):
    agent = FakeAgent(edgehub, edgehub.token())
    agent.send("heartbeat", {"seq": 1})
    assert agent.gone()[0] == 1002
    slow = FakeAgent(edgehub, edgehub.token())
    t0 = time.monotonic()
    slow.gone(25)
    assert 12 < time.monotonic() - t0 < 20


# ---- resume and restart ----

@BOTH
def test_resume_from_what_is_durable(edgehub, edgeward):
    agent = FakeAgent.enroll(edgehub, edgeward)
    p, handle, _ = run(edgehub, agent)
    data = b"".join(f"part {i} ".encode() * 1000 for i in range(5))
    at = 0
    for i in range(5):
        piece = data[at:8000 * (i + 1)] if i < 4 else data[at:]
        if edgeward:
            agent.data(2 * i + 2, at, piece)
        else:
            for k in range(0, len(piece), 32768):
                agent.chunk(handle, at + k, piece[k:k + 32768].decode())
        at += len(piece)
        if i % 2:
            agent.beat_wait(i, [handle])
            assert agent.acks[handle] == at
        agent.cut()
        agent = agent.again([agent.offer(handle, at, 2 * i + 4)])
        verdict, = agent.welcome["resume_accepted"]
        assert verdict["action"] == "continue" and verdict["from_offset"] <= at
        if i % 2:
            assert verdict["from_offset"] == at
        at = verdict["from_offset"]
    if edgeward:
        agent.data(12, at, data[at:])
    else:
        agent.chunk(handle, at, data[at:].decode())
    agent.finish(handle, data, channel=12)
    out, _, rc = output(p)
    assert (out, rc) == (data, 0)


@BOTH
def test_hub_killed_mid_stream_loses_no_byte(edgehub, edgeward):
    """kill -9 of the hub again and again: the follower comes back, the log is whole, the run is known."""
    agent = FakeAgent.enroll(edgehub, edgeward)
    rnd = random.Random(7)
    data = b"".join(b"%08d line\n" % i for i in range(200000))
    p, handle, _ = run(edgehub, agent)
    got = []
    reader = threading.Thread(target=lambda: got.append(p.stdout.read()))
    reader.start()
    at, channel, kills, acked = 0, 2, 0, 0
    while at < len(data):
        size = rnd.randrange(1, 60000)
        piece = data[at:at + size] if edgeward else data[at:at + min(size, 32768)]
        try:
            if edgeward:
                agent.data(channel, at, piece)
            else:
                agent.chunk(handle, at, piece.decode())
            at += len(piece)
            acked = max(acked, agent.acks.get(handle, 0))
            cut = kills < 6 and at > len(data) * (kills + 1) // 8
        except (OSError, AssertionError):
            cut = True
        if not cut:
            continue
        kills += 1
        edgehub.restart()
        channel += 2
        agent = agent.again([agent.offer(handle, at, channel)])
        verdict, = agent.welcome["resume_accepted"]
        assert verdict["action"] == "continue" and acked <= verdict["from_offset"] <= at
        at = verdict["from_offset"]
    agent.finish(handle, data, channel=channel)
    reader.join(30)
    assert p.wait(20) == 0 and kills == 6
    assert got[0] == data
    assert edgehub.cli("logs", handle) == data
    assert edgehub.run_info(handle)["log_verify"] == ("verified" if edgeward else "unverified")


def test_restart_between_end_and_delivery(edgehub):
    """The final status is stored, the ack never came: it is offered again, repeated, ignored, and acknowledged."""
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    agent.data(2, 0, b"abc")
    agent.finish(handle, b"abc", code=5)
    assert output(p)[::2] == (b"abc", 5)
    edgehub.restart()
    agent = agent.again([agent.offer(handle, 3, 2)])
    assert agent.welcome["resume_accepted"] == [{"handle_id": handle, "from_offset": 3, "action": "continue"}]
    agent.finish(handle, b"abc", code=9)
    agent.beat_wait(1, [handle])
    r = edgehub.run_info(handle)
    assert (r["state"], r["exit_code"], r["log_verify"]) == ("exited", 5, "verified")
    assert agent.again().welcome.get("resume_accepted") is None


def test_hub_gone_for_good(edgehub):
    agent = FakeAgent.enroll(edgehub)
    p = edgehub.popen("run", "dev", "--reconnect", "1s", "--", "true")
    agent.take_start()
    wait_for(lambda: edgehub.json("runs")[0]["state"] == "running", 5)
    edgehub.kill9()
    out, err, rc = output(p)
    assert rc == 121 and "did not come back" in err
    edgehub.cli("status", rc=4)
    edgehub.start()


def test_orderly_stop_says_bye(edgehub):
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    edgehub.proc.send_signal(signal.SIGTERM)
    bye = agent.expect("bye")
    assert bye["payload"]["reconnect"] is True and agent.gone()[0] == 1012
    assert edgehub.proc.wait(10) == 0
    edgehub.proc.stdout.close()
    edgehub.start()
    agent = agent.again([agent.offer(handle, 0, 2)])
    agent.finish(handle, b"")
    assert output(p)[2] == 0


def test_second_hub_in_one_directory(edgehub):
    other = EdgeHub()
    other.data = edgehub.data
    other.start(expect=1)
    assert "another edgehub" in other.tail(1)
    edgehub.cli("status")
    other.remove()


def test_b36_bytes_and_code_points(edgehub):
    """B36: all byte values on edgeward.1; code points cut at every chunk edge on cloop; both exact at the hub."""
    agent = FakeAgent.enroll(edgehub)
    p, handle, _ = run(edgehub, agent)
    data = bytes(range(256)) * 256
    agent.data(2, 0, data)
    agent.finish(handle, data)
    assert output(p)[::2] == (data, 0)
    agent.cut()
    agent = agent.again(edgeward=False)
    text = "aä€😀\0\x01\x7f\u2028" * 300
    p, handle, _ = run(edgehub, agent)
    at = 0
    for c in text:
        agent.chunk(handle, at, c)
        at += len(c.encode())
    agent.finish(handle, text.encode())
    assert output(p)[::2] == (text.encode(), 0)


def test_full_disk_ends_the_session_and_keeps_the_bytes(tmp_path):
    """The hub cannot write: nothing is acknowledged, nothing is lost; the device sends it again later."""
    if os.geteuid() != 0:
        pytest.skip("skipped: needs root for a small file system")
    hub = EdgeHub()
    os.makedirs(hub.data)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", hub.data], check=True)
    try:
        hub.start()
        agent = FakeAgent.enroll(hub)
        p, handle, _ = run(hub, agent)
        data = os.urandom(3 << 20)
        filler = os.path.join(hub.data, "filler")
        with open(filler, "wb") as f:
            f.write(bytes(2 << 20))
        with pytest.raises((AssertionError, OSError)):
            agent.data(2, 0, data)
            agent.beat_wait(1, [handle])
        acked = agent.acks.get(handle, 0)
        assert acked < len(data)
        os.unlink(filler)
        agent = agent.again([agent.offer(handle, len(data), 4)])
        at = agent.welcome["resume_accepted"][0]["from_offset"]
        assert at >= acked
        agent.data(4, at, data[at:])
        agent.finish(handle, data, channel=4)
        out, err, rc = output(p)
        assert rc == 0 and out == data, err
        assert hub.stop() == []
    finally:
        subprocess.run(["umount", "-l", hub.data], check=True)
    hub.remove()
