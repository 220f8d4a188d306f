/* connectd narrowed to what it does: sockets to hubs, its own state, reading the trust and the resolver of the system. */
#ifndef EDGEWARD_CONNECTD_SANDBOX_H
#define EDGEWARD_CONNECTD_SANDBOX_H

#include <stdbool.h>

/* The last step before the first byte is sent. sockets: services that are unix sockets are declared. Returns the Landlock ABI in force, 0 = the kernel has none, -errno. */
int connectd_sandbox_enter(const char *statedir, const char *token_file, const char *policy_file, const char *releases, const char *keys,
    bool sockets);

#endif
