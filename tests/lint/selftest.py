#!/usr/bin/python3
"""A tree in which every rule is broken once: each check of lint.py must find its line, and nothing in a clean tree."""
import os
import subprocess
import sys
import tempfile

import rules

LINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lint.py")

# check -> ({path: text}, what its output must hold)
LONG = "int\nf(void)\n{\n" + "\tg();\n" * 90 + "\treturn 0;\n}\n"
BROKEN = {
    "includes": ({"privhelper/a.c": '/* x */\n#include "common/conf.h"\n', "connectd/b.c": '#include "workerd/x.h"\n'},
                 ["privhelper/a.c:2: may not include common/conf.h", "connectd/b.c:1: may not include workerd/x.h"]),
    "sizes": ({"hub/a.c": "\n" * 700, "hub/a.h": "\n" * 300, "workerd/launcher/m.c": "\n" * 801},
              ["hub/a.c: 700 lines", "hub/a.h: 300 lines", "workerd/launcher: 801 lines"]),
    "functions": ({"hub/a.c": LONG}, ["f() has 94 lines"]),
    "calls": ({"hub/a.c": "/* TODO */\nvoid f(void) { goto x; atoi(s); getaddrinfo(a); time(NULL); connect(1, 0, 0); }\n",
               "privhelper/a.c": "void f(void) { chown(a); execl(b); open(c); }\n", "common/a.c": "void f(void) { log_warn(x); printf(y); }\n",
               "proto/ipc/a.c": "void f(void) { malloc(3); }\n", "privaccount/a.c": "void f(void) { lchown(a); }\n",
               "privupgrade/a.c": "void f(void) { rename(a); }\n", "common/tap.c": "void f(void) { fchownat(a); chmod(a); }\n",
               "common/usbgrant.c": "void f(void) { fchownat(a); unlink(a); }\n", "connectd/a.c": "int x = CLOCK_REALTIME;\n"},
              ["TODO", "goto", "atoi(", "getaddrinfo(", "time(", "connect(", "chown(", "execl(", "open(", "log_warn(", "printf(", "malloc(",
               "CLOCK_REALTIME", "privaccount/a.c:1: lchown(", "privupgrade/a.c:1: rename(", "common/tap.c:1: fchownat(", "common/tap.c:1: chmod(",
               "common/usbgrant.c:1: unlink("]),
    "descriptors": ({"hub/a.c": "void f(void) { open(x,\n O_RDONLY); accept(l); socket(a, b | SOCK_CLOEXEC, 0); }\n"},
                    ["hub/a.c:1: open() without O_CLOEXEC", "accept("]),
    "handlers": ({"hub/a.c": "void f(void) { signal(SIGTERM, on_term); signal(SIGHUP, SIG_IGN); sa.sa_handler = h; }\n"},
                 ["hub/a.c:1: a signal handler", "hub/a.c:1: a signal handler"]),
    "headers": ({"hub/a.c": "int x;\n", "hub/b.h": "int x;\n", "privhelper/a.c": "/* Who calls: x */\n"},
                ["hub/a.c: has no header", "hub/b.h: does not open", 'its head lacks "On error"']),
    "man": ({"man/a.8": ".Dd June 1, 2026\n.Dt A 8\n.Os\n.Sh NAME\n.Nm a\n.Nd b\n.Sh DESCRIPTION\ntrailing space \n"}, ["man/a.8"]),
    "man-keys": ({"common/conf.c": 'static const struct key conf_keys[] = {\n\t{ "hub", "url", KEY_STR, C(x), 0, 0, NULL, "abc" },\n};\n',
                  "common/policy.c": 'static const struct key policy_keys[] = {\n\t{ "work", "start", KEY_BOOL, P(x), 0, 0, NULL, "yes" },\n};\n',
                  "man/policy.conf.5": ".It Cm start\nno default\n"},
                 ["lacks [hub] url", "start does not name its default yes"]),
    "completions": ({"packaging/completions/edgectl": "_edgectl() { COMPREPLY=(status); }\n", "packaging/completions/edgehub": "((\n",
                     "edgectl/main.c": "".join(f'\t{{ "{c}", cmd_{c}, 0 }},\n' for c in ("status", "logs", "drain", "help", "signal"))},
                    ["completions/edgectl: does not offer logs", "fish/edgectl.fish: is missing", "completions/edgehub: "]),
    "behaviours": ({"tests/BEHAVIOURS.md": "| a | test_x.py test_a, test_x.py test_b, test_y.py test_c, unit/test_z.c |\n",
                    "tests/integration/test_x.py": "def test_a(dev):\n    pass\n"},
                   ["BEHAVIOURS.md:1: there is no test_b in tests/integration/test_x.py", "no test_c", "no tests/unit/test_z.c"]),
    "units-explained": ({"packaging/systemd/a.service.in": "# User=: x\n[Service]\nExecStart=@libexecdir@/x\n"}, ["why PrivateNetwork= is left", "CAP_SET"]),
    "units-verify": ({"packaging/systemd/a.service.in": "[Service]\nExecStart=@libexecdir@/x\nNoSuchKey=1\n"}, ["NoSuchKey"]),
    "units": ({"packaging/systemd/a.service.in": "[Service]\nEnvironment=TOKEN=abc\n"}, ["lacks Restart=", "a secret has no place"]),
}


def run(top, *checks):
    p = subprocess.run([sys.executable, LINT, *checks], env={**os.environ, "LINT_TOP": top}, capture_output=True, text=True, check=False)
    return p.returncode, p.stdout + p.stderr


def put(top, tree):
    for path, text in tree.items():
        full = os.path.join(top, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)


def main():
    failed = 0
    for path in rules.ROOT_COMMON:    # one that was renamed would be looked at no more
        if not os.path.exists(os.path.join(os.path.dirname(LINT), "../..", path)):
            failed += 1
            print(f"rules.py: there is no {path}")
    for check, (tree, wanted) in BROKEN.items():
        with tempfile.TemporaryDirectory() as top:
            put(top, tree)
            rc, out = run(top, check)
        if f"{check}:\n  skipped:" in out:
            print(f"{check}: {out.split(chr(10))[1].strip()}")
            continue
        missing = [w for w in wanted if w not in out]
        if rc != 1 or missing:
            failed += 1
            print(f"{check}: exit code {rc}, did not find {missing}:\n{out}")
    with tempfile.TemporaryDirectory() as top:
        put(top, {"hub/a.c": "/* What it is for. */\nint\nf(void)\n{\n\treturn open(x, O_CLOEXEC); /* atoi( */\n}\n"})
        rc, out = run(top, "includes", "sizes", "functions", "calls", "descriptors", "handlers", "headers")
        if rc != 0:
            failed += 1
            print(f"a clean tree is not found clean:\n{out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
