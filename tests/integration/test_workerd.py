"""launcher and workerd without a hub: starting, streaming, signalling, ending, and being killed.

Every test runs the real executables with their filters in force; lib/workdrv.py plays connectd and privhelper. As root the
launcher has a pool and a delegated cgroup; `test_plain_*` run as an ordinary user without either.
"""
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from lib import proc, workdrv
from lib.quotashim import Quota
from lib.proc import wait_for
from lib.workdrv import Device
from lib.xxh3 import xxh3_128

PY = "/usr/bin/python3"
root = pytest.mark.root

# Writes n pseudo-random bytes in pieces of every size there is trouble with.
NOISE = """
import os, random, sys
rng, n, w = random.Random(int(sys.argv[1])), int(sys.argv[2]), 0
while w < n:
    b = rng.randbytes(min(rng.choice([1, 2, 3, 7, 15, 16, 17, 100, 4096, 65536, 200000]), n - w))
    w += len(b)
    v = memoryview(b)
    while v:
        v = v[os.write(1, v):]
"""


def noise(seed, n):
    rng, out = random.Random(seed), bytearray()
    while len(out) < n:
        out += rng.randbytes(min(rng.choice([1, 2, 3, 7, 15, 16, 17, 100, 4096, 65536, 200000]), n - len(out)))
    return bytes(out)


@pytest.fixture
def device(request):
    made = []

    def make(**kw):
        d = Device(**kw)
        made.append(d)
        return d.__enter__()
    yield make
    for d in made:
        d.__exit__(*((AssertionError, None, None) if request.node.session.testsfailed else (None, None, None)))


@pytest.fixture
def dev(device):
    return device()


# ---- the ordinary life

@root
def test_echo_and_exit_codes(dev):
    r = dev.run(["echo", "hello"])
    assert r.data == b"hello\n" and r.info["outcome"] == workdrv.EXITED and r.info["exit_code"] == 0
    assert r.info["started_at"] <= r.info["finished_at"] and r.info["pid"] > 1
    for code in (1, 2, 127, 255):
        assert dev.run(["sh", "-c", f"exit {code}"]).info["exit_code"] == code
    r = dev.run(["sh", "-c", "kill -SEGV $$"])
    assert (r.info["outcome"], r.info["term_signal"]) == (workdrv.SIGNALLED, signal.SIGSEGV)
    r = dev.run(["sh", "-c", "echo out; echo err >&2; echo out"])
    assert r.data == b"out\nerr\nout\n"
    assert dev.settled()


@root
def test_spec_is_passed_exactly(dev):
    argv = [PY, "-c", "import sys; sys.stdout.write(repr(sys.argv[1:]))", "", "a b", "'\"$x\\", "\udcff\n", "--", "ä" * 500]
    assert dev.run(argv).data.decode() == repr(argv[3:])
    many = ["true"] + ["x"] * 4095
    assert dev.run(many).info["exit_code"] == 0
    assert "malformed" in dev.start(["true"] + ["x"] * 4096, expect=workdrv.BAD_SPEC)
    assert "malformed" in dev.start([""], expect=workdrv.BAD_SPEC)
    assert "malformed" in dev.start(["true"], env=["NOEQ"], expect=workdrv.BAD_SPEC)


@root
def test_environment_is_built_from_nothing(device):
    dev = device(env={"EW_CANARY": "leak", "LD_BIND_NOW": "1"})
    env = dict(line.split("=", 1) for line in dev.run(["/usr/bin/env"], work_dir="proj/a").data.decode().splitlines())
    assert env == {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "USER": "edgeward-run",
                   "LOGNAME": "edgeward-run", "SHELL": "/bin/sh", "LANG": "C.UTF-8", "TMPDIR": "/tmp",
                   "HOME": f"{dev.dir}/work/proj/a"}
    # An environment that was sent is exactly that, with a floor for HOME and PATH.
    path = "PATH=" + env["PATH"]
    for sent, floor in ((["B=2", "A=1", "B=3"], [f"HOME={dev.dir}/work", path]), ([], [f"HOME={dev.dir}/work", path]),
                        (["HOME=/x"], [path]), (["PATH=/usr/bin", "HOME="], [])):
        assert dev.run(["/usr/bin/env"], env=sent).data.decode().splitlines() == sent + floor
    os.mkdir(f"{dev.dir}/work/bin")     # what is outside the work directory and the system is not there to be run
    with open(f"{dev.dir}/work/bin/mine", "w") as f:
        f.write("#!/bin/sh\necho mine\n")
    os.chmod(f"{dev.dir}/work/bin/mine", 0o755)
    assert dev.run(["mine"], env=[f"PATH=/nonexistent:{dev.dir}/work/bin"]).data == b"mine\n"


@root
def test_failed_starts_name_the_reason(dev):
    assert "No such file" in dev.start(["nonexistent-program"], expect=workdrv.START_FAILED)
    assert "Permission denied" in dev.start(["/etc/passwd"], expect=workdrv.START_FAILED)
    assert dev.settled()
    assert not dev.runs, "a refused start left something behind"
    assert dev.run(["echo", "still"]).data == b"still\n"


