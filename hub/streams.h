/*
 * Streams this hub opens on a device (edgeward.1): the session's mux over its connection, and the answers to what opened
 * them. A struct hub_stream belongs to its owner, stays in place, and its kind's closed() is its last call, also when the
 * device refuses (STREAM_RESET_REFUSED) or the session ends (STREAM_RESET_GONE).
 *
 * streams_begin() takes a channel; the owner adds the fields of its kind to the frame and sends it with session_send().
 * Nothing may be sent on the channel before opened().
 */
#ifndef EDGEWARD_HUB_STREAMS_H
#define EDGEWARD_HUB_STREAMS_H

#include "hub/session.h"

struct hub_stream {
	struct mux_chan chan;		/* first: the mux gives it back */
	/* The device has opened it; payload is its answer or NULL. Then mux_tx_start() where it says so, and mux_want(). */
	void (*opened)(struct hub_stream *st, const struct json *payload);
	char refused[200];		/* in closed() after a refusal: the device's sentence */
	/* Of an owner that ends by stream_end_soon(). */
	struct hub *hub;
	struct loop_timer end;
	char why[200];			/* "" = no end is due */
	void (*over)(struct hub_stream *st, const char *why);
};

void streams_init(struct session *s);
void streams_done(struct session *s);

/*
 * Opens a stream of this kind: puts st, whose opened is set, into the table and begins the frame of this type (stream_open,
 * device_open) with its channel and, unless kind is NULL, its kind. -ENOTSUP: the session is no edgeward.1; -EBUSY, -ENOSPC, -ENOMEM.
 */
int streams_begin(struct session *s, struct hub_stream *st, const struct mux_kind *mk, void *ctx, struct json_w *w,
    const char *type, const char *kind);

/*
 * While the mux is at work on a channel it cannot be taken away: stream_end_soon() leaves that to the loop, ms later. The first reason counts; the
 * channel is reset and over(), the last call, told. stream_end_off(): the owner is gone before.
 */
void stream_end_init(struct hub_stream *st, struct hub *hub, void (*over)(struct hub_stream *st, const char *why));
void stream_end_soon(struct hub_stream *st, const char *why, int64_t ms);
void stream_end_off(struct hub_stream *st);

/* The answers. */
void streams_opened(struct session *s, uint32_t channel, const struct json *payload);
void streams_refused(struct session *s, uint32_t channel, const char *code, const char *text);

#endif
