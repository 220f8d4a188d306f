"""Disk, files, start-up conditions (faults.md section 5 as far as issue 2 goes: B65, B66, B67, B69, B71, B72, B75; and
"a bad configuration, full disk, missing directory, wrong owner, busy socket or absent peer gives one clear line and a
defined exit code or retry, never a crash, never a hot loop").

Where it could go wrong: workerd's admission and records, connectd's state files, the start of each daemon, run-foreground.
"""
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import time

import pytest

from lib import proc
from lib.agent import exe, is_root
from lib.checks import CommonChecks
from lib.netns import Mounts
from lib.proc import wait_for
from lib.status import link, link_cause

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def mounts():
    """A mount namespace of its own, to put small file systems under the agent."""
    if not is_root():
        pytest.skip("skipped: needs root")
    ns = Mounts()
    yield ns
    ns.close()


def tmpfs(ns, path, options):
    os.makedirs(path, exist_ok=True)
    ns.sh(f"mount -t tmpfs -o {options} none {path}")


def fill(ns, path, leave=0):
    """Fills the file system at path to the last byte."""
    ns.run("sh", "-c", f"dd if=/dev/zero of={path}/.filler bs=64k 2>/dev/null; dd if=/dev/zero of={path}/.filler2 bs=1 "
           "2>/dev/null count=5000; true", check=False)
    if leave:
        ns.sh(f"truncate -s -{leave} {path}/.filler")


# ---- B65, B67: disks that are full ----

def test_b65_work_root_full(agent, hub, mounts):
    """Refused once, with a reason, nothing started; heartbeats, status and running work go on."""
    a = agent(start=False, ns=mounts, conf={"work": {"disk-low": "1M"}})
    tmpfs(mounts, a.root, "size=8m,mode=755")
    a.start()
    canary = hub.start("while :; do echo x; sleep 0.1; done", work_dir="canary")
    fill(mounts, a.root)
    run = hub.start("true", work_dir="new", refused=True)
    assert "disk" in run.refused[1] or "space" in run.refused[1], run.refused
    assert hub.current.edgeward and run.refused[0] == "disk_low"
    assert mounts.run("ls", a.root).stdout.split() == ["canary"], "something was created for a start that was refused"
    before = canary.log.received
    hub.wait("the other work goes on", lambda: canary.log.received > before, 5)
    assert a.ctl("status").rc in (0, 3)
    mounts.sh(f"rm {a.root}/.filler {a.root}/.filler2")
    hub.finish(hub.start("true", work_dir="new"))
    hub.signal(canary, "kill")
    hub.finish(canary)


def test_b65_low_water_mark(agent, hub, mounts):
    a = agent(start=False, ns=mounts, conf={"work": {"disk-low": "6M"}})
    tmpfs(mounts, a.root, "size=8m,mode=755")
    a.start()
    hub.finish(hub.start("true"))
    mounts.sh(f"dd if=/dev/zero of={a.root}/some bs=1M count=3 2>/dev/null")
    run = hub.start("true", refused=True)
    assert run.refused[0] == "disk_low"


def test_b65_disk_fills_during_a_job(agent, hub, mounts):
    """That job gets ENOSPC from its own write; the other goes on."""
    a = agent(start=False, ns=mounts)
    tmpfs(mounts, a.root, "size=8m,mode=755")
    a.start()
    canary = hub.start("while :; do echo x; sleep 0.1; done", work_dir="canary")
    run = hub.finish(hub.start("dd if=/dev/zero of=big bs=64k 2>/dev/null || echo enospc; exit 7", work_dir="big"), 30)
    assert run.exit_code == 7 and b"enospc" in run.text
    before = canary.log.received
    hub.wait("the other work goes on", lambda: canary.log.received > before, 5)
    hub.signal(canary, "kill")
    hub.finish(canary)
    assert a.pid("workerd")


