/* The hub's address. Strict: what is not understood completely is refused, with one sentence that says why. */
#ifndef EDGEWARD_CONNECTD_URL_H
#define EDGEWARD_CONNECTD_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define URL_HOST_SIZE	254	/* RFC 1035: 253 characters and NUL */
#define URL_PATH_SIZE	1024
#define URL_ERR_SIZE	200
#define URL_AUTHORITY_SIZE (URL_HOST_SIZE + 10)

struct url {
	bool tls;			/* wss and https */
	bool ip;			/* host is an address, not a name */
	bool ip6;
	uint16_t port;
	char host[URL_HOST_SIZE];	/* lower case; addresses in canonical form without brackets */
	char path[URL_PATH_SIZE];	/* begins with '/', query included */
};

/* wss, https, ws or http. User information and fragments are refused. -EINVAL with err filled. */
int url_parse(const char *text, struct url *ret_url, char err[URL_ERR_SIZE]);

/*
 * Host and optional port, "[v6]:port" included, of len characters. *ret_port stays when none is given. Names: letters,
 * digits, '-' and '_', no trailing dot; all that looks like a number must be a whole address. *ret_ip6 implies *ret_ip.
 */
int url_parse_host(const char *text, size_t len, char host[URL_HOST_SIZE], bool *ret_ip, bool *ret_ip6,
    uint16_t *ret_port, char err[URL_ERR_SIZE]);

/* localhost, *.localhost, 127.0.0.0/8, ::1. */
bool url_is_loopback(const struct url *url);
bool url_host_is_localhost(const char *host);

/* "host:port" with brackets where needed; without the port when it is the scheme's own and always_port is false. */
void url_authority(const struct url *url, bool always_port, char buf[URL_AUTHORITY_SIZE]);

#endif
