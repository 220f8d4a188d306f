"""Workspaces by git, and what is taken back (protocol reference 5.8 to 5.10, 14.15 to 14.18; B46 for a start half-way; the paths section).

Where it could go wrong: the steps in workerd/steps (what git is told, what is left behind, whose configuration counts), the stages in
workerd/stage.c (order, cancel, kill -9 between two), connectd's results.c and branch.c (order of frames, resume), the
decoder of the start. The server is a real git http-backend behind TLS with Basic authentication.
"""
import base64
import glob
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import time

import pytest

from lib import proc
from lib.agent import REPO
from lib.gitserver import ENV, GitServer, git
from lib.netns import Mounts
from lib.proc import wait_for
from lib.session import new_id

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(shutil.which("git") is None, reason="skipped: no git")]

SECRET = "s3cret-token-0123456789"
IDENTITY = "git -c user.name=w -c user.email=w@x "


@pytest.fixture
def server(shared, leaf, tmp_path):
    s = GitServer(str(tmp_path / "git"), leaf)
    yield s
    s.stop()


@pytest.fixture
def dialect(request, hub):
    """The dialect of every session, "edgeward" unless a test says otherwise; cloop only when what it is about is in the version we speak."""
    name, version = getattr(request, "param", ("edgeward", 1))
    spoken = int(re.search(r"CLOOP_VERSION\s+(\d+)", open(os.path.join(REPO, "proto/hub/limits.h"), encoding="ascii").read()).group(1))
    if name == "cloop" and spoken < version:
        pytest.skip(f"skipped: on cloop this needs version {version}, and {spoken} is spoken")
    hub.b.edgeward = name == "edgeward"
    return name


def on_both(version):
    return pytest.mark.parametrize("dialect", [("edgeward", version), ("cloop", version)], indirect=True, ids=["edgeward", "cloop"])


@pytest.fixture
def device(agent, hub, ca, dialect):
    """A device whose git trusts the test's CA."""
    a = agent(env={"GIT_SSL_CAINFO": ca.file}, conf={"work": {"show": os.path.dirname(ca.file)}})
    a.connected()
    return a


def workspace(server, name="r.git", **kw):
    return {"kind": "git", "repo": server.url(name), **kw}


def credential(password=SECRET, **kw):
    return {"workspace_credential": {"password": password, **kw}}


def everywhere(device, text):
    """Files below the work root, the state and the run directory that hold this text."""
    found = []
    for top in (device.root, device.state, device.run):
        for where, _, names in os.walk(top):
            for name in names:
                path = os.path.join(where, name)
                if os.path.isfile(path) and not os.path.islink(path) and text.encode() in open(path, "rb").read():
                    found.append(path)
    return found


def nothing_left(device):
    wait_for(lambda: glob.glob(os.path.join(device.state, "workerd", "results", "*")) == [], 20, "results go when they were delivered")
    assert glob.glob(os.path.join(device.root, "*", ".git", "edgeward-[qf]*")) == []


# ---- 14.15: the workspace ----

@on_both(1)
def test_a_workspace_is_there_when_the_payload_runs(device, hub, server, dialect):
    commit = server.repo()
    run = hub.finish(hub.start("cat README; git rev-parse HEAD; git status --porcelain", 40, work_dir="w", workspace=workspace(server)))
    text = run.text.decode()
    assert (run.state, run.exit_code) == ("exited", 0), text
    assert f"edgeward: fetching the default branch of {server.url('r.git')}\nedgeward: at commit {commit}\nhello\n{commit}\n" == text
    hub.delivered(run)
    nothing_left(device)


def test_the_credential_is_an_authorization_header_and_nowhere_else(device, hub, server):
    """14.15: not in output, not in a file, not in the environment of the payload."""
    commit = server.repo()
    server.password = SECRET
    run = hub.finish(hub.start("env; cat /proc/*/environ /proc/*/cmdline; grep -r . .git/config; echo end", 40, work_dir="w", workspace=workspace(server, ref=commit),
                               beside=credential()))
    assert run.exit_code == 0 and run.text.endswith(b"end\n"), run.text
    basic = base64.b64encode(f"x-access-token:{SECRET}".encode()).decode()
    assert any(h.get("Authorization") == "Basic " + basic for _, h in server.requests)
    for word in (SECRET, basic):
        assert word.encode() not in run.text and everywhere(device, word) == [] and word not in device.log_text()


def test_the_reason_has_the_cause_and_the_next_step(agent, hub, server, dialect):
    """A server whose CA nobody trusts here: what to set is said; a ref that is not there: git's own word."""
    server.repo()
    a = agent()
    a.connected()
    run = hub.start("true", 40, work_dir="w", workspace=workspace(server), refused=True)
    assert "git fetch of the default branch failed: the server's certificate is not trusted" in run.refused[1] and "GIT_SSL_CAINFO" in run.refused[1]


def test_the_reason_has_the_word_of_git(device, hub, server):
    server.repo()
    run = hub.start("true", 40, work_dir="w", workspace=workspace(server, ref="nowhere"), refused=True)
    assert "git fetch of nowhere failed: couldn't find remote ref nowhere" in run.refused[1]


