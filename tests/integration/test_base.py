"""The common part of a runner's views, made once (workerd/launcher/base.c): a start that uses it gets what one without it gets, and never what is gone.

Where it could break: view.c and viewadd.c (the two steps against the one), base.c (a base that is kept too long, or entered by another).
"""
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
import time

import pytest

from lib.agent import BUILD
from lib.proc import wait_for
from lib.workdrv import Device
from test_confine import INIT_CLOSED, SYSTEM_HIDDEN
from test_handover import is_new, reload, replace

PY = "/usr/bin/python3"
pytestmark = pytest.mark.root
SECRET = b"Zk3vT0x9mZ2dLr8A"

# Everything a workload can see of what was done to it. mounts: what is on top at each place.
SEEN = r"""
import json, os, resource
def lines(path):
    with open(path) as f:
        return f.read().splitlines()
def names(path):
    try:
        return sorted(os.listdir(path))
    except OSError as e:
        return e.errno
mounts = {}
for m in (l.split() for l in lines("/proc/self/mountinfo")):
    mounts[m[4]] = [sorted(m[5].split(",")), m[m.index("-") + 1]]
def stat(path):
    s = os.lstat(path)
    return [s.st_mode, s.st_uid, s.st_gid]
def rights(top):
    return {p: stat(p) for p in [top] + [os.path.join(top, n) for n in names(top)]}
print(json.dumps({
    "mounts": {p: m for p, m in mounts.items() if os.path.lexists(p)},
    "status": [l for l in lines("/proc/self/status") if l.split(":")[0] in ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff",
               "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "SigBlk", "SigIgn", "Umask", "NSpid")],
    "rights": {d: rights(d) for d in ("/", "/dev", "/var", "/tmp", "/dev/shm", "/dev/edgeward", "/run/empty")},
    "files": {d: names(d) for d in ("/", "/dev", "/run/empty", "/etc/edgeward", "/var", "/proc/self/fd", "/sys", "/dev/pts", os.path.dirname(os.getcwd()))},
    "processes": [p for p in names("/proc") if p.isdigit()],
    "passwd": lines("/etc/passwd"), "group": lines("/etc/group"), "cwd": os.getcwd(), "env": dict(os.environ),
    "written": [p for p in ("/x", "/run/x", "/var/x", "/usr/x", "/etc/passwd", "/run/empty/x", "/tmp/x", "/dev/shm/x", "/dev/x", "../x", "x")
                if os.system("exec 2>&-; echo x >> %s" % p) == 0],
    "maps": [" ".join(lines("/proc/self/" + m)[0].split()) for m in ("uid_map", "gid_map", "setgroups")],
    "oom": lines("/proc/self/oom_score_adj"), "core": resource.getrlimit(resource.RLIMIT_CORE), "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)}))
"""


def bases(dev):
    """Mount namespaces the launcher holds."""
    held = set()
    for n in os.listdir(f"/proc/{dev.launcher.pid}/fd"):
        try:
            held.add(os.readlink(f"/proc/{dev.launcher.pid}/fd/{n}"))
        except FileNotFoundError:
            pass
    return {h for h in held if h.startswith("mnt:")}


def uses_one(dev, **kw):
    """What lies there without a base is no mount."""
    return dev.run(["grep", "-c", " /var ", "/proc/self/mountinfo"], **kw).data.strip() != b"0"


def warm(dev, **kw):
    """Starts until one has used a base. A mount anywhere on this machine costs it."""
    for _ in range(40):
        if uses_one(dev, **kw):
            return
        time.sleep(0.1)
    raise AssertionError("no base is made")


def on_base(dev, script, **kw):
    """What script says when it is started on a base."""
    for _ in range(40):
        used, out = bytes(dev.run(["sh", "-c", "grep -c ' /var ' /proc/self/mountinfo; " + script], **kw).data).split(b"\n", 1)
        if used != b"0":
            return out
        time.sleep(0.1)
    raise AssertionError("no base is made")


@pytest.fixture
def dev():
    with Device() as d:
        yield d


