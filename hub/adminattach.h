/* The records of admin.h about attach sessions: one for each connection of the CLI. */
#ifndef EDGEWARD_HUB_ADMINATTACH_H
#define EDGEWARD_HUB_ADMINATTACH_H

#include "hub/admin.h"
#include "proto/ipc/attach.h"

enum admin_attach_type {
	ADMIN_REQ_ATTACH = 0x0670,	/* struct admin_attach + 1 fd, a stream socket with the bytes both ways; and unless WATCH
					 * 1 more, a sealed memfd with the command */
	ADMIN_ANS_ATTACH = 0x0671,	/* struct admin_attached; or struct admin_text */
	ADMIN_EV_ATTACH_SIZE = 0x0672,	/* from the CLI: struct admin_attach_size */
	ADMIN_EV_ATTACH_CLOSE = 0x0674,	/* from the CLI: empty; end it */
	ADMIN_EV_ATTACH_STATE = 0x0676,	/* struct admin_attach_state: the link to the device */
	ADMIN_EV_ATTACH_END = 0x0678,	/* struct admin_attach_end; the last byte is in the socket */
};

#define ADMIN_ATTACH_OWN	0x100u	/* beside ATTACH_TTY, ATTACH_INPUT, ATTACH_WATCH: the run is for this alone and ends with it */

struct admin_attach {
	char handle[72];		/* or a unique beginning */
	char session[ATTACH_ID_SIZE];	/* WATCH: which; "" = the one there is */
	uint32_t flags;
	uint16_t rows, cols;
};
static_assert(sizeof(struct admin_attach) == 208, "wire size");

struct admin_attached {
	char session[ATTACH_ID_SIZE];
	uint32_t flags;			/* ATTACH_TTY, ATTACH_INPUT: what it is */
};
static_assert(sizeof(struct admin_attached) == 132, "wire size");

struct admin_attach_size {
	uint16_t rows, cols;
};
static_assert(sizeof(struct admin_attach_size) == 4, "wire size");

struct admin_attach_state {
	uint32_t away;			/* 1: the device is; 0: it is back */
	uint32_t reserved;
	uint64_t lost;			/* bytes of output that did not fit where it waited */
};
static_assert(sizeof(struct admin_attach_state) == 16, "wire size");

struct admin_attach_end {
	int32_t exit_code;		/* -1 = not observed */
	uint32_t reserved;
	char reason[200];
};
static_assert(sizeof(struct admin_attach_end) == 208, "wire size");

bool admin_attach_ok(const struct admin_attach *req);

#endif
