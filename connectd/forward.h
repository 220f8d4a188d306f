/*
 * What a hub forwards to this device (edgeward.md section 4): a stream of a session joined to a descriptor that workerd got from
 * privhelper. The life of one: device_open, which connectd checks and workerd answers, device_opened, bytes, an end with a reason, told
 * to the hub and to workerd. usbdev.c and l2dev.c are its kinds; what bytes mean is theirs.
 */
#ifndef EDGEWARD_CONNECTD_FORWARD_H
#define EDGEWARD_CONNECTD_FORWARD_H

#include "connectd/session.h"
#include "proto/ipc/device.h"

struct forward_kind {
	const char *name;		/* "kind" of device_open */
	const char *what, *many;	/* "device", "devices": in sentences */
	struct mux_kind mux;		/* class, take and fill of its own; forward_ended(), forward_closed() */
	size_t size;
	unsigned most;			/* at a time */
	enum policy_key policy;		/* the key that permits it */
	/* Reads its fields of device_open; NULL, or one sentence why not. The id is read. */
	const char *(*read)(struct forward *f, const struct json *payload);
	/* The channel is open: asks what there is to ask. */
	void (*begin)(struct forward *f);
	/* It ends: tells workerd, where that knows of it, and logs what there is to say. */
	void (*over)(struct forward *f, const char *why);
	/* workerd has gone: why it ends, NULL = it goes on. */
	const char *(*work_down)(struct forward *f);
	/* The reason when the timer a kind has set is due. */
	const char *late;
};

struct forward {
	struct forward *next;
	struct session *s;
	const struct forward_kind *kind;
	struct mux_chan chan;
	char frame_id[CLOOP_ID_SIZE], id[FORWARD_ID_SIZE];
	bool opened;			/* device_opened was sent */
	uint32_t ipc_id;		/* of what workerd was asked; 0 = nothing, or it has answered */
	struct loop_io io;		/* fd -1 = not there yet */
	struct loop_timer timer;	/* a kind's own; or: end it, from the loop */
	char why[200];			/* it is about to end */
};

/* Answers device_open. channel is claimed. */
void forward_open(struct session *s, const struct cloop_frame *f, uint32_t channel, const struct forward_kind *kind);

/* device_close: false = none of this id is here. */
bool forward_close(struct session *s, const char *id, const char *reason);

/* The one of this kind with this id, or that waits for this answer of workerd's; or NULL. */
struct forward *forward_find(const struct session *s, const struct forward_kind *kind, const char *id);
struct forward *forward_asked(const struct session *s, const struct forward_kind *kind, uint32_t ipc_id);

/* From here on the descriptor is f's: *fd becomes -1. False: f has ended. */
bool forward_take_fd(struct forward *f, int *fd, void (*cb)(struct loop_io *io, uint32_t events));

/* Begins device_opened; the kind adds its fields and sends it. A second one of the same device has no id. */
void forward_begin_opened(struct forward *f, struct json_w *w);

/* Ends it now; or, where the mux is at work on its channel, at the next turn of the loop. The first reason counts. */
void forward_end(struct forward *f, const char *why);
void forward_end_soon(struct forward *f, const char *why);

/* For the mux_kind of a kind. */
void forward_ended(struct mux_chan *c, const uint8_t *digest);
void forward_closed(struct mux_chan *c, unsigned code, const char *reason);

/* True while one of these is open or on its way. */
bool forward_any(const struct session *s, const struct forward_kind *kind);

void forward_work_down(struct session *s);

/* The session is over, its mux not yet. */
void forward_done(struct session *s);

#endif
