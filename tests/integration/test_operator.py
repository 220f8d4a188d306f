"""edgectl: answers in 200 ms whatever is broken, says which process is down, documented exit codes (issue 2, point 6).

Where it could go wrong: edgectl's merge of two answers and its deadlines, the control sockets of connectd and workerd
(permissions, a client that hangs, a flood of clients).
"""
import json
import os
import signal
import socket
import subprocess

import pytest

from lib import proc
from lib.agent import exe
from lib.checks import STATUS_MS, idle_ms
from lib.proc import wait_for
from lib.status import link

pytestmark = pytest.mark.timeout(60)


def in_time(got):
    if got.ms > STATUS_MS:
        base = idle_ms()
        assert got.ms - base <= STATUS_MS, f"{got.ms:.0f} ms, doing nothing {base:.0f} ms"


def test_status_when_all_is_well(device, hub):
    wait_for(lambda: device.ctl("status").rc == 0, 5, "exit code 0")
    got = device.ctl("status")
    j = got.json
    in_time(got)
    pids = device.pids()
    assert j["connectd"]["pid"] == pids["connectd"] and j["workerd"]["pid"] == pids["workerd"]
    assert j["connectd"]["link"] == "connected"
    assert j["connectd"]["hub"] == hub.url()
    assert j["connectd"]["agent_id"] == hub.session().agent_id
    text = device.ctl("status", json_out=False)
    assert text.rc == 0
    for word in ("connectd", "workerd", "privhelper", "connected", hub.session().agent_id):
        assert word in text.out, (word, text.out)


@pytest.mark.parametrize("role", ["connectd", "workerd", "privhelper"])
def test_a_dead_process_is_shown_dead(device, hub, role):
    """Stopped for good (its parent is stopped too): the others still answer, exit code 3."""
    os.kill(device.top.pid, signal.SIGSTOP)
    if role == "workerd":
        device.kill9("launcher", signal.SIGSTOP)
    try:
        device.kill9(role)
        got = wait_for(lambda: (g := device.ctl("status")) and g.rc == 3 and g, 5, "exit code 3")
        in_time(got)
        j = got.json
        assert role in json.dumps(j)
        text = device.ctl("status", json_out=False)
        line = [x for x in text.out.splitlines() if role in x]
        assert line and "down" in line[0].lower(), text.out
        others = {"connectd", "workerd"} - {role}
        for other in others:
            assert j[other].get("pid") == device.pids()[other]
    finally:
        if role == "workerd":
            proc.kill(device.pids()["launcher"], signal.SIGCONT)
        os.kill(device.top.pid, signal.SIGCONT)


@pytest.mark.parametrize("role", ["connectd", "workerd", "privhelper"])
def test_a_hanging_process_does_not_hang_edgectl(device, role):
    pid = device.kill9(role, signal.SIGSTOP)
    try:
        got = device.ctl("status")
        in_time(got)
        assert got.rc in (0, 3)
        if role != "privhelper":
            assert got.rc == 3
    finally:
        os.kill(pid, signal.SIGCONT)


def test_link_down_is_degraded(device, hub):
    hub.b.tcp = "rst"
    hub.cut()
    wait_for(lambda: device.ctl("status").rc == 3, 5, "exit code 3")
    j = device.ctl("status").json["connectd"]
    assert j["cause"] and j["detail"] and j["link"] != "connected"
    assert "\n" not in j["detail"]


def test_nobody_answers(device):
    assert device.stop() == []
    got = device.ctl("status")
    assert got.rc == 4 and (got.err.strip() or got.out.strip())
    got = device.ctl("workloads")
    assert got.rc == 4


