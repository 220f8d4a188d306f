/*
 * A process prepared ahead of its workload: after each plain start the launcher is asked for another one like it, which makes its namespaces
 * and its view and waits. When the next start wants just the same, it is told what to run; else it ends after a while. Nothing about a
 * workload is weaker or different: the same code does the same steps, some of them earlier.
 */
#ifndef EDGEWARD_WORKERD_PREPARED_H
#define EDGEWARD_WORKERD_PREPARED_H

#include "common/ipc.h"
#include "common/loop.h"
#include "proto/ipc/launch.h"
#include "workerd/record.h"

struct workerd;
struct workload;
struct work_spec;

#define PREPARED_HANDLE	"prepared-"	/* no hub may start work under a handle that begins so */

struct prepared {
	struct launch_start is;		/* what it was started with; handle "" = there is none */
	struct launch_start wanted;	/* the same for the next one; handle is not used */
	uint64_t around;		/* what there was to see when it was asked for */
	uint64_t mounts;		/* how often the machine's mounts had changed by the last look */
	int mountinfo;
	bool want;
	bool ready, ending;		/* it waits; it was told to end */
	uint32_t start_id;		/* ours to the launcher; 0 = answered */
	struct record rec;		/* becomes its workload's */
	struct ipc_chan init;
	int output;
	int spec;			/* the launcher wants one of each, nobody reads it */
	struct loop_timer timer;
	uint64_t last;			/* number in a handle */
	char promised[72];		/* what was one of an earlier workerd's, by its first name */
};

void prepared_init(struct workerd *w);
void prepared_done(struct workerd *w);

/*
 * The payload of wl is to be started with s; spec is its memfd. True: a prepared process runs it, wl is ST_HELD. False: it has to be
 * started; nothing was done.
 */
bool prepared_take(struct workload *wl, const struct launch_start *s, int spec);

/* The payload of wl was started with s: another one like it may follow. */
void prepared_want(const struct workload *wl, const struct launch_start *s);

/* The launcher's word, if it is about one of these; false: it is not. An answer to a start: *ret as a handler's. */
bool prepared_answer(struct workerd *w, struct ipc_msg *msg, int *ret);
bool prepared_ended(struct workerd *w, const struct launch_ended *end);

/* One of an earlier workerd, with its record. True: it was promised to a workload, whose handle and stage held has now. Else it is ended. */
bool prepared_held(struct workerd *w, struct launch_held *held, int record);

#endif
