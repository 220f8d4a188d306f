"""Secrets of a start that has a workspace, a write-back or a seed, too (cloop.md 5.7 to 5.10; B43, B46, B81).

Where it could go wrong: stage.c and handout.c (a step that gets what only the payload may have, a payload that gets what was taken back in
the meantime), vault.c (git's credential, which no lease covers), leases.c (a process that is asked and has no files), life.c (a
stop that comes between two steps).
"""
import base64
import os
import signal
import time

import pytest

from lib.session import new_id
from test_git import SECRET, STAGES, credential, device, dialect, git, nothing_left, on_both, seed, server, workspace  # noqa: F401
from test_leases import DIR, TOKEN, attribution, refresh, revoke, secret_file, text, until
from test_secrets import Search

pytestmark = pytest.mark.timeout(120)
ENV = {"PATH": "/usr/bin:/bin", "F": f"{DIR}/token", "K": "pass-" + TOKEN}


def leased(**kw):
    return {"secret_files": [secret_file(TOKEN, **kw)], **credential()}


@on_both(4)
def test_a_run_with_everything_around_it(device, hub, server, dialect):
    """The payload has its files and variables, git its credential, and nobody anything of the other's; no step shows either."""
    name = TOKEN + ".git"       # every step of git names it
    base = server.repo(name)
    server.password = SECRET
    bare = os.path.join(server.dir, name)
    with open(os.path.join(bare, "hooks", "pre-receive"), "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\necho hook says {TOKEN} {SECRET}\n")
        os.chmod(f.name, 0o755)
    search = Search(device)
    search.add("file", TOKEN)
    search.add("credential", SECRET)
    script = ('stat -c "%a %n" $F; cat $F; echo; echo $K; cat .cloop/state.json; env | grep -c EW_; cat /proc/*/environ 2>/dev/null | grep -c s3cret; '
              'git config -l | grep -ci authorization; echo x > f')
    run = hub.finish(hub.start(script, 40, work_dir="w", env=ENV, workspace=workspace(server, name, ref=base), secrets=[attribution(env=["K"])],
                               write_back={"mode": "push", "branch": "cloop/s"}, beside={**leased(mode=0o400), **seed({"a": 1})}))
    lines = text(run).splitlines()
    assert run.exit_code == 0 and run.result["pushed"] is True, (lines, run.result)
    at = lines.index("400 /run/secrets/cloop-lease-1/token")
    assert lines[at + 1:at + 7] == ["[redacted]", "[redacted]", '{"a": 1}0', "0", "0", lines[at + 6]], lines
    assert sum("[redacted]" in line for line in lines if line.startswith("edgeward: ")) >= 2, lines
    assert any("hook says [redacted]" in line for line in lines), lines
    assert git("show", "cloop/s:f", cwd=bare) == "x"
    search.texts += [text(run)]
    git_dir = os.path.join(device.root, "w", ".git")        # where the name of the repository lies
    search.look([os.path.join(where, f) for where, _, files in os.walk(git_dir) for f in files] + [p for p in (bare,) if os.path.isfile(p)])
    assert revoke(hub)["known"] is False, "what has ended holds nothing"
    hub.delivered(run)
    nothing_left(device)


def in_the_fetch(hub, server, script, **kw):
    server.repo()
    server.password = SECRET
    server.stall.clear()
    run = hub.send_start(["/bin/sh", "-c", script], work_dir=new_id("w"), env=ENV, workspace=workspace(server), secrets=[attribution(env=["K"])],
                         beside={**leased(), **kw})
    hub.wait("the fetch", lambda: server.requests, 30)
    return run


def test_what_is_taken_back_in_a_fetch_is_never_there(device, hub, server):
    run = in_the_fetch(hub, server, 'ls /run/secrets; echo "K=<$K>"; test -e $F; echo $?')
    assert revoke(hub) == {"lease_id": "l1", "action": "scrub", "known": True, "env_scrubbed": ["K"], "files_removed": 1}
    assert revoke(hub) == {"lease_id": "l1", "action": "scrub", "known": True}
    server.stall.set()
    hub.finish(run, 30)
    assert text(run).endswith("K=<>\n1\n") and "cloop-lease" not in text(run), text(run)


