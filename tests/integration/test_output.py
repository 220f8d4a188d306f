"""Output: bytes, offsets, acknowledgements, overflow (protocol reference 14.7, 4.3; B31, B33, B34, B36, B37).

Where it could go wrong: workerd's reader and retained buffer (ring arithmetic, overflow policy, acknowledgement), the work
channel (credit, epochs), connectd's two encoders (UTF-8 repair and cutting for log_chunk; DATA, window, END and digest).
"""
import hashlib
import os
import random

import pytest

from lib import proc
from lib.proc import wait_for

pytestmark = pytest.mark.timeout(120)

PY = "/usr/bin/python3"


def repaired(data):
    """Reference for plain cloop: valid UTF-8 stays, every other byte becomes one '?'."""
    out, i = bytearray(), 0
    while i < len(data):
        for n in (1, 2, 3, 4):
            try:
                piece = data[i:i + n]
                if len(piece) == n:
                    piece.decode()
                    out += piece
                    i += n
                    break
            except UnicodeDecodeError:
                pass
        else:
            out += b"?"
            i += 1
    return bytes(out)


def same(run, data, dialect):
    want = data if dialect == "edgeward" else repaired(data)
    got = run.text
    if got != want:
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise AssertionError(f"{len(got)} bytes, want {len(want)}; differs at {at}: {got[at:at + 20]!r} / "
                             f"{want[at:at + 20]!r}")


def py(code):
    return [PY, "-c", "import sys,os,time\n" + code]


def test_all_byte_values(agent, hub, dialect):
    agent()
    run = hub.finish(hub.start(py("os.write(1, bytes(range(256)) * 40)")))
    same(run, bytes(range(256)) * 40, dialect)
    assert run.log.end is None or run.log.end[0] == 10240


def test_all_byte_values_in_every_pair(agent, hub, dialect):
    """B36: each byte followed by each byte, on both dialects, against a reference."""
    agent()
    data = bytes(b for x in range(256) for y in range(256) for b in (x, y))
    run = hub.finish(hub.start(py("sys.stdout.buffer.write(bytes(b for x in range(256) for y in range(256) "
                                  "for b in (x, y)))")))
    same(run, data, dialect)


@pytest.mark.parametrize("char", ["ä", "€", "😀"])
def test_b36_split_code_points(agent, hub, dialect, char):
    """A character written in two pieces with a pause between arrives as one; one cut off at the end is repaired."""
    agent()
    raw = char.encode()
    code = "".join(f"os.write(1, {bytes([b])!r}); time.sleep(0.15)\n" for b in raw)
    code += f"os.write(1, b'|'); os.write(1, {raw[:-1]!r})"
    run = hub.finish(hub.start(py(code)))
    same(run, raw + b"|" + raw[:-1], dialect)


def test_b36_characters_across_every_chunk_edge(agent, hub, dialect):
    """A 4-byte character at every offset around the limit of a chunk (32 KiB and 64 KiB)."""
    agent()
    for shift in range(4):
        data = b"x" * shift + "😀".encode() * 40000
        run = hub.finish(hub.start(py(f"sys.stdout.buffer.write(b'x' * {shift} + '\\U0001F600'.encode() * 40000)")))
        same(run, data, dialect)
        assert run.chunk_max <= (65536 if dialect == "edgeward" else 32768)


def test_invalid_bytes_at_chunk_edges(agent, hub, dialect):
    agent()
    rng = random.Random(7)
    data = bytes(rng.choice(b"\x80\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80a\xff\n\"\\\x00\x1f") for _ in range(200000))
    run = hub.finish(hub.start(py("import random\nr = random.Random(7)\nsys.stdout.buffer.write(bytes(r.choice("
                                  "b'\\x80\\xc3\\xa4\\xe2\\x82\\xac\\xf0\\x9f\\x98\\x80a\\xff\\n\"\\\\\\x00\\x1f') "
                                  "for _ in range(200000)))"), timeout=20), 30)
    same(run, data, dialect)


def test_stdout_and_stderr_are_one_stream(agent, hub, dialect):
    agent()
    run = hub.finish(hub.start("for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done"))
    assert run.text == b"".join(b"out%d\nerr%d\n" % (i, i) for i in range(1, 6))


