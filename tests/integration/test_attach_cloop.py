"""Attach on plain cloop (protocol reference, section 6 and 14.19): the frames of version 7 between connectd and a scripted hub that checks each of them.

Where the faults of the stock agent (15.8 to 15.11) could occur here: connectd/attach.c and attachcloop.c (stamps, order, who gets what, what is
kept), workerd/attach.c (limits, ends), workerd/launcher/attached.c (where the program runs).
"""
import base64
import os
import time

import pytest

from lib import proc
from lib.proc import wait_for
from lib.session import new_id
from test_leases import TOKEN, secret_file

pytestmark = pytest.mark.timeout(120)
POLICY = {"work": {"attach": "yes"}}
SHELL = ["/bin/sh"]


def b64(data):
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


class Attach:
    """One session of the hub's."""

    def __init__(self, hub, run, *argv, tty=False, stdin=True, session=None, handle=None, **more):
        self.hub, self.link = hub, hub.session()
        self.handle = handle or run.handle
        self.id, self.request = session or new_id("s"), new_id()
        payload = {"session_id": self.id, "tty": tty, "stdin": stdin, **more}
        if argv:
            payload["command"] = list(argv)
        self.link.send("attach_open", payload, handle=self.handle, id=self.request)
        self.answer = self.link.wait("the answer to attach_open", lambda: next((f for _, f in self.link.frames if f.get("id") == self.request), None), 20)

    @property
    def mine(self):
        return [f for _, f in self.link.frames if f["type"].startswith("attach_") and f["payload"]["session_id"] == self.id]

    @property
    def data(self):
        return b"".join(base64.b64decode(f["payload"]["data"], validate=True) for f in self.mine if f["type"] == "attach_data")

    @property
    def close(self):
        return next((f["payload"] for f in self.mine if f["type"] == "attach_close"), None)

    def opened(self):
        assert self.answer["type"] == "attach_opened" and self.answer["handle"] == self.handle, self.answer
        return self

    def refused(self):
        assert self.answer["type"] == "error" and not self.mine, (self.answer, self.mine)
        return self.answer["payload"]["code"], self.answer["payload"]["message"]

    def send(self, data, **envelope):
        self.link.send("attach_data", {"session_id": self.id, "data": b64(data)}, handle=self.handle, **envelope)

    def size(self, rows, cols):
        self.link.send("attach_resize", {"session_id": self.id, "rows": rows, "cols": cols}, handle=self.handle)

    def leave(self):
        self.link.send("attach_close", {"session_id": self.id}, handle=self.handle)

    def expect(self, text, timeout=20):
        text = text.encode() if isinstance(text, str) else text
        self.link.wait(f"{text} in what the session shows", lambda: text in self.data, timeout)
        return self

    def end(self, timeout=20):
        """Its exit code. The order at the end: the answer, bytes, attach_close, nothing more."""
        self.link.wait(f"attach_close behind {self.data[-300:]}", lambda: self.close, timeout)
        kinds = [f["type"] for f in self.mine]
        assert kinds == ["attach_opened"] + ["attach_data"] * (len(kinds) - 2) + ["attach_close"], kinds
        return self.close["exit_code"]


@pytest.fixture
def make(agent, hub):
    def factory(version=20, policy=None, **kw):
        hub.b.edgeward, hub.b.version = False, version
        a = agent(policy={**POLICY, **(policy or {})}, **kw)
        assert hub.session().version == min(version, 20)
        return a
    return factory


@pytest.fixture
def dev(make):
    return make()


@pytest.mark.parametrize("version", [7, 8, 13, 20])
def test_runs_in_the_workload_and_every_frame_has_the_sessions_version(make, hub, version):
    """The scripted hub takes a frame stamped otherwise for a violation (15.9)."""
    make(version)
    run = hub.start("pwd; readlink /proc/self/ns/mnt; sleep 600", work_dir="w")
    a = Attach(hub, run, "sh", "-c", "pwd; readlink /proc/self/ns/mnt; echo $1; exit 3", "sh", "arg").opened()
    assert a.answer["payload"] == {"session_id": a.id, "tty": False}
    assert a.end() == 3 and a.close["reason"] == "command exited"
    hub.wait("what the workload sees", lambda: run.text.count(b"\n") == 2)
    assert a.data == bytes(run.text) + b"arg\n", "inside of the workload, not beside it (15.8)"
    assert os.readlink("/proc/self/ns/mnt") not in a.data.decode()


def test_a_session_of_an_older_hub_has_no_attach(make, hub):
    make(6)
    run = hub.start("sleep 600")
    code, message = Attach(hub, run, "true").refused()
    assert code == "protocol" and "version" in message


