/*
 * One attempt to reach the hub and, if it succeeds, one WebSocket connection: resolve, race the addresses, proxy, TLS,
 * HTTP upgrade, frames. One owner: whatever an attempt took is given back in hubconn_free(), however it ended.
 *
 * ended() is called exactly once per attempt, from the loop, never from inside a call of this interface; after it the
 * owner calls hubconn_free(). hubconn_free() before that cancels without ended().
 */
#ifndef EDGEWARD_CONNECTD_HUBCONN_H
#define EDGEWARD_CONNECTD_HUBCONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/loop.h"
#include "common/monotime.h"

struct hubconn;
struct netenv;			/* TLS context, trust, resolver: made once before the sandbox closes (netenv.h) */

enum hubconn_stage {
	HUBCONN_RESOLVING, HUBCONN_CONNECTING, HUBCONN_PROXY, HUBCONN_TLS, HUBCONN_UPGRADING, HUBCONN_OPEN,
};

/* Why it ended: decides the backoff and the stable cause code of the status. */
enum hubconn_cause {
	HUBCONN_DNS_FAILED,		/* cause code "dns" */
	HUBCONN_NO_ROUTE,		/* "no-route": unreachable, no address worked without an answer */
	HUBCONN_REFUSED,		/* "refused": TCP reset by every address */
	HUBCONN_TIMEOUT,		/* "timeout": no progress at the stage named in stage */
	HUBCONN_PROXY_FAILED,		/* "proxy", "proxy-auth" */
	HUBCONN_TLS_FAILED,		/* "tls", "tls-name", "tls-expired", "tls-not-yet-valid", "tls-untrusted", "tls-pin" */
	HUBCONN_HTTP_FAILED,		/* "http-401", "http-403", "http-5xx", "http-bad": an answer that is no upgrade */
	HUBCONN_WS_PROTOCOL,		/* "ws-protocol": the peer broke RFC 6455 or a limit */
	HUBCONN_CLOSED,			/* "closed": the hub closed; close_code and reason say more */
	HUBCONN_LOST,			/* "lost": reset or end of file without a close frame */
	HUBCONN_STALLED,		/* "stalled": the write deadline passed */
	HUBCONN_LOCAL,			/* "internal": out of memory, descriptors */
};

struct hubconn_end {
	enum hubconn_cause cause;
	enum hubconn_stage stage;	/* where it was */
	bool answered;			/* a byte came back from the hub itself (beyond proxy and TCP): it is there */
	int http_status;		/* HTTP_FAILED and PROXY_FAILED, else 0 */
	uint16_t close_code;		/* CLOSED, else 0 */
	bool superseded;		/* CLOSED: the hub says that a newer session has taken the place of this one */
	int64_t retry_after_ms;		/* from Retry-After or a close reason that names a window; -1 = none */
	char code[32];			/* stable cause code */
	char detail[200];		/* one sentence, printable ASCII, no secret, names the next step where there is one */
};

struct hubconn_params {
	const char *url;		/* wss, https, ws, http */
	const char *bearer;		/* secret; copied, wiped at the end of the upgrade */
	const char *pins;		/* all pins as text, "" = none */
	bool offer_edgeward1;
	bool insecure;			/* plaintext beyond loopback is allowed */
	const char *proxy;		/* from the configuration: URL, "none", or "" = environment at start */
	const char *no_proxy;
	int64_t connect_timeout_ms, write_timeout_ms;
	int64_t min_wall_ns;		/* clock floor for certificate checks */
};

struct hubconn_cb {
	void (*stage)(enum hubconn_stage stage, void *ctx);
	void (*opened)(bool edgeward1, const char *peer, void *ctx);
	void (*text)(const uint8_t *data, size_t len, void *ctx);	/* a whole message */
	void (*binary)(const uint8_t *data, size_t len, void *ctx);
	void (*writable)(void *ctx);		/* after BULK was refused: there is room again */
	void (*ended)(const struct hubconn_end *end, void *ctx);
};

/* -EINVAL with *err filled when url, pins or proxy are wrong: a configuration error, not worth a retry. */
int hubconn_start(struct netenv *env, struct loop *loop, const struct hubconn_params *params,
    const struct hubconn_cb *cb, void *ctx, struct hubconn **ret_conn, char err[200]);
void hubconn_free(struct hubconn *conn);

/* Queues one text message (copied). -EMSGSIZE, -ENOBUFS when more than the limit is queued, -EPIPE when not open. */
int hubconn_send_text(struct hubconn *conn, const void *data, size_t len);
/* The same for a small binary message (WINDOW, END, GAP, RESET). */
int hubconn_send_binary(struct hubconn *conn, const void *data, size_t len);

/*
 * Bulk without a copy: room for one binary message of at most len bytes, in its final place in the output buffer, or
 * NULL when enough is queued already (writable() follows). Fill it, then commit with its true length (0 = give back).
 * Nothing else may be sent between the two calls. The bytes are masked in place.
 */
uint8_t *hubconn_bulk_begin(struct hubconn *conn, size_t len);
void hubconn_bulk_commit(struct hubconn *conn, size_t len);

/* The same for a text message, for log_chunk of the cloop dialect. */
uint8_t *hubconn_text_begin(struct hubconn *conn, size_t len);
void hubconn_text_commit(struct hubconn *conn, size_t len);

/* Writes what is queued now instead of at the end of the loop's turn. */
void hubconn_flush(struct hubconn *conn);

/* Sends a close frame; ended() comes when the peer answers or after 2 s. */
void hubconn_close(struct hubconn *conn, uint16_t code, const char *reason);

enum hubconn_stage hubconn_stage(const struct hubconn *conn);
monotime_t hubconn_last_rx(const struct hubconn *conn);	/* last byte from the peer */
size_t hubconn_queued(const struct hubconn *conn);	/* bytes not yet taken by the kernel */
void hubconn_counters(const struct hubconn *conn, uint64_t *ret_rx, uint64_t *ret_tx);

#endif
