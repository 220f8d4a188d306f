"""The agent with edgehub: run, detach, logs, signals, exit codes, restarts of every part (issue 2, point 7; B15, B83).

Where it could go wrong: both ends of edgeward.1 together; edgehub's store across a restart; the client's exit codes.
"""
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest

from lib.agent import exe
from lib.livehub import LiveHub
from lib.net import Proxy
from lib.proc import wait_for
from lib.status import link, link_cause

pytestmark = pytest.mark.timeout(120)

if not os.path.exists(exe("edgehub")):
    pytest.skip("skipped: not built: edgehub", allow_module_level=True)

CLOOP = ["-x", "cloop"]
D = "edge-test"


@pytest.fixture(params=["edgeward", "cloop"])
def ehub(request):
    h = LiveHub(*(CLOOP if request.param == "cloop" else [])).start()
    h.dialect = request.param
    yield h
    h.close()


@pytest.fixture
def ehub1():
    """One dialect is enough here."""
    h = LiveHub().start()
    yield h
    h.close()


@pytest.fixture
def dev(agent, ehub):
    a = make(agent, ehub)
    return a


def make(agent, ehub, **kw):
    a = agent(hub=ehub, token=kw.pop("token", ehub.token("--name", D)), **kw)
    ehub.connected()
    return a


def numbered(n):
    return "".join(f"line {i:09d} of the numbered output\n" for i in range(n)).encode()


LINES = "import sys,time\nfor i in range({n}):\n sys.stdout.write(f'line {{i:09d}} of the numbered output\\n')\n {extra}"


def lines(n, extra="pass"):
    return ["/usr/bin/python3", "-c", LINES.format(n=n, extra=extra)]


@pytest.mark.parametrize("code", [0, 1, 42, 119])
def test_run_streams_and_returns_the_code(dev, ehub, code):
    p = ehub.call("run", D, "--", "/bin/sh", "-c", f"echo out; echo err >&2; exit {code}")
    assert p.returncode == code and p.stdout == b"out\nerr\n", p
    assert ehub.device()["dialect"] == ("cloop" if ehub.dialect == "cloop" else "edgeward.1")


def test_run_killed_by_a_signal(dev, ehub):
    p = ehub.call("run", D, "--", "/bin/sh", "-c", "kill -SEGV $$")
    assert p.returncode in (128 + 11, 255, 1) if ehub.dialect == "cloop" else p.returncode == 139, p


def test_run_with_workdir_and_env(dev, ehub):
    p = ehub.call("run", D, "--workdir", "w/x", "--env", "A=b c", "--", "/bin/sh", "-c", 'pwd; echo "$A"')
    assert p.stdout.decode() == f"{dev.root}/w/x\nb c\n" and p.returncode == 0


def test_run_is_refused_with_its_reason(dev, ehub):
    p = ehub.call("run", D, "--", "/nonexistent")
    assert p.returncode == 123 and p.stdout == b"" and b"nonexistent" in p.stderr or b"No such file" in p.stderr, p
    p = ehub.call("run", D, "--workdir", "/etc", "--", "true")
    assert p.returncode == 123, p


INTERFACES = ("sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '")


@pytest.mark.root
def test_run_asks_for_a_network(agent, ehub):
    """None, the device's own, or rules; never more than the policy, and a slip is told before anything is sent."""
    make(agent, ehub)
    p = ehub.call("run", D, "--network", "none", "--", *INTERFACES)
    assert p.returncode == 0 and p.stdout == b"lo ", p
    p = ehub.call("run", D, "--network", "filtered", "--", *INTERFACES)
    assert p.returncode == 0 and p.stdout == b"lo ", "rules that allow nothing are no network"
    mine = sorted(line.split(":")[0].strip() for line in open("/proc/net/dev", encoding="ascii") if ":" in line)
    p = ehub.call("run", D, "--network", "host", "--", *INTERFACES)
    assert p.returncode == 0 and p.stdout.decode().split() == mine, p
    for args, words in ((("--allow", "0.0.0.0/0"), b"--allow"), (("--port", "0"), b"--port"), (("--proxy", "10.0.0.1"), b"--proxy"),
                        (("--network", "bridge"), b"--network"), (("--network", "none", "--public"), b"no rules")):
        p = ehub.call("run", D, *args, "--", "true")
        assert p.returncode == 125 and words in p.stderr, p


