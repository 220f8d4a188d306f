"""Files of work directories over the hub: `edgehub cp` both ways (edgeward.md section 3, kind file; paths section of the faults list).

Where it could go wrong: what a path leads to (workerd/launcher/carrier.c, beneath the directory and as its runner), what may be asked for
(workerd/carriers.c: policy, room, whose directory), the count of bytes and the digest over a lost link (connectd/filestream.c, proto/hub/mux.c,
hub/file.c), and what is left at either end (hub/cli_cp.c). Each with real processes and a real edgehub.
"""
import hashlib
import json
import os
import pty
import re
import socket
import stat
import subprocess
import time

import pytest

from lib import proc
from lib.net import Proxy
from lib.proc import wait_for

D = "edge-test"
pytestmark = pytest.mark.timeout(150)


@pytest.fixture(name="wire")
def fixture_wire(ehub):
    p = Proxy(ehub.port)
    yield p
    p.close()


@pytest.fixture(name="dev")
def fixture_dev(ehub_agent, wire):
    return ehub_agent(policy={"work": {"files": "write"}}, conf={"link": {"heartbeat": "500ms", "retry-min": "50ms"},
                                                                 "hub": {"url": f"wss://localhost:{wire.port}/api/executors/connect"}})


def seen(argv):
    """What a terminal shows of it."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    out = b""
    try:
        while data := os.read(ours, 65536):
            out += data
    except OSError:
        pass
    os.close(ours)
    assert p.wait(60) == 0, out
    return out.decode()


def run(ehub, script, work_dir="w", wait=False):
    """Starts it; its handle."""
    p = ehub.call("run", D, "--workdir", work_dir, *([] if wait else ["--detach"]), "--", "/bin/sh", "-c", script)
    assert p.returncode == 0, (p.stdout, p.stderr)
    if not wait:
        return p.stdout.decode().strip()
    return json.loads(ehub.call("-j", "runs", D).stdout)[0]["handle"]


def cp(ehub, *args, timeout=60):
    p = ehub.call("-j", "cp", *map(str, args), timeout=timeout)
    p.stdout, p.stderr = p.stdout.decode(), p.stderr.decode()
    return p


def good(p):
    assert p.returncode == 0, (p.stdout, p.stderr)
    return json.loads(p.stdout)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def nothing_left(dev):
    """No carrier, no descriptor of one, no part of a file."""
    def carriers():
        found = []
        for pid in proc.descendants(dev.top.pid):
            try:
                with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                    found += [pid] if "carrier" in f.read() else []
            except (FileNotFoundError, ProcessLookupError):
                pass
        return found
    wait_for(lambda: not carriers(), 10, "no carrier is left")
    left = [f for _, _, names in os.walk(dev.root) for f in names if f.startswith(".edgeward-put-")]
    assert not left, left


def test_progress_ends_at_100_percent(dev, ehub, tmp_path):
    """A file of five bytes, an empty one, one of many."""
    handle = run(ehub, "printf hello > five; : > none; head -c 20000003 /dev/zero | tr '\\0' x > large; sleep 600")
    wait_for(lambda: not cp(ehub, f"{D}:{handle}/large", tmp_path / "x").returncode, 20, "the files are there")
    for name in ("five", "none", "large"):
        for argv in ((f"{D}:{handle}/{name}", tmp_path / name), (tmp_path / name, f"{D}:{handle}/{name}2")):
            lines = [x for x in seen(ehub.argv("cp", *map(str, argv))).split("\r") if " of " in x]
            numbers = [int(re.search(r" KiB, (\d+) %", x).group(1)) for x in lines]
            assert numbers[-1] == 100 and numbers == sorted(numbers), lines


def test_there_and_back(ehub, dev, tmp_path):
    handle = run(ehub, "mkdir -p a/b && printf 'made there' >a/b/x && chmod 640 a/b/x && sleep 60")
    wait_for(lambda: os.path.exists(os.path.join(dev.root, "w/a/b/x")), 10, "it ran")
    got = good(cp(ehub, f"{D}:{handle}/a/b/x", tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == b"made there" and got["sha256"] == sha(b"made there") and got["resumed_from"] == 0
    assert os.stat(tmp_path / "x").st_mode & 0o777 == 0o640
    data = os.urandom(3 << 20)
    (tmp_path / "y").write_bytes(data)
    os.chmod(tmp_path / "y", 0o755)
    good(cp(ehub, tmp_path / "y", f"{D}:{handle}/a/y"))
    there = os.path.join(dev.root, "w/a/y")
    assert open(there, "rb").read() == data and os.stat(there).st_mode & 0o777 == 0o755
    if os.geteuid() == 0:
        assert os.stat(there).st_uid in dev.pool, "the runner's own"
    # Into a directory here, by its own name; over what is there.
    good(cp(ehub, f"{D}:{handle}/a/y", tmp_path))
    good(cp(ehub, tmp_path / "x", f"{D}:{handle}/a/y"))
    assert open(there, "rb").read() == b"made there"
    # An empty one.
    (tmp_path / "none").write_bytes(b"")
    assert good(cp(ehub, tmp_path / "none", f"{D}:{handle}/none"))["size"] == 0
    good(cp(ehub, f"{D}:{handle}/none", tmp_path / "none2"))
    assert (tmp_path / "none2").read_bytes() == b""
    assert sorted(os.listdir(tmp_path)) == ["none", "none2", "x", "y"], "nothing is left beside them"
    events = dev.ctl("-j", "events").out
    assert "file-get" in events and "file-put" in events and "a/b/x" in events
    nothing_left(dev)


def test_of_a_run_that_has_ended(ehub, dev, tmp_path):
    handle = run(ehub, "echo result >r", wait=True)
    time.sleep(0.5)     # the device has forgotten it
    good(cp(ehub, f"{D}:{handle}/r", tmp_path / "r"))
    assert (tmp_path / "r").read_bytes() == b"result\n"
    p = cp(ehub, f"{D}:{handle}/nothing", tmp_path / "n")
    assert p.returncode == 1 and "No such file" in p.stderr and not (tmp_path / "n").exists() and os.listdir(tmp_path) == ["r"]


def test_beneath_the_work_directory_only(ehub, dev, tmp_path):
    """What a path or a link in it leads to outside is refused, read or write (B95 and its kind)."""
    other = run(ehub, "echo secret >mine; chmod 600 mine; sleep 60", work_dir="other")
    handle = run(ehub, "ln -s /etc/passwd out; ln -s .. up; ln -s ../other/mine o; ln -s in link; echo in >in; mkfifo f; mkdir d; ln -s /proc/self/mem m; sleep 60")
    wait_for(lambda: os.path.lexists(os.path.join(dev.root, "w/m")), 10, "it ran")
    for path in ("out", "up/x", "up/other/mine", "o", "m"):
        p = cp(ehub, f"{D}:{handle}/{path}", tmp_path / "x")
        assert p.returncode == 1 and ("out of the work directory" in p.stderr or "No such file" in p.stderr), (path, p.stderr)
    for path in ("f", "d"):
        assert cp(ehub, f"{D}:{handle}/{path}", tmp_path / "x").returncode == 1
    for path in ("../other/mine", "/etc/passwd", "a/../../x", ".", "a//b", "d/"):
        p = cp(ehub, f"{D}:{handle}/{path}", tmp_path / "x")
        assert p.returncode == 2 and "beneath the work directory" in p.stderr, (path, p.stderr)
    good(cp(ehub, f"{D}:{handle}/link", tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == b"in\n"
    for path in ("up/evil", "o/evil"):
        assert cp(ehub, tmp_path / "x", f"{D}:{handle}/{path}").returncode == 1
    # A link in the place of the file is replaced, not followed.
    good(cp(ehub, tmp_path / "x", f"{D}:{handle}/o"))
    assert open(os.path.join(dev.root, "other/mine"), encoding="ascii").read() == "secret\n" and not os.path.islink(os.path.join(dev.root, "w/o"))
    assert not os.path.exists(os.path.join(dev.root, "evil"))
    assert cp(ehub, f"{D}:nohandle/x", tmp_path / "z").returncode == 1
    good(cp(ehub, f"{D}:{other}/mine", tmp_path / "z"))
    nothing_left(dev)


def test_the_record_says_who_and_how_it_went(ehub, dev, wire, tmp_path):
    handle = run(ehub, "ln -s /etc/passwd esc; echo x >x; head -c 30000000 /dev/zero | tr '\\0' a >big", wait=True)
    (tmp_path / "y").write_bytes(b"y" * 1234)
    good(cp(ehub, f"{D}:{handle}/x", tmp_path / "x"))
    good(cp(ehub, tmp_path / "y", f"{D}:{handle}/y"))
    assert cp(ehub, f"{D}:{handle}/esc", tmp_path / "z").returncode == 1
    assert cp(ehub, f"{D}:{handle}/nosuch", tmp_path / "z").returncode == 1
    p = ehub.popen("cp", "--no-wait", f"{D}:{handle}/big", str(tmp_path / "big"))
    wait_for(lambda: (tmp_path / "big.edgeward-part").exists() and (tmp_path / "big.edgeward-part").stat().st_size > 0, 10, "it has begun")
    wire.cut()
    p.communicate(timeout=60)
    who = f"uid {os.geteuid()} at the hub: "
    events = lambda: [f"{e['event']} {e['text']}" for e in dev.ctl("events").json["events"] if e["subject"] == handle]
    assert f"file-get {who}x" in events() and f"file-put {who}y" in events()
    assert f"file-read {who}x: 2 bytes" in events() and f"file-written {who}y: 1234 bytes" in events()
    refused = [e for e in events() if e.startswith("file-refused ")]
    assert len(refused) == 2 and f"{who}esc: " in refused[0] and "out of the work directory" in refused[0], refused
    assert f"{who}nosuch: " in refused[1] and "No such file" in refused[1], refused
    wait_for(lambda: any(re.match(f"file-broken {who}big: at [0-9]+ bytes: ", e) for e in events()), 10, lambda: str(events()))


@pytest.mark.parametrize("value", ["no", "read"])
def test_policy_decides(ehub, dev, tmp_path, value):
    dev.policy = {"work": {"files": value}}
    dev.write_conf()
    old = dev.pid("workerd")
    os.kill(dev.pid("launcher"), 1)
    dev.restarted("workerd", old)
    handle = run(ehub, "echo x >x; sleep 60")
    wait_for(lambda: os.path.exists(os.path.join(dev.root, "w/x")), 10, "it ran")
    p = cp(ehub, f"{D}:{handle}/x", tmp_path / "x")
    assert p.returncode == (0 if value == "read" else 1), p.stderr
    if value == "no":
        assert f"policy.conf:2: files = {value}" in p.stderr, p.stderr
        events = dev.ctl("-j", "events").out
        assert f"uid {os.geteuid()} at the hub: x: policy" in events and "file-read" not in events
        (tmp_path / "x").write_bytes(b"y")
    p = cp(ehub, tmp_path / "x", f"{D}:{handle}/x")
    assert p.returncode == 1 and f"policy.conf:2: files = {value}" in p.stderr, p.stderr
    assert re.search(rf"files +{value}\n", dev.ctl("policy", json_out=False).out)


def start_cp(ehub, *args):
    return ehub.popen("-j", "cp", *map(str, args))


@pytest.mark.parametrize("way", ["get", "put"])
@pytest.mark.parametrize("what", ["link", "connectd", "workerd", "hub", "cp"])
def test_goes_on_where_it_was(ehub, dev, wire, tmp_path, way, what):
    """Cut in the middle: the whole file arrives, the digest is right, and not everything goes twice."""
    size = 24 << 20
    data = os.urandom(size)
    handle = run(ehub, "sleep 100")
    there, here = os.path.join(dev.root, "w/big"), tmp_path / "big"
    wait_for(lambda: os.path.isdir(os.path.dirname(there)), 10, "it runs")
    if way == "get":
        with open(there, "wb") as f:
            f.write(data)
        os.chmod(there, 0o644)
    else:
        here.write_bytes(data)
    wire.rate = 12 << 20
    args = (f"{D}:{handle}/big", here) if way == "get" else (here, f"{D}:{handle}/big")
    before = wire.up_bytes + wire.down_bytes
    p = start_cp(ehub, *args)
    wait_for(lambda: wire.up_bytes + wire.down_bytes > before + (8 << 20), 60, "it is under way")
    if what == "link":
        wire.cut()
    elif what in ("connectd", "workerd"):
        dev.restarted(what, dev.kill9(what))
    elif what == "hub":
        ehub.restart()
    else:
        p.kill()
        p.communicate()
        p = start_cp(ehub, *args)
    wire.rate = 0
    out, err = p.communicate(timeout=100)
    assert p.returncode == 0, (out, err)
    got = json.loads(out)
    print(err.decode())
    assert got["size"] == size and got["sha256"] == sha(data) and (got["resumed_from"] == 0 if what == "workerd" else 0 < got["resumed_from"] < size), got
    assert (here.read_bytes() if way == "get" else open(there, "rb").read()) == data
    assert os.listdir(tmp_path) == ["big"]
    nothing_left(dev)


def test_sparse_and_huge(ehub, dev, wire, tmp_path):
    """Four GiB of which little is there: neither end writes the rest, and the link does not carry it."""
    handle = run(ehub, "dd if=/dev/urandom of=s bs=64K count=3 seek=16000 2>/dev/null; dd if=/dev/urandom of=s bs=64K count=1 conv=notrunc 2>/dev/null; "
                       "truncate -s 4G s; touch ready; sleep 100")
    there = os.path.join(dev.root, "w/s")
    wait_for(lambda: os.path.exists(os.path.join(dev.root, "w/ready")), 20, "it ran")
    before = wire.up_bytes + wire.down_bytes
    good(cp(ehub, f"{D}:{handle}/s", tmp_path / "s", timeout=140))
    assert os.stat(tmp_path / "s").st_size == 4 << 30 and os.stat(tmp_path / "s").st_blocks * 512 < 4 << 20
    assert subprocess.run(["cmp", there, tmp_path / "s"], check=False).returncode == 0
    os.chmod(tmp_path / "s", 0o600)
    (tmp_path / "t").write_bytes(b"")
    os.truncate(tmp_path / "t", 1 << 30)
    good(cp(ehub, tmp_path / "t", f"{D}:{handle}/t", timeout=140))
    st = os.stat(os.path.join(dev.root, "w/t"))
    assert st.st_size == 1 << 30 and st.st_blocks * 512 < 4 << 20
    assert wire.up_bytes + wire.down_bytes - before < 8 << 20
    nothing_left(dev)


def test_a_file_that_changes_is_not_taken(ehub, dev, wire, tmp_path):
    """The digest is of what was read from the beginning: a part of an older content is not joined to a newer."""
    handle = run(ehub, "sleep 100")
    there = os.path.join(dev.root, "w/f")
    wait_for(lambda: os.path.isdir(os.path.dirname(there)), 10, "it runs")
    (tmp_path / "f.edgeward-part").write_bytes(b"old" * 1000)
    with open(there, "wb") as f:
        f.write(b"new" * 5000)
    os.chmod(there, 0o644)
    good(cp(ehub, f"{D}:{handle}/f", tmp_path / "f"))
    assert (tmp_path / "f").read_bytes() == b"new" * 5000
    (tmp_path / "g.edgeward-part").write_bytes(b"longer" * 10000)   # than the file is
    good(cp(ehub, f"{D}:{handle}/f", tmp_path / "g"))
    assert (tmp_path / "g").read_bytes() == b"new" * 5000 and sorted(os.listdir(tmp_path)) == ["f", "g"]


def test_wrong_use(ehub, tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    for args in ((), ("a",), (tmp_path / "x", tmp_path / "y"), (f"{D}:h/x", f"{D}:h/y"), (f"{D}:h/", tmp_path / "y")):
        assert cp(ehub, *args).returncode == 2, args
    p = cp(ehub, tmp_path / "x", "nodevice:h/x")
    assert p.returncode == 1 and "no device nodevice" in p.stderr
    p = cp(ehub, tmp_path, f"{D}:h/x")
    assert p.returncode == 1 and "not a regular file" in p.stderr
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("what", ["FIFO", "socket", "character device", "directory", "link", "link to a FIFO", "link to nothing"])
def test_what_is_no_file_is_not_replaced(ehub, dev, tmp_path, what):
    """As root a rename would make a regular file of /dev/null. A device of the test's own stands for it."""
    handle = run(ehub, "echo new >f", wait=True)
    at, other = tmp_path / "at", tmp_path / "other"
    if what == "FIFO":
        os.mkfifo(at)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(at))
    elif what == "character device":
        if os.geteuid() != 0:
            pytest.skip("mknod is root's")
        os.mknod(at, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    elif what == "directory":       # in a directory it would have the file's name
        os.makedirs(at / "f")
    else:
        if "FIFO" in what:
            os.mkfifo(other)
        elif "nothing" not in what:
            other.write_bytes(b"old")
        at.symlink_to(other)
    before = os.lstat(at), sorted(os.listdir(tmp_path))
    p = cp(ehub, f"{D}:{handle}/f", at)
    name = {"directory": f"{at}/f is a directory"}.get(what, f"{at} is a {'symbolic link' if 'link' in what else what}")
    assert p.returncode == 1 and f"{name}: " in p.stderr, p.stderr
    now = os.lstat(at)
    assert (now.st_ino, now.st_mode, now.st_mtime_ns) == (before[0].st_ino, before[0].st_mode, before[0].st_mtime_ns)
    assert sorted(os.listdir(tmp_path)) == before[1]
    assert what != "link" or other.read_bytes() == b"old"


def test_what_comes_meanwhile_is_not_replaced(ehub, dev, wire, tmp_path):
    handle = run(ehub, "head -c 20000000 /dev/urandom >f", wait=True)
    p = start_cp(ehub, f"{D}:{handle}/f", tmp_path / "at")
    wait_for(lambda: (tmp_path / "at.edgeward-part").exists(), 10, "it has begun")
    os.mkfifo(tmp_path / "at")
    out, err = p.communicate(timeout=60)
    assert p.returncode == 1 and b"at is a FIFO" in err, (out, err)
    assert stat.S_ISFIFO(os.lstat(tmp_path / "at").st_mode)


def test_many_leave_nothing(ehub, dev, tmp_path):
    """50 files each way, four at a time: descriptors and processes are as before."""
    handle = run(ehub, "sleep 100")
    wait_for(lambda: os.path.isdir(os.path.join(dev.root, "w")), 10, "it runs")
    (tmp_path / "x").write_bytes(b"x" * 10000)
    good(cp(ehub, tmp_path / "x", f"{D}:{handle}/x"))
    four = lambda i: [start_cp(ehub, tmp_path / "x", f"{D}:{handle}/x{j}") for j in (i, i + 1)] + \
                     [start_cp(ehub, f"{D}:{handle}/x", tmp_path / f"y{j}") for j in (i, i + 1)]
    assert [p.wait(60) for p in four(0)] == [0] * 4
    count = lambda: {r: len(os.listdir(f"/proc/{dev.pid(r)}/fd")) for r in ("connectd", "workerd", "launcher")}
    nothing_left(dev)
    before = count()
    for i in range(0, 50, 2):
        for p in four(i):
            out, err = p.communicate(timeout=60)
            assert p.returncode == 0, (out, err)
    nothing_left(dev)
    # workerd keeps the records of as many as there were at a time, two descriptors each, for the next ones: at most four.
    wait_for(lambda: all(0 <= n - before[r] <= (6 if r == "workerd" else 0) for r, n in count().items()), 10, lambda: f"{count()} is {before}")
