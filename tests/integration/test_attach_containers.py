"""Attach to a workload that is a container (cloop.md 15.8: the process runs inside of the container): a real podman, workerd's own channel.

Where it could go wrong: workerd/container.c container_exec() (what becomes an argument), steps/engine/exec.sh (what is left when a session ends),
workerd/attachopen.c.
"""
import os
import select
import socket
import struct
import time

import pytest

from lib.proc import wait_for
from lib.workdrv import ENDED, OK
from test_attach_implant import CLOSE, INPUT, SIZE, TTY, Net, open_struct
from test_containers import container, engine      # noqa: F401

pytestmark = [pytest.mark.root, pytest.mark.timeout(180)]


@pytest.fixture
def dev(engine):        # noqa: F811
    with Net(f"[work]\nattach = yes\n[containers]\nengine-socket = {engine.socket}\n") as d:
        yield d


@pytest.fixture
def run(dev, engine):       # noqa: F811
    r = dev.start(["/bin/sh", "-c", "echo made > /workspace/f; sleep 1000"], work_dir="c", job=container())
    name = wait_for(lambda: next((c for c in engine.containers() if r.handle in c), None), 30, "the container")
    wait_for(lambda: engine.inspect(name)["State"]["Status"] == "running", 30, "it runs")
    r.name = name
    return r


class Inside:
    def __init__(self, dev, run, *argv, flags=0, name=b"s"):        # noqa: F811
        self.dev = dev
        refusal, self.viewer, error, self.fd = dev.attach(open_struct(run.handle, name, flags), *argv)
        assert refusal == OK, error
        self.seen = b""

    def read(self, seconds=0.2):
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        data = os.read(self.fd, 65536)
        self.seen += data
        return bool(data)

    def expect(self, text, seconds=30):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end and self.read(), self.seen
        return self

    def end(self, seconds=40):
        """Everything it shows, and its exit code."""
        end = time.monotonic() + seconds
        while self.read():
            assert time.monotonic() < end, self.seen
        os.close(self.fd)
        self.dev.wait("its end", lambda: [c for v, c in self.dev.ends if v == self.viewer])
        return [c for v, c in self.dev.ends if v == self.viewer][0]


def inside(engine, run):        # noqa: F811
    """The command lines of what runs in the container."""
    return engine.run("top", run.name, "args").splitlines()[1:]


def test_it_is_inside_and_has_what_the_container_has(dev, run, engine):        # noqa: F811
    s = Inside(dev, run, "sh", "-c", "pwd; cat f; id -u; cat /proc/self/status; ls -l /proc/self/fd; echo err >&2; exit 7")
    assert s.end() == 7
    text = s.seen.decode()
    assert text.startswith("/workspace\nmade\n") and "err\n" in text
    assert int(text.split("\n")[2]) == os.stat(f"{dev.dir}/work/c/f").st_uid
    assert "CapEff:\t0000000000000000" in text and "CapBnd:\t0000000000000000" in text and "NoNewPrivs:\t1" in text, text
    assert "podman.sock" not in text
    s = Inside(dev, run, "/no/such/program")
    assert s.end() not in (0, -1) and b"no/such/program" in s.seen
    assert Inside(dev, run, "ls", "/run", "-la").end() == 0


@pytest.mark.parametrize("flags", [0, INPUT, TTY | INPUT])
def test_the_machines_null_device_keeps_its_owner(dev, run, engine, flags):        # noqa: F811
    """crun gives the standard input of what is executed to the container's user (1.8.1 does), a runner: it is none of the machine's nodes."""
    s = Inside(dev, run, "sh", "-c", "echo up; [ -c /proc/self/fd/0 ] && echo node; [ -t 0 ] || cat; exit 3", flags=flags)
    s.expect(b"up")
    if flags == INPUT:
        with socket.socket(fileno=os.dup(s.fd)) as end:
            end.shutdown(socket.SHUT_WR)
    assert s.end() == 3
    assert (b"node" in s.seen) == (flags & TTY != 0), s.seen
    assert engine.null() == (0, 0, 0o666)


def test_words_are_words(dev, run):
    argv = ["a b", "$(id)", "--privileged", "-it", "'", '"', "", "`id`", ";", "\\"]
    s = Inside(dev, run, "sh", "-c", 'for a; do printf "<%s>" "$a"; done', "sh", *argv)
    assert s.end() == 0 and s.seen.decode() == "".join(f"<{a}>" for a in argv)
    s = Inside(dev, run, "--privileged", "true")
    assert s.end() != 0


def test_a_terminal(dev, run, engine):        # noqa: F811
    s = Inside(dev, run, flags=TTY | INPUT)
    os.write(s.fd, b"echo in''side $TERM; readlink /proc/self/fd/0; cat f\n")
    s.expect(b"inside xterm").expect(b"/dev/pts/").expect(b"made\r\n")
    dev.give(SIZE, struct.pack("=IHH", s.viewer, 50, 132), ident=0)
    time.sleep(1)
    os.write(s.fd, b"sleep 2000 & echo started; exit 4\n")
    assert s.end() == 4
    wait_for(lambda: not any("sleep 2000" in line for line in inside(engine, run)), 20, lambda: inside(engine, run))
    assert any("sleep 1000" in line for line in inside(engine, run)), "the container's own program goes on"


def test_input(dev, run):
    s = Inside(dev, run, "cat", flags=INPUT)
    for i in range(100):
        os.write(s.fd, b"line %d\n" % i)
    s.expect(b"line 99\n")
    assert s.seen == b"".join(b"line %d\n" % i for i in range(100))
    with socket.socket(fileno=os.dup(s.fd)) as end:
        end.shutdown(socket.SHUT_WR)
    assert s.end() == 0


@pytest.mark.parametrize("flags", [0, INPUT, TTY | INPUT])
def test_leaving_ends_what_was_started(dev, run, engine, flags):        # noqa: F811
    s = Inside(dev, run, "sh", "-c", "sleep 2000 & trap '' HUP TERM; echo up; sleep 2001; sleep 2002", flags=flags)
    s.expect(b"up")
    wait_for(lambda: any("sleep 2000" in line for line in inside(engine, run)), 20, "it runs")
    dev.give(CLOSE, struct.pack("=I", s.viewer), ident=0)
    s.end()
    wait_for(lambda: not any("sleep 200" in line for line in inside(engine, run)), 20, lambda: inside(engine, run))
    assert any("sleep 1000" in line for line in inside(engine, run))
    assert dev.holders() == []


def test_the_end_of_the_container_ends_it(dev, run):
    s = Inside(dev, run, "sleep", "3000", flags=TTY | INPUT)
    time.sleep(1)
    dev.signal(run, 9)
    s.end()
    dev.wait("the end", lambda: run.info["state"] == ENDED, 60)
