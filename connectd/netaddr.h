/* A socket address of either family. */
#ifndef EDGEWARD_CONNECTD_NETADDR_H
#define EDGEWARD_CONNECTD_NETADDR_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define NETADDR_TEXT_SIZE	56	/* "[v6]:port" */

union netaddr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static inline socklen_t
netaddr_len(const union netaddr *a)
{
	return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

/* From an address in text form (as in struct url); false when it is none. */
static inline int
netaddr_set(union netaddr *ret, const char *host, int ip6, uint16_t port)
{
	memset(ret, 0, sizeof(*ret));
	if (ip6) {
		ret->in6.sin6_family = AF_INET6;
		ret->in6.sin6_port = htons(port);
		return inet_pton(AF_INET6, host, &ret->in6.sin6_addr) == 1;
	}
	ret->in.sin_family = AF_INET;
	ret->in.sin_port = htons(port);
	return inet_pton(AF_INET, host, &ret->in.sin_addr) == 1;
}

static inline const char *
netaddr_format(const union netaddr *a, char buf[NETADDR_TEXT_SIZE])
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (a->sa.sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &a->in6.sin6_addr, host, sizeof(host));
		snprintf(buf, NETADDR_TEXT_SIZE, "[%s]:%u", host, ntohs(a->in6.sin6_port));
	} else {
		inet_ntop(AF_INET, &a->in.sin_addr, host, sizeof(host));
		snprintf(buf, NETADDR_TEXT_SIZE, "%s:%u", host, ntohs(a->in.sin_port));
	}
	return buf;
}

#endif
