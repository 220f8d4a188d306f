"""edgectl metrics, events, top and --watch against real daemons: the format, the figures, the records over a restart, the listener.

Where it could go wrong: edgectl/metrics.c (names, labels, a daemon that is away), edgectl/listen.c (a client that says nothing, sends
rubbish or too much), common/eventlog.c, connectd/tell.c, workerd/tally.c.
"""
import json
import os
import signal
import socket
import subprocess

import pytest

from lib import openmetrics
from lib.agent import exe
from lib.livehub import LiveHub
from lib.proc import wait_for

pytestmark = pytest.mark.timeout(120)
ENV = {"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=0"}


def ctl(device, *args, timeout=20):
    return subprocess.run([exe("edgectl"), "-r", os.path.join(device.dir, "d", "run"), *args], capture_output=True, text=True, env=ENV,
                          timeout=timeout, check=False)


def metrics(device):
    p = ctl(device, "metrics")
    assert p.returncode == 0, p
    return openmetrics.parse(p.stdout)


def events(device):
    p = ctl(device, "-j", "events")
    assert p.returncode == 0, p
    return json.loads(p.stdout)["events"]


def connected(device):
    wait_for(lambda: ctl(device, "status").returncode == 0, 20, "connected")


@pytest.mark.parametrize("bad", [
    "a 1\n# EOF\n", "# TYPE a counter\n# HELP a b\na 1\n# EOF\n", "# TYPE a gauge\n# HELP a b\na 1\n", "# TYPE a gauge\n# HELP a b\na{x=1} 1\n# EOF\n",
    "# TYPE a gauge\n# HELP a b\na 1\na 1\n# EOF\n", "# TYPE a gauge\na 1\n# EOF\n", "# TYPE a gauge\n# UNIT a bytes\n# HELP a b\n# EOF\n",
    "# TYPE a gauge\n# HELP a b\na  1\n# EOF\n"])
def test_the_reader_is_strict(bad):
    with pytest.raises(ValueError):
        openmetrics.parse(bad)


def test_figures(agent, hub):
    device = agent()
    connected(device)
    hub.finish(hub.start(["/bin/sh", "-c", "echo 12345; exit 3"]))
    m = wait_for(lambda: (m := metrics(device)) and openmetrics.value(m, "edgeward_workloads_ended_total", outcome="exited") == 1 and m, 20,
                 "the end is counted")
    for process in ("connectd", "workerd", "launcher", "privhelper"):
        assert openmetrics.value(m, "edgeward_up", process=process) == 1
        assert openmetrics.value(m, "edgeward_process_resident_memory_bytes", process=process) > 100000
        assert openmetrics.value(m, "edgeward_process_wakeups_total", process=process) > 0
    assert openmetrics.value(m, "edgeward_ready") == 1 and openmetrics.value(m, "edgeward_link_connected") == 1
    assert openmetrics.value(m, "edgeward_workloads_started_total") == 1
    assert openmetrics.value(m, "edgeward_output_bytes_total") == 6
    assert openmetrics.value(m, "edgeward_link_sessions_total") == 1
    assert openmetrics.value(m, "edgeward_link_received_bytes_total") > 0
    assert all(name.startswith("edgeward_") for name in m)
    ctl(device, "reconnect")
    connected(device)
    m = wait_for(lambda: (m := metrics(device)) and openmetrics.value(m, "edgeward_link_sessions_total") == 2 and m, 20, "two sessions")
    assert openmetrics.value(m, "edgeward_link_ends_total", cause="reconnect") == 1


