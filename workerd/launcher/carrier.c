/*
 * What a carrier does instead of a payload (proto/ipc/file.h): in the sandbox of a workload, as its runner, in its work directory. It reads the
 * request from descriptor 0, opens one file beneath that directory and carries it. Whatever leads outside is the kernel's to refuse
 * (openat2), and what it can reach the workload can as well.
 *
 * A file is written under a name of its own beside its place and renamed when all is there. What a lost link leaves lies there still: the
 * next attempt at the same content goes on with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/filepump.h"
#include "workerd/launcher/launcher.h"

#define SOCK	0
#define PART	".edgeward-put-"

static uint8_t buf[FILE_REC_MAX];

static _Noreturn void
fail(const char *what, int err)
{
	char text[FILE_TEXT_MAX];

	snprintf(text, sizeof(text), "%s: %s", what, err == -EXDEV || err == -ELOOP ? "leads out of the work directory" :
	    err == -EBUSY ? "it changes while it is read" : strerror(-err));
	filepump_fail(SOCK, text, false);
	_exit(1);
}

static int
open_beneath(int dir, const char *path, uint64_t flags, mode_t mode)
{
	const struct open_how how = { .flags = flags | O_CLOEXEC, .mode = mode, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	long fd = syscall(SYS_openat2, dir, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

static void
say(enum file_rec_type type, uint32_t mode, uint64_t at)
{
	const struct file_rec rec = { .type = type, .mode = mode, .at = at };

	if (filepump_say(SOCK, &rec, NULL, 0) < 0)
		_exit(1);
}

static void
send_all(int fd, const char *path, uint64_t size)
{
	uint64_t at = 0;
	int r = filepump_send(SOCK, fd, &at, size, buf, NULL, NULL);

	if (r < 0)
		fail(path, r);
	say(FILE_END, 0, at);
}

static void
get(const char *path)
{
	int fd = open_beneath(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		fail(path, fd < 0 ? fd : -errno);
	if (!S_ISREG(st.st_mode))
		fail(path, S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL);
	say(FILE_META, st.st_mode & 0777, (uint64_t)st.st_size);
	send_all(fd, path, (uint64_t)st.st_size);
}

/* What an earlier attempt has left, or an empty one. Nobody else goes on with it meanwhile. */
static int
open_part(int dir, const char *part, uint64_t size, uint64_t *ret_have)
{
	int fd = open_beneath(dir, part, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fd < 0 ? fd : -errno;
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
		return -EINVAL;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EALREADY : -errno;
	if ((uint64_t)st.st_size > size && ftruncate(fd, st.st_size = 0) < 0)
		return -errno;
	*ret_have = (uint64_t)st.st_size;
	return fd;
}

static void
put_in_place(int dir, int fd, const char *part, const char *name, const struct file_open *o)
{
	int r = fchmod(fd, o->mode) < 0 || fsync(fd) < 0 || renameat(dir, part, dir, name) < 0 ? -errno : 0;

	if (r < 0) {
		unlinkat(dir, part, 0);
		fail(o->path, r);
	}
	/* The directory is open by its name alone (O_PATH). */
	fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		(void)fsync(fd);
	say(FILE_DONE, 0, 0);
}

static void
put(struct file_open *o)
{
	char part[NAME_MAX + 1] = PART, *slash = strrchr(o->path, '/'), *name = slash != NULL ? slash + 1 : o->path;
	struct file_rec rec;
	uint64_t at = 0;
	int dir, fd, r;
	ssize_t n;

	for (unsigned i = 0; i < 8; i++)
		snprintf(part + sizeof(PART) - 1 + 2 * i, 3, "%02x", o->sha256[i]);
	/* Not of another file with the same content. */
	snprintf(part + sizeof(PART) + 15, sizeof(part) - sizeof(PART) - 15, "-%.200s", name);
	if (slash != NULL)
		*slash = '\0';
	dir = open_beneath(AT_FDCWD, slash != NULL ? o->path : ".", O_PATH | O_DIRECTORY, 0);
	if (dir < 0)
		fail(slash != NULL ? o->path : "the work directory", dir);
	fd = open_part(dir, part, o->size, &at);
	if (slash != NULL)
		*slash = '/';
	if (fd == -EALREADY)
		filepump_fail(SOCK, "busy: the same file is being written", true);
	else if (fd < 0)
		fail(o->path, fd);
	if (fd < 0)
		_exit(1);
	say(FILE_META, 0, at);
	send_all(fd, part, at);
	while ((n = filepump_hear(SOCK, buf, at, &rec)) >= 0 && (rec.type == FILE_DATA || rec.type == FILE_HOLE)) {
		r = filepump_store(fd, &rec, buf + sizeof(rec), (size_t)n, &at);
		if (r < 0)
			fail(o->path, r);
	}
	if (n >= 0 && rec.type == FILE_FAIL)
		unlinkat(dir, part, 0);
	if (n < 0 || rec.type != FILE_END || at != o->size)
		_exit(1);
	put_in_place(dir, fd, part, name, o);
}

/*
 * The init channel brings nothing, and where it ends so do we: the launcher was told to end us, and may not signal another uid. The work is a
 * child's; returns in it.
 */
static void
watch_channel(void)
{
	struct pollfd p[2] = { { .fd = FD_INIT, .events = POLLIN }, { .events = POLLIN } };
	int life[2];
	pid_t pid;

	if (pipe2(life, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		fail("carrier", -errno);
	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
			_exit(1);
		close(FD_INIT);
		close(life[0]);
		return;		/* life[1] is open while it lives */
	}
	close(life[1]);
	close(SOCK);
	p[1].fd = life[0];
	poll(p, 2, -1);
	_exit(0);
}

_Noreturn void
carrier_run(void)
{
	struct file_rec rec;
	struct file_open o;

	close_range(FD_INIT + 1, ~0u, 0);
	if (prctl(PR_SET_NAME, "carrier", 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		_exit(1);
	watch_channel();
	if (filepump_hear(SOCK, buf, 0, &rec) < 0 || rec.type != FILE_ASK)
		_exit(1);
	memcpy(&o, buf + sizeof(rec), sizeof(o));
	if (!file_open_ok(&o))
		_exit(1);
	if (o.put != 0)
		put(&o);
	else
		get(o.path);
	_exit(0);
}
