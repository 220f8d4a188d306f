"""Workloads in containers (issue 3 point 9, protocol reference 5.4 to 5.6, 5.12, 14.20 to 14.23): a real podman with an image made here, and a
strict fake of a client for the arguments. B46 and B61: a container outlives whoever started it, so every end is looked at from the engine's side.

Where it could go wrong: workerd/engine.c (what becomes an argument), container.c (what is refused), stage.c (the end of a client is not the end
of a container), sweep.c (what a crash leaves), view.c (who sees the socket), steps/engine.
"""
import json
import os
import signal
import socket
import struct
import time

import pytest

from lib.engine import IMAGE, Engine
from lib.livehub import LiveHub
from lib.proc import wait_for
from lib.workdrv import (BAD_SPEC, CANCELLED, ENDED, EXITED, FORBIDDEN_PATH, LIMIT, LOST, OK, POLICY, POOL_GID, SANDBOX, START_FAILED, TIMEOUT,
                         UNSUPPORTED, Device)

pytestmark = [pytest.mark.root, pytest.mark.timeout(180)]
ENGINES = ["", "docker", "podman", "nerdctl"]
NONE = b"\1"


def container(image=IMAGE, engine="podman", runtime="", network="none"):
    """An encoded work_job that is a container and nothing else."""
    def s(v):
        v = v if isinstance(v, bytes) else v.encode()
        return struct.pack("=I", len(v)) + v
    head = struct.pack("=BBBIQQQq", 0, 0, 0, 0, 0, 0, 0, 0)
    return head + s("") * 11 + struct.pack("=B", ENGINES.index(engine)) + s(image) + s(runtime) + s(network) + s("")


@pytest.fixture(scope="module")
def engine():
    if os.getuid() != 0:
        pytest.skip("skipped: an engine of root's needs root")
    e = Engine(POOL_GID)
    yield e
    e.close()


def device(engine, policy="", **kw):
    return Device(policy=f"[containers]\nengine-socket = {engine.socket}\n{policy}", **kw)


@pytest.fixture
def dev(engine):
    with device(engine) as d:
        yield d


def ended(dev, r, timeout=60):
    dev.wait("the end", lambda: r.info.get("state") == ENDED and r.end is not None, timeout)
    return r


def run(dev, script, expect=OK, **kw):
    job = {k: kw.pop(k) for k in ("image", "engine", "runtime", "network") if k in kw}
    if "network_" in kw:        # of the spec, not of the engine
        kw["network"] = kw.pop("network_")
    return dev.start(["/bin/sh", "-c", script], job=container(**job), work_dir=kw.pop("work_dir", "c"), expect=expect, **kw)


def nothing_left(engine):
    assert engine.containers() == []


def test_a_container_runs_and_its_exit_code_comes_back(engine, dev):
    r = ended(dev, run(dev, 'echo "$GREETING"; id; pwd; echo err >&2; echo made > f; sleep 1; printf tail; exit 7', env=["GREETING=a\nb", "HOME=/tmp/h"]))
    out = bytes(r.data).decode()
    assert r.info["outcome"] == EXITED and r.info["exit_code"] == 7, (r.info, out)
    assert out.startswith("a\nb\n") and "\n/workspace\n" in out and "err\n" in out and out.endswith("tail"), out
    uid = int(out.split("uid=")[1].split("(")[0].split()[0])
    assert dev.uid != uid != 0 and os.stat(f"{dev.dir}/work/c/f").st_uid == uid
    nothing_left(engine)


def test_what_it_uses_is_not_claimed_to_be_known(engine, dev):
    r = ended(dev, run(dev, "seq 1 100000"))
    assert bytes(r.data) == b"".join(b"%d\n" % n for n in range(1, 100001))
    assert (r.info["pid"], r.info["cpu_ms"], r.info["mem_peak_kb"], r.info["io_read"], r.info["io_write"]) == (0, 0, 0, 0, 0)


