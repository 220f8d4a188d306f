/*
 * Upgrades: what is open, what waits and is not taken, what has failed here; whether upgrade.conf can be used; and whether a hub that may ask
 * for one could be served. The mirror is not asked: a look at it belongs to an upgrade.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/monotime.h"
#include "common/policy.h"
#include "edgectl/doctor/doctor.h"
#include "proto/release/records.h"

#define WAITS_S		60	/* a request is taken at once, or by nobody */
#define JOURNAL		"journalctl -eu edgeward-upgrade"

/* 0, -ENOENT, -EACCES, -EBADMSG, ... */
static int
read_state(int base, struct upgrade_state *ret_state)
{
	_cleanup_close_ int dir = openat(base, "upgrade", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_free_ uint8_t *data = NULL;
	size_t len;
	int r = dir < 0 ? -errno : fd_read_file(dir, "state", UPGRADE_RECORD_MAX, &data, &len);

	return r < 0 ? r : upgrade_state_parse(data, len, ret_state);
}

static bool
request_waits(int base)
{
	static const char *const names[] = { "connectd/upgrade-request", "upgrade/queue/request" };
	int64_t now = monotime_wall_ns() / 1000000000;
	struct stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (fstatat(base, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && now - st.st_mtim.tv_sec > WAITS_S)
			return true;
	return false;
}

static void
look_open(struct doctor *d, int base)
{
	static struct upgrade_state s;
	int r = read_state(base, &s);

	if (r == 0)
		check_bad(d, "pending-upgrade", CHECK_WARN, "upgrade-open", "edgectl upgrade --check", "the upgrade to %s, sequence %" PRIu64 ", is not over: %s",
		    s.version, s.sequence, upgrade_phase_name(s.phase));
	else if (r == -EBADMSG)
		check_bad(d, "pending-upgrade", CHECK_FAIL, "upgrade-state", JOURNAL, "%.200s/upgrade/state cannot be understood", d->state);
	else if (request_waits(base))
		check_bad(d, "pending-upgrade", CHECK_FAIL, "not-taken", "systemctl enable --now edgeward-upgrade.path",
		    "an upgrade is queued, and nobody takes it");
	else if (r == -EACCES)
		check_skip(d, "pending-upgrade", "whether one is open only root sees");
	else
		check_ok(d, "pending-upgrade", "none is open");
}

/* Releases that failed here and are newer than what was installed last: they are what a hub or a mirror would offer again. */
static void
look_bad(struct doctor *d, int base)
{
	_cleanup_close_ int dir = openat(base, "releases", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ uint8_t *data = NULL;
	static struct upgrade_history h;
	uint64_t installed = 0;
	size_t len;
	int r = dir < 0 ? -errno : fd_read_file(dir, "results", UPGRADE_RECORD_MAX, &data, &len);

	if (r == -ENOENT) {
		check_ok(d, "releases", "no upgrade has been tried");
		return;
	}
	if (r < 0 || upgrade_history_parse(data, len, &h) < 0) {
		check_bad(d, "releases", CHECK_WARN, "upgrade-results", JOURNAL, "%.200s/releases/results cannot be read", d->state);
		return;
	}
	for (unsigned i = 0; i < h.n; i++)
		if (h.entries[i].outcome == UPGRADE_OUT_DONE)
			installed = h.entries[i].to;
	for (unsigned i = h.n; i > 0; i--) {
		const struct upgrade_entry *e = &h.entries[i - 1];

		if (e->to > installed && upgrade_history_tries(&h, e->to) >= UPGRADE_TRIES) {
			check_bad(d, "releases", CHECK_WARN, "release-bad", "edgectl upgrade --history", "%s, sequence %" PRIu64 ", has failed here (%s) and "
			    "is not taken from a hub again", e->version, e->to, e->code);
			return;
		}
	}
	check_ok(d, "releases", "none is marked bad");
}

static bool
has_updater(const struct doctor *d)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/updater/privupgrade", d->state);
	return access(path, F_OK) == 0;
}

/* With one that cannot be used privupgrade refuses everything; with another channel than the policy's, all that a hub asks for. */
static void
look_conf(struct doctor *d, const struct policy *p)
{
	struct upgrade_conf conf = { .channel = "stable" };
	const char *hubs = p == NULL ? NULL : p->channel == POLICY_CHANNEL_EDGE ? "edge" : "stable";
	_cleanup_free_ uint8_t *data = NULL;
	char path[PATH_MAX];
	struct stat st;
	size_t len;
	bool there = stat(doctor_path(d, "/etc/edgeward/upgrade.conf", path), &st) == 0;

	if (there && ((st.st_mode & 0022) != 0 || (st.st_uid != 0 && d->root[0] == '\0')))
		check_bad(d, "upgrade-conf", CHECK_FAIL, "mode", "ls -l /etc/edgeward/upgrade.conf", "%.200s is not root's alone to write: every "
		    "upgrade is refused", path);
	else if (there && (fd_read_file(AT_FDCWD, path, 1024, &data, &len) < 0 || upgrade_conf_parse(data, len, &conf) < 0))
		check_bad(d, "upgrade-conf", CHECK_FAIL, "bad-conf", "man 8 privupgrade", "%.200s cannot be understood: every upgrade is refused", path);
	else if (hubs != NULL && p->remote_upgrade && strcmp(conf.channel, hubs) != 0)
		check_bad(d, "upgrade-conf", CHECK_WARN, "channel", "man 8 privupgrade", "upgrade.conf takes releases of channel %s, policy.conf "
		    "lets a hub ask for %s: they are refused", conf.channel, hubs);
	else
		check_ok(d, "upgrade-conf", "channel %s%s", conf.channel, there ? "" : ", by default");
}

/* The form of a key is the check "keys"'s. */
static bool
has_key(const struct doctor *d)
{
	char path[PATH_MAX];
	DIR *dir = opendir(doctor_path(d, "/etc/edgeward/keys", path));
	const struct dirent *de;
	bool found = dir == NULL && errno != ENOENT;	/* not for us to see */

	while (!found && dir != NULL && (de = readdir(dir)) != NULL) {
		const char *dot = strrchr(de->d_name, '.');

		found = dot != NULL && strcmp(dot, ".pub") == 0;
	}
	if (dir != NULL)
		closedir(dir);
	return found;
}

/* What would keep a hub's request from being served although the policy allows it. */
static void
look_remote(struct doctor *d, const struct policy *p)
{
	if (p == NULL)
		check_skip(d, "remote-upgrade", "not asked: there is no policy that can be used");
	else if (!p->remote_upgrade)
		check_ok(d, "remote-upgrade", "no hub may ask for one");
	else if (!has_updater(d))
		check_bad(d, "remote-upgrade", CHECK_WARN, "no-updater", "ls -l /var/lib/edgeward/updater",
		    "a hub may ask for upgrades, and there is no privupgrade to install them");
	else if (!has_key(d))
		check_bad(d, "remote-upgrade", CHECK_WARN, "no-key", "man 7 edgeward",
		    "a hub may ask for upgrades, and there is no release key in /etc/edgeward/keys: each is refused");
	else if (!d->conf_ok || d->conf.upgrade_mirror[0] == '\0')
		check_bad(d, "remote-upgrade", CHECK_WARN, "no-mirror", "man 5 edgeward.conf",
		    "a hub may ask for upgrades, and no mirror is set: it would have to send the release itself");
	else
		check_ok(d, "remote-upgrade", "a hub may ask for one; releases come from %.150s", d->conf.upgrade_mirror);
}

void
step_upgrade(struct doctor *d)
{
	_cleanup_close_ int base = open(d->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static struct policy policy;
	struct stat st;
	const struct policy *p = stat(d->policy_path, &st) == 0 && policy_open(&policy, d->policy_path, st.st_uid) == 0 ? &policy : NULL;

	if (base < 0) {
		check_skip(d, "pending-upgrade", "not reached: there is no %.200s", d->state);
		return;
	}
	look_open(d, base);
	look_bad(d, base);
	look_conf(d, p);
	look_remote(d, p);
}
