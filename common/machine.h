/*
 * What decides which parts of a sandbox there are, without trying them: the kernel's switches of user namespaces, and some files. Another
 * value than before says that it is worth trying again, and no more.
 */
#ifndef EDGEWARD_MACHINE_H
#define EDGEWARD_MACHINE_H

#include <stdint.h>

#define MACHINE_SWITCHES	3u

/* Opens the switches; -1 for one that this kernel does not have. Who cannot open them later keeps them. */
void machine_open(int fds[MACHINE_SWITCHES]);
void machine_close(int fds[MACHINE_SWITCHES]);

/* files: NULL behind the last one. A device counts when everybody may open it for both. */
uint32_t machine_bits(const int fds[MACHINE_SWITCHES], const char *const *files);

#endif
