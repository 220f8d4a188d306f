"""Ids for workloads: privaccount, and how launcher and workerd take them up (B123, B124, B126).

Where the kind could occur: privaccount/main.c (which account is taken or made, which ids), common/idranges.c (unit/test_idranges.c),
workerd/account.c and the launcher's start of workerd (a pool that comes late), workerd/ids.c (an account without a pool). Each test has an
/etc of its own, an overlay in its own mount namespace, so nothing of this machine is changed. The path unit: vm/units.sh.
"""
import os
import re
import shutil
import subprocess

import pytest

from lib import workdrv
from lib.agent import BUILD
from lib.proc import wait_for

PRIVACCOUNT = os.path.join(BUILD, "privaccount/privaccount")
ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "ASAN_OPTIONS": "detect_leaks=0"}
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
                                reason="needs root and mount namespaces")


class Machine:
    """sh() runs in a fresh mount namespace over the same layers, so what one leaves in /etc and /run the next one sees."""

    def __init__(self, where):
        self.where = str(where)
        self.before = ""
        subprocess.run(["mount", "-t", "tmpfs", "none", self.where], check=True)
        for d in ("upper", "work", "run"):
            os.mkdir(os.path.join(self.where, d))
        self.sh("mkdir -p /etc/edgeward /run/edgeward; sed -i /edgeward/d /etc/passwd /etc/group /etc/shadow /etc/gshadow; rm -f /etc/edgeward/*")

    def close(self):
        subprocess.run(["umount", "-l", self.where], check=True)

    def sh(self, script, check=True):
        w = self.where
        mounts = (f"mount --make-rprivate / && mount -t overlay -o lowerdir=/etc,upperdir={w}/upper,workdir={w}/work none /etc && "
                  f"mount --bind {w}/run /run || exit 99\n")
        p = subprocess.run(["unshare", "-m", "sh", "-c", mounts + self.before + "\n" + script], env=ENV, capture_output=True, text=True, check=False)
        assert p.returncode != 99 and (not check or p.returncode == 0), p
        return p

    def account(self, rc=0):
        """Runs it. The code of the result, and what it said."""
        p = self.sh(PRIVACCOUNT, check=False)
        assert p.returncode == rc, p
        code, text = self.sh("cat /run/edgeward/account").stdout.rstrip("\n").split(" ", 1)
        assert text in p.stderr and (code == "ok") == (rc == 0), p
        return code, text

    def pool(self):
        p = self.sh("cat /etc/edgeward/pool 2>/dev/null; stat -c '%u %a' /etc/edgeward/pool 2>/dev/null", check=False).stdout.split()
        assert not p or p[3:] == ["0", "644"], p
        return [int(n) for n in p[:3]]

    def getent(self, db, name):
        return self.sh(f"getent {db} {name}", check=False).stdout.rstrip("\n").split(":")


@pytest.fixture
def machine(tmp_path):
    m = Machine(tmp_path)
    yield m
    m.close()


def check_default(m):
    user, shadow = m.getent("passwd", "edgeward-run"), m.getent("shadow", "edgeward-run")
    assert 0 < int(user[2]) < 1000 and 0 < int(user[3]) < 1000 and user[5] == "/nonexistent" and user[6].endswith("nologin"), user
    assert shadow[1].startswith("!"), shadow
    assert m.sh("id -nG edgeward-run").stdout.split() == ["edgeward-run"]
    first, count, gid = m.pool()
    assert count == 64 and gid == int(user[3])
    assert 65536 <= first and first + 63 < 100000, "none of Debian's, systemd's, login.defs' or subuid's"
    assert m.sh("grep -c '^edgeward-run:' /etc/passwd").stdout.strip() == "1"


