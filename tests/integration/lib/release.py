"""privupgrade on a device of its own: directories, keys, releases made of tests/tools/fakeprog.c, a service manager that can be scripted."""
import hashlib
import os
import re
import shutil
import signal
import subprocess

from lib.agent import BUILD, REPO

PROGRAMS = ("connectd", "workerd", "launcher", "privhelper", "privupgrade", "privtrial", "privaccount", "edgectl")
SIZE_MAX = 1_500_000      # P10: these together, stripped
PRIVUPGRADE = os.path.join(BUILD, "privupgrade/privupgrade")
PRIVTRIAL = os.path.join(BUILD, "privupgrade/privtrial")
EDGECTL = os.path.join(BUILD, "edgectl/edgectl")
ARCH = os.uname().machine
ENV = {"PATH": os.environ["PATH"], "ASAN_OPTIONS": "detect_leaks=0", "LC_ALL": "C"}
PROBE = """edgeward-probe 1
connectd yes
workerd yes
introduced yes
connected {connected}
hub-refuses {refuses}
reachable {reachable}
peer {peer}
protocol {protocol}
connectd-pid 1
workerd-pid 0
active {active}
cause {cause}
"""
# Starts what `current` leads to, and again when it has ended, as the units do. $1 = its directory.
SYSTEMCTL = r"""#!/bin/bash
d={where} c={state}/current
start() {{ setsid $c/$1 daemon $c $d/run >/dev/null 2>&1 </dev/null & echo $! >$d/pid.$1
	for i in 1 2 3 4 5 6 7 8 9 10; do [ "$(cut -d' ' -f6 /proc/$!/stat 2>/dev/null)" != $! ] || break; sleep 0.02; done; }}
name() {{ case $1 in *workerd*) echo launcher ;; *connectd*) echo connectd ;; *) echo privhelper ;; esac; }}
[ "$1" = show ] || echo "$*" >>$d/systemctl.log
if [ "$1" = show ]; then
	for u in $4 $5 $6; do
		n=$(name $u)
		if [ -f $d/inactive ]; then printf 'ActiveState=inactive\nMainPID=0\nNRestarts=0\n\n'; continue; fi
		r=$(cat $d/restarts.$n 2>/dev/null || echo 0) p=$(cat $d/pid.$n)
		[ -d /proc/$p ] && [ "$(cut -d' ' -f3 /proc/$p/stat)" != Z ] || {{ r=$((r + 1)); echo $r >$d/restarts.$n; start $n; p=$!; }}
		printf 'ActiveState=active\nMainPID=%s\nNRestarts=%s\n\n' $p $r
	done
	exit 0
fi
n=$(name $3)
if [ "$2" = reload ]; then kill $(cat $d/run/workerd.pid); exit 0; fi
kill -9 $(cat $d/pid.$n) 2>/dev/null
[ $n != launcher ] || kill -9 $(cat $d/run/workerd.pid) 2>/dev/null
echo 0 >$d/restarts.$n
start $n
""".replace("{{", "{").replace("}}", "}")


def unhardened(path):
    """What of the hardening a program lacks. Being small must not cost any of it."""
    def readelf(*args):
        return subprocess.run(["readelf", "-W", *args, path], capture_output=True, text=True, check=True).stdout
    segments, dynamic, calls = readelf("-l"), readelf("-d"), readelf("--dyn-syms")
    lacks = {"PIE": "Elf file type is DYN" not in segments, "RELRO": "GNU_RELRO" not in segments, "BIND_NOW": "BIND_NOW" not in dynamic,
             "a stack that is not executed": not re.search(r"GNU_STACK .* RW +0x", segments),
             "code apart from what is read": not re.search(r"LOAD .* R E ", segments) or not re.search(r"LOAD .* R +0x", segments),
             "the stack protector": "__stack_chk_fail" not in calls, "fortified calls": "_chk@GLIBC" not in calls, "being stripped": ".symtab" in readelf("-S")}
    return [what for what, so in lacks.items() if so]


def compile_tool(name, where):
    exe = os.path.join(where, name)
    if not os.path.exists(exe):
        subprocess.run(["cc", "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o", exe, os.path.join(REPO, "tests/tools", name + ".c")], check=True)
    return exe


def make_key(where, name):
    pub, sec = os.path.join(where, name + ".pub"), os.path.join(where, name + ".sec")
    subprocess.run(["signify-openbsd", "-G", "-n", "-p", pub, "-s", sec], check=True)
    return pub, sec


