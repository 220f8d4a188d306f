"""A control socket with a scripted daemon behind it: what edgectl(8) is tested with. SEQPACKET, one thread a daemon."""
import os
import re
import socket
import struct
import threading

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
HDR = struct.Struct("=HBBIIi")
HELLO, CONNECTD, WORKERD, CONTROL = 0x0001, 1, 2, 6
STATUS, RECONNECT, ENROLL, WORKLOADS, WORKLOAD, LOGS, SIGNAL, DRAIN = (0x0300, 0x0310, 0x0312, 0x0320, 0x0322, 0x0324, 0x0326,
                                                                    0x0328)
ATTACH, ATTACH_END = 0x0360, 0x0366
INT64_MIN = -1 << 63


def _define(name):
    with open(os.path.join(REPO, "proto/ipc/ipc.h"), encoding="ascii") as f:
        return int(re.search(rf"#define {name}\s+(\d+)", f.read()).group(1))


def _version():
    with open(os.path.join(REPO, "meson.build"), encoding="utf-8") as f:
        return re.search(r"version: '([^']+)'", f.read()).group(1)


IPC_VERSION = _define("IPC_VERSION")
BUILD_ID = _version()

NET_FIELDS = [("pid", "i", 101), ("link", "I", 8), ("dialect", "I", 2), ("protocol", "I", 1), ("since", "q", 1_700_000_000_000_000_000),
              ("next_retry_ms", "q", -1), ("attempts", "Q", 0), ("sessions", "Q", 3), ("last_rx_ms", "q", 250), ("rtt_us", "q", 12345),
              ("rx_bytes", "Q", 5000), ("tx_bytes", "Q", 7 << 20), ("clock_offset_ms", "q", 12), ("clock_floor", "q", 1_690_000_000_000_000_000),
              ("clock_implausible", "B", 0), ("work_up", "B", 1), ("priv_up", "B", 1), ("insecure", "B", 0), ("uptime_s", "I", 777),
              ("priv_pid", "i", 99), ("reserved", "I", 0), ("build", "32s", BUILD_ID), ("priv_build", "32s", BUILD_ID), ("cause", "32s", ""),
              ("detail", "256s", ""), ("hub", "256s", "wss://hub.example/api/executors/connect"), ("peer", "64s", "192.0.2.1:443"),
              ("proxy", "128s", ""), ("agent_id", "64s", "ag_0123"), ("name", "64s", "box-1")]
WORK_FIELDS = [("pid", "i", 103), ("launcher_pid", "i", 102), ("slots", "I", 4), ("running", "I", 1), ("pending", "I", 0),
               ("undelivered", "I", 2), ("draining", "I", 0), ("uptime_s", "I", 60), ("started", "Q", 9), ("refused", "Q", 1),
               ("output_bytes", "Q", 3000), ("gap_bytes", "Q", 0), ("retained_bytes", "Q", 100), ("work_up", "B", 1), ("priv_up", "B", 1),
               ("launcher_up", "B", 1), ("uid_pool", "B", 1), ("cgroup", "B", 2), ("tree", "B", 1), ("sandbox_level", "B", 0), ("landlock_abi", "B", 2),
               ("disk_free", "Q", 10 << 30), ("inodes_free", "Q", 1000), ("priv_pid", "i", 99), ("sandbox", "H", 0x1df), ("sandbox_missing", "H", 0),
               ("build", "32s", BUILD_ID), ("launcher_build", "32s", BUILD_ID), ("cause", "32s", ""), ("detail", "256s", ""),
               ("work_root", "256s", "/var/lib/edgeward/work"), ("spool_bytes", "Q", 0), ("spool_max", "Q", 0)]
WORKLOAD_FIELDS = [("wid", "I", 1), ("state", "B", 2), ("outcome", "B", 0), ("flags", "B", 0), ("reserved", "B", 0), ("pid", "i", 4242),
                   ("exit_code", "i", 0), ("term_signal", "i", 0), ("gaps", "I", 0),
                   ("started_at", "q", 1_700_000_000_000_000_000), ("finished_at", "q", 0), ("produced", "Q", 2048), ("retained_from", "Q", 0),
                   ("cpu_ms", "Q", 0), ("mem_peak_kb", "Q", 0), ("io_read", "Q", 0), ("io_write", "Q", 0), ("log_xxh3", "16s", ""),
                   ("handle", "72s", "job-1"), ("error", "208s", "")]
ENROLL_FIELDS = [("url", 512), ("token", 512), ("pin", 256), ("name", 64)]


def pack(fields, changes):
    unknown = set(changes) - {f[0] for f in fields}
    assert not unknown, unknown
    values = [changes.get(n, v) for n, _, v in fields if v is not None]
    return struct.pack("=" + "".join(f for _, f, _ in fields), *[v.encode() if isinstance(v, str) else v for v in values])


def net_status(**changes):
    data = pack(NET_FIELDS, changes)
    assert len(data) == 1040
    return data


def work_status(**changes):
    data = pack(WORK_FIELDS, changes)
    assert len(data) == 728
    return data


def workload(**changes):
    data = pack(WORKLOAD_FIELDS, changes)
    assert len(data) == 384, len(data)
    return data


def record(kind, payload=b"", ident=0, status=0, version=None, nfds=0):
    return HDR.pack(kind, IPC_VERSION if version is None else version, nfds, len(payload), ident, status) + payload


def hello(role, build=BUILD_ID, version=None):
    return record(HELLO, struct.pack("=IiQ32s", role, os.getpid(), 0, build.encode()), version=version)


class FakeDaemon:
    """answers: request type -> bytes, (status, bytes), a list of whole records, or a function (payload, id) -> one of these.
    None as an answer: say nothing. Requests are kept in self.requests as (type, payload)."""

    def __init__(self, rundir, name, answers=None, greeting=None, mode=0o600):
        self.role = CONNECTD if name == "connectd" else WORKERD
        self.path = os.path.join(rundir, name + ".sock")
        self.answers = {STATUS: net_status() if name == "connectd" else work_status(), **(answers or {})}
        self.greeting = hello(self.role) if greeting is None else greeting
        self.requests, self.conns = [], []
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.bind(self.path)
        os.chmod(self.path, mode)
        self.sock.listen(8)
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self):
        while True:
            try:
                conn = self.sock.accept()[0]
            except OSError:
                return
            self.conns.append(conn)
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        try:
            first = conn.recv(8192)
            assert HDR.unpack_from(first)[0] == HELLO and struct.unpack_from("=I", first, 16)[0] == CONTROL
            if self.greeting:
                conn.send(self.greeting)
            while (data := conn.recv(8192)):
                kind, _, _, _, ident, _ = HDR.unpack_from(data)
                self.requests.append((kind, data[16:]))
                self._answer(conn, kind, ident, data[16:])
        except OSError:
            pass

    def _answer(self, conn, kind, ident, payload):
        answer = self.answers.get(kind, (-38, b""))
        if callable(answer):
            answer = answer(payload, ident)
        if answer is None:
            return
        if isinstance(answer, list):
            for rec in answer:
                conn.send(rec)
            return
        status, body = answer if isinstance(answer, tuple) else (0, answer)
        conn.send(record(kind + 1, body, ident, status))

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        for conn in self.conns:
            conn.close()
        if os.path.exists(self.path):
            os.unlink(self.path)
