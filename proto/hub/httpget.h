/* What the answer to a GET for a file, or for the rest of one, means. Pure. The head itself is read by http.h. */
#ifndef EDGEWARD_PROTO_HUB_HTTPGET_H
#define EDGEWARD_PROTO_HUB_HTTPGET_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/hub/http.h"

#define HTTPGET_ETAG_SIZE	128

enum httpget_what {
	HTTPGET_BODY,			/* bytes [from, total) follow */
	HTTPGET_AGAIN,			/* it may be there later */
	HTTPGET_FINAL,			/* asking again is of no use */
};

struct httpget {
	enum httpget_what what;
	uint64_t from, total;
	char etag[HTTPGET_ETAG_SIZE];	/* a strong one, "" = none: for If-Range */
	const char *code, *detail;	/* AGAIN and FINAL: stable code, a sentence without the status */
	int64_t retry_after_ms;		/* -1 = not said */
};

/* "bytes FROM-LAST/TOTAL", nothing else. -EBADMSG. */
int httpget_content_range(const char *value, uint64_t *ret_from, uint64_t *ret_last, uint64_t *ret_total);

/* from: what was asked for by Range, 0 = everything. max: the most a file may have. */
void httpget_judge(const struct http_head *head, uint64_t from, uint64_t max, struct httpget *ret);

#endif
