"""Resume: what survives a lost link, byte for byte (protocol reference 14.6, sections 4.1, 4.3, 4.6).

Where it could go wrong: connectd's log channels (cursor, epoch, window per session: B17), its table of workloads (what it
lists while workerd is away, terminal status until delivered), workerd's retained output (offsets, acknowledgements).
"""

import pytest

from lib import proc
from lib.net import Proxy
from lib.proc import wait_for

pytestmark = pytest.mark.timeout(90)

TICK = "i=0; while [ $i -lt 100000 ]; do echo line $i; i=$((i+1)); sleep 0.02; done"


def lines_ok(data, at_least=1):
    lines = data.decode().splitlines(keepends=True)
    whole = [x for x in lines if x.endswith("\n")]
    assert [x.strip() for x in whole] == [f"line {i}" for i in range(len(whole))]
    assert len(whole) >= at_least
    return len(whole)


def offers(s):
    return {o["handle_id"]: o for o in s.hello.get("resume", [])}


def end(hub, run):
    hub.signal(run, "kill")
    hub.finish(run)


def test_offer_and_exact_continuation(agent, hub, dialect):
    agent()
    run = hub.start(TICK)
    for n in range(4):
        s = hub.session()
        before = run.log.received
        hub.wait("more output", lambda: run.log.received > before + 100, 10)
        s.cut(rst=n % 2 == 0)
        had = run.log.received
        t = hub.session(after=s)
        offer = offers(t)[run.handle]
        assert offer["log_offset"] >= had
        assert run.log.dup == 0, "bytes were sent again that the hub had"
    hub.wait("more output", lambda: run.log.received > 2000, 10)
    end(hub, run)
    lines_ok(run.text, 50)


def test_from_offset_zero_resends_everything(agent, hub, dialect):
    """A hub restored from its store knows the handle but no offset."""
    agent()
    hub.b.ack_logs = False
    run = hub.start(TICK)
    hub.wait("output", lambda: run.log.received > 500, 10)
    s = hub.session()
    s.cut()
    had = run.text
    run.log.received, run.log.segments = 0, []
    hub.session(after=s)
    hub.wait("all of it again", lambda: run.log.received > len(had), 10)
    assert run.text[:len(had)] == had
    end(hub, run)


def test_unknown_action_means_continue(agent, hub, dialect):
    agent()
    run = hub.start(TICK)
    hub.wait("output", lambda: run.log.received > 200, 10)
    hub.b.verdict = lambda s, o, r: s.bind_offer(o, r) or {
        "handle_id": o["handle_id"], "from_offset": r.log.received, "action": "ponder"}
    s = hub.session()
    s.cut()
    had = run.log.received
    hub.session(after=s)
    hub.wait("output goes on", lambda: run.log.received > had + 100, 10)
    end(hub, run)
    lines_ok(run.text)


def test_no_action_is_an_older_hub_and_means_continue(agent, hub):
    hub.b.edgeward = False
    agent()
    run = hub.start(TICK)
    hub.wait("output", lambda: run.log.received > 200, 10)
    hub.b.verdict = lambda s, o, r: {"handle_id": o["handle_id"], "from_offset": r.log.received}
    s = hub.session()
    s.cut()
    had = run.log.received
    hub.session(after=s)
    hub.wait("output goes on", lambda: run.log.received > had, 10)
    end(hub, run)


DYING = "trap 'echo dying; exit 3' TERM; echo ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize("verdict", ["terminate", "none"])
def test_terminate_or_no_verdict(agent, hub, dialect, verdict):
    """SIGTERM really reaches it; its dying output and exit code are still reported in this session; the slot is free."""
    a = agent(conf={"work": {"slots": 1}})
    run = hub.start(DYING)
    hub.wait("ready", lambda: run.log.received >= 6, 10)

    def answer(s, o, r):
        s.bind_offer(o, r)
        if verdict == "none":
            return None
        return {"handle_id": o["handle_id"], "from_offset": r.log.received, "action": "terminate", "reason": "abandoned"}
    hub.b.verdict = answer
    s = hub.session()
    s.cut()
    t = hub.session(after=s)
    wait_for(lambda: not proc.alive(run.started["pid"]), 10, "the process is gone")
    hub.finish(run)
    assert run.exit_code == 3 and run.state in ("exited", "killed")
    assert run.text == b"ready\ndying\n"
    assert hub.current is t, "reported in the same session"
    hub.b.verdict = None
    other = hub.start("echo next")
    hub.finish(other)
    assert a.pid("workerd")
    u = hub.current
    u.cut()
    v = hub.session(after=u)
    assert run.handle not in offers(v), "a disowned handle is not offered again"