def test_the_container_is_hardened(engine, dev):
    r = run(dev, "sleep 100", memory=64 << 20, pids=32, cpu=500)
    name = wait_for(engine.containers, 30, "the container")[0]
    dev.wait("it runs", lambda: engine.inspect(name)["State"]["Status"] == "running", 30)
    c = engine.inspect(name)
    host = c["HostConfig"]
    assert c["EffectiveCaps"] in (None, []) and host["ReadonlyRootfs"] is True and host["NetworkMode"] == "none"
    assert "no-new-privileges" in host["SecurityOpt"] and host["Memory"] == 64 << 20 and host["PidsLimit"] == 32 and host["NanoCpus"] == 500000000
    assert host["Devices"] == [] and host["Privileged"] is False
    assert [(m["Source"], m["Destination"]) for m in c["Mounts"]] == [(f"{dev.dir}/work/c", "/workspace")]
    assert c["HostConfig"]["LogConfig"]["Type"] == "none"
    assert set(c["Config"]["Labels"]) == {"edgeward.agent", "edgeward.instance", "edgeward.handle"}
    assert c["Config"]["Labels"]["edgeward.handle"] == r.handle and c["Name"].endswith(r.handle)
    dev.signal(r, signal.SIGKILL)
    ended(dev, r)
    assert r.info["outcome"] == CANCELLED
    nothing_left(engine)


def test_a_signal_reaches_the_container(engine, dev):
    r = run(dev, 'trap "echo got; exit 9" TERM; echo ready; while :; do sleep 0.1; done')
    dev.wait("ready", lambda: b"ready" in r.data, 60)
    dev.signal(r, signal.SIGTERM)
    ended(dev, r)
    assert (r.info["outcome"], r.info["exit_code"]) == (EXITED, 9) and b"got\n" in r.data
    r = run(dev, "echo ready; exec sleep 100")
    dev.wait("ready", lambda: b"ready" in r.data, 60)
    dev.signal(r, signal.SIGKILL)
    ended(dev, r)
    assert (r.info["outcome"], r.info["term_signal"]) == (CANCELLED, signal.SIGKILL)
    nothing_left(engine)


def test_timeout_and_cancel_remove_the_container(engine, dev):
    r = ended(dev, run(dev, "sleep 1000", timeout=1))
    assert r.info["outcome"] == TIMEOUT
    nothing_left(engine)


@pytest.mark.parametrize("how", ["cancel", "timeout"])
@pytest.mark.parametrize("gone", ["kill9", "reload"])
def test_what_a_new_workerd_took_back_is_removed_when_it_ends(engine, dev, how, gone):
    """Its client is killed then; the container goes on until it is removed, and no end is told before."""
    r = run(dev, "echo ready; sleep 1000", timeout=0 if how == "cancel" else 8)
    dev.wait("ready", lambda: b"ready" in r.data, 60)
    if gone == "kill9":
        dev.kill_workerd()
        dev.connect()
    else:
        dev.reload()
    if how == "cancel":
        dev.signal(r, signal.SIGKILL)
    ended(dev, r)
    assert r.info["outcome"] == (CANCELLED if how == "cancel" else TIMEOUT)
    nothing_left(engine)


def test_b46_workerd_killed_at_any_time_leaves_no_container(engine, dev):
    """The client is the launcher's, the container the engine's: a new workerd takes both back."""
    r = run(dev, 'echo ready; while [ ! -e go ]; do sleep 0.1; done; echo went on; exit 3')
    dev.wait("ready", lambda: b"ready" in r.data, 60)
    dev.kill_workerd()
    dev.connect()
    with open(f"{dev.dir}/work/c/go", "w"):
        pass
    ended(dev, r)
    assert (r.info["outcome"], r.info["exit_code"]) == (EXITED, 3) and b"went on" in r.data
    nothing_left(engine)
    for wait in (0, 0.15, 0.4, 0.8):        # while it is created, started, runs, is removed
        h, _ = dev.ask_start(["/bin/sh", "-c", "sleep 0.2; exit 4"], work_dir="c", job=container())
        time.sleep(wait)
        dev.kill_workerd()
        dev.connect()
        dev.wait("its end", lambda: h not in dev.runs or dev.runs[h].info["state"] == ENDED, 60)
        wait_for(lambda: not engine.containers(), 60, "no container is left")
        if h in dev.runs:
            assert dev.runs[h].info["outcome"] in (EXITED, LOST)


