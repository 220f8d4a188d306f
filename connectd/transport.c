#include "connectd/transport.h"

#include <errno.h>
#include <linux/tcp.h>		/* the C library's tcp_info ends before tcpi_bytes_acked */
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connectd/outq.h"

#define RECORD		16384u
#define RECORD_COST	512u		/* more than any record adds, and the handshake's own records */
#define WIRE_SIZE	(5 * (RECORD + RECORD_COST))	/* four full records and what a frame's head makes spill over */

void
transport_init(struct transport *t, int fd)
{
	*t = (struct transport){ .fd = fd };
}

void
transport_done(struct transport *t)
{
	if (t->ssl != NULL) {
		if (t->err == 0 && t->send_err == 0 && SSL_is_init_finished(t->ssl) && SSL_shutdown(t->ssl) >= 0)
			transport_flush(t);
		SSL_free(t->ssl);
		ERR_clear_error();
	}
	free(t->wire);
	if (t->fd >= 0)
		close(t->fd);
	*t = (struct transport){ .fd = -1 };
}

ssize_t
transport_recv(struct transport *t, void *buf, size_t len)
{
	ssize_t n;

	if (t->err < 0)
		return t->err;
	if (t->eof)
		return 0;
	if (t->drained)
		return -EAGAIN;
	do
		n = recv(t->fd, buf, len, 0);
	while (n < 0 && errno == EINTR);
	t->drained = t->edges && n > 0 && (size_t)n < len;
	if (n < 0) {
		if (errno != EAGAIN)
			t->err = -errno;
		return -errno;
	}
	t->eof = n == 0;
	t->rx += (uint64_t)n;
	return n;
}

static ssize_t
transport_send(struct transport *t, const void *data, size_t len)
{
	ssize_t n;

	if (t->send_err < 0)
		return t->send_err;
	do
		n = send(t->fd, data, len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		if (errno != EAGAIN)
			t->send_err = -errno;
		return -errno;
	}
	t->tx += (uint64_t)n;
	return n;
}

size_t
transport_gather(struct transport *t, const void *data, size_t len)
{
	size_t room = WIRE_SIZE - t->wire_off - t->wire_len;

	if (t->wire == NULL)
		t->wire = malloc(WIRE_SIZE);
	if (t->wire == NULL)
		return 0;
	if (room < len && t->wire_off > 0) {
		memmove(t->wire, t->wire + t->wire_off, t->wire_len);
		room += t->wire_off;
		t->wire_off = 0;
	}
	len = len < room ? len : room;
	memcpy(t->wire + t->wire_off + t->wire_len, data, len);
	t->wire_len += len;
	return len;
}

int
transport_flush(struct transport *t)
{
	while (t->wire_len > 0) {
		ssize_t n = transport_send(t, t->wire + t->wire_off, t->wire_len);

		if (n < 0)
			return (int)n;
		t->wire_off += (size_t)n;
		t->wire_len -= (size_t)n;
	}
	t->wire_off = 0;
	return 0;
}

/*
 * Turns an OpenSSL result into ours. The socket's own error, kept by the BIO, is more telling. OpenSSL's queue is per
 * process: what is left in it would be read as the reason of the next failure.
 */
static ssize_t
ssl_result(struct transport *t, int ret)
{
	int err = SSL_get_error(t->ssl, ret);

	ERR_clear_error();
	if (t->err < 0)
		return t->err;
	if (err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	if (err == SSL_ERROR_ZERO_RETURN || t->eof)
		return 0;
	t->err = -EPROTO;
	return -EPROTO;
}

ssize_t
transport_read(struct transport *t, void *buf, size_t len)
{
	size_t n;
	int r;

	if (t->ssl == NULL)
		return transport_recv(t, buf, len);
	r = SSL_read_ex(t->ssl, buf, len, &n);
	return r == 1 ? (ssize_t)n : ssl_result(t, r);
}

/* Encrypts while a whole record has room. */
static int
fill(struct transport *t, struct outq *q)
{
	while (outq_len(q) > 0 && WIRE_SIZE - t->wire_len >= RECORD + RECORD_COST) {
		size_t n = outq_len(q) < RECORD ? outq_len(q) : RECORD, written;
		int r = SSL_write_ex(t->ssl, outq_data(q), n, &written);

		if (r != 1) {
			ssize_t err = ssl_result(t, r);

			return err == 0 ? -EPIPE : (int)err;
		}
		outq_drop(q, written);
	}
	return 0;
}

static int
push_plain(struct transport *t, struct outq *q)
{
	while (outq_len(q) > 0) {
		ssize_t n = transport_send(t, outq_data(q), outq_len(q));

		if (n < 0)
			return (int)n;
		outq_drop(q, (size_t)n);
	}
	return 0;
}

int
transport_push(struct transport *t, struct outq *q)
{
	int r = 0;

	if (t->ssl == NULL)
		return push_plain(t, q);
	while (r == 0 && (outq_len(q) > 0 || t->wire_len > 0)) {
		r = fill(t, q);
		if (r == 0)
			r = transport_flush(t);
	}
	return r;
}

size_t
transport_pending(const struct transport *t)
{
	return t->wire_len;
}

uint64_t
transport_acked(const struct transport *t)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (getsockopt(t->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return 0;
	return info.tcpi_bytes_acked;
}
