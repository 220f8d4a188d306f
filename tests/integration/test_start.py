"""Start, stop, status order, work directory, environment (protocol reference 14.8, 14.9, sections 4.2, 5.1, 5.2).

Where it could go wrong: connectd's decoding of `start` (bounds, which refusal is which frame), workerd's admission and
table of handles (idempotence, slots), the child's set-up in the launcher (work directory beneath the root, environment).
"""
import os
import stat
import threading

import pytest

from lib import proc
from lib.proc import wait_for
from lib.session import new_id

pytestmark = pytest.mark.timeout(90)


def error_of(hub, handle, payload, session=None):
    """Sends a start with this payload and returns the answer's frame."""
    return hub.request("start", payload, handle=handle, session=session)


def test_answer_repeats_the_id_and_names_a_real_pid(device, hub):
    run = hub.start("sleep 1000")
    assert len(run.answers) == 1 and run.answers[0]["type"] == "started"
    pid = run.started["pid"]
    assert proc.cmdline(pid) == ["sleep", "1000"] or b"sleep" in proc.read(f"/proc/{pid}/cmdline")
    status = hub.status(run)
    assert status["payload"]["status"]["pid"] == pid and status["payload"]["status"]["state"] == "running"
    assert status["payload"]["status"]["finished_at"].startswith("0001-01-01")
    answer = hub.signal(run)
    assert answer["type"] == "status" and answer["handle"] == run.handle
    hub.finish(run)
    assert run.state == "killed"


@pytest.mark.parametrize("code", [0, 1, 3, 42, 127, 128, 255])
def test_exit_codes(device, hub, code):
    run = hub.finish(hub.start(f"exit {code}"))
    assert (run.state, run.exit_code) == ("exited", code)


@pytest.mark.parametrize("sig", ["TERM", "KILL", "SEGV", "HUP", "USR1"])
def test_killed_by_a_signal(device, hub, dialect, sig):
    run = hub.finish(hub.start(f"echo before; kill -{sig} $$"))
    status = run.terminal["status"]
    assert run.state == "killed" and run.exit_code == -1 and status["error"], status
    assert run.text == b"before\n"


@pytest.mark.parametrize("name,number", [("interrupt", 2), ("terminate", 15), ("kill", 9)])
def test_the_three_signals(device, hub, dialect, name, number):
    run = hub.start("trap 'echo 2; exit 0' INT; trap 'echo 15; exit 0' TERM; echo up; while :; do sleep 0.02; done")
    hub.wait("up", lambda: run.log.received >= 3, 10)
    hub.signal(run, name)
    hub.finish(run)
    assert run.text == (b"up\n" if number == 9 else b"up\n%d\n" % number)
    assert run.state == ("killed" if number == 9 else run.state)


@pytest.mark.parametrize("payload", [{"signal": "stop"}, {"signal": ""}, {"signal": 15}, {}, {"signal": "TERM"}])
def test_signals_that_are_none(device, hub, payload):
    run = hub.start("sleep 1000")
    answer = hub.request("signal", payload, handle=run.handle)
    assert answer["type"] == "error" and answer["payload"]["code"] == "protocol"
    assert proc.alive(run.started["pid"])
    hub.signal(run, "kill")
    hub.finish(run)


def test_unknown_handles(device, hub):
    for kind, payload in (("signal", {"signal": "kill"}), ("status_req", {})):
        answer = hub.request(kind, payload, handle="nobody")
        assert answer["type"] == "error" and answer["payload"]["code"] == "unknown_handle"


def test_signal_to_a_finished_handle_is_a_success(device, hub):
    hub.b.ack_beats = False
    run = hub.finish(hub.start("true"))
    answer = hub.signal(run, "kill")
    assert answer["type"] == "status" and answer["payload"]["status"]["state"] in ("exited", "running")
    hub.b.ack_beats = True


