/*
 * What an upgrade remembers: state, history, tries; and what the two links lead to. Each file is replaced as a whole, so that after a power cut it is
 * the old or the new one.
 *
 * Who calls: every other file here. What is trusted: /var/lib/edgeward and below, except connectd/, belongs to root. On error:
 * -errno to the caller; a damaged file is set aside once and read as empty.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/monotime.h"
#include "privupgrade/core.h"
#include "proto/release/lines.h"

void
step(struct updater *u, const char *fmt, ...)
{
	_cleanup_close_ int fd = -1;
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	log_info("%s", line);
	/* For edgectl's eyes only, anew for each request: nothing depends on it, so a failure is none. */
	fd = openat(u->dir, "progress", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		dprintf(fd, "%s\n", line);
}

/* 1 = read, 0 = there is none, -EBADMSG = what was there is now NAME.bad, -errno. */
static int
load(struct updater *u, const char *name, int (*parse)(struct updater *u, const void *data, size_t len))
{
	_cleanup_free_ uint8_t *data = NULL;
	char aside[64];
	size_t len;
	int r = fd_read_file(u->dir, name, UPGRADE_RECORD_MAX, &data, &len);

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = parse(u, data, len);
	if (r == 0)
		return 1;
	if (r != -EBADMSG && r != -EFBIG && r != -EINVAL && r != -ELOOP)
		return r;
	snprintf(aside, sizeof(aside), "%s.bad", name);
	log_warn("%s cannot be read and is kept as %s", name, aside);
	return renameat(u->dir, name, u->dir, aside) < 0 ? -errno : -EBADMSG;
}

static int
parse_state(struct updater *u, const void *data, size_t len)
{
	return upgrade_state_parse(data, len, &u->state);
}

static int
parse_history(struct updater *u, const void *data, size_t len)
{
	return upgrade_history_parse(data, len, &u->history);
}

int
store_load(struct updater *u)
{
	int state, history;

	/* What an interruption left half-made. */
	unlinkat(u->dir, "state.tmp", 0);
	unlinkat(u->dir, "history.tmp", 0);
	state = load(u, "state", parse_state);
	history = load(u, "history", parse_history);
	u->open = state == 1;
	return state < 0 && state != -EBADMSG ? state : history < 0 && history != -EBADMSG ? history : 0;
}

int
store_save_state(struct updater *u, enum upgrade_phase phase)
{
	char buf[2048];
	int n;

	u->state.phase = phase;
	n = upgrade_state_write(&u->state, buf, sizeof(buf));
	if (n >= 0)
		n = fd_replace_file(u->dir, "state", buf, (size_t)n, 0600);
	u->open = n == 0 || u->open;
	return n;
}

int
store_end_state(struct updater *u)
{
	if (unlinkat(u->dir, "state", 0) < 0 && errno != ENOENT)
		return -errno;
	u->open = false;
	return fsync(u->dir) < 0 ? -errno : 0;
}

int
store_record(struct updater *u, enum upgrade_outcome outcome, const char *code, const char *detail)
{
	static char buf[UPGRADE_RECORD_MAX];
	const struct upgrade_state *s = &u->state;
	struct upgrade_history *h = &u->history;
	struct upgrade_entry e = { .attempt = s->attempt, .time = (uint64_t)(monotime_wall_ns() / 1000000000), .source = s->source,
		.outcome = outcome, .from = s->from_sequence, .to = s->sequence };
	int n, r;

	snprintf(e.id, sizeof(e.id), "%s", s->id);
	snprintf(e.version, sizeof(e.version), "%s", s->version);
	snprintf(e.code, sizeof(e.code), "%s", code);
	snprintf(e.detail, sizeof(e.detail), "%s", detail);
	if (h->n == 0 || h->entries[h->n - 1].attempt < s->attempt)	/* else it was recorded before an interruption */
		upgrade_history_add(h, &e);
	n = upgrade_history_write(h, buf, sizeof(buf));
	r = n < 0 ? n : fd_replace_file(u->dir, "history", buf, (size_t)n, 0600);
	return r < 0 ? r : fd_replace_file(u->releases, "results", buf, (size_t)n, 0644);	/* connectd tells the hub */
}

int
store_fail(struct updater *u, int r)
{
	bool tried;
	int e = 0;

	if (r != -ECANCELED)
		refuse(&u->why, r == -ENOSPC || r == -EDQUOT ? "no-space" : "io", "%s", strerror(-r));
	/* It was good enough to be staged. But what was damaged on its way, by whoever queued it maybe, is not that release, and a full disk is
	 * not its fault, nor is it that the hub is an old one. */
	tried = u->open && strcmp(u->why.code, "bad-file") != 0 && strcmp(u->why.code, "no-space") != 0 && strcmp(u->why.code, "protocol") != 0;
	step(u, "refused (%s): %s", u->why.code, u->why.detail);
	r = store_record(u, tried ? UPGRADE_OUT_FAILED : UPGRADE_OUT_REFUSED, u->why.code, u->why.detail);
	if (u->open && (r == 0 || !tried))
		e = store_end_state(u);
	return r < 0 ? r : e;
}

void
link_read(const struct updater *u, const char *name, char target[UPGRADE_LINK_SIZE])
{
	ssize_t n = readlinkat(u->base, name, target, UPGRADE_LINK_SIZE - 1);

	target[n < 0 ? 0 : n] = '\0';
}

uint64_t
target_sequence(const struct updater *u, const char *target)
{
	_cleanup_close_ int dir = -1;
	_cleanup_free_ uint8_t *data = NULL;
	char version[RELEASE_VERSION_SIZE];
	uint64_t sequence = 0;
	size_t len;

	if (strncmp(target, "releases/", 9) == 0)
		lines_number(target + 9, 1, RELEASE_SEQUENCE_MAX, &sequence);
	else if ((dir = openat(u->base, target, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0 && fd_read_file(dir, "release", 128, &data, &len) == 0)
		upgrade_packaged_parse(data, len, version, &sequence);
	return sequence;
}

bool
target_complete(const struct updater *u, const char *target)
{
	_cleanup_close_ int dir = target[0] != '\0' ? openat(u->base, target, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	for (const char *const *name = release_required; *name != NULL; name++) {
		bool packaged_elsewhere = target[0] == '/' && strcmp(*name, "edgectl") == 0;

		if (dir < 0 || (!packaged_elsewhere && faccessat(dir, *name, X_OK, AT_EACCESS) < 0))
			return false;
	}
	return true;
}
