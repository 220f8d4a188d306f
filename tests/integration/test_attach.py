"""Attach: a process inside a workload that runs, through edgehub, connectd, workerd and workinit (faults of terminals: B12, B17, B18, B37, B59, B67).

Where the kinds could occur: workerd/attach.c and attachio.c (sessions, rings, limits), workerd/launcher/attached.c (the process and its tree),
connectd/attach.c (streams and frames), hub/attach.c (resume), common/term.c (the operator's terminal).
"""
import fcntl
import hashlib
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pytest

from lib import proc
from lib.agent import exe
from lib.net import Proxy
from lib.proc import wait_for
from test_state import fill, mounts, tmpfs      # noqa: F401

D = "edge-test"
POLICY = {"work": {"attach": "yes"}}
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def make(ehub_agent):
    return lambda policy=None: ehub_agent(policy=POLICY if policy is None else policy)


@pytest.fixture
def dev(make):
    return make()


def start(ehub, *argv, options=()):
    h = ehub.call("run", D, "--detach", *options, "--", *(argv or ("sleep", "600")))
    assert h.returncode == 0, h
    return h.stdout.decode().strip()


def attach(ehub, handle, *argv, options=(), **kw):
    """Without a terminal: pipes. Tried again while the run is starting."""
    for _ in range(100):
        r = ehub.call("attach", handle, *options, "--", *argv, **kw)
        if b"does not run yet" not in r.stderr:
            return r
        time.sleep(0.1)
    raise AssertionError(r)


