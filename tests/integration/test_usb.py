"""Forwarded USB devices, from the operator's `edgehub usb forward` to the socket that privhelper hands out and back.

edgehub, connectd, workerd and launcher are the real ones; in privhelper's place is tests/tools/fakepriv.py, which is the kernel as well, and the
usbipd is the Exporter below. What a kernel does with it is tests/vm/usb.sh. B106 (a lease without an end): whatever ends frees both
sides. B109 (a reset that looks like the end): who forwards it asks again. B112 (the device too many): the refusal says how many ports are in use. B114 (a loop): a device that is itself forwarded is not lent on.
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from lib import openmetrics
from lib.agent import BUILD, Agent
from lib.edgehub import EdgeHub
from lib.proc import wait_for

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(os.geteuid() != 0, reason="skipped: needs root for mounts and other users")]
HERE = os.path.dirname(os.path.abspath(__file__))


class Exporter:
    """A usbipd with one device: answers the import, then sends back what it gets."""

    def __init__(self, busid="1-2", vendor=0x1234, product=0x5678, speed=3, path=None, dev=5, status=0, raw=None, reads=True, goes=False):
        self.reads, self.goes, self.path, self.dev, self.speed = reads, goes, path, dev, speed
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.busid, self.ended, self.conns = busid, 0, []
        self.present(vendor, product, status)
        self.reply = self.reply if raw is None else raw
        threading.Thread(target=self.serve, daemon=True).start()

    def present(self, vendor=0x1234, product=0x5678, status=0):
        """What it says to the next one who asks."""
        device = struct.pack(">256s32sIIIHHHBBBBBB", (self.path or f"/sys/devices/pci0000:00/usb1/{self.busid}").encode(), self.busid.encode(), 1,
                             self.dev, self.speed, vendor, product, 0, 0, 0, 0, 1, 1, 1)
        self.reply = struct.pack(">HHI", 0x0111, 3, status) + (device if status == 0 else b"")

    def drop(self):
        """The device went: usbipd closes."""
        for c in self.conns:
            with contextlib.suppress(OSError):
                c.shutdown(socket.SHUT_RDWR)

    def serve(self):
        while True:
            try:
                c, _ = self.sock.accept()
            except OSError:
                return
            self.conns.append(c)
            threading.Thread(target=self.one, args=(c,), daemon=True).start()

    def one(self, c):
        want = b""
        while len(want) < 40:
            got = c.recv(40 - len(want))
            if not got:
                self.ended += 1
                return
            want += got
        self.request = want
        # In pieces, as TCP may bring it.
        for i in range(0, len(self.reply), 100):
            c.sendall(self.reply[i:i + 100])
        if self.goes:
            self.ended += 1
            c.close()
            return
        while not self.reads:
            time.sleep(0.1)
        try:
            while got := c.recv(65536):
                c.sendall(got)
        except OSError:
            pass
        self.ended += 1
        c.close()

    def close(self):
        self.drop()
        self.sock.close()


class Site:
    def __init__(self, policy=None):
        policy = dict(policy or {"usb": "yes"})
        kernel, pool = policy.pop("kernel", None), policy.pop("pool", 16)
        self.hub = EdgeHub().start()
        with open(os.path.join(self.hub.dir, "ca.pem"), "w", encoding="ascii") as f:
            f.write(open(self.hub.ca, encoding="ascii").read())
        os.chmod(f.name, 0o644)
        self.vhci = os.path.join(self.hub.dir, "platform", "vhci_hcd.0")
        os.makedirs(self.vhci)
        with open(self.vhci + "/status", "w", encoding="ascii") as v:
            v.write("hub port sta spd dev      sockfd local_busid\nhs  0000 004 000 00000000 000000 0-0\nhs  0001 004 000 00000000 000000 0-0\n"
                    "ss  0002 004 000 00000000 000000 0-0\n")
        self.exporters, self.clients = [], []
        build = os.path.join(self.hub.dir, "build")
        for name, target in (("connectd/connectd", None), ("workerd/workerd", None), ("workerd/launcher/launcher", None),
                             ("privhelper/privhelper", os.path.join(HERE, "../tools/fakepriv.py"))):
            os.makedirs(os.path.dirname(os.path.join(build, name)), exist_ok=True)
            shutil.copy2(target or os.path.join(BUILD, name), os.path.join(build, name))
        if kernel:      # what stands at the kernel's end, its input the socket
            with open(os.path.join(self.hub.dir, "kernel"), "w", encoding="ascii") as k:
                k.write(f"#!/bin/sh\n{kernel}\n")
            os.chmod(k.name, 0o755)
        mount = f"mount --make-rprivate / && mount --bind {os.path.dirname(self.vhci)} /sys/devices/platform && exec \"$@\""
        self.agent = Agent(conf={"hub": {"url": self.hub.url, "ca-file": f.name}}, policy={"devices": policy}, pool=pool,
                           name="dev", token=False, prefix=("env", *([f"FAKEPRIV_KERNEL={k.name}"] if kernel else []), "unshare", "-m", "sh", "-c", mount, "sh"))
        self.agent.argv = lambda argv=self.agent.argv(): [*argv[:argv.index("-b") + 1], build, *argv[argv.index("-b") + 2:]]
        self.agent.give_token(self.hub.token("--name", "dev"))
        self.agent.write_conf()
        self.agent.start(wait=False)
        self.connected()

    def connected(self):
        wait_for(lambda: [d["state"] for d in self.hub.json("devices")] == ["connected"], 40, lambda: self.agent.log_tail(40))

    def exporter(self, **kw):
        self.exporters.append(Exporter(**kw))
        return self.exporters[-1]

    def forward(self, e, *args, busid=None, retry=0):
        p = self.hub.popen("-j", "usb", "forward", "dev", "--busid", busid or e.busid, "--server", f"127.0.0.1:{e.port}", "--retry", str(retry), *args)
        self.clients.append(p)
        return p

    def opened(self, p):
        line = p.stdout.readline()
        assert line, p.communicate(timeout=10)[1].decode()
        return json.loads(line)

    def refused(self, e, *args, **kw):
        out, err = self.forward(e, *args, **kw).communicate(timeout=60)
        assert out == b"", out
        return err.decode()

    def run(self, argv):
        return self.hub.cli("run", "dev", "--detach", "--", *argv).decode().strip()

    def told(self):
        path = os.path.join(self.agent.run, "fakepriv.log")
        return open(path, encoding="ascii").read().splitlines() if os.path.exists(path) else []

    def devices(self):
        return self.agent.ctl("devices").json

    def free(self):
        """No port is held and edgectl knows of no device."""
        held = [line.split()[1] for line in self.told() if " attach " in line]
        closed = [line.split()[1] for line in self.told() if line.endswith("closed")]
        return len(held) == len(closed) and self.devices()["devices"] == [] and all(e.ended == len(e.conns) for e in self.exporters)


@pytest.fixture
def site(request):
    s = Site(getattr(request, "param", None))
    yield s
    for p in s.clients:
        if p.poll() is None:
            p.kill()
        p.communicate()
    for e in s.exporters:
        e.close()
    problems = s.agent.broken() + s.agent.stop() + s.hub.stop()
    assert not problems, "\n".join(map(str, problems)) + s.agent.log_tail(40)
    s.agent.remove()
    s.hub.remove()


def test_b106_a_device_for_a_run_and_every_end_of_it(site):
    e = site.exporter()
    run = site.run(["sleep", "600"])
    p = site.forward(e, "--for", run, "--name", "stick", "--match", "1234:5678")
    got = site.opened(p)
    assert e.request == struct.pack(">HHI32s", 0x0111, 0x8003, 0, b"1-2")
    assert got["name"] == "stick" and got["handle"] == run and got["port"] == 0
    assert got["nodes"].split() == ["/dev/edgeward/bus/usb/003/002", "/dev/edgeward/ttyUSB7"]
    wait_for(lambda: "port 0 echo ok" in site.told(), 30, lambda: f"{site.told()} {site.agent.log_tail(30)}")
    assert "port 0 attach devid 00010005 speed 3" in site.told()
    d = site.devices()
    assert [(x["id"], x["handle"], x["state"], x["busid"], x["vendor_id"], x["nodes"]) for x in d["devices"]] == \
        [("stick", run, "ready", "1-2", "1234", [{"name": "bus/usb/003/002", "subsystem": "usb"}, {"name": "ttyUSB7", "subsystem": "tty"}])]
    assert d["usb"] is True and d["ports"] == {"hs": 2, "hs_free": 2, "ss": 1, "ss_free": 1} and d["audit_head"] == "ab" * 32
    assert "stick" in site.agent.ctl("devices", json_out=False).out
    counted = openmetrics.parse(site.agent.ctl("metrics", json_out=False).out)
    assert openmetrics.value(counted, "edgeward_devices", kind="usb") == 1 and openmetrics.value(counted, "edgeward_devices", kind="l2") == 0
    assert openmetrics.value(counted, "edgeward_usb_ports_free", speed="high") == 2
    assert openmetrics.value(counted, "edgeward_streams", kind="usb") == 1
    row, = site.hub.json("usb", "list")
    assert row["name"] == "stick" and row["opened"] and row["bytes_from_usbipd"] > 1 << 20
    # The same name twice; another device beside it; one too many.
    assert "forwarded to it already" in site.refused(site.exporter(), "--name", "stick")
    second = site.forward(site.exporter(busid="2-1.4:1", dev=6), "--for", run)
    assert site.opened(second)["port"] == 1
    assert "2 of 2 high-speed ports in use" in site.refused(site.exporter(busid="3-1"))
    wait_for(lambda: "port 1 echo ok" in site.told(), 30, site.told)
    # Its far side ends: the other one goes on.
    site.exporters[2].close()
    assert second.wait(30) == 1 and b"ended" in second.stderr.read()
    wait_for(lambda: [x["id"] for x in site.devices()["devices"]] == ["stick"], 20, site.devices)
    # The run ends: the usbipd has its device back.
    site.hub.cli("signal", run, "KILL")
    assert p.wait(30) == 1 and b"its workload has ended" in p.stderr.read()
    wait_for(site.free, 20, lambda: f"{site.told()} {site.devices()} {[(x.ended, len(x.conns)) for x in site.exporters]}")


def test_b106_whoever_dies_both_sides_are_free(site):
    e = site.exporter()
    run = site.run(["sleep", "600"])

    def attach():
        p = site.forward(e, "--for", run)
        site.opened(p)
        return p
    # The operator's Ctrl-C.
    p = attach()
    p.send_signal(signal.SIGINT)
    assert p.wait(20) == 0
    wait_for(site.free, 20, site.told)
    # connectd, workerd, the hub: by force.
    for who in ("connectd", "workerd"):
        p = attach()
        site.agent.kill9(who)
        assert p.wait(40) == 1
        wait_for(site.free, 30, lambda: f"{who}: {site.told()}")
        site.connected()
    p = attach()
    site.hub.kill9()
    assert p.wait(20) == 4
    wait_for(lambda: all(x.ended == len(x.conns) for x in site.exporters), 20, "the usbipd has its device back")
    wait_for(lambda: site.devices()["devices"] == [], 30, lambda: f"{site.devices()} {site.agent.log_tail(20)}")
    site.hub.start()
    site.connected()
    attach()


def test_b106_a_link_that_goes_silent(site):
    """connectd stands still: the hub hears nothing, and the usbipd has its device back within 30 s; then the port is free and the next attach works."""
    e = site.exporter()
    run = site.run(["sleep", "600"])
    p = site.forward(e, "--for", run)
    site.opened(p)
    pid = site.agent.pid("connectd")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: e.ended == 1, 32, "the usbipd has its device back")
        assert p.wait(20) == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    site.connected()
    wait_for(site.free, 30, lambda: f"{site.told()} {site.devices()}")
    site.opened(site.forward(e, "--for", run))


@pytest.mark.parametrize("site", [{"usb": "yes", "kernel": "exec cat /dev/zero >&0"}], indirect=True)
def test_b106_a_usbipd_that_stops_reading(site):
    """Its machine is there, its program is not: what waits for it is bounded, its lease ends within 30 s, and others go on meanwhile."""
    e = site.exporter(reads=False)
    run = site.run(["sleep", "600"])
    p = site.forward(e, "--for", run)
    site.opened(p)
    wait_for(lambda: (row := site.hub.json("usb", "list")) and row[0]["bytes_to_usbipd"] > 1 << 16, 20, "bytes are on their way")
    assert site.hub.cli("run", "dev", "--workdir", "other", "--", "echo", "on").decode() == "on\n"
    assert p.wait(45) == 1 and b"the usbipd ended it" in p.stderr.read()
    wait_for(lambda: site.devices()["devices"] == [], 20, site.devices)
    assert site.hub.cli("run", "dev", "--workdir", "other", "--", "echo", "on").decode() == "on\n"


def test_b109_a_device_that_goes_and_comes_back(site):
    """The usbipd closes and offers the same bus id again: it is attached again to the same port, for the same run, and nothing grows. Another
    product under that bus id is refused with the reason; then the right one is taken. The same after connectd was replaced."""
    e = site.exporter()
    run = site.run(["sleep", "600"])
    p = site.forward(e, "--for", run, "--name", "stick", retry=90)
    asked = 1

    def lent():
        rows = site.hub.json("usb", "list")
        return len(e.conns) >= asked and [(r["name"], r["opened"], r["port"], r["handle"], r["product_id"], r["nodes"] != "") for r in rows] == \
            [("stick", True, 0, run, "5678", True)]

    def fds():
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in (site.hub.proc.pid, site.agent.pid("connectd"), p.pid)]
    wait_for(lent, 30, site.told)
    before = fds()
    for _ in range(5):
        asked = len(e.conns) + 1
        e.drop()
        wait_for(lent, 40, lambda: f"{site.told()} {site.agent.log_tail(20)}")
    wait_for(lambda: fds() == before, 10, lambda: f"{fds()}, {before} before")
    asked = len(e.conns) + 2
    e.present(product=0x9999)
    e.drop()
    wait_for(lambda: len(e.conns) >= asked, 40, site.told)
    e.present()
    wait_for(lent, 40, site.told)
    asked = len(e.conns) + 1
    site.agent.kill9("connectd")
    wait_for(lent, 60, lambda: f"{site.told()} {site.agent.log_tail(20)}")
    # The run ends: nothing is asked for any more.
    site.hub.cli("signal", run, "KILL")
    assert p.wait(60) == 1
    said = p.stderr.read().decode()
    assert "stick: asked for again in 0.5 s" in said and "the forwarder has 1234:9999 there" in said and f"run {run} has ended" in said, said
    wait_for(site.free, 20, lambda: f"{site.told()} {site.devices()}")


def test_b109_one_that_stays_away_is_given_up(site):
    e = site.exporter()
    p = site.forward(e, "--name", "stick", retry=2)
    site.opened(p)
    e.present(status=1)
    e.drop()
    assert p.wait(60) == 1
    assert b"stick did not come back within 2 s" in p.stderr.read()
    # Told to end while it waits: no failure.
    e.present()
    p = site.forward(e, "--name", "stick", retry=60)
    site.opened(p)
    e.present(status=1)
    e.drop()
    wait_for(lambda: len(e.conns) >= 6, 40, "it was asked again")
    p.send_signal(signal.SIGTERM)
    assert p.wait(30) == 0
    wait_for(site.free, 20, lambda: f"{site.told()} {site.devices()}")


def test_refusals_and_a_start_that_names_a_device(site):
    assert "has 1234:5678" in site.refused(site.exporter(), "--match", "1234:9999")
    assert "answers with device 9-9" in site.refused(site.exporter(busid="9-9"), busid="1-2")
    assert "not exported" in site.refused(site.exporter(status=1))
    assert "is in use by another" in site.refused(site.exporter(status=2))
    # As usbipd does: it closes behind its answer. The reason is that answer, not the end.
    for _ in range(3):
        assert "is in use by another" in site.refused(site.exporter(status=2, goes=True))
    assert "the usbipd ended it" in site.refused(site.exporter(raw=b"", goes=True))
    assert "speed 4 is not supported" in site.refused(site.exporter(speed=4))
    assert "speed 0 is not supported" in site.refused(site.exporter(speed=0))
    assert "no USB/IP" in site.refused(site.exporter(speed=7))
    assert "no USB/IP" in site.refused(site.exporter(raw=b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert "virtual controller" in site.refused(site.exporter(path="/sys/devices/platform/vhci_hcd.0/usb3/3-1"))
    assert "no workload nobody" in site.refused(site.exporter(), "--for", "nobody")
    assert "policy.conf (default): devices usb-classes: interface class 03 is not in the list" in site.refused(site.exporter(dev=66))
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    p = site.hub.popen("usb", "forward", "dev", "--busid", "1-2", "--server", f"127.0.0.1:{port}")
    assert b"is a usbipd there" in p.communicate(timeout=60)[1]
    for args in (["--busid", "../x"], ["--busid", "1-2", "--name", "A"], ["--busid", "1-2", "--match", "12"], []):
        site.hub.cli("usb", "forward", "dev", *args, rc=2)
    wait_for(site.free, 20, lambda: f"{site.told()} {site.devices()}")
    # Without a run it is attached and waits for a start that names it.
    p = site.forward(site.exporter(), "--name", "later")
    assert site.opened(p)["nodes"] == ""
    assert site.devices()["devices"][0]["state"] == "ready"
    site.hub.cli("run", "dev", "--device", "../x", "--", "true", rc=125)
    run = site.hub.cli("run", "dev", "--device", "later", "--detach", "--", "sleep", "600").decode().strip()
    while not (nodes := site.opened(p)["nodes"]):
        pass        # it is told as soon as it is leased, and again with its nodes
    assert nodes.split() == ["/dev/edgeward/bus/usb/003/002", "/dev/edgeward/ttyUSB7"]
    assert [(x["id"], x["handle"]) for x in site.devices()["devices"]] == [("later", run)]


@pytest.mark.parametrize("site", [{"usb": "yes"}, {"usb": "yes", "pool": 1}], indirect=True, ids=["pool", "one account"])
def test_who_would_see_a_device_of_anothers(site, request):
    """Nodes lie in a directory of the runner id: a device is lent to a run that is alone under its id, and stays so."""
    named = "account" in request.node.name
    why = "one account here; wait until it has ended" if named else "in a work directory of its own: run --workdir"

    def started(*where):
        return site.hub.cli("run", "dev", *where, "--detach", "--", "sleep", "600").decode().strip()

    def refused(*args):
        p = site.hub.popen("run", "dev", *args, "--", "true")
        err = p.communicate(timeout=30)[1].decode()
        assert p.returncode != 0 and "busy" in err, err
        return err

    one = started("--workdir", "usb/a")
    beside = started("--workdir", "other" if named else "usb/b")
    other = None if named else started("--workdir", "other")     # under an id of its own: does not matter
    assert f"workload {beside} would see it, too: " in (said := site.refused(site.exporter(), "--for", one)) and why in said, said
    # Nor does a start get one that waits.
    waits = site.forward(site.exporter(), "--name", "waits")
    site.opened(waits)
    assert "would see it, too: " in (said := refused("--workdir", "usb", "--device", "waits")) and why in said, said
    waits.send_signal(signal.SIGTERM)
    assert waits.wait(20) == 0
    site.hub.cli("signal", beside, "KILL")
    wait_for(lambda: beside not in [r["handle"] for r in site.hub.json("runs") if r["state"] == "running"], 20, "it ends")
    p = site.forward(site.exporter(), "--for", one, "--name", "stick")
    assert site.opened(p)["nodes"]
    # While it is lent, none starts there.
    assert f"it would see device stick of workload {one}: " in (said := refused("--workdir", "usb/b")) and why in said, said
    if not named:
        site.hub.cli("signal", other, "KILL")
        site.hub.cli("signal", started("--workdir", "third"), "KILL")
    p.send_signal(signal.SIGTERM)
    assert p.wait(20) == 0
    wait_for(lambda: site.devices()["devices"] == [], 20, site.devices)
    started("--workdir", "usb/b")
    if not named:   # nor do two that were given no directory share one
        bare = started()
        assert site.refused(site.exporter(), "--for", started()).rstrip().endswith(why)
        site.hub.cli("signal", bare, "KILL")


@pytest.mark.parametrize("site", [{"usb": "no"}], indirect=True)
def test_a_device_that_lends_nothing_says_why(site):
    assert "policy.conf:2: devices usb = no" in site.refused(site.exporter())
    d = site.devices()
    assert d["usb"] is False and "policy.conf:2: devices usb = no" in d["usb_issue"]
    caps = site.hub.json("devices")[0]["capabilities"]["devices"]
    assert caps["usb"] is False and "usb = no" in caps["usb_issue"] and caps["usb_ports_free"] == {"hs": 2, "ss": 1}
