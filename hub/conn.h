/*
 * One TLS connection to the server. Ends are told once, by session_gone(); the storage goes in a later turn of the
 * loop, so a connection may be ended from anywhere, its own callbacks included.
 */
#ifndef EDGEWARD_HUB_CONN_H
#define EDGEWARD_HUB_CONN_H

#include <stddef.h>
#include <wslay/wslay.h>

#include "hub/hub.h"
#include "hub/tlsio.h"
#include "proto/hub/http.h"
#include "proto/hub/stream.h"

#define CONN_OUT_PAUSE	(1u << 20)	/* bytes queued: the peer is not read while there are more */
#define CONN_BULK	STREAM_PIECE	/* bytes queued: streams wait while there are more */
#define CONN_WRITE_TURN	(256u << 10)	/* bytes of streams sent in one turn of the loop */
#define CONN_OUT_MAX	(8u << 20)	/* ends the connection */
#define CONN_RBUF	16384u		/* one TLS record */
#define CONN_READ_TURN	(1u << 20)	/* bytes taken in one turn of the loop */

enum conn_state { CONN_TLS, CONN_HTTP, CONN_REFUSED, CONN_OPEN, CONN_CLOSING, CONN_DEAD };

struct conn {
	struct hub *hub;
	struct conn *prev, *next;
	struct loop_io io;
	struct loop_timer deadline;	/* of the stage; open: silence */
	struct loop_timer stall;	/* output does not move */
	struct loop_timer kick;		/* next turn: write, read on, or free when dead */
	enum conn_state state;
	SSL *ssl;
	struct tlsio tls;		/* below it */
	struct wslay_event_context *ws;
	struct ws_msg *ws_msg;		/* of ws.c */
	struct http_head *head;		/* until the upgrade */
	struct session *session;
	char peer[64];
	monotime_t last_rx;
	bool in_turn;			/* inside conn_ready(): output is written at its end */
	bool more;			/* bytes may wait inside OpenSSL or in rbuf */
	bool paused;			/* not read on because of the output */
	bool told;			/* the session knows of the end */
	bool drop_after_flush;		/* nothing more is to be said */
	bool write_wants_read;
	size_t turn_bytes;
	uint8_t *rbuf;
	size_t rpos, rlen;
	uint8_t *msg;			/* the message being received */
	size_t msg_len, msg_size;
	uint8_t *out;
	size_t out_pos, out_len, out_size;
	bool urgent;			/* news of a window waits: the device may be waiting for nothing else */
	size_t bulk, bulk_head;		/* begun: where its head is, and how long that was thought to be */
};

/* Accepts from a listener until it has no more. */
void conn_accept(struct hub *hub, int listener);

/* Whole messages; copied. On overflow the connection ends. */
void conn_send_text(struct conn *conn, const void *data, size_t len);
void conn_send_binary(struct conn *conn, const void *data, size_t len);
/* The same without a copy: room for at most len bytes, NULL while CONN_BULK waits; then the true length, 0 = none. */
uint8_t *conn_bulk_begin(struct conn *conn, size_t len);
void conn_bulk_commit(struct conn *conn, size_t len);
/* Has conn_flush() called in this turn or the next one. */
void conn_kick(struct conn *conn);
/* Sends what waits, now. Not from inside a stream's own calls: the connection may end, and all streams with it. */
void conn_push(struct conn *conn);
/* Raw bytes: the answer to the upgrade. */
void conn_send_raw(struct conn *conn, const void *data, size_t len);

/* Sends a close frame, waits 2 s for the peer's. The session is told now. */
void conn_close(struct conn *conn, uint16_t code, const char *reason);
/* Ends it without a word. */
void conn_kill(struct conn *conn);

/* Ends this connection's turn after the message in hand: it has cost enough. */
void conn_yield(struct conn *conn);
/* Sets when the connection ends unless it is set again. */
void conn_deadline(struct conn *conn, int64_t ms);

/* ---- between conn.c, connio.c and ws.c ---- */

/* Writes what is queued and sets what epoll watches. */
void conn_flush(struct conn *conn);

/* Bytes from the peer: > 0, 0 = nothing now, -errno (-EPIPE = end of file). */
ssize_t conn_read(struct conn *conn, void *buf, size_t len);
/* Makes the WebSocket side of the connection. */
int ws_open(struct conn *conn);
void ws_done(struct conn *conn);
/* Reads and delivers messages until there is nothing more or the turn is used up. */
void ws_receive(struct conn *conn);
/* Moves wslay's own frames (pong, close) to the output. */
void ws_pump(struct conn *conn);

/* Answers a complete request head: 101 and an open connection, or an error and the end (upgrade.c). */
void upgrade_handle(struct conn *conn);

#endif
