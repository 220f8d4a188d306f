/*
 * How an attempt or session ended, who was to blame, and how long to wait: by tables, because the same few facts decide
 * about the backoff of a whole fleet.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "connectd/link.h"

/* The hub said it goes, so every device of the fleet is being told the same at this moment. */
static bool
orderly(uint16_t close_code)
{
	return close_code == 1001 || close_code == 1012 || close_code == 1013;
}

static enum backoff_kind
kind_of_end(const struct hubconn_end *end)
{
	switch (end->cause) {
	case HUBCONN_HTTP_FAILED:
		return end->http_status == 401 ? BACKOFF_IDENTITY : BACKOFF_ANSWERED;
	case HUBCONN_CLOSED:
		return orderly(end->close_code) ? BACKOFF_HUB_CLOSED : BACKOFF_ANSWERED;
	case HUBCONN_TLS_FAILED:
	case HUBCONN_WS_PROTOCOL:
		return BACKOFF_ANSWERED;
	case HUBCONN_DNS_FAILED:
	case HUBCONN_NO_ROUTE:
	case HUBCONN_REFUSED:
	case HUBCONN_TIMEOUT:
	case HUBCONN_PROXY_FAILED:
	case HUBCONN_LOST:
	case HUBCONN_STALLED:
	case HUBCONN_LOCAL:
		break;
	}
	return BACKOFF_LOCAL;
}

/* A session that judged itself: a link that died is a local matter, a hub that broke the protocol has answered. */
static enum backoff_kind
kind_of_over(const struct session_over *over)
{
	if (over->how == SESSION_HUB_LEFT)
		return BACKOFF_HUB_CLOSED;
	return over->close_code == 1002 || over->close_code == 1003 || over->close_code == 1008 ? BACKOFF_ANSWERED :
	    BACKOFF_LOCAL;
}

static void
wait_for_retry(struct link *link, enum backoff_kind kind, const struct backoff_window *window)
{
	int64_t ms = backoff_next(&link->backoff, kind, window);

	if (link->stopped) {
		link_set_state(link, CTL_LINK_STOPPED);
		loop_timer_set_ms(link->p.loop, &link->retry, LINK_LOOK_MS);
		return;
	}
	link_set_state(link, CTL_LINK_WAITING);
	if (link->wake_again) {
		link->wake_again = false;
		ms = link->backoff.min_ms - monotime_diff_ms(monotime_now(), link->last_attempt);
		if (ms < 0)
			ms = 0;
	}
	log_debug("link: next attempt in %" PRId64 " ms", ms);
	loop_timer_set_ms(link->p.loop, &link->retry, ms);
}

/* The same refusal means something else by what was presented, and so does the remedy. */
static void
name_remedy(struct link *link, const struct hubconn_end *end)
{
	if (strcmp(end->code, "tls-pin") == 0)
		link_set_cause(link, end->code, "%s%s", end->detail, link->asked ?
		    ": compare it with the pin that the hub shows, and enroll again with that one" :
		    ": if its key was changed on purpose, put the new pin into [hub] pin");
	else if (end->http_status == 401 && !link->enrolling)
		link_set_cause(link, end->code, "%s: it was revoked, or is another hub's; get a token at the hub and run "
		    "edgectl enroll --replace --token-file FILE", end->detail);
	else
		link_set_cause(link, end->code, "%s", end->detail);
}

/* What the upgrade without a welcome means for a token: it is spent, and trying it for ever would help nobody. */
static void
judge_enrollment(struct link *link, const struct hubconn_end *end)
{
	char text[sizeof(link->cause) + sizeof(link->detail) + 2], before[sizeof(link->cause)];
	const char *remedy = link->replacing ? "get a new one at the hub, then edgectl enroll --replace --token-file FILE; until then the "
	    "identity that this device has stays in use" : "get a new one at the hub, then edgectl enroll --token-file FILE";

	if (!link->enrolling)
		return;
	memcpy(before, link->cause, sizeof(before));
	if (link->upgraded && !link->welcomed) {
		/* A credential that exists goes on being used, and a token file may get a new token: do not stop. */
		link_token_spent(link);
		link->stopped = false;
		link_set_cause(link, "token-spent", "the hub took the token but no welcome came (%s); %s", before, remedy);
	} else if (!link->upgraded && end != NULL && end->http_status == 401) {
		link_set_cause(link, "token-refused", "the hub does not accept the token: it is unknown, expired or used; %s", remedy);
	}
	if (!link->asked)
		return;
	/* A device that was connected shall not stay away because of somebody's wrong token. */
	link->wake_again = link->wake_again || link->replacing;
	snprintf(text, sizeof(text), "%s: %s", link->cause, link->detail);
	link_enroll_over(link, -1, text);
}

/*
 * Another session of this identity, while this one lives: one of ours would not have been told, for we close the old before we dial the new. Two
 * devices with one identity (a cloned disk) would throw each other out without end: each waits until an operator has had time to see it.
 */
static bool
in_use_twice(struct link *link, const struct hubconn_end *end, struct backoff_window *ret_window)
{
	if (!end->superseded || !link->welcomed)
		return false;
	*ret_window = (struct backoff_window){ LINK_TWICE_MS, 2 * LINK_TWICE_MS };
	link->twice = monotime_now();
	link_set_cause(link, "identity-duplicate", "another device is connected with the identity of this one (a copied disk?): on one of the two run "
	    "edgectl enroll --replace --token-file FILE");
	log_warn("%s: %s", link->cause, link->detail);
	return true;
}

void
link_attempt_ended(struct link *link, const struct hubconn_end *end)
{
	enum backoff_kind kind = BACKOFF_LOCAL;
	struct backoff_window window = { .from_ms = end != NULL ? end->retry_after_ms : -1 };
	const struct backoff_window *named = end != NULL && end->retry_after_ms >= 0 ? &window : NULL;
	uint64_t rx, tx;

	loop_timer_del(link->p.loop, &link->teardown);
	loop_timer_del(link->p.loop, &link->stable);
	loop_timer_del(link->p.loop, &link->settled);
	session_free(link->session);
	link->session = NULL;
	if (link->conn != NULL) {
		hubconn_counters(link->conn, &rx, &tx);
		link->rx_bytes += rx;
		link->tx_bytes += tx;
		hubconn_free(link->conn);
		link->conn = NULL;
	}
	if (link->over_set) {
		kind = kind_of_over(&link->over);
		link->stopped = link->stopped || link->over.how == SESSION_STOPPED;
		if (link->over.named)
			window = link->over.window;
		named = link->over.named ? &window : NULL;
	} else if (end != NULL && in_use_twice(link, end, &window)) {
		kind = BACKOFF_ANSWERED;
		named = &window;
	} else if (end != NULL) {
		kind = kind_of_end(end);
		name_remedy(link, end);
	}
	link->over_set = false;
	judge_enrollment(link, end);
	link->enrolling = false;
	link_count(link);
	wait_for_retry(link, kind, named);
}