def test_b61_what_a_killed_launcher_leaves_is_swept_and_nothing_else(engine):
    """A reboot in small: everything of ours is gone but the container. Others' containers, one with half of our labels, stay."""
    others = ["bystander", "edgeward-0123456789abcdef-lookalike"]
    engine.run("run", "--detach", "--name", others[0], "--network", "none", "--label", "edgeward.agent=0123456789abcdef", IMAGE, "/bin/sleep", "1000")
    engine.run("run", "--detach", "--name", others[1], "--network", "none", "--label", "edgeward.handle=h1", IMAGE, "/bin/sleep", "1000")
    try:
        with device(engine) as d:
            r = run(d, "echo ready; sleep 1000")
            d.wait("ready", lambda: b"ready" in r.data, 60)
            assert len(engine.containers()) == 3
            d.launcher.kill()
            d.launcher.wait()
            d.drop()
            d.spawn()
            d.connect()
            d.wait("lost", lambda: r.handle in d.runs and d.runs[r.handle].info["state"] == ENDED, 30)
            assert d.runs[r.handle].info["outcome"] == LOST
            wait_for(lambda: engine.containers() == sorted(others), 60, "the sweep")
            assert all(engine.inspect(name)["State"]["Status"] == "running" for name in others)
    finally:
        for name in others:
            engine.run("rm", "--force", "--time", "0", name)


def test_an_engine_that_is_away_gets_its_container_removed_later(engine, dev):
    """What cannot be removed is not told as ended, and is removed once the engine is back."""
    r = run(dev, "echo ready; sleep 1000")
    dev.wait("ready", lambda: b"ready" in r.data, 60)
    engine.stop()
    try:
        os.unlink(engine.socket)
        dev.signal(r, signal.SIGKILL)
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            dev.step(0.5)
            assert r.info["state"] != ENDED, r.info
    finally:
        engine.start()
    ended(dev, r, 90)
    assert r.info["outcome"] == CANCELLED
    nothing_left(engine)


def test_a_limit_of_disk_is_held_by_looking(engine, dev):
    r = ended(dev, run(dev, "echo a; dd if=/dev/zero of=big bs=1M count=20 2>/dev/null; sleep 1000", disk=8 << 20))
    assert (r.info["outcome"], r.info["_"]) == (LIMIT, 5), r.info
    assert r.info["error"].startswith("disk-limit: the work directory held ") and "its limit is 8388608" in r.info["error"], r.info
    # of what it used nothing is known: the measurement stands there
    assert r.info["cpu_ms"] > 8 << 20 and str(r.info["cpu_ms"]) in r.info["error"] and r.info["mem_peak_kb"] == 8 << 20, r.info
    nothing_left(engine)
    err = run(dev, "true", disk=8 << 20, expect=START_FAILED)
    assert err.startswith("disk-limit: the work directory holds "), err
    nothing_left(engine)
    assert "cannot be enforced for a host process" in dev.start(["true"], work_dir="c", disk=1 << 20, expect=UNSUPPORTED)


@pytest.mark.parametrize("job, word", [
    ({"image": "localhost/no-such:1"}, "no-such"), ({"network": "no-such-net"}, "no-such-net"),
])
def test_what_the_engine_refuses_is_a_refused_start(engine, dev, job, word):
    err = run(dev, "true", expect=START_FAILED, **job)
    assert "podman: " in err and word in err, err
    nothing_left(engine)


def test_a_program_that_is_not_in_the_image(engine, dev):
    r = ended(dev, dev.start(["/bin/no-such-program"], work_dir="c", job=container()))
    assert r.info["outcome"] == EXITED and r.info["exit_code"] in (125, 127) and b"no-such-program" in r.data, (r.info, bytes(r.data))
    nothing_left(engine)