@pytest.mark.parametrize("how", [None, signal.SIGKILL, signal.SIGHUP])
def test_what_is_refreshed_in_a_fetch_is_what_the_payload_gets(device, hub, server, how):
    run = in_the_fetch(hub, server, "cat $F | base64 | tr A-Za-z N-ZA-Mn-za-m; cat $F; ls /run/secrets/*")
    fresh = "new-" + TOKEN[::-1]
    assert refresh(hub, secret_file(fresh)) == {"lease_id": "l1", "known": True, "files_rewritten": 1, "handles": [run.handle]}
    big = refresh(hub, secret_file("x" * 200000, "token"), secret_file("x", "nowhere"))
    assert big["files_rewritten"] == 1 and "nowhere" in big["error"]
    assert refresh(hub, secret_file(fresh))["files_rewritten"] == 1
    if how is not None:
        device.next_workerd(how)
    server.stall.set()
    hub.finish(run, 30)
    rot = base64.b64encode(fresh.encode()).decode().translate(str.maketrans(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "NOPQRSTUVWXYZABCDEFGHIJKLMnopqrstuvwxyzabcdefghijklm"))
    assert text(run).endswith(f"{rot}\n[redacted]token\n"), text(run)


def test_a_kill_in_a_fetch_ends_the_start(device, hub, server):
    run = in_the_fetch(hub, server, "echo it-was-run")
    assert revoke(hub, action="kill") == {"lease_id": "l1", "action": "kill", "known": True, "env_scrubbed": ["K"], "files_removed": 1,
                                          "killed": [run.handle]}
    server.stall.set()
    hub.wait("the refusal", lambda: run.refused, 30)
    assert "cancelled while fetching" in run.refused[1] and "it-was-run" not in text(run)


def test_b46_a_stop_between_two_steps_is_kept(agent, hub, ca, server):
    """The step is over and its output waits for the hub: the next one is not begun."""
    hub.b.edgeward = True
    a = agent(env={"GIT_SSL_CAINFO": ca.file}, conf={"work": {"show": os.path.dirname(ca.file), "retain": "64K", "overflow": "wait-forever"}})
    a.connected()
    server.repo()
    server.commit("r.git", {".gitattributes": b"loud filter=loud\n", "loud": b"1\n"})
    noise = 262144 + 65536 + 40000      # the window, the ring, and less than a pipe holds
    hub.finish(hub.start(f"git config filter.loud.smudge \"sh -c 'head -c {noise} /dev/zero | tr '\\\\0' n >&2; cat; echo > .git/loud-end'\"",
                         40, work_dir="w", workspace=workspace(server)))
    server.commit("r.git", {"loud": b"2\n"})
    hub.b.extend = False
    run = hub.send_start(["/bin/sh", "-c", "echo it-was-run"], work_dir="w", workspace=workspace(server))
    end = os.path.join(a.root, "w", ".git", "loud-end")
    hub.wait("the noise", lambda: len(run.text) >= 262000 and os.path.exists(end), 30)
    time.sleep(0.5)
    hub.signal(run)
    hub.b.extend = True
    s = hub.session()
    hub.do(s._extend, next(c for c, r in s.channels.items() if r is run), run, True)
    hub.wait("the refusal", lambda: run.refused, 30)
    assert "cancelled while placing" in run.refused[1] and not run.text.endswith(b"it-was-run\n")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
@pytest.mark.parametrize("stage", ["payload", "push"])
def test_b46_the_next_workerd_knows_plan_and_secrets(device, hub, server, stage, how):
    base = server.repo()
    server.password = SECRET
    gate = os.path.join(device.root, "w", "go")
    with open(os.path.join(server.dir, "r.git", "hooks", "pre-receive"), "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\necho hook says {TOKEN}\n")
        os.chmod(f.name, 0o755)
    run = hub.start("cat $F; echo; echo here; while [ ! -e go ]; do sleep 0.05; done; rm go; cat $F; echo x > f", 40, work_dir="w", env=ENV,
                    workspace=workspace(server, ref=base), write_back={"mode": "push", "branch": "cloop/k"}, beside=leased())
    until(hub, run, "here")
    if stage == "push":
        server.stall.clear()
        n = len(server.requests)
        open(gate, "w", encoding="ascii").close()
        hub.wait("the push", lambda: len(server.requests) > n, 30)
    device.next_workerd(how)
    server.stall.set()
    if stage == "payload":
        open(gate, "w", encoding="ascii").close()
    hub.finish(run, 40)
    assert run.exit_code == 0 and run.result["pushed"] is True, (text(run), run.result)
    assert text(run).count("[redacted]") == 3 and TOKEN not in text(run) and "hook says [redacted]" in text(run), text(run)
    hub.delivered(run)
    nothing_left(device)
