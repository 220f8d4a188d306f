"""P12 and P13: what a forwarded device and a forwarded segment cost, beside programs that carry the same bytes.

Ours is the whole chain: edgehub with its command line, connectd, workerd, privhelper. For USB tests/tools/fakepriv.py stands in for privhelper and
the kernel, as here is no vhci_hcd; the client of relay.c is behind the socket that workerd hands out, so not one hop is missing.
"""
import contextlib
import json
import os
import shutil
import subprocess
import time

from . import machine, report
from .agents import HERE, SOURCE, Edgeward, Sshd, free_port, node_ws
from .proc import BenchError, figures, run, stop

VHCI = "hub port sta spd dev      sockfd local_busid\n" + "".join(f"hs  {n:04d} 004 000 00000000 000000 0-0\n" for n in range(8))


class Hub:
    """edgehub beside an agent of ours; stands where the sink stands in other goals."""

    def __init__(self, out, build):
        self.dir, self.exe = out / "hub-lent", str(build / "hub/edgehub")
        shutil.rmtree(self.dir, ignore_errors=True)
        self.process = subprocess.Popen([self.exe, "serve", "-d", str(self.dir), "-l", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.DEVNULL)
        said = dict(self.process.stdout.readline().split(None, 1) for _ in range(3))
        self.port, self.ca = int(said["listening"].strip().split(":")[2].split("/")[0]), said["ca"].strip()

    def argv(self, *args):
        return [self.exe, "-d", str(self.dir), *map(str, args)]

    def json(self, *args):
        return json.loads(subprocess.run(self.argv("-j", *args), stdout=subprocess.PIPE, check=True, timeout=60).stdout)

    def event(self, what, timeout):
        until = time.monotonic() + timeout
        while [d["state"] for d in self.json("devices")] != [what]:
            if time.monotonic() > until:
                raise BenchError("the device does not connect")
            time.sleep(0.05)
        return [what, time.monotonic()]

    def token(self):
        return subprocess.run(self.argv("token", "create", "--name", "bench"), stdout=subprocess.PIPE, check=True, text=True).stdout

    def stop(self):
        stop(self.process)
        self.process.stdout.close()


class Chain(Edgeward):
    """Our agent, enrolled at an edgehub. build is where its executables are taken from."""

    def __init__(self, out, build, policy, tag, prefix=()):
        hub = Hub(out, build)
        self.token, self.ca = hub.token(), hub.ca
        super().__init__(out, out / "cert", build, hub=("localhost", hub), prefix=prefix, tag=tag, policy=policy)

    def start(self):
        (self.dir / "token").write_text(self.token)
        shutil.copy(self.ca, self.dir / "ca.pem")
        return super().start()


class Ours:
    """The chain of a USB device, with the client where the kernel would be."""
    name = "edgeward"

    def __init__(self, out, build, server):
        self.server, self.relay = server, out / "bin/relay"
        tree = out / "build-lent"
        shutil.rmtree(tree, ignore_errors=True)
        for name in ("connectd/connectd", "workerd/workerd", "workerd/launcher/launcher", "hub/edgehub", "packaging/run-foreground"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(build / name, tree / name)
        (tree / "privhelper").mkdir()
        fake = tree / "privhelper/privhelper"
        fake.write_text(f'#!/bin/sh\nFAKEPRIV_KERNEL="{out}/kernel" exec {SOURCE}/tests/tools/fakepriv.py "$@"\n')
        fake.chmod(0o755)
        platform = out / "platform/vhci_hcd.0"
        platform.mkdir(parents=True, exist_ok=True)
        (platform / "status").write_text(VHCI)
        self.kernel, self.result = out / "kernel", out / "kernel.out"
        self.chain = Chain(tree.parent, tree, "[devices]\nusb = yes\n", "-usb", [
            "unshare", "-m", "sh", "-c", f'mount --make-rprivate / && mount --bind {platform.parent} /sys/devices/platform && exec "$@"', "sh"])

    def measure(self, pings, mib):
        self.result.unlink(missing_ok=True)
        self.kernel.write_text(f"#!/bin/sh\n{self.relay} client fd {pings} {mib} >{self.result}.new && mv {self.result}.new {self.result}\n")
        self.kernel.chmod(0o755)
        hub = self.chain.sink
        forward = subprocess.Popen(hub.argv("usb", "forward", "bench", "--busid", "1-2", "--server", f"127.0.0.1:{self.server}", "--retry", "0"),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 120
        while not self.result.exists():
            if forward.poll() is not None or time.monotonic() > until:
                stop(forward)
                raise BenchError(f"the forwarded device ended: {forward.stderr.read().strip()}")
            time.sleep(0.02)
        stop(forward)
        forward.stderr.close()
        return figures(self.result.read_text())

    def close(self):
        self.chain.close()


class Joined:
    """Other programs: two ends, and the port the client dials."""

    def __init__(self, name, out, ends, port):
        self.name, self.relay, self.ends, self.port = name, out / "bin/relay", ends, port

    def measure(self, pings, mib):
        return figures(run(self.relay, "client", self.port, pings, mib))

    def close(self):
        for end in self.ends:
            stop(end)


def wait_port(port):
    import socket
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise BenchError(f"nothing listens at port {port}")


def direct(out, cert, server):
    return Joined("direct", out, [], server)


def stunnel(out, cert, server):
    exe = shutil.which("stunnel4", path="/usr/bin:/usr/sbin") or shutil.which("stunnel")
    if not exe:
        raise BenchError("skipped: no stunnel4")
    ports, ends = [free_port(), free_port()], []
    common = "foreground = yes\npid =\ndebug = 3\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n[x]\n"
    for i, text in enumerate((f"accept = 127.0.0.1:{ports[0]}\nconnect = 127.0.0.1:{server}\ncert = {cert}/hub.pem\nkey = {cert}/hub.key\n",
                              f"client = yes\naccept = 127.0.0.1:{ports[1]}\nconnect = 127.0.0.1:{ports[0]}\nCAfile = {cert}/ca.pem\nverifyChain = yes\n")):
        conf = out / f"stunnel{i}.conf"
        conf.write_text(common + text)
        ends.append(subprocess.Popen([exe, str(conf)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
        wait_port(ports[i])
    return Joined("stunnel", out, ends, ports[1])


def ssh(out, cert, server):
    sshd, port = Sshd(out, cert), free_port()
    run(*sshd.ssh[:-1], "-O", "forward", "-L", f"127.0.0.1:{port}:127.0.0.1:{server}", sshd.ssh[-1], stdin=subprocess.DEVNULL)
    wait_port(port)
    joined = Joined("ssh -L", out, [], port)
    joined.close = sshd.close
    return joined


def node(out, cert, server):
    ws, ends, port = node_ws(out), [], server
    for role, more in (("edge", (cert / "hub.pem", cert / "hub.key")), ("cloud", (cert / "ca.pem",))):
        file = out / f"relay-{role}.port"
        file.unlink(missing_ok=True)
        ends.append(subprocess.Popen(["node", str(HERE / "peers/relay.js"), role, str(file), str(port), *map(str, more)],
                                     env=dict(os.environ, BENCH_WS=str(ws))))
        for _ in range(400):
            if file.exists():
                break
            time.sleep(0.05)
        port = int(file.read_text())
    return Joined("node", out, ends, port)


@contextlib.contextmanager
def relay_server(out):
    server = subprocess.Popen([str(out / "bin/relay"), "server"], stdout=subprocess.PIPE, text=True)
    try:
        yield int(server.stdout.readline().split()[1])
    finally:
        stop(server)
        server.stdout.close()


def interleaved(subjects, measure, turns, quiet_s, goal, results, say, work):
    for turn in range(1, turns + 1):
        for s in subjects:
            machine.wait_quiet(quiet_s)
            results.add(turn, measure, s.name, work(s))
    for s in subjects:
        say(f"{goal} {s.name}: " + ", ".join(f"{m} {report.number(results.median(measure, s.name, m))}" for _, n, m in results.samples
                                             if n == s.name and _ == measure))


def relay(out, cert, build, quick, turns, quiet_s, results, say):
    """P12: a stream with small round trips, then as many bytes as go."""
    with relay_server(out) as server:
        subjects = []
        try:
            subjects.append(Ours(out, build, server))
            for make in (direct, stunnel, ssh, node):
                try:
                    subjects.append(make(out, cert, server))
                except BenchError as e:
                    say(f"P12 {make.__name__}: {e}")
            pings, mib = (1000, 64) if quick else (5000, 512)
            interleaved(subjects, "relay", turns, quiet_s, "P12", results, say, lambda s: s.measure(pings, mib))
        finally:
            for s in subjects:
                s.close()

    def row(what, metric, other, gate, stretch, more):
        return report.row("P12", what, results.median("relay", "edgeward", metric), other, results.median("relay", other, metric),
                          results.ratio("relay", "edgeward", other, metric), gate, stretch, more)

    disk = [row("read as from a USB disk, MB/s", "disk_MBps", other, None, None, True) for other in ("direct", "stunnel")]
    return [*disk, row("byte relay, round trip us", "rtt_us", "stunnel", 1.15, 1.0, False),
            row("byte relay, MB/s", "MBps", "stunnel", 1.0, 1.2, True), row("byte relay, MB/s", "MBps", "ssh -L", 0.8, 1.0, True), row("byte relay, MB/s", "MBps", "node", 1.5, 2, True)]


# ---- P13 ----

class Side:
    """A network namespace of the operator's, or of an openvpn end."""

    def __init__(self, name):
        self.name = name
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
        run("ip", "netns", "add", name)
        self.ip("link", "set", "lo", "up")
        self.enter = ["nsenter", f"--net=/run/netns/{name}"]

    def ip(self, *args):
        run("ip", "-n", self.name, *args)

    def up(self, tap, address):
        self.ip("addr", "add", address, "dev", tap)
        self.ip("link", "set", tap, "up")

    def remove(self):
        subprocess.run(["ip", "netns", "del", self.name], stderr=subprocess.DEVNULL, check=False)


class Segment:
    """Ours: an interface in a run, joined to one in a namespace."""

    def __init__(self, out, chain, side, offload):
        self.name, self.relay, self.chain, self.side = "edgeward gso" if offload else "edgeward", out / "bin/relay", chain, side
        hub, self.index = chain.sink, 2 if offload else 1
        self.run = subprocess.run(hub.argv("run", "bench", "--workdir", f"l2-{self.index}", "--detach", "--", self.relay, "server", "0.0.0.0", "7000"),
                                  stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
        until = time.monotonic() + 30
        while b"listening" not in subprocess.run(hub.argv("logs", self.run), stdout=subprocess.PIPE, check=True).stdout:
            if time.monotonic() > until:
                raise BenchError("the run does not begin")
            time.sleep(0.1)
        self.forward = subprocess.Popen([*side.enter, *hub.argv("l2", "forward", "bench", "--for", self.run, "--tap", f"tap{self.index}",
                                        "--address", f"10.78.{self.index}.2/24"), *(["--offload"] if offload else [])], stdout=subprocess.PIPE)
        if not self.forward.stdout.readline():
            raise BenchError("the segment ended")
        side.up(f"tap{self.index}", f"10.78.{self.index}.1/24")

    def pids(self):
        return [self.chain.sink.process.pid, self.forward.pid, *self.chain.pids()]

    def argv(self, mib):
        return [*self.side.enter, self.relay, "client", f"10.78.{self.index}.2:7000", "200", mib]

    def close(self):
        stop(self.forward)
        self.forward.stdout.close()


class Floor:
    """The kernel alone between two interfaces: tapfloor.c, which says what it leaves out."""

    def __init__(self, out, side, offload):
        self.name, self.relay, self.side, self.far = "floor gso" if offload else "floor", out / "bin/relay", side, Side(f"ewbench-f{int(offload)}")
        self.net = f"10.79.{int(offload)}"
        self.process = subprocess.Popen([str(out / "bin/tapfloor"), side.name, f"flo{int(offload)}", self.far.name, "flo0", "offload" if offload else "plain"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.both = [int(p) for p in self.process.stdout.readline().split()]
        side.up(f"flo{int(offload)}", f"{self.net}.1/24")
        self.far.up("flo0", f"{self.net}.2/24")
        self.server = subprocess.Popen([*self.far.enter, str(self.relay), "server", "0.0.0.0", "7000"], stdout=subprocess.PIPE)
        self.server.stdout.readline()

    def pids(self):
        return self.both

    def argv(self, mib):
        return [*self.side.enter, self.relay, "client", f"{self.net}.2:7000", "200", mib]

    def close(self):
        for end in (self.process, self.server):
            stop(end)
            end.stdout.close()
        self.process.stdin.close()
        self.far.remove()


class Openvpn:
    """tap over TCP on loopback, AES-256-GCM, its interfaces moved into namespaces of their own."""
    name = "openvpn"

    def __init__(self, out, cert, side):
        exe = shutil.which("openvpn", path="/usr/sbin:/usr/bin")
        if not exe:
            raise BenchError("skipped: no openvpn")
        self.relay, self.side, self.far = out / "bin/relay", side, Side("ewbench-vpn")
        pair = [str(out / "openvpn.pem"), str(out / "openvpn.key")]     # of both ends, and its own root
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=bench", "-out",
            pair[0], "-keyout", pair[1], stderr=subprocess.DEVNULL)
        port, self.ends = free_port(), []
        common = ["--ca", pair[0], "--cert", *pair[:1], "--key", pair[1], "--data-ciphers", "AES-256-GCM", "--cipher", "AES-256-GCM", "--verb", "1",
                  "--dev-type", "tap", "--socket-flags", "TCP_NODELAY"]
        for dev, more in (("ewvpn0", ["--tls-server", "--dh", "none", "--proto", "tcp-server", "--local", "127.0.0.1", "--port", str(port)]),
                          ("ewvpn1", ["--tls-client", "--proto", "tcp-client", "--remote", "127.0.0.1", str(port), "--nobind"])):
            with open(out / f"{dev}.log", "w") as log:
                self.ends.append(subprocess.Popen([exe, "--dev", dev, *common, *more], stdout=log))
        for dev, where, address in (("ewvpn0", self.far, "10.78.9.2/24"), ("ewvpn1", side, "10.78.9.1/24")):
            for _ in range(100):
                if os.path.exists(f"/sys/class/net/{dev}"):
                    break
                time.sleep(0.1)
            run("ip", "link", "set", dev, "netns", where.name)
            where.up(dev, address)
        self.server = subprocess.Popen([*self.far.enter, str(self.relay), "server", "0.0.0.0", "7000"], stdout=subprocess.PIPE)
        self.server.stdout.readline()
        until = time.monotonic() + 30
        while not self.answers():
            if time.monotonic() > until:
                self.close()
                raise BenchError("openvpn: no packet comes through")

    def answers(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return subprocess.run([*map(str, self.argv(0))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=2, check=False).returncode == 0
        return False

    def pids(self):
        return [e.pid for e in self.ends]

    def argv(self, mib):
        return [*self.side.enter, self.relay, "client", "10.78.9.2:7000", "200", mib]

    def close(self):
        for end in [*self.ends, self.server]:
            stop(end)
        self.server.stdout.close()
        self.far.remove()


def segment(out, cert, build, quick, turns, quiet_s, results, say):
    """P13: one TCP connection between two namespaces, MTU 1500."""
    subjects, chain, side = [], None, Side("ewbench-l2")
    mib = 32 if quick else 256

    def work(s):
        before = machine.cpu_seconds(s.pids())
        got = figures(run(*s.argv(mib)))
        got["cpu_s_per_GiB"] = (machine.cpu_seconds(s.pids()) - before) / (mib / 1024)
        return got
    try:
        chain = Chain(out, build, "[work]\nnetwork = none\n[devices]\nl2 = yes\n", "-l2")
        subjects += [Segment(out, chain, side, False), Segment(out, chain, side, True), Floor(out, side, False), Floor(out, side, True)]
        try:
            subjects.append(Openvpn(out, cert, side))
        except BenchError as e:
            say(f"P13 openvpn: {e}")
        interleaved(subjects, "segment", turns, quiet_s, "P13", results, say, work)
    finally:
        for s in subjects:
            s.close()
        if chain is not None:
            chain.close()
        side.remove()

    def row(what, name, metric, gate, stretch, more):
        return report.row("P13", what, results.median("segment", name, metric), "openvpn", results.median("segment", "openvpn", metric),
                          results.ratio("segment", name, "openvpn", metric), gate, stretch, more)
    def alone(what, name, metric):
        return report.Row("P13", what, report.number(results.median("segment", name, metric)), "openvpn",
                          report.number(results.median("segment", "openvpn", metric)), report.number(results.ratio("segment", name, "openvpn", metric)),
                          "-", "-", "kernel alone")
    return [alone("two interfaces and TCP alone, CPU s/GiB", "floor", "cpu_s_per_GiB"),
            alone("two interfaces and TCP alone, MB/s", "floor", "MBps"),
            alone("the same with offload, CPU s/GiB", "floor gso", "cpu_s_per_GiB"),
            row("segment, TCP MB/s", "edgeward", "MBps", 3, 4, True), row("segment, CPU s/GiB", "edgeward", "cpu_s_per_GiB", 0.35, 0.25, False),
            row("with offload, TCP MB/s", "edgeward gso", "MBps", 7, 10, True),
            row("with offload, CPU s/GiB", "edgeward gso", "cpu_s_per_GiB", 0.15, 0.1, False)]
