"""-j of both command lines: one JSON document on stdout from every command that ends by itself. And what was nearly typed.

Where it could go wrong: a command that prints text in between, or nothing; commas of a list; a line for people on stdout. What stays as it is: logs
(the workload's bytes), metrics (OpenMetrics).
"""
import json
import os
import re
import subprocess

import pytest

from lib.agent import REPO, exe
from lib.livehub import LiveHub
from lib.proc import wait_for

pytestmark = pytest.mark.timeout(120)
D = "edge-test"
ENV = {"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=0"}


@pytest.fixture
def hub():
    h = LiveHub().start()
    yield h
    h.close()


def ctl(device, *args):
    return subprocess.run([exe("edgectl"), "-r", os.path.join(device.dir, "d", "run"), *args], capture_output=True, text=True, env=ENV,
                          timeout=30, check=False)


# Commands that give no document of their own, and why.
OTHERWISE = {
    "edgectl": {"logs": "the workload's bytes", "metrics": "OpenMetrics", "attach": "a process's bytes", "probe": "for privupgrade", "help": "text",
                "enroll": "test_edgectl.py"},
    "edgehub": {"attach": "a process's bytes", "shell": "a process's bytes", "ssh-proxy": "sshd's bytes", "proxy": "test_services.py",
                "cp": "test_files.py", "l2": "test_l2.py", "upgrade": "test_upgrade_hub.py", "result": "is JSON always, test_git.py"},
}


@pytest.mark.parametrize("program,source,pattern", [("edgectl", "edgectl/main.c", r'^\t\{ "([\w-]+)", cmd_'), ("edgehub", "hub/main.c", r'\{ "([\w-]+)", cli_')])
def test_none_is_forgotten(program, source, pattern):
    """A command that is added is called below, or has its place above."""
    with open(os.path.join(REPO, source), encoding="utf-8") as f:
        commands = set(re.findall(pattern, f.read(), re.M))
    assert len(commands) > 10 and set(OTHERWISE[program]) <= commands
    with open(__file__, encoding="utf-8") as f:
        body = f.read().split("\ndef test_every_command(", 1)[1].split("@pytest", 1)[0]
    assert not [c for c in commands - set(OTHERWISE[program]) if f'"{c}"' not in body]


def test_every_command(agent, hub, tmp_path):
    device = agent(hub=hub, token=hub.token("--name", D))
    hub.connected()

    def ehub(*args, rc=(0,)):
        p = hub.call("-j", *args)
        assert p.returncode in rc, (args, p)
        return json.loads(p.stdout)

    def ectl(*args, rc=(0,)):
        p = ctl(device, "-j", *args)
        assert p.returncode in rc, (args, p)
        return json.loads(p.stdout)

    token = ehub("token", "create", "--name", "second")
    assert token["token"].startswith("clet1.")
    assert [d["name"] for d in ehub("devices")] == [D]
    secret = tmp_path / "secret"
    secret.write_text("sesame-canary")
    handle = ehub("run", D, "--detach", "--secret-file", f"key=@{secret}", "--", "/bin/sh", "-c", "echo hi; exec sleep 1000")["handle"]
    wait_for(lambda: ectl("workloads")["workloads"] and ectl("workloads")["workloads"][0]["handle"] == handle, 20, "it runs")
    for args in (["runs"], ["token", "list"], ["usb", "list"]):
        assert isinstance(ehub(*args), list), args
    assert ehub("status")["devices"] == 1
    assert isinstance(ehub("logs", "verify", handle, rc=(3,)), dict)
    assert isinstance(ehub("services", D), dict)
    assert isinstance(ehub("harness", "list", D), (dict, list))
    assert ehub("secret", "refresh", handle, f"key=@{secret}")["ok"] is True
    assert ehub("secret", "revoke", handle, "key")["ok"] is True
    (tmp_path / "audit").write_text("")
    assert ectl("audit", "-f", str(tmp_path / "audit")) == {"records": []}
    assert ectl("audit", "verify", "-f", str(tmp_path / "audit"))["whole"] is True
    # Without a file nothing was done, where the directory is; that is well, but no record that could be verified.
    assert ectl("audit", "-f", str(tmp_path / "none")) == {"records": []}
    for args in (["audit", "verify", "-f", str(tmp_path / "none")], ["audit", "-f", str(tmp_path / "no" / "none")]):
        assert subprocess.run([exe("edgectl"), "-j", *args], capture_output=True, check=False).returncode == 1, args
    os.makedirs(tmp_path / "state/upgrade")
    for args in (["upgrade", "--check", "--state", str(tmp_path / "state")], ["upgrade", "--history", "--state", str(tmp_path / "state")]):
        assert isinstance(ectl(*args), dict), args
    for args in (["status"], ["top", "-n", "1"], ["events"], ["devices"], ["policy"], ["drain"], ["undrain"], ["version"],
                 ["support", "bundle", str(tmp_path / "b.tar")], ["policy", "test", '{"spec": {"argv": ["/bin/true"]}}'], ["reconnect"]):
        assert isinstance(ectl(*args), dict), args
    assert isinstance(ectl("doctor", rc=(0, 1, 3)), dict)
    assert isinstance(ectl("logs", "verify", handle, rc=(0, 3)), dict)
    hub.connected()
    wait_for(lambda: ctl(device, "status").returncode == 0, 20, "connected again")
    assert ectl("signal", handle, "TERM") == {"ok": True}
    wait_for(lambda: ehub("runs")[0]["state"] not in ("running", "open"), 20, "it has ended")
    assert ehub("token", "revoke", token["id"]) == {"ok": True}
    assert ehub("revoke", D) == {"ok": True}


