#include "hub/tlsio.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RECORD		16384u
#define RECORD_COST	512u	/* more than any record adds */

/* One for all connections: it is empty whenever none of them is inside tlsio_write(). */
static struct {
	uint8_t buf[(TLSIO_PIECE / RECORD + 1) * (RECORD + RECORD_COST)];
	size_t len;
} wire;

/* ---- the socket, for OpenSSL ---- */

static int
bio_read(BIO *bio, char *buf, size_t len, size_t *ret_n)
{
	struct tlsio *t = BIO_get_data(bio);
	ssize_t n = -1;

	BIO_clear_retry_flags(bio);
	errno = EAGAIN;
	if (!t->drained)
		n = recv(t->fd, buf, len, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		BIO_set_retry_read(bio);
	t->eof = n == 0;
	t->drained = n > 0 && (size_t)n < len;
	*ret_n = n > 0 ? (size_t)n : 0;
	return n > 0;
}

static int
bio_write(BIO *bio, const char *buf, size_t len, size_t *ret_n)
{
	struct tlsio *t = BIO_get_data(bio);
	ssize_t n = -1;

	BIO_clear_retry_flags(bio);
	errno = EAGAIN;
	if (t->gather) {
		n = (ssize_t)(sizeof(wire.buf) - wire.len < len ? sizeof(wire.buf) - wire.len : len);
		memcpy(wire.buf + wire.len, buf, (size_t)n);
		wire.len += (size_t)n;
	} else if (t->rest_len == 0) {
		n = send(t->fd, buf, len, MSG_NOSIGNAL);
	}
	if (n == 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		BIO_set_retry_write(bio);
	*ret_n = n > 0 ? (size_t)n : 0;
	return n > 0;
}

static long
bio_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
	const struct tlsio *t = BIO_get_data(bio);

	return cmd == BIO_CTRL_EOF ? t->eof : cmd == BIO_CTRL_FLUSH;
}

static const BIO_METHOD *
method(void)
{
	static BIO_METHOD *m;

	if (m == NULL)
		m = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "edgehub");
	if (m != NULL && (BIO_meth_set_read_ex(m, bio_read) != 1 || BIO_meth_set_write_ex(m, bio_write) != 1 || BIO_meth_set_ctrl(m, bio_ctrl) != 1))
		return NULL;
	return m;
}

int
tlsio_init(struct tlsio *t, SSL *ssl, int fd)
{
	const BIO_METHOD *m = method();
	BIO *bio = m != NULL ? BIO_new(m) : NULL;

	if (bio == NULL)
		return -ENOMEM;
	*t = (struct tlsio){ .fd = fd };
	BIO_set_data(bio, t);
	BIO_set_init(bio, 1);
	SSL_set_bio(ssl, bio, bio);
	return 0;
}

void
tlsio_done(struct tlsio *t)
{
	free(t->rest);
	*t = (struct tlsio){ .fd = -1 };
}

/* ---- writing ---- */

/* 0 = all of the rest is gone, -EAGAIN, -errno. */
static int
flush(struct tlsio *t)
{
	while (t->rest_len > 0) {
		ssize_t n = send(t->fd, t->rest + t->rest_off, t->rest_len, MSG_NOSIGNAL);

		if (n < 0)
			return -errno;
		t->rest_off += (size_t)n;
		t->rest_len -= (size_t)n;
	}
	t->rest_off = 0;
	return 0;
}

/* What was gathered; what the kernel does not take is kept. 0 or -errno. */
static int
send_wire(struct tlsio *t)
{
	size_t len = wire.len;
	ssize_t n = len > 0 ? send(t->fd, wire.buf, len, MSG_NOSIGNAL) : 0;
	uint8_t *more;

	wire.len = 0;
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		return -errno;
	n = n < 0 ? 0 : n;
	len -= (size_t)n;
	if (len > t->rest_size) {
		more = realloc(t->rest, len);
		if (more == NULL)
			return -ENOMEM;
		t->rest = more;
		t->rest_size = len;
	}
	if (len > 0)
		memcpy(t->rest, wire.buf + n, len);
	t->rest_len = len;
	return 0;
}

/* How many bytes of data are in records now. Where partial writes are enabled, as here, one SSL_write() makes one record. */
static size_t
encrypt(SSL *ssl, const uint8_t *data, size_t len, int *ret_err)
{
	size_t done = 0;
	int n = 1;

	ERR_clear_error();
	while (done < len && n > 0) {
		n = SSL_write(ssl, data + done, (int)(len - done));
		done += n > 0 ? (size_t)n : 0;
	}
	*ret_err = n > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, n);
	return done;
}

ssize_t
tlsio_write(struct tlsio *t, SSL *ssl, const void *data, size_t len, bool *ret_wants_read)
{
	int r = flush(t), err;
	size_t n;

	*ret_wants_read = false;
	if (r < 0 || len == 0)
		return r;
	t->gather = true;
	/* A rest of less than a record goes along: it would be a send(2) of its own. */
	n = encrypt(ssl, data, len < TLSIO_PIECE + RECORD ? len : TLSIO_PIECE, &err);
	t->gather = false;
	r = send_wire(t);
	if (r < 0 || n > 0)
		return r < 0 ? r : (ssize_t)n;
	*ret_wants_read = err == SSL_ERROR_WANT_READ;
	return err == SSL_ERROR_WANT_WRITE || err == SSL_ERROR_WANT_READ ? -EAGAIN : -EPIPE;
}