@pytest.mark.root
def test_run_gets_no_more_network_than_the_policy(agent, ehub1):
    make(agent, ehub1, policy={"work": {"network": "none"}})
    for args in (("--network", "host"), ("--allow", "10.0.0.0/8", "--port", "443", "--resolver", "10.0.0.53", "--deny", "10.1.0.0/16", "--proxy", "10.0.0.9:3128"),
                 ("--public",)):
        p = ehub1.call("run", D, *args, "--", "true")
        assert p.returncode == 123 and b"policy.conf" in p.stderr and b"network" in p.stderr, p
    p = ehub1.call("run", D, "--", *INTERFACES)
    assert p.returncode == 0 and p.stdout == b"lo ", p


def test_run_on_a_device_that_is_not_there(ehub1):
    p = ehub1.call("run", "nobody", "--", "true")
    assert p.returncode == 125 and p.stderr.strip(), p


def test_binary_output_exactly(agent, ehub1):
    make(agent, ehub1)
    p = ehub1.call("run", D, "--", "/usr/bin/python3", "-c", "import os; os.write(1, bytes(range(256)) * 400)")
    assert p.stdout == bytes(range(256)) * 400
    handle = ehub1.json("runs")[0]["handle"]
    assert ehub1.call("logs", "verify", handle).returncode == 0


def test_detach_logs_follow(dev, ehub):
    p = ehub.call("run", D, "--detach", "--", *lines(200, "time.sleep(0.005); sys.stdout.flush()"))
    assert p.returncode == 0
    handle = p.stdout.decode().strip()
    follow = ehub.popen("logs", "-f", handle)
    out, err = follow.communicate(timeout=30)
    assert out == numbered(200), err
    again = ehub.call("logs", handle)
    assert again.stdout == numbered(200)
    part = ehub.call("logs", handle, "--from", "100")
    assert part.stdout == numbered(200)[100:]


def test_timeout(dev, ehub):
    begin = time.monotonic()
    p = ehub.call("run", D, "--timeout", "1s", "--", "sleep", "100", timeout=90)
    if p.returncode == 2 or b"minute" in p.stderr:
        pytest.skip("skipped: this hub counts timeouts in minutes")
    if ehub.dialect == "edgeward":
        assert p.returncode == 124, p
    assert time.monotonic() - begin < 75 and p.returncode != 0


@pytest.mark.parametrize("presses,want", [(1, b"got INT\n"), (2, b"got INT\ngot TERM\n")])
def test_ctrl_c_forwards(dev, ehub, presses, want):
    script = ("trap 'echo got INT; [ $N = 1 ] && exit 7' INT; trap 'echo got TERM; exit 8' TERM; echo up; "
              "while :; do sleep 0.05; done")
    p = ehub.popen("run", D, "--", "/bin/sh", "-c", f"N={presses}; {script}")
    out = read_until(p, b"up\n")
    p.send_signal(signal.SIGINT)
    out += read_until(p, b"got INT\n")
    if presses == 2:
        p.send_signal(signal.SIGINT)
    rest, err = p.communicate(timeout=20)
    assert out + rest == b"up\n" + want, err
    assert p.returncode == 6 + presses


def test_ctrl_c_three_times_kills(dev, ehub):
    p = ehub.popen("run", D, "--", "/bin/sh", "-c", "trap 'echo i' INT; trap 'echo t' TERM; echo up; "
                   "while :; do sleep 0.05; done")
    read_until(p, b"up\n")
    for word in (b"i\n", b"t\n", None):
        p.send_signal(signal.SIGINT)
        if word:
            read_until(p, word)
    p.communicate(timeout=20)
    assert p.returncode != 0


def read_until(p, word, timeout=15):
    """Reads p's stdout until it ends with word."""
    buf, done = b"", threading.Event()
    timer = threading.Timer(timeout, lambda: (done.set(), p.kill()))
    timer.start()
    while not buf.endswith(word):
        data = os.read(p.stdout.fileno(), 4096)
        if not data:
            break
        buf += data
    timer.cancel()
    assert buf.endswith(word) and not done.is_set(), (buf, p.stderr.read() if p.poll() is not None else b"")
    return buf


