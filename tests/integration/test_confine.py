"""What a workload cannot do (issue 3 points 1, 2 and 11; design.md section 4), tried from inside by tests/implant/payload.c and by
ordinary programs. The filter for every architecture: tests/unit/test_filter.c; which machine gives what: test_confinement.c.

Where it could break: view.c (a path too many), confine.c (an order that leaves a capability), workinit.c (a descriptor, an id),
confinement.c (a start that gets less than require).
"""
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time

import pytest

from lib import proc, workdrv
from lib.agent import BUILD
from lib.netns import Mounts
from lib.workdrv import OK, POOL_COUNT, POOL_FIRST, POOL_GID, SANDBOX, WORK_UID, Device

root = pytest.mark.root
IMPLANT = f"{BUILD}/tests/implant/implant_payload"
UID_LEVEL = "[work]\nsandbox-level = uid\n"

# Any answer but "done"; and the answer itself where it tells which wall it was.
REFUSED = {
    "mount": "EPERM", "remount": "EPERM", "umount": "EPERM", "umount-proc": "EPERM", "pivot_root": "EPERM", "chroot": "EPERM",
    "open_tree": "EPERM", "fsopen": "EPERM", "mount_setattr": "EPERM", "unshare-user": "EPERM", "unshare-mount": "EPERM",
    "clone-user": "EPERM", "clone3-user": "ENOSYS", "keyctl": "EPERM", "add_key": "EPERM", "request_key": "EPERM", "bpf": "EPERM",
    "perf": "EPERM", "io_uring": "ENOSYS", "userfaultfd": "EPERM", "init_module": "EPERM", "kexec": "EPERM", "reboot": "EPERM",
    "settimeofday": "EPERM", "sethostname": "EPERM", "syslog": "EPERM", "by-handle": "EPERM", "setuid": None, "setgid": None,
    "setgroups": "EPERM", "ambient": "EPERM", "nice": "EACCES", "socket-raw": "EPERM", "socket-packet": "EPERM",
    "socket-vsock": "EAFNOSUPPORT", "socket-alg": "EAFNOSUPPORT", "tiocsti": "EPERM", "mknod-disk": None, "mknod-mem": None,
    "uid_map": None, "setns-user": None, "setns-own": "EPERM", "capset": "EPERM", "prlimit-init": "EPERM", "affinity-init": "EPERM", "scheduler-init": "EPERM", "ptrace-init": "EPERM", "vm-read-init": "EPERM",
    "ptrace-outside": None, "vm-read-outside": None, "kill-outside": None, "pidfd-outside": None, "oom": "EACCES",
}
# What an ordinary user may do: if these fail outside as well, the attempts are broken.
CONTROL = ["getpid", "unshare-user", "clone-user", "clone3-user", "keyctl", "add_key", "trace-child", "oom", "read:/var/lib", "read:/boot"]
SYSTEM_HIDDEN = ["/sys/kernel", "/run/systemd", "/var/lib", "/root", "/home", "/boot", "/dev/mem", "/dev/kmsg", "/dev/vda", "/proc/kcore"]
INIT_CLOSED = ["/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/fd", "/proc/1/root/etc"]


@pytest.fixture(scope="module")
def dev():
    with Device() as d:
        yield d


@pytest.fixture(scope="module")
def by_uid():
    with Device(policy=UID_LEVEL) as d:
        yield d


@pytest.fixture(scope="module")
def plain():
    with Device(plain=True) as d:
        yield d


def sh(dev, script, work_dir="", **kw):
    return dev.run(["/bin/sh", "-c", script], work_dir=work_dir, **kw).data.decode(errors="replace")


def place(dev, work_dir, source=IMPLANT, name="implant", mode=0o755):
    """A program in a work directory; as root it could be anybody's."""
    assert sh(dev, "echo made", work_dir) == "made\n"
    shutil.copyfile(source, f"{dev.dir}/work/{work_dir}/{name}")
    os.chmod(f"{dev.dir}/work/{work_dir}/{name}", mode)


