#include "workerd/spooldir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/log.h"
#include "workerd/admit.h"

#define RETRY_MS	1000

/* ---- at start ---- */

static int
open_dir(struct spooldir *dir, bool make)
{
	struct stat st;
	int fd;

	if (make && mkdirat(dir->statefd, SPOOLDIR_NAME, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dir->statefd, SPOOLDIR_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022) != 0) {
		close(fd);
		return -EPERM;
	}
	dir->fd = fd;
	return 0;
}

static int
by_handle_and_base(const void *a, const void *b)
{
	const struct spool_file *x = a, *y = b;
	int r = strcmp(x->handle, y->handle);

	return r != 0 ? r : x->base < y->base ? -1 : x->base > y->base;
}

static void
found(struct spooldir *dir, const struct spool_file *file, size_t *size)
{
	if (dir->nfound == *size) {
		size_t more = *size * 2 + 64;
		struct spool_file *p = reallocarray(dir->found, more, sizeof(*p));

		if (p == NULL)
			fatal("out of memory");
		dir->found = p;
		*size = more;
	}
	dir->found[dir->nfound++] = *file;
}

/* Counts one entry, and remembers it when it is a segment. True when it is not ours. */
static bool
look_at(struct spooldir *dir, const char *name, size_t *size)
{
	struct spool_file file = { .taken = false };
	struct stat st;
	unsigned n;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || fstatat(dir->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	file.bytes = (uint64_t)st.st_blocks * 512;
	dir->used += file.bytes;
	if (strncmp(name, "bad.", 4) == 0 && name[4] >= '0' && name[5] == '\0') {
		n = (unsigned)(name[4] - '0');
		if (n < SPOOLDIR_ASIDE)
			dir->aside[n] = file.bytes;
		return n >= SPOOLDIR_ASIDE;
	}
	if (!S_ISREG(st.st_mode) || segment_name_parse(name, file.handle, &file.base) < 0)
		return true;
	found(dir, &file, size);
	return false;
}

static void
look_around(struct spooldir *dir)
{
	int fd = fcntl(dir->fd, F_DUPFD_CLOEXEC, 0);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	unsigned foreign = 0;
	size_t size = 0;

	if (d == NULL) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (const struct dirent *e; (e = readdir(d)) != NULL;)
		foreign += look_at(dir, e->d_name, &size);
	closedir(d);
	if (dir->nfound > 0)
		qsort(dir->found, dir->nfound, sizeof(*dir->found), by_handle_and_base);
	if (foreign > 0)
		log_warn("spool: %u files in it are not ours: they count against spool-total and are left alone", foreign);
}

void
spooldir_open(struct spooldir *dir, int statefd, const struct conf *conf)
{
	int r;

	*dir = (struct spooldir){ .statefd = statefd, .fd = -1, .read_fd = -1, .off = conf->work_spool == 0,
		.each = conf->work_spool, .total = conf->work_spool_total, .low = conf->work_disk_low };
	r = open_dir(dir, !dir->off);
	if (r == -ENOENT && dir->off)
		return;
	if (r < 0) {
		dir->off = true;
		log_error("spool: %s: output is held in memory alone", r == -EPERM ?
		    "the directory must belong to workerd's user and be writable by nobody else" : strerror(-r));
		return;
	}
	look_around(dir);
}

void
spooldir_close(struct spooldir *dir)
{
	if (dir->fd >= 0)
		close(dir->fd);
	if (dir->read_fd >= 0)
		close(dir->read_fd);
	free(dir->found);
	free(dir->block);
	*dir = (struct spooldir){ .statefd = -1, .fd = -1, .read_fd = -1, .off = true };
}

/* ---- while running ---- */

int
spooldir_may_write(struct spooldir *dir, uint64_t len)
{
	struct statvfs st;
	uint64_t bytes, inodes;

	if (dir->error != 0 && monotime_before(monotime_now(), dir->retry))
		return -EAGAIN;
	if (dir->used > dir->total || len > dir->total - dir->used)
		return -ENOBUFS;
	if (fstatvfs(dir->fd, &st) < 0)
		return spooldir_outcome(dir, -errno);
	admit_free(&st, &bytes, &inodes);
	if (bytes < len || bytes - len < dir->low || inodes < ADMIT_INODES_LOW)
		return spooldir_outcome(dir, -ENOSPC);
	return 0;
}

/* The directory was replaced under us: take the new one. It cannot be made from inside the sandbox. */
static void
open_again(struct spooldir *dir)
{
	int old = dir->fd;

	if (open_dir(dir, false) == 0)
		close(old);
}

int
spooldir_outcome(struct spooldir *dir, int err)
{
	if (err == 0 && dir->error != 0)
		log_info("spool: output is written there again");
	else if (err < 0 && err != dir->error)
		log_warn("spool: cannot be written: %s%s: output waits in memory", strerror(-err),
		    err == -ENOSPC ? " (or less than [work] disk-low is free)" : "");
	dir->error = err;
	if (err == 0)
		return 0;
	if (err == -ENOENT)
		open_again(dir);
	dir->retry = monotime_add_ms(monotime_now(), RETRY_MS);
	return err;
}

/* As bad.0; the others move up, the last one goes. */
static void
set_aside(struct spooldir *dir, const char *name, uint64_t bytes)
{
	char from[16], to[16];

	dir->used -= dir->aside[SPOOLDIR_ASIDE - 1];
	for (unsigned i = SPOOLDIR_ASIDE - 1; i > 0; i--) {
		snprintf(from, sizeof(from), "bad.%u", i - 1);
		snprintf(to, sizeof(to), "bad.%u", i);
		renameat(dir->fd, from, dir->fd, to);
		dir->aside[i] = dir->aside[i - 1];
	}
	dir->aside[0] = renameat(dir->fd, name, dir->fd, "bad.0") == 0 ? bytes : 0;
	dir->used -= bytes - dir->aside[0];
}

void
spooldir_remove(struct spooldir *dir, const char *handle, uint64_t base, uint64_t bytes, bool damaged)
{
	char name[SEGMENT_NAME];

	segment_name(name, handle, base);
	if (damaged) {
		set_aside(dir, name, bytes);
		return;
	}
	unlinkat(dir->fd, name, 0);
	dir->used -= bytes < dir->used ? bytes : dir->used;
}

struct spool_file *
spooldir_found(struct spooldir *dir, const char *handle)
{
	size_t lo = 0, hi = dir->nfound;

	while (handle != NULL && lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (strcmp(dir->found[mid].handle, handle) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < dir->nfound && (handle == NULL || strcmp(dir->found[lo].handle, handle) == 0); lo++)
		if (!dir->found[lo].taken)
			return &dir->found[lo];
	return NULL;
}

bool
spooldir_sweep(struct spooldir *dir, unsigned max)
{
	for (; dir->swept < dir->nfound && max > 0; dir->swept++) {
		const struct spool_file *f = &dir->found[dir->swept];

		if (f->taken)
			continue;
		spooldir_remove(dir, f->handle, f->base, f->bytes, false);
		max--;
	}
	if (dir->swept < dir->nfound)
		return true;
	free(dir->found);
	dir->found = NULL;
	dir->nfound = dir->swept = 0;
	return false;
}