@pytest.mark.parametrize("job, kw, refusal, word", [
    ({"engine": "nerdctl"}, {}, UNSUPPORTED, "nerdctl is refused"),
    ({"runtime": "crun"}, {}, UNSUPPORTED, "podman chooses the runtime itself"),
    ({}, {"work_dir": ""}, UNSUPPORTED, "work directory of its own"),
    ({}, {"work_dir": "a,source=/etc"}, BAD_SPEC, "cannot be mounted"),
    ({}, {"work_dir": 'a",destination=/"'}, BAD_SPEC, "cannot be mounted"),
    ({}, {"work_dir": "a:b"}, BAD_SPEC, "cannot be mounted"),
    ({}, {"work_dir": "a\nb"}, BAD_SPEC, "cannot be mounted"),
    ({}, {"env": ["LD_PRELOAD=./x.so"]}, UNSUPPORTED, "variable LD_PRELOAD"),
    ({}, {"env": ["CONTAINERS_CONF=/workspace/c"]}, UNSUPPORTED, "variable CONTAINERS_CONF"),
    ({}, {"env": ["docker_host=tcp://x"]}, UNSUPPORTED, "variable docker_host"),
    ({}, {"env": ["A*=1"]}, UNSUPPORTED, "variable A*"),
    ({}, {"env": ["--privileged=1"]}, UNSUPPORTED, "variable --privileged"),
    ({}, {"devices": "usb1"}, UNSUPPORTED, "forwarded devices"),
])
def test_what_is_refused_by_name(engine, dev, job, kw, refusal, word):
    assert word in run(dev, "true", expect=refusal, **job, **kw)
    nothing_left(engine)
    assert not os.listdir(f"{dev.dir}/work")


@pytest.mark.parametrize("image", ["-v=/:/h", "--privileged", "a b", "a\tb", "a\nb", "", "x" * 513, "dir:/etc", "oci-archive:/tmp/x", "/etc", "$(id)", "a;b", "a'b"])
def test_an_image_is_a_reference_or_nothing(dev, image):
    assert dev.start(["true"], work_dir="c", job=container(image=image), expect=BAD_SPEC)


@pytest.mark.parametrize("network", ["host", "container:x", "ns:/proc/1/ns/net", "-x", "private", "a b"])
def test_a_network_is_the_engines(dev, network):
    assert dev.start(["true"], work_dir="c", job=container(network=network), expect=BAD_SPEC)


def test_a_link_is_no_work_directory(engine, dev):
    """The engine, which is root, looks the directory up by its name."""
    os.symlink("/etc", f"{dev.dir}/work/out")
    os.mkdir(f"{dev.dir}/work/real")
    os.symlink("real", f"{dev.dir}/work/in")
    for name in ("out", "in"):
        assert run(dev, "ls", work_dir=name, expect=FORBIDDEN_PATH)
    # What work without a directory of its own has made it could replace while the engine looks.
    r = dev.start(["mkdir", "mine"])
    dev.wait("made", lambda: r.info["state"] == ENDED)
    assert "could replace it" in run(dev, "ls", work_dir="mine", expect=FORBIDDEN_PATH)
    nothing_left(engine)


def test_below_the_top_nothing_is_looked_up_by_the_engine(engine, dev):
    r = ended(dev, run(dev, "pwd; ls /workspace", work_dir="c/sub/dir"))
    assert bytes(r.data) == b"/workspace/sub/dir\nsub\n"


def test_the_socket_is_in_the_view_of_the_client_alone(engine, dev):
    """A workload that runs on the host has neither the name nor a way to it; a container has it no more."""
    assert stat_mode(engine.socket) == 0o660
    script = f"ls {engine.socket} {os.path.dirname(engine.socket)}; ls /run; echo end"
    r = dev.start(["/bin/sh", "-c", script], work_dir="h")
    dev.wait("the end", lambda: r.info.get("state") == ENDED and r.end is not None)
    assert bytes(r.data).count(b"No such file") == 2 and b"end\n" in r.data, bytes(r.data)
    r = ended(dev, run(dev, f"ls {engine.socket}; echo end"))
    assert b"No such file" in r.data and b"end\n" in r.data


def stat_mode(path):
    return os.stat(path).st_mode & 0o777


