/*
 * Below OpenSSL in a connection of the server: several records leave in one send(2), and what a short read has shown to
 * be empty is not read again in the same turn of the loop.
 */
#ifndef EDGEWARD_HUB_TLSIO_H
#define EDGEWARD_HUB_TLSIO_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tlsio {
	int fd;				/* the owner's */
	bool gather, eof;
	bool drained;			/* the owner clears it at the beginning of its turn */
	uint8_t *rest;			/* encrypted, and not taken by the kernel yet */
	size_t rest_off, rest_len, rest_size;
};

/* Puts t under ssl; it stays in place until SSL_free(). -ENOMEM. */
int tlsio_init(struct tlsio *t, SSL *ssl, int fd);
void tlsio_done(struct tlsio *t);

/*
 * Sends what is left of earlier calls, then encrypts data, TLSIO_PIECE bytes and at most a record more, and sends that. Returns how many bytes of data were
 * taken (0 only for len 0); -EAGAIN: nothing, wait for room, or where *ret_wants_read for something to read; -errno.
 */
#define TLSIO_PIECE	65536u
ssize_t tlsio_write(struct tlsio *t, SSL *ssl, const void *data, size_t len, bool *ret_wants_read);

#endif
