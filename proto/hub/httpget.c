#include "proto/hub/httpget.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define RETRY_AFTER_MAX_S	3600u

/* Digits at *p, which moves behind them. */
static bool
number(const char **p, uint64_t max, uint64_t *ret_v)
{
	uint64_t v = 0;
	const char *s = *p;

	for (; *s >= '0' && *s <= '9'; s++) {
		if (v > (max - (uint64_t)(*s - '0')) / 10)
			return false;
		v = v * 10 + (uint64_t)(*s - '0');
	}
	if (s == *p)
		return false;
	*p = s;
	*ret_v = v;
	return true;
}

int
httpget_content_range(const char *value, uint64_t *ret_from, uint64_t *ret_last, uint64_t *ret_total)
{
	uint64_t from, last, total;
	const char *p = value + 6;

	if (strncasecmp(value, "bytes ", 6) != 0 || !number(&p, INT64_MAX, &from) || *p++ != '-' || !number(&p, INT64_MAX, &last) ||
	    *p++ != '/' || !number(&p, INT64_MAX, &total) || *p != '\0' || from > last || last >= total)
		return -EBADMSG;
	*ret_from = from;
	*ret_last = last;
	*ret_total = total;
	return 0;
}

static void
say(struct httpget *g, enum httpget_what what, const char *code, const char *detail)
{
	g->what = what;
	g->code = code;
	g->detail = detail;
}

static void
judge_body(const struct http_head *head, uint64_t from, uint64_t max, struct httpget *g)
{
	const char *range = http_header(head, "Content-Range"), *etag = http_header(head, "ETag");
	const char *encoding = http_header(head, "Content-Encoding");
	uint64_t last = 0;

	if (head->chunked || head->content_length < 0)
		say(g, HTTPGET_FINAL, "mirror-bad", "the mirror does not say how long the file is");
	else if (encoding != NULL && strcasecmp(encoding, "identity") != 0)
		say(g, HTTPGET_FINAL, "mirror-bad", "the mirror encodes the file");
	else if (head->status == 200)
		g->total = (uint64_t)head->content_length;
	else if (range == NULL || httpget_content_range(range, &g->from, &last, &g->total) < 0 || g->from != from ||
	    last + 1 != g->total || g->total - g->from != (uint64_t)head->content_length)
		say(g, HTTPGET_AGAIN, "mirror-bad", "the mirror sent another range than was asked for");
	if (g->what == HTTPGET_BODY && (g->total == 0 || g->total > max))
		say(g, HTTPGET_FINAL, "bad-size", g->total == 0 ? "the file is empty" : "the file is larger than any release");
	if (etag != NULL && etag[0] == '"' && strlen(etag) < sizeof(g->etag))
		snprintf(g->etag, sizeof(g->etag), "%s", etag);
}

void
httpget_judge(const struct http_head *head, uint64_t from, uint64_t max, struct httpget *ret)
{
	const char *after = http_header(head, "Retry-After");
	uint64_t s;

	*ret = (struct httpget){ .what = HTTPGET_BODY, .retry_after_ms = -1 };
	if (after != NULL && number(&after, RETRY_AFTER_MAX_S, &s) && *after == '\0')
		ret->retry_after_ms = (int64_t)s * 1000;
	if (head->status == 200 || (head->status == 206 && from > 0))
		judge_body(head, from, max, ret);
	else if (head->status == 416)
		say(ret, HTTPGET_AGAIN, "mirror-changed", "the file has become shorter");
	else if (head->status >= 500 || head->status == 429 || head->status == 408)
		say(ret, HTTPGET_AGAIN, "mirror-busy", "the mirror is not available");
	else if (head->status >= 300 && head->status < 400)
		say(ret, HTTPGET_FINAL, "mirror-moved", "redirects are not followed: correct the mirror's address in edgeward.conf");
	else if (head->status == 404 || head->status == 410)
		say(ret, HTTPGET_FINAL, "no-release", "the mirror has no such release for this channel and architecture");
	else if (head->status == 401 || head->status == 403)
		say(ret, HTTPGET_FINAL, "mirror-denied", "the mirror does not let this device in");
	else
		say(ret, HTTPGET_FINAL, "mirror-bad", "this is no answer of a mirror");
}
