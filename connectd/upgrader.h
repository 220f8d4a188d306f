/*
 * Upgrades that a hub asks for, from the request to what became of it. One at a time; it outlives sessions, and by upjob.h the process.
 *
 *	asked -> the release is fetched from the mirror of this device's own configuration (upfetch.h), or was sent by the hub before
 *	-> staged (upstage.h, relcheck.h) -> privupgrade(8) is asked -> its result, which it leaves in releases/results, is told to the hub
 *
 * Trouble with any of it ends the upgrade and nothing else.
 */
#ifndef EDGEWARD_CONNECTD_UPGRADER_H
#define EDGEWARD_CONNECTD_UPGRADER_H

#include "common/conf.h"
#include "common/loop.h"
#include "common/policy.h"
#include "connectd/clock.h"
#include "connectd/relcheck.h"
#include "connectd/upfetch.h"
#include "connectd/upjob.h"
#include "connectd/upstage.h"

#define UPGRADER_TRIES	10u		/* attempts to fetch without progress; a restart of connectd during one is one */
#define UPGRADER_PROGRESS	16384u	/* bytes beyond what any attempt of this request had: fewer, or the same again, would have no end */

/* upfetch.h, or a test's. */
struct upgrader_net {
	int (*start)(struct netenv *env, struct loop *loop, const struct upfetch_params *params, const struct upfetch_cb *cb, void *ctx,
	    struct upfetch **ret_fetch, char err[200]);
	void (*free)(struct upfetch *f);
};

struct upgrader_params {
	struct loop *loop;
	struct netenv *env;
	const struct upgrader_net *net;
	const struct conf *conf;
	const struct policy *policy;
	const struct clock_floor *clock;
	int statedir;
	const char *releases;		/* path of releases/, where privupgrade leaves the results */
	const char *keys;		/* and of the release keys */
	bool managed, helper;
	uint64_t sequence;		/* of what runs, 0 = unknown */
	bool (*busy)(void *ctx);	/* the link has something waiting */
	void (*news)(void *ctx);	/* there is a result the hub should know; may be NULL */
	void *ctx;
};

enum upgrader_source { UPGRADER_NOTHING, UPGRADER_MIRROR, UPGRADER_STREAM };

struct upgrader {
	struct upgrader_params p;
	struct upjob job;
	struct upstage stage;
	struct relcheck *check;		/* of the part; NULL = there is none */
	enum upgrader_source source;	/* what writes the part */
	struct upfetch *fetch;
	char etag[HTTPGET_ETAG_SIZE];
	uint64_t reached;		/* the byte up to which attempts have counted as progress */
	unsigned damaged;		/* times that all of it came and was wrong */
	int body_err;			/* of the last bytes of the mirror: why they could not be kept */
	struct loop_timer timer;	/* next attempt; is the request taken; the staged release is forgotten */
	monotime_t queued_at;
	bool receiving;			/* a stream of the hub's is open */
	uint64_t stream_size;
	uint8_t stream_sha256[RELEASE_HASH];
	bool staged;			/* a release of the hub's is complete and waits for its upgrade frame */
	struct manifest manifest;	/* of the staged one */
	uint64_t told;			/* last attempt of the history the hub knows of */
	struct upgrade_history history;
	int64_t history_mtime;		/* of what was read, ns; -1 = nothing yet */
};

void upgrader_init(struct upgrader *u, const struct upgrader_params *params);
void upgrader_done(struct upgrader *u);

/* True: what a hub asked for is being fetched; how far it is, in words. upgrader_fail() ends it. */
bool upgrader_fetching(const struct upgrader *u, char *text, size_t size);
void upgrader_fail(struct upgrader *u, const char *code, const char *detail);

/* What may be said of this device now; for a release of this version, or NULL. */
void upgrader_facts(struct upgrader *u, const char *version, struct upfacts *ret_facts);

/*
 * A request that was judged good: the job begins. id: of the frame; one that cannot be a request's is replaced. The same id, or the same
 * target while its job is under way, is the same request again: 0. -EBUSY, -errno when it cannot be stored.
 */
int upgrader_begin(struct upgrader *u, const char *id, const struct uptarget *target, uint64_t settle);

/* True when the target is what a job is under way for. */
bool upgrader_has(struct upgrader *u, const char *id, const struct uptarget *target);

/* ---- a release that the hub sends (upframes.c) ---- */

/* Begins, or goes on where a cut has ended it: *ret_from. -EBUSY, -errno. */
int upgrader_receive(struct upgrader *u, uint64_t size, const uint8_t sha256[RELEASE_HASH], uint64_t *ret_from);
/* 0, or -ECANCELED with code and detail in u->check, or -errno. */
int upgrader_bytes(struct upgrader *u, const uint8_t *data, size_t len);
/* All of it has come: it waits to be asked for. As above. */
int upgrader_received(struct upgrader *u);
/* It was cut: what has come is kept for a while. */
void upgrader_pause(struct upgrader *u);
/* It is no good. */
void upgrader_forget(struct upgrader *u);

/* ---- what became of it ---- */

struct upgrader_result {
	uint64_t attempt;		/* of the history, 0 = a job that ended before privupgrade was asked */
	const char *id;
	char from[RELEASE_VERSION_SIZE], to[RELEASE_VERSION_SIZE];
	const char *outcome;		/* as in upgrade_result */
	char reason[UPGRADE_DETAIL_SIZE + UPGRADE_CODE_SIZE + 4];
};

/* The result number i that the hub has not been told of; false = there are no more. Looks at the file again for i = 0. */
bool upgrader_result(struct upgrader *u, unsigned i, struct upgrader_result *ret_result);
/* The hub knows of this one and all before it; of the job of this id, which ended before privupgrade was asked. */
void upgrader_told(struct upgrader *u, uint64_t attempt);
void upgrader_told_job(struct upgrader *u, const char *id);

#endif
