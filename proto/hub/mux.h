/*
 * The streams of edgeward.1 in one session (edgeward.md section 3), for both ends: connectd and edgehub put their connection
 * under it and their kinds of stream on top. Log channels are not streams and stay outside.
 *
 * A table of channels, each with a window in both directions. What comes is checked here (overlap trimmed; a jump, a gap or
 * something beyond the window ends the channel by RESET, never the session) and given to the owner of the channel; what the
 * owner does not take at once is kept, at most as much as the window promised, and the window moves only as the owner
 * takes. What goes is pulled from the owner when both the peer's window and the connection have room, so nothing is
 * buffered on that side. Who goes first is the class: within one, each channel in turn, at most STREAM_PIECE at a time.
 *
 * Pure: no clock, no descriptor, no logging. Storage of a channel belongs to its owner and stays in place while it is open.
 */
#ifndef EDGEWARD_PROTO_HUB_MUX_H
#define EDGEWARD_PROTO_HUB_MUX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/hub/stream.h"

#define MUX_CHANNELS_MAX	256u		/* open at a time */
#define MUX_USED_MAX		4096u		/* ids of the peer that are remembered; then they must go up */
#define MUX_WINDOW_MAX		(1u << 20)	/* what an owner may promise */
#define MUX_WINDOW_NEWS	(256u << 10)	/* a window is told anew when this much was taken, or its half */
#define MUX_WINDOW_BULK	(1u << 20)	/* a device's or a segment's: with less, both ends waited for each other by turns */

/* In the order they are served; the session's logs go between MUX_L2 and MUX_FILE: see mux_pump(). */
enum mux_class { MUX_ATTACH, MUX_HTTP, MUX_USB, MUX_L2, MUX_FILE, MUX_CLASSES };

struct mux;
struct mux_chan;

/* What a kind of stream does. Each but fill() may end or reset its own channel, and free it then. NULL: this kind has none. */
struct mux_kind {
	enum mux_class class;
	/*
	 * Bytes have come, in order. Returns how many were taken, 0 to len; the rest is kept, and offered again by
	 * mux_resume(). -errno resets the channel (code internal) and closes it.
	 */
	ssize_t (*take)(struct mux_chan *c, const uint8_t *data, size_t len);
	/*
	 * Zeroes up to this offset, that were not sent (GAP, reason STREAM_GAP_HOLE). Returns 1 = taken; 0: offered again by mux_resume();
	 * -errno as above. NULL: a hole resets the channel, as every other gap does.
	 */
	int (*hole)(struct mux_chan *c, uint64_t to);
	/* The peer has ended its direction, and everything was taken. digest: 16 bytes, or NULL. */
	void (*ended)(struct mux_chan *c, const uint8_t *digest);
	/*
	 * Fills in at most max bytes to send. 0 = none now, call mux_want() when there are. -errno as above. The only call
	 * it may make here is mux_end(), when these are the last, or mux_hole(), when these come before one (0 is then no "none now").
	 */
	ssize_t (*fill)(struct mux_chan *c, uint8_t *buf, size_t max);
	/*
	 * The channel is out of the table, by the peer's RESET, its breach of the rules, or both ends; not by the owner's own
	 * mux_reset() or mux_drop(). code 0: both directions ended. The last call; the storage may go. reason is printable.
	 */
	void (*closed)(struct mux_chan *c, unsigned code, const char *reason);
};

struct mux_chan {
	struct mux *mux;		/* NULL = not open */
	struct mux_chan *next;
	uint32_t id;
	const struct mux_kind *kind;
	void *ctx;			/* the owner's */
	/* receiving */
	uint64_t rx_next;		/* next byte to come */
	uint64_t rx_limit;		/* what the peer was promised */
	uint32_t window;
	uint64_t rx_hole;		/* where the hole behind what is kept ends; 0 = none */
	uint8_t *kept;			/* [kept_off, kept_len): came and was not taken; at most window */
	size_t kept_off, kept_len, kept_size;
	bool rx_end, rx_told, rx_digest;
	uint8_t digest[16];
	/* sending */
	uint64_t tx_next, tx_limit;
	uint64_t tx_hole;		/* to be sent behind what is filled in; 0 = none */
	bool want, filling, tx_end, tx_has_digest;
	uint8_t tx_digest[16];
};

