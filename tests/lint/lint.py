#!/usr/bin/python3
"""Checks what a compiler does not: who includes and links what, sizes, calls with one place, descriptors, manual pages.

    tests/lint/lint.py [--build DIR] [CHECK ...]

Without names every check runs. A check that cannot run says "skipped: why"; it never passes silently. Exit code 1 when a
check found something. rules.py holds the rules.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import rules

TOP = os.environ.get("LINT_TOP") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = ["common", "proto", "privhelper", "privupgrade", "privaccount", "connectd", "workerd", "edgectl", "hub", "packaging"]


class Skipped(Exception):
    pass


def files(*tops, ends=(".c", ".h")):
    """Paths from the top, sorted. Build directories are none of ours."""
    found = []
    for top in tops:
        for where, dirs, names in os.walk(os.path.join(TOP, top)):
            dirs[:] = [d for d in dirs if not d.startswith((".", "build", "__pycache__"))]
            found += [os.path.relpath(os.path.join(where, n), TOP) for n in names if n.endswith(ends)]
    return sorted(found)


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def code(text):
    """The text with comments and the inside of strings blanked, line numbers kept."""
    def blank(m):
        s = m.group(0)
        if s.startswith(('"', "'")):
            return s[0] + " " * (len(s) - 2) + s[-1]
        return re.sub(r"[^\n]", " ", s)
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def line_of(text, pos):
    return text.count("\n", 0, pos) + 1


def matches(pattern, path, text, allowed, why):
    if path in allowed:
        return []
    return [f"{path}:{line_of(text, m.start())}: {m.group(0).strip()}: {why}" for m in re.finditer(pattern, text)]


def folder_of(path):
    """The longest key of the include rule that path is in."""
    return max((k for k in rules.INCLUDES if path.startswith(k + "/")), key=len, default=None)


def check_includes(_args):
    bad = []
    for path in files(*FOLDERS):
        allowed = rules.INCLUDES[folder_of(path)]
        for m in re.finditer(r'^\s*#\s*include\s+"([^"]+)"', read(path), re.M):
            name = m.group(1)
            if name == "version.h" or any(name == a or a.endswith("/") and name.startswith(a) for a in allowed):
                continue
            bad.append(f"{path}:{line_of(read(path), m.start())}: may not include {name}")
    return bad


def check_needed(args):
    if args.build is None or not os.path.isdir(args.build):
        raise Skipped("no build directory was given")
    if shutil.which("readelf") is None:
        raise Skipped("no readelf")
    bad, seen = [], 0
    for exe, allowed in rules.NEEDED.items():
        path = os.path.join(args.build, exe)
        if not os.path.exists(path):
            print(f"  skipped: {exe} is not built")
            continue
        seen += 1
        out = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        linked = {re.sub(r"(-[\d.]+)?\.so.*", "", lib) for lib in re.findall(r"NEEDED.*\[([^\]]+)\]", out)}
        bad += [f"{exe}: is linked with {name}" for name in sorted(linked - allowed - rules.RUNTIME)]
        bad += [f"{exe}: rules.py lets it have {name}, which it does not use" for name in sorted(allowed - linked)]
    if seen == 0:
        raise Skipped("nothing is built")
    return bad


def check_dependencies(_args):
    """What is linked, what is built with, and what the packages name is the same everywhere, and README.md gives each its reason."""
    bad, readme = [], read("README.md").split("## What it is linked with, and why", 1)[1]
    table = "\n".join(line.split("|")[1] for line in readme.splitlines() if line.startswith("| "))
    linked = set().union(*rules.NEEDED.values())
    bad += [f"README.md: the table of libraries lacks {lib}" for lib in sorted(linked) if rules.LIBRARIES.get(lib, ("?",))[0] not in table]
    for name in re.findall(r"[\w-]+(?: 3)?", table):
        if name not in ("library", "---") and name not in {row[0] for row in rules.LIBRARIES.values()}:
            bad.append(f"README.md: {name} is in the table, and nothing is linked with it")
    bad += [f"rules.py: nothing is linked with {lib}" for lib in sorted(set(rules.LIBRARIES) - linked)]
    dev = {row[1] for row in rules.LIBRARIES.values()}
    control = read("packaging/debian/control")
    for path, text in (("packaging/packages.build", read("packaging/packages.build")), ("packaging/debian/control", control.split("\n\n", 1)[0])):
        found = set(re.findall(r"^ ?(lib(?!c6-)[\w-]+-dev)", text, re.M))
        bad += [f"{path}: {'lacks' if name in dev else 'has for nothing'} {name}" for name in sorted(found ^ dev)]
    section = control.split("\n\n")[1]
    programs = set(re.findall(r"^ ([a-z][\w-]+)(?: \(.*\))?,$", section, re.M)) - {"edgeward-hub"}
    bad += [f"packaging/debian/control: README.md does not say what {name} is for" for name in sorted(programs)
            if rules.PROGRAMS.get(name, name) not in readme]
    for path, text in (("meson.build", read("meson.build")),):
        bad += [f"{path}: does not look for {row[2]}" for row in rules.LIBRARIES.values() if not re.search(rf"'{row[2]}'", text)]
    return bad


def functions(path):
    """(name, lines) of every function: closing brace line - name line + 1, as ctags counts it."""
    out = subprocess.run(["ctags", "-f", "-", "--fields=+ne", "--kinds-C=f", "--languages=C", os.path.join(TOP, path)],
                         capture_output=True, text=True, check=True).stdout
    found = []
    for line in out.splitlines():
        m = re.match(r"(\w+)\t.*\tline:(\d+)\b.*\tend:(\d+)", line)
        if m and m.group(1) != "LOG_FUNCTION":    # a macro that makes functions
            found.append((m.group(1), int(m.group(3)) - int(m.group(2)) + 1))
    return found


def check_sizes(_args):
    bad = []
    for path in files(*FOLDERS):
        lines = read(path).count("\n")
        limit = rules.HEADER_MAX if path.endswith(".h") else rules.FILE_MAX
        if lines > limit:
            bad.append(f"{path}: {lines} lines, at most {limit}")
    for folder, (limit, without) in rules.FOLDER_MAX.items():
        total = sum(read(p).count("\n") for p in files(folder, ends=(".c",)) if os.path.basename(p) not in without)
        if total > limit:
            bad.append(f"{folder}: {total} lines of .c, at most {limit}")
    for exe, (limit, names) in rules.EXECUTABLE_MAX.items():
        folder = os.path.dirname(exe)
        total = sum(read(os.path.join(folder, n)).count("\n") for n in names if os.path.exists(os.path.join(TOP, folder, n)))
        if total > limit:
            bad.append(f"{exe}: {total} lines of .c, at most {limit}")
    for folder in sorted({os.path.dirname(exe) for exe in rules.EXECUTABLE_MAX}):
        counted = {n for exe, (_, names) in rules.EXECUTABLE_MAX.items() if os.path.dirname(exe) == folder for n in names}
        bad += [f"{p}: of no executable in EXECUTABLE_MAX" for p in files(folder, ends=(".c",)) if os.path.basename(p) not in counted]
    return bad


def check_functions(_args):
    version = subprocess.run(["ctags", "--version"], capture_output=True, text=True, check=False) if shutil.which("ctags") else None
    if version is None or "Universal Ctags" not in version.stdout:
        raise Skipped("no universal-ctags")
    bad, lengths = [], []
    sources = files(*FOLDERS, ends=(".c",))
    if not sources:
        raise Skipped("no sources")
    for path in sources:
        for name, lines in functions(path):
            lengths.append(lines)
            limit = rules.MAIN_MAX if name == "main" else rules.FUNCTION_MAX
            if lines > limit:
                bad.append(f"{path}: {name}() has {lines} lines, at most {limit}")
    median, p95 = statistics.median(lengths), sorted(lengths)[int(len(lengths) * 0.95)]
    print(f"  {len(lengths)} functions, median {median:.0f}, p95 {p95}, longest {max(lengths)}")
    if median > rules.MEDIAN_MAX:
        bad.append(f"the median function has {median:.0f} lines, at most {rules.MEDIAN_MAX}")
    if p95 > rules.P95_MAX:
        bad.append(f"p95 of the functions is {p95} lines, at most {rules.P95_MAX}")
    return bad


def check_calls(_args):
    bad = []
    for path in files(*FOLDERS):
        text = code(read(path))
        table = list(rules.FORBIDDEN)
        if path.startswith(tuple(rules.ROOT)) or path in rules.ROOT_COMMON:
            table += rules.FORBIDDEN_ROOT
        if path.startswith("privhelper/"):
            table += rules.FORBIDDEN_PRIVHELPER
        if path.startswith(("common/", "proto/")):
            table += rules.FORBIDDEN_LIBRARY
        if path.startswith("proto/ipc/"):
            table += rules.FORBIDDEN_PROTO_IPC
        for pattern, why, allowed in table:
            # Unfinished business is announced in comments, so that one looks at the whole text.
            bad += matches(pattern, path, read(path) if "TODO" in pattern else text, allowed, why)
    return bad


def statement(text, pos):
    """From pos to the end of the call: the closing parenthesis that matches the first one."""
    depth = 0
    for i in range(pos, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0 and text[i] == ")":
            return text[pos:i + 1]
    return text[pos:]


def check_descriptors(_args):
    """B59: what a child inherits has been decided. close_range before exec is the second lock, this is the first."""
    bad = []
    for path in files(*FOLDERS, ends=(".c",)):
        text = code(read(path))
        for call, word in rules.CLOEXEC.items():
            for m in re.finditer(rf"(?<![\w.>]){call}\s*\(", text):
                args = statement(text, m.start())
                if word not in args:
                    bad.append(f"{path}:{line_of(text, m.start())}: {call}() without {word}")
        for call in rules.NEVER_CLOEXEC:
            bad += matches(rf"(?<![\w.>]){call}\s*\(", path, text, [], "makes a descriptor that a child inherits")
    return bad


def check_handlers(_args):
    """B57: signals arrive as events. The only handlers are SIG_IGN and SIG_DFL."""
    bad = []
    for path in files(*FOLDERS, ends=(".c",)):
        text = code(read(path))
        for m in re.finditer(r"(?<![\w.>])signal\s*\(", text):
            if not re.search(r"SIG_(IGN|DFL)\s*\)$", statement(text, m.start())):
                bad.append(f"{path}:{line_of(text, m.start())}: a signal handler; use loop_signals()")
        for m in re.finditer(r"\.sa_(handler|sigaction)\s*=\s*(\w+)", text):
            if m.group(2) not in ("SIG_IGN", "SIG_DFL"):
                bad.append(f"{path}:{line_of(text, m.start())}: a signal handler; use loop_signals()")
    return bad


def check_headers(_args):
    """Every file opens with its design, every header has its guard."""
    bad = []
    for path in files(*FOLDERS):
        text = read(path)
        if path.endswith(".h"):
            if not re.match(r"/\*.*?\*/\n#ifndef (EDGEWARD_\w+_H)\n#define \1\n", text, re.S):
                bad.append(f"{path}: does not open with a comment and its guard")
        elif not text.startswith("/*") and not os.path.exists(os.path.join(TOP, path[:-1] + "h")):
            bad.append(f"{path}: has no header, so it must open with what it is for")
    for path in files("privhelper", "privupgrade", "privaccount", ends=(".c",)):
        head = read(path).split("*/")[0]
        bad += [f'{path}: its head lacks "{w}"' for w in ("Who calls", "What is trusted", "On error") if w.lower() not in head.lower()]
    return bad


def tracked():
    if shutil.which("git") is None or not os.path.exists(os.path.join(TOP, ".git")):
        raise Skipped("not a git checkout")
    out = subprocess.run(["git", "-C", TOP, "-c", "safe.directory=*", "ls-files", "-z"], capture_output=True, check=True).stdout
    return [p for p in out.decode().split("\0") if p and os.path.isfile(os.path.join(TOP, p))]


def check_machine_paths(_args):
    bad = []
    for path in tracked():
        if path == "tests/lint/rules.py":
            continue
        bad += matches(rules.MACHINE, path, read(path), [], "a path of one machine")
    return bad


def check_man(_args):
    pages = files("man", ends=(".1", ".5", ".7", ".8"))
    if shutil.which("mandoc") is None:
        raise Skipped("no mandoc")
    if not pages:
        raise Skipped("no manual pages")
    out = subprocess.run(["mandoc", "-Tlint", "-Wstyle", *[os.path.join(TOP, p) for p in pages]], capture_output=True, text=True,
                         check=False)
    # Whether a page that is referred to is installed says something of this machine, not of ours.
    return [line.replace(TOP + "/", "") for line in (out.stdout + out.stderr).splitlines()
            if "referenced manual not found" not in line and "outdated mandoc.db" not in line]


def check_man_keys(_args):
    """Every configuration key has its place in a manual page, with its default."""
    bad = []
    for table, source, page in (("conf_keys", "common/conf.c", "man/edgeward.conf.5"),
                                ("policy_keys", "common/policy.c", "man/policy.conf.5")):
        body = re.search(rf"{table}\[\] = \{{(.*?)^\}};", read(source), re.S | re.M).group(1)
        text = read(page) if os.path.exists(os.path.join(TOP, page)) else ""
        keys = re.findall(r'\{ "([^"]+)", "([^"]+)", .*"([^"]*)" \}', body)
        if not keys:
            bad.append(f"{table}: no keys found, the pattern of this check is out of date")
        for section, key, default in keys:
            entry = re.search(rf"^\.It Cm {re.escape(key)}(?![\w-])(.*?)(?=^\.It |^\.El|\Z)", text, re.S | re.M)
            if entry is None:
                bad.append(f"{page}: lacks [{section}] {key}")
            elif default != "" and default not in entry.group(1):
                bad.append(f"{page}: {key} does not name its default {default}")
    return bad


CAUSE_SITES = [    # (files, the text in which every string of the form of a code is one)
    (("connectd",), r"\b(?:hubend_set|session_end|link_set_cause|nothing|why_date)\s*\((?:[^;\"]|\"(?:\\\\.|[^\"\\\\])*\")*;"),
    (("connectd/upgrade.c",), r"\{ \d{3}, \d{3}, \"[a-z-]+\""),
    (("connectd/link.c",), r"snprintf\(end\.code[^;]*;"),
    (("connectd/status.c",), r"snprintf\(st->cause[^;]*;"),
    (("workerd/control.c",), r"\bcode = \"[a-z-]+\";"),
    (("workerd/launcher/main.c",), r"STATUS=[a-z-]+:"),
]


def check_man_causes(_args):
    """Every cause code that connectd and workerd can show has its place in their manual pages."""
    bad, found = [], {"connectd": set(), "workerd": set()}
    for tops, pattern in CAUSE_SITES:
        for path in (p for top in tops for p in ([top] if top.endswith(".c") else files(top, ends=(".c",)))):
            text = re.sub(r"/\*.*?\*/", "", read(path), flags=re.S)
            for m in re.finditer(pattern, text):
                found[path.split("/")[0]] |= set(re.findall(r'["=]([a-z]+(?:-[a-z]+)*)[":]', m.group(0)))
    for process, codes in found.items():
        if len(codes) < 5:
            bad.append(f"{process}: no cause codes found, the pattern of this check is out of date")
        section = re.search(r"^\.Sh CAUSES\n(.*?)^\.Sh ", read(f"man/{process}.8"), re.S | re.M)
        listed = {c for row in re.findall(r"^\.It Cm (.+)$", section.group(1) if section else "", re.M) for c in row.split(" , ")}
        bad += [f"man/{process}.8: CAUSES lacks {c}" for c in sorted(codes - listed)]
        bad += [f"man/{process}.8: CAUSES has {c}, which no code sets" for c in sorted(listed - codes)]
    return bad


def check_man_commands(_args):
    """Every command and every exit status of edgectl stands in its page; every option of a daemon's usage line in its page."""
    bad, page = [], read("man/edgectl.8")
    commands = re.findall(r'^\t\{ "(\w+)", cmd_', read("edgectl/main.c"), re.M)
    if len(commands) < 10:
        bad.append("edgectl/main.c: its commands are not found, the pattern of this check is out of date")
    bad += [f"man/edgectl.8: lacks {c}" for c in commands if not re.search(rf"^\.It Ic {c}\b", page, re.M) and c != "help"]
    status = re.search(r"^\.Sh EXIT STATUS\n(.*?)^\.Sh ", page, re.S | re.M).group(1)
    for value in re.findall(r"EXIT_\w+ = (\d+),", read("edgectl/edgectl.h")):
        if not re.search(rf"^\.It {value}$", status, re.M):
            bad.append(f"man/edgectl.8: lacks exit status {value}")
    for path, name in (("connectd/main.c", "connectd"), ("workerd/main.c", "workerd"), ("privhelper/main.c", "privhelper"),
                       ("privupgrade/main.c", "privupgrade"), ("hub/main.c", "edgehub")):
        text = read(f"man/{name}.8")
        for options in re.findall(r'getopt(?:_long)?\(argc, argv, "\+?:?([A-Za-z:]+)"', read(path)):
            for opt in options.replace(":", ""):
                if not re.search(rf"^\.(?:It|Op|Nm \w+ Op)? ?.*Fl \w*{opt}", text, re.M):
                    bad.append(f"man/{name}.8: lacks -{opt}")
    return bad


