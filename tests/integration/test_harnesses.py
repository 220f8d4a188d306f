"""install_harness (cloop.md 5.11, 14.24): the official installer, in the sandbox, under a runner of its own, from the vendor's domain alone.

Where it could go wrong: workerd/steps/install.sh (what is fetched from where, with what environment it runs), harness.c (what counts as
installed, who may change it, a daemon that dies meanwhile), launcher/view.c (who sees it). The table is the real one: in the device's
network namespace its own /etc says that claude.ai is the server of the test, and trusts its certificate.
"""
import http.server
import os
import shutil
import ssl
import threading

import pytest

from lib import proc
from lib.fakehub import PATH
from lib.proc import wait_for

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]
DOMAIN = "claude.ai"
GOOD = r"""
env | sort; id -u; stat -c 'at %a %n' . ; cat /proc/self/status | grep CapEff
mkdir -p "$HOME/.local/share/claude" "$HOME/.local/bin"
printf '#!/bin/sh\necho "claude 1.2.3 (test)"\necho second\n' > "$HOME/.local/share/claude/v1"
chmod 700 "$HOME/.local/share/claude/v1"
ln -sf "$HOME/.local/share/claude/v1" "$HOME/.local/bin/claude"
"""


class Vendor:
    """https://claude.ai and whatever else is asked of 10.77.0.1:443."""

    def __init__(self, net, leaf):
        self.script, self.routes, self.requests = GOOD, {}, []
        self.gate = threading.Event()
        self.gate.set()
        vendor = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_args):
                pass

            def do_GET(self):
                host = self.headers["Host"]
                vendor.requests.append(f"{host}{self.path}")
                vendor.gate.wait()
                code, where = vendor.routes.get(f"{host}{self.path}", (200, None))
                body = vendor.script.encode() if code == 200 else b""
                self.send_response(code)
                if where:
                    self.send_header("Location", where)
                if not where or not where.startswith("chunk"):
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    pass
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(leaf.cert_file, leaf.key_file)

        def serve():
            s = http.server.ThreadingHTTPServer(("10.77.0.1", 443), Handler)
            s.daemon_threads = True
            s.socket = context.wrap_socket(s.socket, server_side=True, do_handshake_on_connect=False)
            return s
        self.http = net.hub.call(serve)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.gate.set()
        self.http.shutdown()
        self.http.server_close()


NAMES = (DOMAIN, "downloads.claude.ai", "evil.test", "notclaude.ai", "claude.ai.evil.test")


@pytest.fixture
def vendor(net, ca):
    net.hosts("10.77.0.1 hub.test", *(f"10.77.0.1 {n}" for n in NAMES))
    with open(ca.file, encoding="ascii") as f:
        net.dev.run("sh", "-c", "cat > /etc/ssl/certs/new && chmod 644 /etc/ssl/certs/new && mv /etc/ssl/certs/new /etc/ssl/certs/ca-certificates.crt",
                    input=f.read())
    v = Vendor(net, ca.leaf(names=NAMES))
    yield v
    v.close()


def start(agent, net, nethub, **policy):
    a = agent(hub=nethub, ns=net.dev, conf={"hub": {"url": f"wss://hub.test:{nethub.port}{PATH}"}},
              policy={"harnesses": {"install": "yes"}, **policy})
    a.connected()
    return a


def install(hub, name="claude"):
    answer = hub.request("install_harness", {"harness": name, "reason": "test"}, timeout=60)
    assert answer["type"] == "harness_installed" and answer["payload"]["harness"] == name, answer
    return answer["payload"]


def text(run):
    return bytes(run.text).decode()


