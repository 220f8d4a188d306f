"""What stands under EXAMPLES in the manual pages is run as it stands there, against a hub and a device of this test; configuration is
checked by the daemons themselves. Only what is another place here is put in: the sockets, the hub's address, ssh.

Where it could go wrong: man/*, packaging/examples, and every option that an example uses.
"""
import os
import re
import shutil
import signal
import subprocess

import pytest

from lib.agent import Agent, BUILD, REPO, exe, is_root
from lib.livehub import LiveHub
from lib.proc import wait_for

pytestmark = pytest.mark.timeout(120)


def examples(page):
    """[text] of each display under EXAMPLES, macros gone."""
    with open(os.path.join(REPO, "man", page), encoding="utf-8") as f:
        text = f.read()
    section = re.search(r"^\.Sh EXAMPLES\n(.*?)^\.Sh ", text, re.S | re.M).group(1)
    blocks = re.findall(r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed$|^\.Dl ([^\n]*)$", section, re.S | re.M)
    return [re.sub(r"\\(e|\(aq)", lambda m: "\\" if m.group(1) == "e" else "'", a or b + "\n") for a, b in blocks]


def check_conf(tmp_path, conf="", policy=""):
    for name, text in (("c.conf", conf), ("p.conf", policy)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
    for daemon in ("connectd", "workerd"):
        p = subprocess.run([exe(daemon), "-n", "-c", str(tmp_path / "c.conf"), "-p", str(tmp_path / "p.conf")], capture_output=True, text=True,
                           check=False)
        assert p.returncode == 0, (daemon, conf, policy, p.stderr)


def test_configuration(tmp_path, ca):
    pages = examples("edgeward.conf.5")
    assert pages
    for text in pages:
        check_conf(tmp_path, conf=text.replace("/etc/edgeward/hub-ca.pem", ca.file))
    read = lambda name: open(os.path.join(REPO, "packaging/examples", name), encoding="utf-8").read()
    check_conf(tmp_path, conf=read("edgeward.conf"), policy=read("policy.conf"))
    # And with every commented key put in force, as somebody does who reads it.
    live = re.sub(r"^# (\w[\w-]* = )", r"\1", read("edgeward.conf"), flags=re.M).replace("/etc/edgeward/hub-ca.pem", ca.file)
    check_conf(tmp_path, conf=live, policy=re.sub(r"^# (\w[\w-]* = )", r"\1", read("policy.conf"), flags=re.M))


def test_policy(tmp_path):
    pages = [t for t in examples("policy.conf.5") if not t.startswith("$ ")]
    assert len(pages) >= 2
    for text in pages:
        check_conf(tmp_path, policy=text)


@pytest.fixture
def site(tmp_path):
    """A shell in which edgectl, edgehub, ssh and jq mean those of this test."""
    hub = LiveHub().start()
    device = Agent(ca=hub.ca_file, hub=hub, name="", token=None)
    bin_ = tmp_path / "bin"
    bin_.mkdir()

    def wrapper(name, text):
        (bin_ / name).write_text("#!/bin/sh\n" + text)
        (bin_ / name).chmod(0o755)
    wrapper("edgectl", f'exec {exe("edgectl")} -r {device.dir}/d/run "$@"\n')
    wrapper("edgehub", f'exec {" ".join(hub.argv())} "$@"\n')
    wrapper("ssh", 'shift; exec "$@"\n')
    if shutil.which("jq") is None:
        wrapper("jq", 'exec /usr/bin/python3 -c "import json, sys; print(json.load(sys.stdin)[sys.argv[1][1:]])" "$1"\n')

    def shell(text, timeout=60):
        return subprocess.run(["bash", "-c", "set -e -o pipefail\n" + text], capture_output=True, text=True, timeout=timeout, check=False,
                              env={"PATH": f"{bin_}:/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=0"})
    device.start()
    yield shell, hub
    device.stop()
    device.remove()
    hub.close()


def test_edgectl(site):
    shell, hub = site
    enroll, drain = examples("edgectl.8")
    p = shell(enroll)
    assert p.returncode == 0 and "enrolled as" in p.stdout + p.stderr, p
    p = shell(drain)
    assert p.returncode == 0 and "draining" in p.stdout, p


def test_edgehub(site):
    shell, hub = site
    (text,) = examples("edgehub.8")
    serve, rest = text.split("\n", 1)
    assert serve.startswith("edgehub serve ")      # it runs already
    enroll, run = rest.rsplit("\nedgehub run", 1)
    p = shell(enroll)
    assert p.returncode == 0, p
    hub.connected("press-4")
    p = shell("edgehub run" + run)
    assert p.returncode == 2 and "No targets" in p.stdout + p.stderr, p     # make, in an empty directory


def test_run_foreground(open_path):
    if not is_root():
        pytest.skip("skipped: users need root")
    (text,) = examples("run-foreground.8")
    start, status = text.strip().rsplit("\n", 1)
    where = open_path / "data"
    where.mkdir()
    where.chmod(0o755)
    (where / "edgeward.conf").write_text(f"[work]\nroot = {where}/work\ndisk-low = 1M\n")
    argv = start.replace("/usr/lib/edgeward/run-foreground", exe("run-foreground")).replace("/data", str(where)).replace("\\\n", " ").split()
    with open(open_path / "log", "wb") as log:
        top = subprocess.Popen([*argv, "-b", BUILD], stdout=log, stderr=log, env={"PATH": "/usr/bin:/bin", "ASAN_OPTIONS": "detect_leaks=0"})
    try:
        ask = status.replace("/data", str(where)).split()
        assert ask[0] == "edgectl"
        wait_for(lambda: subprocess.run([exe("edgectl"), *ask[1:]], capture_output=True, check=False).returncode == 3, 20, "not enrolled")
        wait_for(lambda: b"unenrolled" in subprocess.run([exe("edgectl"), *ask[1:]], capture_output=True, check=False).stdout, 20, "it says so")
    finally:
        top.send_signal(signal.SIGTERM)
        assert top.wait(30) == 0
