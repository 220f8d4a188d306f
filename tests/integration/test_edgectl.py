"""edgectl against scripted daemons: what it prints, its exit codes, its deadlines, and that it never shows a secret.

B67 (the repair tool needs the thing that is broken): status and logs work with dead daemons, on a full or read-only disk, because
edgectl opens nothing but sockets. B80 (a token in argv): no option takes one.
"""
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from lib import fakedaemon as fd, proc
from lib.agent import BUILD, exe, is_root
from lib.fakedaemon import FakeDaemon
from lib.jsonschema import validate
from lib.xxh3 import xxh3_128

SCHEMA = json.load(open(os.path.join(fd.REPO, "edgectl/edgectl.schema.json"), encoding="utf-8"))
ENV = {"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=1"}
LINKS = ["starting", "unenrolled", "resolving", "connecting", "proxy", "tls", "upgrading", "hello", "connected", "waiting", "stopped",
         "unconfigured"]


class Site:
    def __init__(self, path):
        self.run = str(path)
        self.daemons = {}

    def daemon(self, name, **kw):
        self.daemons[name] = FakeDaemon(self.run, name, **kw)
        return self.daemons[name]

    def both(self, net=None, work=None):
        return self.daemon("connectd", **(net or {})), self.daemon("workerd", **(work or {}))

    def argv(self, *args):
        return [exe("edgectl"), "-r", self.run, *args]

    def ctl(self, *args, stdin="", timeout=10, text=True, **kw):
        begin = time.monotonic()
        p = subprocess.run(self.argv(*args), capture_output=True, text=text, timeout=timeout, env=ENV,
                           input=stdin if text else stdin.encode(), check=False, **kw)
        p.ms = (time.monotonic() - begin) * 1000
        err = p.stderr if text else p.stderr.decode()
        assert "Sanitizer" not in err and "runtime error" not in err, err
        return p

    def json(self, command, *args, rc=0):
        p = self.ctl("-j", command, *args)
        assert p.returncode == rc, p
        doc = json.loads(p.stdout)
        assert validate(doc, SCHEMA["$defs"][command], SCHEMA) == [], p.stdout
        return doc


@pytest.fixture
def site(tmp_path):
    s = Site(tmp_path)
    yield s
    for d in s.daemons.values():
        d.close()


def idle_ms(site):
    return min(site.ctl("-V").ms for _ in range(3))


# ---- status ----

def test_status_all_well(site):
    site.both()
    p = site.ctl("status")
    assert p.returncode == 0 and p.stderr == ""
    for want in ("connectd    up, pid 101", "workerd     up, pid 103", "launcher    up, pid 102", "privhelper  up, pid 99",
                 "connected, edgeward.1, protocol 1", "ag_0123, named box-1", "wss://hub.example", "192.0.2.1:443", "1 running",
                 "4 slots", "12 ms ahead", "round trip 12.3 ms"):
        assert want in p.stdout, want
    assert "DOWN" not in p.stdout


def on_a_terminal(site, *args, env=None):
    pid, fd_ = pty.fork()
    if pid == 0:
        os.execve(exe("edgectl"), site.argv(*args), {**ENV, **(env or {})})
    out = b""
    try:
        while more := os.read(fd_, 65536):
            out += more
    except OSError:
        pass    # the end of a terminal
    os.close(fd_)
    os.waitpid(pid, 0)
    return out


def test_colours_on_a_terminal_only(site):
    """Trouble stands out where a person looks, and nowhere else; tables have a head that does. NO_COLOR counts."""
    site.daemon("connectd")
    assert b"\033[" in on_a_terminal(site, "status"), "workerd is down"
    assert b"\033[" not in on_a_terminal(site, "status", env={"NO_COLOR": "1"})
    assert b"\033[" not in on_a_terminal(site, "-j", "status")
    assert "\033" not in site.ctl("status").stdout
    site.daemon("workerd", answers={fd.WORKLOADS: workloads(fd.workload())})
    assert b"\033[" in on_a_terminal(site, "workloads")
    assert "\033" not in site.ctl("workloads").stdout


def test_status_json_follows_the_schema(site):
    site.both()
    doc = site.json("status")
    assert doc["healthy"] is True
    assert doc["connectd"]["link"] == "connected" and doc["connectd"]["since"] == "2023-11-14T22:13:20.000Z"
    assert doc["workerd"]["slots"] == 4 and doc["privhelper"] == {"up": True, "pid": 99, "build": fd.BUILD_ID}


def test_schema_refuses_what_it_should():
    """The check itself can fail."""
    good = {"agent_id": "x"}
    assert validate(good, SCHEMA["$defs"]["enroll"], SCHEMA) == []
    for bad in ({}, {"agent_id": 1}, {"agent_id": "x", "more": 1}, []):
        assert validate(bad, SCHEMA["$defs"]["enroll"], SCHEMA) != []


