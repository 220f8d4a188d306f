"""Leases: secret files and variables of a workload, revoked and refreshed (cloop.md 5.7, 14.11 to 14.14; B43, B81).

Where it could go wrong: placing.c (a variable that still names the hub's directory), secretfs.c (a link that is followed, a file
that stays), leases.c (a grant too many, a report that is not exact), mask.c and redact.c (a value in the output). The rules of
secretfs.c and of the automaton one by one: unit/test_secretfs.c, unit/test_redact.c.
"""
import base64
import glob
import os
import re
import shutil
import signal
import subprocess

import pytest

from lib import proc
from lib.proc import wait_for
from test_secrets import Search

pytestmark = pytest.mark.timeout(120)
DIR = "/run/cloop/cloop-lease-1"
TOKEN = "canary-Zk3vT0x9mZ2dLr8A-token"


def secret_file(content, name="token", lease="l1", grant="g1", directory=DIR, **more):
    data = content.encode() if isinstance(content, str) else content
    return {"lease_id": lease, "grant_id": grant, "dir": directory, "name": name, "content": base64.b64encode(data).decode(), **more}


def attribution(lease="l1", grant="g1", env=(), files=()):
    return {"lease_id": lease, "grant_id": grant, "env_keys": list(env), "files": list(files), "dir": DIR,
            "expires_at": "0001-01-01T00:00:00Z"}


def text(run):
    return bytes(run.text).decode()


def until(hub, run, what, timeout=15):
    hub.wait(f"{what!r} in the output of {run.handle}", lambda: what in bytes(run.text).decode(errors="replace"), timeout)


def revoke(hub, lease="l1", grant=None, action=None):
    payload = {"lease_id": lease, "reason": "test"}
    payload.update({"grant_id": grant} if grant else {})
    payload.update({"action": action} if action else {})
    answer = hub.request("revoke", payload)
    assert answer["type"] == "revoked", answer
    return answer["payload"]


def refresh(hub, *files, lease="l1"):
    answer = hub.request("secret_refresh", {"lease_id": lease, "files": list(files), "reason": "test"})
    return answer["payload"] if answer["type"] == "secret_refreshed" else answer


SHOW = 'cat "$F" | od -An -c | tr -d " \\n"; echo; stat -c "%a %n" "$F" "${F%/*}"; '


def test_files_are_placed_and_variables_follow(agent, hub, dialect):
    """Exact bytes and modes in a 0700 directory of its own; the declared one is not made; values never leave."""
    a = agent()
    search = Search(a)
    search.add("file", TOKEN)
    script = SHOW + f'echo "arg=$A"; ls -d {DIR} 2>&1 | grep -c "No such"; ls -la /run/secrets; cat "$F"; grep -c secrets /proc/mounts; exit 3'
    run = hub.start(script, env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/token", "A": f"--x={DIR}/token:{DIR}x"},
                    secret_files=[secret_file(TOKEN + "\n", mode=0o400), secret_file(b"\0\xff", "bin", "l2", "g2", "/other/place")],
                    secrets=[attribution(env=["F"], files=[f"{DIR}/token"])])
    hub.finish(run)
    assert run.exit_code == 3
    lines = text(run).splitlines()
    assert lines[0] == "[redacted]\\n", lines
    real = re.match(r"400 (/run/secrets/cloop-lease-\d+)/token", lines[1]).group(1)
    assert lines[2] == f"700 {real}"
    assert lines[3] == f"arg=--x={real}/token:{DIR}x"
    assert lines[4] == "1", lines
    assert sum("cloop-lease-" in line for line in lines[5:]) == 2
    assert lines[-2:] == ["[redacted]", "1"], lines
    search.look()
    assert not os.path.exists("/run/secrets/cloop-lease-1") and not os.path.exists(DIR)


def test_no_secrets_no_directory(device, hub):
    run = hub.finish(hub.start("ls -d /run/secrets 2>&1; echo $?"))
    assert text(run).splitlines()[-1] == "2", text(run)


