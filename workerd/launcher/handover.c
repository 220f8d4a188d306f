/*
 * The launcher's own upgrade: execve of the file it was started from, when that is another file now. The process, and with it
 * its children, its cgroup and its descriptors, stays; what it knows goes through a sealed memfd whose number stands in the
 * environment.
 *
 * Who calls: main.c, between two workerds. What is trusted: the memfd, since only an exec of our own makes one; it is checked all
 * the same, because another version wrote it. Before the step a child tries the new file with -n, which reads the same state: one
 * that does not understand it leaves the old launcher in place, and no workload is lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/parse.h"
#include "workerd/launcher/launcher.h"

#define VARIABLE	"EDGEWARD_LAUNCHER_STATE"
#define MAGIC		0x45574c31u	/* "EWL1": another one when a struct below or in launch.h changes */
#define WORKLOADS_MAX	65536
#define ARGS_MAX	32

/* What notify_init() takes out of the environment. */
static const char *const manager[MANAGER] = { "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID" };

struct saved {
	uint32_t magic, count;
	struct launch_ready ready;
	struct rlimit nofile;
	int32_t listener, tree_fd;
	char tree[sizeof(((struct launcher *)0)->tree)];
};
struct saved_held {
	struct launch_held info;
	struct launch_ended end;
	int32_t fds[HELD_FDS], cgroup;
	uint32_t reaped;
};

void
handover_init(struct launcher *l)
{
	l->path = (const char *)getauxval(AT_EXECFN);	/* as asked for: a link in it may lead elsewhere by now */
	for (unsigned i = 0; i < MANAGER; i++)
		l->manager[i] = getenv(manager[i]) != NULL ? strdup(getenv(manager[i])) : NULL;
	if (l->path == NULL || stat("/proc/self/exe", &l->file) < 0)
		l->file.st_ino = 0;
}

bool
handover_wanted(const struct launcher *l)
{
	struct stat st;

	return l->file.st_ino != 0 && stat(l->path, &st) == 0 && S_ISREG(st.st_mode) &&
	    (st.st_dev != l->file.st_dev || st.st_ino != l->file.st_ino) && (st.st_dev != l->refused.st_dev || st.st_ino != l->refused.st_ino);
}