def test_a_terminal(dev, hub):
    run = hub.start("sleep 600")
    a = Attach(hub, run, tty=True, rows=24, cols=80, env=["TERM=vt220", "EVIL=1", "PATH=/nowhere"]).opened()
    assert a.answer["payload"]["tty"] is True
    a.send("stty size; echo $TERM-$EVIL.; tty; env | grep -c nowhere\n")
    a.expect("24 80").expect("vt220-.").expect("/dev/pts/").expect("0\r\n")
    a.size(50, 250)
    a.send("sleep 0.2; stty size\n")
    a.expect("50 250")
    a.send("cat\nmarker\n")
    a.link.wait("the line and its echo", lambda: a.data.count(b"marker\r\n") == 2)
    a.send(b"\x03")
    a.expect("^C\r\n")       # the shell is back: what comes before that cat may still read
    a.send("exit 9\n")
    assert a.end() == 9
    assert Attach(hub, run, "sh", "-c", "echo $TERM").opened().end() == 0


def test_no_command_is_a_shell_and_a_terminal_needs_input(dev, hub):
    run = hub.start("sleep 600")
    a = Attach(hub, run, tty=True, stdin=True).opened()
    a.send("echo $((20+3)) $TERM; exit\n")
    assert a.end() == 0 and b"23 xterm-256color" in a.data
    a = Attach(hub, run, "sh", "-c", "tty", tty=True, stdin=False).opened()
    assert a.answer["payload"]["tty"] is False and a.end() == 1 and b"not a tty" in a.data
    a = Attach(hub, run, tty=False, stdin=True, command=[]).opened()
    a.send("echo piped; exit 4\n")
    assert a.end() == 4 and a.data == b"piped\n"


def test_read_only_has_no_input(dev, hub):
    run = hub.start("sleep 600")
    a = Attach(hub, run, "sh", "-c", "readlink /proc/self/fd/0; cat; sleep 1; echo end", stdin=False).opened()
    a.send("is dropped\n")
    assert a.end() == 0 and a.data == b"/dev/null\nend\n"


def test_both_streams_at_once(dev, hub):
    """15.10: errors that fill their pipe before a byte of output; nothing is lost, whatever is larger than a frame."""
    run = hub.start("sleep 600")
    a = Attach(hub, run, "sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' e >&2; echo done; head -c 1000000 /dev/zero | tr '\\0' o; exit 3").opened()
    assert a.end(60) == 3 and a.data.count(b"e") == 1000001 and a.data.count(b"o") == 1000001
    assert all(len(base64.b64decode(f["payload"]["data"])) <= 32768 for f in a.mine if f["type"] == "attach_data")


def test_two_sessions_do_not_mix(dev, hub):
    run, other = hub.start("sleep 600"), hub.start("sleep 600")
    a, b, c = (Attach(hub, r, "cat").opened() for r in (run, run, other))
    for i in range(50):
        for s, name in ((a, "a"), (b, "b"), (c, "c")):
            s.send(f"{name}{i}\n")
    for s, name in ((a, "a"), (b, "b"), (c, "c")):
        s.expect(f"{name}49\n")
        assert s.data.decode() == "".join(f"{name}{i}\n" for i in range(50))
    b.leave()
    b.end()
    a.send("still\n")
    a.expect("still\n")
    assert c.close is None


def test_what_is_refused(make, hub):
    make(policy={"attach": {"sessions": "3", "sessions-per-workload": "2"}})
    run = hub.start("sleep 600")
    done = hub.finish(hub.start("true"))
    assert Attach(hub, None, "true", handle="nobody").refused()[0] == "unknown_handle"
    assert Attach(hub, done, "true").refused()[0] == "unknown_handle"
    one, two = Attach(hub, run, "cat").opened(), Attach(hub, run, "cat").opened()
    code, message = Attach(hub, run, "cat").refused()
    assert code == "protocol" and "sessions-per-workload = 2" in message
    two.leave()
    two.end()
    code, message = Attach(hub, run, "/no/such/program").refused()
    assert code == "protocol" and "No such file" in message
    assert Attach(hub, run, "true").opened().end() == 0


def test_a_session_that_is_open_is_not_opened_twice(dev, hub):
    run = hub.start("sleep 600")
    a = Attach(hub, run, "cat").opened()
    ident = new_id()
    a.link.send("attach_open", {"session_id": a.id, "command": ["true"]}, handle=run.handle, id=ident)
    answer = a.link.wait("the answer", lambda: next((f for _, f in a.link.frames if f.get("id") == ident), None), 10)
    assert answer["type"] == "error" and answer["payload"]["code"] == "protocol"
    a.send("there\n")
    a.expect("there\n")


