#include "proto/hub/svcgate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/hub/svcroute.h"

void
svcgate_init(struct svcgate *g, const struct svcgate_conf *conf)
{
	g->conf = conf;
	g->state = SVCGATE_HEAD;
	g->last = false;
	http_init(&g->head, HTTP_REQUEST);
}

static bool
own_host(const struct svcgate_conf *conf, const char *host)
{
	for (unsigned i = 0; i < SVCGATE_HOSTS; i++)
		if (conf->hosts[i][0] != '\0' && strcasecmp(conf->hosts[i], host) == 0)
			return true;
	return false;
}

static unsigned
check(const struct svcgate *g, const char **ret_why)
{
	const char *host = http_header(&g->head, "Host"), *origin = http_header(&g->head, "Origin");
	const char *site = http_header(&g->head, "Sec-Fetch-Site"), *mode = http_header(&g->head, "Sec-Fetch-Mode");
	bool navigates = mode != NULL && strcmp(mode, "navigate") == 0 && strcmp(g->head.method, "GET") == 0;

	if (g->head.target[0] != '/') {
		*ret_why = "this is no proxy for other hosts";
		return 400;
	}
	if (host == NULL || !own_host(g->conf, host)) {
		*ret_why = "the Host of this request is another one than where edgehub proxy listens";
		return 421;
	}
	if (http_header_count(&g->head, "Origin") > 1 ||
	    (origin != NULL && (strncasecmp(origin, "http://", 7) != 0 || !own_host(g->conf, origin + 7)))) {
		*ret_why = "a page of another site sent this request";
		return 403;
	}
	if (site != NULL && (strcmp(site, "cross-site") == 0 || strcmp(site, "same-site") == 0) && !navigates) {
		*ret_why = "a page of another site sent this request";
		return 403;
	}
	return 0;
}

static bool
is_ours(const char *name)
{
	return strcasecmp(name, "Host") == 0 || strncasecmp(name, "X-Railgrid-", 11) == 0 || strncasecmp(name, "X-Edgeward-", 11) == 0;
}

static int
put_head(const struct svcgate *g, bool upgrade, char out[SVCHEAD_MAX], size_t *ret_len)
{
	struct svchead_w w = { .buf = out, .size = SVCHEAD_MAX };
	const struct http_head *in = &g->head;

	svchead_put(&w, "%s /svc%s HTTP/1.%u\r\nHost: edge-agent\r\n" SVC_TARGET_HEADER ": %s\r\n", in->method, in->target, in->minor, g->conf->target);
	if (g->conf->insecure)
		svchead_put(&w, SVC_INSECURE_HEADER ": true\r\n");
	if (http_header(in, "Origin") != NULL || http_header(in, "Referer") != NULL)
		svchead_put(&w, SVC_SAME_ORIGIN_HEADER ": true\r\n");
	for (unsigned i = 0; i < in->nfields; i++) {
		const char *name = in->buf + in->field[i].name;

		if (!is_ours(name) && !svchead_hop_by_hop(in, name))
			svchead_put(&w, "%s: %s\r\n", name, in->buf + in->field[i].value);
	}
	svchead_put_request_end(&w, in, upgrade, g->last);
	*ret_len = w.len;
	return w.full ? -EMSGSIZE : 0;
}

static unsigned
take_head(struct svcgate *g, char out[SVCHEAD_MAX], size_t *ret_len, const char **ret_why)
{
	const char *upgrade = http_header(&g->head, "Upgrade");
	bool wants = g->head.minor == 1 && upgrade != NULL && http_has_token(&g->head, "Connection", "upgrade");
	unsigned status = check(g, ret_why);

	if (status != 0)
		return status;
	g->last = g->head.minor == 0 || http_has_token(&g->head, "Connection", "close");
	if (put_head(g, wants, out, ret_len) < 0) {
		*ret_why = "the head is too large";
		return 431;
	}
	g->state = wants ? SVCGATE_RAW : g->head.chunked ? SVCGATE_CHUNKED : SVCGATE_LENGTH;
	g->left = g->head.content_length > 0 ? (uint64_t)g->head.content_length : 0;
	chunked_init(&g->chunked, false);
	http_init(&g->head, HTTP_REQUEST);
	if (g->state == SVCGATE_LENGTH && g->left == 0)
		g->state = SVCGATE_HEAD;
	return 0;
}

/* Bytes that pass as they are. */
static void
pass(const uint8_t *data, size_t n, char out[SVCHEAD_MAX], size_t *ret_used, size_t *ret_len)
{
	memcpy(out, data, n);
	*ret_used = *ret_len = n;
}

static unsigned
take_chunked(struct svcgate *g, const uint8_t *data, size_t len, size_t *ret_used, char out[SVCHEAD_MAX], size_t *ret_len)
{
	const uint8_t *content;
	size_t n;
	int r = chunked_take(&g->chunked, data, len < SVCHEAD_MAX ? len : SVCHEAD_MAX, ret_used, &content, &n);

	/* A bad one passes as far as it is bad: the device refuses it, in its place among the answers before it. */
	pass(data, *ret_used, out, ret_used, ret_len);
	if (r != 0)
		g->state = r < 0 ? SVCGATE_BAD : SVCGATE_HEAD;
	return 0;
}

unsigned
svcgate_take(struct svcgate *g, const uint8_t *data, size_t len, size_t *ret_used, char out[SVCHEAD_MAX], size_t *ret_len, const char **ret_why)
{
	size_t max = len < SVCHEAD_MAX ? len : SVCHEAD_MAX;
	int r;

	*ret_used = *ret_len = 0;
	switch (g->state) {
	case SVCGATE_HEAD:
		if (g->last) {
			*ret_used = len;
			return 0;
		}
		r = http_feed(&g->head, data, len, ret_used);
		*ret_why = r == -EMSGSIZE ? "the head is too large" : "this is no HTTP request";
		return r == 0 ? 0 : r < 0 ? r == -EMSGSIZE ? 431 : 400 : take_head(g, out, ret_len, ret_why);
	case SVCGATE_LENGTH:
		if (max > g->left)
			max = (size_t)g->left;
		g->left -= max;
		if (g->left == 0)
			g->state = SVCGATE_HEAD;
		pass(data, max, out, ret_used, ret_len);
		return 0;
	case SVCGATE_CHUNKED:
		return take_chunked(g, data, len, ret_used, out, ret_len);
	case SVCGATE_BAD:
		*ret_used = len;
		return 0;
	case SVCGATE_RAW:
		pass(data, max, out, ret_used, ret_len);
		return 0;
	}
	return 0;
}
