/*
 * The release from the mirror. Where it lies there is this device's own business: MIRROR/CHANNEL/ARCH/NAME.release, NAME being `latest`, a
 * version or a commit (edgeward(7)). A cut goes on where it was; what has come is kept until the file at the mirror is another one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "common/log.h"
#include "common/monotime.h"
#include "connectd/upgrader_impl.h"
#include "version.h"

static const char *
channel_of(const struct upgrader *u)
{
	return u->p.policy->channel == POLICY_CHANNEL_EDGE ? "edge" : "stable";
}

/* What the hub asked for by name must be what lies there under that name. */
static bool
is_wanted(const struct upgrader *u, const struct manifest *m)
{
	struct uptarget t;

	if (u->source == UPGRADER_STREAM || uptarget_parse(u->job.target, &t) < 0 || t.kind == UPTARGET_LATEST)
		return true;
	return t.kind == UPTARGET_TAG ? strcmp(m->version, t.name) == 0 : strstr(m->version, "+g") != NULL &&
	    strncmp(strstr(m->version, "+g") + 2, t.name, 7) == 0;
}

int
upgrader_judge(struct upgrader *u)
{
	const struct manifest *m = &u->check->manifest;
	int64_t now = monotime_wall_ns() / 1000000000;
	struct utsname uts;
	int r;

	if (uname(&uts) == 0 && strcmp(m->arch, uts.machine) != 0)
		return refuse(&u->check->why, "wrong-arch", "it is for %s, this device is %.32s", m->arch, uts.machine);
	if (strcmp(m->channel, channel_of(u)) != 0)
		return refuse(&u->check->why, "wrong-channel", "it is of channel %s, this device is on %s", m->channel, channel_of(u));
	if (!is_wanted(u, m))
		return refuse(&u->check->why, "other-release", "%s is there instead of %s", m->version, u->job.target);
	if (m->expires <= (now > EDGEWARD_BUILD_EPOCH ? now : EDGEWARD_BUILD_EPOCH))
		return refuse(&u->check->why, "expired", "it was to be installed before a day that has passed");
	if (u->p.sequence != 0 && m->sequence == u->p.sequence)
		return refuse(&u->check->why, "already-current", "sequence %llu is what runs", (unsigned long long)m->sequence);
	if (m->sequence < u->p.sequence)
		return refuse(&u->check->why, "old-sequence", "sequence %llu is lower than %llu, which runs", (unsigned long long)m->sequence,
		    (unsigned long long)u->p.sequence);
	upgrader_look(u);
	if (upgrade_history_tries(&u->history, m->sequence) >= UPGRADE_TRIES)
		return refuse(&u->check->why, "marked-bad", "sequence %llu has failed here before", (unsigned long long)m->sequence);
	/* Once here, once more when it is installed. */
	r = upstage_room(&u->stage, 2 * u->check->size, u->p.conf->work_disk_low);
	if (r == -ENOSPC)
		return refuse(&u->check->why, "no-space", "it needs %llu MiB on the disk, twice, and what must stay free", (unsigned long long)(u->check->size >> 20));
	return r;
}

/* ---- one attempt ---- */

static void
end_check(struct upgrader *u, int err)
{
	char detail[UPGRADE_DETAIL_SIZE], code[UPGRADE_CODE_SIZE];

	snprintf(code, sizeof(code), "%s", err == -ECANCELED ? u->check->why.code : err == -ENOSPC || err == -EDQUOT ? "no-space" : "io");
	snprintf(detail, sizeof(detail), "%s", err == -ECANCELED ? u->check->why.detail : strerror(-err));
	upgrader_fail(u, code, detail);
}

static int
on_head(const struct httpget *g, void *ctx)
{
	struct upgrader *u = ctx;
	uint64_t have = u->check != NULL ? u->check->at : 0;
	int r = 0;

	if (g->from != have || (u->check != NULL && u->check->known && u->check->size != g->total))
		r = -ESTALE;
	if (r == 0 && u->check == NULL)
		r = upgrader_begin_part(u);
	if (r == -ESTALE && g->from == 0)	/* another file than before, from its beginning */
		r = upgrader_begin_part(u);
	u->source = UPGRADER_MIRROR;
	memcpy(u->etag, g->etag, sizeof(u->etag));
	if (r == -ESTALE)
		upgrader_drop_part(u);
	return r;
}

