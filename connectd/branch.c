#include "connectd/branch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "connectd/session.h"
#include "proto/hub/base64.h"
#include "proto/ipc/job.h"

#define FILE_NAME	"branch.incoming"	/* for as long as it takes to open it twice */
#define CHUNK_MAX	(512u << 10)

struct branch {
	struct branch *next;
	char handle[HANDLE_SIZE];
	int write, read;
	uint64_t have, total;
	monotime_t begun;
};

static struct branch **
find(struct session *s, const char *handle)
{
	struct branch **p = &s->branches;

	while (*p != NULL && strcmp((*p)->handle, handle) != 0)
		p = &(*p)->next;
	return p;
}

static void
drop(struct session *s, struct branch **p)
{
	struct branch *b = *p;

	*p = b->next;
	s->nbranches--;
	cleanup_close(&b->write);
	cleanup_close(&b->read);
	free(b);
}

void
branches_free(struct session *s)
{
	while (s->branches != NULL)
		drop(s, &s->branches);
}

static void
expire(struct session *s)
{
	for (struct branch **p = &s->branches; *p != NULL;) {
		if (monotime_diff_ms(monotime_now(), (*p)->begun) < BRANCH_KEEP_MS) {
			p = &(*p)->next;
		} else {
			log_warn("the branch shipped for %s was not used within 15 minutes; it is dropped", (*p)->handle);
			drop(s, p);
		}
	}
}

/* Opened for both sides, then without a name. */
static int
open_file(int dirfd, struct branch *b)
{
	unlinkat(dirfd, FILE_NAME, 0);
	b->write = openat(dirfd, FILE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (b->write < 0)
		return -errno;
	b->read = openat(dirfd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	unlinkat(dirfd, FILE_NAME, 0);
	return b->read < 0 ? -errno : 0;
}

static struct branch *
begin(struct session *s, const char *handle, uint64_t total)
{
	struct branch **p = find(s, handle), *b;
	int r;

	if (*p != NULL)
		drop(s, p);
	b = s->nbranches < BRANCHES_MAX ? calloc(1, sizeof(*b)) : NULL;
	if (b == NULL) {
		log_warn("the branch for %s is not taken: %u are under way", handle, s->nbranches);
		return NULL;
	}
	b->write = b->read = -1;
	snprintf(b->handle, sizeof(b->handle), "%s", handle);
	b->total = total;
	b->begun = monotime_now();
	b->next = s->branches;
	s->branches = b;
	s->nbranches++;
	r = open_file(s->p.statefd, b);
	if (r == 0)
		return b;
	log_error("the branch for %s cannot be kept: %s", handle, strerror(-r));
	drop(s, find(s, handle));
	return NULL;
}

static const char *
take(struct branch *b, uint64_t offset, uint64_t total, const uint8_t *data, size_t len)
{
	int r;

	if (offset != b->have)
		return "a gap";
	if (total != b->total)
		return "a total that changes";
	if (len > total - offset)
		return "more bytes than its total";
	r = fd_write_all(b->write, data, len);
	if (r < 0)
		return strerror(-r);
	b->have += len;
	return NULL;
}

void
branch_chunk(struct session *s, const struct cloop_frame *f)
{
	static uint8_t data[CHUNK_MAX / 4 * 4 + 4];
	const struct json *text = json_get(f->payload, "data");
	struct branch *b;
	const char *why;
	int64_t offset, total;
	size_t len = 0;

	expire(s);
	if (!handle_ok(f->handle)) {
		log_warn("the hub ships a branch for no handle");
		return;
	}
	if (!json_get_int(f->payload, "offset", 0, JOB_BUNDLE_MAX, &offset) || !json_get_int(f->payload, "total", 1, JOB_BUNDLE_MAX, &total) ||
	    text == NULL || text->type != JSON_STRING || base64_decode(data, sizeof(data), text->str, text->len, &len) < 0 || len == 0 ||
	    len > CHUNK_MAX)
		why = "a malformed chunk";
	else if ((b = offset == 0 ? begin(s, f->handle, (uint64_t)total) : *find(s, f->handle)) == NULL)
		why = offset == 0 ? NULL : "a chunk before the first";
	else
		why = take(b, (uint64_t)offset, (uint64_t)total, data, len);
	if (why == NULL)
		return;
	log_warn("the branch shipped for %s is dropped: %s", f->handle, why);
	if (*find(s, f->handle) != NULL)
		drop(s, find(s, f->handle));
}

int
branch_claim(struct session *s, const char *handle)
{
	struct branch **p = find(s, handle);
	int fd = -1;

	expire(s);
	p = find(s, handle);
	if (*p == NULL)
		return -1;
	if ((*p)->have == (*p)->total)
		fd = take_fd(&(*p)->read);
	drop(s, p);
	return fd;
}
