/*
 * privupgrade: replaces the running release by another, on trial.
 *
 * Who calls: edgeward-upgrade.service, started by edgeward-upgrade.path when something is queued or open; edgeward-upgrade-boot.service (-b),
 * before the daemons; an operator with -n. What is trusted: the command line, and what root alone can write. No frame, and no file of
 * edgeward-net, can name a path, a key, an address or a switch.
 * On error: a request that cannot be served is refused, recorded and gone, and the exit code is 0: update trouble is never the agent's
 * trouble (B95). 1 is for a state directory that cannot be used; the unit tries again later.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/parse.h"
#include "privupgrade/privupgrade.h"
#include "version.h"

#define NOBODY	65534
#define USAGE "usage: privupgrade [-bvV] [-n release] [-c conf] [-d statedir] [-e edgectl] [-f flood-ms] [-k keys] [-l packaged]\n" \
	"                   [-r rundir] [-S systemctl] [-t start-ms] [-u uid]\n"

static struct updater self = {
	.base_path = "/var/lib/edgeward", .keys_path = "/etc/edgeward/keys", .conf_path = "/etc/edgeward/upgrade.conf",
	.packaged = EDGEWARD_LIBEXECDIR, .packaged_edgectl = EDGEWARD_BINDIR "/edgectl", .rundir = "/run/edgeward",
	.systemctl = "/bin/systemctl", .test_uid = NOBODY, .start_ms = 30000, .flood_ms = 5000,
	.conf = { .channel = "stable", .settle = 60, .settle_max = UPGRADE_SETTLE_MAX },
};

/* A directory only root can change, made when it is missing. */
static int
open_dir(int at, const char *name, mode_t mode)
{
	int fd;
	struct stat st;

	if (at != AT_FDCWD && mkdirat(at, name, mode) < 0 && errno != EEXIST)
		fatal("%s cannot be made: %s", name, strerror(errno));
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		fatal("%s: %s", name, strerror(errno));
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022) != 0)
		fatal("%s: others than root can change it", name);
	return fd;
}

static void
open_dirs(struct updater *u)
{
	u->base = open_dir(AT_FDCWD, u->base_path, 0);
	u->dir = open_dir(u->base, "upgrade", 0700);
	u->taken = open_dir(u->dir, "taken", 0700);
	close(open_dir(u->dir, "queue", 0700));
	u->releases = open_dir(u->base, "releases", 0755);
}

/* Missing: the defaults. One that cannot be used means no upgrade and nothing else. */
static int
read_conf(struct updater *u)
{
	_cleanup_close_ int fd = open(u->conf_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char buf[1024];
	struct stat st;
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022) != 0)
		return refuse(u, "bad-conf", "%s must be a file that root alone can write", u->conf_path);
	n = pread(fd, buf, sizeof(buf), 0);
	if (n < 0 || upgrade_conf_parse(buf, (size_t)n, &u->conf) < 0)
		return refuse(u, "bad-conf", "%s cannot be understood, see privupgrade(8)", u->conf_path);
	return 0;
}

static void
begin_state(struct updater *u, const struct inbox *inbox)
{
	struct upgrade_state *s = &u->state;
	const struct upgrade_history *h = &u->history;
	char version[RELEASE_VERSION_SIZE];

	*s = (struct upgrade_state){ .attempt = h->n > 0 ? h->entries[h->n - 1].attempt + 1 : 1, .source = inbox->source,
		.sequence = inbox->request.sequence, .version = "-", .id = "-", .peer = "-", .code = "none", .detail = "-" };
	if (inbox->request.id[0] != '\0')
		memcpy(s->id, inbox->request.id, sizeof(s->id));
	link_read(u, LINK_CURRENT, s->from);
	if (s->from[0] == '\0' || !target_complete(u, s->from))
		snprintf(s->from, sizeof(s->from), "%s", u->packaged);
	s->from_sequence = target_sequence(u, s->from, version);
	s->settle = inbox->request.settle != 0 ? inbox->request.settle : u->conf.settle;
	s->settle = s->settle < u->conf.settle_max ? s->settle : u->conf.settle_max;
}

/* From the request to a release that is ready to be switched to. Nothing in force has been touched when it fails. */
static int
prepare(struct updater *u, const struct inbox *inbox)
{
	static struct release rel;
	struct upgrade_probe probe;
	int r = read_conf(u);

	if (r == 0)
		r = verify_head(u, inbox->release, inbox->size, &rel);
	if (r < 0)
		return r;
	units_probe(u, u->state.from, &probe);
	snprintf(u->state.version, sizeof(u->state.version), "%s", rel.manifest.version);
	r = verify_order(u, &rel, inbox, u->state.from_sequence, probe.protocol);
	if (r < 0)
		return r;
	step(u, "verified: %s, sequence %" PRIu64, rel.manifest.version, rel.manifest.sequence);
	r = store_save_state(u, UPGRADE_STAGING);
	if (r == 0)
		r = stage_release(u, inbox->release, &rel);
	if (r == 0)
		step(u, "staged: %" PRIu64 " bytes, self-test passed", rel.manifest.total);
	return r;
}

