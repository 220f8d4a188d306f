"""Everything that is measured: our agent in both dialects, the peers, the floors. All answer the same methods."""
import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import time

from . import machine
from .proc import BenchError, Sink, figures, run, stop

HERE = pathlib.Path(__file__).resolve().parent.parent
SOURCE = HERE.parent.parent
FIRST_UID = 61500               # of the numeric ids our agent gets for the run; nothing is added to /etc


class Floor:
    name = "floor"

    def __init__(self, out, cert):
        self.floor = out / "bin/floor"
        self.cert = cert

    def stream(self, mib):
        """TLS16, and what the hop between two processes could do at best."""
        got = figures(run(self.floor, "tls16", mib, self.cert / "hub.pem", self.cert / "hub.key"))
        got["ipc_MBps"] = figures(run(self.floor, "ipc", mib))["MBps"]
        return got

    def lines(self, count):
        """The generator into a pipe that is read at once: what it does with nobody between."""
        source = subprocess.Popen([str(self.floor.parent / "gen"), "lines", str(count)], stdout=subprocess.PIPE)
        got = figures(run(self.floor, "drain", stdin=source.stdout))
        source.stdout.close()
        source.wait()
        return got

    def latency(self, count):
        return figures(run(self.floor, "spawn", count))

    def burst(self, count, window):
        return figures(run(self.floor, "cmd", count, window, "/bin/true"))

    def close(self):
        pass


class Confined(Floor):
    """What the kernel takes for the namespaces and mounts of the full sandbox, with nothing of ours: no agent that makes them is faster."""
    name, prefix = "confined", "confined-"

    def __init__(self, out, cert):
        super().__init__(out, cert)
        if os.geteuid() != 0:
            raise BenchError("skipped: needs root")

    def latency(self, count):
        return figures(run(self.floor, self.prefix + "spawn", count))

    def burst(self, count, window):
        return figures(run(self.floor, self.prefix + "cmd", count, window, "/bin/true"))


class Least(Confined):
    """The same for sandbox-level = uid."""
    name, prefix = "least", "least-"


class Driven:
    """An agent that is connected to a sink of its own."""

    def __init__(self, out, cert, dialect):
        self.out, self.cert = out, cert
        self.sink = Sink(out, cert, dialect)
        self.process = None

    def pids(self):
        return [self.process.pid]

    def _measured(self, command, unit, amount):
        before = machine.cpu_seconds(self.pids())
        got = self.sink.command(command)
        got["cpu_s"] = machine.cpu_seconds(self.pids()) - before
        got[unit] = got["cpu_s"] / amount
        return got

    def stream(self, mib):
        return self._measured(f"stream {mib << 20}", "cpu_s_per_GiB", mib / 1024)

    def lines(self, count):
        return self._measured(f"lines {count}", "cpu_s_per_line", count)

    def latency(self, count):
        return self._measured(f"latency {count}", "cpu_s_per_run", count)

    def burst(self, count, window):
        return self._measured(f"burst {count} {window}", "cpu_s_per_run", count)

    def close(self):
        if self.process is not None:
            stop(self.process)
        self.sink.stop()


class Peer(Driven):
    def __init__(self, name, out, cert, argv, env=None):
        super().__init__(out, cert, "cloop")
        self.name = name
        self.process = subprocess.Popen([*argv, str(self.sink.port), str(cert / "ca.pem")],
                                        env=dict(os.environ, **(env or {})))
        self.sink.event("connected", 20)


def python_peer(out, cert):
    try:
        run("/usr/bin/python3", "-c", "import websockets")
    except (BenchError, OSError):
        raise BenchError("skipped: no python3-websockets") from None
    return Peer("python", out, cert, ["/usr/bin/python3", str(HERE / "peers/agent.py")])


