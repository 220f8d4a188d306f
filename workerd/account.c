/*
 * Who calls: launchchan.c, when the launcher is ready and waits for a pool. The request is a new time of a file of
 * ours in root's run directory, which edgeward-account.path sees; nothing is ever in it, so the descriptor cannot write (a file in /run that grew would
 * fill what every service of the machine writes to), and as the directory is root's it cannot become a link to another one. What is trusted: the pool file, which only root can write; the launcher looks at
 * it itself. On error: it is asked for again later, and starts are refused with the reason until then.
 */
#include "workerd/account.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "common/pool.h"

#define LOOK_MS		1000
#define ASK_LOOKS	10u		/* from one request to the next, doubling */
#define ASK_LOOKS_MAX	3600u

void
account_open(struct workerd *w)
{
	char path[PATH_MAX];
	struct pool pool = { 0 };

	w->account_fd = -1;
	if (pool_load(w->pool_file, &pool) == 0 && pool.count != 0)	/* nobody keeps it who needs none */
		return;
	snprintf(path, sizeof(path), "%s/account-request", w->rundir);
	w->account_fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static void
look(struct loop_timer *timer)
{
	static unsigned wait = ASK_LOOKS;
	struct workerd *w = timer->ctx;
	struct pool pool = { 0 };

	if (pool_load(w->pool_file, &pool) == 0 && pool.count != 0) {
		log_info("the ids for workloads are there: uids %u to %u", pool.first, pool.first + pool.count - 1);
		loop_stop(w->loop);
		return;
	}
	if (w->account_looks-- == 0) {
		if (futimens(w->account_fd, NULL) < 0)
			log_warn("ids for workloads cannot be asked for: %s/account-request: %s", w->rundir,
			    w->account_fd < 0 ? "cannot be opened" : strerror(errno));
		w->account_looks = wait;
		wait = wait * 2 < ASK_LOOKS_MAX ? wait * 2 : ASK_LOOKS_MAX;
	}
	loop_timer_set_ms(w->loop, timer, LOOK_MS);
}

void
account_await(struct workerd *w)
{
	log_warn("this device has no ids for workloads (%s): root's privaccount is asked for them", w->pool_file);
	loop_timer_init(&w->account, look, w);
	look(&w->account);
}
