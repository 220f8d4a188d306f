"""The spool: output on disk while the hub is away (faults.md B31, B32, B37, B42, B65, B67, B69, B71 as far as output goes).

Where it could go wrong: workerd's ring and spool seen as one (which of the two holds a byte, what is a gap and why), the
bounds for each workload and for all, files of an earlier life that are cut, damaged, too many or not ours, a disk that is
full, read-only or gone.
"""
import glob
import os
import shutil
import struct

import pytest

from lib.agent import is_root
from lib.netns import Mounts
from lib.proc import wait_for

pytestmark = pytest.mark.timeout(120)

MEMORY, SPOOL, DISK, LOST = 1, 2, 3, 4
RING = 65536


def conf(spool="64M", total="256M", **work):
    return {"work": {"retain": "64K", "overflow": "wait-forever", "spool": spool, "spool-total": total, **work}}


def away(hub):
    """The hub goes: no session, nobody listens."""
    hub.unlisten()
    hub.session().cut()


def start_away(a, hub, *lines, then=""):
    """Starts a workload for each number of lines, which print them once the hub is gone."""
    go = os.path.join(a.root, f"go.{len(hub.runs)}")       # where a workload without a directory sees it
    runs = [hub.start(number(n, then, go)) for n in lines]
    away(hub)
    open(go, "wb").close()
    return runs if len(runs) > 1 else runs[0]


def restart_workerd(a, hub):
    """Kills it and waits until the new one takes work."""
    a.restarted("workerd", a.kill9("workerd"))

    def takes_work():
        run = hub.send_start(["/bin/true"])
        hub.wait("an answer", lambda: run.answers, 10)
        return run.started and hub.delivered(run)
    wait_for(takes_work, 20, "the new workerd takes work", 0.1)


def spool_dir(a):
    return os.path.join(a.state, "workerd", "spool")


def files(a):
    return sorted(glob.glob(spool_dir(a) + "/w.*"))


def size(a):
    total = 0
    for name in os.listdir(spool_dir(a)):
        try:
            total += os.stat(os.path.join(spool_dir(a), name)).st_size
        except FileNotFoundError:
            pass
    return total


def workload(a, run):
    return next(w for w in a.ctl("workloads").json["workloads"] if w["handle"] == run.handle)


def produced(a, run):
    return workload(a, run)["produced"]


def numbered(n):
    return b"".join(b"%09d\n" % i for i in range(n))


def number(n, then="", go=None):
    """Prints n lines of ten bytes, when the file go is there."""
    code = f"import os, sys, time\nwhile not os.path.exists({go!r}):\n    time.sleep(0.02)\n" if go else "import sys, time\n"
    code += f"for k in range(0, {n}, 10000):\n" \
           f"    sys.stdout.buffer.write(b''.join(b'%09d\\n' % i for i in range(k, min(k + 10000, {n}))))\n{then}"
    return ["/usr/bin/python3", "-c", code]


