/*
 * What connectd knows of workerd's workloads: the last record told of each, and how far the present session has come with
 * it. The first part survives a lost session and a restart of workerd, the second is wiped when a session begins.
 */
#ifndef EDGEWARD_CONNECTD_MIRROR_H
#define EDGEWARD_CONNECTD_MIRROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/monotime.h"
#include "connectd/inventory.h"
#include "proto/ipc/device.h"
#include "proto/ipc/work.h"

#define MIRROR_MAX	4096	/* slots and what the hub has not confirmed yet; bounds hello and heartbeat below 1 MiB */
#define MIRROR_HASH	512u	/* power of two */

/* The output of one workload in the present session; logsend.c is its owner. */
struct mirror_log {
	bool open;		/* subscribed */
	bool discard;		/* the hub does not want it: taken from workerd and dropped */
	bool ended;		/* OUTPUT_END is in hand */
	bool has_digest;
	uint32_t channel;	/* edgeward.1 only; 0 = none */
	uint64_t cursor;	/* offset of the next byte from workerd */
	uint64_t limit, told;	/* credit: what the hub allows, what workerd was told */
	uint64_t floor;		/* the cloop window begins here at least: start of the session, end of the last gap */
	uint64_t ack_told;	/* last acknowledgement passed on */
	uint8_t held[4];	/* cloop: the beginning of a character whose rest has not come yet */
	uint8_t nheld;
	uint8_t retries;	/* of a channel the hub reset */
	monotime_t retry_at;	/* when the channel is opened again; NEVER = it is not waiting */
	uint64_t total;		/* with ended */
	uint8_t xxh3[16];	/* with has_digest */
};

/* The terminal status in the present session; report.c is its owner. */
struct mirror_report {
	bool sent;
	uint64_t after_beat;	/* an ack of this heartbeat or a later one confirms it */
};

struct mirror_entry {
	struct mirror_entry *next, *prev;	/* in order of arrival */
	struct mirror_entry *wid_next, *handle_next, *channel_next;
	struct work_workload w;
	bool here;		/* told on the present channel: w.wid is valid */
	bool disowned;		/* the hub said so: no longer offered or listed */
	bool delivered;		/* the hub confirmed the terminal status; workerd shall forget it */
	bool offered;		/* in the hello of the present session */
	bool verdict_given, verdict_stop;	/* what its welcome said to the offer */
	uint64_t verdict_from;
	uint32_t epoch;		/* of the last subscription; grows over sessions */
	uint64_t acked;		/* highest acknowledgement of the hub, over sessions */
	struct mirror_log log;
	struct mirror_report report;
	struct result *result;	/* results.c; NULL = none was told */
};

struct mirror {
	struct mirror_entry *head, *tail;
	size_t n;
	struct mirror_entry *by_wid[MIRROR_HASH], *by_handle[MIRROR_HASH], *by_channel[MIRROR_HASH];
	struct work_caps caps;
	bool have_caps;
	struct inventory inventory;
	struct device_offer devices;	/* what could be lent; of the last workerd */
	bool known;		/* a snapshot has been complete once */
	bool refused_some;	/* full: some workload could not be entered */
};

void mirror_init(struct mirror *m);
void mirror_done(struct mirror *m);

/* Enters or updates by handle. *ret_new tells. NULL when the table is full or memory is out. */
struct mirror_entry *mirror_update(struct mirror *m, const struct work_workload *w, bool *ret_new);
void mirror_remove(struct mirror *m, struct mirror_entry *e);

struct mirror_entry *mirror_by_wid(const struct mirror *m, uint32_t wid);
struct mirror_entry *mirror_by_handle(const struct mirror *m, const char *handle);
struct mirror_entry *mirror_by_channel(const struct mirror *m, uint32_t channel);

/* Puts the entry under a channel id (0 = under none). */
void mirror_set_channel(struct mirror *m, struct mirror_entry *e, uint32_t channel);

/* A new work channel: ids of workloads mean nothing any more. */
void mirror_channel_begin(struct mirror *m);

/* A session begins: everything that belongs to one is wiped. */
void mirror_session_begin(struct mirror *m);

/* True if the hub shall see this workload in offers and heartbeats. */
bool mirror_listed(const struct mirror_entry *e);

#endif