def check_units(_args):
    units = files("packaging/systemd", ends=(".service.in", ".socket", ".path"))
    bad = []
    if not units:
        raise Skipped("no units")
    for path in units:
        text = read(path)
        if path.endswith(".service.in"):
            bad += [f"{path}: lacks {key}=" for key in ("StartLimitIntervalSec", "LogRateLimitIntervalSec", "LogRateLimitBurst",
                                                       "Restart", "NoNewPrivileges") if f"\n{key}=" not in text]
        bad += [f"{path}: {program} may not be there: only what packages of every Debian have (dash, coreutils)" for program in
                re.findall(r"^Exec\w+=[-+!@:]*(/\S+)", text, re.M) if not program.startswith("/var/lib/edgeward/") and program not in ("/bin/sh", "/bin/sleep")]
        if re.search(r"(?i)(token|secret|password|credential)\s*=\s*\S", text):
            bad.append(f"{path}: a secret has no place in a unit")
    return bad


def check_units_verify(args):
    """systemd's own opinion, of the units and of a boot with all of them enabled (no ordering cycle). It exits 0 for an unknown key, so any output counts."""
    if shutil.which("systemd-analyze") is None:
        raise Skipped("no systemd-analyze")
    units = files("packaging/systemd", ends=(".service.in", ".socket", ".path"))
    if not units:
        raise Skipped("no units")
    with tempfile.TemporaryDirectory() as where:
        names = []
        for path in units:
            names.append(os.path.join(where, os.path.basename(path).removesuffix(".in")))
            with open(names[-1], "w", encoding="utf-8") as f:
                # The programs need not be built for this: any executable will do.
                f.write(re.sub(r"(@(?:libexecdir|bindir)@|/var/lib/edgeward/(current|updater))/\w+", "/bin/true", read(path)))
            for target in re.findall(r"^WantedBy=(\S+)$", read(path), re.M):
                os.makedirs(f"{where}/{target}.wants", exist_ok=True)
                os.symlink(names[-1], f"{where}/{target}.wants/{os.path.basename(names[-1])}")
        names.append("multi-user.target")
        out = subprocess.run(["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True, check=False,
                             env={**os.environ, "SYSTEMD_UNIT_PATH": where + ":"})
    return [line.replace(where + "/", "") for line in (out.stdout + out.stderr).splitlines()]


def analyzed_units():
    """Each unit's path and text, what `systemd-analyze security` says of it, and the end of that, for when it cannot be understood."""
    if shutil.which("systemd-analyze") is None:
        raise Skipped("no systemd-analyze")
    with tempfile.TemporaryDirectory() as where:
        for path in sorted(files("packaging/systemd", ends=(".service.in",))):
            text, unit = read(path), os.path.join(where, os.path.basename(path).removesuffix(".in"))
            with open(unit, "w", encoding="utf-8") as f:
                f.write(re.sub(r"@\w+@", "/usr/lib/edgeward", text))
            out = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", unit], capture_output=True, text=True, check=False,
                                 env={**os.environ, "LC_ALL": "C.UTF-8"})
            yield path, text, out.stdout, (out.stderr or out.stdout).strip()[-200:]


