"""What the scripted hub knows of one workload, and the hub's receive rules (protocol reference, section 4.3).

Every method that takes something from the agent returns a list of sentences about what was wrong with it.
"""
import hashlib
import time

from lib.schema import TERMINAL
from lib.xxh3 import xxh3_128


class Log:
    """The output of one workload as the hub has it."""

    def __init__(self):
        self.received = 0       # the next offset that would be new
        self.acked = 0
        self.segments = []      # [offset, bytearray]: what is kept
        self.gaps = []          # (from, to, reason); reason None = a jump of the offset (plain cloop)
        self.dup = 0            # bytes that came again
        self.end = None         # (total, digest) of END on edgeward.1
        self.keep = True        # False: only the hash of the stream is kept
        self.sha = hashlib.sha256()

    def _compare(self, offset, data):
        """Bytes that came again must be the same bytes."""
        if not self.keep or not self.segments:
            return []
        start, seg = self.segments[-1]
        lo, hi = max(offset, start), min(offset + len(data), start + len(seg))
        if lo < hi and seg[lo - start:hi - start] != data[lo - offset:hi - offset]:
            return [f"other bytes at [{lo},{hi}) than before"]
        return []

    def add(self, offset, data, edgeward):
        wrong = self._compare(offset, data)
        end = offset + len(data)
        if end <= self.received:
            self.dup += len(data)
            return wrong
        if offset < self.received:
            cut = self.received - offset
            self.dup += cut
            data = data[cut:]
        elif offset > self.received:
            if edgeward:
                wrong.append(f"jump from {self.received} to {offset} without GAP")
            self.gaps.append((self.received, offset, None))
            self.segments.append([offset, bytearray()])
        if self.end is not None and end > self.end[0]:
            wrong.append(f"bytes beyond END at {self.end[0]}")
        self.received = end
        self.sha.update(data)
        if self.keep:
            if not self.segments:
                self.segments.append([offset, bytearray()])
            self.segments[-1][1].extend(data)
        return wrong

    def gap(self, start, stop, reason):
        if start > self.received:
            return [f"GAP [{start},{stop}) begins beyond what was received ({self.received})"]
        if stop <= start or reason not in (1, 2, 3, 4):
            return [f"GAP [{start},{stop}) reason {reason}"]
        if stop > self.received:
            self.gaps.append((self.received, stop, reason))
            self.received = stop
            self.segments.append([stop, bytearray()])
        return []

    def bytes(self):
        """The whole stream; only when nothing is missing."""
        assert self.keep and not self.gaps, f"gaps: {self.gaps}"
        return bytes(self.segments[0][1]) if self.segments else b""

    def digest_wrong(self, digest_hex):
        if self.gaps or not self.keep:
            return []
        own = xxh3_128(self.bytes()).hex()
        return [] if own == digest_hex else [f"digest {digest_hex}, the bytes here give {own}"]


class Run:
    """One workload, from start to its terminal status."""

    def __init__(self, handle, spec):
        self.handle, self.spec = handle, spec
        self.log = Log()
        self.started = None     # payload of the first good answer
        self.refused = None     # (code, text)
        self.answers = []       # every frame that answered a start
        self.terminal = None    # payload of the first terminal status
        self.terminals = []     # (session number, payload)
        self.ended_at = None    # monotonic time of the last of them
        self.short_offer = None # offered with fewer bytes than the hub had: only after the agent lost its memory
        self.missing = []       # heartbeats (session, seq) that did not list it while it was alive
        self.chunk_max = 0
        self.cuts = []          # offsets at which the hub cuts the link
        self.cut_count = 0
        self.log_open = []      # (session number, channel)
        self.bundle = b""       # of result_chunk frames, or of a stream
        self.bundle_of = None   # (size, sha256): which stream's
        self.bundle_opens = []  # (session number, offset asked for)
        self.bundle_bytes = 0   # that came on streams, again or not
        self.result, self.results = None, 0     # the payload of result, and how many came
        self.resulted_in = []   # numbers of sessions
        self.project = None     # the payload of project_result

    @property
    def state(self):
        return self.terminal["status"]["state"] if self.terminal else "running" if self.started else "new"

    @property
    def exit_code(self):
        return self.terminal["status"]["exit_code"]

    @property
    def text(self):
        return self.log.bytes()

    def on_status(self, session, payload):
        """A status frame about this run."""
        if payload["status"]["state"] not in TERMINAL:
            return []
        wrong = []
        if self.terminal is None:
            self.terminal = payload
            if self.short_offer and payload["status"]["state"] != "failed":
                wrong.append(self.short_offer)
            total = payload["final_offset"]
            if not session.edgeward and total > self.log.received:
                self.log.gaps.append((self.log.received, total, None))  # the hub marks the log as gapped
            elif total != self.log.received:
                wrong.append(f"final_offset {total}, received {self.log.received}")
            if session.edgeward:
                wrong += self._edgeward_end(session, payload)
        else:
            for key in ("state", "exit_code", "error", "outcome", "finished_at"):
                if payload["status"].get(key) != self.terminal["status"].get(key):
                    wrong.append(f"repeated terminal status differs in {key}: {payload['status'].get(key)!r} after "
                                 f"{self.terminal['status'].get(key)!r}")
            if any(n == session.number for n, _ in self.terminals):
                wrong.append("terminal status twice in one session")
        self.terminals.append((session.number, payload))
        self.ended_at = time.monotonic()
        return wrong

    def _edgeward_end(self, session, payload):
        wrong = []
        if self.handle not in session.ended:
            wrong.append("terminal status before END")
        if "outcome" not in payload["status"]:
            wrong.append("terminal status without outcome")
        digest = payload.get("log_xxh3")
        if digest is None:
            if not self.log.gaps and payload["status"].get("outcome") != "lost":
                wrong.append("terminal status without log_xxh3")
        else:
            wrong += self.log.digest_wrong(digest)
            if self.log.end and self.log.end[1] and self.log.end[1].hex() != digest:
                wrong.append("digest of END and status differ")
        return wrong
