"""A TCP proxy that can hold, cut, delay and throttle, and a DNS server that answers what a test says."""
import asyncio
import random
import socket
import struct
import threading
import time

from lib.loopthread import LOOP


class Proxy:
    """Forwards 127.0.0.1:port to the target. All switches may be turned at any time."""

    def __init__(self, target_port, target="127.0.0.1", host="127.0.0.1", port=0, netns=None):
        self.target, self.host, self.port = (target, target_port), host, port
        self.hold = set()           # "up", "down": bytes of that direction are read and kept, nothing is closed
        self.refuse = False         # close at once
        self.delay = 0.0            # seconds each way
        self.rate = 0               # bytes per second and direction, 0 = no limit
        self.loss = 0.0             # share of packets that come a round trip later and hold up what follows, as with TCP
        self.rng = random.Random(12)
        self.linger = 0.0           # how long the hub's side stays open after the device's has gone
        self.accepts = []
        self.pairs = []
        self.up_bytes = self.down_bytes = 0
        self.netns = netns
        make = self._socket if netns is None else lambda: netns.call(self._socket)
        self.sock = make()
        self.port = self.sock.getsockname()[1]
        LOOP.call(self._start)

    def _socket(self):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((self.host, self.port))
        sock.listen(64)
        sock.setblocking(False)
        return sock

    def _start(self):
        self.task = LOOP.spawn(self._accept())

    async def _accept(self):
        while True:
            sock, _ = await LOOP.loop.sock_accept(self.sock)
            self.accepts.append(time.monotonic())
            if self.refuse:
                sock.close()
                continue
            LOOP.spawn(self._pair(sock))

    async def _pair(self, down):
        down.setblocking(False)
        up = socket.socket()
        up.setblocking(False)
        pair = (down, up)
        self.pairs.append(pair)
        try:
            await LOOP.loop.sock_connect(up, self.target)
            tasks = [LOOP.spawn(self._pump(down, up, "up")), LOOP.spawn(self._pump(up, down, "down"))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self.linger:
                await asyncio.sleep(self.linger)
            # The tasks first: no reader may outlive its descriptor, whose number is soon another connection's.
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        except OSError:
            pass
        finally:
            down.close()
            up.close()
            if pair in self.pairs:
                self.pairs.remove(pair)

    async def _pump(self, src, dst, way):
        """A wire: what was read is on its way, in order, while more is read."""
        wire = asyncio.Queue(16)
        sender = LOOP.spawn(self._deliver(wire, dst, way))
        try:
            data = b"x"
            while data:
                data = await LOOP.loop.sock_recv(src, 1400 if self.loss else 65536)
                late = 3 if self.rng.random() < self.loss else 1
                await wire.put((time.monotonic() + self.delay * late, data))
            await sender
        except OSError:
            return
        finally:
            sender.cancel()
            await asyncio.wait([sender])

    async def _deliver(self, wire, dst, way):
        try:
            while True:
                when, data = await wire.get()
                if not data:
                    return
                while way in self.hold:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(max(0.0, when - time.monotonic()))
                if self.rate:
                    await asyncio.sleep(len(data) / self.rate)
                if way == "up":
                    self.up_bytes += len(data)
                else:
                    self.down_bytes += len(data)
                await LOOP.loop.sock_sendall(dst, data)
        except OSError:
            return

    def cut(self, rst=True):
        """Ends every connection now."""
        def end():
            for down, up in list(self.pairs):
                for sock in (down, up):
                    try:
                        if rst:
                            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        sock.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
        LOOP.call(end)

    def close(self):
        async def end():
            self.task.cancel()
            await asyncio.wait([self.task])
            self.sock.close()
        self.cut()
        LOOP.run(end())


class Dns:
    """Answers A and AAAA from a table: records[name] = list of addresses. mode: "ok", "nxdomain", "servfail", "silent"."""

    def __init__(self, host, netns=None, port=53, ttl=3600):
        self.records, self.mode, self.ttl = {}, "ok", ttl
        self.queries = []           # (time, name, type)
        self.stop = threading.Event()

        def make():
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.bind((host, port))
            tcp = socket.socket()
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tcp.bind((host, port))
            tcp.listen(8)
            return udp, tcp
        self.udp, self.tcp = make() if netns is None else netns.call(make)
        self.udp.settimeout(0.2)
        self.tcp.settimeout(0.2)
        self.threads = [threading.Thread(target=t, daemon=True) for t in (self._udp, self._tcp)]
        for t in self.threads:
            t.start()

    def _udp(self):
        while not self.stop.is_set():
            try:
                data, peer = self.udp.recvfrom(4096)
            except (socket.timeout, OSError):
                continue
            answer = self._answer(data)
            if answer is None:
                continue
            if len(answer) > 512:
                answer = answer[:2] + struct.pack("!H", 0x8380) + answer[4:6] + b"\0\0\0\0\0\0" + self._question(data)
            self.udp.sendto(answer, peer)

    def _tcp(self):
        while not self.stop.is_set():
            try:
                sock, _ = self.tcp.accept()
                sock.settimeout(2)
                n = struct.unpack("!H", sock.recv(2))[0]
                answer = self._answer(sock.recv(n))
                if answer is not None:
                    sock.sendall(struct.pack("!H", len(answer)) + answer)
                sock.close()
            except (socket.timeout, OSError, struct.error):
                continue

    @staticmethod
    def _question(data):
        pos = 12
        while data[pos]:
            pos += data[pos] + 1
        return data[12:pos + 5]

    def _answer(self, data):
        question = self._question(data)
        labels, pos = [], 0
        while question[pos]:
            labels.append(question[pos + 1:pos + 1 + question[pos]].decode())
            pos += question[pos] + 1
        name, qtype = ".".join(labels).lower(), struct.unpack("!H", question[pos + 1:pos + 3])[0]
        self.queries.append((time.monotonic(), name, qtype))
        if self.mode == "silent":
            return None
        rcode = {"ok": 0, "nxdomain": 3, "servfail": 2}[self.mode]
        found = []
        if self.mode == "ok":
            if name not in self.records:
                rcode = 3
            for addr in self.records.get(name, []):
                family = socket.AF_INET6 if ":" in addr else socket.AF_INET
                if qtype == (28 if ":" in addr else 1):
                    found.append(socket.inet_pton(family, addr))
        body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", qtype, 1, self.ttl, len(a)) + a for a in found)
        return data[:2] + struct.pack("!HHHHH", 0x8580 | rcode, 1, len(found), 0, 0) + question + body

    def close(self):
        self.stop.set()
        for t in self.threads:
            t.join()
        self.udp.close()
        self.tcp.close()
