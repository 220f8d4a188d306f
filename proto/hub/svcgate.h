/*
 * The operator's end of a service: what a browser sends to the listener of `edgehub proxy`, made into requests for the device. Each head is
 * checked and written anew; bodies pass unchanged, their end is found. After a request that wants an upgrade all is passed on: the device
 * closes when the service did not agree.
 *
 * A listener on loopback is open to every web page the operator looks at. So the Host must be the listener's own (a name that was made to
 * lead here is another one: DNS rebinding), and what another site's page sends is refused.
 */
#ifndef EDGEWARD_PROTO_HUB_SVCGATE_H
#define EDGEWARD_PROTO_HUB_SVCGATE_H

#include <sys/types.h>

#include "proto/hub/chunked.h"
#include "proto/hub/http.h"
#include "proto/hub/svchead.h"

#define SVCGATE_HOSTS	4u

struct svcgate_conf {
	char hosts[SVCGATE_HOSTS][SERVICE_AUTHORITY_SIZE];	/* HOST:PORT of the listener; "" = none */
	const char *target;		/* of SVC_TARGET_HEADER */
	bool insecure;
};

enum svcgate_state { SVCGATE_HEAD, SVCGATE_LENGTH, SVCGATE_CHUNKED, SVCGATE_BAD, SVCGATE_RAW };

struct svcgate {
	const struct svcgate_conf *conf;
	enum svcgate_state state;
	bool last;			/* the browser said that no other request follows: none is looked at */
	uint64_t left;
	struct chunked chunked;
	struct http_head head;
};

void svcgate_init(struct svcgate *g, const struct svcgate_conf *conf);

/*
 * Takes bytes of the browser; *ret_used of them are done with. What is to be sent for them is in out, *ret_len bytes. 0, or the status of an
 * answer with *ret_why, after which the connection is to be closed. Behind a body that is not chunked as it should be nothing is sent any more.
 */
unsigned svcgate_take(struct svcgate *g, const uint8_t *data, size_t len, size_t *ret_used, char out[SVCHEAD_MAX], size_t *ret_len,
    const char **ret_why);

#endif