def test_busy_at_the_limit_and_free_afterwards(agent, hub):
    agent(conf={"work": {"slots": 2}})
    runs = [hub.start("sleep 1000") for _ in range(2)]
    for _ in range(3):
        extra = hub.start("true", refused=True)
        assert extra.refused[0] == "busy" and extra.answers[0]["type"] == "error"
    hub.signal(runs[0], "kill")
    hub.delivered(runs[0])
    third = hub.start("sleep 1000")
    assert third.started
    for run in (runs[1], third):
        hub.signal(run, "kill")
        hub.finish(run)


def test_admission_is_exact_under_a_burst(agent, hub):
    """Check and insert are one step: of many starts at once exactly `slots` are taken."""
    agent(conf={"work": {"slots": 4}})
    s = hub.session()
    runs = [hub.send_start(["/bin/sleep", "1000"], session=s) for _ in range(12)]
    hub.wait("all answers", lambda: all(r.answers for r in runs), 15)
    good = [r for r in runs if r.started]
    assert len(good) == 4 and all(r.refused[0] == "busy" for r in runs if not r.started)
    for run in good:
        hub.signal(run, "kill")
        hub.finish(run)


def test_undelivered_results_do_not_block_slots_for_ever(agent, hub):
    """15.18: what has finished but was not delivered is still listed; a new start is possible once it was."""
    agent(conf={"work": {"slots": 1}})
    hub.b.ack_beats = False
    run = hub.finish(hub.start("true"))
    s = hub.session()
    hub.wait("a beat lists it", lambda: s.beats and run.handle in s.beats[-1][2], 5)
    hub.b.ack_beats = True
    hub.delivered(run)
    hub.finish(hub.start("true"))


def test_b54_a_repeated_start_is_the_same_start(device, hub, dialect):
    """While it runs, after it ended, over a reconnect, ten times at once: one process, the same answer."""
    run = hub.start("echo once; sleep 1000")
    first = run.answers[0]["payload"]
    for _ in range(3):
        hub.send_start(run.spec["argv"], handle=run.handle)
    hub.wait("answers", lambda: len(run.answers) == 4, 10)
    s = hub.session()
    s.cut()
    t = hub.session(after=s)
    for _ in range(6):
        hub.send_start(run.spec["argv"], handle=run.handle, session=t)
    hub.wait("answers", lambda: len(run.answers) == 10, 10)
    for answer in run.answers:
        assert answer["payload"]["pid"] == first["pid"] and answer["payload"]["started_at"] == first["started_at"]
    hub.signal(run, "kill")
    hub.finish(run)
    assert run.text == b"once\n"


def test_b54_start_again_after_the_end_does_not_run_again(device, hub):
    hub.b.ack_beats = False
    run = hub.finish(hub.start("echo once"))
    count = len(run.answers)
    hub.send_start(run.spec["argv"], handle=run.handle)
    hub.wait("answer", lambda: len(run.answers) == count + 1, 10)
    assert run.answers[-1]["type"] == "started" and "error" not in run.answers[-1]["payload"]
    assert run.text == b"once\n"
    hub.b.ack_beats = True
    hub.delivered(run)


def test_b54_signal_in_the_launch_window(device, hub):
    """15.25: a stop that arrives right behind its start is not lost, whatever state it meets."""
    s = hub.session()
    for _ in range(30):
        run = hub.send_start(["/bin/sleep", "1000"], session=s)
        ident = new_id()
        s.send("signal", {"signal": "terminate"}, handle=run.handle, id=ident)
        hub.wait("answer", lambda: run.answers, 10)
        if run.started:
            hub.finish(run, 10)
            assert run.state in ("killed", "failed")
        answer = s.wait("the answer", lambda i=ident: next((f for _, f in s.frames if f.get("id") == i), None), 5)
        assert answer["type"] == "status", answer


def test_command_that_does_not_exist(device, hub, dialect):
    run = hub.start(["/nonexistent/program"], refused=True)
    frame = run.answers[0]
    assert frame["type"] == "started" and frame["payload"]["started_at"].startswith("0001-01-01")
    assert "/nonexistent/program" in run.refused[1] or "No such file" in run.refused[1]
    run = hub.start(["no-such-command-anywhere"], refused=True)
    assert run.refused[1]
    hub.finish(hub.start("true"))