@pytest.mark.parametrize("wrong", [{"name": "../evil"}, {"name": ".."}, {"directory": "rel"}, {"directory": "/a/../b"}, {"mode": 0o644}])
def test_unsafe_files_are_refused(device, hub, wrong):
    """At decode, whatever else the start holds; nothing of it is started or left behind."""
    search = Search(device)
    search.add("file", TOKEN)
    run = hub.send_start(["/bin/sh", "-c", "echo ran > ran"], work_dir="unsafe", secret_files=[secret_file("good", "good"), secret_file(TOKEN, **wrong)])
    hub.wait("the refusal", lambda: run.refused, 10)
    assert run.refused[0] == "protocol" and TOKEN not in run.refused[1] and "evil" not in run.refused[1]
    search.look()
    assert not os.path.exists(os.path.join(device.root, "unsafe")) and device.ctl("status").json["workerd"]["started"] == 0
    assert hub.finish(hub.start("echo ran > ran", work_dir="unsafe", secret_files=[secret_file("good", "good")])).exit_code == 0, "the rest of it was good"


PRINTER = r"""
import base64, json, os, sys, time, urllib.parse
s = open(os.environ["F"]).read().strip("\n")
raw = s.encode()
def say(name, data):
    data = data if isinstance(data, bytes) else data.encode()
    os.write(1, b"%s:<" % name.encode() + data[:len(data) // 2]); time.sleep(0.02); os.write(1, data[len(data) // 2:] + b">\n")
say("raw", s); say("crlf", s.replace("\n", "\r\n")); say("joined", s.replace("\n", "")); say("json", json.dumps(s)[1:-1])
say("c", repr(s)[1:-1]); say("url", urllib.parse.quote(s, safe="")); say("url+", urllib.parse.quote_plus(s))
say("lower", urllib.parse.quote(s, safe="").lower() if s.lower() == s else "[redacted]")
for n in range(3):
    say(f"b64-{n}", base64.b64encode(b"x" * n + raw + b"\n"))
say("hex", raw.hex()); say("shell", "'" + s.replace("'", "'\\''") + "'")
for c in s[:20]:
    os.write(1, c.encode()); time.sleep(0.002)
time.sleep(1.2)
os.write(1, s[20:].encode() + b"\nordinary text stays\n")
print(os.environ["PASSWORD"], "and", os.environ["PASSWORD"][:4])
"""


def test_b43_values_are_masked_in_every_spelling(agent, hub, dialect):
    """Over two writes and over a pause of more than a second; not one spelling at the hub, in the spool, in the log, in status."""
    a = agent(conf={"work": {"spool": "4M", "retain": "64K"}})
    secret = "-----BEGIN K-----\nq8Zt+Rk/4w'\"x\\y2n5v7b9m1k3j5h7g\n-----END K-----"
    password = "correct horse/battery"
    search = Search(a)
    search.add("key line", "q8Zt+Rk/4w'\"x\\y2n5v7b9m1k3j5h7g")
    search.add("password", password)
    run = hub.start(["/usr/bin/python3", "-c", PRINTER], env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/key", "PASSWORD": password},
                    secret_files=[secret_file(secret + "\n", "key")], secrets=[attribution(env=["PASSWORD", "F"])], timeout=20)
    hub.finish(run, 30)
    lines = text(run).splitlines()
    for line in lines[:-3]:
        name, value = line.split(":", 1)
        assert re.fullmatch(r"<'?[A-Za-z0-9+/=]{0,6}\[redacted\][A-Za-z0-9+/=]{0,6}'?>", value), line
    assert len(lines) == 16 and lines[-3:] == ["[redacted]", "ordinary text stays", "[redacted] and corr"], lines
    search.texts += [text(run)]
    search.look()