def test_signal_command(dev, ehub):
    handle = ehub.call("run", D, "--detach", "--", "/bin/sh", "-c",
                      "trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done").stdout.decode().strip()
    time.sleep(0.3)             # the trap must be set; nothing tells from outside
    assert ehub.call("signal", handle, "TERM").returncode == 0
    out, _ = ehub.popen("logs", "-f", handle).communicate(timeout=15)
    assert out == b"bye\n"
    assert ehub.call("signal", "nosuchhandle", "TERM").returncode == 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_hub_restart_loses_no_run(dev, ehub, how):
    p = ehub.popen("run", D, "--", *lines(500, "time.sleep(0.005); sys.stdout.flush()"))
    out = read_until(p, b"output\n")
    for _ in range(2):
        ehub.proc.send_signal(how)
        ehub.proc.wait(10)
        ehub.start()
        dev.ctl("reconnect")
        ehub.connected(timeout=40)
    rest, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    assert hashlib.sha256(out + rest).digest() == hashlib.sha256(numbered(500)).digest()


def test_run_that_ends_while_the_hub_is_away(dev, ehub):
    handle = ehub.call("run", D, "--detach", "--", "/bin/sh", "-c", "sleep 1; echo late; exit 5").stdout.decode().strip()
    ehub.kill9()
    wait_for(lambda: link(dev) != "connected", 10, "noticed")
    wait_for(lambda: dev.ctl("workloads").json["workloads"][0]["state"] == "ended", 10, "ended")
    ehub.start()
    dev.ctl("reconnect")
    out, _ = ehub.popen("logs", "-f", handle).communicate(timeout=40)
    assert out == b"late\n"
    run = wait_for(lambda: next(r for r in ehub.json("runs") if r["handle"] == handle and r["state"] == "exited"), 10, "")
    assert run["exit_code"] == 5


def test_everything_is_killed_in_turn(dev, ehub):
    """connectd, workerd, privhelper and the hub, one after the other, under a run that prints."""
    p = ehub.popen("run", D, "--", *lines(1500, "time.sleep(0.003); sys.stdout.flush()"))
    collected = [read_until(p, b"output\n")]
    reader = threading.Thread(target=lambda: collected.append(p.stdout.read()))
    reader.start()
    for role in ("connectd", "workerd", "privhelper", "connectd", "workerd"):
        old = dev.kill9(role)
        dev.restarted(role, old)
        ehub.connected(timeout=30)
    ehub.kill9()
    ehub.start()
    dev.ctl("reconnect")
    reader.join(90)
    p.wait(10)
    assert p.returncode == 0, p.stderr.read()
    assert b"".join(collected) == numbered(1500)


def test_launcher_killed_after_bytes_were_acknowledged(dev, ehub):
    """The work ends with the launcher, and its count of bytes too: less than the hub has. Once that ended every work channel anew,
    for ever (connectd/logsend.c, the end of the output). The run is lost, told once, and the next one starts."""
    p = ehub.popen("run", D, "--", "sh", "-c", "for i in $(seq 100); do echo line $i output; sleep 0.1; done")
    read_until(p, b"line 9 output\n")
    time.sleep(1.5)         # two heartbeats: what was printed is acknowledged
    old = dev.kill9("launcher")
    dev.restarted("launcher", old)
    p.wait(40)
    # plain cloop has no word for "lost": there it is a failure with the reason in its text
    assert p.returncode == (255 if ehub.dialect == "cloop" else 122) and b"lost" in p.stderr.read()
    assert ehub.json("runs")[0]["log_verify"] == ("unverified" if ehub.dialect == "cloop" else "lost")
    ehub.connected(timeout=30)
    again = ehub.popen("run", D, "--", "echo", "again")
    assert again.communicate(timeout=30)[0] == b"again\n"


def test_b31_cuts_through_a_proxy(agent, ehub):
    """The link is cut at random 15 times; the log at the hub is the source, byte for byte, and verified by its digest."""
    proxy = Proxy(ehub.port)
    a = make(agent, ehub, conf={"hub": {"url": f"wss://localhost:{proxy.port}/api/executors/connect"},
                                "work": {"overflow": "wait-forever"}})
    n = 120000
    p = ehub.popen("run", D, "--", *lines(n))
    collected = []
    reader = threading.Thread(target=lambda: collected.append(p.stdout.read()))
    reader.start()
    rng = random.Random(15)
    for _ in range(15):
        before = proxy.up_bytes
        more = rng.randrange(1000, 150000)
        wait_for(lambda b=before, m=more: proxy.up_bytes > b + m or p.poll() is not None, 30, "progress")
        proxy.cut(rst=rng.random() < 0.5)
    reader.join(60)
    p.wait(10)
    assert p.returncode == 0 and hashlib.sha256(collected[0]).digest() == hashlib.sha256(numbered(n)).digest()
    if ehub.dialect == "edgeward":
        assert ehub.call("logs", "verify", ehub.json("runs")[0]["handle"]).returncode == 0
    assert a.pid("connectd")
    proxy.close()


