"""kill -9 of each daemon at random under load: nothing is lost, nothing is told twice, work goes on (issue 2, points 4, 5).

Where it could go wrong: the introduction (fresh pairs), connectd's snapshot and resume after workerd's or its own restart,
workerd taking its workloads back from the launcher, durable records when the launcher dies.
"""
import hashlib
import os
import random
import signal
import time

import pytest

from lib import proc
from lib.agent import is_root
from lib.checks import CommonChecks
from lib.proc import wait_for

SOAK = os.environ.get("EDGEWARD_SOAK") == "1"
pytestmark = pytest.mark.timeout(600 if SOAK else 180)
COUNT = "for i in range({n}): print('line %09d' % i, flush=True); time.sleep({d})"


def py(code):
    return ["/usr/bin/python3", "-c", "import sys,os,time\n" + code]


def counted(n):
    return "".join(f"line {i:09d}\n" for i in range(n)).encode()


def kill_loop(a, hub, roles, rounds, rng, runs):
    for _ in range(rounds):
        before = [r.log.received for r in runs]
        hub.wait("output goes on", lambda: any(r.terminal or r.log.received > b + 50 for r, b in zip(runs, before)), 30)
        role = rng.choice(roles)
        old = a.kill9(role)
        a.restarted(role, old)
        hub.session(30)


@pytest.mark.parametrize("roles", [["connectd"], ["workerd"], ["privhelper"], ["connectd", "workerd", "privhelper"]],
                         ids=["connectd", "workerd", "privhelper", "all"])
def test_random_kills_under_load(agent, hub, dialect, roles):
    a = agent()
    rng = random.Random("".join(roles))
    n = 15000 if SOAK else 500
    slow = [hub.start(py(COUNT.format(n=n, d=0.01) + f"\nsys.exit({k + 1})")) for k in range(3)]
    pids = [r.started["pid"] for r in slow]
    kill_loop(a, hub, roles, 25 if SOAK else 5, rng, slow)     # run-foreground's own pause grows to 5 s
    for k, run in enumerate(slow):
        hub.finish(run, 300 if SOAK else 30)
        hub.delivered(run, 90)
        assert run.exit_code == k + 1 and run.log.gaps == []
        assert hashlib.sha256(run.text).digest() == hashlib.sha256(counted(n)).digest()
        assert run.missing == [], f"not listed in {run.missing}"
    assert not any(proc.alive(p) for p in pids)


@pytest.mark.parametrize("role", ["connectd", "workerd", "privhelper"])
def test_one_kill_with_the_common_checks(device, hub, role):
    """The other daemons keep their pids, the canary its pace; edgectl says in time which one is down."""
    with CommonChecks(device, hub, killed=[role]) as chk:
        old = device.kill9(role)
        device.restarted(role, old)
        hub.session()
        s = hub.session()
        n = len(s.beats)
        hub.wait("beats", lambda: len(s.beats) >= n + 4, 10)
    assert chk.polls


def test_exit_while_connectd_is_dead(agent, hub, dialect):
    a = agent()
    run = hub.start("sleep 0.4; echo bye; exit 11")
    for _ in range(3):
        old = a.kill9("connectd")
        a.restarted("connectd", old)
    hub.delivered(run, 20)
    assert (run.text, run.exit_code) == (b"bye\n", 11)


def test_exit_while_workerd_is_dead(agent, hub, dialect):
    """The end falls into the moment without workerd; the launcher has the status and hands it on."""
    a = agent()
    run = hub.start("sleep 0.3; echo bye; exit 12")
    for _ in range(4):
        old = a.kill9("workerd")
        a.restarted("workerd", old)
    hub.delivered(run, 20)
    assert (run.text, run.exit_code, run.state) == (b"bye\n", 12, "exited")