def check_units_exposure(_args):
    """What `systemd-analyze security` makes of each unit's confinement, against the limits of rules.py."""
    bad = []
    for path, _, said, end in analyzed_units():
        limit = rules.EXPOSURE.get(os.path.basename(path).removesuffix(".in"))
        found = re.search(r"exposure level for \S+: ([\d.]+)", said)
        if limit is None:
            bad.append(f"{path}: rules.py has no limit for its exposure")
        elif found is None:
            bad.append(f"{path}: {end}")
        elif float(found.group(1)) > limit:
            bad.append(f"{path}: exposure {found.group(1)}, at most {limit}")
    return bad


def check_units_explained(_args):
    """Whatever `systemd-analyze security` still counts against a unit is named in a comment of that unit, with its reason."""
    bad = []
    for path, text, said, end in analyzed_units():
        reasons = "\n".join(line for line in text.splitlines() if line.startswith("#"))
        points = re.findall(r"^\S*\u2717\S* (\S+)", said, re.M)
        if not points:
            bad.append(f"{path}: {end}")
        for point in points:
            # "A=~X_(B|C)" is explained by X_B or X_C, "A=/B=" by A or B, "A=~..." by A.
            name, _, rest = point.partition("=~")
            m = re.fullmatch(r"(\w+)\((.*)\)", rest)
            words = [m.group(1) + w for w in m.group(2).split("|")] if m else [rest] if re.match(r"[@A-Z]", rest) else []
            words = words or [w for w in re.split(r"[=/]+", name) if w]
            if name == "RestrictAddressFamilies" and "RestrictAddressFamilies" in reasons:
                continue        # left off altogether
            if not any(re.search(re.escape(w.rstrip("*")) + ("" if w.endswith("*") else r"(?![a-z])"), reasons) for w in words):
                bad.append(f"{path}: nothing says why {point} is left")
    return bad


