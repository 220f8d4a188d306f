"""A world for workloads with a filtered network: a device in namespaces of its own, with a default route, and on the other side of its
cable servers on every kind of address a firewall has an opinion on. Needs root, nft and pasta.

w = World(); w.device(policy) is a Device there; w.reach(dev, "1.2.3.4:80", ...) asks a workload what it can connect to.
"""
import os
import socket
import struct
import threading

from lib.netns import Net
from lib.workdrv import Device

PUBLIC4, PUBLIC6 = "93.184.216.34", "2606:2800:220:1::1"
NEAR4, OTHER4, NEAR6, OTHER6 = "10.77.0.10", "10.77.0.11", "fd77::10", "fd77::11"
METADATA4, METADATA6, LINK4 = "169.254.169.254", "fd00:ec2::254", "169.254.7.7"
DEVICE4, DEVICE6 = "10.77.0.2", "fd77::2"
PORT, OTHER_PORT = 8000, 8001

CLIENT = r"""
import socket, sys, select
def one(t):
    host, port = t.rsplit(":", 1)
    host = host.strip("[]")
    try:
        fam, _, _, _, sa = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        s = socket.socket(fam, socket.SOCK_STREAM)
        s.settimeout(5)
        s.connect(sa)
        return s.recv(64).decode() or "closed"
    except OSError as e:
        return type(e).__name__
for t in sys.argv[1:]:
    print(t, one(t), flush=True)
"""


class World:
    def __init__(self):
        self.net = Net()
        self.stopping = False
        self.sockets, self.seen = [], []
        self.answers = {}           # what the resolver says: name -> address
        dev, hub = self.net.dev, self.net.hub
        for a in (NEAR4, OTHER4, METADATA4, LINK4, PUBLIC4):
            hub.run("ip", "addr", "add", f"{a}/32", "dev", "lo")
        for a in (NEAR6, OTHER6, METADATA6, PUBLIC6):
            hub.run("ip", "-6", "addr", "add", f"{a}/128", "dev", "lo", "nodad")
        for a in (NEAR6, OTHER6):   # on the device's own net, so the hub answers for them
            hub.run("ip", "-6", "neigh", "add", "proxy", a, "dev", "ew-hub")
        hub.sh("echo 1 > /proc/sys/net/ipv6/conf/all/proxy_ndp; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding; "
               "echo 1 > /proc/sys/net/ipv6/conf/ew-hub/proxy_ndp")
        dev.sh("ip route add default via 10.77.0.1; ip -6 route add default via fd77::1; "
               f"ip -6 route add {NEAR6} via fd77::1; ip -6 route add {OTHER6} via fd77::1; "
               f"mount -t tmpfs none /mnt; mknod -m 666 /mnt/tun c 10 200; mount --bind /mnt/tun /dev/net/tun")
        for port in (PORT, OTHER_PORT):
            self.serve(hub, port, "world")
            self.serve(dev, port, "device")
        self.resolver = hub.call(lambda: self.bound(socket.SOCK_DGRAM, 53))
        threading.Thread(target=self.answer_names, daemon=True).start()

    def bound(self, kind, port):
        s = socket.socket(socket.AF_INET6, kind)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(("::", port))
        self.sockets.append(s)
        return s

    def serve(self, ns, port, word):
        s = ns.call(lambda: self.bound(socket.SOCK_STREAM, port))
        s.listen(64)

        def body():
            while not self.stopping:
                try:
                    c, peer = s.accept()
                except OSError:
                    return
                self.seen.append((word, c.getsockname()[0].removeprefix("::ffff:"), port))
                c.sendall(word.encode())
                c.close()
        threading.Thread(target=body, daemon=True).start()

    def answer_names(self):
        while not self.stopping:
            try:
                q, peer, = self.resolver.recvfrom(512)
            except OSError:
                return
            labels, at = [], 12
            while q[at]:
                labels.append(q[at + 1:at + 1 + q[at]].decode())
                at += 1 + q[at]
            kind, = struct.unpack_from("!H", q, at + 1)
            addr = self.answers.get(".".join(labels))
            fam = socket.AF_INET6 if addr and ":" in addr else socket.AF_INET
            hit = addr and kind == (28 if fam == socket.AF_INET6 else 1)
            rest = b""
            if hit:
                raw = socket.inet_pton(fam, addr)
                rest = b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(raw)) + raw
            self.resolver.sendto(q[:2] + struct.pack("!HHHHH", 0x8180, 1, 1 if hit else 0, 0, 0) + q[12:at + 5] + rest, peer)

    def device(self, policy, **kw):
        return Device(policy=policy, enter=self.net.dev.enter, **kw)

    @staticmethod
    def reach(dev, *targets, **kw):
        """{target: "world", "device", or the kind of error}"""
        r = dev.run(["/usr/bin/python3", "-c", CLIENT, *targets], **kw)
        assert r.info["exit_code"] == 0, (r.info, bytes(r.data))
        return dict(line.rsplit(" ", 1) for line in r.data.decode().splitlines())

    def close(self):
        self.stopping = True
        for s in self.sockets:
            s.close()
        self.net.close()