@pytest.mark.parametrize("number,word", list(enumerate(LINKS)) + [(77, "unknown")])
def test_every_link_state(site, number, word):
    site.both(net={"answers": {fd.STATUS: fd.net_status(link=number, cause="dns", detail="no name server answers: check resolv.conf",
                                                        next_retry_ms=3200, attempts=7, protocol=0, dialect=0)}})
    doc = site.json("status", rc=0 if word == "connected" else 3)
    assert doc["connectd"]["link"] == word
    text = site.ctl("status").stdout
    assert f"link        {word}" in text and "dns: no name server answers" in text and "in 3.2 s, after 7 attempts" in text


def test_unknowns_are_null(site):
    site.both(net={"answers": {fd.STATUS: fd.net_status(clock_offset_ms=fd.INT64_MIN, clock_floor=0, since=0, last_rx_ms=-1)}})
    doc = site.json("status")
    assert doc["connectd"]["clock_offset_ms"] is None and doc["connectd"]["clock_floor"] is None and doc["connectd"]["since"] is None


def test_numbers_at_their_ends(site):
    big = (1 << 64) - 1
    site.both(net={"answers": {fd.STATUS: fd.net_status(rx_bytes=big, clock_offset_ms=-(1 << 63) + 1, rtt_us=(1 << 63) - 1)}},
              work={"answers": {fd.STATUS: fd.work_status(disk_free=big)}})
    doc = site.json("status")
    assert doc["connectd"]["rx_bytes"] == big and doc["workerd"]["disk_free"] == big
    assert site.ctl("status").returncode == 0


@pytest.mark.parametrize("down", ["connectd", "workerd"])
def test_b67_one_daemon_is_down(site, down):
    site.daemon("workerd" if down == "connectd" else "connectd")
    p = site.ctl("status")
    assert p.returncode == 3
    assert f"{down:12}DOWN: not running" in p.stdout and f"edgeward-{down}" in p.stdout
    assert p.stdout.count("up, pid") >= 2    # the other daemon and privhelper, which it knows of
    doc = site.json("status", rc=3)
    assert doc[down]["up"] is False and doc[down]["cause"] == "not-running"
    assert doc["healthy"] is False and doc["privhelper"]["up"] is True
    assert doc["launcher"]["up"] is (None if down == "workerd" else True)


def test_b67_nobody_answers(site):
    p = site.ctl("status")
    assert p.returncode == 4 and p.stdout.count("DOWN") == 2 and "privhelper  unknown" in p.stdout
    doc = site.json("status", rc=4)
    assert doc["privhelper"]["up"] is None


def test_privhelper_is_down(site):
    site.both(net={"answers": {fd.STATUS: fd.net_status(priv_up=0, priv_pid=0, priv_build="")}},
              work={"answers": {fd.STATUS: fd.work_status(priv_up=0)}})
    p = site.ctl("status")
    assert p.returncode == 3 and "privhelper  DOWN: see systemctl status edgeward-privhelper" in p.stdout
    assert site.json("status", rc=3)["privhelper"]["up"] is False


def test_daemons_that_have_not_met(site):
    site.both(net={"answers": {fd.STATUS: fd.net_status(work_up=0)}}, work={"answers": {fd.STATUS: fd.work_status(work_up=0)}})
    p = site.ctl("status")
    assert p.returncode == 3 and "not been introduced" in p.stdout


def test_stale_socket(site):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind(os.path.join(site.run, "connectd.sock"))
    s.close()
    site.daemon("workerd")
    assert "nobody listens" in site.ctl("status").stdout


SILENT = ["no accept", "no hello", "hello only", "full backlog"]


@pytest.mark.parametrize("how", SILENT)
def test_answers_within_200_ms_whatever_hangs(site, how):
    """Neither daemon answers; both are asked at once, so it costs one deadline."""
    if how in ("no accept", "full backlog"):
        socks = []
        for name in ("connectd", "workerd"):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.bind(os.path.join(site.run, name + ".sock"))
            s.listen(0 if how == "full backlog" else 8)
            socks.append(s)
            for _ in range(3 if how == "full backlog" else 0):
                c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                c.setblocking(False)
                try:
                    c.connect(s.getsockname())
                except BlockingIOError:
                    pass
                socks.append(c)
    else:
        greeting = b"" if how == "no hello" else None
        site.both(net={"answers": {fd.STATUS: None}, "greeting": greeting}, work={"answers": {fd.STATUS: None}, "greeting": greeting})
    best = min((site.ctl("status") for _ in range(3)), key=lambda p: p.ms)
    assert best.returncode == 4 and best.stdout.count("DOWN: does not answer") == 2
    assert best.ms - idle_ms(site) < 200
    assert site.json("status", rc=4)["connectd"]["cause"] == "timeout"


def test_one_hangs_the_other_is_told_of(site):
    site.both(net={"answers": {fd.STATUS: None}})
    p = site.ctl("status")
    assert p.returncode == 3 and "connectd    DOWN: does not answer" in p.stdout and "workerd     up, pid 103" in p.stdout


