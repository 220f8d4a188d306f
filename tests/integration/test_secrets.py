"""Secrets never where they can be read (B80, B81, B129's environment): argv, environment, log, status, error texts, files.

Where it could go wrong: any message with a URL, header, token or environment value in it; the hand-over of a token to
connectd; core files; the spec on its way to the workload. The log level is debug in every test.
"""
import base64
import json
import os
import urllib.parse

import pytest

from lib import proc
from lib.conn import http_answer
from lib.proc import wait_for
from lib.status import link

pytestmark = pytest.mark.timeout(90)


def spellings(secret):
    raw = secret.encode()
    out = {raw, raw.hex().encode(), urllib.parse.quote(secret, safe="").encode()}
    for pad in (b"", b"x", b"xx"):
        text = base64.b64encode(pad + raw).rstrip(b"=")
        out.add(text[4:-4] if len(text) > 24 else text)
    return [s for s in out if len(s) > 8]


class Search:
    """Looks for every spelling of every canary in all places of a device that are not meant to hold them."""

    def __init__(self, a):
        self.a, self.canaries, self.texts = a, {}, []

    def add(self, name, secret):
        self.canaries[name] = secret

    def look(self, allowed_files=()):
        a = self.a
        places = {"log": a.log_text().encode(), "status": a.ctl("status").out.encode(),
                  "status text": a.ctl("status", json_out=False).out.encode(),
                  "workloads": a.ctl("workloads").out.encode()}
        for pid in [a.top.pid] + list(a.pids().values()):
            places[f"cmdline {pid}"] = proc.read(f"/proc/{pid}/cmdline")
            places[f"environ {pid}"] = proc.environ(pid)
            places[f"comm {pid}"] = proc.read(f"/proc/{pid}/comm")
        for where, dirs, files in os.walk(a.dir):
            for name in files + dirs:
                path = os.path.join(where, name)
                places[f"name {path}"] = path.encode()
                if os.path.isfile(path) and not os.path.islink(path) and path not in allowed_files:
                    places[f"file {path}"] = open(path, "rb").read()
        for n, text in enumerate(self.texts):
            places[f"text {n}"] = text.encode() if isinstance(text, str) else text
        for place, data in places.items():
            for name, secret in self.canaries.items():
                for spelling in spellings(secret):
                    assert spelling not in data, f"{name} in {place}"


def test_b80_enrolment_by_token_file(agent, hub):
    token = hub.token()
    a = agent(token=token)
    search = Search(a)
    hub.session()
    search.add("token", token)
    search.add("token secret", token.split(".")[2])
    wait_for(lambda: os.path.exists(a.credential_file), 5, "credential file")
    credential = json.load(open(a.credential_file, encoding="utf-8"))["credential"]
    search.add("credential", credential)
    search.add("credential secret", credential.split(".")[2])
    wait_for(lambda: not os.path.exists(a.token_file), 5, "token file removed")
    search.look(allowed_files=(a.credential_file,))


@pytest.mark.parametrize("form", ["token", "bundle"])
def test_b80_enrolment_by_edgectl(agent, hub, form):
    a = agent(token=False)
    token = hub.token()
    text = token if form == "token" else "cloopenroll1." + base64.urlsafe_b64encode(
        json.dumps({"server": hub.url(), "token": token}).encode()).decode().rstrip("=")
    search = Search(a)
    search.add("token secret", token.split(".")[2])
    if form == "bundle":
        search.add("bundle", text)
    got = a.enroll(text, watch=lambda pid: search.texts.extend([proc.read(f"/proc/{pid}/cmdline"), proc.environ(pid)]))
    assert got.rc == 0, got
    search.texts += [got.out, got.err]
    hub.session()
    search.look()


