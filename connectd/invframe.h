/*
 * inventory_req of the hub: answered with what workerd finds now, once and with its own id.
 *
 * On edgeward.1 also without being asked, and without an id, when it is not what the hub was told last: an engine, a harness or a program
 * that came or went. workerd looks when a beat is sent anyway, no more often than every INVFRAME_BEATS beats; at once when a harness was
 * installed, the policy read again, and when workerd is back. Free room on the disk is no news. A plain cloop hub learns it as it always did, by asking.
 */
#ifndef EDGEWARD_CONNECTD_INVFRAME_H
#define EDGEWARD_CONNECTD_INVFRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "common/monotime.h"
#include "connectd/cloop.h"

#define INVFRAME_BEATS	20	/* five minutes, of ordinary beats */
#define INVFRAME_MAX	4u	/* requests under way; each costs workerd a look at sysfs */

struct session;

struct invframe {
	struct invframe_ask {
		uint32_t ipc_id;	/* 0 = free */
		char id[CLOOP_ID_SIZE];
	} asks[INVFRAME_MAX];
	uint32_t look;			/* ipc_id of ours, 0 = none is under way */
	monotime_t looked;
	uint8_t told[16];		/* digest of what the hub knows */
};

/* The hub is told in the hello. */
void invframe_begin(struct session *s);
/* A beat was sent. */
void invframe_beat(struct session *s);
/* Something may be another now. */
void invframe_look(struct session *s);
/* workerd has said anew what it finds: told if it is news. */
void invframe_compare(struct session *s);

void invframe_request(struct session *s, const struct cloop_frame *f);

/* workerd has answered, or went away: then what it said last is the answer. */
void invframe_answer(struct session *s, uint32_t ipc_id);
void invframe_work_down(struct session *s);

#endif