def pieces(run):
    """Offset and bytes of what arrived, checked against what was printed."""
    for offset, data in run.log.segments:
        skip = -offset % 10
        lines = bytes(data[skip:]).split(b"\n")
        for i, line in enumerate(lines[:-1]):
            assert line == b"%09d" % ((offset + skip) // 10 + i), f"other bytes at {offset + skip + 10 * i}"
    return run.log.segments


# ---- the hub is away ----

@pytest.mark.parametrize("edgeward,kills,n", [(False, 0, 1_500_000), (True, 4, 5_000_000)])
def test_b31_fifty_megabytes_while_the_hub_is_away(agent, hub, edgeward, kills, n):
    """Nothing waits, nothing is lost; kill -9 of workerd on the way changes nothing."""
    hub.b.edgeward = edgeward
    a = agent(conf=conf())
    run = start_away(a, hub, n, then="sys.stdout.flush()\nsys.exit(3)")
    for k in range(kills):
        wait_for(lambda: len(files(a)) > k * 2, 30, "it is spooled")
        a.restarted("workerd", a.kill9("workerd"))
    wait_for(lambda: workload(a, run)["state"] == "ended", 60, lambda: f"it ends: {a.ctl('workloads')}")
    wait_for(lambda: a.ctl("status").json["workerd"]["retained_bytes"] == 0, 20, "all of it is out of memory")
    assert size(a) >= 10 * n and a.ctl("status").json["workerd"]["spool_bytes"] >= 10 * n
    assert workload(a, run)["retained_from"] == 0
    hub.listen()
    hub.delivered(run, 60)
    assert run.text == numbered(n) and run.exit_code == 3
    wait_for(lambda: os.listdir(spool_dir(a)) == [], 30, "the files are removed")


def test_spool_is_off_by_default(agent, hub):
    a = agent(conf={"work": {"overflow": "wait-forever"}})
    run = start_away(a, hub, 300_000)
    wait_for(lambda: produced(a, run) == 1 << 20, 10, "the ring is full")
    assert not os.path.exists(spool_dir(a))
    hub.listen()
    hub.delivered(run, 30)
    assert run.text == numbered(300_000)


def test_a_hub_that_takes_bytes_spares_the_disk(agent, hub):
    """With a session the workload is slowed as without a spool; only a hub that acknowledges nothing brings in the disk."""
    a = agent(conf=conf())
    run = hub.finish(hub.start(number(1_000_000)), 30)
    assert run.text == numbered(1_000_000)
    assert "spool" not in a.log_text() and size(a) == 0
    hub.b.ack_logs = hub.b.extend = False
    run = hub.start(number(300_000))
    wait_for(lambda: produced(a, run) == 3_000_000, 20, "the disk takes it")
    assert size(a) >= 3_000_000 - RING
    hub.b.ack_logs = hub.b.extend = True
    hub.session().extend_all()
    hub.delivered(run, 30)
    assert run.text == numbered(300_000)


# ---- what outlives the launcher ----

def spooled(a, run, n):
    """Waits until n lines are printed and all of it is on the disk."""
    wait_for(lambda: produced(a, run) == 10 * n, 20, "it has printed")
    wait_for(lambda: workload(a, run)["retained_from"] == 0 and size(a) >= 10 * n, 20, "all of it is on the disk")


@pytest.mark.parametrize("how", ["launcher", "everything"])
def test_lost_work_delivers_what_was_spooled(agent, hub, dialect, how):
    """The launcher dies, or all of it at once: exactly the bytes that were on the disk arrive, then `lost`, once."""
    a = agent(conf=conf())
    n = 30_000
    run, ended = start_away(a, hub, n, 5_000, then=f"if sys.stdout.flush() or {n} == k + 10000:\n    time.sleep(1000)")
    wait_for(lambda: workload(a, ended)["state"] == "ended" and produced(a, run) == 10 * n, 20, "both have printed")
    wait_for(lambda: size(a) >= 350_000, 20, "both are on the disk")
    if how == "launcher":
        a.restarted("launcher", a.kill9("launcher"))
    else:
        a.crash()
        a.start()
    hub.listen()
    hub.delivered(run, 30)
    hub.delivered(ended, 30)
    assert run.log.gaps == [] and run.text == numbered(n)
    assert run.state == "failed" and run.terminal["status"]["error"]
    assert ended.text == numbered(5_000) and ended.exit_code == 0, "its end was known"
    if dialect == "edgeward":
        assert run.terminal["status"]["outcome"] == "lost"
        assert ended.terminal["log_xxh3"], "and its digest, which the model has compared"
    assert len({s for s, _ in run.terminals}) == len(run.terminals)
    wait_for(lambda: os.listdir(spool_dir(a)) == [], 30, "the files are removed")


@pytest.mark.parametrize("how", ["stop", "launcher"])
def test_an_orderly_stop_writes_what_is_only_in_memory(agent, hub, how):
    """A reboot, or the launcher's death, within the second that output may wait for the disk: nothing that was printed before is lost."""
    a = agent(conf=conf())
    n = 3_000
    run = start_away(a, hub, n, then="sys.stdout.flush()\ntime.sleep(1000)")
    wait_for(lambda: produced(a, run) == 10 * n, 20, "it has printed", 0.02)
    if how == "launcher":
        a.restarted("launcher", a.kill9("launcher"))
    else:
        a.stop()
        a.start()
    hub.listen()
    hub.delivered(run, 30)
    assert run.log.gaps == [] and run.text == numbered(n)
    assert run.terminal["status"]["outcome"] == "lost"


def noted(a):
    """How much its newest segment says the workload had produced."""
    with open(files(a)[-1], "rb") as f:
        return struct.unpack("=24xQ96x", f.read(128))[0]


def test_what_the_ring_held_is_a_gap(agent, hub):
    """The launcher dies while more was printed than is on the disk: the rest is told as lost, as far as it is known."""
    a = agent(start=False, conf=conf(spool="1M", total="1M", overflow="wait-forever", retain="128K"))
    a.start()
    run = start_away(a, hub, 500_000)
    wait_for(lambda: "full at" in a.log_text() and produced(a, run) >= noted(a), 20, "spool and ring are full")
    had = wait_for(lambda: noted(a) == produced(a, run) and noted(a), 20, "it is noted how much there is")
    a.restarted("launcher", a.kill9("launcher"))
    hub.listen()
    hub.delivered(run, 30)
    (start, stop, reason), = run.log.gaps
    assert reason == LOST and 900_000 < start < stop == had <= start + (128 << 10)
    assert run.terminal["final_offset"] == stop
    assert bytes(run.log.segments[0][1]) == numbered(110_000)[:start]


def test_a_journal_that_was_lost(agent, hub):
    """Spooled output of a handle nobody knows of is not thrown away: the hub gets it, and that the work is lost."""
    a = agent(conf=conf())
    run = start_away(a, hub, 20_000, then="sys.stdout.flush()\ntime.sleep(1000)")
    spooled(a, run, 20_000)
    a.crash()
    os.unlink(os.path.join(a.state, "workerd", "journal"))
    a.start()
    hub.listen()
    hub.delivered(run, 30)
    assert run.text == numbered(20_000) and run.terminal["status"]["outcome"] == "lost"


# ---- damage ----

@pytest.mark.parametrize("how", ["flip", "cut", "gone", "fifo"])
def test_b71_a_damaged_segment(agent, hub, how):
    """Exactly what it held is a gap with the reason; the rest arrives; a copy is kept aside; workerd lives on."""
    a = agent(conf=conf(spool="2M"))
    run = start_away(a, hub, 100_000)
    wait_for(lambda: workload(a, run)["state"] == "ended" and len(files(a)) >= 5, 20, "several segments")
    victim = files(a)[2]
    a.restarted("workerd", a.kill9("workerd"))
    if how == "flip":
        with open(victim, "r+b") as f:
            f.seek(os.path.getsize(victim) // 2)
            f.write(b"rust")
    elif how == "cut":
        os.truncate(victim, os.path.getsize(victim) // 2)
    else:
        os.unlink(victim)
        if how == "fifo":
            os.mkfifo(victim)
    pid = a.pid("workerd")
    hub.listen()
    hub.delivered(run, 30)
    (start, stop, reason), = run.log.gaps
    base = int(victim.rsplit(".", 1)[1], 16)
    assert reason == LOST and base <= start < stop == int(files_base(run, start, stop)), run.log.gaps
    pieces(run)
    assert a.pid("workerd") == pid and run.exit_code == 0
    assert "is damaged" in a.log_text() or "is missing" in a.log_text()
    if how in ("flip", "cut"):
        assert os.listdir(spool_dir(a)) == ["bad.0"]


def files_base(run, start, stop):
    """Where bytes go on: right behind what is missing, to the end of what was printed."""
    assert run.log.segments[-1][0] == stop and stop + len(run.log.segments[-1][1]) == 1_000_000
    return stop


def test_b42_damage_again_and_again_stays_within_the_bounds(agent, hub):
    """B42: copies set aside count, and their number is bounded; foreign files are told of and left alone."""
    a = agent(conf=conf(spool="1M", total="2M", overflow="drop"))
    a.connected()
    foreign = os.path.join(spool_dir(a), "something-else")
    with open(foreign, "wb") as f:
        f.write(bytes(300_000))
    for _ in range(4):
        restart_workerd(a, hub)
        run = start_away(a, hub, 60_000)
        wait_for(lambda: workload(a, run)["state"] == "ended" and files(a), 20, "spooled")
        for name in files(a)[:2]:
            with open(name, "r+b") as f:
                f.seek(500)
                f.write(b"rust")
        hub.listen()
        hub.delivered(run, 30)
        pieces(run)
        assert size(a) <= (2 << 20) + (64 << 10)
    assert os.path.getsize(foreign) == 300_000
    assert len(glob.glob(spool_dir(a) + "/bad.*")) <= 3 and "not ours" in a.log_text()


# ---- what can be proven ----

def test_logs_verify_on_the_device(agent, hub):
    """All of it in the spool: the digest is proven. A part damaged, or acknowledged and freed: the ranges are told."""
    a = agent(conf=conf(spool="4M"))

    def verify(run, rc):
        p = a.ctl("logs", "verify", run.handle)
        assert p.rc == rc, p
        return p.json
    hub.b.ack_logs = False
    alive = hub.start("echo one; sleep 1000")
    hub.wait("its line", lambda: alive.log.received == 4, 10)
    run = start_away(a, hub, 200_000)
    wait_for(lambda: workload(a, run)["state"] == "ended" and a.ctl("status").json["workerd"]["retained_bytes"] == 4, 20,
             "all of it is on the disk")
    doc = verify(run, 0)
    assert doc["result"] == "verified" and doc["held"] == 2_000_000 and doc["held_xxh3"] == doc["log_xxh3"]
    assert verify(alive, 3)["result"] == "running"
    victim = files(a)[-3]
    with open(victim, "r+b") as f:
        f.seek(3000)
        f.write(b"rust")
    doc = verify(run, 3)
    assert doc["result"] == "partial" and [m["reason"] for m in doc["missing"]] == ["lost"]
    assert a.ctl("logs", "verify", "nobody").rc == 1
    hub.b.ack_logs = True
    hub.listen()
    hub.delivered(run, 30)
    hub.wait("it is acknowledged", lambda: alive.log.acked == 4, 10)
    assert wait_for(lambda: (d := verify(alive, 3))["missing"] and d, 10, "it is freed")["held"] == 0


# ---- bounds ----

def test_b42_totals_with_ten_workloads(agent, hub):
    """Ten at once, each of which would fill the whole spool: never more than spool-total, and all of it arrives."""
    a = agent(conf={"work": {**conf(spool="2M", total="5M")["work"], "slots": 10}})
    runs = start_away(a, hub, *[150_000] * 10)
    top = 0

    def full():
        nonlocal top
        top = max(top, size(a))
        return a.log_text().count("full at") >= 10
    wait_for(full, 30, "the spool is full")
    assert (4 << 20) < top <= 5 << 20
    hub.listen()
    for run in runs:
        hub.delivered(run, 60)
        assert run.text == numbered(150_000)
    wait_for(lambda: size(a) == 0, 30, "the files are removed")


def test_b32_drop_lets_the_oldest_go_with_the_reason(agent, hub):
    """overflow = drop: nobody waits; the newest are kept, what is missing is one gap at the front with reason `spool`."""
    a = agent(conf=conf(spool="1M", total="1M", overflow="drop"))
    run = start_away(a, hub, 400_000)
    wait_for(lambda: workload(a, run)["state"] == "ended", 30, "it does not wait")
    w = workload(a, run)
    assert w["produced"] == 4_000_000 and 4_000_000 - w["retained_from"] > 800_000
    out = a.ctl("logs", run.handle, json_out=False)
    assert "are no longer held here (spool)" in out.err
    hub.listen()
    hub.delivered(run, 30)
    assert [g[2] for g in run.log.gaps] == [SPOOL] and run.log.gaps[0][1] == w["retained_from"]
    pieces(run)


# ---- disks ----

@pytest.fixture
def mounts():
    if not is_root():
        pytest.skip("skipped: needs root")
    ns = Mounts()
    yield ns
    ns.close()


def test_b65_spool_disk_full(agent, hub, mounts):
    """The file system of the state directory has 2 MB: told once; the work waits, nothing is lost, all of it arrives."""
    a = agent(start=False, ns=mounts, conf=conf(**{"disk-low": "256K"}))
    state = os.path.join(a.dir, "d", "state")
    os.makedirs(state)
    mounts.sh(f"mount -t tmpfs -o size=2m,mode=755 none {state}")
    a.start()
    run = start_away(a, hub, 500_000)
    wait_for(lambda: "cannot be written" in a.log_text(), 20, "the disk is full")
    assert a.ctl("status").json["workerd"]["cause"] == "spool-unwritable"
    free = mounts.run("stat", "-f", "-c", "%a %S", state).stdout.split()
    assert int(free[0]) * int(free[1]) >= 256 << 10, "the low-water mark is kept"
    hub.listen()
    hub.delivered(run, 30)
    assert run.text == numbered(500_000)
    assert 1 <= a.log_text().count("cannot be written") <= 3, "told once, not at each attempt"


@pytest.mark.parametrize("how", ["read-only", "removed", "other owner"])
def test_b67_directory_that_cannot_be_written(agent, hub, mounts, how):
    """One clear line; output waits in memory and all of it arrives; healed, it is used again."""
    a = agent(start=False, ns=mounts, conf=conf())
    a.start()
    a.connected()
    path = spool_dir(a)
    if how == "read-only":
        mounts.sh(f"mount --bind {path} {path} && mount -o remount,bind,ro {path}")
        restart_workerd(a, hub)
    elif how == "removed":
        shutil.rmtree(path)
    else:
        os.chown(path, 0, 0)
        os.chmod(path, 0o755)
    run = start_away(a, hub, 400_000)
    wait_for(lambda: "cannot be written" in a.log_text(), 20, "it is told")
    assert produced(a, run) < 400_000 * 10
    if how == "removed":
        os.mkdir(path, 0o700)
        os.chown(path, a.work_uid, a.work_uid)
        wait_for(lambda: workload(a, run)["state"] == "ended", 20, "the new directory is taken")
    hub.listen()
    hub.delivered(run, 30)
    assert run.text == numbered(400_000)
    assert len([x for x in a.log_text().splitlines() if "cannot be written" in x]) <= 3
    if how == "other owner":
        restart_workerd(a, hub)
        wait_for(lambda: "must belong to workerd's user" in a.log_text(), 10, "told at the start")
        hub.session()
        assert hub.finish(hub.start("echo on")).text == b"on\n"


def test_switched_off_what_is_there_is_still_delivered(agent, hub):
    """`spool = 0` after a time with a spool: nothing is written any more, what lies there arrives and is removed."""
    a = agent(conf=conf())
    run = start_away(a, hub, 20_000)
    wait_for(lambda: workload(a, run)["state"] == "ended" and size(a) >= 200_000, 20, "it is on the disk")
    a.crash()
    a.conf["work"]["spool"] = "0"
    a.write_conf()
    a.start()
    hub.listen()
    hub.delivered(run, 30)
    assert run.text == numbered(20_000) and run.exit_code == 0
    wait_for(lambda: os.listdir(spool_dir(a)) == [], 30, "the files are removed")
    run = start_away(a, hub, 20_000)
    wait_for(lambda: produced(a, run) >= RING, 10, "the ring is full")
    assert os.listdir(spool_dir(a)) == []
    hub.listen()
    hub.delivered(run, 30)
    assert run.text == numbered(20_000)
