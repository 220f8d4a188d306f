"""Bundles as streams of edgeward.1 (edgeward.md section 3, kind bundle): results to the hub, branches from it.

Where it could go wrong: connectd/bundlesend.c (digest, resume, a hub that knows none), connectd/branch.c (what is taken of a hub),
hub/bundle.c and hub/ship.c for the other end; the order of bundle, result and status; the priority and the window.
"""
import base64
import glob
import hashlib
import os
import shutil
import struct
import subprocess

import pytest

from wsproto.events import BytesMessage

from fakeagent import FakeAgent
from lib.gitserver import ENV, git
from lib.proc import wait_for
from lib.session import DATA, END, RESET, new_id
from test_git import server     # noqa: F401

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(shutil.which("git") is None, reason="skipped: no git")]

BACK = {"mode": "bundle", "branch": "cloop/b"}


@pytest.fixture
def device(agent, hub, ca):
    a = agent(env={"GIT_SSL_CAINFO": ca.file}, conf={"work": {"show": os.path.dirname(ca.file)}})
    a.connected()
    return a


def workspace(server, base):
    return {"kind": "git", "repo": server.url("r.git"), "ref": base}


def make(hub, server, size=1500000, base=None, **more):
    """A run that brings a bundle of about this size back."""
    base = base or server.repo()
    return hub.start(f"head -c {size} /dev/urandom > big", 40, work_dir=new_id("w"), workspace=workspace(server, base), write_back=BACK, **more)


def complete(run):
    assert run.result.get("error") is None and run.result["bundle_bytes"] == len(run.bundle), run.result
    assert run.result["bundle_sha256"] == hashlib.sha256(run.bundle).hexdigest() and run.bundle.startswith(b"# v")


def chunks(hub):
    return sum(f["type"] == "result_chunk" for s in hub.sessions for _, f in s.frames)


# ---- results ----

def test_a_result_is_a_stream_and_then_a_frame(device, hub, server):
    run = hub.finish(make(hub, server), 40)
    complete(run)
    assert chunks(hub) == 0 and run.bundle_opens == [(0, 0)] and run.bundle_bytes == len(run.bundle)
    kinds = [f["type"] for _, f in hub.session().frames if f["type"] in ("stream_open", "result", "status")]
    assert kinds == ["stream_open", "result", "status"]
    hub.delivered(run)


def test_a_lost_link_in_the_middle_goes_on_where_it_was(device, hub, server):
    cuts = []

    def window(run, limit):
        session = hub.current
        if session.number not in cuts and len(run.bundle) - run.bundle_opens[-1][1] > 200000 and len(cuts) < 3:
            cuts.append(session.number)
            session._finish(("cut",))
            hub.do(session.conn.abort, True)
        return len(run.bundle) + 262144
    hub.b.bundle_window = window
    run = hub.finish(make(hub, server), 60)
    complete(run)
    assert len(cuts) == 3 and [o for _, o in run.bundle_opens] == sorted(o for _, o in run.bundle_opens) and run.bundle_opens[1][1] > 200000
    assert run.bundle_bytes == len(run.bundle) and run.results == 1, "no byte came twice"


def test_a_hub_that_stalls_holds_up_nothing_else(device, hub, server):
    """No window for the bundle: at most what was promised comes, beats and other runs go on, and then all of it."""
    stalled = [True]
    hub.b.bundle_window = lambda run, limit: limit if stalled[0] else len(run.bundle) + 262144
    run = make(hub, server, 3000000)
    hub.wait("a full window", lambda: len(run.bundle) == 262144, 40)
    session = hub.session()
    other = hub.finish(hub.start("head -c 300000 /dev/zero | tr '\\0' x; exit 4", 20), 20)
    assert (other.exit_code, len(other.text)) == (4, 300000)
    hub.delivered(other, 20)
    assert hub.session() is session and len(run.bundle) == 262144 and run.terminal is None
    stalled[0] = False
    hub.do(session.widen_bundle, next(iter(session.bundles)))
    complete(hub.finish(run, 40))