@pytest.mark.parametrize("network", ["host", "filtered"])
def test_it_lands_where_the_payload_finds_it(agent, net, nethub, vendor, network):
    """Not as the agent, with HOME and PATH alone; the second time without a fetch; nobody else can change it."""
    net.dev.sh("mount -t tmpfs none /mnt; mknod -m 666 /mnt/tun c 10 200; mount --bind /mnt/tun /dev/net/tun")
    if network == "filtered" and (shutil.which("pasta") is None or shutil.which("nft") is None):
        pytest.skip("skipped: no pasta (package passt) or no nft (package nftables)")
    more = {} if network == "host" else {"work": {"network": "filtered"}, "network": {"allow": "10.77.0.1", "ports": "443"}}
    a = start(agent, net, nethub, **more)
    assert "harnesses" not in nethub.session().hello["capabilities"] or os.path.exists("/usr/local/bin/claude")
    got = install(nethub)
    home = f"{a.root}/.harnesses"
    assert got == {"installed": True, "harness": "claude", "path": f"{home}/.local/bin/claude", "version": "claude 1.2.3 (test)"}, got
    assert vendor.requests == ["claude.ai/install.sh"]
    again = install(nethub)
    assert again == {"installed": True, "already_present": True, "harness": "claude", "path": f"{home}/.local/bin/claude"}
    assert vendor.requests == ["claude.ai/install.sh"]
    caps = nethub.request("inventory_req", {})["payload"]["capabilities"]
    assert "claude" in caps["harnesses"]
    owner = os.stat(home).st_uid
    assert owner in a.pool and owner not in (a.net_uid, a.work_uid) and os.stat(f"{home}/.local/share/claude/v1").st_mode & 0o777 == 0o755
    for env, want in ((None, f"{home}/.local/bin:/usr/local/sbin"), ({"PATH": "/bin:/usr/bin"}, f"{home}/.local/bin:/bin:/usr/bin"),
                      ({"PATH": f"/bin:{home}/.local/bin"}, f"/bin:{home}/.local/bin"), ({"A": "b"}, f"{home}/.local/bin:/usr/local/sbin")):
        run = nethub.finish(nethub.start(f'echo "$PATH"; claude; (echo x > {home}/x) 2>&1; (echo x >> {home}/.local/bin/claude) 2>&1; ls -a {a.root}',
                                         work_dir="w", env=env))
        lines = text(run).splitlines()
        assert lines[0].startswith(want) and lines[0].count(".harnesses") == 1 and lines[1] == "claude 1.2.3 (test)", lines
        assert "Read-only" in lines[3] and "denied" in lines[4] and sorted(lines[5:]) == [".", "..", ".harnesses", "w"], lines
    run = nethub.start("true", work_dir=".harnesses", refused=True)
    assert run.refused[0] == "forbidden_path" and "device's own" in run.refused[1]
    run = nethub.start("true", handle="edgeward-install-claude", refused=True)
    assert "the device's own" in run.refused[1]
    assert all("edgeward-install" not in str(b) for s in nethub.sessions for b in s.beats), "no hub hears of it as of a run"
    assert a.ctl("workloads").json["workloads"] == [] or all("install" not in w["handle"] for w in a.ctl("workloads").json["workloads"])


def test_what_an_installer_gets(agent, net, nethub, vendor):
    """A failing one's output is told; that shows its environment, directory and user, too."""
    a = start(agent, net, nethub)
    vendor.script = GOOD + "exit 7\n"
    got = install(nethub)
    assert got["installed"] is False and "exit code 7" in got["reason"] and len(got["reason"]) <= 2000, got
    lines = got["reason"].splitlines()
    env = {line.split("=")[0] for line in lines if "=" in line and " " not in line.split("=")[0] and not line.startswith("edgeward")}
    assert env <= {"HOME", "PATH", "PWD", "SHLVL", "_"}, env
    assert any(line.startswith("at 700 /tmp/edgeward-install.") or line == "at 700 ." for line in lines), lines
    assert int(next(line for line in lines if line.isdigit())) in a.pool and any("0000000000000000" in line for line in lines)


@pytest.mark.parametrize("how,words", [
    ("nothing", "there is no claude in PATH"), ("500", "answered 500"), ("large", "larger than 2 MiB"), ("silent-large", "larger than 2 MiB"),
    ("off", "evil.test, which is not of claude.ai"), ("lookalike", "notclaude.ai, which is not"), ("prefix", "claude.ai.evil.test, which is not"),
    ("plain", "not https"), ("user", "no plain name"), ("loop", "on and on"), ("tls", "cannot be fetched")])