def attempts(dev, work_dir, outside, *paths):
    place(dev, work_dir)
    r = dev.run(["./implant", str(outside), *paths], work_dir=work_dir)
    assert r.info["exit_code"] == 0, r.data
    return dict(line.rsplit(" ", 1) for line in r.data.decode().splitlines())


def secrets_of(dev):
    """Paths of the agent, and of another workload under another id."""
    assert sh(dev, "echo secret > f; echo done", "other") == "done\n"
    return [f"{dev.dir}/work/other/f", f"{dev.dir}/work/other", f"{dev.dir}/state", f"{dev.dir}/state/journal", f"{dev.dir}/conf",
            f"{dev.dir}/run/introduce.sock", f"{dev.dir}/run/workerd.sock"]


def test_the_attempts_are_real():
    """Outside, as an ordinary user, what that user may do succeeds."""
    copy = f"/tmp/ewconfine.{os.getpid()}"
    shutil.copyfile(IMPLANT, copy)
    os.chmod(copy, 0o755)
    who = {"user": 65333, "group": 65333, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        out = subprocess.run([copy, "1"], capture_output=True, text=True, timeout=60, check=True, cwd="/tmp", **who).stdout
    finally:
        os.unlink(copy)
    got = dict(line.rsplit(" ", 1) for line in out.splitlines())
    assert {c: got[c] for c in CONTROL if got[c] != "done"} == {}
    assert set(REFUSED) <= set(got)


@pytest.mark.parametrize("kind", [pytest.param("dev", marks=root), "plain"])
def test_a_hostile_workload(request, kind):
    d = request.getfixturevalue(kind)
    paths = secrets_of(d)
    got = attempts(d, "bad", d.launcher.pid, *paths)
    assert got.pop("getpid") == "done" and got.pop("trace-child") == "done"
    assert {c: got[c] for c, want in REFUSED.items() if got[c] != want and (want or got[c] == "done")} == {}
    if "x32" in got:
        assert got["x32"] == "SIGSYS"
    opened = {c: v for c, v in got.items() if ":" in c and v == "done"}
    assert opened == {}
    for path in SYSTEM_HIDDEN:
        assert got[f"read:{path}"] in ("ENOENT", "EACCES"), path
    for path in INIT_CLOSED:
        assert got[f"read:{path}"] == "EACCES", path
    for path in paths:
        assert got[f"read:{path}"] == "ENOENT", path


@root
def test_a_hostile_workload_at_level_uid(by_uid):
    """Without namespaces: seccomp, Landlock and the runner's id. Pids of others can be seen there, and nothing done to them."""
    paths = secrets_of(by_uid)
    got = attempts(by_uid, "bad", by_uid.launcher.pid, *paths)
    skipped = {"pidfd-outside"}     # only a number to poll
    assert {c: got[c] for c in REFUSED if got[c] == "done" and c not in skipped} == {}
    assert got["trace-child"] == "EPERM"
    opened = {c for c, v in got.items() if c.startswith(("read:", "write:")) and v == "done"}
    assert opened <= {f"read:{by_uid.dir}/conf"}    # it is in /tmp, which all share at this level
    for path in paths[:4]:
        assert got[f"read:{path}"] == "EACCES", path


@root
def test_an_engines_socket_is_in_nobodys_reach():
    """One that is open to the runners' group, as containers need it: other work does not see it; where all would, nothing starts."""
    where = f"/tmp/ewengine.{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.bind(where)
        s.listen(4)
        os.chmod(where, 0o666)
        try:
            line = f"[containers]\nengine-socket = {where}\n"
            with Device(policy=line) as d:
                got = attempts(d, "bad", d.launcher.pid, where)
                assert (got[f"read:{where}"], got[f"connect:{where}"]) == ("ENOENT", "ENOENT")
            with Device(policy=UID_LEVEL + line) as d:
                assert "socket would be in reach of all work" in d.start(["true"], work_dir="bad", expect=SANDBOX)
            with Device(policy=UID_LEVEL) as d:     # it would be: so the refusal is for a reason
                assert attempts(d, "bad", d.launcher.pid, where)[f"connect:{where}"] == "done"
        finally:
            os.unlink(where)


@pytest.mark.parametrize("kind", [pytest.param("dev", marks=root), "plain"])
def test_alone_with_its_init(request, kind):
    d = request.getfixturevalue(kind)
    other = d.start(["/bin/sleep", "60"], work_dir="w")
    out = sh(d, "for p in /proc/[0-9]*; do read name < $p/comm; echo ${p#/proc/} $name; done; kill -9 1; kill -TERM 1; kill -9 -1; "
                "echo lives", "w").splitlines()
    assert out[0] == "1 workinit" and out[1].split()[1] == "sh" and all(" sh" in line for line in out[1:2])
    assert len([line for line in out if line.endswith(" sleep")]) == 0
    assert proc.stat(other.info["pid"])[0] == "sleep"
    assert proc.status(other.info["pid"])["NSpid"].split()[-1] == "2"
    d.signal(other, signal.SIGTERM)
    d.finish(other)
    assert other.info["outcome"] == workdrv.CANCELLED


@pytest.mark.parametrize("kind", [pytest.param("dev", marks=root), "plain", pytest.param("by_uid", marks=root)])
def test_two_of_one_directory_cannot_reach_each_other(request, kind):
    """The same runner, even the same directory."""
    d = request.getfixturevalue(kind)
    first = d.start(["/bin/sh", "-c", "SECRET=x; echo up; exec /bin/sleep 60"], work_dir="same")
    d.wait("up", lambda: b"up" in first.data)
    pid = first.info["pid"]
    out = sh(d, f"kill -0 {pid} && echo signalled; cat /proc/{pid}/environ && echo read; ls /proc/{pid}/fd && echo listed; "
                f"ls /proc/{pid}/root && echo walked; kill -9 -1; echo end", "same")
    if kind == "by_uid":    # it has no pid namespace: Landlock keeps them apart, signals only since its ABI 6
        assert not any(word in out for word in ("read\n", "walked\n")), out
    else:
        assert not any(word in out for word in ("signalled", "read\n", "listed\n", "walked\n")), out
        assert proc.stat(pid)[0] == "sleep"
        uids = [proc.status(p)["Uid"].split()[0] for p in (pid,)]
        assert uids == [str(d.uid if kind == "plain" else os.stat(f"{d.dir}/work/same").st_uid)]
    d.signal(first, signal.SIGKILL)
    d.finish(first)


@pytest.mark.parametrize("kind", [pytest.param("dev", marks=root), "plain"])
def test_state_of_the_process(request, kind):
    d = request.getfixturevalue(kind)
    s = dict(line.split(":", 1) for line in sh(d, "cat /proc/self/status").splitlines())
    assert [int(s[k], 16) for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 5
    assert s["NoNewPrivs"].strip() == "1" and s["Seccomp"].strip() == "2"
    init = dict(line.split(":", 1) for line in sh(d, "cat /proc/1/status").splitlines())
    assert init["Name"].strip() == "workinit"
    assert [int(init[k], 16) for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 5
    assert init["Seccomp"].strip() == "2"
    assert sh(d, "for n in 0 1 2 3 4 5 6 7 8 9 10 11 12; do [ -L /proc/self/fd/$n ] && echo $n; done").split() == ["0", "1", "2"]


@pytest.mark.parametrize("kind", [pytest.param("dev", marks=root), "plain", pytest.param("by_uid", marks=root)])
def test_workinit_shares_no_memory_with_the_launcher(request, kind):
    """The launcher equals root: a workinit that was taken over must not write what it reads."""
    d = request.getfixturevalue(kind)
    r = d.start(["/bin/sleep", "60"], work_dir="shares")
    init = proc.stat(r.info["pid"])[2]
    with open(f"/proc/{init}/maps", encoding="utf-8") as f:
        assert [line for line in f if line.split()[1][1] == "w" and line.split()[1][3] == "s"] == []
    d.signal(r, signal.SIGKILL)
    d.finish(r)


@root
def test_state_at_level_uid(by_uid):
    s = dict(line.split(":", 1) for line in sh(by_uid, "cat /proc/self/status").splitlines())
    assert [int(s[k], 16) for k in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0] * 4
    assert s["NoNewPrivs"].strip() == "1" and s["Seccomp"].strip() == "2"


@pytest.mark.parametrize("kind", [pytest.param("dev", marks=root), "plain"])
def test_private_directories(request, kind):
    """/tmp and /dev/shm are its own, and gone with it."""
    d = request.getfixturevalue(kind)
    script = "echo mine > /tmp/f; echo mine > /dev/shm/f; ls /var/tmp; stat -c %a /tmp /dev/shm; echo up; exec sleep 60"
    first = d.start(["/bin/sh", "-c", script], work_dir="t")
    d.wait("up", lambda: b"up" in first.data)
    assert first.data.decode().split("\n")[-4:-1] == ["1777", "1777", "up"]
    assert "f\n" in first.data.decode()
    assert sh(d, "cat /tmp/f /dev/shm/f 2>&1 | grep -c No", "t") == "2\n"
    assert not os.path.exists("/dev/shm/f")
    d.signal(first, signal.SIGKILL)
    d.finish(first)
    assert sh(d, "cat /tmp/f 2>&1", "t") != "mine\n"
    assert d.settled()
    assert not [m for m in open("/proc/mounts", encoding="utf-8") if f"{d.dir}/work" in m], "nothing is mounted outside"


@pytest.mark.parametrize("kind", [pytest.param("dev", marks=root), "plain"])
def test_what_programs_need_is_there(request, kind):
    d = request.getfixturevalue(kind)
    out = sh(d, "id -un; id -gn; head -c 4 /dev/zero | od -An -tx1; head -c 1 /dev/urandom | wc -c; echo x > /dev/null; echo y > /dev/full "
                "2>/dev/null || echo full; echo z > /dev/stdout; cat /etc/passwd | wc -l; ls /proc/self/fd/0 /dev/pts/ptmx; "
                "getconf _NPROCESSORS_ONLN", "n").split("\n")
    cpus = str(os.sysconf("SC_NPROCESSORS_ONLN"))
    assert out[:-1] == ["edgeward-run", "edgeward-run", " 00 00 00 00", "1", "full", "z", "1", "/dev/pts/ptmx", "/proc/self/fd/0", cpus]
    # a terminal of its own, threads, a 32-bit-clean fork, shared memory
    script = ("import os,pty,threading,multiprocessing as m; a,b=pty.openpty(); os.write(b,b'tty'); print(os.read(a,9), os.ttyname(b)); "
              "t=threading.Thread(target=lambda: print('thread')); t.start(); t.join(); "
              "p=m.get_context('fork').Process(target=lambda: print('fork', flush=True)); p.start(); p.join(); m.Semaphore(1).acquire(); print('sem')")
    r = d.run(["/usr/bin/python3", "-c", script], work_dir="n")
    assert r.data.decode().split("\n")[:-1] == ["b'tty' /dev/pts/0", "thread", "fork", "sem"], r.data


@root
def test_setuid_programs_are_powerless(dev):
    place(dev, "suid", "/usr/bin/id", "id", 0o6755)
    place(dev, "suid", "/usr/bin/cat", "cat", 0o6755)
    assert stat.S_ISUID & os.stat(f"{dev.dir}/work/suid/id").st_mode and os.stat(f"{dev.dir}/work/suid/id").st_uid == 0
    out = sh(dev, "./id -u; ./id -g; ./cat /etc/shadow 2>&1; for f in /usr/bin/su /usr/bin/mount /usr/bin/passwd; do [ -u $f ] && echo s; "
                  "done; su -c id 2>&1 </dev/null | grep -c uid=0", "suid").split("\n")
    uid = os.stat(f"{dev.dir}/work/suid").st_uid
    assert out[0] == str(uid) and out[1] == str(POOL_GID) and "denied" in out[2] and out[-2] == "0"


@root
def test_abstract_sockets_of_the_machine(dev):
    """With the network of the host they are in reach, unless Landlock can tell (ABI 6)."""
    if dev.caps[6] < 6:
        pytest.skip("skipped: this kernel's Landlock has no scopes")
    name = f"ew-confine-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind("\0" + name)
        s.listen(1)
        assert attempts(dev, "abs", dev.launcher.pid, "@" + name)[f"connect:@{name}"] == "EPERM"


@root
def test_without_a_network_nobody_looks_names_up(dev):
    """Services in these directories answer on sockets, by way of the machine's network."""
    place = "/run/resolvconf"
    made = not os.path.isdir(place)
    if made:
        os.mkdir(place)
    try:
        with Device() as host, Device(policy="[work]\nnetwork = none\n") as none:
            assert sh(host, "ls -d /run/resolvconf 2>&1; grep -c : /proc/net/dev", "n").startswith(place + "\n")
            out = sh(none, "ls -d /run/resolvconf 2>&1; grep : /proc/net/dev", "n").splitlines()
            assert "No such file" in out[0] and [line.split(":")[0].strip() for line in out[1:]] == ["lo"]
    finally:
        if made:
            os.rmdir(place)


@root
def test_whoever_started_it_allows_no_core_files():
    """A hard limit of 0 (DefaultLimitCORE=0, limits.conf) cannot be raised to our 1: it stays, and work starts."""
    with Device(enter=["prlimit", "--core=0:0"]) as d:
        assert sh(d, "ulimit -Hc; ulimit -Sc", "n").split() == ["0", "0"]


@root
@pytest.mark.parametrize("there_at_first", [True, False])
def test_what_comes_and_goes_with_a_service(there_at_first):
    """Directories that were there when the launcher started and have gone keep nothing from starting; those that came are shown, or hidden."""
    names, hidden = "/run/resolvconf", "/etc/edgeward"
    if os.path.lexists(names) or os.path.lexists(hidden):
        pytest.skip(f"skipped: this machine has {names} or {hidden} of its own")

    def there(yes):
        for place in (names, hidden):
            if yes:
                os.mkdir(place)
                with open(f"{place}/file", "w", encoding="ascii"):
                    pass
            else:
                shutil.rmtree(place, ignore_errors=True)
    try:
        there(there_at_first)
        with Device() as d:
            for now in (there_at_first, not there_at_first, there_at_first):
                if now != os.path.exists(names):
                    there(now)
                want = [f"{names}/file"] if now else []
                assert sh(d, f"ls -d {names} {names}/* {hidden}/* 2>/dev/null; true", "n").split() == ([names] + want if now else [])
    finally:
        there(False)


def test_shown_directories(tmp_path_factory):
    shown = f"/tmp/ewshown.{os.getpid()}"
    os.makedirs(f"{shown}/sub")
    with open(f"{shown}/sub/f", "w", encoding="ascii") as f:
        f.write("shown\n")
    os.chmod(shown, 0o777)
    try:
        with Device(conf=f"show = {shown} /usr/share\n", plain=os.geteuid() != 0) as d:
            out = sh(d, f"cat {shown}/sub/f; touch {shown}/new 2>&1; ls /tmp", "s")
            assert out.startswith("shown\n") and "Read-only" in out
            shutil.rmtree(shown)
            assert shown in d.start(["/bin/true"], work_dir="s", expect=SANDBOX)
    finally:
        shutil.rmtree(shown, ignore_errors=True)


@root
def test_what_is_the_agents_is_hidden_wherever_it_lies():
    """/etc/edgeward and the two others may be links to below what a workload sees, by way of other links."""
    ns = Mounts()
    try:
        ns.sh("mount -t tmpfs -o mode=755 none /mnt; mkdir -p /mnt/u /mnt/w /opt; mount -t overlay -o lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w none /etc; "
              "mount -t tmpfs -o mode=755 none /opt; mount -t tmpfs -o mode=755 none /var/lib; rm -rf /etc/edgeward; mkdir -p /opt/site/agent/sub /opt/site/data /opt/more; "
              "ln -s /opt/way /etc/edgeward; ln -s site/agent /opt/way; ln -s ../../opt/site/data /var/lib/edgeward; "
              "for f in site/agent/policy.conf site/agent/sub/key site/data/credential more/f site/g; do echo secret > /opt/$f; done")
        look = ("cat /etc/edgeward/policy.conf /opt/site/agent/policy.conf /opt/site/agent/sub/key /opt/way/sub/key /opt/site/data/credential /var/lib/edgeward/* "
                "2>/dev/null; ls -A /opt/site/agent /opt/site/data; cat /opt/more/f /opt/site/g; touch /opt/site/agent/x 2>/dev/null; echo $?")
        with Device(enter=ns.enter) as d:
            want = "/opt/site/agent:\n\n/opt/site/data:\nsecret\nsecret\n1\n"
            assert sh(d, look, "n") == want
            # Moved while the launcher runs.
            ns.sh("mv /opt/site/agent /opt/more/agent; ln -sfn /opt/more/agent /etc/edgeward")
            assert sh(d, "cat /opt/more/agent/* /opt/more/agent/*/* /etc/edgeward/* 2>/dev/null; ls -A /opt/more", "n") == "agent\nf\n"
            ns.sh("rm /etc/edgeward; mkdir /etc/edgeward; echo secret > /etc/edgeward/f")
            assert sh(d, "cat /etc/edgeward/f 2>&1 | grep -c secret; cat /opt/more/agent/policy.conf", "n") == "0\nsecret\n"
        with Device(enter=ns.enter, conf="show = /opt/site/data/shown /mnt\n") as d:
            ns.sh("mkdir /opt/site/data/shown; echo yes > /opt/site/data/shown/f")
            assert sh(d, "cat /opt/site/data/shown/f; ls -A /opt/site/data", "n") == "yes\nshown\n", "what edgeward.conf shows is seen, and nothing beside it"
        ns.sh("ln -s / /mnt/all; ln -s /opt/site/data /opt/data")
        with Device(enter=ns.enter, conf="show = /mnt/all /opt/data\n") as d:
            assert sh(d, "cd /mnt/all; cat etc/edgeward/f opt/site/data/credential 2>/dev/null; cat opt/site/g", "n") == "secret\n", "a link may lead to all there is"
    finally:
        ns.close()


@pytest.fixture(name="shown")
def a_directory_to_show():
    """It may be passed by all, and so may a link to it, shown + ".link"."""
    path = tempfile.mkdtemp(prefix="ewshown.", dir="/tmp")
    os.chmod(path, 0o755)
    os.symlink(path, path + ".link")
    yield path
    os.unlink(path + ".link")
    shutil.rmtree(path)


def test_what_the_command_line_names_is_hidden(shown):
    """Files and directories of an agent below a directory that is shown, by its name and by a link; work goes on in the work root there."""
    with Device(tmp=shown, conf=f"show = {shown} {shown}.link\n", plain=os.geteuid() != 0) as d:
        os.chmod(f"{d.dir}/state", 0o755)
        with open(f"{d.dir}/beside", "w", encoding="ascii") as f:
            f.write("seen\n")
        for place in (d.dir, d.dir.replace(shown, shown + ".link")):
            out = sh(d, f"cd {place}; cat conf policy pool 2>/dev/null; ls -A state run; cat beside; pwd -P >/dev/null; cat conf 2>&1", "w")
            assert out.startswith("run:\n\nstate:\nseen\n") and "ermission denied" in out, out
        assert sh(d, "echo mine > f; cat f; pwd", "w") == f"mine\n{d.dir}/work/w\n"


@root
@pytest.mark.parametrize("way", ["shut/agent", "link"])
def test_what_a_closed_directory_keeps_is_hidden_also_when_it_is_opened(shown, way):
    """The runner cannot look up what lies there, and root may open it while a workload runs. Links may lead there, one by way of the other."""
    os.makedirs(f"{shown}/shut/agent")
    os.mkdir(f"{shown}/open")
    os.symlink("../shut/agent", f"{shown}/open/on")
    os.symlink(f"{shown}/open/on", f"{shown}/link")
    for place in (shown, f"{shown}/open", f"{shown}/shut/agent"):
        os.chmod(place, 0o755)
    os.chown(f"{shown}/shut", 0, WORK_UID)
    os.chmod(f"{shown}/shut", 0o750)    # workerd may pass, a runner may not
    d = Device(tmp=f"{shown}/open", conf=f"show = {shown}\n")
    for name in ("conf", "policy"):
        os.rename(f"{d.dir}/{name}", f"{shown}/shut/agent/{name}")
    d.named = f"{shown}/{way}"
    with d:
        r = d.start(["/bin/sh", "-c", f"echo up; while [ ! -e go ]; do sleep 0.05; done; cd {shown}; cat shut/agent/* {way}/*; ls -A shut; ls; echo end"],
                    work_dir="w")
        d.wait("up", lambda: b"up" in r.data)
        os.chmod(f"{shown}/shut", 0o755)
        with open(f"{d.dir}/work/w/go", "w", encoding="ascii"):
            pass
        d.finish(r)
        out = r.data.decode()
        assert "root =" not in out and "\nagent\n" not in out and out.endswith("link\nopen\nshut\nend\n"), out


def test_what_the_command_line_names_by_a_relative_path_is_hidden(shown):
    d = Device(tmp=shown, conf=f"show = {shown}\n", plain=os.geteuid() != 0, enter=["env", "-C", shown])
    d.named = os.path.basename(d.dir)
    with d:
        assert sh(d, f"cd {d.dir}; cat conf policy 2>/dev/null; echo end", "w") == "end\n"


def test_a_directory_that_is_shown_covers_none_named_before_it(shown):
    """In whatever order edgeward.conf names them."""
    d = Device(tmp=shown, plain=os.geteuid() != 0)
    os.mkdir(f"{d.dir}/run/seen")
    os.chmod(f"{d.dir}/run/seen", 0o755)
    d.write("conf", f"[work]\nroot = {d.dir}/work\nshow = {d.dir}/run/seen {shown}\n")
    with d:
        assert sh(d, f"ls {d.dir}/run", "w") == "seen\n"


@root
def test_a_device_node_keeps_its_mode():
    """crun gives the machine's /dev/null to the user of a container (1.8.1 does), which is a runner: its workloads must not shut it for all others."""
    ns = Mounts()
    try:
        ns.sh(f"mount -t tmpfs none /mnt; mknod -m 666 /mnt/null c 1 3; chown {POOL_FIRST + 1} /mnt/null; mount --bind /mnt/null /dev/null")
        with Device(enter=ns.enter) as d:
            assert sh(d, "true", "first") == "" and os.stat(f"{d.dir}/work/first").st_uid == POOL_FIRST + 1
            said = sh(d, "stat -c %u /dev/null; id -u; chmod 600 /dev/null 2>&1; echo x >/dev/null && echo written", "first").split("\n")
        assert said[0] == said[1] and "Read-only file system" in said[2] and said[3] == "written", said
        assert ns.sh("stat -c %a /dev/null") == "666\n"
    finally:
        ns.close()


@root
def test_the_work_directory_and_nothing_beside_it(dev):
    """A link beneath the root leads to a directory's own place; its neighbours are not there."""
    assert sh(dev, "echo 1 > f; pwd", "deep/er") == f"{dev.dir}/work/deep/er\n"
    uid = os.stat(f"{dev.dir}/work/deep").st_uid
    os.symlink("er", f"{dev.dir}/work/deep/link")
    os.lchown(f"{dev.dir}/work/deep/link", uid, POOL_GID)
    assert sh(dev, "pwd -P; cat f; ls ..; ls ../..", "deep/link").split() == [f"{dev.dir}/work/deep/er", "1", "er", "deep"]
    # nosuid and nodev, whatever the file system of the root is
    flags = [line.split()[3] for line in sh(dev, "cat /proc/mounts", "deep/er").splitlines() if line.split()[1].endswith("/deep/er")]
    assert all("nosuid" in f and "nodev" in f and f.startswith("rw") for f in flags) and flags


def withheld(what):
    """Runs the launcher where the machine withholds something: a limit of namespaces in a user namespace above it."""
    return ["/usr/bin/python3", "-c", f"""
import os, sys
uid, gid = os.getuid(), os.getgid()
os.unshare(0x10000000) if hasattr(os, 'unshare') else __import__('ctypes').CDLL(None).unshare(0x10000000)
for name, text in (('setgroups', 'deny'), ('uid_map', f'{{uid}} {{uid}} 1'), ('gid_map', f'{{gid}} {{gid}} 1')):
    open('/proc/self/' + name, 'w').write(text)
for name in {what!r}:
    open('/proc/sys/user/max_' + name + '_namespaces', 'w').write('0')
os.execv(sys.argv[1], sys.argv[1:])
"""]


class Withheld(Device):
    """A device of an ordinary user on a machine that withholds some namespaces."""
    def __init__(self, what, **kw):
        self.what = what
        super().__init__(plain=True, **kw)

    def spawn(self):
        script = f"{self.dir}/launcher"
        with open(script, "w", encoding="ascii") as f:
            f.write("#!/usr/bin/python3\nimport os, sys\nos.execv('/usr/bin/python3', " + repr(withheld(self.what)) +
                    f" + [{self.program!r}] + sys.argv[1:])\n")
        os.chmod(script, 0o755)
        self.program = script
        return super().spawn()


@pytest.mark.parametrize("what,named", [(["user"], "user namespaces"), (["mnt"], "a view of its own"), (["ipc"], "an ipc namespace"),
                                        (["uts"], "a uts namespace")], ids=str)
def test_require_refuses_by_name(what, named):
    with Withheld(what) as d:
        err = d.start(["/bin/true"], expect=SANDBOX)
        if what == ["user"]:
            assert "no pid namespace can take its place" in err
        else:
            assert "this machine does not give: " in err and named in err
    conf = "sandbox = best-effort\n"
    with Withheld(what, conf=conf) as d:
        r = d.run(["/bin/sh", "-c", "echo runs; grep -c . /proc/self/mounts"])
        assert r.data.startswith(b"runs\n")
        assert d.caps[5] & {"user": 1, "mnt": 2, "ipc": 8, "uts": 16}[what[0]] == 0, "what is not given is not claimed"


def test_require_is_satisfied_here():
    """And is not given up on a machine that has it all: the caps say so."""
    with Device(plain=os.geteuid() != 0) as d:
        assert d.caps[5] == 0x1ff
        assert d.run(["/bin/true"]).info["exit_code"] == 0


def test_an_unclean_show_is_an_error_at_start():
    d = Device(conf="show = ../x\n", plain=os.geteuid() != 0)
    args = [workdrv.exe("workerd"), "-n", "-c", f"{d.dir}/conf", "-p", f"{d.dir}/policy"]
    try:
        p = subprocess.run(args, capture_output=True, text=True, timeout=20, check=False, env=d.env)
    finally:
        d.log.close()
        shutil.rmtree(d.dir)
        if d.cgroup:
            os.rmdir(d.cgroup)
        d.introduce.close()
        d.control.close()
    assert p.returncode == 1 and "show" in p.stderr


@root
def test_many_at_once_leave_nothing(dev):
    """Starts side by side, some of which fail late: processes, cgroups and mounts are as before."""
    mounts = len(open("/proc/mounts", encoding="utf-8").readlines())
    runs = [dev.ask_start(["/bin/sh", "-c", f"exit {n}"] if n % 3 else ["/nonexistent"], work_dir=f"m{n % 4}")[1] for n in range(12)]
    answers = [dev.answer(i) for i in runs]
    assert [a[0] == OK for a in answers] == [n % 3 != 0 for n in range(12)]
    for r in list(dev.runs.values()):
        if r.epoch == 0:
            dev.sub(r, 0)
        dev.finish(r)
    assert dev.settled()
    assert len(open("/proc/mounts", encoding="utf-8").readlines()) == mounts
    end = time.monotonic() + 10
    while proc.by_uid(set(range(POOL_FIRST, POOL_FIRST + POOL_COUNT))):
        assert time.monotonic() < end
        time.sleep(0.05)
