/*
 * The head of an HTTP/1.0 or 1.1 message, request or response: start line and headers, nothing of the body.
 *
 * Strict, because two readers who disagree about a head are a hole: only CRLF ends a line, no folded lines, no space
 * before a colon, no control characters, headers that may occur once do, Content-Length and Transfer-Encoding exclude
 * each other. Bounded: HTTP_HEAD_MAX bytes and HTTP_HEADERS_MAX lines, in storage that belongs to the caller.
 */
#ifndef EDGEWARD_PROTO_HUB_HTTP_H
#define EDGEWARD_PROTO_HUB_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEAD_MAX		16384u
#define HTTP_HEADERS_MAX	64u

enum http_kind { HTTP_REQUEST, HTTP_RESPONSE };

struct http_field {
	uint16_t name, value;		/* offsets into buf; both NUL-terminated, the value without outer blanks */
};

struct http_head {
	enum http_kind kind;
	bool done;
	int err;			/* sticky */
	size_t len, line;		/* bytes in buf; where the line in hand begins */
	unsigned nlines;
	/* Valid when done. */
	unsigned minor;			/* HTTP/1.minor: 0 or 1 */
	const char *method, *target;	/* of a request; visible ASCII without blanks */
	unsigned status;		/* of a response: 100..999 */
	const char *reason;		/* of a response, may be empty; printable, or bytes from 0x80 on */
	int64_t content_length;		/* -1 = none given */
	bool chunked;			/* Transfer-Encoding: chunked, the only one taken */
	unsigned nfields;
	struct http_field field[HTTP_HEADERS_MAX];
	char buf[HTTP_HEAD_MAX];
};

void http_init(struct http_head *head, enum http_kind kind);

/*
 * Takes bytes as they come. *ret_used says how many belong to the head; what follows is the caller's. 1 = complete,
 * 0 = more is needed, -EBADMSG = this is no HTTP head, -EMSGSIZE = over a limit. An error stays.
 */
int http_feed(struct http_head *head, const void *data, size_t len, size_t *ret_used);

/* Value of the first header of that name (any case), or NULL. */
const char *http_header(const struct http_head *head, const char *name);
/* The same for each one in turn: start with *pos = 0. */
const char *http_header_next(const struct http_head *head, const char *name, unsigned *pos);
/* How many there are. */
unsigned http_header_count(const struct http_head *head, const char *name);

/* True if token (any case) is an element of the comma-separated lists of that name, all lines taken together. */
bool http_has_token(const struct http_head *head, const char *name, const char *token);

#endif
