/*
 * The router: a request, whatever it holds, is decided; what is passed on is a head that the strict parser takes, with the target as Host, the
 * body framed in one way and no header of the connection. The same for an answer.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/hub/svchead.h"
#include "proto/hub/svcroute.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct http_head head, again;
static char out[SVCHEAD_MAX];

/* One too large for the parser is not passed on either: the service sees to that. */
static bool
read_again(enum http_kind kind, size_t len)
{
	size_t used;
	int r;

	http_init(&again, kind);
	r = http_feed(&again, out, len, &used);
	if (r == -EMSGSIZE)
		return false;
	if (r != 1 || used != len)
		abort();
	return true;
}

static void
request(const struct svc_route *route)
{
	struct service_target target = route->target;
	char host[SERVICE_AUTHORITY_SIZE];
	size_t len;

	if (route->name[0] != '\0')
		target = (struct service_target){ .scheme = SERVICE_UNIX, .path = "/s" };
	if (svchead_request(&head, &target, route->path, route->upgrade, false, out, &len) < 0)
		return;
	if (!read_again(HTTP_REQUEST, len))
		return;
	if (strcmp(http_header(&again, "Host"), service_authority(&target, host)) != 0 || http_header(&again, SVC_TARGET_HEADER) != NULL ||
	    again.chunked != head.chunked || again.content_length != head.content_length || strcmp(again.method, head.method) != 0)
		abort();
}

static void
answer(void)
{
	struct service_target target = { .scheme = SERVICE_HTTP, .host = "127.0.0.1", .port = 8080, .ip = true };
	struct svchead_answer how = { .target = &target, .policy = "warn", .body = svchead_response_body(&head, "GET") };
	size_t len;

	if (how.body == SVC_BODY_CLOSE)
		how.body = SVC_BODY_CHUNKED;
	if (svchead_response(&head, &how, out, &len) < 0 || !read_again(HTTP_RESPONSE, len))
		return;
	if (http_header_count(&again, SVC_POLICY_HEADER) != 1 || again.status != head.status ||
	    (how.body == SVC_BODY_LENGTH && again.content_length != head.content_length))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct svc_route route;
	size_t used;

	if (size < 1)
		return 0;
	http_init(&head, (data[0] & 1) != 0 ? HTTP_REQUEST : HTTP_RESPONSE);
	if (http_feed(&head, data + 1, size - 1, &used) != 1)
		return 0;
	if ((data[0] & 1) == 0) {
		answer();
		return 0;
	}
	svcroute_decide(&head, (enum svc_purpose)((data[0] >> 1) % SVC_PURPOSES), &route);
	if (route.kind == SVC_REFUSED && (route.status < 400 || route.text == NULL))
		abort();
	if (route.kind == SVC_PROXY)
		request(&route);
	return 0;
}