def test_a_revoked_file_vanishes(device, hub, dialect):
    """Mid-run, and again changes nothing; what the lease does not carry is untouched and no error; a kill still finds the holder."""
    run = hub.start('while [ -e "$F" ]; do sleep 0.05; done; echo gone; ls /run/secrets | wc -l; cat "$G"; sleep 1000',
                    env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/token", "G": "/other/kept", "KEY": TOKEN},
                    secret_files=[secret_file("abc-value"), secret_file("kept", "kept", "l2", "g", "/other")],
                    secrets=[attribution(env=["KEY"]), attribution("l2", "g", files=["/etc/hosts"])])
    for _ in range(2):
        assert revoke(hub, "nobody") == {"lease_id": "nobody", "action": "scrub", "known": False}
        assert revoke(hub, "l1", "other") == {"lease_id": "l1", "grant_id": "other", "action": "scrub", "known": False}
    assert revoke(hub) == {"lease_id": "l1", "action": "scrub", "known": True, "env_scrubbed": ["KEY"], "files_removed": 1}
    until(hub, run, "gone\n1\nkept")
    assert revoke(hub, action="whatever") == {"lease_id": "l1", "action": "scrub", "known": True}
    got = revoke(hub, "l2")
    assert got["files_removed"] == 1 and "/etc/hosts" in got["error"] and "refused" in got["error"]
    assert os.path.exists("/etc/hosts") and not run.terminal
    assert revoke(hub, action="kill") == {"lease_id": "l1", "action": "kill", "known": True, "killed": [run.handle]}
    hub.finish(run)
    assert run.terminal
    assert revoke(hub, action="kill")["known"] is False, "what has ended holds nothing"


def test_a_kill_takes_who_does_not_listen(agent, hub):
    """SIGTERM, then the end after kill-grace; only holders; both directories are separate."""
    agent(conf={"work": {"kill-grace": "300ms"}})
    hub.session()
    stubborn = hub.start("trap '' TERM; echo up; while :; do sleep 1; done", secret_files=[secret_file(TOKEN)])
    other = hub.start("echo up; sleep 1000", secret_files=[secret_file(TOKEN, lease="l9")])
    for run in (stubborn, other):
        until(hub, run, "up")
    got = revoke(hub, action="kill")
    assert got["killed"] == [stubborn.handle] and got["files_removed"] == 1
    hub.finish(stubborn)
    assert stubborn.state == "killed"
    assert not other.terminal
    hub.signal(other, "kill")
    hub.finish(other)


def test_exactly_one_grant(device, hub):
    """The others stay; all one by one empty the directory last; what has no grant goes with any of the lease."""
    run = hub.start("echo up; while :; do ls /run/secrets/* 2>/dev/null | tr '\\n' ' '; echo .; sleep 0.1; done",
                    secret_files=[secret_file("value-a", "a", grant="ga"), secret_file("value-b", "b", grant="gb")])
    until(hub, run, "a b .")
    assert revoke(hub, grant="ga") == {"lease_id": "l1", "grant_id": "ga", "action": "scrub", "known": True, "files_removed": 1}
    until(hub, run, "\nb .")
    assert revoke(hub, grant="gb")["files_removed"] == 1
    until(hub, run, "\n.\n.")
    whole = hub.start("echo up; sleep 1000", env={"PATH": "/usr/bin:/bin", "K": TOKEN}, secrets=[attribution("l3", None, env=["K"])],
                      secret_files=[secret_file("value-c", "c", "l3", "gc"), secret_file("value-d", "d", "l3", "gd")])
    assert revoke(hub, "l3", "gc") == {"lease_id": "l3", "grant_id": "gc", "action": "scrub", "known": True, "env_scrubbed": ["K"],
                                       "files_removed": 2}
    for r in (run, whole):
        hub.signal(r, "kill")
        hub.finish(r)