@on_both(1)
def test_an_unauthenticated_fetch_is_refused_and_leaves_nothing(device, hub, server, dialect):
    server.repo()
    server.password = SECRET
    run = hub.start("true", 40, work_dir="w", workspace=workspace(server), refused=True)
    assert "git fetch of the default branch failed" in run.refused[1]
    assert b"edgeward: fetching" in run.text, "the text comes before the refusal"
    assert os.listdir(os.path.join(device.root, "w")) == []
    nothing_left(device)
    bad = hub.start("true", 40, work_dir="w", workspace=workspace(server), refused=True, beside=credential("wrong-one-0123"))
    basic = base64.b64encode(b"x-access-token:wrong-one-0123").decode()
    assert b"wrong-one-0123" not in bad.text and basic.encode() not in bad.text
    assert "wrong-one" not in bad.refused[1] and os.listdir(os.path.join(device.root, "w")) == []


def test_an_existing_checkout_is_reused_and_another_remote_refused(device, hub, server):
    first = server.repo()
    hub.finish(hub.start("echo mine > untracked; echo more >> README", 40, work_dir="w", workspace=workspace(server)))
    second = server.commit("r.git", {"new": b"n\n"})
    run = hub.finish(hub.start("cat untracked README new; git rev-parse HEAD", 40, work_dir="w",
                               workspace={"kind": "git", "repo": server.url("r")}))     # without .git, the same
    assert run.text.decode().endswith(f"mine\nhello\nmore\nn\n{second}\n"), run.text
    third = server.commit("r.git", {"README": b"another\n"})
    changed = hub.start("true", 40, work_dir="w", workspace=workspace(server, ref=third), refused=True)
    assert "git checkout failed: Your local changes to the following files would be overwritten" in changed.refused[1], changed.refused
    server.repo("other.git")
    other = hub.start("true", 40, work_dir="w", workspace=workspace(server, "other.git"), refused=True)
    assert server.url("r.git") in other.refused[1] and server.url("other.git") in other.refused[1]
    assert open(os.path.join(device.root, "w", "untracked")).read() == "mine\n"
    back = hub.finish(hub.start("git rev-parse HEAD", 40, work_dir="w2", workspace=workspace(server, ref=first, depth=1)))
    assert back.text.decode().endswith(first + "\n")


def test_size_limit_and_refusals_by_name(device, hub, server):
    server.repo(files={"big": os.urandom(3 << 20)})
    big = hub.start("true", 40, work_dir="w", workspace=workspace(server, size_limit_mb=1), refused=True)
    assert "limit" in big.refused[1], big.refused
    assert os.listdir(os.path.join(device.root, "w")) == []
    assert hub.finish(hub.start("true", 40, work_dir="w", workspace=workspace(server, size_limit_mb=0))).exit_code == 0
    old = hub.start("true", 40, work_dir="w3", workspace=workspace(server), refused=True,
                    beside=credential(expires_at="2020-01-01T00:00:00Z"))
    assert "expired" in old.refused[1]
    for kind, what in (("bind", "unsupported"), ("volume", "unsupported")):
        bad = hub.start("true", 40, work_dir="w3", workspace={"kind": kind}, refused=True)
        assert bad.refused[0] in (what, "started"), bad.refused
    assert not os.path.exists(os.path.join(device.root, "w3"))


@pytest.mark.parametrize("repo", ["http://localhost/r", "ext::sh -c 'touch /tmp/pwned'", "file:///etc", "ssh://h/r",
                                  "https://u:p@localhost/r", "--upload-pack=x", "https://localhost/r?x=y"])
def test_only_plain_https_is_a_repository(device, hub, repo):
    run = hub.start("true", 20, work_dir="w", workspace={"kind": "git", "repo": repo}, refused=True)
    assert run.refused[0] == "protocol" and "https" in run.refused[1]


def test_policy_without_network_refuses_by_name(agent, hub, server):
    agent(policy={"work": {"network": "none"}}).connected()
    server.repo()
    run = hub.start("true", 20, work_dir="w", workspace=workspace(server), refused=True)
    assert "policy.conf:2: network = none: git" in run.refused[1] and server.requests == []
    a = agent(policy={"work": {"network": "filtered"}, "network": {"deny": "10.0.0.0/8"}})
    a.connected()
    got = a.ctl("policy", "test", json.dumps({"spec": {"argv": ["true"], "workspace": workspace(server)}}))
    assert got.json["error"].startswith("policy.conf:2: network = filtered, of which this start gets nothing: git"), got


@on_both(1)
def test_b46_a_signal_during_the_fetch_ends_it(device, hub, server, dialect):
    """Once: the answer is the pending status, then the start is refused with the reason and nothing is left."""
    server.repo()
    server.stall.clear()
    run = hub.send_start(["/bin/true"], work_dir="w", workspace=workspace(server))
    hub.wait("the fetch", lambda: server.requests, 20)
    status = hub.signal(run)
    assert status["type"] == "status" and status["payload"]["status"]["state"] == "pending"
    hub.wait("the refusal", lambda: run.refused, 20)
    assert "cancelled while fetching" in run.refused[1] and len(run.answers) == 1
    server.stall.set()
    assert os.listdir(os.path.join(device.root, "w")) == []
    assert hub.finish(hub.start("true", 40, work_dir="w", workspace=workspace(server))).exit_code == 0