struct mux_ops {
	/* A frame other than DATA; goes before bulk that is not on its way yet. */
	void (*small)(const uint8_t *frame, size_t len, void *ctx);
	/* Room for one message, or NULL: then mux_pump() is called when there is some. Then its true length, 0 = none. */
	uint8_t *(*begin)(size_t len, void *ctx);
	void (*commit)(size_t len, void *ctx);
	/* Wants mux_pump() to be called soon, from the loop. */
	void (*kick)(void *ctx);
};

/* Over all sessions of a process, by class. */
struct mux_count {
	uint64_t open;			/* now */
	uint64_t opened, cut;		/* cut: did not end by both ends */
	uint64_t rx_bytes, tx_bytes;
};

struct mux {
	const struct mux_ops *ops;
	void *ctx;
	struct mux_count *counts;	/* of MUX_CLASSES, the owner's, which outlives this; NULL: nobody wants to know */
	struct mux_chan *channels;	/* the order of turns: the one served goes to the end */
	unsigned n;
	uint32_t *used;			/* ids the peer has used */
	unsigned nused;
	uint32_t used_max;
	uint32_t next_id;		/* of ours */
	uint32_t recent[8];		/* unknown channels that were answered lately: one RESET is enough */
	unsigned nrecent;
};

/* odd: our own ids are odd (the hub). */
void mux_init(struct mux *m, bool odd, const struct mux_ops *ops, void *ctx);

/* The session has ended: every channel is closed with STREAM_RESET_GONE, nothing is sent. */
void mux_done(struct mux *m, const char *reason);

/*
 * An id the peer wants to open: 0, and it counts as used from now on; -EINVAL (0, or of our own kind), -EEXIST (used before),
 * -ENOSPC (too many are open), -ENOMEM.
 */
int mux_claim(struct mux *m, int64_t id);
/* An id of our own. */
uint32_t mux_new_id(struct mux *m);

/*
 * Puts c into the table. rx_from: the first byte we want, the peer may send window bytes from there (at most
 * MUX_WINDOW_MAX); tx_from, tx_window: the same for us. 0 for a window: STREAM_WINDOW. -ENOSPC.
 */
int mux_open(struct mux *m, struct mux_chan *c, uint32_t id, const struct mux_kind *kind, void *ctx, uint64_t rx_from,
    uint32_t window, uint64_t tx_from, uint64_t tx_window);

/* The peer's answer named what it wants: before anything was sent. */
void mux_tx_start(struct mux_chan *c, uint64_t from, uint64_t window);

/* The same for what comes, where our own answer names the first byte: before the peer was told. What was kept is dropped. */
void mux_rx_start(struct mux_chan *c, uint64_t from);

/*
 * Promises more than the initial window, by WINDOW: for a stream of bulk, whose sender would else wait for news of every half of it. When the
 * peer knows of the channel and before anything came on it from the first byte; else nothing is done.
 */
void mux_widen(struct mux_chan *c, uint32_t window);

struct mux_chan *mux_find(struct mux *m, uint32_t id);

/* A frame of the peer for a channel that is no log. */
void mux_frame(struct mux *m, const struct stream_frame *f);

/* There are bytes to send. */
void mux_want(struct mux_chan *c);
/* The owner can take again what was kept. */
void mux_resume(struct mux_chan *c);
/* Everything of ours was handed over by fill(). digest: 16 bytes or NULL. */
void mux_end(struct mux_chan *c, const uint8_t *digest);
/* In fill(), behind the bytes it returns: zeroes up to this offset. The next bytes wait until the peer has taken them. */
void mux_hole(struct mux_chan *c, uint64_t to);
/* RESET, and out of the table, without closed(). A channel that is not open: nothing. */
void mux_reset(struct mux_chan *c, enum stream_reset code, const char *reason);
/* Out of the table without a word. */
void mux_drop(struct mux_chan *c);

/* Sends what wants to go of the classes first..last, until nothing does or there is no room. */
void mux_pump(struct mux *m, enum mux_class first, enum mux_class last);

/* True if something of these classes could be sent now. */
bool mux_waiting(const struct mux *m, enum mux_class first, enum mux_class last);

#endif