def test_b80_no_option_takes_a_secret(agent):
    """`--token VALUE` and `enroll VALUE` are refused and the text says how to do it; the value is not repeated."""
    a = agent(start=False)
    token = "clet1.AAAAAAAAAAAAAAAA.canarycanarycanarycanarycanarycanarycanary1.00"
    for args in (["enroll", token], ["enroll", "--token", token], ["--token", token]):
        got = a.ctl(*args, json_out=False)
        assert got.rc == 2 and token not in got.err + got.out, got
        assert "stdin" in got.err or "file" in got.err or "usage" in got.err.lower(), got


def test_b81_every_error_with_canaries(agent, hub, leaf):
    """Each way to fail, at debug level: 401, 403 with the token echoed, TLS errors, bad upgrade, refused hello."""
    token = hub.token()
    hub.b.auth = False
    a = agent(token=token)
    search = Search(a)
    search.add("token", token)
    search.add("token secret", token.split(".")[2])

    def attempt(n=2):
        count = len(hub.accepts)
        hub.wait("attempts", lambda: len(hub.accepts) >= count + n, 20)
    first = hub.session()
    credential = next(iter(hub.credentials))
    search.add("credential secret", credential.split(".")[2])
    for answer in (http_answer(401, json.dumps({"error": f"bad token {credential}"})),
                   http_answer(403, f"<html>{credential}</html>", ctype="text/html"),
                   http_answer(500, credential, extra=f"X-Echo: {credential}\r\n"),
                   f"HTTP/1.1 {credential}\r\n\r\n".encode(), credential.encode() + b"\r\n\r\n"):
        hub.b.http = answer
        hub.cut() if hub.current.alive else None
        attempt()
    hub.b.http = None
    second = hub.session(after=first)
    second.send("error", {"code": credential, "message": f"{credential} is bad"})
    second.send_text(f"garbage {credential}")
    third = hub.session(after=second)
    third.send("bye", {"reason": f"goodbye {credential}", "reconnect": True})
    a.ctl("reconnect")
    hub.session(20, after=third).close(1011, "closing " + credential[:60])
    a.ctl("reconnect")
    hub.session(20)
    # What a hub says in plain words may be shown, but not our own secret inside it.
    search.look(allowed_files=(a.credential_file,))
    assert leaf and link(a)


def test_b81_environment_values_of_a_workload(agent, hub, dialect):
    """The value reaches the workload's own environment and nothing else: no log, status, record, argv, error text."""
    a = agent()
    canary = "canary-env-0f8fad5b-d9cb-469f-a165-70867728950e"
    search = Search(a)
    search.add("environment value", canary)
    run = hub.start("echo ${#SECRET}; sleep 1000", env={"SECRET": canary, "PATH": "/usr/bin:/bin"})
    hub.wait("output", lambda: run.log.received, 10)
    assert run.text == b"47\n"
    bad = hub.start(["/nonexistent"], env={"SECRET": canary}, refused=True)
    search.texts.append(bad.refused[1])
    old = a.kill9("workerd")
    a.restarted("workerd", old)
    answer = hub.request("start", {"handle_id": "h", "spec": {"argv": ["x"], "env": [canary]}, "sandbox": {}}, handle="h")
    search.texts.append(json.dumps(answer))
    search.look()
    hub.signal(run, "kill")
    hub.finish(run)


def test_b81_credential_is_not_in_memory_dumps(agent, hub):
    """No core files, and the processes are not dumpable."""
    a = agent()
    hub.session()
    for role, pid in a.pids().items():
        limits = proc.read(f"/proc/{pid}/limits").decode()
        core = next(line for line in limits.splitlines() if line.startswith("Max core file size")).split()
        assert core[4] == "0" or role == "launcher", (role, core)
        assert os.stat(f"/proc/{pid}/environ").st_uid == 0, f"{role} is dumpable"


def test_b129_environ_of_the_daemons_is_clean(agent, hub):
    """Not even the block the process was started with: the token comes by file, and what is set for us is removed."""
    a = agent(env={"EDGEWARD_CANARY": "x"})
    hub.session()
    for pid in a.pids().values():
        assert b"clet1" not in proc.environ(pid) and b"clac1" not in proc.environ(pid)