def test_without_a_socket_in_the_policy(engine):
    with Device() as d:
        assert "no container engine here" in d.start(["true"], work_dir="c", job=container(), expect=POLICY)
    with Device(policy="[containers]\nengine-socket = /nonexistent/sock\n") as d:
        assert "is no socket" in d.start(["true"], work_dir="c", job=container(), expect=UNSUPPORTED)


def test_policy_bounds_containers(engine):
    with device(engine, f"images = {IMAGE}\n[work]\nprograms = /bin/true\n[limits]\nmemory = 64M\n") as d:
        err = run(d, "true", image="localhost/other:1", expect=POLICY)
        assert "policy:3: containers images" in err, err
        assert "policy:7: memory" in run(d, "true", memory=128 << 20, expect=POLICY)
        r = ended(d, run(d, "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || true"))
        assert r.info["outcome"] == EXITED
        d.start(["/bin/sh"], work_dir="h", expect=POLICY)       # on the host the list of programs holds
    with device(engine, "[work]\nprograms = /bin/true\n") as d:
        assert "list the images" in run(d, "true", expect=POLICY)
    with device(engine, "[work]\nnetwork = none\n") as d:
        assert "network = none" in run(d, "true", network="bridge", expect=POLICY)
        assert ended(d, run(d, "true", network="")).info["exit_code"] == 0
    with device(engine, "[work]\nsandbox-level = uid\n") as d:
        assert "in reach of all" in run(d, "true", expect=SANDBOX)
    with device(engine, "[work]\nstart = no\n") as d:
        run(d, "true", expect=POLICY)


def test_a_socket_that_is_not_open_to_the_runners(engine):
    os.chmod(engine.socket, 0o600)
    try:
        with device(engine) as d:
            assert "not open to the runners" in run(d, "true", expect=SANDBOX)
    finally:
        os.chmod(engine.socket, 0o660)


FAKE = r"""#!/bin/sh
# What a client is called with and what it finds: one line of words, quoted, for each call.
{ for w in "$0" "$@"; do printf '%s\001' "$w"; done; echo; } | tr '\n' '\002' >> calls; echo >> calls
env -0 | tr '\n\0' '\002\n' | sort > "env.$3"
case $3 in
create) echo 0123 ;;
start) echo output; exit 6 ;;
inspect) echo "exited 6 false" ;;
ps) ;;
*) ;;
esac
"""


def fake_device(engine, tmp_path, **kw):
    """The clients of a device replaced, in a mount namespace of its launcher's, by one that writes down what it was given."""
    for name in ("docker", "podman"):
        with open(f"{tmp_path}/{name}", "w") as f:
            f.write(FAKE)
        os.chmod(f"{tmp_path}/{name}", 0o755)
    os.chmod(tmp_path, 0o755)
    enter = ["unshare", "-m", "sh", "-c", f'mount --make-rprivate / && mount --bind {tmp_path} /usr/local/bin && exec "$@"', "sh"]
    return device(engine, enter=enter, **kw)


def words(path):
    with open(path, encoding="utf-8") as f:
        return [line.rstrip("\n\2").split("\1")[:-1] for line in f.read().replace("\2\n", "\n").splitlines()]


