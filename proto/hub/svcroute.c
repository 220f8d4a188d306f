#include "proto/hub/svcroute.h"

#include <string.h>
#include <strings.h>

enum svc_purpose
svcroute_purpose(const char *text)
{
	static const char *const names[SVC_PURPOSES] = { [SVC_FOR_STATUS] = "status", [SVC_FOR_SVC] = "svc", [SVC_FOR_SSH] = "ssh" };
	unsigned i = 0;

	while (i < SVC_PURPOSES && (text == NULL || strcmp(text, names[i]) != 0))
		i++;
	return (enum svc_purpose)i;
}

static void
refuse(struct svc_route *route, unsigned status, const char *text)
{
	route->kind = SVC_REFUSED;
	route->status = status;
	route->text = text;
}

/* "/svc", "/svc/..." and "/svc?...", and nothing that only begins so. */
static bool
beneath(const char *target, const char *prefix)
{
	size_t len = strlen(prefix);

	return strncmp(target, prefix, len) == 0 && strchr("/?", target[len]) != NULL;
}

static bool
is_path(const char *target, const char *path)
{
	size_t len = strlen(path);

	return strncmp(target, path, len) == 0 && (target[len] == '\0' || target[len] == '?');
}

static void
decide_target(const struct http_head *head, struct svc_route *route)
{
	const char *target = http_header(head, SVC_TARGET_HEADER), *insecure = http_header(head, SVC_INSECURE_HEADER);
	size_t scheme = sizeof(SVC_NAME_SCHEME) - 1;

	if (target == NULL || target[0] == '\0') {
		refuse(route, 400, "missing " SVC_TARGET_HEADER);
		return;
	}
	if (http_header_count(head, SVC_TARGET_HEADER) > 1 || http_header_count(head, SVC_INSECURE_HEADER) > 1) {
		refuse(route, 400, "more than one target");
		return;
	}
	if (strncasecmp(target, SVC_NAME_SCHEME, scheme) == 0) {
		size_t len = strlen(target + scheme);

		if (!service_name_ok(target + scheme)) {
			refuse(route, 400, "the target is no name of a service");
			return;
		}
		memcpy(route->name, target + scheme, len + 1);
	} else if (service_target_parse(target, false, &route->target) < 0) {
		refuse(route, 400, "the target is none: http or https, a host, and a port or none");
		return;
	}
	route->insecure = insecure != NULL && strcasecmp(insecure, "true") == 0;
}

static void
decide_proxy(const struct http_head *head, struct svc_route *route)
{
	const char *upgrade = http_header(head, "Upgrade"), *expect = http_header(head, "Expect");

	route->kind = SVC_PROXY;
	route->path = head->target + sizeof("/svc") - 1;
	route->upgrade = head->minor == 1 && upgrade != NULL && http_has_token(head, "Connection", "upgrade");
	if (strcmp(head->method, "CONNECT") == 0 || strcmp(head->method, "TRACE") == 0)
		refuse(route, 405, "this method is not passed on");
	else if (route->upgrade && (head->chunked || head->content_length > 0))
		refuse(route, 400, "an upgrade with a body");
	else if (expect != NULL && strcasecmp(expect, "100-continue") != 0)
		refuse(route, 417, "this expectation is not known");
	else
		decide_target(head, route);
}

static void
decide_ssh(const struct http_head *head, struct svc_route *route)
{
	const char *upgrade = http_header(head, "Upgrade");

	route->kind = SVC_SSH;
	if (head->minor != 1 || upgrade == NULL || strcasecmp(upgrade, SVC_SSH_UPGRADE) != 0 ||
	    !http_has_token(head, "Connection", "upgrade"))
		refuse(route, 426, "/ssh wants an upgrade to " SVC_SSH_UPGRADE);
	else if (head->chunked || head->content_length > 0)
		refuse(route, 400, "an upgrade with a body");
}

void
svcroute_decide(const struct http_head *head, enum svc_purpose purpose, struct svc_route *route)
{
	const char *target = head->target;
	bool get = strcmp(head->method, "GET") == 0;

	*route = (struct svc_route){ .kind = SVC_REFUSED };
	if (target[0] != '/')
		refuse(route, 400, "the request's target must be a path");
	else if (strcmp(target, "/svc") == 0 || beneath(target, "/svc"))
		decide_proxy(head, route);
	else if (is_path(target, "/status"))
		route->kind = SVC_STATUS;
	else if (is_path(target, "/api/v1/services"))
		route->kind = SVC_LIST;
	else if (is_path(target, "/ssh"))
		decide_ssh(head, route);
	else if (strcmp(target, "/k8s") == 0 || beneath(target, "/k8s"))
		refuse(route, 503, "k8s proxy not available in server mode");
	else
		refuse(route, 404, "no such path");
	if (route->kind != SVC_PROXY && route->kind != SVC_REFUSED && !get)
		refuse(route, 405, "only GET");
	if ((route->kind == SVC_PROXY && purpose != SVC_FOR_SVC) || (route->kind == SVC_SSH && purpose != SVC_FOR_SSH) ||
	    ((route->kind == SVC_STATUS || route->kind == SVC_LIST) && purpose == SVC_FOR_SSH))
		refuse(route, 403, "this stream was opened for another purpose");
}
