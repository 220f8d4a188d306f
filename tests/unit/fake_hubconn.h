/*
 * A hubconn.h that reaches nobody: what is sent is kept as messages, and the test says what happens. Any number of
 * connections at a time.
 */
#ifndef EDGEWARD_FAKE_HUBCONN_H
#define EDGEWARD_FAKE_HUBCONN_H

#include "connectd/hubconn.h"

struct fake_msg {
	struct fake_msg *next;
	bool binary;
	size_t len;
	uint8_t data[];		/* NUL behind it */
};

struct hubconn {
	struct hubconn *next;
	struct hubconn_cb cb;
	void *ctx;
	struct loop *loop;
	struct loop_timer end_timer;
	struct hubconn_end end;
	char url[512], bearer[600], pins[300];
	bool offer_edgeward1, open, ended, closed, refused;
	uint16_t close_code;
	monotime_t last_rx, started;
	struct fake_msg *head, *tail;
	size_t queued, room;	/* bulk is refused when queued >= room; SIZE_MAX unless set */
	uint8_t *begun;
	size_t begun_size;
	bool begun_text;
	unsigned flushes;
};

extern struct hubconn *fake_conns;		/* all that live, newest first */
extern unsigned fake_started, fake_freed;
extern int fake_start_result;			/* what hubconn_start() returns; 0 */

/* The newest connection. */
struct hubconn *fake_conn(void);

void fake_open(struct hubconn *conn, bool edgeward1);
/* A message of the hub; marks a byte as received. */
void fake_text(struct hubconn *conn, const char *text);
void fake_binary(struct hubconn *conn, const void *data, size_t len);
/* Ends the attempt: ended() comes from the loop. */
void fake_end(struct hubconn *conn, enum hubconn_cause cause, int http_status, uint16_t close_code, const char *code);

/* Takes the oldest message; the caller frees it. NULL when there is none. */
struct fake_msg *fake_take(struct hubconn *conn);
/* Everything queued has left; calls writable() if bulk had been refused. */
void fake_drain(struct hubconn *conn);

#endif
