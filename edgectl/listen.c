/*
 * metrics --listen: a small HTTP server for what scrapes this device, off unless somebody starts it (edgeward-metrics.service). One
 * request at a time, GET only, each with a deadline of two seconds: it serves one or two local clients, and a slow one costs only the
 * others their time. Loopback or a unix socket, nothing else: the figures have no secret, but they have names of causes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/notify.h"
#include "common/parse.h"
#include "edgectl/metrics.h"
#include "proto/hub/http.h"

#define BACKLOG		16
#define DEADLINE_S	2
#define TYPE_METRICS	"application/openmetrics-text; version=1.0.0; charset=utf-8"

/* "127.0.0.1:PORT" or "[::1]:PORT"; -EINVAL for every other address. */
static int
parse_loopback(const char *where, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
	const char *colon = strrchr(where, ':');
	uint32_t port;

	memset(ret, 0, sizeof(*ret));
	if (colon == NULL || parse_u32(colon + 1, 0, UINT16_MAX, &port) < 0)
		return -EINVAL;
	if (strncmp(where, "127.0.0.1:", 10) == 0) {
		*in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		*ret_len = sizeof(*in);
	} else if (strncmp(where, "[::1]:", 6) == 0) {
		*in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
		*ret_len = sizeof(*in6);
	} else {
		return -EINVAL;
	}
	return 0;
}

/* A socket that nobody listens on any more is replaced. */
static int
parse_unix(const char *path, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct sockaddr_un *un = (struct sockaddr_un *)ret;
	struct stat st;

	memset(ret, 0, sizeof(*ret));
	if (path[0] != '/' || strlen(path) >= sizeof(un->sun_path))
		return -EINVAL;
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		unlink(path);
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, strlen(path));
	*ret_len = sizeof(*un);
	return 0;
}

static int
open_listener(const char *where)
{
	struct sockaddr_storage addr;
	socklen_t len = 0;
	int r = strncmp(where, "unix:", 5) == 0 ? parse_unix(where + 5, &addr, &len) : parse_loopback(where, &addr, &len);
	_cleanup_close_ int fd = -1;

	if (r < 0)
		return r;
	fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || (addr.ss_family != AF_UNIX && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int)) < 0) ||
	    bind(fd, (const struct sockaddr *)&addr, len) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	if (addr.ss_family == AF_UNIX && chmod(where + 5, 0660) < 0)
		return -errno;
	return take_fd(&fd);
}

static void
answer(int fd, const char *status, const char *type, const char *body, size_t len, bool head_only)
{
	char head[256];
	int n = snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status, type, len);

	if (n > 0 && (size_t)n < sizeof(head) && fd_write_all(fd, head, (size_t)n) == 0 && !head_only)
		fd_write_all(fd, body, len);
}

static void
answer_text(int fd, const char *status, const char *text)
{
	answer(fd, status, "text/plain; charset=utf-8", text, strlen(text), false);
}

/* healthz: the daemons answer. readyz: and the link is connected. */
static void
serve_health(struct edgectl *ctl, int fd, bool ready)
{
	struct view v;
	char text[128];
	bool good;

	status_look(ctl, &v);
	good = ready ? v.healthy : v.net_up && v.work_up;
	if (good)
		snprintf(text, sizeof(text), "ok\n");
	else if (!v.net_up || !v.work_up)
		snprintf(text, sizeof(text), "%s: %s\n", v.net_up ? "workerd" : "connectd", client_error_code(v.net_up ? &v.workerd : &v.connectd));
	else
		snprintf(text, sizeof(text), "%s: %s\n", name_of_link(v.net.link), v.net.cause[0] != '\0' ? out_safe(v.net.cause) : "not yet");
	answer_text(fd, good ? "200 OK" : "503 Service Unavailable", text);
}

static void
serve_metrics(struct edgectl *ctl, int fd, bool head_only)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	struct view v;

	if (f != NULL) {
		metrics_write(ctl, &v, f);
		if (fclose(f) == 0)
			answer(fd, "200 OK", TYPE_METRICS, text, len, head_only);
	}
	free(text);
}

static void
serve(struct edgectl *ctl, int fd)
{
	static struct http_head head;
	const struct timeval limit = { .tv_sec = DEADLINE_S };
	monotime_t end = monotime_add_ms(monotime_now(), DEADLINE_S * 1000);
	char buf[2048];
	size_t used;
	int r = 0;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	http_init(&head, HTTP_REQUEST);
	while (r == 0 && monotime_before(monotime_now(), end)) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);

		if (n <= 0)
			return;
		r = http_feed(&head, buf, (size_t)n, &used);
	}
	if (r != 1)
		answer_text(fd, "400 Bad Request", "bad request\n");
	else if (strcmp(head.method, "GET") != 0 && strcmp(head.method, "HEAD") != 0)
		answer_text(fd, "405 Method Not Allowed", "GET only\n");
	else if (strcmp(head.target, "/metrics") == 0)
		serve_metrics(ctl, fd, head.method[0] == 'H');
	else if (strcmp(head.target, "/healthz") == 0 || strcmp(head.target, "/readyz") == 0)
		serve_health(ctl, fd, head.target[1] == 'r');
	else
		answer_text(fd, "404 Not Found", "/metrics, /healthz, /readyz\n");
}

int
metrics_listen(struct edgectl *ctl, const char *where)
{
	_cleanup_close_ int listener = open_listener(where);
	struct notify notify;

	if (listener == -EINVAL)
		return usage_error("metrics", "--listen wants 127.0.0.1:PORT, [::1]:PORT or unix:PATH, not %s", where);
	if (listener < 0) {
		fprintf(stderr, "edgectl: metrics: cannot listen at %s: %s\n", where, strerror(-listener));
		return listener == -EACCES || listener == -EPERM ? EXIT_DENIED : EXIT_FAILED;
	}
	notify_init(&notify, ctl->loop);
	notify_send(&notify, "READY=1");
	for (;;) {
		_cleanup_close_ int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			serve(ctl, fd);
		else if (errno != EINTR && errno != ECONNABORTED && errno != EMFILE && errno != ENFILE && errno != ENOMEM)
			return EXIT_FAILED;
	}
}
