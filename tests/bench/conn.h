/* The sink's end of one TLS WebSocket: blocking, one connection at a time, cheap on purpose. */
#ifndef EDGEWARD_BENCH_CONN_H
#define EDGEWARD_BENCH_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum conn_path {
	CONN_PEER,		/* one of the small agents of peers/ */
	CONN_CLOOP,
	CONN_EDGEWARD1,
};

struct conn_frame {
	int opcode;
	const uint8_t *data;	/* valid until the next call; binary: only the first 16 bytes are unmasked */
	size_t len;
};

void conn_setup(const char *cert, const char *key);

/* Listens on ADDRESS:PORT (0 = any); returns the port. Closed and opened again by conn_listen(). */
int conn_listen(const char *address, int port);
void conn_deaf(void);

/*
 * Takes the next connection as far as the WebSocket upgrade. allow_edgeward1 false: answers as a plain cloop hub.
 * *ret_enroll: it came with an enrollment token. False when it did not get so far.
 */
bool conn_accept(bool allow_edgeward1, enum conn_path *ret_path, bool *ret_enroll);

enum conn_reject { REJECT_RESET, REJECT_TLS, REJECT_HTTP, REJECT_KINDS };

/* Takes the next connection and refuses it in one of the ways a hub can fail. */
void conn_reject(enum conn_reject how);

void conn_close(void);
bool conn_is_open(void);
int conn_fd(void);
int conn_listener(void);

/* True if a whole frame may be in memory already, so that waiting for the descriptor would be wrong. */
bool conn_has_data(void);

/* The next data frame; answers pings. False at the end of the connection. Blocks. */
bool conn_read(struct conn_frame *ret_frame);

/* Sends one frame; false when the connection is gone. */
bool conn_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool conn_binary(const void *data, size_t len);

#endif
