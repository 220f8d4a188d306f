/*
 * The bytes of one connection: a socket, with or without TLS over it. Non-blocking; the owner watches the descriptor
 * edge-triggered and therefore reads until -EAGAIN (epoll cannot see what OpenSSL has already taken in).
 *
 * With TLS, records are gathered in a buffer and leave in one send(): 64 KiB of bulk cost one system call.
 */
#ifndef EDGEWARD_CONNECTD_TRANSPORT_H
#define EDGEWARD_CONNECTD_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct outq;
struct ssl_st;

struct transport {
	int fd;				/* owned; -1 = none */
	struct ssl_st *ssl;		/* NULL = plain */
	uint8_t *wire;			/* TLS: records the kernel has not taken yet; allocated with the TLS state */
	size_t wire_off, wire_len;
	bool eof;			/* the peer has closed its direction */
	bool edges;			/* set by the owner: it clears drained with every event, and this with the last ones (a closed direction) */
	bool drained;			/* the last read got less than it asked for: nothing more is there before the next event */
	int err, send_err;		/* -errno of the socket, sticky; what has come can be read although sending fails */
	uint64_t rx, tx;		/* bytes of the socket */
};

/* Takes over a connected descriptor. */
void transport_init(struct transport *t, int fd);

/* Closes and frees everything; with TLS, close_notify is tried once. t can be initialised again. */
void transport_done(struct transport *t);

/* Bytes read, 0 = end of the peer's direction, -EAGAIN, -errno; -EPROTO = the peer broke TLS. */
ssize_t transport_read(struct transport *t, void *buf, size_t len);

/* Sends as much of q as the kernel takes and drops it from q. 0 = all is gone, -EAGAIN, -errno. */
int transport_push(struct transport *t, struct outq *q);

/* Bytes encrypted but not taken by the kernel. */
size_t transport_pending(const struct transport *t);

/* Bytes the peer's kernel has acknowledged so far, for the write deadline. 0 when the kernel does not say. */
uint64_t transport_acked(const struct transport *t);

/* For tls.c: the socket side below OpenSSL. */
ssize_t transport_recv(struct transport *t, void *buf, size_t len);
size_t transport_gather(struct transport *t, const void *data, size_t len);
int transport_flush(struct transport *t);

#endif
