/*
 * A base of views, from the side of the runner: how it is made, and how a start enters it. base.c says what it is.
 *
 * Who calls: base.c in a fork that becomes the runner and ends; workinit.c in the clone that has become it. Both read nothing that the hub
 * sent. On error the builder ends and there is no base; a start ends as it does at any other step.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/drop.h"
#include "common/userns.h"
#include "workerd/launcher/launcher.h"

static struct view_wish
wish_of(const struct launcher *l, const struct launch_start *s)
{
	return (struct view_wish){ .uid = l->ready.pool_first + s->slot, .gid = l->ready.pool_gid, .show = s->show, .own_proc = true, .slot = s->slot };
}

int
base_enter(const struct base *base, const struct launcher *l, const struct launch_start *s)
{
	const struct base_made *made = base_made(base);
	const struct view_wish wish = wish_of(l, s);
	_cleanup_close_ int root = -1;
	struct stat was, is;
	struct view_key key;

	if (fstat(FD_ROOT, &was) < 0 || stat(made->place, &is) < 0 || was.st_dev != is.st_dev || was.st_ino != is.st_ino ||
	    view_key(&l->confine.view, &wish, &key) < 0 || memcmp(&key, &made->key, sizeof(key)) != 0)
		return -ESTALE;
	if (setns(FD_USER, CLONE_NEWUSER) < 0 || setns(FD_MNT, CLONE_NEWNS) < 0)
		return -errno;
	root = open(VIEW_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 || fstat(root, &is) < 0 || dup3(root, FD_ROOT, O_CLOEXEC) < 0)
		return -errno;
	return was.st_dev == is.st_dev && was.st_ino == is.st_ino ? 0 : -EXDEV;	/* its own directory was replaced while we came in */
}

static int
send_made(const struct base_made *made)
{
	int fds[2] = { openat(FD_PROC, "self/ns/user", O_RDONLY | O_CLOEXEC), openat(FD_PROC, "self/ns/mnt", O_RDONLY | O_CLOEXEC) };
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)made, sizeof(*made) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	return fds[0] < 0 || fds[1] < 0 || sendmsg(FD_INIT, &msg, MSG_NOSIGNAL) != (ssize_t)sizeof(*made) ? -1 : 0;
}

static pid_t
in_namespaces(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, NULL, NULL, NULL, NULL);

	if (pid == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		_exit(1);
	return pid;
}

static bool
succeeded(pid_t pid)
{
	int status;

	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* What a start will do, tried once: a base that some kernel does not let be added to must fail here, not there. */
static _Noreturn void
try_start(const struct view_wish *wish, const char *place)
{
	struct view_wish full = *wish;
	bool proc;
	pid_t pid;

	full.secrets = true;
	if (chdir(VIEW_ROOT) < 0 || userns_enter_at(FD_PROC, wish->uid, wish->gid) < 0)
		_exit(1);
	pid = in_namespaces();
	if (pid == 0)
		_exit(view_add(&full, place, &proc) < 0);
	_exit(!succeeded(pid));
}

/* Its /proc is that of a pid namespace which ends with us: it shows nobody, and lets a start have one of its own. */
void
base_build(const struct launcher *l, const struct launch_start *s)
{
	const struct view_wish wish = wish_of(l, s);
	static struct base_made made;
	pid_t pid;

	if (munmap(l->confine.shared, sizeof(*l->confine.shared)) < 0 || dup3(l->proc, FD_PROC, O_CLOEXEC) < 0 || close_range(FD_CHILD_END, ~0u, 0) < 0 || drop_to_runner(wish.uid, wish.gid) < 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || view_key(&l->confine.view, &wish, &made.key) < 0 || userns_enter_at(FD_PROC, wish.uid, wish.gid) < 0 ||
	    fchdir(FD_ROOT) < 0)	/* the new mount namespace has its own copy of the current directory, not of a descriptor */
		_exit(1);
	pid = in_namespaces();
	if (pid != 0)
		_exit(!succeeded(pid));
	if (view_base(&l->confine.view, &wish, &made.key, made.place) < 0)
		_exit(1);
	pid = fork();
	if (pid == 0)
		try_start(&wish, made.place);
	_exit(!succeeded(pid) || send_made(&made) < 0);
}
