"""The goals that compare: every round measures all subjects one after the other, so that they share their luck."""
from . import machine, report

# goal: (measure, subjects it needs besides our agent)
COMPARED = {
    "P1": ("stream", ["floor"]),
    "P2": ("stream", ["node", "python", "go", "sshd"]),
    "P3": ("stream", ["node", "go", "sshd"]),
    "P4": ("lines", ["floor", "python", "go", "node"]),
    "P5": ("latency", ["floor", "least", "edgeward-uid"]),
    "P6": ("latency", ["floor", "confined"]),
    "P7": ("latency", ["bwrap", "sshd", "runc"]),
    "P8": ("burst", ["floor", "confined", "least", "go", "node", "sshd", "edgeward-uid"]),
    "P14": ("stream", ["edgeward-cloop"]),
}
ORDER = ["floor", "confined", "least", "edgeward", "bwrap", "runc", "go", "sshd", "node", "python", "edgeward-cloop", "edgeward-uid"]


class Sizes:
    """How much a single measurement does. quick is for a look, not for a figure to quote."""

    def __init__(self, quick):
        self.mib = 64 if quick else 256
        self.lines = 50000 if quick else 200000
        self.starts = 50 if quick else 200
        self.burst = 300 if quick else 2000
        self.slow_burst = 100 if quick else 400     # of the subjects that take 10 ms a run


def wanted(goals):
    """{measure: [subjects in order]} for the goals named."""
    found = {}
    for goal in goals:
        if goal in COMPARED:
            measure, others = COMPARED[goal]
            found.setdefault(measure, {"edgeward"}).update(others)
    return {m: [s for s in ORDER if s in subjects] for m, subjects in found.items()}


def measure_once(subject, measure, sizes):
    if measure == "stream":
        return subject.stream(sizes.mib)
    if measure == "lines":
        return subject.lines(sizes.lines)
    if measure == "latency":
        return subject.latency(sizes.starts)
    return subject.burst(sizes.slow_burst if subject.name in ("node", "sshd") else sizes.burst, 16)


def run(goals, subjects, turns, sizes, quiet_s, results, say):
    """subjects: {name: object}. A subject that breaks is noted; the others go on."""
    measures = wanted(goals)
    noisy = 0
    for turn in range(1, turns + 1):
        for measure, names in measures.items():
            for name in names:
                if name not in subjects:
                    continue
                noisy += not machine.wait_quiet(quiet_s)
                got = measure_once(subjects[name], measure, sizes)
                results.add(turn, measure, name, got)
                say(f"round {turn} {measure} {name}: " + ", ".join(f"{k} {report.number(v)}" for k, v in got.items()))
    return noisy


def rows(goals, results):
    """The rows of the table for the goals that compare."""
    def against(goal, what, measure, metric, reference, gate, stretch, at_least, subject="edgeward", scale=1.0):
        ours, theirs = results.median(measure, subject, metric), results.median(measure, reference, metric)
        return report.row(goal, what, None if ours is None else ours * scale,
                          results.notes.get(reference, reference), None if theirs is None else theirs * scale,
                          results.ratio(measure, subject, reference, metric), gate, stretch, at_least)

    def bound(goal, what, measure, metric, alone="confined", subject="edgeward"):
        """No goal: what the kernel alone takes for the same sandbox, beside the floor; and ours beside that."""
        def line(text, subject, reference):
            return report.Row(goal, text, report.number(results.median(measure, subject, metric)), results.notes.get(alone, reference),
                              report.number(results.median(measure, reference, metric)),
                              report.number(results.ratio(measure, subject, reference, metric)), "-", "-", "kernel alone")
        return [line(what, alone, "floor"), *([line("ours beside that", subject, alone)] if subject else [])]

    made = []
    if "P1" in goals:
        made.append(against("P1", "log stream, MB/s", "stream", "MBps", "floor", 0.65, 0.85, True))
    if "P2" in goals:
        for peer, gate, stretch in (("node", .6, .45), ("python", .4, .25), ("go", .9, .65), ("sshd", 1.1, .8)):
            made.append(against("P2", "its CPU, s/GiB", "stream", "cpu_s_per_GiB", peer, gate, stretch, False))
    if "P3" in goals:
        for peer, gate, stretch in (("node", 1.5, 2), ("go", 1.1, 1.5), ("sshd", 1.3, 1.8)):
            made.append(against("P3", "its MB/s", "stream", "MBps", peer, gate, stretch, True))
    if "P4" in goals:
        for peer, gate, stretch in (("python", 1, .65), ("go", .7, .45), ("node", .5, .3)):
            made.append(against("P4", "CPU per 80-byte line, us", "lines", "cpu_s_per_line", peer, gate, stretch, False,
                                scale=1e6))
    if "P5" in goals:
        made.append(against("P5", "start to first byte, p50 ms", "latency", "first_p50_ms", "floor", 1.3, 1.15, False,
                            subject="edgeward-uid"))
        made.append(against("P5", "start to first byte, p99 ms", "latency", "first_p99_ms", "floor", 1.5, 1.25, False,
                            subject="edgeward-uid"))
        made.extend(bound("P5", "its cgroup, id, filters and supervisor alone, p50 ms", "latency", "first_p50_ms", "least", "edgeward-uid"))
    if "P6" in goals:
        made.append(against("P6", "the same in the full sandbox, p50 ms", "latency", "first_p50_ms", "floor", 2.0, 1.6, False))
        made.extend(bound("P6", "its namespaces and mounts alone, p50 ms", "latency", "first_p50_ms"))
    if "P7" in goals:
        for peer, gate, stretch in (("bwrap", .6, .4), ("sshd", .5, .3), ("runc", .1, .07)):
            made.append(against("P7", "the same, p50 ms", "latency", "first_p50_ms", peer, gate, stretch, False))
    if "P8" in goals:
        for peer, gate, stretch in (("floor", .85, .95), ("go", 1.1, 1.2), ("node", 3, 4), ("sshd", 3.5, 5)):
            made.append(against("P8", "16 in flight, runs/s", "burst", "runs_per_s", peer, gate, stretch, True))
        for peer in ("floor", "go", "node", "sshd"):
            made.append(against("P8", "with sandbox-level = uid, runs/s", "burst", "runs_per_s", peer, None, None, True, subject="edgeward-uid"))
        made.extend(bound("P8", "its namespaces and mounts alone", "burst", "runs_per_s"))
        made.extend(bound("P8", "with the least confinement, alone", "burst", "runs_per_s", "least", "edgeward-uid"))
    if "P14" in goals:
        made.append(against("P14", "cloop log CPU, s/GiB", "stream", "cpu_s_per_GiB", "edgeward", 2.0, 1.4, False,
                            subject="edgeward-cloop"))
    return made