def check_completions(_args):
    """Every command of edgectl and edgehub is offered, and bash reads the file."""
    if shutil.which("bash") is None:
        raise Skipped("no bash")
    bad = []
    for program, source, pattern in (("edgectl", "edgectl/main.c", r'^\t\{ "(\w+)", cmd_'), ("edgehub", "hub/main.c", r'\{ "(\w+)", cli_')):
        path = os.path.join(TOP, "packaging/completions", program)
        script = (f'. "$1" && COMP_WORDS=({program} "") COMP_CWORD=1 && _{program} && echo "${{COMPREPLY[*]}}"')
        p = subprocess.run(["bash", "-c", script, "bash", path], capture_output=True, text=True, check=False)
        if p.returncode != 0 or p.stderr:
            bad.append(f"packaging/completions/{program}: {p.stderr.strip()}")
            continue
        commands = re.findall(pattern, read(source), re.M)
        if len(commands) < 5:
            bad.append(f"{source}: its commands are not found, the pattern of this check is out of date")
        bad += [f"packaging/completions/{program}: does not offer {c}" for c in commands if c not in p.stdout.split()]
        for shell, name in (("zsh", f"zsh/_{program}"), ("fish", f"fish/{program}.fish")):
            if not os.path.exists(os.path.join(TOP, "packaging/completions", name)):
                bad.append(f"packaging/completions/{name}: is missing")
                continue
            text = read("packaging/completions/" + name)
            bad += [f"packaging/completions/{name}: does not offer {c}" for c in commands if not re.search(rf"(-a |\s[\"']){c}\b", text)]
            if shutil.which(shell) is not None:
                p = subprocess.run([shell, "-n", os.path.join(TOP, "packaging/completions", name)], capture_output=True, text=True, check=False)
                bad += [f"packaging/completions/{name}: {p.stderr.strip()}"] if p.returncode != 0 or p.stderr else []
    return bad


