"""The privhelper executable under its own filter, with clients under other users.

What the introducer decides is covered in tests/unit/test_introduce.c. Here: the process itself (confinement, exit codes, who is
turned away), and what a process that has its uid's right to connect can do to it. B56: a uid is never taken from a record.
"""
import array
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

BUILD = os.environ.get("EDGEWARD_BUILD", os.path.join(os.path.dirname(__file__), "../../build"))
PRIVHELPER = os.path.join(BUILD, "privhelper/privhelper")
NET, WORK, OTHER = (61751, 61752, 61753) if os.geteuid() == 0 else (os.geteuid(),) * 3
CONNECTD, WORKERD, LAUNCHER = 1, 2, 4
HELLO, PEER, GONE = 0x0001, 0x0100, 0x0102
HDR = "=HBBIIi"
IPC_VERSION = int(re.search(r"#define IPC_VERSION\s+(\d+)",
                            open(os.path.join(os.path.dirname(__file__), "../../proto/ipc/ipc.h")).read()).group(1))

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="skipped: needs root for other users")


def hello(role, have=0, build=b"test"):
    return record(HELLO, struct.pack("=IiQ32s", role, 1, have, build))


def record(kind, payload=b"", nfds=0, version=IPC_VERSION, length=None):
    return struct.pack(HDR, kind, version, nfds, len(payload) if length is None else length, 0, 0) + payload


class Client:
    """A connection made by a process of that uid: SO_PEERCRED remembers who connected, not who writes."""

    def __init__(self, path, uid, first=None):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                if uid != os.geteuid():
                    os.setgroups([])
                    os.setresgid(uid, uid, uid)
                    os.setresuid(uid, uid, uid)
                s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                s.connect(path)
                socket.send_fds(theirs, [b"x"], [s.fileno()])
            finally:
                os._exit(0)
        theirs.close()
        fds = socket.recv_fds(ours, 1, 1)[1]
        os.waitpid(pid, 0)
        ours.close()
        assert fds, "could not connect"
        self.sock = socket.socket(fileno=fds[0])
        self.sock.settimeout(5)
        if first is not None:
            try:
                self.sock.send(first)
            except BrokenPipeError:
                pass    # turned away already; take() tells

    def take(self):
        """The next record as (type, payload, descriptors), None at the end."""
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, 1024, 8)
        except ConnectionResetError:
            return None
        if not data:
            return None
        return struct.unpack_from(HDR, data)[0], data[16:], fds


class Helper:
    def __init__(self, open_path, net=NET, work=WORK):
        self.dir = str(open_path)
        self.path = self.dir + "/introduce.sock"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(16)
        os.chmod(self.path, 0o666)
        self.net, self.work = net, work
        self.start()

    def start(self):
        self.proc = start(["-r", self.dir, "-N", str(self.net), "-W", str(self.work)], self.listener)

    def status(self):
        return {k: v.strip() for k, _, v in (line.partition(":") for line in open(f"/proc/{self.proc.pid}/status"))}

    def end(self):
        self.proc.terminate()
        return self.proc.communicate(timeout=10)[1]