@pytest.mark.parametrize("tool", ["sysusers", "useradd", "useradd, group there"])
def test_b124_the_default_account(machine, tool):
    if tool != "sysusers":
        open(os.path.join(machine.where, "none"), "w", encoding="ascii").close()
        machine.before = f"mount --bind {machine.where}/none /usr/bin/systemd-sysusers"
    elif shutil.which("systemd-sysusers") is None:
        pytest.skip("no systemd-sysusers")
    if tool.endswith("there"):
        machine.sh("groupadd --system edgeward-run")
    assert machine.account()[0] == "ok"
    check_default(machine)
    before = machine.sh("cat /etc/passwd /etc/group /etc/shadow /etc/edgeward/pool").stdout
    code, text = machine.account()    # again: nothing changes
    assert code == "ok" and "as before" in text
    assert machine.sh("cat /etc/passwd /etc/group /etc/shadow /etc/edgeward/pool").stdout == before


def test_b124_ten_at_once(machine):
    p = machine.sh(f"for i in 1 2 3 4 5 6 7 8 9 10; do {PRIVACCOUNT} & done; r=0; for i in 1 2 3 4 5 6 7 8 9 10; do wait -n 2>/dev/null || wait; done; "
                   "cat /run/edgeward/account")
    assert p.stdout.startswith("ok "), p
    check_default(machine)


def test_a_lock_of_somebody_elses_keeps_nobody_waiting(machine):
    """Everybody may open /etc/edgeward, and so lock it."""
    p = machine.sh("setpriv --reuid 65534 --clear-groups flock -x /etc/edgeward sleep 8 & sleep 1; "
                   f"timeout 30 {PRIVACCOUNT}; kill $!; cat /run/edgeward/account /etc/edgeward/pool", check=False)
    assert p.stdout.startswith("ok "), p


def test_b124_ids_that_are_somebodys(machine):
    machine.sh("echo 'alice:65536:10000' >>/etc/subuid; echo 'bob:75536:100' >>/etc/subgid; groupadd -g 75700 odd; "
               "useradd -M -K UID_MAX=99999 -u 75701 someone; sed -i 's/^SUB_UID_MIN.*/SUB_UID_MIN 80000/' /etc/login.defs")
    assert machine.account()[0] == "ok"
    assert machine.pool()[0] == 75636, "the first 64 between bob's and the group odd"


def test_b124_used_up(machine):
    machine.sh("echo 'all:65536:34464' >>/etc/subuid; echo 'all:1879048192:268304384' >>/etc/subuid")
    code, text = machine.account(rc=1)
    assert code == "exhausted" and "64 uids" in text and machine.pool() == []


@pytest.mark.parametrize("line, code", [
    ("useradd -M -u 1500 edgeward-run", "person"),                                   # B123: there, and of the human range
    ("useradd -M -o -u 0 edgeward-run", "root"),
    ("useradd -M -r -g 0 edgeward-run", "root"),
    ("useradd -M -r -d / edgeward-run", "home"),
    ("useradd -M -r -d /nonexistent -G disk edgeward-run", "groups"),
    ("groupadd -r edgeward; useradd -M -r -d /nonexistent -G edgeward edgeward-run", "groups"),
    ("useradd -M -r -d /nonexistent -g shadow edgeward-run", "groups"),
    # Another name for a daemon's uid; the group of a daemon, or one that gives power, as its own.
    ("useradd -M -r -d /nonexistent edgeward-work; useradd -M -r -o -u $(id -u edgeward-work) -d /nonexistent edgeward-run", "daemon"),
    ("useradd -M -r -d /nonexistent edgeward-net; groupadd -r x; useradd -M -r -o -u $(id -u edgeward-net) -g x -d /nonexistent x; "
     "echo '[work]\naccount = x' >/etc/edgeward/edgeward.conf", "daemon"),
    ("groupadd -r edgeward-net; useradd -M -r -d /nonexistent -g edgeward-net edgeward-run", "groups"),
    ("groupadd -r -f kvm; useradd -M -r -d /nonexistent -g kvm x; echo '[work]\naccount = x' >/etc/edgeward/edgeward.conf", "groups"),
    ("groupadd -r -f staff; useradd -M -r -d /nonexistent -g staff edgeward-run", "groups"),
    ("echo 'UID_MIN many' >>/etc/login.defs", "ranges"),
    ("echo 'alice' >/etc/subuid", "ranges"),
    ("echo '70000 64' >/etc/edgeward/pool", "pool"),
    ("echo '70000 64 900' >/etc/edgeward/pool; chmod 666 /etc/edgeward/pool", "pool"),
    ("echo '[work]\nwhat = 1' >/etc/edgeward/edgeward.conf", "conf"),
    ("groupadd -r x; useradd -M -r -d /nonexistent -g x x; echo '[work]\naccount = x' >/etc/edgeward/edgeward.conf; chmod 666 /etc/edgeward/edgeward.conf", "conf"),
    ("echo >/etc/edgeward/edgeward.conf; chown 1500 /etc/edgeward/edgeward.conf", "conf"),
    ("rm -r /etc/edgeward; ln -s /nowhere /etc/edgeward", "io"),
])
def test_b123_refused_before_anything_is_changed(machine, line, code):
    machine.sh(line)
    before = machine.sh("cat /etc/passwd /etc/group; ls /etc/edgeward").stdout
    assert machine.account(rc=1)[0] == code
    assert machine.sh("cat /etc/passwd /etc/group; ls /etc/edgeward").stdout == before