def check_options(_args):
    """Every long option that edgehub and edgectl take stands in the program's help, its page, and the three completions."""
    bad = []
    for program, sources, main in (("edgehub", files("hub", ends=(".c", ".h")), "hub/main.c"),
                                   ("edgectl", files("edgectl", ends=(".c", ".h")), "edgectl/main.c")):
        options = set()
        for path in sources:
            text = read(path)
            options |= set(re.findall(r'\{ "([a-z][a-z-]+)", (?:no|required|optional)_argument', text))
            options |= set(re.findall(r'strcmp\(argv\[\w+\], "--([a-z][a-z-]+)"\)', text))
        options -= {"help", "json", "version", "no-tty"}     # known by their letters
        if len(options) < 8:
            bad.append(f"{program}: its options are not found, the pattern of this check is out of date")
        places = {main: r"--{}\b", f"man/{program}.8": r"Fl -{}\b", f"packaging/completions/{program}": r"--{}\b",
                  f"packaging/completions/zsh/_{program}": r"--{}\b", f"packaging/completions/fish/{program}.fish": r"(-l |\s){}\b"}
        for path, pattern in places.items():
            text = read(path).replace("\\-", "-")
            bad += [f"{path}: lacks --{o}" for o in sorted(options) if not re.search(pattern.format(re.escape(o)), text)]
    return bad