def test_terminated_one_that_ignores_term_is_killed(agent, hub):
    agent(conf={"work": {"kill-grace": "500ms"}})
    run = hub.start("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    hub.wait("ready", lambda: run.log.received, 10)
    s = hub.session()
    hub.b.verdict = lambda s, o, r: s.bind_offer(o, r) or {"handle_id": o["handle_id"], "action": "terminate",
                                                           "from_offset": r.log.received}
    s.cut()
    wait_for(lambda: not proc.alive(run.started["pid"]), 10, "killed after the grace")


@pytest.mark.parametrize("offset", [-1, 10**6, 2**53, 2**63 - 1, "5", None, 1.5])
def test_nonsense_from_offset(agent, hub, offset):
    """A verdict that cannot be right costs at most that session; the work and the next session are fine."""
    hub.b.edgeward = False
    agent()
    run = hub.start(TICK)
    hub.wait("output", lambda: run.log.received > 200, 10)
    hub.b.verdict = lambda s, o, r: {"handle_id": o["handle_id"], "from_offset": offset, "action": "continue"}
    s = hub.session()
    s.cut()
    hub.wait("a later session or the same", lambda: len(hub.sessions) > 1 and hub.sessions[-1].hello, 10)
    hub.b.verdict = None
    hub.sessions[-1].cut()
    had = run.log.received
    hub.session(after=hub.sessions[-1])
    hub.wait("output goes on", lambda: run.log.received > had, 10)
    assert proc.alive(run.started["pid"])
    hub.allow("offered with log_offset|other bytes")
    end(hub, run)


def test_verdicts_for_handles_never_offered(device, hub):
    hub.b.welcome = lambda p: {**p, "resume_accepted": [
        {"handle_id": f"nobody{i}", "from_offset": i, "action": "terminate", "reason": "x"} for i in range(256)]}
    s = hub.session()
    s.cut()
    t = hub.session(after=s)
    hub.finish(hub.start("true", session=t))


def test_end_while_offline_is_delivered_once(agent, hub, dialect):
    agent()
    run = hub.start("read x < /dev/null; sleep 0.5; echo last words; exit 9")
    s = hub.session()
    hub.b.tcp = "rst"
    s.cut()
    wait_for(lambda: not proc.alive(run.started["pid"]), 10, "the process ends")
    hub.b.tcp = None
    t = hub.session(after=s)
    hub.finish(run)
    assert (run.state, run.exit_code, run.text) == ("exited", 9, b"last words\n")
    hub.delivered(run)
    t.cut()
    u = hub.session(after=t)
    hub.wait("beats", lambda: len(u.beats) >= 2, 5)
    assert run.handle not in offers(u) and run.handle not in u.beats[-1][2]
    assert len(run.terminals) == 1


def test_status_is_owed_until_a_later_beat_is_acked(agent, hub, dialect):
    """Delivered = the ack of a beat sent after the status arrived. Before that it is held, offered and sent again."""
    agent()
    hub.b.ack_beats = False
    s = hub.session()
    run = hub.start("echo out; exit 4")
    hub.finish(run)
    s.cut()
    t = hub.session(after=s)
    assert run.handle in offers(t), "forgotten although nobody confirmed it"
    hub.wait("the same status again", lambda: len(run.terminals) == 2, 10)
    assert run.terminals[0][1] == run.terminals[1][1]
    hub.wait("a beat", lambda: t.beats, 10)
    assert run.handle in t.beats[-1][2]
    hub.b.ack_beats = True
    hub.delivered(run)
    t.cut()
    u = hub.session(after=t)
    assert run.handle not in offers(u)
    assert len(run.terminals) == 2 and run.text == b"out\n"


def test_every_held_handle_is_listed_always(agent, hub, dialect):
    """A running handle missing from one heartbeat is failed by the hub at once: reconnects, connectd and workerd killed."""
    a = agent()
    runs = [hub.start("sleep 1000") for _ in range(3)]
    for role in ("connectd", "workerd", "privhelper"):
        s = hub.session()
        old = a.kill9(role)
        a.restarted(role, old)
        t = hub.session(after=s if role == "connectd" else None)
        hub.wait("beats", lambda: len(t.beats) >= 3, 10)
    s = hub.session()
    s.cut()
    t = hub.session(after=s)
    hub.wait("beats", lambda: len(t.beats) >= 3, 10)
    for run in runs:
        assert run.missing == [], f"{run.handle} was not listed in {run.missing}"
        assert proc.alive(run.started["pid"])
        end(hub, run)


def test_hello_waits_for_workerd(agent, hub):
    """An empty resume list disowns everything: no hello before workerd has answered."""
    a = agent()
    runs = [hub.start("sleep 1000") for _ in range(2)]
    for _ in range(3):
        s = hub.session()
        old = a.kill9("workerd")
        s.cut()
        a.restarted("workerd", old)
        t = hub.session(after=s)
        assert set(offers(t)) == {r.handle for r in runs}
        assert all(proc.alive(r.started["pid"]) for r in runs)
    for run in runs:
        end(hub, run)


def test_agent_that_moves_to_another_member_keeps_its_run(agent, hub, leaf):
    """Behind one address now answers another process that shares the store."""
    from lib.fakehub import FakeHub
    proxy = Proxy(hub.port)
    a = agent(conf={"hub": {"url": f"wss://localhost:{proxy.port}/api/executors/connect"}})
    run = hub.start(TICK)
    hub.wait("output", lambda: run.log.received > 200, 10)
    other = FakeHub(leaf).listen()
    other.credentials, other.runs = hub.credentials, hub.runs
    proxy.target = ("127.0.0.1", other.port)
    proxy.cut()
    other.session()
    had = run.log.received
    other.wait("output goes on", lambda: run.log.received > had, 10)
    end(other, run)
    lines_ok(run.text)
    assert a.pid("connectd") and not other.violations
    other.stop()
    proxy.close()


def test_heartbeat_does_not_wait_for_the_backlog(agent, hub, dialect):
    """15.23: beats start right after the welcome although a megabyte is to be sent again through a slow hub."""
    agent()
    hub.b.ack_logs = False
    run = hub.start("head -c 900000 /dev/zero | tr '\\0' x; sleep 1000")
    hub.wait("most of it", lambda: run.log.received > 800000, 15)
    s = hub.session()
    hub.b.extend = False
    s.cut()
    run.log.received, run.log.segments = 0, []
    t = hub.session(after=s)
    hub.wait("a beat", lambda: t.beats, 3)
    assert t.beats[0][0] - t.welcomed < 0.7
    hub.b.extend = hub.b.ack_logs = True
    t.extend_all()
    end(hub, run)


def test_b17_everything_of_a_session_is_built_anew(agent, hub, dialect):
    """After each of many reconnects every feature works once: start, output, signal, status, acknowledgement."""
    agent()
    for n in range(15):
        s = hub.session()
        run = hub.start("trap 'echo got; exit 0' TERM; echo up; while :; do sleep 0.02; done")
        hub.wait("up", lambda: run.log.received >= 3, 10)
        assert hub.status(run)["payload"]["status"]["state"] == "running"
        hub.signal(run)
        hub.finish(run)
        assert run.text == b"up\ngot\n" and run.exit_code == 0
        s.cut(rst=n % 2 == 0)
        hub.session(after=s)


def test_nothing_is_sent_from_a_stale_cursor(agent, hub, dialect):
    """The rewind comes first: a chatty workload must not send from where the old session had been."""
    agent()
    run = hub.start("while :; do echo 0123456789012345678901234567890123456789; done")
    for _ in range(6):
        s = hub.session()
        before = run.log.received
        hub.wait("output", lambda: run.log.received > before + 300000, 20)
        s.cut()
    hub.session(after=s)
    end(hub, run)
    assert run.log.gaps == []
    data = run.text
    want = b"0123456789012345678901234567890123456789\n"
    assert data == (want * (len(data) // len(want) + 1))[:len(data)]
