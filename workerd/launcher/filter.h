/* The system calls a workload does not have: one table, compiled when the launcher starts. */
#ifndef EDGEWARD_LAUNCHER_FILTER_H
#define EDGEWARD_LAUNCHER_FILTER_H

#include <linux/filter.h>
#include <stdint.h>

/* Which rows of the table a program holds. */
enum filter_kind {
	FILTER_INHERITED,	/* what the launcher itself can do without: installed once, every workload has it */
	FILTER_WORKLOAD,	/* what only the start of a workload needs: installed last */
	FILTER_WORKLOAD_SHARED,	/* the same, for a workload that shares its pid namespace with others of its uid */
};

/* The program for an architecture of libseccomp (SCMP_ARCH_*, with its 32-bit sibling); filter is allocated. 0 or -errno. */
int filter_build(enum filter_kind kind, uint32_t arch, struct sock_fprog *ret_prog);

/* Installs a program in this process; no_new_privs is set. 0 or -errno. */
int filter_install(const struct sock_fprog *prog);

#endif
