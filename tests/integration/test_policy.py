"""The device's policy: what a start may have, who says so, and how it is changed (policy.conf(5)).

Where it could go wrong: common/policy.c and common/keyfile.c (owner, mode, lines), workerd/permit.c and admit.c (the decision),
the reload in workerd's and connectd's main.c, edgectl/policy.c and workerd/ctlpolicy.c (the dry run must judge as a start is
judged and leave nothing behind).
"""
import json
import os
import signal
import subprocess

import pytest

from lib import fakedaemon as fd
from lib.agent import exe, is_root
from lib.jsonschema import validate
from lib.proc import wait_for
from lib.session import new_id

pytestmark = pytest.mark.timeout(90)
SCHEMA = json.load(open(os.path.join(fd.REPO, "edgectl/edgectl.schema.json"), encoding="utf-8"))
SLEEP = "/bin/sleep"


def rewrite(a, text, mode=0o644):
    """As an editor does it: a new file over the old one."""
    with open(a.policy_file + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(a.policy_file + ".new", mode)
    os.rename(a.policy_file + ".new", a.policy_file)


def policy(a, rc=0):
    got = a.ctl("policy")
    assert got.rc == rc, got
    assert validate(got.json, SCHEMA["$defs"]["policy"], SCHEMA) == []
    return got.json


def line(a, section, key):
    return next((k["values"], k["line"]) for k in policy(a)["keys"] if (k["section"], k["key"]) == (section, key))


def judge(a, payload, json_out=True):
    got = a.ctl("policy", "test", payload if isinstance(payload, str) else json.dumps(payload), json_out=json_out)
    if json_out and got.out:
        assert validate(got.json, SCHEMA["$defs"]["policy-test"], SCHEMA) == []
    return got


def health(hub):
    beats = [f["payload"].get("health", []) for _, f in hub.session().frames if f.get("type") == "heartbeat"]
    return beats[-1] if beats else []


def test_the_network_of_a_start(agent, hub):
    """As a hub writes it, through the same decoder: the line, and the address that is not inside."""
    a = agent(policy={"work": {"network": "filtered"}, "network": {"allow": "10.0.0.0/8 fd00::/8", "deny": "10.9.0.0/16", "ports": "443"}})
    for spec, want in (({"egress_rules": {"allow_cidrs": ["10.0.0.0/7"], "allow_ports": [443]}}, "address 11.0.0.0 is not inside"),
                       ({"egress_rules": {"allow_cidrs": ["10.1.0.0/16"]}}, "port (every one) is not inside"),
                       ({"egress_rules": {"resolvers": ["10.0.0.53"]}}, "resolver 10.0.0.53:53 is not inside"),
                       ({"egress_rules": {"allow_public_internet": True, "allow_ports": [443]}}, "is not inside")):
        got = judge(a, {"spec": {"argv": ["/bin/true"], **spec}})
        assert got.rc == 1 and got.json["code"] == "policy" and got.json["error"].startswith("policy.conf:2: network = filtered"), got
        assert want in got.json["error"], got
    for spec in ({"disable_network": True}, {"egress_rules": {}}, {"egress_rules": {"allow_cidrs": ["10.9.1.0/24"], "allow_ports": [443]}}):
        got = judge(a, {"spec": {"argv": ["/bin/true"], **spec}})
        assert got.rc == 0 and got.json["network"] == "none", spec      # less than the policy's: nothing
    assert line(a, "network", "allow") == (["10.0.0.0/8", "fd00::/8"], 5)


def test_refusals_name_the_line(agent, hub, dialect):
    a = agent(policy={"work": {"programs": f"{SLEEP} /bin/true"}, "limits": {"timeout": "2m", "memory": "64M"}})
    for argv, spec, want in ((["/bin/sh"], {}, "policy.conf:2: programs: /bin/sh is not in the list"),
                             (["/bin/../bin/true"], {}, "policy.conf:2: programs"),
                             (["/bin/true"], {"env": ["A=b", "LD_PRELOAD=./x.so"]}, "policy.conf:2: programs: the variable LD_PRELOAD can"),
                             (["/bin/true"], {"timeout_minutes": 3}, "policy.conf:5: timeout = 120s; this start asks for 180 s"),
                             (["/bin/true"], {"resource_limits": {"memory_mb": 65}}, "policy.conf:6: memory = 64M")):
        run = hub.start(argv, refused=True, **spec)
        assert want in run.refused[1], run.refused
        assert run.refused[0] == ("policy" if dialect == "edgeward" else "started")
    assert a.ctl("status").json["workerd"]["refused"] == 5


def test_a_bare_name_is_the_program_of_the_list(agent, hub):
    """Whatever PATH the hub sends: a directory of its own cannot stand in for a program that is allowed."""
    a = agent(policy={"work": {"programs": "/bin/echo"}})
    evil = os.path.join(a.root, "evil")
    os.mkdir(evil)
    with open(os.path.join(evil, "echo"), "w", encoding="ascii") as f:
        f.write("#!/bin/sh\n/bin/echo evil\n")
    os.chmod(evil, 0o755)
    os.chmod(os.path.join(evil, "echo"), 0o755)
    run = hub.finish(hub.start(["echo", "good"], env=[f"PATH={evil}:/bin"]))
    assert run.text == b"good\n"


def test_a_start_that_asks_for_nothing_gets_the_default(agent, hub):
    a = agent(policy={"limits": {"timeout": "1h", "timeout-default": "1s"}})
    run = hub.finish(hub.start([SLEEP, "1000"]), 15)
    assert run.state == "killed" and "time" in run.terminal["status"]["error"]
    assert judge(a, {"spec": {"argv": ["true"]}}).json["timeout_s"] == 1


def test_a_timeout_below_a_minute_under_a_ceiling(agent, hub):
    """Frames have whole minutes. What was asked for to the second is what the ceiling is compared with, and never exceeded."""
    a = agent(policy={"limits": {"timeout": "5s"}})
    a.connected()       # before, a start is refused because nobody knows the machine yet

    def ask(seconds, minutes=1):
        return judge(a, {"spec": {"argv": ["true"], "timeout_minutes": minutes, "labels": {"edgeward.timeout": seconds}}})
    assert ask("4").json["timeout_s"] == 5
    assert "asks for 6 s" in ask("6").json["error"] and "asks for 60 s" in judge(a, {"spec": {"argv": ["true"], "timeout_minutes": 1}}).json["error"]
    for bad in ("61", "0", "", "04", "4s", "-1", "99999999999999999999", 4):
        assert "edgeward.timeout" in str(ask(bad).json), bad
    run = hub.finish(hub.start([SLEEP, "1000"], timeout_minutes=1, labels={"edgeward.timeout": "4"}), 15)
    assert run.state == "killed" and "time" in run.terminal["status"]["error"]


def test_policy_shows_every_key_with_its_line(agent):
    a = agent(start=False)
    rewrite(a, "[work]\n# two lines\nprograms = /bin/true\nprograms = /bin/false /bin/echo\n\n[limits]\nmemory = 1G\n")
    a.start()
    wait_for(lambda: a.ctl("policy").rc == 0, 10, "workerd answers")
    assert line(a, "work", "programs") == (["/bin/true", "/bin/false", "/bin/echo"], 3)
    assert line(a, "limits", "memory") == (["1G"], 7)
    assert line(a, "work", "start") == (["yes"], None)
    doc = policy(a)
    assert doc["file"] == a.policy_file and doc["complete"] and not doc["denied"] and doc["problem"] == ""
    text = a.ctl("policy", json_out=False).out
    assert "line 3" in text and "/bin/true /bin/false /bin/echo" in text and "default    work        start           yes" in text


def test_a_test_judges_as_a_start_is_judged_and_makes_nothing(agent, hub):
    a = agent(conf={"work": {"slots": 1}}, policy={"work": {"programs": f"{SLEEP} /bin/true"}, "limits": {"timeout": "10m"}})
    a.connected()
    good = {"argv": ["/bin/true"], "work_dir": "made/deep"}
    cases = [good, {"argv": ["/bin/sh"]}, {"argv": ["/bin/true"], "work_dir": "../out"}, {"argv": []},
             {"argv": ["/bin/true"], "timeout_minutes": 11}, {"argv": ["/bin/true"], "devices": [{"name": "x"}]},
             {"argv": ["/bin/true"], "resource_limits": {"disk_mb": 5}}, {"argv": ["/bin/true"], "env": ["A"]},
             {"argv": ["/bin/true"], "env": ["A=" + "x" * 100000]}]
    for spec in cases:
        said = judge(a, {"spec": spec})
        assert not os.path.exists(os.path.join(a.root, "made"))
        run = hub.start(spec.pop("argv"), refused=said.rc != 0, **spec)
        assert said.rc in (0, 1) and said.json["accepted"] == (said.rc == 0)
        if said.rc == 0:
            hub.finish(run)
            hub.delivered(run)
            if os.path.exists(os.path.join(a.root, "made")):
                subprocess.run(["rm", "-rf", os.path.join(a.root, "made")], check=True)
        else:
            assert run.refused[1] == said.json["error"], (said, run.refused)
    before = a.ctl("status").json["workerd"]
    busy = hub.start([SLEEP, "1000"])
    said = judge(a, {"spec": {"argv": ["/bin/true"]}})
    assert said.rc == 1 and said.json["code"] == "busy" and "all 1 slots" in said.json["error"]
    after = a.ctl("status").json["workerd"]
    assert (after["started"], after["refused"]) == (before["started"] + 1, before["refused"])
    hub.signal(busy, "kill")
    hub.finish(busy)


def test_what_a_test_takes(device):
    frame = {"v": 1, "type": "start", "handle": "h", "payload": {"handle_id": "h", "spec": {"argv": ["/bin/true"]}}}
    assert judge(device, frame).rc == 0
    assert judge(device, frame, json_out=False).out == "accepted: /bin/true, network host\n"
    p = subprocess.run([exe("edgectl"), "-r", device.run, "policy", "test", "-"], input=json.dumps(frame), text=True,
                       capture_output=True, timeout=10, check=False, env={"ASAN_OPTIONS": "detect_leaks=1"})
    assert p.returncode == 0 and p.stdout.startswith("accepted"), p
    for bad, word in (("{", "no JSON"), ("[]", "the start holds no spec"), ('{"spec": 1}', "the start holds no spec"),
                      ('{"spec": {"argv": [1]}}', "argv")):
        got = judge(device, bad, json_out=False)
        assert got.rc == 1 and word in got.out + got.err, got
    for args in (["policy", "test"], ["policy", "show"], ["policy", "test", "{}", "x"]):
        assert device.ctl(*args).rc == 2


def test_reload_changes_the_policy_and_touches_nothing_that_runs(agent, hub):
    hub.b.edgeward = True
    a = agent()
    s = a.connected()
    run = hub.start("trap 'echo end; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    hub.wait("up", lambda: run.log.received >= 3, 10)
    net, work = a.pid("connectd"), a.pid("workerd")
    rewrite(a, "[work]\nprograms = /bin/true\n[limits]\ntimeout = 1s\n")
    for role in ("connectd", "launcher"):
        os.kill(a.pid(role), signal.SIGHUP)
    a.restarted("workerd", work)
    wait_for(lambda: "has been read again" in a.log_text(), 10, "connectd has read it")
    wait_for(lambda: a.ctl("policy").rc == 0, 10, "workerd answers")
    wait_for(lambda: a.ctl("status").json["workerd"].get("work_up"), 10, "the work channel is up")
    assert "policy.conf:2: programs" in hub.start("true", refused=True).refused[1]
    # The ceiling of time is for what comes: what runs had none.
    work = a.pid("workerd")
    assert hub.finish(hub.start(["/bin/true"])).exit_code == 0
    # A bad one: both keep what they have, and say where it is wrong.
    rewrite(a, "[work]\nprograms = /bin/true\nprogrammes = /bin/sh\n")
    for role in ("connectd", "launcher"):
        os.kill(a.pid(role), signal.SIGHUP)
    wait_for(lambda: a.log_text().count("policy.conf:3: unknown key: [work] programmes (did you mean programs?); what was in force before") == 2, 10,
             "both have said so")
    assert a.pid("workerd") == work and a.pid("connectd") == net and s.alive
    status = a.ctl("status").json
    for role in ("connectd", "workerd"):
        assert status[role]["cause"] == "policy-bad" and "policy.conf:3" in status[role]["detail"], status[role]
    hub.wait("the heartbeat tells", lambda: "policy-bad" in health(hub), 10)
    assert line_of_problem(a) == 3
    assert "policy.conf:2: programs" in hub.start("true", refused=True).refused[1]
    rewrite(a, "[work]\nattach = no\n")
    for role in ("connectd", "launcher"):
        os.kill(a.pid(role), signal.SIGHUP)
    a.restarted("workerd", work)
    wait_for(lambda: a.ctl("status").json["connectd"]["cause"] == "", 10, "all is well again")
    wait_for(lambda: a.ctl("status").json["workerd"].get("work_up"), 10, "the work channel is up")
    hub.signal(run, "terminate")
    hub.finish(run)
    assert run.text == b"up\nend\n" and run.exit_code == 0


def test_a_file_that_was_changed_and_not_read_again_is_told(agent):
    """By status, doctor and edgectl policy, for each of the two files and each daemon, until it is in force."""
    a = agent(policy={"work": {"attach": "no"}})
    a.connected()

    def told():
        s = a.ctl("status").json
        return [s[role]["cause"] == "config-changed" and s[role]["detail"] for role in ("connectd", "workerd")]

    def reload(*roles):
        old = a.pid("workerd")
        for role in roles:
            os.kill(a.pid(role), signal.SIGHUP)
        if "launcher" in roles:
            a.restarted("workerd", old)
            wait_for(lambda: a.ctl("status").json["workerd"]["work_up"], 10, "the work channel is up")
    assert told() == [False, False] and a.ctl("policy").json["changed"] is False
    for path in (a.conf_file, a.policy_file):
        os.utime(path)
        assert told() == [False, False] and a.ctl("policy").rc == 0, "touched, and the same is in it"
        with open(path, "rb") as f:
            same = f.read()
        with open(path + ".new", "wb") as f:
            f.write(same)
        os.rename(path + ".new", path)
        assert told() == [False, False] and a.ctl("policy").rc == 0, "written again, and the same is in it"
    rewrite(a, "[work]\nattach = yes\n")
    assert all(a.policy_file in text and f"systemctl reload edgeward-{role}" in text for text, role in zip(told(), ("connectd", "workerd")))
    got = a.ctl("policy")
    assert got.rc == 3 and got.json["changed"] is True and got.json["problem"] == "" and "systemctl reload" in got.err
    doctor = {c["check"]: c for c in a.ctl("doctor", "-c", a.conf_file, "-p", a.policy_file, "-s", a.dir, timeout=60).json["checks"]}
    assert all(doctor[name]["state"] == "warn" and doctor[name]["cause"] == "config-changed" for name in ("in-force", "work")), doctor
    reload("connectd", "launcher")
    wait_for(lambda: told() == [False, False], 10, told)
    assert a.ctl("policy").rc == 0
    os.unlink(a.policy_file)
    assert all(told())
    rewrite(a, "[work]\nattach = yes\n")
    reload("connectd", "launcher")
    wait_for(lambda: told() == [False, False], 10, told)
    with open(a.conf_file, "a", encoding="utf-8") as f:
        f.write("# a word\n")
    assert "systemctl restart edgeward-connectd" in told()[0] and not told()[1], "nothing in it is for workerd"
    with open(a.conf_file, encoding="utf-8") as f:
        text = f.read()
    with open(a.conf_file, "w", encoding="utf-8") as f:
        f.write(text.replace("[work]\n", "[work]\nkill-grace = 7s\n"))
    assert "systemctl restart edgeward-connectd" in told()[0] and a.conf_file in told()[1]
    reload("launcher")
    wait_for(lambda: not told()[1], 10, told)
    assert told()[0]


def line_of_problem(a):
    got = a.ctl("policy")
    assert got.rc == 3 and "stays in force" in got.err and not got.json["denied"]
    return int(got.json["problem"].split(":")[1])


@pytest.mark.parametrize("text,where", [("[work]\nstrat = no\n", ":2: unknown key"), ("[limits]\npids = many\n", ":2: bad value"),
                                        ("junk\n", ":1: not a section")])
def test_a_bad_policy_at_start_keeps_the_device_and_starts_nothing(agent, hub, text, where):
    hub.b.edgeward = True
    a = agent(start=False)
    rewrite(a, text)
    for name in ("connectd", "launcher"):
        extra = ["-w", exe("workerd")] if name == "launcher" else []
        p = subprocess.run([exe(name), "-n", "-c", a.conf_file, "-p", a.policy_file, *extra], capture_output=True, text=True,
                           timeout=20, check=False, env={"ASAN_OPTIONS": "detect_leaks=0"})
        assert p.returncode == 1 and a.policy_file + where in p.stderr and len(p.stderr.splitlines()) == 1, p
    a.start()
    a.connected()
    run = hub.start("true", refused=True)
    assert run.refused[0] == "policy" and a.policy_file + where in run.refused[1], run.refused
    hub.wait("the heartbeat tells", lambda: "policy-bad" in health(hub), 10)
    doc = policy(a, rc=3)
    assert doc["denied"] and doc["keys"] == [] and where in doc["problem"]


@pytest.mark.root
@pytest.mark.parametrize("owner,mode,want", [("work", 0o644, "must belong to root: chown root"),
                                             ("net", 0o644, "must belong to root: chown root"),
                                             ("root", 0o664, "chmod go-w"), ("root", 0o646, "chmod go-w")])
def test_a_policy_that_others_could_change_is_none(agent, hub, owner, mode, want):
    a = agent(start=False)
    rewrite(a, "[work]\nstart = yes\n", mode)
    uid = {"work": a.work_uid, "net": a.net_uid, "root": 0}[owner]
    os.chown(a.policy_file, uid, uid)
    a.start()
    a.connected()
    assert want in hub.start("true", refused=True).refused[1]


def test_a_link_is_no_policy(agent, hub):
    """Whose it is would be the link's word, and what is read another place's."""
    a = agent(start=False)
    rewrite(a, "[work]\nstart = yes\n")
    os.rename(a.policy_file, a.policy_file + ".real")
    os.symlink(a.policy_file + ".real", a.policy_file)
    a.start()
    a.connected()
    assert "policy.conf: a symbolic link; put the file itself there" in hub.start("true", refused=True).refused[1]


def test_the_owner_of_everything_may_own_it(device, hub):
    """run-foreground by an ordinary user: there is no root, so its own file counts. As root: root's."""
    rewrite(device, "[work]\nprograms = /bin/true\n")
    assert os.stat(device.policy_file).st_uid == os.stat(device.run).st_uid == os.geteuid()
    work = device.pid("workerd")
    os.kill(device.pid("launcher"), signal.SIGHUP)
    device.restarted("workerd", work)
    wait_for(lambda: device.ctl("policy").rc == 0, 10, "workerd answers")
    assert line(device, "work", "programs") == (["/bin/true"], 2)


def test_no_frame_changes_the_policy(agent, hub):
    """What looks like policy in a start is not read as one."""
    a = agent(policy={"work": {"programs": "/bin/true"}})
    a.connected()
    before = policy(a)
    for extra in ({"policy": {"programs": "any"}}, {"programs": ["/bin/sh"]}, {"work": {"start": True}}):
        run = hub.start(["/bin/sh"], refused=True, **extra)
        assert "programs" in run.refused[1]
    for kind in ("policy", "reload", "set_policy"):
        hub.session().send(kind, {"work": {"programs": "any"}}, id=new_id())
    assert "programs" in hub.start(["/bin/sh"], refused=True).refused[1]
    assert policy(a) == before


def test_slots_and_environment(agent, hub):
    a = agent(conf={"work": {"slots": 8}}, policy={"limits": {"slots": 1, "environment": "64"}})
    assert a.connected().hello["capabilities"]["max_concurrent"] == 1
    run = hub.start([SLEEP, "1000"])
    extra = hub.start("true", refused=True)
    assert extra.refused[0] == "busy" and "policy.conf:2: slots" in extra.refused[1], extra.refused
    hub.signal(run, "kill")
    hub.finish(run)
    hub.delivered(run)
    assert "policy.conf:3: environment = 64 bytes" in hub.start("true", refused=True, env=["A=" + "x" * 63]).refused[1]
    assert hub.finish(hub.start("true", env=["A=" + "x" * 60])).exit_code == 0


def test_who_may_ask(device):
    """Root and the operators, as for every other question."""
    if not is_root():
        pytest.skip("skipped: needs root to become somebody else")
    assert device.ctl("policy", user=(device.pool[0], device.pool_gid, [])).rc == 5
    assert device.ctl("policy", user=(device.pool[0], device.pool_gid, [device.operator_gid])).rc == 0


def test_output_ends_at_its_ceiling(agent, hub, dialect):
    """The limit is named, what was written by then is all there, and less than that is nobody's business."""
    agent(policy={"limits": {"output": "100K"}})
    run = hub.finish(hub.start("head -c 102400 /dev/zero; exit 3"))
    assert (run.state, run.exit_code, run.log.received) == ("exited", 3, 102400)
    run = hub.finish(hub.start("yes; exit 4"), 20)
    status = run.terminal["status"]
    assert run.state == "killed" and "102400 bytes of output" in status["error"], status
    assert run.terminal["final_offset"] == run.log.received > 102400
    if dialect == "edgeward":
        assert (status["outcome"], status["limit"]) == ("limit", "output")


def test_a_ceiling_of_output_is_of_the_start_and_outlives_workerd(agent, hub):
    """What a reload lowers is for what comes; a workerd that was killed remembers what a workload was given."""
    a = agent(policy={"limits": {"output": "1M"}})
    hub.b.edgeward = True
    run = hub.start("echo up; while [ ! -e go ]; do sleep 0.05; done; exec yes", work_dir="w")
    hub.wait("up", lambda: run.log.received >= 3, 10)
    rewrite(a, "[limits]\noutput = 4K\n")
    a.restarted("workerd", a.kill9("workerd"))
    wait_for(lambda: a.ctl("policy").rc == 0, 10, "workerd answers")
    assert line(a, "limits", "output") == (["4K"], 2)
    wait_for(lambda: a.ctl("status").rc == 0, 10, "connectd has the new workerd: before, it refuses")
    hub.finish(hub.start("touch go", work_dir="w"))
    hub.finish(run, 30)
    assert "1048576 bytes of output" in run.terminal["status"]["error"]


def test_a_ceiling_that_cannot_be_kept_refuses_and_one_that_can_is(agent, hub):
    """A limit of the device's own is worth no less than one a hub asked for: never ignored."""
    hub.b.edgeward = True
    a = agent(policy={"limits": {"memory": "64M"}})
    a.connected()
    if "memory" not in caps_limits(hub):
        for limits, want in (({}, "policy.conf:2: memory: the cgroup controller memory is not delegated"),
                             ({"memory_mb": 32}, "resource limit memory: its cgroup controller is not delegated")):
            run = hub.start("true", refused=True, limits=limits)
            assert run.refused[0] == "unsupported" and want in run.refused[1], run.refused
        pytest.skip("skipped: no memory controller here: refusing was tested, the limit itself is by tests/vm")
    hog = "exec python3 -c 'b = bytearray(1 << 28); print(len(b))'"
    run = hub.finish(hub.start(hog), 30)
    status = run.terminal["status"]
    assert (status["outcome"], status["limit"]) == ("limit", "memory") and "limit of memory" in status["error"], status


def caps_limits(hub):
    return hub.session().hello["capabilities"]["sandbox"]["limits"]


def test_a_limit_of_processes_explains_the_failure(agent, hub):
    hub.b.edgeward = True
    a = agent(policy={"limits": {"pids": 8}})
    a.connected()
    if "pids" not in caps_limits(hub):
        assert "policy.conf:2: pids: the cgroup controller pids" in hub.start("true", refused=True).refused[1]
        pytest.skip("skipped: no pids controller here: refusing was tested, the limit itself is by tests/vm")
    run = hub.finish(hub.start("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1 & done; wait; exit 5"), 20)
    assert run.exit_code != 0 and "limit of processes" in run.terminal["status"]["error"], run.terminal
