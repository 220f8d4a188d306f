"""Upgrades that a hub asks for: what connectd answers, fetches, is sent, queues and reports (cloop.md 8.1 and 14.25; edgeward.md 3 and 5).

Where faults of these kinds could occur: connectd/upmirror.c and upfetch.c (B92: a broken download is taken for a result; B19: a way around
the proxy; B90: tries without end), uptarget.c and upframes.c (B95, B97: what is refused, and that nothing else happens), upresult.c (a
result told twice or never). privupgrade is played by the tests here; test_upgrade.py has the real one.
"""
import hashlib
import json
import os
import shutil
import struct
import subprocess
import time

import pytest

from lib.agent import BUILD, Agent, is_root
from lib.livehub import CaFile, LiveHub
from lib.mirror import Mirror
from lib.proc import wait_for
from lib.quotashim import Quota
from lib.release import ARCH, PROGRAMS, make_key, manifest, sign
from lib.session import DATA, END, RESET, WINDOW
from test_upgrade import WRITTEN

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(shutil.which("signify-openbsd") is None, reason="skipped: no signify-openbsd")]


@pytest.fixture(name="key", scope="module")
def fixture_key(tmp_path_factory):
    return make_key(str(tmp_path_factory.mktemp("key")), "k")


@pytest.fixture(name="mirror")
def fixture_mirror(leaf):
    m = Mirror(leaf)
    yield m
    m.close()