def sign(sec, text, where):
    path = os.path.join(where, "manifest.tosign")
    with open(path, "wb") as f:
        f.write(text)
    subprocess.run(["signify-openbsd", "-S", "-s", sec, "-m", path, "-x", path + ".sig"], check=True)
    with open(path + ".sig", "rb") as f:
        return f.read()


def manifest(files, sequence, version, channel="stable", arch=ARCH, expires="2099-12-31", protocol=1):
    lines = ["edgeward-release 1", f"version {version}", f"sequence {sequence}", f"channel {channel}", f"arch {arch}", f"protocol {protocol}",
             f"expires {expires}"]
    for name, data in files.items():
        lines.append(f"{'program' if name in PROGRAMS else 'data'} {name} {len(data)} {hashlib.sha256(data).hexdigest()}")
    return "\n".join([*lines, f"end {len(files)}"]) + "\n"


def pack(files, where, sec, *args, **kw):
    """A release of these files, signed."""
    text = manifest(files, *args, **kw).encode()
    return sign(sec, text, where) + text + b"".join(files.values())


class Release:
    """The bytes of a release of stand-ins. files: name -> content; change(manifest text) -> text before it is signed."""

    def __init__(self, rig, sequence=2, version="2.0", behaviours=None, files=None, change=None, sec=None, **kw):
        behaviours = behaviours or {}
        self.sequence = sequence
        self.files = {n: rig.program(n, version, behaviours.get(n, "ok")) for n in PROGRAMS}
        self.files["note.txt"] = b"a file that is no program\n"
        self.files.update(files or {})
        text = manifest(self.files, sequence, version, **kw)
        self.manifest = (change(text) if change else text).encode()
        self.signature = sign(sec or rig.sec, self.manifest, rig.where)
        self.data = self.signature + self.manifest + b"".join(self.files.values())


