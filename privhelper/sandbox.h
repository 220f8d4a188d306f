/* privhelper's own narrowing. */
#ifndef EDGEWARD_PRIVHELPER_SANDBOX_H
#define EDGEWARD_PRIVHELPER_SANDBOX_H

/* Capabilities, then the system call filter. Nothing can be opened afterwards. 0 or -errno. */
int sandbox_enter(void);

#endif