def test_heartbeats_go_on_during_a_fetch(device, hub, server):
    server.repo()
    server.stall.clear()
    run = hub.send_start(["/bin/true"], work_dir="w", workspace=workspace(server))
    hub.wait("the fetch", lambda: server.requests, 20)
    s = hub.session()
    n = len(s.beats)
    hub.wait("beats that list it", lambda: len(s.beats) > n + 4 and run.handle in s.beats[-1][2], 20)
    server.stall.set()
    hub.wait("the answer", lambda: run.started, 20)
    hub.finish(run)


def test_one_makes_a_workspace_at_a_time(device, hub, server):
    """The second in that directory would take what the first has begun for what a crash left, and clear it away."""
    server.repo()
    server.stall.clear()
    first = hub.send_start(["/bin/sh", "-c", "cat README"], work_dir="w", workspace=workspace(server))
    hub.wait("the fetch", lambda: server.requests, 20)
    second = hub.start("true", 20, work_dir="w", workspace=workspace(server), refused=True)
    assert second.refused[0] == "busy" and "another start is making its workspace" in second.refused[1], second.refused
    assert hub.finish(hub.start("true", 20, work_dir="w")).exit_code == 0, "work without a workspace clears nothing away"
    server.stall.set()
    hub.wait("the start", lambda: first.started, 20)
    assert hub.finish(first).text.endswith(b"hello\n")
    assert hub.finish(hub.start("cat README", 40, work_dir="w", workspace=workspace(server))).exit_code == 0


# ---- hostile repositories and work directories ----

def test_hostile_repositories_stay_in_the_tree(device, hub, server):
    """Symbolic links out of the tree, a submodule of another protocol, filters and hooks: nothing of it acts outside or at fetch."""
    mark = os.path.join(device.root, "w", "pwned-sub")      # /tmp is the sandbox's own: what acts there is seen by nobody
    server.repo(files={"a": b"x\n", ".gitattributes": b"* filter=evil\n",
                       ".gitmodules": f'[submodule "s"]\n\tpath = s\n\turl = ext::sh -c "touch {mark}"\n'.encode()})
    server.commit("r.git", {}, links={"out": b"/etc/passwd", "up": b"../../../../../../etc"})
    run = hub.finish(hub.start("ls -a; cat a; test -e s/x || echo no submodule; readlink out up", 40, work_dir="w", workspace=workspace(server)))
    assert run.exit_code == 0 and b"no submodule\n/etc/passwd\n../../../../../../etc\n" in run.text, run.text
    assert not os.path.exists(mark)
    # The mark is in reach: the very command, run by a workload there.
    assert hub.finish(hub.start(f"touch {mark}", 40, work_dir="w")).exit_code == 0 and os.path.exists(mark)


@pytest.mark.parametrize("before", [None, "git config submodule.recurse true; git config fetch.recurseSubmodules yes; git config submodule.active .; "
                                    "git config submodule.s.active true"], ids=["fresh", "configured"])
def test_submodules_are_not_fetched_and_large_files_stay_pointers(device, hub, server, before):
    """Also where an earlier workload has set that they are: the server of the one repository is all that hears of it."""
    server.repo()
    sub = server.repo("sub.git", {"in-sub": b"s\n"})
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"1" * 64 + b"\nsize 5\n"
    if before:
        assert hub.finish(hub.start(before, 40, work_dir="w", workspace=workspace(server))).exit_code == 0
    server.commit("r.git", {"large": pointer, ".gitattributes": b"large filter=lfs diff=lfs merge=lfs -text\n",
                            ".gitmodules": f'[submodule "s"]\n\tpath = s\n\turl = {server.url("sub.git")}\n'.encode()}, modules={"s": sub})
    run = hub.finish(hub.start("ls -A s; cat large", 40, work_dir="w", workspace=workspace(server)))
    assert run.exit_code == 0 and run.text.endswith(b"\n" + pointer) and b"in-sub" not in run.text, run.text
    assert not [p for p, _ in server.requests if "sub.git" in p]


@pytest.mark.parametrize("trick", [
    "git config core.fsmonitor 'touch pwned'; git config core.sshCommand 'touch pwned'; git config credential.helper '!touch pwned; env >&2'",
    "git config url.https://localhost:1/.insteadOf https://localhost",
    "git config http.proxy http://localhost:1; git config http.sslVerify false; git config remote.origin.uploadpack 'touch pwned'",
    "printf '#!/bin/sh\\ntouch pwned; env > stolen\\n' > .git/hooks/x; chmod 755 .git/hooks/x; for h in post-checkout reference-transaction pre-push; do cp .git/hooks/x .git/hooks/$h; done",
    "git config filter.evil.smudge 'env > stolen; cat'; git config filter.evil.clean 'env > stolen; cat'; mkdir -p .git/info; echo '* filter=evil' > .git/info/attributes",
    "git config include.path ../evil; printf '[http]\\n\\textraHeader = X-Stolen: 1\\n' > evil",
    "echo /etc > .git/objects/info/alternates; mkdir -p .git/info; ln -sf /etc/passwd .git/shallow",
    "git init -q --bare evil; echo 1234567890123456789012345678901234567890 > evil/refs/heads/x; echo $PWD/evil/objects > .git/objects/info/alternates",
], ids=["commands", "insteadof", "proxy", "hooks", "filter", "include", "alternates", "alternate-repository"])
def test_a_checkout_an_earlier_payload_prepared_gets_no_credential(device, hub, server, trick):
    """The configuration an earlier workload left counts neither for the fetch nor the push: git runs beside it there."""
    server.repo()
    server.password = SECRET
    assert hub.finish(hub.start("mkdir -p .git/hooks; " + trick, 40, work_dir="w", workspace=workspace(server), beside=credential())).exit_code == 0
    second = server.commit("r.git", {"new": b"n\n"})
    del server.requests[:]
    run = hub.start("echo y > z", 40, work_dir="w", workspace=workspace(server, ref=second),
                    beside=credential(), write_back={"mode": "push", "branch": "cloop/t", "message": "m"})
    hub.finish(run)
    assert run.exit_code == 0 and run.result["pushed"] is True, (run.text, run.result)
    assert all("X-Stolen" not in h for _, h in server.requests)
    for word in (SECRET, base64.b64encode(f"x-access-token:{SECRET}".encode()).decode()):
        assert everywhere(device, word) == []
    assert not os.path.exists(os.path.join(device.root, "w", "pwned"))