def test_program_that_may_not_be_executed(device, hub):
    for path in ("/etc/passwd", "/etc", "/dev/null"):
        run = hub.start([path], refused=True)
        assert run.answers[0]["type"] == "started"


def test_argv_is_not_a_shell_line(device, hub):
    run = hub.finish(hub.start(["/usr/bin/printf", "%s|", "a b", "$HOME", "*", ";x", "", "ä\n"]))
    assert run.text == "a b|$HOME|*|;x||ä\n|".encode()


def test_argv0_is_searched_in_path(device, hub):
    run = hub.finish(hub.start(["printf", "found"]))
    assert run.text == b"found"


@pytest.mark.parametrize("spec", [
    {}, {"argv": []}, {"argv": [""]}, {"argv": "ls"}, {"argv": [5]}, {"argv": ["a\0b"]}, {"argv": None},
    {"argv": ["x"], "env": "A=B"}, {"argv": ["x"], "env": ["NOEQUALS"]}, {"argv": ["x"], "env": ["=x"]},
    {"argv": ["x"], "env": ["A=\0"]}, {"argv": ["x"], "work_dir": 5}, {"argv": ["x"], "timeout_minutes": -1},
    {"argv": ["x"], "timeout_minutes": "5"}, {"argv": ["x"], "resource_limits": 5},
    {"argv": ["x"], "resource_limits": {"memory_mb": -1}}, {"argv": ["x"] * 5000},
])
def test_specs_that_are_none(device, hub, spec):
    answer = error_of(hub, "bad", {"handle_id": "bad", "spec": spec, "sandbox": {}})
    assert (answer["type"] == "error" and answer["payload"]["code"] == "protocol") or \
        (answer["type"] == "started" and answer["payload"].get("error")), answer
    hub.finish(hub.start("true"))


@pytest.mark.parametrize("handle", ["a/b", "..", "a b", "", "x" * 65, "ä", "a\nb", "."])
def test_handles_that_are_none(device, hub, handle):
    s = hub.session()
    s.send("start", {"handle_id": handle, "spec": {"argv": ["true"]}, "sandbox": {}}, handle=handle, id="bad1")
    wait_for(lambda: not s.alive or any(f.get("id") == "bad1" for _, f in s.frames), 10, "a reaction")
    hub.session()
    hub.finish(hub.start("true"))
    assert not os.path.exists(os.path.join(device.root, "b"))


def test_handle_of_the_payload_must_match(device, hub):
    answer = error_of(hub, "one", {"handle_id": "two", "spec": {"argv": ["true"]}, "sandbox": {}})
    assert answer["type"] == "error" and answer["payload"]["code"] == "protocol"


@pytest.mark.parametrize("more", [{"sandbox": {"mode": "container"}}, {"sandbox": {"mode": "magic"}}])
def test_what_this_device_cannot_do_is_refused_not_approximated(device, hub, more):
    answer = error_of(hub, "h", {"handle_id": "h", "spec": {"argv": ["true"], "resource_limits": {}}, **more})
    assert answer["type"] == "started" and answer["payload"]["error"], answer


@pytest.mark.parametrize("limits,word", [({"memory_mb": 64}, "memory"), ({"pids": 10}, "pids"),
                                         ({"cpu_millis": 500}, "cpu"), ({"disk_mb": 10}, "disk")])
def test_limits_are_held_or_refused_by_name(device, hub, limits, word):
    """A limit that cannot be enforced here refuses the start and names itself; it is never ignored."""
    run = hub.send_start(["/bin/cat", "/proc/self/cgroup"], limits=limits)
    hub.wait("answer", lambda: run.answers, 10)
    mount = proc.cgroup_mount()
    controllers = proc.read(mount + "/cgroup.controllers").decode().split() if mount else []
    held = {"memory": "memory", "pids": "pids", "cpu": "cpu"}.get(word) in controllers
    if run.refused:
        assert word in run.refused[1], run.refused
    else:
        assert held, "accepted a limit that nothing enforces"