def start(args, listener=None, env=None):
    def prepare():
        if listener is not None:
            os.dup2(listener.fileno(), 3)
            os.environ["LISTEN_PID"] = str(os.getpid())
    fds = () if listener is None else (3,)
    # LISTEN_PID must be the pid that execs, so a shell sets it and becomes the program.
    # The leak check of a sanitizer build forks, which the filter forbids.
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", **(env or {"LISTEN_FDS": "1"})}
    return subprocess.Popen(["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$0" "$@"', PRIVHELPER, *args], stderr=subprocess.PIPE, text=True,
                            preexec_fn=prepare, pass_fds=fds, env=env)


@pytest.fixture
def helper(open_path):
    h = Helper(open_path)
    yield h
    if h.proc.poll() is None:
        h.end()


def introduce(helper):
    c, w = Client(helper.path, NET, hello(CONNECTD)), Client(helper.path, WORK, hello(WORKERD))
    assert c.take()[0] == HELLO and w.take()[0] == HELLO
    ends = []
    for side in (c, w):
        kind, payload, fds = side.take()
        assert kind == PEER and len(fds) == 1
        side.pair, side.max_data = struct.unpack_from("=QI", payload)
        ends.append(socket.socket(fileno=fds[0]))
    assert c.pair == w.pair != 0
    return c, w, ends


def test_introduction_and_a_record_of_the_largest_size(helper):
    c, w, (a, b) = introduce(helper)
    wmem_max = int(open("/proc/sys/net/core/wmem_max").read())    # the kernel books twice what it grants
    assert c.max_data == w.max_data == (65536 if os.geteuid() == 0 or wmem_max * 2 >= 1 << 20 else 32768)
    bulk = os.urandom(c.max_data + 80)
    a.send(bulk)
    assert b.recv(1 << 18) == bulk
    # As many as the buffer is meant for wait in it without blocking.
    a.setblocking(False)
    for _ in range(8 if c.max_data == 65536 else 2):
        a.send(bulk)


def test_confinement(helper):
    introduce(helper)
    status = helper.status()
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"
    keep = 1 << 12 if os.geteuid() == 0 else 0    # CAP_NET_ADMIN, for SO_SNDBUFFORCE
    for name in ("CapPrm", "CapEff"):
        assert int(status[name], 16) == keep
    assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
    if os.geteuid() != 0:
        return      # it is not dumpable: only root may look further
    assert int(status["CapBnd"], 16) == keep
    fds = f"/proc/{helper.proc.pid}/fd/"
    targets = [os.readlink(fds + fd) for fd in os.listdir(fds) if int(fd) > 2]
    assert not any(t.startswith("/") for t in targets), targets    # no file and no directory


def test_signals_and_exit_codes(helper):
    introduce(helper)
    os.kill(helper.proc.pid, signal.SIGHUP)
    time.sleep(0.1)
    assert helper.proc.poll() is None
    helper.end()
    assert helper.proc.returncode == 0


@as_root
def test_b56_unknown_uid_is_turned_away_without_a_record(helper):
    for uid in (OTHER, 0):
        assert Client(helper.path, uid, hello(CONNECTD)).take() is None
    introduce(helper)
    assert helper.proc.poll() is None
    assert f"uid {OTHER} pid" in helper.end()


def still_serves(helper, uid=WORK, role=WORKERD):
    """The side that did nothing wrong comes in and is answered; the process has written its one line and lives."""
    assert Client(helper.path, uid, hello(role)).take()[0] == HELLO
    assert helper.proc.poll() is None
    assert helper.end().count("broke the protocol") == 1
    assert helper.proc.returncode == 0


@as_root
@pytest.mark.parametrize("uid,role", [(NET, WORKERD), (WORK, CONNECTD), (NET, LAUNCHER), (NET, 0)])
def test_b56_wrong_role_costs_the_connection_and_not_the_work(helper, uid, role):
    _, _, (a, b) = introduce(helper)
    assert Client(helper.path, uid, hello(role)).take() is None
    a.send(b"goes on")
    assert b.recv(100) == b"goes on"
    still_serves(helper, *((WORK, WORKERD) if uid == NET else (NET, CONNECTD)))


@pytest.mark.parametrize("bad", [
    hello(CONNECTD)[:-1], hello(CONNECTD) + b"x", b"x", record(HELLO, bytes(4000)), record(HELLO, bytes(497)),
    record(PEER, bytes(16)), record(GONE), record(0x0202, bytes(384)), record(HELLO, hello(CONNECTD)[16:], version=1),
    record(HELLO, hello(CONNECTD)[16:], nfds=1), hello(CONNECTD, build=b"x" * 32),
], ids=range(11))
def test_bad_record_costs_the_connection_and_says_one_line(helper, bad):
    if NET == WORK:
        pytest.skip("skipped: with one uid the role is not known before HELLO, and both are refused")
    _, _, (a, b) = introduce(helper)
    assert Client(helper.path, NET, bad).take() is None
    a.send(b"goes on")
    assert b.recv(100) == b"goes on"
    still_serves(helper)


def test_second_hello(helper):
    c = Client(helper.path, NET, hello(CONNECTD))
    c.sock.send(hello(CONNECTD))
    assert c.take()[0] == HELLO and c.take() is None
    still_serves(helper)


@as_root
@pytest.mark.parametrize("count", [1, 2, 6, 7, 64])
def test_surplus_descriptors(helper, count):
    c = Client(helper.path, NET)
    devnull = os.open("/dev/null", os.O_RDONLY)
    c.sock.sendmsg([hello(CONNECTD)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [devnull] * count))])
    os.close(devnull)
    assert c.take() is None
    still_serves(helper)


