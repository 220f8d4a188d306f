"""Who may do what: users, capabilities, seccomp, what a workload can reach (issue 2 "Must hold"; design.md 1; B129).

Where it could go wrong: the order of giving up privilege in each daemon's start-up, run-foreground's set-up, the child's
set-up in the launcher, modes of state files and sockets, PR_SET_DUMPABLE.
"""
import json
import os
import stat

import pytest

from lib import proc
from lib.agent import BROKEN, BUILD, ROLES

pytestmark = [pytest.mark.root, pytest.mark.timeout(60)]

PY = "/usr/bin/python3"
SETGID_SETUID = 1 << 6 | 1 << 7


def caps(status):
    return {k: int(status[k], 16) for k in ("CapInh", "CapPrm", "CapEff", "CapAmb")}


def test_three_users(device, hub):
    hub.session()
    uids = {role: proc.status(pid)["Uid"].split() for role, pid in device.pids().items()}
    gids = {role: proc.status(pid)["Gid"].split() for role, pid in device.pids().items()}
    assert set(uids["privhelper"]) == {"0"}
    assert set(uids["connectd"]) == {str(device.net_uid)}
    assert set(uids["workerd"]) == set(uids["launcher"]) == {str(device.work_uid)}
    for role in ("connectd", "workerd", "launcher"):
        assert "0" not in gids[role]
        groups = proc.status(device.pid(role))["Groups"].split()
        assert str(device.operator_gid) not in groups and "0" not in groups


@pytest.mark.parametrize("role", ROLES)
def test_filter_and_no_new_privs(device, hub, role):
    hub.session()
    for task in os.listdir(f"/proc/{device.pid(role)}/task"):
        st = proc.status(f"{device.pid(role)}/task/{task}")
        assert st["Seccomp"] == "2" and st["NoNewPrivs"] == "1", (role, st["Seccomp"], st["NoNewPrivs"])


def test_capabilities(device, hub):
    hub.session()
    st = {role: proc.status(pid) for role, pid in device.pids().items()}
    for role in ("connectd", "workerd"):
        assert not any(caps(st[role]).values()), (role, caps(st[role]))
    got = caps(st["launcher"])
    assert got["CapPrm"] == got["CapEff"] == SETGID_SETUID, got
    helper = caps(st["privhelper"])
    full = int(proc.status(1)["CapBnd"], 16)
    assert helper["CapEff"] != full and bin(helper["CapEff"]).count("1") <= 12, hex(helper["CapEff"])


