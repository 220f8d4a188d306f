/*
 * Streams of an edgeward.1 session: stream_open from the frame to its answer, and the session's mux over the hub connection.
 *
 * A kind is a row in the table of streams.c: its handler checks the fields, puts its channel into s->mux with mux_open() and
 * answers by streams_begin_opened(), or answers with session_send_error(). Kinds that another frame opens (usb and l2:
 * device_open) call streams_claim() themselves. What has no row is answered with error `protocol`.
 */
#ifndef EDGEWARD_CONNECTD_STREAMS_H
#define EDGEWARD_CONNECTD_STREAMS_H

#include "connectd/session.h"

void streams_init(struct session *s);
/* Every open channel is closed. */
void streams_done(struct session *s);

/* The frame stream_open. */
void streams_open(struct session *s, const struct cloop_frame *f);

/* payload.channel as a channel the hub may open now; 0 when it is not, and then the error frame has been sent. */
uint32_t streams_claim(struct session *s, const struct cloop_frame *f);

/* Begins stream_opened {channel; add fields, then session_send(). */
void streams_begin_opened(struct session *s, struct json_w *w, const struct cloop_frame *f, uint32_t channel);

/* The link has room: streams before the logs, the logs, then files. */
void streams_writable(struct session *s);

#endif
