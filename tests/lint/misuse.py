#!/usr/bin/env python3
"""B56: two meanings in one type. Each misuse below must not compile with the project's flags, and its right form must.

Where the kind could occur: pids, descriptors, uids, ids of workloads, times. Times have a type (monotime_t); the records of one message
are no other's; what is left are integers, which the kernel's word (SO_PEERCRED) and rules of each channel keep apart
(unit/test_introduce.c).
"""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", "-Werror=incompatible-pointer-types", "-Werror=int-conversion",
         "-Werror=implicit-function-declaration", "-Werror=switch-enum", "-Werror=format=2", "-Wall", "-I", ROOT]
HEAD = """
#include "common/ipc.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/monotime.h"
#include "proto/ipc/work.h"
void f(struct loop *l, struct loop_timer *t, struct ipc_chan *c, struct work_ref *ref, int fd, int64_t ms, monotime_t at, const char *s);
void take_ref(const struct work_ref *r);
void f(struct loop *l, struct loop_timer *t, struct ipc_chan *c, struct work_ref *ref, int fd, int64_t ms, monotime_t at, const char *s)
{
	%s
}
"""
CASES = [   # what is meant, wrong, right
    ("milliseconds where a moment belongs", "loop_timer_set(l, t, ms);", "loop_timer_set(l, t, monotime_add_ms(at, ms));"),
    ("a moment where milliseconds belong", "loop_timer_set_ms(l, t, at);", "loop_timer_set_ms(l, t, monotime_diff_ms(at, monotime_now()));"),
    ("a moment compared with a number", "(void)(at < ms);", "(void)monotime_before(at, monotime_now());"),
    ("a moment taken for a number", "int64_t n = at; (void)n;", "int64_t n = at.ns; (void)n;"),
    ("moments subtracted by hand", "(void)(monotime_now() - at);", "(void)monotime_diff_ms(monotime_now(), at);"),
    ("the record of another message", "struct work_offset o = { 0 }; take_ref(&o);", "take_ref(ref);"),
    ("a timer for a watched descriptor", "loop_io_del(l, t);", "loop_timer_del(l, t);"),
    ("a descriptor for a channel", "ipc_chan_done(fd);", "ipc_chan_done(c);"),
    ("a channel for a descriptor", "int n = c; (void)n;", "int n = c->io.fd; (void)n;"),
    ("a string as a format", "log_info(s);", 'log_info("%s", s);'),
]


def compiles(body):
    with tempfile.NamedTemporaryFile("w", suffix=".c") as f:
        f.write(HEAD.replace("%s", body))
        f.flush()
        return subprocess.run([*os.environ.get("CC", "cc").split(), *FLAGS, f.name], capture_output=True, check=False).returncode == 0


bad = [f"compiles: {what}: {wrong}" for what, wrong, _ in CASES if compiles(wrong)]
bad += [f"does not compile: {right}" for _, _, right in CASES if not compiles(right)]
print("\n".join(bad) or f"{len(CASES)} misuses, none compiles")
sys.exit(bool(bad))
