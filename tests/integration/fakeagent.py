"""A scripted agent for tests of edgehub: says exactly what a test wants, right or wrong, and remembers what came back."""
import json
import socket
import struct
import time

from lib.stubagent import StubAgent
from lib.xxh3 import xxh3_128

from wsproto.events import BytesMessage, TextMessage

DATA, WINDOW, END, GAP, RESET = 1, 2, 3, 4, 5
NOW = "2026-01-01T00:00:00.5Z"


class FakeAgent(StubAgent):
    """One connection. enroll() or connect() make one; `again()` makes the next with the same identity."""

    def __init__(self, hub, bearer, agent_id="", edgeward=True, origin=None):
        self.acks, self.resets, self.window, self.errors = {}, {}, {}, []
        self.hub, self.credential = hub, bearer
        super().__init__(hub.url, hub.ca, bearer, agent_id=agent_id, edgeward=edgeward, origin=origin)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def enroll(cls, hub, edgeward=True, name="dev"):
        agent = cls(hub, hub.token("--name", name), edgeward=edgeward)
        welcome = agent.hello()
        agent.credential = welcome["credential"]
        return agent

    def again(self, resume=(), edgeward=None, hello=True):
        new = type(self)(self.hub, self.credential, self.agent_id, self.edgeward if edgeward is None else edgeward)
        new.welcome = new.hello(resume) if hello else None
        return new

    def _event(self, event):
        if isinstance(event, BytesMessage):
            kind, _, _, channel, offset = struct.unpack("!BBHIQ", bytes(event.data[:16]))
            if kind == WINDOW:
                self.window[channel] = offset
            elif kind == RESET:
                self.resets[channel] = struct.unpack("!I", bytes(event.data[16:20]))[0]
            return
        before = len(self.inbox)
        super()._event(event)
        for frame in self.inbox[before:]:
            if frame["type"] == "log_ack":
                self.acks[frame["handle"]] = frame["payload"]["offset"]
            elif frame["type"] == "error":
                self.errors.append(frame["payload"]["code"])

    def until(self, done, timeout=10):
        self._pump(lambda: done() or self.closed, timeout)
        assert done(), f"closed {self.closed}"

    def gone(self, timeout=10):
        """Waits for the end of the connection: (code, reason)."""
        self._pump(lambda: self.closed, timeout)
        return self.closed

    def cut(self):
        """The link is gone without a word."""
        self.sock.close()

    def raw(self, data):
        self._out(self.ws.send(BytesMessage(data) if isinstance(data, bytes) else TextMessage(data)))

    # ---- a workload ----

    def take_start(self, channel=2, answer=True, pid=4711):
        """The next start: -> its payload, with the handle; answered and its log opened unless told otherwise."""
        frame = self.expect("start")
        handle = frame["handle"]
        if answer:
            if self.edgeward:
                self.send("log_open", {"handle": handle, "channel": channel}, handle)
            payload = {"handle_id": handle, "pid": pid, "started_at": NOW}
            if self.edgeward:
                payload["log_channel"] = channel
            self.send("started", payload, handle, frame["id"])
        self.start_id = frame["id"]
        return frame["payload"]

    def refuse(self, handle, error, code=None):
        payload = {"handle_id": handle, "started_at": "0001-01-01T00:00:00Z", "error": error}
        if code:
            payload["code"] = code
        self.send("started", payload, handle, self.start_id)

    def chunk(self, handle, offset, text):
        self.send("log_chunk", {"stream": "combined", "offset": offset, "text": text, "time": NOW}, handle)

    def data(self, channel, offset, data):
        """Bytes in frames of 64 KiB, never beyond the window."""
        for at in range(0, len(data), 65536):
            piece = data[at:at + 65536]
            end = offset + at + len(piece)
            if channel in self.window:
                self.until(lambda end=end: self.window[channel] >= end)
            self.binary(DATA, channel, offset + at, piece)

    def gap(self, channel, lo, hi, reason=1):
        self.binary(GAP, channel, lo, struct.pack("!QB", hi, reason))

    def end(self, channel, total, data=None):
        self.binary(END, channel, total, xxh3_128(data) if data is not None else b"")

    def status(self, handle, state="exited", code=0, final=None, digest=None, id=None, **more):
        status = {"handle_id": handle, "executor_id": "", "state": state, "pid": 4711, "exit_code": code, "started_at": NOW,
                  "finished_at": NOW if state not in ("running", "pending") else "0001-01-01T00:00:00Z", **more}
        payload = {"status": status}
        if final is not None:
            payload["final_offset"] = final
        if digest is not None:
            payload["log_xxh3"] = digest.hex()
        self.send("status", payload, handle, id)

    def finish(self, handle, data, channel=2, code=0, state="exited", **more):
        """END and the final status of a whole log."""
        if self.edgeward:
            self.end(channel, len(data), data)
            self.status(handle, state, code, len(data), xxh3_128(data), outcome=more.pop("outcome", "exited"), **more)
        else:
            self.status(handle, state, code, len(data), **more)

    def beat_wait(self, seq, handles=()):
        self.beat(seq, handles)
        while True:
            ack = self.expect("heartbeat_ack")
            if ack["payload"]["seq"] == seq:
                return ack

    def offer(self, handle, produced, channel=0):
        o = {"handle_id": handle, "started_at": NOW, "log_offset": produced}
        if channel:
            o["log_channel"] = channel
        return o


def pause(seconds):
    time.sleep(seconds)


def dumps(obj):
    return json.dumps(obj, separators=(",", ":"))
