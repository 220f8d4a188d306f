#include "hub/logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/cleanup.h"
#include "proto/hub/utf8.h"
#include "proto/ipc/names.h"

#define DIGEST_BUF	(256u * 1024)

enum logfile_place
logfile_place(uint64_t next, uint64_t offset, size_t len, size_t *ret_skip)
{
	*ret_skip = 0;
	if (offset > next)
		return LOGFILE_JUMP;
	if (len <= next - offset) {
		*ret_skip = len;
		return LOGFILE_DUPLICATE;
	}
	*ret_skip = (size_t)(next - offset);
	return offset == next ? LOGFILE_NEW : LOGFILE_OVERLAP;
}

static int
copy_gaps(struct logfile *log, const struct logfile_gap *gaps, size_t ngaps)
{
	if (ngaps == 0)
		return 0;
	log->gaps = calloc(ngaps, sizeof(*gaps));
	if (log->gaps == NULL)
		return -ENOMEM;
	memcpy(log->gaps, gaps, ngaps * sizeof(*gaps));
	log->ngaps = ngaps;
	for (size_t i = 0; i < ngaps; i++)
		if (gaps[i].to <= gaps[i].from || gaps[i].to > LOGFILE_MAX || (i > 0 && gaps[i].from <= gaps[i - 1].to))
			return -EINVAL;
	return 0;
}

int
logfile_open(int dirfd, const char *handle, bool create, const struct logfile_gap *gaps, size_t ngaps,
    struct logfile *ret_log)
{
	struct logfile log = { .fd = -1 };
	char name[HANDLE_SIZE + 2];
	struct stat st;
	int r;

	if (!handle_ok(handle))
		return -EINVAL;
	snprintf(name, sizeof(name), "w.%s", handle);
	log.fd = openat(dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600);
	if (log.fd < 0)
		return -errno;
	r = fstat(log.fd, &st) < 0 ? -errno : 0;
	if (r == 0 && !S_ISREG(st.st_mode))
		r = -EINVAL;
	if (r == 0)
		r = copy_gaps(&log, gaps, ngaps);
	if (r < 0) {
		logfile_close(&log);
		return r;
	}
	log.next = (uint64_t)st.st_size;
	/* A gap beyond the end was recorded, but bytes before it did not reach the disk: both come again. */
	while (log.ngaps > 0 && log.gaps[log.ngaps - 1].from > log.next)
		log.ngaps--;
	if (log.ngaps > 0 && log.gaps[log.ngaps - 1].to > log.next)
		log.next = log.gaps[log.ngaps - 1].to;
	log.durable = log.next;
	*ret_log = log;
	return 0;
}

void
logfile_close(struct logfile *log)
{
	if (log->fd >= 0)
		close(log->fd);
	free(log->gaps);
	*log = (struct logfile){ .fd = -1 };
}