def test_by_policy(make, hub):
    make(policy={"work": {"attach": "no"}})
    code, message = Attach(hub, hub.start("sleep 600"), "true").refused()
    assert code == "protocol" and "attach = no" in message


@pytest.mark.parametrize("payload", [
    {}, {"session_id": ""}, {"session_id": 5}, {"session_id": "x" * 128}, {"session_id": "a\nb"}, {"session_id": "s", "command": "sh"},
    {"session_id": "s", "command": [1]}, {"session_id": "s", "command": [""]}, {"session_id": "s", "command": ["a"] * 300},
    {"session_id": "s", "command": ["a" * 200000]},
])
def test_malformed_opens_cost_an_answer_and_nothing_else(dev, hub, payload):
    run = hub.start("sleep 600")
    answer = hub.request("attach_open", payload, handle=run.handle)
    assert answer["type"] == "error" and answer["payload"]["code"] == "protocol", answer
    assert Attach(hub, run, "true").opened().end() == 0


def test_frames_about_sessions_that_are_not_there_are_dropped(dev, hub):
    run = hub.start("sleep 600")
    link = hub.session()
    before = len([f for _, f in link.frames if f["type"] == "error"])
    for kind, more in (("attach_data", {"data": b64("x")}), ("attach_resize", {"rows": 1, "cols": 1}), ("attach_close", {})):
        link.send(kind, {"session_id": "nobody", **more}, handle=run.handle)
        link.send(kind, {"session_id": "nobody", **more}, handle=run.handle, id=new_id())
        link.send(kind, {}, handle=run.handle)
    a = Attach(hub, run, "cat").opened()
    for size in ((0, 0), (-1, 5), (65536, 5), ("a", "b")):
        a.size(*size)
    a.link.send("attach_data", {"session_id": a.id, "data": b64("elsewhere\n")}, handle="another")
    a.send("")
    a.send("fine\n")
    a.expect("fine\n")
    assert a.data == b"fine\n" and before == len([f for _, f in link.frames if f["type"] == "error"])
    for data in ("!!!", b64("x" * 32769), 5, None):
        a.link.send("attach_data", {"session_id": a.id, "data": data}, handle=run.handle)
    a.send("x" * 32767 + "\n")
    a.expect("x" * 32767 + "\n")
    assert a.data == b"fine\n" + b"x" * 32767 + b"\n"


def test_leased_values_do_not_leave(dev, hub):
    run = hub.start("sleep 600", secret_files=[secret_file(TOKEN)])
    cat = "cat /run/secrets/*/token"
    # One process writes it: to start a sleep for each piece takes longer, on a busy machine, than a beginning is held back.
    slow = f"import os, time\nfor c in b'{TOKEN}':\n os.write(1, bytes([c]))\n time.sleep(0.005)"
    a = Attach(hub, run, "sh", "-c", f'{cat}; echo; /usr/bin/python3 -c "$1"; echo .', "sh", slow).opened()
    assert a.end() == 0 and TOKEN.encode() not in a.data and a.data == b"[redacted]\n[redacted].\n"


def test_sessions_end_with_the_connection(dev, hub):
    """What cloop says: all sessions die with it. Nothing they have started is left, and the workload goes on."""
    run = hub.start("sleep 600")
    mark = proc.mark()
    sessions = [Attach(hub, run, "sh", "-c", f"sleep 1{mark} & exec sleep 2{mark}").opened(),
                Attach(hub, run, "sleep", f"3{mark}", tty=True).opened()]
    mine = lambda: proc.marked(mark)     # noqa: E731
    wait_for(lambda: len(mine()) == 3, 10, "they run")
    hub.cut()
    wait_for(lambda: not mine(), 15, lambda: f"they are gone: {[proc.cmdline(p) for p in mine()]}")
    link = hub.session(after=sessions[0].link)
    assert not [f for _, f in link.frames if f["type"].startswith("attach_")]
    assert Attach(hub, run, "true").opened().end() == 0


def test_the_end_of_the_workload_ends_its_sessions(dev, hub):
    run = hub.start("sleep 600")
    a = Attach(hub, run, "sh", "-c", "echo up; sleep 4329").opened().expect("up\n")
    hub.signal(run, "kill")
    assert a.end() == -1 and "workload has ended" in a.close["reason"]
    assert hub.finish(run).state == "killed"


def test_a_program_that_does_not_read_costs_its_session_and_no_memory(dev, hub):
    run = hub.start("sleep 600")
    a = Attach(hub, run, "sleep", "600").opened()
    other = Attach(hub, run, "cat").opened()
    before = proc.rss_kb(dev.pid("connectd"))
    for _ in range(64):
        a.send(os.urandom(32768))
    a.link.wait("it is ended", lambda: a.close, 20)
    other.send("fine\n")
    other.expect("fine\n")
    assert proc.rss_kb(dev.pid("connectd")) - before < 16384, "what nobody reads is not kept"


