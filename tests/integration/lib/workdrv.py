"""A scripted connectd and privhelper for the real launcher and workerd: introduces itself, speaks the work channel.

    with Device(...) as dev:
        w = dev.start(["echo", "x"])        # -> Run; dev.start(..., expect=REFUSAL) for a refusal
        dev.finish(w)                       # reads until OUTPUT_END and ENDED
        assert w.data == b"x\n" and w.info["exit_code"] == 0

Needs no hub. As root the launcher runs under its own uid, with a pool and a delegated cgroup of its own, as run-foreground
would start it; `plain=True` runs everything under an ordinary uid without either.
"""
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

from lib import proc
from lib.agent import exe
from lib.xxh3 import xxh3_128

VERSION = 2
HDR = struct.Struct("=HBBIIi")
HELLO = struct.Struct("=IiQ32s")
PEER = struct.Struct("=QII")
WORKLOAD = struct.Struct("=IBBBBiiiIqqQQQQQQ16s72s208s")
CAPS = struct.Struct("=IIQBBHi256s")
ANSWER = struct.Struct("=IIII208s")
SUB = struct.Struct("=IIQQ")
OFFSET = struct.Struct("=IIQ")
OUTPUT = struct.Struct("=IIQ")
GAP = struct.Struct("=IIQQII")
END = struct.Struct("=IIQ16sII")
REF = struct.Struct("=II")
SIGNAL = struct.Struct("=72sii")

(CAPS_T, WORKLOAD_T, SNAP_END_T, GONE_T) = (0x200, 0x202, 0x204, 0x206)
(START_T, SIGNAL_T, SYNC_T) = (0x210, 0x212, 0x214)
(SUB_T, CREDIT_T, ACK_T, OUTPUT_T, GAP_T, END_T) = (0x220, 0x222, 0x224, 0x226, 0x228, 0x22a)
(DELIVERED_T, DISOWN_T, SESSION_T) = (0x230, 0x232, 0x234)
PENDING, RUNNING, ENDED = 1, 2, 3
EXITED, SIGNALLED, CANCELLED, TIMEOUT, LIMIT, LOST = range(1, 7)
(OK, BUSY, FORBIDDEN_PATH, POLICY, SANDBOX, DISK_LOW, MEMORY_LOW, UNSUPPORTED, BAD_SPEC, START_FAILED,
 UNKNOWN_HANDLE) = range(11)