def node_ws(out):
    """The ws module of node, installed when it is not there."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise BenchError("skipped: no node")
    ws = out / "npm/node_modules/ws"
    if not ws.exists():
        try:
            run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", out / "npm", "ws", timeout=120)
        except (BenchError, subprocess.TimeoutExpired):
            raise BenchError("skipped: npm could not install ws") from None
    return ws


def node_peer(out, cert):
    ws = node_ws(out)
    return Peer("node", out, cert, ["node", str(HERE / "peers/agent.js")], {"BENCH_WS": str(ws)})


def go_peer(out, cert):
    binary = out / "bin/agent-go"
    if not binary.exists():
        if not shutil.which("go") or not os.path.isdir("/usr/share/gocode/src/github.com/gorilla/websocket"):
            raise BenchError("skipped: no golang-go or golang-github-gorilla-websocket-dev")
        env = dict(os.environ, GO111MODULE="off", GOPATH="/usr/share/gocode", GOFLAGS="", GOTOOLCHAIN="local",
                   GOCACHE=str(out / "gocache"))
        run("go", "build", "-o", binary, HERE / "peers/agent.go", env=env)
    return Peer("go", out, cert, [str(binary)])


class Sshd:
    """One multiplexed connection of OpenSSH on loopback, with keys, configuration and port of its own."""
    name = "sshd"

    def __init__(self, out, cert):
        sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
        if not sshd:
            raise BenchError("skipped: no openssh-server")
        self.out, self.dir = out, out / "sshd"
        self.dir.mkdir(mode=0o700, exist_ok=True)
        for key in ("host", "user"):
            if not (self.dir / key).exists():
                run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.dir / key)
        shutil.copy(self.dir / "user.pub", self.dir / "authorized")
        (self.dir / "control").unlink(missing_ok=True)
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        self.port = free_port()
        (self.dir / "config").write_text(f"""\
