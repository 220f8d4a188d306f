"""Processes of a workload: its end, its tree, what it inherits (B46, B47, B48, B50, B52, B57, B59; faults.md section 4).

Where it could go wrong: the launcher (clone into the cgroup, what a child gets, cgroup.kill and populated 0), workinit
(reaping, delivering signals), workerd (which event ends a workload; records), every daemon's signal handling.
"""
import os
import random
import re
import signal
import socket
import subprocess
import time

import pytest

from lib import proc
from lib.agent import exe, is_root
from lib.proc import wait_for

pytestmark = pytest.mark.timeout(120)

PY = "/usr/bin/python3"
SOAK = os.environ.get("EDGEWARD_SOAK") == "1"


def py(code):
    return [PY, "-c", "import sys,os,time,signal,socket\n" + code]


def marked(mark):
    """Processes whose environment carries the mark."""
    found = []
    for pid in proc.pids():
        try:
            if mark.encode() in proc.environ(pid) and proc.alive(pid):
                found.append(pid)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    return found


def cgroup_dir(pid):
    return proc.cgroup_mount() + proc.cgroup(pid)


# ---- B48: the end of the main process is the end ----

def test_b48_grandchild_holds_the_pipe(device, hub, dialect):
    begin = time.monotonic()
    run = hub.finish(hub.start("sleep 600 & echo done", env={"MARK": "b48-hold", "PATH": "/usr/bin:/bin"}), 10)
    assert time.monotonic() - begin < 3.5
    assert run.text == b"done\n" and run.exit_code == 0
    wait_for(lambda: not marked("b48-hold"), 2, "the grandchild is gone")


@pytest.mark.parametrize("script", [
    "(while :; do echo noise; sleep 0.01; done) & echo done; exit 6",
    "sleep 600 2>&1 >/dev/null & echo done; exit 6",
    "setsid sleep 600 & echo done; exit 6",
    "(trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM; sleep 600') & echo done; exit 6",
    "sleep 600 & sleep 601 & sleep 602 & echo done; exit 6",
])
def test_b48_variants(device, hub, script):
    begin = time.monotonic()
    run = hub.finish(hub.start(script, env={"MARK": "b48-var", "PATH": "/usr/bin:/bin"}), 10)
    assert time.monotonic() - begin < 3.5
    assert run.exit_code == 6 and b"done\n" in run.text
    wait_for(lambda: not marked("b48-var"), 2, "nothing is left of it")


def test_b48_pipe_held_by_a_process_outside(device, hub):
    """The write end was passed over a socket to a process that is not part of the workload."""
    hub.finish(hub.start("true", work_dir="w"))
    path = os.path.join(device.root, "w", "catch.sock")     # where a workload and the outside meet
    catcher = subprocess.Popen(py(f"s = socket.socket(socket.AF_UNIX); s.bind({path!r}); os.chmod({path!r}, 0o777)\n"
                                  "s.listen(); c, _ = s.accept(); m = socket.recv_fds(c, 10, 1)\n"
                                  "print('got', flush=True); time.sleep(600)"), stdout=subprocess.PIPE)
    wait_for(lambda: os.path.exists(path), 10, "catcher")
    begin = time.monotonic()
    run = hub.finish(hub.start(py(f"s = socket.socket(socket.AF_UNIX); s.connect({path!r})\n"
                                  "socket.send_fds(s, [b'x'], [1]); print('done', flush=True)"), work_dir="w"), 10)
    assert time.monotonic() - begin < 5 and run.text == b"done\n"
    assert catcher.stdout.readline() == b"got\n", "the descriptor really was held outside"
    catcher.kill()
    catcher.wait()
    hub.delivered(run)


def test_b48_killed_main_process(device, hub):
    run = hub.finish(hub.start("sleep 600 & kill -9 $$", env={"MARK": "b48-k9", "PATH": "/usr/bin:/bin"}), 10)
    assert run.state == "killed" and run.exit_code == -1
    wait_for(lambda: not marked("b48-k9"), 2, "nothing is left of it")


