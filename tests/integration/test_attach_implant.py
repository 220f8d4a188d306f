"""A taken-over connectd and attach (design.md section 1): it gets what the policy lets a hub have, inside the workload, within the limits, and nothing else.

Where it could go wrong: workerd/attachopen.c (who is asked for what), workerd/attach.c (whose session a number names), workerd/launcher/attached.c.
"""
import os
import socket
import struct
import time

import pytest

from lib import proc, workdrv
from lib.agent import exe
from lib.proc import wait_for
from lib.workdrv import BAD_SPEC, ENDED, HDR, OK, POLICY, VERSION, Device
from test_attach import Terminal
from test_implant import SEALS, memory

ATTACH, SIZE, CLOSE, END = 0x288, 0x28a, 0x28c, 0x28e
TTY, INPUT, RESUME, WATCH, KEEP = 1, 2, 4, 8, 16
BUSY, UNKNOWN = 1, 10
pytestmark = pytest.mark.timeout(120)


def open_struct(handle, session=b"s", flags=0, start=0, who=b""):
    return struct.pack("=128s72s64sIHHQ", session, handle.encode() if isinstance(handle, str) else handle, who, flags, 24, 80, start)


def command(*argv, term=b"xterm"):
    def s(b):
        return struct.pack("=I", len(b)) + b
    return s(term) + struct.pack("=I", len(argv)) + b"".join(s(a.encode() if isinstance(a, str) else a) for a in argv)


class Net(Device):
    """The test has connectd's end."""

    def __init__(self, policy="[work]\nattach = yes\n", **kw):
        super().__init__(policy=policy, **kw)
        self.opened, self.ends = {}, []

    def step(self, timeout=10):
        self.chan.settimeout(timeout)
        try:
            data, fds, _, _ = socket.recv_fds(self.chan, 1 << 18, 4)
        except TimeoutError:
            return None
        except ConnectionResetError:
            data, fds = b"", []
        if not data:
            raise ConnectionError("work channel ended")
        typ, _, _, _, ident, status = HDR.unpack_from(data)
        if typ == ATTACH + 1:
            for fd in fds:
                os.set_blocking(fd, True)
            refusal, viewer, flags, _, start, taken, session, error = struct.unpack("=IIIIQQ128s208s", data[HDR.size:])
            self.answers[ident] = (refusal, viewer, error.rstrip(b"\0").decode(), fds[0] if fds else None)
        elif typ == END:
            self.ends.append(struct.unpack_from("=Ii", data, HDR.size))
        else:
            self.take(typ, ident, status, data[HDR.size:])
        return typ

    def give(self, typ, data, fds=(), ident=None):
        if ident is None:
            self.ids += 1
            ident = self.ids
        socket.send_fds(self.chan, [HDR.pack(typ, VERSION, len(fds), len(data), ident, 0) + data], list(fds))
        for fd in fds:
            os.close(fd)
        return ident

    def attach(self, opened, *argv, cmd=None, seals=SEALS):
        return self.answer(self.give(ATTACH, opened, [memory(command(*argv) if cmd is None else cmd, seals)]))

    def running(self):
        r = self.start(["/bin/sleep", "600"], work_dir="w")
        self.wait("it runs", lambda: r.info["pid"])
        return r.handle

    def ended(self):
        try:
            while self.step(10) is not None:
                pass
        except ConnectionError:
            return True
        return False

    def holders(self):
        return [p for p in proc.descendants(self.launcher.pid) if (st := proc.stat(p)) and st[0] == "attach" and st[1] != "Z"]


@pytest.fixture
def dev():
    with Net() as d:
        yield d


def works(dev, handle):
    before = dev.holders()
    refusal, viewer, error, fd = dev.attach(open_struct(handle, b"fine"), "echo", "fine")
    assert refusal == OK, error
    assert os.read(fd, 100) == b"fine\n"
    os.close(fd)
    wait_for(lambda: dev.holders() == before, 10, "it is over")


