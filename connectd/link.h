/*
 * The link to the hub as one state machine: there is at most one attempt or session at any time, and every end goes
 * through the same place, which decides what status shows and when the next attempt is made.
 */
#ifndef EDGEWARD_CONNECTD_LINK_H
#define EDGEWARD_CONNECTD_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/conf.h"
#include "common/eventlog.h"
#include "common/notify.h"
#include "common/policy.h"
#include "common/loop.h"
#include "connectd/backoff.h"
#include "connectd/caps.h"
#include "connectd/clock.h"
#include "connectd/counts.h"
#include "connectd/cred.h"
#include "connectd/enroll.h"
#include "connectd/hubconn.h"
#include "connectd/session.h"
#include "proto/ipc/ctl.h"

#define LINK_TWICE_MS	60000	/* at least so long, where another device has this identity */
#define LINK_TWICE_TOLD_MS	900000	/* so long the hub hears of it, too */
#define LINK_LOOK_MS	10000	/* for a credential that was put there or became readable, or a token file */

struct link_params {
	struct loop *loop;
	struct netenv *env;
	const struct conf *conf;
	const struct policy *policy;
	const struct device_caps *device;
	struct cred_store *cred;
	struct clock_floor *clock;
	struct mirror *mirror;
	struct workchan *work;
	const struct services *services;	/* these four may be NULL */
	const struct notify *notify;
	struct eventlog *events;
	struct upgrader *upgrader;
};

struct link {
	struct link_params p;
	enum ctl_link_state state;
	int64_t since;			/* wall ns of the last change of state */
	struct hubconn *conn;
	struct session *session;
	struct backoff backoff;
	struct loop_timer retry, teardown, stable, settled, away;
	monotime_t last_attempt;	/* NEVER = none yet */
	bool stopped;			/* for good; an operator's command or a new credential ends it */
	bool closing;			/* a close frame is under way; the end comes by itself */
	bool upgraded;			/* this attempt got through the upgrade: a token is spent by it */
	bool welcomed;			/* this attempt became a session */
	bool edgeward1;
	bool wake_again;		/* woken while an attempt was ending: dial at once after it */
	struct session_over over;	/* with over_set: what the session said */
	bool over_set;

	/* enrollment */
	struct enroll enroll;		/* what this or the next attempt presents instead of a credential */
	bool enrolling;			/* the attempt presents a token */
	bool from_file;			/* ... that came from the token file */
	bool asked;			/* ... that came from edgectl, which waits for the outcome */
	bool replacing;			/* ... and replaces a credential */
	uint8_t spent_token[16];	/* digest of the last token that was used up */
	bool have_spent;
	void (*enrolled)(int status, const char *text, void *ctx);
	void *enrolled_ctx;

	/* for status and health */
	uint64_t attempts, sessions, beat_seq;
	uint64_t rx_bytes, tx_bytes;	/* of connections that have ended */
	char cause[32], detail[256], peer[64];
	char logged[32];		/* the cause that was logged last: one line for each change */
	char told[64];			/* tell.c: state and cause that were told last */
	struct counts counts;
	bool insecure;
	monotime_t twice;		/* when the hub last said that another device has this identity; NEVER = it has not */
};

void link_init(struct link *link, const struct link_params *params);
void link_done(struct link *link);

/* Looks at what there is and does what is due: called at the start and whenever something has changed. */
void link_kick(struct link *link);

/* The world has changed (an address, the resolver, the clock): do not wait any longer than the floor of the backoff. */
void link_wake(struct link *link, const char *why);

/* An upgrade has come to a result: the hub is told, if there is a session. */
void link_upgrade_news(struct link *link);

/* The policy has been read again: what the hub may know of this device may be another. */
void link_policy_news(struct link *link);

/* edgectl reconnect: the same, also out of a session and out of "stopped". */
void link_reconnect(struct link *link);

/*
 * edgectl enroll. Wipes nothing of enroll. done() comes once, with 0 and the identity or -errno and the reason.
 * -EBUSY when one is under way, -EEXIST (credential exists, replace not asked), -EINVAL with err.
 */
int link_enroll(struct link *link, const struct enroll *enroll, bool replace, char err[ENROLL_ERR],
    void (*done)(int status, const char *text, void *ctx), void *ctx);
/* The asker is gone. */
void link_enroll_forget(struct link *link, const void *ctx);

/* linkdial.c: what to present and where; 1 = filled, 0 = there is nothing (state is set), used by link.c. */
int link_choose(struct link *link, char *url, size_t size, const char **ret_bearer, const char **ret_pins);
void link_set_state(struct link *link, enum ctl_link_state state);
void link_set_cause(struct link *link, const char *code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* tell.c: the service manager's STATUS= and the event, when state or cause are others than those told last. */
void link_tell(struct link *link);
/* An attempt or session has ended with this cause. */
void link_count(struct link *link);

/* linkend.c: the one place where attempts end. */
void link_attempt_ended(struct link *link, const struct hubconn_end *end);

/* linkid.c: the welcome's identity; see struct session_ops. */
int link_take_identity(struct link *link, const char *credential, const char *executor_id);
void link_enroll_over(struct link *link, int status, const char *text);
void link_token_spent(struct link *link);
bool link_token_is_spent(const struct link *link, const char *token);

#endif
