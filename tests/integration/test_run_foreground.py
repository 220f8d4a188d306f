"""run-foreground with stand-ins for the daemons: each writes down what it was given and waits.

B59 (a child gets what nobody decided): descriptors, session, signals and capabilities of every process are compared with a
fixed table. B57 (dead-lock at the end): it ends within its time whenever SIGTERM comes.
"""
import ctypes
import json
import os
import platform
import random
import signal
import socket
import stat
import struct
import subprocess
import sys
import time

import pytest

from lib.netns import Mounts

BUILD = os.environ.get("EDGEWARD_BUILD", os.path.join(os.path.dirname(__file__), "../../build"))
RUN_FOREGROUND = os.path.join(BUILD, "packaging/run-foreground")
UIDS = 7000000 + os.getpid() % 20000 * 64      # another test run on this machine has others
NET, WORK, POOL, POOL_GID, OPERATOR = UIDS, UIDS + 1, UIDS + 16, UIDS + 2, UIDS + 3

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="skipped: needs root to give out users")

STAND_IN = """#!/usr/bin/python3
import json, os, signal, socket, sys, time
status = {k: v.strip() for k, _, v in (l.partition(":") for l in open("/proc/self/status"))}
listener = socket.socket(fileno=3)
out = {
    "argv": sys.argv, "status": status, "sid": os.getsid(0), "pid": os.getpid(), "cwd": os.getcwd(),
    "fds": {fd: os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)},
    "listen": [os.environ.get("LISTEN_PID"), os.environ.get("LISTEN_FDS")], "socket": listener.getsockname(),
    "type": listener.type, "notify": os.environ.get("NOTIFY_SOCKET"), "cgroup": open("/proc/self/cgroup").read(),
}
path = os.path.join(%(out)r, os.path.basename(sys.argv[0]) + ".json")
with open(path + ".tmp", "w") as f:
    json.dump(out, f)
os.rename(path + ".tmp", path)
%(then)s
"""


class Site:
    def __init__(self, tmp_path, then="time.sleep(1000)"):
        self.dir = tmp_path / "device"
        self.out = tmp_path / "out"
        self.build = tmp_path / "programs"
        self.out.mkdir()
        self.out.chmod(0o777)
        for top in [tmp_path, *tmp_path.parents]:
            if os.geteuid() == 0 and str(top).startswith("/tmp/"):
                top.chmod(0o755)
        for name in ["privhelper/privhelper", "connectd/connectd", "workerd/launcher/launcher"]:
            program = self.build / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(STAND_IN % {"out": str(self.out), "then": then})
            program.chmod(0o755)
        self.conf = tmp_path / "edgeward.conf"
        self.conf.write_text(f"[work]\nroot = {self.dir}/work\n")
        self.proc = None
        self.cgroup = None      # to start it in; None: ours
        self.enter = []         # what starts it in other namespaces

    def prepare(self):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)    # Whoever runs the tests under nohup has it ignored.
        if self.cgroup is not None:
            with open(self.cgroup + "/cgroup.procs", "w", encoding="ascii") as procs:
                procs.write("0")

    def ids(self):
        if os.geteuid() != 0:
            return []
        return ["--net-uid", str(NET), "--work-uid", str(WORK), "--pool", f"{POOL}:8", "--pool-gid", str(POOL_GID),
                "--operator-gid", str(OPERATOR)]

    def start(self, *args, ids=True):
        self.proc = subprocess.Popen([*self.enter, RUN_FOREGROUND, "-d", self.dir, "-c", self.conf, "-b", self.build,
                                      *(self.ids() if ids else []), *args], stderr=subprocess.PIPE, text=True,
                                     preexec_fn=self.prepare)
        return self.proc

    def report(self, name, timeout=10):
        path = self.out / (name + ".json")
        wait_for(path.exists, timeout)
        return json.loads(path.read_text())

    def pids(self):
        return dict(line.split() for line in (self.dir / "pids").read_text().splitlines())

    def stop(self):
        if self.proc is not None and self.proc.poll() is None:
            self.proc.terminate()
        self.proc.wait(20)
        return "" if self.proc.stderr.closed else self.proc.stderr.read()


def wait_for(what, timeout=10):
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


