"""edgehub as the other end of a device under test: what Agent asks of a hub, and short forms of the client's commands."""
import json
import os
import shutil
import subprocess

from lib.edgehub import ENV, EdgeHub
from lib.proc import wait_for


class CaFile:
    def __init__(self, path):
        self.file = path


class LiveHub(EdgeHub):
    """An EdgeHub that Agent takes for a hub."""

    def start(self, expect=None):
        super().start(expect)
        # Its data directory is private; a device needs the CA as a file that it may read.
        shutil.copy(self.ca, os.path.join(self.dir, "ca.pem"))
        os.chmod(os.path.join(self.dir, "ca.pem"), 0o644)
        self.address, self.url = self.url, self._url
        return self

    def _url(self, host="localhost"):
        return f"wss://{host}:{self.port}/api/executors/connect"

    @property
    def ca_file(self):
        return CaFile(os.path.join(self.dir, "ca.pem"))

    def call(self, *args, timeout=60):
        return subprocess.run(self.argv(*args), env=ENV, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout,
                              check=False)

    def device(self, name="edge-test"):
        p = self.call("-j", "devices", "--all")
        return next((d for d in json.loads(p.stdout) if d["name"] == name), None) if p.returncode == 0 else None

    def connected(self, name="edge-test", timeout=20):
        return wait_for(lambda: (d := self.device(name)) and d["state"] == "connected" and d, timeout,
                        lambda: f"{name} connected: {self.call('devices').stdout}")

    def close(self):
        problems = self.stop()
        self.remove()
        assert not problems, problems
