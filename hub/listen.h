/* The two listeners of the server. */
#ifndef EDGEWARD_HUB_LISTEN_H
#define EDGEWARD_HUB_LISTEN_H

#include <stddef.h>
#include <stdint.h>

/* Non-blocking TCP listener; host is an address, "localhost" or "" = every address. Descriptor, or -errno with err. */
int listen_tcp(const char *host, uint16_t port, char *err, size_t size);
/* The port it really has: 0 was "any". */
unsigned listen_port(int fd);

/* SEQPACKET listener at path, mode 0600. Descriptor or -errno. */
int listen_admin(const char *path);

#endif
