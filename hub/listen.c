#include "hub/listen.h"

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

int
listen_tcp(const char *host, const char *port, char *err, size_t size)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *list;
	_cleanup_close_ int fd = -1;
	int on = 1, off = 0, r = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &list);

	if (r != 0) {
		snprintf(err, size, "%s", gai_strerror(r));
		return -EINVAL;
	}
	/* With no address given the v6 wildcard comes last; it serves v4 as well. */
	for (const struct addrinfo *ai = list; ai != NULL; ai = ai->ai_next) {
		if (host[0] == '\0' && ai->ai_next != NULL && ai->ai_family == AF_INET)
			continue;
		fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		if (ai->ai_family == AF_INET6)
			setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
		if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
			break;
		r = -errno;
		close(take_fd(&fd));
	}
	freeaddrinfo(list);
	if (fd < 0) {
		snprintf(err, size, "%s", strerror(r < 0 ? -r : EADDRNOTAVAIL));
		return r < 0 ? r : -EADDRNOTAVAIL;
	}
	return take_fd(&fd);
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