def test_signal_right_after_workerd_came_back(agent, hub):
    a = agent()
    run = hub.start("trap 'echo got; exit 2' TERM; echo up; while :; do sleep 0.02; done")
    hub.wait("up", lambda: run.log.received >= 3, 10)
    old = a.kill9("workerd")
    a.restarted("workerd", old)
    answer = hub.signal(run)
    if answer["type"] == "error":       # a refusal is legal while it is away, silence or a lie is not
        wait_for(lambda: hub.signal(run)["type"] == "status", 10, "signal accepted")
    hub.finish(run)
    assert run.text == b"up\ngot\n" and run.exit_code == 2


def test_launcher_killed_ends_the_work_once_as_lost(agent, hub, dialect):
    a = agent()
    runs = [hub.start(f"echo start {k}; sleep 1000", env={"MARK": "launcher-dies", "PATH": "/usr/bin:/bin"})
            for k in range(3)]
    for run in runs:
        hub.wait("its line", lambda r=run: r.log.received, 10)
    pids = [r.started["pid"] for r in runs]
    old = a.kill9("launcher")
    a.restarted("launcher", old)
    for run in runs:
        hub.delivered(run, 30)
        assert run.state == "failed" and len({s for s, _ in run.terminals}) == len(run.terminals)
        status = run.terminal["status"]
        assert status["error"], status
        if dialect == "edgeward":
            assert status["outcome"] == "lost", status
    wait_for(lambda: not any(proc.alive(p) for p in pids), 5, "the work is gone")
    if is_root():
        wait_for(lambda: not proc.by_uid(set(a.pool)), 5, "no process of the pool is left")
    after = hub.start("echo new; exit 1")
    hub.delivered(after)
    assert after.text == b"new\n"
    # The device itself tells what it lost, once, also after one more start of workerd.
    old = a.kill9("workerd")
    a.restarted("workerd", old)
    wait_for(lambda: a.ctl("status").json["workerd"]["work_up"], 10, "workerd is back")
    for run in runs:
        told = [e for e in a.ctl("events").json["events"] if e["subject"] == run.handle and e["event"] == "ended"]
        assert len(told) == 1 and "lost: " in told[0]["text"] and "restarted" in told[0]["text"], told


def test_everything_killed_at_once(agent, hub, dialect):
    a = agent()
    run = hub.start("echo start; sleep 1000")
    hub.wait("its line", lambda: run.log.received, 10)
    s = hub.session()
    old = a.pids()
    for role in ("connectd", "workerd", "launcher", "privhelper"):
        proc.kill(old[role])
    for role in old:
        a.restarted(role, old[role])
    hub.session(30, after=s)
    hub.delivered(run, 30)
    assert run.state == "failed"
    hub.finish(hub.start("true"))


def test_whole_agent_stopped_and_started(agent, hub, dialect):
    """An ordinary stop ends the work and says so: reported once after the next start."""
    a = agent()
    run = hub.start("echo start; sleep 1000")
    hub.wait("its line", lambda: run.log.received, 10)
    s = hub.session()
    assert a.stop() == []
    assert not proc.alive(run.started["pid"])
    a.start()
    hub.session(30, after=s)
    hub.delivered(run, 30)
    assert run.state in ("failed", "killed") and run.terminal["status"]["error"]


@pytest.mark.parametrize("role", ["connectd", "workerd", "privhelper", "launcher"])
def test_a_frozen_daemon_holds_up_nobody_else(device, hub, role):
    """SIGSTOP: the others answer edgectl in time, and all is well after SIGCONT."""
    pid = device.kill9(role, signal.SIGSTOP)
    try:
        for _ in range(3):
            got = device.ctl("status")
            assert got.rc in (0, 3, 4), got
            time.sleep(0.3)         # asked over a while: the first answers may still come from a buffer
    finally:
        os.kill(pid, signal.SIGCONT)
    s = hub.session(20)
    assert s and device.pid(role) == pid
    run = hub.start("echo fine", timeout=15)
    hub.finish(run)
    assert run.text == b"fine\n"