/* The state as a memfd that an exec keeps, named in the environment. Descriptor or -errno. */
static int
save(const struct launcher *l)
{
	struct saved s = { .magic = MAGIC, .ready = l->ready, .nofile = l->nofile, .listener = l->listener, .tree_fd = l->tree_fd };
	_cleanup_close_ int fd = memfd_create("launcher", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char number[16];

	memcpy(s.tree, l->tree, sizeof(s.tree));
	for (const struct held *h = l->held; h != NULL; h = h->next) {
		struct saved_held one = { h->info, h->end, { 0 }, h->cgroup, h->reaped };

		memcpy(one.fds, h->fds, sizeof(one.fds));
		if (fd < 0 || pwrite(fd, &one, sizeof(one), (off_t)(sizeof(s) + s.count++ * sizeof(one))) != (ssize_t)sizeof(one))
			return -ENOMEM;
	}
	if (fd < 0 || pwrite(fd, &s, sizeof(s), 0) != (ssize_t)sizeof(s) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return -ENOMEM;
	snprintf(number, sizeof(number), "%d", fd);
	return setenv(VARIABLE, number, 1) < 0 ? -ENOMEM : fcntl(fd, F_SETFD, 0) < 0 ? -errno : take_fd(&fd);
}

int
handover_received(void)
{
	const char *text = getenv(VARIABLE);
	uint32_t fd;
	int r = text == NULL ? -1 : parse_u32(text, FD_CHILD_END, INT32_MAX, &fd) < 0 ? -1 : fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0 ? -1 : (int)fd;

	if (text != NULL && r < 0)
		fatal("%s is for a launcher's own successor", VARIABLE);
	unsetenv(VARIABLE);
	return r;
}

static void
keep_open(const struct launcher *l, int flags)
{
	const int own[] = { l->listener, l->tree_fd };

	for (unsigned i = 0; i < 2; i++)
		if (own[i] >= 0)
			fcntl(own[i], F_SETFD, flags);
	for (const struct held *h = l->held; h != NULL; h = h->next) {
		for (int i = 0; i < HELD_FDS; i++)
			fcntl(h->fds[i], F_SETFD, flags);
		if (h->cgroup >= 0)
			fcntl(h->cgroup, F_SETFD, flags);
	}
}

static struct held *
restore(struct launcher *l, const struct saved_held *one)
{
	struct held *h = malloc(sizeof(*h));

	if (h == NULL)
		fatal("out of memory");
	*h = (struct held){ .next = l->held, .l = l, .info = one->info, .end = one->end, .reaped = one->reaped != 0, .cgroup = one->cgroup,
		.events.fd = -1 };
	memcpy(h->fds, one->fds, sizeof(h->fds));
	return h;
}

void
handover_take(struct launcher *l, int fd)
{
	struct saved s;
	struct saved_held one;
	size_t len = 0;

	if (fd_is_sealed_memfd(fd, sizeof(s) + WORKLOADS_MAX * sizeof(one), &len) != 1 || pread(fd, &s, sizeof(s), 0) != (ssize_t)sizeof(s) ||
	    s.magic != MAGIC || s.count > WORKLOADS_MAX || len != sizeof(s) + s.count * sizeof(one) ||
	    memchr(s.tree, '\0', sizeof(s.tree)) == NULL)
		fatal("the launcher that runs is of a version whose state this one does not know: it stays until its unit is restarted");
	/* One that had none takes whatever is there by now. */
	if (s.ready.pool_count != 0 && (s.ready.pool_first != l->ready.pool_first || s.ready.pool_count != l->ready.pool_count ||
	    s.ready.pool_gid != l->ready.pool_gid))
		fatal("the pool of runner ids was changed: the running launcher keeps the old one until its unit is restarted");
	l->ready.instance = s.ready.instance;
	l->ready.tree = s.ready.tree;
	l->ready.cgroup = s.ready.cgroup;
	l->ready.controllers = s.ready.controllers;
	l->worker_up = true;	/* one was, under the launcher before: a new one that fails does not cost the workloads */
	l->nofile = s.nofile;
	l->listener = s.listener;
	l->tree_fd = s.tree_fd;
	memcpy(l->tree, s.tree, sizeof(l->tree));
	for (uint32_t i = s.count; i-- > 0; ) {		/* the list is built from its end */
		if (pread(fd, &one, sizeof(one), (off_t)(sizeof(s) + i * sizeof(one))) != (ssize_t)sizeof(one) || !launch_held_ok(&one.info, &s.ready))
			fatal("the state of the running launcher is damaged");
		l->held = restore(l, &one);
	}
	keep_open(l, FD_CLOEXEC);
	close(fd);
}

/* Returns only on failure. */
static int
run(const struct launcher *l, bool only_check)
{
	char *argv[ARGS_MAX + 2], check[] = "-n";
	int n = 0;

	for (; n < ARGS_MAX && l->worker_argv[n] != NULL; n++)
		argv[n] = l->worker_argv[n];
	argv[0] = (char *)(uintptr_t)l->path;
	if (only_check)
		argv[n++] = check;
	argv[n] = NULL;
	execv(argv[0], argv);
	return -errno;
}

pid_t
handover_try(struct launcher *l)
{
	_cleanup_close_ int fd = save(l);
	pid_t pid = fd < 0 ? fd : fork();

	if (pid == 0)
		_exit(run(l, true) < 0 ? 127 : 0);
	unsetenv(VARIABLE);
	return pid;
}

/* Back again what drop_to_caps() took: the new image starts as this one was started. */
static int
raise_ambient(bool on)
{
	static const cap_value_t caps[] = { CAP_SETUID, CAP_SETGID };
	cap_t c = cap_get_proc();
	int r = c == NULL || cap_set_flag(c, CAP_INHERITABLE, 2, caps, on ? CAP_SET : CAP_CLEAR) < 0 || cap_set_proc(c) < 0 ? -errno : 0;

	for (unsigned i = 0; i < 2 && r == 0 && on; i++)
		r = prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, caps[i], 0, 0) < 0 ? -errno : 0;
	if (c != NULL)
		cap_free(c);
	return r;
}

int
handover_exec(struct launcher *l)
{
	_cleanup_close_ int fd = save(l);
	int r = fd < 0 ? fd : l->ready.pool_first != 0 ? raise_ambient(true) : 0;

	for (unsigned i = 0; i < MANAGER && r == 0; i++)
		r = l->manager[i] != NULL && setenv(manager[i], l->manager[i], 1) < 0 ? -ENOMEM : 0;
	if (r == 0) {
		keep_open(l, 0);
		r = run(l, false);
		keep_open(l, FD_CLOEXEC);
	}
	if (l->ready.pool_first != 0)
		raise_ambient(false);	/* clears the ambient set, too */
	unsetenv(VARIABLE);
	for (unsigned k = 0; k < MANAGER; k++)
		unsetenv(manager[k]);
	return r;
}