@pytest.fixture
def site(tmp_path):
    s = Site(tmp_path)
    yield s
    if s.proc is not None:
        s.stop()


def test_b59_what_each_process_is_given(site):
    site.start()
    for name in ["privhelper", "connectd", "launcher"]:
        got = site.report(name)
        assert set(got["fds"]) - {"4", "5"} == {"0", "1", "2", "3"} and got["fds"]["0"] == "/dev/null"
        # 4 and 5 could only be what python opened itself to look
        assert not any("socket" in v for k, v in got["fds"].items() if int(k) > 3)
        assert got["sid"] == got["pid"] and got["cwd"] == "/"
        assert got["listen"] == [str(got["pid"]), "1"] and got["notify"] is None
        assert got["type"] == socket.SOCK_SEQPACKET
        assert int(got["status"]["SigBlk"], 16) == 0
        assert site.pids()[name] == str(got["pid"])
    assert site.report("privhelper")["socket"] == f"{site.dir}/run/introduce.sock"
    assert site.report("connectd")["socket"] == f"{site.dir}/run/connectd.sock"
    assert site.report("launcher")["socket"] == f"{site.dir}/run/workerd.sock"


def test_arguments(site):
    site.start("-v")
    run, state = f"{site.dir}/run", f"{site.dir}/state"
    common = ["-c", str(site.conf), "-p", f"{site.dir}/policy.conf", "-r", run]
    net, work = (NET, WORK) if os.geteuid() == 0 else (os.geteuid(), os.geteuid())
    assert site.report("privhelper")["argv"][1:] == ["-r", run, "-s", state, "-N", str(net), "-W", str(work), "-v"]
    assert site.report("connectd")["argv"][1:] == [*common, "-s", f"{state}/connectd", "-v"]
    assert site.report("launcher")["argv"][1:] == [*common, "-s", f"{state}/workerd", "-P", f"{site.dir}/pool", "-w",
                                                   f"{site.build}/workerd/workerd", "-v"]


def caps(status):
    return [int(status[k], 16) for k in ("CapPrm", "CapEff", "CapInh", "CapAmb", "CapBnd")]


@as_root
def test_users_and_capabilities(site):
    site.start()
    set_ids = (1 << 6) | (1 << 7)
    net_admin = 1 << 12
    expect = {"privhelper": (0, [net_admin, net_admin, 0, 0, net_admin]), "connectd": (NET, [0] * 5),
              "launcher": (WORK, [set_ids] * 5)}
    for name, (uid, want) in expect.items():
        status = site.report(name)["status"]
        assert status["Uid"].split() == [str(uid)] * 4 and status["Gid"].split() == [str(uid)] * 4, name
        assert status["Groups"].strip() == "", name
        assert caps(status) == want, name
        assert status["NoNewPrivs"] == "1", name


@as_root
def test_privhelper_has_no_network(site):
    """Interfaces of workloads are made where nothing else is."""
    site.start()
    site.report("launcher")
    ns = lambda pid: os.readlink(f"/proc/{pid}/ns/net")
    pids = site.pids()
    assert ns(pids["connectd"]) == ns(os.getpid()) != ns(pids["privhelper"])


@as_root
def test_directories(site):
    site.start()
    site.report("launcher")
    table = {"run": (0, 0, 0o755), "state/connectd": (NET, NET, 0o700), "state/workerd": (WORK, WORK, 0o700),
             "work": (WORK, POOL_GID, 0o1770), "pool": (0, 0, 0o644), "run/introduce.sock": (NET, WORK, 0o660),
             "run/connectd.sock": (0, OPERATOR, 0o660), "run/workerd.sock": (0, OPERATOR, 0o660)}
    for name, want in table.items():
        st = os.lstat(site.dir / name)
        assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == want, name
    assert (site.dir / "pool").read_text() == f"{POOL} 8 {POOL_GID}\n"


def v2(cgroup):
    return [line[3:] for line in cgroup.splitlines() if line.startswith("0::")][0]


def v2_mount():
    for line in open("/proc/self/mountinfo"):
        if " - cgroup2 " in line:
            return line.split()[4]
    return None


