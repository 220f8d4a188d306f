"""The Debian packages: built from this tree, lintian's opinion, and tests/vm/package.sh in a container: an operator's whole way, from
dpkg -i by way of a reboot, a newer package, no network, no resolver, no clock, no disk and no journal to the purge.

B123 (an account that is there already), B124 (uids of the human range, overrides), B125 (read-only /etc and /var; package scripts that do
what must be declared). packaging/tar, the archive for other distributions, is installed and removed there, too. Where the kinds could occur: packaging/debian, sysusers.d, tmpfiles.d.
"""
import hashlib
import os
import re
import shutil
import subprocess

import pytest

from lib.agent import BUILD, REPO, is_root
from lib.clockshim import Clock
from lib.release import PROGRAMS, SIZE_MAX, unhardened

DEBS = os.path.join(BUILD, "deb")


def tracked():
    out = subprocess.run(["git", "-C", REPO, "-c", "safe.directory=*", "ls-files", "-z"], capture_output=True, check=True).stdout
    return [os.path.join(REPO, p) for p in out.decode().split("\0") if p]


def digest():
    total = hashlib.sha256()
    for path in tracked():
        if os.path.isfile(path) and not path.startswith(os.path.join(REPO, "tests")):
            with open(path, "rb") as f:
                total.update(path.encode() + hashlib.sha256(f.read()).digest())
    return total.hexdigest()


@pytest.fixture(scope="module")
def debs():
    """Paths of the two packages. They are built again when anything but a test has changed."""
    for tool in ("dh", "lintian", "dpkg-buildpackage", "git"):
        if shutil.which(tool) is None:
            pytest.skip(f"skipped: no {tool}")
    stamp, now = os.path.join(DEBS, "stamp"), digest()
    if not os.path.exists(stamp) or open(stamp, encoding="ascii").read() != now:
        p = subprocess.run([os.path.join(REPO, "packaging/deb"), DEBS], capture_output=True, text=True, check=False)
        assert p.returncode == 0, p.stdout[-4000:] + p.stderr[-2000:]
        assert not re.search(r"^[EW]: ", p.stdout, re.M), p.stdout
        with open(stamp, "w", encoding="ascii") as f:
            f.write(now)
    names = [os.path.join(DEBS, n) for n in os.listdir(DEBS) if n.endswith(".deb") and "-dbgsym_" not in n]
    assert len(names) == 2
    return sorted(names)


def newer(deb, where):
    """The same package as the next build."""
    tree = os.path.join(where, "tree")
    subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
    control = os.path.join(tree, "DEBIAN/control")
    text = open(control, encoding="utf-8").read()
    sequence = re.search(r"^Version: .*\+(\d+)$", text, re.M).group(1)
    following = str(int(sequence) + 1)
    with open(control, "w", encoding="utf-8") as f:
        f.write(text.replace(f"+{sequence}\n", f"+{following}\n"))
    release = os.path.join(tree, "usr/lib/edgeward/release")
    if os.path.exists(release):
        line = open(release, encoding="ascii").read()
        with open(release, "w", encoding="ascii") as f:
            f.write(line.replace(f" {sequence}", f" {following}"))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, where], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)


@pytest.mark.timeout(900)
def test_p10_programs_are_small_and_hardened(debs, tmp_path):
    """What the package installs of a release; netprobe and run-foreground beside it are not counted, and are as hardened."""
    subprocess.run(["dpkg-deb", "-x", next(d for d in debs if "edgeward_" in d), str(tmp_path)], check=True)
    where = tmp_path / "usr/lib/edgeward"
    paths = {n: tmp_path / "usr/bin/edgectl" if n == "edgectl" else where / n for n in (*PROGRAMS, "netprobe", "run-foreground")}
    assert not {n: u for n, p in paths.items() if (u := unhardened(str(p)))}
    size = sum(paths[n].stat().st_size for n in PROGRAMS)
    print(f"{size} bytes of programs in the package, the goal P10 is {SIZE_MAX}")
    assert size <= SIZE_MAX


@pytest.mark.timeout(900)
def test_b125_scripts_declare(debs):
    """Package scripts make no account, directory or mode by themselves: sysusers.d and tmpfiles.d do."""
    for deb in debs:
        for name in ("preinst", "postinst", "prerm"):
            p = subprocess.run(f"dpkg-deb --ctrl-tarfile '{deb}' | tar -xO ./{name}", shell=True, capture_output=True, text=True, check=False)
            found = re.findall(r"^[^#\n]*\b(useradd|adduser|groupadd|mkdir|chown|chmod)\b", p.stdout, re.M)
            assert not found, (deb, name, found)
        listing = subprocess.run(["dpkg-deb", "-c", deb], capture_output=True, text=True, check=True).stdout
        assert not re.search(r" \./(etc|var|run)/", listing), "files outside /usr and the units"


