/*
 * A peer that plays proxy, TLS server and hub in the test's own loop, up to the step it is told to stop at, and then
 * holds still until the test makes it close or reset.
 */
#ifndef EDGEWARD_FAKEHUB_H
#define EDGEWARD_FAKEHUB_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/loop.h"
#include "proto/hub/http.h"

/* The step is reached, but not answered. */
enum fakehub_stop { FAKEHUB_STOP_ACCEPTED, FAKEHUB_STOP_PROXY, FAKEHUB_STOP_TLS, FAKEHUB_STOP_UPGRADE, FAKEHUB_STOP_NEVER };

struct fakehub {
	struct loop *loop;
	struct loop_io listener, io;
	uint16_t port;
	/* What the test wants. */
	enum fakehub_stop stop;
	bool proxy;			/* a CONNECT comes first */
	SSL_CTX *tls;			/* NULL = plain */
	const char *proxy_answer;	/* NULL = 200 */
	const char *answer;		/* to the upgrade, instead of the right one; NULL = 101 */
	const char *select;		/* subprotocol to select, or NULL */
	bool reset_on_accept, close_on_accept, garbage_on_accept;
	bool close_after_answer;
	size_t read_limit;		/* 0 = reads all that comes */
	/* What happened. */
	unsigned accepted;
	bool reached;			/* stop, or the open connection */
	struct http_head head;		/* the last request */
	SSL *ssl;
	int phase;
	uint8_t in[1 << 18];		/* what came after the upgrade */
	size_t in_len;
	uint64_t in_total;
};

void fakehub_init(struct fakehub *hub, struct loop *loop);
void fakehub_done(struct fakehub *hub);

/* Sends bytes on the open connection. */
void fakehub_send(struct fakehub *hub, const void *data, size_t len);
/* Reads now, although nothing new came. */
void fakehub_kick(struct fakehub *hub);
/* Reads len bytes at most, in spite of read_limit. */
void fakehub_take(struct fakehub *hub, size_t len);
/* Sec-WebSocket-Accept for the request that has come. */
void fakehub_accept_text(struct fakehub *hub, char accept[64]);
void fakehub_fin(struct fakehub *hub);
void fakehub_rst(struct fakehub *hub);

#endif
