/* Carriers: processes in the sandbox of a work directory, each of which reads or writes one file of it for the hub (proto/ipc/file.h). */
#ifndef EDGEWARD_WORKERD_CARRIERS_H
#define EDGEWARD_WORKERD_CARRIERS_H

#include "common/ipc.h"
#include "proto/ipc/file.h"
#include "proto/ipc/launch.h"
#include "workerd/record.h"

struct workerd;

#define CARRIER_HANDLE	"edgeward-file-"	/* and two numbers: no hub may start work under a handle that begins so */

struct carrier {
	char handle[72];		/* as the launcher knows it; "" = free */
	uint32_t asker;			/* connectd's request; 0 = answered */
	uint32_t start_id;		/* ours to the launcher; 0 = answered */
	int sock;			/* connectd's end, until it has it; -1 */
	struct record rec;		/* the launcher wants one of each */
	char path[FILE_PATH_SIZE];
};

struct carriers {
	struct carrier list[FILE_CARRIERS];
	uint64_t last;			/* number in a handle */
};

/* WORK_REQ_FILE. */
int carriers_on_open(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* The launcher's word, if it is about a carrier; false: it is not. An answer to a start: *ret as a handler's. */
bool carriers_answer(struct workerd *w, struct ipc_msg *msg, int *ret);
bool carriers_ended(struct workerd *w, const struct launch_ended *end);
/* One of an earlier workerd: connectd has its socket, and it goes on. */
void carriers_held(struct workerd *w, const struct launch_held *held);

/* The work channel has ended: nobody waits for an answer. Those that carry go on. */
void carriers_unasked(struct workerd *w);

#endif
