"""Makes a running daemon issue system calls of our choice: what code that took it over could do.

The process is stopped with ptrace (as root) while it sleeps in epoll_wait, its registers are set to another system call, one
instruction is stepped, the result is read and everything is put back. So the very executable under its very filter is tried,
not a build of its own. x86-64 only.
"""
import ctypes
import os
import signal
import struct
import time

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long
CONT, GETREGS, SETREGS, SINGLESTEP, DETACH, SEIZE, INTERRUPT = 7, 12, 13, 9, 17, 0x4206, 0x4207
NAMES = ["r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi",
         "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"]
ARGS = ["rdi", "rsi", "rdx", "r10", "r8", "r9"]
KILLED = "killed by the filter"

NR = {"read": 0, "open": 2, "socket": 41, "connect": 42, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62,
      "chmod": 90, "chown": 92, "ptrace": 101, "setuid": 105, "capset": 126, "mknod": 133, "prctl": 157, "chroot": 161,
      "mount": 165, "init_module": 175, "openat": 257, "mkdirat": 258, "unlinkat": 263, "symlinkat": 266, "unshare": 272,
      "setns": 308, "process_vm_readv": 310, "seccomp": 317, "bpf": 321, "execveat": 322, "io_uring_setup": 425,
      "pidfd_open": 434, "clone3": 435, "openat2": 437, "pidfd_getfd": 438, "mprotect": 10, "mmap": 9, "truncate": 76,
      "utimensat": 280, "setsockopt": 54, "bind": 49, "listen": 50, "keyctl": 250, "perf_event_open": 298,
      "userfaultfd": 323, "rename": 82, "link": 86, "memfd_create": 319, "personality": 135}


class Gone(Exception):
    """The process is no longer there."""


def _ptrace(request, pid, addr=0, data=0):
    if _libc.ptrace(request, pid, addr, data) < 0:
        e = ctypes.get_errno()
        raise OSError(e, f"ptrace {request}: {os.strerror(e)}")


class Injector:
    """with Injector(pid) as inj: inj.call("execve", b"/bin/true", 0, 0). bytes arguments are placed in its stack."""

    def __init__(self, pid):
        self.pid = pid
        self.dead = False

    def __enter__(self):
        _ptrace(SEIZE, self.pid)
        for _ in range(200):
            _ptrace(INTERRUPT, self.pid)
            self._wait()
            self.saved = self._get()
            if self._in_call():
                return self
            _ptrace(CONT, self.pid)     # busy, or just let go by another Injector and not back in its call yet
            time.sleep(0.02)
        _ptrace(INTERRUPT, self.pid)
        self._wait()
        _ptrace(DETACH, self.pid)
        raise AssertionError("never stopped in a system call")

    def _in_call(self):
        with open(f"/proc/{self.pid}/mem", "rb") as mem:
            mem.seek(self.saved["rip"] - 2)
            return mem.read(2) == b"\x0f\x05"

    def _wait(self):
        _, st = os.waitpid(self.pid, 0x40000000)        # __WALL
        if os.WIFSIGNALED(st) or os.WIFEXITED(st):
            self.dead = True
            self.status = st
        return st

    def _get(self):
        buf = ctypes.create_string_buffer(27 * 8)
        _ptrace(GETREGS, self.pid, 0, ctypes.addressof(buf))
        return dict(zip(NAMES, struct.unpack("27Q", buf.raw)))

    def _set(self, regs):
        buf = ctypes.create_string_buffer(struct.pack("27Q", *(regs[n] & (2**64 - 1) for n in NAMES)))
        _ptrace(SETREGS, self.pid, 0, ctypes.addressof(buf))

    def poke(self, address, data):
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as mem:
            mem.seek(address)
            mem.write(data)

    def call(self, name, *args):
        """The result as the kernel gives it (negative = -errno), or KILLED."""
        regs = dict(self.saved)
        free = (regs["rsp"] - 65536) & ~0xfff
        for reg, arg in zip(ARGS, args):
            if isinstance(arg, bytes):
                self.poke(free, arg + b"\0")
                arg, free = free, free + (len(arg) + 16 & ~15)
            regs[reg] = arg
        regs["rip"], regs["rax"], regs["orig_rax"] = self.saved["rip"] - 2, NR[name], 2**64 - 1
        self._set(regs)
        _ptrace(SINGLESTEP, self.pid)
        st = self._wait()
        if self.dead:
            return KILLED if os.WIFSIGNALED(st) and os.WTERMSIG(st) == signal.SIGSYS else f"ended, status {st}"
        value = self._get()["rax"]
        return value - 2**64 if value >> 63 else value

    def __exit__(self, *exc):
        if not self.dead:
            regs = dict(self.saved)
            if regs["orig_rax"] < 2**32:        # it was inside a call: let it make the call again
                regs["rip"], regs["rax"], regs["orig_rax"] = regs["rip"] - 2, regs["orig_rax"], 2**64 - 1
            self._set(regs)
            _ptrace(DETACH, self.pid)
        return False
