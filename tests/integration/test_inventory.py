"""What a device tells the hub it has: hello.capabilities and inventory (protocol reference section 9; edgeward.1 section 5).

Where it could go wrong: workerd/inventory.c and usb.c (gathering under the sandbox), connectd/inventory.c (what is claimed),
connectd/invframe.c (each request answered once, with its own id). What devices say is tested in tests/unit/test_usb.c.
"""
import os
import shutil
import signal
import subprocess

import pytest

from lib import proc
from lib.agent import exe
from lib.netns import Mounts
from lib.proc import wait_for
from lib.session import new_id

pytestmark = pytest.mark.timeout(60)


def caps(hub, session=None):
    return (session or hub.session()).hello["capabilities"]


def found(*names):
    return [n for n in names if any(os.access(f"{d}/{n}", os.X_OK) and os.path.isfile(f"{d}/{n}") for d in
                                    ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"))]


def test_hello_tells_what_is_there_and_claims_nothing_else(dialect, device, hub):
    c = caps(hub)
    assert c["cpus"] == len(os.sched_getaffinity(0)) or c["cpus"] == os.cpu_count()
    with open("/proc/meminfo", encoding="ascii") as f:
        assert abs(c["memory_mb"] - int(f.readline().split()[1]) // 1024) <= 1
    assert c["packet_filter"] is not bool(c.get("packet_filter_issue")) and c["remote_upgrade"] is False and c["remote_upgrade_issue"]
    assert c["update_channel"] == "stable"
    assert c.get("harnesses", []) == found("claude", "codex", "gemini", "cloop")
    # Placement by these would send here what is refused.
    assert not c.get("container_runtimes")
    for key in ("workspace_provisioning", "write_back", "branch_bundles"):
        assert c.get(key, False) is bool(found("git"))
    if dialect == "edgeward":
        inv = c["inventory"]
        total, _, free = shutil.disk_usage(device.root)
        assert inv["kernel"] == os.uname().release and inv["disk_total_mb"] == total >> 20
        assert abs(inv["disk_free_mb"] - (free >> 20)) < 2048
        assert inv.get("container_engines", []) == found("docker", "podman", "nerdctl")
        assert inv["nft"] is bool(found("nft"))
        with open("/etc/os-release", encoding="utf-8") as f:
            assert f'PRETTY_NAME="{inv["os"]}"' in f.read()
    else:
        assert "inventory" not in c


def test_kvm_is_told_when_it_can_be_opened(agent, hub):
    """By the user who would have to: the file being there is not enough."""
    a = agent()
    a.connected()
    can = False
    if os.path.exists("/dev/kvm"):
        st, who = os.stat("/dev/kvm"), proc.status(a.pid("workerd"))
        uid, groups = int(who["Uid"].split()[0]), {int(g) for g in who["Gid"].split() + who["Groups"].split()}
        rights = st.st_mode >> (6 if uid == st.st_uid else 3 if st.st_gid in groups else 0)
        can = uid == 0 or rights & 6 == 6
    assert caps(hub).get("virtualization", False) is can


def test_usb_devices_are_those_of_sysfs(device, hub):
    top = "/sys/bus/usb/devices"
    want = sorted(n for n in os.listdir(top) if n[0].isdigit() and ":" not in n) if os.path.isdir(top) else []
    assert sorted(u["port"] for u in caps(hub).get("usb_devices", [])) == want


def test_the_policy_names_channel_and_harnesses(agent, hub):
    a = agent(policy={"harnesses": {"names": "none"}, "upgrade": {"channel": "edge"}})
    a.connected()
    assert caps(hub)["update_channel"] == "edge" and "harnesses" not in caps(hub)


@pytest.mark.parametrize("text,want", [("site=hall-2, line = b", {"site": "hall-2", "line": "b"}), ("", None), ('q="x\\,', {"q": '"x\\'}),
                                       ("a=,b=c=d,", {"a": "", "b": "c=d"}), ("a=b,a=c", False), ("a", False), ("=b", False),
                                       ("k" * 64 + "=v", False), (",".join(f"k{i}=v" for i in range(33)), False)])
def test_labels_are_those_of_the_configuration(agent, hub, text, want):
    """As they stand there, and each key once; what is no label is an error at the start."""
    a = agent(start=False, conf={"device": {"labels": text}})
    if want is False:
        p = subprocess.run([exe("connectd"), "-n", "-c", a.conf_file, "-p", a.policy_file], capture_output=True, text=True, timeout=20, check=False,
                           env={"ASAN_OPTIONS": "detect_leaks=0"})
        assert p.returncode == 1 and "[device] labels must be" in p.stderr, p
        return
    a.start()
    a.connected()
    assert caps(hub).get("labels") == want


def test_an_inventory_request_is_answered_with_its_id(dialect, device, hub):
    s = hub.session()
    first = caps(hub)
    for _ in range(3):
        got = hub.request("inventory_req", {})
        assert got["type"] == "inventory" and "handle" not in got
        now = got["payload"]["capabilities"]
        assert {k: v for k, v in now.items() if k != "inventory"} == {k: v for k, v in first.items() if k != "inventory"}
    ids = [new_id() for _ in range(4)]
    for ident in ids:
        s.send("inventory_req", {}, id=ident)

    def answers():
        return [f for _, f in s.frames if f.get("id") in ids]
    hub.wait("four answers", lambda: len(answers()) == 4, 10)
    assert sorted(f["id"] for f in answers()) == sorted(ids) and {f["type"] for f in answers()} == {"inventory"}


def test_an_inventory_request_while_workerd_is_away(device, hub):
    """What was known last is the answer: an asker is never left waiting."""
    s = hub.session()
    for _ in range(3):
        old = device.pid("workerd")
        ident = new_id()
        s.send("inventory_req", {}, id=ident)
        device.kill9("workerd")
        hub.wait("the answer", lambda i=ident: any(f.get("id") == i for _, f in s.frames), 10)
        again = hub.request("inventory_req", {})
        assert again["type"] == "inventory" and again["payload"]["capabilities"]["arch"] == caps(hub)["arch"]
        device.restarted("workerd", old)
        wait_for(lambda: device.ctl("status").json["workerd"].get("work_up"), 10, "the work channel is up")
    assert s.alive


def unasked(session):
    return [f["payload"]["capabilities"] for _, f in list(session.frames) if f["type"] == "inventory" and "id" not in f]


def test_what_changes_during_a_session_is_told(dialect, agent, hub):
    """On edgeward.1 unasked, within twenty beats, once for each change; a plain cloop hub hears it when it asks, and has no frame it did not ask for."""
    a = agent(pool=0)
    a.connected()
    s, bin_dir = hub.session(), os.path.join(a.root, ".harnesses", ".local", "bin")
    assert "claude" not in caps(hub).get("harnesses", []) or found("claude")
    others = found("claude", "codex", "gemini", "cloop")
    want = [n for n in ("claude", "codex", "gemini", "cloop") if n in others or n == "gemini"]
    os.makedirs(bin_dir)
    uid = os.stat(a.root).st_uid
    for path in (os.path.join(a.root, ".harnesses"), os.path.dirname(bin_dir), bin_dir):
        os.chown(path, uid, -1)
    with open(os.path.join(bin_dir, "gemini"), "w", encoding="ascii") as f:
        f.write("#!/bin/sh\n")
    os.chmod(os.path.join(bin_dir, "gemini"), 0o755)
    if dialect != "edgeward":
        hub.wait("25 beats", lambda: len(s.beats) >= 25, 40)
        assert unasked(s) == [] and hub.request("inventory_req", {})["payload"]["capabilities"]["harnesses"] == want
        return
    s.wait("it is told", lambda: any(c.get("harnesses") == want for c in unasked(s)), 20)
    os.unlink(os.path.join(bin_dir, "gemini"))
    s.wait("and that it went", lambda: unasked(s)[-1].get("harnesses", []) == others, 20)
    told = len([c for c in unasked(s)])
    beats = len(s.beats)
    hub.wait("25 beats more", lambda: len(s.beats) >= beats + 25, 40)
    same = [c for c in unasked(s)[told:] if c.get("harnesses", []) != others or c.get("usb_devices") == unasked(s)[told - 1].get("usb_devices")]
    assert same == [], "nothing has changed"
    before = hub.request("inventory_req", {})
    assert "id" in before and s.live


def test_a_policy_that_is_read_again_is_told(agent, hub):
    """At once: twenty beats are more than a minute here."""
    a = agent(conf={"link": {"heartbeat": "5s", "dead-after": "20s"}})
    s = a.connected()
    assert caps(hub)["update_channel"] == "stable"
    with open(a.policy_file + ".new", "w", encoding="ascii") as f:
        f.write("[upgrade]\nchannel = edge\n")
    os.chmod(a.policy_file + ".new", 0o644)
    os.rename(a.policy_file + ".new", a.policy_file)
    os.kill(a.pid("connectd"), signal.SIGHUP)
    s.wait("it is told", lambda: [c["update_channel"] for c in unasked(s)] == ["edge"], 20)
    os.kill(a.pid("connectd"), signal.SIGHUP)
    wait_for(lambda: a.log_text().count("has been read again") == 2, 10, "it is read again")
    assert hub.request("inventory_req", {})["payload"]["capabilities"]["update_channel"] == "edge"
    assert len(unasked(s)) == 1 and s.live, "the same is no news"


def test_usage_counts_what_went_to_the_disk(agent, hub):
    hub.b.edgeward = True
    a = agent()
    probe = os.path.join(a.root, "probe")
    before = proc.read("/proc/self/io") if os.path.exists("/proc/self/io") else None
    with open(probe, "wb") as f:
        f.write(os.urandom(1 << 20))
        f.flush()
        os.fsync(f.fileno())

    def written(text):
        return int(text.split(b"\nwrite_bytes: ")[1].split()[0])
    if before is None or written(proc.read("/proc/self/io")) - written(before) < 1 << 20:
        pytest.skip("skipped: this file system does not count what is written (tmpfs, or no accounting)")
    run = hub.finish(hub.start("head -c 8388608 /dev/urandom > f; sync f", work_dir="w"), 20)
    assert run.terminal["status"]["usage"]["io_write"] >= 8 << 20, run.terminal


def without_nft():
    """Where nft is not installed, and /dev/net/tun is everybody's; it comes when /usr/sbin is unmounted."""
    if found("nft", "pasta") != ["nft", "pasta"]:
        pytest.skip("skipped: no nft (package nftables) or no pasta (package passt)")
    ns = Mounts()
    ns.sh("mount -t tmpfs -o mode=755 none /mnt; mkdir /mnt/u /mnt/w /mnt/net; mknod -m 666 /mnt/net/tun c 10 200; mount --bind /mnt/net /dev/net; "
          "mount -t overlay -o lowerdir=/usr/sbin,upperdir=/mnt/u,workdir=/mnt/w none /usr/sbin; rm /usr/sbin/nft")
    return ns


@pytest.mark.root
def test_a_packet_filter_that_is_installed(agent, hub):
    """Found by the next look, a hub's or our own: a new workerd, the launcher tries again, and the hub is told; what runs goes on."""
    hub.b.edgeward = True
    ns = without_nft()
    try:
        a = agent(ns=ns)
        s = a.connected()
        run = hub.start("echo up; while [ ! -e go ]; do sleep 0.05; done; echo end", work_dir="w")
        assert caps(hub)["packet_filter"] is False and "nft" in caps(hub)["packet_filter_issue"], caps(hub)
        launcher, workerd = a.pid("launcher"), a.pid("workerd")
        ns.sh("umount -l /usr/sbin")
        first = hub.request("inventory_req", {})["payload"]["capabilities"]
        assert first["packet_filter"] is False, "it was not tried yet"
        a.restarted("workerd", workerd)
        s.wait("it is told", lambda: any(c["packet_filter"] for c in unasked(s)), 20)
        assert a.pid("launcher") == launcher and s.live
        open(os.path.join(a.root, "w", "go"), "w", encoding="ascii").close()
        assert hub.finish(run).text == b"up\nend\n"
    finally:
        ns.close()


@pytest.mark.root
def test_kvm_and_the_name_of_the_system_that_change_are_told(agent, hub):
    """Both are looked at with the rest, and by the same workerd."""
    hub.b.edgeward = True
    if not os.path.realpath("/etc/os-release").startswith("/usr/lib/"):
        pytest.skip("skipped: here /etc/os-release is no link to below /usr/lib")
    kvm = os.path.exists("/dev/kvm") and os.path.exists("/sys/class/misc/kvm")
    ns = Mounts()
    try:
        ns.sh("mount -t tmpfs none /mnt; echo 'PRETTY_NAME=\"One 1\"' > /mnt/os; mount --bind /mnt/os $(readlink -f /etc/os-release)")
        if kvm:
            ns.sh("mknod -m 600 /mnt/kvm c 10 232; mount --bind /mnt/kvm /dev/kvm")
        a = agent(ns=ns)
        s = a.connected()
        workerd = a.pid("workerd")
        assert caps(hub)["inventory"]["os"] == "One 1" and not caps(hub).get("virtualization", False)
        ns.sh("echo 'PRETTY_NAME=\"Two 2\"' > /mnt/os")
        s.wait("the name is told", lambda: [c["inventory"]["os"] for c in unasked(s)] == ["Two 2"], 20)
        if kvm:
            ns.sh("chmod 666 /mnt/kvm")
            s.wait("kvm is told", lambda: unasked(s)[-1].get("virtualization", False), 20)
            ns.sh("chmod 600 /mnt/kvm")
            assert not hub.request("inventory_req", {})["payload"]["capabilities"].get("virtualization", False)
        assert a.pid("workerd") == workerd and s.live
    finally:
        ns.close()


@pytest.mark.root
def test_what_changes_while_workerd_starts_is_tried(agent, hub):
    """Between the launcher's look and workerd's own: nft comes back in a moment that neither of them would see later."""
    hub.b.edgeward = True
    ns = without_nft()
    try:
        ns.sh("touch /mnt/wait")
        real = exe("workerd")
        ns.sh(f"cp {real} /mnt/workerd; mkdir -m 777 /mnt/t; printf '#!/bin/sh\\n: > /mnt/t/begun; while [ -e /mnt/wait ]; do sleep 0.05; done; "
              f"exec /mnt/workerd \"$@\"\\n' > /mnt/first; chmod 755 /mnt/first; mount --bind /mnt/first {real}")
        a = agent(ns=ns, wait=False)
        wait_for(lambda: os.path.exists(ns.root + "/mnt/t/begun"), 20, "workerd is begun, and has not looked yet")
        ns.sh("umount -l /usr/sbin; rm /mnt/wait")
        a.connected(40)
        assert caps(hub)["packet_filter"] is True, caps(hub)
    finally:
        ns.close()
