/*
 * Attach sessions of a session: stream_open of kind attach on edgeward.1, attach_open and its frames on plain cloop. Both ask workerd for
 * a socket that carries the bytes, answer, and carry them; what differs is how bytes look on the link.
 */
#ifndef EDGEWARD_CONNECTD_ATTACH_H
#define EDGEWARD_CONNECTD_ATTACH_H

#include "connectd/session.h"
#include "proto/ipc/attach.h"

#define ATTACHES_MAX	72u	/* more than workerd holds sessions, so that it is workerd who says so */

/* The row of streams.c. */
void attach_stream(struct session *s, const struct cloop_frame *f, uint32_t channel);
/* Frames. */
void attach_open_frame(struct session *s, const struct cloop_frame *f);
void attach_data_frame(struct session *s, const struct cloop_frame *f);
void attach_resize_frame(struct session *s, const struct cloop_frame *f);
void attach_close_frame(struct session *s, const struct cloop_frame *f);

/* workerd's word. *fd is taken, or left to be closed. */
void attach_answer_in(struct session *s, uint32_t ipc_id, const struct attach_answer *a, int *fd);
void attach_end_in(struct session *s, const struct attach_end *e);
void attach_work_down(struct session *s);

/* The link has room for attach_data. */
void attach_writable(struct session *s);
/* The session has ended: on edgeward.1 sessions wait for it to come back, on cloop they end. */
void attach_done(struct session *s);

/* ---- between attach.c and attachcloop.c ---- */

struct attach {
	struct attach *next;
	struct session *s;
	bool stream;
	struct mux_chan chan;		/* stream */
	char id[CLOOP_ID_SIZE];		/* of the frame that asked */
	char session[ATTACH_ID_SIZE], handle[72];
	uint32_t ipc_id, viewer;
	struct loop_io io;		/* workerd's socket; fd -1 = none */
	uint32_t want;			/* EPOLLIN, EPOLLOUT: what it is watched for, once: a hang-up is reported for ever */
	bool opened;			/* the hub has its answer */
	bool drained;			/* the socket has nothing that was not read, and is watched for more */
	bool eof;			/* workerd's end of the socket is closed and everything was read */
	bool told;			/* workerd has said how it ended */
	bool said;			/* the hub was told */
	bool input_over;		/* the hub sends no more */
	struct attach_end end;
	struct loop_timer timer;	/* finish it, from the loop */
	/* cloop */
	uint8_t *in;			/* what workerd's socket did not take */
	size_t in_len;
};

/* The bytes of a plain session: as many attach_data frames as there is room for. */
void attachcloop_pump(struct attach *a);
/* What the hub sent to the socket: all of it, or the rest is kept. False: too much is waiting. */
bool attachcloop_input(struct attach *a, const uint8_t *data, size_t len);
/* workerd's socket takes more. */
void attachcloop_flush(struct attach *a);

/* Of plain cloop, where there is no channel that counts: opened, over, bytes. NULL: of a stream, or nobody wants to know. */
struct mux_count *attach_count(const struct attach *a);

/* Watches for this as well. */
void attach_watch(struct attach *a, uint32_t more);
/* Its end has come: soon it is told and gone. */
void attach_finish(struct attach *a);

#endif
