/* Times on the wire: RFC 3339 in UTC with nanoseconds. 0 stands for the zero time, year 1, which does appear. */
#ifndef EDGEWARD_PROTO_HUB_RFC3339_H
#define EDGEWARD_PROTO_HUB_RFC3339_H

#include <stddef.h>
#include <stdint.h>

#define RFC3339_SIZE	40
#define RFC3339_ZERO	"0001-01-01T00:00:00Z"

/* ns since 1970 (0 = the zero time) into buf. Returns buf. */
const char *rfc3339_format(int64_t ns, char buf[RFC3339_SIZE]);

/* ns since 1970, 0 for the zero time and for years this type cannot hold. -EINVAL when it is not a time. */
int rfc3339_parse(const char *s, int64_t *ret_ns);

#endif
