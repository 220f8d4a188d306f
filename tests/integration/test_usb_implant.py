"""What a connectd or a workerd that was taken over gets from privhelper's USB verbs by saying what it must not: nothing.

The real privhelper under its own filter, in a mount namespace with a made-up vhci_hcd and an empty /dev. Each case is a process of its own, since a bad
record has its side refused for a time. B110: every number is bounded before it is used. Where the kinds could occur: privhelper/rules.c
(type, size, descriptors, order), proto/ipc/priv.c (numbers), privhelper/usb.c (what is not there).
"""
import os
import re
import signal
import socket
import struct
import subprocess
import time

import pytest

from lib.proc import wait_for
from test_privhelper import CONNECTD, HDR, HELLO, NET, PRIVHELPER, WORK, WORKERD, Client, hello, record

pytestmark = [pytest.mark.timeout(100), pytest.mark.skipif(os.geteuid() != 0, reason="skipped: needs root for mounts and other users")]
ATTACH, DETACH, GRANT = 0x0110, 0x0114, 0x0116
ANSWERS = {ATTACH: 0x0111, DETACH: 0x0115, GRANT: 0x0117}
STATUS = ("hub port sta spd dev      sockfd local_busid\nhs  0000 004 000 00000000 000000 0-0\nhs  0001 006 003 00050005 000003 1-2\n"
          "ss  0002 004 000 00000000 000000 0-0\n")


class Root:
    """privhelper -u, and the kernel it thinks it has."""

    def __init__(self, open_path, args="-u 'ff 07 08'"):
        self.dir = str(open_path)
        self.vhci = f"{self.dir}/platform/vhci_hcd.0"
        for hub in ("usb1", "usb2"):
            os.makedirs(f"{self.vhci}/{hub}")
            for name in ("authorized_default", "interface_authorized_default"):
                self.put(f"{hub}/{name}", "1")
        self.put("status", STATUS)
        self.put("attach", "")
        self.put("detach", "")
        os.makedirs(f"{self.dir}/bus/usb")
        with open(f"{self.dir}/bus/usb/drivers_probe", "w", encoding="ascii"):
            pass
        for name in ("run", "state", "dev"):
            os.makedirs(f"{self.dir}/{name}", exist_ok=True)
        self.path = f"{self.dir}/run/introduce.sock"
        self.args = args
        self.start()

    def put(self, name, text):
        with open(f"{self.vhci}/{name}", "w", encoding="ascii") as f:
            f.write(text)

    def start(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(16)
        os.chmod(self.path, 0o666)
        script = (f"mount --make-rprivate / && mount --bind {self.dir}/platform /sys/devices/platform && mount --bind {self.dir}/bus /sys/bus && "
                  f"mount --bind {self.dir}/dev /dev && exec env LISTEN_PID=$$ LISTEN_FDS=1 {PRIVHELPER} -r {self.dir}/run -s {self.dir}/state "
                  f"{self.args} -P '70000 4 70000' -N {NET} -W {WORK}")
        self.proc = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stderr=subprocess.PIPE, text=True, pass_fds=(3,),
                                     preexec_fn=lambda: os.dup2(self.listener.fileno(), 3), env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})

    def stop(self):
        self.proc.terminate()
        err = self.proc.communicate(timeout=20)[1]
        self.listener.close()
        return err

    def client(self, uid, role):
        c = Client(self.path, uid, hello(role))
        assert c.take()[0] == HELLO
        return c

    def untouched(self):
        """No attach, no detach, no node, no hub opened; and no line in the record but refusals."""
        read = lambda name: open(f"{self.vhci}/{name}", encoding="ascii").read()
        assert read("attach") == read("detach") == ""
        nodes = [os.path.join(top, f) for top, _, files in os.walk(f"{self.dir}/dev/edgeward") for f in files]
        assert nodes == []
        audit = open(f"{self.dir}/state/privhelper/audit", encoding="ascii").read()
        assert "result=ok" not in audit, audit


def refusals(root):
    """{line of the record about a refusal, without who asked: how often}"""
    found = {}
    for line in open(f"{root.dir}/state/privhelper/audit", encoding="ascii"):
        if m := re.search(r" (connectd|workerd) pid=\d+ uid=(\d+) (.*) times=(\d+) [0-9a-f]{64}$", line):
            assert int(m[2]) == (WORK if m[1] == "workerd" else NET), line
            found[m[3]] = found.get(m[3], 0) + int(m[4])
    return found


def ask(c, kind, payload=b"", **kw):
    """The status of the answer; "ended" when the channel ends instead."""
    c.sock.send(record(kind, payload, **kw))
    while (got := c.take()) is not None:
        if got[0] == ANSWERS.get(kind):
            return got
        for fd in got[2]:
            os.close(fd)
    return "ended"


