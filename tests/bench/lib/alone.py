"""The goals that look at our agent alone: memory, sizes, wake-ups, system calls, times to connect."""
import re
import shutil
import statistics
import subprocess
import time

from . import machine, report
from .agents import Edgeward
from .proc import BenchError, Sink, run

NET = "10.77.0"


def memory(agent):
    """Sum over the daemons, KiB: (Pss, Private_Dirty), and one line that tells them apart."""
    each = {name: machine.memory_kib(pid) for name, pid in sorted(agent.daemons().items())}
    text = ", ".join(f"{name} {pss / 1024:.2f}/{dirty / 1024:.2f}" for name, (pss, dirty) in each.items())
    return sum(p for p, _ in each.values()), sum(d for _, d in each.values()), text


def idle_memory(agent, results, say):
    """P9. The launcher is counted too: it belongs to workerd's unit."""
    time.sleep(2)
    pss, dirty, text = memory(agent)
    say(f"P9 Pss/Private_Dirty MiB: {text}")
    results.add(1, "idle", "edgeward", {"pss_KiB": pss, "private_dirty_KiB": dirty})
    return [report.row("P9", "idle Pss, MiB", pss / 1024, "-", None, pss / 1024, 6, 4.5),
            report.row("P9", "idle private dirty, MiB", dirty / 1024, "-", None, dirty / 1024, 2.5, 1.5)]


def sizes(build, out, results, say):
    """P10: what a device installs, stripped."""
    total = 0
    for path in ("connectd/connectd", "workerd/workerd", "workerd/launcher/launcher", "privhelper/privhelper",
                 "privupgrade/privupgrade", "privupgrade/privtrial", "privaccount/privaccount", "edgectl/edgectl"):
        copy = out / "stripped"
        shutil.copy(build / path, copy)
        run("strip", copy)
        size = copy.stat().st_size
        say(f"P10 {path}: {size} bytes")
        total += size
        copy.unlink()
    results.add(1, "sizes", "edgeward", {"bytes": total})
    return [report.row("P10", "binaries, stripped, MB", total / 1e6, "-", None, total / 1e6, 1.5, 0.8)]


# So that 10 000 failed dials take a minute and not a day.
IMPATIENT = """\
[link]
retry-min = 1ms
retry-max-local = 2ms
retry-max = 2ms
"""


def fail_dials(agent, count):
    """The hub refuses count connections by turns in three ways."""
    agent.sink.command(f"reject {count}")
    agent.sink.command("wait")


def growth(out, cert, build, quick, results, say):
    """P11"""
    agent = Edgeward(out, cert, build, extra=IMPATIENT, tag="-growth")
    try:
        return _growth(agent, quick, results, say)
    finally:
        agent.close()


