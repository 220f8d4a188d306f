/* edgehub's own narrowing, when everything it was told to open is open. Both: -errno. */
#ifndef EDGEWARD_HUB_SANDBOX_H
#define EDGEWARD_HUB_SANDBOX_H

/* No capability, then Landlock: datadir and the directory of sock. Before any thread. The Landlock ABI, 0 = none. */
int hub_sandbox_files(const char *datadir, const char *sock);

/* The filter, for all threads. */
int hub_sandbox_calls(void);

#endif
