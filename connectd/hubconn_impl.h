/* Inside of a hub connection, shared by hubconn.c (life), hubrun.c (upgrade and frames) and hubsend.c (sending). */
#ifndef EDGEWARD_CONNECTD_HUBCONN_IMPL_H
#define EDGEWARD_CONNECTD_HUBCONN_IMPL_H

#include "connectd/dial.h"
#include "connectd/hubconn.h"
#include "connectd/outq.h"
#include "connectd/transport.h"
#include "connectd/upgrade.h"
#include "connectd/ws.h"
#include "proto/hub/stream.h"

#define HUBCONN_QUEUE_MAX	(4u << 20)	/* queued bytes beyond which messages are refused */
#define HUBCONN_READ_PAUSE	(1u << 20)	/* queued bytes beyond which nothing is read: answers need room too */
#define HUBCONN_BULK		STREAM_PIECE	/* queued bytes beyond which bulk has to wait */
#define HUBCONN_BULK_SLOW	4096u		/* the same on a link that takes longer than HUBCONN_PROBE_MS for it */
#define HUBCONN_PROBE_MS	250
#define HUBCONN_PROGRESS_MIN	1024u		/* acknowledged bytes within the write deadline that count as progress */
#define HUBCONN_CLOSE_MS	2000
#define HUBCONN_TURN_READ	(256u << 10)	/* bytes read before others get their turn */

struct hubconn {
	struct loop *loop;
	struct netenv *env;
	struct hubconn_cb cb;
	void *ctx;
	struct dial_params params;
	char *bearer;
	bool offer;
	int64_t write_timeout_ms;
	monotime_t total;		/* end of the attempt, however much it progresses */

	enum hubconn_stage stage;
	unsigned depth;			/* callbacks of ours on the stack */
	bool doomed;			/* hubconn_free() came inside one */
	bool closing;			/* a close frame has gone out or come in: only the end is awaited */
	bool ended;			/* end is filled and on its way */
	struct hubconn_end end;		/* closing: what will be told */

	struct dial *dial;
	struct transport t;
	struct loop_io io;
	struct upgrade *upgrade;
	uint8_t *early;			/* bytes that came behind the upgrade's head */
	size_t early_off, early_len;
	struct ws *ws;
	struct outq out;
	char peer[DIAL_PEER_SIZE];
	monotime_t last_rx;
	bool answered;			/* the hub itself has said something */
	uint64_t rx, tx;		/* of a transport that is gone */

	struct loop_timer deadline;	/* upgrade; closing */
	struct loop_timer soon;		/* later in this turn: flush, ended() */
	struct loop_timer more;		/* next turn: goes on reading */
	struct loop_timer stall;	/* write deadline: looks for progress while something waits to leave */
	monotime_t progress_at;
	uint64_t acked;			/* at progress_at, once probed */
	bool probed, slow;
	bool refused;			/* bulk was refused: writable() is owed */
	bool read_paused;
	enum ws_opcode begun;		/* kind of message between begin and commit */
};

/* hubconn.c */
void hubconn_enter(struct hubconn *conn);
bool hubconn_leave(struct hubconn *conn);	/* false: conn is gone */
/* The first one counts. ended() follows from the loop. */
void hubconn_finish(struct hubconn *conn, const struct hubconn_end *end);
void hubconn_finish_errno(struct hubconn *conn, int err);
/* Remembers how it will end and waits at most HUBCONN_CLOSE_MS for the peer to close. */
void hubconn_linger(struct hubconn *conn, const struct hubconn_end *end);
void hubconn_set_stage(struct hubconn *conn, enum hubconn_stage stage);

/* hubrun.c */
void hubconn_dialled(const char *peer, void *ctx);
void hubconn_ready(struct loop_io *io, uint32_t events);
void hubconn_read_more(struct loop_timer *timer);

/* hubsend.c */
/* Sends what goes and keeps the write deadline. 0 or -errno: then what has come is read first, which ends conn. */
int hubconn_push(struct hubconn *conn);
void hubconn_tell_writable(struct hubconn *conn);	/* from the loop only */
void hubconn_stalled(struct loop_timer *timer);
void hubconn_schedule(struct hubconn *conn);

#endif