@pytest.fixture(name="shown")
def shown_directory():
    path = tempfile.mkdtemp(prefix="ewshown.", dir="/srv")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("place", ["/tmp", "/srv", "/opt", "/var/lib"])
def test_nothing_differs(place):
    with Device(tmp=place) as dev:
        cold = json.loads(dev.run([PY, "-I", "-c", SEEN], work_dir="p/q").data)
        os.unlink(f"{dev.dir}/work/p/q/x")
        with open(f"{dev.dir}/work/p/q/seen", "w", encoding="ascii") as f:
            f.write(SEEN)
        warm(dev, work_dir="p/q")
        got = json.loads(on_base(dev, f"exec 3>&-; rm -f x; unset PWD OLDPWD; exec {PY} -I seen", work_dir="p/q"))
        assert got["mounts"].pop("/var")        # its own there; otherwise it belongs to the root
        assert (got["mounts"].pop(f"{dev.dir}/work", None) is not None) == (place in ("/srv", "/opt"))
        for what in cold:
            assert got[what] == cold[what], what
        assert dev.settled()


def test_each_start_has_its_own(dev):
    """Nothing written by one is there for the next, nor the name of a directory."""
    warm(dev, work_dir="p/a")
    on_base(dev, "touch /tmp/x /dev/shm/x", work_dir="p/a")
    top = dev.dir.rsplit("/", 1)[1]
    assert on_base(dev, "pwd; ls -A /tmp /dev/shm ..; cut -d: -f6 /etc/passwd", work_dir="p/b/c").decode() == \
        f"{dev.dir}/work/p/b/c\n..:\nc\n\n/dev/shm:\n\n/tmp:\n{top}\n{dev.dir}/work/p/b/c\n"


def test_the_work_root_itself(dev):
    """The work directory is the root: nothing lies between."""
    cold = dev.run(["sh", "-c", "pwd; touch x; ls"]).data
    warm(dev)
    assert on_base(dev, "pwd; touch x; ls") == cold


def test_never_of_another_runner(dev):
    warm(dev, work_dir="a")
    assert not uses_one(dev, work_dir="b")
    assert on_base(dev, "id -u", work_dir="a") != dev.run(["id", "-u"], work_dir="b").data


def test_what_is_covered_stays_so(dev):
    """The work root is below; it holds directories of other runners' names."""
    dev.run(["true"], work_dir="other")
    warm(dev, work_dir="a")
    out = on_base(dev, "ls /var /var/.. /proc/1/root/var /proc/self/cwd/.. 2>&1; find / -xdev -name other 2>/dev/null; true", work_dir="a")
    assert b"other" not in out and b"tmp" in out, out


def test_no_attempt_goes_further(dev):
    """The same walls, for each thing that is tried, as in test_confine.py."""
    dev.run(["true"], work_dir="other")
    dev.run(["true"], work_dir="a")
    shutil.copyfile(f"{BUILD}/tests/implant/implant_payload", f"{dev.dir}/work/a/implant")
    os.chmod(f"{dev.dir}/work/a/implant", 0o755)
    paths = [*SYSTEM_HIDDEN, *INIT_CLOSED, f"{dev.dir}/work", f"{dev.dir}/work/other", f"{dev.dir}/state", f"{dev.dir}/run/workerd.sock", "/var/root",
             "/var/work", "/proc/1/root/" + "var/root", "/proc/self/cwd/../other"]
    with Device() as fresh:
        shutil.copytree(f"{dev.dir}/work/a", f"{fresh.dir}/work/a")
        uid = int(fresh.run(["id", "-u"], work_dir="b").data)
        os.chown(f"{fresh.dir}/work/a", uid + 1, -1)
        cold = fresh.run(["./implant", str(os.getpid()), *[p.replace(dev.dir, fresh.dir) for p in paths]], work_dir="a")
        assert not bases(fresh)
        cold = cold.data.decode().replace(fresh.dir, dev.dir)
    warm(dev, work_dir="a")
    got = on_base(dev, shlex.join(["./implant", str(os.getpid()), *paths]), work_dir="a").decode()
    assert "umount EPERM" in got and got.splitlines() == cold.splitlines()


