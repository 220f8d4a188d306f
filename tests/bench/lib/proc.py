"""Child processes that speak lines: the sink and the floor programs."""
import collections
import os
import select
import subprocess
import time


class BenchError(Exception):
    """Something broke; not a slow figure."""


def figures(text):
    """name TAB value lines"""
    found = {}
    for line in text.splitlines():
        key, _, value = line.partition("\t")
        if key == "failed":
            raise BenchError(value)
        if value:
            found[key] = float(value)
    return found


def run(*argv, timeout=600, **kwargs):
    done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, text=True, timeout=timeout, **kwargs)
    if done.returncode != 0:
        raise BenchError(f"{argv[0]}: exit code {done.returncode}")
    return done.stdout


class Sink:
    """The driver's process. Commands in, figures out; events are kept until somebody waits for them."""

    def __init__(self, out, cert, dialect, address="127.0.0.1", port=0, prefix=()):
        env = dict(os.environ, BENCH_BIN=str(out / "bin"))
        self.process = subprocess.Popen(
            [*prefix, str(out / "bin/sink"), address, str(port), str(cert / "hub.pem"), str(cert / "hub.key"), dialect],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.events = collections.deque()
        self.buffer = b""
        self.port = int(self.event("listening", 10)[0])

    def _line(self, deadline):
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            ready = select.select([self.process.stdout], [], [], max(left, 0))[0]
            data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not data:
                raise BenchError("the sink says nothing" if not ready else "the sink ended")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def event(self, what, timeout):
        """Waits for 'event WHAT ...', returns the words after it. Other events are dropped."""
        deadline = time.monotonic() + timeout
        while True:
            line = self.events.popleft() if self.events else self._line(deadline)
            words = line.split()
            if words[:2] == ["event", what]:
                return words[2:]

    def send(self, command):
        self.events.clear()
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, timeout=600):
        deadline = time.monotonic() + timeout
        lines = []
        while (line := self._line(deadline)) != "done":
            if line.startswith("event "):
                self.events.append(line)
            else:
                lines.append(line)
        return figures("\n".join(lines))

    def answered(self):
        """Whether the answer of a command that was sent is there, without waiting."""
        while b"\ndone\n" not in b"\n" + self.buffer and select.select([self.process.stdout], [], [], 0)[0]:
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise BenchError("the sink ended")
            self.buffer += data
        return b"\ndone\n" in b"\n" + self.buffer

    def command(self, command, timeout=600):
        self.send(command)
        return self.answer(timeout)

    def stop(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def stop(process, timeout=10):
    """SIGTERM, then SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
