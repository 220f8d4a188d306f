"""Builds what the benchmarks need: our agent for release, the bench programs, certificates of a private CA."""
import subprocess

from .agents import SOURCE, HERE
from .proc import run


def programs(out):
    (out / "bin").mkdir(parents=True, exist_ok=True)
    run("make", "-s", "-C", HERE, f"OUT={out / 'bin'}")


def agent(build):
    if not (build / "build.ninja").exists():
        run("meson", "setup", build, SOURCE, "--buildtype=release", "-Db_ndebug=true", "-Dtests=false")
    run("ninja", "-C", build, timeout=1200)


def certificates(cert, names="DNS:localhost,IP:127.0.0.1,IP:10.77.0.1"):
    """A CA and a server certificate, ECDSA P-256, for these benchmarks only."""
    if (cert / "hub.pem").exists():
        return
    cert.mkdir(parents=True, exist_ok=True)

    def openssl(*argv):
        subprocess.run(["openssl", *argv], cwd=cert, check=True, stderr=subprocess.DEVNULL)

    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new_key, "-days", "3650", "-subj", "/CN=edgeward bench CA", "-keyout", "ca.key", "-out",
            "ca.pem", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", *new_key, "-subj", "/CN=localhost", "-keyout", "hub.key", "-out", "hub.csr")
    (cert / "ext").write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", "hub.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "3650",
            "-extfile", "ext", "-out", "hub.pem")
