"""privupgrade: what it installs, what it refuses, and when it goes back (design, section 5; faults B88, B90 to B93, B95, B97, B98, B100, B102).

Where these kinds of fault could occur: privupgrade/inbox.c (B88, B92: everything edgeward-net can put in its way), verify.c (B95, B97, B98),
stage.c (B92, B98), selftest.c (B100), trial.c (B90, B91, B93, B102). The releases are made of small stand-ins, the service manager is a script;
tests/vm has the real ones. B93 is test_upgrade_interrupt.py.
"""
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time

import pytest

from lib import jsonschema
from lib.agent import BUILD, REPO, is_root
from lib.clockshim import Clock
from lib.release import ARCH, EDGECTL, ENV, PRIVUPGRADE, PROGRAMS, SIZE_MAX, Release, Rig, make_key, unhardened

pytestmark = [pytest.mark.skipif(not is_root(), reason="skipped: needs root"),
              pytest.mark.skipif(shutil.which("signify-openbsd") is None or shutil.which("cc") is None, reason="skipped: no signify-openbsd or cc")]


@pytest.fixture(name="tools", scope="session")
def fixture_tools(tmp_path_factory):
    return tmp_path_factory.mktemp("tools")


@pytest.fixture(name="rig")
def fixture_rig(tools):
    with tempfile.TemporaryDirectory(prefix="edgeward-upgrade-", dir="/var/tmp") as where:    # pytest's own are closed to nobody
        rig = Rig(where, tools)
        yield rig
        rig.stop_units()


# ---- what works ----

def test_installs(rig):
    rig.queue(Release(rig))
    p = rig.run()
    assert rig.last() == ("done", "ok") and rig.current() == rig.updater() == "releases/2", p.stderr
    assert rig.complete() == "2.0" and not rig.leftovers()
    release = os.path.join(rig.state, "releases/2")
    assert sorted(os.listdir(release)) == sorted([*PROGRAMS, "manifest", "manifest.sig"])    # data is not written
    for name in os.listdir(release):
        st = os.stat(os.path.join(release, name))
        assert st.st_uid == 0 and stat.S_IMODE(st.st_mode) == (0o755 if name in PROGRAMS else 0o644), name
    assert rig.upgrade(Release(rig, 3, "3.0")) == ("done", "ok")
    assert rig.releases() == ["3"]
    # What connectd tells the hub: the same, and readable for it.
    results = os.path.join(rig.state, "releases/results")
    assert stat.S_IMODE(os.stat(results).st_mode) == 0o644 and open(results, "rb").read() == open(os.path.join(rig.state, "upgrade/history"), "rb").read()


