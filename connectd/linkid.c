/* Who we are to the hub: which secret an attempt presents, and what a welcome makes of it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/log.h"
#include "connectd/link.h"
#include "proto/hub/rfc3339.h"

static void
digest_of(const char *token, uint8_t digest[16])
{
	XXH128_canonical_t c;

	XXH128_canonicalFromHash(&c, XXH3_128bits(token, strlen(token)));
	memcpy(digest, c.digest, 16);
}

void
link_token_spent(struct link *link)
{
	digest_of(link->enroll.token, link->spent_token);
	link->have_spent = true;
}

bool
link_token_is_spent(const struct link *link, const char *token)
{
	uint8_t digest[16];

	digest_of(token, digest);
	return link->have_spent && memcmp(digest, link->spent_token, 16) == 0;
}

/* Nothing to present: say why and look again later. */
static int
nothing(struct link *link, enum ctl_link_state state, const char *code, const char *detail)
{
	link_set_state(link, state);
	link_set_cause(link, code, "%s", detail);
	loop_timer_set_ms(link->p.loop, &link->retry, LINK_LOOK_MS);
	return 0;
}

static int
from_token_file(struct link *link)
{
	const char *path = link->p.conf->hub_token_file;
	char err[ENROLL_ERR], text[300];
	int r;

	if (path[0] == '\0')
		return nothing(link, CTL_LINK_UNENROLLED, "unenrolled", link->p.conf->missing ?
		    "this device is not enrolled, and no " CONF_FILE " names a hub: copy it from "
		    "/usr/share/edgeward/examples, then edgectl enroll" :
		    "this device is not enrolled: get a token at the hub (edgehub token create) and run "
		    "edgectl enroll --token-file FILE");
	r = enroll_read_file(path, clock_check_ns(link->p.clock, monotime_wall_ns()), &link->enroll, err);
	if (r < 0) {
		snprintf(text, sizeof(text), "this device is not enrolled and the token file cannot be used: %s", err);
		return nothing(link, CTL_LINK_UNENROLLED, r == -ENOENT ? "unenrolled" : "token-file", text);
	}
	if (link_token_is_spent(link, link->enroll.token))
		return nothing(link, CTL_LINK_STOPPED, "token-spent",
		    "the token in the token file is spent; get a new one at the hub and put it there, or run "
		    "edgectl enroll --token-file FILE");
	link->from_file = true;
	return 1;
}

static int
pick(struct link *link)
{
	link->enrolling = link->from_file = false;
	if (link->asked) {
		link->enrolling = true;
		return 1;
	}
	/* A file that could not be read may have healed; one that an operator put back counts at once. */
	if (link->p.cred->state != CRED_GOOD)
		cred_load(link->p.cred, link->p.cred->dirfd);
	switch (link->p.cred->state) {
	case CRED_GOOD:
		return 1;
	case CRED_UNREADABLE:
		return nothing(link, CTL_LINK_STOPPED, "credential-unreadable", link->p.cred->note);
	case CRED_DAMAGED:
	case CRED_NONE:
		break;
	}
	link->enrolling = from_token_file(link) != 0;
	return link->enrolling;
}

int
link_choose(struct link *link, char *url, size_t size, const char **ret_bearer, const char **ret_pins)
{
	const struct conf *conf = link->p.conf;
	const char *server, *pins;

	if (!pick(link))
		return 0;
	server = link->enrolling ? link->enroll.server : link->p.cred->cred.server;
	pins = link->enrolling ? link->enroll.pin : link->p.cred->cred.pin;
	*ret_bearer = link->enrolling ? link->enroll.token : link->p.cred->cred.credential;
	/* What the operator wrote into the configuration is above what came with a token. */
	*ret_pins = conf->hub_pin[0] != '\0' ? conf->hub_pin : pins;
	snprintf(url, size, "%s", conf->hub_url[0] != '\0' ? conf->hub_url : server);
	if (url[0] == '\0')
		return nothing(link, CTL_LINK_UNCONFIGURED, "unconfigured",
		    "no hub is configured: set [hub] url in edgeward.conf or run edgectl enroll --bundle-file FILE");
	return 1;
}

static void
remove_token_file(struct link *link)
{
	int r = enroll_remove_file(link->p.conf->hub_token_file);

	if (r < 0 && r != -ENOENT)
		log_warn("the redeemed token file could not be removed (%s); remove it by hand", strerror(-r));
	else if (r == 0)
		log_info("enrolled; the token file was removed");
}

