/*
 * RFC 6455, client side, over bytes. wslay takes frames apart, checks them and answers pings and closes; data frames are
 * written here, straight into the output queue, masked in place (wslay's own sending copies 4 KiB at a time).
 *
 * Limits: message WS_MESSAGE_MAX, WS_FRAGMENTS_MAX fragments of one message, control frames as the RFC has it.
 */
#ifndef EDGEWARD_CONNECTD_WS_H
#define EDGEWARD_CONNECTD_WS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "connectd/outq.h"

#define WS_MESSAGE_MAX		(1u << 20)
#define WS_FRAGMENTS_MAX	16384u
#define WS_REASON_MAX		123u

enum ws_opcode { WS_TEXT = 1, WS_BINARY = 2 };

struct ws;

struct ws_cb {
	ssize_t (*read)(void *buf, size_t len, void *ctx);	/* as transport_read() */
	void (*text)(const uint8_t *data, size_t len, void *ctx);	/* valid UTF-8 */
	void (*binary)(const uint8_t *data, size_t len, void *ctx);
};

/* out belongs to the caller. -ENOMEM. */
int ws_new(const struct ws_cb *cb, void *ctx, struct outq *out, struct ws **ret_ws);
void ws_free(struct ws *ws);

enum ws_state {
	WS_READING,		/* inside ws_receive() only */
	WS_DRAINED,		/* read() has nothing more for now */
	WS_BUDGET,		/* budget bytes were read: call again later */
	WS_EOF,			/* read() said 0 */
	WS_ERROR,		/* read() failed: ws_errno() */
	WS_CLOSED,		/* a close frame came: ws_close_code(); the answer is in out */
	WS_BROKEN,		/* the peer broke the protocol or a limit; a close frame is in out, ws_close_code() is its code */
	WS_STOPPED,		/* ws_stop() was called */
};

/* Reads, delivers messages, puts answers into out. After CLOSED, BROKEN and STOPPED nothing more is read. */
enum ws_state ws_receive(struct ws *ws, size_t budget);

/* In a callback: no more messages. */
void ws_stop(struct ws *ws);

int ws_errno(const struct ws *ws);
uint16_t ws_close_code(const struct ws *ws);			/* 1005 = none given */
const char *ws_close_reason(const struct ws *ws);		/* as it came: valid UTF-8 */

/*
 * Room for the payload of one message of at most len bytes, in its place in out; ws_commit() with its true length writes
 * the header and masks it. 0 gives the room back. NULL: no memory.
 */
uint8_t *ws_begin(struct ws *ws, size_t len);
/* -EIO when there are no random numbers; then nothing was queued. */
int ws_commit(struct ws *ws, enum ws_opcode opcode, size_t len);

/* The same with a copy. -ENOMEM, -EIO. */
int ws_put(struct ws *ws, enum ws_opcode opcode, const void *data, size_t len);

/* Queues a close frame, once; reason is cut to WS_REASON_MAX bytes on a code-point border. */
int ws_close(struct ws *ws, uint16_t code, const char *reason);
bool ws_close_sent(const struct ws *ws);

#endif