@pytest.mark.parametrize("how", ["full", "inodes"])
def test_b67_state_directories_unwritable(agent, hub, mounts, how):
    """With 0 bytes or 0 inodes under every state directory: status, cancel, log read, output and the end of running work
    all work; a new start is refused or runs, but never half."""
    a = agent(start=False, ns=mounts)
    state = os.path.join(a.dir, "d", "state")
    tmpfs(mounts, state, "size=2m,nr_inodes=200,mode=755")
    a.start()
    s = hub.session()
    run = hub.start("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done")
    hub.wait("up", lambda: run.log.received, 10)
    if how == "full":
        fill(mounts, state)
    else:
        mounts.run("sh", "-c", f"i=0; while touch {state}/f$i; do i=$((i+1)); done 2>/dev/null; true")
    new = hub.send_start(["/bin/echo", "new"])
    hub.wait("an answer", lambda: new.answers, 10)
    if new.started:
        hub.finish(new)
        assert new.text == b"new\n"
    else:
        assert new.refused[1]
    assert a.ctl("status").rc in (0, 3)
    assert a.ctl("logs", run.handle, json_out=False).rc == 0
    s.cut()
    hub.session(after=s)
    assert a.ctl("signal", run.handle, "TERM", json_out=False).rc == 0
    hub.finish(run)
    assert run.text == b"up\nbye\n" and run.exit_code == 5
    if how == "full":
        mounts.sh(f"rm {state}/.filler {state}/.filler2")
    else:
        mounts.sh(f"rm {state}/f*")
    hub.finish(hub.start("true"))
    hub.delivered(run)


def test_b66_many_short_jobs_leave_nothing_on_disk(agent, hub):
    a = agent()

    def count():
        return sum(len(d) + len(f) for _, d, f in os.walk(a.state))
    for _ in range(10):
        hub.delivered(hub.start("true"))
    before = count()
    total = 1000 if os.environ.get("EDGEWARD_SOAK") == "1" else 100
    for _ in range(total):
        hub.finish(hub.start("true"))
    wait_for(lambda: count() <= before, 5, lambda: f"{count()} files, {before} before")


# ---- B69, B71, B72, B75: our own files ----

