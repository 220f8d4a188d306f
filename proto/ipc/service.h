/*
 * Local services as an operator or a hub names them: `http://127.0.0.1:8080`, `https://cam.lan`, `unix:/run/app.sock`; a declaration is
 * `NAME=` and one of these. And what of the address space is never dialled for a hub, whatever a policy says. Pure.
 */
#ifndef EDGEWARD_PROTO_SERVICE_H
#define EDGEWARD_PROTO_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERVICE_HOST_SIZE	254	/* RFC 1035: 253 characters and NUL */
#define SERVICE_PATH_SIZE	108	/* sun_path */
#define SERVICE_NAME_SIZE	33
#define SERVICE_AUTHORITY_SIZE	(SERVICE_HOST_SIZE + 10)

enum service_scheme { SERVICE_HTTP, SERVICE_HTTPS, SERVICE_UNIX };

struct service_target {
	enum service_scheme scheme;
	bool ip, ip6;			/* host is an address; of IPv6 */
	uint16_t port;
	char host[SERVICE_HOST_SIZE];	/* lower case, without brackets and trailing dot */
	char path[SERVICE_PATH_SIZE];	/* of a socket */
};

/* http and https with host, optional port and at most a '/' behind; unix: only where local says so. -EINVAL. */
int service_target_parse(const char *text, bool local, struct service_target *ret_target);

/* "NAME=TARGET", of a local configuration. */
int service_declared_parse(const char *item, char ret_name[SERVICE_NAME_SIZE], struct service_target *ret_target);

/* [a-z0-9][a-z0-9_-]{0,31} */
bool service_name_ok(const char *name);

/* HOST[:PORT] as a Host header has it, the scheme's own port left out; "localhost" for a socket. */
const char *service_authority(const struct service_target *target, char buf[SERVICE_AUTHORITY_SIZE]);
/* The whole, for people and records. */
const char *service_target_text(const struct service_target *target, char *buf, size_t size);

/* NAME.NAMESPACE.svc and NAME.NAMESPACE.svc.cluster.local: names of a cluster, which a host does not resolve. */
bool service_is_cluster_name(const char *host);

/* ---- addresses: 16 bytes, IPv4 as ::ffff:a.b.c.d ---- */

/* Why this is never dialled under any policy, or NULL. */
const char *service_never(const uint8_t addr[16]);
bool service_is_loopback(const uint8_t addr[16]);
void service_map_v4(const uint8_t v4[4], uint8_t ret_addr[16]);
bool service_is_v4(const uint8_t addr[16]);

#endif