@pytest.mark.parametrize("answer", [
    b"", b"x", bytes(1039), bytes(1041), (-5, b""), fd.net_status(build="x" * 32), fd.net_status(detail="y" * 256),
    lambda p, i: [fd.record(fd.STATUS + 1, fd.net_status(), i + 1)], lambda p, i: [b"short"],
    lambda p, i: [fd.record(fd.STATUS + 1, fd.net_status(), i, version=1)], lambda p, i: [fd.record(0x7777, b"", i)],
    lambda p, i: [fd.record(fd.WORKLOAD, fd.workload(), i)], lambda p, i: [fd.record(fd.STATUS + 1, bytes(5000), i)],
], ids=range(13))
def test_nonsense_from_a_daemon(site, answer):
    site.both(net={"answers": {fd.STATUS: answer}})
    p = site.ctl("status")
    assert p.returncode == 3 and "connectd    DOWN: " in p.stdout and "workerd     up" in p.stdout
    site.json("status", rc=3)


def test_control_characters_do_not_reach_the_terminal(site):
    evil = "\x1b[31mred\x07\r\n\x7f\u0085\u009b0m"
    site.both(net={"answers": {fd.STATUS: fd.net_status(detail=evil, cause="x", hub=evil, name=evil, peer=evil)}},
              work={"answers": {fd.STATUS: fd.work_status(work_root=evil, detail=evil, cause=evil[:20])}})
    for args in (["status"], ["-j", "status"], ["version"]):
        out = site.ctl(*args).stdout
        assert not any(ord(c) < 32 and c != "\n" or 0x7f <= ord(c) < 0xa0 for c in out), repr(out)


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"caf\xc3\xa9", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98\x80", b"\xe2\x82"])
def test_bytes_that_are_no_utf8(site, raw):
    status = bytearray(fd.net_status())
    at = 1040 - 64
    status[at:at + 64] = raw.ljust(64, b"\0")
    site.both(net={"answers": {fd.STATUS: bytes(status)}})
    name = site.json("status")["connectd"]["name"]
    try:
        assert name == raw.decode()
    except UnicodeDecodeError:
        assert set(name) == {"?"}


def test_another_build_is_explained(site):
    site.both(net={"greeting": fd.hello(fd.CONNECTD, build="9.9.9")})
    p = site.ctl("status")
    assert p.returncode == 0
    assert p.stderr == f"edgectl: connectd is 9.9.9, edgectl is {fd.BUILD_ID}: restart edgeward-connectd.service\n"


@pytest.mark.parametrize("greeting", [fd.hello(fd.CONNECTD, version=1), fd.hello(fd.WORKERD), b"garbage", fd.record(fd.HELLO, bytes(20))],
                         ids=range(4))
def test_another_protocol_is_explained(site, greeting):
    site.both(net={"greeting": greeting})
    p = site.ctl("status")
    assert p.returncode == 3 and "connectd    DOWN: speaks another protocol" in p.stdout and "restart edgeward-connectd.service" in p.stdout
    assert site.json("status", rc=3)["connectd"]["cause"] == "version"


@pytest.mark.skipif(not is_root(), reason="skipped: needs root for another user")
@pytest.mark.parametrize("command", [["status"], ["-j", "status"], ["workloads"], ["reconnect"], ["drain"], ["version"]])
def test_without_the_right_to(site, command):
    for p in [site.run, *[str(x) for x in __import__("pathlib").Path(site.run).parents]]:
        if p.startswith("/tmp/"):
            os.chmod(p, 0o755)
    site.both(net={"mode": 0o660}, work={"mode": 0o660})
    p = site.ctl(*command, user=65534, group=65534, extra_groups=[])
    assert p.returncode == 5
    assert "be root" in p.stdout + p.stderr and "Traceback" not in p.stderr
    os.chown(os.path.join(site.run, "connectd.sock"), 0, 1)
    p = site.ctl("reconnect", user=65534, group=65534, extra_groups=[])
    assert p.returncode == 5 and "a member of group daemon" in p.stderr and len(p.stderr.splitlines()) == 1


# ---- version, help, usage ----

def test_version(site):
    site.both()
    p = site.ctl("version")
    assert p.returncode == 0 and p.stdout.count(fd.BUILD_ID) == 5
    assert site.json("version") == {n: fd.BUILD_ID for n in ("edgectl", "connectd", "workerd", "launcher", "privhelper")}
    site.daemons.pop("workerd").close()
    p = site.ctl("version")
    assert p.returncode == 3 and "workerd     does not answer" in p.stdout
    assert site.json("version", rc=3)["launcher"] is None


def test_own_version_needs_nobody(site):
    p = site.ctl("-V")
    assert (p.returncode, p.stdout) == (0, f"edgectl {fd.BUILD_ID}\n")


@pytest.mark.parametrize("typed,meant", [("statsu", "status"), ("stat", "status"), ("wokloads", "workloads"), ("log", "logs"),
                                         ("enrol", "enroll"), ("recconect", "reconnect"), ("drian", "drain")])
