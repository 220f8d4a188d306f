"""What the kernel says about this machine and its processes."""
import os
import pathlib
import time

QUIET_IDLE = 0.88       # the CPUs count as quiet when they were idle for this share of a tenth of a second


def _cpu_times():
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    values = [int(f) for f in fields]
    return values[3] + values[4], sum(values)


def stolen():
    """Ticks so far that the hypervisor gave to others while a process of ours could have run, and all ticks."""
    values = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return values[7], sum(values)


def wait_quiet(limit):
    """Others may use this machine: waits at most limit seconds for a quiet moment. True if there was one."""
    end = time.monotonic() + limit
    while True:
        idle0, all0 = _cpu_times()
        time.sleep(0.1)
        idle1, all1 = _cpu_times()
        if all1 > all0 and (idle1 - idle0) / (all1 - all0) >= QUIET_IDLE:
            return True
        if time.monotonic() > end:
            return False


def cpu_seconds(pids):
    """CPU time of whole processes, all threads, to the nanosecond (the clock of CPUCLOCK_SCHED)."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


def children(pid):
    """Direct children."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += [int(c) for c in (task / "children").read_text().split()]
    return found


def descendants(pid):
    found = []
    for child in children(pid):
        found += [child] + descendants(child)
    return found


def name(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def memory_kib(pid):
    """Pss and Private_Dirty."""
    figures = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        key, value = line.split(":")
        figures[key] = int(value.split()[0])
    return figures["Pss"], figures["Private_Dirty"]


def context_switches(pid):
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if "ctxt_switches" in line:
                total += int(line.split()[1])
    return total


def facts():
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    mem = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) // 1024
    return [("kernel", os.uname().release), ("cpus", str(os.cpu_count())), ("cpu model", model),
            ("memory MiB", str(mem))]
