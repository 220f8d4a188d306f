"""The installed product under systemd: `meson install` into a container over this machine's root, then tests/vm/units.sh in it.

B22 (an installation overwrites what the administrator set), B57 (stops within its time), and the promises of SECURITY.md: users,
capabilities, filters, what connectd can see. Every line of units.sh is one finding.
"""
import os
import shutil
import subprocess

import pytest

from lib.agent import BUILD, REPO, is_root

MISSING = [name for name in ("systemd-nspawn", "meson") if shutil.which(name) is None]


def test_b22_units(tmp_path):
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
    vm = os.path.join(REPO, "tests/vm")
    p = subprocess.run([os.path.join(vm, "nspawn"), str(dest), os.path.join(vm, "units.sh"), str(results), "240"], capture_output=True,
                       text=True, check=False)
    if p.returncode == 97:
        pytest.skip(f"skipped: {p.stdout.strip()}")
    out = (results / "out.log").read_text() if (results / "out.log").exists() else ""
    bad = [line for line in out.splitlines() if not line.startswith("ok: ")]
    journal = (results / "journal.log").read_text(errors="replace") if (results / "journal.log").exists() else ""
    assert p.returncode == 0 and not bad, "\n".join(bad) + "\n" + "\n".join(
        line for line in journal.splitlines() if "edgeward" in line)[-6000:] + (results / "console.log").read_text(errors="replace")[-2000:]
    assert "Sanitizer" not in journal and "runtime error" not in journal
    assert out.count("ok: ") > 50