class Rig:
    """state: what /var/lib/edgeward is. Release 1 is the packaged one."""

    def __init__(self, where, tools):
        self.where, self.tools = str(where), str(tools)
        os.chmod(self.where, 0o755)
        self.state, self.keys, self.run_dir = (os.path.join(self.where, n) for n in ("state", "keys", "run"))
        self.packaged, self.conf = os.path.join(self.where, "packaged"), os.path.join(self.where, "upgrade.conf")
        for d in (self.state, self.keys, self.run_dir, self.packaged, os.path.join(self.state, "connectd")):
            os.mkdir(d, 0o755)
        os.chmod(self.run_dir, 0o777)
        os.chown(os.path.join(self.state, "connectd"), 65533, 65533)
        os.chmod(os.path.join(self.state, "connectd"), 0o700)
        with open(compile_tool("fakeprog", self.tools), "rb") as f:
            self.fakeprog = f.read()
        self.pub, self.sec = make_key(self.where, "k")
        shutil.copy(self.pub, os.path.join(self.keys, "k.pub"))
        for name in PROGRAMS:
            self._put(os.path.join(self.packaged, name), self.program(name, "1.0", "ok"), 0o755)
        self._put(os.path.join(self.packaged, "release"), b"release 1.0 1\n", 0o644)
        self._put(self.conf, b"channel stable\nsettle 1\nsettle-max 600\nsettle-min 1\n", 0o644)
        os.symlink(self.packaged, os.path.join(self.state, "current"))
        os.symlink(self.packaged, os.path.join(self.state, "updater"))
        self.systemctl = os.path.join(self.where, "systemctl")
        script = SYSTEMCTL.replace("{where}", self.where).replace("{state}", self.state)
        self._put(self.systemctl, script.encode(), 0o755)
        self._put(os.path.join(self.run_dir, "connectd.sock"), b"", 0o644)    # whose group the probe gets
        self.probe()
        self.inactive(True)

    @staticmethod
    def _put(path, data, mode):
        with open(path, "wb") as f:
            f.write(data)
        os.chmod(path, mode)

    def program(self, name, version, behaviour):
        return self.fakeprog + f"\nEDGEWARD-FAKE {name} {version} {behaviour}\n".encode().rjust(220)

    def probe(self, connected="yes", refuses="no", reachable="no", peer="-", protocol=0, active=0, cause="none", work=()):
        text = PROBE.format(connected=connected, refuses=refuses, reachable=reachable, peer=peer, protocol=protocol, active=active, cause=cause)
        self._put(os.path.join(self.run_dir, "probe.new"), (text + "".join(f"work {h} {p}\n" for h, p in work)).encode(), 0o644)
        os.rename(os.path.join(self.run_dir, "probe.new"), os.path.join(self.run_dir, "probe"))

    def inactive(self, yes):
        path = os.path.join(self.where, "inactive")
        if yes:
            self._put(path, b"", 0o644)
        elif os.path.exists(path):
            os.unlink(path)

    def start_units(self):
        self.inactive(False)
        for unit in ("privhelper", "connectd", "workerd"):
            subprocess.run([self.systemctl, "--no-block", "restart", f"edgeward-{unit}.service"], check=True)

    def stop_units(self):
        self.inactive(True)
        for name in ("privhelper", "connectd", "launcher"):
            self._kill(os.path.join(self.where, "pid." + name))
        self._kill(os.path.join(self.run_dir, "workerd.pid"))

    @staticmethod
    def _kill(path):
        try:
            with open(path, encoding="ascii") as f:
                os.kill(int(f.read()), signal.SIGKILL)
        except (OSError, ValueError):
            pass

    def args(self, *more):
        """As the unit starts it, or with -b the one for the start of the machine."""
        return [PRIVTRIAL if "-b" in more else PRIVUPGRADE, "-d", self.state, "-k", self.keys, "-c", self.conf, "-l", self.packaged, "-e", os.path.join(self.packaged, "edgectl"),
                "-r", self.run_dir, "-S", self.systemctl, "-f", "0", "-t", "4000", *more]

    def run(self, *more, timeout=60, check=True):
        p = subprocess.run(self.args(*more), capture_output=True, text=True, timeout=timeout, env=ENV, check=False)
        assert "Sanitizer" not in p.stderr and "runtime error" not in p.stderr, p.stderr
        assert not check or p.returncode == 0, p.stderr
        return p

    def boot(self):
        return self.run("-b")

    def request(self, sequence, ident="req-1", settle=1, downgrade="no"):
        return f"edgeward-upgrade-request 1\nsequence {sequence}\nid {ident}\nsettle {settle}\ndowngrade {downgrade}\n".encode()

    def queue(self, release, source="hub", **kw):
        """As connectd, or as edgectl, would."""
        data, sequence = (release, kw.pop("sequence", 2)) if isinstance(release, bytes) else (release.data, kw.pop("sequence", release.sequence))
        if source == "hub":
            box, names, uid = os.path.join(self.state, "connectd"), ("upgrade-release", "upgrade-request"), 65533
        else:
            box, names, uid = os.path.join(self.state, "upgrade/queue"), ("release", "request"), 0
            os.makedirs(box, mode=0o700, exist_ok=True)
        for name, content in zip(names, (data, self.request(sequence, **kw))):
            self._put(os.path.join(box, name), content, 0o600)
            os.chown(os.path.join(box, name), uid, uid)

    def upgrade(self, release, **kw):
        self.queue(release, **kw)
        self.run()
        return self.last()

    def history(self):
        path = os.path.join(self.state, "upgrade/history")
        if not os.path.exists(path):
            return []
        with open(path, encoding="ascii") as f:
            lines = f.read().splitlines()
        assert lines[0] == "edgeward-upgrade-history 1"
        return [dict(zip(("attempt", "time", "source", "id", "outcome", "from", "to", "version", "code", "detail"), line.split(" ", 10)[1:]))
                for line in lines[1:]]

    def last(self):
        h = self.history()
        return (h[-1]["outcome"], h[-1]["code"]) if h else None

    def current(self):
        return os.readlink(os.path.join(self.state, "current"))

    def updater(self):
        return os.readlink(os.path.join(self.state, "updater"))

    def releases(self):
        """What is installed beside the results, which stay."""
        return sorted(n for n in os.listdir(os.path.join(self.state, "releases")) if n != "results")

    def leftovers(self):
        """What should be gone when nothing is open."""
        found = os.listdir(os.path.join(self.state, "upgrade/taken"))
        found += [n for n in os.listdir(os.path.join(self.state, "releases")) if not re.fullmatch(r"\d+|results", n)]
        found += [n for n in os.listdir(os.path.join(self.state, "upgrade")) if n not in ("taken", "queue", "history", "progress")]
        return found + [n for n in os.listdir(self.state) if n.endswith(".new")]

    def complete(self):
        """The release in force has all its programs, each of the same version, executable; that version."""
        where = os.path.join(self.state, self.current())
        versions = set()
        for name in PROGRAMS:
            out = subprocess.run([os.path.join(where, name), "-V"], capture_output=True, text=True, check=True).stdout.split()
            assert out[0] == name
            versions.add(out[1])
        assert len(versions) == 1, versions
        return versions.pop()