def test_typos_get_a_suggestion(site, typed, meant):
    p = site.ctl(typed)
    assert p.returncode == 2 and f'did you mean "{meant}"?' in p.stderr and p.stdout == ""


@pytest.mark.parametrize("args", [[], ["xyzzy"], ["-x"], ["status", "now"], ["logs"], ["logs", "a", "b"], ["logs", "verify", "a", "b"], ["logs", "../etc"], ["logs", "a", "--from"],
                                  ["logs", "a", "--from", "-1"], ["logs", "a", "-x"], ["signal", "a"], ["signal", "a", "HUP"],
                                  ["signal", "a/b", "TERM"], ["signal", "a" * 65, "TERM"], ["drain", "x"], ["undrain", "x"], ["reconnect", "x"],
                                  ["enroll"], ["enroll", "--token-file"], ["enroll", "--token-file", "a", "--bundle-file", "b"],
                                  ["enroll", "--name", "x"], ["enroll", "--token-file", "-", "--url", "x" * 600],
                                  ["enroll", "--token-file", "-", "--name", ""], ["version", "x"], ["help", "nope"], ["\x1b[31m"]])
def test_usage(site, args):
    p = site.ctl(*args)
    assert p.returncode == 2 and p.stdout == "" and len(p.stderr) > 10 and "\x1b" not in p.stderr


def test_help(site):
    p = site.ctl("help")
    assert p.returncode == 0 and all(c in p.stdout for c in ("status", "workloads", "logs", "signal", "reconnect", "enroll", "drain", "undrain"))
    assert "edgectl [options] logs HANDLE" in site.ctl("help", "logs").stdout
    assert site.ctl("--help").stdout == site.ctl("-h").stdout == p.stdout and "Exit codes" in p.stdout
    enroll = site.ctl("help", "enroll").stdout
    assert "edgehub token create" in enroll and "--replace " in enroll and site.ctl("enroll", "--help").stdout == enroll


@pytest.mark.parametrize("program", ["connectd/connectd", "workerd/workerd", "workerd/launcher/launcher", "privhelper/privhelper",
                                     "packaging/run-foreground", "hub/edgehub"])
def test_help_of_every_program_teaches(program):
    """-h and --help: what it is, who starts it, every option, the exit codes or where they stand; on stdout, exit 0."""
    exe = os.path.join(BUILD, program)
    p = subprocess.run([exe, "--help"], capture_output=True, text=True)
    assert p.returncode == 0 and p.stderr == "" and len(p.stdout.splitlines()) >= (4 if "launcher" in program else 9)
    assert subprocess.run([exe, "-h"], capture_output=True, text=True).stdout == p.stdout
    usage = p.stdout.split("\n\n")[0]
    rest = p.stdout[len(usage):]
    if program not in ("hub/edgehub", "workerd/launcher/launcher"):     # the one lists commands, the other points to workerd
        letters = set("".join(re.findall(r"[ \[]-([a-zA-Z]+)", usage)))
        assert letters and not [x for x in letters if f"  -{x}" not in rest], letters


@pytest.mark.parametrize("command", [["workloads"], ["logs", "a"], ["signal", "a", "TERM"], ["drain"], ["reconnect"],
                                     ["enroll", "--token-file", "-"]])
def test_nobody_there(site, command):
    p = site.ctl(*command, stdin="clet1.a.b.c\n")
    assert p.returncode == 4 and "not running" in p.stderr and len(p.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["workloads"], ["logs", "a"], ["logs", "a", "-f"], ["signal", "a", "TERM"], ["drain"], ["reconnect"],
                                     ["enroll", "--token-file", "-"]])
def test_silence_costs_one_deadline(site, command):
    site.both(net={"greeting": b"", "answers": {}}, work={"greeting": b"", "answers": {}})
    for d in site.daemons.values():
        d._answer = lambda *a: None
    best = min((site.ctl(*command, stdin="clet1.a.b.c\n") for _ in range(2)), key=lambda p: p.ms)
    assert best.returncode == 4 and "does not answer" in best.stderr
    assert best.ms - idle_ms(site) < 2200, "a daemon that is just being replaced is waited for, once"


def test_closed_output(site):
    site.both()
    p = subprocess.run(["/bin/sh", "-c", '"$0" "$@" >/dev/full', *site.argv("status")], env=ENV, capture_output=True, text=True, check=False)
    assert p.returncode == 1 and "No space left" in p.stderr


# ---- workloads ----

def workloads(*records):
    return lambda payload, ident: [fd.record(fd.WORKLOAD, r, ident) for r in records] + [fd.record(fd.WORKLOADS + 1, b"", ident)]