def test_what_is_no_installation(agent, net, nethub, vendor, how, words, ca):
    start(agent, net, nethub)
    first = f"{DOMAIN}/install.sh"
    leads = {"off": "https://evil.test/x", "lookalike": "https://notclaude.ai/x", "prefix": "https://claude.ai.evil.test/x",
             "plain": "http://claude.ai/x", "user": "https://claude.ai@evil.test/x", "loop": "https://claude.ai/install.sh"}
    if how in leads:
        vendor.routes[first] = (302, leads[how])
    elif how == "500":
        vendor.routes[first] = (500, None)
    elif how == "nothing":
        vendor.script = "exit 0\n"
    elif how == "tls":
        net.dev.run("sh", "-c", ": > /etc/ssl/certs/ca-certificates.crt")
    else:
        vendor.script = "#" * (3 << 20)
        vendor.routes[first] = (200, "chunked" if how == "silent-large" else None)
    got = install(nethub)
    assert got["installed"] is False and words in got["reason"], got
    assert not any("evil" in r or "notclaude" in r for r in vendor.requests), "nobody else was so much as asked"
    assert "claude" not in nethub.request("inventory_req", {})["payload"]["capabilities"].get("harnesses", [])


def test_a_redirect_inside_of_the_domain(agent, net, nethub, vendor):
    start(agent, net, nethub)
    vendor.routes[f"{DOMAIN}/install.sh"] = (307, "https://downloads.claude.ai/v/install.sh")
    assert install(nethub)["installed"] is True and vendor.requests == ["claude.ai/install.sh", "downloads.claude.ai/v/install.sh"]


@pytest.mark.parametrize("role", ["workerd", "connectd"])
def test_b46_a_daemon_that_dies_meanwhile(agent, net, nethub, vendor, role):
    """The installation goes on; who asks again, or still waits, is told how it ended, and it was done once."""
    a = start(agent, net, nethub)
    vendor.gate.clear()
    s = nethub.session()
    s.send("install_harness", {"harness": "claude"}, id="h1")
    wait_for(lambda: vendor.requests, 20, "the installer is asked for")
    old = a.kill9(role)
    a.restarted(role, old)
    s = nethub.session(after=s) if role == "connectd" else s
    if role == "connectd":
        s.send("install_harness", {"harness": "claude"}, id="h1")
    wait_for(lambda: a.ctl("status").json["workerd"].get("work_up"), 10, "the work channel is up")
    vendor.gate.set()
    nethub.wait("the answer", lambda: [f for _, f in s.frames if f.get("id") == "h1"], 30)
    answers = [f for _, f in s.frames if f.get("id") == "h1"]
    assert len(answers) == 1 and answers[0]["payload"]["installed"] is True and len(vendor.requests) == 1, (answers, vendor.requests)
    wait_for(lambda: not [p for p in proc.by_uid(set(a.pool))], 10, "nothing of it runs")


@pytest.mark.parametrize("policy,name,words", [
    ({"harnesses": {"install": "no"}}, "claude", "harnesses install is no"), ({"harnesses": {}}, "claude", "install is no"),
    ({"harnesses": {"install": "yes", "names": "codex"}}, "claude", "does not name claude"),
    ({"harnesses": {"install": "yes"}, "work": {"network": "none"}}, "claude", "network = none"),
    ({"harnesses": {"install": "yes"}, "work": {"start": "no"}}, "claude", "start"),
    ({"harnesses": {"install": "yes"}}, "codex", "no official installer"), ({"harnesses": {"install": "yes"}}, "bash", "no harness that this device knows")])
def test_policy_comes_first(agent, net, nethub, vendor, policy, name, words):
    """And the reason names its line; nothing is fetched."""
    start(agent, net, nethub, **policy)
    got = install(nethub, name)
    assert got["installed"] is False and words in got["reason"] and vendor.requests == [], got


def test_a_directory_somebody_else_made_is_not_trusted(agent, net, nethub, vendor):
    """A workload in the root can make it before the device does: it is not shown, and nothing is installed there."""
    a = start(agent, net, nethub)
    nethub.finish(nethub.start("mkdir -p .harnesses/.local/bin; printf '#!/bin/sh\\necho evil\\n' > .harnesses/.local/bin/claude; "
                               "chmod -R 755 .harnesses", work_dir=""))
    run = nethub.finish(nethub.start('claude 2>&1; echo "$PATH"', work_dir="w"))
    assert "evil" not in text(run) and ".harnesses" not in text(run)
    assert "claude" not in nethub.request("inventory_req", {})["payload"]["capabilities"].get("harnesses", [])
    got = install(nethub)
    assert got["installed"] is False and "another directory" in got["reason"] and vendor.requests == [], got
    assert a.pid("workerd")
