"""One WebSocket session of the scripted hub: hello to end. A correct hub unless hub.b (Behaviour) says otherwise."""
import asyncio
import base64
import hashlib
import itertools
import json
import struct
import time

from lib import schema, ws

DATA, WINDOW, END, GAP, RESET = 1, 2, 3, 4, 5
_ids = itertools.count(1)


class Session:
    def __init__(self, hub, conn, edgeward, bearer):
        self.hub, self.conn, self.edgeward, self.bearer = hub, conn, edgeward, bearer
        self.number = len(hub.sessions)
        self.parser = ws.Parser()
        self.hello = None
        self.version = None         # negotiated; None before the welcome
        self.agent_id = None
        self.welcomed = None        # monotonic time
        self.ended_at = None
        self.end = None             # why: ("close", code, reason), ("eof", how), ("error", text), ("cut",)
        self.frames = []            # (time, frame) of everything but output
        self.beats = []             # (time, seq, handles)
        self.acks = 0               # heartbeats acknowledged
        self.channels = {}          # channel -> run
        self.bundles = {}           # channel -> [run, first offset that may not be sent]
        self.stream_frames = []     # (kind, channel, offset, payload) on odd channels
        self.windows = {}           # channel -> first offset that may not be sent
        self.ended = set()          # handles whose END came
        self.pings = self.pongs = 0
        self.last_seq = None

    # ---- what a test calls ----

    @property
    def alive(self):
        return self.ended_at is None

    @property
    def live(self):
        return self.alive and self.welcomed is not None

    def send(self, kind, payload=None, handle=None, id=None, v=None, **envelope):
        frame = {"v": v or self.version or 1, "type": kind}
        if id is not None:
            frame["id"] = id
        if handle is not None:
            frame["handle"] = handle
        frame["payload"] = {} if payload is None else payload
        frame.update(envelope)
        self.send_text(json.dumps(frame))

    def send_split(self, data, step):
        """Raw bytes in pieces of step, nothing of ours between them."""
        async def pieces():
            async with self.conn.wlock:
                for i in range(0, len(data), step):
                    await self.conn.write_locked(data[i:i + step])
                    await asyncio.sleep(0)
        self.hub.do(pieces)

    def send_text(self, text):
        self.send_raw(ws.frame(ws.TEXT, text.encode() if isinstance(text, str) else text))

    def send_binary(self, data):
        self.send_raw(ws.frame(ws.BINARY, data))

    def send_raw(self, data):
        self.hub.do(self._raw, data)

    def close(self, code=1000, reason=""):
        self.send_raw(ws.frame(ws.CLOSE, ws.close_payload(code, reason)))

    def cut(self, rst=True):
        """Ends the TCP connection without a close frame."""
        self.hub.sync(self._finish, ("cut",))
        self.hub.do(self.conn.abort, rst)

    def stall(self, on=True):
        """Stops reading from the socket (the kernel goes on acknowledging until its buffer is full)."""
        self.hub.sync(self.conn.gate.clear if on else self.conn.gate.set)

    def extend_all(self):
        """Sends a fresh WINDOW for every log channel (after hub.b.extend was off)."""
        for channel, run in self.channels.items():
            self.hub.do(self._extend, channel, run, True)

    def wait(self, what, pred, timeout=10):
        return self.hub.wait(f"session {self.number}: {what}", pred, timeout)

    def wait_frame(self, kind, pred=lambda f: True, timeout=10, after=0):
        """The first frame of that type for which pred(frame) holds."""
        def find():
            for _, f in self.frames[after:]:
                if f.get("type") == kind and pred(f):
                    return f
            return None
        return self.wait(f"frame {kind}", find, timeout)

    def wait_end(self, timeout=10):
        self.wait("end", lambda: self.ended_at, timeout)
        return self.end

    # ---- in the loop ----

    async def _raw(self, data):
        try:
            await self.conn.write(data)
        except OSError:
            pass

    async def _json(self, kind, payload, handle=None, id=None, v=None):
        frame = {"v": v or self.version or 1, "type": kind}
        if id is not None:
            frame["id"] = id
        if handle is not None:
            frame["handle"] = handle
        frame["payload"] = payload
        await self._raw(ws.frame(ws.TEXT, json.dumps(frame).encode()))

    def _finish(self, why):
        if self.ended_at is None:
            self.ended_at, self.end = time.monotonic(), why
            self.hub.changed()

    async def run(self):
        try:
            while self.ended_at is None:
                data = await self.conn.read()
                if not data:
                    self._finish(("eof", self.conn.eof))
                    return
                for op, payload in self.parser.feed(data):
                    if self.ended_at is None:
                        await self._message(op, payload)
                self.hub.changed()
        except ws.WsError as e:
            self.hub.violation(f"session {self.number}: {e}")
            self._finish(("error", str(e)))

    async def _message(self, op, payload):
        if op == ws.TEXT:
            await self._text(payload)
        elif op == ws.BINARY:
            await self._binary(payload)
        elif op == ws.PING:
            self.pings += 1
            await self._raw(ws.frame(ws.PONG, payload))
        elif op == ws.PONG:
            self.pongs += 1
            self.frames.append((time.monotonic(), {"type": "(pong)", "payload": bytes(payload)}))
        else:
            code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
            self._finish(("close", code, payload[2:].decode()))
            await self._raw(ws.frame(ws.CLOSE, payload))
            await asyncio.sleep(0.05)
            self.conn.close(notify=True)

    def _violation(self, text):
        self.hub.violation(f"session {self.number} ({'edgeward.1' if self.edgeward else 'cloop'}): {text}")

    async def _text(self, payload):
        try:
            frame = json.loads(payload)
        except ValueError as e:
            self._violation(f"bad JSON: {e}: {payload[:80]!r}")
            return
        for text in schema.check(frame, self.edgeward, self.version):
            self._violation(f"{text}: {payload[:200]!r}")
        kind = frame.get("type")
        if kind != "log_chunk":
            self.frames.append((time.monotonic(), frame))
        if self.hello is None and kind != "hello":
            self._violation(f"{kind} before the hello")
        if self.hello is not None and self.version is None and kind != "hello":
            self._violation(f"{kind} before the welcome")
        hook = self.hub.b.on_frame
        if hook is not None and hook(self, frame):
            return
        handler = getattr(self, f"_on_{kind}", None)
        if handler is not None:
            await handler(frame, frame.get("payload"))
        self.hub.changed()

    async def _on_hello(self, frame, p):
        if self.hello is not None:
            self._violation("a second hello")
        if frame.get("id") != "hello":
            self._violation(f"hello with id {frame.get('id')!r}")
        self.hello = p
        answer = self.hub.b.on_hello
        if answer is not None:
            for item in answer(self, p) or []:
                await self._raw(item if isinstance(item, bytes) else ws.frame(ws.TEXT, json.dumps(item).encode()))
            return
        await self._welcome(p)

    async def _welcome(self, p):
        hub, b = self.hub, self.hub.b
        if p["protocol_version"] < 1:
            await self._json("error", {"code": "version_unsupported", "message": "too old"}, id="hello", v=1)
            return
        ident, credential, wrong = hub.identify(self.bearer, p["agent_id"])
        if wrong:
            await self._json("error", {"code": "unauthorized", "message": wrong}, id="hello", v=1)
            self.conn.close()
            return
        self.version, self.agent_id = min(p["protocol_version"], b.version), ident
        payload = {"protocol_version": self.version, "executor_id": ident, "heartbeat_seconds": 15}
        if credential and b.issue_credential:
            payload["credential"] = credential
        verdicts = [self._verdict(o) for o in p.get("resume", [])]
        verdicts = [v for v in verdicts if v is not None]
        if verdicts:
            payload["resume_accepted"] = verdicts
        if b.welcome is not None:
            payload = b.welcome(payload)
        await self._json("welcome", payload, id="hello")
        hub.publish(self)
        self.welcomed = time.monotonic()
        for item in b.after_welcome:
            await self._raw(item if isinstance(item, bytes) else ws.frame(ws.TEXT, json.dumps(item).encode()))
        hub.changed()

    def _verdict(self, offer):
        handle = offer["handle_id"]
        run = self.hub.runs.get(handle)
        if self.hub.b.verdict is not None:
            return self.hub.b.verdict(self, offer, run)
        self.bind_offer(offer, run)
        if run is None:
            return {"handle_id": handle, "from_offset": 0, "action": "terminate", "reason": "not tracked"}
        if offer["log_offset"] < run.log.received:
            run.short_offer = f"offered with log_offset {offer['log_offset']}, received {run.log.received}"
        return {"handle_id": handle, "from_offset": run.log.received, "action": "continue"}

    def bind_offer(self, offer, run):
        """An offer names the log channel on which the workload's output will come."""
        channel = offer.get("log_channel", offer.get("channel"))
        if self.edgeward and channel is not None and run is not None:
            self._bind(channel, run, run.log.received)

    def _bind(self, channel, run, start):
        if channel % 2 or channel == 0:
            self._violation(f"log channel {channel}: the agent's are even")
        if channel in self.channels:
            self._violation(f"log channel {channel} opened twice")
        self.channels[channel] = run
        self.windows[channel] = start + self.hub.b.window
        run.log_open.append((self.number, channel))

    async def _on_log_open(self, frame, p):
        run = self.hub.runs.get(p["handle"])
        if run is None:
            self._violation(f"log_open for the unknown handle {p['handle']}")
        else:
            self._bind(p["channel"], run, run.log.received)

    async def _on_heartbeat(self, frame, p):
        now = time.monotonic()
        handles = p.get("active_handles", [])
        if len(set(handles)) != len(handles):
            self._violation(f"a handle twice in a heartbeat: {handles}")
        if self.last_seq is not None and p["seq"] != self.last_seq + 1:
            self._violation(f"heartbeat seq {p['seq']} after {self.last_seq}")
        if frame.get("id") != f"hb-{p['seq']}":
            self._violation(f"heartbeat id {frame.get('id')!r} for seq {p['seq']}")
        self.last_seq = p["seq"]
        self.beats.append((now, p["seq"], handles))
        for run in list(self.hub.runs.values()):
            if run.started and not run.terminal and run.handle not in handles:
                run.missing.append((self.number, p["seq"]))
        if self.hub.b.ack_logs:
            for run in list(self.hub.runs.values()):
                await self._ack(run)
        if self.hub.b.ack_beats:
            self.acks += 1
            stamp = time.time() + self.hub.b.clock_skew
            await self._json("heartbeat_ack", {"seq": p["seq"], "server_time":
                             time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(stamp)) + f".{int(stamp % 1 * 1e9):09d}Z"},
                             id=frame.get("id"))

    async def _ack(self, run, at_least=1):
        if run.log.received - run.log.acked >= at_least:
            run.log.acked = run.log.received
            await self._json("log_ack", {"offset": run.log.acked}, handle=run.handle)

    async def _on_started(self, frame, p):
        run = self.hub.runs.get(frame["handle"])
        if run is None:
            return
        run.answers.append(frame)
        if p.get("error"):
            run.refused = (p.get("code", "started"), p["error"])
        elif run.started is None:
            run.started = p
            channel = p.get("log_channel")
            if channel is not None and channel not in self.channels:
                self._bind(channel, run, run.log.received)

    async def _on_error(self, frame, p):
        run = self.hub.by_start_id.get(frame.get("id"))
        if run is not None:
            run.answers.append(frame)
            if run.started is None:
                run.refused = (p["code"], p["message"])

    async def _on_status(self, frame, p):
        run = self.hub.runs.get(frame["handle"])
        if run is None:
            return
        if "id" not in frame:
            self._wrong(run, run.on_status(self, p))
        elif p["status"]["state"] in schema.TERMINAL and run.terminal is None:
            self._violation(f"{run.handle}: a reply says {p['status']['state']} before the terminal status was sent")

    async def _on_result_chunk(self, frame, p):
        run = self.hub.runs.get(frame["handle"])
        if run is None:
            return
        if self.number in [n for n, _ in run.terminals] or self.number in run.resulted_in:
            self._wrong(run, ["a result_chunk after the result or the terminal status"])
        if p["offset"] == 0:
            run.bundle = b""
        data = base64.b64decode(p["data"], validate=True)
        if p["offset"] != len(run.bundle) or not 0 < len(data) <= 262144:
            self._wrong(run, [f"result_chunk of {len(data)} bytes at {p['offset']}, {len(run.bundle)} are there"])
        run.bundle += data

    async def _on_result(self, frame, p):
        run = self.hub.runs.get(frame["handle"])
        if run is None:
            return
        if self.number in [n for n, _ in run.terminals] or self.number in run.resulted_in:
            self._wrong(run, ["a result after the terminal status"])
        run.result = p["result"]
        run.results += 1
        run.resulted_in.append(self.number)

    async def _on_project_result(self, frame, p):
        run = self.hub.runs.get(frame["handle"])
        if len(p) != 1 or run is None or self.number in [n for n, _ in run.terminals] or self.number in run.resulted_in:
            self._violation(f"project_result out of place or not exactly one of data and error: {p}")
        else:
            run.project = p

    async def _on_log_chunk(self, frame, p):
        run = self.hub.runs.get(frame["handle"])
        data = p["text"].encode()
        if run is None:
            await self._json("error", {"code": "unknown_handle", "message": "unknown handle"}, v=1,
                             handle=frame["handle"])
            self.hub.unknown_chunks += 1
            return
        if run.terminal and p["offset"] + len(data) > run.log.received:
            self._violation(f"{run.handle}: output after the terminal status")
        if len(data) == 0:
            self._violation(f"{run.handle}: empty log_chunk")
        run.chunk_max = max(run.chunk_max, len(data))
        self._wrong(run, run.log.add(p["offset"], data, False))
        if self.hub.b.ack_logs:
            await self._ack(run, self.hub.b.ack_every)
        self._cut_here(run)

    def _cut_here(self, run):
        """A test wants the link cut at exactly this offset: run.cuts holds the offsets still to come."""
        if run.cuts and run.log.received >= run.cuts[0]:
            while run.cuts and run.log.received >= run.cuts[0]:
                run.cuts.pop(0)
            run.cut_count += 1
            self._finish(("cut",))
            self.hub.do(self.conn.abort, run.cut_count % 2 == 0)

    def _wrong(self, run, texts):
        for text in texts:
            self._violation(f"{run.handle}: {text}")

    # ---- edgeward.1 stream frames ----

    def send_stream(self, kind, channel, offset, payload=b""):
        """A frame on a stream of the hub, whatever it is. From a test's thread."""
        self.hub.do(self._raw, ws.frame(ws.BINARY, struct.pack("!BBHIQ", kind, 0, 0, channel, offset) + payload))

    async def _binary(self, data):
        if not self.edgeward:
            self._violation("a binary message on plain cloop")
            return
        if len(data) < 16:
            self._violation(f"stream frame of {len(data)} bytes")
            return
        kind, flags, zero, channel, offset = struct.unpack("!BBHIQ", data[:16])
        payload = data[16:]
        run = self.channels.get(channel)
        if channel in self.bundles:
            await self._bundle_frame(kind, channel, offset, payload)
            return
        if flags or zero or kind not in (DATA, WINDOW, END, GAP, RESET):
            self._violation(f"stream frame type {kind} flags {flags} reserved {zero}")
        elif channel % 2:
            # Streams are the tests' own: they look at what came.
            self.stream_frames.append((kind, channel, offset, payload))
            self.hub.changed()
        elif run is None:
            self._violation(f"stream frame {kind} on the unknown channel {channel}")
        elif kind == DATA:
            await self._data(run, channel, offset, payload)
        elif kind == END:
            if len(payload) not in (0, 16):
                self._violation(f"END with {len(payload)} bytes")
            if offset != run.log.received:
                self._violation(f"{run.handle}: END at {offset}, received {run.log.received}")
            self.ended.add(run.handle)
            run.log.end = (offset, payload)
        elif kind == GAP:
            if len(payload) != 9:
                self._violation(f"GAP with {len(payload)} bytes")
                return
            stop, reason = struct.unpack("!QB", payload)
            self._wrong(run, run.log.gap(offset, stop, reason))
            await self._extend(channel, run, force=True)
        elif kind == RESET:
            self.frames.append((time.monotonic(), {"type": "(reset)", "channel": channel, "payload": payload}))

    async def _on_stream_open(self, frame, p):
        run, b = self.hub.runs.get(p["handle"]), self.hub.b
        if p["kind"] != "bundle" or run is None or p["channel"] % 2 or p["channel"] in self.channels or p["channel"] in self.bundles:
            self._violation(f"stream_open {p}")
            return
        if self.number in [n for n, _ in run.terminals] or self.number in run.resulted_in:
            self._wrong(run, ["a bundle after the result or the terminal status"])
        if b.on_bundle is not None and b.on_bundle(self, frame, run):
            return
        if not b.bundles:
            await self._json("error", {"code": "protocol", "message": "this hub has no stream of that kind"}, id=frame["id"], v=1)
            return
        if run.bundle_of != (p["size"], p["sha256"]):
            run.bundle, run.bundle_of = b"", (p["size"], p["sha256"])
        run.bundle_opens.append((self.number, len(run.bundle)))
        self.bundles[p["channel"]] = [run, len(run.bundle) + b.window]
        await self._json("stream_opened", {"channel": p["channel"], "offset": len(run.bundle)}, id=frame["id"])

    async def _bundle_frame(self, kind, channel, offset, payload):
        run, limit = self.bundles[channel]
        if kind == DATA:
            run.bundle_bytes += len(payload)
            if offset != len(run.bundle) or offset + len(payload) > limit:
                self._wrong(run, [f"bundle: {len(payload)} bytes at {offset}, {len(run.bundle)} are there, window to {limit}"])
            run.bundle += payload
            await self.widen_bundle(channel)
        elif kind == END:
            good = offset == len(run.bundle) == run.bundle_of[0] and hashlib.sha256(run.bundle).hexdigest() == run.bundle_of[1]
            if not good:
                self._wrong(run, [f"bundle: END at {offset}, {len(run.bundle)} of {run.bundle_of} are there"])
            await self._raw(ws.frame(ws.BINARY, struct.pack("!BBHIQ", END, 0, 0, channel, 0)))
        elif kind == RESET:
            self.frames.append((time.monotonic(), {"type": "(reset)", "channel": channel, "payload": payload}))
        else:
            self._violation(f"frame {kind} on the channel of a bundle")
        self.hub.changed()

    async def widen_bundle(self, channel):
        run, limit = self.bundles[channel]
        want = self.hub.b.bundle_window
        new = want(run, limit) if want is not None else limit
        if want is None and limit - len(run.bundle) < self.hub.b.window // 2:
            new = len(run.bundle) + self.hub.b.window
        if new > limit:
            self.bundles[channel][1] = new
            await self._raw(ws.frame(ws.BINARY, struct.pack("!BBHIQ", WINDOW, 0, 0, channel, new)))

    async def _data(self, run, channel, offset, payload):
        if not 1 <= len(payload) <= 65536:
            self._violation(f"DATA of {len(payload)} bytes")
        if offset + len(payload) > self.windows[channel]:
            self._violation(f"{run.handle}: DATA to {offset + len(payload)} beyond the window {self.windows[channel]}")
        if run.handle in self.ended:
            self._violation(f"{run.handle}: DATA after END")
        run.chunk_max = max(run.chunk_max, len(payload))
        self._wrong(run, run.log.add(offset, payload, True))
        if self.hub.b.ack_logs:
            await self._ack(run, self.hub.b.ack_every)
        await self._extend(channel, run)
        self._cut_here(run)

    async def _extend(self, channel, run, force=False):
        b = self.hub.b
        if not b.extend or not force and self.windows[channel] - run.log.received > b.window // 2:
            return
        self.windows[channel] = max(self.windows[channel], run.log.received + b.window)
        await self._raw(ws.frame(ws.BINARY, struct.pack("!BBHIQ", WINDOW, 0, 0, channel, self.windows[channel])))


def new_id(prefix="c"):
    return f"{prefix}{next(_ids)}"