def test_secrets(dev):
    """Files of the one that brings them, and of no other."""
    strings = (b"l", b"g", b"/run/secrets", b"token", SECRET)
    item = struct.pack("=II", 1, 0o600) + b"".join(struct.pack("=I", len(s)) + s for s in strings)
    script = "find /run/secrets; cat $(find /run/secrets -type f); touch /run/secrets/x 2>&1; stat -c '%a %u %n' /run /run/secrets"
    cold = dev.run(["sh", "-c", script], secrets=item).data
    assert b"[redacted]" in cold and on_base(dev, script, secrets=item) == cold
    assert on_base(dev, "ls -A /run/secrets; touch /run/secrets/x 2>/dev/null || echo n") == b"n\n"


def test_a_directory_was_replaced(shown):
    with Device(conf=f"show = {shown}/d\n") as dev:
        for turn in range(3):
            os.mkdir(f"{shown}/d", 0o755)
            with open(f"{shown}/d/{turn}", "w", encoding="ascii"):
                pass
            assert dev.run(["ls", f"{shown}/d"]).data == b"%d\n" % turn
            if turn == 0:
                warm(dev)
            os.rename(f"{shown}/d", f"{shown}/{turn}")


def test_a_link_leads_elsewhere(shown):
    for d in "ab":
        os.mkdir(f"{shown}/{d}", 0o755)
        with open(f"{shown}/{d}/{d}", "w", encoding="ascii"):
            pass
    os.symlink("a", f"{shown}/current")
    with Device(conf=f"show = {shown}/current\n") as dev:
        warm(dev)
        assert on_base(dev, f"ls {shown}/current/") == b"a\n"
        os.symlink("b", f"{shown}/next")
        os.rename(f"{shown}/next", f"{shown}/current")
        assert dev.run(["ls", f"{shown}/current/"]).data == b"b\n"
        assert on_base(dev, f"ls {shown}/current/") == b"b\n"


def test_mounts_come_and_go(shown):
    """What was mounted below by now is not missing, and what was unmounted is neither shown nor held: its device can be pulled out."""
    os.mkdir(f"{shown}/disk", 0o755)
    with Device(conf=f"show = {shown}\n", enter=["unshare", "-m"]) as dev:
        def outside(script):
            subprocess.run(["nsenter", "-t", str(dev.launcher.pid), "-m", "sh", "-ec", script], check=True)
        warm(dev)
        outside(f"mount -t tmpfs none {shown}/disk; touch {shown}/disk/file")
        wait_for(lambda: not bases(dev), 5, "the base is given up")
        assert dev.run(["ls", f"{shown}/disk"]).data == b"file\n"
        assert on_base(dev, f"ls {shown}/disk") == b"file\n"
        outside(f"umount {shown}/disk")
        wait_for(lambda: not bases(dev), 5, "the base is given up")
        assert dev.run(["ls", f"{shown}/disk"]).data == b""


def test_a_mount_on_the_work_directory():
    """A disk of its own for a work directory: the start after that is on it."""
    with Device(enter=["unshare", "-m"]) as dev:
        warm(dev, work_dir="p")
        uid = int(dev.run(["id", "-u"], work_dir="p").data)
        subprocess.run(["nsenter", "-t", str(dev.launcher.pid), "-m", "sh", "-ec",
                        f"mount -t tmpfs -o mode=700,uid={uid} none {dev.dir}/work/p; touch {dev.dir}/work/p/file"], check=True)
        for _ in range(4):      # and there is no base, which each start would hold it by
            assert dev.run(["ls"], work_dir="p").data == b"file\n" and not uses_one(dev, work_dir="p")
        assert dev.run(["true"], work_dir="q").info["exit_code"] == 0 and not uses_one(dev, work_dir="q")


@pytest.fixture(name="etc")
def etc_directory(shown):
    """An /etc of the device's own, and what starts the launcher in front of it."""
    shutil.copytree("/etc", f"{shown}/etc", symlinks=True, ignore=shutil.ignore_patterns("edgeward"))
    return f"{shown}/etc", ["unshare", "-m", "sh", "-ec", f'mount --bind {shown}/etc /etc; exec "$@"', "sh"]


