"""RFC 6455 for the hub's side: a strict reader of what a client sends, and a writer that can also lie.

Written by hand so that a test can send any bytes it likes; test_harness.py holds it against wsproto, an
implementation of other authors.
"""
import base64
import hashlib
import struct

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WsError(Exception):
    """The peer broke RFC 6455 or a limit of the protocol."""


def accept_key(key: bytes) -> bytes:
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


def mask_bytes(data, mask: bytes) -> bytes:
    n = len(data)
    if n == 0:
        return b""
    key = (mask * (n // 4 + 1))[:n]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(n, "little")


def frame(op, payload=b"", fin=True, rsv=0, mask=None, length=None, form=None) -> bytes:
    """One frame. length: a false length. form: 7, 16 or 64 forces the encoding of the length."""
    n = len(payload) if length is None else length
    form = form or (7 if n < 126 else 16 if n < 65536 else 64)
    head = bytes([(0x80 if fin else 0) | rsv << 4 | op])
    bit = 0x80 if mask is not None else 0
    if form == 7:
        head += bytes([bit | n])
    elif form == 16:
        head += bytes([bit | 126]) + struct.pack("!H", n)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", n)
    if mask is not None:
        head += mask
        payload = mask_bytes(payload, mask)
    return head + bytes(payload)


def close_payload(code, reason="") -> bytes:
    return struct.pack("!H", code) + reason.encode()


class Parser:
    """Messages out of a client's bytes. feed() returns a list of (op, payload); payload is bytes."""

    def __init__(self, max_message=1 << 20, require_mask=True):
        self.max_message = max_message
        self.require_mask = require_mask
        self.buf = bytearray()
        self.message = None         # (op, bytearray) of a fragmented message
        self.closed = False
        self.masks = set()          # masking keys seen, bounded: a client must not repeat one constant key
        self.frames = 0

    def feed(self, data):
        self.buf += data
        out = []
        pos = 0
        while not self.closed:
            got = self._one(pos)
            if got is None:
                break
            pos, op, fin, payload = got
            done = self._assemble(op, fin, payload)
            if done is not None:
                out.append(done)
        del self.buf[:pos]
        return out

    def _one(self, pos):
        buf, end = self.buf, len(self.buf)
        if end - pos < 2:
            return None
        b0, b1 = buf[pos], buf[pos + 1]
        op, fin, masked, n = b0 & 15, bool(b0 & 0x80), bool(b1 & 0x80), b1 & 0x7f
        if b0 & 0x70:
            raise WsError("reserved bits without an extension")
        if op not in (CONT, TEXT, BINARY, CLOSE, PING, PONG):
            raise WsError(f"opcode {op}")
        if self.require_mask and not masked:
            raise WsError("a client's frame without mask")
        if op >= 8 and (n > 125 or not fin):
            raise WsError("control frame too long or fragmented")
        at = pos + 2
        if n == 126:
            if end - at < 2:
                return None
            n = int.from_bytes(buf[at:at + 2], "big")
            at += 2
            if n < 126:
                raise WsError("length not in its shortest form")
        elif n == 127:
            if end - at < 8:
                return None
            n = int.from_bytes(buf[at:at + 8], "big")
            at += 8
            if n < 65536 or n >> 63:
                raise WsError("length not in its shortest form")
        if n > self.max_message:
            raise WsError(f"frame of {n} bytes")
        if end - at < (4 if masked else 0) + n:
            return None
        mask = b""
        if masked:
            mask = bytes(buf[at:at + 4])
            at += 4
            if len(self.masks) < 1000:
                self.masks.add(mask)
        self.frames += 1
        with memoryview(buf) as view:
            payload = mask_bytes(view[at:at + n], mask) if masked else bytes(view[at:at + n])
        return at + n, op, fin, payload

    def _assemble(self, op, fin, payload):
        if op >= 8:
            if op == CLOSE:
                self._check_close(payload)
                self.closed = True
            return op, payload
        if op == CONT:
            if self.message is None:
                raise WsError("continuation without a beginning")
            self.message[1].extend(payload)
        elif self.message is not None:
            raise WsError("a new message inside a fragmented one")
        elif fin:
            return self._checked(op, payload)
        else:
            self.message = (op, bytearray(payload))
        if len(self.message[1]) > self.max_message:
            raise WsError("message too long")
        if not fin:
            return None
        whole, self.message = self.message, None
        return self._checked(whole[0], bytes(whole[1]))

    @staticmethod
    def _checked(op, payload):
        if op == TEXT:
            try:
                payload.decode()
            except UnicodeDecodeError as e:
                raise WsError(f"text that is not UTF-8: {e}") from None
        return op, payload

    @staticmethod
    def _check_close(payload):
        if len(payload) == 1:
            raise WsError("close with one byte")
        if len(payload) >= 2:
            code = int.from_bytes(payload[:2], "big")
            if code < 1000 or code in (1004, 1005, 1006, 1015) or 1016 <= code < 3000 or code > 4999:
                raise WsError(f"close code {code}")
            payload[2:].decode()
