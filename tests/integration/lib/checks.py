"""The four checks that every fault test makes (faults.md, "The four common checks").

1. no new descriptor, 2. no memory growth beyond noise, 3. `edgectl status` answers within 200 ms during the fault and
names it, 4. a running workload keeps its pid and its pace. Used as a context manager around the fault:

    with CommonChecks(agent, hub, codes={"stalled"}) as chk:
        ... fault, and its end ...

At the end the agent must be connected again (unless reconnect=False); the first two checks then have ten seconds.
"""
import json
import statistics
import subprocess
import sys
import threading
import time

from lib import proc
from lib.agent import ROLES, exe

CANARY = """
import time
n, due = 0, time.monotonic()
while True:
    late = time.monotonic() - due
    print(n, int(late * 1000), flush=True)
    n, due = n + 1, due + 0.1
    if late > 0.5:
        due = time.monotonic() + 0.1
    time.sleep(max(0, due - time.monotonic()))
"""
STATUS_MS = 200
REST_S = 10


class Canary:
    """A workload with one numbered line and one step each 100 ms; it measures itself how late each step was."""

    def __init__(self, hub):
        self.hub = hub
        self.run = hub.start([sys.executable if sys.executable.startswith("/usr/bin") else "/usr/bin/python3",
                              "-c", CANARY], work_dir="canary")
        hub.wait("the canary's first line", lambda: self.run.log.received, 20)
        self.pid = self.run.started["pid"]
        self.start = proc.stat(self.pid)[3] if proc.stat(self.pid) else None

    def check(self):
        now = proc.stat(self.pid)
        assert now is not None and now[3] == self.start, f"the canary's process is gone: {self.run.terminal}"
        assert self.run.terminal is None, f"the canary ended: {self.run.terminal}"
        lines = self.run.text.decode().splitlines(keepends=True)
        lines = [line for line in lines if line.endswith("\n")]
        for i, line in enumerate(lines):
            n, late = line.split()
            assert int(n) == i, f"line {i} of the canary is {line!r}"
            assert int(late) <= 1000, f"step {i} of the canary was {late} ms late"

    def stop(self):
        self.hub.signal(self.run, "kill")
        self.hub.finish(self.run)


class CommonChecks:
    def __init__(self, agent, hub, codes=None, killed=(), reconnect=True, memory=True, canary=True, status=True,
                 noise_kb=64, growth_kb=None):
        self.agent, self.hub = agent, hub
        self.codes = set(codes or ())           # one of these must have been named while the poller ran
        self.killed = set(killed)               # roles the test kills: their memory is not compared
        self.reconnect, self.memory, self.with_canary, self.with_status = reconnect, memory, canary, status
        self.noise_floor, self.growth = noise_kb, growth_kb
        self.polls, self.seen = [], set()
        self.stop_poll = threading.Event()

    def __enter__(self):
        self.hub.session()
        self.canary = Canary(self.hub) if self.with_canary else None
        self.pids = self.agent.pids()
        self.fds = {r: proc.settled_fds(p) for r, p in self.pids.items()}
        self.before, self.noise = {}, {}
        if self.memory:
            samples = {r: [] for r in self.pids}
            for _ in range(10):
                for role, pid in self.pids.items():
                    samples[role].append(proc.pss_kb(pid))
                self.stop_poll.wait(0.05)
            for role, values in samples.items():
                floor = 4096 if proc.sanitized(self.pids[role]) else self.noise_floor
                self.before[role] = statistics.median(values)
                self.noise[role] = max(max(values) - min(values), floor)
        self.thread = threading.Thread(target=self._poll, daemon=True)
        self.thread.start()
        return self

    def _poll(self):
        while self.with_status:
            self.polls.append(self.agent.ctl("status"))
            try:
                self.seen |= {c for c in causes(self.polls[-1].json)}
            except ValueError:
                pass
            if self.stop_poll.wait(1.0):
                return

    def __exit__(self, kind, value, tb):
        self.stop_poll.set()
        self.thread.join(15)
        if kind is not None:
            return False
        self._status()
        if self.reconnect:
            self.hub.session()
            self._rest()
        if self.canary is not None:
            if self.reconnect:
                self.canary.check()
                self.canary.stop()
            else:
                assert proc.alive(self.canary.pid)
        return False

    def _status(self):
        base = None
        for got in self.polls:
            assert got.rc in (0, 3), f"edgectl status: {got}"
            json.loads(got.out)
            if got.ms > STATUS_MS:
                # How long does the program take to do nothing, here and now? A busy machine is not the agent's fault.
                base = base if base is not None else idle_ms()
                assert got.ms - base <= STATUS_MS, f"status took {got.ms:.0f} ms, doing nothing {base:.0f} ms"
        if self.codes:
            assert self.seen & self.codes, f"status named {sorted(self.seen)}, expected one of {sorted(self.codes)}"

    def _rest(self):
        """Descriptors and memory come back to what they were within ten seconds."""
        end = time.monotonic() + REST_S
        while True:
            wrong = self._compare()
            if not wrong:
                return
            assert time.monotonic() < end, "; ".join(wrong)
            time.sleep(0.2)

    def _compare(self):
        wrong = []
        now = self.agent.pids()
        for role in ROLES:
            pid = now.get(role)
            if pid is None:
                wrong.append(f"{role} is not running")
                continue
            if role not in self.killed and pid != self.pids.get(role):
                raise AssertionError(f"{role} died: pid {self.pids.get(role)} is now {pid}; {self.agent.log_tail()}")
            fds = proc.fds(pid)
            if fds != self.fds[role]:
                more, less = proc.fd_diff(self.fds[role], fds)
                wrong.append(f"{role}: new descriptors {more}, missing {less}")
            if self.memory and role not in self.killed:
                pss = statistics.median(proc.pss_kb(pid) for _ in range(5))
                limit = self.before[role] + (self.growth or self.noise[role])
                if pss > limit:
                    wrong.append(f"{role}: {pss} kB, before {self.before[role]} kB, noise {self.noise[role]} kB")
        return wrong


def causes(status):
    """Every stable cause code anywhere in the status document."""
    found = []
    if isinstance(status, dict):
        for key, value in status.items():
            if key in ("cause", "link") and isinstance(value, str) and value:
                found.append(value)
            found += causes(value)
    elif isinstance(status, list):
        for item in status:
            found += causes(item)
    return found


def idle_ms():
    values = []
    for _ in range(3):
        begin = time.monotonic()
        subprocess.run([exe("edgectl"), "-V"], capture_output=True, check=False)
        values.append((time.monotonic() - begin) * 1000)
    return statistics.median(values)
