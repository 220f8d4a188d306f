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
	tlsio_done(&conn->tls);
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
conn_yield(struct conn *conn)
{
	conn->turn_bytes = CONN_READ_TURN;
}

void
conn_deadline(struct conn *conn, int64_t ms)
{
	loop_timer_set_ms(conn->hub->loop, &conn->deadline, ms);
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
	conn->tls.drained = false;
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
		conn_flush(conn);
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
	conn->rbuf = malloc(CONN_RBUF);
	conn->ssl = SSL_new(hub->ssl_ctx);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	if (conn->head == NULL || conn->rbuf == NULL || conn->ssl == NULL || tlsio_init(&conn->tls, conn->ssl, fd) < 0 ||
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
