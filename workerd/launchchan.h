/* workerd's end of the channel to the launcher, and of the init channels of workloads. */
#ifndef EDGEWARD_WORKERD_LAUNCHCHAN_H
#define EDGEWARD_WORKERD_LAUNCHCHAN_H

#include "workerd/workerd.h"

/* Takes fd over. When the launcher ends, so do we. */
int launchchan_open(struct workerd *w, int fd);

/* Asks for a start; spec is the sealed memfd, input what the process gets as descriptor 0 or -1 (not owned). EV_LAUNCHED or EV_REFUSED follows. */
int launchchan_start(struct workload *wl, const struct launch_start *s, int spec, int input);

/* KILL or FORGET for a handle that is no workload's. */
void launchchan_about(struct workerd *w, const char *handle, uint16_t type);
/* The same for what is no workload: fds are those of LAUNCH_REQ_START, which stay the caller's. 0 and the id of the request, or -errno. */
int launchchan_ask(struct workerd *w, const struct launch_start *s, const int *fds, unsigned nfds, uint32_t *ret_id);

void launchchan_kill(const struct workload *wl);
void launchchan_forget(const struct workload *wl);

/* Takes over a workload's init channel. */
int launchchan_init(struct workload *wl, int fd);

#endif