static int
store_new(struct link *link, const char *credential, const char *executor_id)
{
	const struct conf *conf = link->p.conf;
	struct cred cred = { 0 };
	int r;

	if (!cred_token_ok(credential) || executor_id[0] == '\0' || strlen(executor_id) >= sizeof(cred.agent_id))
		return -EBADMSG;
	snprintf(cred.server, sizeof(cred.server), "%s", conf->hub_url[0] != '\0' ? conf->hub_url : link->enroll.server);
	snprintf(cred.agent_id, sizeof(cred.agent_id), "%s", executor_id);
	snprintf(cred.name, sizeof(cred.name), "%s", link->enroll.name);
	snprintf(cred.credential, sizeof(cred.credential), "%s", credential);
	snprintf(cred.pin, sizeof(cred.pin), "%s", conf->hub_pin[0] != '\0' ? conf->hub_pin : link->enroll.pin);
	rfc3339_format(monotime_wall_ns(), cred.enrolled_at);
	r = cred_save(link->p.cred, &cred);
	explicit_bzero(&cred, sizeof(cred));
	return r;
}

/* An explicit pin that differs from the stored one is kept for the day the configuration no longer names it. */
static void
keep_pin(struct link *link)
{
	struct cred cred = link->p.cred->cred;
	int r = 0;

	if (link->p.conf->hub_pin[0] != '\0' && strcmp(link->p.conf->hub_pin, cred.pin) != 0) {
		snprintf(cred.pin, sizeof(cred.pin), "%s", link->p.conf->hub_pin);
		r = cred_save(link->p.cred, &cred);
	}
	if (r < 0)
		log_warn("the pin could not be stored: %s", strerror(-r));
	explicit_bzero(&cred, sizeof(cred));
}

int
link_take_identity(struct link *link, const char *credential, const char *executor_id)
{
	int r;

	if (!link->enrolling) {
		keep_pin(link);
		return 0;
	}
	if (credential == NULL)
		return -ENOKEY;
	r = store_new(link, credential, executor_id);
	if (r < 0)
		return r;
	if (link->from_file)
		remove_token_file(link);
	if (link->asked)
		link_enroll_over(link, 0, link->p.cred->cred.agent_id);
	link->enrolling = false;
	enroll_wipe(&link->enroll);
	return 0;
}

/* ---- edgectl enroll ---- */

void
link_enroll_over(struct link *link, int status, const char *text)
{
	void (*done)(int status, const char *text, void *ctx) = link->enrolled;

	link->asked = link->replacing = false;
	link->enrolled = NULL;
	if (status != 0)
		enroll_wipe(&link->enroll);
	if (done != NULL)
		done(status, text, link->enrolled_ctx);
}

void
link_enroll_forget(struct link *link, const void *ctx)
{
	if (link->enrolled_ctx == ctx)
		link->enrolled = NULL;
}

int
link_enroll(struct link *link, const struct enroll *enroll, bool replace, char err[ENROLL_ERR],
    void (*done)(int status, const char *text, void *ctx), void *ctx)
{
	const char *url = link->p.conf->hub_url;

	if (link->asked) {
		snprintf(err, ENROLL_ERR, "an enrollment is under way already");
		return -EBUSY;
	}
	if (!replace && (link->p.cred->state == CRED_GOOD || link->p.cred->state == CRED_UNREADABLE)) {
		snprintf(err, ENROLL_ERR, "this device is enrolled already; give --replace to enroll it anew");
		return -EEXIST;
	}
	if (enroll->server[0] != '\0' && url[0] != '\0' && strcmp(url, enroll->server) != 0) {
		snprintf(err, ENROLL_ERR, "the bundle (%.55s) names another hub than edgeward.conf (%.55s): change [hub] url there first",
		    enroll->server, url);
		return -EINVAL;
	}
	if (enroll->server[0] == '\0' && url[0] == '\0') {
		snprintf(err, ENROLL_ERR, "no hub is known: give its address, a bundle, or set [hub] url in edgeward.conf");
		return -EINVAL;
	}
	link->enroll = *enroll;
	link->asked = true;
	link->replacing = link->p.cred->state == CRED_GOOD;
	link->enrolled = done;
	link->enrolled_ctx = ctx;
	link_reconnect(link);
	return 0;
}
