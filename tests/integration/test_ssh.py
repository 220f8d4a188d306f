"""`edgehub ssh-proxy` with the real OpenSSH: the device's own sshd, reached over the hub (railgrid.md 2.2).

sshd is started by the test, on a loopback port, with keys of its own. Where it could go wrong: connectd/svcanswer.c (what the policy says), svcrelay.c
and hub/pipe.c (bytes that come with the 101, an end that is not passed on), hub/cli_ssh.c. No key leaves its side: what passes the hub is ssh's own.
"""
import getpass
import os
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from lib.agent import is_root
from lib.services import Site, wait_for

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if os.path.exists("/usr/sbin/sshd") else None)
pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="skipped: no OpenSSH"),
              pytest.mark.skipif(not is_root(), reason="skipped: needs root for sshd")]


class Sshd:
    def __init__(self, directory):
        self.dir = str(directory)
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.dir}/{key}"], check=True)
        shutil.copy(f"{self.dir}/user.pub", f"{self.dir}/authorized_keys")
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        os.makedirs("/run/sshd", exist_ok=True)
        with open(f"{self.dir}/sshd_config", "w", encoding="ascii") as f:
            f.write(f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.dir}/host\nAuthorizedKeysFile {self.dir}/authorized_keys\n"
                    f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n")
        self.p = subprocess.Popen([SSHD, "-D", "-e", "-f", f"{self.dir}/sshd_config"], stderr=open(f"{self.dir}/log", "wb"), stdin=subprocess.DEVNULL)
        wait_for(self.answers, 20, "sshd listens")

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as s:
                return s.recv(4) == b"SSH-"
        except OSError:
            return False

    def stop(self):
        self.p.terminate()
        self.p.wait(10)


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    d = tmp_path_factory.mktemp("sshd")
    os.chmod(d, 0o755)
    s = Sshd(d)
    yield s
    s.stop()


@pytest.fixture(scope="module")
def site(sshd):
    s = Site(policy={"ssh": "yes", "ssh-port": str(sshd.port)})
    yield s
    s.close()


def options(site, sshd):
    proxy = " ".join(site.hub.argv("ssh-proxy", "dev"))
    known = os.path.join(sshd.dir, "known")
    with open(known, "w", encoding="ascii") as f, open(f"{sshd.dir}/host.pub", encoding="ascii") as key:
        f.write("dev " + key.read())
    return ["-F", "none", "-i", f"{sshd.dir}/user", "-o", f"ProxyCommand={proxy}", "-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes",
            "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]


def ssh(site, sshd, *args, **kw):
    return subprocess.run(["ssh", *options(site, sshd), f"{getpass.getuser()}@dev", *args], capture_output=True, timeout=60, check=False,
                          stdin=kw.pop("stdin", subprocess.DEVNULL), **kw)


def test_login(site, sshd):
    """The host key is checked by ssh itself, end to end."""
    p = ssh(site, sshd, "echo out; echo err >&2; exit 7")
    assert (p.returncode, p.stdout) == (7, b"out\n") and b"err\n" in p.stderr, p
    assert any(e["subject"] == "sshd" and e["text"].startswith("connected for uid") for e in site.events("ssh"))
    wait_for(lambda: any(e["text"].startswith("ended after") for e in site.events("ssh")), 20)


def test_scp(site, sshd, tmp_path):
    data = os.urandom(3 << 20)
    (tmp_path / "a").write_bytes(data)
    for source, target in ((str(tmp_path / "a"), f"dev:{tmp_path}/b"), (f"dev:{tmp_path}/b", str(tmp_path / "c"))):
        p = subprocess.run(["scp", "-q", *options(site, sshd), source, target], capture_output=True, timeout=60, check=False)
        assert p.returncode == 0, p
    assert (tmp_path / "c").read_bytes() == data


def test_port_forward(site, sshd):
    with socket.create_server(("127.0.0.1", 0)) as server:
        def echo():
            c, _ = server.accept()
            with c:
                while got := c.recv(65536):
                    c.sendall(got)
        threading.Thread(target=echo, daemon=True).start()
        with socket.create_server(("127.0.0.1", 0)) as s:
            local = s.getsockname()[1]
        p = subprocess.Popen(["ssh", *options(site, sshd), "-N", "-L", f"127.0.0.1:{local}:127.0.0.1:{server.getsockname()[1]}", "-o",
                              "ExitOnForwardFailure=yes", f"{getpass.getuser()}@dev"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            c = wait_for(lambda: connect(local), 30, "the forwarded port")
            with c:
                c.sendall(b"through ssh")
                assert c.recv(100) == b"through ssh"
        finally:
            p.terminate()
            p.communicate(timeout=20)


def connect(port):
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=5)
    except OSError:
        return None


def test_a_lost_link_ends_it_and_says_so(site, sshd):
    p = subprocess.Popen(["ssh", *options(site, sshd), f"{getpass.getuser()}@dev", "echo here; echo $$; exec sleep 1000"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stdout.readline() == b"here\n"
    left = int(p.stdout.readline())     # sshd ends nothing of a session without a terminal
    old = site.agent.kill9("connectd")
    out, err = p.communicate(timeout=60)
    assert p.returncode == 255 and b"the way to the device's sshd has ended: the device is gone" in err, err
    site.agent.restarted("connectd", old)
    os.kill(left, signal.SIGKILL)
    site.connected()
    wait_for(lambda: ssh(site, sshd, "true").returncode == 0, 30, every=0.5)


def test_refused_by_default(sshd):
    d = Site()
    try:
        p = ssh(d, sshd, "true")
        assert p.returncode == 255 and b"policy.conf (default): services ssh = no" in p.stderr, p.stderr
        assert any("services ssh = no" in e["text"] for e in d.events("service"))
    finally:
        d.close()


def test_no_sshd():
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    d = Site(policy={"ssh": "yes", "ssh-port": str(port)})
    try:
        p = d.hub.call("ssh-proxy", "dev")
        assert p.returncode == 1 and b"502" in p.stderr and b"refused" in p.stderr, p
    finally:
        d.close()