WRITTEN = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(?:write|pwrite64|writev|copy_file_range|sendfile)\(\d+<([^>]*)>.* = (\d+)$")


@pytest.mark.skipif(shutil.which("strace") is None, reason="skipped: no strace")
def test_bytes_written(rig):
    """An upgrade writes at most twice the release to the disk: once when it is queued, once when it is installed, and what is kept of it (state,
    history, progress) is less than the data in it that is not installed."""
    rig.fakeprog += b"\0" * 85_000      # all programs together are about as large as the real ones
    release = Release(rig, files={"sbom.spdx.json": b"x" * 11_000})
    for n in range(40):     # the history is as long as it gets
        assert rig.upgrade(Release(rig, 2, channel="edge"), source="operator")[0] == "refused", n
    path = os.path.join(rig.where, "x.release")
    rig._put(path, release.data, 0o644)
    total = 0
    for command in ([EDGECTL, "upgrade", path, "--no-wait", "--state", rig.state], rig.args()):
        log = os.path.join(rig.where, "strace")
        subprocess.run(["strace", "-f", "-y", "-s", "0", "-e", "signal=none", "-e", "trace=write,pwrite64,writev,copy_file_range,sendfile", "-o", log, *command],
                       check=True, env=ENV, capture_output=True, timeout=100)
        with open(log, encoding="utf-8", errors="replace") as f:
            total += sum(int(m.group(2)) for m in map(WRITTEN.match, f.read().splitlines()) if m and m.group(1).startswith(rig.state))
    assert rig.last() == ("done", "ok")
    assert 1.9 * len(release.data) < total <= 2 * len(release.data), (total, len(release.data))
    print(f"{total} bytes written for a release of {len(release.data)}")
    # From a hub: connectd has written it once, and less than 2 KiB beside it (test_bytes_written_for_a_hub in test_upgrade_hub.py).
    release = Release(rig, 3, "3.0", files={"sbom.spdx.json": b"x" * 11_000})
    rig.queue(release)
    log = os.path.join(rig.where, "strace")
    subprocess.run(["strace", "-f", "-y", "-s", "0", "-e", "signal=none", "-e", "trace=write,pwrite64,writev,copy_file_range,sendfile", "-o", log, *rig.args()],
                   check=True, env=ENV, capture_output=True, timeout=100)
    with open(log, encoding="utf-8", errors="replace") as f:
        total = sum(int(m.group(2)) for m in map(WRITTEN.match, f.read().splitlines()) if m and m.group(1).startswith(rig.state))
    assert rig.last() == ("done", "ok") and total + 2048 <= len(release.data), (total, len(release.data))


def test_one_line_of_progress_a_step(rig):
    """The same lines in the journal, in the order of the steps, and for edgectl; a refusal says its code."""
    rig.start_units()
    rig.probe(connected="yes")
    rig.queue(Release(rig, 2, "2.0"), source="operator", ident="op-1")
    p = rig.run()
    steps = ["request op-1 of the operator: sequence 2", "verified: 2.0, sequence 2", "staged: ", "self-test passed", "on trial: 2.0, 1 s to settle",
             "done: 2.0, sequence 2, is in force"]
    with open(os.path.join(rig.state, "upgrade/progress"), encoding="ascii") as f:
        lines = f.read().splitlines()
    assert len(lines) == len(steps) and all(line.startswith(s) for line, s in zip(lines, steps)), lines
    journal = [line.split(": ", 1)[1] for line in p.stderr.splitlines() if re.match(r"(<6>)?priv(upgrade|trial): ", line)]
    assert journal == lines, p.stderr
    rig.queue(Release(rig, 3, "3.0", behaviours={"connectd": "crash"}))
    rig.run()
    with open(os.path.join(rig.state, "upgrade/progress"), encoding="ascii") as f:      # anew for each request
        lines = f.read().splitlines()
    assert [line.split(":")[0].split(" ")[0] for line in lines] == ["request", "verified", "staged", "self-test", "on", "back"], lines
    rig.upgrade(Release(rig, 4, "4.0", channel="edge"))
    with open(os.path.join(rig.state, "upgrade/progress"), encoding="ascii") as f:
        assert f.read().splitlines()[-1].startswith("refused (wrong-channel): ")


def test_on_trial_then_for_good(rig):
    rig.start_units()
    rig.probe(connected="yes", protocol=20)
    assert rig.upgrade(Release(rig)) == ("done", "ok")
    with open(os.path.join(rig.where, "systemctl.log"), encoding="ascii") as f:
        log = f.read()
    assert log.count("restart") == 6 and "reload" not in log


def test_work_is_kept(rig):
    """With workloads workerd alone is replaced; the launcher stays, and each workload must be there under its pid."""
    rig.start_units()
    canary = subprocess.Popen(["sleep", "1000"])
    rig.probe(active=1, work=[("job-1", canary.pid), ("job-2", 0)])
    try:
        launcher = open(os.path.join(rig.where, "pid.launcher"), encoding="ascii").read()
        assert rig.upgrade(Release(rig)) == ("done", "ok")
        assert open(os.path.join(rig.where, "pid.launcher"), encoding="ascii").read() == launcher
        assert "reload edgeward-workerd" in open(os.path.join(rig.where, "systemctl.log"), encoding="ascii").read()
    finally:
        canary.kill()
        canary.wait()


def test_work_that_is_not_taken_over_goes_back(rig):
    rig.start_units()
    canary = subprocess.Popen(["sleep", "1000"])
    rig.probe(active=1, work=[("job-1", canary.pid)])
    rig.queue(Release(rig), settle=30)
    p = subprocess.Popen(rig.args(), env=ENV)
    try:
        wait_for(lambda: rig.current() == "releases/2")
        rig.probe(active=0)
        assert p.wait(30) == 0 and rig.last() == ("rolled-back", "lost-work") and rig.current() == rig.packaged
    finally:
        canary.kill()
        canary.wait()


def wait_for(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


# ---- going back ----

@pytest.mark.parametrize("who, how, code", [("connectd", "crash", "crashed"), ("launcher", "crash", "crashed"), ("privhelper", "crash-later", "crashed"),
                                            ("workerd", "crash", "unhealthy crashed")])
def test_b91_goes_back_once(rig, who, how, code):
    rig.start_units()
    bad = Release(rig, behaviours={who: how})
    got = rig.upgrade(bad, settle=5)
    assert got[0] == "rolled-back" and got[1] in code.split() and rig.current() == rig.updater() == rig.packaged
    assert rig.complete() == "1.0" and not rig.leftovers() and rig.releases() == []
    # B90: it is remembered; asking again costs nothing, a restart does not reset it, a newer one is tried afresh.
    for _ in range(3):
        rig.boot()
        assert rig.upgrade(bad) == ("refused", "marked-bad")
    assert rig.upgrade(Release(rig, 3, "3.0")) == ("done", "ok")


def test_b91_does_not_answer(rig):
    rig.start_units()
    rig.queue(Release(rig))
    p = subprocess.Popen(rig.args(), env=ENV)
    wait_for(lambda: rig.current() == "releases/2")
    os.rename(os.path.join(rig.run_dir, "probe"), os.path.join(rig.run_dir, "hidden"))
    assert p.wait(60) == 0 and rig.last() == ("rolled-back", "unhealthy") and rig.current() == rig.packaged


def test_b102_offline_is_no_reason(rig):
    """No network: it stays on trial, as long as it takes, over a restart of the updater, too. Then there is a session: for good."""
    rig.start_units()
    rig.probe(connected="yes")
    rig.queue(Release(rig))
    p = subprocess.Popen(rig.args("-t", "500"), env=ENV)
    wait_for(lambda: rig.current() == "releases/2")
    rig.probe(connected="no", cause="no-route")
    time.sleep(4)
    assert p.poll() is None and rig.current() == "releases/2" and rig.updater() == rig.packaged
    p.send_signal(signal.SIGKILL)
    p.wait()
    rig.boot()
    assert rig.current() == "releases/2"
    p = subprocess.Popen(rig.args("-t", "500"), env=ENV)
    time.sleep(2)
    assert p.poll() is None and rig.history() == []
    rig.probe(connected="yes")
    assert p.wait(30) == 0 and rig.last() == ("done", "ok") and rig.updater() == "releases/2"


def test_b102_a_hub_that_refuses_is(rig):
    rig.start_units()
    rig.probe(connected="yes")
    rig.queue(Release(rig))
    p = subprocess.Popen(rig.args("-t", "500"), env=ENV)
    wait_for(lambda: rig.current() == "releases/2")
    rig.probe(connected="no", refuses="yes", cause="http-401")
    assert p.wait(30) == 0 and rig.last() == ("rolled-back", "hub-refuses") and rig.current() == rig.packaged


def test_b102_a_session_that_is_away_for_a_moment_counts(rig):
    """Somebody restarts the units when the upgrade begins: at the first look none is active and there is no session. What ran and was
    connected a moment later must be so afterwards, too: a release that the hub refuses goes back."""
    rig.start_units()
    rig.inactive(True)
    rig.probe(connected="no")
    rig.queue(Release(rig))
    p = subprocess.Popen(rig.args("-t", "6000"), env=ENV)
    wait_for(lambda: "staged" in open(os.path.join(rig.state, "upgrade/progress"), encoding="ascii").read()
             if os.path.exists(os.path.join(rig.state, "upgrade/progress")) else False)
    time.sleep(0.2)
    rig.inactive(False)
    rig.probe(connected="yes")
    wait_for(lambda: rig.current() == "releases/2")
    rig.probe(connected="no", refuses="yes", cause="http-401")
    assert p.wait(60) == 0 and rig.last() == ("rolled-back", "hub-refuses") and rig.current() == rig.packaged


@pytest.mark.parametrize("source", ["hub", "operator"])
def test_b102_a_hub_that_asks_had_a_session(rig, source):
    """The link is gone when the upgrade begins, and for longer. An operator's goes on without one; a hub's release stays on trial until it
    has shown that it can have one."""
    rig.start_units()
    rig.probe(connected="no", cause="no-route")
    rig.queue(Release(rig), source=source)
    p = subprocess.Popen(rig.args("-t", "500"), env=ENV)
    wait_for(lambda: rig.current() == "releases/2")
    if source == "hub":
        wait_for(lambda: "stays on trial" in open(os.path.join(rig.state, "upgrade/progress"), encoding="ascii").read())
        assert p.poll() is None and rig.updater() == rig.packaged
        rig.probe()
    assert p.wait(30) == 0 and rig.last() == ("done", "ok") and rig.updater() == "releases/2"


@pytest.mark.parametrize("old_connects", [True, False])
def test_b102_a_hub_that_is_there_is(rig, old_connects):
    """Its address answers, there is no session: back. Only if the old release gets one is the new one bad."""
    rig.start_units()
    rig.probe(connected="yes", peer="192.0.2.1:443")
    rig.queue(Release(rig))
    p = subprocess.Popen(rig.args("-t", "500"), env=ENV)
    wait_for(lambda: rig.current() == "releases/2")
    rig.probe(connected="no", reachable="yes", cause="timeout")
    wait_for(lambda: rig.current() == rig.packaged)
    rig.probe(connected="yes" if old_connects else "no")
    assert p.wait(30) == 0 and rig.last() == ("rolled-back" if old_connects else "failed", "no-session")


def test_b103_a_trial_that_is_interrupted_again_and_again_ends(rig):
    rig.start_units()
    rig.probe(connected="yes")
    rig.queue(Release(rig))
    p = subprocess.Popen(rig.args(), env=ENV)
    wait_for(lambda: rig.current() == "releases/2")
    rig.probe(connected="no")
    p.kill()
    p.wait()
    for n in range(6):
        rig.boot()
        if rig.current() == rig.packaged:
            break
    assert n <= 3 and rig.last() == ("rolled-back", "interrupted") and rig.complete() == "1.0"
    rig.run()
    assert len(rig.history()) == 1 and not rig.leftovers()


# ---- refused, each with its reason, and nothing changes ----

def refused(rig, release, code, **kw):
    before = rig.current()
    got = rig.upgrade(release, **kw)
    assert got is not None and got[0] in ("refused", "failed") and got[1] in code.split(), (got, rig.history()[-1:])
    assert rig.current() == rig.updater() == before and not rig.leftovers()
    assert rig.releases() == ([before.split("/")[1]] if before.startswith("rel") else [])


@pytest.mark.parametrize("kw, code", [
    ({"channel": "edge"}, "wrong-channel"), ({"arch": "aarch64" if ARCH == "x86_64" else "x86_64"}, "wrong-arch"), ({"arch": "i386"}, "wrong-arch"),
    ({"expires": "2001-01-01"}, "expired"), ({"expires": "2025-02-29"}, "bad-manifest"), ({"expires": "tomorrow"}, "bad-manifest"),
    ({"version": "9 9"}, "bad-manifest"), ({"channel": "../edge"}, "bad-manifest"),
    ({"files": {"../../evil": b"x"}}, "bad-manifest"), ({"files": {"a/b": b"x"}}, "bad-manifest"), ({"files": {".hidden": b"x"}}, "bad-manifest"),
    ({"files": {"manifest": b"x"}}, "bad-manifest"), ({"files": {"empty": b""}}, "bad-manifest"),
    ({"files": {f"f{i}": b"x" for i in range(40)}}, "bad-manifest"),
    ({"files": {"connectd": b"#!/bin/sh\nexit 0\n"}}, "bad-file"), ({"files": {"edgectl": b"\x7fELF" + b"\0" * 200}}, "bad-file"),
    ({"change": lambda t: t.replace("edgeward-release 1", "edgeward-release 2")}, "bad-manifest"),
    ({"change": lambda t: t.replace("program", "data")}, "bad-manifest"), ({"change": lambda t: t + t}, "bad-signature"),
    ({"change": lambda t: t.replace("\n", "\r\n")}, "bad-manifest bad-release"),
    ({"change": lambda t: t.replace("channel", "color")}, "bad-manifest"), ({"change": lambda t: "\n" + t}, "bad-manifest"),
    ({"change": lambda t: t.replace("end ", "data note2 5 " + "0" * 64 + "\nend ")}, "bad-manifest"),
])
def test_b95_metadata(rig, kw, code):
    refused(rig, Release(rig, **kw), code)


def test_b95_clock_in_1970(rig):
    """A clock that was lost neither makes an expired release good nor keeps a good one away: it is at least the time of the build."""
    clock = Clock(rig.where)
    clock.set(-time.time())
    env = {**ENV, **clock.env, "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0"}
    for release, expect in ((Release(rig, expires="2001-01-01"), ("refused", "expired")), (Release(rig), ("done", "ok"))):
        rig.queue(release)
        subprocess.run(rig.args(), env=env, check=True, capture_output=True, timeout=60)
        assert rig.last() == expect
    assert int(rig.history()[-1]["time"]) < 86400      # told with the clock there was


@pytest.mark.parametrize("sequence, code", [("1", "already-current"), ("0", "bad-manifest"), ("-1", "bad-manifest"), ("02", "bad-manifest"),
                                            ("+2", "bad-manifest"), ("9223372036854775808", "bad-manifest"), ("18446744073709551618", "bad-manifest"),
                                            ("2\nsequence 2", "bad-manifest"), ("", "bad-manifest"), ("0x2", "bad-manifest")])
def test_b97_sequence(rig, sequence, code):
    refused(rig, Release(rig, sequence), code, sequence=1 if sequence == "1" else 2)


@pytest.mark.parametrize("sequence", [2147483648, 4294967296, (1 << 53) - 1])
def test_b97_large_sequences(rig, sequence):
    assert rig.upgrade(Release(rig, sequence)) == ("done", "ok") and rig.current() == f"releases/{sequence}"


def test_b97_downgrade_by_the_operator_alone_and_once(rig):
    old, new = Release(rig, 5, "5.0"), Release(rig, 7, "7.0")
    assert rig.upgrade(old) == ("done", "ok") and rig.upgrade(new) == ("done", "ok")
    refused(rig, old, "old-sequence")
    refused(rig, old, "downgrade", downgrade="yes")     # what a file of edgeward-net says counts for nothing
    refused(rig, old, "old-sequence", source="operator")
    assert rig.upgrade(old, source="operator", downgrade="yes") == ("done", "ok") and rig.complete() == "5.0"
    assert rig.upgrade(new) == ("done", "ok")
    rig.run()                                           # the request is gone: nothing happens again
    assert rig.complete() == "7.0"
    refused(rig, Release(rig, 7, "7.1"), "already-current")     # the same sequence with other files


def test_request_and_release_belong_together(rig):
    refused(rig, Release(rig, 3, "3.0"), "other-release", sequence=2)


def test_keys(rig):
    """Another key, no key, a key others can write, two keys while one replaces the other."""
    pub, sec = make_key(rig.where, "other")
    refused(rig, Release(rig, sec=sec), "bad-signature")
    own = os.path.join(rig.keys, "k.pub")
    os.chmod(own, 0o666)
    refused(rig, Release(rig), "no-key")
    os.chmod(own, 0o644)
    shutil.copy(pub, os.path.join(rig.keys, "next.pub"))
    assert rig.upgrade(Release(rig, sec=sec)) == ("done", "ok")
    assert rig.upgrade(Release(rig, 3, "3.0")) == ("done", "ok")
    os.unlink(own)
    refused(rig, Release(rig, 4, "4.0"), "bad-signature")
    os.chmod(rig.keys, 0o777)
    refused(rig, Release(rig, 4, "4.0", sec=sec), "no-key")


def test_channel_is_the_devices(rig):
    with open(rig.conf, "w", encoding="ascii") as f:
        f.write("channel edge\nsettle 1\nsettle-max 5\n")
    refused(rig, Release(rig), "wrong-channel")
    assert rig.upgrade(Release(rig, channel="edge")) == ("done", "ok")
    os.chmod(rig.conf, 0o666)
    refused(rig, Release(rig, 3, "3.0", channel="edge"), "bad-conf")
    os.chmod(rig.conf, 0o644)
    with open(rig.conf, "w", encoding="ascii") as f:
        f.write("channel edge\nsettle 1\nsettle-max 5\nverify no\n")
    refused(rig, Release(rig, 3, "3.0", channel="edge"), "bad-conf")


def test_b98_every_byte_is_covered(rig):
    """Each byte of signature and manifest flipped, the body flipped and cut at many places, bytes added: refused by privupgrade -n, which is
    the same code. A sample of them through the whole way."""
    good = Release(rig)
    path = os.path.join(rig.where, "x.release")
    comment = good.signature.index(b"\n") + 1

    def check(data):
        rig._put(path, data, 0o644)
        return rig.run("-n", path, check=False)

    assert check(good.data).stdout.startswith("release good\n")
    head = len(good.signature) + len(good.manifest)
    places = [*range(comment, head, 7), head - 1, *range(head, len(good.data), 5003), len(good.data) - 1]
    for at in places[:: 1 if len(places) < 120 else len(places) // 120]:
        bad = bytearray(good.data)
        bad[at] ^= 1 << at % 8
        p = check(bytes(bad))
        assert p.returncode == 1 and p.stdout.startswith("release refused\n"), at
    for size in (0, 1, comment, len(good.signature), head - 1, head, head + 1, len(good.data) // 2, len(good.data) - 1):
        assert check(good.data[:size]).returncode == 1
    assert check(good.data + b"\0").returncode == 1
    bad = bytearray(good.data)
    bad[head + 100] ^= 1
    refused(rig, bytes(bad), "bad-file")
    refused(rig, good.data + b"x", "bad-size")
    refused(rig, good.data[:-1], "bad-size")
    assert rig.upgrade(good) == ("done", "ok")


@pytest.mark.parametrize("how", ["segv", "sigill", "sigsys", "exit1", "flood", "liar", "badconf", "hang"])
def test_b100_self_test(rig, how):
    refused(rig, Release(rig, behaviours={"connectd": how}), "self-test")
    assert "connectd" in rig.history()[-1]["detail"]


@pytest.mark.parametrize("lacks", ["library", "libc"])
def test_b100_self_test_finds_what_is_not_on_this_device(rig, lacks):
    """A program linked with a library that is not here, and one that wants a newer libc than there is."""
    if lacks == "library":
        stub, exe = os.path.join(rig.where, "libnotontheotherone.so"), os.path.join(rig.where, "linked")
        subprocess.run(["cc", "-shared", "-x", "c", "-o", stub, "-"], input=b"int not_there(void) { return 0; }", check=True)
        subprocess.run(["cc", "-D_GNU_SOURCE", "-Wl,--no-as-needed", "-o", exe, os.path.join(REPO, "tests/tools/fakeprog.c"), stub], check=True)
        with open(exe, "rb") as f:
            program = f.read()
        os.unlink(stub)
    else:
        newest = max(re.findall(rb"GLIBC_2\.(\d+)\0", rig.fakeprog), key=int)
        program = rig.fakeprog.replace(b"GLIBC_2." + newest, b"GLIBC_9." + newest)
    refused(rig, Release(rig, files={"workerd": program + b"\nEDGEWARD-FAKE workerd 2.0 ok\n".rjust(220)}), "self-test")
    assert "workerd" in rig.history()[-1]["detail"]


def test_b100_self_test_is_no_root_and_leaves_nothing_behind(rig):
    assert rig.upgrade(Release(rig, behaviours={"connectd": "write", "workerd": "fork"})) == ("done", "ok")
    assert not os.path.exists("/var/lib/fakeprog-was-here")
    target = os.path.join(rig.state, "releases")
    wait_for(lambda: not any(link(p).startswith(target) for p in os.listdir("/proc") if p.isdigit()), 5)


def link(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def test_b90_three_tries(rig):
    """One that cannot be staged is tried three times, then no more; a restart does not reset the count."""
    bad = Release(rig, behaviours={"connectd": "exit1"})
    for _ in range(3):
        assert rig.upgrade(bad) == ("failed", "self-test")
        rig.boot()
    assert rig.upgrade(bad) == ("refused", "marked-bad"), rig.history()
    assert rig.upgrade(bad, source="operator") == ("failed", "self-test")    # the operator may insist


def test_hub_protocol(rig):
    rig.probe(connected="yes", protocol=7)
    refused(rig, Release(rig, protocol=8), "protocol")
    assert rig.upgrade(Release(rig, protocol=7)) == ("done", "ok")


# ---- B88: what edgeward-net can plant ----

def listing(*tops):
    found = {}
    for top in tops:
        for where, dirs, names in os.walk(top):
            for n in [*dirs, *names, "."]:
                p = os.path.join(where, n)
                st = os.lstat(p)
                data = open(p, "rb").read() if stat.S_ISREG(st.st_mode) else os.readlink(p) if stat.S_ISLNK(st.st_mode) else ""
                found[p] = (st.st_mode, st.st_uid, st.st_gid, data)
    return found


def plant_symlink(path, canary):
    os.symlink(canary, path)


def plant_dangling(path, canary):
    os.symlink(canary + ".not-there", path)


def plant_hardlink(path, canary):
    os.link(canary, path)


def plant_fifo(path, _canary):
    os.mkfifo(path)


def plant_device(path, _canary):
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))


def plant_directory(path, _canary):
    os.makedirs(os.path.join(path, "a/b/c"))
    os.symlink("/etc", os.path.join(path, "a/etc"))


def plant_deep(path, _canary):
    os.mkdir(path)
    fd = os.open(path, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d", dir_fd=fd)
        new = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = new
    os.close(fd)


def plant_huge(path, _canary):
    with open(path, "wb") as f:
        f.truncate(1 << 40)


def plant_socket(path, _canary):
    s = socket.socket(socket.AF_UNIX)
    here = os.open(".", os.O_RDONLY)
    os.chdir(os.path.dirname(path))     # a name of a socket is short
    s.bind(os.path.basename(path))
    os.fchdir(here)
    os.close(here)
    s.close()


def plant_empty(path, _canary):
    open(path, "wb").close()


def plant_magic(path, _canary):
    os.symlink("/proc/self/fd/0", path)


PLANTS = [plant_symlink, plant_dangling, plant_hardlink, plant_fifo, plant_device, plant_directory, plant_deep, plant_huge, plant_empty, plant_magic, plant_socket]


@pytest.mark.parametrize("plant", PLANTS)
def test_b88_planted(rig, plant):
    """In place of the request, of the release, and of both: refused or not there, gone, nothing outside changed, nothing hangs, and a good
    upgrade works right after."""
    outside = os.path.join(rig.where, "outside")
    os.mkdir(outside)
    canary = os.path.join(outside, "shadow")
    rig._put(canary, b"root:secret\n", 0o600)
    box = os.path.join(rig.state, "connectd")
    rig.run()
    before = listing(outside, rig.packaged, rig.keys)
    for names in (["upgrade-request"], ["upgrade-release"], ["upgrade-request", "upgrade-release"]):
        rig.queue(Release(rig))
        for name in names:
            os.unlink(os.path.join(box, name))
            plant(os.path.join(box, name), canary)
            if plant is not plant_hardlink:     # as edgeward-net would; the hard link is to a file of root's
                os.chown(os.path.join(box, name), 65533, 65533, follow_symlinks=False)
        p = rig.run(timeout=40)
        if names != ["upgrade-request"] or plant is not plant_dangling:
            assert rig.last()[0] == "refused" and rig.last()[1] in ("bad-request", "no-release"), (names, p.stderr)
        # Root walks no tree of theirs: what is a directory is back, under a name that asks for nothing.
        assert all(n.startswith("refused-") and os.path.isdir(os.path.join(box, n)) for n in os.listdir(box)), os.listdir(box)
        assert len(os.listdir(box)) <= (3 if plant in (plant_directory, plant_deep) else 0)
        shutil.rmtree(box)
        os.mkdir(box, 0o700)
        os.chown(box, 65533, 65533)
        assert not rig.leftovers() and rig.current() == rig.packaged
        assert "root:secret" not in p.stderr
        assert listing(outside, rig.packaged, rig.keys) == before
    assert rig.upgrade(Release(rig)) == ("done", "ok")


def test_b88_the_directory_itself(rig):
    """connectd/ replaced by what it must not be can only be root's doing; even then nothing is followed."""
    box = os.path.join(rig.state, "connectd")
    outside = os.path.join(rig.where, "outside")
    os.mkdir(outside)
    rig._put(os.path.join(outside, "upgrade-request"), rig.request(2), 0o600)
    os.rmdir(box)
    os.symlink(outside, box)
    rig.run()
    assert os.listdir(outside) == ["upgrade-request"] and rig.history() == []


def test_b88_changed_while_it_is_used(rig):
    """Whoever holds the staged file open may write to it all the while: what is installed is signed, or nothing is installed."""
    good, evil = Release(rig), Release(rig, behaviours={"edgectl": "liar"})
    for n in range(6):
        rig.queue(good)
        path = os.path.join(rig.state, "connectd/upgrade-release")
        fd, stop = os.open(path, os.O_RDWR), threading.Event()

        def flip(fd=fd, stop=stop):
            while not stop.is_set():
                os.pwrite(fd, evil.data[len(good.signature):], len(good.signature))
                os.pwrite(fd, good.data, 0)

        t = threading.Thread(target=flip)
        t.start()
        rig.run()
        stop.set()
        t.join()
        os.close(fd)
        if rig.last() == ("done", "ok"):
            for name in PROGRAMS:
                assert open(os.path.join(rig.state, "releases/2", name), "rb").read() == good.files[name], n
            break
        assert rig.last()[0] in ("refused", "failed") and rig.current() == rig.packaged


@pytest.mark.parametrize("text", [b"", b"\0" * 100, b"x" * 2000, b"edgeward-upgrade-request 1\n", b"edgeward-upgrade-request 2\nsequence 2\nid a\nsettle 0\ndowngrade no\n",
                                  b"edgeward-upgrade-request 1\nsequence 2\nid ../a\nsettle 0\ndowngrade no\n",
                                  b"edgeward-upgrade-request 1\nsequence 2\nid a\nsettle 601\ndowngrade no\n",
                                  b"edgeward-upgrade-request 1\nsequence 2\nid a\nsettle 0\ndowngrade no\nurl http://evil/\n",
                                  b"edgeward-upgrade-request 1\nsequence 2\nid a\nid a\nsettle 0\ndowngrade no\n"])
def test_bad_requests(rig, text):
    rig.queue(Release(rig))
    rig._put(os.path.join(rig.state, "connectd/upgrade-request"), text, 0o600)
    rig.run()
    assert rig.last() == ("refused", "bad-request") and not rig.leftovers() and os.listdir(os.path.join(rig.state, "connectd")) == []


def test_flood(rig):
    """Refusals are cheap to cause: they do not push out what was done, and each costs one process that sleeps."""
    assert rig.upgrade(Release(rig)) == ("done", "ok")
    for _ in range(40):
        rig._put(os.path.join(rig.state, "connectd/upgrade-request"), b"x", 0o600)
        rig.run()
    assert len(rig.history()) == 32 and rig.history()[0]["outcome"] == "done"
    rig._put(os.path.join(rig.state, "connectd/upgrade-request"), b"x", 0o600)
    begin = time.monotonic()
    rig.run("-f", "30")
    assert time.monotonic() - begin >= 30 * 64 / 1000    # it grows with each refusal, up to 64 times


# ---- state that is damaged, packages, the operator's tool ----

@pytest.mark.parametrize("name", ["state", "history"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"edgeward-upgrade-state 9\n", b"x" * 100000])
def test_b71_damaged_files(rig, name, content):
    """Set aside once; the release in force stays, and the next upgrade works."""
    assert rig.upgrade(Release(rig)) == ("done", "ok")
    rig._put(os.path.join(rig.state, "upgrade", name), content, 0o600)
    rig.boot()
    assert rig.current() == "releases/2"
    assert rig.upgrade(Release(rig, 3, "3.0")) == ("done", "ok")
    assert os.path.exists(os.path.join(rig.state, "upgrade", name + ".bad"))


def test_package_takes_over(rig):
    """A packaged release with a higher sequence does, at boot; one with a lower one does not; links that lead nowhere lead to it."""
    assert rig.upgrade(Release(rig, 5, "5.0")) == ("done", "ok")
    rig.boot()
    assert rig.current() == "releases/5"
    rig._put(os.path.join(rig.packaged, "release"), b"release 6.0 6\n", 0o644)
    rig.boot()
    assert rig.current() == rig.updater() == rig.packaged
    assert rig.upgrade(Release(rig, 7, "7.0")) == ("done", "ok")
    os.unlink(os.path.join(rig.state, "releases/7/workerd"))
    rig.boot()
    assert rig.current() == rig.updater() == rig.packaged
    os.unlink(os.path.join(rig.state, "current"))
    os.unlink(os.path.join(rig.state, "updater"))
    rig.boot()
    assert rig.current() == rig.updater() == rig.packaged


def edgectl(rig, *args, js=False):
    p = subprocess.run([EDGECTL, *(["-j"] if js else []), "upgrade", *args, "--state", rig.state], capture_output=True, text=True, check=False, env=ENV,
                       timeout=60)
    assert "Sanitizer" not in p.stderr
    return p


def as_schema_says(kind, out):
    with open(os.path.join(REPO, "edgectl/edgectl.schema.json"), encoding="utf-8") as f:
        schema = json.load(f)
    value = json.loads(out)
    jsonschema.validate(value, schema["$defs"][kind], schema)
    return value


def path_unit(rig, stop):
    """edgeward-upgrade.path"""
    while not stop.is_set():
        if os.path.exists(os.path.join(rig.state, "upgrade/queue/request")):
            rig.run()
        time.sleep(0.05)


def test_edgectl_upgrade(rig):
    release = Release(rig)
    path = os.path.join(rig.where, "x.release")
    rig._put(path, release.data, 0o644)
    rig.run()
    stop = threading.Event()
    t = threading.Thread(target=path_unit, args=(rig, stop))
    t.start()
    try:
        p = edgectl(rig, path)
        assert p.returncode == 0 and p.stdout.splitlines()[-1] == "done: installed", p
        for line in ("request op-", "verified: 2.0, sequence 2", "staged: "):
            assert line in p.stdout, p.stdout
        p = edgectl(rig, path, js=True)
        e = as_schema_says("upgrade", p.stdout)
        assert p.returncode == 1 and (e["source"], e["outcome"], e["code"], e["from"], e["to"]) == ("operator", "refused", "already-current", 2, 2)
        old = Release(rig, 1, "0.9")
        rig._put(path, old.data, 0o644)
        assert edgectl(rig, path).returncode == 1
        assert edgectl(rig, path, "--downgrade").returncode == 0 and rig.complete() == "0.9"
    finally:
        stop.set()
        t.join()
    h = as_schema_says("upgrade-history", edgectl(rig, "--history", js=True).stdout)["history"]
    assert [e["outcome"] for e in h] == ["done", "refused", "refused", "done"]
    assert edgectl(rig, "--history").stdout.count("\n") == 4
    st = os.stat(os.path.join(rig.state, "upgrade"))
    assert stat.S_IMODE(st.st_mode) == 0o700 and os.listdir(os.path.join(rig.state, "upgrade/queue")) == []


def test_edgectl_check_and_cancel(rig):
    rig.run()
    path = os.path.join(rig.where, "x.release")
    rig._put(path, Release(rig).data, 0o644)
    assert edgectl(rig, path, "--no-wait").returncode == 0
    assert edgectl(rig, path, "--no-wait").returncode == 1      # one is queued already
    state = as_schema_says("upgrade-state", edgectl(rig, "--check", js=True).stdout)
    assert state["queued"] and state["phase"] is None and state["current"] == rig.packaged
    assert edgectl(rig, "--cancel").returncode == 0 and os.listdir(os.path.join(rig.state, "upgrade/queue")) == []
    assert edgectl(rig, "--cancel").returncode == 1
    for wrong in ([], [path, path], ["--check", "--cancel"], ["--settle", "0", path], ["--settle"], ["--cancel", path], ["--downgrade"], ["--bogus"]):
        assert edgectl(rig, *wrong).returncode == 2, wrong
    rig._put(path, b"no release", 0o644)
    p = edgectl(rig, path)
    assert p.returncode == 1 and "is not a release file" in p.stderr
    p = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", EDGECTL, "upgrade", "--history"], capture_output=True, text=True, check=False, env=ENV)
    assert p.returncode == 5 or "cannot" in p.stderr        # (a build directory nobody can enter)


def test_edgectl_cancels_a_trial(rig):
    rig.start_units()
    rig.probe(connected="yes")
    rig.queue(Release(rig), settle=60)
    p = subprocess.Popen(rig.args(), env=ENV)
    wait_for(lambda: rig.current() == "releases/2")
    state = as_schema_says("upgrade-state", edgectl(rig, "--check", js=True).stdout)
    assert (state["phase"], state["sequence"], state["version"]) == ("trial", 2, "2.0")
    assert edgectl(rig, "--cancel").returncode == 0
    assert p.wait(30) == 0 and rig.last() == ("rolled-back", "cancelled") and rig.complete() == "1.0" and not rig.leftovers()


def test_check_says_what_the_updater_would(rig):
    """edgectl upgrade --check FILE runs the updater in force; here the real one, with the keys of this machine, of which there are none."""
    path = os.path.join(rig.where, "x.release")
    rig._put(path, Release(rig).data, 0o644)
    os.unlink(os.path.join(rig.packaged, "privupgrade"))
    shutil.copy(PRIVUPGRADE, os.path.join(rig.packaged, "privupgrade"))
    got = as_schema_says("upgrade-check", edgectl(rig, "--check", path, js=True).stdout)
    assert got["release"] == "refused" and got["code"] in ("no-key", "bad-signature")
    assert rig.run("-n", path).stdout.startswith("release good\n")


def test_release_script(rig):
    """What packaging/release makes of this build, signed as it says, is taken; a file that was changed after that is not joined."""
    out = os.path.join(rig.where, "out")
    script = os.path.join(REPO, "packaging/release")
    subprocess.run([script, "--output", out, "--build", BUILD, "--sequence", "9"], check=True, capture_output=True)
    with open(os.path.join(out, "sbom.spdx.json"), encoding="ascii") as f:
        sbom = json.load(f)
    assert sbom["spdxVersion"] == "SPDX-2.3" and len(sbom["files"]) == len(PROGRAMS)
    assert {p["name"] for p in sbom["packages"]} >= {"edgeward", "libc6", "libssl3"}
    subprocess.run(["signify-openbsd", "-S", "-s", rig.sec, "-m", os.path.join(out, "manifest")], check=True)
    path = subprocess.run([script, "--join", out], check=True, capture_output=True, text=True).stdout.strip()
    p = rig.run("-n", path)
    assert "release good\n" in p.stdout and "sequence 9\n" in p.stdout
    with open(os.path.join(out, "edgectl"), "ab") as f:
        f.write(b"x")
    assert subprocess.run([script, "--join", out], check=False, capture_output=True).returncode == 1


def runs_on_the_oldest(path, name):
    """B100: on the oldest processor that the architecture's packages are for. What needs a newer one dies of an illegal instruction."""
    emulator, cpu = {"x86_64": ("qemu-x86_64", "qemu64"), "aarch64": ("qemu-aarch64", "cortex-a53")}[ARCH]
    if ARCH == "x86_64":
        code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
        assert not re.search(r"%[yz]mm\d|\s(?:andn|bextr|pdep|pext|mulx|rorx|sarx|shlx|shrx|lzcnt|popcnt)\w?\s", code), name
    if shutil.which(emulator):
        out = subprocess.run([emulator, "-cpu", cpu, path, "-V"], capture_output=True, text=True, timeout=60, check=False)
        assert out.returncode == 0 and out.stdout.startswith(name + " "), (name, out)


@pytest.mark.skipif("EDGEWARD_ALL" not in os.environ, reason="skipped: builds twice, which takes minutes; EDGEWARD_ALL=1 runs it")
def test_two_builds_of_a_commit_are_identical(rig):
    manifests = []
    for n in ("a", "b"):
        out = os.path.join(rig.where, n)
        subprocess.run([os.path.join(REPO, "packaging/release"), "--output", out], check=True, capture_output=True, env={**os.environ, "CCACHE_DISABLE": "1"})
        with open(os.path.join(out, "manifest"), "rb") as f:
            manifests.append(f.read())
    assert manifests[0] == manifests[1]
    for name in PROGRAMS:
        assert not unhardened(os.path.join(rig.where, "a", name)), name
        runs_on_the_oldest(os.path.join(rig.where, "a", name), name)
    size = sum(os.path.getsize(os.path.join(rig.where, "a", name)) for name in PROGRAMS)
    print(f"{size} bytes of programs in a release, the goal P10 is {SIZE_MAX}")
    assert size <= SIZE_MAX
