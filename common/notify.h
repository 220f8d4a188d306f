/*
 * What a service manager wants to hear (sd_notify(3)): READY=1, STOPPING=1, and WATCHDOG=1 as long as the event loop
 * turns. Without one nothing is sent. Call notify_init() before the sandbox closes; sending needs sendto() alone.
 */
#ifndef EDGEWARD_NOTIFY_H
#define EDGEWARD_NOTIFY_H

#include "common/loop.h"

struct notify {
	int fd;				/* -1 = nobody listens */
	struct loop *loop;
	struct loop_timer watchdog;
	int64_t period_ms;
};

/*
 * Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment, so that no child can speak for us, and
 * starts to feed the watchdog twice a period. -errno only when there is a socket that cannot be used.
 */
int notify_init(struct notify *notify, struct loop *loop);

/* Sends one assignment, such as "READY=1". Never blocks; what cannot be sent is lost. */
void notify_send(const struct notify *notify, const char *text);

void notify_done(struct notify *notify);

#endif
