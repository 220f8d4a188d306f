"""The scripted hub: a correct cloop and edgeward.1 hub over TLS that records everything and misbehaves on request.

hub = FakeHub(leaf); hub.listen(); url = hub.url(). What is out of the ordinary is set in hub.b (Behaviour), at any
time. Whatever an agent does against the protocol lands in hub.violations; the fixture fails a test that leaves any there.
"""
import asyncio
import base64
import os
import re
import socket
import ssl
import threading
import time

from lib import ws
from lib.conn import Conn, http_answer, read_request
from lib.loopthread import LOOP
from lib.model import Run
from lib.session import Session, new_id

PATH = "/api/executors/connect"
SEEN = object()


class Behaviour:
    """Everything that can be bent. The defaults are a correct hub."""

    def __init__(self):
        self.tcp = None             # on accept: "fin", "rst", "hang"
        self.tls = None             # instead of a handshake: "fin", "hang", or bytes to send in the clear
        self.rcvbuf = None          # SO_RCVBUF of accepted sockets
        self.http = None            # bytes, or callable(conn) -> bytes or None: the whole answer instead of the upgrade
        self.http_hang = False      # never answer the upgrade
        self.auth = True            # check the bearer
        self.edgeward = True        # select edgeward.1 when it is offered
        self.subprotocol = None     # select this, whatever was offered
        self.extra_headers = ""     # lines for the 101
        self.drip = 0.0             # seconds between two bytes of the 101
        self.piggyback = b""        # bytes in the same write as the 101
        self.upgraded = None        # straight after the 101: "fin", "rst", "hang", or bytes to send first
        self.on_hello = None        # callable(session, hello) -> what to send instead of the welcome
        self.version = 20           # the hub's maximum
        self.issue_credential = True
        self.welcome = None         # callable(payload) -> payload
        self.after_welcome = []     # frames or raw bytes sent right behind the welcome
        self.verdict = None         # callable(session, offer, run) -> verdict or None
        self.on_frame = None        # callable(session, frame) -> True: the hub shall not see it
        self.ack_beats = True
        self.ack_logs = True
        self.ack_every = 32768
        self.window = 262144
        self.extend = True          # send WINDOW frames
        self.bundles = True         # take results as streams of kind bundle; False: the hub is older and knows chunks alone
        self.on_bundle = None       # callable(session, frame, run) -> True: the hub shall not answer this stream_open
        self.bundle_window = None   # callable(run, limit) -> the first offset a bundle may not reach, else as b.window says
        self.clock_skew = 0.0       # of server_time


def _b64(n):
    return base64.urlsafe_b64encode(os.urandom(n)).rstrip(b"=").decode()