def test_a_workload_beside_a_fetch_gets_no_credential(device, hub, server):
    """Two workloads may run in one directory at a time: the repository that the fetch works with is not in reach of the other one."""
    server.repo()
    assert hub.finish(hub.start("git init -q --bare evil; echo $PWD/evil/objects > .git/objects/info/alternates", 40, work_dir="w",
                                workspace=workspace(server))).exit_code == 0
    server.password = SECRET
    second = server.commit("r.git", {"new": b"n\n"})
    thief = hub.start("echo up; while [ ! -e stop ]; do for f in $(find .git evil /tmp /dev/shm -path '*/edgeward-q*/config') evil/config; do "
                      "printf '[core]\\n\\talternateRefsCommand = \"env > %s/stolen; true\"\\n' $PWD > $f; done; done", 60, work_dir="w")
    hub.wait("up", lambda: b"up" in thief.text, 20)
    server.stall.clear()
    del server.requests[:]
    run = hub.send_start(["/bin/sh", "-c", "touch stop"], work_dir="w", workspace=workspace(server, ref=second), beside=credential())
    hub.wait("the fetch", lambda: server.requests, 20)
    time.sleep(1)       # what runs behind the answer reads the settings then
    server.stall.set()
    hub.finish(run)
    hub.finish(thief)
    assert run.exit_code == 0, run.text
    assert not os.path.exists(os.path.join(device.root, "w", "stolen"))


@pytest.mark.parametrize("make", ["ln -s /etc .git", "echo 'gitdir: /etc' > .git", "mkdir -p .git; ln -s /etc .git/objects"])
def test_a_git_directory_that_leads_elsewhere_is_refused(device, hub, server, make):
    server.repo()
    hub.finish(hub.start(make, work_dir="w"))
    run = hub.start("true", 40, work_dir="w", workspace=workspace(server), refused=True)
    assert "no plain repository" in run.refused[1]


# ---- 14.17: write-back ----

@pytest.mark.parametrize("env", [None, {"A": "1"}], ids=["none", "without"])
def test_home_is_beside_the_tree(device, hub, server, env):
    """14.9: what programs keep there is in no commit, and is there for the next; 0700, also after it was opened or replaced by a link."""
    base = server.repo()
    back = {"mode": "push", "branch": "cloop/h"}
    run = hub.finish(hub.start("cd; stat -c %a .; echo secret > .netrc; chmod 755 .; cd - > /dev/null; echo x > f", 40, work_dir="w", env=env,
                               workspace=workspace(server, ref=base), write_back=back))
    assert b"\n700\n" in run.text and run.result["files_changed"] == 1, (run.text, run.result)
    assert git("ls-tree", "-r", "--name-only", "cloop/h", cwd=os.path.join(server.dir, "r.git")).split() == ["README", "f"]
    run = hub.finish(hub.start("cd; stat -c %a .; cat .netrc; cd ..; mv edgeward-home old; ln -s old edgeward-home", 40, work_dir="w", env=env,
                               workspace=workspace(server, ref=base)))
    assert b"\n700\nsecret\n" in run.text, run.text
    run = hub.finish(hub.start("ls -ld ~ | cut -c 1-10; ls -A ~", 40, work_dir="w", env=dict(env or {}, B="2"), workspace=workspace(server, ref=base)))
    assert b"\ndrwx------\n" in run.text and b".netrc" not in run.text, run.text
    run = hub.finish(hub.start("echo $HOME", 40, work_dir="w", env={"HOME": "/tmp"}, workspace=workspace(server, ref=base)))
    assert run.text.endswith(b"\n/tmp\n"), run.text


@on_both(4)
def test_a_push_brings_the_work_to_a_branch(device, hub, server, dialect):
    base = server.repo()
    server.password = SECRET
    run = hub.finish(hub.start("echo more >> README; echo new > f", 40, work_dir="w", workspace=workspace(server, ref=base), beside=credential(),
                               write_back={"mode": "push", "branch": "cloop/task-1", "message": "the work\n\nof a run"}))
    assert run.result["pushed"] is True and run.result["base_sha"] == base and "error" not in run.result, run.result
    assert (run.result["mode"], run.result["branch"], run.result["commits"], run.result["files_changed"]) == ("push", "cloop/task-1", 1, 2)
    bare = os.path.join(server.dir, "r.git")
    assert git("rev-parse", "cloop/task-1", cwd=bare) == run.result["commit_sha"]
    assert git("log", "-1", "--format=%B", "cloop/task-1", cwd=bare) == "the work\n\nof a run"
    assert git("show", "cloop/task-1:README", cwd=bare) == "hello\nmore"
    assert run.results == 1 and (run.state, run.exit_code) == ("exited", 0)
    hub.delivered(run)
    nothing_left(device)


