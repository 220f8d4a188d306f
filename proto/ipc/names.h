/* Names that may cross a boundary between processes. Never paths. */
#ifndef EDGEWARD_PROTO_NAMES_H
#define EDGEWARD_PROTO_NAMES_H

#include <stdbool.h>

#define NAME_MAX_LEN	31
#define HANDLE_MAX_LEN	64
#define HANDLE_SIZE	(HANDLE_MAX_LEN + 1)

/* [a-z0-9][a-z0-9-]{0,30} */
bool name_ok(const char *s);

/* A hub's workload handle: [A-Za-z0-9_-]{1,64}. On disk and in cgroups it is prefixed "w." */
bool handle_ok(const char *s);

#endif
