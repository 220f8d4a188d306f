/*
 * Bytes in and out of a connection. Output is gathered and written at the end of the turn; frames of a server are not
 * masked, so they are made here, between the ones wslay makes. Input goes through a small buffer where frames are small
 * and straight to its place where they are not.
 */
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hub/session.h"

#define READ_DIRECT	4096u	/* bytes wanted: from here on not by way of rbuf */
#define STALL_MS	20000

/* Bytes that wait to leave. */
static size_t
waiting(const struct conn *conn)
{
	return conn->out_len - conn->out_pos + conn->tls.rest_len;
}

/* What epoll shall watch now. */
static void
watch(struct conn *conn)
{
	size_t queued = waiting(conn);
	uint32_t events = 0;

	if (conn->state == CONN_DEAD || conn->state == CONN_TLS)
		return;
	if (queued > 0 && !conn->write_wants_read)
		events |= EPOLLOUT;
	if (queued <= CONN_OUT_PAUSE)
		events |= EPOLLIN;
	if (loop_io_set(conn->hub->loop, &conn->io, events) < 0)
		conn_kill(conn);
}

/* What waits, as far as the kernel takes it. True if it took some. */
static bool
write_out(struct conn *conn)
{
	size_t before = waiting(conn);
	ssize_t n = 0;

	while (n >= 0 && conn->state != CONN_DEAD && waiting(conn) > 0) {
		n = tlsio_write(&conn->tls, conn->ssl, conn->out + conn->out_pos, conn->out_len - conn->out_pos, &conn->write_wants_read);
		if (n < 0 && n != -EAGAIN)
			conn_kill(conn);
		conn->hub->count.tx_bytes += n > 0 ? (uint64_t)n : 0;
		conn->out_pos += n > 0 ? (size_t)n : 0;
	}
	if (conn->state != CONN_DEAD && waiting(conn) == 0)
		conn->out_pos = conn->out_len = 0;
	return waiting(conn) < before;
}

void
conn_push(struct conn *conn)
{
	conn->urgent = false;
	(void)write_out(conn);
}

/* Of streams little is taken at a time, and sent while it is still in the processor's cache. */
void
conn_flush(struct conn *conn)
{
	bool streams, moved = false;
	size_t turn = 0;

	do {
		streams = conn->state == CONN_OPEN && conn->session != NULL;
		if (streams)
			session_pump(conn->session);
		turn += conn->out_len - conn->out_pos;
		moved = write_out(conn) || moved;
	} while (streams && conn->state == CONN_OPEN && waiting(conn) == 0 && turn < CONN_WRITE_TURN && session_has_more(conn->session));
	if (conn->state == CONN_DEAD)
		return;
	if (waiting(conn) == 0) {
		loop_timer_del(conn->hub->loop, &conn->stall);
		if (conn->state == CONN_OPEN && conn->session != NULL && session_has_more(conn->session))
			loop_timer_set(conn->hub->loop, &conn->kick, monotime_now());
		if (conn->drop_after_flush && conn->state != CONN_CLOSING) {
			conn_close(conn, 0, NULL);
		} else if (conn->drop_after_flush) {
			SSL_shutdown(conn->ssl);
			conn_kill(conn);
			return;
		}
	} else if (moved || !loop_timer_armed(&conn->stall)) {
		loop_timer_set_ms(conn->hub->loop, &conn->stall, STALL_MS);
	}
	if (conn->paused && conn->out_len - conn->out_pos <= CONN_OUT_PAUSE) {
		conn->paused = false;
		conn->more = true;	/* epoll does not see what OpenSSL holds already */
	}
	watch(conn);
}

void
conn_kick(struct conn *conn)
{
	if (!conn->in_turn && conn->state != CONN_DEAD && !loop_timer_armed(&conn->kick))
		loop_timer_set(conn->hub->loop, &conn->kick, monotime_now());
}