@as_root
def test_a_hostile_connectd_keeps_workerd_from_nothing(helper):
    """Bad records as fast as it can, for two seconds: workerd is served at once each time, and connectd let in once or twice."""
    until, tries, let_in = time.monotonic() + 2, 0, 0
    while time.monotonic() < until:
        evil = Client(helper.path, NET, hello(CONNECTD))
        let_in += evil.take() is not None
        try:
            evil.sock.send(b"x")
        except OSError:
            pass
        evil.sock.close()
        tries += 1
        begin = time.monotonic()
        w = Client(helper.path, WORK, hello(WORKERD))
        assert w.take()[0] == HELLO and time.monotonic() - begin < 1
        w.sock.close()
    assert tries > 10 and 1 <= let_in <= 2, (tries, let_in)
    assert helper.proc.poll() is None


@as_root
def test_b129_nobody_looks_into_it(helper):
    """Root with the very same capability, not more, may read what is dumpable: a process of that kind yes, privhelper no."""
    def readable(pid):
        return subprocess.run(["setpriv", "--bounding-set=-all,+net_admin", "cat", f"/proc/{pid}/environ"], capture_output=True,
                              check=False).returncode == 0
    introduce(helper)
    assert not readable(helper.proc.pid)
    plain = subprocess.Popen(["setpriv", "--bounding-set=-all,+net_admin", "sleep", "60"])
    try:
        wait = time.monotonic() + 5
        while not readable(plain.pid) and time.monotonic() < wait:
            time.sleep(0.02)
        assert readable(plain.pid), "this check cannot see the difference"
    finally:
        plain.kill()
        plain.wait()


def test_restart_in_any_order(helper):
    c, w, (a, b) = introduce(helper)
    pair = c.pair
    helper.end()
    assert helper.proc.returncode == 0
    helper.start()
    c2, w2 = Client(helper.path, NET, hello(CONNECTD, pair)), Client(helper.path, WORK, hello(WORKERD, pair))
    assert c2.take()[0] == HELLO and w2.take()[0] == HELLO
    a.send(b"same pair")
    assert b.recv(100) == b"same pair"
    # connectd starts anew: both get an end, the survivor over its own channel.
    c3 = Client(helper.path, NET, hello(CONNECTD, 0))
    assert c3.take()[0] == HELLO
    assert c3.take()[0] == PEER and w2.take()[0] == PEER
    assert c2.take() is None
    c3.sock.close()
    assert w2.take()[0] == GONE


def test_a_peer_that_never_reads_is_dropped_not_waited_for(helper):
    c = Client(helper.path, NET, hello(CONNECTD))
    assert c.take()[0] == HELLO
    lazy = Client(helper.path, WORK, hello(WORKERD))
    for _ in range(600):
        again = Client(helper.path, NET, hello(CONNECTD))
        assert again.take()[0] == HELLO
        again.sock.close()
    assert helper.proc.poll() is None
    lazy.sock.close()
    introduce(helper)


@as_root
def test_memory_and_descriptors_stay_after_many_introductions(helper):
    def size():
        return len(os.listdir(f"/proc/{helper.proc.pid}/fd"))
    for _ in range(20):
        introduce(helper)
    before = size()
    for _ in range(100):
        introduce(helper)
    wait = time.monotonic() + 20
    while size() > before and time.monotonic() < wait:
        time.sleep(0.05)
    assert size() <= before


