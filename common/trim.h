/* Gives back the memory that only the start and the handshake needed. */
#ifndef EDGEWARD_COMMON_TRIM_H
#define EDGEWARD_COMMON_TRIM_H

/*
 * Unmaps the program's and the libraries' pages that nothing can have changed (they stay in the page cache and come back when they
 * are touched) and returns free heap to the kernel. Costs some page faults afterwards; for a process that will idle.
 */
void trim_memory(void);

#endif
