"""Names and addresses as a device meets them: its own resolv.conf, a name server, dead and refusing addresses.

B13 (an address kept for ever, a dead family that costs a minute) and the resolver part of B10. Where the kinds can occur:
connectd/dns.c asks anew for each attempt and reads resolv.conf each time, connectd/race.c is the only one to connect.

Each test runs this file again inside new user, mount and network namespaces, where it is root and alone: SCENARIOS below.
"""
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("EDGEWARD_BUILD", os.path.join(REPO, "build")))
WSPROBE = os.path.join(BUILD, "tests/tools/wsprobe")


# ---- inside ----

class NameServer:
    def __init__(self, host="127.0.0.1"):
        self.records, self.rcode, self.questions = {}, 0, 0
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((host, 53))
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            data, peer = self.sock.recvfrom(4096)
            end = data.index(b"\0", 12) + 5
            name, labels, pos = data[12:end - 5], [], 12
            while data[pos]:
                labels.append(data[pos + 1:pos + 1 + data[pos]].decode())
                pos += data[pos] + 1
            qtype = struct.unpack(">H", data[pos + 1:pos + 3])[0]
            self.questions += 1
            found = []
            for addr in self.records.get(".".join(labels), []):
                v6 = ":" in addr
                if qtype == (28 if v6 else 1):
                    raw = socket.inet_pton(socket.AF_INET6 if v6 else socket.AF_INET, addr)
                    found.append(b"\xc0\x0c" + struct.pack(">HHIH", qtype, 1, 3600, len(raw)) + raw)
            rcode = self.rcode if name else 0
            self.sock.sendto(data[:2] + struct.pack(">HHHHH", 0x8580 | rcode, 1, len(found), 0, 0) + data[12:end] +
                             b"".join(found), peer)


class Hub:
    """Answers every request with 503: enough to see who was reached."""

    def __init__(self, host, port=8080, on_hit=None):
        self.hits, self.on_hit = 0, on_hit
        self.sock = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            conn, _ = self.sock.accept()
            self.hits += 1
            conn.recv(4096)
            if self.on_hit:
                self.on_hit()
            conn.sendall(b"HTTP/1.1 503 Later\r\n\r\n")
            conn.close()


def resolv_conf(text):
    with open("/etc/resolv.conf", "w") as f:
        f.write(text)


def run(cmd):
    subprocess.run(cmd, shell=True, check=True)


def probe(*args):
    start = time.monotonic()
    p = subprocess.run([WSPROBE, "-i", *args, "ws://hub.test:8080/"], stdout=subprocess.PIPE, text=True, timeout=100)
    ends = [json.loads(line) for line in p.stdout.splitlines() if '"ended"' in line]
    return ends, time.monotonic() - start


def make_world():
    """Refuses to touch anything but namespaces of its own. (Not called setup(): pytest would call that by itself.)"""
    for kind in ("user", "mnt", "net"):
        outer = os.environ.get(f"OUTER_NS_{kind}")
        if outer is None or outer == os.readlink(f"/proc/self/ns/{kind}"):
            sys.exit(f"not in a {kind} namespace of its own")
    run("ip link set lo up")
    run("ip addr add 10.0.0.1/32 dev lo; ip addr add 10.0.0.2/32 dev lo; ip addr add 10.0.0.66/32 dev lo")
    run("ip -6 addr add fd00::1/128 dev lo; ip -6 addr add fd00::66/128 dev lo")
    # A private /etc: the real one with another resolv.conf.
    run("mount -t tmpfs tmpfs /mnt && mkdir /mnt/etc && cp -r /etc/nsswitch.conf /etc/hosts /mnt/etc/ && mount --bind /mnt/etc /etc")
    # Addresses that swallow everything.
    run("nft add table inet t && nft 'add chain inet t in { type filter hook input priority 0; }' && "
        "nft add rule inet t in ip daddr 10.0.0.66 drop && nft add rule inet t in ip6 daddr fd00::66 drop")
    resolv_conf("nameserver 127.0.0.1\n")