def test_b15_quick_restarts_through_a_lingering_proxy(agent, ehub1):
    """20 times kill -9 of connectd while the proxy keeps each old connection open: one session, the newest wins."""
    proxy = Proxy(ehub1.port)
    proxy.linger = 3
    a = make(agent, ehub1, conf={"hub": {"url": f"wss://localhost:{proxy.port}/api/executors/connect"}})
    for _ in range(10):
        epoch = ehub1.device()["epoch"]
        old = a.kill9("connectd")
        a.restarted("connectd", old)
        wait_for(lambda e=epoch: ehub1.device()["epoch"] > e, 15, "a newer session")
    p = ehub1.call("run", D, "--", "echo", "once")
    assert p.stdout == b"once\n"
    last = ehub1.device()
    end = time.monotonic() + 4
    while time.monotonic() < end:
        d = ehub1.device()
        assert d["state"] == "connected" and d["epoch"] == last["epoch"], d
        time.sleep(0.2)         # the old connections end meanwhile; nothing may follow from that
    proxy.close()


def test_revoke(agent, ehub1):
    a = make(agent, ehub1)
    handle = ehub1.call("run", D, "--detach", "--", "sleep", "100").stdout.decode().strip()
    assert ehub1.call("revoke", D).returncode == 0
    wait_for(lambda: link(a) == "stopped" or link_cause(a) == "http-401", 15, lambda: f"{link(a)} {link_cause(a)}")
    assert ehub1.device()["state"] == "revoked"
    assert handle


def test_b83_a_token_works_once(agent, ehub1):
    token = ehub1.token("--name", D)
    make(agent, ehub1, token=token)
    b = agent(hub=ehub1, token=token, name="other")
    wait_for(lambda: link_cause(b) == "token-refused", 15, lambda: f"{link(b)} {link_cause(b)}")
    assert len(ehub1.json("devices")) == 1


def test_b77_a_copied_disk(agent, ehub1):
    """B77: two devices with one credential: no war, each says what it is when it was thrown out, the hub names both; work goes on."""
    a = make(agent, ehub1)
    p = ehub1.popen("run", D, "--", "/bin/sh", "-c", "echo on; exec sleep 1000")
    assert p.stdout.readline() == b"on\n"
    work = a.ctl("workloads").json["workloads"][0]["pid"]
    b = agent(hub=ehub1, wait=False, token=False, name="other")
    wait_for(lambda: link_cause(b) == "unenrolled", 20, lambda: f"{link(b)} {link_cause(b)}")
    shutil.copy2(a.credential_file, b.credential_file + ".new")
    st = os.stat(os.path.dirname(b.credential_file))
    os.chown(b.credential_file + ".new", st.st_uid, st.st_gid)
    os.rename(b.credential_file + ".new", b.credential_file)
    wait_for(lambda: link(b) == "connected", 20, lambda: f"{link(b)} {link_cause(b)}")
    wait_for(lambda: link_cause(a) == "identity-duplicate", 10, lambda: f"{link(a)} {link_cause(a)}")
    sessions = ehub1.json("status")["sessions"]
    time.sleep(10)
    assert ehub1.json("status")["sessions"] == sessions and link(b) == "connected" and link(a) == "waiting"
    assert a.ctl("workloads").json["workloads"][0]["pid"] == work and os.path.exists(f"/proc/{work}")
    with open(ehub1.log, encoding="utf-8", errors="replace") as f:
        assert "two devices have one identity" in f.read()
    p.kill()


def test_bundle(agent, ehub1):
    bundle = ehub1.call("token", "create", "--bundle", "--name", D, "--server", ehub1.url()).stdout.decode().strip()
    a = agent(hub=ehub1, start=False, token=False)
    del a.conf["hub"]["url"]
    a.write_conf()
    a.start()
    got = a.enroll(bundle)
    assert got.rc == 0, got
    ehub1.connected()


def test_ten_runs_at_once(dev, ehub):
    procs = [ehub.popen("run", D, "--", "/bin/sh", "-c", f"for i in 1 2 3 4 5; do echo {n}; sleep 0.05; done; exit {n}")
             for n in range(8)]
    for n, p in enumerate(procs):
        out, err = p.communicate(timeout=30)
        assert (p.returncode, out) == (n, f"{n}\n".encode() * 5), err


