/*
 * One control socket, seen from edgectl. Everything has a deadline: a daemon that is dead, hung or busy costs its time
 * and no more, and both are asked at once.
 */
#ifndef EDGEWARD_EDGECTL_CLIENT_H
#define EDGEWARD_EDGECTL_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/ipc.h"
#include "proto/ipc/attach.h"
#include "proto/ipc/device.h"
#include "proto/ipc/l2.h"
#include "proto/ipc/ctl.h"
#include "proto/ipc/work.h"

#define CLIENT_ANSWER_MS	150	/* for status and what is read again and again: 200 ms with our own start, whatever is broken */
#define CLIENT_WAIT_MS		2000	/* for the rest: a daemon that is just being replaced is back by then */

#define CLIENT_TEXT		512	/* room for client_error_text() */

struct client {
	struct ipc_chan chan;
	struct ipc_conf conf;
	struct loop *loop;
	const char *name;		/* "connectd" or "workerd" */
	enum ipc_role role;
	int error;			/* 0, or why it does not answer: -ENOENT, -ECONNREFUSED, -EACCES, -ETIMEDOUT, -EPROTO, ... */
	bool greeted, answered;
	struct ipc_hello hello;
	uint32_t id;			/* of the request under way */
	int status;			/* of its answer */
	size_t len;
	uint8_t answer[IPC_MAX_CTL];
	int answer_fd;			/* that came with it, -1 = none; client_close() closes it */
	/* May be NULL: a CTL_EV_WORKLOAD of the request under way; command "" = not known. */
	void (*workload)(const struct work_workload *w, const char *command, void *ctx);
	/* The same for a CTL_EV_POLICY_KEY; value is NUL-terminated. */
	void (*policy_key)(const struct ctl_policy_key *key, const char *value, void *ctx);
	/* The same for a CTL_EV_METRIC and a CTL_EV_EVENT. */
	void (*metric)(const struct ctl_metric *m, void *ctx);
	void (*event)(const struct ctl_event *e, void *ctx);
	/* The same for a CTL_EV_DEVICE. */
	void (*device)(const struct device_info *info, void *ctx);
	/* The same for a CTL_EV_LINK. */
	void (*link)(const struct l2_open *link, void *ctx);
	/* Of CTL_EV_ATTACH_END, whenever it comes: at once behind the answer, too, so it is set before the question. */
	void (*attach_end)(const struct attach_end *e, void *ctx);
	void *ctx;
	char socket[108];
	const char *rundir;
	bool foreground;		/* run-foreground started the daemons, so there is no unit to look at */
	char why[CLIENT_TEXT];		/* what in the configuration keeps it from starting, "" = nothing known */
};

/* Connects to NAME.sock in rundir and sends HELLO. A failure is kept in error. role: CONNECTD or WORKERD. */
void client_open(struct client *c, struct loop *loop, const char *rundir, enum ipc_role role);
void client_close(struct client *c);

/* Sends a request; nothing happens when the connection has failed already. One at a time. */
void client_ask(struct client *c, uint16_t type, const void *data, size_t len);
/* With a descriptor, which stays the caller's; -1 = none. */
void client_ask_fd(struct client *c, uint16_t type, const void *data, size_t len, int fd);

/* Waits until all have answered or failed, at most ms in all; who has not then gets -ETIMEDOUT. ms < 0: for ever. */
void client_wait(struct client **clients, size_t n, int64_t ms);

/* Waits for the daemon's HELLO, at most ms; then -ETIMEDOUT. Before a wait for something that may take long. */
void client_wait_hello(struct client *c, int64_t ms);

/* ask and wait for one. A daemon that has just come and does not know yet (-EAGAIN) is asked again, within ms. */
void client_call(struct client *c, uint16_t type, const void *data, size_t len, int64_t ms);

/* True if a good answer of exactly size bytes is there; copies it. */
bool client_answer(const struct client *c, void *data, size_t size);

/* Says on stderr what is wrong with a client that failed, or whose request was refused; the exit code that fits. */
int client_complain(struct client *c, const char *what);

/* why.c: looks for the reason of a daemon that does not answer in what the operator wrote; fills why and foreground. */
void client_find_why(struct client *c);

/* A stable word for error: "config", "not-running", "denied", "timeout", "version", "failed". */
const char *client_error_code(const struct client *c);

/* A sentence for error, with the next step. */
void client_error_text(const struct client *c, char *buf, size_t size);

/* Says on stderr when the daemon is of another build than we are. */
void client_check_build(const struct client *c);

#endif
