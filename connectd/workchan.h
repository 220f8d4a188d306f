/*
 * connectd's end of the work channel. Keeps the mirror up to date whether or not a session is up; what a session wants
 * to know as well goes to its listener.
 */
#ifndef EDGEWARD_CONNECTD_WORKCHAN_H
#define EDGEWARD_CONNECTD_WORKCHAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ipc.h"
#include "common/loop.h"
#include "common/monotime.h"
#include "proto/ipc/attach.h"
#include "proto/ipc/file.h"
#include "proto/ipc/harness.h"
#include "proto/ipc/l2.h"
#include "connectd/mirror.h"

/* How long connectd speaks for a workerd that is away: then the session ends, so that no run is declared dead. */
#define WORKCHAN_AWAY_MS	30000

/* Every member may be NULL. Nothing here may free the channel; the listener may change itself. */
struct workchan_listener {
	void (*workload)(struct mirror_entry *e, bool is_new, void *ctx);
	void (*gone)(struct mirror_entry *e, void *ctx);	/* it is forgotten when this returns */
	void (*synced)(void *ctx);	/* the mirror is as workerd has it: after the first snapshot or a SYNC */
	void (*down)(void *ctx);
	void (*answer)(uint16_t type, uint32_t id, const struct work_answer *a, void *ctx);
	void (*report)(uint32_t id, const struct work_report *rep, void *ctx);	/* of a revocation or a refresh */
	void (*harness)(uint32_t id, const struct harness_done *done, void *ctx);
	void (*inventory)(uint32_t id, void *ctx);	/* workerd has looked again; the mirror has it */
	uint8_t *(*rx_buffer)(void *ctx);	/* where the next record may land; NULL = nowhere special */
	void (*rx_unused)(void *ctx);
	/* rec is struct work_output and len bytes behind it, in rx_buffer's place if that gave one. -errno ends the channel. */
	int (*output)(struct mirror_entry *e, uint8_t *rec, size_t len, void *ctx);
	int (*gap)(struct mirror_entry *e, const struct work_gap *gap, void *ctx);
	int (*output_end)(struct mirror_entry *e, const struct work_output_end *end, void *ctx);
	/* Takes *fd (sets it to -1) or leaves it to be closed. */
	void (*device_answer)(uint32_t id, const struct device_answer *a, int *fd, void *ctx);
	void (*device)(const struct device_info *info, void *ctx);
	void (*file_answer)(uint32_t id, const struct file_answer *a, int *fd, void *ctx);	/* the same with *fd */
	void (*l2_answer)(uint32_t id, const struct l2_answer *a, int *fd, void *ctx);	/* the same with *fd */
	void (*attach_answer)(uint32_t id, const struct attach_answer *a, int *fd, void *ctx);
	void (*attach_end)(const struct attach_end *e, void *ctx);
};

struct workchan {
	struct ipc_chan chan;
	struct loop *loop;
	struct mirror *mirror;
	bool up;		/* HELLO has been exchanged */
	bool synced;		/* its snapshot is complete */
	uint64_t pair;		/* id of the pair in hand, 0 = none */
	monotime_t away_since;	/* NEVER while synced */
	const struct workchan_listener *listener;
	void *listener_ctx;
	bool fault;		/* the last end of the channel was one */
	struct loop_timer broken;	/* a send failed: the channel is ended from the loop */
	void (*changed)(void *ctx);	/* up, synced or down; after the listener */
	void *changed_ctx;
};

extern const struct ipc_rule workchan_rules[];
extern const size_t workchan_nrules;

void workchan_init(struct workchan *wc, struct loop *loop, struct mirror *mirror, void (*changed)(void *ctx), void *ctx);
void workchan_done(struct workchan *wc);

/* Takes the end of a fresh pair over; the old channel, if any, ends. -errno: the descriptor is closed then. */
int workchan_take(struct workchan *wc, int fd, uint64_t pair);

void workchan_listen(struct workchan *wc, const struct workchan_listener *listener, void *ctx);

/* All of these: 0, or -EPIPE when the channel is away (nothing is kept), or -errno of the send. */
int workchan_start(struct workchan *wc, const void *spec, size_t len, int branch, uint32_t *ret_id);
int workchan_signal(struct workchan *wc, const struct work_signal *sig, uint32_t *ret_id);
int workchan_revoke(struct workchan *wc, const struct work_revoke *req, uint32_t *ret_id);
int workchan_refresh(struct workchan *wc, const void *items, size_t len, uint32_t *ret_id);
int workchan_harness(struct workchan *wc, const struct harness_ask *ask, uint32_t *ret_id);
int workchan_sync(struct workchan *wc);
int workchan_inventory(struct workchan *wc, uint32_t *ret_id);
int workchan_sub(struct workchan *wc, const struct mirror_entry *e, uint64_t from, uint64_t limit);
int workchan_credit(struct workchan *wc, const struct mirror_entry *e, uint64_t limit);
int workchan_ack(struct workchan *wc, const struct mirror_entry *e, uint64_t offset);
int workchan_delivered(struct workchan *wc, const struct mirror_entry *e);
int workchan_disown(struct workchan *wc, const struct mirror_entry *e);
int workchan_device(struct workchan *wc, const struct device_open *open, uint32_t *ret_id);
int workchan_file(struct workchan *wc, const struct file_request *req, uint32_t *ret_id);
int workchan_l2(struct workchan *wc, const struct l2_open *open, uint32_t *ret_id);
int workchan_l2_close(struct workchan *wc, const struct l2_ref *ref);
int workchan_attach(struct workchan *wc, const struct attach_open *open, int command, uint32_t *ret_id);	/* command: -1 = none */
int workchan_attach_size(struct workchan *wc, const struct attach_size *size);
int workchan_attach_close(struct workchan *wc, const struct attach_ref *ref);
int workchan_device_close(struct workchan *wc, const struct device_ref *ref);
int workchan_session(struct workchan *wc, bool up, enum work_dialect dialect);

void workchan_pause(struct workchan *wc, bool paused);

/* True if nobody will read what is sent: also when the other end is closed and the loop has not come to see it yet. */
bool workchan_is_gone(const struct workchan *wc);

/* Since when the mirror has been without a workerd behind it, in ms; 0 = it is there; -1 = it never was. */
int64_t workchan_away_ms(const struct workchan *wc);

#endif