def unbundle(run, tmp_path, server):
    """The bundle of a run, fetched into a clone: its branch's commit."""
    file, clone = str(tmp_path / "b.bundle"), str(tmp_path / "clone")
    with open(file, "wb") as f:
        f.write(run.bundle)
    git("clone", "-q", "--bare", os.path.join(server.dir, "r.git"), clone)
    git("fetch", "-q", file, f"refs/heads/{run.result['branch']}:refs/heads/got", cwd=clone)
    return git("rev-parse", "got", cwd=clone), clone


@on_both(4)
def test_a_bundle_is_streamed_with_its_digest(device, hub, server, dialect, tmp_path):
    base = server.repo()
    run = hub.finish(hub.start("head -c 1500000 /dev/urandom > big; " + IDENTITY + "add big && " + IDENTITY + "commit -qm one; echo x > y", 40,
                               work_dir="w", workspace=workspace(server, ref=base),
                               write_back={"mode": "bundle", "branch": "cloop/b", "message": "rest"}))
    assert run.result.get("error") is None and run.result["bundle_bytes"] == len(run.bundle) > 1500000, run.result
    assert run.result["bundle_sha256"] == hashlib.sha256(run.bundle).hexdigest()
    assert run.result["commits"] == 2 and run.result["files_changed"] == 2
    assert unbundle(run, tmp_path, server)[0] == run.result["commit_sha"]
    hub.delivered(run)
    nothing_left(device)


@on_both(4)
def test_a_lost_link_begins_the_bundle_again(device, hub, server, dialect, tmp_path):
    """In the middle of the chunks: the next session starts at offset 0, the status comes once and behind it."""
    hub.b.bundles = False       # on edgeward.1 only an older hub has chunks
    base = server.repo()
    cuts = []

    def cut(session, frame):
        if session.number in cuts:
            return True     # what was on its way
        if frame.get("type") != "result_chunk" or frame["payload"]["offset"] < 100000 or len(cuts) == 3:
            return False
        cuts.append(session.number)
        session._finish(("cut",))
        hub.do(session.conn.abort, True)
        return True
    hub.b.on_frame = cut
    run = hub.finish(hub.start("head -c 1000000 /dev/urandom > big", 40, work_dir="w", workspace=workspace(server, ref=base),
                               write_back={"mode": "bundle", "branch": "cloop/b"}), 40)
    assert len(cuts) == 3 and run.results == 1 and run.result["bundle_sha256"] == hashlib.sha256(run.bundle).hexdigest()
    assert unbundle(run, tmp_path, server)[0] == run.result["commit_sha"]


@pytest.mark.parametrize("command,field,text", [
    ("true", "skip_reason", "changed nothing"),
    ("git checkout -qb aside; echo x > f; git add f; " + IDENTITY + "commit -qm x; git checkout -q --detach HEAD~1", "skip_reason", "what lies on aside"),
    ("echo x > f; touch .git/index.lock", "error", "index.lock': File exists"), ("echo x > f; chmod 0 f", "error", "git add failed: open(\"f\"): Permission denied"),
    ("exit 3", "skip_reason", "exit code 0"),
    ("head -c 3000000 /dev/urandom > big", "error", "1 MiB"), ("rm -rf .git", "error", "no plain repository"),
    ("git checkout -q --orphan o; " + IDENTITY + "commit -qm x", "error", "does not descend"),
], ids=["unchanged", "aside", "locked", "unreadable", "failed", "too-large", "gone", "unrelated"])
def test_what_cannot_be_written_back_is_told_and_costs_nothing_else(device, hub, server, command, field, text):
    base = server.repo()
    run = hub.finish(hub.start(command, 40, work_dir="w", workspace=workspace(server, ref=base),
                               write_back={"mode": "bundle", "branch": "cloop/b", "max_bundle_bytes": 1 << 20}), 30)
    assert text in run.result.get(field, ""), run.result
    assert run.bundle == b"" and run.state == "exited" and run.exit_code == (3 if "exit 3" in command else 0)
    hub.delivered(run)
    nothing_left(device)


def test_a_push_that_is_refused_is_an_error_of_the_write_back(device, hub, server):
    base = server.repo()
    git("config", "http.receivepack", "false", cwd=os.path.join(server.dir, "r.git"))
    run = hub.finish(hub.start("echo x > f", 40, work_dir="w", workspace=workspace(server, ref=base),
                               write_back={"mode": "push", "branch": "cloop/b"}), 40)
    assert "git push failed" in run.result["error"] and "pushed" not in run.result and run.exit_code == 0
    git("config", "http.receivepack", "true", cwd=os.path.join(server.dir, "r.git"))
    server.commit("r.git", {"other": b"o\n"}, branch="cloop/b")
    run = hub.finish(hub.start("echo x > f", 40, work_dir="v", workspace=workspace(server, ref=base), write_back={"mode": "push", "branch": "cloop/b"}), 40)
    assert "git push failed: [rejected]" in run.result["error"] and "(fetch first)" in run.result["error"], run.result


