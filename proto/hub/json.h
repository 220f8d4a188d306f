/*
 * JSON for the hub protocols: a bounded tree for reading, a bounded buffer for writing. yajl does the lexing.
 *
 * A document is parsed into an arena of fixed limits (depth, nodes, bytes), so what a peer sends can cost no more than
 * a known multiple of its length. Duplicate keys: the first counts. A string with an embedded NUL is of a type that no
 * look-up takes, so that it spoils its frame and not the session; a key with one is refused.
 */
#ifndef EDGEWARD_PROTO_HUB_JSON_H
#define EDGEWARD_PROTO_HUB_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_DEPTH_MAX	32u
#define JSON_NODES_MAX	65536u

enum json_type { JSON_NULL, JSON_BOOL, JSON_INT, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT };	/* REAL: any number that is no int64_t, any string with a NUL; its value is not kept */

struct json {
	enum json_type type;
	const char *key;		/* of a member; NULL in arrays and at the top */
	struct json *next, *child;	/* siblings; first element */
	const char *str;		/* STRING: valid UTF-8, NUL-terminated, no NUL inside */
	size_t len;
	int64_t i;			/* INT, and BOOL as 0 or 1 */
};

struct json_doc;

/* Parses one whole document. -EBADMSG (not JSON, or over a limit), -ENOMEM. Free with json_doc_free(). */
int json_parse(const void *data, size_t len, struct json_doc **ret_doc);
/*
 * The same, but string values (not keys) may hold NULs, as log text does: those have all their bytes in str and len, and
 * json_get_str() and json_copy_str() do not find them.
 */
int json_parse_nul(const void *data, size_t len, struct json_doc **ret_doc);
void json_doc_free(struct json_doc *doc);
const struct json *json_root(const struct json_doc *doc);
/* What it costs to keep. */
size_t json_doc_size(const struct json_doc *doc);

/* Look-ups take NULL and anything that is not an object: they find nothing then. */
const struct json *json_get(const struct json *obj, const char *key);

/* *ret_v is set only when the member is there, has the type and is in range. True if so. */
bool json_get_int(const struct json *obj, const char *key, int64_t min, int64_t max, int64_t *ret_v);
bool json_get_bool(const struct json *obj, const char *key, bool *ret_v);
/* The member's text or NULL. */
const char *json_get_str(const struct json *obj, const char *key);
/* Copies; false when absent, not a string or longer than size - 1 (buf is then ""). */
bool json_copy_str(const struct json *obj, const char *key, char *buf, size_t size);
/* The same for members that may be absent or null, which are 0 and "". False: it is there and is something else, out of range or too long. */
bool json_opt_int(const struct json *obj, const char *key, int64_t min, int64_t max, int64_t *ret_v);
bool json_opt_str(const struct json *obj, const char *key, char *buf, size_t size);

/* ---- writing ---- */

/* Appends to a caller's buffer; the error is sticky: look once at json_w_done(). */
struct json_w {
	char *buf;
	size_t size, len;
	int err;			/* 0 or -ENOSPC */
	bool comma;			/* the next value needs one before it */
};

void json_w_init(struct json_w *w, void *buf, size_t size);
void json_w_obj(struct json_w *w, const char *key);	/* key NULL: in an array or at the top */
void json_w_end_obj(struct json_w *w);
void json_w_arr(struct json_w *w, const char *key);
void json_w_end_arr(struct json_w *w);
void json_w_str(struct json_w *w, const char *key, const char *v);
void json_w_strn(struct json_w *w, const char *key, const void *v, size_t len);	/* invalid UTF-8: '?' byte for byte */
void json_w_int(struct json_w *w, const char *key, int64_t v);
void json_w_bool(struct json_w *w, const char *key, bool v);
void json_w_null(struct json_w *w, const char *key);
/* A document that is already JSON, verbatim. */
void json_w_raw(struct json_w *w, const char *key, const char *json, size_t len);

int json_w_done(const struct json_w *w, size_t *ret_len);

/*
 * Escapes len bytes of valid UTF-8 into dst (json_escaped_len() bytes, at most 6 * len): the body of a JSON string, without
 * quotes. Returns the bytes written. For log_chunk, where the frame is built by hand.
 */
size_t json_escape(char *dst, const void *src, size_t len);
size_t json_escaped_len(const void *src, size_t len);

#endif
