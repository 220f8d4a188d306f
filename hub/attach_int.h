/* Shared by attach.c and attachask.c alone: one session. */
#ifndef EDGEWARD_HUB_ATTACH_INT_H
#define EDGEWARD_HUB_ATTACH_INT_H

#include "hub/adminattach.h"
#include "hub/attach.h"
#include "hub/streams.h"

#define SESSIONS_MAX	128u

struct hub_attach {
	struct hub_stream st;		/* first */
	struct hub_attach *next;
	struct hub *hub;
	struct session *s;		/* NULL: the device is away */
	uint64_t client;
	struct ipc_hdr asked;		/* the client's request; id 0 = answered */
	char device[DEVICE_ID_SIZE], handle[72], session[ATTACH_ID_SIZE];
	uint32_t flags;
	bool opened, resuming, ready;	/* ready: the stream is */
	uint16_t rows, cols;
	struct attach_command command;
	uint8_t *bytes;			/* of the command, until it is open */
	struct loop_io io;		/* the CLI's socket; fd -1 = gone */
	uint32_t want;			/* as in connectd: it is watched once at a time */
	uint64_t out;			/* bytes of output the CLI has */
	uint64_t in_end;		/* bytes of input taken from it */
	uint8_t *in;			/* the last STREAM_WINDOW of them, byte x at x % STREAM_WINDOW */
	bool in_over;
	bool drained;			/* it has nothing that was not read, and is watched for more */
	bool told;			/* the device has said how it ended */
	bool left;			/* nobody is here any more: it is only closed */
	struct admin_attach_end end;
	monotime_t since;		/* away */
	struct loop_timer timer;
};

/* Not in the list yet: attach_begin(), or free(). NULL: there are too many. */
struct hub_attach *attach_new(struct hub *hub, const char *device, const char *handle, const char *session);
/* Asks the device; fd: of the CLI, -1 = nobody is here. -errno: nothing was asked. */
int attach_begin(struct hub_attach *a, struct session *s, int fd);
int attach_ask(struct hub_attach *a, struct session *s);
/* A frame about it, with its size or without. */
void attach_send(struct hub_attach *a, const char *type, bool size);
/* Its operator is gone. The session may be, too. */
void attach_leave(struct hub_attach *a, const char *why);

#endif
