/* Interfaces for workloads, of segments a hub forwards: who has which, and the steps until one is there. */
#ifndef EDGEWARD_WORKERD_L2_H
#define EDGEWARD_WORKERD_L2_H

#include <stdbool.h>

#include "common/ipc.h"
#include "common/loop.h"
#include "proto/ipc/l2.h"

struct workerd;
struct workload;

enum l2_stage { L2_PARKED, L2_NETNS, L2_TAP, L2_ADDRESSES, L2_UP };

struct l2_link {
	struct workerd *w;
	bool used;
	enum l2_stage stage;
	struct l2_open open;
	uint32_t asker;			/* connectd's request */
	uint32_t request;		/* of ours, to workinit or privhelper */
	int fd;				/* the namespace, then the interface's other end until connectd has it; -1 */
	struct loop_timer timer;	/* how long a stage may take */
};

struct l2 {
	struct l2_link list[L2_LINKS_MAX];
};

void l2_init(struct workerd *w);
void l2_done(struct workerd *w);

/* "" when interfaces can be had here, else why not. */
void l2_issue(const struct workerd *w, char *buf, size_t size);

/* Handlers of workchan.c, launchchan.c (of the workload's own channel) and privchan.c. */
int l2_on_open(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int l2_on_close(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int l2_on_netns(struct workload *wl, struct ipc_msg *msg);
int l2_on_addresses(struct workload *wl, struct ipc_msg *msg);
int l2_on_tap(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* For a start: may handle lease the one of this id, if there is one; it does; its workload runs now. */
bool l2_has(struct workerd *w, const char *id, const char *handle, char error[208]);
void l2_lease(const struct workload *wl, const char *list);
void l2_workload_runs(struct workload *wl);

/* connectd is gone, with every descriptor; privhelper is, with its answers; a workload is, with its namespace. */
void l2_work_down(struct workerd *w);
void l2_priv_down(struct workerd *w);
void l2_workload_ended(const struct workload *wl);

#endif