@pytest.mark.parametrize("program,args,meant", [
    ("edgehub", ["tokn"], "token"), ("edgehub", ["devcies"], "devices"), ("edgehub", ["token", "creat"], "create"),
    ("edgehub", ["token", "create", "--nmae", "x"], "--name"), ("edgehub", ["run", "x", "--wrokdir", "y", "--", "true"], "--workdir"),
    ("edgehub", ["secret", "revok", "x"], "revoke"), ("edgehub", ["serv"], "serve"), ("edgehub", ["help", "logz"], "logs"),
    ("edgectl", ["support", "bundel", "x"], "bundle"), ("edgectl", ["enroll", "--tokn-file", "-"], "--token-file"),
    ("edgectl", ["upgrade", "--hsitory"], "--history"), ("edgectl", ["policy", "tset", "{}"], "test"), ("edgectl", ["logs", "x", "--form", "3"], "--from")])
def test_typos(program, args, meant):
    p = subprocess.run([exe(program), *args], capture_output=True, text=True, env=ENV, timeout=20, check=False)
    assert p.returncode in (2, 125) and f'did you mean "{meant}"?' in p.stderr and p.stdout == "", p


ODD = "-_G4Qm2"     # base64url: one id in 64 of a hub that takes no care begins with '-'


@pytest.mark.parametrize("program,args", [
    ("edgehub", ["logs", "-f", ODD]), ("edgehub", ["attach", "-T", ODD]), ("edgehub", ["result", ODD]), ("edgehub", ["cp", "--no-wait", ODD + ":a/b", "c"]),
    ("edgehub", ["upgrade", "--no-wait", ODD]), ("edgehub", ["secret", "revoke", "--kill", ODD]), ("edgehub", ["runs", "--open", ODD]),
    ("edgehub", ["proxy", "--to", "80", ODD]), ("edgehub", ["run", ODD, "--", "true"]), ("edgehub", ["shell", ODD]),
    ("edgehub", ["usb", "forward", "--busid", "1-2", ODD]), ("edgehub", ["l2", "forward", "--tap", "x", ODD]),
    ("edgectl", ["logs", "-f", ODD]), ("edgectl", ["logs", ODD]), ("edgectl", ["attach", "-T", ODD]), ("edgectl", ["upgrade", ODD])])
def test_an_operand_that_begins_like_an_option(program, args, tmp_path):
    """What cannot be told from an option is refused, with the way to say it; behind -- it is taken: there is only nobody who answers."""
    where = ["-d" if program == "edgehub" else "-r", str(tmp_path)]

    def call(*rest):
        return subprocess.run([exe(program), *where, *rest], capture_output=True, text=True, env=ENV, timeout=20, check=False, cwd=tmp_path)
    p = call(*args)
    assert p.returncode in (2, 125) and "put -- before it" in p.stderr and ODD in p.stderr, p
    at = next(i for i, a in enumerate(args) if a.startswith(ODD))
    p = call(*args[:at], "--", *args[at:])
    assert p.returncode in (1, 4, 125) and "put -- before" not in p.stderr and "usage" not in p.stderr, p


@pytest.mark.parametrize("dashes", [[], ["--"]])
@pytest.mark.parametrize("program,args,at", [
    ("edgehub", ["signal", ODD, "KILL"], 1), ("edgehub", ["revoke", ODD], 1), ("edgehub", ["services", ODD], 1), ("edgehub", ["ssh-proxy", ODD], 1),
    ("edgehub", ["logs", "verify", ODD], 2), ("edgehub", ["token", "revoke", ODD], 2), ("edgehub", ["secret", "refresh", ODD, "n=@/dev/null"], 2),
    ("edgectl", ["signal", ODD, "KILL"], 1), ("edgectl", ["logs", "verify", ODD], 2)])
def test_an_operand_where_there_are_no_options(program, args, at, dashes, tmp_path):
    where = ["-d" if program == "edgehub" else "-r", str(tmp_path)]
    p = subprocess.run([exe(program), *where, *args[:at], *dashes, *args[at:]], capture_output=True, text=True, env=ENV, timeout=20, check=False)
    assert p.returncode in (1, 4) and "usage" not in p.stderr, p


def test_no_guess_where_nothing_is_near():
    p = subprocess.run([exe("edgehub"), "xyzzy"], capture_output=True, text=True, env=ENV, timeout=20, check=False)
    assert p.returncode == 2 and "did you mean" not in p.stderr and "--help" in p.stderr
