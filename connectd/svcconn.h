/*
 * The connection to one service of this device or its network, from the target to the last byte: resolved once, every address judged by the
 * policy before any is dialled, dialled at these addresses only (a name that leads elsewhere a moment later changes nothing), TLS where the
 * target says https. No proxy is used: what is dialled here is near.
 *
 * Bytes are pulled and put by the owner; what waits to be sent is bounded.
 */
#ifndef EDGEWARD_CONNECTD_SVCCONN_H
#define EDGEWARD_CONNECTD_SVCCONN_H

#include <sys/types.h>

#include "common/loop.h"
#include "connectd/netenv.h"
#include "connectd/svcjudge.h"

#define SVCCONN_QUEUE	65536u	/* bytes on their way to the service */

struct svcconn;

struct svcconn_params {
	struct loop *loop;
	struct netenv *env;
	const struct policy *policy;
	struct service_target target;
	char name[SERVICE_NAME_SIZE];	/* it was declared as, or "" */
	bool insecure;			/* any certificate will do; so it is on loopback */
	bool sshd;			/* this device's own sshd, which the policy permits elsewhere */
	int64_t timeout_ms;
};

struct svcconn_end {
	unsigned status;		/* 403 by the policy, 502, 504 */
	bool untrusted;			/* by its certificate */
	char why[SVCJUDGE_WHY];
};

/* From the loop. One of ready and failed first, once; the others after ready. */
struct svcconn_cb {
	void (*ready)(bool warned, void *ctx);
	void (*failed)(const struct svcconn_end *end, void *ctx);
	void (*readable)(void *ctx);	/* there is something, or its end; again when nobody has read */
	void (*writable)(void *ctx);	/* there is room again */
};

/* -ENOMEM and the like. */
int svcconn_open(const struct svcconn_params *params, const struct svcconn_cb *cb, void *ctx, struct svcconn **ret_conn);
/* At any time, in a callback, too. */
void svcconn_free(struct svcconn *conn);

/*
 * True when one that has served before serves another request: it leads where params say, the policy of now permits it, and the service
 * says nothing unasked, an end included.
 */
bool svcconn_serves(struct svcconn *conn, const struct svcconn_params *params, bool *ret_warned);

/* Bytes read, 0 = the service has ended its direction, -EAGAIN, -errno. */
ssize_t svcconn_read(struct svcconn *conn, void *buf, size_t len);
/* How many bytes svcconn_put() takes now. */
size_t svcconn_room(const struct svcconn *conn);
/* At most svcconn_room() bytes. -errno: the connection is of no use for sending any more. */
int svcconn_put(struct svcconn *conn, const void *data, size_t len);
/* Nothing more will be put: the service sees the end behind what is queued. */
void svcconn_end(struct svcconn *conn);

#endif