class FakeHub:
    def __init__(self, leaf=None, host="127.0.0.1", port=0, netns=None):
        self.leaf, self.host, self.port, self.netns = leaf, host, port, netns
        self.b = Behaviour()
        self.cond = threading.Condition()
        self.accepts = []           # monotonic times of TCP accepts
        self.conns = []
        self.sessions = []
        self.requests = []
        self.current = None
        self.runs = {}
        self.by_start_id = {}
        self.violations = []
        self.allowed = []
        self.errors = []            # exceptions inside the hub itself: always a failing test
        self.tokens = {}            # token -> "fresh" or "spent"
        self.credentials = {}       # credential -> agent id
        self.handshakes = []        # None or the text of the TLS failure, one per accept
        self.unknown_chunks = 0
        self.server = None
        self.ctx = None
        self.tasks = set()

    # ---- life ----

    def listen(self):
        if self.leaf is not None:
            self.set_leaf(self.leaf)
        make = (lambda: self._socket()) if self.netns is None else (lambda: self.netns.call(self._socket))
        sock = make()
        self.port = sock.getsockname()[1]
        self.server = sock
        self.accepting = LOOP.call(lambda: self._spawn(self._accept(sock)))
        return self

    def _socket(self):
        sock = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if self.b.rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.b.rcvbuf)
        sock.bind((self.host, self.port))
        sock.listen(64)
        sock.setblocking(False)
        return sock

    def set_leaf(self, leaf):
        ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ctx.minimum_version = ssl.TLSVersion.TLSv1_2
        ctx.load_cert_chain(leaf.cert_file, leaf.key_file)
        self.leaf, self.ctx = leaf, ctx

    def unlisten(self):
        """No new connections; the port answers with RST. The sessions stay."""
        sock, self.server = self.server, None
        if sock is not None:
            LOOP.run(self._end([self.accepting]))
            sock.close()

    @staticmethod
    async def _end(tasks):
        """Ends tasks and waits for it: no reader of the loop may outlive its descriptor, whose number is soon another's."""
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2)

    def stop(self):
        self.unlisten()
        LOOP.run(self._end(list(self.tasks)))
        for conn in self.conns:
            conn.close()

    def url(self, host="localhost", scheme=None, path=PATH):
        return f"{scheme or ('wss' if self.leaf else 'ws')}://{host}:{self.port}{path}"

    # ---- waiting ----

    def changed(self):
        with self.cond:
            self.cond.notify_all()

    def wait(self, what, pred, timeout=10):
        """Waits until pred() gives something true and returns that."""
        end = time.monotonic() + timeout
        with self.cond:
            while True:
                got = pred()
                if got:
                    return got
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"not within {timeout} s: {what}; {self.describe()}")
                self.cond.wait(min(left, 0.1))

    def describe(self):
        last = self.sessions[-1] if self.sessions else None
        return (f"accepts {len(self.accepts)}, sessions {len(self.sessions)}, last ended {last.end if last else None}, "
                f"violations {self.violations[:5]}, TLS {self.handshakes[-1:]}")

    def do(self, coro_fn, *args):
        """Runs coro_fn(*args) in the loop, from a test or from a hook."""
        if threading.current_thread() is LOOP.thread:
            self._spawn(coro_fn(*args))
        else:
            LOOP.run(coro_fn(*args))

    def sync(self, fn, *args):
        return LOOP.call(fn, *args)

    def violation(self, text):
        if any(re.search(p, text) for p in self.allowed):
            return
        self.violations.append(text)

    def allow(self, pattern):
        """Violations that match are what this test is about."""
        self.allowed.append(pattern)
        self.violations = [v for v in self.violations if not re.search(pattern, v)]

    # ---- sessions ----

    def session(self, timeout=15, after=None):
        """The current session, welcomed and alive; with after: a later one than that."""
        floor = -1 if after is None else after.number

        def find():
            s = self.current
            return s if s is not None and s.live and s.number > floor else None
        return self.wait("a welcomed session", find, timeout)

    def cut(self, rst=True):
        self.session().cut(rst)

    def publish(self, session):
        old, self.current = self.current, session
        if old is not None and old.alive:
            self._spawn(self._supersede(old))

    async def _supersede(self, old):
        await old._raw(ws.frame(ws.CLOSE, ws.close_payload(1000, "superseded")))
        await asyncio.sleep(0.2)
        old._finish(("superseded",))
        await old.conn.abort()

    # ---- identity ----

    def token(self):
        token = f"clet1.{_b64(12)}.{_b64(32)}.{os.urandom(16).hex()}"
        self.tokens[token] = "fresh"
        return token

    def credential(self, ident=None):
        """A credential as if the device had enrolled before."""
        ident = ident or _b64(12)
        text = f"clac1.{ident}.{_b64(32)}.{os.urandom(16).hex()}"
        self.credentials[text] = ident
        return ident, text

    def revoke(self, credential=None):
        for text in [credential] if credential else list(self.credentials):
            self.credentials.pop(text, None)

    def identify(self, bearer, agent_id):
        """-> (id, new credential or None, error or None)"""
        if bearer in self.credentials:
            ident = self.credentials[bearer]
            return ident, None, None if agent_id == ident else f"identity mismatch: {agent_id!r}"
        if agent_id:
            return None, None, "an agent id with a token"
        ident, text = self.credential()
        return ident, text, None

    # ---- work ----

    def spec(self, argv, work_dir="", env=None, timeout_minutes=None, limits=None, **more):
        spec = {"work_dir": work_dir, "argv": list(argv), "resource_limits": limits or {}, "workspace": {},
                "write_back": {}}
        if env is not None:
            spec["env"] = [f"{k}={v}" for k, v in env.items()] if isinstance(env, dict) else env
        if timeout_minutes is not None:
            spec["timeout_minutes"] = timeout_minutes
        spec.update(more)
        return spec

    def send_start(self, argv, handle=None, session=None, beside=None, secret_files=None, **spec):
        """Sends a start and returns the Run without waiting for the answer. beside: more members of the payload."""
        # Of base64url, as other hubs', but never like an option of a command line: that has tests of its own.
        handle = handle or _b64(12).replace("-", "_")
        session = session or self.session()
        run = self.runs.get(handle) or Run(handle, self.spec(argv, **spec))
        ident = new_id()
        self.runs[handle] = self.by_start_id[ident] = run
        payload = {"handle_id": handle, "spec": run.spec, "sandbox": {}, **(beside or {})}
        if secret_files is not None:
            payload["secret_files"] = secret_files
        session.send("start", payload, handle=handle, id=ident)
        return run

    def start(self, argv, timeout=10, refused=False, **kw):
        """Starts a workload and waits for the answer, which must be a success unless refused is set."""
        if isinstance(argv, str):
            argv = ["/bin/sh", "-c", argv]
        run = self.send_start(argv, **kw)
        self.wait(f"the answer to start {run.handle}", lambda: run.answers, timeout)
        if refused:
            assert run.refused, f"was started: {run.started}"
        else:
            assert run.started, f"was refused: {run.refused}"
        return run

    def request(self, kind, payload=None, handle=None, timeout=10, session=None):
        """Sends a request with an id and returns the frame that repeats the id."""
        session = session or self.session()
        ident = new_id()
        session.send(kind, payload, handle=handle, id=ident)

        def find():
            return next((f for _, f in session.frames if f.get("id") == ident), None)
        return session.wait(f"the answer to {kind}", find, timeout)

    def signal(self, run, name="terminate", **kw):
        return self.request("signal", {"signal": name}, handle=run.handle, **kw)

    def status(self, run, **kw):
        return self.request("status_req", {}, handle=run.handle, **kw)

    def finish(self, run, timeout=20):
        """Waits for the terminal status and returns the run."""
        self.wait(f"terminal status of {run.handle}", lambda: run.terminals, timeout)
        return run

    def delivered(self, run, timeout=10):
        """Waits until the agent has stopped listing it, in a beat behind the terminal status: that counts as delivered there."""
        def forgotten():
            s = self.current
            if s is None or not s.live or not s.beats:
                return False
            when, _, handles = s.beats[-1]
            return when > run.ended_at and run.handle not in handles
        self.finish(run, max(timeout, 20))
        self.wait(f"{run.handle} forgotten", forgotten, timeout)
        return run

    def forget_received(self):
        """A hub restored from its store after a restart: handles known, no offset."""
        for run in self.runs.values():
            run.log.received = 0

    # ---- in the loop ----

    def _spawn(self, coro):
        task = LOOP.loop.create_task(coro)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task):
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            e = task.exception()
            self.errors.append(f"{type(e).__name__}: {e}")
        self.changed()

    async def _accept(self, listener):
        while self.server is listener:
            try:
                sock, _ = await LOOP.loop.sock_accept(listener)
            except OSError as e:
                self.errors.append(f"accept: {e}")
                await asyncio.sleep(0.05)
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.accepts.append(time.monotonic())
            self._spawn(self._serve(sock))

    async def _serve(self, sock):
        conn = Conn(LOOP.loop, sock, self.ctx, len(self.conns))
        conn.task = asyncio.current_task()
        self.conns.append(conn)
        try:
            await self._serve_conn(conn)
        except (ConnectionError, OSError):
            pass                    # the agent left while something was being written
        finally:
            conn.close()

    async def _serve_conn(self, conn):
        b = self.b
        if b.tcp == "hang" or b.tls == "hang":
            await asyncio.sleep(3600)
        if b.tcp in ("fin", "rst"):
            conn.close(rst=b.tcp == "rst")
            return
        if b.tls is not None:
            if isinstance(b.tls, bytes):
                await LOOP.loop.sock_sendall(conn.sock, b.tls)
            return
        try:
            await conn.handshake()
            self.handshakes.append(None)
        except ssl.SSLError as e:
            self.handshakes.append(str(e))
            self.changed()
            return
        request = conn.request = await read_request(conn)
        if request is None:
            self.changed()
            return
        self.requests.append(request)
        for text in request.wrong:
            self.violation(f"upgrade request: {text}")
        if b.http_hang:
            await asyncio.sleep(3600)
        answer = b.http(conn) if callable(b.http) else b.http
        answer = answer or self._authorize(request)
        self.changed()
        if answer is not None:
            await conn.write(answer)
            await asyncio.sleep(0.05)
            return
        await self._upgrade(conn, request)

    def _authorize(self, request):
        bearer = request.bearer
        if not self.b.auth:
            return None
        if bearer is None:
            return http_answer(401, '{"error":"missing bearer token"}')
        if bearer in self.credentials:
            return None
        if self.tokens.get(bearer) == "fresh":
            self.tokens[bearer] = "spent"
            return None
        return http_answer(401, '{"error":"unauthorized"}')

    async def _upgrade(self, conn, request):
        b = self.b
        proto = b.subprotocol or ("edgeward.1" if b.edgeward and request.offers_edgeward else None)
        answer = request.accept(proto, b.extra_headers) + b.piggyback
        for i in range(0, len(answer), 1 if b.drip else len(answer)):
            await conn.write(answer[i:i + 1] if b.drip else answer)
            await asyncio.sleep(b.drip)
        if isinstance(b.upgraded, bytes):
            await conn.write(b.upgraded)
        elif b.upgraded == "hang":
            await asyncio.sleep(3600)
        elif b.upgraded is not None:
            conn.close(rst=b.upgraded == "rst")
            return
        session = Session(self, conn, proto == "edgeward.1", request.bearer)
        self.sessions.append(session)
        try:
            await session.run()
        finally:
            session._finish(("eof", conn.eof))
