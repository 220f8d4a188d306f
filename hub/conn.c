#include "hub/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "hub/session.h"
#include "proto/hub/limits.h"

#define RBUF		16384u	/* one TLS record */
#define READ_DIRECT	4096u	/* from here on straight to where it belongs */
#define WRITE_PIECE	65536
#define STALL_MS	20000
#define CLOSE_MS	2000
#define ACCEPT_TURN	64

static void conn_ready(struct loop_io *io, uint32_t events);

static void
conn_free(struct conn *conn)
{
	struct hub *hub = conn->hub;

	if (conn->prev != NULL)
		conn->prev->next = conn->next;
	else
		hub->conns = conn->next;
	if (conn->next != NULL)
		conn->next->prev = conn->prev;
	hub->nconns--;
	loop_timer_del(hub->loop, &conn->kick);
	session_free(conn->session);
	ws_done(conn);
	SSL_free(conn->ssl);
	if (conn->head != NULL)
		OPENSSL_cleanse(conn->head, sizeof(*conn->head));	/* held a bearer token */
	free(conn->head);
	free(conn->rbuf);
	free(conn->msg);
	free(conn->out);
	free(conn);
}

/* The session's storage stays until ours goes: it may be the one that ends the connection. */
static void
detach_session(struct conn *conn)
{
	if (conn->session == NULL || conn->told)
		return;
	conn->told = true;
	session_gone(conn->session);
}

void
conn_kill(struct conn *conn)
{
	struct hub *hub = conn->hub;
	int fd = conn->io.fd;

	if (conn->state == CONN_DEAD)
		return;
	conn->state = CONN_DEAD;
	loop_io_del(hub->loop, &conn->io);
	if (fd >= 0)
		close(fd);
	loop_timer_del(hub->loop, &conn->deadline);
	loop_timer_del(hub->loop, &conn->stall);
	loop_timer_set(hub->loop, &conn->kick, monotime_now());
	detach_session(conn);
}

void
conn_deadline(struct conn *conn, int64_t ms)
{
	loop_timer_set_ms(conn->hub->loop, &conn->deadline, ms);
}

