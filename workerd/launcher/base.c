/*
 * Most of a view is the same for all workloads of a runner: the system's directories, devices, links. Making it is half of what a sandbox
 * costs, so it is made once, as a mount namespace that lies in wait, and a start makes a copy of that and adds what is its own (viewadd.c).
 *
 * No process waits and nothing is shared that can be written: a base is two namespaces, made by the runner itself in a user namespace that
 * knows its id alone, as a start without one makes them; the launcher holds their descriptors. Only that runner can enter. A start leaves them at
 * once for a user, mount and pid namespace of its own below, in which it cannot take away what the base has mounted.
 *
 * A base must not show what is gone, nor keep it: when anything is mounted or unmounted here, all are given up, at once, so that
 * what was unmounted is free; and each start compares the directories, as the runner, with those the base was made of. Is there none, or does
 * it not fit, the start builds its view as ever. It is made behind the second start of a runner with the machine's network.
 *
 * Who calls: held.c around a start; basemake.c is what happens in the processes of the runner. What the builder sends is checked as any peer's would be: nothing it can say makes more
 * than the start of this runner fail.
 */
#include "workerd/launcher/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "workerd/launcher/launcher.h"

#define NEEDED	(LAUNCH_PART_USER | LAUNCH_PART_MOUNT | LAUNCH_PART_PID | LAUNCH_PART_PROC)
#define OTHER	(LAUNCH_PART_NET | LAUNCH_PART_FILTER | LAUNCH_PART_LINKS)

struct base {
	struct base *next;
	struct launcher *l;
	uint32_t slot;
	unsigned starts, needed;	/* without one, and how many it takes until one is made */
	char show[LAUNCH_SHOW_SIZE];	/* it was made with */
	struct loop_io builder;		/* fd -1 = none is at work */
	int user, mnt;			/* -1 = not made */
	struct base_made made;
};

static void
give_up(struct base *b)
{
	int fd = b->builder.fd;

	loop_io_del(b->l->loop, &b->builder);
	cleanup_close(&fd);
	cleanup_close(&b->user);
	cleanup_close(&b->mnt);
	b->user = b->mnt = -1;
}

static void
mounts_changed(struct loop_io *io, uint32_t events)
{
	struct launcher *l = io->ctx;

	for (struct base *b = l->bases; b != NULL; b = b->next)
		give_up(b);
}

/* The kernel tells a descriptor of this file once of each change. Without it there are no bases. */
static bool
watch(struct launcher *l)
{
	int fd;

	if (l->mounts.fd >= 0)
		return true;
	fd = openat(l->proc, "self/mountinfo", O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && loop_io_add(l->loop, &l->mounts, fd, EPOLLPRI, mounts_changed, l) == 0)
		return true;
	cleanup_close(&fd);
	return false;
}

static struct base *
look_up(struct launcher *l, const struct launch_start *s)
{
	struct base *b = l->bases;

	if (l->ready.pool_count == 0 || (s->parts & (NEEDED | OTHER)) != NEEDED)
		return NULL;
	while (b != NULL && b->slot != s->slot)
		b = b->next;
	if (b != NULL || (b = calloc(1, sizeof(*b))) == NULL)
		return b;
	*b = (struct base){ .next = l->bases, .l = l, .slot = s->slot, .needed = 2, .user = -1, .mnt = -1, .builder.fd = -1 };
	l->bases = b;
	return b;
}

struct base *
base_find(struct launcher *l, const struct launch_start *s)
{
	struct base *b = look_up(l, s);
	struct pollfd p = { .fd = l->mounts.fd, .events = POLLPRI };

	if (b == NULL || b->mnt < 0)
		return NULL;
	if (poll(&p, 1, 0) != 0)
		mounts_changed(&l->mounts, 0);
	return b->mnt >= 0 && strcmp(b->show, s->show) == 0 ? b : NULL;
}

void
base_fds(const struct base *base, int ret_fds[2])
{
	ret_fds[0] = base->user;
	ret_fds[1] = base->mnt;
}

const struct base_made *
base_made(const struct base *base)
{
	return &base->made;
}

static void
was_built(struct loop_io *io, uint32_t events)
{
	struct base *b = io->ctx;
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
	struct base_made made;
	struct iovec iov = { &made, sizeof(made) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(io->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	int fds[2] = { -1, -1 };

	if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len >= CMSG_LEN(sizeof(int)))
		memcpy(fds, CMSG_DATA(c), c->cmsg_len >= CMSG_LEN(sizeof(fds)) ? sizeof(fds) : sizeof(int));
	give_up(b);
	b->starts = 0;
	/* Out of the numbers that a clone gives to others. */
	b->user = fcntl(fds[0], F_DUPFD_CLOEXEC, FD_BASE_END);
	b->mnt = fcntl(fds[1], F_DUPFD_CLOEXEC, FD_BASE_END);
	cleanup_close(&fds[0]);
	cleanup_close(&fds[1]);
	if (n == (ssize_t)sizeof(made) && b->user >= 0 && b->mnt >= 0 && memchr(made.place, '\0', sizeof(made.place)) != NULL)
		b->made = made;
	else {
		give_up(b);
		b->needed *= b->needed < 256 ? 4 : 1;
	}
}

void
base_after(struct launcher *l, const struct launch_start *s, int root, bool stale)
{
	struct base *b = look_up(l, s);
	int p[2];
	pid_t pid;

	if (b == NULL)
		return;
	if (stale)
		give_up(b);
	if (b->mnt >= 0 || b->builder.fd >= 0 || ++b->starts < b->needed || !watch(l) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		return;
	memcpy(b->show, s->show, sizeof(b->show));
	pid = loop_io_add(l->loop, &b->builder, p[0], EPOLLIN, was_built, b) < 0 ? -1 : fork();
	if (pid == 0 && dup3(p[1], FD_INIT, O_CLOEXEC) >= 0 && dup3(root, FD_ROOT, O_CLOEXEC) >= 0)
		base_build(l, s);
	if (pid == 0)
		_exit(1);
	close(p[1]);
	if (pid < 0 && b->builder.fd >= 0)
		give_up(b);
	else if (pid < 0)
		close(p[0]);
}
