#include "proto/hub/svchead.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/hub/svcroute.h"

void
svchead_put(struct svchead_w *w, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(w->buf + w->len, w->size - w->len, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= w->size - w->len)
		w->full = true;
	else
		w->len += (size_t)n;
}

static bool
one_of(const char *name, const char *const *list)
{
	while (*list != NULL && strcasecmp(name, *list) != 0)
		list++;
	return *list != NULL;
}

bool
svchead_hop_by_hop(const struct http_head *in, const char *name)
{
	static const char *const always[] = { "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
		"TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", NULL };

	return one_of(name, always) || http_has_token(in, "Connection", name);
}

enum svc_body
svchead_request_body(const struct http_head *head)
{
	return head->chunked ? SVC_BODY_CHUNKED : head->content_length >= 0 ? SVC_BODY_LENGTH : SVC_BODY_NONE;
}

enum svc_body
svchead_response_body(const struct http_head *head, const char *method)
{
	if (strcmp(method, "HEAD") == 0 || head->status < 200 || head->status == 204 || head->status == 304)
		return SVC_BODY_NONE;
	return head->chunked ? SVC_BODY_CHUNKED : head->content_length >= 0 ? SVC_BODY_LENGTH : SVC_BODY_CLOSE;
}

/* "scheme://host:port/path" with the service's origin in place of the one it has. */
static void
put_origin(struct svchead_w *w, const char *name, const char *value, const struct service_target *target)
{
	const char *rest = strstr(value, "://");
	char host[SERVICE_AUTHORITY_SIZE];

	rest = rest != NULL ? rest + 3 + strcspn(rest + 3, "/?#") : "";
	svchead_put(w, "%s: %s://%s%s\r\n", name, target->scheme == SERVICE_HTTPS ? "https" : "http", service_authority(target, host), rest);
}

static void
put_request_field(struct svchead_w *w, const struct http_head *in, const char *name, const char *value,
    const struct service_target *target)
{
	static const char *const ours[] = { "Host", SVC_TARGET_HEADER, SVC_INSECURE_HEADER, SVC_SAME_ORIGIN_HEADER, NULL };

	if (one_of(name, ours) || svchead_hop_by_hop(in, name))
		return;
	if (http_header(in, SVC_SAME_ORIGIN_HEADER) != NULL && (strcasecmp(name, "Origin") == 0 || strcasecmp(name, "Referer") == 0))
		put_origin(w, name, value, target);
	else
		svchead_put(w, "%s: %s\r\n", name, value);
}

void
svchead_put_request_end(struct svchead_w *w, const struct http_head *in, bool upgrade, bool close)
{
	if (in->chunked)
		svchead_put(w, "Transfer-Encoding: chunked\r\n");
	else if (in->content_length >= 0)
		svchead_put(w, "Content-Length: %lld\r\n", (long long)in->content_length);
	if (upgrade)
		svchead_put(w, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n", http_header(in, "Upgrade"));
	else
		svchead_put(w, "%s\r\n", close ? "Connection: close\r\n" : "");
}

int
svchead_request(const struct http_head *in, const struct service_target *target, const char *path, bool upgrade, bool keep,
    char out[SVCHEAD_MAX], size_t *ret_len)
{
	struct svchead_w w = { .buf = out, .size = SVCHEAD_MAX };
	char host[SERVICE_AUTHORITY_SIZE];

	svchead_put(&w, "%s %s%s HTTP/1.1\r\nHost: %s\r\n", in->method, path[0] == '/' ? "" : "/", path, service_authority(target, host));
	for (unsigned i = 0; i < in->nfields; i++)
		put_request_field(&w, in, in->buf + in->field[i].name, in->buf + in->field[i].value, target);
	svchead_put_request_end(&w, in, upgrade, !keep);
	*ret_len = w.len;
	return w.full ? -EMSGSIZE : 0;
}

/* The operator's browser cannot go to the service's own address; a path it can. */
static const char *
as_path(const char *value, const struct service_target *target)
{
	char host[SERVICE_AUTHORITY_SIZE], origin[SERVICE_AUTHORITY_SIZE + 16];
	size_t len;

	snprintf(origin, sizeof(origin), "%s://%s", target->scheme == SERVICE_HTTPS ? "https" : "http", service_authority(target, host));
	len = strlen(origin);
	if (strncasecmp(value, origin, len) != 0 || strchr("/?#", value[len]) == NULL)
		return value;
	return value[len] == '/' ? value + len : "/";
}

int
svchead_response(const struct http_head *in, const struct svchead_answer *how, char out[SVCHEAD_MAX], size_t *ret_len)
{
	struct svchead_w w = { .buf = out, .size = SVCHEAD_MAX };
	const char *length = http_header(in, "Content-Length");

	svchead_put(&w, "HTTP/1.1 %u %s\r\n", in->status, in->reason);
	for (unsigned i = 0; i < in->nfields; i++) {
		const char *name = in->buf + in->field[i].name, *value = in->buf + in->field[i].value;

		if (strcasecmp(name, SVC_POLICY_HEADER) == 0 || svchead_hop_by_hop(in, name))
			continue;
		svchead_put(&w, "%s: %s\r\n", name, strcasecmp(name, "Location") == 0 ? as_path(value, how->target) : value);
	}
	if (how->policy != NULL)
		svchead_put(&w, SVC_POLICY_HEADER ": %s\r\n", how->policy);
	if (how->body == SVC_BODY_CHUNKED)
		svchead_put(&w, "Transfer-Encoding: chunked\r\n");
	else if (length != NULL && (how->body == SVC_BODY_LENGTH || (in->status != 204 && in->status >= 200)))
		svchead_put(&w, "Content-Length: %lld\r\n", (long long)in->content_length);
	if (how->upgrade)
		svchead_put(&w, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n", http_header(in, "Upgrade"));
	else
		svchead_put(&w, "%s\r\n", how->close ? "Connection: close\r\n" : "");
	*ret_len = w.len;
	return w.full ? -EMSGSIZE : 0;
}