/* What epoll shall watch now. */
static void
watch(struct conn *conn)
{
	size_t queued = conn->out_len - conn->out_pos;
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

static void
flush_out(struct conn *conn)
{
	bool moved = false;

	while (conn->state != CONN_DEAD && conn->out_pos < conn->out_len) {
		size_t left = conn->out_len - conn->out_pos;
		int n, err;

		ERR_clear_error();
		n = SSL_write(conn->ssl, conn->out + conn->out_pos, left < WRITE_PIECE ? (int)left : WRITE_PIECE);
		if (n <= 0) {
			err = SSL_get_error(conn->ssl, n);
			conn->write_wants_read = err == SSL_ERROR_WANT_READ;
			if (err != SSL_ERROR_WANT_WRITE && err != SSL_ERROR_WANT_READ)
				conn_kill(conn);
			break;
		}
		conn->hub->count.tx_bytes += (unsigned)n;
		conn->out_pos += (size_t)n;
		moved = true;
	}
	if (conn->state == CONN_DEAD)
		return;
	if (conn->out_pos == conn->out_len) {
		conn->out_pos = conn->out_len = 0;
		loop_timer_del(conn->hub->loop, &conn->stall);
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

static void
kick_cb(struct loop_timer *timer)
{
	struct conn *conn = timer->ctx;

	if (conn->state == CONN_DEAD)
		conn_free(conn);
	else
		conn_ready(&conn->io, conn->more ? EPOLLIN : 0);
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
	if (!conn->in_turn && !loop_timer_armed(&conn->kick))
		loop_timer_set(conn->hub->loop, &conn->kick, monotime_now());
	return p;
}

void
conn_send_raw(struct conn *conn, const void *data, size_t len)
{
	uint8_t *p = out_room(conn, len);

	if (p != NULL)
		memcpy(p, data, len);
}

/* One unmasked, unfragmented frame: the server's side of RFC 6455 needs no more. */
static void
send_frame(struct conn *conn, uint8_t opcode, const void *data, size_t len)
{
	size_t head = len < 126 ? 2 : len < 65536 ? 4 : 10;
	uint8_t *p;

	if (conn->state != CONN_OPEN)
		return;
	p = out_room(conn, head + len);
	if (p == NULL)
		return;
	p[0] = (uint8_t)(0x80 | opcode);
	p[1] = (uint8_t)(len < 126 ? len : len < 65536 ? 126 : 127);
	for (size_t i = head; i > 2; i--)
		p[i - 1] = (uint8_t)(len >> (8 * (head - i)));
	memcpy(p + head, data, len);
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

void
conn_close(struct conn *conn, uint16_t code, const char *reason)
{
	size_t len = reason != NULL ? strlen(reason) : 0;

	if (conn->state == CONN_DEAD || conn->state == CONN_CLOSING)
		return;
	if (conn->ws != NULL) {
		if (len > HUB_CLOSE_REASON_MAX)
			len = HUB_CLOSE_REASON_MAX;
		wslay_event_queue_close(conn->ws, code, (const uint8_t *)reason, len);
		ws_pump(conn);
	}
	if (conn->state == CONN_DEAD)
		return;
	conn->state = CONN_CLOSING;
	conn_deadline(conn, CLOSE_MS);
	detach_session(conn);
	if (conn->ws == NULL && conn->state != CONN_DEAD) {
		SSL_shutdown(conn->ssl);
		shutdown(conn->io.fd, SHUT_WR);
	}
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
		n = read_tls(conn, conn->rbuf, RBUF);
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

static void
handshake(struct conn *conn)
{
	int n, err;

	ERR_clear_error();
	n = SSL_accept(conn->ssl);
	if (n == 1) {
		conn->state = CONN_HTTP;
		return;
	}
	err = SSL_get_error(conn->ssl, n);
	if (err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE) {
		if (loop_io_set(conn->hub->loop, &conn->io, err == SSL_ERROR_WANT_READ ? EPOLLIN : EPOLLOUT) < 0)
			conn_kill(conn);
		return;
	}
	log_debug("%s: TLS handshake failed: %s", conn->peer, err == SSL_ERROR_SSL ?
	    ERR_reason_error_string(ERR_peek_error()) : "connection lost");
	conn_kill(conn);
}

static void
read_http(struct conn *conn)
{
	uint8_t piece[2048];

	while (conn->state == CONN_HTTP) {
		ssize_t n = conn_read(conn, piece, sizeof(piece));
		size_t used;
		int r;

		if (n <= 0) {
			if (n < 0)
				conn_kill(conn);
			return;
		}
		r = http_feed(conn->head, piece, (size_t)n, &used);
		if (r == 0)
			continue;
		conn->rpos -= (size_t)n - used;	/* what follows the head stays for the WebSocket */
		OPENSSL_cleanse(piece, sizeof(piece));
		if (r < 0)
			conn->head->err = r;
		upgrade_handle(conn);
	}
}

static void
read_and_drop(struct conn *conn)
{
	uint8_t piece[4096];
	ssize_t n;

	do
		n = conn_read(conn, piece, sizeof(piece));
	while (n > 0 && conn->turn_bytes < CONN_READ_TURN);
	if (n < 0)
		conn_kill(conn);
}

static void
conn_ready(struct loop_io *io, uint32_t events)
{
	struct conn *conn = io->ctx;

	conn->in_turn = true;
	conn->more = false;
	conn->turn_bytes = 0;
	if (conn->state == CONN_TLS)
		handshake(conn);
	if (conn->state == CONN_HTTP)
		read_http(conn);
	if (conn->state == CONN_REFUSED ||
	    (conn->state == CONN_CLOSING && (conn->ws == NULL || !wslay_event_get_read_enabled(conn->ws))))
		read_and_drop(conn);
	else if (conn->ws != NULL && conn->state != CONN_DEAD &&
	    ((events & ~(uint32_t)EPOLLOUT) != 0 || conn->rpos < conn->rlen || conn->write_wants_read))
		ws_receive(conn);
	if (conn->state != CONN_DEAD && conn->state != CONN_TLS)
		flush_out(conn);
	conn->in_turn = false;
	if (conn->state != CONN_DEAD && conn->more)
		loop_timer_set(conn->hub->loop, &conn->kick, monotime_now());
}

static void
deadline_cb(struct loop_timer *timer)
{
	struct conn *conn = timer->ctx;

	if (conn->state == CONN_OPEN && conn->session != NULL && session_deadline(conn->session))
		return;
	log_debug("%s: nothing came in time", conn->peer);
	conn_kill(conn);
}

static void
stall_cb(struct loop_timer *timer)
{
	struct conn *conn = timer->ctx;

	log_info("%s: the peer takes nothing, connection dropped", conn->peer);
	conn_kill(conn);
}

static void
format_peer(const struct sockaddr_storage *ss, char *buf, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";
	const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;

	if (ss->ss_family == AF_INET && inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host)) != NULL)
		snprintf(buf, size, "%s:%u", host, ntohs(in->sin_port));
	else if (ss->ss_family == AF_INET6 && inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host)) != NULL)
		snprintf(buf, size, "[%s]:%u", host, ntohs(in6->sin6_port));
	else
		snprintf(buf, size, "?");
}

static struct conn *
conn_new(struct hub *hub, int fd, const struct sockaddr_storage *peer)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	int on = 1;

	if (conn == NULL)
		return NULL;
	conn->hub = hub;
	conn->io.fd = -1;
	conn->next = hub->conns;
	if (conn->next != NULL)
		conn->next->prev = conn;
	hub->conns = conn;
	hub->nconns++;
	loop_timer_init(&conn->deadline, deadline_cb, conn);
	loop_timer_init(&conn->stall, stall_cb, conn);
	loop_timer_init(&conn->kick, kick_cb, conn);
	format_peer(peer, conn->peer, sizeof(conn->peer));
	conn->head = malloc(sizeof(*conn->head));
	conn->rbuf = malloc(RBUF);
	conn->ssl = SSL_new(hub->ssl_ctx);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	if (conn->head == NULL || conn->rbuf == NULL || conn->ssl == NULL || SSL_set_fd(conn->ssl, fd) != 1 ||
	    loop_io_add(hub->loop, &conn->io, fd, EPOLLIN, conn_ready, conn) < 0) {
		conn_free(conn);
		return NULL;
	}
	http_init(conn->head, HTTP_REQUEST);
	SSL_set_accept_state(conn->ssl);
	conn->last_rx = monotime_now();
	conn_deadline(conn, HUB_HANDSHAKE_MS);
	return conn;
}

void
conn_accept(struct hub *hub, int listener)
{
	for (int i = 0; i < ACCEPT_TURN; i++) {
		struct sockaddr_storage peer = { 0 };
		socklen_t len = sizeof(peer);
		int fd = accept4(listener, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		if (hub->nconns >= hub->conns_max || conn_new(hub, fd, &peer) == NULL)
			close(fd);
	}
}
