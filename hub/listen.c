#include "hub/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"

#define BACKLOG		512

/* A literal address or "" (every address, by way of IPv6). */
static int
parse_address(const char *host, uint16_t port, struct sockaddr_storage *ss, socklen_t *ret_len)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_ANY_INIT };

	if (inet_pton(AF_INET, host, &in.sin_addr) == 1) {
		memcpy(ss, &in, sizeof(in));
		*ret_len = sizeof(in);
		return 0;
	}
	if (host[0] != '\0' && inet_pton(AF_INET6, host, &in6.sin6_addr) != 1)
		return -EINVAL;
	memcpy(ss, &in6, sizeof(in6));
	*ret_len = sizeof(in6);
	return 0;
}

static int
bind_listen(const struct sockaddr_storage *ss, socklen_t len)
{
	_cleanup_close_ int fd = socket(ss->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, off = 0;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (ss->ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, (const struct sockaddr *)ss, len) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return take_fd(&fd);
}

/* One address of a name, of IPv4 where it has both: that is what a device's configuration says for "localhost", too. */
static int
listen_name(const char *host, uint16_t port, char *err, size_t size)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	struct addrinfo *all, *best = NULL;
	int fd = -EADDRNOTAVAIL, r;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	r = getaddrinfo(host, service, &hints, &all);
	if (r != 0) {
		snprintf(err, size, "no address of that name: %s", r == EAI_SYSTEM ? strerror(errno) : gai_strerror(r));
		return -EINVAL;
	}
	for (struct addrinfo *ai = all; ai != NULL; ai = ai->ai_next)
		if (best == NULL || (best->ai_family != AF_INET && ai->ai_family == AF_INET))
			best = ai;
	if (best != NULL) {
		struct sockaddr_storage ss = { 0 };

		memcpy(&ss, best->ai_addr, best->ai_addrlen);
		fd = bind_listen(&ss, best->ai_addrlen);
	}
	freeaddrinfo(all);
	if (fd < 0)
		snprintf(err, size, "%s", strerror(-fd));
	return fd;
}

int
listen_tcp(const char *host, uint16_t port, char *err, size_t size)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len;
	int fd;

	if (parse_address(host, port, &ss, &len) < 0)
		return listen_name(host, port, err, size);
	fd = bind_listen(&ss, len);
	/* A machine without IPv6. */
	if (fd == -EAFNOSUPPORT && host[0] == '\0' && parse_address("0.0.0.0", port, &ss, &len) == 0)
		fd = bind_listen(&ss, len);
	if (fd < 0)
		snprintf(err, size, "%s", strerror(-fd));
	return fd;
}

/* The database's lock has told already that nobody else runs here, so an old socket file is a leftover. */
int
listen_admin(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;
	mode_t old;
	int r;

	if (strlen(path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	memcpy(sun.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	old = umask(0177);
	r = bind(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0 || listen(fd, BACKLOG) < 0 ? -errno : 0;
	umask(old);
	return r < 0 ? r : take_fd(&fd);
}

unsigned
listen_port(int fd)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return 0;
	return ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port :
	    ((struct sockaddr_in *)&ss)->sin_port);
}