def attach(devid=0x10002, speed=3, extra=b""):
    return struct.pack("=II", devid, speed) + extra


MALFORMED = {
    "a byte short": (ATTACH, attach()[:-1]), "a byte long": (ATTACH, attach(extra=b"x")), "empty": (ATTACH, b""),
    "no bus": (ATTACH, attach(2)), "no device": (ATTACH, attach(0x10000)), "devid 0": (ATTACH, attach(0)),
    "speed 0": (ATTACH, attach(speed=0)), "wireless": (ATTACH, attach(speed=4)), "speed 7": (ATTACH, attach(speed=7)),
    "speed -1": (ATTACH, attach(speed=0xffffffff)), "detach beyond": (DETACH, struct.pack("=II", 4096, 0)),
    "detach, reserved": (DETACH, struct.pack("=II", 0, 1)), "detach short": (DETACH, b"\0\0\0\0"),
    "grant beyond": (GRANT, struct.pack("=II", 4096, 0)), "slot beyond": (GRANT, struct.pack("=II", 0, 4096)),
    "grant long": (GRANT, struct.pack("=III", 0, 0, 0)), "a path": (GRANT, b"/dev/sda\0\0\0\0\0\0\0\0"),
    "its own answer": (0x0111, b"\0" * 16), "its own event": (0x0112, b"\0" * 32), "its own state": (0x0118, b"\0" * 88),
    "the peer's end": (0x0100, b"\0" * 16), "no such verb": (0x011e, b""), "a verb of the work channel": (0x0260, b"\0" * 152),
    "hello twice": (HELLO, struct.pack("=IiQ32s", WORKERD, 1, 0, b"x")), "as long as can be": (ATTACH, b"\0" * 496),
}


@pytest.fixture
def root(open_path):
    r = Root(open_path)
    yield r
    err = r.stop()
    assert "runtime error" not in err and "Sanitizer" not in err and r.proc.returncode == 0, err


@pytest.mark.parametrize("name", MALFORMED)
def test_a_workerd_that_says_it_wrong_gets_nothing(root, name):
    kind, payload = MALFORMED[name]
    assert ask(root.client(WORK, WORKERD), kind, payload) == "ended"
    root.untouched()
    wait_for(lambda: refusals(root) == {"record result=EPROTO": 1}, 5, lambda: refusals(root))


def test_descriptors_are_not_taken(root):
    c = root.client(WORK, WORKERD)
    a, b = socket.socketpair()
    data = struct.pack(HDR, ATTACH, record(HELLO)[2], 1, 8, 1, 0) + attach()
    socket.send_fds(c.sock, [data], [b.fileno()])
    while (got := c.take()) is not None:
        assert got[0] not in ANSWERS.values()
    b.close()
    assert a.recv(1) == b""     # ours was the only other end: privhelper has closed its copy
    root.untouched()
    wait_for(lambda: refusals(root) == {"record result=EMSGSIZE": 1}, 5, lambda: refusals(root))


def test_an_interface_where_none_is_lent(root):
    c, fd = root.client(WORK, WORKERD), os.open("/proc/self/ns/net", os.O_RDONLY)
    socket.send_fds(c.sock, [struct.pack(HDR, 0x0120, record(HELLO)[2], 1, 32, 1, 0) + struct.pack("=16s6sHII", b"eth1", b"\2\0\0\0\0\1", 1500, 0, 0)], [fd])
    os.close(fd)
    while (got := c.take()) is not None:
        assert got[0] != 0x0121
    wait_for(lambda: refusals(root) == {"record result=EMSGSIZE": 1}, 5, lambda: refusals(root))


def test_out_of_turn_and_for_what_is_not_there(root):
    c = root.client(WORK, WORKERD)
    # Nothing is attached: nothing to lend, nothing of others' to detach; and nothing beyond the pool.
    for port in (0, 1, 2, 4095):
        assert struct.unpack_from(HDR, b"\0" * 16) and ask(c, GRANT, struct.pack("=II", port, 0))[1][:4] == b"\0\0\0\0"
        assert ask(c, DETACH, struct.pack("=II", port, 0))[0] == 0x0115
    root.untouched()
    assert refusals(root) == {"usb-grant port=0 slot=0 result=ENODEV": 1}
    root.proc.terminate()
    root.proc.wait(20)
    assert refusals(root) == {"usb-grant port=0 slot=0 result=ENODEV": 1, "usb-grant port=4095 slot=0 result=ENODEV": 3,
                              "usb-detach port=4095 result=ENODEV": 4}