def test_an_older_hub_gets_chunks(device, hub, server):
    """It says once in a session that it has no such stream; a newer one after it gets streams again."""
    hub.b.bundles = False
    first, base = make(hub, server), server.repo("q.git")
    complete(hub.finish(first, 40))
    asked = sum(f["type"] == "stream_open" for s in hub.sessions for _, f in s.frames)
    before = chunks(hub)
    assert asked == 1 and before > 10
    second = hub.start("echo x > y", 40, work_dir="v", workspace={"kind": "git", "repo": server.url("q.git"), "ref": base}, write_back=BACK)
    complete(hub.finish(second, 40))
    assert sum(f["type"] == "stream_open" for s in hub.sessions for _, f in s.frames) == 1 and chunks(hub) > before
    hub.b.bundles = True
    session = hub.session()
    hub.cut()
    hub.session(after=session)
    third = hub.start("echo z > y", 40, work_dir="u", workspace={"kind": "git", "repo": server.url("q.git"), "ref": base}, write_back=BACK)
    complete(hub.finish(third, 40))
    assert len(third.bundle_opens) == 1


@pytest.mark.parametrize("how", ["error", "reset", "early end", "beyond"])
def test_a_hub_that_does_not_take_it_hears_so_in_the_result(device, hub, server, how):
    """The write-back has failed, by name; the status comes all the same and the slot is free."""
    def answer(session, frame, run):
        p = frame["payload"]
        session.bundles[p["channel"]] = [run, 1 << 20]
        run.bundle_of = (p["size"], p["sha256"])
        if how == "error":
            hub.do(lambda: session._json("error", {"code": "write_back_failed", "message": "too big for me"}, id=frame["id"], v=1))
            return True
        hub.do(lambda: session._json("stream_opened", {"channel": p["channel"], "offset": 9 * p["size"] if how == "beyond" else 0}, id=frame["id"]))
        if how == "reset":
            session.send_stream(RESET, p["channel"], 0, struct.pack("!I", 5) + b"no space left")
        elif how == "early end":
            session.send_stream(END, p["channel"], 0)
        return True
    hub.b.on_bundle = answer
    hub.b.bundle_window = lambda run, limit: limit
    run = hub.finish(make(hub, server, 5000000), 40)
    text = {"error": "too big for me", "reset": "no space left", "early end": "before it had all", "beyond": "beyond its end"}[how]
    assert text in run.result["error"] and "bundle_bytes" not in run.result and (run.state, run.exit_code) == ("exited", 0)
    hub.b.on_bundle = hub.b.bundle_window = None
    complete(hub.finish(make(hub, server, 1000, base=git("rev-parse", "HEAD", cwd=os.path.join(server.dir, "r.git"))), 40))


# ---- branches ----

