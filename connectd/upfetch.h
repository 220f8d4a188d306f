/*
 * One GET of a release, or of the rest of one, from the mirror: through dial.h like every connection, so the hub's proxy, trust and clock
 * floor hold for it. It takes what the link to the hub leaves over: a bound of bytes a second, a small receive buffer, and nothing at all
 * while the link has something waiting.
 *
 * ended() comes once, from the loop; then the owner calls upfetch_free(). upfetch_free() before that ends it without ended().
 */
#ifndef EDGEWARD_CONNECTD_UPFETCH_H
#define EDGEWARD_CONNECTD_UPFETCH_H

#include "common/loop.h"
#include "connectd/hubconn.h"
#include "proto/hub/httpget.h"

#define UPFETCH_CODE	24
#define UPFETCH_DETAIL	200

struct upfetch;

struct upfetch_params {
	struct hubconn_params hub;	/* url: the file's, https; proxy, no-proxy, timeouts, clock floor as for the hub */
	uint64_t from;			/* first byte that is wanted */
	const char *etag;		/* of what is there already, "" = none */
	uint64_t max;			/* bytes of the whole file */
	uint64_t rate;			/* bytes a second */
};

struct upfetch_end {
	enum httpget_what what;		/* BODY: every byte has come */
	char code[UPFETCH_CODE], detail[UPFETCH_DETAIL];
	int64_t retry_after_ms;		/* -1 = not said */
};

struct upfetch_cb {
	/* The answer is one: bytes from `from` on follow, of total. -errno: no. */
	int (*head)(const struct httpget *answer, void *ctx);
	int (*body)(const uint8_t *data, size_t len, void *ctx);
	bool (*busy)(void *ctx);	/* the link needs the line for itself */
	void (*ended)(const struct upfetch_end *end, void *ctx);
};

/* A head() or body() that refused ends it with BODY's opposite, FINAL, and an empty code: the owner knows why. */
int upfetch_start(struct netenv *env, struct loop *loop, const struct upfetch_params *params, const struct upfetch_cb *cb, void *ctx,
    struct upfetch **ret_fetch, char err[200]);
void upfetch_free(struct upfetch *f);

#endif