def test_admin_socket_is_private(ehub1):
    sock = os.path.join(ehub1.data, "admin.sock")
    assert os.stat(sock).st_mode & 0o777 == 0o600
    if os.geteuid() == 0:
        p = subprocess.run([exe("edgehub"), "-S", sock, "status"], capture_output=True, user=65534, group=65534,
                           extra_groups=[], check=False)
        assert p.returncode in (4, 5), p


def test_output_to_a_device_that_is_no_terminal(tmp_path):
    """libc asks any character device but a pty whether it is a terminal: under the filter that was the hub's end (console, /dev/null)."""
    with open("/dev/null", "wb") as null:
        p = subprocess.Popen([exe("edgehub"), "serve", "-d", str(tmp_path / "hub"), "-l", "127.0.0.1:0"], stdout=null, stderr=subprocess.PIPE,
                             env={"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=0"})
    try:
        wait_for(lambda: p.poll() is not None or subprocess.run([exe("edgehub"), "-d", str(tmp_path / "hub"), "status"], capture_output=True,
                                                                check=False).returncode == 0, 20, "it answers")
        assert p.poll() is None, p.stderr.read()
    finally:
        p.terminate()
        p.wait(20)
        p.stderr.close()


def test_json_is_json(dev, ehub):
    ehub.call("run", D, "--", "true")
    for args in (["devices"], ["runs"], ["status"]):
        json.loads(ehub.call("-j", *args).stdout)


def test_secrets_of_a_run(dev, ehub, tmp_path):
    """By file only; masked; revoked one by one or with the run's end; refreshed in place; not in the hub's files once it runs."""
    value, key = "canary-9fK2-run-secret", "canary-Lw83-file-secret"
    (tmp_path / "value").write_text(value + "\n")
    (tmp_path / "key").write_text(key)
    for bad in ("PASS=" + value, "PASS", "=@x", "PASS=@/nonexistent", "A=B=@" + str(tmp_path / "value")):
        p = ehub.call("run", D, "--secret", bad, "--", "/bin/true")
        assert p.returncode == 125 and value.encode() not in p.stderr, p
    script = ('echo "$PASS"; cat "$SECRETS_DIR/key"; echo; stat -c %a "$SECRETS_DIR/key"; n=0; while [ -e "$SECRETS_DIR/key" ]; do '
              'm=$(cat "$SECRETS_DIR/key" 2>/dev/null | wc -c); [ "$m" = "$n" ] || echo "size $m"; n=$m; sleep 0.05; done; echo gone; sleep 1000')
    handle = ehub.cli("run", D, "--detach", "--secret", f"PASS=@{tmp_path}/value", "--secret-file", f"key=@{tmp_path}/key", "--",
                      "/bin/sh", "-c", script).decode().strip()

    def log_has(text):
        return wait_for(lambda: text in ehub.cli("logs", handle).decode(), 20, lambda: f"{text!r} in {ehub.cli('logs', handle)}")
    log_has(f"[redacted]\n[redacted]\n600\nsize {len(key)}\n")
    (tmp_path / "key").write_text("canary-new-" + "n" * 1000)
    assert b"done: 1 file" in ehub.cli("secret", "refresh", handle, f"key=@{tmp_path}/key")
    log_has("size 1011\n")
    for form in ((), ("-j",)):      # a script must see that the device has not done it
        p = ehub.call(*form, "secret", "refresh", handle, f"other=@{tmp_path}/key")
        assert p.returncode == 1 and b"not done" in p.stderr and b"other" in p.stderr and not p.stdout, p
    assert ehub.cli("secret", "revoke", handle, "nothing").startswith(b"the device holds nothing of it")
    assert b"done: 1 file" in ehub.cli("secret", "revoke", handle, "key")
    log_has("gone\n")
    out = ehub.cli("secret", "revoke", handle, "--kill")
    assert b"PASS" in out and handle.encode() in out, out
    ehub.wait_run(handle, lambda r: r["state"] not in ("pending", "running"))
    assert b"ended already" in ehub.cli("secret", "revoke", handle)
    time.sleep(1.5)     # the write-ahead log is emptied a second after the last start
    for where, _, files in os.walk(ehub.dir):
        for name in files:
            if not os.path.isfile(os.path.join(where, name)):
                continue        # its socket
            data = open(os.path.join(where, name), "rb").read()
            assert value.encode() not in data and key.encode() not in data, os.path.join(where, name)