@as_root
@pytest.mark.skipif(v2_mount() is None, reason="skipped: no cgroup v2 mounted")
def test_cgroup_is_delegated_killed_and_removed(site):
    site.start()
    path = v2_mount() + v2(site.report("launcher")["cgroup"])
    assert f"edgeward.{site.proc.pid}" in path
    assert v2(site.report("connectd")["cgroup"]) == v2(open("/proc/self/cgroup").read())
    for name in [".", "cgroup.procs", "cgroup.subtree_control"]:
        assert os.stat(os.path.join(path, name)).st_uid == WORK
    # Something the launcher left there, in a group of its own.
    os.mkdir(path + "/w.left")
    orphan = subprocess.Popen(["sleep", "1000"])
    with open(path + "/w.left/cgroup.procs", "w") as f:
        f.write(str(orphan.pid))
    first = site.pids()["launcher"]
    os.unlink(site.out / "launcher.json")
    os.kill(int(first), signal.SIGKILL)
    assert orphan.wait(5) == -signal.SIGKILL
    assert site.report("launcher")["pid"] != int(first)
    wait_for(lambda: not os.path.exists(path + "/w.left"))
    site.stop()
    assert site.proc.returncode == 0
    assert not os.path.exists(path)


def test_what_dies_is_started_again_with_growing_pauses(tmp_path):
    site = Site(tmp_path, then="open(path + '.count', 'a').write(f'{time.monotonic()}\\n'); sys.exit(3)")
    site.start()
    count = site.out / "connectd.json.count"
    wait_for(lambda: count.exists() and len(count.read_text().splitlines()) >= 5, 30)
    times = [float(t) for t in count.read_text().splitlines()]
    pauses = [b - a for a, b in zip(times, times[1:])]
    assert pauses[0] >= 0.1 and pauses[1] >= 0.2 and pauses[2] >= 0.4 and pauses[3] >= 0.8
    assert "connectd ended with exit code 3, again in 100 ms" in site.stop()


def test_stop_ends_all_and_only_then(site):
    site.start()
    pids = [int(site.report(n)["pid"]) for n in ("privhelper", "connectd", "launcher")]
    site.stop()
    assert site.proc.returncode == 0
    assert not (site.dir / "pids").exists() and list((site.dir / "run").iterdir()) == []
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_killed_takes_its_processes_along(site):
    site.start()
    pids = [int(site.report(n)["pid"]) for n in ("privhelper", "connectd", "launcher")]
    site.proc.kill()
    site.proc.wait()

    def gone(pid):
        try:
            return open(f"/proc/{pid}/stat").read().split()[2] == "Z"
        except FileNotFoundError:
            return True
    wait_for(lambda: all(gone(p) for p in pids))


