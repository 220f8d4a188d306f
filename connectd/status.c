/* What edgectl status shows of connectd. Nothing secret has a field here. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "connectd/control.h"
#include "version.h"

static void
fill_session(const struct link *link, struct ctl_connectd_status *st)
{
	const struct session *s = link->session;
	uint64_t rx = 0, tx = 0;

	st->last_rx_ms = st->rtt_us = -1;
	st->clock_offset_ms = INT64_MIN;
	if (link->conn != NULL)
		hubconn_counters(link->conn, &rx, &tx);
	st->rx_bytes = link->rx_bytes + rx;
	st->tx_bytes = link->tx_bytes + tx;
	if (s == NULL || link->conn == NULL)
		return;
	st->last_rx_ms = monotime_diff_ms(monotime_now(), hubconn_last_rx(link->conn));
	st->rtt_us = s->rtt_us;
	st->clock_offset_ms = s->clock_offset_ms;
	if (s->state != SESSION_UP)
		return;
	st->dialect = link->edgeward1 ? WORK_DIALECT_EDGEWARD1 : WORK_DIALECT_CLOOP;
	st->protocol = (uint32_t)s->version;
}

/* The address without whatever stands before an '@'. */
static void
put_url(char *dst, size_t size, const char *url)
{
	const char *scheme = strstr(url, "://"), *at = strrchr(url, '@');

	if (scheme != NULL && at != NULL && at > scheme)
		snprintf(dst, size, "%.*s%s", (int)(scheme + 3 - url), url, at + 1);
	else
		snprintf(dst, size, "%s", url);
}

static void
fill_cause(const struct link *link, struct ctl_connectd_status *st)
{
	/* Connected, and yet something an operator should know. */
	if (link->cause[0] == '\0' && st->clock_implausible) {
		snprintf(st->cause, sizeof(st->cause), "clock-implausible");
		snprintf(st->detail, sizeof(st->detail), "the system clock is before the last time we know; set it");
	} else if (link->cause[0] == '\0' && link->p.policy->problem[0] != '\0') {
		snprintf(st->cause, sizeof(st->cause), "policy-bad");
		snprintf(st->detail, sizeof(st->detail), "%.*s", (int)sizeof(st->detail) - 1, link->p.policy->problem);
	} else if (link->cause[0] == '\0' && keyfile_changed(&link->p.policy->mark)) {
		snprintf(st->cause, sizeof(st->cause), "config-changed");
		snprintf(st->detail, sizeof(st->detail), "%.150s was changed after connectd read it: systemctl reload edgeward-connectd puts it in force",
		    link->p.policy->mark.path);
	} else if (link->cause[0] == '\0' && keyfile_changed(&link->p.conf->mark)) {
		snprintf(st->cause, sizeof(st->cause), "config-changed");
		snprintf(st->detail, sizeof(st->detail), "%.150s was changed after connectd read it: systemctl restart edgeward-connectd puts it in force",
		    link->p.conf->mark.path);
	} else {
		snprintf(st->cause, sizeof(st->cause), "%s", link->cause);
		snprintf(st->detail, sizeof(st->detail), "%s", link->detail);
	}
}

void
status_fill(const struct link *link, const struct privchan *priv, monotime_t started, struct ctl_connectd_status *st)
{
	const struct conf *conf = link->p.conf;
	const struct cred *cred = &link->p.cred->cred;
	monotime_t now = monotime_now();

	memset(st, 0, sizeof(*st));
	st->pid = getpid();
	st->link = link->state;
	st->since = link->since;
	st->next_retry_ms = -1;
	if (link->state == CTL_LINK_WAITING && loop_timer_armed(&link->retry))
		st->next_retry_ms = monotime_before(link->retry.when, now) ? 0 : monotime_diff_ms(link->retry.when, now);
	st->attempts = link->attempts;
	st->sessions = link->sessions;
	fill_session(link, st);
	st->clock_floor = clock_floor_ns(link->p.clock);
	st->clock_implausible = clock_implausible(link->p.clock, monotime_wall_ns());
	st->work_up = link->p.work->synced;
	st->priv_up = priv->up;
	st->insecure = link->insecure && link->conn != NULL;
	st->uptime_s = (uint32_t)(monotime_diff_ms(now, started) / 1000);
	st->priv_pid = priv->pid;
	snprintf(st->build, sizeof(st->build), "%s", EDGEWARD_VERSION);
	snprintf(st->priv_build, sizeof(st->priv_build), "%s", priv->build);
	fill_cause(link, st);
	put_url(st->hub, sizeof(st->hub), conf->hub_url[0] != '\0' ? conf->hub_url : cred->server);
	snprintf(st->peer, sizeof(st->peer), "%s", link->conn != NULL ? link->peer : "");
	if (strcmp(conf->hub_proxy, "none") != 0)
		put_url(st->proxy, sizeof(st->proxy), conf->hub_proxy);
	memcpy(st->agent_id, cred->agent_id, sizeof(st->agent_id));
	snprintf(st->name, sizeof(st->name), "%.63s", conf->device_name[0] != '\0' ? conf->device_name : cred->name);
}