def bundle_of(server, size=300000):
    """A branch of the server's r.git as a bundle: head, bytes, workspace of a spec."""
    bare = os.path.join(server.dir, "r.git")
    head = server.commit("r.git", {"shipped": os.urandom(size // 2).hex().encode()}, branch="cloop/feature")
    data = subprocess.run(["git", "bundle", "create", "-q", "-", "cloop/feature"], cwd=bare, env=ENV, capture_output=True, check=True).stdout
    return head, data, {"kind": "bundle", "branch_bundle": {"branch": "cloop/feature", "head": head, "bytes": len(data),
                                                           "sha256": hashlib.sha256(data).hexdigest()}}


class Ship:
    """A branch on its way from the scripted hub, on a channel of its own."""
    numbers = iter(range(101, 100000, 2))

    def __init__(self, hub, handle, data, size=None, sha256=None):
        self.s, self.data, self.channel = hub.session(), data, next(self.numbers)
        self.answer = hub.request("stream_open", {"channel": self.channel, "kind": "bundle", "handle": handle,
                                                  "size": len(data) if size is None else size,
                                                  "sha256": sha256 or hashlib.sha256(data).hexdigest()})

    def frames(self, kind):
        return [f for f in list(self.s.stream_frames) if f[0] == kind and f[1] == self.channel]

    def send(self, stop=None, end=True):
        """As the window allows."""
        at, limit = self.answer["payload"]["offset"], 262144
        stop = len(self.data) if stop is None else stop
        while at < stop and not self.frames(RESET):
            n = min(50000, stop - at, limit - at)
            if n > 0:
                self.s.send_stream(DATA, self.channel, at, self.data[at:at + n])
                at += n
            else:
                self.s.wait("window", lambda: self.frames(RESET) or (w := [f[2] for f in self.frames(2)]) and max(w) > at, 15)
                limit = max([f[2] for f in self.frames(2)], default=limit)
        if end:
            self.s.send_stream(END, self.channel, at)
        return self

    def done(self):
        self.s.wait("its end", lambda: self.frames(END) or self.frames(RESET), 20)
        return self.frames(END)

    def reason(self):
        self.s.wait("a reset", lambda: self.frames(RESET), 20)
        return self.frames(RESET)[0][3][4:].decode()


def left(device):
    return glob.glob(os.path.join(device.state, "connectd", "branch*"))


def test_a_branch_comes_as_a_stream(device, hub, server):
    server.repo()
    head, data, ws = bundle_of(server, 1200000)
    handle = new_id("b")
    assert Ship(hub, handle, data).send().done()
    run = hub.finish(hub.start("git rev-parse HEAD; echo w > work", 40, handle=handle, work_dir="w", workspace=ws,
                               write_back={"mode": "bundle", "branch": "cloop/feature"}), 40)
    assert f"{head}\n" in run.text.decode() and run.result["base_sha"] == head
    complete(run)
    assert left(device) == []


@pytest.mark.parametrize("how", ["corrupt", "short", "long", "too big", "nothing", "cut"])
def test_a_branch_that_is_no_good_leaves_nothing(device, hub, server, how):
    server.repo()
    _, data, ws = bundle_of(server)
    handle = new_id("b")
    if how in ("too big", "nothing"):
        a = Ship(hub, handle, data, size=0 if how == "nothing" else (128 << 20) + 1).answer
        assert a["type"] == "error" and ("128 MiB" in a["payload"]["message"]) == (how == "too big"), a
    elif how == "corrupt":
        bad = data[:150000] + bytes([data[150000] ^ 1]) + data[150001:]
        assert "SHA-256" in Ship(hub, handle, bad, sha256=hashlib.sha256(data).hexdigest()).send().reason()
    elif how == "short":
        assert "fewer bytes" in Ship(hub, handle, data).send(stop=100000).reason()
    elif how == "long":
        assert "more bytes" in Ship(hub, handle, data, size=1000).send().reason()
    else:
        Ship(hub, handle, data).send(stop=100000, end=False)
        session = hub.session()
        hub.cut()
        hub.session(after=session)
    assert left(device) == []
    run = hub.start("true", 40, handle=handle, work_dir="w", workspace=ws, refused=True)
    assert "not shipped" in run.refused[1], run.refused
    again = new_id("b")
    assert Ship(hub, again, data).send().done()
    assert hub.finish(hub.start("exit 5", 40, handle=again, work_dir="w", workspace=ws), 40).exit_code == 5


def test_a_start_that_comes_before_all_of_its_branch_is_refused(device, hub, server):
    server.repo()
    _, data, ws = bundle_of(server)
    handle = new_id("b")
    ship = Ship(hub, handle, data).send(end=False)
    run = hub.start("true", 40, handle=handle, work_dir="w", workspace=ws, refused=True)
    assert "not" in run.refused[1] and ship.reason() and left(device) == []


def test_as_many_branches_as_a_device_takes(device, hub, server):
    """The ninth is told to wait; a stream that is reset makes room; nothing but the window is ever buffered."""
    server.repo()
    _, data, _ = bundle_of(server)
    ships = [Ship(hub, f"many-{i}", data) for i in range(8)]
    assert all(s.answer["type"] == "stream_opened" for s in ships)
    ninth = Ship(hub, "many-9", data).answer
    assert ninth["type"] == "error" and ninth["payload"]["code"] == "busy"
    ships[3].s.send_stream(RESET, ships[3].channel, 0, struct.pack("!I", 4) + b"gone")
    assert wait_for(lambda: Ship(hub, new_id("many"), data).answer["type"] == "stream_opened", 10, "room for another")


# ---- with edgehub ----

@pytest.fixture
def pair(ehub, ehub_agent, ca):
    """edgehub and a device on it."""
    return ehub, ehub_agent(env={"GIT_SSL_CAINFO": ca.file}, conf={"work": {"show": os.path.dirname(ca.file)}})


def partial(ehub, handle, kind="p"):
    found = glob.glob(os.path.join(ehub.data, "**", f"{kind}.{handle}"), recursive=True)
    return found[0] if found else None


def test_edgehub_ships_a_branch_and_brings_its_work_home(pair, server, tmp_path):
    ehub, a = pair
    server.repo()
    head, data, _ = bundle_of(server, 1500000)
    file, out, clone = tmp_path / "f.bundle", str(tmp_path / "out.bundle"), str(tmp_path / "clone")
    file.write_bytes(data)
    p = ehub.call("run", "edge-test", "--workdir", "w", "--bundle", str(file), "--write-back", "bundle", "--message", "done", "--",
                  "sh", "-c", "git rev-parse HEAD; head -c 900000 /dev/urandom > more")
    assert p.returncode == 0 and f"{head}\n".encode() in p.stdout, (p.stdout, p.stderr)
    handle = ehub.json("runs")[0]["handle"]
    ehub.cli("result", handle, "-o", out)
    git("clone", "-q", "--bare", os.path.join(server.dir, "r.git"), clone)
    git("fetch", "-q", out, "cloop/feature:refs/heads/got", cwd=clone)
    assert git("rev-parse", "got^", cwd=clone) == head
    assert partial(ehub, handle) is None and partial(ehub, handle, "i") is None and left(a) == []
    file.write_bytes(data[:-1000])
    for wrong, text in ((("--bundle", str(file)), b""), (("--bundle", os.devnull), b"regular"), (("--bundle", str(tmp_path)), b""),
                        (("--bundle", str(file), "--git", "https://x/y"), b"without --git")):
        q = ehub.call("run", "edge-test", "--workdir", "v", *wrong, "--", "true")
        assert q.returncode in (123, 125) and text in q.stderr, (wrong, q)
    deep = str(tmp_path / "deep.bundle")
    subprocess.run(["git", "bundle", "create", "-q", deep, "cloop/feature", "^cloop/feature~1"], cwd=clone, env=ENV, check=False)
    if os.path.exists(deep):
        assert b"not in it" in ehub.call("run", "edge-test", "--bundle", deep, "--", "true").stderr


@pytest.mark.parametrize("how", ["killed", "corrupt"])
def test_edgehub_goes_on_with_a_bundle_after_its_own_death(pair, server, how):
    """Killed with a part of it on its disk: the device sends the rest; where that part was damaged all of it comes again."""
    ehub, a = pair
    base = server.repo()
    size = 60 << 20
    handle = ehub.cli("run", "edge-test", "--detach", "--workdir", "w", "--git", server.url("r.git"), "--ref", base, "--write-back", "bundle",
                      "--", "sh", "-c", f"head -c {size} /dev/urandom > big").strip()
    handle = handle.decode() if isinstance(handle, bytes) else handle

    def some():
        path = partial(ehub, handle)
        return path if path and os.path.getsize(path) > 1 << 20 else None
    path = wait_for(some, 60, "a part of it at the hub", every=0.002)
    ehub.kill9()
    have = os.path.getsize(path) if os.path.exists(path) else size
    if how == "corrupt" and os.path.exists(path):
        with open(path, "r+b") as f:
            f.seek(4096)
            f.write(b"\0" * 64)
    ehub.start()
    result = wait_for(lambda: (p := ehub.call("result", handle)).returncode == 0 and p.stdout, 90, "the result")
    assert b'"error"' not in result, result
    log = a.log_text()
    assert partial(ehub, handle) is None and partial(ehub, handle, "b") is not None
    if have < size:
        assert ("all of it is sent again" in log) == (how == "corrupt"), log[-2000:]


# ---- bundles of a device that may say anything ----

def ask_bundle(a, channel, handle, data=b"", size=None, sha256=None):
    a.send("stream_open", {"channel": channel, "kind": "bundle", "handle": handle, "size": size or len(data),
                           "sha256": sha256 or hashlib.sha256(data).hexdigest()}, handle, f"b-{channel}")


def started(hub, agent, channel=2, device="dev"):
    hub.popen("run", device, "--", "true")
    return agent.take_start(channel=channel)["handle_id"]


def test_one_transfer_of_a_bundle_at_a_time(edgehub):
    """A second one would write into the file of the first, after its digest was found right, too; and one device does not take the room of all."""
    a, data = FakeAgent.enroll(edgehub), b"# v2 git bundle\n" + bytes(1000)
    runs = [started(edgehub, a, 2 + 2 * i) for i in range(17)]
    h = runs[0]
    ask_bundle(a, 100, h, data)
    assert a.expect("stream_opened")["payload"]["offset"] == 0
    ask_bundle(a, 102, h, data)
    assert a.expect("error")["payload"]["code"] == "busy"
    for i in range(1, 16):
        ask_bundle(a, 200 + 2 * i, runs[i], data)
        a.expect("stream_opened")
    ask_bundle(a, 300, runs[16], data)
    assert a.expect("error")["payload"]["code"] == "busy"
    b = FakeAgent.enroll(edgehub, name="other")
    ask_bundle(b, 4, started(edgehub, b, device="other"), data)
    b.expect("stream_opened")
    a.data(100, 0, data)
    a.end(100, len(data))
    wait_for(lambda: os.path.exists(os.path.join(edgehub.data, "logs", "b." + h)), 5, "the first one")
    ask_bundle(a, 302, runs[16], data)
    a.expect("stream_opened")


def leave_part(edgehub, handle, have, size, sha256):
    """As an earlier session has left it: zeroes."""
    with open(os.path.join(edgehub.data, "logs", "i." + handle), "w", encoding="ascii") as f:
        f.write(f"{size} {sha256}\n")
    with open(os.path.join(edgehub.data, "logs", "p." + handle), "wb") as f:
        f.truncate(have)


def zeroes(size):
    sha = hashlib.sha256()
    for _ in range(size >> 20):
        sha.update(bytes(1 << 20))
    return sha


def test_what_was_there_is_digested_beside_all_else(edgehub):
    """128 MiB of it, a piece at a time: the beats of other devices are answered meanwhile, and what its device sends waits in the window."""
    a, b, size = FakeAgent.enroll(edgehub), FakeAgent.enroll(edgehub, name="other"), 128 << 20
    runs, tail = [started(edgehub, a, 2), started(edgehub, a, 4)], os.urandom(200000)
    for h, more, channel in ((runs[0], b"", 100), (runs[1], tail, 102)):
        sha = zeroes(size - len(more) & ~0xfffff)
        have = size - len(more) & ~0xfffff
        sha.update(more)
        leave_part(edgehub, h, have, have + len(more), sha.hexdigest())
        ask_bundle(a, channel, h, size=have + len(more), sha256=sha.hexdigest())
        if more:
            a.data(channel, have, more)
        a.end(channel, have + len(more))
        beats, kept = 0, os.path.join(edgehub.data, "logs", "b." + h)
        while not os.path.exists(kept) and beats < 5000:
            beats += 1
            b.beat_wait(channel * 10000 + beats)
        assert a.expect("stream_opened")["payload"]["offset"] == have
        assert os.path.getsize(kept) == have + len(more) and 10 <= beats < 5000, beats
        a = a.again(resume=[a.offer(r, 0, 2 + 2 * i) for i, r in enumerate(runs)])
    with open(kept, "rb") as f:
        f.seek(have)
        assert f.read() == tail


@pytest.mark.parametrize("size", [3 << 20, 100 << 20, (128 << 20) + 1])
def test_a_part_that_is_not_the_one_it_says_is_refused(edgehub, size):
    """Bytes of another digest, and more bytes than there are of it: then it begins anew."""
    a = FakeAgent.enroll(edgehub)
    h, sha = started(edgehub, a), hashlib.sha256(b"x").hexdigest()
    leave_part(edgehub, h, size, 100 << 20, sha)
    ask_bundle(a, 100, h, size=100 << 20, sha256=sha)
    opened = a.expect("stream_opened")["payload"]["offset"]
    if size > 100 << 20:
        assert opened == 0
        return
    assert opened == size
    a.end(100, size)
    a.until(lambda: 100 in a.resets, 30)
    assert a.resets[100] == 3 and not os.path.exists(os.path.join(edgehub.data, "logs", "p." + h))


def processor(edgehub):
    with open(f"/proc/{edgehub.proc.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_a_bundle_is_not_read_again_for_its_result(edgehub):
    """However often a device says its result: its digest was made as it came."""
    a, size = FakeAgent.enroll(edgehub), 128 << 20
    h, sha = started(edgehub, a), zeroes(size).hexdigest()
    leave_part(edgehub, h, size, size, sha)
    before = processor(edgehub)
    ask_bundle(a, 100, h, size=size, sha256=sha)
    a.end(100, size)
    wait_for(lambda: os.path.exists(os.path.join(edgehub.data, "logs", "b." + h)), 30, "it is kept")
    once, before = processor(edgehub) - before, processor(edgehub)
    for _ in range(10):
        a.send("result", {"result": {"mode": "bundle", "branch": "cloop/x", "bundle_bytes": size, "bundle_sha256": sha}}, h)
    a.beat_wait(1, [h])
    assert processor(edgehub) - before < once and a.errors == []
    assert "error" not in edgehub.json("result", h) and edgehub.json("result", h)["bundle_sha256"] == sha
    for bad in ({"bundle_bytes": size - 1, "bundle_sha256": sha}, {"bundle_bytes": size, "bundle_sha256": "00" * 32}, {"bundle_bytes": size}):
        a.send("result", {"result": {"mode": "bundle", "branch": "cloop/x", **bad}}, h)
        assert a.expect("error")["payload"]["code"] == "write_back_failed"
    assert "error" in edgehub.json("result", h)


def test_a_bundle_in_chunks_is_what_has_come(edgehub):
    """Of a device that speaks plain cloop: one behind the other, anew from the first byte, and nothing that was not sent."""
    a, data = FakeAgent.enroll(edgehub, edgeward=False), os.urandom(3000)
    edgehub.popen("run", "dev", "--", "true")
    h = a.take_start()["handle_id"]

    def chunk(offset, piece):
        a.send("result_chunk", {"offset": offset, "data": base64.b64encode(piece).decode()}, h)

    def result(size=len(data), sha256=hashlib.sha256(data).hexdigest()):
        a.send("result", {"result": {"mode": "bundle", "branch": "cloop/x", "bundle_bytes": size, "bundle_sha256": sha256}}, h)
        a.beat_wait(1, [h])
        return edgehub.json("result", h).get("error")

    chunk(0, data[:1000])
    chunk(0, data[:2000])
    assert "as long as" in result()
    chunk(0, data[:2000])
    chunk(2000, data[2000:])
    assert result() is None and result() is None
    out = os.path.join(edgehub.dir, "out")
    edgehub.cli("result", h, "-o", out)
    with open(out, "rb") as f:
        assert f.read() == data
    chunk(2000, data[2000:])
    assert "as long as" in result()
    for at in (0, 1000, 2000):
        chunk(at, data[at:at + 1000])
    assert "not the one" in result(sha256="00" * 32) and result(sha256="") is not None


def test_a_bundle_is_not_read_again_without_end(edgehub):
    """What an earlier session left is digested anew when the transfer goes on, which costs the hub's time: so much of it in a session."""
    a, size, sha = FakeAgent.enroll(edgehub), 128 << 20, "00" * 32
    h = started(edgehub, a)
    leave_part(edgehub, h, size, size, sha)
    offsets = []
    for channel in range(4, 12, 2):
        ask_bundle(a, channel, h, size=size, sha256=sha)
        offsets.append(a.expect("stream_opened", 30)["payload"]["offset"])
        a.binary(5, channel, 0, (4).to_bytes(4, "big"))
    assert offsets == [size, 0, 0, 0]


def test_an_older_session_gives_way(edgehub):
    """Its connection may be one that takes nothing, and ends with the very frame that says so, all its transfers with it."""
    a, data = FakeAgent.enroll(edgehub), b"# v2 git bundle\n" + bytes(1000)
    runs = [started(edgehub, a, 2 + 2 * i) for i in range(3)]
    for i, h in enumerate(runs):
        ask_bundle(a, 100 + 2 * i, h, data)
        a.expect("stream_opened")
    b = a.again(resume=[a.offer(h, 0, 200 + 2 * i) for i, h in enumerate(runs)])
    for i, h in enumerate(runs):
        ask_bundle(b, 300 + 2 * i, h, data)
        assert b.expect("stream_opened")["payload"]["offset"] == 0
        b.data(300 + 2 * i, 0, data)
        b.end(300 + 2 * i, len(data))
        wait_for(lambda name=f"{edgehub.data}/logs/b.{h}": os.path.exists(name), 5, "it is kept")


# ---- branches to a device that may say anything ----

class Taker(FakeAgent):
    """Keeps what comes on the streams the hub opens."""

    def __init__(self, *args, **kw):
        self.got, self.ended, self.piece = {}, set(), b""
        super().__init__(*args, **kw)

    def _event(self, event):
        if not isinstance(event, BytesMessage):
            super()._event(event)
            return
        self.piece += bytes(event.data)
        if event.message_finished:
            kind, _, _, channel, offset = struct.unpack("!BBHIQ", self.piece[:16])
            data, self.piece = self.piece[16:], b""
            if kind == DATA:
                assert offset == len(self.got[channel])
                self.got[channel] += data
            elif kind == END:
                self.ended.add(channel)

    def asked(self, handle, data):
        frame = self.expect("stream_open")
        p = frame["payload"]
        assert (p["kind"], p["handle"], p["size"], p["sha256"]) == ("bundle", handle, len(data), hashlib.sha256(data).hexdigest())
        return frame

    def take_branch(self, frame, data):
        channel, limit = frame["payload"]["channel"], 262144
        self.got[channel] = b""
        self.send("stream_opened", {"channel": channel, "offset": 0}, None, frame["id"])
        while len(self.got[channel]) < len(data):
            self.until(lambda: len(self.got[channel]) >= min(len(data), limit))
            limit += 262144
            self.binary(2, channel, limit)
        self.until(lambda: channel in self.ended)
        assert self.got[channel] == data
        self.binary(END, channel, 0)

    def busy(self, frame, handle):
        self.send("error", {"code": "busy", "message": "no room for another branch here"}, handle, frame["id"])


def branch_run(edgehub, tmp_path, size):
    data = b"# v2 git bundle\n" + b"1" * 40 + b" refs/heads/cloop/x\n\n" + os.urandom(size)
    file = tmp_path / "x.bundle"
    file.write_bytes(data)
    handle = edgehub.cli("run", "dev", "--detach", "--workdir", "w", "--bundle", str(file), "--", "true").decode().strip()
    file.write_bytes(b"x" * len(data))
    return handle, data


def waits(edgehub, handle):
    return os.path.exists(os.path.join(edgehub.data, "logs", "s." + handle))


def test_a_branch_is_shipped_by_the_hub_that_comes_after(edgehub, tmp_path):
    """Killed with the run pending: the branch that was accepted goes before the start, whatever has become of the file."""
    a = Taker.enroll(edgehub)
    h, data = branch_run(edgehub, tmp_path, 3 << 20)
    a.asked(h, data)
    for _ in range(2):
        open(os.path.join(edgehub.data, "logs", "s.nobody"), "wb").close()
        edgehub.restart()
        assert waits(edgehub, h) and not waits(edgehub, "nobody")
        a = a.again()
        frame = a.asked(h, data)
    a.take_branch(frame, data)
    assert a.take_start()["handle_id"] == h
    a.finish(h, b"")
    edgehub.wait_run(h, lambda r: r["state"] == "exited")
    assert not waits(edgehub, h)


def test_a_branch_waits_for_a_device_that_is_busy(edgehub, tmp_path):
    """It is offered again until there is room, once at a time, and in the next session as in this one."""
    a = Taker.enroll(edgehub)
    h, data = branch_run(edgehub, tmp_path, 1000)
    for _ in range(2):
        a.busy(a.asked(h, data), h)
    assert edgehub.run_info(h)["state"] == "pending"
    b = a.again()
    frame = b.asked(h, data)
    assert b.quiet("stream_open", 2)
    b.busy(frame, h)
    b.take_branch(b.asked(h, data), data)
    b.take_start()
    edgehub.wait_run(h, lambda r: r["state"] == "running")
    assert not waits(edgehub, h)


def test_a_branch_that_a_device_does_not_want_is_kept_no_longer(edgehub, tmp_path):
    a = Taker.enroll(edgehub)
    h, data = branch_run(edgehub, tmp_path, 1000)
    a.send("error", {"code": "too_big", "message": "more than I take"}, h, a.asked(h, data)["id"])
    assert "too_big: more than I take" in edgehub.wait_run(h, lambda r: r["state"] == "refused")["error"]
    assert not waits(edgehub, h)