# Of this test process alone: another one on the same machine must not be taken for what we left behind.
_UIDS = 5000000 + os.getpid() % 20000 * 64
NET_UID, WORK_UID, POOL_GID, PLAIN_UID, POOL_FIRST, POOL_COUNT = _UIDS, _UIDS + 1, _UIDS + 2, _UIDS + 3, _UIDS + 16, 16
V2 = "/sys/fs/cgroup/unified" if os.path.isdir("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"


def text(b):
    return b.split(b"\0", 1)[0].decode()


def encode_spec(handle, argv, env=None, work_dir="", timeout=0, cpu=0, memory=0, disk=0, pids=0, secrets=b"", job=b"", network=b"\0", devices="", overflow=0):
    def s(v):
        v = v if isinstance(v, bytes) else v.encode("utf-8", "surrogateescape")
        return struct.pack("=I", len(v)) + v
    out = s(handle) + s(work_dir) + struct.pack("=IIIQQIB", timeout, 0, cpu, memory, disk, pids, env is not None)
    out += struct.pack("=I", len(argv)) + b"".join(s(a) for a in argv)
    env = env or []
    return out + struct.pack("=I", len(env)) + b"".join(s(e) for e in env) + s(secrets) + s(devices) + s(job) + bytes([overflow]) + network


class Run:
    """One workload as the driver knows it."""

    def __init__(self, handle):
        self.handle, self.wid, self.info = handle, 0, {}
        self.data = bytearray()
        self.base = 0                   # offset of data[0] of this subscription
        self.gaps, self.end, self.gone, self.answer, self.epoch = [], None, False, None, 0
        self.pieces = []                # (offset, bytes) before the last gap
        self.first_byte = None

    @property
    def next(self):
        return self.base + len(self.data)


class Device:
    def __init__(self, conf="", policy="", plain=False, slots=16, tmp=None, subscribe=True, env=None, pool=True,
                 handles=None, limit=1 << 62, ack=True, own_launcher=False, enter=()):
        """own_launcher: the launcher is a copy of its own in self.dir, which a test may replace. enter: what runs it in other namespaces."""
        self.dir = tempfile.mkdtemp(prefix="ewwork.", dir=tmp)
        os.chmod(self.dir, 0o755)
        self.plain = plain or os.getuid() != 0
        self.subscribe, self.limit, self.ack = subscribe, limit, ack
        self.enter = list(enter)
        self.named = self.dir       # how the command line names the directory of the configuration and the policy
        self.uid = os.getuid() if os.getuid() != 0 else (PLAIN_UID if plain else WORK_UID)
        self.pool = pool and not self.plain
        self.env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1", "UBSAN_OPTIONS": "halt_on_error=1", **(env or {})}
        for name, mode in (("run", 0o755), ("state", 0o700), ("work", 0o1770)):
            os.mkdir(f"{self.dir}/{name}")
            os.chmod(f"{self.dir}/{name}", mode)
        if os.getuid() == 0:
            os.chown(f"{self.dir}/state", self.uid, -1)
            os.chown(f"{self.dir}/work", self.uid, POOL_GID if self.pool else -1)
        if "root =" not in conf:
            conf = f"root = {self.dir}/work\nslots = {slots}\n" + conf
        self.write("conf", "[work]\n" + conf)
        self.write("policy", policy)
        if self.pool:
            self.write("pool", f"{POOL_FIRST} {POOL_COUNT} {POOL_GID}\n")
        self.cgroup = None
        if os.getuid() == 0 and not plain:
            self.cgroup = f"{V2}/ewwork-{os.getpid()}-{random.randrange(1 << 30)}"
            os.mkdir(self.cgroup)
            for name in ("", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads"):
                os.chown(self.cgroup + name, self.uid, -1)
        self.introduce = self.listener("introduce.sock")
        self.control = self.listener("workerd.sock")
        self.chan, self.priv, self.launcher = None, None, None
        self.runs, self.by_wid = {}, {}
        self.snapshot, self.caps, self.ids, self.pair = None, None, 0, 0
        self.answers, self.queue = {}, []
        self.serial = random.randrange(1 << 30)
        self.log = open(f"{self.dir}/log", "ab")
        self.program, self.worker = exe("launcher"), exe("workerd")
        if own_launcher:
            self.program = f"{self.dir}/launcher"
            shutil.copy2(exe("launcher"), self.program)

    # ---- processes

    def write(self, name, content):
        with open(f"{self.dir}/{name}", "w") as f:
            f.write(content)

    def listener(self, name):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.bind(f"{self.dir}/run/{name}")
        os.chmod(f"{self.dir}/run/{name}", 0o666)
        s.listen(16)
        return s

    def spawn(self):
        args = [self.program, "-c", f"{self.named}/conf", "-p", f"{self.named}/policy", "-r", f"{self.dir}/run", "-s",
                f"{self.dir}/state", "-P", f"{self.dir}/pool", "-w", self.worker]
        if os.environ.get("EDGEWARD_DEBUG"):
            args.append("-v")
        if os.getuid() == 0:
            ids = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
            if self.pool:
                ids += ["--inh-caps=-all,+setuid,+setgid", "--ambient-caps=-all,+setuid,+setgid"]
            args = ids + args
        args = self.enter + args
        cg, fd = self.cgroup, self.control.fileno()

        def prepare():
            if cg:
                with open(f"{cg}/cgroup.procs", "w") as f:
                    f.write("0")
            os.dup2(fd, 3)
            os.set_inheritable(3, True)
        self.launcher = subprocess.Popen(["sh", "-c", 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', "sh"] + args,
                                         env=self.env, preexec_fn=prepare, pass_fds=(3,), stdin=subprocess.DEVNULL,
                                         stderr=self.log, stdout=self.log)
        return self

    def __enter__(self):
        self.spawn()
        self.connect()
        return self

    def workerd_pid(self):
        for _ in range(200):
            for pid in proc.children(self.launcher.pid):
                s = proc.stat(pid)
                if s and s[0] == "workerd" and s[1] not in "ZX":
                    return pid
            time.sleep(0.01)
        raise AssertionError("no workerd: " + self.log_text())

    def log_text(self):
        with open(f"{self.dir}/log", errors="replace") as f:
            return f.read()[-6000:]

    def kill_workerd(self, sig=signal.SIGKILL):
        os.kill(self.workerd_pid(), sig)

    def reload(self):
        """A new workerd, as at systemctl reload."""
        self.launcher.send_signal(signal.SIGHUP)
        try:
            while True:
                self.step(10)
        except ConnectionError:
            self.connect()

    def stop_launcher(self, sig=signal.SIGTERM):
        self.launcher.send_signal(sig)
        code = self.launcher.wait(10)
        self.drop()
        return code

    def __exit__(self, *exc):
        try:
            if self.launcher and self.launcher.poll() is None:
                self.stop_launcher()
        finally:
            self.drop()
            for s in (self.introduce, self.control):
                s.close()
            if self.cgroup:
                self.remove_cgroup()
            bad = [line for line in self.log_text().splitlines() if "Sanitizer" in line or "runtime error" in line]
            if exc[0] is not None or bad:
                print(self.log_text())
            self.log.close()
            shutil.rmtree(self.dir, ignore_errors=True)
            assert not bad, bad

    def remove_cgroup(self):
        for _ in range(100):
            for base, _dirs, _files in os.walk(self.cgroup, topdown=False):
                try:
                    with open(f"{base}/cgroup.kill", "w") as f:
                        f.write("1")
                    os.rmdir(base)
                except OSError:
                    pass
            if not os.path.exists(self.cgroup):
                return
            time.sleep(0.02)
        raise AssertionError("cgroup stays: " + self.cgroup)

    # ---- the introduction

    def drop(self):
        for s in (self.chan, self.priv):
            if s:
                s.close()
        self.chan = self.priv = None

    def connect(self, timeout=20):
        """Waits for workerd, gives it a pair, takes its snapshot."""
        end = time.monotonic() + timeout
        while True:
            self.drop()
            self.introduce.settimeout(max(end - time.monotonic(), 0.001))
            try:
                self.priv, _ = self.introduce.accept()
            except TimeoutError:
                raise AssertionError("workerd does not come: " + self.log_text()) from None
            self.priv.settimeout(timeout)
            try:
                data = self.priv.recv(4096)
                if not data:
                    continue
                typ, = struct.unpack_from("=H", data)
                assert typ == 1, data
                self.priv.send(self.record(1, HELLO.pack(3, os.getpid(), 0, b"drv")))
                self.new_pair()
                return
            except ConnectionError:     # it died while it waited for us, or replaced this connection: the next one
                continue

    def new_pair(self):
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for s in (a, b):
            s.setsockopt(socket.SOL_SOCKET, 32 if os.getuid() == 0 else socket.SO_SNDBUF, 1 << 20)
        self.pair += 1
        hdr = HDR.pack(0x100, VERSION, 1, PEER.size, 0, 0)
        socket.send_fds(self.priv, [hdr + PEER.pack(self.pair, 65536, 0)], [b.fileno()])
        b.close()
        if self.chan:
            self.chan.close()
        self.chan = a
        self.chan.settimeout(20)
        for r in self.runs.values():
            r.wid = 0
        self.by_wid, self.snapshot, self.queue = {}, {}, []
        self.send(1, HELLO.pack(1, os.getpid(), 0, b"drv"))
        while True:
            typ = self.step(20)
            if typ == SNAP_END_T:
                break
        self.send(SESSION_T, struct.pack("=II", 1, 2))
        for r in self.runs.values():
            if r.wid and self.subscribe:
                self.sub(r, r.next)
                if self.ack:            # as connectd does: what was said to a workerd that died is said again
                    self.send(ACK_T, OFFSET.pack(r.wid, 0, r.next))

    # ---- records

    @staticmethod
    def record(typ, data=b"", ident=0):
        return HDR.pack(typ, VERSION, 0, len(data), ident, 0) + data

    def send(self, typ, data=b"", ident=0):
        self.chan.send(self.record(typ, data, ident))

    def step(self, timeout=10):
        """Takes one record: its type, or None after the timeout. ConnectionError when the channel ended."""
        ready, _, _ = select.select([self.chan], [], [], timeout)
        if not ready:
            return None
        try:
            data = self.chan.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            raise ConnectionError("work channel ended: " + self.log_text())
        typ, ver, nfds, length, ident, status = HDR.unpack_from(data)
        assert ver == VERSION and length == len(data) - HDR.size
        self.take(typ, ident, status, data[HDR.size:])
        return typ

    def take(self, typ, ident, status, body):
        if typ == CAPS_T:
            self.caps = CAPS.unpack(body)
        elif typ == WORKLOAD_T:
            self.on_workload(body)
        elif typ in (START_T + 1, SIGNAL_T + 1):
            refusal, wid, flags, _, err = ANSWER.unpack(body)
            self.answers[ident] = (refusal, wid, text(err), flags)
        elif typ == SYNC_T + 1:
            self.answers[ident] = True
        elif typ == OUTPUT_T:
            wid, epoch, off = OUTPUT.unpack_from(body)
            self.on_output(self.by_wid.get(wid), epoch, off, body[OUTPUT.size:])
        elif typ == GAP_T:
            wid, epoch, start, to, reason, _ = GAP.unpack(body)
            r = self.by_wid.get(wid)
            if r and epoch == r.epoch:
                assert start == r.next and to > start, (start, to, r.next)
                r.gaps.append((start, to, reason))
                r.pieces.append((r.base, bytes(r.data)))
                r.data, r.base = bytearray(), to
        elif typ == END_T:
            wid, epoch, total, digest, has, _ = END.unpack(body)
            r = self.by_wid.get(wid)
            if r and epoch == r.epoch:
                assert total == r.next, (total, r.next)
                assert r.end is None or r.end == (total, digest if has else None)
                r.end = (total, digest if has else None)
        elif typ == GONE_T:
            r = self.by_wid.pop(REF.unpack(body)[0], None)
            if r:
                r.gone = True
                self.runs.pop(r.handle, None)
        elif typ not in (1, SNAP_END_T, 0x242, 0x244, 0x262, 0x266):  # nor its inventory, nor devices
            raise AssertionError(f"record of type {typ:#x}")

    def on_output(self, r, epoch, off, data):
        if r is None or epoch != r.epoch:
            return
        assert off == r.next, f"{r.handle}: offset {off}, expected {r.next}"
        assert off + len(data) <= self.limit_of(r)
        if r.first_byte is None:
            r.first_byte = time.monotonic()
        r.data += data
        if self.ack:
            self.send(ACK_T, OFFSET.pack(r.wid, 0, r.next))

    def limit_of(self, r):
        return getattr(r, "limit", self.limit)

    def on_workload(self, body):
        f = WORKLOAD.unpack(body)
        info = dict(zip("wid state outcome flags _ pid exit_code term_signal gaps started_at finished_at produced "
                        "retained_from cpu_ms mem_peak_kb io_read io_write xxh3 handle error".split(), f))
        info["handle"], info["error"] = text(info["handle"]), text(info["error"])
        r = self.runs.get(info["handle"])
        if r is None:
            r = self.runs[info["handle"]] = Run(info["handle"])
            r.base = info["retained_from"] if self.subscribe else 0
        if r.info.get("state") == ENDED:
            assert info["state"] == ENDED, "an ended workload came back to life"
            assert info["outcome"] == r.info["outcome"], (r.info, info)
        r.wid, r.info = info["wid"], info
        self.by_wid[r.wid] = r

    # ---- what tests do

    def handle(self):
        self.serial += 1
        return f"h{self.serial}"

    def request(self, typ, data):
        self.ids += 1
        self.send(typ, data, self.ids)
        return self.ids

    def answer(self, ident, timeout=20):
        end = time.monotonic() + timeout
        while ident not in self.answers:
            left = end - time.monotonic()
            assert left > 0 and self.step(left) is not None, "no answer: " + self.log_text()
        return self.answers.pop(ident)

    def ask_start(self, argv, handle=None, **kw):
        handle = handle or self.handle()
        return handle, self.request(START_T, encode_spec(handle, argv, **kw))

    def start(self, argv, handle=None, expect=OK, sub=None, **kw):
        handle, ident = self.ask_start(argv, handle, **kw)
        refusal, wid, err, flags = self.answer(ident)
        assert refusal == expect, (refusal, err)
        if refusal != OK:
            return err
        r = self.runs[handle]
        r.answer = (refusal, wid, err)
        assert r.wid == wid
        if self.subscribe if sub is None else sub:
            r.base = 0     # of what it printed before it was told of, the beginning may be gone already: that comes as a gap
            self.sub(r, 0)
        return r

    def sub(self, r, start, limit=None):
        r.epoch += 1
        if limit is not None:
            r.limit = limit
        self.send(SUB_T, SUB.pack(r.wid, r.epoch, start, self.limit_of(r)))

    def credit(self, r, limit):
        r.limit = limit
        self.send(CREDIT_T, SUB.pack(r.wid, r.epoch, 0, limit))

    def signal(self, r, sig):
        ident = self.request(SIGNAL_T, SIGNAL.pack((r if isinstance(r, str) else r.handle).encode(), sig, 0))
        return self.answer(ident)

    def wait(self, what, cond, timeout=20):
        end = time.monotonic() + timeout
        while not cond():
            left = end - time.monotonic()
            assert left > 0, f"{what}: timeout\n" + self.log_text()
            try:
                self.step(min(left, 0.5))
            except ConnectionError:
                self.connect(left)
        return cond()

    def finish(self, r, timeout=20, deliver=True, digest=True):
        self.wait(f"end of {r.handle}", lambda: r.end is not None and r.info.get("state") == ENDED, timeout)
        if digest and not r.gaps and r.base == 0 and r.info["outcome"] != LOST:  # of a lost one nobody has it
            assert r.end[1] == xxh3_128(bytes(r.data)), "digest"
        if deliver:
            self.deliver(r)
        return r

    def deliver(self, r, timeout=20):
        end = time.monotonic() + timeout
        sent = None
        while not r.gone:
            if sent != r.wid:           # again after a restart of workerd
                try:
                    self.send(DELIVERED_T, REF.pack(r.wid, 0))
                    sent = r.wid
                except ConnectionError:
                    self.connect()
                    if r.wid == 0:      # it was noted, the answer was not
                        r.gone = True
                        self.runs.pop(r.handle, None)
                continue
            assert time.monotonic() < end, f"{r.handle} stays: " + self.log_text()
            try:
                self.step(0.5)
            except ConnectionError:
                self.connect()
                if r.wid == 0:
                    r.gone = True
                    self.runs.pop(r.handle, None)

    def run(self, argv, **kw):
        return self.finish(self.start(argv, **kw))

    def snapshot_handles(self):
        """What workerd told in its last snapshot and has not forgotten."""
        return [r.handle for r in self.by_wid.values()]

    def workload_cgroups(self):
        return sorted(n for n in os.listdir(self.cgroup) if n.startswith("w."))

    def settled(self, timeout=5):
        """True when nothing of a workload is left: cgroups, processes of the pool."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            left = self.workload_cgroups() if self.cgroup else []
            if self.pool:
                left += proc.by_uid(set(range(POOL_FIRST, POOL_FIRST + POOL_COUNT)))
            if not left:
                return True
            time.sleep(0.05)
        print("left behind:", left, [(p, proc.cmdline(p)) for p in left if isinstance(p, int)])
        return False
