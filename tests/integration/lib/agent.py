"""A device under test: the real executables in a directory of their own, started by run-foreground.

Agent(tmp, hub) writes a configuration with short times, start() starts everything, stop() ends it and checks that
nothing is left: no process of its users, no cgroup, no socket. kill9(role) and pid(role) work on the daemons by role.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from lib import proc
from lib.proc import wait_for

ROLES = ("connectd", "workerd", "launcher", "privhelper")
REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.path.abspath(os.environ.get("EDGEWARD_BUILD", os.path.join(REPO, "build")))
BROKEN = re.compile(r"ERROR: (Address|Leak|Undefined)|runtime error:|SUMMARY: |AddressSanitizer|Assertion .* failed"
                    r"|Bad system call|signal 31|SIGSYS|stack smashing|free\(\): |malloc\(\): |corrupted")
PATHS = {"run-foreground": "packaging/run-foreground", "connectd": "connectd/connectd", "workerd": "workerd/workerd",
         "launcher": "workerd/launcher/launcher", "privhelper": "privhelper/privhelper", "edgectl": "edgectl/edgectl",
         "edgehub": "hub/edgehub"}
# Below 2^16 nothing is taken; one block of 64 ids for each test process, another for each agent in it.
_UID_BASE = 2000000 + os.getpid() % 2000 * 1280
_count = 0

LINK = {"heartbeat": "500ms", "dead-after": "2s", "connect-timeout": "5s", "handshake-timeout": "5s",
        "write-timeout": "5s", "retry-min": "50ms", "retry-max-local": "500ms", "retry-max": "1s",
        "stable-after": "0s"}


def exe(name):
    return os.path.join(BUILD, PATHS[name])


def is_root():
    return os.geteuid() == 0


class Ctl:
    """The result of one edgectl call."""

    def __init__(self, rc, out, err, ms):
        self.rc, self.out, self.err, self.ms = rc, out, err, ms

    @property
    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"edgectl: rc {self.rc}, {self.ms:.0f} ms, {self.out!r}, {self.err!r}"


class Agent:
    def __init__(self, hub=None, conf=None, policy=None, ca=None, name="edge-test", token=True, pool=16, ns=None,
                 env=None, prefix=()):
        global _count
        _count += 1
        self.dir = tempfile.mkdtemp(prefix="edgeward-test.", dir=os.environ.get("EDGEWARD_TMP", "/tmp"))
        os.chmod(self.dir, 0o755)
        base = _UID_BASE + _count % 20 * 64
        self.net_uid, self.work_uid, self.pool = base, base + 1, range(base + 16, base + 16 + pool)
        self.pool_gid, self.operator_gid = base + 2, base + 3
        self.hub, self.ns, self.env, self.prefix = hub, ns, env or {}, list(prefix)
        self.top = None
        self.log = os.path.join(self.dir, "log")
        self.run = os.path.join(self.dir, "d", "run")
        self.state = os.path.join(self.dir, "d", "state")
        self.root = os.path.join(self.dir, "work")
        # Both daemons may read this directory: it holds nothing else.
        os.mkdir(os.path.join(self.dir, "etc"))
        os.chmod(os.path.join(self.dir, "etc"), 0o755)
        self.conf_file = os.path.join(self.dir, "etc", "edgeward.conf")
        self.policy_file = os.path.join(self.dir, "etc", "policy.conf")
        self.token_file = os.path.join(self.dir, "token", "token")
        self.conf = {"hub": {}, "link": dict(LINK), "device": {"name": name},
                     "work": {"root": self.root, "slots": 8, "disk-low": "1M"}, "log": {"level": "debug"}}
        if hub is not None:
            self.conf["hub"]["url"] = hub.url()
            if ca is not None:
                self.conf["hub"]["ca-file"] = ca.file
            if token:
                self.give_token(hub.token() if token is True else token)
        for section, keys in (conf or {}).items():
            self.conf.setdefault(section, {}).update(keys)
        self.policy = policy or {}
        self.cgroups = set()
        self.expect_broken = None   # a pattern of log lines that would be a fault otherwise
        self.write_conf()

    # ---- configuration ----

    def write_conf(self):
        _write_ini(self.conf_file, self.conf)
        if self.policy:
            _write_ini(self.policy_file, self.policy)

    def give_token(self, token):
        """A token file that connectd may read and remove."""
        os.makedirs(os.path.dirname(self.token_file), exist_ok=True)
        with open(self.token_file, "w", encoding="ascii") as f:
            f.write(token + "\n")
        os.chmod(self.token_file, 0o600)
        if is_root():
            os.chown(os.path.dirname(self.token_file), self.net_uid, self.net_uid)
            os.chown(self.token_file, self.net_uid, self.net_uid)
        self.conf["hub"]["token-file"] = self.token_file

    @property
    def credential_file(self):
        return os.path.join(self.state, "connectd", "credential.json")

    # ---- life ----

    def argv(self):
        args = [exe("run-foreground"), "-d", os.path.join(self.dir, "d"), "-c", self.conf_file, "-p", self.policy_file,
                "-b", BUILD]
        if is_root():
            args += ["--net-uid", str(self.net_uid), "--work-uid", str(self.work_uid), "--operator-gid",
                     str(self.operator_gid)]
            if len(self.pool):
                args += ["--pool", f"{self.pool.start}:{len(self.pool)}", "--pool-gid", str(self.pool_gid)]
        return args

    def start(self, wait=True, timeout=20):
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/nonexistent",
               "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=64:"
                               "abort_on_error=0:exitcode=99:allocator_release_to_os_interval_ms=100",
               "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1", **self.env}
        argv = self.prefix + self.argv()
        if self.ns is not None:
            argv = self.ns.enter + argv
        with open(self.log, "ab") as log:
            self.top = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                        start_new_session=True)
        if wait:
            wait_for(self._up, timeout, what=lambda: f"all processes up; log: {self.log_tail()}")
        return self

    def _up(self):
        assert self.top.poll() is None, f"run-foreground ended with {self.top.returncode}: {self.log_tail()}"
        found = self.pids()
        for pid in found.values():
            path = proc.cgroup(pid) if proc.alive(pid) else None
            if path:
                self.cgroups.add(path)
        return all(role in found for role in ROLES)

    def connected(self, timeout=20, after=None):
        """Waits for a session and returns it."""
        return self.hub.session(timeout, after)

    def pids(self):
        """Role -> pid of what runs now, found in /proc."""
        if self.top is None:
            return {}
        found = {}
        for pid in proc.descendants(self.top.pid):
            s = proc.stat(pid)
            if s is None or s[1] in "ZX":
                continue
            try:
                name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
                role = os.path.basename((proc.cmdline(pid) or [""])[0])
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if name in ROLES and role == name:
                parent = proc.stat(s[2])
                # workinit and others are copies of the launcher below it, and may have a lower pid: they have a name of their own, soon.
                if s[0] != name or (parent is not None and parent[0] == s[0]):
                    continue
                found.setdefault(name, pid)
        return found

    def pid(self, role, timeout=10):
        return wait_for(lambda: self.pids().get(role), timeout, f"{role} runs")

    def kill9(self, role, sig=signal.SIGKILL):
        """Kills it and returns the pid it had."""
        pid = self.pid(role)
        os.kill(pid, sig)
        return pid

    def away(self, role, how="kill9"):
        """Ends it as a crash does, or has workerd replaced as a reload does; its pid until then."""
        if how == "kill9":
            return self.kill9(role)
        old = self.pid(role)
        os.kill(self.pid("launcher"), signal.SIGHUP)
        return old

    def next_workerd(self, how):
        """Another one takes over: SIGKILL to the old one, or a reload, which is SIGHUP to the launcher."""
        old = self.pid("workerd")
        self.kill9("launcher" if how == signal.SIGHUP else "workerd", how)
        return self.restarted("workerd", old)

    def restarted(self, role, old, timeout=15):
        """Waits until another process has the role."""
        return wait_for(lambda: (p := self.pids().get(role)) and p != old and p, timeout,
                        lambda: f"{role} is back; log: {self.log_tail()}")

    def signal_top(self, sig):
        os.kill(self.top.pid, sig)

    def stop(self, timeout=15):
        """SIGTERM, then what is left is an error."""
        left = []
        if self.top is not None and self.top.poll() is None:
            self._note_cgroups()
            self.top.send_signal(signal.SIGTERM)
            try:
                self.top.wait(timeout)
            except subprocess.TimeoutExpired:
                left.append(f"run-foreground does not stop within {timeout} s")
                for pid in proc.descendants(self.top.pid) + [self.top.pid]:
                    proc.kill(pid)
                self.top.wait()
        return left + self._leftovers()

    def crash(self):
        """As a power cut for processes: everything at once by SIGKILL, the work too. What it leaves in cgroups is removed."""
        self._note_cgroups()
        pids = [self.top.pid] + proc.descendants(self.top.pid)
        for pid in pids:
            proc.kill(pid)
        self.top.wait()
        wait_for(lambda: not any(proc.alive(p) for p in pids), 5, "all gone")
        mount = proc.cgroup_mount()
        for path in sorted(self.cgroups, key=len, reverse=True):
            if mount and "edgeward" in path and os.path.isdir(mount + path):
                wait_for(lambda p=path: _rmdir(mount + p), 5, f"cgroup {path} is empty")

    def _note_cgroups(self):
        for pid in proc.descendants(self.top.pid):
            try:
                path = proc.cgroup(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if path:
                self.cgroups.add(path)

    def _leftovers(self):
        left = []
        if is_root():
            uids = {self.net_uid, self.work_uid, *self.pool}
            try:
                wait_for(lambda: not proc.by_uid(uids), 2, "")
            except AssertionError:
                for pid in proc.by_uid(uids):
                    left.append(f"process {pid} {proc.stat(pid)} of uid {proc.status(pid)['Uid'].split()[0]}")
                    proc.kill(pid)
        own = proc.cgroup(os.getpid())
        mount = proc.cgroup_mount()
        for path in self.cgroups:
            if mount and path != own and path != "/" and os.path.isdir(mount + path):
                left.append(f"cgroup {path}")
        if os.path.isdir(self.run):
            left += [f"socket {n}" for n in os.listdir(self.run) if n.endswith(".sock")]
        return left

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    # ---- looking ----

    def ctl(self, *args, json_out=True, user=None, timeout=10):
        argv = [exe("edgectl")] + (["-j"] if json_out else []) + ["-r", self.run, *args]
        kw = {"user": user[0], "group": user[1], "extra_groups": user[2]} if user else {}
        begin = time.monotonic()
        p = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                           env={"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=0"}, check=False, **kw)
        return Ctl(p.returncode, p.stdout, p.stderr, (time.monotonic() - begin) * 1000)

    def enroll(self, secret, *args, watch=None, timeout=30):
        """`edgectl enroll` with the secret on stdin; watch(pid) is called before the secret is written."""
        option = "--bundle-file" if secret.startswith("cloopenroll1.") else "--token-file"
        argv = [exe("edgectl"), "-r", self.run, "enroll", option, "-", *args]
        begin = time.monotonic()
        p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=0"})
        if watch is not None:
            wait_for(lambda: os.readlink(f"/proc/{p.pid}/exe") == os.path.realpath(exe("edgectl")), 5, "edgectl runs")
            watch(p.pid)
        out, err = p.communicate(secret + "\n", timeout)
        return Ctl(p.returncode, out, err, (time.monotonic() - begin) * 1000)

    def log_text(self):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def log_tail(self, lines=15):
        return "\n" + "\n".join(self.log_text().splitlines()[-lines:])

    def broken(self):
        """Lines of the log that no run may have."""
        bad = [line for line in self.log_text().splitlines() if BROKEN.search(line)]
        if self.expect_broken:
            bad = [line for line in bad if not re.search(self.expect_broken, line)]
        return bad[:20]


def _rmdir(path):
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _write_ini(path, sections):
    with open(path, "w", encoding="utf-8") as f:
        for section, keys in sections.items():
            if not keys:
                continue
            f.write(f"[{section}]\n")
            for key, value in keys.items():
                f.write(f"{key} = {value}\n")
            f.write("\n")
