#!/usr/bin/python3
"""Stands in for privhelper where the kernel has no vhci_hcd: introduces the two daemons as it does, and is itself the kernel behind
the sockets it hands to workerd. Started by run-foreground in privhelper's place; what happens is told in RUNDIR/fakepriv.log.

The "kernel" sends a megabyte, wants it back unchanged (the exporter of test_usb.py echoes), and then says so.
"""
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading

HELLO, PEER, GONE = 0x0001, 0x0100, 0x0102
ATTACH, ATTACHED, DEVICE, DETACH, DETACHED, GRANT, GRANTED, STATE = 0x0110, 0x0111, 0x0112, 0x0114, 0x0115, 0x0116, 0x0117, 0x0118
HDR = "=HBBIIi"
PORTS = 2
run = sys.argv[sys.argv.index("-r") + 1]
log = open(run + "/fakepriv.log", "a", buffering=1)
listener = socket.socket(fileno=3)
peers = {}          # socket -> [role, pair]
ports = {}          # port -> our end
lock = threading.Lock()


def send(s, kind, payload=b"", rid=0, status=0, fds=()):
    data = struct.pack(HDR, kind, version, len(fds), len(payload), rid, status) + payload
    try:
        socket.send_fds(s, [data], list(fds)) if fds else s.send(data)
    except OSError:
        pass        # it has just ended: select() tells


def pair():
    live = {role: (s, p) for s, (role, p) in peers.items()}
    if 1 not in live or 2 not in live or (live[1][1] == live[2][1] != 0):
        return
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    new = random.getrandbits(63) | 1
    for role, end in ((1, a), (2, b)):
        send(live[role][0], PEER, struct.pack("=QII", new, 32768, 0), fds=[end.fileno()])
        peers[live[role][0]][1] = new
    a.close(), b.close()


def state(s):
    send(s, STATE, struct.pack("=IIQ72s", 1, 0, 7, b"ab" * 32))


def kernel(port, end):
    """One megabyte out and back; then it waits for the end. Or what FAKEPRIV_KERNEL names, a program with the socket as its input."""
    if program := os.environ.get("FAKEPRIV_KERNEL"):
        subprocess.run([program], stdin=end, check=False)
        end.recv(1)
        end.close()
        with lock:
            ports.pop(port, None)
        return
    data = random.Random(port).randbytes(1 << 20)
    back = bytearray()

    def write():
        try:
            end.sendall(data)
        except OSError:
            pass
    threading.Thread(target=write, daemon=True).start()
    while True:
        try:
            got = end.recv(65536)
        except OSError:
            got = b""
        if not got:
            break
        back += got
        if len(back) == len(data):
            log.write(f"port {port} echo {'ok' if back == data else 'differs'}\n")
    log.write(f"port {port} closed\n")
    with lock:
        ports.pop(port, None)


def attach(s, rid, devid, speed):
    with lock:
        free = [p for p in range(PORTS) if p not in ports]
        if not free:
            send(s, ATTACHED, struct.pack("=IIII", 0, PORTS, PORTS, 0), rid, -16)
            return
        port = free[0]
        ours, theirs = socket.socketpair()
        ports[port] = ours
    log.write(f"port {port} attach devid {devid:08x} speed {speed}\n")
    send(s, ATTACHED, struct.pack("=IIII", port, PORTS, PORTS - len(free) + 1, 0), rid, 0, [theirs.fileno()])
    theirs.close()
    threading.Thread(target=kernel, args=(port, ours), daemon=True).start()
    if devid & 0xffff == 66:    # a keyboard
        send(s, DEVICE, struct.pack("=IIIIHHHHII", port, 2, 0, 0, 0x1234, 0x5678, 1, 0, 3, 0))
    else:
        send(s, DEVICE, struct.pack("=IIIIHHHHII", port, 1, 3, 2, 0x1234, 0x5678, 1, 1, 256, 0))


def take(s):
    global version
    try:
        data = s.recv(1024)
    except OSError:
        data = b""
    if not data:
        role = peers.pop(s, [0])[0]
        s.close()
        for other in peers:
            send(other, GONE)
        if role == 2:
            with lock:
                for end in ports.values():
                    end.shutdown(socket.SHUT_RDWR)
        return
    kind, version, _, _, rid, _ = struct.unpack_from(HDR, data)
    p = data[16:]
    if kind == HELLO:
        role, _, have, _ = struct.unpack("=IiQ32s", p)
        for old in [o for o, (r, _) in peers.items() if r == role]:
            old.close()
            del peers[old]
        peers[s] = [role, have]
        send(s, HELLO, struct.pack("=IiQ32s", 3, os.getpid(), 0, b"fake"))
        if role == 2:
            state(s)
        pair()
    elif kind == ATTACH:
        attach(s, rid, *struct.unpack("=II", p))
        state(s)
    elif kind == DETACH:
        port = struct.unpack_from("=I", p)[0]
        log.write(f"port {port} detach\n")
        with lock:
            if port in ports:
                ports[port].shutdown(socket.SHUT_RDWR)
        send(s, DETACHED, rid=rid)
    elif kind == GRANT:
        port, slot = struct.unpack("=II", p)
        log.write(f"port {port} grant {slot}\n")
        nodes = b"".join(struct.pack("40s16s", n, k) for n, k in ((b"bus/usb/003/002", b"usb"), (b"ttyUSB7", b"tty")))
        send(s, GRANTED, struct.pack("=II", 2, 0) + nodes.ljust(448, b"\0"), rid)


version = 0
log.write("started\n")
while True:
    for fd in select.select([listener, *peers], [], [])[0]:
        if fd is listener:
            c, _ = listener.accept()
            c.setblocking(True)
            peers[c] = [0, 0]
        elif fd in peers:
            take(fd)
