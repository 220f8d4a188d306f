"""The installed product under systemd: `meson install` into a container over this machine's root, then tests/vm/units.sh in it.

B22 (an installation overwrites what the administrator set), B57 (stops within its time), and the promises of SECURITY.md: users,
capabilities, filters, what connectd can see. Every line of units.sh is one finding.
upgrade.sh does upgrades there with the real daemons: a good release while work runs, one that crashes (B91), one that hangs, one while the hub
is away (B102).
"""
import os
import shutil
import subprocess

import pytest

from lib import release
from lib.agent import BUILD, REPO, is_root

MISSING = [name for name in ("systemd-nspawn", "meson") if shutil.which(name) is None]


def boot(tmp_path, payload, prepare=lambda dest: None):
    """`meson install` into a container, prepare(dest), and the payload in it: every line of its output is a finding."""
    if not is_root():
        pytest.skip("skipped: a container needs root")
    if MISSING:
        pytest.skip(f"skipped: no {', '.join(MISSING)}")
    dest, results = tmp_path / "dest", tmp_path / "results"
    results.mkdir()
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", str(dest)], check=True, capture_output=True)
    # A build with sanitizers: its leak check forks, which the filters forbid.
    conf = dest / "etc/systemd/system.conf.d/asan.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("[Manager]\nDefaultEnvironment=ASAN_OPTIONS=detect_leaks=0\n")
    prepare(dest)
    vm = os.path.join(REPO, "tests/vm")
    p = subprocess.run([os.path.join(vm, "nspawn"), str(dest), os.path.join(vm, payload), str(results), "280"], capture_output=True,
                       text=True, check=False)
    if p.returncode == 97:
        pytest.skip(f"skipped: {p.stdout.strip()}")
    out = (results / "out.log").read_text() if (results / "out.log").exists() else ""
    bad = [line for line in out.splitlines() if not line.startswith("ok: ")]
    journal = (results / "journal.log").read_text(errors="replace") if (results / "journal.log").exists() else ""
    assert p.returncode == 0 and not bad, "\n".join(bad) + "\n" + "\n".join(
        line for line in journal.splitlines() if "edgeward" in line)[-6000:] + (results / "console.log").read_text(errors="replace")[-2000:]
    assert "Sanitizer" not in journal and "runtime error" not in journal
    return out


def test_b22_units(tmp_path):
    assert boot(tmp_path, "units.sh").count("ok: ") > 50


def releases(dest, where):
    """This build under other version numbers, which are of the same length; crash and hang have a connectd that is none."""
    programs = {}
    for name, path in (("connectd", "connectd/connectd"), ("workerd", "workerd/workerd"), ("launcher", "workerd/launcher/launcher"),
                       ("privhelper", "privhelper/privhelper"), ("privupgrade", "privupgrade/privupgrade"),
                       ("privtrial", "privupgrade/privtrial"), ("privaccount", "privaccount/privaccount"), ("edgectl", "edgectl/edgectl")):
        subprocess.run(["strip", "-o", os.path.join(where, name), os.path.join(BUILD, path)], check=True)
        with open(os.path.join(where, name), "rb") as f:
            programs[name] = f.read()
    pub, sec = release.make_key(where, "test")
    (dest / "etc/edgeward/keys").mkdir(parents=True)
    shutil.copy(pub, dest / "etc/edgeward/keys/test.pub")
    (dest / "releases").mkdir()
    with open(release.compile_tool("fakeprog", where), "rb") as f:
        fake = f.read()
    for sequence, kind, behaviour in ((1001, "good", None), (1002, "crash", "crash"), (1003, "hang", "ok"), (1004, "better", None)):
        version = f"0.1.{sequence - 1000}"
        files = {n: data.replace(b"0.1.0", version.encode()) for n, data in programs.items()}
        if behaviour:
            files["connectd"] = fake + f"\nEDGEWARD-FAKE connectd {version} {behaviour}\n".encode().rjust(220)
        (dest / f"releases/{kind}.release").write_bytes(release.pack(files, where, sec, sequence, version))


def test_upgrade_b91_b102(tmp_path):
    if shutil.which("signify-openbsd") is None or shutil.which("cc") is None:
        pytest.skip("skipped: no signify-openbsd or cc")
    assert boot(tmp_path, "upgrade.sh", lambda dest: releases(dest, str(tmp_path))).count("ok: ") > 30