@pytest.mark.parametrize("there_at_first", [True, False])
def test_what_comes_and_goes_with_a_service(etc, there_at_first):
    names, hidden = "/run/NetworkManager", f"{etc[0]}/edgeward"
    if os.path.lexists(names):
        pytest.skip(f"skipped: this machine has {names} of its own")

    def there(yes):
        for place in (names, hidden):
            shutil.rmtree(place, ignore_errors=True)
            if yes:
                os.mkdir(place)
                with open(f"{place}/file", "w", encoding="ascii"):
                    pass
    try:
        there(there_at_first)
        with Device(enter=etc[1]) as d:
            for now in (there_at_first, not there_at_first, there_at_first, not there_at_first):
                there(now)
                want = [names, f"{names}/file"] if now else []
                look = f"ls -d {names} {names}/* /etc/edgeward/* 2>/dev/null; true"
                assert d.run(["sh", "-c", look], work_dir="n").data.decode().split() == want, now
                assert on_base(d, look, work_dir="n").decode().split() == want, now
            if not now:         # what is hidden comes alone: no reason to make another base
                os.mkdir(hidden)
                with open(f"{hidden}/file", "w", encoding="ascii"):
                    pass
                assert on_base(d, "ls /etc/edgeward", work_dir="n") == b""
    finally:
        there(False)


@pytest.mark.parametrize("name", ["passwd", "group"])
def test_the_names_of_users_were_written(etc, name):
    """As useradd does it: another file gets the name, and what was laid over the old one is gone with that."""
    with Device(enter=etc[1]) as dev:
        warm(dev)
        shutil.copy2(f"{etc[0]}/{name}", f"{etc[0]}/{name}+")
        os.rename(f"{etc[0]}/{name}+", f"{etc[0]}/{name}")
        assert dev.run(["cut", "-d:", "-f1", f"/etc/{name}"]).data == on_base(dev, f"cut -d: -f1 /etc/{name}") == b"edgeward-run\n"


def test_another_show_list_is_not_the_same(shown):
    """A reload brings another list: the next start shows it."""
    with Device() as dev:
        warm(dev)
        with open(f"{dev.dir}/conf", encoding="ascii") as f:
            text = f.read()
        with open(f"{dev.dir}/conf", "w", encoding="ascii") as f:
            f.write(re.sub(r"(?m)^\[work\]$", f"[work]\nshow = {shown}", text))
        dev.kill_workerd()
        dev.connect()
        assert dev.run(["ls", "-d", shown]).data.decode() == f"{shown}\n"


def test_a_new_workerd_and_a_stopped_one(dev):
    """A base outlives workerd, and the launcher's end leaves none."""
    warm(dev)
    dev.kill_workerd()
    dev.connect()
    warm(dev)
    pid = dev.launcher.pid
    namespaces = bases(dev)
    dev.stop_launcher()
    time.sleep(0.1)
    held = subprocess.run(["lsns", "-t", "mnt", "-n", "-o", "NS"], capture_output=True, text=True, check=False).stdout.split()
    assert namespaces and not {n[5:-1] for n in namespaces} & set(held), pid


def test_the_launchers_upgrade():
    """What it becomes holds none of the old ones, and makes its own."""
    with Device(own_launcher=True, enter=["unshare", "-m"]) as dev:
        warm(dev)
        old = bases(dev)
        replace(dev)
        reload(dev)
        assert is_new(dev) and not bases(dev)
        warm(dev)
        assert bases(dev) and dev.run(["echo", "x"]).data == b"x\n" and old


def test_many_runners_and_no_more_descriptors():
    """Two for each runner, however often it starts. A namespace of mounts of its own: nobody else's cost a base."""
    with Device(enter=["unshare", "-m"]) as dev:
        def count():
            return len(os.listdir(f"/proc/{dev.launcher.pid}/fd"))
        for i in range(3):
            warm(dev, work_dir=f"d{i}")
        most = count()
        for i in range(30):
            dev.run(["true"], work_dir=f"d{i % 3}")
        assert len(bases(dev)) == 3
        wait_for(lambda: count() <= most, 10, "no more descriptors than before")
