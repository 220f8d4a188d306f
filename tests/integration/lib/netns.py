"""Two network namespaces with a cable between them, for faults that only a network can have.

net = Net(); net.dev is the device's side (10.77.0.2, fd77::2), net.hub the hub's (10.77.0.1, fd77::1). The device's side
has its own mount namespace with an overlay over /etc, so that a test owns resolv.conf and hosts there. Each namespace
lives as long as its holder process: nothing is left when it is killed. Needs root.
"""
import ctypes
import os
import shutil
import subprocess
import tempfile
import threading

from lib import proc
from lib.proc import wait_for

_libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000


class Namespace:
    def __init__(self, net=True, mounts=False):
        args = ["-n"] * net + ["-m"] * mounts
        self.holder = subprocess.Popen(["unshare", *args, *["--propagation", "private"] * mounts, "sleep", "1000000"])
        wait_for(lambda: (proc.stat(self.holder.pid) or ("",))[0] == "sleep", 5, "namespace holder")
        self.enter = ["nsenter", "-t", str(self.holder.pid), *args]
        self.root = f"/proc/{self.holder.pid}/root"

    def run(self, *argv, check=True, input=None):
        return subprocess.run(self.enter + list(argv), check=check, capture_output=True, text=True, input=input)

    def sh(self, script):
        p = self.run("sh", "-ec", script, check=False)
        assert p.returncode == 0, f"{script}: {p.stderr}"
        return p.stdout

    def call(self, fn):
        """Runs fn() in a thread that has joined this network namespace; sockets made there stay in it."""
        result = {}

        def body():
            fd = os.open(f"/proc/{self.holder.pid}/ns/net", os.O_RDONLY)
            try:
                if _libc.setns(fd, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
                result["value"] = fn()
            except BaseException as e:      # handed to the caller below
                result["error"] = e
            finally:
                os.close(fd)
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        if "error" in result:
            raise result["error"]
        return result["value"]

    def nft(self, script):
        p = self.run("nft", "-f", "-", check=False, input=script)
        assert p.returncode == 0, f"nft: {p.stderr}\n{script}"

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Mounts(Namespace):
    """A mount namespace alone, to put file systems and nodes under the agent; the network stays ours."""

    def __init__(self):
        super().__init__(net=False, mounts=True)


class Net:
    def __init__(self):
        self.tmp = tempfile.mkdtemp(prefix="edgeward-net.")
        os.chmod(self.tmp, 0o755)
        self.dev = Namespace(mounts=True)
        self.hub = Namespace()
        for ns in (self.dev, self.hub):
            ns.run("ip", "link", "set", "lo", "up")
        self.dev.sh(f"ip link add ew-dev type veth peer name ew-hub netns {self.hub.holder.pid}")
        self._side(self.dev, "ew-dev", 2)
        self._side(self.hub, "ew-hub", 1)
        self.dev.sh(f"mount -t tmpfs -o mode=755 none {self.tmp}; mkdir {self.tmp}/u {self.tmp}/w; "
                    f"mount -t overlay -o lowerdir=/etc,upperdir={self.tmp}/u,workdir={self.tmp}/w none /etc")
        self.etc = self.dev.root + "/etc"
        self.hosts("10.77.0.1 hub.test")
        self.resolv("")

    @staticmethod
    def _side(ns, name, n):
        ns.sh(f"ip addr add 10.77.0.{n}/24 dev {name}; ip -6 addr add fd77::{n}/64 dev {name} nodad; "
              f"ip link set {name} up")

    def hosts(self, *lines):
        self._replace("hosts", "127.0.0.1 localhost\n::1 localhost\n" + "".join(f"{line}\n" for line in lines))

    def resolv(self, text):
        """Puts a new resolv.conf in place, by rename as a network manager does. None removes it."""
        if text is None:
            self.dev.run("rm", "-f", "/etc/resolv.conf")
        else:
            self._replace("resolv.conf", text)

    def _replace(self, name, text):
        self.dev.run("sh", "-c", f"cat > /etc/.{name}.new && chmod 644 /etc/.{name}.new && mv /etc/.{name}.new "
                     f"/etc/{name}", input=text)

    def cut(self, direction="both"):
        """Drops every packet at the device: "in" what arrives, "out" what leaves. No reset, no error."""
        hooks = {"in": ["input"], "out": ["output"], "both": ["input", "output"]}[direction]
        chains = "".join(f"chain {h} {{ type filter hook {h} priority 0; iifname lo accept; oifname lo accept; drop; }}\n"
                         for h in hooks)
        self.dev.nft(f"table inet cut {{\n{chains}}}\n")

    def heal(self):
        self.dev.run("nft", "delete", "table", "inet", "cut", check=False)

    def close(self):
        self.dev.close()
        self.hub.close()
        shutil.rmtree(self.tmp, ignore_errors=True)