def test_what_the_policy_forbids_is_forbidden():
    for policy, word in (("", "attach = no"), ("[work]\nattach = no\n", "attach = no"), ("[work]\nattach = yes\nprograms = /bin/sleep\n", "programs"),
                         ("[work]\nattach = yes\n[attach]\ninput = no\n", "input = no")):
        with Net(policy) as d:
            handle = d.running()
            refusal, _, error, fd = d.attach(open_struct(handle, flags=INPUT), "/bin/sh")
            assert (refusal, fd) == (POLICY, None) and word in error, (refusal, error)
            assert d.holders() == []


@pytest.mark.parametrize("change", [
    {"flags": 0x20}, {"flags": 1 << 31}, {"flags": RESUME | WATCH}, {"handle": b"../launch"}, {"handle": b"a/b"}, {"handle": b""}, {"handle": b"x" * 72},
    {"session": b"a\nb"}, {"session": b"x" * 128}, {"session": b"", "flags": RESUME}, {"who": b"a\033[2J"}, {"who": b"x" * 64}, {"start": 5},
], ids=str)
def test_a_request_that_is_none_ends_the_channel(dev, change):
    handle = dev.running()
    dev.give(ATTACH, open_struct(**{"handle": handle, **change}), [memory(command("true"), SEALS)])
    assert dev.ended() and dev.holders() == []
    dev.connect()
    works(dev, handle)


@pytest.mark.parametrize("what", ["short", "long", "two descriptors", "no id", "size", "close", "end"])
def test_a_record_that_fits_no_row_ends_the_channel(dev, what):
    handle = dev.running()
    ok, cmd = open_struct(handle), memory(command("true"), SEALS)
    {"short": lambda: dev.give(ATTACH, ok[:-1], [cmd]), "long": lambda: dev.give(ATTACH, ok + b"\0", [cmd]),
     "two descriptors": lambda: dev.give(ATTACH, ok, [cmd, memory()]), "no id": lambda: dev.give(ATTACH, ok, [cmd], ident=0),
     "size": lambda: dev.give(SIZE, b"1234567", [cmd]), "close": lambda: dev.give(CLOSE, b"12345678", [cmd]),
     "end": lambda: dev.give(END, bytes(104), [cmd])}[what]()
    assert dev.ended() and dev.holders() == []
    dev.connect()
    works(dev, handle)


def test_a_command_is_decoded_and_sealed_or_nothing(dev):
    handle = dev.running()
    for cmd in (b"", b"\0", command(""), command("a\0b"), command("true", term=b"../x"), command("true", term=b""), command("true") + b"x",
                struct.pack("=I", 5) + b"xterm" + struct.pack("=I", 257), command(*["a" * 200] * 200), command("a" * 40000)):
        assert dev.attach(open_struct(handle), cmd=cmd)[0] == BAD_SPEC
    for seals in (0, SEALS & ~1, SEALS & ~2, SEALS & ~4, SEALS & ~8):
        assert dev.attach(open_struct(handle), "true", seals=seals)[0] == BAD_SPEC
    assert dev.answer(dev.give(ATTACH, open_struct(handle), [os.open("/etc/passwd", os.O_RDONLY)]))[0] == BAD_SPEC
    assert dev.answer(dev.give(ATTACH, open_struct(handle)))[0] == BAD_SPEC
    assert dev.holders() == []
    works(dev, handle)


def test_only_what_runs_and_inside_of_it(dev):
    handle = dev.running()
    assert dev.attach(open_struct("nobody"), "true")[0] == UNKNOWN
    done = dev.start(["/bin/true"], work_dir="x")
    dev.wait("the end", lambda: done.info["state"] == ENDED)
    assert dev.attach(open_struct(done.handle), "true")[0] == UNKNOWN
    for flags in (RESUME, WATCH):
        assert dev.attach(open_struct(handle, b"nobody", flags), "true")[0] == UNKNOWN
    refusal, _, error, fd = dev.attach(open_struct(handle), "sh", "-c", "id -u; grep -E 'Cap|NoNew' /proc/self/status; ls /proc/1/fd; exec 2>&1; cat /proc/1/environ")
    assert refusal == OK, error
    wait_for(lambda: dev.holders() == [], 10, "it is over")
    said = b""
    while data := os.read(fd, 65536):
        said += data
    os.close(fd)
    text = said.decode()
    assert text.count("0000000000000000") >= 4 and "NoNewPrivs:\t1" in text and "ermission denied" in text, text