def test_refused_without_end(root):
    """Each refusal is counted in the record, which grows by a line of each kind in ten seconds and no faster, however often the asker begins anew."""
    began = time.monotonic()
    for _ in range(40):
        c = root.client(WORK, WORKERD)
        for _ in range(50):
            assert ask(c, DETACH, struct.pack("=II", 3, 0))[0] == 0x0115
        c.sock.close()
    assert len(open(f"{root.dir}/state/privhelper/audit", encoding="ascii").readlines()) <= 2 + (time.monotonic() - began) // 10
    root.proc.terminate()
    root.proc.wait(20)
    assert refusals(root) == {"usb-detach port=3 result=ENODEV": 2000}


def test_who_goes_before_the_answer(root):
    """A workerd that ends while it asks has broken no rule: the record has no breach, and the next one is let in."""
    c = root.client(WORK, WORKERD)
    assert c.take()[0] == 0x0118    # what it leaves unread would end the channel before the record is seen
    os.kill(root.proc.pid, signal.SIGSTOP)
    c.sock.send(record(GRANT, struct.pack("=II", 3, 0)))
    c.sock.close()
    os.kill(root.proc.pid, signal.SIGCONT)
    root.client(WORK, WORKERD)
    root.proc.terminate()
    root.proc.wait(20)
    assert refusals(root) == {"usb-grant port=3 slot=0 result=ENODEV": 1}


def test_neither_side_hides_the_other(root):
    """Bad records of both within the same ten seconds: a line for each, with its own number."""
    for _ in range(2):
        assert ask(root.client(WORK, WORKERD), ATTACH) == "ended"
        assert ask(root.client(NET, CONNECTD), ATTACH) == "ended"
        time.sleep(1.5)
    root.proc.terminate()
    root.proc.wait(20)
    sides = {}
    for side, times in re.findall(r" (connectd|workerd) pid=\d+ uid=\d+ record result=EPROTO times=(\d+) ", open(f"{root.dir}/state/privhelper/audit", encoding="ascii").read()):
        sides[side] = sides.get(side, 0) + int(times)
    assert sides == {"connectd": 2, "workerd": 2}


@pytest.mark.parametrize("kind", [ATTACH, DETACH, GRANT])
def test_verbs_before_hello(root, kind):
    c = Client(root.path, WORK)
    assert ask(c, kind, attach() if kind == ATTACH else struct.pack("=II", 0, 0)) == "ended"
    wait_for(lambda: os.path.exists(f"{root.dir}/state/privhelper/audit"), 10, "privhelper is up")
    root.untouched()


@pytest.mark.parametrize("kind", [ATTACH, DETACH, GRANT])
def test_connectd_has_no_verb(root, kind):
    payload = attach() if kind == ATTACH else struct.pack("=II", 0, 0)
    assert ask(root.client(NET, CONNECTD), kind, payload) == "ended"
    root.untouched()
    wait_for(lambda: refusals(root) == {"record result=EPROTO": 1}, 5, lambda: refusals(root))


def test_connectd_cannot_say_that_it_is_workerd(root):
    assert Client(root.path, NET, hello(WORKERD)).take() is None
    root.untouched()


def test_and_the_same_verbs_by_whom_they_are_for(root):
    """So that the cases above fail for what is wrong with them."""
    c = root.client(WORK, WORKERD)
    kind, payload, fds = ask(c, ATTACH, attach())
    assert kind == 0x0111 and len(fds) == 1 and struct.unpack_from("=III", payload)[1:] == (2, 2)
    wait_for(lambda: open(f"{root.vhci}/attach", encoding="ascii").read().startswith("0 "), 5, "the attach line")
    assert open(f"{root.vhci}/usb1/authorized_default", encoding="ascii").read() == "0"
    os.close(fds[0])


def test_what_policy_forbids_now_is_ended(root):
    """usb = no and a restart: the port that the one before had attached is given back, whoever still holds the far end (B115)."""
    c = root.client(WORK, WORKERD)
    _, _, fds = ask(c, ATTACH, attach())
    wait_for(lambda: open(f"{root.vhci}/attach", encoding="ascii").read().startswith("0 "), 5, "the attach line")
    mark = int(open(f"{root.vhci}/attach", encoding="ascii").read().split()[1])
    root.proc.kill()
    root.proc.communicate()
    root.put("status", STATUS.replace("hs  0000 004 000 00000000 000000 0-0", f"hs  0000 006 003 00010002 {mark:06d} 1-1"))
    root.args = ""
    root.start()
    wait_for(lambda: open(f"{root.vhci}/detach", encoding="ascii").read().strip() == "0", 10, "the detach line")
    c = root.client(WORK, WORKERD)
    kind, payload, _ = ask(c, ATTACH, attach())
    assert kind == 0x0111 and payload[:16] == b"\0" * 16
    os.close(fds[0])
