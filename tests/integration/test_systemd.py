"""The installed product under systemd: `meson install` into a container over this machine's root, then tests/vm/units.sh in it.

B22 (an installation overwrites what the administrator set), B57 (stops within its time), and the promises of SECURITY.md: users,
capabilities, filters, what connectd can see. Every line of units.sh is one finding.
upgrade.sh does upgrades there with the real daemons: a good release while work runs, one that crashes (B91), one that hangs, one that the hub
does not take although it is there, one while the hub is away (B102), one while the units are restarted all the time; and from the hub's own frame
on, to the result it is told: one that it sends, a bad one that it sends, one that the device fetches from its mirror.
"""
import os
import shutil
import subprocess

import pytest

from lib.agent import BUILD, REPO, is_root

MISSING = [name for name in ("systemd-nspawn", "meson") if shutil.which(name) is None]


def boot(tmp_path, payload, prepare=lambda dest: None, limit=280):
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
    p = subprocess.run([os.path.join(vm, "nspawn"), str(dest), os.path.join(vm, payload), str(results), str(limit)], capture_output=True,
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


def releases(dest):
    subprocess.run([os.path.join(REPO, "tests/vm/releases"), BUILD, str(dest)], check=True)


@pytest.mark.timeout(960)
def test_upgrade_b91_b102(tmp_path):
    if shutil.which("signify-openbsd") is None or shutil.which("cc") is None:
        pytest.skip("skipped: no signify-openbsd or cc")
    assert boot(tmp_path, "upgrade.sh", releases, 900).count("ok: ") > 45
