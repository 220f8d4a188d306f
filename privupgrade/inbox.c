/*
 * Takes what asks for an upgrade: first out of the reach of whoever put it there, then looked at.
 *
 * Who calls: main.c. What is trusted: nothing in connectd/, which edgeward-net owns: its request and its release may be links, pipes,
 * directories, or change while they are read. renameat2 moves the name, whatever it is, into a directory only root can enter; what was
 * opened there must be a plain file with one name. A directory is given back under a name that asks for nothing: it may be deep, and grow as
 * long as somebody holds one below it open, and root walks no tree of theirs. An operator's request lies in upgrade/queue, which only root can
 * write. On error: a request that cannot be used is refused with its reason, and gone in any case, so that the path unit does not start us for
 * it again.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/monotime.h"
#include "privupgrade/privupgrade.h"

static const struct {
	const char *dir, *request, *release, *taken_request, *taken_release;
} boxes[] = {
	[UPGRADE_HUB] = { "connectd", "upgrade-request", "upgrade-release", "hub-request", "hub-release" },
	[UPGRADE_OPERATOR] = { "upgrade/queue", "request", "release", "operator-request", "operator-release" },
};

static int
open_box(const struct updater *u, enum upgrade_source source)
{
	return openat(u->base, boxes[source].dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void
discard(struct updater *u, enum upgrade_source source, const char *name)
{
	_cleanup_close_ int box = -1;
	char aside[48];

	if (unlinkat(u->taken, name, 0) == 0 || errno == ENOENT || unlinkat(u->taken, name, AT_REMOVEDIR) == 0)
		return;
	box = open_box(u, source);
	snprintf(aside, sizeof(aside), "refused-%" PRId64, monotime_wall_ns());
	if (box < 0 || renameat2(u->taken, name, box, aside, RENAME_NOREPLACE) < 0)
		log_error("taken/%s can be neither removed nor given back: %s", name, strerror(errno));
}

/* Moves a name into taken/. 1 moved, 0 there is none, -errno. */
static int
take(struct updater *u, enum upgrade_source source, int from, const char *name, const char *to)
{
	if (renameat2(from, name, u->taken, to, RENAME_NOREPLACE) == 0)
		return 1;
	if (errno == EEXIST) {
		discard(u, source, to);
		if (renameat2(from, name, u->taken, to, RENAME_NOREPLACE) == 0)
			return 1;
	}
	return errno == ENOENT ? 0 : -errno;
}

/* A plain file with one name, of at most max bytes: a descriptor, or -errno with the reason kept. */
static int
open_plain(struct updater *u, const char *name, const char *code, uint64_t max, uint64_t *ret_size)
{
	_cleanup_close_ int fd = openat(u->taken, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)
		return refuse(&u->why, code, "the %s is no plain file with one name", name);
	if (st.st_size <= 0 || (uint64_t)st.st_size > max)
		return refuse(&u->why, code, "the %s is empty or too long", name);
	*ret_size = (uint64_t)st.st_size;
	return take_fd(&fd);
}

static int
read_request(struct updater *u, const char *name, struct upgrade_request *ret_request)
{
	uint64_t size;
	char buf[1024];
	_cleanup_close_ int fd = open_plain(u, name, "bad-request", sizeof(buf), &size);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = pread(fd, buf, sizeof(buf), 0);
	if (n < 0 || upgrade_request_parse(buf, (size_t)n, ret_request) < 0)
		return refuse(&u->why, "bad-request", "the %s is not a request", name);
	return 0;
}

int
inbox_take(struct updater *u, enum upgrade_source source, struct inbox *ret_inbox)
{
	_cleanup_close_ int dir = open_box(u, source);
	const char *request = boxes[source].taken_request, *release = boxes[source].taken_release;
	int r = dir >= 0 ? take(u, source, dir, boxes[source].request, request) : 0;

	*ret_inbox = (struct inbox){ .source = source, .release = -1 };
	if (r < 0) {
		log_error("%s/%s cannot be taken: %s", boxes[source].dir, boxes[source].request, strerror(-r));
		return r;
	}
	/* Taken before, and then we were ended: it is still to be done. */
	if (r == 0 && faccessat(u->taken, request, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = dir >= 0 ? take(u, source, dir, boxes[source].release, release) : 0;
	if (r < 0)
		return refuse(&u->why, "io", "%s/%s cannot be taken: %s", boxes[source].dir, boxes[source].release, strerror(-r));
	r = read_request(u, request, &ret_inbox->request);
	if (r < 0)
		return r;
	if (source == UPGRADE_HUB && ret_inbox->request.downgrade)
		return refuse(&u->why, "downgrade", "only the device's own operator may ask for a downgrade");
	ret_inbox->release = open_plain(u, release, "no-release", RELEASE_TOTAL_MAX + RELEASE_HEAD_MAX, &ret_inbox->size);
	return ret_inbox->release < 0 ? ret_inbox->release : 1;
}

void
inbox_forget(struct updater *u, enum upgrade_source source)
{
	discard(u, source, boxes[source].taken_release);
	discard(u, source, boxes[source].taken_request);
}

bool
inbox_has(const struct updater *u, enum upgrade_source source)
{
	_cleanup_close_ int box = open_box(u, source);

	return box >= 0 && faccessat(box, boxes[source].request, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}