def test_refresh_in_place(device, hub, dialect):
    """The delivered file is rewritten, and the reader never sees half of it; nothing new appears, nothing comes back after a scrub."""
    script = ('last=; while :; do n=$(cat "$F" | wc -c); [ "$n" = "$last" ] || echo "size $n"; last=$n; [ "$n" = 65536 ] && break; '
              'sleep 0.02; done; stat -c %a "$F"; cat "$F"; echo; ls /run/secrets/*; echo read; sleep 1000')
    run = hub.start(script, env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/token"}, secret_files=[secret_file(TOKEN)])
    until(hub, run, f"size {len(TOKEN)}")
    assert refresh(hub, secret_file("x"), lease="nobody")["type"] == "error", "a file of another lease"
    assert refresh(hub, {**secret_file("x"), "lease_id": ""}, lease="nobody") == {"lease_id": "nobody", "known": False}
    got = refresh(hub, secret_file("x", "unheard-of"))
    assert got["known"] and "files_rewritten" not in got and "unheard-of" in got["error"]
    assert refresh(hub, secret_file("x", "../token"))["type"] == "error"
    big = ("fresh-" + "0123456789abcdef" * 4096)[:65536]
    assert refresh(hub, secret_file(big, mode=0o400)) == {"lease_id": "l1", "known": True, "files_rewritten": 1, "handles": [run.handle]}
    until(hub, run, "read")
    assert text(run) == f"size {len(TOKEN)}\nsize 65536\n400\n[redacted]\ntoken\nread\n", text(run)[:500]
    assert revoke(hub)["files_removed"] == 1
    got = refresh(hub, secret_file("back"))
    assert got["known"] and "files_rewritten" not in got and got["error"]
    hub.signal(run, "kill")
    hub.finish(run)


def test_a_lease_comes_again(device, hub):
    """A start after a revocation is live; the end of a workload releases its lease, and only its own."""
    first = hub.start("echo up; sleep 1000", secret_files=[secret_file(TOKEN)])
    second = hub.start("echo up; sleep 1000", secret_files=[secret_file(TOKEN)])
    hub.signal(first, "kill")
    hub.finish(first)
    assert revoke(hub)["files_removed"] == 1
    hub.signal(second, "kill")
    hub.finish(second)
    third = hub.start("cat $F | wc -c; sleep 1000", env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/token"}, secret_files=[secret_file(TOKEN)])
    until(hub, third, str(len(TOKEN)))
    words = "brings a lease again that was revoked before"
    assert device.log_text().count(words) == 1
    hub.finish(hub.start("true", secret_files=[secret_file(TOKEN)]))
    assert device.log_text().count(words) == 1, "a renewal ends the memory of it"
    assert revoke(hub)["files_removed"] == 1
    hub.signal(third, "kill")
    hub.finish(third)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_the_next_workerd_knows_every_secret(device, hub, how):
    """Killed, or replaced by a reload, in the middle of a value: the half that was read is held back, the rest is masked; leases are
    known; a revocation waits."""
    a = device

    def replace():
        old = a.pid("workerd")
        os.kill(a.pid("launcher") if how == signal.SIGHUP else old, how)
        return old

    script = ('head -c 20 "$F"; echo waits > w; until [ -e go ]; do sleep 0.02; done; tail -c +21 "$F"; echo; echo "$K"; echo end; '
              'while [ -e "$F" ]; do sleep 0.05; done; echo gone; sleep 1000')
    run = hub.start(script, work_dir="kw", env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/token", "K": "pass-" + TOKEN},
                    secret_files=[secret_file(TOKEN)], secrets=[attribution(env=["K"])])
    wait_for(lambda: os.path.exists(f"{a.root}/kw/w"), 10, "half of it is written")
    old = replace()
    a.restarted("workerd", old)
    open(f"{a.root}/kw/go", "w", encoding="ascii").close()
    until(hub, run, "end")
    assert text(run) == "[redacted]\n[redacted]\nend\n"
    old = replace()
    if how == signal.SIGHUP:        # it still serves for a moment, and what it did there without an answer is done, but told by nobody
        a.restarted("workerd", old)
    assert revoke(hub) == {"lease_id": "l1", "action": "scrub", "known": True, "env_scrubbed": ["K"], "files_removed": 1}
    until(hub, run, "gone")
    a.restarted("workerd", old)
    hub.signal(run, "kill")
    hub.finish(run)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGHUP])