# ---- B47: a tree is ended by its container ----

FORKS = ("def chain():\n while True:\n  if os.fork(): os._exit(0)\n  time.sleep(0.001)\n"
         "for _ in range(4):\n if os.fork() == 0: chain()\n"
         "print('up', flush=True)\n"
         "while True:\n try: os.wait()\n except ChildProcessError: time.sleep(0.05)\n")


def kill_and_check(device, hub, run, mark):
    ticks = sum(proc.cpu_ticks(p) for p in device.pids().values())
    begin = time.monotonic()
    hub.signal(run, "kill")
    wait_for(lambda: not marked(mark), 2, lambda: f"left: {marked(mark)}")
    assert time.monotonic() - begin < 2
    hub.finish(run)
    assert run.state == "killed"
    spent = sum(proc.cpu_ticks(p) for p in device.pids().values()) - ticks
    assert spent < 100, f"{spent} ticks for a kill"
    hub.delivered(run)


def test_b47_fork_loop(device, hub):
    run = hub.start(py(FORKS), env={"MARK": "b47-forks", "PATH": "/usr/bin:/bin"})
    hub.wait("up", lambda: run.log.received, 10)
    kill_and_check(device, hub, run, "b47-forks")


def test_b47_many_sleepers(device, hub):
    run = hub.start(py("for _ in range(400):\n if os.fork() == 0:\n  signal.signal(15, signal.SIG_IGN); time.sleep(600)\n"
                       "print('up', flush=True); time.sleep(600)"), env={"MARK": "b47-sleep", "PATH": "/usr/bin:/bin"})
    hub.wait("up", lambda: run.log.received, 20)
    assert len(marked("b47-sleep")) >= 400
    kill_and_check(device, hub, run, "b47-sleep")


@pytest.mark.root
def test_b47_frozen_tree(device, hub):
    run = hub.start("echo up; sleep 600", env={"MARK": "b47-frozen", "PATH": "/usr/bin:/bin"})
    hub.wait("up", lambda: run.log.received, 10)
    if proc.cgroup_mount() is None:
        pytest.skip("skipped: no cgroup v2 here")
    with open(cgroup_dir(run.started["pid"]) + "/cgroup.freeze", "w", encoding="ascii") as f:
        f.write("1")
    kill_and_check(device, hub, run, "b47-frozen")


@pytest.mark.root
def test_b47_fork_loop_in_a_nested_group(device, hub):
    """Root has made groups below and moved it there: the kill reaches what forks in them. They are not the launcher's to remove, and
    the run has ended all the same: an empty tree decides, not a removed directory."""
    if proc.cgroup_mount() is None:
        pytest.skip("skipped: no cgroup v2 here")
    run = hub.start(py("time.sleep(0.5)\n" + FORKS), env={"MARK": "b47-nested", "PATH": "/usr/bin:/bin"})
    group = cgroup_dir(run.started["pid"])
    inner = os.path.join(group, "a", "b")
    os.makedirs(inner)
    with open(inner + "/cgroup.procs", "w", encoding="ascii") as f:
        f.write(str(run.started["pid"]))
    hub.wait("up", lambda: run.log.received, 10)
    assert len(open(inner + "/cgroup.procs").read().split()) >= 4
    kill_and_check(device, hub, run, "b47-nested")


def test_b47_stopped_job(device, hub):
    run = hub.start("echo up; kill -STOP $$; sleep 600", env={"MARK": "b47-stop", "PATH": "/usr/bin:/bin"})
    hub.wait("up", lambda: run.log.received, 10)
    kill_and_check(device, hub, run, "b47-stop")