def test_heartbeats_and_signals_during_a_write_back(device, hub, server):
    """15.23: the state stays running, beats list it; a signal ends the write-back and not the outcome."""
    base = server.repo()
    run = hub.start("while [ ! -e go ]; do sleep 0.05; done; rm go; echo x > f", 40, work_dir="w", workspace=workspace(server, ref=base),
                    write_back={"mode": "push", "branch": "cloop/b"})
    server.stall.clear()
    n = len(server.requests)
    open(os.path.join(device.root, "w", "go"), "w").close()
    hub.wait("the push", lambda: len(server.requests) > n, 30)
    s = hub.session()
    beats = len(s.beats)
    hub.wait("beats that list it", lambda: len(s.beats) > beats + 4 and run.handle in s.beats[-1][2], 20)
    assert hub.status(run)["payload"]["status"]["state"] == "running"
    assert hub.signal(run)["type"] == "status"
    hub.finish(run, 20)
    server.stall.set()
    assert "cancelled while pushing" in run.result["error"] and (run.state, run.exit_code) == ("exited", 0)


# ---- 14.16: a branch that is shipped ----

def bundle_of(server, base, branch="cloop/feature"):
    bare = os.path.join(server.dir, "r.git")
    head = server.commit("r.git", {"shipped": b"s\n" * 1000}, branch=branch)
    data = subprocess.run(["git", "bundle", "create", "-q", "-", branch] + ([f"^{base}"] if base else []), cwd=bare, env=ENV,
                          capture_output=True, check=True).stdout
    return head, data, {"kind": "bundle", "branch_bundle": {"branch": branch, "head": head, "bytes": len(data),
                                                           "sha256": hashlib.sha256(data).hexdigest()}}


def ship(hub, handle, data, step=200, skip=None, last=0):
    """skip: the offset of a chunk that is left out; last: what the last one says more of the total."""
    s = hub.session()
    for i in range(0, len(data), step):
        if i != skip:
            total = len(data) + (last if i + step >= len(data) else 0)
            s.send("branch_chunk", {"offset": i, "data": base64.b64encode(data[i:i + step]).decode(), "total": total}, handle=handle)


def test_a_shipped_branch_becomes_a_checkout_and_its_work_comes_back(device, hub, server, tmp_path):
    server.repo()
    head, data, ws = bundle_of(server, None)
    handle = "shipped-1"
    ship(hub, handle, data)
    run = hub.finish(hub.start("git symbolic-ref HEAD; git rev-parse HEAD; ls -d .git/objects; echo w > work", 40, handle=handle, work_dir="w", workspace=ws,
                               write_back={"mode": "bundle", "branch": "cloop/feature"}), 30)
    assert f"refs/heads/cloop/feature\n{head}\n.git/objects\n" in run.text.decode() and run.result["base_sha"] == head, run.text
    assert unbundle(run, tmp_path, server)[0] == run.result["commit_sha"] and run.result["commits"] == 1
    assert glob.glob(os.path.join(device.state, "connectd", "branch*")) == []
    nothing_left(device)


@pytest.mark.parametrize("how", ["gap", "first", "total", "short", "none", "digest", "head"])
def test_a_branch_that_does_not_match_is_refused(device, hub, server, how):
    server.repo()
    _, data, ws = bundle_of(server, None)
    handle = new_id("b")
    if how in ("digest", "head"):
        ws["branch_bundle"]["sha256" if how == "digest" else "head"] = "0" * (64 if how == "digest" else 40)
    if how != "none":
        ship(hub, handle, data[:-200] if how == "short" else data, skip={"gap": 200, "first": 0}.get(how), last=how == "total")
    if how == "short":      # a total that was never reached
        ws["branch_bundle"]["bytes"] = len(data)
    run = hub.start("true", 40, handle=handle, work_dir="w", workspace=ws, refused=True)
    assert any(t in run.refused[1] for t in ("not shipped", "not completely", "does not match", "does not hold")), run.refused
    assert not os.path.isdir(os.path.join(device.root, "w")) or os.listdir(os.path.join(device.root, "w")) == []


def test_no_more_branches_than_eight_are_kept(device, hub, server):
    """14.16: in chunks the ninth has no answer of its own; its start has. One that was used, and a new session, make room."""
    server.repo()
    _, data, ws = bundle_of(server, None)
    names = [new_id("b") for _ in range(9)]
    for name in names:
        ship(hub, name, data)
    assert "not shipped" in hub.start("true", 40, handle=names[8], work_dir="w8", workspace=ws, refused=True).refused[1]
    assert hub.finish(hub.start("true", 40, handle=names[0], work_dir="w0", workspace=ws)).exit_code == 0
    extra = new_id("b")
    ship(hub, extra, data)
    assert hub.finish(hub.start("true", 40, handle=extra, work_dir="w9", workspace=ws)).exit_code == 0
    s = hub.session()
    s.cut()
    hub.session(after=s)
    assert "not shipped" in hub.start("true", 40, handle=names[1], work_dir="w1", workspace=ws, refused=True).refused[1]
    assert glob.glob(os.path.join(device.state, "connectd", "branch*")) == []


