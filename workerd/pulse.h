/*
 * The service manager's watchdog sees the launcher alone. A workerd that hangs is ended by the kernel instead: its event loop puts off a
 * SIGALRM, whose default is death, again and again. The launcher starts the next one, and no workload notices.
 */
#ifndef EDGEWARD_WORKERD_PULSE_H
#define EDGEWARD_WORKERD_PULSE_H

#include "common/loop.h"

/* From here on, if the launcher says that it is watched itself; else nothing. The bound is twice the manager's. */
void pulse_start(struct loop *loop);

#endif