@pytest.mark.parametrize("role", ["connectd", "workerd"])
@pytest.mark.parametrize("mistake", ["key", "mode", "ca"])
def test_a_daemon_that_cannot_read_its_configuration_says_so(device, hub, role, mistake):
    """It ends at once and for ever again, so edgectl reads the same files and tells the first mistake, with file and line."""
    if mistake == "mode" and os.geteuid() != 0:
        pytest.skip("skipped: one user may read what he wrote")
    if mistake == "ca" and role == "workerd":
        return      # it reads none
    wait_for(lambda: device.ctl("status").rc == 0, 20, "its credential is kept: the hub has seen it before that")
    path = device.conf_file
    was = open(path, encoding="ascii").read() if os.path.exists(path) else None
    if mistake == "mode":
        os.chmod(path, 0o600)
    elif mistake == "key":
        with open(path, "a", encoding="ascii") as f:
            f.write("\n[hub]\nurrl = wss://x/\n")
    else:
        kept = [x for x in (was or "").splitlines() if not x.startswith("ca-file")]
        with open(path, "w", encoding="ascii") as f:
            f.write("\n".join([*kept, "[hub]", "ca-file = /nonexistent/ca.pem", ""]))
    old = device.kill9("launcher" if role == "workerd" else role)
    wait_for(lambda: not proc.alive(old), 5, "it is gone")
    got = wait_for(lambda: (g := device.ctl("status")) and g.json[role].get("cause") == "config" and g, 5, "cause config")
    in_time(got)
    assert ("/nonexistent/ca.pem: No such file" if mistake == "ca" else path) in got.json[role]["detail"] and got.rc in (3, 4)
    line = next(x for x in device.ctl("status", json_out=False).out.splitlines() if x.startswith(role))
    assert "DOWN: cannot start: " in line and "edgectl doctor" in line, line
    assert {"mode": "mode 600", "key": "urrl", "ca": "/nonexistent/ca.pem"}[mistake] in line, line
    if mistake == "mode":
        os.chmod(path, 0o644)
    elif was is None:
        os.remove(path)
    else:
        with open(path, "w", encoding="ascii") as f:
            f.write(was)
    device.restarted("launcher" if role == "workerd" else role, old)
    wait_for(lambda: device.ctl("status").rc == 0, 40, "all is well again")


def test_down_without_systemd_points_to_the_log_that_there_is(device):
    os.kill(device.top.pid, signal.SIGSTOP)
    try:
        device.kill9("connectd")
        out = wait_for(lambda: (g := device.ctl("status", json_out=False)) and "DOWN" in g.out and g.out, 5, "down")
        assert "the log of run-foreground" in out and "systemctl" not in out
    finally:
        os.kill(device.top.pid, signal.SIGCONT)


@pytest.mark.root
def test_a_user_without_permission_gets_a_clear_sentence(device):
    got = device.ctl("status", user=(65534, 65534, []), json_out=False)
    assert got.rc == 5, got
    assert "may not" in got.err + got.out and "root" in got.err + got.out and len((got.err + got.out).strip().splitlines()) <= 3


@pytest.mark.root
def test_the_operator_group_is_enough(device):
    got = device.ctl("status", user=(65534, 65534, [device.operator_gid]))
    assert got.rc in (0, 3), got


@pytest.mark.root
def test_daemon_users_and_workloads_cannot_use_the_control_sockets(device, hub):
    for uid in (device.pool.start, device.net_uid, device.work_uid):
        got = device.ctl("status", user=(uid, uid, []))
        assert got.rc == 5, (uid, got)


@pytest.mark.parametrize("args", [["frobnicate"], [], ["status", "extra"], ["logs"], ["signal"], ["signal", "x"],
                                  ["signal", "x", "NOSUCH"], ["-Q", "status"], ["logs", "a/b"]])
def test_usage_errors(device, args):
    got = device.ctl(*args, json_out=False)
    assert got.rc == 2 and got.err.strip(), got


def test_workloads_logs_signal(device, hub):
    run = hub.start("echo hello; trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done")
    hub.wait("output", lambda: run.log.received == 6, 10)
    j = device.ctl("workloads").json
    entry = next(w for w in (j["workloads"] if isinstance(j, dict) else j) if w["handle"] == run.handle)
    assert entry["pid"] == run.started["pid"] and entry["state"] == "running"
    assert run.handle in device.ctl("workloads", json_out=False).out
    got = device.ctl("logs", run.handle, json_out=False)
    assert got.rc == 0 and got.out == "hello\n", got
    assert device.ctl("signal", run.handle, "TERM", json_out=False).rc == 0
    hub.finish(run)
    assert run.exit_code == 3
    assert device.ctl("signal", "nobody", "TERM", json_out=False).rc == 1
    assert device.ctl("logs", "nobody", json_out=False).rc == 1