class Device:
    """An agent that was installed as a release, as far as connectd can see."""

    def __init__(self, made, key):
        self.a, self.key = made, key
        self.base = os.path.join(made.dir, "d", "state")
        self.box = os.path.join(self.base, "connectd")
        os.makedirs(os.path.join(self.base, "releases"), mode=0o755)
        os.makedirs(os.path.join(made.dir, "etc", "keys"))
        os.chmod(os.path.join(made.dir, "etc", "keys"), 0o755)
        shutil.copy(key[0], os.path.join(made.dir, "etc", "keys", "k.pub"))
        os.chmod(os.path.join(made.dir, "etc", "keys", "k.pub"), 0o644)
        os.symlink(os.path.join(BUILD, "connectd"), os.path.join(self.base, "current"))
        os.symlink(os.path.join(BUILD, "privupgrade"), os.path.join(self.base, "updater"))
        self.attempt = 0

    def release(self, sequence=2, version="9.0", size=1500, sec=None, change=None, **kw):
        files = {n: (n.encode() + b" of %d\n" % sequence) * (size // 20 + 1) for n in PROGRAMS}
        text = manifest(files, sequence, version, **kw)
        text = (change(text) if change else text).encode()
        return sign(sec or self.key[1], text, self.a.dir) + text + b"".join(files.values())

    def names(self):
        return sorted(n for n in os.listdir(self.box) if n.startswith("upgrade-"))

    def queued(self, timeout=30):
        """What connectd asks privupgrade for: the request's lines and the release."""
        path = os.path.join(self.box, "upgrade-request")
        wait_for(lambda: os.path.exists(path), timeout, lambda: f"a request; {self.names()}{self.a.log_tail()}")
        with open(path, encoding="ascii") as f:
            request = dict(line.split(" ", 1) for line in f.read().splitlines())
        with open(os.path.join(self.box, "upgrade-release"), "rb") as f:
            return request, f.read()

    def take(self):
        for name in ("upgrade-request", "upgrade-release"):
            os.unlink(os.path.join(self.box, name))

    def result(self, ident, outcome, sequence=2, version="9.0", code="ok", source="hub"):
        """As privupgrade leaves it."""
        path = os.path.join(self.base, "releases", "results")
        old = open(path, encoding="ascii").read() if os.path.exists(path) else "edgeward-upgrade-history 1\n"
        self.attempt += 1
        with open(path + ".tmp", "w", encoding="ascii") as f:
            f.write(old + f"entry {self.attempt} {int(time.time())} {source} {ident} {outcome} 0 {sequence} {version} {code} as it went\n")
        os.chmod(path + ".tmp", 0o644)
        os.rename(path + ".tmp", path)


@pytest.fixture(name="device")
def fixture_device(agent, key, mirror):
    """device(conf, policy): started, unless start=False. Its mirror is `mirror`."""
    def make(conf=None, policy=None, start=True, **kw):
        upgrade = {"mirror": mirror.url, "wait-min": "20ms", "wait-max": "100ms", "rate": "100M", **(conf or {})}
        a = agent(start=False, conf={"upgrade": upgrade, "link": {"heartbeat": "200ms"}}, policy={"upgrade": {"remote": "yes", **(policy or {})}}, **kw)
        d = Device(a, key)
        if start:
            a.start()
            a.connected()
        return d
    return make


def where(name="latest", channel="stable"):
    return f"/m/{channel}/{ARCH}/{name}.release"


def ask(hub, target="latest", **more):
    return hub.request("upgrade", {"target_version": target, **more})


def accepted(answer):
    assert answer["type"] == "upgrading" and answer["payload"]["accepted"] is True, answer
    return answer["id"]


def refused(answer, text=""):
    assert answer["type"] == "upgrading" and answer["payload"]["accepted"] is False and text in answer["payload"]["reason"], answer
    return answer["payload"]


def results(hub, n=1, timeout=30):
    def find():
        return [f for s in hub.sessions for _, f in s.frames if f["type"] == "upgrade_result"]
    hub.wait(f"{n} results", lambda: len(find()) >= n, timeout)
    return find()


def works(hub):
    run = hub.start("echo fine")
    hub.finish(run)
    assert run.text == b"fine\n"


# ---- the frame ----

def test_fetches_and_queues(device, hub, mirror):
    d = device()
    mirror.files[where()] = data = d.release(size=200000)
    caps = next(f for _, f in hub.session().frames if f["type"] == "hello")["payload"]["capabilities"]
    assert caps["remote_upgrade"] is True and "remote_upgrade_issue" not in caps and caps["update_channel"] == "stable"
    ident = accepted(ask(hub, settle_seconds=45, force=False, reason="dashboard"))
    request, release = d.queued()
    assert release == data and request["sequence"] == "2" and request["settle"] == "45" and request["downgrade"] == "no"
    assert request["id"] == ident
    headers = mirror.requests[0][1]
    assert mirror.paths() == [where()] and headers["accept-encoding"] == "identity" and "authorization" not in headers
    st = os.stat(os.path.join(d.box, "upgrade-release"))
    assert st.st_nlink == 1 and st.st_mode & 0o777 == 0o600
    # The same request again, as after a cut link: the same answer, nothing more is fetched.
    hub.session().send("upgrade", {"target_version": "latest"}, id=ident)
    accepted(ask(hub))
    d.take()
    d.result(ident, "done")
    r = results(hub)[0]
    assert r["id"] == ident and r["payload"]["outcome"] == "installed" and r["payload"]["to_version"] == "9.0"
    assert len(mirror.requests) == 1
    works(hub)


@pytest.mark.parametrize("target", ["https://evil.test/x", "../../etc/passwd", "", "  ", "dev", "edge:123456", "edge:" + "a" * 41, "edge:xyzxyzx",
                                    "v", "1.0/2", "latest.release", None, 7, "9" * 70])
def test_a_target_that_is_none(device, hub, mirror, target):
    d = device()
    answer = ask(hub, target)
    assert answer["type"] == "error" and answer["payload"]["code"] == "protocol", answer
    assert ask(hub, "9.0", settle_seconds=-1)["type"] == "error"
    assert ask(hub, "9.0", settle_seconds="1")["type"] == "error"
    assert not mirror.requests and d.names() == ["upgrade-told"]


def test_no_frame_names_anything_but_a_release(device, hub, mirror):
    """What else stands in the frame counts for nothing: no address, path, key, channel or switch of it is looked at."""
    d = device()
    mirror.files[where()] = data = d.release()
    more = {"url": "https://127.0.0.1:1/evil", "mirror": "https://127.0.0.1:1/", "path": "/etc/shadow", "file": "/tmp/x", "key": "RWQ=", "keys": ["/tmp/k.pub"],
            "channel": "edge", "verify": False, "insecure": True, "downgrade": True, "downgrade ": "yes", "allow_downgrade": True, "sequence": 1, "force": True,
            "proxy": "http://127.0.0.1:1", "settle": 1, "command": ["/bin/sh"], "reason": "x" * 5000 + "\n\u001b[2J"}
    accepted(ask(hub, **more))
    request, release = d.queued()
    assert release == data and mirror.paths() == [where()]
    assert (request["sequence"], request["settle"], request["downgrade"]) == ("2", "0", "no") and len(request) == 5, request
    assert "\x1b" not in d.a.log_text()


@pytest.mark.skipif(shutil.which("strace") is None, reason="skipped: no strace")
def test_bytes_written_for_a_hub(device, hub, mirror):
    """connectd writes the release once, and less than 2 KiB beside it, also when the link to the mirror is cut on the way. privupgrade writes
    it once more: test_bytes_written in test_upgrade.py."""
    d = device(start=False)
    d.a.start()
    d.a.connected()
    mirror.files[where()] = data = d.release(size=150000)
    mirror.cut_at = [len(data) // 3, len(data) // 3]
    log = os.path.join(d.a.dir, "strace")
    tracer = subprocess.Popen(["strace", "-f", "-y", "-s", "0", "-e", "signal=none", "-e", "trace=write,pwrite64,writev,copy_file_range,sendfile", "-o", log, "-p",
                               str(d.a.pid("connectd"))], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert "attached" in tracer.stderr.readline()
    ident = accepted(ask(hub))
    assert d.queued()[1] == data
    d.take()
    d.result(ident, "done")
    results(hub)
    wait_for(lambda: "upgrade-job" not in d.names(), 20, "the job is over")
    tracer.terminate()
    tracer.wait(10)
    with open(log, encoding="utf-8", errors="replace") as f:
        total = sum(int(m.group(2)) for m in map(WRITTEN.match, f.read().splitlines()) if m and m.group(1).startswith(d.base))
    assert len(data) <= total < len(data) + 2048, (total, len(data))
    print(f"{total} bytes written by connectd for a release of {len(data)}")


def test_preflight_in_its_order(device, hub, mirror):
    """Not managed, channel, not able, current, older: each is told before the next one is looked at."""
    d = device(policy={"remote": "no"})
    assert "stable channel" in refused(ask(hub, "edge:0123456", force=True))["reason"]
    refused(ask(hub, "latest"), "policy.conf")
    own = refused(ask(hub, "0.0.1"), "policy.conf")["from_version"]
    d.a.policy["upgrade"]["remote"] = "yes"
    d.a.write_conf()
    d.a.kill9("connectd", 1)
    wait_for(lambda: "has been read again" in d.a.log_text(), 10, "the policy is read again")
    assert refused(ask(hub, "v" + own))["already_current"] is True
    refused(ask(hub, "v0.0.1", force=True), "only an operator")
    refused(ask(hub, "99.0", settle_seconds=601), "settle_seconds")
    assert not mirror.requests and d.names() == ["upgrade-told"]


def test_not_installed_as_a_release(agent, hub):
    agent(policy={"upgrade": {"remote": "yes"}})
    caps = next(f for _, f in hub.session().frames if f["type"] == "hello")["payload"]["capabilities"]
    assert caps["remote_upgrade"] is False and "installed release" in caps["remote_upgrade_issue"]
    refused(ask(hub, "edge:0123456"), "installed release")


def test_no_mirror(device, hub):
    device(conf={"mirror": ""})
    refused(ask(hub), "mirror")


def test_edge_device_takes_a_commit(device, hub, mirror):
    d = device(policy={"channel": "edge"})
    mirror.files[where("0123456789", "edge")] = data = d.release(version="9.0+g0123456789ab", channel="edge")
    accepted(ask(hub, "edge:0123456789"))
    assert d.queued()[1] == data


def test_plain_cloop_too(device, hub, mirror):
    hub.b.edgeward = False
    d = device()
    mirror.files[where()] = d.release()
    ident = accepted(ask(hub))
    assert d.queued()[0]["id"] == ident
    d.take()
    d.result(ident, "done")
    wait_for(lambda: "upgrade-job" not in d.names(), 20, "the job is over")     # told by the hello alone


# ---- a mirror that misbehaves ----

def http(status, body=b"", *headers):
    head = "".join(h + "\r\n" for h in (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers))
    return head.encode() + b"\r\n" + body


@pytest.mark.parametrize("cut", [0, 1, "half", "last"])
def test_b92_goes_on_after_a_cut(device, hub, mirror, cut):
    d = device()
    mirror.files[where()] = data = d.release(size=300000)
    at = {"half": len(data) // 2, "last": len(data) - 1}.get(cut, cut)
    mirror.cut_at = [at, at + 1000]
    accepted(ask(hub))
    assert d.queued()[1] == data
    ranges = [h.get("range") for _, h in mirror.requests]
    assert ranges[0] is None and len(ranges) >= 2
    if at > 1:
        assert ranges[1] == f"bytes={at}-" and mirror.requests[1][1]["if-range"].startswith('"')


def test_b92_a_mirror_without_ranges(device, hub, mirror):
    d = device()
    mirror.files[where()] = data = d.release(size=300000)
    mirror.ranges, mirror.cut_at = False, [100000, 50000]
    accepted(ask(hub))
    assert d.queued()[1] == data


def test_b92_another_file_after_a_cut(device, hub, mirror):
    d = device()
    data = d.release(size=300000)
    mirror.files[where()] = other = d.release(sequence=3, size=100000)
    mirror.answers = [lambda s: (s.sendall(http("200 OK", data, 'ETag: "old"')[:100000]), s.unwrap())]
    accepted(ask(hub))
    request, release = d.queued()
    assert release == other and request["sequence"] == "3"


FINAL = {
    "404": (None, "no-release"), "403": (http("403 Forbidden"), "mirror-denied"),
    "moved": (http("302 Found", b"", "Location: https://evil.test/x"), "mirror-moved"),
    "html": (http("200 OK", b"<html>please log in</html>", "Content-Type: text/html"), "bad-release"),
    "empty": (http("200 OK"), "bad-size"),
    "huge": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "bad-size"),
    "chunked": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "mirror-bad"),
    "no length": (b"HTTP/1.1 200 OK\r\n\r\nhello", "mirror-bad"),
    "gzip": (http("200 OK", b"x" * 50, "Content-Encoding: gzip"), "mirror-bad"),
}


@pytest.mark.parametrize("case", FINAL)
def test_b95_what_is_of_no_use_ends_the_upgrade_and_nothing_else(device, hub, mirror, case):
    d = device()
    answer, code = FINAL[case]
    pid = d.a.pid("connectd")
    mirror.answers = [answer] if answer else []
    ident = accepted(ask(hub))
    r = results(hub)[0]
    assert r["id"] == ident and r["payload"]["outcome"] == "refused" and r["payload"]["reason"].startswith(code + ": "), r
    wait_for(lambda: d.names() == ["upgrade-told"], 15, lambda: f"nothing is left, is {d.names()}")
    assert len(mirror.requests) == 1 and d.a.pid("connectd") == pid
    mirror.files[where()] = data = d.release()
    accepted(ask(hub))
    assert d.queued()[1] == data


RELEASES = {
    "another key": ({"sec": True}, "bad-signature"), "old": ({"expires": "2001-01-01"}, "expired"), "channel": ({"channel": "edge"}, "wrong-channel"),
    "arch": ({"arch": "riscv64"}, "wrong-arch"), "format": ({"change": lambda t: t.replace("release 1", "release 2")}, "bad-manifest"),
    "size": ({"change": lambda t: t.replace("program connectd ", "program connectd 9")}, "bad-size"),
}


@pytest.mark.parametrize("case", RELEASES)
def test_b95_b97_a_release_that_is_not_for_this_device(device, hub, mirror, tmp_path, case):
    d = device()
    how, code = RELEASES[case]
    how = dict(how)
    if how.get("sec"):
        how["sec"] = make_key(str(tmp_path), "other")[1]
    mirror.files[where()] = d.release(**how)
    accepted(ask(hub))
    r = results(hub)[0]["payload"]
    assert r["outcome"] == "refused" and r["reason"].split(":")[0] in (code, "mirror-cut"), r
    assert not os.path.exists(os.path.join(d.box, "upgrade-release"))


def test_b97_another_version_than_asked_for(device, hub, mirror):
    d = device()
    mirror.files[where("9.5")] = d.release(version="9.0")
    accepted(ask(hub, "v9.5"))
    assert results(hub)[0]["payload"]["reason"].startswith("other-release")


def test_b92_one_bit_wrong_once_and_always(device, hub, mirror):
    d = device()
    mirror.files[where()] = data = d.release(size=100000)
    flip = bytearray(data)
    flip[-5] ^= 1
    mirror.answers = [http("200 OK", bytes(flip))]
    ident = accepted(ask(hub))
    assert d.queued()[1] == data and len(mirror.requests) == 2
    d.take()
    d.result(ident, "done")
    results(hub)
    mirror.change = lambda body: bytes(flip)
    accepted(ask(hub))
    assert results(hub, 2)[1]["payload"]["reason"].startswith("bad-file")
    assert len(mirror.requests) == 4


def test_b90_tries_are_bounded(device, hub, mirror):
    """A mirror that is never there is asked UPGRADER_TRIES times, over a restart too."""
    d = device(conf={"wait-max": "50ms"})
    mirror.answers = [http("503 Busy")] * 100
    accepted(ask(hub))
    wait_for(lambda: len(mirror.requests) >= 3, 20, "some tries")
    d.a.restarted("connectd", d.a.kill9("connectd"))
    r = results(hub)[0]["payload"]
    assert r["reason"].startswith("mirror-busy: HTTP 503") and len(mirror.requests) <= 11
    works(hub)


@pytest.mark.parametrize("how", ["no ranges", "another file each time", "a few bytes each time"])
def test_b90_a_mirror_that_always_cuts(device, hub, mirror, how):
    """Half of it comes each time and counts for nothing, as it is fetched from the beginning; or so little that it would take for ever."""
    d = device(conf={"wait-min": "10ms", "wait-max": "20ms"})
    mirror.files[where()] = data = d.release(size=50000)
    mirror.ranges, mirror.cut_at = how == "a few bytes each time", [len(data) // 2 if how != "a few bytes each time" else 40] * 10000
    if how == "another file each time":
        mirror.ranges, other = True, [data, d.release(sequence=3, size=50001)]
        mirror.before = lambda: mirror.files.update({where(): other[len(mirror.requests) % 2]})
    accepted(ask(hub))
    wait_for(lambda: len(mirror.requests) > 40 or any(f["type"] == "upgrade_result" for s in hub.sessions for _, f in s.frames), 60, "an end")
    reason = results(hub)[0]["payload"]["reason"]
    assert reason.startswith("mirror-c") and len(mirror.requests) <= 21, (reason, len(mirror.requests))     # half of it is progress once
    works(hub)


def test_b90_a_restart_during_each_download_is_bounded(device, hub, mirror):
    """connectd is ended while it fetches, each time again: that, too, is a try."""
    d = device(conf={"wait-min": "10ms", "wait-max": "20ms", "rate": "50K"})
    mirror.files[where()] = d.release(size=50000)
    accepted(ask(hub))
    for n in range(15):
        wait_for(lambda n=n: len(mirror.requests) > n or "upgrade-job" not in d.names(), 30, "a download")
        if len(mirror.requests) <= n:
            break
        wait_for(lambda: os.path.exists(os.path.join(d.box, "upgrade-download")) or "upgrade-job" not in d.names(), 20, "it has begun")
        d.a.restarted("connectd", d.a.kill9("connectd"))
    assert results(hub)[0]["payload"]["reason"].startswith("interrupted: ") and len(mirror.requests) <= 10, len(mirror.requests)
    works(hub)


def test_a_quota_is_no_room(device, hub, mirror, tmp_path):
    """Told as a full disk is, with its own words."""
    quota = Quota(tmp_path)
    for top in [tmp_path, *tmp_path.parents[:-2]]:
        top.chmod(0o755)
    d = device(start=False, conf={"rate": "100K"})
    d.a.env.update(quota.env)
    d.a.start()
    d.a.connected()
    mirror.files[where()] = d.release(size=400000)
    accepted(ask(hub))
    wait_for(lambda: os.path.exists(os.path.join(d.box, "upgrade-download")), 20, "it has begun")
    quota.set(True)
    wait_for(lambda: not os.path.exists(os.path.join(d.box, "upgrade-download")), 20, "it has ended")
    quota.set(False)
    assert results(hub)[0]["payload"]["reason"] == "no-space: Disk quota exceeded"


def test_b90_no_room_is_seen_before_it_is_fetched(device, hub, mirror):
    """The manifest says how much is needed; what must stay free counts. Nothing of the programs is stored, and the next one is taken."""
    d = device(start=False, conf={"rate": "100K"})
    d.a.conf.setdefault("work", {})["disk-low"] = "1000000G"
    d.a.write_conf()
    d.a.start()
    d.a.connected()
    mirror.files[where()] = d.release(size=400000)
    accepted(ask(hub))
    assert results(hub)[0]["payload"]["reason"].startswith("no-space: ")
    wait_for(lambda: d.names() == ["upgrade-told"], 15, lambda: f"nothing is left, is {d.names()}")
    assert len(mirror.requests) == 1


def test_b92_leftovers_and_planted_names(device, hub, mirror):
    d = device(start=False)
    os.makedirs(d.box, mode=0o700)
    for name, content in (("upgrade-download", b""), ("upgrade-release", b"x" * 5000)):
        with open(os.path.join(d.box, name), "wb") as f:
            f.write(content)
        os.chmod(os.path.join(d.box, name), 0o400)
    if is_root():
        os.chown(d.box, d.a.net_uid, d.a.net_uid)
    d.a.start()
    d.a.connected()
    assert d.names() == ["upgrade-told"]
    mirror.files[where()] = data = d.release()
    os.mkdir(os.path.join(d.box, "upgrade-download"))
    accepted(ask(hub))
    assert d.queued()[1] == data


def test_untrusted_mirror(device, hub, mirror, tmp_path):
    from lib.certs import CA
    mirror.context.load_cert_chain(*(lambda leaf: (leaf.cert_file, leaf.key_file))(CA(str(tmp_path / "ca")).leaf()))
    d = device()
    mirror.files[where()] = d.release()
    accepted(ask(hub))
    assert results(hub)[0]["payload"]["reason"].startswith("mirror-tls")
    assert not mirror.requests


def test_b19_by_the_proxy_of_the_hub(device, hub, mirror):
    from test_proxy import ScriptedProxy
    proxy = ScriptedProxy("http")
    d = device(start=False)
    d.a.conf["hub"]["proxy"] = f"http://127.0.0.1:{proxy.port}"
    d.a.write_conf()
    d.a.start()
    d.a.connected()
    mirror.files[where()] = data = d.release()
    accepted(ask(hub))
    assert d.queued()[1] == data
    assert any(str(mirror.port) in str(t) for t in proxy.targets), proxy.targets


@pytest.mark.skipif(not is_root(), reason="skipped: needs root")
def test_an_operator_sees_and_cancels_what_a_hub_asked_for(device, hub, mirror):
    d = device(conf={"rate": "20K"})
    os.makedirs(os.path.join(d.base, "upgrade/queue"), mode=0o700)

    def edgectl(*args):
        return subprocess.run([os.path.join(BUILD, "edgectl/edgectl"), "-r", d.a.run, *args, "--state", d.base], capture_output=True, text=True, check=False,
                              env={"ASAN_OPTIONS": "detect_leaks=0"}, timeout=20)
    assert "hub" not in edgectl("upgrade", "--check").stdout and edgectl("upgrade", "--cancel").returncode == 1
    mirror.files[where()] = d.release(size=200000)
    ident = accepted(ask(hub))
    wait_for(lambda: os.path.exists(os.path.join(d.box, "upgrade-download")), 15, "it has begun")
    assert "for the hub fetching latest: " in edgectl("upgrade", "--check").stdout
    assert "fetching latest" in json.loads(edgectl("-j", "upgrade", "--check").stdout)["hub"]
    p = edgectl("upgrade", "--cancel")
    assert p.returncode == 0 and "the hub is told" in p.stdout, p
    r = results(hub)[0]
    assert r["id"] == ident and r["payload"]["outcome"] == "refused" and r["payload"]["reason"].startswith("cancelled: "), r
    wait_for(lambda: d.names() == ["upgrade-told"], 15, lambda: f"nothing is left, is {d.names()}")
    assert edgectl("upgrade", "--cancel").returncode == 1
    mirror.files[where()] = data = d.release(size=100)
    accepted(ask(hub))
    assert d.queued()[1] == data


def test_a_download_leaves_the_link_alone(device, hub, mirror):
    """Below everything else: beats keep coming and work runs while it goes slowly."""
    d = device(conf={"rate": "200K"})
    mirror.files[where()] = d.release(size=200000)
    accepted(ask(hub))
    wait_for(lambda: os.path.exists(os.path.join(d.box, "upgrade-download")), 15, "it has begun")
    beats = len(hub.session().beats)
    works(hub)
    hub.wait("beats", lambda: len(hub.session().beats) >= beats + 5, 15)
    assert os.path.exists(os.path.join(d.box, "upgrade-download"))


# ---- results ----

def told_in(session):
    return [f for _, f in session.frames if f["type"] == "upgrade_result"]


def test_told_once_after_the_trial(device, hub, mirror):
    d = device()
    mirror.files[where()] = d.release()
    ident = accepted(ask(hub))
    d.queued()
    d.take()
    pid = d.a.kill9("connectd")     # the new one on trial
    d.a.restarted("connectd", pid)
    hub.session()
    refused(ask(hub, "9.9"), "under way")
    hub.b.ack_beats = False
    before = hub.session().number
    d.result(ident, "rolled-back", code="unhealthy")
    # What the protocol promises: once in each session until a beat sent behind it is acknowledged, and never again after that. The session
    # in which it became known may have told it as well, by an ack that was on its way.
    for _ in range(2):
        session = hub.session()
        hub.cut()
        session = hub.session(after=session)
        session.wait("the result", lambda s=session: told_in(s), 15)
    first = told_in(session)[0]["payload"]
    assert first["outcome"] == "rolled_back" and first["reason"].startswith("unhealthy: ")
    assert "upgrade-job" in d.names(), "no beat was acknowledged"
    hub.b.ack_beats = True
    wait_for(lambda: "upgrade-job" not in d.names(), 15, "the job is over")
    last = session.number
    hub.cut()
    hub.session(after=session)
    d.a.restarted("connectd", d.a.kill9("connectd"))
    hub.wait("beats of a new process", lambda: (s := hub.current) and s.number > last + 1 and s.live and len(s.beats) >= 3, 20)
    counts = [len(told_in(s)) for s in hub.sessions]
    assert max(counts) == 1 and counts[:before] == [0] * before and counts[before + 1:last + 1] == [1] * (last - before), counts
    assert counts[last + 1:] == [0] * (len(counts) - last - 1), "told again after the acknowledgement"
    refused(ask(hub, "9.0"), "failed on this device")


def test_an_operators_upgrade_is_told_too(device, hub):
    d = device()
    d.result("op-1", "done", source="operator", version="0.2.0")
    r = results(hub)[0]
    assert r["payload"]["outcome"] == "installed" and r["payload"]["to_version"] == "0.2.0"


def test_results_that_make_no_sense(device, hub):
    d = device()
    with open(os.path.join(d.base, "releases", "results"), "wb") as f:
        f.write(b"\xff" * 20000)
    works(hub)
    hub.wait("beats", lambda: len(hub.session().beats) >= 4, 15)
    wait_for(lambda: "cannot be read" in d.a.log_text(), 15, "it is said")
    os.unlink(os.path.join(d.base, "releases", "results"))
    d.result("x", "done")
    assert results(hub)[0]["id"] == "x"


# ---- the stream ----

class Sender:
    """Sends a release over a stream as a hub does, window kept."""

    def __init__(self, hub, data, channel, **change):
        self.s, self.data, self.channel = hub.session(), data, channel
        fields = {"channel": channel, "kind": "release", "sequence": 2, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "offset": 0}
        self.answer = hub.request("stream_open", {**fields, **change})

    def frames(self, kind):
        return [f for f in self.s.stream_frames if f[1] == self.channel and f[0] == kind]

    def send(self, stop=None):
        at, stop = self.answer["payload"]["offset"], len(self.data) if stop is None else stop
        while at < stop and not self.frames(RESET):
            limit = max([self.answer["payload"]["offset"] + (256 << 10), *(f[2] for f in self.frames(WINDOW))])
            n = min(65536, limit - at, stop - at)
            if n <= 0:
                self.s.wait("a window", lambda limit=limit: self.frames(RESET) or any(f[2] > limit for f in self.frames(WINDOW)), 20)
                continue
            self.s.send_stream(DATA, self.channel, at, self.data[at:at + n])
            at += n
        return self

    def end(self):
        self.s.send_stream(END, self.channel, len(self.data))
        self.s.wait("the end", lambda: self.frames(END) or self.frames(RESET), 20)
        return [f[3] for f in self.frames(RESET)]


def test_a_release_that_the_hub_sends(device, hub, mirror):
    d = device(conf={"mirror": ""})
    data = d.release(size=300000)
    sender = Sender(hub, data, 1).send()
    assert sender.end() == []
    assert os.path.exists(os.path.join(d.box, "upgrade-release")) and not os.path.exists(os.path.join(d.box, "upgrade-request"))
    accepted(ask(hub, "v9.0"))
    assert d.queued()[1] == data and not mirror.requests


def test_a_sent_release_goes_on_after_a_cut(device, hub):
    d = device()
    data = d.release(size=300000)
    Sender(hub, data, 1).send(stop=500000)
    wait_for(lambda: os.path.getsize(os.path.join(d.box, "upgrade-download")) == 500000, 15, "it has come")
    before = hub.session()
    hub.cut()
    d.a.connected(after=before)
    sender = Sender(hub, data, 1)
    assert sender.answer["payload"]["offset"] == 500000
    assert sender.send().end() == []
    accepted(ask(hub, "9.0"))
    assert d.queued()[1] == data


@pytest.mark.parametrize("change, text", [({"size": 0}, "size"), ({"size": 1 << 40}, "size"), ({"sha256": "x"}, "sha256"), ({"sequence": 0}, "sequence"),
                                          ({"channel": 2}, "odd"), ({"offset": -1}, ""), ({"sequence": None}, "sequence")])
def test_a_stream_that_is_not_opened(device, hub, change, text):
    device()
    sender = Sender(hub, b"x" * 100, change.pop("channel", 1), **change)
    assert sender.answer["type"] == "error" and text in sender.answer["payload"]["message"]
    works(hub)


def test_sent_releases_that_are_none(device, hub, tmp_path):
    d = device()
    good = d.release(size=100000)
    flip = bytearray(good)
    flip[-1] ^= 1
    cases = [(bytes(flip), hashlib.sha256(good).hexdigest(), b"bad-file"), (b"x" * 1000, None, b"bad-release"),
             (d.release(sec=make_key(str(tmp_path), "o")[1]), None, b"bad-signature"), (good + b"x", None, b"bad-size"), (good[:-1], None, b"bad-")]
    for i, (data, sha256, code) in enumerate(cases):
        sender = Sender(hub, data, 1 + 2 * i, **({"sha256": sha256} if sha256 else {})).send()
        assert any(code in f for f in sender.end()), (code, sender.frames(RESET))
        assert struct.unpack("!I", sender.frames(RESET)[0][3][:4])[0] == 3
        assert not os.path.exists(os.path.join(d.box, "upgrade-release"))
    # One at a time, and the policy counts for it, too.
    first = Sender(hub, good, 21)
    assert "being received" in Sender(hub, good, 23).answer["payload"]["message"]
    assert first.send().end() == []


def test_policy_counts_for_streams(device, hub):
    d = device(policy={"remote": "no"})
    assert "policy.conf" in Sender(hub, d.release(), 1).answer["payload"]["message"]


# ---- edgehub ----

@pytest.fixture(name="live")
def fixture_live():
    h = LiveHub().start()
    yield h
    h.close()


def live_device(live, key, mirror, ca, **upgrade):
    both = os.path.join(live.dir, "both.pem")
    with open(both, "wb") as out:
        for path in (live.ca_file.file, ca.file):
            with open(path, "rb") as f:
                out.write(f.read())
    os.chmod(both, 0o644)
    a = Agent(hub=live, ca=CaFile(both), conf={"upgrade": {"mirror": mirror.url, "wait-min": "20ms", "wait-max": "100ms", "rate": "100M", **upgrade},
                                               "link": {"heartbeat": "200ms"}}, policy={"upgrade": {"remote": "yes"}})
    d = Device(a, key)
    a.start()
    live.connected()
    return d


@pytest.mark.parametrize("how", ["done", "rolled-back", "cut"])
def test_edgehub_sends_a_release_and_waits(live, key, mirror, ca, tmp_path, how):
    d = live_device(live, key, mirror, ca)
    try:
        data = d.release(size=400000)
        path = tmp_path / "out"
        path.mkdir()
        (path / "x.release").write_bytes(data)
        p = live.popen("-j", "upgrade", "edge-test", "--release", str(path), "--settle", "7")
        try:
            request, release = d.queued()
        except AssertionError:
            p.kill()
            raise AssertionError(p.communicate()) from None
        assert release == data and request["settle"] == "7"
        d.take()
        if how == "cut":
            d.a.restarted("connectd", d.a.kill9("connectd"))
        d.result(request["id"], "done" if how == "cut" else how, code="ok" if how != "rolled-back" else "crashed")
        out, err = p.communicate(timeout=40)
        assert p.returncode == (3 if how == "rolled-back" else 0), (out, err)
        got = json.loads(out)
        assert got["outcome"] == ("rolled_back" if how == "rolled-back" else "installed") and got["to_version"] == "9.0"
    finally:
        problems = d.a.stop() + d.a.broken()
        d.a.remove()
    assert not problems


def test_edgehub_has_it_fetched(live, key, mirror, ca):
    d = live_device(live, key, mirror, ca)
    try:
        assert live.call("upgrade", "edge-test").returncode == 1      # nothing there: refused
        mirror.files[where("9.0")] = d.release()
        p = live.call("upgrade", "edge-test", "--to", "v9.0", "--no-wait")
        assert p.returncode == 0 and b"accepted" in p.stdout, p
        d.queued()
        assert live.call("upgrade", "edge-test", "--to", "0.0.1").returncode == 1
        assert b"target_version" in live.call("upgrade", "edge-test", "--to", "nonsense").stdout
        assert live.call("upgrade", "nobody").returncode == 1
        assert live.call("upgrade", "edge-test", "--to", "1", "--release", "x").returncode == 2
        assert b"is not a release file" in live.call("upgrade", "edge-test", "--release", "/etc/passwd").stderr
    finally:
        problems = d.a.stop() + d.a.broken()
        d.a.remove()
    assert not problems
