"""edgehub under test: a server in a directory of its own, killed and started again at the same place, and its CLI."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

from lib.agent import BROKEN, exe
from lib.proc import wait_for

ENV = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "ASAN_OPTIONS": "detect_leaks=0:exitcode=99:quarantine_size_mb=4",
       "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}


class EdgeHub:
    def __init__(self, *options, host="127.0.0.1", port=0, ns=None):
        self.dir = tempfile.mkdtemp(prefix="edgehub-test.", dir=os.environ.get("EDGEWARD_TMP", "/tmp"))
        os.chmod(self.dir, 0o755)
        self.data = os.path.join(self.dir, "data")
        self.log = os.path.join(self.dir, "log")
        self.options, self.host, self.port, self.ns = list(options), host, port, ns
        self.proc = None
        self.clients = []

    def start(self, expect=None):
        argv = (self.ns or []) + [exe("edgehub"), "serve", "-v", "-d", self.data, "-l", f"{self.host}:{self.port}",
                                  *self.options]
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen(argv, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                         text=True)
        said = dict(line.split(None, 1) for line in (self.proc.stdout.readline() for _ in range(3)) if line.strip())
        if expect is not None:
            assert self.proc.wait(10) == expect
            return self
        assert "ca" in said, f"edgehub did not start: {self.tail()}"
        self.url, self.pin, self.ca = said["listening"].strip(), said["pin"].strip(), said["ca"].strip()
        self.port = int(self.url.split(":")[2].split("/")[0])
        return self

    def kill9(self):
        self.proc.kill()
        self.proc.wait()
        self.proc.stdout.close()

    def restart(self):
        self.kill9()
        return self.start()

    def tail(self, lines=30):
        with open(self.log, errors="replace") as f:
            return "".join(f.readlines()[-lines:])

    def argv(self, *args):
        return [exe("edgehub"), "-d", self.data, *args]

    def cli(self, *args, rc=0, timeout=30, **kw):
        """stdout as bytes; the exit code must be rc (None = any)."""
        p = subprocess.run(self.argv(*args), env=ENV, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, **kw)
        assert rc is None or p.returncode == rc, f"edgehub {args}: {p.returncode}, not {rc}: {p.stderr.decode()}"
        self.last = p
        return p.stdout

    def json(self, *args):
        return json.loads(self.cli("-j", *args))

    def popen(self, *args, **kw):
        p = subprocess.Popen(self.argv(*args), env=ENV, stdin=subprocess.DEVNULL, stdout=kw.pop("stdout", subprocess.PIPE),
                             stderr=subprocess.PIPE, **kw)
        self.clients.append(p)
        return p

    def token(self, *args):
        return self.cli("token", "create", *args).decode().strip()

    def run_info(self, handle):
        return next(r for r in self.json("runs", "--max", "100000") if r["handle"] == handle)

    def wait_run(self, handle, what, timeout=15):
        """Waits until what(run) holds."""
        return wait_for(lambda: (r := self.run_info(handle)) and what(r) and r, timeout,
                        lambda: f"run {handle}: {self.run_info(handle)}; {self.tail()}")

    def stop(self):
        for p in self.clients:
            if p.poll() is None:
                p.kill()
            p.communicate()
        problems = []
        if self.proc is not None and self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            try:
                rc = self.proc.wait(20)
                if rc != 0:
                    problems.append(f"edgehub ended with {rc}")
            except subprocess.TimeoutExpired:
                problems.append("edgehub does not stop")
                self.proc.kill()
                self.proc.wait()
        if self.proc is not None:
            self.proc.stdout.close()
        with open(self.log, errors="replace") as f:
            text = f.read()
        if BROKEN.search(text):
            problems.append("edgehub is broken: " + text[max(0, BROKEN.search(text).start() - 200):][:4000])
        # A token or credential has no way into the log.
        if re.search(r"cl(et|ac)1\.", text):
            problems.append("a secret is in edgehub's log")
        return problems

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)