def test_a_hub_that_does_not_read_holds_the_program_up(dev, hub):
    """There is no window on cloop: the link's own bound is the bound, and the program waits."""
    run = hub.start("sleep 600")
    a = Attach(hub, run, "sh", "-c", "exec head -c 30000000 /dev/zero").opened()
    hub.b.ack_beats = True
    a.link.stall()
    before = proc.rss_kb(dev.pid("connectd")), proc.rss_kb(dev.pid("workerd"))
    deadline = time.monotonic() + 1.2       # less than the silence that ends a session
    while time.monotonic() < deadline:
        assert proc.rss_kb(dev.pid("connectd")) - before[0] < 16384 and proc.rss_kb(dev.pid("workerd")) - before[1] < 8192
        time.sleep(0.1)
    a.link.stall(False)
    assert a.end(60) == 0 and len(a.data) == 30000000


def test_idle(make, hub):
    make(policy={"attach": {"idle": "2s"}})
    a = Attach(hub, hub.start("sleep 600"), "cat").opened()
    a.end(20)
    assert "idle" in a.close["reason"]


def test_a_killed_workerd_ends_them_with_a_word(dev, hub):
    run = hub.start("sleep 600")
    a = Attach(hub, run, "cat").opened()
    old = dev.pid("workerd")
    dev.kill9("workerd")
    dev.restarted("workerd", old)
    assert a.end(30) == -1
    wait_for(lambda: Attach(hub, run, "true").answer["type"] == "attach_opened", 20, "the next one opens")


def test_the_same_work_on_edgeward1_has_no_such_frames(agent, hub):
    agent(policy=POLICY)
    run = hub.start("sleep 600")
    answer = hub.request("attach_open", {"session_id": "s"}, handle=run.handle)
    assert answer["type"] == "error" and "stream_open" in answer["payload"]["message"]


def test_a_thousand_opens_and_closes_leave_nothing(dev, hub):
    """In every way there is, four at a time: descriptors, processes and memory are as before. 10 000 with EDGEWARD_SOAK=1."""
    n = 10000 if os.environ.get("EDGEWARD_SOAK") == "1" else 1000
    run = hub.start("sleep 6000")
    link = hub.session()
    pids = [dev.pid(name) for name in ("connectd", "workerd", "launcher")]

    def end(a):
        a.link.wait("attach_close", lambda: a.close, 30)

    def one(i):
        way = i % 8
        if way == 0:
            return Attach(hub, run, "true").opened()
        if way == 1:
            a = Attach(hub, run, tty=True).opened()
            a.send("exit\n")
            return a
        if way == 2:
            assert Attach(hub, run, "/no/such").answer["type"] == "error"
        elif way == 3:
            assert Attach(hub, None, "true", handle="nobody").answer["type"] == "error"
        elif way == 4:
            a = Attach(hub, run, "cat").opened()
            a.send("x" * 1000)
            a.leave()
            return a
        elif way == 5:
            return Attach(hub, run, "sh", "-c", "setsid sleep 1000 & sleep 1000 & exit 0").opened()
        elif way == 6:
            a = Attach(hub, run, "head", "-c", "100000", "/dev/zero", stdin=False).opened()
            a.leave()
            a.leave()
            return a
        else:
            a = Attach(hub, run, tty=True).opened()
            a.leave()
            return a
        return None

    def some(count):
        live = []
        for i in range(count):
            live += [a for a in [one(i)] if a is not None]
            if len(live) == 3:
                for a in live:
                    end(a)
                live.clear()
                hub.sync(link.frames.clear)
        for a in live:
            end(a)
        wait_for(lambda: not [p for p in proc.descendants(dev.pid("launcher")) if (s := proc.stat(p)) and s[0] in ("attach", "head", "cat")], 20, "all ended")
    some(64)
    fds, memory = [len(proc.settled_fds(p)) for p in pids], [proc.pss_kb(p) for p in pids]
    processes = len(proc.descendants(dev.pid("launcher")))
    some(n)
    wait_for(lambda: [len(proc.settled_fds(p)) for p in pids] == fds, 20, lambda: f"descriptors: {fds}, now {[len(proc.settled_fds(p)) for p in pids]}")
    assert len(proc.descendants(dev.pid("launcher"))) == processes
    grown = [proc.pss_kb(p) - m for p, m in zip(pids, memory)]
    assert all(g < (1024 if not proc.sanitized(p) else 16384) for g, p in zip(grown, pids)), grown
    events = dev.ctl("events").json["events"]
    assert any("times more" in e["text"] for e in events) or len(events) < 400