def test_logs_follow_to_the_end(device, hub):
    hub.b.ack_beats = False         # keeps it from being forgotten at once
    run = hub.start("i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); sleep 0.02; done")
    p = subprocess.Popen([exe("edgectl"), "-r", device.run, "logs", "-f", run.handle], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    out, err = p.communicate(timeout=20)
    assert out == b"".join(b"line %d\n" % i for i in range(40)), (out, err)
    assert p.returncode == 0
    hub.b.ack_beats = True


def test_a_handle_that_begins_like_an_option(device, hub):
    """A hub may make them so: base64url has '-'."""
    hub.b.ack_beats = False
    run = hub.start("echo here; sleep 100", handle="-_G4Qm2x")
    hub.wait("output", lambda: run.log.received > 3, 10)
    p = device.ctl("logs", run.handle, json_out=False)
    assert p.rc == 2 and "put -- before it" in p.err
    assert device.ctl("logs", "--", run.handle, json_out=False).out == "here\n"
    assert device.ctl("logs", "verify", run.handle, json_out=False).rc == 3
    assert device.ctl("signal", run.handle, "KILL", json_out=False).rc == 0
    p = device.ctl("logs", "-f", "--", run.handle, json_out=False)
    assert (p.rc, p.out) == (0, "here\n")
    hub.b.ack_beats = True


def test_logs_work_while_offline(device, hub):
    run = hub.start("while :; do echo x; sleep 0.02; done")
    hub.wait("output", lambda: run.log.received > 10, 10)
    hub.b.tcp = "rst"
    hub.cut()
    wait_for(lambda: link(device) != "connected", 5, "offline")
    first = device.ctl("logs", run.handle, json_out=False)
    assert first.rc == 0 and first.out.startswith("x\n")
    hub.b.tcp = None


def test_version(device):
    got = device.ctl("version", json_out=False)
    assert got.rc == 0 and got.out.strip()
    p = subprocess.run([exe("edgectl"), "-V"], capture_output=True, text=True, check=False)
    assert p.returncode == 0 and p.stdout.strip()


def test_drain_is_shown(device):
    assert device.ctl("drain").rc == 0
    assert device.ctl("status").json["workerd"]["draining"] in (True, 1)
    assert device.ctl("undrain").rc == 0
    assert device.ctl("status").json["workerd"]["draining"] in (False, 0)


def test_clients_that_hang_or_flood(device, hub):
    """A hundred clients that connect and say nothing, then garbage: edgectl still answers, no descriptor is left."""
    before = {r: proc.settled_fds(p) for r, p in device.pids().items()}
    for name in ("connectd.sock", "workerd.sock", "introduce.sock"):
        socks = []
        for n in range(100):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.settimeout(0.5)
            try:
                s.connect(os.path.join(device.run, name))
                if n % 3 == 1:
                    s.send(os.urandom(n + 1))
                elif n % 3 == 2:
                    s.send(b"\0" * 4000)
            except OSError:
                pass
            socks.append(s)
        got = device.ctl("status")
        assert got.rc in (0, 3), (name, got)
        for s in socks:
            s.close()
    wait_for(lambda: device.ctl("status").rc == 0, 10, "all is well again")

    def changed():
        return {r: d for r, p in device.pids().items() if (d := proc.fd_diff(before[r], proc.fds(p))) != ([], [])}
    wait_for(lambda: not changed(), 10, lambda: f"descriptors as before: {changed()}")
    hub.finish(hub.start("true"))


def test_status_during_a_flood_of_output(device, hub):
    run = hub.start("cat /dev/zero | tr '\\0' x")
    run.log.keep = False
    for _ in range(5):
        before = run.log.received
        # On a machine that is full a daemon may get no turn in its 150 ms, and edgectl says so, in time; not three times running.
        tries = [device.ctl("status")]
        while tries[-1].rc != 0 and len(tries) < 3:
            tries.append(device.ctl("status"))
        in_time(tries[-1])
        assert tries[-1].rc == 0, tries
        hub.wait("output", lambda b=before: run.log.received > b, 10)
    hub.signal(run, "kill")
    hub.finish(run)