def test_own_cgroup_and_session(device, hub):
    """Each workload has its own cgroup, named after its handle, and its own session."""
    runs = [hub.start("sleep 600") for _ in range(2)]
    pids = [r.started["pid"] for r in runs]
    if proc.cgroup_mount() is not None and is_root():
        groups = [proc.cgroup(p) for p in pids]
        assert groups[0] != groups[1]
        for run, group in zip(runs, groups):
            assert group.endswith("/w." + run.handle), group
            assert proc.cgroup(device.pid("launcher")) != group
    assert os.getsid(pids[0]) != os.getsid(pids[1]) != os.getsid(device.pid("workerd"))
    for run in runs:
        hub.signal(run, "kill")
        hub.delivered(run)
    if proc.cgroup_mount() is not None and is_root():
        wait_for(lambda: not any(os.path.isdir(proc.cgroup_mount() + g) for g in groups), 3, "cgroups removed")


# ---- B50: who gets a signal ----

def test_b50_term_goes_to_the_main_process_only(device, hub):
    """A parent that asks its child to save: with a group signal the child would be dead before it is asked."""
    run = hub.start(py("""
r, w = os.pipe()
if os.fork() == 0:
    signal.signal(signal.SIGUSR1, lambda *a: (time.sleep(0.3), print('saved', flush=True), os._exit(0)))
    signal.signal(signal.SIGTERM, lambda *a: os._exit(9))
    os.write(w, b'r')
    while True: time.sleep(1)
os.read(r, 1)
def stop(*a):
    os.kill(child, signal.SIGUSR1); os.waitpid(child, 0); os._exit(0)
child = int(open('/proc/self/task/%d/children' % os.getpid()).read().split()[0])
signal.signal(signal.SIGTERM, stop)
print('up', flush=True)
while True: time.sleep(1)
"""))
    hub.wait("up", lambda: run.log.received >= 3, 10)
    hub.signal(run)
    hub.finish(run, 10)
    assert run.text == b"up\nsaved\n" and run.exit_code == 0


def test_b50_signal_when_only_children_are_left(device, hub):
    run = hub.finish(hub.start("sleep 600 & exit 0"))
    answer = hub.signal(run)
    assert answer["type"] in ("status", "error")


# ---- B59: what a child gets ----

PROBE = r"""
import resource
def show(k, v): print(k, '=', v)
fds = sorted(int(x) for x in os.listdir('/proc/self/fd'))
here = os.open('/', os.O_RDONLY)
show('fds', [f for f in fds if f < here and os.path.exists('/proc/self/fd/%d' % f)])
st = dict(l.split(':\t', 1) for l in open('/proc/self/status').read().splitlines() if ':\t' in l)
for k in ('SigBlk', 'SigIgn', 'SigPnd', 'ShdPnd', 'CapInh', 'CapPrm', 'CapEff', 'CapAmb', 'NoNewPrivs', 'Groups', 'Uid',
          'Gid', 'Umask'): show(k, st.get(k, '').strip())
show('nice', os.nice(0))
show('policy', os.sched_getscheduler(0))
show('oom', open('/proc/self/oom_score_adj').read().strip())
show('slack', open('/proc/self/timerslack_ns').read().strip() if os.access('/proc/self/timerslack_ns', os.R_OK) else '-')
show('cwd', os.getcwd())
show('session', os.getsid(0) == os.getpid() or os.getsid(0) == os.getppid())
try: os.open('/dev/tty', os.O_RDWR); show('tty', 1)
except OSError: show('tty', 0)
show('core', resource.getrlimit(resource.RLIMIT_CORE))
show('env', sorted(k for k in os.environ))
show('pdeath', 0)
"""


def probe(hub, **kw):
    run = hub.finish(hub.start(py(PROBE), work_dir="probe", **kw), 20)
    return dict(line.split(" = ", 1) for line in run.text.decode().splitlines())