def _growth(agent, quick, results, say):
    """Private memory after work, against the same processes before it."""
    fail_dials(agent, 3)
    agent.stream(64)
    agent.burst(200, 16)
    time.sleep(5)                   # a beat and its ack: nothing is held for the hub any more
    _, before, text = memory(agent)
    say(f"P11 before: {text}")
    most = 0
    scale = 20 if quick else 1
    for what, work in (("1 GiB of log", lambda: agent.stream(1024 // scale)),
                       ("10 000 commands", lambda: agent.burst(10000 // scale, 16)),
                       ("10 000 failed dials", lambda: fail_dials(agent, 10000 // scale))):
        work()
        time.sleep(5)
        _, dirty, text = memory(agent)
        say(f"P11 after {what}: {text}")
        results.add(1, "growth", "edgeward", {what.replace(" ", "_") + "_KiB": dirty - before})
        most = max(most, dirty - before)
    return [report.row("P11", "growth, MiB" + (" (a 20th of the work)" if quick else ""), most / 1024, "-", None,
                       most / 1024, 2, 1)]


def idle_switches(agent, quick, results, say):
    """P15"""
    seconds = 20 if quick else 60
    time.sleep(3)
    each = agent.daemons()
    before = {name: machine.context_switches(pid) for name, pid in each.items()}
    time.sleep(seconds)
    count = {name: machine.context_switches(pid) - before[name] for name, pid in each.items()}
    say(f"P15 context switches in {seconds} s: {count}")
    rate = sum(count.values()) / seconds
    results.add(1, "idle", "edgeward", {"switches_per_s": rate})
    return [report.row("P15", "idle context switches/s", rate, "-", None, rate, 0.3, 0.15)]


def _calls(text):
    """{call: count} of strace -c"""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and re.fullmatch(r"[0-9.]+", words[0]) and words[-1] != "total":
            found[words[-1]] = int(words[3])
    return found


def system_calls(agent, sizes_, results, say):
    """P17"""
    made = []
    for name, gate in (("workerd", 2), ("connectd", 3)):
        file = agent.dir / f"strace.{name}"
        tracer = subprocess.Popen(["strace", "-f", "-c", "-o", str(file), "-p", str(agent.daemons()[name])],
                                  stderr=subprocess.PIPE, text=True)
        tracer.stderr.readline()    # "attached"
        mib = max(64, sizes_.mib // 2)
        agent.stream(mib)
        tracer.terminate()
        tracer.wait()
        tracer.stderr.close()
        counts = _calls(file.read_text())
        calls = sum(counts.values()) / (mib * 16)
        top = sorted(counts.items(), key=lambda item: -item[1])[:6]
        say(f"P17 {name}, per 64 KiB: " + ", ".join(f"{call} {n / (mib * 16):.2f}" for call, n in top))
        results.add(1, "calls", name, {"per_64KiB": calls})
        made.append(report.row("P17", f"system calls per 64 KiB, {name}", calls, "-", None, calls, gate, None))
    return made


def start_time(agent, turns, quiet_s, results, say):
    """P18: from the start of run-foreground to the hub's welcome; enrolled already."""
    times = []
    for turn in range(1, turns + 1):
        agent.halt()
        machine.wait_quiet(quiet_s)
        times.append(agent.start() * 1e3)
        results.add(turn, "start", "edgeward", {"ms": times[-1]})
    say("P18 ms: " + " ".join(f"{t:.0f}" for t in times))
    middle = statistics.median(times)
    return [report.row("P18", "start to connected, ms", middle, "-", None, middle, 300, 100)]


class Bridge:
    """A hub and a device in network namespaces of their own, one veth between them."""

    def __init__(self, index):
        self.hub, self.device = f"ewbench-h{index}", f"ewbench-d{index}"
        self.remove()
        for name in (self.hub, self.device):
            run("ip", "netns", "add", name)
        run("ip", "-n", self.hub, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.device)
        for name, address in ((self.hub, f"{NET}.1/24"), (self.device, f"{NET}.2/24")):
            run("ip", "-n", name, "address", "add", address, "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")

    @staticmethod
    def enter(name):
        """Like ip netns exec, but /sys stays as it is."""
        return ["nsenter", f"--net=/run/netns/{name}"]

    def cut(self, event):
        if event:
            run("ip", "-n", self.device, "address", "del", f"{NET}.2/24", "dev", "eth0")
        else:
            run("ip", "-n", self.hub, "route", "add", "blackhole", f"{NET}.2/32")

    def restore(self, event):
        if event:
            run("ip", "-n", self.device, "address", "add", f"{NET}.2/24", "dev", "eth0")
        else:
            run("ip", "-n", self.hub, "route", "del", "blackhole", f"{NET}.2/32")

    def remove(self):
        for name in (self.hub, self.device):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def reconnect(out, cert, build, quick, results, say):
    """P19: several devices lose the link for a minute; how long after it is back is each of them welcomed again."""
    count, outage = (2, 40) if quick else (5, 75)
    bridges, agents, made = [], [], []
    try:
        for i in range(count):
            bridges.append(Bridge(i))
            sink = Sink(out, cert, "edgeward.1", f"{NET}.1", 0, Bridge.enter(bridges[i].hub))
            agents.append(Edgeward(out, cert, build, hub=(f"{NET}.1", sink), prefix=Bridge.enter(bridges[i].device),
                                   tag=f"-link{i}"))
        for event, gate, stretch in ((False, 12, 6), (True, 2, 1)):
            what = "an address event" if event else "no event"
            for bridge in bridges:
                bridge.cut(event)
            for agent in agents:
                agent.sink.command("drop")
            time.sleep(outage)
            times = []
            for bridge, agent in zip(bridges, agents):
                agent.sink.events.clear()
                t0 = time.monotonic()
                bridge.restore(event)
                times.append((agent, t0))
            waits = []
            for turn, (agent, t0) in enumerate(times, 1):
                waits.append(float(agent.sink.event("connected", 180)[1]) - t0)
                results.add(turn, "reconnect", "edgeward", {("event_s" if event else "quiet_s"): waits[-1]})
            say(f"P19 {what}: " + " ".join(f"{w:.2f}" for w in waits) + " s")
            made.append(report.row("P19", f"link back to connected, {what}, s (the slowest of {count})", max(waits), "-",
                                   None, max(waits), gate, stretch))
    finally:
        for agent in agents:
            agent.close()
        for bridge in bridges:
            bridge.remove()
    return made


__all__ = ["BenchError", "growth", "idle_memory", "idle_switches", "reconnect", "sizes", "start_time", "system_calls"]