WORKDIRS_GOOD = ["", ".", "a", "a/b/c", "./a//b/", "ä ö", "a/../b", "w" * 200]
WORKDIRS_BAD = ["/etc", "/", "..", "../..", "a/../../x", "../work-other", "/tmp", "x/../../../etc", "/proc/self/root",
                "link-out", "link-out/sub", "link-etc/ssh", "a\nb/../../..", "y" * 5000]


@pytest.mark.parametrize("where", WORKDIRS_GOOD)
def test_work_dirs_inside(device, hub, where):
    run = hub.finish(hub.start(["/bin/pwd"], work_dir=where))
    assert run.exit_code == 0
    assert os.path.normpath(run.text.decode().rstrip("\n")) == os.path.normpath(os.path.join(device.root, where))


def test_absolute_work_dir_below_the_root(device, hub):
    run = hub.finish(hub.start(["/bin/pwd"], work_dir=device.root + "/sub/dir"))
    assert run.text.decode().strip() == device.root + "/sub/dir"


@pytest.mark.parametrize("where", WORKDIRS_BAD)
def test_work_dirs_outside_are_refused_and_nothing_is_made(device, hub, where):
    """15.13: nothing may be created before it is known to be inside, not even through a link inside the root."""
    outside = os.path.join(device.dir, "outside")
    os.mkdir(outside)
    os.chmod(outside, 0o777)
    os.symlink(outside, os.path.join(device.root, "link-out"))
    os.symlink("/etc", os.path.join(device.root, "link-etc"))
    os.mkdir(device.root + "-other")
    run = hub.send_start(["/bin/pwd"], work_dir=where)
    hub.wait("answer", lambda: run.answers, 10)
    assert run.started is None, f"started in {where!r}"
    assert run.refused[0] in ("forbidden_path", "protocol"), run.refused
    assert os.listdir(outside) == [] and os.listdir(device.root + "-other") == []
    os.rmdir(device.root + "-other")


def test_work_dir_modes(device, hub):
    run = hub.finish(hub.start("id -u; stat -c '%a %u' .", work_dir="mine/deep"))
    uid, line = run.text.decode().split("\n")[:2]
    assert line == f"700 {uid}"
    top = os.stat(os.path.join(device.root, "mine"))
    assert stat.S_IMODE(top.st_mode) == 0o700 and str(top.st_uid) == uid


@pytest.mark.root
def test_one_uid_for_a_top_level_directory(device, hub):
    """A pool uid belongs to a work directory, not to a run: the second run finds its files; another does not."""
    first = hub.finish(hub.start("id -u; echo secret > file", work_dir="one"))
    again = hub.finish(hub.start("id -u; cat file", work_dir="one/sub/.."))
    other = hub.finish(hub.start("id -u; cat ../one/file; ls ../one", work_dir="two"))
    uid = first.text.decode().strip()
    assert again.text.decode().split() == [uid, "secret"]
    assert other.text.decode().split()[0] != uid and "secret" not in other.text.decode()
    assert int(uid) in device.pool
    assert device.stop() == []
    s = hub.current
    device.start()
    hub.session(after=s)
    third = hub.finish(hub.start("id -u; cat file", work_dir="one"))
    assert third.text.decode().split() == [uid, "secret"], "the uid of a directory must survive a restart"


DEFAULT_ENV = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR"}


def env_of(run):
    return dict(x.split("=", 1) for x in run.text.decode().split("\0") if x)


def test_environment_without_env(device, hub):
    run = hub.finish(hub.start(["/usr/bin/env", "-0"], work_dir="e"))
    env = env_of(run)
    assert set(env) == DEFAULT_ENV and env["LANG"] == "C.UTF-8"
    assert env["HOME"] == f"{device.root}/e"
    assert "/usr/bin" in env["PATH"] and env["SHELL"].startswith("/")