def test_workloads(site):
    site.daemon("workerd", answers={fd.WORKLOADS: workloads(
        fd.workload(flags=8), fd.workload(wid=2, handle="b_2", state=3, outcome=1, exit_code=7, finished_at=1_700_000_001_000_000_000),
        fd.workload(wid=3, handle="c", state=3, outcome=3, term_signal=15, error="cancelled by the hub", flags=2))})
    lines = site.ctl("workloads").stdout.splitlines()
    assert lines[0].split() == ["HANDLE", "STATE", "PID", "STARTED", "OUTPUT", "OUTCOME", "ERROR", "COMMAND"]
    assert "job-1" in lines[1] and "4242" in lines[1] and "2.0 KiB" in lines[1] and "exited 7" in lines[2]
    assert "cancelled, signal 15" in lines[3] and "cancelled by the hub" in lines[3]
    doc = site.json("workloads")
    assert doc["complete"] is True and [w["handle"] for w in doc["workloads"]] == ["job-1", "b_2", "c"]
    assert doc["workloads"][1]["exit_code"] == 7 and doc["workloads"][2]["disowned"] is True
    assert "waits: the hub takes no more" in lines[1] and [w["waits"] for w in doc["workloads"]] == [True, False, False]


def test_no_and_many_workloads(site):
    d = site.daemon("workerd", answers={fd.WORKLOADS: workloads()})
    assert len(site.ctl("workloads").stdout.splitlines()) == 1
    d.answers[fd.WORKLOADS] = workloads(*[fd.workload(wid=i, handle=f"h{i}") for i in range(1, 1001)])
    assert len(site.ctl("workloads").stdout.splitlines()) == 1001
    assert len(site.json("workloads")["workloads"]) == 1000


def test_list_that_breaks_off_is_no_whole_list(site):
    site.daemon("workerd", answers={fd.WORKLOADS: lambda p, i: [fd.record(fd.WORKLOAD, fd.workload(), i)]})
    p = site.ctl("-j", "workloads")
    assert p.returncode == 4 and json.loads(p.stdout)["complete"] is False
    p = site.ctl("workloads")
    assert p.returncode == 4 and p.stdout == ""


@pytest.mark.parametrize("bad", [fd.workload(handle="a b"), fd.workload(state=9), fd.workload()[:-1]])
def test_bad_workload_record(site, bad):
    site.daemon("workerd", answers={fd.WORKLOADS: workloads(bad)})
    assert site.ctl("workloads").returncode == 1


# ---- logs ----

def log_data(offset, data=b"", flags=0, reason=0):
    return fd.struct.pack("=QII", offset, flags, reason) + data


class Log:
    """What workerd holds of one workload."""

    def __init__(self, data, first=0, done=True):
        self.data, self.first, self.done, self.waits = data, first, done, []
        self.cond = threading.Condition()

    def __call__(self, payload, ident):
        handle, at, flags, most = fd.struct.unpack("=72sQII", payload)
        assert handle.rstrip(b"\0") == b"job-1" and most == 3968
        with self.cond:
            self.waits.append(flags & 1)
            while flags & 1 and at >= len(self.data) and not self.done:
                self.cond.wait(10)
            start = max(at, self.first)
            part = self.data[start:start + most]
            end = self.done and start + len(part) >= len(self.data)
            return log_data(start, part, (1 if end else 0) | (2 if start > at else 0), 1 if start > at else 0)

    def add(self, data, done=False):
        with self.cond:
            self.data, self.done = self.data + data, done
            self.cond.notify_all()


def test_logs_are_the_bytes(site):
    data = os.urandom(100_000)
    site.daemon("workerd", answers={fd.LOGS: Log(data)})
    p = site.ctl("logs", "job-1", text=False)
    assert p.returncode == 0 and p.stdout == data and p.stderr == b""
    assert site.ctl("logs", "job-1", "--from", "99990", text=False).stdout == data[99990:]
    assert site.ctl("logs", "--from", "100000", "job-1", text=False).stdout == b""


def test_logs_of_what_still_runs_end_without_f(site):
    site.daemon("workerd", answers={fd.LOGS: Log(b"so far", done=False)})
    p = site.ctl("logs", "job-1")
    assert p.returncode == 0 and p.stdout == "so far"


def test_gap_is_told(site):
    site.daemon("workerd", answers={fd.LOGS: Log(b"0123456789", first=4)})
    p = site.ctl("logs", "job-1")
    assert p.stdout == "456789" and p.stderr == "edgectl: bytes 0 to 4 are no longer held here (memory); what the hub has: edgehub logs job-1\n" and p.returncode == 0


def verify(site, data, want, code, first=0, done=True, **info):
    """What `logs verify` says of a workload with this output and this list entry."""
    fields = {"state": 3 if done else 2, "outcome": 1 if done else 0, "flags": 4 if done else 0, "produced": len(data),
              "log_xxh3": xxh3_128(data) if done else b"", **info}
    d = site.daemons.get("workerd") or site.daemon("workerd")
    d.answers.update({fd.LOGS: Log(data, first=first, done=done), fd.WORKLOADS: workloads(fd.workload(**fields))})
    p = site.ctl("-j", "logs", "verify", "job-1")
    doc = json.loads(p.stdout)
    assert validate(doc, SCHEMA["$defs"]["logs_verify"], SCHEMA) == [], p.stdout
    assert (doc["result"], p.returncode) == (want, code), p
    text = site.ctl("logs", "verify", "job-1")
    assert text.returncode == code and text.stdout.startswith(want + ":")
    return doc, text.stdout