ListenAddress 127.0.0.1
Port {self.port}
HostKey {self.dir}/host
AuthorizedKeysFile {self.dir}/authorized
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
MaxSessions 64
SetEnv SHLVL=2
""")        # SHLVL: a bash does not read the invoking user's .bashrc, which would be measured too
        self.process = subprocess.Popen([sshd, "-D", "-e", "-f", str(self.dir / "config")], stderr=subprocess.DEVNULL)
        self.ssh = ["ssh", "-F", "none", "-S", str(self.dir / "control"), "-o", "LogLevel=ERROR", "127.0.0.1"]
        self.master = None
        for _ in range(50):
            time.sleep(0.1)
            self.master = subprocess.Popen(
                ["ssh", "-F", "none", "-N", "-M", "-S", str(self.dir / "control"), "-p", str(self.port), "-i",
                 str(self.dir / "user"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o",
                 "LogLevel=ERROR", "-o", "IdentitiesOnly=yes", "127.0.0.1"], stdin=subprocess.DEVNULL)
            for _ in range(20):
                time.sleep(0.1)
                if (self.dir / "control").exists() or self.master.poll() is not None:
                    break
            if (self.dir / "control").exists():
                return
        raise BenchError("sshd: no connection")

    def pids(self):
        return [self.process.pid] + [p for p in machine.descendants(self.process.pid) if machine.name(p) == "sshd"]

    def _measured(self, unit, amount, work):
        before = machine.cpu_seconds(self.pids())
        got = work()
        got["cpu_s"] = machine.cpu_seconds(self.pids()) - before
        got[unit] = got["cpu_s"] / amount
        return got

    def stream(self, mib):
        def work():
            source = subprocess.Popen([*self.ssh, f"{self.out}/bin/gen stream {mib << 20}"], stdout=subprocess.PIPE,
                                      stdin=subprocess.DEVNULL)
            got = figures(run(self.out / "bin/floor", "drain", stdin=source.stdout))
            if source.wait() != 0 or got["bytes"] != mib << 20:
                raise BenchError("sshd: the stream was cut")
            return got
        return self._measured("cpu_s_per_GiB", mib / 1024, work)

    def burst(self, count, window):
        return self._measured("cpu_s_per_run", count, lambda: figures(
            run(self.out / "bin/floor", "cmd", count, window, *self.ssh, "/bin/true")))

    def latency(self, count):
        return self._measured("cpu_s_per_run", count, lambda: figures(
            run(self.out / "bin/floor", "cmd", count, 1, *self.ssh, "/bin/echo", "x")))

    def close(self):
        if self.master is not None:
            stop(self.master)
        stop(self.process)


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _id_is_free(number):
    try:
        pwd.getpwuid(number)
    except KeyError:
        return True
    return False


def _cgroup_mount():
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    return next((pathlib.Path(m[1]) for m in mounts if m[2] == "cgroup2"), None)


def _join_cgroup():
    """As a service manager would: some containers start us in a v2 cgroup that only root can look into, where launcher finds none."""
    mount = _cgroup_mount()
    own = next((line[3:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), None)
    if os.geteuid() != 0 or mount is None or own is None or (mount / own.lstrip("/")).stat().st_mode & 0o001:
        return
    group = mount / "edgeward-bench"
    with contextlib.suppress(OSError):
        group.mkdir(mode=0o755, exist_ok=True)
        (group / "cgroup.procs").write_text("0")


class Edgeward(Driven):
    """Our agent under run-foreground: three users and a pool as root, one user without."""

    def __init__(self, out, cert, build, dialect="edgeward.1", extra="", hub=None, prefix=(), tag="", policy=""):
        """hub (address, sink): where the sink listens when it is not this machine's loopback; prefix: nsenter."""
        self.name = "edgeward-uid" if policy else "edgeward" if dialect == "edgeward.1" else "edgeward-cloop"
        self.build, self.prefix = build, list(prefix)
        if hub:
            self.out, self.cert, self.process = out, cert, None
            address, self.sink = hub
        else:
            super().__init__(out, cert, dialect)
            address = "localhost"
        self.dir = out / f"agent-{dialect}{tag}"
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(mode=0o755)
        (self.dir / "token").write_text(
            "clet1.benchmark0000001.0123456789012345678901234567890123456789012.00000000000000000000000000000000\n")
        shutil.copy(cert / "ca.pem", self.dir / "ca.pem")
        (self.dir / "edgeward.conf").write_text(f"""\
[hub]
url = wss://{address}:{self.sink.port}/api/executors/connect
ca-file = {self.dir}/ca.pem
token-file = {self.dir}/token
[work]
root = {self.dir}/work
show = {out}
slots = 64
overflow = wait-forever
[log]
level = warn
{extra}""")
        if policy:
            (self.dir / "policy.conf").write_text(policy)
        self.log = open(self.dir / "log", "w")
        self.start()

    def _ids(self):
        if os.geteuid() != 0:
            return []
        first = next(n for n in range(FIRST_UID, 65000, 80) if all(_id_is_free(n + i) for i in range(80)))
        os.chown(self.dir / "token", first, first)
        return ["--net-uid", str(first), "--work-uid", str(first + 1), "--pool", f"{first + 2}:64", "--pool-gid",
                str(first + 70), "--operator-gid", "0"]

    def start(self):
        """Starts the daemons and waits for the session. Returns the seconds that took."""
        t0 = time.monotonic()
        self.process = subprocess.Popen(
            [*self.prefix, str(self.build / "packaging/run-foreground"), "-d", str(self.dir), "-c",
             str(self.dir / "edgeward.conf"), "-p", str(self.dir / "policy.conf"), "-b", str(self.build), *self._ids()],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=_join_cgroup)
        try:
            connected = float(self.sink.event("connected", 60)[1])
        except BenchError as e:
            raise BenchError(f"our agent does not connect ({e}); see {self.dir}/log") from None
        return connected - t0

    def daemons(self):
        """{name: pid}; workerd is the launcher's child."""
        found = {}
        for line in (self.dir / "pids").read_text().splitlines():
            name, pid = line.split()
            found[name] = int(pid)
        for pid in machine.children(found["launcher"]):
            if machine.name(pid) == "workerd":
                found["workerd"] = pid
        return found

    def pids(self):
        return list(self.daemons().values())

    def edgectl(self, *argv):
        return subprocess.run([str(self.build / "edgectl/edgectl"), "-r", str(self.dir / "run"), *argv],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30).returncode

    def halt(self):
        if self.process is not None:
            stop(self.process, 30)

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            if self.process is not None and self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
        self.halt()
        with contextlib.suppress(OSError, TypeError):   # there is none, or another agent of ours is in it
            (_cgroup_mount() / "edgeward-bench").rmdir()
        self.log.close()
        self.sink.stop()