@pytest.mark.timeout(240)
def test_printf_and_exit(agent, hub, dialect):
    """A byte and an immediate end, again and again: no lost tail, no wrong order, slot free each time."""
    agent(conf={"work": {"slots": 8}})
    runs = []
    for n in range(1000):
        runs.append(hub.start(["/usr/bin/printf", "x%d" % n] if n % 2 else f"printf x{n}; exit {n % 256}"))
        if n >= 6:
            hub.finish(runs[n - 6])
    for n, run in enumerate(runs):
        hub.finish(run)
        assert run.text == b"x%d" % n and run.exit_code == (0 if n % 2 else n % 256)
    hub.wait("all are delivered", lambda: (s := hub.current) and s.live and s.beats and s.beats[-1][2] == [], 30)


def test_no_output_at_all(agent, hub, dialect):
    agent()
    run = hub.finish(hub.start("exec >&- 2>&-; exit 5"))
    assert run.exit_code == 5 and run.text == b"" and run.terminal["final_offset"] == 0


def test_64_kib_in_the_pipe_at_exit(agent, hub, dialect):
    agent()
    run = hub.finish(hub.start(py("os.write(1, b'z' * 65536); os._exit(0)")))
    assert run.text == b"z" * 65536


def test_b34_a_very_long_line_delays_nobody(agent, hub, dialect):
    """200 MB without a newline beside a job with a line each 100 ms; memory stays bounded."""
    a = agent()
    size = 200 << 20
    hub.b.ack_every = 262144
    small = hub.start(py("n = 0\nwhile True:\n print(n, time.monotonic(), flush=True)\n n += 1\n time.sleep(0.1)"))
    big = hub.start(py(f"b = b'{'q' * 64}' * 1024\nfor _ in range({size} // 65536): os.write(1, b)"))
    big.log.keep = False
    peak = {}
    while not big.terminal:
        before = big.log.received
        for role, pid in a.pids().items():
            peak[role] = max(peak.get(role, 0), proc.rss_kb(pid))
        seen = small.log.received
        hub.wait("the small job's next line", lambda: small.log.received > seen or big.terminal, 3)
        hub.wait("progress", lambda: big.log.received > before or big.terminal, 20)
    assert big.log.received == size and big.log.gaps == []
    want = hashlib.sha256()
    for _ in range(size // 65536):
        want.update(b"q" * 65536)
    assert big.log.sha.digest() == want.digest()
    limit = 20 << 10 if not proc.sanitized(a.pid("connectd")) else 120 << 10
    assert all(kb < limit for kb in peak.values()), peak
    hub.signal(small, "kill")
    hub.finish(small)


@pytest.mark.parametrize("piece", ["\\r", "\\0", "\\033[2"])
def test_b34_other_shapes_without_a_newline(agent, hub, dialect, piece):
    agent()
    run = hub.finish(hub.start(py(f"sys.stdout.buffer.write(b'{piece}' * 300000)")), 30)
    assert run.text == piece.encode().decode("unicode_escape").encode() * 300000


def numbered(n):
    return "".join(f"line {i:09d} of the numbered output\n" for i in range(n)).encode()


@pytest.mark.timeout(240)
def test_b31_numbered_lines_through_many_cuts(agent, hub, dialect):
    """100 MB through 200 cuts with kill -9 of connectd and workerd among them."""
    a = agent(conf={"work": {"overflow": "wait-forever"}, "link": {"retry-max-local": "100ms", "retry-max": "100ms"}})
    lines, target = 2900000, 200
    total = len(numbered(1)) * lines
    rng = random.Random(31)
    run = hub.send_start(py(f"time.sleep(0.5)\nfor i in range({lines}): "
                            "sys.stdout.write(f'line {i:09d} of the numbered output\\n')"))
    run.cuts = sorted(rng.sample(range(1, total), target))
    for role in ["connectd", "connectd", "workerd"] * 5:
        want = run.cut_count + target // 20
        hub.wait("some cuts", lambda w=want: run.cut_count >= w or run.terminal, 60)
        old = a.kill9(role)
        a.restarted(role, old)
    hub.finish(run, 150)
    assert run.cut_count >= target * 3 // 4, f"only {run.cut_count} cuts before the end"
    assert run.log.gaps == []
    assert hashlib.sha256(run.text).hexdigest() == hashlib.sha256(numbered(lines)).hexdigest()
    assert run.terminal["final_offset"] == total


def test_drop_covers_every_missing_byte_by_a_gap(agent, hub, dialect):
    """Policy drop with a slow hub and cuts: what arrives is exact, and every byte that does not lies in a gap."""
    a = agent(conf={"work": {"overflow": "drop", "retain": "64K"}})
    lines = 200000
    run = hub.start(py(f"for i in range({lines}): sys.stdout.write(f'line {{i:09d}} of the numbered output\\n')\n"
                       "sys.stdout.flush(); time.sleep(0.3)"))
    hub.b.ack_logs = False
    for _ in range(3):
        s = hub.session()
        s.cut()
        hub.session(after=s)
    hub.b.ack_logs = True
    hub.finish(run, 60)
    want = numbered(lines)
    covered, missing = 0, sum(b - x for x, b, _ in run.log.gaps)
    assert missing > 0, "nothing was dropped: the test is too gentle"
    for offset, data in run.log.segments:
        assert bytes(data) == want[offset:offset + len(data)], f"other bytes at {offset}"
        covered += len(data)
    assert covered + missing == len(want) == run.terminal["final_offset"]
    assert a.pid("workerd")
    assert a.ctl("status").json["workerd"]["gap_bytes"] == missing, "the device tells as much"
    if dialect == "edgeward":
        assert all(r in (1, 2, 3, 4) for _, _, r in run.log.gaps)


def test_b37_wait_slows_the_writer_and_loses_nothing(agent, hub, dialect):
    """No acknowledgement: the writer blocks at the retained megabyte while the link is up; then everything comes."""
    agent(conf={"work": {"overflow": "wait", "overflow-wait": "60s", "retain": "256K"}})
    hub.b.ack_logs = False
    run = hub.start(py("for i in range(100000): sys.stdout.write(f'line {i:09d} of the numbered output\\n')"))
    hub.wait("the window is full", lambda: run.log.received >= 200000, 20)
    pid = run.started["pid"]
    seen = [(-1, -1)]

    def blocked():
        """It sleeps and has used no more time than at the last look."""
        seen.append((proc.stat(pid)[1], proc.cpu_ticks(pid), run.log.received))
        return len(seen) > 20 and seen[-1][0] == "S" and seen[-1] == seen[-15]
    wait_for(blocked, 10, "the writer is blocked")
    full = run.log.received
    assert full <= 262144 + 2 * 65536 + 65536, f"{full} bytes were accepted without an acknowledgement"
    hub.b.ack_logs = True
    hub.finish(run, 30)
    assert run.text == numbered(100000)


@pytest.mark.parametrize("device,asked", [("wait", "drop"), ("drop", "wait"), ("drop", "wait-forever")])
def test_overflow_is_chosen_by_workload(agent, hub, dialect, device, asked):
    """Two at once, one with the label: that one does as it says, the other as the device is configured; a killed workerd forgets neither."""
    a = agent(conf={"work": {"overflow": device, "overflow-wait": "600s", "retain": "64K"}})
    hub.b.ack_logs = False
    job = py("for i in range(60000): sys.stdout.write(f'line {i:09d} of the numbered output\\n')")
    runs = {device: hub.start(job), asked: hub.start(job, labels={"edgeward.overflow": asked})}
    drops, waits = runs["drop"], runs[device if asked == "drop" else asked]
    wait_for(lambda: not proc.alive(drops.started["pid"]), 30, "the one that drops is through")
    assert proc.alive(waits.started["pid"])
    a.kill9("workerd")
    a.connected()
    assert proc.alive(waits.started["pid"])
    hub.b.ack_logs = True
    for run in (drops, waits):
        hub.finish(run, 60)
    assert waits.text == numbered(60000) and not waits.log.gaps
    assert sum(b - x for x, b, _ in drops.log.gaps) + sum(len(d) for _, d in drops.log.segments) == len(numbered(60000))
    assert drops.log.gaps


def test_an_overflow_nobody_knows_is_refused(agent, hub):
    agent()
    run = hub.start("true", refused=True, labels={"edgeward.overflow": "maybe"})
    assert "edgeward.overflow must be wait, wait-forever or drop" in str(run.refused)


def test_wait_gives_way_after_its_time(agent, hub):
    """overflow = wait: after overflow-wait without a session the oldest bytes go, with a gap, and the writer runs on."""
    agent(conf={"work": {"overflow": "wait", "overflow-wait": "1s", "retain": "64K"}})
    s = hub.session()
    run = hub.start(py("time.sleep(0.3)\nfor i in range(60000): sys.stdout.write(f'line {i:09d} of the numbered output\\n')"))
    hub.b.tcp = "rst"
    s.cut()
    wait_for(lambda: not proc.alive(run.started["pid"]), 20, "the writer is let go")
    hub.b.tcp = None
    hub.finish(run, 20)
    want = numbered(60000)
    missing = sum(b - x for x, b, _ in run.log.gaps)
    assert missing > 0 and all(bytes(d) == want[o:o + len(d)] for o, d in run.log.segments)
    assert missing + sum(len(d) for _, d in run.log.segments) == len(want)


def test_wait_forever_waits(agent, hub):
    a = agent(conf={"work": {"overflow": "wait-forever", "overflow-wait": "0s", "retain": "64K"}})
    s = hub.session()
    run = hub.start(py("time.sleep(0.3)\nfor i in range(60000): sys.stdout.write(f'line {i:09d} of the numbered output\\n')"))
    hub.b.tcp = "rst"
    s.cut()
    hub.wait("attempts", lambda: len(hub.accepts) >= 6, 20)
    assert proc.alive(run.started["pid"])
    wait_for(lambda: a.ctl("workloads").json["workloads"][0]["waits"], 10, "edgectl tells that it waits")
    hub.b.tcp = None
    hub.finish(run, 30)
    assert run.text == numbered(60000)


@pytest.mark.parametrize("offset", [10**9, 2**63 - 1, 0, 1])
def test_odd_acknowledgements(agent, hub, dialect, offset):
    """Beyond the total: clamped. Below what was acknowledged: ignored. For a stranger: ignored."""
    agent()
    run = hub.start("i=0; while [ $i -lt 100000 ]; do echo line $i; i=$((i+1)); sleep 0.01; done")
    hub.wait("output", lambda: run.log.received > 200, 10)
    s = hub.session()
    s.send("log_ack", {"offset": offset}, handle=run.handle)
    s.send("log_ack", {"offset": offset}, handle="nobody")
    before = run.log.received
    hub.wait("output goes on", lambda: run.log.received > before + 100, 10)
    s.cut()
    hub.session(after=s)
    before = run.log.received
    hub.wait("output goes on", lambda: run.log.received > before + 100, 10)
    hub.signal(run, "kill")
    hub.finish(run)


def test_b33_unknown_handle_stops_the_sending(agent, hub):
    """15.28: output that the hub refuses as unknown is not sent for ever; one log line; the next resume settles the rest."""
    hub.b.edgeward = False
    a = agent()
    run = hub.start("while :; do echo x; sleep 0.01; done")
    other = hub.start("while :; do echo y; sleep 0.01; done")
    hub.wait("output", lambda: run.log.received > 50, 10)
    del hub.runs[run.handle]
    hub.wait("refused chunks", lambda: hub.unknown_chunks >= 1, 10)
    before = other.log.received
    hub.wait("the other one's output", lambda: other.log.received > before + 100, 10)
    count = hub.unknown_chunks
    assert count < 50
    hub.wait("more of the other's", lambda: other.log.received > before + 400, 10)
    assert hub.unknown_chunks == count, "it goes on sending what nobody wants"
    assert a.log_text().count("does not know") == 1
    s = hub.session()
    s.cut()
    hub.session(after=s)
    wait_for(lambda: not proc.alive(run.started["pid"]), 15, "told to terminate, it ends")
    hub.signal(other, "kill")
    hub.finish(other)


def test_final_offset_counts_dying_output(agent, hub, dialect):
    agent()
    run = hub.start("trap 'echo trapped; exit 0' TERM; printf abc; while :; do sleep 0.02; done")
    hub.wait("abc", lambda: run.log.received == 3, 10)
    answer = hub.signal(run)
    assert answer["payload"]["status"]["state"] == "running", "the reply to a signal is not terminal"
    hub.finish(run)
    assert run.text == b"abctrapped\n" and run.terminal["final_offset"] == 11


def test_status_is_running_until_everything_is_written(agent, hub, dialect):
    """4.4: while output is still owed the state is `running`, even if the process is dead."""
    agent()
    hub.b.ack_logs = hub.b.extend = False
    s = hub.session()
    s.stall()
    run = hub.send_start([PY, "-c", "import os; os.write(1, b'y' * 60000)"])
    s.send("status_req", {}, handle=run.handle, id="early")
    s.stall(False)
    hub.finish(run)
    states = [f["payload"]["status"]["state"] for _, f in s.frames
              if f["type"] == "status" and f.get("id") == "early"]
    assert all(x in ("running", "pending") for x in states)
    assert run.text == b"y" * 60000
