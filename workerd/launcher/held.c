/*
 * Workloads held for workerd: started from one fixed struct, kept until workerd has collected the end.
 *
 * Who calls: workerd, which may be hostile: launch_start_ok() checks every field again, and the spec must be a sealed memfd
 * (only the child reads it, as the runner). A handle is ours until FORGET. A workload has ended when its workinit is reaped
 * and its cgroup "w.HANDLE" is removed, which the kernel grants only when nothing lives there. Our own cgroup is ours to
 * divide when we are alone in it; in the root cgroup of a machine we never are.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cgroup.h"
#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "proto/ipc/work.h"
#include "workerd/launcher/launcher.h"

#define SIZE(type)	sizeof(struct type), sizeof(struct type)
#define END_TRIES	100	/* of 10 ms, for all workloads at our own end */

void
held_init(struct launcher *l)
{
	static const char *const enable[] = { "+memory", "+pids", "+cpu", "+io" };	/* LAUNCH_CTL_* in this order */

	l->ready.tree = (l->ready.parts & LAUNCH_PART_PID) != 0 ? LAUNCH_TREE_PIDNS : LAUNCH_TREE_NONE;
	l->ready.cgroup = (uint8_t)cgroup_divide("launch", l->tree, sizeof(l->tree), &l->tree_fd);
	if (l->ready.cgroup == 0)
		return;
	l->ready.tree = LAUNCH_TREE_CGROUP;
	cgroup_sweep(l->tree, "w.", END_TRIES);
	for (unsigned i = 0; i < sizeof(enable) / sizeof(enable[0]); i++)
		if (cgroup_write(l->tree_fd, "cgroup.subtree_control", enable[i]) == 0)
			l->ready.controllers |= (uint8_t)(1u << i);
}

/* Where the list has it, or its end, where NULL stands. handle may be any 72 bytes: what is no handle is not there. */
static struct held **
find(struct launcher *l, const char *handle)
{
	struct held **p = &l->held;

	while (*p != NULL && strncmp((*p)->info.handle, handle, sizeof((*p)->info.handle)) != 0)
		p = &(*p)->next;
	return p;
}

static void
kill_tree(struct held *h)
{
	if (h->cgroup >= 0)
		cgroup_write(h->cgroup, "cgroup.kill", "1");
	else if (!h->reaped && kill(h->info.pid, SIGKILL) < 0)	/* our own child, not reaped: the number is still its */
		shutdown(h->fds[INIT], SHUT_RDWR);	/* it has another uid: it ends itself and its payload */
}

static int
remove_cgroup(struct held *h)
{
	char path[sizeof(h->l->tree) + sizeof(h->info.handle) + 4];

	snprintf(path, sizeof(path), "%s/w.%s", h->l->tree, h->info.handle);
	return h->cgroup >= 0 ? cgroup_remove(path) : 0;
}

static int
start(struct held *h, const struct launch_start *s, const struct ipc_msg *msg)
{
	_cleanup_close_ int out = -1, init = -1;
	struct workinit_fds fds = { .spec = msg->fds[0], .report = msg->fds[2], .root = msg->fds[3],
		.input = msg->nfds > 4 ? msg->fds[4] : -1 };
	const struct cgroup_limits limits = { s->memory_bytes, s->pids, s->cpu_millis, s->io_rate, s->io_major, s->io_minor };
	char name[sizeof(s->handle) + 2];
	size_t len;
	int p[2], r, seals = fcntl(fds.report, F_GET_SEALS);

	/* The report is written by what is not the runner yet: memory of a fixed size, and nobody's file. */
	if (!launch_start_ok(s, &h->l->ready) || fd_is_sealed_memfd(fds.spec, WORK_SPEC_MAX, &len) != 1 || seals < 0 ||
	    (seals & F_SEAL_GROW) == 0)
		return -EINVAL;
	memcpy(h->info.handle, s->handle, sizeof(s->handle));
	memcpy(h->end.handle, s->handle, sizeof(s->handle));
	if (*find(h->l, s->handle) != NULL && !(*find(h->l, s->handle))->info.ended)
		return -EEXIST;
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	h->fds[OUTPUT] = p[0];
	fds.output = out = p[1];
	/* The inode is ours, and the workload may open /dev/stdout; to read it there is nobody else's business. */
	r = fchmod(p[1], 0622) < 0 ? -errno : fd_set_nonblock(p[0]);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
		return -errno;
	h->fds[INIT] = p[0];
	fds.init = init = p[1];
	snprintf(name, sizeof(name), "w.%s", s->handle);
	if (h->l->tree_fd >= 0 && (h->cgroup = cgroup_make(h->l->tree_fd, name, &limits)) < 0)
		return h->cgroup;
	fds.cgroup = h->cgroup;
	h->info.pid = workinit_start(h->l, s, &fds);
	if (h->info.pid < 0)
		remove_cgroup(h);
	return h->info.pid < 0 ? h->info.pid : 0;
}

/* Takes it out of the list it stands in. */
static void
held_free(struct held **p)
{
	struct held *h = *p;

	if (h == NULL)
		return;
	*p = h->next;
	for (int i = 0; i < HELD_FDS; i++)
		cleanup_close(&h->fds[i]);
	cleanup_close(&h->cgroup);
	free(h);
}

