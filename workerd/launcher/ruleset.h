/* The rules of a workload's own network as text for nft(8). */
#ifndef EDGEWARD_LAUNCHER_RULESET_H
#define EDGEWARD_LAUNCHER_RULESET_H

#include "proto/ipc/firewall.h"

#define RULESET_LINK	"edgeward0"	/* the only interface besides the loopback */

/* Into fd, from its beginning. 0 or -errno. */
int ruleset_write(int fd, const struct firewall *fw);

#endif
