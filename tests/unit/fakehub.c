#include "tests/unit/fakehub.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/sha.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/hub/wsupgrade.h"

enum { PHASE_PROXY, PHASE_TLS, PHASE_UPGRADE, PHASE_OPEN };

static void
must(bool ok)
{
	if (!ok) {
		perror("fakehub");
		abort();
	}
}

static void
drop(struct fakehub *hub)
{
	int fd = hub->io.fd;

	loop_io_del(hub->loop, &hub->io);
	SSL_free(hub->ssl);
	ERR_clear_error();
	hub->ssl = NULL;
	if (fd >= 0)
		close(fd);
}

void
fakehub_fin(struct fakehub *hub)
{
	drop(hub);
}

void
fakehub_rst(struct fakehub *hub)
{
	struct linger linger = { .l_onoff = 1 };

	if (hub->io.fd >= 0)
		setsockopt(hub->io.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	drop(hub);
}

static ssize_t
get(struct fakehub *hub, void *buf, size_t len)
{
	size_t n;

	if (hub->ssl == NULL)
		return recv(hub->io.fd, buf, len, 0);
	return SSL_read_ex(hub->ssl, buf, len, &n) == 1 ? (ssize_t)n : -1;
}

void
fakehub_send(struct fakehub *hub, const void *data, size_t len)
{
	size_t n = 0;

	if (hub->ssl == NULL) {
		must(send(hub->io.fd, data, len, MSG_NOSIGNAL) == (ssize_t)len || errno == EPIPE || errno == ECONNRESET);
		return;
	}
	/* Only around this: the code under test has to do without. */
	signal(SIGPIPE, SIG_IGN);
	(void)SSL_write_ex(hub->ssl, data, len, &n);
	signal(SIGPIPE, SIG_DFL);
}

static void
sha1(const void *data, size_t len, uint8_t ret_digest[20])
{
	SHA1(data, len, ret_digest);
}

static void
answer_upgrade(struct fakehub *hub)
{
	const char *key = http_header(&hub->head, "Sec-WebSocket-Key");
	char accept[WSUPGRADE_ACCEPT_SIZE], text[400];

	must(key != NULL && wsupgrade_check_request(&hub->head) == 0);
	wsupgrade_accept(key, sha1, accept);
	snprintf(text, sizeof(text), "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	    "Sec-WebSocket-Accept: %s\r\n%s%s%s\r\n", accept, hub->select != NULL ? "Sec-WebSocket-Protocol: " : "",
	    hub->select != NULL ? hub->select : "", hub->select != NULL ? "\r\n" : "");
	fakehub_send(hub, hub->answer != NULL ? hub->answer : text, strlen(hub->answer != NULL ? hub->answer : text));
	hub->phase = PHASE_OPEN;
	hub->reached = hub->answer == NULL;
	if (hub->close_after_answer)
		drop(hub);
}

static void
answer_proxy(struct fakehub *hub)
{
	const char *text = hub->proxy_answer != NULL ? hub->proxy_answer : "HTTP/1.1 200 Connection established\r\n\r\n";

	fakehub_send(hub, text, strlen(text));
	hub->phase = hub->tls != NULL ? PHASE_TLS : PHASE_UPGRADE;
}

/* Reads one request head, byte by byte so that nothing behind it is taken. True when it is complete. */
static bool
read_head(struct fakehub *hub)
{
	char c;
	size_t used;

	while (get(hub, &c, 1) == 1)
		if (http_feed(&hub->head, &c, 1, &used) == 1)
			return true;
	return false;
}

static void
run(struct fakehub *hub)
{
	ssize_t n;

	if (hub->phase == PHASE_PROXY && read_head(hub)) {
		if (hub->stop == FAKEHUB_STOP_PROXY) {
			hub->reached = true;
			return;
		}
		answer_proxy(hub);
		http_init(&hub->head, HTTP_REQUEST);
	}
	if (hub->phase == PHASE_TLS) {
		char c;

		if (hub->stop == FAKEHUB_STOP_TLS) {
			hub->reached = hub->reached || recv(hub->io.fd, &c, 1, MSG_PEEK) == 1;
			return;
		}
		if (hub->ssl == NULL) {
			hub->ssl = SSL_new(hub->tls);
			SSL_set_fd(hub->ssl, hub->io.fd);
		}
		int r;

		signal(SIGPIPE, SIG_IGN);
		r = SSL_accept(hub->ssl);
		signal(SIGPIPE, SIG_DFL);
		if (r != 1)
			return;
		hub->phase = PHASE_UPGRADE;
	}
	if (hub->phase == PHASE_UPGRADE && read_head(hub)) {
		if (hub->stop == FAKEHUB_STOP_UPGRADE) {
			hub->reached = true;
			return;
		}
		answer_upgrade(hub);
	}
	while (hub->phase == PHASE_OPEN && hub->io.fd >= 0 && hub->read_limit == 0) {
		size_t room = sizeof(hub->in) - hub->in_len;

		n = get(hub, hub->in + (room > 0 ? hub->in_len : 0), room > 0 ? room : sizeof(hub->in));
		if (n <= 0)
			break;
		hub->in_len += room > 0 ? (size_t)n : 0;
		hub->in_total += (uint64_t)n;
	}
	ERR_clear_error();
}

void
fakehub_kick(struct fakehub *hub)
{
	run(hub);
}

void
fakehub_take(struct fakehub *hub, size_t len)
{
	char buf[4096];

	while (len > 0) {
		ssize_t n = get(hub, buf, len < sizeof(buf) ? len : sizeof(buf));

		if (n <= 0)
			return;
		len -= (size_t)n;
	}
}

void
fakehub_accept_text(struct fakehub *hub, char accept[64])
{
	wsupgrade_accept(http_header(&hub->head, "Sec-WebSocket-Key"), sha1, accept);
	hub->phase = PHASE_OPEN;
}

static void
ready(struct loop_io *io, uint32_t events)
{
	(void)events;
	run(io->ctx);
}

static void
accept_one(struct loop_io *io, uint32_t events)
{
	struct fakehub *hub = io->ctx;
	int fd = accept4(io->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void)events;
	if (fd < 0)
		return;
	drop(hub);
	hub->accepted++;
	hub->reached = hub->stop == FAKEHUB_STOP_ACCEPTED;
	hub->in_len = 0;
	hub->in_total = 0;
	hub->phase = hub->proxy ? PHASE_PROXY : hub->tls != NULL ? PHASE_TLS : PHASE_UPGRADE;
	http_init(&hub->head, HTTP_REQUEST);
	must(loop_io_add(hub->loop, &hub->io, fd, EPOLLIN | EPOLLET, ready, hub) == 0);
	if (hub->reset_on_accept)
		fakehub_rst(hub);
	else if (hub->close_on_accept)
		fakehub_fin(hub);
	else if (hub->garbage_on_accept)
		fakehub_send(hub, "SSH-2.0-garbage\r\n", 17);
	else if (hub->stop != FAKEHUB_STOP_ACCEPTED)
		run(hub);
}

void
fakehub_init(struct fakehub *hub, struct loop *loop)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	memset(hub, 0, sizeof(*hub));
	hub->loop = loop;
	hub->io.fd = -1;
	hub->stop = FAKEHUB_STOP_NEVER;
	must(fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 && listen(fd, 16) == 0 &&
	    getsockname(fd, (struct sockaddr *)&sa, &len) == 0);
	hub->port = ntohs(sa.sin_port);
	must(loop_io_add(loop, &hub->listener, fd, EPOLLIN, accept_one, hub) == 0);
}

void
fakehub_done(struct fakehub *hub)
{
	int fd = hub->listener.fd;

	drop(hub);
	loop_io_del(hub->loop, &hub->listener);
	close(fd);
}