def test_b123_an_account_that_is_safe_is_used(machine):
    machine.sh("groupadd -r -g 789 other; useradd -M -r -u 456 -g other -d /nonexistent edgeward-run")
    assert machine.account()[0] == "ok"
    assert machine.pool()[1:] == [64, 789] and machine.getent("passwd", "edgeward-run")[2] == "456"


def test_b124_a_named_account(machine):
    conf = "printf '[work]\\naccount = %s\\n' {} >/etc/edgeward/edgeward.conf"
    machine.sh(conf.format("builder"))
    assert machine.account(rc=1)[0] == "missing"
    assert machine.getent("passwd", "builder") == [""] and machine.getent("passwd", "edgeward-run") == [""]
    for name, code in (("root", "root"), ("nobody", "person")):
        machine.sh(conf.format(name))
        assert machine.account(rc=1)[0] == code and machine.pool() == []
    machine.sh(conf.format("builder") + "; useradd -M -r -u 456 -d /nonexistent builder")
    assert machine.account()[0] == "ok"
    assert machine.pool()[:2] == [456, 1] and machine.getent("passwd", "edgeward-run") == [""]
    machine.sh("rm /etc/edgeward/edgeward.conf")    # and back
    assert machine.account()[0] == "ok"
    check_default(machine)


@pytest.fixture(scope="module")
def faraway(tmp_path_factory):
    """tests/tools/nss_faraway.c, built."""
    where = tmp_path_factory.mktemp("nss")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-o", where / "libnss_faraway.so.2",
                    os.path.join(os.path.dirname(__file__), "../tools/nss_faraway.c")], check=True)
    return where


@pytest.mark.parametrize("lines, code, words", [
    (["edgeward-run 457 458 /nonexistent"], "ok", "gid 458"),                # a system account, of a directory server: used as it is
    (["edgeward-run 1700 1700 /srv/x"], "person", "1700"),
    (["edgeward-run 0 0 /root"], "root", ""),
    (["someone 65540 65540 /srv/someone"], "ok", "uids 65541 to 65604"),     # ids that only NSS knows are somebody's
])
def test_b126_accounts_that_only_nss_knows(machine, faraway, lines, code, words):
    """Nothing is made beside them, and nothing of theirs is taken."""
    machine.sh("sed -i 's/^\\(passwd\\|group\\):.*/\\1: files faraway/' /etc/nsswitch.conf; printf '%s\\n' '" + "' '".join(lines) + "' >/etc/faraway")
    machine.before = f"export LD_LIBRARY_PATH={faraway}"
    got, text = machine.account(rc=0 if code == "ok" else 1)
    assert got == code and words in text, (got, text)
    made = machine.sh("grep -c ^edgeward-run: /etc/passwd", check=False).stdout.strip()
    assert made == ("0" if lines[0].startswith("edgeward-run") else "1"), "made only where there was none"
    assert code == "ok" or machine.pool() == []