static int
on_body(const uint8_t *data, size_t len, void *ctx)
{
	struct upgrader *u = ctx;

	u->body_err = upgrader_bytes(u, data, len);
	return u->body_err;
}

static bool
on_busy(void *ctx)
{
	struct upgrader *u = ctx;

	return u->p.busy(u->p.ctx);
}

/* A damaged copy is fetched once more; all other reasons are the release's own. */
static void
refused_inside(struct upgrader *u)
{
	if (u->check == NULL)
		upgrader_again(u, "mirror-changed", "the file at the mirror has changed", -1);
	else if (strcmp(u->check->why.code, "bad-file") == 0 && u->damaged == 0) {
		u->damaged++;
		u->reached = u->check->at;	/* no progress */
		upgrader_again(u, u->check->why.code, u->check->why.detail, -1);
		if (u->job.phase == UPJOB_FETCH)
			upgrader_drop_part(u);
	} else {
		end_check(u, u->check->why.code[0] != '\0' ? -ECANCELED : u->body_err < 0 ? u->body_err : -EIO);
	}
}

static void
on_ended(const struct upfetch_end *end, void *ctx)
{
	struct upgrader *u = ctx;
	struct upfetch_end e = *end;

	u->p.net->free(u->fetch);
	u->fetch = NULL;
	if (e.what == HTTPGET_BODY)
		upgrader_fetched(u);
	else if (e.code[0] == '\0')
		refused_inside(u);
	else if (e.what == HTTPGET_FINAL)
		upgrader_fail(u, e.code, e.detail);
	else
		upgrader_again(u, e.code, e.detail, e.retry_after_ms);
}

static int
address(const struct upgrader *u, char *url, size_t size)
{
	const char *mirror = u->p.conf->upgrade_mirror;
	size_t len = strlen(mirror);
	struct uptarget t;
	struct utsname uts;
	int n;

	if (uptarget_parse(u->job.target, &t) < 0 || uname(&uts) < 0)
		return -EINVAL;
	n = snprintf(url, size, "%s%s%s/%s/%s.release", mirror, len > 0 && mirror[len - 1] == '/' ? "" : "/", channel_of(u), uts.machine, t.name);
	return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

void
upgrader_attempt(struct upgrader *u)
{
	static const struct upfetch_cb cb = { .head = on_head, .body = on_body, .busy = on_busy, .ended = on_ended };
	const struct conf *conf = u->p.conf;
	char url[512], err[200] = "";
	struct upfetch_params params = { .hub = { .url = url, .bearer = "", .pins = "", .proxy = conf->hub_proxy, .no_proxy = conf->hub_no_proxy,
		.connect_timeout_ms = conf->connect_timeout, .write_timeout_ms = conf->write_timeout, .min_wall_ns = clock_floor_ns(u->p.clock) },
		.from = u->check != NULL ? u->check->at : 0, .etag = u->etag, .max = RELEASE_TOTAL_MAX + RELEASE_HEAD_MAX,
		.rate = conf->upgrade_rate };
	int r = conf->upgrade_mirror[0] == '\0' ? -EINVAL : address(u, url, sizeof(url));

	if (conf->upgrade_mirror[0] == '\0')
		snprintf(err, sizeof(err), "no mirror is configured");
	if (r == 0)
		r = u->p.net->start(u->p.env, u->p.loop, &params, &cb, u, &u->fetch, err);
	if (r == -EINVAL)
		upgrader_fail(u, "config", err);
	else if (r < 0)
		upgrader_again(u, "internal", err, -1);
	else
		log_info("upgrade: fetching %s from the mirror, from byte %llu on", u->job.target, (unsigned long long)params.from);
}
