"""A scripted agent in Python, only to test the scripted hub: WebSocket by wsproto, so by other authors than lib/ws.py."""
import json
import os
import socket
import ssl
import struct
import time
from urllib.parse import urlsplit

import wsproto
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, RejectConnection, Request, TextMessage

from lib.xxh3 import xxh3_128


class StubAgent:
    def __init__(self, url, ca_file, bearer, agent_id="", edgeward=False, origin=None):
        parts = urlsplit(url)
        sock = socket.create_connection((parts.hostname, parts.port), timeout=10)
        if parts.scheme == "wss":
            ctx = ssl.create_default_context(cafile=ca_file)
            sock = ctx.wrap_socket(sock, server_hostname=parts.hostname)
        self.sock, self.agent_id, self.edgeward = sock, agent_id, False
        self.ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self.inbox, self.rejected, self.closed, self.partial = [], None, None, ""
        self.windows = {}
        headers = [(b"Authorization", f"Bearer {bearer}".encode())]
        if origin:
            headers.append((b"Origin", origin.encode()))
        self._out(self.ws.send(Request(host=f"{parts.hostname}:{parts.port}", target=parts.path, extra_headers=headers,
                                       subprotocols=["edgeward.1"] if edgeward else [])))
        self.open = False
        self._pump(lambda: self.open or self.rejected or self.closed)

    def _out(self, data):
        self.sock.sendall(data)

    def _pump(self, done, timeout=10):
        end = time.monotonic() + timeout
        while not done():
            self.sock.settimeout(max(0.01, end - time.monotonic()))
            data = self.sock.recv(65536)
            self.ws.receive_data(data or None)
            for event in self.ws.events():
                self._event(event)
            if not data:
                self.closed = self.closed or (1006, "")
                return

    def _event(self, event):
        if isinstance(event, AcceptConnection):
            self.open, self.edgeward = True, event.subprotocol == "edgeward.1"
        elif isinstance(event, RejectConnection):
            self.rejected = event.status_code
        elif isinstance(event, TextMessage):
            self.partial += event.data
            if event.message_finished:
                self.inbox.append(json.loads(self.partial))
                self.partial = ""
        elif isinstance(event, BytesMessage):
            kind, _, _, channel, offset = struct.unpack("!BBHIQ", event.data[:16])
            if kind == 2:
                self.windows[channel] = offset
        elif isinstance(event, Ping):
            self._out(self.ws.send(event.response()))
        elif isinstance(event, CloseConnection):
            self.closed = (event.code, event.reason)

    def send(self, kind, payload, handle=None, id=None, v=1):
        frame = {"v": v, "type": kind, "payload": payload}
        if handle:
            frame["handle"] = handle
        if id:
            frame["id"] = id
        self._out(self.ws.send(TextMessage(json.dumps(frame))))

    def binary(self, kind, channel, offset, payload=b""):
        self._out(self.ws.send(BytesMessage(struct.pack("!BBHIQ", kind, 0, 0, channel, offset) + payload)))

    def expect(self, kind, timeout=10):
        """The next frame of that type; earlier ones of other types are dropped."""
        def have():
            return self.closed or any(f["type"] == kind for f in self.inbox)
        self._pump(have, timeout)
        while self.inbox:
            frame = self.inbox.pop(0)
            if frame["type"] == kind:
                return frame
        raise AssertionError(f"closed {self.closed} before {kind}")

    def quiet(self, kind, seconds):
        """True if no frame of that type is there, nor comes in that time."""
        try:
            self._pump(lambda: self.closed or any(f["type"] == kind for f in self.inbox), seconds)
        except TimeoutError:
            return True
        return False

    def hello(self, resume=()):
        payload = {"protocol_version": 1, "agent_id": self.agent_id, "capabilities": {"os": "linux", "arch": "amd64"}}
        if resume:
            payload["resume"] = list(resume)
        self.send("hello", payload, id="hello")
        welcome = self.expect("welcome")["payload"]
        self.agent_id = welcome["executor_id"]
        return welcome

    def beat(self, seq, handles=()):
        self.send("heartbeat", {"seq": seq, "active_handles": list(handles)}, id=f"hb-{seq}")

    def run_one(self, output=b"hello\n", code=0):
        """Answers one start with output and a terminal status."""
        start = self.expect("start")
        handle, now = start["handle"], "2026-01-01T00:00:00Z"
        started = {"handle_id": handle, "pid": os.getpid(), "started_at": now}
        if self.edgeward:
            self.send("log_open", {"handle": handle, "channel": 2}, handle=handle)
            started["log_channel"] = 2
        self.send("started", started, handle=handle, id=start["id"])
        if self.edgeward:
            self.binary(1, 2, 0, output)
            self.binary(3, 2, len(output), xxh3_128(output))
        else:
            self.send("log_chunk", {"stream": "combined", "offset": 0, "text": output.decode(), "time": now}, handle)
        status = {"handle_id": handle, "executor_id": "", "state": "exited", "exit_code": code, "started_at": now,
                  "finished_at": now}
        payload = {"status": status, "final_offset": len(output)}
        if self.edgeward:
            status["outcome"] = "exited"
            payload["log_xxh3"] = xxh3_128(output).hex()
        self.send("status", payload, handle)
        return handle