def test_b125_read_only_etc(machine):
    machine.before = "mount -o remount,ro /etc"
    code, text = machine.account(rc=1)
    assert code == "read-only" and "in the image" in text and machine.pool() == []
    machine.before = ""
    machine.sh("useradd -M -r -d /nonexistent edgeward-run")
    machine.before = "mount -o remount,ro /etc"
    code, text = machine.account(rc=1)
    assert code == "read-only" and "/etc/edgeward/pool" in text


def test_b124_killed_half_way(machine):
    """At any call: the next run finishes, and there is one account."""
    for n in range(1, 30):
        machine.sh(f"strace -f -qq -e trace=rename,renameat,execve,openat -e inject=rename,renameat,execve,openat:signal=KILL:when={n * 4} "
                   f"-o /dev/null {PRIVACCOUNT} >/dev/null 2>&1", check=False)
        p = machine.sh("cat /etc/edgeward/pool 2>/dev/null; ls /etc/edgeward", check=False).stdout
        assert re.fullmatch(r"(\d+ 64 \d+\n)?((pool|pool\.tmp)\n)*", p), p
    assert machine.account()[0] == "ok"
    check_default(machine)


def test_usage(machine):
    assert machine.sh(PRIVACCOUNT + " --help").stdout.startswith("usage: privaccount")
    assert machine.sh(PRIVACCOUNT + " -V").stdout.startswith("privaccount ")
    assert machine.sh(PRIVACCOUNT + " -x", check=False).returncode == 2


def test_a_pool_that_comes_late(tmp_path):
    """Without a pool: asked for, every start refused, the link is served; with it: taken up, no process but workerd changed."""
    dev = workdrv.Device()
    os.unlink(f"{dev.dir}/pool")
    wish = f"{dev.dir}/run/account-request"     # as tmpfiles.d makes it
    dev.write("run/account-request", "")
    os.chown(wish, os.stat(f"{dev.dir}/state").st_uid, -1)
    os.chmod(wish, 0o600)

    os.utime(wish, (1, 1))

    def holds_it(pid):
        """How: "r", "w", or not at all."""
        held = [n for n in os.listdir(f"/proc/{pid}/fd") if os.readlink(f"/proc/{pid}/fd/{n}") == wish]
        flags = [int(line.split()[1], 8) for n in held for line in open(f"/proc/{pid}/fdinfo/{n}", encoding="ascii") if line.startswith("flags:")]
        return "".join("w" if f & os.O_ACCMODE else "r" for f in flags)

    with dev:
        launcher, old = dev.launcher.pid, dev.workerd_pid()
        # Not to write: whoever takes workerd over could fill /run with it, where every service of the machine writes.
        assert holds_it(old) == "r"
        wait_for(lambda: os.stat(wish).st_mtime > 1, 20, "it has been asked for")
        assert os.path.getsize(wish) == 0
        refused = dev.start(["id", "-u"], work_dir="a", expect=workdrv.SANDBOX)
        assert "no ids for workloads yet" in refused, refused
        assert not os.path.exists(f"{dev.dir}/work/a")
        dev.write("pool", f"{workdrv.POOL_FIRST} {workdrv.POOL_COUNT} {workdrv.POOL_GID}\n")
        wait_for(lambda: not os.path.exists(f"/proc/{old}"), 20, "workerd has seen it")
        dev.connect()
        w = dev.finish(dev.start(["id", "-u"], work_dir="a"))
        assert workdrv.POOL_FIRST < int(w.data) < workdrv.POOL_FIRST + workdrv.POOL_COUNT
        assert dev.launcher.pid == launcher and dev.launcher.poll() is None
        assert holds_it(dev.workerd_pid()) == ""


def test_a_named_account_has_every_directory(tmp_path):
    dev = workdrv.Device()
    dev.write("pool", f"{workdrv.POOL_FIRST} 1 {workdrv.POOL_GID}\n")
    with dev:
        for top in ("a", "b", "a/c", ""):
            w = dev.finish(dev.start(["id", "-u"], work_dir=top))
            assert int(w.data) == workdrv.POOL_FIRST