def test_what_was_held_back_comes_from_the_next_workerd(device, hub, how):
    """A short beginning of a value that nothing follows is shown after a while, also when the workerd that read it is gone: no more output wakes
    the next one (output.c, output_resume())."""
    run = hub.start('head -c 4 "$F"; echo waits > w; sleep 1000', work_dir="hw", env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/token"},
                    secret_files=[secret_file(TOKEN)])
    wait_for(lambda: os.path.exists(f"{device.root}/hw/w"), 10, "the beginning is written")
    old = device.pid("workerd")
    os.kill(device.pid("launcher") if how == signal.SIGHUP else old, how)
    device.restarted("workerd", old)
    until(hub, run, TOKEN[:4])
    hub.signal(run, "kill")
    hub.finish(run)
    assert text(run) == TOKEN[:4]


def test_a_revocation_that_was_cut_off_is_done(device, hub):
    """workerd is killed when it has marked the file as taken back and is about to tell workinit. What comes again, from the hub or from
    connectd, must not be answered by the mark alone."""
    if shutil.which("strace") is None:
        pytest.skip("skipped: no strace")
    run = hub.start('echo up; while [ -e "$F" ]; do sleep 0.05; done; echo gone; sleep 1000', env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/token"},
                    secret_files=[secret_file(TOKEN)])
    until(hub, run, "up")
    old = device.pid("workerd")
    with subprocess.Popen(["strace", "-p", str(old), "-e", "trace=sendmsg", "-e", "inject=sendmsg:signal=KILL:when=1"],
                          stderr=subprocess.PIPE, text=True) as tracer:
        assert "attached" in tracer.stderr.readline()
        hub.request("revoke", {"lease_id": "l1", "reason": "test"})
        tracer.communicate(timeout=20)
    device.restarted("workerd", old)
    revoke(hub)
    until(hub, run, "gone")
    hub.signal(run, "kill")
    hub.finish(run)


@pytest.mark.root
def test_level_uid_has_no_place_for_files(agent, hub):
    """Without a view of its own others of the same id could read them: refused by name. Variables are masked there, too."""
    a = agent(policy={"work": {"sandbox-level": "uid"}})
    hub.session()
    run = hub.start(["/bin/true"], secret_files=[secret_file(TOKEN)], refused=True)
    assert "sandbox-level = uid" in run.refused[1] and TOKEN not in run.refused[1]
    run = hub.finish(hub.start("echo $K", env={"PATH": "/bin", "K": TOKEN}, secrets=[attribution(env=["K"])]))
    assert text(run) == "[redacted]\n"
    assert not os.path.exists(f"{a.root}/secrets")


def memory_of(pid):
    """Everything that is written in a process's memory."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in maps:
            span, mode = line.split()[:2]
            start, end = (int(x, 16) for x in span.split("-"))
            if "w" not in mode or end - start > 1 << 28:
                continue
            try:
                mem.seek(start)
                found.append(mem.read(end - start))
            except (OSError, OverflowError, ValueError):
                continue
    return b"".join(found)


@pytest.mark.root
def test_b81_nothing_waits_with_the_end(device, hub):
    """What has ended may wait for the hub for days. Its record holds what was printed as it was masked, no more: what was read, the
    values, and the digest of what was read, which keeps the last of it, are zeroed with the end (vault.c, record.c)."""
    value = "canary-kept-" + TOKEN[::-1]
    hub.b.ack_beats = False
    run = hub.start("cat $F; echo; cat $F; exit 3", env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/token"}, secret_files=[secret_file(value)])
    hub.finish(run)
    records = [fd for fd in glob.glob(f"/proc/{device.pid('launcher')}/fd/*") if "memfd:record" in os.readlink(fd)]
    held = [open(fd, "rb").read() for fd in records]
    assert any(run.handle.encode() in data for data in held), "it is held"
    assert not any(value.encode() in data for data in held)
    hub.b.ack_beats = True
    hub.delivered(run)


def test_b81_nothing_stays_behind(device, hub):
    """After the end: not in the files of the device, and not in the memory of connectd, which needed it for one frame only."""
    a = device
    value = "canary-file-" + TOKEN[::-1]
    search = Search(a)
    search.add("file", value)
    run = hub.start("cat $F; sleep 1000", env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/token"}, secret_files=[secret_file(value)])
    until(hub, run, "[redacted]")
    fresh = "canary-new-" + TOKEN[::-1]
    search.add("refreshed", fresh)
    assert refresh(hub, secret_file(fresh))["files_rewritten"] == 1
    search.look()
    hub.signal(run, "kill")
    hub.delivered(run)
    if not proc.sanitized(a.pid("connectd")):      # whose quarantine keeps what was freed
        for role in ("connectd", "workerd", "launcher"):
            data = memory_of(a.pid(role))
            assert value.encode() not in data and fresh.encode() not in data, role
    search.look()


def namespaces_of(a):
    """Mount namespaces in which a lease's directory, or the work root, is mounted by itself."""
    found = set()
    for pid in (p for p in os.listdir("/proc") if p.isdigit()):
        try:
            with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as f:
                if any(a.root in line.split()[3] or a.root in line.split()[4] for line in f):
                    found.add(os.readlink(f"/proc/{pid}/ns/mnt"))
        except OSError:
            continue
    return found


