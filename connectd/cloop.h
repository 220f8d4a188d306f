/*
 * The JSON frames of cloop.md as bytes: envelope in and out, the parts of the payloads that take more than a line. Pure:
 * no connection, no state. Numbers and field names are from protocol reference cloop.md sections 3 and 9.
 */
#ifndef EDGEWARD_CONNECTD_CLOOP_H
#define EDGEWARD_CONNECTD_CLOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/hub/json.h"
#include "proto/ipc/work.h"

#define CLOOP_ID_SIZE	129	/* longest correlation id we echo, with its NUL */

struct cloop_frame {
	int64_t v;
	const char *type;	/* not blank */
	const char *id;		/* "" = none */
	const char *handle;	/* "" = none; not checked further */
	const struct json *payload;	/* NULL or an object */
};

/*
 * Parses the envelope; the strings live as long as *ret_doc. -EBADMSG with *ret_why when the session must end: no JSON,
 * a version outside 1..max, a blank type, a member of the wrong type, an id that is too long.
 */
int cloop_decode(const uint8_t *data, size_t len, int64_t max_version, struct json_doc **ret_doc,
    struct cloop_frame *ret_frame, const char **ret_why);

/* Opens envelope and payload; id and handle may be NULL. Close with cloop_end(). */
void cloop_begin(struct json_w *w, void *buf, size_t size, int64_t v, const char *type, const char *id,
    const char *handle);
int cloop_end(struct json_w *w, size_t *ret_len);

/*
 * The status object of a workload. final: the terminal state may be shown; else an ended workload is still "running"
 * (its last output and its status are on the way). version: the session's. extended: with the fields edgeward.1 adds.
 */
void cloop_put_status(struct json_w *w, const struct work_workload *wl, bool final, int64_t version, bool extended);

/* The measurement of a workload that is over its limit of disk (version 20), taken at when. */
#define CLOOP_V_DISK	20
void cloop_put_disk(struct json_w *w, const struct work_workload *wl, int64_t when);

/*
 * log_chunk, built in place: head into dst (at least CLOOP_HEAD_MAX bytes), then json_escape() of the text, then the
 * tail (CLOOP_TAIL_MAX bytes). Each returns what it wrote.
 */
#define CLOOP_HEAD_MAX	256u
#define CLOOP_TAIL_MAX	96u
size_t cloop_chunk_head(char *dst, int64_t v, const char *handle, uint64_t offset);
size_t cloop_chunk_tail(char *dst, int64_t wall_ns);

/* "interrupt", "terminate", "kill"; 0 for anything else. */
int cloop_signal_number(const char *name);

#endif