def test_environment_with_env_is_exactly_that(device, hub):
    run = hub.finish(hub.start(["/usr/bin/env", "-0"], work_dir="e",
                               env={"A": "1", "PATH": "/usr/bin:/bin", "HOME": "/here", "U": "ä=b", "E": ""}))
    assert env_of(run) == {"A": "1", "PATH": "/usr/bin:/bin", "HOME": "/here", "U": "ä=b", "E": ""}


def test_environment_floor(device, hub):
    """Without PATH or HOME in an explicit env there is a floor, and nothing else is added."""
    run = hub.finish(hub.start(["/usr/bin/env", "-0"], work_dir="e", env={"A": "1"}))
    env = env_of(run)
    assert env.pop("A") == "1" and set(env) <= {"PATH", "HOME"} and "PATH" in env


def test_home_is_usable(device, hub):
    run = hub.finish(hub.start("cd && touch here && test -O . && echo ok", work_dir="h"))
    assert run.text == b"ok\n", run.text


def test_tmpdir_is_usable(device, hub):
    run = hub.finish(hub.start('f=$(mktemp) && case $f in "$TMPDIR"/*) rm "$f" && echo ok;; esac', work_dir="h"))
    assert run.text == b"ok\n", run.text


def test_stdin_is_dev_null(device, hub):
    run = hub.finish(hub.start("readlink /proc/self/fd/0; cat; echo end"))
    assert run.text == b"/dev/null\nend\n"


def test_big_argv_and_env(device, hub):
    big = "x" * 100000
    run = hub.finish(hub.start(["/bin/sh", "-c", "echo ${#1} ${#V} $#", "sh", big] + ["y"] * 500, env={"V": big}), 20)
    assert run.text == b"100000 100000 501\n"


def test_start_of_nearly_a_mebibyte(device, hub):
    args = ["z" * 100000] * 9
    run = hub.finish(hub.start(["/bin/sh", "-c", "echo $#", "sh", *args]), 20)
    assert run.text == b"9\n"


def test_policy_forbids_starts(agent, hub):
    agent(policy={"work": {"start": "no"}})
    run = hub.start("true", refused=True)
    assert run.answers[0]["type"] == "started" and "policy.conf:2: start = no" in run.refused[1]
    assert run.refused[0] == "policy"


def test_policy_bounds_the_time(agent, hub, dialect):
    agent(policy={"limits": {"timeout": "1s"}})
    run = hub.finish(hub.start("trap '' TERM; echo up; sleep 1000"), 15)
    status = run.terminal["status"]
    assert run.state in ("killed", "failed") and "time" in status["error"], status
    if dialect == "edgeward":
        assert status["outcome"] == "timeout"


def test_drain_refuses_and_undrain_accepts(device, hub):
    run = hub.start("sleep 1000")
    got = device.ctl("drain")
    assert got.rc == 0
    refused = hub.start("true", refused=True)
    assert "drain" in refused.refused[1]
    assert proc.alive(run.started["pid"])
    s = hub.session()
    old = device.kill9("workerd")
    device.restarted("workerd", old)
    hub.wait("beats", lambda: len(s.beats) >= 2, 5)
    assert device.ctl("undrain").rc == 0
    hub.finish(hub.start("true"))
    hub.signal(run, "kill")
    hub.finish(run)


def test_b55_twenty_ends_with_one_acknowledgement_held_back(agent, hub, dialect):
    """Each report carries its own id: the hub holds back acknowledgements while jobs 2..20 start and end."""
    agent(conf={"work": {"slots": 32}})
    hub.b.ack_beats = False
    timer = threading.Timer(1.5, lambda: setattr(hub.b, "ack_beats", True))
    timer.start()
    runs = [hub.start(f"echo job {n}; exit {n}") for n in range(1, 21)]
    for n, run in enumerate(runs, 1):
        hub.delivered(run, 20)
        assert run.exit_code == n and run.text == b"job %d\n" % n and len({str(p) for _, p in run.terminals}) == 1
    timer.join()
