/*
 * What a request on a stream of kind http asks of the device (railgrid.md section 2): the answer about itself, the list of its services,
 * one of them, or its sshd. Decided from the head alone; what of it the device's policy permits comes after that.
 */
#ifndef EDGEWARD_PROTO_HUB_SVCROUTE_H
#define EDGEWARD_PROTO_HUB_SVCROUTE_H

#include "proto/hub/http.h"
#include "proto/ipc/service.h"

#define SVC_TARGET_HEADER	"X-Railgrid-Svc-Target"
#define SVC_INSECURE_HEADER	"X-Railgrid-Svc-TLS-Insecure"
#define SVC_POLICY_HEADER	"X-Railgrid-Svc-Policy"
/* Of edgehub proxy: Origin and Referer are its own, and become the service's. */
#define SVC_SAME_ORIGIN_HEADER	"X-Edgeward-Same-Origin"
#define SVC_NAME_SCHEME		"service://"	/* a target by the name this device has for it */
#define SVC_SSH_UPGRADE		"ssh-tunnel"

/* What the stream was opened for; a request for anything else is refused. */
enum svc_purpose { SVC_FOR_STATUS, SVC_FOR_SVC, SVC_FOR_SSH, SVC_PURPOSES };

enum svc_kind { SVC_REFUSED, SVC_STATUS, SVC_LIST, SVC_PROXY, SVC_SSH };

struct svc_route {
	enum svc_kind kind;
	unsigned status;		/* REFUSED: of the answer */
	const char *text;		/* ... and its sentence */
	bool upgrade;			/* PROXY: the request wants to leave HTTP */
	bool insecure;			/* PROXY: the certificate does not count */
	char name[SERVICE_NAME_SIZE];	/* PROXY: by name; else by target */
	struct service_target target;
	const char *path;		/* PROXY: in head; may be empty or begin with '?' */
};

/* "status", "svc", "ssh"; SVC_PURPOSES when it is none. */
enum svc_purpose svcroute_purpose(const char *text);

/* head is a complete request. */
void svcroute_decide(const struct http_head *head, enum svc_purpose purpose, struct svc_route *ret_route);

#endif
