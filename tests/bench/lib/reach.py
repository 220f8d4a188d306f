"""What an operator does on a device, beside programs that do the same: a terminal, a service of the device's, a file; and the terminal while files and logs run.

Ours is the whole chain: edgehub's command line, edgehub, connectd, workerd, and the process inside a run. Beside it is OpenSSH over one connection.
"""
import contextlib
import hashlib
import os
import pathlib
import shutil
import subprocess
import threading
import time

from . import report
from .agents import Sshd, free_port
from .lent import Chain, interleaved, wait_port
from .proc import BenchError, figures, run, stop

POLICY = "[work]\nattach = yes\nfiles = write\n[services]\nallow = 127.0.0.1:{}\n"
RAW = "stty raw -echo; printf R; exec "


class Ours:
    name = "edgeward"

    def __init__(self, out, build, policy):
        self.out, self.bin = out, out / "bin"
        self.chain = Chain(out, build, policy, "-reach")
        self.hub = self.chain.sink
        self.run = subprocess.run(self.hub.argv("run", "bench", "--workdir", "w", "--detach", "--", "sleep", "86400"), stdout=subprocess.PIPE, check=True,
                                  text=True).stdout.strip()
        until = time.monotonic() + 30
        while subprocess.run(self.hub.argv("attach", self.run, "--", "true"), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
            if time.monotonic() > until:
                raise BenchError("no session opens")
            time.sleep(0.2)
        self.proxy = None

    def terminal(self, script):
        return [*self.hub.argv("attach", self.run, "--", "sh", "-c", script)]

    def service(self, server):
        port = free_port()
        self.proxy = subprocess.Popen(self.hub.argv("proxy", "bench", "--to", server, "--listen", f"127.0.0.1:{port}"), stdout=subprocess.DEVNULL)
        wait_port(port)
        return port

    def copy(self, source, back):
        run(*self.hub.argv("cp", source, f"bench:{self.run}/there"), stderr=subprocess.DEVNULL)
        between = time.monotonic()
        run(*self.hub.argv("cp", f"bench:{self.run}/there", back), stderr=subprocess.DEVNULL)
        return between

    def close(self):
        if self.proxy is not None:
            stop(self.proxy)
        self.chain.close()


class Ssh:
    name = "ssh"

    def __init__(self, out, cert):
        self.sshd, self.out = Sshd(out, cert), out

    def terminal(self, script):
        return [*self.sshd.ssh[:-1], "-tt", self.sshd.ssh[-1], script]

    def service(self, server):
        port = free_port()
        run(*self.sshd.ssh[:-1], "-O", "forward", "-L", f"127.0.0.1:{port}:127.0.0.1:{server}", self.sshd.ssh[-1], stdin=subprocess.DEVNULL)
        wait_port(port)
        return port

    def copy(self, source, back):
        scp = ["scp", "-O", "-q", "-F", "none", "-o", f"ControlPath={self.sshd.dir}/control", "-o", "LogLevel=ERROR"]
        run(*scp, source, f"127.0.0.1:{self.out}/there")
        between = time.monotonic()
        run(*scp, f"127.0.0.1:{self.out}/there", back)
        return between

    def close(self):
        self.sshd.close()
        (self.out / "there").unlink(missing_ok=True)


class Direct:
    name = "direct"

    def __init__(self, out):
        self.out = out

    def terminal(self, script):
        return ["sh", "-c", script]

    def service(self, server):
        return server

    def close(self):
        pass


class Twice(Direct):
    """Two terminals, one behind the other, as ours and ssh have them."""
    name = "twice"

    def terminal(self, script):
        return [self.out / "bin/floor", "relay", "sh", "-c", script]


@contextlib.contextmanager
def subjects_of(out, cert, build, say):
    """All of them, and the port of a service of the device's."""
    made, web = [], subprocess.Popen([str(out / "bin/web"), "server"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(web.stdout.readline().split()[1])
        made.append(Ours(out, build, POLICY.format(port)))
        made += [Direct(out), Twice(out)]
        try:
            made.append(Ssh(out, cert))
        except BenchError as e:
            say(f"reach: ssh: {e}")
        yield made, port
    finally:
        for s in made:
            s.close()
        stop(web)
        web.stdout.close()


def _row(results, goal, what, measure, other, metric, gate, stretch, more):
    return report.row(goal, what, results.median(measure, "edgeward", metric), other, results.median(measure, other, metric),
                      results.ratio(measure, "edgeward", other, metric), gate, stretch, more)


def terminal(subjects, port, quick, turns, quiet_s, results, say):
    """P16. The same generator in the same raw terminal; ours, ssh and "twice" with a second one on the operator's side."""
    floor, gen = subjects[0].out / "bin/floor", subjects[0].out / "bin/gen"
    script = f"stty raw; exec {gen} stream {(8 if quick else 64) << 20}"
    interleaved(subjects, "terminal", turns, quiet_s, "P16", results, say, lambda s: figures(run(floor, "terminal", *s.terminal(script))))
    return [_row(results, "P16", "terminal MB/s", "terminal", "direct", "MBps", 0.6, 0.8, True),
            _row(results, "P16", "terminal MB/s", "terminal", "twice", "MBps", 0.6, 0.8, True),
            _row(results, "P16", "terminal MB/s", "terminal", "ssh", "MBps", 1.0, None, True)]


def services(subjects, port, quick, turns, quiet_s, results, say):
    """R1. One small request after the other, eight clients together, one large answer."""
    web, sizes = subjects[0].out / "bin/web", (400, 8, 32) if quick else (4000, 8, 256)
    ports = {s.name: s.service(port) for s in subjects}
    subjects = [s for s in subjects if s.name != "twice"]
    interleaved(subjects, "service", turns, quiet_s, "R1", results, say, lambda s: figures(run(web, "client", ports[s.name], *sizes)))
    return [_row(results, "R1", f"service, {what}", "service", other, metric, 1.0, None, more) for other in ("direct", "ssh")
            for what, metric, more in (("requests/s", "requests_per_s", True), ("MB/s", "MBps", True), ("request us", "rtt_us", False))]


def files(subjects, port, quick, turns, quiet_s, results, say):
    """R2. A file that does not compress, to the device and back; the digest is checked by edgehub cp, and here for both."""
    source, back, mib = subjects[0].out / "file", subjects[0].out / "file.back", 32 if quick else 512

    def work(s):
        back.unlink(missing_ok=True)
        begin = time.monotonic()
        between = s.copy(source, back)
        end = time.monotonic()
        if _digest(back) != want:
            raise BenchError(f"{s.name}: the file is another one")
        return {"put_MBps": mib * 1.048576 / (between - begin), "get_MBps": mib * 1.048576 / (end - between)}
    try:
        with open(source, "wb") as f:
            for _ in range(mib):
                f.write(os.urandom(1 << 20))
        want = _digest(source)
        interleaved([s for s in subjects if s.name in ("edgeward", "ssh")], "file", turns, quiet_s, "R2", results, say, work)
    finally:
        source.unlink(missing_ok=True)
        back.unlink(missing_ok=True)
    return [_row(results, "R2", what, "file", "ssh", metric, 1.0, None, True) for what, metric in (("cp to it, MB/s", "put_MBps"), ("cp from it, MB/s", "get_MBps"))]


def _digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while data := f.read(1 << 20):
            h.update(data)
    return h.digest()


class Load:
    """A file of 1 GiB to the device and a log of 500 MB from it, again and again until it is told to end."""

    def __init__(self, ours, quick):
        self.ours, self.over = ours, threading.Event()
        self.file = ours.out / "load"
        with open(self.file, "wb") as f:
            f.truncate((64 if quick else 1024) << 20)
        self.log = [*ours.hub.argv("run", "bench", "--workdir", "log", "--", ours.bin / "gen", "stream", (32 if quick else 500) * 1000000)]
        self.threads = [threading.Thread(target=self._again, args=(argv,)) for argv in (
            [*ours.hub.argv("cp", self.file, f"bench:{ours.run}/load")], list(map(str, self.log)))]
        self.done = [0, 0]
        for t in self.threads:
            t.start()

    def _again(self, argv):
        while not self.over.is_set():
            done = subprocess.run(list(map(str, argv)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            self.done[argv[3] == "run"] += done.returncode == 0

    def end(self):
        self.over.set()
        for t in self.threads:
            t.join()
        self.file.unlink(missing_ok=True)
        if 0 in self.done:
            raise BenchError(f"the load did not run: {self.done}")


def under_load(subjects, port, quick, turns, quiet_s, results, say):
    """R3. A byte typed until it is seen, idle and while a file and a log run; the wish is 50 ms above idle."""
    ours, floor = subjects[0], subjects[0].out / "bin/floor"

    def echo():
        return figures(run(floor, "echo", 50 if quick else 300, *ours.terminal(RAW + "cat")))
    for turn in range(1, turns + 1):
        idle = echo()
        load = Load(ours, quick)
        try:
            time.sleep(0.5)
            busy = echo()
        finally:
            load.end()
        results.add(turn, "echo", "idle", idle)
        results.add(turn, "echo", "edgeward", {**busy, **{f"more_{k}": busy[k] - idle[k] for k in idle}})
    rows = []
    for metric in ("p50_ms", "p99_ms", "max_ms"):
        more = results.median("echo", "edgeward", f"more_{metric}")
        say(f"R3 {metric}: idle {report.number(results.median('echo', 'idle', metric))}, under load {report.number(results.median('echo', 'edgeward', metric))}")
        rows.append(report.Row("R3", f"terminal under load, {metric} above idle", report.number(results.median("echo", "edgeward", metric)), "idle",
                               report.number(results.median("echo", "idle", metric)), report.number(more), "<= 50", "-", "met" if more <= 50 else "NOT met"))
    return rows


MEASURES = {"P16": terminal, "R1": services, "R2": files, "R3": under_load}


def measure(goals, out, cert, build, quick, turns, quiet_s, results, say):
    shutil.rmtree(pathlib.Path(out) / "edgeward-reach", ignore_errors=True)
    made = []
    with subjects_of(out, cert, build, say) as (subjects, port):
        for goal, work in MEASURES.items():
            if goal in goals:
                made += work(subjects, port, quick, turns, quiet_s, results, say)
    return made
