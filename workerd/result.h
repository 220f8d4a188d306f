/*
 * What is taken back from a workload's directory, until the hub has it: one file of bytes (the bundle, and behind it what COLLECT
 * says of it) and one with the result itself, in the state directory. Their names are those of the workload; what nobody
 * holds is removed at start.
 */
#ifndef EDGEWARD_WORKERD_RESULT_H
#define EDGEWARD_WORKERD_RESULT_H

#include "proto/ipc/work.h"
#include "workerd/workload.h"

#define RESULT_TRAILER	1024u

/* The last lines of collect.sh. */
struct result_trailer {
	char head[41];		/* "" = none */
	uint32_t commits, files;
	char project[16];	/* none, database, link; "" = not asked for */
	char data[160];		/* with none: the document, base64 of gzip */
	char skip[128];		/* why there is nothing to bring back */
};

/* Pure; anything but what collect.sh writes is -EBADMSG. */
int result_parse(const char *text, size_t len, struct result_trailer *ret_t);

/* Makes and opens statefd/results, before the sandbox closes. */
void result_open(struct workerd *w, int statefd);

/* An empty file for COLLECT to write to: descriptor or -errno. */
int result_create(struct workload *wl);

/* What COLLECT wrote: its trailer and the number of bytes before it. */
int result_read(const struct workload *wl, struct result_trailer *ret_t, uint64_t *ret_bytes);

/* Keeps it for delivery, over restarts. wl->result is it from then on. */
void result_keep(struct workload *wl, const struct work_result *result);

/* Looks for one that was kept. */
void result_load(struct workload *wl);

/* Tells connectd, once on each channel, behind the workload's record. */
void result_tell(struct workload *wl);

/* It was delivered, or nobody wants it. */
void result_forget(struct workload *wl);

/* Everything is adopted: removes what belongs to nobody. */
void result_sweep(struct workerd *w);

#endif