def moved():
    """The record changes between two attempts of one process; its time to live is an hour."""
    ns = NameServer()
    ns.records["hub.test"] = ["10.0.0.1"]
    # Before the first answer is out, so that the second attempt already must ask again.
    first, second = Hub("10.0.0.1", on_hit=lambda: ns.records.update({"hub.test": ["10.0.0.2"]})), Hub("10.0.0.2")
    ends, _ = probe("-r", "30")
    assert all(e["code"] == "http-5xx" for e in ends), ends
    assert (first.hits, second.hits) == (1, len(ends) - 1), (first.hits, second.hits)


def dead_v6_refused_v4_good_v4():
    ns, hub = NameServer(), Hub("10.0.0.1")
    ns.records["hub.test"] = ["fd00::66", "10.0.0.2", "10.0.0.1"]
    ends, took = probe()
    assert ends[0]["code"] == "http-5xx" and hub.hits == 1
    assert took < 2, took


def fifty_records():
    """One round, each address once at most, within a time that is known."""
    ns = NameServer()
    ns.records["hub.test"] = ["10.0.0.2"] * 20 + ["fd00::1"] * 8
    ends, took = probe("-t", "10000")
    assert ends[0]["code"] == "refused" and took < 9, (ends, took)
    ns.records["hub.test"] = ["10.0.0.66"] * 25
    ends, took = probe("-t", "3000")
    assert ends[0]["code"] == "timeout" and ends[0]["stage"] == 1 and took < 5, (ends, took)


def bad_answers():
    ns, hub = NameServer(), Hub("10.0.0.1")
    ns.records["hub.test"] = ["10.0.0.1"]
    for rcode in (3, 2, 5):
        ns.rcode = rcode
        ns.records = {}
        ends, _ = probe("-t", "20000")
        assert ends[0]["code"] == "dns" and ends[0]["cause"] == 0, ends
    ns.rcode = 0
    ns.records["hub.test"] = ["10.0.0.1"]
    ends, took = probe()
    assert ends[0]["code"] == "http-5xx" and took < 2 and hub.hits == 1


def resolver_appears():
    """B10: no file, an empty one, a server that is not there; then a good file, picked up by the next attempt."""
    ns, hub = NameServer("127.0.0.2"), Hub("10.0.0.1")
    ns.records["hub.test"] = ["10.0.0.1"]
    os.unlink("/etc/resolv.conf")
    p = subprocess.Popen([WSPROBE, "-i", "-t", "1000", "-r", "9", "ws://hub.test:8080/"], stdout=subprocess.PIPE, text=True)
    ends = []
    for line in p.stdout:
        if '"ended"' not in line:
            continue
        ends.append(json.loads(line)["code"])
        if len(ends) == 2:
            resolv_conf("")
        elif len(ends) == 4:
            resolv_conf("nameserver 10.0.0.66\n")
        elif len(ends) == 6:
            # Replaced as system services do it: a new file under the old name.
            with open("/etc/new", "w") as f:
                f.write("nameserver 127.0.0.2\n")
            os.rename("/etc/new", "/etc/resolv.conf")
    assert p.wait(10) == 0
    assert all(e in ("dns", "timeout") for e in ends[:6]), ends
    # One attempt may have begun with the old file.
    assert ends[7:] == ["http-5xx"] * 2, ends


SCENARIOS = [moved, dead_v6_refused_v4_good_v4, fifty_records, bad_answers, resolver_appears]

if __name__ == "__main__":
    make_world()
    globals()[sys.argv[1]]()
    sys.exit(0)


# ---- outside ----

import pytest           # noqa: E402

UNSHARE = ["unshare", "-Urmn", "--propagation", "private"]
OUTER = {f"OUTER_NS_{kind}": os.readlink(f"/proc/self/ns/{kind}") for kind in ("user", "mnt", "net")}


def possible():
    return os.path.exists(WSPROBE) and subprocess.run([*UNSHARE, "true"], stderr=subprocess.DEVNULL).returncode == 0


@pytest.mark.skipif(not possible(), reason="skipped: wsprobe not built, or no user namespaces")
@pytest.mark.parametrize("scenario", [s.__name__ for s in SCENARIOS])
def test_b13_b10(scenario):
    p = subprocess.run([*UNSHARE, sys.executable, os.path.abspath(__file__), scenario], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=110, env={**os.environ, **OUTER})
    assert p.returncode == 0, p.stdout