static int
on_start(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct launcher *l = ctx;
	struct ipc_hdr hdr = { .type = LAUNCH_ANS_START, .id = msg->hdr.id };
	struct held *h = malloc(sizeof(*h));
	struct launch_start s;

	if (h == NULL)
		return -ENOMEM;
	memcpy(&s, msg->data, sizeof(s));
	*h = (struct held){ .l = l, .cgroup = -1, .fds = { -1, -1, -1, -1 }, .events.fd = -1,
		.info = { .slot = s.slot, .stage = s.stage }, .end.stage = (uint16_t)s.stage };
	hdr.status = start(h, &s, msg);
	if (hdr.status < 0) {
		held_free(&h);
		return ipc_send_fds(chan, &hdr, NULL, 0, NULL, 0);
	}
	h->fds[RECORD] = ipc_take_fd(msg, 1);
	h->fds[REPORT] = ipc_take_fd(msg, 2);
	held_free(find(l, s.handle));	/* the stage before */
	h->next = l->held;
	l->held = h;
	return ipc_send_fds(chan, &hdr, &h->info, sizeof(h->info), h->fds, RECORD);
}

/* Ends the workload if its tree is empty and tells workerd; one that is not there is told when it comes. */
static bool
try_end(struct held *h)
{
	int fd = h->events.fd;

	if (remove_cgroup(h) < 0 && cgroup_read(h->cgroup, "cgroup.events", "populated") != 0)
		return false;		/* a group that is not ours to remove may stay in it, no process */
	loop_io_del(h->l->loop, &h->events);
	cleanup_close(&fd);
	cleanup_close(&h->cgroup);
	h->cgroup = -1;
	h->info.ended = 1;
	if (h->l->chan.state == IPC_ST_OPEN)	/* before that a workerd knows of no workload; on_hello() tells all that have ended */
		ipc_send(&h->l->chan, LAUNCH_EV_ENDED, &h->end, sizeof(h->end));
	return true;
}

static void
tree_changed(struct loop_io *io, uint32_t events)
{
	struct held *h = io->ctx;
	char buf[64];

	if (pread(io->fd, buf, sizeof(buf), 0) > 0)	/* re-arms it */
		kill_tree(h);
	try_end(h);
}

/* Its workinit is gone and somebody of it is not: ends when the cgroup says that it is empty. */
static void
await_tree(struct held *h)
{
	int fd = openat(h->cgroup, "cgroup.events", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || loop_io_add(h->l->loop, &h->events, fd, EPOLLPRI, tree_changed, h) < 0)
		fatal("cannot watch the end of %s: %s", h->info.handle, strerror(errno));
	kill_tree(h);	/* what the main process left behind */
	try_end(h);
}

void
held_resume(struct launcher *l)
{
	for (struct held *h = l->held; h != NULL; h = h->next)
		if (h->reaped && !h->info.ended)
			await_tree(h);
}

void
held_reaped(struct launcher *l, pid_t pid, int wstatus, const struct rusage *ru)
{
	struct held *h = l->held;
	struct cgroup_usage u;

	while (h != NULL && (h->reaped || h->info.pid != pid))
		h = h->next;
	if (h == NULL)
		return;
	h->reaped = true;
	h->end.wstatus = wstatus;
	cgroup_usage(h->cgroup, ru, &u);
	h->end.cpu_ms = u.cpu_ms;
	h->end.mem_peak_kb = u.mem_peak_kb;
	h->end.io_read = u.io_read;
	h->end.io_write = u.io_write;
	h->end.oom_kills = u.oom_kills;
	h->end.pids_max = u.pids_max;
	if (!try_end(h))
		await_tree(h);
}

void
held_end(struct launcher *l)
{
	for (struct held *h = l->held; h != NULL; h = h->next)
		kill_tree(h);
	if (l->tree_fd >= 0)
		cgroup_sweep(l->tree, "w.", END_TRIES);
}

static int
on_kill(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct held *h = *find(ctx, (const char *)msg->data);

	if (h != NULL) {
		h->end.killed = 1;
		kill_tree(h);
	}
	return 0;
}

static int
on_forget(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct held **p = find(ctx, (const char *)msg->data);

	if (*p == NULL || !(*p)->info.ended)
		return -EPROTO;
	held_free(p);
	return 0;
}

static int
on_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct launcher *l = ctx;
	struct ipc_hdr hdr = { .type = LAUNCH_EV_HELD };
	int r = ipc_take_hello(chan, msg, IPC_ROLE_WORKERD, NULL);

	/* It has noted by now what the machine is like, and ends when that changes: what changed before is tried here, what does later in time. */
	confine_again(&l->confine, &l->ready, l->ready.pool_count != 0 ? l->ready.pool_first : 0, l->ready.pool_gid);
	l->worker_up = true;
	loop_timer_del(l->loop, &l->reloaded);
	notify_send(&l->notify, "READY=1\nSTATUS=workerd runs");
	if (r == 0)
		r = ipc_send(chan, LAUNCH_EV_READY, &l->ready, sizeof(l->ready));
	for (struct held *h = l->held; h != NULL && r == 0; h = h->next)
		r = ipc_send_fds(chan, &hdr, &h->info, sizeof(h->info), h->fds, HELD_FDS);
	if (r == 0)
		r = ipc_send(chan, LAUNCH_EV_HELD_END, NULL, 0);
	for (struct held *h = l->held; h != NULL && r == 0; h = h->next)
		if (h->info.ended)
			r = ipc_send(chan, LAUNCH_EV_ENDED, &h->end, sizeof(h->end));
	return r;
}

const struct ipc_rule held_rules[] = {
	{ IPC_HELLO, IPC_ST_HELLO, 0, 0, SIZE(ipc_hello), on_hello },
	{ LAUNCH_REQ_START, IPC_ST_OPEN, 4, 5, SIZE(launch_start), on_start },
	{ LAUNCH_EV_KILL, IPC_ST_OPEN, 0, 0, SIZE(launch_ref), on_kill },
	{ LAUNCH_EV_FORGET, IPC_ST_OPEN, 0, 0, SIZE(launch_ref), on_forget },
};
const size_t held_nrules = sizeof(held_rules) / sizeof(held_rules[0]);