# ---- 14.18: project seed and result ----

def seed(document):
    return {"project_seed": base64.b64encode(gzip.compress(json.dumps(document).encode())).decode()}


def test_a_seed_is_placed_and_the_result_comes_before_the_status(agent, hub):
    hub.b.edgeward = True
    device = agent()
    device.connected()
    run = hub.finish(hub.start("cat .cloop/state.json; stat -c '%a' .cloop .cloop/state.json; ls .cloop", 30, work_dir="w", labels={"run_id": "r-7"},
                               beside=seed({"goal": "g", "current_step": 4})))
    assert run.exit_code == 0 and b'{"goal": "g", "current_step": 4}' in run.text and b"700\n600\n" in run.text, run.text
    assert json.loads(gzip.decompress(base64.b64decode(run.project["data"]))) == {"format": 1, "base_step": 4}
    assert json.load(open(os.path.join(device.root, "w", ".cloop", "sandbox-run.json")))["run_id"] == "r-7"
    with_db = hub.finish(hub.start("touch .cloop/state.db; exit 5", 30, work_dir="w", beside=seed({})))
    assert "database" in with_db.project["error"] and with_db.exit_code == 5
    plain = hub.finish(hub.start("ls -a", 30, work_dir="p"))
    assert plain.project is None and b".cloop" not in plain.text


@pytest.mark.parametrize("version,sent", [(12, False), (13, True)])
def test_a_project_result_is_of_version_13(agent, hub, version, sent):
    """14.18: an older hub has no such frame; the end is told all the same."""
    hub.b.edgeward, hub.b.version = False, version
    agent().connected()
    run = hub.finish(hub.start("true", 30, work_dir="w", beside=seed({"current_step": 4})))
    assert run.exit_code == 0 and (run.project is not None) is sent
    hub.delivered(run)


@pytest.mark.parametrize("spec,word", [({"workspace": {"kind": "git", "repo": "https://localhost/r"}}, "no git on this device"),
                                       ({"workspace": {"kind": "bundle", "branch_bundle": {"branch": "cloop/b", "head": "1" * 40}}}, "no git on this device")],
                         ids=["git", "bundle"])
@pytest.mark.root
def test_without_git_a_workspace_is_refused_and_none_is_told(agent, hub, spec, word):
    """14.15, 14.10."""
    ns = Mounts()
    try:
        ns.sh("mount -t tmpfs none /mnt; touch /mnt/none; for d in /usr/local/bin /usr/bin; do [ ! -e $d/git ] || mount --bind /mnt/none $d/git; done")
        a = agent(ns=ns)
        a.connected()
        told = hub.session().hello["capabilities"]
        assert not any(told.get(k) for k in ("workspace_provisioning", "write_back", "branch_bundles")), told
        assert word in hub.start("true", 20, work_dir="w", refused=True, **spec).refused[1]
        assert hub.finish(hub.start("true", work_dir="w")).exit_code == 0
    finally:
        ns.close()


def test_a_seed_never_enters_the_commits(device, hub, server):
    base = server.repo()
    run = hub.finish(hub.start("git status --porcelain; echo x > f", 40, work_dir="w", workspace=workspace(server, ref=base), beside=seed({"a": 1}),
                               write_back={"mode": "push", "branch": "cloop/s"}))
    assert run.result["pushed"] is True and run.result["files_changed"] == 1, run.result
    assert ".cloop" not in git("ls-tree", "-r", "--name-only", "cloop/s", cwd=os.path.join(server.dir, "r.git"))


@pytest.mark.parametrize("bad", [b"PK", gzip.compress(b"[1]"), gzip.compress(b"{" + b" " * (33 << 20))], ids=["magic", "array", "huge"])
def test_seeds_that_are_none(device, hub, bad):
    run = hub.start("true", 40, work_dir="w", refused=True, beside={"project_seed": base64.b64encode(bad).decode()})
    assert "seed" in run.refused[1]


def test_a_link_at_the_place_of_the_seed_is_refused(device, hub):
    hub.finish(hub.start("ln -s /etc .cloop", work_dir="w"))
    run = hub.start("true", 30, work_dir="w", refused=True, beside=seed({}))
    assert ".cloop is a symbolic link" in run.refused[1]


# ---- B46: kill -9 in every stage ----

STAGES = {"fetch": 0, "payload": 1, "push": 2}