@pytest.mark.timeout(900)
def test_package_b123_b124_b125(debs, tmp_path):
    if not is_root():
        pytest.skip("skipped: a container needs root")
    if shutil.which("systemd-nspawn") is None or shutil.which("cc") is None:
        pytest.skip("skipped: no systemd-nspawn or no cc")
    dest, results = tmp_path / "dest", tmp_path / "results"
    (dest / "debs/1").mkdir(parents=True)
    (dest / "debs/2").mkdir()
    results.mkdir()
    for deb in debs:
        shutil.copy(deb, dest / "debs/1")
        newer(deb, str(dest / "debs/2"))
    build = next(os.path.join(DEBS, n, "debian/build") for n in os.listdir(DEBS) if os.path.isdir(os.path.join(DEBS, n, "debian/build")))
    subprocess.run([os.path.join(REPO, "packaging/tarball"), str(tmp_path / "tar"), build], check=True, stdout=subprocess.DEVNULL)
    shutil.copy(next((tmp_path / "tar").glob("*.tar.gz")), dest / "debs")
    clock = Clock(str(tmp_path))
    shutil.copy(clock.lib, dest / "debs/clock.so")
    vm = os.path.join(REPO, "tests/vm")
    p = subprocess.run([os.path.join(vm, "nspawn"), str(dest), os.path.join(vm, "package.sh"), str(results), "500"], capture_output=True,
                       text=True, check=False)
    if p.returncode == 97:
        pytest.skip(f"skipped: {p.stdout.strip()}")
    out = (results / "out.log").read_text() if (results / "out.log").exists() else ""
    bad = [line for line in out.splitlines() if line.startswith("FAILED: ")]
    journal = (results / "journal.log").read_text(errors="replace") if (results / "journal.log").exists() else ""
    assert p.returncode == 0 and not bad, "\n".join(bad) + "\n" + "\n".join(
        line for line in journal.splitlines() if "edgeward" in line)[-6000:] + (results / "console.log").read_text(errors="replace")[-2000:]
    assert out.count("ok: --- ") == 14 and out.count("ok: ") > 90


def contained(dest, payload, results):
    """Runs a payload of tests/vm in a container with the files of dest; returns what it said, in which nothing failed."""
    vm = os.path.join(REPO, "tests/vm")
    p = subprocess.run([os.path.join(vm, "nspawn"), str(dest), os.path.join(vm, payload), str(results), "200"], capture_output=True, text=True,
                       check=False)
    if p.returncode == 97:
        pytest.skip(f"skipped: {p.stdout.strip()}")
    out = (results / "out.log").read_text() if (results / "out.log").exists() else ""
    console = (results / "console.log").read_text(errors="replace") if (results / "console.log").exists() else ""
    assert p.returncode == 0 and "FAILED" not in out, out + console[-2000:]
    return out


def readme_commands():
    """What README.md tells a newcomer to type, from the packages to the second machine's name."""
    with open(os.path.join(REPO, "README.md"), encoding="utf-8") as f:
        part = f.read().split("## Install for real", 1)[1].split("Where there is no systemd", 1)[0]
    lines = [line.strip() for line in part.splitlines() if line.startswith("    ")]
    assert lines[0].startswith("make deb") and len(lines) > 8
    return lines[1:]


@pytest.mark.timeout(900)
def test_readme(debs, tmp_path):
    """README.md is what a newcomer has: its commands are run as they stand."""
    if not is_root():
        pytest.skip("skipped: a container needs root")
    if shutil.which("systemd-nspawn") is None:
        pytest.skip("skipped: no systemd-nspawn")
    place, results = tmp_path / "dest/readme", tmp_path / "results"
    (place / "build-deb").mkdir(parents=True)
    results.mkdir()
    for deb in debs:
        shutil.copy(deb, place / "build-deb")
    (place / "commands").write_text("\n".join(readme_commands()) + "\n", encoding="utf-8")
    assert "work ran on it" in contained(tmp_path / "dest", "readme.sh", results)


@pytest.mark.timeout(900)
def test_autopkgtest(debs, tmp_path):
    """packaging/debian/tests under the tool that Debian runs them with."""
    if not is_root():
        pytest.skip("skipped: a container needs root")
    if shutil.which("systemd-nspawn") is None or shutil.which("autopkgtest") is None:
        pytest.skip("skipped: no systemd-nspawn or no autopkgtest")
    dest, results = tmp_path / "dest", tmp_path / "results"
    (dest / "debs").mkdir(parents=True)
    results.mkdir()
    for deb in debs:
        shutil.copy(deb, dest / "debs")
    source = next(os.path.join(DEBS, n) for n in os.listdir(DEBS) if os.path.isdir(os.path.join(DEBS, n, "debian")))
    (dest / "source").mkdir()
    shutil.copytree(os.path.join(source, "debian"), dest / "source/debian", ignore=shutil.ignore_patterns("build", "tmp", "edgeward*", ".debhelper"))
    assert "smoke" in contained(dest, "autopkgtest.sh", results)