def test_verify(site):
    data = os.urandom(50_000)
    doc, _ = verify(site, data, "verified", 0)
    assert doc["held_xxh3"] == doc["log_xxh3"] == xxh3_128(data).hex() and doc["held"] == 50_000
    verify(site, b"", "verified", 0)
    doc, _ = verify(site, data, "mismatch", 1, log_xxh3=xxh3_128(data[1:]))
    assert doc["held_xxh3"] != doc["log_xxh3"]
    doc, _ = verify(site, data, "no-digest", 3, flags=0)
    assert doc["log_xxh3"] is None
    doc, text = verify(site, data, "partial", 3, first=20_000)
    assert doc["missing"] == [{"from": 0, "to": 20_000, "reason": "memory"}] and doc["held"] == 30_000
    assert doc["held_xxh3"] is None and "[20000,50000) is here and intact" in text and "[0,20000) is not here" in text
    verify(site, data, "running", 3, done=False)
    verify(site, data, "partial", 3, produced=60_000)
    d = site.daemons["workerd"]
    d.answers[fd.LOGS] = (-2, b"")
    d.answers[fd.WORKLOADS] = workloads()
    p = site.ctl("logs", "verify", "job-1")
    assert p.returncode == 1 and "no workload job-1 is known" in p.stderr
    d.answers[fd.LOGS] = log_data(0)[:-1]
    assert site.ctl("logs", "verify", "job-1").returncode == 1
    assert site.ctl("logs", "verify", "a/b").returncode == 2
    d.answers[fd.LOGS] = lambda payload, ident: log_data(0, b"x", 1) if payload.startswith(b"verify\0") else None
    assert site.ctl("logs", "verify").stdout == "x", "a workload of that name"


def test_follow(site):
    log = Log(b"one\n", done=False)
    site.daemon("workerd", answers={fd.LOGS: log})
    p = subprocess.Popen(site.argv("logs", "job-1", "-f"), stdout=subprocess.PIPE, env=ENV)
    assert p.stdout.readline() == b"one\n"
    time.sleep(0.5)    # longer than any deadline
    log.add(b"two\n")
    assert p.stdout.readline() == b"two\n"
    log.add(b"end\n", done=True)
    assert p.communicate(timeout=10)[0] == b"end\n" and p.returncode == 0
    assert len(log.waits) < 10    # it waits, it does not poll


def test_follow_something_quiet_from_the_start(site):
    log = Log(b"", done=False)
    site.daemon("workerd", answers={fd.LOGS: log})
    p = subprocess.Popen(site.argv("logs", "job-1", "-f"), stdout=subprocess.PIPE, env=ENV)
    time.sleep(0.5)
    assert p.poll() is None
    log.add(b"x", done=True)
    assert p.communicate(timeout=10)[0] == b"x" and p.returncode == 0


