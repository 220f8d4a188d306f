#include "connectd/netwatch.h"

#include <errno.h>
#include <limits.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/cleanup.h"

#define QUIET_MS	1000	/* between two calls of changed() */
#define SETTLE_MS	50	/* an address comes with several messages, a file with several events */

struct netwatch {
	struct loop *loop;
	struct loop_io netlink, inotify, clock;
	struct loop_timer tell;
	monotime_t told;
	const char *what;
	char path[PATH_MAX], target[PATH_MAX];	/* the file, and where it leads to if it is a link ("" if not) */
	int target_wd;
	void (*changed)(const char *what, void *ctx);
	void *ctx;
};

static void
note(struct netwatch *w, const char *what)
{
	monotime_t now = monotime_now(), when = monotime_add_ms(now, SETTLE_MS), earliest = monotime_add_ms(w->told, QUIET_MS);

	if (w->what == NULL)
		w->what = what;
	if (!loop_timer_armed(&w->tell))
		loop_timer_set(w->loop, &w->tell, monotime_before(when, earliest) ? earliest : when);
}

static void
tell(struct loop_timer *timer)
{
	struct netwatch *w = timer->ctx;
	const char *what = w->what;

	w->what = NULL;
	w->told = monotime_now();
	w->changed(what, w->ctx);
}

/* The kernel's own messages only: anybody may send to a netlink socket. */
static void
netlink_ready(struct loop_io *io, uint32_t events)
{
	struct netwatch *w = io->ctx;
	_Alignas(struct nlmsghdr) uint8_t buf[8192];
	struct sockaddr_nl from;
	ssize_t n;

	(void)events;
	for (;;) {
		socklen_t len = sizeof(from);
		unsigned left;

		n = recvfrom(io->fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &len);
		if (n < 0 && errno == ENOBUFS) {	/* some were lost: it is as good as news */
			note(w, "address");
			continue;
		}
		if (n <= 0)
			return;
		if (from.nl_pid != 0)
			continue;
		left = (unsigned)n;
		for (const struct nlmsghdr *h = (const void *)buf; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left))
			if (h->nlmsg_type == RTM_NEWADDR)
				note(w, "address");
	}
}

static const char *
base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

static int
watch_dir(struct netwatch *w, const char *path)
{
	char dir[PATH_MAX];
	int n = snprintf(dir, sizeof(dir), "%.*s", (int)(base_name(path) - path), path);

	if (n <= 0 || n >= (int)sizeof(dir))
		return -1;
	return inotify_add_watch(w->inotify.fd, dir, IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR);
}

/* Looks where the file leads to now and watches that directory as well. */
static void
follow_link(struct netwatch *w)
{
	char link[PATH_MAX];
	ssize_t n = readlink(w->path, link, sizeof(link) - 1);
	int len = 0;

	if (w->target_wd >= 0)
		inotify_rm_watch(w->inotify.fd, w->target_wd);
	w->target_wd = -1;
	w->target[0] = '\0';
	if (n <= 0)
		return;
	link[n] = '\0';
	len = link[0] == '/' ? snprintf(w->target, sizeof(w->target), "%s", link) :
	    snprintf(w->target, sizeof(w->target), "%.*s%s", (int)(base_name(w->path) - w->path), w->path, link);
	if (len < 0 || len >= (int)sizeof(w->target)) {
		w->target[0] = '\0';
		return;
	}
	w->target_wd = watch_dir(w, w->target);
}

static void
inotify_ready(struct loop_io *io, uint32_t events)
{
	struct netwatch *w = io->ctx;
	_Alignas(struct inotify_event) char buf[4096];
	bool hit = false;
	ssize_t n;

	(void)events;
	while ((n = read(io->fd, buf, sizeof(buf))) > 0)
		for (char *p = buf; p < buf + n;) {
			const struct inotify_event *ev = (const void *)p;

			if (ev->len > 0 && (strcmp(ev->name, base_name(w->path)) == 0 ||
			    (w->target[0] != '\0' && strcmp(ev->name, base_name(w->target)) == 0)))
				hit = true;
			p += sizeof(*ev) + ev->len;
		}
	if (!hit)
		return;
	follow_link(w);
	note(w, "resolver");
}

/* Absolute, never due: it only ends when the clock is set. */
static void
arm_clock(int fd)
{
	struct itimerspec its = { .it_value.tv_sec = (time_t)1 << 33 };

	timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &its, NULL);
}

static void
clock_ready(struct loop_io *io, uint32_t events)
{
	uint64_t n;

	(void)events;
	if (read(io->fd, &n, sizeof(n)) < 0 && errno == EAGAIN)
		return;
	arm_clock(io->fd);
	note(io->ctx, "clock");
}

static int
open_netlink(void)
{
	struct sockaddr_nl sa = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR };
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -1;
	return take_fd(&fd);
}

static void
add(struct netwatch *w, struct loop_io *io, int fd, void (*cb)(struct loop_io *io, uint32_t events))
{
	if (fd >= 0 && loop_io_add(w->loop, io, fd, EPOLLIN, cb, w) < 0)
		close(fd);
}

int
netwatch_new(struct loop *loop, const char *resolver, void (*changed)(const char *what, void *ctx), void *ctx,
    struct netwatch **ret_watch)
{
	struct netwatch *w = calloc(1, sizeof(*w));
	int n;

	if (w == NULL)
		return -ENOMEM;
	w->loop = loop;
	w->netlink.fd = w->inotify.fd = w->clock.fd = w->target_wd = -1;
	w->changed = changed;
	w->ctx = ctx;
	w->told = monotime_add_ms(monotime_now(), -QUIET_MS);
	loop_timer_init(&w->tell, tell, w);
	n = snprintf(w->path, sizeof(w->path), "%s", resolver);
	add(w, &w->netlink, open_netlink(), netlink_ready);
	add(w, &w->clock, timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK), clock_ready);
	if (w->clock.fd >= 0)
		arm_clock(w->clock.fd);
	add(w, &w->inotify, inotify_init1(IN_CLOEXEC | IN_NONBLOCK), inotify_ready);
	if (w->inotify.fd >= 0 && n > 0 && n < (int)sizeof(w->path)) {
		(void)watch_dir(w, w->path);
		follow_link(w);
	}
	*ret_watch = w;
	return 0;
}

static void
drop(struct netwatch *w, struct loop_io *io)
{
	int fd = io->fd;

	loop_io_del(w->loop, io);
	if (fd >= 0)
		close(fd);
}

void
netwatch_free(struct netwatch *w)
{
	if (w == NULL)
		return;
	drop(w, &w->netlink);
	drop(w, &w->inotify);
	drop(w, &w->clock);
	loop_timer_del(w->loop, &w->tell);
	free(w);
}
