"""slowclose.py DIR N: sends a descriptor whose close(2) waits, with the record in hexadecimal on stdin, over the socket that is descriptor N.

It is a file of a FUSE mount on DIR, of a mount namespace of its own, whose server answers all but FLUSH. Says "sent", then "closing" when somebody
has closed his; everybody who did waits until this ends, at the latest after 60 s.
"""
import ctypes
import os
import signal
import socket
import struct
import sys

INIT, LOOKUP, GETATTR, OPEN, FLUSH, FORGET, INTERRUPT = 26, 1, 3, 14, 25, 2, 36


def attributes(node, mode):
    return struct.pack("=6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def serve(dev, tell):
    signal.alarm(60)
    while True:
        _, op, unique, node = struct.unpack_from("=IIQQ", os.read(dev, 1 << 17))
        out, err = b"", 0
        if op == FLUSH:
            os.write(tell, b"F")
        if op in (FLUSH, FORGET, INTERRUPT):
            continue
        if op == INIT:
            out = struct.pack("=4I2H2I2H8I", 7, 31, 65536, 0, 8, 6, 65536, 1, 32, 0, *[0] * 8)
        elif op == LOOKUP:
            out = struct.pack("=4Q2I", 2, 0, 100, 100, 0, 0) + attributes(2, 0o100666)
        elif op == GETATTR:
            out = struct.pack("=Q2I", 100, 0, 0) + attributes(node, 0o40755 if node == 1 else 0o100666)
        elif op == OPEN:
            out = struct.pack("=Q2I", 1, 1, 0)
        else:
            err = -38
        os.write(dev, struct.pack("=IiQ", 16 + len(out), err, unique) + out)


def main():
    where, sock = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    record = bytes.fromhex(sys.stdin.read())
    libc = ctypes.CDLL(None, use_errno=True)
    rd, wr = os.pipe()
    server = os.fork()
    if server == 0:
        sock.close()
        dev = os.open("/dev/fuse", os.O_RDWR)
        r = libc.mount(b"none", where.encode(), b"fuse", 0, f"fd={dev},rootmode=40000,user_id=0,group_id=0,allow_other".encode())
        os.write(wr, b"m" if r == 0 else b"x")
        serve(dev, wr)
    if os.read(rd, 1) != b"m":
        print("no FUSE", flush=True)
        return
    socket.send_fds(sock, [record], [os.open(where + "/f", os.O_RDWR)])
    sock.detach()
    print("sent", flush=True)
    os.read(rd, 1)
    print("closing", flush=True)
    sys.stdin.close()
    os.waitpid(server, 0)


main()