@root
def test_signals_and_outcomes(dev):
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        r = dev.start(["sleep", "100"])
        assert dev.signal(r, sig)[0] == workdrv.OK
        dev.finish(r)
        assert (r.info["outcome"], r.info["term_signal"]) == (workdrv.CANCELLED, sig)
    r = dev.start(["sh", "-c", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"])
    dev.wait("up", lambda: r.data == b"up\n")
    dev.signal(r, signal.SIGTERM)
    dev.finish(r)
    assert r.data == b"up\nbye\n" and (r.info["outcome"], r.info["exit_code"]) == (workdrv.EXITED, 3)
    assert dev.signal("unknown", 15)[0] == workdrv.UNKNOWN_HANDLE
    r = dev.start(["true"])
    dev.finish(r, deliver=False)
    assert dev.signal(r, 15)[0] == workdrv.OK, "signalling a finished workload is a success"
    dev.deliver(r)


@root
def test_timeout_kills_all_of_it(dev):
    r = dev.start(["sh", "-c", "trap '' TERM INT; sleep 100 & sleep 100"], timeout=1)
    began = time.monotonic()
    dev.finish(r)
    assert 0.8 < time.monotonic() - began < 3
    assert (r.info["outcome"], r.info["term_signal"]) == (workdrv.TIMEOUT, signal.SIGKILL)
    assert dev.settled()


@root
def test_disowned_work_is_stopped_and_told(device):
    dev = device(conf="kill-grace = 500ms\n")
    soft = dev.start(["sh", "-c", "trap 'echo dying; exit 3' TERM; while :; do sleep 0.05; done"])
    hard = dev.start(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"])
    dev.wait("up", lambda: hard.data == b"up\n")
    for r in (soft, hard):
        dev.send(workdrv.DISOWN_T, workdrv.REF.pack(r.wid, 0))
    dev.finish(soft)
    assert soft.data == b"dying\n" and soft.info["exit_code"] == 3
    dev.finish(hard)
    assert hard.info["outcome"] == workdrv.CANCELLED and hard.info["flags"] & 2
    assert dev.settled()


@root
def test_admission_is_atomic_and_idempotent(device):
    dev = device(slots=2)
    asked = [dev.ask_start(["sleep", "60"]) for _ in range(4)]
    answers = [dev.answer(i)[0] for _h, i in asked]
    assert sorted(answers) == [workdrv.OK] * 2 + [workdrv.BUSY] * 2
    first = next(r for r in dev.runs.values())
    again = dev.start(["sleep", "60"], handle=first.handle, sub=False)
    assert again.wid == first.wid, "the same handle runs once"
    for r in list(dev.runs.values()):
        dev.sub(r, 0)
        dev.signal(r, 9)
        dev.finish(r)
    assert dev.run(["echo", "free"]).data == b"free\n"
    # ended, not delivered: its slot is free
    kept = [dev.finish(dev.start(["true"]), deliver=False) for _ in range(5)]
    assert dev.run(["echo", "free"]).data == b"free\n"
    for r in kept:
        dev.deliver(r)
    assert "used before" in dev.start(["true"], handle=kept[0].handle, expect=workdrv.START_FAILED)
    dev.kill_workerd()
    dev.connect()
    assert "used before" in dev.start(["true"], handle=kept[0].handle, expect=workdrv.START_FAILED)


@root
def test_b54_any_order_of_messages(device):
    """B54: two messages whose order is not fixed. Where it could go wrong: workload_start() (known(), askers), the seen
    handles of the journal, drain, and stops before the process exists (ACT_REMEMBER)."""
    dev = device(slots=64)
    rng = random.Random(54)
    for _ in range(40):
        handle = dev.handle()
        what = ["start", "start", rng.choice(["term", "kill"]), rng.choice(["start", "sync", "term", "drain", "restart"])]
        rng.shuffle(what)
        starts = []
        for w in what:
            if w == "start":
                starts.append(dev.ask_start(["sh", "-c", f"echo ran >> {handle}.txt; exec sleep 30"], handle)[1])
            elif w in ("term", "kill"):
                dev.request(workdrv.SIGNAL_T, workdrv.SIGNAL.pack(handle.encode(), 15 if w == "term" else 9, 0))
            elif w == "sync":
                dev.request(workdrv.SYNC_T, b"")
            elif w == "drain":
                Ctl(dev).drain(True)
                Ctl(dev).drain(False)
            else:
                dev.kill_workerd()
                dev.connect()
        verdicts = []
        for ident in starts:
            try:
                verdicts.append(dev.answer(ident, 1 if "restart" in what else 20)[0])
            except (AssertionError, ConnectionError):
                assert "restart" in what    # the asker's channel was gone
        assert len(set(verdicts) - {workdrv.START_FAILED, workdrv.BUSY}) <= 1
        r = dev.runs.get(handle)
        if r is not None:
            if r.info["state"] != workdrv.ENDED:
                dev.signal(r, 9)
            dev.sub(r, 0)
            dev.finish(r)
        path = f"{dev.dir}/work/{handle}.txt"
        if os.path.exists(path):
            with open(path) as f:
                assert f.read() in ("", "ran\n")    # it may be stopped between opening and writing
    assert dev.settled()


# ---- what a workload gets, and what it cannot have

STATE = r"""
import json, os, resource, signal
s = {l.split(":")[0]: l.split(":", 1)[1].strip() for l in open("/proc/self/status")}
fds = {}
for n in os.listdir("/proc/self/fd"):
    try:
        fds[n] = os.readlink("/proc/self/fd/" + n)
    except OSError:
        pass
print(json.dumps({
    "fds": {n: t.split(":")[0] for n, t in fds.items() if not t.startswith("/proc/")},
    "caps": [s[k].strip("0") for k in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
    "nnp": s["NoNewPrivs"], "seccomp": s["Seccomp"], "uid": s["Uid"].split(), "gid": s["Gid"].split(),
    "groups": s["Groups"].split(), "blocked": s["SigBlk"].strip("0"), "ignored": s["SigIgn"].strip("0"),
    "pending": s["SigPnd"].strip("0") + s["ShdPnd"].strip("0"), "umask": s["Umask"],
    "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(), "cwd": os.getcwd(),
    "oom": open("/proc/self/oom_score_adj").read().strip(), "nice": os.nice(0), "sched": os.sched_getscheduler(0),
    "tty": os.ttyname(0) if os.isatty(0) else None, "slack": open("/proc/self/timerslack_ns").read().strip(),
    "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0], "env": sorted(os.environ),
    "cgroup": [l.strip() for l in open("/proc/self/cgroup") if l.startswith("0::")][0].rsplit("/", 1)[1]}))
"""


@root
def test_b59_inherits_nothing(dev):
    """B59: what a child gets without anybody having decided it. Where it could come in: descriptors of launcher (arrange_fds(),
    set_state()), signal state (workinit(), spawn()), limits (set_limits()), environment (start.c make_spec()), and workerd's own
    start by the launcher (start_worker())."""
    others = [dev.start(["sleep", "60"], work_dir=f"d{i}") for i in range(8)]
    r = dev.run([PY, "-I", "-c", STATE], work_dir="proj/x")
    got = json.loads(r.data)
    uid = str(workdrv.POOL_FIRST + 1)
    soft = subprocess.run(["sh", "-c", "ulimit -Sn"], capture_output=True, text=True, check=True).stdout.strip()
    assert int(got["uid"][0]) in range(workdrv.POOL_FIRST + 1, workdrv.POOL_FIRST + workdrv.POOL_COUNT), uid
    assert len(set(got["uid"])) == 1 and got["gid"] == [str(workdrv.POOL_GID)] * 4
    got.pop("uid"), got.pop("gid")
    assert got == {
        "fds": {"0": "/dev/null", "1": "pipe", "2": "pipe"}, "caps": ["", "", "", ""], "nnp": "1", "seccomp": "2",
        "groups": [str(workdrv.POOL_GID)] if got["groups"] else [], "blocked": "", "ignored": got["ignored"], "pending": "",
        "umask": "0022", "session": True, "group": True, "cwd": f"{dev.dir}/work/proj/x", "oom": "200", "nice": os.nice(0),
        "sched": 0, "tty": None, "slack": "50000", "nofile": int(soft),
        "env": ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER"], "cgroup": f"w.{r.handle}"}
    # Python ignores SIGPIPE and SIGXFSZ itself; a shell shows what it was given
    assert dev.run(["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"]).data.split()[1::2] == [b"0" * 16] * 2
    for o in others:
        dev.signal(o, 9)
        dev.finish(o)


def test_output_can_be_opened_by_name(dev):
    """Programs open /dev/stdout again; the pipe's inode belongs to the launcher's user, so its mode must let them write."""
    r = dev.run(["sh", "-c", "echo out > /dev/stdout; echo err > /dev/stderr; cat /proc/self/fd/1"])
    assert r.data.startswith(b"out\nerr\n") and b"ermission denied" in r.data, r.data


@root
def test_b59_daemons_state(dev):
    w, la = dev.workerd_pid(), dev.launcher.pid
    for pid, caps in ((w, 0), (la, (1 << 6) | (1 << 7))):
        s = proc.status(pid)
        assert [int(s[k], 16) for k in ("CapPrm", "CapEff", "CapInh", "CapAmb")] == [caps, caps, 0, 0]
        assert s["NoNewPrivs"] == "1" and s["Seccomp"] == "2" and s["Uid"].split() == [str(dev.uid)] * 4
    assert os.stat(f"/proc/{w}/mem").st_uid == 0, "workerd is not dumpable"
    assert not [t for t in proc.fds(w) if t.startswith(("/dev/tty", "/dev/pts"))]


@root
def test_work_directories_have_their_own_ids(dev):
    def ident(d):
        return int(dev.run(["id", "-u"], work_dir=d).data)
    a, b, top = ident("a"), ident("b/deep/er"), ident("")
    assert len({a, b, top}) == 3 and top == workdrv.POOL_FIRST
    assert ident("a/other") == a and ident(f"{dev.dir}/work/a") == a and ident("./b/../a") == a
    assert os.stat(f"{dev.dir}/work/a").st_uid == a and os.stat(f"{dev.dir}/work/a").st_mode & 0o777 == 0o700
    dev.run(["sh", "-c", "echo secret > f"], work_dir="a")
    r = dev.run(["cat", "../../a/f"], work_dir="b/deep")
    assert b"No such file" in r.data and r.info["exit_code"] == 1
    # two at the same time in a new directory share its id
    rs = [dev.start(["sh", "-c", "sleep 0.2; id -u"], work_dir="fresh") for _ in range(2)]
    assert len({bytes(dev.finish(r).data) for r in rs}) == 1
    used = 4
    for i in range(workdrv.POOL_COUNT - used):
        ident(f"more{i}")
    assert "no runner id is free" in dev.start(["true"], work_dir="onemore", expect=workdrv.POLICY)
    assert not os.path.exists(f"{dev.dir}/work/onemore")
    assert ident("a") == a


@root
def test_paths_outside_are_refused(dev):
    work = f"{dev.dir}/work"
    os.mkdir(f"{dev.dir}/work-sibling")
    os.mkdir(f"{work}/taken")
    os.symlink("/etc", f"{work}/out")
    os.symlink("../../../../../../tmp", f"{work}/up")
    for path in ("/etc", "/", "..", "../..", "a/../../b", f"{work}-sibling", f"{work}/../x", "out", "out/x", "up", "up/new"):
        assert dev.start(["true"], work_dir=path, expect=workdrv.FORBIDDEN_PATH), path
    assert "belongs to uid 0" in dev.start(["true"], work_dir="taken", expect=workdrv.FORBIDDEN_PATH)
    # below a directory of its own a workload may plant what it likes: nothing is made or entered outside
    dev.run(["ln", "-s", "/tmp", "link"], work_dir="mine")
    assert dev.start(["true"], work_dir="mine/link", expect=workdrv.FORBIDDEN_PATH)
    assert dev.start(["true"], work_dir="mine/link/ew-made-outside", expect=workdrv.FORBIDDEN_PATH)
    assert not os.path.exists("/tmp/ew-made-outside")
    assert dev.settled()


# ---- the end

@root
def test_b48_grandchild_holds_the_pipe(dev):
    """B48: the end of work is never taken from the pipe's end of file. Where it could be: output.c turn() (HUP only stops the
    watching), output_drain() (bounded by what lay in the pipe), held.c (workinit reaped and cgroup removed)."""
    cases = {
        "sleeps": ("sleep 600 & echo done", b"done\n"),
        "writes": ("(while :; do echo x; sleep 0.01; done) & sleep 0.1; echo done", None),
        "stderr": ("sleep 600 >/dev/null & echo done", b"done\n"),
        "setsid": ("setsid sleep 600 & echo done", b"done\n"),
        "main is killed": ("sleep 600 & kill -9 $$", b""),
        "64 kB at exit": ("head -c 65536 /dev/zero", b"\0" * 65536),
    }
    for name, (script, want) in cases.items():
        r = dev.start(["sh", "-c", script])
        began = time.monotonic()
        dev.finish(r)
        assert time.monotonic() - began < 1.5, name
        assert want is None or r.data == want, name
        assert dev.settled(1), name
    # the pipe is handed to a process outside
    path = f"{dev.dir}/grab.sock"
    holder = subprocess.Popen([PY, "-c", f"""
import socket, time
s = socket.socket(socket.AF_UNIX); s.bind({path!r}); s.listen(1); import os; os.chmod({path!r}, 0o777)
c, _ = s.accept(); _m, fds, _f, _a = socket.recv_fds(c, 10, 4); c.send(b"x")
end = time.time() + 20
while time.time() < end:
    os.write(fds[0], b"foreign" * 100); time.sleep(0.001)
"""])
    try:
        while not os.path.exists(path) or os.stat(path).st_mode & 0o777 != 0o777:
            time.sleep(0.01)
        r = dev.start([PY, "-c", f"""
import socket
s = socket.socket(socket.AF_UNIX); s.connect({path!r}); socket.send_fds(s, [b"m"], [1]); s.recv(1)
"""])
        began = time.monotonic()
        dev.finish(r)
        assert time.monotonic() - began < 2
    finally:
        holder.kill()
        holder.wait()


@root
@pytest.mark.parametrize("script", [
    "import os\nwhile True:\n    if os.fork() == 0:\n        if os.fork() == 0:\n            os._exit(0)\n        os._exit(0)\n"
    "    try:\n        os.waitpid(-1, os.WNOHANG)\n    except ChildProcessError:\n        pass\n",
    "import os, time\nfor i in range(1500):\n    if os.fork() == 0:\n        time.sleep(600)\n        os._exit(0)\ntime.sleep(600)",
    "import os, signal\nfor i in range(30):\n    if os.fork() == 0:\n        os.setsid()\n        os.kill(os.getpid(), signal.SIGSTOP)\n"
    "        os._exit(0)\nos.kill(os.getpid(), signal.SIGSTOP)",
], ids=["fork-loop", "sleepers", "stopped"])
def test_b47_a_tree_ends_as_a_whole(dev, script):
    """B47: kill by container, never by list. There is one place: held.c kill_tree() (and sweep() at the launcher's start)."""
    r = dev.start([PY, "-c", script])
    time.sleep(1)
    began = time.monotonic()
    dev.signal(r, signal.SIGKILL)
    dev.finish(r)
    assert time.monotonic() - began < 3
    assert r.info["outcome"] == workdrv.CANCELLED
    assert dev.settled(1)


@root
def test_b50_stop_reaches_the_main_process(dev):
    """B50: SIGTERM goes to the main process only; it ends its children as it likes. One place: workinit.c pass_signal()."""
    r = dev.start(["sh", "-c", """
        (trap 'echo child got it' TERM; while :; do sleep 0.05; done) & child=$!
        trap 'sleep 0.3; kill -9 $child; echo saved; exit 0' TERM
        echo up; while :; do sleep 0.05; done"""])
    dev.wait("up", lambda: b"up" in r.data)
    dev.signal(r, signal.SIGTERM)
    dev.finish(r)
    assert b"saved" in r.data and b"child got it" not in r.data and r.info["exit_code"] == 0
    r = dev.start(["sh", "-c", "echo up; kill -STOP $$; echo on"])
    dev.wait("up", lambda: b"up" in r.data)
    time.sleep(0.1)
    dev.signal(r, signal.SIGTERM)
    time.sleep(0.1)
    dev.signal(r, signal.SIGKILL)
    dev.finish(r)
    assert r.info["outcome"] == workdrv.CANCELLED and b"on" not in r.data


@root
def test_init_is_not_the_payloads_to_kill(dev):
    """Inside, pid 1 cannot be killed; root outside can, and nothing of the workload is left then."""
    r = dev.start(["sh", "-c", "kill -9 $PPID; kill -9 1; echo lives; sleep 60"])
    dev.wait("life", lambda: b"lives" in r.data)
    init = int(proc.status(r.info["pid"])["PPid"])
    assert proc.stat(init)[0] == "workinit"
    os.kill(init, signal.SIGKILL)
    dev.finish(r)
    assert r.info["outcome"] == workdrv.LOST and dev.settled()
    r = dev.run(["sh", "-c", "{ kill -TERM $PPID; kill -INT $PPID; } 2>/dev/null; echo lives"])
    assert r.data == b"lives\n" and r.info["outcome"] == workdrv.EXITED
    r = dev.run(["sh", "-c", f"for f in mem environ fd; do ls /proc/$PPID/$f >/dev/null 2>&1 && cat /proc/$PPID/$f; done; "
                 "ls -l /proc/$PPID/exe"])
    assert b"Permission denied" in r.data, "workinit is not open to its payload"


# ---- output

@root
@pytest.mark.parametrize("kills", [0, 12])
def test_b31_bytes_are_exact(device, kills):
    """B31: one offset for the whole life. Where it could break: record.c (read, publish, adopt), output.c (cursor, drain),
    workdrv checks that every record follows the one before."""
    n = 6_000_000 if not os.environ.get("EDGEWARD_SOAK") else 30_000_000
    dev = device(conf="overflow = wait-forever\n")
    rs = [dev.start([PY, "-c", NOISE, str(i), str(n)], work_dir=f"d{i}") for i in range(3)]
    done, due = 0, time.monotonic() + 0.2
    while not all(r.end and r.info["state"] == workdrv.ENDED for r in rs):
        try:
            dev.step(0.05)
        except ConnectionError:
            dev.connect()
        if done < kills and time.monotonic() > due:
            dev.kill_workerd()
            done += 1
            due = time.monotonic() + random.uniform(0.15, 0.5)
    for i, r in enumerate(rs):
        want = noise(i, n)
        assert bytes(r.data) == want and r.end[1] == xxh3_128(want) and r.info["exit_code"] == 0
        dev.deliver(r)
    assert dev.settled()


@root
def test_b31_what_was_acked_to_a_dead_workerd(device):
    """B31: all that is retained was received, and the acks died with workerd: the workload waits for room, and no byte would come
    that brings another ack. workerd takes the ack again with the new subscription (connectd: logsend.c subscribe())."""
    dev = device(conf="overflow = wait-forever\nretain = 64K\n", ack=False)
    r = dev.start(["head", "-c", "1000000", "/dev/zero"])
    dev.wait("all that is retained", lambda: len(r.data) == 65536)
    dev.ack = True
    dev.kill_workerd()
    dev.finish(r)
    assert bytes(r.data) == bytes(1000000) and dev.settled()


@root
def test_b31_what_is_retained_comes_without_another_word(device):
    """B31: more is retained than one turn sends, and nothing happens any more: no write, no ack, no credit that would bring the rest
    of it along (outsend.c output_send())."""
    dev = device(conf="overflow = wait-forever\n", subscribe=False, ack=False)
    r = dev.start(["head", "-c", "700000", "/dev/zero"])
    dev.wait("its end", lambda: r.info.get("state") == workdrv.ENDED)
    dev.sub(r, 0)
    dev.finish(r)
    assert bytes(r.data) == bytes(700000) and dev.settled()


@root
def test_printf_without_newline_and_exit(dev):
    for i in range(100):
        r = dev.run(["printf", f"x{i}"])
        assert r.data == f"x{i}".encode()
    every = bytes(range(256)) * 3
    r = dev.run([PY, "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 3)"])
    assert r.data == every


@root
def test_output_waits_for_credit(device):
    dev = device(limit=100_000, ack=True)
    r = dev.start(["head", "-c", "300000", "/dev/zero"])
    dev.wait("the first window", lambda: len(r.data) == 100_000)
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        dev.step(0.1)
    assert len(r.data) == 100_000, "more than the window"
    dev.credit(r, 100_001)
    dev.wait("one byte", lambda: len(r.data) == 100_001)
    dev.credit(r, 1 << 40)
    dev.finish(r)
    assert len(r.data) == 300_000


@root
def test_b32_asking_for_what_is_gone(device):
    """B32: an offset means the same bytes for ever. One place answers: output.c send_one() for connectd, control.c answer_logs()
    for operators."""
    dev = device(conf="overflow = drop\nretain = 64K\n", subscribe=False, ack=False)
    r = dev.start([PY, "-c", NOISE, "5", "500000"])
    dev.wait("its end", lambda: r.info.get("state") == workdrv.ENDED)
    want = noise(5, 500000)
    kept = r.info["retained_from"]
    assert kept == 500000 - 65536 and r.info["gaps"] == 1
    for start in (0, kept - 1, kept, kept + 1, 499999, 500000, 500001, 1 << 63):
        r.data, r.base, r.gaps, r.end = bytearray(), min(start, 500000), [], None
        dev.sub(r, start)
        dev.wait("the end", lambda: r.end is not None)
        assert r.gaps == ([(start, kept, 1)] if start < kept else [])
        assert bytes(r.data) == want[max(start, kept):], start
        assert r.end == (500000, xxh3_128(want)), "the digest is over all bytes, also those that were dropped"
    ctl = Ctl(dev)
    for start in (0, kept - 1, kept, 500000, 500001, 1 << 63):
        offset, flags, reason, data = ctl.logs(r.handle, start)
        if start < kept:
            assert (offset, flags & 2, reason) == (kept, 2, 1)
        else:
            assert (offset, flags & 2) == (min(start, 500000), 0)
        assert data == want[offset:offset + len(data)] and (data or offset == 500000)
    dev.deliver(r)


@root
def test_b37_dropped_bytes_are_counted(device):
    """B37: output without a bound on memory. Places: the ring of a record (fixed size), the channel's socket buffer; nothing else
    keeps output in workerd."""
    dev = device(conf="overflow = drop\nretain = 64K\n", limit=1 << 62)
    n = 60_000_000
    r = dev.start(["head", "-c", str(n), "/dev/zero"])
    seen = 0
    while not (r.end and r.info["state"] == workdrv.ENDED):
        dev.step(1)
        if random.random() < 0.02:
            time.sleep(0.01)            # a slow reader
    seen = len(r.data) + sum(len(d) for _o, d in r.pieces)
    dropped = sum(to - start for start, to, _r in r.gaps)
    assert seen + dropped == n and r.end[0] == n
    rss = int(proc.status(dev.workerd_pid())["VmRSS"].split()[0])
    assert rss < 150_000, f"{rss} kB (with sanitizers)"
    assert Ctl(dev).status()["gap_bytes"] == dropped
    dev.deliver(r)


@root
def test_what_was_sent_and_never_arrived_is_counted(device):
    """A link that is dead and does not know it: the hub asks again for what connectd was given. Each lost byte counts once, however often
    its gap is told, by this workerd or the next; what was acknowledged never does. Places: output.c make_room(), spill.c, outsend.c."""
    dev = device(conf="overflow = drop\nretain = 64K\n", ack=False, limit=1 << 62)
    r = dev.start([PY, "-c", "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {2})\n"
                   "while True:\n    os.write(1, b'x' * 40000); signal.sigwait({2})"])
    for n in range(1, 11):          # each when the one before has been taken: nothing goes that was not sent
        dev.wait("a piece", lambda n=n: len(r.data) == 40000 * n)
        if n < 10:
            dev.signal(r, 2)
    ctl = Ctl(dev)
    assert ctl.status()["gap_bytes"] == 0 and not r.gaps

    def again(start):
        r.data, r.base, r.pieces, r.gaps = bytearray(), start, [], []
        dev.sub(r, start)
        dev.wait("the end of it", lambda: r.next == 400000)
        return [(a, b) for a, b, _reason in r.gaps]

    kept = again(300000)[0][1]
    assert again(300000) == [(300000, kept)] and ctl.status()["gap_bytes"] == kept - 300000
    for _ in range(2):
        assert again(100000) == [(100000, kept)] and ctl.status()["gap_bytes"] == kept - 100000
    dev.wait("one gap", lambda: r.info["gaps"] == 1)
    dev.kill_workerd()
    r.data, r.base, r.pieces, r.gaps, r.end = bytearray(), 100000, [], [], None
    dev.connect()
    ctl = Ctl(dev)
    assert again(100000) == [(100000, kept)] and ctl.status()["gap_bytes"] == 0, "the one before counted them"
    assert again(90000) == [(90000, kept)] and ctl.status()["gap_bytes"] == 10000
    dev.send(workdrv.ACK_T, workdrv.OFFSET.pack(r.wid, 0, kept))
    assert again(0) == [(0, kept)] and ctl.status()["gap_bytes"] == 10000
    dev.signal(r, 9)
    dev.finish(r, digest=False)


@root
def test_overflow_wait_holds_the_writer(device):
    """`wait`: while a session is up and for overflow-wait after it the writer is held; then the oldest bytes go."""
    dev = device(conf="overflow = wait\nretain = 64K\noverflow-wait = 1s\n", subscribe=False)
    r = dev.start([PY, "-c", NOISE, "7", "900000"])
    time.sleep(1.5)
    dev.request(workdrv.SYNC_T, b"")
    dev.wait("news", lambda: r.info.get("produced", 0) == 65536)
    assert r.info["retained_from"] == 0, "nothing goes while the session is up"
    dev.send(workdrv.SESSION_T, workdrv.struct.pack("=II", 0, 0))
    time.sleep(0.5)
    dev.request(workdrv.SYNC_T, b"")
    dev.step(2), dev.step(2)
    assert r.info["retained_from"] == 0, "nor before overflow-wait is over"
    dev.wait("its end", lambda: r.info.get("state") == workdrv.ENDED)
    assert r.info["produced"] == 900000 and r.info["retained_from"] == 900000 - 65536
    dev.sub(r, 0)
    dev.wait("the tail", lambda: r.end is not None)
    assert bytes(r.data) == noise(7, 900000)[-65536:]
    dev.deliver(r)


@root
def test_b34_one_stream_does_not_delay_another(dev):
    """B34: output is cut by size and time, never by lines. Places: output.c pull() (a turn's worth), output_send_all() (turns)."""
    a = dev.start(["sh", "-c", "head -c 60000000 /dev/zero | tr '\\0' x"])
    b = dev.start([PY, "-u", "-c", "import time\nfor i in range(15):\n    print(i, time.time()); time.sleep(0.1)"])
    late, seen = 0.0, 0
    while not (a.end and b.end):
        dev.step(1)
        lines = bytes(b.data).split(b"\n")[:-1]
        for line in lines[seen:]:
            late = max(late, time.time() - float(line.split()[1]))
        seen = len(lines)
    assert seen == 15 and late < 1.0 and len(a.data) == 60_000_000
    dev.finish(a), dev.finish(b)


# ---- being killed

@root
def test_workerd_killed_in_every_phase(dev):
    """The end of a workload that ended, was signalled or timed out while workerd was away is told, once, and right."""
    gone = dev.start(["sh", "-c", "echo before; sleep 0.4; echo after; exit 9"])
    stays = dev.start(["sh", "-c", "echo a; sleep 2.5; echo b"])
    timed = dev.start(["sleep", "60"], timeout=1)
    dev.wait("output", lambda: gone.data == b"before\n" and stays.data == b"a\n")
    os.kill(dev.launcher.pid, signal.SIGSTOP)       # no new workerd for now
    dev.kill_workerd()
    time.sleep(1.2)
    os.kill(dev.launcher.pid, signal.SIGCONT)
    dev.connect()
    dev.finish(gone)
    assert gone.data == b"before\nafter\n" and gone.info["exit_code"] == 9
    dev.finish(timed)
    assert timed.info["outcome"] == workdrv.TIMEOUT
    dev.finish(stays)
    assert stays.data == b"a\nb\n" and stays.info["exit_code"] == 0


@root
def test_ended_work_survives_many_kills_until_delivered(dev):
    rs = [dev.start(["sh", "-c", f"echo out{i}; exit {i}"]) for i in range(6)]
    for r in rs:
        dev.finish(r, deliver=False)
    for _ in range(3):
        dev.kill_workerd()
        dev.connect()
        assert {r.handle for r in rs} == set(dev.snapshot_handles())
    for i, r in enumerate(rs):
        assert r.info["exit_code"] == i and r.data == f"out{i}\n".encode()
        dev.deliver(r)
    dev.kill_workerd()
    dev.connect()
    assert dev.snapshot_handles() == []


@root
def test_a_fault_on_the_work_channel_is_no_hot_loop(device):
    """A peer that breaks the protocol each time gets its next channel later each time; a good one ends that."""
    dev = device()
    gaps = []
    for _ in range(5):
        dev.chan.send(dev.record(0x02fe, b"nonsense"))
        begin = time.monotonic()
        dev.connect()
        gaps.append(time.monotonic() - begin)
    assert all(b > a * 1.3 for a, b in zip(gaps[1:], gaps[2:])) and gaps[-1] > 2, gaps
    r = dev.run(["echo", "fine"])
    assert r.data == b"fine\n"


@root
def test_what_has_ended_is_never_told_as_running_again(device):
    """workerd killed while it holds many ended workloads: they are told as ended from the first word on (workdrv checks each)."""
    dev = device(slots=8)
    rs = []
    for _ in range(10):         # more than one turn of the launcher's channel takes
        some = [dev.start(["true"]) for _ in range(8)]
        for r in some:
            dev.finish(r, deliver=False)
        rs += some
    for _ in range(6):
        dev.kill_workerd()
        dev.connect()
        assert all(r.info["state"] == workdrv.ENDED for r in rs)
    for r in rs:
        dev.deliver(r)
    assert dev.settled()


@root
def test_b46_killed_around_a_start(device):
    """B46: created and not recorded. The steps are: journal, request to the launcher, cgroup, clone (launcher), exec (workinit),
    answer. Whatever was cut short: a handle runs once at most and is told an end, and nothing stays."""
    dev = device(slots=64)
    rng = random.Random(46)
    rounds = 15 if not os.environ.get("EDGEWARD_SOAK") else 1000
    handles = []
    for _ in range(rounds):
        handle, _ = dev.ask_start(["sh", "-c", 'echo "$0" >> runs.txt', f"m{len(handles)}"])
        handles.append(handle)
        time.sleep(rng.choice([0, 0, 0.0005, 0.001, 0.002, 0.004, 0.008]))
        dev.kill_workerd()
        dev.connect()
    time.sleep(0.5)
    known = [dev.runs[h] for h in handles if h in dev.runs and dev.runs[h].wid]
    for r in known:
        dev.sub(r, 0)
        dev.finish(r)
        assert r.info["outcome"] in (workdrv.EXITED, workdrv.LOST)
    with open(f"{dev.dir}/work/runs.txt") as f:
        ran = f.read().split()
    assert len(ran) == len(set(ran)), "something ran twice"
    told = sum(r.info["outcome"] == workdrv.EXITED for r in known)
    assert told == len(ran), "something ran and is told as lost, or the other way round"
    assert dev.settled()


LIFE = ["sh", "-c", 'echo "$0" >> runs.txt; echo out; exit 5']


def traced(pid, *args, out=subprocess.PIPE):
    tracer = subprocess.Popen(["strace", "-p", str(pid), *args], stderr=out, text=True)
    assert "attached" in tracer.stderr.readline()
    return tracer


def calls_of_a_life(dev):
    """{name: how often workerd makes that call} from the moment a start is asked for until the handle is forgotten."""
    counts = {}
    tracer = traced(dev.workerd_pid(), "-e", "trace=all", "-e", "signal=none")
    dev.run(LIFE)
    time.sleep(0.3)
    tracer.terminate()
    for line in tracer.communicate(timeout=20)[1].splitlines():
        name = line.split("(")[0]
        if name.isidentifier():
            counts[name] = counts.get(name, 0) + 1
    return counts


def test_a_quota_is_told_as_one(device, tmp_path):
    """What workerd's user may write no more, where there is room on the disk: whoever reads it looks at quotas and not at df."""
    quota = Quota(tmp_path)
    for top in [tmp_path, *tmp_path.parents[:-2]]:
        top.chmod(0o755)
    dev = device(env=quota.env)
    dev.run(["true"], work_dir="known")
    quota.set(True)
    errors = [dev.start(["true"], work_dir=d, expect=workdrv.DISK_LOW) for d in ("known", "new")]
    assert "Disk quota exceeded" in errors[0] and (not dev.pool or "quota" in errors[1]) and not any("disk-full" in e for e in errors), errors
    quota.set(False)
    assert dev.run(["true"], work_dir="new").info["exit_code"] == 0


@root
@pytest.mark.timeout(300)
def test_b46_killed_at_each_call_of_a_life(device):
    """B46 with every stop point: strace kills workerd as it enters its nth call of one kind, for each call it makes from the request
    of a start over run and end until the handle is forgotten. Wherever that was: what ran ran once and its outcome is told, what is
    told as lost did not run on, nothing that was told is told otherwise, and nothing is left."""
    if shutil.which("strace") is None:
        pytest.skip("skipped: no strace")
    dev = device(slots=64)
    calls, serial, hits, told = calls_of_a_life(dev), 0, 0, 0
    assert sum(calls.values()) > 40 and {"sendmsg", "recvmsg", "epoll_wait"} <= set(calls), calls
    for call, most in calls.items():
        for nth in range(1, most + 1):
            serial += 1
            pid = dev.workerd_pid()
            tracer = traced(pid, "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={nth}")
            handle, r = dev.handle(), None
            try:
                dev.ask_start([*LIFE, f"m{serial}"], handle)
            except OSError:             # its first call of that kind was on its way to the request
                wait_for(lambda p=pid: not proc.alive(p), 10)
            end = time.monotonic() + 20
            while proc.alive(pid) and time.monotonic() < end:
                r = dev.runs.get(handle, r)
                try:
                    if r is not None and r.wid and r.epoch == 0:
                        dev.sub(r, 0)
                    if r is not None and r.info.get("state") == workdrv.ENDED and r.end is not None and not r.gone:
                        dev.send(workdrv.DELIVERED_T, workdrv.REF.pack(r.wid, 0))
                    dev.step(0.1)
                except OSError:         # it is dying
                    wait_for(lambda p=pid: not proc.alive(p), 10)
                if r is not None and r.gone:
                    end = min(end, time.monotonic() + 0.2)          # it may make that call once less this time
            hits += not proc.alive(pid)
            if proc.alive(pid):
                os.kill(pid, signal.SIGKILL)
            tracer.communicate(timeout=20)
            dev.connect()
            r = dev.runs.get(handle, r)
            if r is not None and r.wid:
                if r.epoch == 0:
                    dev.sub(r, 0)
                dev.finish(r, digest=False)         # what was lost before it had a record has none
            if r is not None and r.info.get("state") == workdrv.ENDED:
                assert (r.info["outcome"], r.info["exit_code"]) == (workdrv.EXITED, 5) or r.info["outcome"] == workdrv.LOST, r.info
                told += r.info["outcome"] == workdrv.EXITED
    assert hits >= sum(calls.values()) * 3 // 4, f"only {hits} of {sum(calls.values())} stop points were met: {calls}"
    with open(f"{dev.dir}/work/runs.txt") as f:
        ran = f.read().split()[1:]          # without the one whose calls were counted
    assert len(ran) == len(set(ran)), "something ran twice"
    assert told == len(ran), f"{len(ran)} ran and {told} were told as ended: {calls}"
    assert dev.settled(2)
    print(f"{hits} stop points")


# What makes workerd end it, and what is told then. The output comes at once and when it is listened for, so that one of the calls sends it.
DECIDED = {
    "timeout": ({}, ["sleep", "600"], {"timeout": 2}, workdrv.TIMEOUT),
    "limit": ({"policy": "[limits]\noutput = 4096\n"}, ["sh", "-c", "sleep 0.3; dd if=/dev/zero bs=9000 count=1 status=none; exec sleep 600"], {},
              workdrv.LIMIT),
    "grace": ({"conf": "kill-grace = 1s\n"}, ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], {}, workdrv.CANCELLED),
}


@root
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", DECIDED)
def test_b46_an_end_that_was_decided_comes(device, kind):
    """B46: workerd is killed as it enters its nth sendmsg(), for each one it makes from the start of a workload until that has ended by
    its decision: its time was up, its output was too long, its grace was over. Where the word to the launcher is the one that is cut
    off, the next workerd must say it (life.c, life_resume()): nothing else would."""
    if shutil.which("strace") is None:
        pytest.skip("skipped: no strace")
    options, argv, start, outcome = DECIDED[kind]
    dev = device(**options)
    nth, hit = 1, True
    while hit and nth < 40:
        pid = dev.workerd_pid()
        tracer = traced(pid, "-e", "trace=sendmsg", "-e", f"inject=sendmsg:signal=KILL:when={nth}")
        handle, asked = dev.handle(), False
        end = time.monotonic() + 12
        try:
            dev.ask_start(argv, handle, **start)
        except OSError:
            pass
        while handle not in dev.runs or dev.runs[handle].info["state"] != workdrv.ENDED:
            assert time.monotonic() < end, f"sendmsg {nth}: it does not end: {dev.log_text()}"
            r = dev.runs.get(handle)
            try:
                if r is not None and r.wid and r.epoch == 0:
                    dev.sub(r, 0)
                if kind == "grace" and r is not None and r.wid and not asked and b"up" in r.data:
                    dev.send(workdrv.DISOWN_T, workdrv.REF.pack(r.wid, 0))
                    asked = True
                dev.step(0.1)
            except OSError:
                dev.connect()
                asked = asked and dev.runs[handle].info["flags"] & 0x02 != 0 if handle in dev.runs else False
                if handle not in dev.runs:          # nobody had heard of it
                    break
        hit = not proc.alive(pid)
        if not hit:
            tracer.terminate()
        tracer.communicate(timeout=20)
        r = dev.runs.get(handle)
        if r is not None:
            assert r.info["outcome"] in (outcome, workdrv.LOST) and (r.info["outcome"] == outcome or nth < 4), (nth, r.info)
            if kind == "timeout" and r.info["outcome"] == outcome:
                assert r.info["finished_at"] - r.info["started_at"] < 3.7e9, f"sendmsg {nth}: it got its time twice"
            dev.finish(r, digest=False)
        assert dev.settled()
        nth += 1
    assert nth > 4, "too few stop points"


@root
def test_no_start_under_the_name_of_a_carrier(device):
    """It came to the launcher between the carrier's end and the word that this is forgotten, which was then about a workload that lives."""
    dev = device(policy="[work]\nfiles = write\n")
    r = dev.start(["sleep", "60"], work_dir="w")
    dev.send(0x2a0, workdrv.struct.pack("=72s1024s1024s32sQII64s", r.handle.encode(), b"", b"f", bytes(32), 1000, 1, 0o644, b""), 77)
    fds = []
    while not fds:
        data, fds, _, _ = socket.recv_fds(dev.chan, 1 << 18, 1)
        assert fds or workdrv.HDR.unpack_from(data)[0] != 0x2a1, data
    name, = set(dev.workload_cgroups()) - {f"w.{r.handle}"}
    pid = dev.workerd_pid()
    os.kill(pid, signal.SIGSTOP)
    _, ident = dev.ask_start(["true"], handle=name[2:], work_dir="w")
    os.close(fds[0])            # the carrier sees it and ends
    time.sleep(0.5)
    os.kill(pid, signal.SIGCONT)
    assert dev.answer(ident)[0] == workdrv.BAD_SPEC
    assert dev.workerd_pid() == pid and dev.run(["echo", "on"]).data == b"on\n"
    dev.signal(r, signal.SIGKILL)
    dev.finish(r)
    assert dev.settled()


@root
def test_b45_no_pid_is_believed(dev):
    """B45: a number kept and trusted later. Kept are: the payload's pid in workinit's report, workinit's in the launcher's memory.
    workerd cannot signal at all (its filter), the launcher ends trees by cgroup.kill, workinit its own unreaped child."""
    bystander = subprocess.Popen(["sleep", "600"], user=workdrv.POOL_FIRST + 1)
    uids = {bystander.pid, 1, os.getpid(), 0, -1, 2}
    try:
        for pid in uids:
            r = dev.start(["sleep", "600"], work_dir="d")
            path = next(f"/proc/{dev.launcher.pid}/fd/{n}" for n in sorted(os.listdir(f"/proc/{dev.launcher.pid}/fd"), key=int,
                        reverse=True) if "memfd:report" in os.readlink(f"/proc/{dev.launcher.pid}/fd/{n}"))
            with open(path, "r+b") as f:
                f.seek(8)
                f.write(workdrv.struct.pack("=i", pid))
            dev.kill_workerd()
            dev.connect()
            assert r.info["pid"] == pid, "the record was not read"
            dev.signal(r, rng_signal(pid))
            time.sleep(0.1)
            dev.signal(r, signal.SIGKILL)
            dev.finish(r)
            assert r.info["outcome"] == workdrv.CANCELLED
        assert bystander.poll() is None
        # a record that is no record: the workload ends, lost
        r = dev.start(["sleep", "600"], work_dir="d")
        path = next(f"/proc/{dev.launcher.pid}/fd/{n}" for n in os.listdir(f"/proc/{dev.launcher.pid}/fd")
                    if "memfd:record" in os.readlink(f"/proc/{dev.launcher.pid}/fd/{n}"))
        with open(path, "r+b") as f:
            f.write(b"\xff" * 64)
        dev.kill_workerd()
        dev.connect()
        dev.finish(r, digest=False)
        assert r.info["outcome"] == workdrv.LOST and "damaged" in r.info["error"]
        assert bystander.poll() is None and dev.settled.__call__() is not None
    finally:
        bystander.kill()
        bystander.wait()


def rng_signal(pid):
    return signal.SIGTERM if pid % 2 else signal.SIGINT


@root
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_launcher_gone_work_is_lost_once(dev, sig):
    running = dev.start(["sh", "-c", "setsid sleep 600 & echo up; sleep 600"], work_dir="a")
    ended = dev.finish(dev.start(["sh", "-c", "echo done; exit 5"]), deliver=False)
    delivered = dev.run(["true"])
    dev.wait("up", lambda: running.data == b"up\n")
    dev.stop_launcher(sig)
    for r in dev.runs.values():
        r.base, r.data, r.gaps, r.end = 0, bytearray(), [], None
    dev.spawn()
    dev.connect()
    assert sorted(dev.snapshot_handles()) == sorted([running.handle, ended.handle])
    assert delivered.handle not in dev.snapshot_handles()
    dev.finish(running, deliver=False, digest=False)
    dev.finish(ended, deliver=False)
    assert running.info["outcome"] == workdrv.LOST and running.info["error"]
    assert (ended.info["outcome"], ended.info["exit_code"]) == (workdrv.EXITED, 5)
    assert ended.gaps == [(0, 5, 4)] and ended.end == (5, xxh3_128(b"done\n"))
    dev.deliver(running)
    dev.deliver(ended)
    dev.kill_workerd()
    dev.connect()
    assert dev.snapshot_handles() == []
    assert dev.settled(), "processes of the earlier launcher live"


@root
def test_b71_damaged_journal(dev):
    kept = dev.start(["sleep", "600"])
    pid = kept.info["pid"]
    for content in (b"x" * 1000, b"", b"\0" * 4096, None):
        journal = f"{dev.dir}/state/journal"
        os.kill(dev.launcher.pid, signal.SIGSTOP)
        dev.kill_workerd()
        if content is None:
            os.remove(journal)
            os.mkfifo(journal)
        else:
            with open(journal, "wb") as f:
                f.write(content)
        os.kill(dev.launcher.pid, signal.SIGCONT)
        dev.connect()
        assert kept.info["pid"] == pid and proc.alive(pid), "work does not depend on the journal"
        assert dev.run(["echo", "on"]).data == b"on\n"
    bad = [n for n in os.listdir(f"{dev.dir}/state") if n.startswith("journal.bad")]
    assert 1 <= len(bad) <= 3 and "was damaged" in dev.log_text()
    dev.signal(kept, 9)
    dev.finish(kept)


@root
def test_b57_stop_always_ends(device):
    """B57: no handler runs code; both processes take signals from a descriptor."""
    rng = random.Random(57)
    for _ in range(12):
        dev = device()
        for _ in range(rng.randrange(4)):
            dev.start(["sleep", "600"], sub=False)
        for _ in range(50):
            dev.launcher.send_signal(rng.choice([signal.SIGHUP, signal.SIGCHLD]))
        time.sleep(rng.uniform(0, 0.1))
        began = time.monotonic()
        assert dev.stop_launcher(rng.choice([signal.SIGTERM, signal.SIGINT])) == 0
        assert time.monotonic() - began < 2.5
        assert dev.settled()


def reload(dev):
    """Until another workerd is connected."""
    before = dev.workerd_pid()
    dev.launcher.send_signal(signal.SIGHUP)
    with pytest.raises(ConnectionError):
        while True:
            dev.step(5)
    dev.connect()
    assert dev.workerd_pid() != before


@root
def test_reload_replaces_workerd_alone(dev):
    r = dev.start(["sh", "-c", "while :; do echo x; sleep 0.02; done"])
    reload(dev)
    pid = r.info["pid"]
    assert proc.alive(pid)
    dev.signal(r, 15)
    dev.finish(r)
    assert set(bytes(r.data)) == set(b"x\n")


@root
@pytest.mark.parametrize("ended", [False, True])
def test_b31_a_reload_keeps_what_is_retained(device, ended):
    """B31: an orderly end is no end of the workloads: what it clears away (record.c, vault.c) is shared with the next workerd, which
    has to find every byte that nobody has taken yet. One that has ended and one that runs, each with more than a spare record keeps."""
    dev = device(conf="overflow = wait-forever\n", subscribe=False, ack=False)
    dev.write("work/noise.py", NOISE)
    r = dev.start(["sh", "-c", f"{PY} noise.py 7 900000; {'exit' if ended else 'echo up > up; exec sleep 600'}"])
    dev.wait("all of it", lambda: r.info.get("state") == workdrv.ENDED if ended else os.path.exists(f"{dev.dir}/work/up"))
    reload(dev)
    if not ended:
        dev.signal(r, signal.SIGKILL)
    dev.sub(r, 0)
    dev.finish(r)
    assert bytes(r.data) == noise(7, 900000) and dev.settled()


@root
def test_b55_ends_keep_their_own_ids(device):
    """B55: no global means "the current one": every event carries its wid or handle from the channel's table to the end."""
    dev = device(slots=32)
    rs = [dev.start(["sh", "-c", f"sleep 0.0{i % 10}; echo {i}; exit {i}"]) for i in range(20)]
    for r in rs:
        dev.finish(r, deliver=False)
    for i, r in reversed(list(enumerate(rs))):
        assert r.info["exit_code"] == i and r.data == f"{i}\n".encode()
        dev.deliver(r)


@root
def test_b52_many_random_lives(device):
    """B52 with real processes: start, cancel, timeout, disown, finish in any order; exactly one final state each."""
    dev = device(slots=256)
    rng = random.Random(52)
    n = 150 if not os.environ.get("EDGEWARD_SOAK") else 2000
    live, total = [], 0
    while total < n or live:
        while total < n and len(live) < 12:
            argv = rng.choice([["true"], ["sleep", "0.02"], ["sleep", "60"], ["sh", "-c", "sleep 0.01; exit 4"]])
            live.append(dev.start(argv, timeout=rng.choice([0, 0, 1])))
            total += 1
        r = rng.choice(live)
        if not r.gone and r.wid:
            what = rng.choice(["int", "term", "kill", "disown", "nothing"])
            if what == "disown":
                dev.send(workdrv.DISOWN_T, workdrv.REF.pack(r.wid, 0))
            elif what != "nothing":
                dev.signal(r, {"int": 2, "term": 15, "kill": 9}[what])
        for r in [r for r in live if r.end and r.info["state"] == workdrv.ENDED]:
            dev.deliver(r)
            live.remove(r)
        dev.step(0.01)
    assert dev.settled()
    assert Ctl(dev).status()["running"] == 0


# ---- disk

@root
@pytest.mark.parametrize("what", ["bytes", "inodes", "state"])
def test_b65_disk_full(device, tmp_path, what):
    """B65: intake looks at the resource the work needs: admit.c (work root), the journal (state directory) before anything is made."""
    dev = device(conf="disk-low = 1M\n")
    mount = f"{dev.dir}/{'state' if what == 'state' else 'work'}"
    dev.stop_launcher()
    uid_gid = os.stat(mount)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=8M,nr_inodes=400,mode={uid_gid.st_mode & 0o7777:o},"
                    f"uid={uid_gid.st_uid},gid={uid_gid.st_gid}", "tmpfs", mount], check=True)
    try:
        dev.spawn()
        dev.connect()
        canary = dev.start(["sh", "-c", "while :; do echo x; sleep 0.05; done"])
        if what == "inodes":
            for i in range(500):
                try:
                    open(f"{mount}/f{i}", "w").close()
                except OSError:
                    break
        else:
            with open(f"{mount}/fill", "wb", buffering=0) as f:
                try:
                    while True:
                        f.write(b"x" * 4096)
                except OSError:
                    pass
        while what == "state" and dev.answer(dev.ask_start(["true"])[1])[0] == workdrv.OK:
            pass                        # the last page of the journal has room for a few
        err = dev.start(["true"], expect=workdrv.DISK_LOW, work_dir="new")
        assert ("inodes-full" if what == "inodes" else "disk-full") in err
        assert not os.path.exists(f"{dev.dir}/work/new")
        status = Ctl(dev).status()
        assert what == "state" or status["cause"] == ("inodes-full" if what == "inodes" else "disk-full")
        n = len(canary.data)
        dev.wait("the canary goes on", lambda: len(canary.data) > n + 4)
        dev.signal(canary, 9)               # cancelling, telling and reading work without room
        dev.finish(canary)
        assert canary.info["outcome"] == workdrv.CANCELLED
        for name in os.listdir(mount):
            if name.startswith("f"):
                os.remove(f"{mount}/{name}")
        assert dev.run(["echo", "again"]).data == b"again\n"
        dev.stop_launcher()
    finally:
        subprocess.run(["umount", "-l", mount], check=False)


@root
@pytest.mark.timeout(900)
def test_b66_nothing_grows_with_the_number_of_runs(device):
    """B66: files per run: none. Kept are the journal (rewritten when long) and three copies at most. 50 at a time; memory, too."""
    dev = device(slots=64, env={"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:quarantine_size_mb=1"})
    runs = 1500 if not os.environ.get("EDGEWARD_ALL") else 10000

    def own():
        return len(os.listdir(f"{dev.dir}/state")) + len(os.listdir(f"{dev.dir}/work")) + len(dev.workload_cgroups())

    def rss(pid):
        return int(proc.status(pid)["VmRSS"].split()[0])

    def many(n):
        for done in range(0, n, 50):
            batch = [dev.start(["true"]) for _ in range(min(50, n - done))]
            for r in batch:
                dev.finish(r)
    many(300)
    assert dev.settled()
    pid, launcher = dev.workerd_pid(), dev.launcher.pid
    inodes, fds, lfds, memory = own(), proc.fds(pid), len(proc.fds(launcher)), (rss(pid), rss(launcher))
    many(runs)
    # The last run is forgotten a moment after it was delivered.
    wait_for(lambda: own() == inodes and sorted(proc.fds(pid)) == sorted(fds) and len(proc.fds(launcher)) == lfds, 15,
             lambda: f"{own()} files, {inodes} before; {proc.fds(pid)}, {fds} before; {len(proc.fds(launcher))}, {lfds} before")
    assert os.path.getsize(f"{dev.dir}/state/journal") <= (8192 + 4) * 160
    for name, p, before in (("workerd", pid, memory[0]), ("launcher", launcher, memory[1])):
        assert rss(p) < before + 4096, f"{name}: {rss(p)} KiB, {before} KiB before {runs} runs"


# ---- limits and policy

@root
def test_limits_without_controllers_are_refused_by_name(dev):
    with open(f"{workdrv.V2}/cgroup.controllers") as f:
        have = f.read().split()
    for name, kw in (("memory", {"memory": 1 << 26}), ("pids", {"pids": 50}), ("cpu", {"cpu": 500})):
        if name not in have:
            assert name in dev.start(["true"], expect=workdrv.UNSUPPORTED, **kw)
    assert "disk" in dev.start(["true"], disk=1 << 20, expect=workdrv.UNSUPPORTED)


@root
def test_policy_refuses_with_its_line(device):
    dev = device(policy="[work]\nstart = no\n")
    assert "policy:2: start" in dev.start(["true"], expect=workdrv.POLICY)
    dev = device(policy="[limits]\ntimeout = 1s\n")
    assert "policy:2: timeout = 1s" in dev.start(["true"], timeout=2, expect=workdrv.POLICY)
    r = dev.run(["sleep", "60"])
    assert r.info["outcome"] == workdrv.TIMEOUT


# ---- the operator's socket

class Ctl:
    """The least client of workerd.sock."""
    FIELDS = ("pid launcher_pid slots running pending undelivered draining uptime_s started refused output_bytes gap_bytes "
              "retained_bytes work_up priv_up launcher_up uid_pool cgroup tree sandbox_level landlock_abi disk_free inodes_free "
              "priv_pid sandbox sandbox_missing build launcher_build cause detail work_root spool_bytes spool_max").split()
    S = workdrv.struct.Struct("=iiIIIIIIQQQQQBBBBBBBBQQiHH32s32s32s256s256sQQ")

    def __init__(self, dev):
        self.s = workdrv.socket.socket(workdrv.socket.AF_UNIX, workdrv.socket.SOCK_SEQPACKET)
        self.s.settimeout(10)
        self.s.connect(f"{dev.dir}/run/workerd.sock")
        self.s.send(Device.record(1, workdrv.HELLO.pack(6, os.getpid(), 0, b"t")))
        self.recv()
        self.id = 0

    def recv(self):
        data = self.s.recv(1 << 16)
        if not data:
            raise ConnectionError
        typ, _v, _n, _l, ident, status = workdrv.HDR.unpack_from(data)
        return typ, ident, status, data[16:]

    def ask(self, typ, body=b""):
        self.id += 1
        self.s.send(Device.record(typ, body, self.id))
        events = []
        while True:
            got = self.recv()
            assert got[1] == self.id
            if got[0] == typ + 1:
                return got, events
            events.append(got)

    def status(self):
        (_t, _i, _s, body), _ = self.ask(0x300)
        out = dict(zip(self.FIELDS, self.S.unpack(body)))
        return {k: workdrv.text(v) if isinstance(v, bytes) else v for k, v in out.items()}

    def drain(self, on):
        (_t, _i, _s, body), _ = self.ask(0x328, workdrv.struct.pack("=II", on, 0))
        return workdrv.struct.unpack("=II", body)

    def logs(self, handle, start, wait=False, most=3968):
        (_t, _i, status, body), _ = self.ask(0x324, workdrv.struct.pack("=72sQII", handle.encode(), start, wait, most))
        if status:
            raise OSError(-status, "logs")
        offset, flags, reason = workdrv.struct.unpack_from("=QII", body)
        return offset, flags, reason, body[16:]


@root
def test_control_status_and_workloads(dev):
    r = dev.start(["sleep", "60"])
    ctl = Ctl(dev)
    began = time.monotonic()
    s = ctl.status()
    assert time.monotonic() - began < 0.2
    assert (s["pid"], s["launcher_pid"], s["running"], s["slots"]) == (dev.workerd_pid(), dev.launcher.pid, 1, 16)
    assert s["work_up"] and s["priv_up"] and s["launcher_up"] and s["uid_pool"] and s["tree"] == 1 and s["cause"] == ""
    assert s["work_root"] == f"{dev.dir}/work" and s["disk_free"] > 0
    _, events = ctl.ask(0x320)
    assert len(events) == 1 and r.handle.encode() in events[0][3]
    (_t, _i, _st, body), _ = ctl.ask(0x326, workdrv.SIGNAL.pack(r.handle.encode(), 9, 0))
    dev.finish(r)
    dev.priv.close()
    dev.priv = None
    dev.chan.close()
    dev.chan = None
    time.sleep(0.2)
    s = ctl.status()
    assert s["cause"] == "privhelper-down" and not s["work_up"]


@root
def test_control_logs_follow(dev):
    r = dev.start(["sh", "-c", "for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done; head -c 10000 /dev/zero"])
    ctl, got = Ctl(dev), b""
    while True:
        offset, flags, _reason, data = ctl.logs(r.handle, len(got), wait=True)
        if flags & 2:                   # the driver's acks free what was delivered
            got = got.ljust(offset, b"?")
        got += data
        if flags & 1:
            break
    assert len(got) == 35 + 10000
    dev.finish(r)
    with pytest.raises(OSError):
        ctl.logs(r.handle, 0)


@root
def test_drain_is_remembered(dev):
    r = dev.start(["sleep", "60"])
    assert Ctl(dev).drain(True) == (1, 1)
    ident = dev.ask_start(["true"])[1]
    refusal, _w, err, flags = dev.answer(ident)
    assert refusal == workdrv.BUSY and flags & 1 and "drain" in err
    dev.kill_workerd()
    dev.connect()
    assert "drain" in dev.start(["true"], expect=workdrv.BUSY)
    assert Ctl(dev).status()["cause"] == "draining"
    assert Ctl(dev).drain(False)[0] == 0
    assert dev.run(["echo", "on"]).data == b"on\n"
    dev.signal(r, 9)
    dev.finish(r)


@root
def test_records_of_another_release_cost_the_channel_never_the_work(dev):
    """A file request as it was when it did not say for whom, and a higher number of the protocol: in the moment of an upgrade."""
    pid = dev.start(["sleep", "600"]).info["pid"]
    for old in (Device.record(0x2a0, bytes(2168), 5), workdrv.HDR.pack(workdrv.SUB_T, workdrv.VERSION + 1, 0, 0, 0, 0)):
        dev.chan.send(old)
        with pytest.raises(ConnectionError):
            while True:
                dev.step(5)
        dev.connect()
        assert proc.alive(pid)


@root
def test_bad_records_cost_the_channel_never_the_work(dev):
    r = dev.start(["sh", "-c", "while :; do echo x; sleep 0.02; done"])
    pid = r.info["pid"]
    for bad in (b"short", Device.record(0x999), Device.record(workdrv.SUB_T, b"x"), Device.record(0x210, b""),
                Device.record(workdrv.SIGNAL_T, workdrv.SIGNAL.pack(b"a/b", 15, 0), 5),
                Device.record(workdrv.SIGNAL_T, workdrv.SIGNAL.pack(r.handle.encode(), 11, 0), 5),
                Device.record(workdrv.CAPS_T, b"")):
        dev.chan.send(bad)
        with pytest.raises(ConnectionError):
            while True:
                dev.step(5)
        dev.connect()
        assert proc.alive(pid)
        n = len(r.data)
        dev.wait("it goes on", lambda: len(r.data) > n)
    for i in range(40):                 # more clients than there are places
        c = workdrv.socket.socket(workdrv.socket.AF_UNIX, workdrv.socket.SOCK_SEQPACKET)
        c.connect(f"{dev.dir}/run/workerd.sock")
        c.send(os.urandom(random.randrange(1, 100)))
        if i % 2:
            c.close()
    dev.signal(r, 9)
    dev.finish(r)


# ---- an ordinary user, without pool and cgroup

def test_plain_pid_namespace(device):
    dev = device(plain=True)
    assert dev.run(["echo", "hello"]).data == b"hello\n"
    r = dev.run(["sh", "-c", "exit 9"])
    assert r.info["exit_code"] == 9
    r = dev.run(["id", "-u"])
    assert int(r.data) == dev.uid
    r = dev.start(["sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600 & echo up; wait"])
    dev.wait("up", lambda: r.data == b"up\n")
    dev.kill_workerd()
    dev.connect()
    before = len(proc.by_uid({dev.uid}))
    dev.signal(r, 9)
    dev.finish(r)
    assert r.info["outcome"] == workdrv.CANCELLED
    assert len(proc.by_uid({dev.uid})) <= before - 4, "something of the tree lives"
    r = dev.run(["sh", "-c", "sleep 600 & echo done"])
    assert r.data == b"done\n"
    s = Ctl(dev).status()
    assert s["tree"] == 2 and not s["uid_pool"] and s["cgroup"] == 0


# ---- start-up

def run_launcher(dev, *args, **kw):
    return subprocess.run([workdrv.exe("launcher"), "-w", workdrv.exe("workerd"), *args], capture_output=True, text=True,
                          timeout=20, env=dev.env, check=False, **kw)


@root
def test_startup_errors_are_one_line(tmp_path):
    dev = Device()
    try:
        user = {"user": dev.uid, "group": dev.uid, "extra_groups": []}
        r = run_launcher(dev, "-x", **user)
        assert r.returncode == 2 and r.stderr.startswith("usage: launcher")
        assert run_launcher(dev, "-V", **user).stdout.startswith("launcher ")
        r = run_launcher(dev, "-n", "-c", f"{dev.dir}/conf", "-p", f"{dev.dir}/policy", **user)
        assert (r.returncode, r.stderr) == (0, "")
        dev.write("bad", "[work]\nslots = many\n")
        r = run_launcher(dev, "-n", "-c", f"{dev.dir}/bad", **user)
        assert r.returncode == 1 and f"{dev.dir}/bad:2:" in r.stderr and r.stderr.count("\n") == 1
        r = run_launcher(dev, "-c", f"{dev.dir}/conf", "-P", f"{dev.dir}/nopool")
        assert r.returncode == 1 and "must not run as root" in r.stderr
        dev.write("pool2", "1 2\n")
        for pool, text in (("pool2", "expected one line"), ("pool", "CAP_SETUID")):
            r = run_launcher(dev, "-P", f"{dev.dir}/{pool}", **user)
            assert r.returncode == 1 and text in r.stderr and len(r.stderr.splitlines()) == 1
        dev.write("noroot", "[work]\nroot = /nonexistent\n")
        for args, text in ((("-c", f"{dev.dir}/bad"), ":2:"), (("-c", f"{dev.dir}/noroot"), "work root /nonexistent"),
                           (("-c", f"{dev.dir}/conf", "-s", "/nonexistent"), "state directory /nonexistent"),
                           (("-c", "/nonexistent"), "/nonexistent: No such file")):
            r = run_launcher(dev, *args, "-p", f"{dev.dir}/policy", "-P", f"{dev.dir}/nopool", **user)
            assert r.returncode == 1 and text in r.stderr, r.stderr
    finally:
        dev.__exit__(None, None, None)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q"]))