/* Room for len more bytes, or NULL and the connection ends. */
static uint8_t *
out_room(struct conn *conn, size_t len)
{
	size_t queued = conn->out_len - conn->out_pos;
	uint8_t *p;

	if (conn->state == CONN_DEAD)
		return NULL;
	if (queued + len > CONN_OUT_MAX) {
		log_warn("%s: too much output waits, connection dropped", conn->peer);
		conn_kill(conn);
		return NULL;
	}
	if (conn->out_pos > 0 && conn->out_len + len > conn->out_size) {
		memmove(conn->out, conn->out + conn->out_pos, queued);
		conn->out_pos = 0;
		conn->out_len = queued;
	}
	if (conn->out_len + len > conn->out_size) {
		size_t size = conn->out_size > 0 ? conn->out_size : 4096;

		while (size < conn->out_len + len)
			size *= 2;
		p = realloc(conn->out, size);
		if (p == NULL) {
			conn_kill(conn);
			return NULL;
		}
		conn->out = p;
		conn->out_size = size;
	}
	p = conn->out + conn->out_len;
	conn->out_len += len;
	conn_kick(conn);
	return p;
}

void
conn_send_raw(struct conn *conn, const void *data, size_t len)
{
	uint8_t *p = out_room(conn, len);

	if (p != NULL)
		memcpy(p, data, len);
}

static size_t
head_len(size_t len)
{
	return len < 126 ? 2 : len < 65536 ? 4 : 10;
}

static void
put_head(uint8_t *p, uint8_t opcode, size_t len)
{
	size_t head = head_len(len);

	p[0] = (uint8_t)(0x80 | opcode);
	p[1] = (uint8_t)(len < 126 ? len : len < 65536 ? 126 : 127);
	for (size_t i = head; i > 2; i--)
		p[i - 1] = (uint8_t)(len >> (8 * (head - i)));
}

/* One unmasked, unfragmented frame: the server's side of RFC 6455 needs no more. */
static void
send_frame(struct conn *conn, uint8_t opcode, const void *data, size_t len)
{
	uint8_t *p;

	if (conn->state != CONN_OPEN)
		return;
	p = out_room(conn, head_len(len) + len);
	if (p == NULL)
		return;
	put_head(p, opcode, len);
	memcpy(p + head_len(len), data, len);
}

uint8_t *
conn_bulk_begin(struct conn *conn, size_t len)
{
	uint8_t *p = NULL;

	if (conn->state == CONN_OPEN && conn->out_len - conn->out_pos < CONN_BULK)
		p = out_room(conn, head_len(len) + len);
	if (p == NULL)
		return NULL;
	conn->bulk_head = head_len(len);
	conn->bulk = conn->out_len - conn->bulk_head - len;
	return p + conn->bulk_head;
}

void
conn_bulk_commit(struct conn *conn, size_t len)
{
	size_t head = head_len(len);
	uint8_t *p = conn->out + conn->bulk;

	if (conn->state != CONN_OPEN)
		return;
	/* It may be shorter than was thought, and its head with it. */
	if (len > 0 && conn->bulk_head != head)
		memmove(p + head, p + conn->bulk_head, len);
	conn->out_len = conn->bulk + (len > 0 ? head + len : 0);
	if (len > 0)
		put_head(p, WSLAY_BINARY_FRAME, len);
}

void
conn_send_text(struct conn *conn, const void *data, size_t len)
{
	send_frame(conn, WSLAY_TEXT_FRAME, data, len);
}

void
conn_send_binary(struct conn *conn, const void *data, size_t len)
{
	send_frame(conn, WSLAY_BINARY_FRAME, data, len);
}

/* One SSL_read(), which gives one record at most. */
static ssize_t
read_tls(struct conn *conn, void *buf, size_t len)
{
	int n, err;

	ERR_clear_error();
	n = SSL_read(conn->ssl, buf, len < INT_MAX ? (int)len : INT_MAX);
	if (n <= 0) {
		err = SSL_get_error(conn->ssl, n);
		return err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE ? 0 : -EPIPE;
	}
	conn->turn_bytes += (size_t)n;
	conn->hub->count.rx_bytes += (unsigned)n;
	conn->last_rx = monotime_now();
	conn->write_wants_read = false;
	return n;
}

ssize_t
conn_read(struct conn *conn, void *buf, size_t len)
{
	ssize_t n;

	if (conn->rpos == conn->rlen && len >= READ_DIRECT)
		return read_tls(conn, buf, len);
	if (conn->rpos == conn->rlen) {
		n = read_tls(conn, conn->rbuf, CONN_RBUF);
		if (n <= 0)
			return n;
		conn->rpos = 0;
		conn->rlen = (size_t)n;
	}
	if (len > conn->rlen - conn->rpos)
		len = conn->rlen - conn->rpos;
	memcpy(buf, conn->rbuf + conn->rpos, len);
	conn->rpos += len;
	return (ssize_t)len;
}