def test_limits_hold_whoever_asks(dev):
    """The default: 4 in a workload, 8 in all; what is over, or whose socket is closed, makes room."""
    one, two, three = dev.running(), dev.running(), dev.running()
    got = [dev.attach(open_struct(h, f"s{i}".encode(), INPUT), "cat") for i in range(40) for h in (one, two, three)]
    assert [g[0] for g in got].count(OK) == 8 and {g[0] for g in got} == {OK, BUSY}
    assert len(dev.holders()) == 8
    for g in got:
        if g[3] is not None:
            os.close(g[3])
    wait_for(lambda: dev.holders() == [], 20, "nobody is before them")
    works(dev, one)


def test_numbers_of_others_name_nothing(dev):
    """A session of an operator's on this device is neither seen, taken up, resized nor ended from here."""
    handle = dev.running()
    t = Terminal([exe("edgectl"), "-r", f"{dev.dir}/run", "attach", handle, "--", "sh"])
    try:
        t.send("echo he''re; stty size\r")
        t.expect("here")
        t.expect("24 80")
        for flags in (RESUME, WATCH, RESUME | INPUT | TTY):
            assert dev.attach(open_struct(handle, b"local-1", flags), "true")[0] == UNKNOWN
        for viewer in range(66):
            dev.give(SIZE, struct.pack("=IHH", viewer, 7, 7), ident=0)
            dev.give(CLOSE, struct.pack("=I", viewer), ident=0)
        works(dev, handle)
        t.send("stty size; exit 4\r")
        t.expect("24 80")
        assert t.wait() == 4
    finally:
        t.end()


def test_its_sessions_end_with_it_or_with_their_time():
    with Net("[work]\nattach = yes\n[attach]\nkeep = 2s\n") as d:
        handle = d.running()
        fds = [d.attach(open_struct(handle, f"s{flags}".encode(), flags), "sleep", "600")[3] for flags in (0, INPUT, KEEP, KEEP | TTY | INPUT)]
        assert None not in fds and len(d.holders()) == 4
        d.connect()
        for fd in fds:
            os.close(fd)
        wait_for(lambda: len(d.holders()) <= 2, 10, "those that are not kept")
        wait_for(lambda: d.holders() == [], 20, "those that were kept for two seconds")
        refusal, _, error, _ = d.answer(d.give(ATTACH, open_struct(handle, b"s16", RESUME)))
        assert refusal == UNKNOWN and error == "the session is over: without its operator one is kept for 2s; [attach] keep"
        works(d, handle)


def test_a_flood_of_requests_is_bounded(dev):
    """A thousand at once, never a byte read: workerd answers each, and serves others meanwhile."""
    handle = dev.running()
    before = len(os.listdir(f"/proc/{dev.workerd_pid()}/fd"))
    for i in range(1000):
        dev.give(ATTACH, open_struct(handle, f"f{i}".encode()), [memory(command("head", "-c", "1000000", "/dev/zero"), SEALS)])
        if i % 50 == 49:
            while dev.step(0.05) is not None:
                pass
    deadline = time.monotonic() + 40
    while len(dev.answers) < 1000 and time.monotonic() < deadline:
        dev.step(1)
    assert len(dev.answers) == 1000 and len(dev.holders()) <= 4
    for a in dev.answers.values():
        if a[3] is not None:
            os.close(a[3])
    dev.answers.clear()
    wait_for(lambda: dev.holders() == [], 20, "all are over")
    wait_for(lambda: len(os.listdir(f"/proc/{dev.workerd_pid()}/fd")) <= before, 10, "descriptors as before")
    works(dev, handle)