def test_a_workload_has_none(device, hub):
    run = hub.finish(hub.start(["/bin/cat", "/proc/self/status"]))
    st = dict(line.split(":", 1) for line in run.text.decode().splitlines() if ":" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(st[name], 16) == 0, (name, st[name])
    assert st["NoNewPrivs"].strip() == "1"
    uids = st["Uid"].split()
    assert len(set(uids)) == 1 and int(uids[0]) in device.pool and set(st["Gid"].split()) == {str(device.pool_gid)}


def test_workinit_has_none_either(device, hub):
    run = hub.start("sleep 1000")
    ppid = proc.stat(run.started["pid"])[2]
    st = proc.status(ppid)
    assert not any(caps(st).values()) and st["NoNewPrivs"] == "1"
    assert int(st["Uid"].split()[0]) in device.pool
    hub.signal(run, "kill")
    hub.finish(run)


def test_no_agent_process_shares_a_uid_with_work(device, hub):
    runs = [hub.start("sleep 1000", work_dir=f"d{n}") for n in range(3)]
    agent_uids = {proc.status(p)["Uid"].split()[0] for p in device.pids().values()}
    work_uids = [proc.status(r.started["pid"])["Uid"].split()[0] for r in runs]
    assert not agent_uids & set(work_uids) and len(set(work_uids)) == 3
    for run in runs:
        hub.signal(run, "kill")
        hub.finish(run)


def test_not_dumpable(device, hub):
    hub.session()
    for role, pid in device.pids().items():
        assert os.stat(f"/proc/{pid}/mem").st_uid == 0, f"{role} is dumpable"


def test_modes_of_what_lies_on_disk(device, hub):
    hub.session()
    assert stat.S_IMODE(os.stat(os.path.join(device.state, "connectd")).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(os.path.join(device.state, "workerd")).st_mode) == 0o700
    root = os.stat(device.root)
    assert stat.S_IMODE(root.st_mode) == 0o1770 and (root.st_uid, root.st_gid) == (device.work_uid, device.pool_gid)
    for name in ("connectd.sock", "workerd.sock"):
        st = os.stat(os.path.join(device.run, name))
        assert st.st_uid == 0 and st.st_gid == device.operator_gid and stat.S_IMODE(st.st_mode) == 0o660
    pool = os.stat(os.path.join(device.dir, "d", "pool"))
    assert pool.st_uid == 0 and stat.S_IMODE(pool.st_mode) & 0o022 == 0


INSIDE = r"""
import os, sys, socket, signal, ctypes, json
bad = []
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what, fn):
    try:
        r = fn()
    except (OSError, PermissionError) as e:
        return
    bad.append('%s: %r' % (what, r))
pids = json.loads(sys.argv[1])
for role, pid in pids.items():
    for name in ('environ', 'mem', 'maps', 'auxv', 'stack', 'syscall', 'io'):
        attempt('%s %s' % (role, name), lambda: open('/proc/%d/%s' % (pid, name), 'rb').read(1))
    for name in ('cwd', 'root', 'exe'):
        attempt('%s %s' % (role, name), lambda: os.readlink('/proc/%d/%s' % (pid, name)))
    attempt('%s fd' % role, lambda: os.listdir('/proc/%d/fd' % pid))
    attempt('%s kill' % role, lambda: os.kill(pid, 0))
    attempt('%s setpriority' % role, lambda: os.setpriority(os.PRIO_PROCESS, pid, 10))
    if libc.ptrace(16, pid, 0, 0) == 0: bad.append('%s ptrace' % role)
    fd = libc.syscall(434, pid, 0)
    if fd >= 0:
        if libc.syscall(438, fd, 0, 0) >= 0: bad.append('%s pidfd_getfd' % role)
        if libc.syscall(424, fd, 9, 0, 0) >= 0: bad.append('%s pidfd_send_signal' % role)
    buf = ctypes.create_string_buffer(8)
    iov = (ctypes.c_size_t * 2)(ctypes.addressof(buf), 8)
    riov = (ctypes.c_size_t * 2)(0x400000, 8)
    if libc.process_vm_readv(pid, iov, 1, riov, 1, 0) > 0: bad.append('%s process_vm_readv' % role)
for path in sys.argv[2].split(':'):
    def connect():
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(path); return 'connected'
    attempt('socket ' + path, connect)
for path in sys.argv[3].split(':'):
    attempt('list ' + path, lambda: os.listdir(path))
    attempt('write ' + path, lambda: open(path + '/x', 'w'))
attempt('credential', lambda: open(sys.argv[4]).read())
attempt('setuid 0', lambda: os.setuid(0))
attempt('setgroups', lambda: os.setgroups([0]))
attempt('cgroup escape', lambda: [open(m.split()[4] + '/cgroup.procs', 'w').write('0') for m in open('/proc/self/mountinfo') if ' - cgroup2 ' in m])
print('\n'.join(bad) or 'clean')
"""


def test_b129_from_inside_a_workload(device, hub):
    """Read, trace, signal, connect, write: every agent process and file is closed to a workload."""
    other = hub.start("sleep 1000", work_dir="other")
    pids = dict(device.pids(), other=other.started["pid"], top=device.top.pid)
    socks = ":".join(os.path.join(device.run, n) for n in ("connectd.sock", "workerd.sock", "introduce.sock"))
    dirs = ":".join([device.state, os.path.join(device.state, "connectd"), os.path.join(device.state, "workerd"),
                     os.path.join(device.root, "other"), device.run])
    run = hub.finish(hub.start([PY, "-c", INSIDE, json.dumps(pids), socks, dirs, device.credential_file],
                               work_dir="attacker"), 30)
    lines = [x for x in run.text.decode().splitlines()
             if x != "cgroup escape: []"    # it sees no such mount to try
             and not x.startswith(f"list {device.run}") and not x.startswith(f"list {device.state}:")]
    assert lines == ["clean"] or lines == [], lines
    hub.signal(other, "kill")
    hub.finish(other)


def test_a_filter_hit_kills_and_is_seen(device, hub):
    """The harness would notice: a SIGSYS of a daemon is a line the teardown refuses."""
    assert BROKEN.search("connectd: killed by signal 31 (Bad system call)")
    hub.session()


def test_nothing_is_setuid(device):
    for where, _, files in os.walk(BUILD):
        if "/meson-" in where or "build.ninja" in where:
            continue
        for name in files:
            mode = os.lstat(os.path.join(where, name)).st_mode
            assert not stat.S_ISREG(mode) or not mode & 0o6000, os.path.join(where, name)
