/*
 * Heads that are passed on: a request to a service, its answer back. Written anew from what was understood, never copied: headers of the one
 * connection end with it (Connection and what it names, Transfer-Encoding, ...), the length of the body is said in exactly one way.
 */
#ifndef EDGEWARD_PROTO_HUB_SVCHEAD_H
#define EDGEWARD_PROTO_HUB_SVCHEAD_H

#include "proto/hub/http.h"
#include "proto/ipc/service.h"

#define SVCHEAD_MAX	(HTTP_HEAD_MAX + 1024u)

enum svc_body { SVC_BODY_NONE, SVC_BODY_LENGTH, SVC_BODY_CHUNKED, SVC_BODY_CLOSE };

/* How the body of a complete head is framed. of a response: to this method. */
enum svc_body svchead_request_body(const struct http_head *head);
enum svc_body svchead_response_body(const struct http_head *head, const char *method);

/* The request for a service at path (as in struct svc_route). keep: the connection may serve another one. -EMSGSIZE. */
int svchead_request(const struct http_head *in, const struct service_target *target, const char *path, bool upgrade, bool keep,
    char out[SVCHEAD_MAX], size_t *ret_len);

struct svchead_answer {
	const struct service_target *target;	/* an absolute Location there becomes a path */
	const char *policy;			/* of SVC_POLICY_HEADER, or NULL */
	enum svc_body body;			/* as it will be sent; LENGTH: content_length of the head */
	bool close, upgrade;
};

/* The answer of a service, for the hub. -EMSGSIZE. */
int svchead_response(const struct http_head *in, const struct svchead_answer *how, char out[SVCHEAD_MAX], size_t *ret_len);

/* Appends; used by svcgate.c, too. */
struct svchead_w {
	char *buf;
	size_t size, len;
	bool full;
};
void svchead_put(struct svchead_w *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* True for a header that belongs to the connection alone. */
/* The last of a request: how its body is framed as in says, and what becomes of the connection. */
void svchead_put_request_end(struct svchead_w *w, const struct http_head *in, bool upgrade, bool close);
bool svchead_hop_by_hop(const struct http_head *in, const char *name);

#endif