@pytest.mark.parametrize("name, where", [("docker", "--host"), ("podman", "--url")])
def test_the_client_is_called_with_these_words_and_no_others(engine, tmp_path, name, where):
    """14.20, 5.5: the whole command line and environment, as a strict fake of the client sees them."""
    with fake_device(engine, tmp_path, policy="[limits]\ntimeout = 1h\n") as d:
        env = ["TOKEN=two\nlines --privileged", "PATH=/from/the/hub", "HOME=/h", "IFS=x", "EMPTY="]
        r = d.start(["/bin/prog", "--privileged", "-v", "/:/h", "a b", "$(id)"], work_dir="c/d", env=env, pids=9, memory=32 << 20, cpu=250,
                    job=container(engine=name, runtime="" if name == "podman" else "runsc", network="bridge"))
        ended(d, r)
        assert r.info["exit_code"] == 6 and b"output\n" in r.data, bytes(r.data)
        calls = words(f"{d.dir}/work/c/d/calls")
        socket_at = [f"/usr/local/bin/{name}", where, f"unix://{engine.socket}"]
        assert all(c[:3] == socket_at for c in calls), calls
        create = [c[3:] for c in calls if c[3] == "create"]
        uid = os.stat(f"{d.dir}/work/c").st_uid
        labels = [w for w in create[0] if w.startswith("edgeward.")]
        cname = create[0][3]
        assert create == [["create", "--pull=never", "--name", cname] + ([] if name == "podman" else ["--runtime", "runsc"]) + [
            "--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only", "--tmpfs", "/tmp:rw,nosuid,nodev,exec,size=512m",
            "--user", f"{uid}:{POOL_GID}", "--network", "bridge", "--cpus", "0.250", "--memory", "32m", "--memory-swap", "32m",
            "--pids-limit", "9", "--env", "TOKEN", "--env", "PATH=/from/the/hub", "--env", "HOME=/h", "--env", "IFS=x", "--env", "EMPTY",
            "--label", labels[0], "--label", labels[1], "--label", f"edgeward.handle={r.handle}", "--log-driver", "none",
            "--mount", f"type=bind,source={d.dir}/work/c,destination=/workspace", "--workdir", "/workspace/d", "--", IMAGE,
            "/bin/prog", "--privileged", "-v", "/:/h", "a b", "$(id)"]], create
        agent = labels[0].split("=")[1]
        assert cname == f"edgeward-{agent}-{r.handle}" and labels[0] == f"edgeward.agent={agent}" and labels[1].startswith("edgeward.instance=")
        rest = [c[3:] for c in calls if c[3] != "create"]
        assert rest[:2] == [["start", "--attach", cname],
                            ["inspect", "--type", "container", "--format", "{{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}", cname]]
        assert all(c == ["ps", "--all", "--quiet", "--no-trunc", "--filter", f"label=edgeward.agent={agent}", "--filter",
                         f"label=edgeward.handle={r.handle}"] for c in rest[2:]) and len(rest) > 2, rest
        with open(f"{d.dir}/work/c/d/env.create", encoding="utf-8") as f:
            seen = f.read().splitlines()
        assert "TOKEN=two\2lines --privileged" in seen and "EMPTY=" in seen and "HOME=/tmp" in seen
        assert [v for v in seen if v.startswith("PATH=")] == ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        with open(f"{d.dir}/work/c/d/env.start", encoding="utf-8") as f:
            assert "TOKEN" not in f.read()      # in no client but the one that needs it


def test_a_client_has_no_network_and_sees_nothing_but_the_socket(engine, tmp_path):
    with fake_device(engine, tmp_path) as d:
        with open(f"{tmp_path}/docker", "a", encoding="ascii") as f:
            f.write("\n[ $3 != create ] || { ls -A /proc/self/root/tmp /run > seen; cat /proc/net/dev >> seen; ls -A " +
                    os.path.dirname(engine.socket) + " >> seen; grep -c . /proc/net/unix >> seen; grep Cap /proc/self/status >> seen; }\n")
        ended(d, run(d, "true", engine="docker"))
        with open(f"{d.dir}/work/c/seen", encoding="ascii") as f:
            seen = f.read()
        devices = [line.split(":")[0].strip() for line in seen.splitlines() if ":" in line and line.split(":")[1].split()[:1] and
                   line.split(":")[1].split()[0].isdigit() and "Cap" not in line]
        assert devices == ["lo"], seen
        assert "podman.sock" in seen and "containers.conf" not in seen and "image.tar" not in seen
        assert seen.count("0000000000000000") >= 5, seen


def firewall(allow=(), deny=(), ports=()):
    def cidrs(items):
        return struct.pack("=I", len(items)) + b"".join(struct.pack("=BBI", 0, 32, 16) + socket.inet_aton(a).ljust(16, b"\0") for a in items)
    return (b"\0" + cidrs(allow) + cidrs(deny) + struct.pack("=I", len(ports)) + b"".join(struct.pack("=H", p) for p in ports) + struct.pack("=I", 0) +
            b"\0")