def test_b57_sigterm_at_any_moment(tmp_path):
    random.seed(57)
    site = Site(tmp_path)
    for i in range(15):
        site.start()
        time.sleep(random.uniform(0, 0.2))
        os.kill(site.proc.pid, random.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
        started = time.monotonic()
        err = site.proc.communicate(timeout=20)[1]
        # Before its handlers are set a signal ends it as it ends any program; there is nothing to clean up yet.
        assert site.proc.returncode in (0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP), err
        assert time.monotonic() - started < 5, err


def test_two_in_one_directory(site):
    site.start()
    site.report("launcher")
    r = subprocess.run([RUN_FOREGROUND, "-d", site.dir, "-c", site.conf, *site.ids()], capture_output=True, text=True)
    assert r.returncode == 1 and "another run-foreground uses it" in r.stderr


@pytest.mark.parametrize("args", [[], ["-x"], ["-d"], ["-d", "x", "y"], ["-d", "x", "--pool", "5"], ["-d", "x", "--pool", "0:5"],
                                  ["-d", "x", "--net-uid", "root"], ["-d", "x", "--pool", "1:0"]])
def test_usage(args, tmp_path):
    r = subprocess.run([RUN_FOREGROUND, *args], capture_output=True, text=True, cwd=tmp_path)
    assert r.returncode == 2 and "usage: run-foreground" in r.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text,want", [("[work]\nroot=\n[hub]\nnokey = 1\n", "unknown key"), (None, "No such file")])
def test_bad_configuration_is_one_line_and_exit_1(site, text, want):
    if text is None:
        site.conf.unlink()
    else:
        site.conf.write_text(text)
    site.start()
    err = site.proc.communicate(timeout=10)[1]
    assert site.proc.returncode == 1 and want in err and len(err.splitlines()) <= 2


@as_root
def test_an_ordinary_user_is_told_that_the_work_root_must_be_its_own(open_path):
    """The default is root's."""
    (open_path / "d").mkdir()
    os.chown(open_path / "d", 65534, 65534)
    conf, root = open_path / "d" / "edgeward.conf", open_path / "roots-own"
    root.mkdir(mode=0o755)
    conf.write_text(f"[work]\nroot = {root}\n")
    r = subprocess.run([RUN_FOREGROUND, "-d", open_path / "d", "-c", conf], capture_output=True, text=True, timeout=20, user=65534, group=65534, extra_groups=[])
    assert r.returncode == 1 and f"{conf}: [work] root {root} is not this user's" in r.stderr, r


@as_root
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_as_root_a_configuration_that_others_may_write_is_refused(site, how):
    """Its [work] root becomes another user's by root's hand. The line names the file and what mends it, and nothing was made."""
    os.chown(site.conf, 4711 if how == "owner" else 0, 0)
    site.conf.chmod(0o644 if how == "owner" else 0o666)
    root = site.conf.parent / "given-away"
    site.conf.write_text(f"[work]\nroot = {root}\n")
    site.start()
    err = site.proc.communicate(timeout=10)[1]
    assert site.proc.returncode == 1 and f"chown 0 {site.conf}; chmod go-w {site.conf}" in err and not root.exists(), err


@as_root
@pytest.mark.parametrize("name", ["edgeward.conf", "policy.conf"])
def test_a_file_that_only_root_may_read_is_told_at_once(site, name):
    """Else the daemons would end for ever, each with a line of its own."""
    path = site.conf.parent / name
    if not path.exists():
        path.write_text("")
    path.chmod(0o600)
    site.start(*(["-p", path] if name == "policy.conf" else []))
    err = site.proc.communicate(timeout=10)[1]
    assert site.proc.returncode == 1 and f"{path} cannot be read by connectd (uid" in err and "Permission denied" in err


@as_root
def test_root_needs_users(site):
    site.start(ids=False)
    err = site.proc.communicate(timeout=10)[1]
    assert site.proc.returncode == 1 and "--net-uid and --work-uid" in err


def test_long_directory(tmp_path):
    site = Site(tmp_path)
    site.dir = tmp_path / ("d" * 100)
    site.conf.write_text(f"[work]\nroot = {tmp_path}/work\n")
    site.start()
    err = site.proc.communicate(timeout=10)[1]
    assert site.proc.returncode == 1 and "too long for a socket" in err


@as_root
def test_nobody_of_the_work_opens_fuse(agent, hub):
    """A file of a FUSE mount makes close() of another process wait past SIGKILL. In a view there is no such node; a taken-over workerd starts
    work without one, as the level uid does, and has the machine's /dev."""
    ns = Mounts()
    try:
        ns.sh("mount -t tmpfs none /mnt; mknod -m 666 /mnt/fuse c 10 229; test -e /dev/fuse && mount --bind /mnt/fuse /dev/fuse || mount --bind /mnt /dev/shm")
        node = "/dev/fuse" if os.path.exists("/dev/fuse") else "/dev/shm/fuse"
        script = f"ls -d {node} 2>/dev/null; for n in {node} /dev/null; do (exec 3<>$n) 2>/dev/null && echo $n opened; done; true"
        a = agent(ns=ns, policy={"work": {"sandbox-level": "uid"}})
        a.connected()
        assert not any("may open /dev/fuse" in line for line in a.log_text().splitlines())
        assert hub.finish(hub.start(script)).text == f"{node}\n/dev/null opened\n".encode()
        uid = a.pool.start
        other = ns.run("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "sh", "-c", script, check=False).stdout
        if f"{node} opened" not in other:
            pytest.skip("skipped: FUSE cannot be opened on this machine by anybody")
        with open(a.policy_file, "w", encoding="ascii"):
            pass
        old = a.pid("workerd")
        os.kill(a.pid("launcher"), signal.SIGHUP)
        a.restarted("workerd", old)
        assert hub.finish(hub.start(script)).text == b"/dev/null opened\n", "in a view"
    finally:
        ns.close()


BPF_CALL = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
OVERRIDE, MULTI = 1, 2


def bpf(cmd, attr):
    """The system call, with a record that is filled up with zeroes."""
    libc = ctypes.CDLL(None, use_errno=True)
    record = ctypes.create_string_buffer(attr, 120)
    r = libc.syscall(BPF_CALL, cmd, record, len(record))
    if r < 0:
        raise OSError(ctypes.get_errno(), "bpf")
    return r


def refuse_full(cgroup, flags):
    """A filter of devices that refuses those of minor number 7, /dev/full among them, as whoever manages the machine may have one."""
    insns = b"".join(struct.pack("=BBhi", *insn) for insn in [
        (0x61, 0x12, 8, 0), (0xb7, 0, 0, 1), (0x55, 2, 1, 7), (0xb7, 0, 0, 0), (0x95, 0, 0, 0)])
    code, licence = ctypes.create_string_buffer(insns), ctypes.create_string_buffer(b"ISC")
    prog = bpf(5, struct.pack("=IIQQ", 15, len(insns) // 8, ctypes.addressof(code), ctypes.addressof(licence)))
    fd = os.open(cgroup, os.O_RDONLY)
    try:
        bpf(8, struct.pack("=IIII", fd, prog, 6, flags))
    finally:
        os.close(fd)
        os.close(prog)


@as_root
@pytest.mark.skipif(v2_mount() is None or BPF_CALL is None, reason="skipped: no cgroup v2 mounted")
@pytest.mark.parametrize("flags", [OVERRIDE, MULTI])
def test_a_filter_of_the_machine_holds_for_the_work(tmp_path, flags):
    """One that may be overridden would hold no longer below a cgroup that has one of its own."""
    cgroup = f"{v2_mount()}{v2(open('/proc/self/cgroup', encoding='ascii').read()).rstrip('/')}/ewrf.{os.getpid()}"
    site = Site(tmp_path, then=f"""
try:
    open("/dev/full").close()
    got = "opened"
except OSError as e:
    got = e.strerror
with open(os.path.join({str(tmp_path / "out")!r}, os.path.basename(sys.argv[0]) + ".full"), "w") as f:
    f.write(got)
time.sleep(1000)
""")
    os.mkdir(cgroup)
    try:
        try:
            refuse_full(cgroup, flags)
        except OSError as e:
            pytest.skip(f"skipped: no filter of devices can be set here: {e}")
        site.cgroup = cgroup
        site.start()
        for name in ("connectd", "launcher"):
            got = site.out / f"{name}.full"
            wait_for(lambda file=got: file.exists() and file.read_text() != "")
            assert got.read_text() == "Operation not permitted", name
        log = site.stop()
        assert ("may open /dev/fuse" in log) == (flags == OVERRIDE and os.path.exists("/dev/fuse")), log
    finally:
        if site.proc is not None:
            site.stop()
        os.rmdir(cgroup)


@as_root
@pytest.mark.skipif(v2_mount() is None or BPF_CALL is None, reason="skipped: no cgroup v2 mounted")
def test_a_filter_that_is_there_is_not_set_again(site):
    """A cgroup takes 64. Where it cannot be removed it keeps them, and each new start of the launcher was one more, until the word on it was false."""
    ns = Mounts()
    try:
        site.enter = ns.enter
        site.start()
        pid = site.report("launcher")["pid"]
        base = f"{v2_mount()}{v2(open(f'/proc/{pid}/cgroup', encoding='ascii').read()).rstrip('/')}"
        ns.sh(f"mount --bind {base} {base}")        # so it cannot be removed
        try:
            for _ in range(63):
                refuse_full(base, MULTI)
        except OSError as e:
            pytest.skip(f"skipped: no filter of devices can be set here: {e}")
        os.unlink(site.out / "launcher.json")
        os.kill(pid, signal.SIGKILL)
        assert site.report("launcher")["pid"] != pid
        ns.sh(f"umount {base}")
        log = site.stop()
        assert "no filter for its cgroup" not in log, log
    finally:
        site.stop()
        ns.close()
