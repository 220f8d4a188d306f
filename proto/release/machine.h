/* Can this machine execute a program? The same ELF class, byte order, machine and interpreter as one that it does execute. */
#ifndef EDGEWARD_PROTO_MACHINE_H
#define EDGEWARD_PROTO_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#define MACHINE_HEAD	8192u	/* bytes from the beginning of a file that are looked at; the interpreter's name must be in them */
#define MACHINE_INTERP_SIZE	64

struct machine {
	uint8_t class, data;	/* EI_CLASS, EI_DATA */
	uint16_t machine;
	char interp[MACHINE_INTERP_SIZE];	/* "" = none */
};

/* An executable (ET_EXEC or ET_DYN) of 64 bits in this machine's byte order. -EBADMSG for anything else. */
int machine_of(const void *data, size_t len, struct machine *ret_kind);

/* x86_64, aarch64, or "unknown". */
const char *machine_arch(const struct machine *kind);

#endif
