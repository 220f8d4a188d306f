/*
 * Who calls: stage.c, life.c and workchan.c. The bytes come out of a workload's sandbox: they are counted, never interpreted, and
 * the trailer is text of one narrow form. What cannot be written down is told as an error of the write-back.
 */
#include "workerd/result.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/parse.h"
#include "workerd/workerd.h"

#define DIRECTORY	"results"
#define NAME_SIZE	80
#define KEPT		"k."	/* prefix of the result itself; that of its bytes is "b." */
#define BYTES		"b."

struct kept {
	struct work_result result;
	uint64_t sum;
};

static uint64_t
sum_of(const struct kept *k)
{
	return XXH3_64bits(&k->result, sizeof(k->result));
}

static void
name_of(const struct workload *wl, const char *prefix, char name[NAME_SIZE])
{
	snprintf(name, NAME_SIZE, "%s%s", prefix, wl->info.handle);
}

/* ---- the trailer ---- */

/* "key=value" at the front of *p; the value ends at a blank, or with rest at the end. */
static bool
field(char **p, const char *key, char *dst, size_t size, bool rest)
{
	size_t klen = strlen(key), n;

	if (strncmp(*p, key, klen) != 0)
		return false;
	*p += klen;
	n = rest ? strlen(*p) : strcspn(*p, " ");
	if (n >= size)
		return false;
	memcpy(dst, *p, n);
	dst[n] = '\0';
	*p += n + (!rest && (*p)[n] == ' ');
	return true;
}

static bool
is_commit(const char *s)
{
	return strlen(s) == 40 && strspn(s, "0123456789abcdef") == 40;
}

int
result_parse(const char *text, size_t len, struct result_trailer *t)
{
	char copy[RESULT_TRAILER + 1], commits[12], files[12], *p = copy, *end;

	memset(t, 0, sizeof(*t));
	if (len != RESULT_TRAILER || memchr(text, '\0', len) != NULL || text[len - 1] != '\n')
		return -EBADMSG;
	memcpy(copy, text, len);
	for (end = copy + len - 1; end > copy && end[-1] == ' '; end--)
		;
	*end = '\0';
	for (const char *c = copy; *c != '\0'; c++)
		if (*c < ' ' || *c > '~')
			return -EBADMSG;
	if (!field(&p, "head=", t->head, sizeof(t->head), false) || !field(&p, "commits=", commits, sizeof(commits), false) ||
	    !field(&p, "files=", files, sizeof(files), false) || !field(&p, "project=", t->project, sizeof(t->project), false) ||
	    !field(&p, "data=", t->data, sizeof(t->data), false) ||
	    !field(&p, "skip=", t->skip, sizeof(t->skip), true) || (t->head[0] != '\0' && !is_commit(t->head)) ||
	    parse_u32(commits, 0, UINT32_MAX, &t->commits) < 0 || parse_u32(files, 0, UINT32_MAX, &t->files) < 0)
		return -EBADMSG;
	return 0;
}

/* ---- the files ---- */

void
result_open(struct workerd *w, int statefd)
{
	w->results = -1;
	if (mkdirat(statefd, DIRECTORY, 0700) < 0 && errno != EEXIST)
		log_error("state directory: " DIRECTORY ": %s: nothing can be written back", strerror(errno));
	else if ((w->results = openat(statefd, DIRECTORY, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
		log_error("state directory: " DIRECTORY ": %s: nothing can be written back", strerror(errno));
}

int
result_create(struct workload *wl)
{
	char name[NAME_SIZE];
	int fd;

	name_of(wl, BYTES, name);
	if (wl->w->results < 0)
		return -ENOENT;
	unlinkat(wl->w->results, name, 0);
	fd = openat(wl->w->results, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

static int
open_bytes(const struct workload *wl)
{
	char name[NAME_SIZE];
	int fd;

	name_of(wl, BYTES, name);
	fd = wl->w->results < 0 ? -1 : openat(wl->w->results, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -ENOENT : fd;
}

int
result_read(const struct workload *wl, struct result_trailer *ret_t, uint64_t *ret_bytes)
{
	_cleanup_close_ int fd = open_bytes(wl);
	char text[RESULT_TRAILER];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < (off_t)sizeof(text))
		return -ENOENT;
	*ret_bytes = (uint64_t)st.st_size - sizeof(text);
	if (pread(fd, text, sizeof(text), (off_t)*ret_bytes) != (ssize_t)sizeof(text))
		return -EIO;
	return result_parse(text, sizeof(text), ret_t);
}

void
result_keep(struct workload *wl, const struct work_result *result)
{
	struct kept k = { .result = *result };
	char name[NAME_SIZE];
	int r;

	free(wl->result);
	wl->result = malloc(sizeof(*wl->result));
	if (wl->result == NULL)
		fatal("out of memory");
	*wl->result = *result;
	wl->result_told = false;
	k.sum = sum_of(&k);
	name_of(wl, KEPT, name);
	r = wl->w->results < 0 ? -ENOENT : fd_replace_file(wl->w->results, name, &k, sizeof(k), 0600);
	if (r < 0)	/* it is in memory; only a restart loses it */
		log_error("the result of %s cannot be written down: %s", wl->info.handle, strerror(-r));
}

void
result_load(struct workload *wl)
{
	_cleanup_free_ uint8_t *data = NULL;
	char name[NAME_SIZE];
	struct kept k;
	size_t len;

	name_of(wl, KEPT, name);
	if (wl->result != NULL || wl->w->results < 0 || fd_read_file(wl->w->results, name, sizeof(k), &data, &len) < 0 || len != sizeof(k))
		return;
	memcpy(&k, data, sizeof(k));
	if (k.sum != sum_of(&k) || !work_result_ok(&k.result))
		return;
	wl->result = malloc(sizeof(*wl->result));
	if (wl->result != NULL)
		*wl->result = k.result;
}

void
result_tell(struct workload *wl)
{
	struct ipc_hdr hdr = { .type = WORK_EV_RESULT };
	_cleanup_close_ int fd = -1;

	if (wl->result == NULL || wl->state != ST_ENDED || wl->result_told || !ipc_chan_is_open(&wl->w->work))
		return;
	wl->result->wid = wl->info.wid;
	if (wl->result->bundle_bytes > 0 && (fd = open_bytes(wl)) < 0) {
		wl->result->bundle_bytes = 0;
		snprintf(wl->result->error, sizeof(wl->result->error), "the bundle is no longer in the state directory");
	}
	wl->result_told = ipc_send_fds(&wl->w->work, &hdr, wl->result, sizeof(*wl->result), &fd, fd >= 0) == 0;
}

void
result_forget(struct workload *wl)
{
	char name[NAME_SIZE];

	if (wl->w->results < 0)
		return;
	name_of(wl, BYTES, name);
	unlinkat(wl->w->results, name, 0);
	name_of(wl, KEPT, name);
	unlinkat(wl->w->results, name, 0);
}

void
result_sweep(struct workerd *w)
{
	int fd = w->results >= 0 ? fcntl(w->results, F_DUPFD_CLOEXEC, 3) : -1;
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *de;

	if (dir == NULL) {
		cleanup_close(&fd);
		return;
	}
	rewinddir(dir);
	while ((de = readdir(dir)) != NULL)
		if (de->d_name[0] != '.' && (strlen(de->d_name) < 2 || workload_by_handle(w, de->d_name + 2) == NULL))
			unlinkat(w->results, de->d_name, 0);
	closedir(dir);
}