def test_follow_ends_when_workerd_dies(site):
    d = site.daemon("workerd", answers={fd.LOGS: Log(b"one\n", done=False)})
    p = subprocess.Popen(site.argv("logs", "job-1", "-f"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV, text=True)
    assert p.stdout.readline() == "one\n"
    site.daemons.pop("workerd")
    for conn in d.conns:
        conn.shutdown(socket.SHUT_RDWR)
    err = p.communicate(timeout=10)[1]
    assert p.returncode == 1 and "closed the connection" in err
    d.close()


def test_follow_is_interrupted_by_ctrl_c(site):
    site.daemon("workerd", answers={fd.LOGS: Log(b"one\n", done=False)})
    p = subprocess.Popen(site.argv("logs", "job-1", "-f"), stdout=subprocess.PIPE, env=ENV)
    assert p.stdout.readline() == b"one\n"
    p.send_signal(signal.SIGINT)
    assert p.wait(5) == -signal.SIGINT


def test_unknown_handle(site):
    site.daemon("workerd", answers={fd.LOGS: (-2, b""), fd.SIGNAL: (0, fd.struct.pack("=IIII208s", 10, 0, 0, 0, b""))})
    p = site.ctl("logs", "job-1")
    assert p.returncode == 1 and p.stderr == "edgectl: logs: no workload job-1 is known\n"
    p = site.ctl("signal", "job-1", "TERM")
    assert p.returncode == 1 and "unknown_handle" in p.stderr


# ---- signal, drain, reconnect ----

@pytest.mark.parametrize("word,number", [("INT", 2), ("TERM", 15), ("KILL", 9), ("SIGTERM", 15), ("sigkill", 9), ("term", 15)])
def test_signal(site, word, number):
    d = site.daemon("workerd", answers={fd.SIGNAL: bytes(224)})
    p = site.ctl("signal", "job-1", word)
    assert p.returncode == 0 and p.stdout == p.stderr == ""
    assert d.requests == [(fd.SIGNAL, fd.struct.pack("=72sii", b"job-1", number, 0))]


def test_signal_is_refused(site):
    site.daemon("workerd", answers={fd.SIGNAL: fd.struct.pack("=IIII208s", 9, 0, 0, 0, b"it has \x1bended")})
    p = site.ctl("signal", "job-1", "TERM")
    assert p.returncode == 1 and p.stderr == "edgectl: signal: start_failed: it has ?ended\n"


def in_one_turn(site, kind, *records, close=False):
    """A workerd whose greeting and answer to kind come together with what follows them: edgectl is stopped meanwhile."""
    def answer(_payload, ident):
        conn = d.conns[-1]
        pid = fd.struct.unpack("3i", conn.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        os.kill(pid, signal.SIGSTOP)
        proc.wait_for(lambda: proc.stat(pid)[1] == "T", 5, "it is stopped")
        conn.send(fd.hello(fd.WORKERD))
        for make, fds in records:
            socket.send_fds(conn, [make(ident)], fds)
        if close:
            conn.shutdown(socket.SHUT_RDWR)
        os.kill(pid, signal.SIGCONT)
    d = site.daemon("workerd", answers={kind: answer}, greeting=b"")


@pytest.mark.parametrize("close", [False, True])
def test_attach_whose_end_comes_with_the_answer(site, close):
    """A command as short as exit 5: its output and its exit code are told, also by a workerd that ends right then."""
    ours, theirs = socket.socketpair()
    ours.send(b"short\n")
    ours.close()
    answer, end = fd.struct.pack("=IIIIQQ128s208s", 0, 7, 0, 0, 0, 0, b"local-1", b""), fd.struct.pack("=IiQQ80s", 7, 5, 6, 0, b"command exited")
    in_one_turn(site, fd.ATTACH, (lambda i: fd.record(fd.ATTACH + 1, answer, i, nfds=1), [theirs.fileno()]), (lambda i: fd.record(fd.ATTACH_END, end), []),
                close=close)
    p = site.ctl("attach", "job-1", "--", "true")
    theirs.close()
    assert (p.returncode, p.stdout, p.stderr) == (5, "short\n", "")


@pytest.mark.parametrize("args,flags", [(("job-1", "-T"), 2), (("-T", "job-1"), 2), (("-T", "job-1", "--read-only"), 0), (("--read-only", "job-1", "-T"), 0)])
def test_attach_takes_options_on_both_sides_of_the_handle(site, args, flags):
    d = site.daemon("workerd", answers={fd.ATTACH: (-13, b"")})
    assert site.ctl("attach", *args, "--", "vi", "-x").returncode == 1
    (kind, data), = d.requests
    assert (kind, data[128:133], fd.struct.unpack_from("=I", data, 264)[0]) == (fd.ATTACH, b"job-1", flags)
    # What is none is not run as a program.
    p = site.ctl("attach", *args, "--frob", "--", "vi")
    assert p.returncode == 2 and "--frob" in p.stderr and len(d.requests) == 1


def test_answer_of_a_workerd_that_ends_with_it(site):
    in_one_turn(site, fd.SIGNAL, (lambda i: fd.record(fd.SIGNAL + 1, bytes(224), i), []), close=True)
    p = site.ctl("signal", "job-1", "TERM")
    assert (p.returncode, p.stderr) == (0, "")


def test_drain(site):
    d = site.daemon("workerd", answers={fd.DRAIN: lambda p, i: fd.struct.pack("=II", fd.struct.unpack("=II", p)[0], 3)})
    assert site.ctl("drain").stdout == "draining: no new work is taken, 3 still run\n"
    assert site.ctl("undrain").stdout == "not draining: new work is taken, 3 run\n"
    assert [r[1][0] for r in d.requests] == [1, 0]
    assert site.json("drain") == {"draining": True, "active": 3}


def test_reconnect(site):
    d = site.daemon("connectd", answers={fd.RECONNECT: b""})
    assert site.ctl("reconnect").returncode == 0
    assert d.requests == [(fd.RECONNECT, b"")]
    d.answers[fd.RECONNECT] = (-1, b"")
    p = site.ctl("reconnect")
    assert p.returncode == 1 and "Operation not permitted" in p.stderr


# ---- enroll ----

TOKEN = "clet1.AAAAAAAAAAAAAAAA.c2VjcmV0LWNhbmFyeQ.c2ln"


def enroll_fields(payload):
    out, at = {}, 0
    for name, size in fd.ENROLL_FIELDS:
        field = payload[at:at + size]
        out[name] = field.rstrip(b"\0").decode()
        assert field[len(out[name]):].strip(b"\0") == b""
        at += size
    out["replace"] = payload[at]
    assert len(payload) == 1352
    return out


def text(s):
    return s.encode().ljust(512, b"\0")


def test_enroll_from_a_file_and_from_standard_input(site, tmp_path):
    d = site.daemon("connectd", answers={fd.ENROLL: text("ag_77")})
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    p = site.ctl("enroll", "--token-file", str(file), "--url", "wss://h/x", "--pin", "sha256/abc", "--name", "box", "--replace")
    assert p.returncode == 0 and p.stdout == "enrolled as ag_77\n" and p.stderr == ""
    want = {"url": "wss://h/x", "token": TOKEN, "pin": "sha256/abc", "name": "box", "replace": 1}
    assert enroll_fields(d.requests[0][1]) == want
    p = site.ctl("enroll", "--token-file", "-", stdin=TOKEN)
    assert p.returncode == 0
    assert enroll_fields(d.requests[1][1]) == {"url": "", "token": TOKEN, "pin": "", "name": "", "replace": 0}
    p = site.ctl("-j", "enroll", "--bundle-file", "-", stdin="cloopenroll1.e30\r\n\n")
    assert json.loads(p.stdout) == {"agent_id": "ag_77"}
    assert enroll_fields(d.requests[2][1])["token"] == "cloopenroll1.e30"
    assert all(TOKEN not in s for s in (p.stdout, p.stderr))


def test_readable_token_file_is_warned_about(site, tmp_path):
    site.daemon("connectd", answers={fd.ENROLL: text("ag_77")})
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    p = site.ctl("enroll", "--token-file", str(file))
    assert p.returncode == 0 and "can be read by others (mode 644)" in p.stderr and TOKEN not in p.stderr


def test_b80_a_token_on_the_command_line_is_refused_and_not_echoed(site):
    d = site.daemon("connectd", answers={fd.ENROLL: text("ag_77")})
    for args in ([TOKEN], ["--token-file", "-", TOKEN], ["--token", TOKEN], ["--token=" + TOKEN], ["-t", TOKEN], ["--bundle", TOKEN]):
        p = site.ctl("enroll", *args)
        assert p.returncode == 2 and TOKEN not in p.stderr + p.stdout, p
    assert d.requests == []


def test_b80_the_secret_is_in_no_public_place(site):
    """While edgectl waits for the hub's answer: its arguments and environment, which others can read."""
    go = threading.Event()
    site.daemon("connectd", answers={fd.ENROLL: lambda p, i: (go.wait(10), text("ag_1"))[1]})
    p = subprocess.Popen(site.argv("enroll", "--token-file", "-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=ENV, text=True)
    p.stdin.write(TOKEN)
    p.stdin.close()
    wait = time.monotonic() + 5
    while not site.daemons["connectd"].requests and time.monotonic() < wait:
        time.sleep(0.02)
    seen = open(f"/proc/{p.pid}/cmdline").read() + open(f"/proc/{p.pid}/environ").read()
    assert TOKEN not in seen
    time.sleep(0.4)    # longer than any other deadline
    assert p.poll() is None
    go.set()
    assert p.wait(10) == 0 and TOKEN not in p.stdout.read() + p.stderr.read()


@pytest.mark.parametrize("stdin,why", [("", "is empty"), ("\n\n", "is empty"), ("x" * 512, "too long"), ("x" * 5000, "too long"), ("two words", "not one line"),
                                       ("a\nb", "not one line"), ("a\0b", "not one line")])
def test_bad_token_text(site, stdin, why):
    d = site.daemon("connectd")
    p = site.ctl("enroll", "--token-file", "-", stdin=stdin)
    assert p.returncode == 1 and why in p.stderr and d.requests == []
    assert site.ctl("enroll", "--bundle-file", "-", stdin=stdin).returncode == 1


def test_bundle_that_is_none(site):
    d = site.daemon("connectd")
    p = site.ctl("enroll", "--bundle-file", "-", stdin=TOKEN)
    assert p.returncode == 1 and "does not hold a bundle" in p.stderr and TOKEN not in p.stderr and d.requests == []


def test_token_file_that_cannot_be_read(site):
    p = site.ctl("enroll", "--token-file", "/nonexistent/token")
    assert p.returncode == 1 and "No such file" in p.stderr
    p = site.ctl("enroll", "--token-file", "/")
    assert p.returncode == 1 and "Is a directory" in p.stderr


def test_enrollment_is_refused(site):
    site.daemon("connectd", answers={fd.ENROLL: (-13, text("the hub refused the token (401): make a new one"))})
    p = site.ctl("enroll", "--token-file", "-", stdin=TOKEN)
    assert p.returncode == 1 and p.stderr == "edgectl: enroll: the hub refused the token (401): make a new one\n"


def test_connectd_dies_while_enrolling(site):
    d = site.daemon("connectd", answers={fd.ENROLL: lambda p, i: d.conns[0].shutdown(socket.SHUT_RDWR)})
    p = site.ctl("enroll", "--token-file", "-", stdin=TOKEN)
    assert p.returncode == 1 and "closed the connection" in p.stderr