def check_probe(device, got):
    assert got["fds"] == "[0, 1, 2]", got["fds"]
    for mask in ("SigBlk", "SigPnd", "ShdPnd", "CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(got[mask], 16) == 0, (mask, got[mask])
    # Python itself ignores SIGPIPE (13) and SIGXFSZ (25).
    assert int(got["SigIgn"], 16) & ~(1 << 12 | 1 << 24) == 0, got["SigIgn"]
    assert got["NoNewPrivs"] == "1" and got["nice"] in ("0", str(os.nice(0))) and got["policy"] == "0"
    assert got["Umask"] in ("0022", "0077", "0027"), got["Umask"]
    assert got["oom"] == "200", "when memory runs out a workload goes before the agent"
    assert got["cwd"] == os.path.join(device.root, "probe")
    assert got["tty"] == "0" and got["session"] == "True"
    for name in ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "INVOCATION_ID",
                 "ASAN_OPTIONS", "LD_PRELOAD", "JOURNAL_STREAM"):
        assert name not in got["env"], name
    if is_root():
        uids = got["Uid"].split()
        assert len(set(uids)) == 1 and int(uids[0]) in device.pool
        assert set(got["Gid"].split()) == {str(device.pool_gid)}
        assert got["Groups"] in ("", str(device.pool_gid)), got["Groups"]


def test_b59_a_child_starts_with_a_known_state(device, hub):
    check_probe(device, probe(hub))


def test_b59_also_with_much_going_on(agent, hub):
    """Twenty workloads, edgectl clients and a reconnect under way."""
    a = agent(conf={"work": {"slots": 32}})
    runs = [hub.start("while :; do echo x; sleep 0.05; done") for _ in range(20)]
    clients = [subprocess.Popen([exe("edgectl"), "-r", a.run, "logs", "-f", runs[0].handle], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL) for _ in range(3)]
    s = hub.session()
    s.cut()
    hub.session(after=s)
    check_probe(a, probe(hub))
    for c in clients:
        c.kill()
        c.wait()
    for run in runs:
        hub.signal(run, "kill")
        hub.finish(run)


def test_b59_agent_started_in_a_dirty_environment(agent, hub):
    """Blocked and ignored signals, a strange umask, open descriptors, nice: nothing of it reaches a workload."""
    dirty = ("import os,signal,sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\n"
             "for s in (1, 2, 3, 10, 12, 13, 14, 17, 21, 22): signal.signal(s, signal.SIG_IGN)\n"
             "os.umask(0o177); os.nice(5)\n"
             "for i in range(20):\n fd = os.open('/dev/null', 0); os.set_inheritable(fd, True)\n"
             "os.execv(sys.argv[1], sys.argv[1:])")
    a = agent(prefix=[PY, "-c", dirty], start=False)
    a.start()
    got = probe(hub)
    got["nice"] = "0"           # nice is inherited by purpose: the administrator may have set it on the unit
    check_probe(a, got)


SPEAK = r"""
import os, socket, sys
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    for path in sys.argv[1:]:
        try:
            s = socket.socket(socket.AF_UNIX, kind)
            s.connect(path)
            s.send(b"STOPPING=1\nREADY=0\nMAINPID=1\nWATCHDOG=trigger\nFDSTORE=1")
            print("reached", path)
        except OSError as e:
            print("refused", type(e).__name__)
print([k for k in os.environ if k.startswith(("NOTIFY", "LISTEN", "WATCHDOG"))])
"""