def test_a_firewall_needs_a_network_of_the_owners(engine, tmp_path):
    """14.22, 5.6: nobody here can make rules for an engine's bridge: the owner's word, or a refusal; a firewall that reaches nothing is none."""
    asked = b"\2" + firewall(["10.0.0.1", "10.0.0.2"]) + b"\0"
    wider = b"\2" + firewall(["10.0.0.1", "10.0.0.2"], deny=["10.0.0.1"]) + b"\0"
    with device(engine) as d:
        assert "names none" in run(d, "true", network_=asked, expect=SANDBOX)
        r = ended(d, run(d, "cat /proc/net/dev", network="", network_=b"\2" + firewall() + b"\0"))
        assert r.info["exit_code"] == 0 and b"eth0" not in r.data
    owner = f"filtered-network = fenced\n[network]\nallow = 10.0.0.1\n"
    with fake_device(engine, tmp_path, policy=owner) as d:
        ended(d, run(d, "true", network="", network_=asked))
        create = [c for c in words(f"{d.dir}/work/c/calls") if c[3] == "create"][0]
        assert create[create.index("--network") + 1] == "fenced", create
        assert "wider than this start's firewall" in run(d, "true", network="", network_=wider, expect=SANDBOX)
        assert "wider than this start's firewall" in run(d, "true", network="", network_=b"\2" + firewall(["10.0.0.9"]) + b"\0", expect=SANDBOX)
        assert "not known to be filtered" in run(d, "true", network="other", network_=asked, expect=SANDBOX)
    with fake_device(engine, tmp_path, policy=owner + "[work]\nnetwork = filtered\n") as d:
        ended(d, run(d, "true", network="bridge"))
        create = [c for c in words(f"{d.dir}/work/c/calls") if c[3] == "create"][0]
        assert create[create.index("--network") + 1] == "fenced", create


@pytest.fixture
def hubbed(engine, agent):
    """A whole device at an edgehub, which may use the engine's socket."""
    hub = LiveHub().start()
    a = agent(hub=hub, start=False, token=hub.token("--name", "edge-test"), policy={"containers": {"engine-socket": engine.socket}})
    os.chown(engine.socket, 0, a.pool_gid)
    a.start()
    hub.connected()
    yield hub, a
    os.chown(engine.socket, 0, engine.gid)
    hub.close()


def test_edgehub_runs_a_container(engine, hubbed):
    """The whole way: edgehub run --image, what the device says it can, what edgectl says it would do."""
    hub, a = hubbed
    p = hub.call("run", "edge-test", "--workdir", "w", "--image", IMAGE, "--engine", "podman", "--container-network", "none", "--env", "X=1 2", "--",
                 "/bin/sh", "-c", "echo $X; exit 5")
    assert (p.returncode, p.stdout) == (5, b"1 2\n"), p
    p = hub.call("run", "edge-test", "--workdir", "w", "--image", "localhost/none:1", "--", "/bin/true")
    assert p.returncode == 123 and b"localhost/none:1" in p.stderr, p
    p = hub.call("run", "edge-test", "--engine", "podman", "--", "/bin/true")
    assert p.returncode == 125 and b"need --image" in p.stderr, p
    p = hub.call("run", "edge-test", "--image", "-v=/:/h", "--", "/bin/true")
    assert p.returncode == 125 and b"the image must be a reference" in p.stderr, p
    wait_for(lambda: not engine.containers(), 30, "no container is left")
    device = hub.device()
    assert "podman" in device["capabilities"]["container_runtimes"] and "nerdctl" not in device["capabilities"]["container_runtimes"]
    assert "crun" in device["capabilities"]["oci_runtimes"]
    start = {"spec": {"argv": ["/bin/true"], "work_dir": "w"}, "sandbox": {"mode": "container", "image": IMAGE}}
    assert a.ctl("policy", "test", json.dumps(start)).rc == 0
    start["sandbox"]["engine"] = "nerdctl"
    got = a.ctl("policy", "test", json.dumps(start))
    assert got.rc != 0 and "nerdctl is refused" in got.out, got
