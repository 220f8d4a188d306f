/*
 * A process narrows itself by data: a table of system calls for seccomp, a table of directories for Landlock. Each
 * process has its tables in its own sandbox.c; this turns them into kernel calls.
 */
#ifndef EDGEWARD_SANDBOX_H
#define EDGEWARD_SANDBOX_H

#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>

#define SANDBOX_ARGS	3

/* One allowed call; with args, all of them must hold. Several rows for one call are alternatives. */
struct sandbox_rule {
	int nr;				/* SCMP_SYS(name); a call the architecture lacks is skipped */
	unsigned nargs;
	struct scmp_arg_cmp args[SANDBOX_ARGS];
};

#define SANDBOX_EQ(n, v)	{ .arg = (n), .op = SCMP_CMP_EQ, .datum_a = (scmp_datum_t)(v) }
/* (argument & mask) == v */
#define SANDBOX_MASK(n, mask, v) \
	{ .arg = (n), .op = SCMP_CMP_MASKED_EQ, .datum_a = (scmp_datum_t)(mask), .datum_b = (scmp_datum_t)(v) }

/* What every daemon needs: memory without PROT_EXEC, clocks, epoll, reading and writing what is open, exit. */
extern const struct sandbox_rule sandbox_base[];
extern const size_t sandbox_base_len;

/*
 * Allows sandbox_base and rules, everything else kills the process (with the build option sandbox-action=log it is logged
 * by the kernel and allowed). For every thread of the process. Needs no_new_privs. -errno.
 */
int sandbox_seccomp(const struct sandbox_rule *rules, size_t n);

/*
 * The opposite: everything is allowed except rules, which fail with EPERM, for the machine's 32-bit programs, too. For the
 * launcher, whose filter every workload inherits.
 */
int sandbox_seccomp_deny(const struct sandbox_rule *rules, size_t n);

#define SANDBOX_READ	0x1u		/* read files, list directories */
#define SANDBOX_WRITE	0x2u		/* write, truncate, create and remove regular files and directories, rename */
#define SANDBOX_EXEC	0x4u
#define SANDBOX_REMOVE	0x8u		/* remove regular files, no more */
#define SANDBOX_DEVICE	0x10u		/* the path is a device, which unlike a file is never replaced by another */
#define SANDBOX_NODES	0x20u		/* use the devices in a directory; make and remove none */
#define SANDBOX_MKNOD	0x80u		/* make and remove devices and directories, list them; open none */
#define SANDBOX_ALL	0x40u		/* everything but making devices */

struct sandbox_path {
	const char *path;		/* a directory; one that does not exist is skipped; NULL entries too */
	unsigned access;		/* SANDBOX_* */
};

/* The directory of a file, for a row of paths: into buf, or NULL when there is none to allow. */
const char *sandbox_directory_of(const char *file, char *buf, size_t size);

/* The kernel's Landlock ABI, 0 when there is none. */
int sandbox_landlock_abi(void);

/*
 * Denies every path that is not beneath one of the listed ones and, where the kernel can (ABI 6), signals to and abstract
 * unix sockets of processes outside. Returns the ABI in force, 0 when the kernel has no
 * Landlock (the caller says so), -errno.
 */
int sandbox_landlock(const struct sandbox_path *paths, size_t n);

#endif
