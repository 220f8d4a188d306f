/*
 * The one way to open a connection towards the hub: name, addresses, proxy, TLS with trust, name, pins and clock. Every
 * setting is a parameter, so no second path can forget one. What comes out is a transport ready for the first byte of
 * the application.
 */
#ifndef EDGEWARD_CONNECTD_DIAL_H
#define EDGEWARD_CONNECTD_DIAL_H

#include "common/loop.h"
#include "connectd/hubend.h"
#include "connectd/netenv.h"
#include "connectd/pin.h"
#include "connectd/proxy.h"
#include "connectd/transport.h"
#include "connectd/url.h"

#define DIAL_PEER_SIZE	128
/* Progress moves the deadline, but a peer that sends a byte a second does not keep an attempt alive for ever. */
#define DIAL_TOTAL	4	/* times timeout_ms */

struct dial;

struct dial_params {
	struct url url;
	struct pinset pins;
	struct proxy proxy;
	int64_t timeout_ms;		/* without progress */
	int64_t user_timeout_ms;	/* TCP_USER_TIMEOUT of the finished connection */
	int64_t min_wall_ns;
};

/*
 * Checks and completes the parameters: -EINVAL with err filled when url, pins or proxy are wrong or forbidden (plaintext
 * beyond loopback without insecure, pins with plaintext).
 */
int dial_params_init(struct dial_params *ret_params, const struct hubconn_params *conf, const struct proxy_env *env,
    char err[200]);

struct dial_cb {
	void (*stage)(enum hubconn_stage stage, void *ctx);	/* CONNECTING, PROXY, TLS */
	void (*done)(const char *peer, void *ctx);		/* the transport is ready; peer as for people */
	void (*failed)(const struct hubconn_end *end, void *ctx);
};

/*
 * One of done and failed is called once, from the loop. t belongs to the caller, stays in place and is filled in. params
 * is copied. -ENOMEM and the like. dial_free() at any time, in a callback too: it leaves t to the caller.
 */
int dial_start(struct netenv *env, struct loop *loop, const struct dial_params *params, const struct dial_cb *cb,
    void *ctx, struct transport *t, struct dial **ret_dial);
void dial_free(struct dial *dial);

#endif