def test_streams_and_refusals(agent, tmp_path):
    """Attach sessions, files and services: how many, what they carried, how they ended, over sessions; and requests answered by an error."""
    live = LiveHub().start()
    try:
        policy = {"work": {"attach": "yes", "files": "read"}, "services": {"allow": "127.0.0.1:9"}}
        device = agent(hub=live, token=live.token("--name", "d"), policy=policy)
        live.connected("d")

        def count(name, **labels):
            return openmetrics.value(metrics(device), "edgeward_" + name, **labels)
        assert count("streams_opened_total", kind="attach") == count("streams_opened_total", kind="file") == 0
        assert count("requests_refused_total", code="policy") is None
        handle = live.call("run", "d", "--workdir", "w", "--detach", "--", "sh", "-c", "echo 123456 >f; sleep 600").stdout.decode().strip()
        wait_for(lambda: os.path.exists(os.path.join(device.root, "w/f")), 10, "it runs")
        r = wait_for(lambda: (r := live.call("attach", handle, "--", "sh", "-c", "printf %1000s x")).returncode == 0 and r, 20, "attached")
        assert len(r.stdout) == 1000
        n = count("streams_opened_total", kind="attach")
        assert n >= 1 and count("stream_sent_bytes_total", kind="attach") == 1000
        assert wait_for(lambda: count("streams", kind="attach") == 0, 10, "it is over") and count("streams_cut_total", kind="attach") == n - 1
        assert live.call("cp", f"d:{handle}/f", str(tmp_path / "f")).returncode == 0
        assert count("streams_opened_total", kind="file") == 1 and count("stream_sent_bytes_total", kind="file") == 7
        assert live.call("cp", "--no-wait", str(tmp_path / "f"), f"d:{handle}/g").returncode == 1
        refused = count("requests_refused_total", code="protocol")
        assert refused and refused >= 1, "files = read"
        assert live.call("services", "d").returncode == 0
        assert count("streams_opened_total", kind="http") == 1
        # What is open when the link goes is cut; the counts go on in the next session.
        p = live.popen("attach", handle, "--", "sleep", "60")
        try:
            wait_for(lambda: count("streams", kind="attach") == 1, 20, "open")
            cut = count("streams_cut_total", kind="attach")
            ctl(device, "reconnect")
            wait_for(lambda: count("streams_cut_total", kind="attach") == cut + 1, 20, "cut")
            assert count("streams_opened_total", kind="attach") >= n + 1
        finally:
            p.kill()
            p.communicate()
    finally:
        live.close()


def test_a_daemon_that_is_away_has_no_figures(agent, hub):
    device = agent()
    connected(device)
    os.kill(device.top.pid, signal.SIGSTOP)
    try:
        device.kill9("connectd")
        p = wait_for(lambda: (p := ctl(device, "metrics")) and 'edgeward_up{process="connectd"} 0' in p.stdout and p, 10, "connectd is down")
        m = openmetrics.parse(p.stdout)
        assert openmetrics.value(m, "edgeward_up", process="workerd") == 1
        assert openmetrics.value(m, "edgeward_ready") == 0
        assert openmetrics.value(m, "edgeward_link_connected") is None
    finally:
        os.kill(device.top.pid, signal.SIGCONT)
    connected(device)


def test_events_are_a_record(agent, hub):
    device = agent()
    connected(device)
    stays = hub.start(["/bin/sleep", "600"])
    run = hub.start(["/bin/sh", "-c", "printf seventeen; printf ' bytes. '; exit 5"])
    hub.finish(run)
    wait_for(lambda: any(e["event"] == "ended" for e in events(device)), 20, "the end is told")
    ctl(device, "drain")
    got = events(device)
    kinds = [e["event"] for e in got]
    for kind in ("start", "connected", "started", "ended", "drain"):
        assert kind in kinds, (kind, kinds)
    assert kinds.index("started") < kinds.index("ended")
    ended = next(e for e in got if e["event"] == "ended")
    assert ended["source"] == "workerd" and ended["subject"] == run.handle
    assert ended["text"] == "exited 5, 17 bytes of output"
    assert [e["time"] for e in got] == sorted(e["time"] for e in got)
    # They outlive the daemons, and -f tells what comes.
    follow = subprocess.Popen([exe("edgectl"), "-r", os.path.join(device.dir, "d", "run"), "events", "-f"], stdout=subprocess.PIPE, text=True,
                              env=ENV)
    try:
        device.kill9("workerd")
        device.kill9("connectd")
        connected(device)
        after = events(device)
        assert [e for e in after if e["event"] == "ended"] == [ended]
        assert [e["subject"] for e in after if e["event"] == "started"] == [stays.handle, run.handle], "one that was taken back started once"
        assert sum(e["event"] == "start" and e["source"] == "workerd" for e in after) >= 2
        ctl(device, "undrain")
        line = ""
        while " undrain " not in line:
            line = follow.stdout.readline()
            assert line, "events -f ended"
    finally:
        follow.kill()
        follow.wait()
        follow.stdout.close()