class Terminal:
    """edgehub attach, or anything else, in a terminal of its own."""

    def __init__(self, argv, rows=24, cols=80, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
            os.execvpe(argv[0], argv, {**os.environ, "TERM": "xterm", "ASAN_OPTIONS": "detect_leaks=0", **(env or {})})
        self.seen = b""
        self.status = None

    def send(self, text):
        os.write(self.fd, text if isinstance(text, bytes) else text.encode())

    def read(self, seconds=0.1):
        r, _, _ = select.select([self.fd], [], [], seconds)
        if not r:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += data
        return bool(data)

    def expect(self, pattern, seconds=20):
        limit = time.monotonic() + seconds
        pattern = pattern if isinstance(pattern, bytes) else pattern.encode()
        while True:
            m = re.search(pattern, self.seen)
            if m:
                self.seen = self.seen[m.end():]
                return m
            assert time.monotonic() < limit, f"{pattern} is not in {self.seen[-2000:]}"
            self.read()

    def size(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def wait(self, seconds=20):
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            self.read(0.05)
            pid, st = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(st)
                while self.read(0.05):
                    pass
                return self.status
        raise AssertionError(f"still there: {self.seen[-2000:]}")

    def end(self):
        if self.status is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except OSError:
                pass
        os.close(self.fd)


@pytest.fixture
def terminal(ehub):
    made = []

    def factory(*args, **kw):
        t = Terminal([exe("edgehub"), "-d", ehub.data, *args], **kw)
        made.append(t)
        return t
    yield factory
    for t in made:
        t.end()


def session_processes(dev):
    """The holders of sessions on this device, by name."""
    return [p for p in proc.descendants(dev.pid("launcher")) if (st := proc.stat(p)) and st[0] == "attach" and st[1] != "Z"]


def events(dev, kind=None):
    return [e for e in dev.ctl("events").json["events"] if kind is None or e["event"] == kind]


def test_pipes_carry_both_streams_and_the_exit_code(dev, ehub):
    h = start(ehub)
    r = attach(ehub, h, "sh", "-c", "echo out; echo err >&2; pwd; exit 7")
    assert r.returncode == 7, r
    out = r.stdout.decode()
    assert "out\n" in out and "err\n" in out and "/work\n" in out
    # A command that fills its errors before it says anything does not wait for ever (cloop.md 15.10).
    r = attach(ehub, h, "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' e >&2; echo done; head -c 300000 /dev/zero | tr '\\0' o; exit 3")
    assert r.returncode == 3 and r.stdout.count(b"e") >= 300000 and r.stdout.count(b"o") >= 300000
    r = attach(ehub, h, "sh", "-c", "kill -9 $$")
    assert r.returncode == 137
    r = attach(ehub, h, "/no/such/program")
    assert r.returncode == 255 and b"cannot run the command: No such file" in r.stderr


def test_it_is_inside_and_b59_has_nothing_it_was_not_given(dev, ehub):
    """Namespaces, cgroup, ids, filter, capabilities and limits are those of the workload's own program; descriptors and variables are a fixed set."""
    look = ("for n in user mnt pid ipc uts net cgroup; do readlink /proc/self/ns/$n; done; cat /proc/self/cgroup; id; umask; ulimit -a; "
            "grep -E '^(Uid|Gid|Groups|NoNewPrivs|Seccomp|Cap|SigBlk|SigIgn)' /proc/self/status; ls /dev; ls /proc | grep -c '^[0-9]*$' >/dev/null; "
            "cat /proc/self/oom_score_adj; ")
    h = start(ehub, "sh", "-c", look + "echo ready; exec sleep 600", options=("--env", "HOME=/tmp", "--env", "SECRET=no", "--env", "PATH=/usr/bin:/bin"))
    own = wait_for(lambda: (o := ehub.call("logs", h).stdout.decode()) and "ready" in o and o, 20, "the workload has looked")
    r = attach(ehub, h, "sh", "-c", look + "echo ready")
    assert r.stdout.decode() == own
    r = attach(ehub, h, "sh", "-c", "ls -l /proc/self/fd | wc -l; env | sort | grep -v ^_=")
    lines = r.stdout.decode().split("\n")
    assert int(lines[0]) == 5, "a head, 0, 1, 2 and the directory itself"
    names = sorted(x.split("=")[0] for x in lines[1:] if x)
    assert [n for n in names if n not in ("OLDPWD", "SHLVL")] == ["HOME", "PATH", "PWD", "TERM"]
    assert "HOME=/tmp" in lines and "PATH=/usr/bin:/bin" in lines
    # The payload is there, and pid 1 cannot be looked into.
    r = attach(ehub, h, "sh", "-c", "cat /proc/1/environ; ls -l /proc/1/fd; mount -t tmpfs x /tmp; unshare -U true; echo end")
    assert b"end" in r.stdout and r.stdout.count(b"ermitted") + r.stdout.count(b"denied") >= 3, r


def test_a_terminal(dev, ehub, terminal):
    h = start(ehub)
    attach(ehub, h, "true")
    t = terminal("attach", h, "--", "sh", rows=24, cols=80)
    t.send("stty size; tty; echo $TERM; ls -l /proc/self/fd/0 | sed 's/.*->//'\r")
    t.expect("24 80")
    t.expect("/dev/pts/[0-9]+")
    t.expect("xterm")
    t.size(50, 250)
    t.send("sleep 0.3; stty size\r")
    t.expect("50 250")
    t.send("cat >/dev/null; echo cat ended with $?\r")
    t.send(b"\x03")
    t.expect("\\^C")
    t.send("sleep 100\r")
    time.sleep(0.3)
    t.send(b"\x1a")
    t.send("jobs; echo listed\r")
    t.expect("listed")
    t.send("~~~ is no command; exit 9\r")
    t.send("exit 9\r")
    assert t.wait() in (9, 137), t.seen
    end = events(dev, "attach-end")[-1]
    assert "command exited" in end["text"] and end["subject"] == h


def test_leaving_ends_what_was_started(dev, ehub, terminal):
    """Background jobs, those of another session and those that ignore SIGHUP included; the workload itself goes on."""
    h = start(ehub)
    attach(ehub, h, "true")
    t = terminal("attach", h, "--", "sh")
    mark = proc.mark()
    t.send(f"setsid nohup sleep 1{mark} >/dev/null 2>&1 & (trap '' HUP TERM; sleep 2{mark}) & (setsid sh -c 'sleep 3{mark} & sleep 4{mark}' &) ; "
           "echo o''k\r")
    t.expect("ok")
    mine = lambda: proc.marked(mark)     # noqa: E731
    wait_for(lambda: len(mine()) >= 4, 10, "the jobs run")
    t.send("\r~.")
    assert t.wait() == 255
    wait_for(lambda: not mine(), 10, lambda: f"they are gone: {[proc.cmdline(p) for p in mine()]}")
    wait_for(lambda: not session_processes(dev), 10, "no holder is left")
    assert attach(ehub, h, "echo", "there").stdout == b"there\n"
    assert any("closed by the operator" in e["text"] for e in events(dev, "attach-end"))


def test_read_only_reads_nothing(dev, ehub, terminal):
    h = start(ehub)
    attach(ehub, h, "true")
    r = attach(ehub, h, "sh", "-c", "readlink /proc/self/fd/0; cat; tty; echo end", options=("--read-only",))
    assert b"/dev/null" in r.stdout and b"not a tty" in r.stdout and r.stdout.endswith(b"end\n")
    assert "read-only" in events(dev, "attach")[-1]["text"]


def test_options_on_both_sides_of_the_handle(dev, ehub):
    """--read-only behind the handle is an option there, too, and nothing that begins with - is run without a -- before it."""
    h = start(ehub)
    attach(ehub, h, "true")
    r = ehub.call("attach", "-T", h, "--read-only", "--", "readlink", "/proc/self/fd/0")
    assert (r.returncode, r.stdout) == (0, b"/dev/null\n"), r
    n = len(events(dev, "attach"))
    for argv in (("attach", "-T", h, "--frob", "--", "true"), ("shell", "-T", D, "--frob", "--", "true")):
        r = ehub.call(*argv)
        assert r.returncode == 2 and b"usage" in r.stderr, r
    assert len(events(dev, "attach")) == n
    r = ehub.call("shell", "-T", D, "--workdir", "beside", "--", "pwd")
    assert r.returncode == 0 and b"/work" in r.stdout, r
    r = ehub.call("run", "--timeout", "30s", D, "--workdir", "w", "--", "echo", "--timeout")
    assert (r.returncode, r.stdout) == (0, b"--timeout\n"), r


@pytest.mark.parametrize("policy, args, text", [
    ({"work": {"attach": "no"}}, (), "policy.conf:2: attach = no"), ({}, (), "policy.conf (default): attach = no"),
    ({"work": {"attach": "yes"}, "attach": {"input": "no"}}, (), "attach input = no"),
    ({"work": {"attach": "yes", "programs": "/usr/bin/sleep /usr/bin/true"}}, (), ": programs"),
])
def test_refused_by_policy(make, ehub, policy, args, text):
    make(policy)
    h = start(ehub)
    r = attach(ehub, h, "sh", "-c", "true", options=args)
    assert r.returncode == 255 and text in r.stderr.decode(), r


def test_limits(make, ehub, terminal):
    dev = make({"work": {"attach": "yes"}, "attach": {"sessions": "3", "sessions-per-workload": "2"}})
    a, b = start(ehub), start(ehub)
    attach(ehub, a, "true")
    attach(ehub, b, "true")
    ts = [terminal("attach", a, "--", "sh") for _ in range(2)]
    for t in ts:
        t.send("echo he''re\r")
        t.expect("here")
    r = attach(ehub, a, "true")
    assert r.returncode == 255 and b"sessions-per-workload = 2" in r.stderr
    t = terminal("attach", b, "--", "sh")
    t.send("echo he''re\r")
    t.expect("here")
    r = attach(ehub, b, "true")
    assert r.returncode == 255 and b"attach sessions = 3" in r.stderr
    assert len(events(dev, "attach-refused")) == 2
    t.send("exit\r")
    assert t.wait() == 0
    assert attach(ehub, b, "true").returncode == 0


def test_the_end_of_the_workload_ends_it(dev, ehub, terminal):
    h = start(ehub)
    attach(ehub, h, "true")
    t = terminal("attach", h, "--", "sh")
    t.send("echo he''re\r")
    t.expect("here")
    assert ehub.call("signal", h, "KILL").returncode == 0
    assert t.wait() == 255
    assert b"workload has ended" in t.seen
    r = ehub.call("attach", h, "--", "true")
    assert r.returncode == 255 and b"unknown_handle" in r.stderr


def test_no_such_run(dev, ehub):
    r = ehub.call("attach", "nobody", "--", "true")
    assert r.returncode == 255 and b"no run nobody" in r.stderr


def test_a_lost_link_goes_on_in_the_same_shell(dev, ehub, terminal):
    """Not a byte is lost or comes twice, either way: connectd is killed while the shell prints and the operator types."""
    h = start(ehub)
    attach(ehub, h, "true")
    t = terminal("attach", h, "--", "sh")
    t.send("stty -echo; x=kept; echo go; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; [ $((i % 500)) = 0 ] && sleep 0.2; done; echo all; read a; echo got $a\r")
    t.expect("line 700\r")
    dev.kill9("connectd")
    t.send("typed meanwhile\r")
    t.expect("all", 60)
    t.expect("got typed meanwhile")
    t.send("echo $x; exit 4\r")
    t.expect("kept")
    assert t.wait() == 4
    assert [e["event"] for e in events(dev) if e["event"].startswith("attach")][-3:] == ["attach", "attach-resume", "attach-end"]


def test_every_byte_once_over_a_cut(dev, ehub):
    h = start(ehub)
    attach(ehub, h, "true")
    p = subprocess.Popen(ehub.argv("attach", h, "--", "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i; [ $((i % 2000)) = 0 ] && sleep 0.1; done"),
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out = os.read(p.stdout.fileno(), 65536)
    dev.kill9("connectd")
    rest, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    assert (out + rest).decode() == "".join(f"{i}\n" for i in range(1, 20001)), err


def test_somebody_looks_on(dev, ehub, terminal):
    h = start(ehub)
    attach(ehub, h, "true")
    t = terminal("attach", h, "--", "sh")
    t.send("echo be''fore\r")
    t.expect("before")
    w = terminal("attach", h, "--watch")
    w.expect("before")
    w.send("echo from the watcher\r")
    t.send("echo af''ter\r")
    t.expect("after")
    w.expect("after")
    assert b"from the watcher" not in t.seen + w.seen
    w.send("~.")
    assert w.wait() == 0
    w = terminal("attach", h, "--watch")
    w.expect("after")
    t.send("exit 6\r")
    assert t.wait() == 6
    assert w.wait() in (0, 6)


def test_workerd_killed_ends_it_and_nothing_stays(dev, ehub, terminal):
    h = start(ehub)
    attach(ehub, h, "true")
    t = terminal("attach", h, "--", "sh")
    mark = proc.mark()
    t.send(f"sleep 5{mark} & echo he''re\r")
    t.expect("here")
    old = dev.pid("workerd")
    dev.kill9("workerd")
    dev.restarted("workerd", old)
    assert t.wait(30) == 255
    wait_for(lambda: not session_processes(dev), 10, "no holder is left")
    wait_for(lambda: not proc.marked(mark), 10, "the job is gone")
    assert attach(ehub, h, "echo", "again").stdout == b"again\n"


def test_a_role_is_its_process_whatever_its_pid(dev, ehub, monkeypatch):
    """Of these tests themselves: pids wrap around, and copies of the launcher below it come first then."""
    attach(ehub, start(ehub), "true")
    want, real = dev.pids(), proc.descendants
    monkeypatch.setattr(proc, "descendants", lambda pid: real(pid)[::-1])
    assert dev.pids() == want


def test_a_reload_ends_it_with_a_word(dev, ehub):
    """The workload goes on; whoever was attached reads why, at the hub and on the device."""
    h = start(ehub)
    attach(ehub, h, "true")
    sessions = [subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
                for argv in (ehub.argv("attach", h, "-T", "--", "sh", "-c", "echo here; exec sleep 600"),
                             [exe("edgectl"), "-r", dev.run, "attach", h, "-T", "--", "sh", "-c", "echo here; exec sleep 600"])]
    for s in sessions:
        assert s.stdout.readline() == b"here\n"
    old = dev.pid("workerd")
    os.kill(dev.pid("launcher"), signal.SIGHUP)
    dev.restarted("workerd", old)
    for s in sessions:
        _, err = s.communicate(timeout=30)
        assert s.returncode == 255 and b"policy or program was reloaded; attach again" in err, (s.args, s.returncode, err)
    assert attach(ehub, h, "echo", "again").stdout == b"again\n"
    ends = [e["text"] for e in events(dev, "attach-end") if "reloaded" in e["text"]]
    assert len(ends) == 2, events(dev)


def test_secrets_do_not_leave(dev, ehub, terminal, tmp_path):
    """Also in pieces, in pipes and on a terminal, and in the device's own record."""
    value = "s3cr3t-v4lue-of-the-test"
    f = tmp_path / "v"
    f.write_text(value)
    h = start(ehub, "sh", "-c", "sleep 600", options=("--secret-file", f"key=@{f}"))
    attach(ehub, h, "true")
    inside = "cat /run/*/*/key || find / -name key -path '*lease*' -exec cat {} + 2>/dev/null; echo; "
    slow = f"import os, time\nfor c in b'{value}':\n os.write(1, bytes([c]))\n time.sleep(0.005)"
    r = attach(ehub, h, "sh", "-c", inside + f'/usr/bin/python3 -c "$2"; echo {value}x; echo $1', "sh", value, slow)
    assert value.encode() not in r.stdout and r.stdout.count(b"[redacted]") >= 3, r
    t = terminal("attach", h, "--", "sh")
    t.send(f"echo {value} {value[:9]}''{value[9:]}; echo e''nd\r")
    t.expect("end")
    assert value not in str(events(dev))
    t.send("exit\r")
    assert t.wait() == 0 and value.encode() not in t.seen


def test_idle_ends_it(make, ehub, terminal):
    """Whoever sat there reads why, whichever way he came; the code is that of a command that was hung up."""
    dev = make({"work": {"attach": "yes"}, "attach": {"idle": "2s"}})
    why = "the session was idle for 2s and was ended by the device; [attach] idle"
    h = start(ehub)
    attach(ehub, h, "true")
    t = terminal("attach", h, "--", "sh")
    assert t.wait(30) == 129
    assert b"edgehub: " + why.encode() in t.seen
    assert why in events(dev, "attach-end")[-1]["text"]
    r = ehub.call("shell", "-T", D, "--", "sleep", "30")
    assert r.returncode == 129 and why in r.stderr.decode(), r
    r = dev.ctl("attach", "-T", h, "--", "sleep", "30", json_out=False, timeout=30)
    assert r.rc == 129 and "edgectl: attach: " + why in r.err, r
    # Of one that ends by itself nothing is said.
    r = attach(ehub, h, "sh", "-c", "kill -HUP $$")
    assert (r.returncode, r.stderr) == (129, b""), r


def test_shell_is_a_run_of_its_own(dev, ehub, terminal):
    t = terminal("shell", D)
    t.send("echo in''side; stty size; exit 5\r")
    t.expect("inside")
    t.expect("24 80")
    assert t.wait() == 5
    wait_for(lambda: not dev.ctl("workloads").json["workloads"] or all(w["state"] == "ended" for w in dev.ctl("workloads").json["workloads"]), 20,
             "the run has ended with it")
    # Listed as what it was, with the shell's code: not as something that was killed.
    shell, = wait_for(lambda: [r for r in ehub.json("runs") if r["state"] not in ("running", "pending")], 20, "the hub knows")
    assert (shell["command"], shell["state"], shell["exit_code"], shell["run_exit_code"], shell["signal"]) == ("shell", "exited", 5, 5, 0), shell
    p = subprocess.run(ehub.argv("shell", D, "-T", "--", "sh", "-c", "tty; echo err >&2; exit 3"), capture_output=True, timeout=60,
                       stdin=subprocess.DEVNULL, check=False)
    assert (p.returncode, p.stdout + p.stderr) == (3, b"not a tty\nerr\n"), p


@pytest.mark.parametrize("policy, conf, text", [
    ({"work": {"attach": "yes", "start": "no"}}, {}, "policy.conf:3: start = no"),
    ({"work": {"attach": "yes", "programs": "/bin/sh"}}, {}, "policy.conf:3: programs"),
    ({"work": {"attach": "no"}}, {}, "policy.conf:2: attach = no"),
    (POLICY, {"work": {"slots": 1}}, "busy"), (POLICY, {"work": {"disk-low": "1000000G"}}, "disk-full"),
])
def test_a_refused_shell_says_why(ehub_agent, ehub, policy, conf, text):
    """At once and as run does: the shell's own run, of which nobody has heard, is what the device refuses."""
    ehub_agent(policy=policy, conf=conf)
    if text == "busy":
        attach(ehub, start(ehub), "true")
    began = time.monotonic()
    r = ehub.call("shell", D, "-T", "--", "sh", "-c", "true")
    assert r.returncode == 255 and text in r.stderr.decode() and b"unknown_handle" not in r.stderr, r
    assert time.monotonic() - began < 10
    wait_for(lambda: not [r for r in ehub.json("runs", "--open") if r["command"] != "sleep 600"], 10, "nothing of it is left")


@pytest.fixture
def wire(ehub):
    p = Proxy(ehub.port)
    yield p
    p.close()


@pytest.fixture
def far(ehub_agent, wire):
    """A device whose link can be cut."""
    return ehub_agent(policy=POLICY, conf={"link": {"heartbeat": "500ms", "retry-min": "50ms", "retry-max": "500ms"},
                                           "hub": {"url": f"wss://localhost:{wire.port}/api/executors/connect"}})


def down(wire, silent):
    """The link is gone, and the hub is told or is not."""
    wire.refuse = True
    if silent:
        wire.hold = {"up", "down"}
    else:
        wire.cut()


def up(wire):
    wire.cut()
    wire.hold, wire.refuse = set(), False


def leave(t, how):
    if how == "typed":
        t.send("\r~.")
        assert t.wait() == 255
    else:
        os.kill(t.pid, how)
        t.wait()


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("how", ["typed", signal.SIGKILL, signal.SIGTERM])
def test_left_while_the_link_is_down_ends_when_it_is_back(far, ehub, wire, terminal, how, silent):
    h = start(ehub)
    attach(ehub, h, "true")
    t, mark = terminal("attach", h, "--", "sh"), proc.mark()
    t.send(f"sleep 5{mark} & echo he''re\r")
    t.expect("here")
    wait_for(lambda: proc.marked(mark), 10, "it runs")
    down(wire, silent)
    if not silent:
        t.expect("the link to the device is lost")
    leave(t, how)
    assert proc.marked(mark), "the device has not heard of it"
    up(wire)
    wait_for(lambda: not proc.marked(mark) and not session_processes(far), 20, lambda: f"it ends: {events(far)}; {ehub.tail()}")
    assert "closed by the operator" in events(far, "attach-end")[-1]["text"]
    # Once: what is settled is not asked for again.
    wait_for(lambda: attach(ehub, h, "true").returncode == 0, 20, "others may attach")
    n = len(events(far))
    time.sleep(2)
    assert len(events(far)) == n and not events(far, "attach-refused"), events(far)


def test_a_hub_that_stops_says_so(dev, ehub, terminal):
    """Not that somebody has left; and how to go on, which one who only looks on need not know."""
    h = start(ehub)
    attach(ehub, h, "true")
    t = terminal("attach", h, "--", "sh")
    t.send("echo he''re\r")
    t.expect("here")
    w = terminal("attach", h, "--watch")
    w.expect("here")
    ehub.proc.terminate()
    assert ehub.proc.wait(20) == 0
    assert t.wait() == 255 and w.wait() == 0
    said = b"edgehub: the hub is stopping; the session ends with it"
    assert said + b"; when it is back: edgehub attach " + h.encode() in t.seen and b"left" not in t.seen
    assert said in w.seen and b"when it is back" not in w.seen
    ehub.proc.stdout.close()
    ehub.start()


@pytest.mark.parametrize("hub", [None, "term", "kill"])
def test_a_shell_left_while_the_link_is_down_takes_its_run_with_it(far, ehub, wire, terminal, hub):
    t, mark = terminal("shell", D), proc.mark()
    t.send(f"sleep 5{mark} & echo he''re\r")
    t.expect("here")
    wait_for(lambda: proc.marked(mark), 10, "it runs")      # on a busy machine the shell goes on before its child has become sleep
    down(wire, False)
    t.expect("the link to the device is lost")
    if hub is None:
        leave(t, "typed")
    elif hub == "term":
        ehub.proc.terminate()
        assert ehub.proc.wait(20) == 0
        assert t.wait() == 255 and b"the hub is stopping; the session ends with it; when it is back: edgehub shell " in t.seen
        ehub.proc.stdout.close()
        ehub.start()
    else:
        ehub.restart()
        assert t.wait() == 255 and b"the hub is gone; the session ends with it" in t.seen
    assert proc.marked(mark), "the device has not heard of it"
    up(wire)
    run, = ehub.json("runs")
    ehub.wait_run(run["handle"], lambda r: r["state"] not in ("pending", "running"), 30)
    wait_for(lambda: not proc.marked(mark) and not session_processes(far), 20, "nothing of it is left")
    assert [w["state"] for w in far.ctl("workloads").json["workloads"]] in ([], ["ended"])


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_of_the_hub_ends_the_session(far, ehub, terminal, kill):
    """And a run that is not a shell's goes on."""
    h = start(ehub)
    attach(ehub, h, "true")
    t, s, mark = terminal("attach", h, "--", "sh"), terminal("shell", D), proc.mark()
    for x in (t, s):
        x.send(f"sleep 5{mark} & echo he''re\r")
        x.expect("here")
    assert len(proc.marked(mark)) == 2
    if not kill:
        ehub.proc.terminate()
        assert ehub.proc.wait(20) == 0
        ehub.proc.stdout.close()
        ehub.start()
    else:
        ehub.restart()
    assert t.wait() == 255 and s.wait() == 255
    ehub.connected()
    wait_for(lambda: not proc.marked(mark) and not session_processes(far), 20, lambda: f"they end: {events(far)}; {ehub.tail()}")
    wait_for(lambda: [r["handle"] for r in ehub.json("runs", "--open")] == [h], 20, "the shell's run has ended")


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_shell_that_is_killed_while_it_begins_leaves_no_run(far, ehub, wire, sig):
    """The start is on its way: whoever asked for it is gone before the device answers."""
    wire.hold = {"down"}
    p = ehub.popen("shell", D, "-T", "--", "sh", "-c", "sleep 600")
    wait_for(lambda: [r for r in ehub.json("runs") if r["command"] == "shell"], 10, "the hub has it")
    p.send_signal(sig)
    p.wait(10)
    wire.hold = set()
    wait_for(lambda: not ehub.json("runs", "--open"), 20, "it is over")
    wait_for(lambda: all(w["state"] == "ended" for w in far.ctl("workloads").json["workloads"]), 20, "also there")


@pytest.mark.root
def test_b67_it_opens_with_no_byte_of_disk_left(agent, ehub, mounts, terminal):
    """Work root and state are full to the last byte: a session opens, shows, ends; what cannot be recorded is only not recorded."""
    a = agent(hub=ehub, start=False, ns=mounts, token=ehub.token("--name", D), policy=POLICY)
    tmpfs(mounts, a.root, "size=8m,mode=755")
    tmpfs(mounts, os.path.join(a.state, "workerd"), "size=2m,mode=755")
    a.start()
    ehub.connected()
    h = start(ehub)
    attach(ehub, h, "true")
    for where in (a.root, os.path.join(a.state, "workerd")):
        fill(mounts, where)
        assert mounts.run("sh", "-c", f"! echo x > {where}/one", check=False).returncode == 0, "it is full"
    for _ in range(3):
        r = attach(ehub, h, "sh", "-c", "echo here; exit 3")
        assert (r.returncode, r.stdout) == (3, b"here\n"), r
    t = terminal("attach", h, "--", "sh")
    t.send("echo wi''thout; echo x > file; stty size; exit 4\r")
    t.expect("without")
    t.expect("24 80")
    assert t.wait() == 4
    assert not session_processes(a)


def test_a_terminal_beside_a_file_and_a_log(make, ehub, terminal, tmp_path):
    """Both run while it is used: each keystroke is answered, in order, and the file and the log are whole. How fast: tests/bench/run R3."""
    make({"work": {"attach": "yes", "files": "write"}})
    h = start(ehub, options=("--workdir", "w"))
    attach(ehub, h, "true")
    big = tmp_path / "big"
    big.write_bytes(os.urandom(1 << 20) * 48)
    log = subprocess.Popen(ehub.argv("run", D, "--workdir", "l", "--", "sh", "-c", "yes 0123456789abcde | head -c 31457280"), stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    seen = []
    reader = threading.Thread(target=lambda: seen.append(log.stdout.read()))
    reader.start()
    copies = [subprocess.Popen(ehub.argv("cp", str(big), f"{D}:{h}/big{i}"), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(2)]
    t = terminal("attach", h, "--", "sh", "-c", "stty -echo; echo ready; while read x; do echo got $x; done; exit 3")
    t.expect("ready")
    n = 0
    while n < 20 or (n < 2000 and (log.poll() is None or any(c.poll() is None for c in copies))):
        t.send(f"{n}\r")
        t.expect(f"got {n}\r\n", 30)
        n += 1
    assert [c.wait(60) for c in copies] == [0, 0]
    assert log.wait(60) == 0
    reader.join()
    assert seen[0] == b"0123456789abcde\n" * (30 << 16)
    r = attach(ehub, h, "sh", "-c", "sha256sum < big0; sha256sum < big1")
    assert r.stdout.decode().split()[::2] == [hashlib.sha256(big.read_bytes()).hexdigest()] * 2
    t.send(b"\x04")
    assert t.wait() == 3