@pytest.mark.parametrize("role,how", [("workerd", "kill9"), ("workerd", "reload"), ("connectd", "kill9")])
@pytest.mark.parametrize("stage", list(STAGES))
def test_b46_a_daemon_that_dies_in_a_stage_costs_nothing(device, hub, server, role, how, stage):
    """The workload goes on where it was, its end and its result are told once, nothing is left."""
    base = server.repo()
    gate = os.path.join(device.root, "w", "go")
    if stage == "fetch":
        server.stall.clear()
    run = hub.send_start(["/bin/sh", "-c", "echo here; while [ ! -e go ]; do sleep 0.05; done; rm go; echo x > f"], work_dir="w",
                         workspace=workspace(server, ref=base), write_back={"mode": "push", "branch": "cloop/k"})
    hub.wait("the fetch", lambda: server.requests, 30)
    if stage != "fetch":
        hub.wait("the start", lambda: run.started, 30)
    if stage == "push":
        server.stall.clear()
        n = len(server.requests)
        open(gate, "w").close()
        hub.wait("the push", lambda: len(server.requests) > n, 30)
    device.restarted(role, device.away(role, how))
    server.stall.set()
    if stage != "push":
        hub.wait("it runs", lambda: b"here" in run.text or run.terminal or run.refused, 30)
        if run.refused or run.terminal:     # the hub had forgotten the start with the session
            assert role == "connectd" and stage == "fetch"
            return
        open(gate, "w").close()
    hub.finish(run, 40)
    assert run.exit_code == 0 and run.result["pushed"] is True and run.text.count(b"here") == 1, (run.text, run.result)
    hub.wait("the end is noted", lambda: run.terminals, 5)
    assert len({json.dumps(p, sort_keys=True) for _, p in run.terminals}) == 1
    hub.delivered(run, 20)
    nothing_left(device)
    assert not [p for p in proc.by_uid(set(device.pool))] if os.geteuid() == 0 else True


def test_b46_a_power_cut_in_the_fetch_is_lost_and_the_next_start_begins_anew(device, hub, server):
    server.repo()
    server.stall.clear()
    run = hub.send_start(["/bin/true"], work_dir="w", workspace=workspace(server))
    hub.wait("the fetch", lambda: server.requests, 30)
    device.crash()
    server.stall.set()
    device.start()
    hub.wait("the end", lambda: run.terminal or run.refused, 30)
    assert os.path.exists(os.path.join(device.root, "w", ".git", "edgeward-fresh"))
    again = hub.finish(hub.start("cat README", 40, work_dir="w", workspace=workspace(server)))
    assert again.exit_code == 0 and again.text.endswith(b"hello\n")


def test_a_result_survives_a_restart_of_everything(agent, hub, ca, server, tmp_path):
    """The bundle lies in the state directory until the hub has confirmed the end."""
    device = agent(env={"GIT_SSL_CAINFO": ca.file}, conf={"work": {"show": os.path.dirname(ca.file)}})
    base = server.repo()
    hub.b.ack_beats = False
    run = hub.finish(hub.start("echo x > f", 40, work_dir="w", workspace=workspace(server, ref=base), write_back={"mode": "bundle", "branch": "cloop/b"}), 40)
    first = run.bundle
    device.crash()
    hub.b.ack_beats = True
    device.start()
    wait_for(lambda: run.results >= 2, 20, "the result comes again")
    assert run.bundle == first and unbundle(run, tmp_path, server)[0] == run.result["commit_sha"]
    hub.delivered(run, 20)
    nothing_left(device)


# ---- with edgehub ----

@pytest.mark.parametrize("mode", ["branch", "bundle"])
def test_edgehub_runs_a_workspace_and_brings_the_work_home(ehub, ehub_agent, ca, server, tmp_path, mode):
    a = ehub_agent(env={"GIT_SSL_CAINFO": ca.file}, conf={"work": {"show": os.path.dirname(ca.file)}})
    base = server.repo()
    server.password = SECRET
    token = tmp_path / "token"
    token.write_text(SECRET + "\n")
    common = ["run", "edge-test", "--workdir", "w", "--git", server.url("r.git"), "--ref", base]
    p = ehub.call(*common, "--git-token-file", str(token), "--write-back", mode, "--branch", "cloop/home", "--message", "done", "--",
                  "sh", "-c", "head -c 600000 /dev/urandom > big; cat README")
    assert p.returncode == 0 and b"\nhello\n" in p.stdout, (p.stdout, p.stderr)
    assert b"write-back: " in p.stderr
    handle = ehub.json("runs")[0]["handle"]
    result = json.loads(ehub.cli("result", handle))
    assert result["branch"] == "cloop/home" and result["files_changed"] == 1 and result["pushed"] is (mode == "branch")
    bare = os.path.join(server.dir, "r.git")
    if mode == "bundle":
        git("fetch", "-q", _saved(ehub, handle, tmp_path), "cloop/home:cloop/home", cwd=bare)
    else:
        assert ehub.call("result", handle, "-o", str(tmp_path / "none")).returncode != 0
    assert git("rev-parse", "cloop/home", cwd=bare) == result["commit_sha"]
    for top in (ehub.data, a.dir):
        for where, _, names in os.walk(top):
            for name in names:
                path = os.path.join(where, name)
                assert os.path.islink(path) or not os.path.isfile(path) or name.startswith("hub.db") or SECRET.encode() not in open(path, "rb").read(), path
    wrong = ehub.call("run", "edge-test", "--workdir", "w2", *common[4:], "--", "true")
    assert wrong.returncode == 123 and b"git fetch" in wrong.stderr, wrong
    failed = ehub.call(*common, "--git-token-file", str(token), "--write-back", "bundle", "--", "sh", "-c", "rm -rf .git")
    assert failed.returncode == 120 and b"write-back failed" in failed.stderr
    assert ehub.call("run", "edge-test", "--git", "ext::sh", "--", "true").returncode == 125
    assert ehub.call("run", "edge-test", "--git", server.url("r.git"), "--ref", "main", "--write-back", "branch", "--", "true").returncode == 125


def _saved(ehub, handle, tmp_path):
    file = str(tmp_path / "home.bundle")
    ehub.cli("result", handle, "-o", file)
    return file
