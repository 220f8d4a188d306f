/*
 * What an agent may say in text frames, decoded and bounded; and the frames the hub sends. Pure: no state, no I/O.
 * Strings are views into the JSON document, valid as long as it is.
 */
#ifndef EDGEWARD_HUB_FRAMES_H
#define EDGEWARD_HUB_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hub/runinfo.h"
#include "proto/hub/json.h"

#define FRAME_ID_MAX	128u
#define FRAME_NONE	UINT64_MAX	/* an offset that was not given */

enum frame_type {
	FRAME_UNKNOWN, FRAME_HELLO, FRAME_HEARTBEAT, FRAME_STARTED, FRAME_STATUS, FRAME_LOG_CHUNK, FRAME_LOG_OPEN, FRAME_BYE,
	FRAME_STREAM_OPEN, FRAME_STREAM_OPENED, FRAME_DEVICE_OPENED, FRAME_RESULT_CHUNK, FRAME_RESULT, FRAME_UPGRADING, FRAME_UPGRADE_RESULT, FRAME_FILE_DONE,
	FRAME_ATTACH_CLOSE,
	FRAME_ERROR, FRAME_INVENTORY, FRAME_HARNESS,
	FRAME_REPORT,	/* the answer to something a client asked, which is told it as it is; or to what we never ask, taken and ignored */
};

struct frame {
	enum frame_type type;
	unsigned v;
	const char *name;		/* of the type, as sent */
	const char *id;			/* NULL = none */
	const char *handle;		/* handle_ok(), or NULL */
	const struct json *payload;	/* an object, or NULL */
};

/*
 * The envelope. -EBADMSG ends the session: not an object, no or a wrong version, no type, a handle missing where the
 * type needs one.
 */
int frame_decode(const struct json *root, unsigned max_version, struct frame *ret_frame);

/* The payloads: -EBADMSG is answered by an error frame, the session goes on. */

struct frame_hello {
	int64_t protocol_version;
	const char *agent_id, *name, *agent_version;	/* never NULL */
	const struct json *capabilities;		/* object or NULL */
	const struct json *resume;			/* first offer or NULL */
};
int frame_hello(const struct json *payload, struct frame_hello *ret_hello);

/* An offer out of hello.resume. -EBADMSG for one that makes no sense; the next is offer->next. */
struct frame_offer {
	const char *handle;
	uint64_t log_offset;
	uint32_t log_channel;		/* edgeward.1, 0 = none */
};
int frame_offer(const struct json *json, struct frame_offer *ret_offer);

struct frame_heartbeat {
	uint64_t seq;
	const struct json *active;	/* first handle (a string) or NULL */
};
int frame_heartbeat(const struct json *payload, struct frame_heartbeat *ret_heartbeat);

struct frame_started {
	int32_t pid;
	int64_t started_at;
	uint32_t log_channel;		/* 0 = none */
	const char *error, *code;	/* error NULL = it runs */
};
int frame_started(const struct json *payload, struct frame_started *ret_started);

struct frame_chunk {
	uint64_t offset;
	const char *text;
	size_t len;
};
int frame_chunk(const struct json *payload, struct frame_chunk *ret_chunk);

struct frame_status {
	enum run_state state;		/* as the device says: PENDING .. FAILED */
	int32_t exit_code, pid;
	int32_t term_signal;		/* named by the device, or found in error; 0 = none */
	int64_t started_at, finished_at;
	uint64_t final_offset;		/* FRAME_NONE = not given */
	bool has_digest;
	uint8_t digest[16];
	const char *error, *outcome, *limit;	/* never NULL */
};
int frame_status(const struct json *payload, struct frame_status *ret_status);

/* The handle is in the payload, the envelope, or both alike. */
int frame_log_open(const struct frame *f, const char **ret_handle, uint32_t *ret_channel);

/* ---- frames of the hub: each is a whole message in w, check with json_w_done() ---- */

/* Opens {"v":..,"type":..,"id":..,"handle":..,"payload":{ ; id and handle may be NULL. Close with frame_end(). */
void frame_begin(struct json_w *w, unsigned v, const char *type, const char *id, const char *handle);
void frame_end(struct json_w *w);

#endif