def damage(path, how):
    if how == "empty":
        open(path, "w", encoding="ascii").close()
    elif how == "cut":
        os.truncate(path, max(1, os.path.getsize(path) // 2))
    elif how == "garbage":
        with open(path, "wb") as f:
            f.write(os.urandom(300))
    elif how == "zeroes":
        size = os.path.getsize(path)
        with open(path, "wb") as f:
            f.write(b"\0" * size)
    elif how == "flip":
        with open(path, "r+b") as f:
            data = bytearray(f.read()) or bytearray(1)      # an empty one gets a byte
            data[len(data) // 2] ^= 1
            f.seek(0)
            f.write(data)
    elif how == "sparse":
        os.truncate(path, 4 << 30)
    elif how == "missing":
        os.unlink(path)
    else:
        os.unlink(path)
        if how == "directory":
            os.mkdir(path)
        elif how == "fifo":
            os.mkfifo(path)
        elif how == "symlink":
            os.symlink("/etc/passwd", path)
        elif how == "mode 000":
            open(path, "w", encoding="ascii").close()
            os.chmod(path, 0)


DAMAGE = ["empty", "cut", "garbage", "zeroes", "flip", "sparse", "missing", "directory", "fifo", "symlink", "mode 000"]


@pytest.mark.parametrize("how", DAMAGE)
def test_b71_b72_credential_damaged(agent, hub, how):
    """A named state with one command that leads out; nothing deleted by itself; the daemons run; re-enrolment heals it."""
    a = agent()
    first = hub.session()
    wait_for(lambda: os.path.exists(a.credential_file), 5, "credential file")
    assert a.stop() == []
    good = open(a.credential_file, "rb").read()
    damage(a.credential_file, how)
    a.start()
    wait_for(lambda: link(a) in ("unenrolled", "stopped"), 15, lambda: f"a named state, is {link(a)}{a.log_tail()}")
    assert "enroll" in a.ctl("status").out
    kept = [f for f in glob.glob(a.credential_file + "*") if os.path.isfile(f) and not os.path.islink(f)]
    if how in ("cut", "garbage", "flip"):
        assert kept, "the damaged file was deleted"
    assert good not in a.log_text().encode()
    got = a.enroll(hub.token(), *(["--replace"] if "--replace" in a.ctl("status").out else []))
    assert got.rc == 0, got
    hub.session(after=first)
    assert json.load(open(a.credential_file, encoding="utf-8"))["credential"] in hub.credentials


def test_b69_empty_credential_beside_a_complete_temporary(agent, hub):
    """After a power cut: the main file empty, a complete temporary beside it: take the temporary and say so."""
    a = agent()
    first = hub.session()
    wait_for(lambda: os.path.exists(a.credential_file), 5, "credential file")
    assert a.stop() == []
    tmp = a.credential_file + ".tmp"
    os.rename(a.credential_file, tmp)
    open(a.credential_file, "w", encoding="ascii").close()
    a.start()
    second = hub.session(after=first)
    assert second.hello["agent_id"] == first.agent_id
    assert os.path.getsize(a.credential_file) > 100
    assert re.search(r"credential.json was missing or damaged.*taken", a.log_text()), a.log_tail(30)


def test_b75_half_written_temporary_changes_nothing(agent, hub):
    a = agent()
    first = hub.session()
    wait_for(lambda: os.path.exists(a.credential_file), 5, "credential file")
    assert a.stop() == []
    good = open(a.credential_file, "rb").read()
    with open(a.credential_file + ".tmp", "wb") as f:
        f.write(good[:60])
    a.start()
    assert hub.session(after=first).hello["agent_id"] == first.agent_id
    assert open(a.credential_file, "rb").read() == good


@pytest.mark.parametrize("how", DAMAGE)
def test_b71_other_state_files_damaged(agent, hub, how):
    """Every file that connectd and workerd keep besides the credential: start succeeds, nothing blocks, work runs."""
    a = agent()
    first = hub.session()
    run = hub.start("sleep 1000", work_dir="one")
    over = hub.finish(hub.start("true", work_dir="two"))
    a.crash()
    names = []
    for where, _, files in os.walk(a.state):
        for name in files:
            path = os.path.join(where, name)
            if path != a.credential_file:
                names.append(path)
                damage(path, how)
    assert names
    a.start()
    hub.session(20, after=first)
    hub.finish(hub.start("echo fine", work_dir="three"))
    hub.wait("the old handle has an end, or is told as lost by its absence", lambda: run.terminal or run.missing, 20)
    # A journal cut before the line that told its end cannot know it: what had ended is then told as lost, too.
    hub.violations[:] = [v for v in hub.violations if over.handle not in v or "repeated terminal status" not in v]


@pytest.mark.parametrize("change", ["other boot", "other pid", "pid 1", "own pid", "pid 0", "pid -1"])
def test_b45_a_bystander_is_never_killed(agent, hub, change):
    """The agent died hard and the machine gave the pid to somebody else: `lost`, never `kill`. The records say only what
    was: which processes exist is asked of the launcher and the cgroup."""
    a = agent()
    first = hub.session()
    run = hub.start("sleep 1000")
    a.crash()
    bystander = subprocess.Popen(["sleep", "600"])
    new = {"other boot": bystander.pid, "other pid": bystander.pid, "pid 1": 1, "own pid": os.getpid(), "pid 0": 0,
           "pid -1": -1}[change]
    old = run.started["pid"]
    touched = 0
    for where, _, files in os.walk(os.path.join(a.state, "workerd")):
        for name in files:
            path = os.path.join(where, name)
            data = open(path, "rb").read()
            for size in (4, 8):
                data = data.replace(old.to_bytes(size, "little"), new.to_bytes(size, "little", signed=True))
            data = data.replace(str(old).encode(), str(new).encode())
            with open(path, "wb") as f:
                f.write(data)
            touched += 1
    a.start()
    hub.session(20, after=first)
    hub.wait("it is told as lost", lambda: run.terminal or run.missing, 20)
    if run.terminal:
        assert run.state == "failed"
    assert bystander.poll() is None and touched
    bystander.kill()
    bystander.wait()


# ---- start-up conditions: one clear line, a defined exit code or a retry, never a hot loop ----

def daemon(a, name, *args, timeout=10):
    p = subprocess.run([exe(name), *args], capture_output=True, text=True, timeout=timeout, check=False,
                       stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=0"})
    return p.returncode, p.stderr


@pytest.mark.parametrize("text,where", [
    ("[hub]\nurl = wss://h/x\nnonsense = 1\n", ":3:"), ("[hub]\nurl = wss://h/x\nurl = wss://h/y\n", ":3:"),
    ("[link]\nheartbeat = 5 m\n", ":2:"), ("[link]\nheartbeat = -1\n", ":2:"), ("[work]\nslots = 99999\n", ":2:"),
    ("[work]\nretain = 1\n", ":2:"), ("[hub\n", ":1:"), ("nothing\n", ":1:"), ("[hub]\n\x00", ""), ("[x]\na = b\n", ":2:"),
    ("[log]\nlevel = loud\n", ":2:"), ("[work]\noverflow = maybe\n", ":2:"), ("[hub]\nurl = " + "x" * 300 + "\n", ":2:"),
])
@pytest.mark.parametrize("name", ["connectd", "launcher"])
def test_configuration_errors_name_file_and_line(agent, text, where, name):
    a = agent(start=False)
    with open(a.conf_file, "w", encoding="utf-8") as f:
        f.write(text)
    extra = ["-w", exe("workerd")] if name == "launcher" else []
    rc, err = daemon(a, name, "-n", "-c", a.conf_file, "-p", a.policy_file, *extra)
    assert rc == 1 and a.conf_file + where in err, (rc, err)
    assert len(err.strip().splitlines()) == 1, err


@pytest.mark.parametrize("name", ["connectd", "launcher", "workerd", "privhelper"])
@pytest.mark.parametrize("args", [["-Z"], ["-c"], ["extra"], ["--token", "secret"]])
def test_usage_errors_exit_2(agent, name, args):
    rc, err = daemon(agent(start=False), name, *args)
    assert rc == 2 and err.strip() and "secret" not in err, (rc, err)


@pytest.mark.parametrize("name", ["connectd", "launcher", "workerd", "privhelper", "run-foreground", "edgectl", "edgehub"])
def test_version_of_each(name):
    if not os.path.exists(exe(name)):
        pytest.skip(f"skipped: not built: {name}")
    p = subprocess.run([exe(name), "-V"], capture_output=True, text=True, check=False, timeout=10)
    assert p.returncode == 0 and p.stdout.strip(), (name, p)


@pytest.mark.parametrize("name", ["connectd", "launcher", "privhelper"])
def test_without_a_listener(agent, name):
    """No LISTEN_FDS: one clear line and exit 1, for each daemon on its own."""
    a = agent(start=False)
    args = {"connectd": ["-c", a.conf_file, "-p", a.policy_file, "-r", a.dir, "-s", a.dir],
            "launcher": ["-c", a.conf_file, "-p", a.policy_file, "-r", a.dir, "-s", a.dir, "-w", exe("workerd")],
            "privhelper": ["-r", a.dir, "-N", "1001", "-W", "1002"]}[name]
    rc, err = daemon(a, name, *args)
    assert rc == 1 and err.strip(), (rc, err)
    assert len(err.strip().splitlines()) <= 2, err


def test_configuration_missing(agent):
    a = agent(start=False)
    os.unlink(a.conf_file)
    p = subprocess.run(a.argv(), capture_output=True, text=True, timeout=10, check=False)
    assert p.returncode == 1 and a.conf_file in p.stderr, p


def test_busy_directory(agent, hub):
    """A second run-foreground on the same directory: one line, exit 1, the first is not disturbed."""
    a = agent()
    hub.session()
    pids = a.pids()
    p = subprocess.run(a.argv(), capture_output=True, text=True, timeout=10, check=False)
    assert p.returncode == 1 and p.stderr.strip(), p
    assert a.pids() == pids and a.ctl("status").rc in (0, 3)


def test_stale_sockets_of_a_crash(agent, hub):
    a = agent(start=False)
    os.makedirs(a.run)
    for name in ("introduce.sock", "connectd.sock", "workerd.sock"):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.bind(os.path.join(a.run, name))
        s.close()
    a.start()
    hub.session()


@pytest.mark.root
def test_b45_b61_cgroup_left_by_a_process_of_the_same_pid(agent, hub):
    """run-foreground names its cgroup by its pid; a crashed one left such a cgroup, owned by another user, with work in it."""
    mount, own = proc.cgroup_mount(), proc.cgroup(os.getpid()).rstrip("/")
    if mount is None:
        pytest.skip("skipped: no cgroup v2 here")
    base = f"{mount}{own}/edgeward.$$"
    script = (f"mkdir -p {base}/launch {base}/w.old; chown 65534 {base} {base}/launch; sleep 1000 & "
              f"echo $! > {base}/w.old/cgroup.procs; exec \"$@\"")
    agent(prefix=["/bin/sh", "-c", script, "sh"])
    run = hub.finish(hub.start("echo fine"))
    assert run.text == b"fine\n"


@pytest.mark.root
def test_b61_cgroup_left_by_one_that_was_killed(agent, hub):
    """kill -9 of run-foreground takes everything with it but its cgroup, and the next one has another pid, so another name for its own."""
    mount, own = proc.cgroup_mount(), proc.cgroup(os.getpid()).rstrip("/")
    if mount is None:
        pytest.skip("skipped: no cgroup v2 here")
    a = agent()
    hub.start("sleep 1000")
    left = f"{mount}{own}/edgeward.{a.top.pid}"
    assert os.path.isdir(left)
    a.top.kill()
    a.top.wait()
    bystander = f"{mount}{own}/edgeward.{a.top.pid}0"
    os.mkdir(bystander)
    try:
        a.start()
        wait_for(lambda: not os.path.exists(left), 10, "it is removed")
        assert os.path.isdir(bystander), "and nothing else"
    finally:
        os.rmdir(bystander)
    hub.session()


@pytest.mark.root
@pytest.mark.parametrize("what", ["state owner", "work root owner", "work root is a file", "state is a symlink"])
def test_wrong_owner_or_kind(agent, hub, what):
    """One clear line, retries with growing waits, no hot loop; healed when the cause is gone."""
    a = agent(start=False)
    state = os.path.join(a.state, "connectd")
    os.makedirs(state)
    if what == "state owner":
        a.start()
        hub.session()
        os.chown(state, 0, 0)
        os.chmod(state, 0o700)
        a.kill9("connectd")
    elif what == "work root owner":
        a.start()
        hub.session()
        os.chown(a.root, 0, 0)
        os.chmod(a.root, 0o700)
        a.kill9("launcher")
    elif what == "work root is a file":
        shutil.rmtree(a.root, ignore_errors=True)
        open(a.root, "w", encoding="ascii").close()
        a.start(wait=False)
    else:
        os.rmdir(state)
        os.symlink("/tmp", state)
        a.start(wait=False)
    end = time.monotonic() + 4
    lines = set()
    while time.monotonic() < end:
        lines |= set(a.log_text().splitlines())
        time.sleep(0.3)         # the absence of a hot loop is watched over some seconds
    starts = a.log_text().count("cannot") + a.log_text().count("ended")
    assert starts < 60, "a hot loop"
    assert not a.broken()
    if a.top.poll() is not None:
        assert a.top.returncode == 1 and lines


def test_absent_peers_are_waited_for(agent, hub):
    """connectd and the launcher start before privhelper is there: no end, no hot loop, then all is well."""
    a = agent()
    hub.session()
    wait_for(lambda: os.path.exists(a.credential_file), 5, "credential file")
    os.kill(a.top.pid, 19)
    try:
        pids = a.pids()
        proc.kill(pids["privhelper"])
        proc.kill(pids["connectd"])
        wait_for(lambda: not proc.alive(pids["connectd"]), 5, "gone")
        cpu = proc.cpu_ticks(pids["workerd"])
        time.sleep(1.5)             # how much it spends while its peers are away
        assert proc.cpu_ticks(pids["workerd"]) - cpu < 20, "workerd spins"
        assert a.ctl("status").rc == 3
    finally:
        os.kill(a.top.pid, 18)
    a.restarted("connectd", pids["connectd"])
    hub.session(20, after=hub.sessions[0])
    hub.finish(hub.start("true"))


def test_log_pipe_that_nobody_reads(agent, hub):
    """stderr is a full pipe: the agent must not block on it (style.md 3.4)."""
    a = agent(start=False)
    r, w = os.pipe()
    os.set_blocking(w, False)
    try:
        while True:
            os.write(w, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(w, True)
    env = {"PATH": os.environ["PATH"], "ASAN_OPTIONS": "detect_leaks=0"}
    open(a.log, "w", encoding="ascii").close()
    a.top = subprocess.Popen(a.argv(), env=env, stdin=subprocess.DEVNULL, stdout=w, stderr=w, start_new_session=True)
    os.close(w)
    try:
        hub.session(20)
        hub.finish(hub.start("true"))
        assert a.ctl("status").rc == 0
    finally:
        os.set_blocking(r, False)
        assert a.stop() == []
        os.close(r)


def test_log_closed(agent, hub):
    """stderr and stdout closed from the start: descriptors 1 and 2 must not become something else."""
    a = agent(prefix=["/bin/sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh"])
    hub.session()
    run = hub.finish(hub.start("echo out; echo err >&2"))
    assert run.text == b"out\nerr\n"


def test_b05_common_checks_over_a_plain_reconnect(device, hub):
    """The four checks themselves, on the simplest fault."""
    with CommonChecks(device, hub):
        for _ in range(5):
            s = hub.session()
            s.cut()
            hub.session(after=s)
    assert link_cause(device) in ("", None)