@pytest.mark.root
def test_a_crash_of_everything_leaves_nothing(agent, hub):
    """Power cut for processes: the private file system goes with its namespace; no mount, no file, no record."""
    a = agent()
    hub.session()
    search = Search(a)
    search.add("file", TOKEN)
    run = hub.start("cat $F; sleep 1000", env={"PATH": "/usr/bin:/bin", "F": f"{DIR}/token"}, secret_files=[secret_file(TOKEN)])
    until(hub, run, "[redacted]")
    assert namespaces_of(a), "while it runs there is one"
    a.crash()
    # The machine's own list of mounts never has them: they are those of namespaces, which last as long as a process or a descriptor does.
    wait_for(lambda: not namespaces_of(a), 10, lambda: f"namespaces that see the work root: {namespaces_of(a)}")
    a.start()
    search.look()
    hub.session()
    assert revoke(hub)["known"] is False
    hub.finish(run)


def test_install_harness_is_refused_by_name(device, hub):
    """What is there is a success; everything else names the reason; no name that could be a path or an option."""
    answer = hub.request("install_harness", {"harness": "claude", "reason": "test"})
    assert answer["type"] == "harness_installed" and answer["payload"]["harness"] == "claude", answer
    assert answer["payload"]["installed"] or "policy.conf (default): harnesses install is no" in answer["payload"]["reason"], answer
    for name in ("../claude", "", "a b", "https://x", "x" * 65, None):
        assert hub.request("install_harness", {"harness": name})["type"] == "error"


def test_a_command_line_is_shown_without_them(agent, hub):
    """What was asked for, on one line; a value in it is masked; no variable; a workerd that was killed has it still."""
    a = agent()
    search = Search(a)
    search.add("in an argument", TOKEN)
    run = hub.start(["/bin/sh", "-c", "echo up; sleep 1000", "a\tb", f"--token={TOKEN}"], env={"PATH": "/usr/bin:/bin", "OTHER": "not-shown"},
                    secret_files=[secret_file(TOKEN)])
    hub.wait("up", lambda: run.log.received, 10)

    def shown():
        return [w["command"] for w in a.ctl("workloads").json["workloads"]] + [w["command"] for w in a.ctl("top", "-d", "1").json["workloads"]]
    assert shown() == ["/bin/sh -c echo up; sleep 1000 a\\x09b --token=[redacted]"] * 2
    old = a.kill9("workerd")
    a.restarted("workerd", old)
    wait_for(lambda: a.ctl("status").json["workerd"]["work_up"], 10, "workerd is back")
    assert shown() == ["/bin/sh -c echo up; sleep 1000 a\\x09b --token=[redacted]"] * 2
    search.look()
    hub.signal(run, "kill")
    hub.finish(run)
