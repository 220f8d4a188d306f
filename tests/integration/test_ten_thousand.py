"""Ten thousand streams of every kind, opened and closed over one link, leave nothing at either end (B17, B18).

Where it could go wrong: proto/hub/mux.c and hub/streams.c (a channel that is not forgotten), connectd/svcstream.c, filestream.c, attach.c, workerd/carriers.c and
attach.c, the launcher's list, hub/pipe.c, file.c and attach.c. Each kind is ended in order, refused, and broken off by a client that is killed.
A service's streams are cheap and are the most; EDGEWARD_SOAK=1 opens ten thousand of each kind. Of the connections to edgehub proxy 3 in 23 ask for
nothing and take no stream.
"""
import concurrent.futures
import itertools
import json
import os
import socket
import struct
import subprocess
import time

import pytest

from lib import proc
from lib.edgehub import ENV
from lib.proc import wait_for
from lib.services import Service, get

SOAK = os.environ.get("EDGEWARD_SOAK") == "1"
D = "edge-test"
COUNT = {"http": 11500, "file": 10000, "attach": 10000} if SOAK else {"http": 11180, "file": 140, "attach": 140}
FIRST = {"http": 400, "file": 16, "attach": 16}


class Kinds:
    def __init__(self, ehub, dev, service, tmp):
        self.ehub, self.tmp, self.service = ehub, tmp, service
        self.pids = {name: dev.pid(name) for name in ("connectd", "workerd", "launcher", "privhelper")}
        self.pids["hub"] = ehub.proc.pid
        p = ehub.call("run", D, "--workdir", "w", "--detach", "--", "sh", "-c", "ln -s /etc/passwd out; echo x >x; truncate -s 900k big; echo y >>big; sleep 6000")
        self.handle = p.stdout.decode().strip()
        wait_for(lambda: os.path.exists(os.path.join(dev.root, "w/big")), 20, "it runs")
        # It says of each stream that was broken off that it was; nobody reads that here.
        self.proxy = subprocess.Popen(ehub.argv("-j", "proxy", D, "--to", str(service.port)), env=ENV, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        ehub.clients.append(self.proxy)
        self.port = int(json.loads(self.proxy.stdout.readline())["listen"].rsplit(":", 1)[1])
        self.number = itertools.count()

    def client(self, rc, *args):
        """edgehub with these arguments ends with this code; None: it is killed."""
        p = subprocess.Popen(self.ehub.argv(*args), env=ENV, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if rc is None:
            time.sleep(0.15)
            p.kill()
        _, err = p.communicate(timeout=60)
        assert rc is None or p.returncode == rc, (args, p.returncode, err)

    def http(self, i):
        own = b"Host: 127.0.0.1:%d\r\n" % self.port
        ways = [b"GET /hello HTTP/1.1\r\n" + own + b"Connection: close\r\n\r\n", b"GET /big?300000 HTTP/1.1\r\n" + own + b"\r\n",
                b"GET /switch HTTP/1.1\r\n" + own + b"Connection: Upgrade\r\nUpgrade: echo\r\n\r\n", b"GET /hello HTTP/1.1\r\n" + own + b"\r\n",
                b"POST /echo HTTP/1.1\r\n" + own + b"Content-Length: 10\r\n\r\n123"]
        nothing = [b"bad\n", b"GET", b""]      # the device hears nothing of these
        way = i % 23
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as s:
            s.sendall((ways * 4 + nothing)[way])
            if i % 3 == 0 and way < 20 and way % 5 < 4:
                assert s.recv(65536), i
            if i % 2 == 0:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def file(self, i):
        there, here = f"{D}:{self.handle}/", str(self.tmp / f"f{next(self.number)}")
        self.client(*[(0, "cp", there + "x", here), (0, "cp", str(self.tmp / "own"), there + f"own{i}"), (1, "cp", there + "out", here),
                      (1, "cp", there + "none", here), (None, "cp", there + "big", here)][i % 5])

    def attach(self, i):
        self.client(*[(3, "attach", self.handle, "-T", "--", "sh", "-c", "exit 3"), (0, "attach", self.handle, "-T", "--", "cat"),
                      (255, "attach", self.handle, "-T", "--", "/no/such"), (255, "attach", "nobody", "-T", "--", "true"),
                      (None, "attach", self.handle, "-T", "--", "cat")][i % 5])

    def open(self, counts):
        """All kinds at the same time."""
        with concurrent.futures.ThreadPoolExecutor(9) as http, concurrent.futures.ThreadPoolExecutor(3) as file, \
                concurrent.futures.ThreadPoolExecutor(3) as attach:
            each = [pool.submit(getattr(self, kind), i) for kind, pool in (("http", http), ("file", file), ("attach", attach)) for i in range(counts[kind])]
            for one in each:
                one.result(7200)
        for name in os.listdir(self.tmp):
            if name != "own":
                os.unlink(self.tmp / name)
        wait_for(lambda: get(self.port, "/hello")[2] == b"hello", 30)
        wait_for(lambda: not self.service.open, 40, lambda: f"{len(self.service.open)} connections to the service are left")
        wait_for(lambda: not self.holders(), 20, lambda: f"processes {self.holders()} are left")

    def holders(self):
        """Those that hold a session or carry a file."""
        return [p for p in proc.descendants(self.pids["launcher"]) if (s := proc.stat(p)) and s[0] in ("attach", "carrier", "cat")]

    def fds(self):
        return {name: len(proc.settled_fds(pid)) for name, pid in self.pids.items()}

    def memory(self):
        return {name: proc.pss_kb(pid) for name, pid in self.pids.items()}


@pytest.mark.timeout(7200 if SOAK else 150)
def test_ten_thousand_leave_nothing(ehub, ehub_agent, tmp_path):
    service = Service()
    dev = ehub_agent(policy={"work": {"attach": "yes", "files": "write"}, "services": {"allow": f"127.0.0.1:{service.port}"},
                             "attach": {"keep": "1s", "sessions": 32, "sessions-per-workload": 32}})
    (tmp_path / "own").write_bytes(b"own" * 10000)
    try:
        k = Kinds(ehub, dev, service, tmp_path)
        k.open(FIRST)
        fds, memory, processes = k.fds(), k.memory(), len(proc.descendants(dev.top.pid))
        k.open(COUNT)
        # workerd keeps the records of as many carriers as there were at a time, two descriptors each, for the next ones.
        wait_for(lambda: all(n - fds[name] <= (6 if name == "workerd" else 0) for name, n in k.fds().items()), 30, lambda: f"{fds}, now {k.fds()}")
        assert len(proc.descendants(dev.top.pid)) == processes
        grown = {name: kb - memory[name] for name, kb in k.memory().items()}
        assert all(kb < (2048 if not proc.sanitized(k.pids[name]) else 16384) for name, kb in grown.items()), grown
        k.proxy.terminate()
        assert k.proxy.wait(20) == 0
    finally:
        service.close()