int
logfile_append(struct logfile *log, const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t done = 0;

	if (len > LOGFILE_MAX - log->next)
		return -EFBIG;
	while (done < len) {
		ssize_t n = pwrite(log->fd, p + done, len - done, (off_t)(log->next + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int saved = n < 0 ? errno : EIO;

			/* Half a chunk must not count as received: on cloop it could end inside a character. */
			if (done > 0 && ftruncate(log->fd, (off_t)log->next) < 0)
				log->next += done;
			return -saved;
		}
		done += (size_t)n;
	}
	log->next += len;
	return 0;
}

int
logfile_gap(struct logfile *log, uint64_t to, uint8_t reason, struct logfile_gap *ret_gap)
{
	struct logfile_gap *last = log->ngaps > 0 ? &log->gaps[log->ngaps - 1] : NULL;
	struct logfile_gap *more;

	if (to <= log->next)
		return -EINVAL;
	if (to > LOGFILE_MAX)
		return -EFBIG;
	if (last == NULL || last->to != log->next) {
		if (log->ngaps >= LOGFILE_GAPS_MAX)
			return -ENOSPC;
		more = reallocarray(log->gaps, log->ngaps + 1, sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		log->gaps = more;
		last = &log->gaps[log->ngaps++];
		*last = (struct logfile_gap){ .from = log->next, .reason = reason };
	}
	last->to = log->next = to;
	*ret_gap = *last;
	return 0;
}

/* The first gap that ends above offset, or NULL. */
static const struct logfile_gap *
gap_at_or_after(const struct logfile *log, uint64_t offset)
{
	size_t lo = 0, hi = log->ngaps;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (log->gaps[mid].to > offset)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo < log->ngaps ? &log->gaps[lo] : NULL;
}

ssize_t
logfile_read(const struct logfile *log, uint64_t offset, void *buf, size_t size, uint64_t *ret_gap_to)
{
	const struct logfile_gap *gap = gap_at_or_after(log, offset);
	uint64_t end = log->next;
	ssize_t n;

	*ret_gap_to = 0;
	if (offset >= end)
		return 0;
	if (gap != NULL && gap->from <= offset) {
		*ret_gap_to = gap->to;
		return 0;
	}
	if (gap != NULL && gap->from < end)
		end = gap->from;
	if (size > end - offset)
		size = (size_t)(end - offset);
	do
		n = pread(log->fd, buf, size, (off_t)offset);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n > 0 ? n : -EIO;	/* the file was cut behind our back */
}

uint8_t
logfile_gap_reason(const struct logfile *log, uint64_t offset)
{
	const struct logfile_gap *gap = gap_at_or_after(log, offset);

	return gap != NULL && gap->from <= offset ? gap->reason : 0;
}

const char *
logfile_gap_name(uint32_t reason)
{
	static const char *const names[] = { "unknown", "memory", "spool", "disk", "lost" };	/* the values of GAP frames */

	return reason < sizeof(names) / sizeof(names[0]) ? names[reason] : names[0];
}

int
logfile_trim_text(struct logfile *log)
{
	uint8_t tail[4];
	size_t len = log->next < sizeof(tail) ? (size_t)log->next : sizeof(tail), partial = 0;
	ssize_t n;

	if (log->ngaps > 0 && log->gaps[log->ngaps - 1].to + len > log->next)
		len = (size_t)(log->next - log->gaps[log->ngaps - 1].to);
	if (len == 0)
		return 0;
	n = pread(log->fd, tail, len, (off_t)(log->next - len));
	if (n != (ssize_t)len)
		return n < 0 ? -errno : -EIO;
	/* The four bytes may begin inside a character: try from the first byte that can start one. */
	for (size_t i = 0; i < len; i++)
		if ((tail[i] & 0xc0) != 0x80 && utf8_valid_prefix(tail + i, len - i, &partial) + partial == len - i)
			break;
	if (partial == 0)
		return 0;
	if (ftruncate(log->fd, (off_t)(log->next - partial)) < 0)
		return -errno;
	log->next -= partial;
	log->durable = log->next;
	return 0;
}

int
logfile_digest(int fd, uint64_t len, uint8_t digest[16])
{
	XXH3_state_t *state = XXH3_createState();
	_cleanup_free_ uint8_t *buf = malloc(DIGEST_BUF);
	XXH128_canonical_t canon;
	uint64_t done = 0;
	int r = 0;

	if (state == NULL || buf == NULL || XXH3_128bits_reset(state) != XXH_OK)
		r = -ENOMEM;
	while (r == 0 && done < len) {
		size_t want = len - done < DIGEST_BUF ? (size_t)(len - done) : DIGEST_BUF;
		ssize_t n = pread(fd, buf, want, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			r = n < 0 ? -errno : -EIO;
		else
			XXH3_128bits_update(state, buf, (size_t)n);
		done += n > 0 ? (uint64_t)n : 0;
	}
	if (r == 0) {
		XXH128_canonicalFromHash(&canon, XXH3_128bits_digest(state));
		memcpy(digest, canon.digest, sizeof(canon.digest));
	}
	XXH3_freeState(state);
	return r;
}