static int
end_refused(struct updater *u, int r)
{
	/* It was good enough to be staged. What was damaged on its way, by whoever queued it maybe, is not that release. */
	bool tried = u->open && strcmp(u->code, "bad-file") != 0;

	if (r != -ECANCELED)
		refuse(u, r == -ENOSPC || r == -EDQUOT ? "no-space" : "io", "%s", strerror(-r));
	step(u, "refused (%s): %s", u->code, u->detail);
	r = store_record(u, tried ? UPGRADE_OUT_FAILED : UPGRADE_OUT_REFUSED, u->code, u->detail);
	if (r == 0 && u->open)
		r = store_end_state(u);
	return r;
}

/* One request, if there is one. */
static int
serve(struct updater *u, enum upgrade_source source)
{
	struct inbox inbox;
	int r = inbox_take(u, source, &inbox), e;

	if (r == 0 || (r < 0 && r != -ECANCELED))
		return r;
	unlinkat(u->dir, "progress", 0);
	unlinkat(u->dir, "cancel", 0);
	begin_state(u, &inbox);
	step(u, "request %s of the %s: sequence %" PRIu64, u->state.id, upgrade_source_name(source), u->state.sequence);
	r = r < 0 ? r : prepare(u, &inbox);
	e = r < 0 ? end_refused(u, r) : 0;
	inbox_done(u, &inbox);
	if (r == 0) {
		r = trial_begin(u);
		return r == -ECANCELED ? end_refused(u, r) : r;
	}
	if (source == UPGRADE_HUB)	/* whoever floods us with requests costs one process that sleeps */
		usleep((unsigned)u->flood_ms * 1000);
	return e;
}

static int
run(struct updater *u, bool at_boot)
{
	int r;

	open_dirs(u);
	if (flock(u->dir, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 0 : -errno;
	r = store_load(u);
	if (r == 0 && u->open) {
		if (u->state.phase == UPGRADE_STAGING)
			inbox_forget(u);
		r = trial_resume(u, at_boot);
	}
	if (at_boot)
		return r == 0 && !u->open ? trial_settle_links(u) : r;
	if (r == 0)
		r = serve(u, UPGRADE_OPERATOR);
	return r == 0 ? serve(u, UPGRADE_HUB) : r;
}

/* privupgrade -n: what would be said of this file, in lines; nothing is changed. */
static int
check(struct updater *u, const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	static struct release rel;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		fatal("%s: %s", path, fd < 0 ? strerror(errno) : "is not a regular file");
	r = read_conf(u);
	if (r == 0)
		r = verify_head(u, fd, (uint64_t)st.st_size, &rel);
	if (r == 0)
		r = stage_check(u, fd, &rel);
	if (r < 0 && r != -ECANCELED)
		refuse(u, "io", "%s", strerror(-r));
	printf("release %s\ncode %s\ndetail %s\n", r == 0 ? "good" : "refused", r == 0 ? "ok" : u->code, r == 0 ? "-" : u->detail);
	if (r == 0)
		printf("version %s\nsequence %" PRIu64 "\nchannel %s\narch %s\n", rel.manifest.version, rel.manifest.sequence,
		    rel.manifest.channel, rel.manifest.arch);
	return r == 0 && fflush(stdout) == 0 ? 0 : 1;
}

static int
set_option(struct updater *u, int opt, const char *value)
{
	uint32_t ms;

	switch (opt) {
	case 'c': u->conf_path = value; return 0;
	case 'd': u->base_path = value; return 0;
	case 'e': u->packaged_edgectl = value; return 0;
	case 'k': u->keys_path = value; return 0;
	case 'l': u->packaged = value; return 0;
	case 'r': u->rundir = value; return 0;
	case 'S': u->systemctl = value; return 0;
	case 'u': return parse_u32(value, 1, UINT32_MAX - 1, &u->test_uid);
	case 'f':
	case 't':
		if (parse_u32(value, 0, 600000, &ms) < 0)
			return -EINVAL;
		*(opt == 't' ? &u->start_ms : &u->flood_ms) = ms;
		return 0;
	default: return -EINVAL;
	}
}

int
main(int argc, char **argv)
{
	const char *release = NULL;
	enum log_level level = LOG_LEVEL_INFO;
	bool at_boot = false;
	int opt, r = 0;

	while (r == 0 && (opt = getopt(argc, argv, "bvVn:c:d:e:f:k:l:r:S:t:u:")) != -1) {
		switch (opt) {
		case 'b': at_boot = true; break;
		case 'n': release = optarg; break;
		case 'v': level = LOG_LEVEL_DEBUG; break;
		case 'V': return puts("privupgrade " EDGEWARD_VERSION) < 0;
		default: r = set_option(&self, opt, optarg);
		}
	}
	if (r < 0 || optind != argc) {
		fputs(USAGE, stderr);
		return 2;
	}
	log_init("privupgrade", level);
	signal(SIGPIPE, SIG_IGN);
	umask(022);
	if (release != NULL)
		return check(&self, release);
	r = run(&self, at_boot);
	if (r < 0)
		fatal("%s: %s", self.base_path, strerror(-r));
	return 0;
}
