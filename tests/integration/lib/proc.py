"""/proc: what a process is, has open, may do and uses."""
import os
import re
import signal
import time

_marks = []


def read(path):
    with open(path, "rb") as f:
        return f.read()


def stat(pid):
    """-> (comm, state, ppid, start ticks) or None when it is gone."""
    try:
        text = read(f"/proc/{pid}/stat").decode("latin-1")
    except (FileNotFoundError, ProcessLookupError):
        return None
    comm = text[text.index("(") + 1:text.rindex(")")]
    rest = text[text.rindex(")") + 2:].split()
    return comm, rest[0], int(rest[1]), int(rest[19])


def alive(pid):
    s = stat(pid)
    return s is not None and s[1] not in "ZX"


def status(pid):
    """/proc/PID/status as a dict of strings."""
    out = {}
    for line in read(f"/proc/{pid}/status").decode().splitlines():
        name, _, value = line.partition(":")
        out[name] = value.strip()
    return out


def cmdline(pid):
    """-> its arguments; [] when it is gone, or has none as a zombie has."""
    try:
        return [a.decode("latin-1") for a in read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]]
    except (FileNotFoundError, ProcessLookupError):
        return []


def environ(pid):
    return read(f"/proc/{pid}/environ")


def children(pid):
    return [p for p in pids() if (s := stat(p)) is not None and s[2] == pid]


def descendants(pid):
    """The tree below pid, pid itself left out."""
    parents = {p: s[2] for p in pids() if (s := stat(p)) is not None}
    found, grew = {pid}, True
    while grew:
        more = {p for p, pp in parents.items() if pp in found and p not in found}
        found |= more
        grew = bool(more)
    return sorted(found - {pid})


def pids():
    return [int(n) for n in os.listdir("/proc") if n.isdigit()]


def mark():
    """What follows one digit in an argument of sleep(1) that no other run of these tests has; marked() finds who was given one."""
    _marks.append(len(_marks))
    return f"000.{len(_marks)}{os.getpid():010d}"


def marked(end):
    """Those alive with such an argument, whoever their parent is by now."""
    return [pid for pid in pids() if alive(pid) and any(a[1:] == end for a in cmdline(pid))]


def by_uid(uids):
    """Processes whose real uid is one of these."""
    found = []
    for pid in pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid in uids or int(status(pid)["Uid"].split()[0]) in uids:
                if alive(pid):
                    found.append(pid)
        except (FileNotFoundError, ProcessLookupError, KeyError):
            pass
    return found


def fds(pid):
    """Sorted targets of /proc/PID/fd, numbers of sockets and pipes replaced by their type."""
    out = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        out.append(re.sub(r":\[\d+\]$", "", target))
    return sorted(out)


def settled_fds(pid):
    """fds() once it has stayed the same for a moment: a file that is just being written does not count."""
    seen = [None]

    def same():
        seen.append(fds(pid))
        return len(seen) > 5 and all(x == seen[-1] for x in seen[-5:]) and seen[-1]
    return wait_for(same, 10, "descriptors settle", 0.03)


def fd_diff(before, after):
    """What is in one sorted list of targets and not in the other: (more, less)."""
    more, less = list(after), []
    for f in before:
        if f in more:
            more.remove(f)
        else:
            less.append(f)
    return more, less


def pss_kb(pid):
    """Pss + SwapPss."""
    total = 0
    for line in read(f"/proc/{pid}/smaps_rollup").decode().splitlines():
        if line.startswith(("Pss:", "SwapPss:")):
            total += int(line.split()[1])
    return total


def rss_kb(pid):
    for line in read(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def cpu_ticks(pid):
    rest = read(f"/proc/{pid}/stat").decode("latin-1").rsplit(")", 1)[1].split()
    return int(rest[11]) + int(rest[12])


def cgroup(pid):
    """Path of its v2 cgroup, relative to the mount of the v2 tree."""
    for line in read(f"/proc/{pid}/cgroup").decode().splitlines():
        if line.startswith("0::"):
            return line[3:]
    return None


def cgroup_mount():
    for line in read("/proc/self/mountinfo").decode().splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] == "cgroup2":
            return left.split()[4]
    return None


def sanitized(pid):
    """Is it a build with AddressSanitizer? Its memory figures are of another kind."""
    try:
        return b"libasan" in read(f"/proc/{pid}/maps")
    except PermissionError:
        return False


def kill(pid, sig=signal.SIGKILL):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass


def wait_for(pred, timeout=10, what="condition", every=0.02):
    """Polls until pred() gives something true and returns it. The only loop with a sleep in this suite."""
    end = time.monotonic() + timeout
    while True:
        got = pred()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what}")
        time.sleep(every)