def test_b130_a_workload_cannot_speak_for_the_agent(agent, hub, shared):
    """It knows the paths of the manager's socket and of ours, and everybody may write to the manager's; where it could go: view.c, notify.c."""
    path = os.path.join(shared, f"notify-{os.getpid()}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        os.chmod(path, 0o666)
        s.setblocking(False)
        a = agent(env={"NOTIFY_SOCKET": path})
        a.connected()
        paths = [path, os.path.join(a.run, "introduce.sock"), os.path.join(a.run, "workerd.sock"), os.path.join(a.run, "connectd.sock"),
                 "/run/systemd/notify"]
        run = hub.finish(hub.start(["/usr/bin/python3", "-c", SPEAK, *paths]), 20)
        lines = run.text.decode().splitlines()
        assert lines[-1] == "[]" and len(lines) == 3 * len(paths) + 1 and not any("reached" in line for line in lines), lines
        told = b""
        try:
            while True:
                told += s.recv(4096)
        except BlockingIOError:
            pass
        assert b"FDSTORE" not in told and b"MAINPID=1\n" not in told
    os.unlink(path)


# ---- B46: nothing between created and recorded ----

def test_b46_workerd_killed_during_starts(agent, hub, dialect):
    """kill -9 at a random moment of a start: each handle ends exactly once or runs, none runs twice, none is missing."""
    a = agent(conf={"work": {"slots": 128}})
    rng = random.Random(46)
    runs = []
    for n in range(20 if SOAK else 5):
        for k in range(5):
            runs.append(hub.send_start(["/bin/sh", "-c", f"echo run {n}.{k}; exec sleep 1000"]))
        time.sleep(rng.random() * 0.03)         # the moment itself is what is random here
        old = a.kill9("workerd")
        a.restarted("workerd", old)
    hub.wait("every start is answered or ended", lambda: all(r.answers or r.terminal for r in runs), 30)
    for run in runs:
        if run.refused or run.terminal:
            continue
        hub.wait("its line", lambda r=run: r.log.received or r.terminal, 20)
        if not run.terminal:
            assert proc.alive(run.started["pid"])
            hub.signal(run, "kill")
    for run in runs:
        if not run.refused:
            hub.delivered(run, 20)
            assert run.text.count(b"run ") <= 1, f"ran twice: {run.text!r}"
    s = hub.session()
    hub.wait("an empty list", lambda: s.beats and s.beats[-1][2] == [], 20)
    if is_root():
        assert not proc.by_uid(set(a.pool)), "processes nobody knows"


# ---- B57: signals to the daemons ----

def test_b57_term_at_a_random_moment(agent, hub):
    """Start, SIGTERM after 0..200 ms: ends within the stop time with the documented code, leaves nothing."""
    rng = random.Random(57)
    a = agent(start=False)
    for _ in range(12):
        a.start(wait=False)
        time.sleep(rng.random() * 0.2)
        begin = time.monotonic()
        assert a.stop() == []
        # Before main() has come to its signals the default action is all there is.
        assert time.monotonic() - begin < 4 and a.top.returncode in (0, -signal.SIGTERM), a.log_tail()


@pytest.mark.parametrize("role", ["connectd", "workerd", "launcher", "privhelper"])
def test_b57_signal_storms_do_no_harm(device, hub, role):
    run = hub.start("sleep 1000")
    pid = device.pid(role)
    for _ in range(200):
        for sig in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGURG, signal.SIGWINCH):
            os.kill(pid, sig)
    s = hub.session()
    n = len(s.beats)
    hub.wait("beats", lambda: len(s.beats) >= n + 2, 10)
    assert device.pid(role) == pid and proc.alive(run.started["pid"])
    hub.signal(run, "kill")
    hub.finish(run)


@pytest.mark.parametrize("role", ["connectd", "privhelper"])
def test_b57_term_to_one_daemon_is_an_orderly_end(device, hub, role):
    """Exit 0, started again, no word of a crash; work goes on."""
    run = hub.start("sleep 1000")
    pid = device.kill9(role, signal.SIGTERM)
    wait_for(lambda: not proc.alive(pid), 3, "it ends")
    device.restarted(role, pid)
    hub.session()
    assert proc.alive(run.started["pid"])
    assert not re.search(f"{role} ended with (signal|exit code [1-9])", device.log_text()), device.log_tail()
    hub.signal(run, "kill")
    hub.finish(run)


def test_timeout_minutes(agent, hub):
    if not SOAK:
        pytest.skip("skipped: a minute is the least; test_policy_bounds_the_time has the short form")
    agent()
    run = hub.start("trap '' TERM; echo up; sleep 1000", timeout_minutes=1)
    hub.finish(run, 75)
    assert run.state in ("killed", "failed")
