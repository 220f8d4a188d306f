#include "common/filepump.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

static int
say(int sock, const struct file_rec *rec, const void *data, size_t len, int flags)
{
	struct iovec iov[2] = { { (void *)(uintptr_t)rec, sizeof(*rec) }, { (void *)(uintptr_t)data, len } };
	const struct msghdr msg = { .msg_iov = iov, .msg_iovlen = len > 0 ? 2 : 1 };
	ssize_t n;

	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL | flags);
	while (n < 0 && errno == EINTR);
	return n >= 0 ? 0 : errno == ECONNRESET ? -EPIPE : -errno;
}

int
filepump_say(int sock, const struct file_rec *rec, const void *data, size_t len)
{
	return say(sock, rec, data, len, 0);
}

int
filepump_try(int sock, const struct file_rec *rec, const void *data, size_t len)
{
	return say(sock, rec, data, len, MSG_DONTWAIT);
}

const uint8_t *
filepump_zeros(void)
{
	static uint8_t zeros[FILEPUMP_ZEROS];	/* never written; as a constant it would lie in the executable */

	return zeros;
}

void
filepump_fail(int sock, const char *text, bool again)
{
	const struct file_rec rec = { .type = FILE_FAIL, .mode = again };

	(void)filepump_say(sock, &rec, text, strnlen(text, FILE_TEXT_MAX));
}

ssize_t
filepump_hear(int sock, uint8_t *buf, uint64_t at, struct file_rec *ret_rec)
{
	ssize_t n;
	int r;

	/* A peer that went with something unread is a reset first; what it said before is behind that. */
	do
		n = recv(sock, buf, FILE_REC_MAX, 0);
	while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	if (n <= 0)
		return n < 0 ? -errno : -EPIPE;
	r = file_rec_check(buf, (size_t)n, at, ret_rec);
	return r < 0 ? r : n - (ssize_t)sizeof(*ret_rec);
}

/* Where the hole at from ends, at most at size; from itself when there are bytes, or the file system does not say. */
static uint64_t
hole_end(int fd, uint64_t from, uint64_t size)
{
	off_t data = lseek(fd, (off_t)from, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? size : from;
	return (uint64_t)data < size ? (uint64_t)data : size;
}

int
filepump_send(int sock, int fd, uint64_t *io_at, uint64_t size, uint8_t *buf, filepump_fn *told, void *ctx)
{
	int r = 0;

	while (r == 0 && *io_at < size) {
		uint64_t end = hole_end(fd, *io_at, size);
		struct file_rec rec = { .type = FILE_DATA, .at = *io_at };
		ssize_t n = 0;

		if (end - *io_at >= FILE_HOLE_MIN) {
			rec = (struct file_rec){ .type = FILE_HOLE, .at = end };
			*io_at = end;
		} else {
			n = pread(fd, buf, size - *io_at < FILE_DATA_MAX ? (size_t)(size - *io_at) : FILE_DATA_MAX, (off_t)*io_at);
			if (n <= 0)
				return n < 0 ? -errno : -EBUSY;
			*io_at += (size_t)n;
		}
		r = sock >= 0 ? filepump_say(sock, &rec, buf, (size_t)n) : 0;
		if (r == 0 && told != NULL)
			r = told(*io_at, n > 0 ? buf : NULL, (size_t)n, ctx);
	}
	return r;
}

int
filepump_store(int fd, const struct file_rec *rec, const uint8_t *data, size_t len, uint64_t *io_at)
{
	if (rec->type == FILE_HOLE) {
		if (ftruncate(fd, (off_t)rec->at) < 0)
			return -errno;
		*io_at = rec->at;
		return 0;
	}
	while (len > 0) {
		ssize_t n = pwrite(fd, data, len, (off_t)*io_at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data += n;
		len -= (size_t)n;
		*io_at += (size_t)n;
	}
	return 0;
}
