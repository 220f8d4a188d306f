/*
 * The output of workloads on its way from workerd to the hub, in one session.
 *
 * Output is pulled: workerd sends nothing beyond the credit it was given, and the credit follows the hub (its WINDOW on
 * edgeward.1; on cloop what it has acknowledged plus 1 MiB). On edgeward.1 a record is received straight into its place
 * in the link's buffer and the stream header is written over the record's own head: the bytes are never copied here. On
 * cloop they are made valid UTF-8 one for one, cut on character borders and escaped into the frame. When the link is
 * full, one record waits here and the work channel is not read until there is room.
 */
#ifndef EDGEWARD_CONNECTD_LOGSEND_H
#define EDGEWARD_CONNECTD_LOGSEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "connectd/hubconn.h"
#include "connectd/mirror.h"
#include "connectd/workchan.h"
#include "proto/hub/stream.h"

#define LOGSEND_CLOOP_WINDOW	(1u << 20)
#define LOGSEND_HIGH		(256u * 1024)	/* bytes queued on the link before it is flushed within a turn */

struct logsend_ops;

struct logsend {
	struct hubconn *conn;
	struct workchan *work;
	struct mirror *mirror;
	int64_t version;		/* negotiated, for the cloop frames */
	bool edgeward1;
	uint32_t next_channel;
	unsigned nopen;
	uint8_t *bulk;			/* begun in the link's buffer, not committed */
	/* The record that waits, at most one; none while wait_for is NULL. */
	struct mirror_entry *wait_for;
	uint8_t *wait_buf;		/* struct work_output and bytes, allocated on first use */
	size_t wait_len;		/* bytes behind the head */
	uint64_t wait_end;		/* offset behind the last of them */
	uint64_t ack_step;		/* an acknowledgement is passed on when it is so much news, */
	monotime_t acks_due;		/* or then; NEVER = none waits */
	bool paused;
	const struct logsend_ops *ops;
	void *ctx;
};

struct logsend_ops {
	/* Puts log_open on the wire: it must precede the first DATA of a channel. */
	void (*announce)(struct mirror_entry *e, void *ctx);
	/* The link did not take a small frame: the session cannot go on. */
	void (*failed)(int err, void *ctx);
	/* Wants logsend_due() to be called in ms or sooner. */
	void (*later)(int64_t ms, void *ctx);
};

void logsend_init(struct logsend *ls, struct hubconn *conn, struct workchan *work, struct mirror *mirror, bool edgeward1,
    uint64_t retain, const struct logsend_ops *ops, void *ctx);
void logsend_done(struct logsend *ls);

/* A channel of this session that no log and no stream has had; 0 = none is left. */
uint32_t logsend_new_channel(struct logsend *ls);

/* Gives the workload a channel of this session (edgeward.1; nothing on cloop), without telling the hub. */
void logsend_assign(struct logsend *ls, struct mirror_entry *e);

/* Subscribes from an offset. announce: the hub does not know the channel yet. */
void logsend_open(struct logsend *ls, struct mirror_entry *e, uint64_t from, bool announce);

/* The workload is forgotten, or its channel is to end: nothing of it waits any more. */
void logsend_close(struct logsend *ls, struct mirror_entry *e);

/* The hub wants no more of this output, ever: it is taken from workerd and thrown away. */
void logsend_discard(struct logsend *ls, struct mirror_entry *e);

/* workerd is back: subscriptions are made again, each from where it was. */
void logsend_resubscribe(struct logsend *ls);

/* From the hub. */
void logsend_window(struct logsend *ls, uint32_t channel, uint64_t offset);
void logsend_acked(struct logsend *ls, struct mirror_entry *e, uint64_t offset);
void logsend_reset(struct logsend *ls, uint32_t channel, enum stream_reset code);

/* Passes on credit and acknowledgements that waited, opens again the channels whose wait is over; ms until the next one, -1 = none. */
int64_t logsend_due(struct logsend *ls);

/* From the work channel; see struct workchan_listener. */
uint8_t *logsend_rx_buffer(struct logsend *ls);
void logsend_rx_unused(struct logsend *ls);
int logsend_output(struct logsend *ls, struct mirror_entry *e, uint8_t *rec, size_t len);
int logsend_gap(struct logsend *ls, struct mirror_entry *e, const struct work_gap *gap);
int logsend_output_end(struct logsend *ls, struct mirror_entry *e, const struct work_output_end *end);

/* The link has room again. */
void logsend_writable(struct logsend *ls);

/* True when every byte of an ended workload has been handed to the link. */
bool logsend_complete(const struct logsend *ls, const struct mirror_entry *e);

/* Sends END of an ended channel (nothing on cloop). */
void logsend_end(struct logsend *ls, struct mirror_entry *e);

#endif