@pytest.mark.parametrize("args", [[], ["-N", "1"], ["-N", "x", "-W", "2"], ["-N", "-1", "-W", "2"], ["-N", "4294967295", "-W", "1"],
                                  ["-N", "1", "-W", "2", "x"], ["-z"]])
def test_usage(args):
    r = subprocess.run([PRIVHELPER, *args], capture_output=True, text=True)
    assert r.returncode == 2 and "usage: privhelper" in r.stderr and len(r.stderr.splitlines()) <= 2


def refused(args, listener=None, env=None):
    p = start(args, listener, env)
    err = p.communicate(timeout=10)[1]
    return p.returncode, err


def test_bad_listeners(open_path):
    args = ["-r", str(open_path), "-N", "1", "-W", "2"]
    code, err = refused(args, env={"LISTEN_FDS": "0"})
    assert code == 1 and "edgeward-introduce.socket" in err
    other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.bind(str(open_path / "other.sock"))
    other.listen(1)
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.bind(str(open_path / "introduce.sock"))
    stream.listen(1)
    quiet = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for listener in (other, stream, quiet):
        code, err = refused(args, listener)
        assert code == 1 and f"{open_path}/introduce.sock: descriptor 3 is not its listener" in err
    code, err = refused(["-r", "/" + "x" * 200, "-N", "1", "-W", "2"], other)
    assert code == 1


@pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"), reason="skipped: needs root and /dev/fuse")
@pytest.mark.parametrize("l2", ["no", "yes"])
def test_a_descriptor_whose_close_waits_keeps_nobody_from_it(helper, open_path, l2):
    """A taken-over workerd has runners, who may mount FUSE in a user namespace; close(2) of such a file waits for its server, past SIGKILL."""
    helper.end()
    (open_path / "fuse").mkdir()
    (open_path / "privhelper").mkdir(mode=0o700)
    helper.proc = start(["-r", helper.dir, "-s", helper.dir, "-l", l2, "-N", str(NET), "-W", str(WORK)], helper.listener)
    w = Client(helper.path, WORK, hello(WORKERD))
    assert w.take()[0] == HELLO
    tap = struct.pack("=16s6sHII", b"lan0", b"\x02\0\0\0\0\1", 1500, 0, 0)
    data = struct.pack(HDR, 0x0120, record(HELLO)[2], 1, len(tap), 1, 0) + tap
    n = w.sock.fileno()
    slow = subprocess.Popen(["unshare", "-m", sys.executable, os.path.join(os.path.dirname(__file__), "lib/slowclose.py"), str(open_path / "fuse"), str(n)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=(n,), start_new_session=True)
    try:
        slow.stdin.write(data.hex())
        slow.stdin.close()
        said = slow.stdout.readline()
        if said == "no FUSE\n":
            pytest.skip("no FUSE here")
        assert said == "sent\n"
        got = w.take()
        while got is not None and got[0] != 0x0121:
            got = w.take()
        assert (got is None) == (l2 == "no"), got     # none is received where no verb has one; else it is answered, and closed by a thread
        if l2 == "yes":
            assert slow.stdout.readline() == "closing\n"
        c = Client(helper.path, NET, hello(CONNECTD))
        assert c.take()[0] == HELLO
    finally:
        os.killpg(slow.pid, signal.SIGKILL)     # the server with it: whoever waits for it goes on
        slow.wait(20)
    err = helper.end()
    assert helper.proc.returncode == 0 and "runtime error" not in err, err


def test_its_threads_are_there_before_the_filter(helper, open_path):
    """What the C library does at the beginning of a thread is not among its calls: again and again, since it is a matter of who is first."""
    helper.end()
    (open_path / "privhelper").mkdir(mode=0o700)
    for _ in range(30):
        helper.proc = start(["-r", helper.dir, "-s", helper.dir, "-l", "yes", "-N", str(NET), "-W", str(WORK)], helper.listener)
        assert " serves uids " in helper.proc.stderr.readline()
        helper.end()
        assert helper.proc.returncode == 0