def test_top_and_watch(agent, hub):
    device = agent()
    connected(device)
    run = hub.start(["/bin/sh", "-c", "while :; do echo line; done"])
    doc = wait_for(lambda: (d := json.loads(ctl(device, "-j", "top", "-d", "1").stdout)["workloads"]) and d[0]["output_per_s"] and d, 30,
                   "a rate of output")
    assert doc[0]["handle"] == run.handle and doc[0]["memory_bytes"] > 0
    table = ctl(device, "top", "-n", "1", "-d", "1").stdout
    assert table.splitlines()[0].split() == ["HANDLE", "STATE", "PID", "CPU", "MEMORY", "OUTPUT", "RATE", "TIME", "COMMAND"] and run.handle in table
    assert doc[0]["command"] == "/bin/sh -c while :; do echo line; done" and doc[0]["command"] in table
    ctl(device, "signal", run.handle, "KILL")
    audit = os.path.join(device.dir, "audit")
    with open(audit, "w", encoding="ascii"):
        pass

    def twice(begins, *args):
        """What --watch prints begins again, the same."""
        watching = subprocess.Popen([exe("edgectl"), "-r", os.path.join(device.dir, "d", "run"), *args, "--watch=1"], stdout=subprocess.PIPE,
                                    text=True, env=ENV)
        docs = []
        for line in watching.stdout:
            if line.startswith(begins):
                docs.append([])
                if len(docs) == 3:
                    break
            if docs:
                docs[-1].append(line)
        watching.kill()
        watching.wait()
        watching.stdout.close()
        assert len(docs) == 3, (args, docs)
        return docs[:2]
    twice("connectd ", "status")
    for args in (["status"], ["workloads"], ["devices"], ["policy"], ["doctor"], ["audit", "-f", audit]):
        first, second = (json.loads("".join(doc)) for doc in twice("{\n", "-j", *args))
        assert first.keys() == second.keys(), args
    one, two = (openmetrics.parse("".join(doc)) for doc in twice("# TYPE edgeward_build info", "metrics"))
    assert one.keys() == two.keys()
    assert ctl(device, "drain", "--watch").returncode == 2
    assert ctl(device, "--watch=0", "status").returncode == 2


def ask(address, path, raw=None):
    s = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    s.settimeout(10)
    s.connect(address)
    s.sendall(raw if raw is not None else f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    got = b""
    while more := s.recv(65536):
        got += more
    s.close()
    head, _, body = got.decode().partition("\r\n\r\n")
    return int(head.split()[1]) if head else 0, head, body


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_listener(agent, hub, kind, tmp_path):
    device = agent()
    connected(device)
    where = str(tmp_path / "m.sock")
    address = where
    if kind == "tcp":
        with socket.create_server(("127.0.0.1", 0)) as s:
            address = s.getsockname()
    server = subprocess.Popen([exe("edgectl"), "-r", os.path.join(device.dir, "d", "run"), "metrics", "--listen",
                               f"unix:{where}" if kind == "unix" else f"127.0.0.1:{address[1]}"], env=ENV)
    try:
        wait_for(lambda: _up(address), 10, "listens")
        code, head, body = ask(address, "/metrics")
        assert code == 200 and "application/openmetrics-text; version=1.0.0" in head
        assert openmetrics.value(openmetrics.parse(body), "edgeward_ready") == 1
        assert ask(address, "/healthz")[::2] == (200, "ok\n") and ask(address, "/readyz")[::2] == (200, "ok\n")
        assert ask(address, "/other")[0] == 404
        assert ask(address, "", b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 405
        assert ask(address, "", b"\x16\x03\x01 what\r\n\r\n")[0] == 400
        silent = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
        silent.connect(address)       # costs the next one two seconds, not more
        assert ask(address, "/healthz")[0] == 200
        silent.close()
        hub.stop()
        code, _, body = wait_for(lambda: (a := ask(address, "/readyz")) and a[0] == 503 and a, 30, "not ready")
        assert body.strip() and ask(address, "/healthz")[0] == 200
    finally:
        server.kill()
        server.wait()


def _up(address):
    try:
        return ask(address, "/healthz")[0] != 0
    except OSError:
        return False


def test_listener_is_local_only():
    for where in ("0.0.0.0:1", "192.0.2.1:9000", "[::]:1", "localhost:1", "127.0.0.1", "127.0.0.1:65536", "unix:relative"):
        p = subprocess.run([exe("edgectl"), "metrics", "--listen", where], capture_output=True, text=True, env=ENV, timeout=20, check=False)
        assert p.returncode == 2 and "127.0.0.1:PORT" in p.stderr, (where, p)