def check_behaviours(_args):
    """The tests that tests/BEHAVIOURS.md names exist."""
    path, bad = "tests/BEHAVIOURS.md", []
    if not os.path.exists(os.path.join(TOP, path)):
        raise Skipped("no table")
    for n, line in enumerate(read(path).splitlines(), 1):
        for name in re.findall(r"(?:unit|fuzz|vm)/\w+\.\w+", line):
            if not os.path.exists(os.path.join(TOP, "tests", name)):
                bad.append(f"{path}:{n}: there is no tests/{name}")
        for name, test in re.findall(r"(test_\w+\.py) (test_\w+)", line):
            full = os.path.join("tests/integration", name)
            if not os.path.exists(os.path.join(TOP, full)) or f"def {test}(" not in read(full):
                bad.append(f"{path}:{n}: there is no {test} in {full}")
    return bad


def check_format(args):
    """Only told, never failed on: clang-format breaks lines in other places than people do."""
    if shutil.which("clang-format") is None:
        raise Skipped("no clang-format")
    if not args.format:
        raise Skipped("told with --format only")
    out = subprocess.run(["clang-format", "--dry-run", *[os.path.join(TOP, p) for p in files(*FOLDERS)]], capture_output=True, text=True,
                         check=False)
    count = len(re.findall(r"code should be clang-formatted", out.stderr))
    print(f"  clang-format would change {count} places")
    return []


CHECKS = {name.removeprefix("check_").replace("_", "-"): f for name, f in sorted(globals().items()) if name.startswith("check_")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build")
    parser.add_argument("--format", action="store_true")
    parser.add_argument("checks", nargs="*", choices=[[], *CHECKS])
    args = parser.parse_args()
    failed = skipped = 0
    for name in args.checks or CHECKS:
        print(f"{name}:")
        try:
            bad = CHECKS[name](args)
        except Skipped as why:
            print(f"  skipped: {why}")
            skipped += 1
            continue
        for line in bad:
            print("  " + line)
        failed += bool(bad)
    if skipped == len(args.checks or CHECKS):
        return 77       # meson shows it as skipped
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
