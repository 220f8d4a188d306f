/*
 * privupgrade: from a queued request to a release that is staged; then it becomes privtrial.
 *
 * Who calls: edgeward-upgrade.service, started by edgeward-upgrade.path when something is queued or open; an operator with -n.
 * What is trusted: the command line, and what root alone can write. No frame, and no file of edgeward-net, can name a path, a key, an
 * address or a switch.
 * On error: a request that cannot be served is refused, recorded and gone, and the exit code is 0: update trouble is never the agent's
 * trouble (B95). 1 is for a state directory that cannot be used or written now; the unit tries again later.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "privupgrade/privupgrade.h"

#define USAGE "usage: privupgrade [-vV] [-n release] [-c conf] [-d statedir] [-e edgectl] [-f flood-ms] [-k keys] [-l packaged]\n" \
	"                   [-r rundir] [-S systemctl] [-t start-ms] [-u uid]\n"
#define PAUSE_DOUBLINGS	6	/* 5 s to 5 min 20 s */

static struct updater self;

/* Becomes the privtrial beside us: the old release's judges the new one. Returns on failure only. */
static int
hand_over(char **argv)
{
	static char name[] = "privtrial", option[] = "-s";
	char path[4096] = "", *args[40] = { name, option };
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof(name));
	char *slash = n < 0 ? NULL : strrchr(path, '/');

	if (slash == NULL)
		return -ENOENT;
	memcpy(slash + 1, name, sizeof(name));
	for (unsigned i = 2; i < sizeof(args) / sizeof(args[0]) - 1 && argv[i - 1] != NULL; i++)
		args[i] = argv[i - 1];
	execv(path, args);
	return -errno;
}

static void
begin_state(struct updater *u, const struct inbox *inbox)
{
	struct upgrade_state *s = &u->state;

	*s = (struct upgrade_state){ .attempt = upgrade_history_next(&u->history), .source = inbox->source,
		.sequence = inbox->request.sequence, .version = "-", .peer = "-", .code = "none", .detail = "-" };
	snprintf(s->id, sizeof(s->id), "%s", inbox->request.id[0] != '\0' ? inbox->request.id : "-");
	link_read(u, LINK_CURRENT, s->from);
	if (s->from[0] == '\0' || !target_complete(u, s->from))
		snprintf(s->from, sizeof(s->from), "%s", u->packaged);
	s->from_sequence = target_sequence(u, s->from);
}

/* From the request to a release that is ready to be switched to. Nothing in force has been touched when it fails. */
static int
prepare(struct updater *u, const struct inbox *inbox)
{
	struct fit fit = { .size = inbox->size, .request = &inbox->request, .operator = inbox->source == UPGRADE_OPERATOR,
		.from = u->state.from_sequence, .floor = upgrade_history_floor(&u->history),
		.tries = upgrade_history_tries(&u->history, inbox->request.sequence) };
	static struct release rel;
	struct upgrade_conf conf;
	int r = verify_conf(u, &conf);

	if (r < 0)
		return r;
	u->state.settle = upgrade_settle(&conf, inbox->source, inbox->request.settle);
	r = verify_release(u, inbox->release, &fit, &conf, &rel);
	snprintf(u->state.version, sizeof(u->state.version), "%s", rel.manifest.version[0] != '\0' ? rel.manifest.version : "-");
	if (r < 0)
		return r;
	step(u, "verified: %s, sequence %" PRIu64, rel.manifest.version, rel.manifest.sequence);
	r = store_save_state(u, UPGRADE_STAGING);
	if (r == 0)
		r = stage_release(u, inbox->release, &rel);
	if (r == 0)
		step(u, "staged: %" PRIu64 " bytes", rel.manifest.total);
	return r;
}

/* Whoever floods us with requests costs one process that sleeps, longer after each refusal, so that the record of them does not wear out a
 * flash; an operator need not wait for it. */
static void
pause_after(const struct updater *u)
{
	unsigned n = upgrade_history_refusals(&u->history);
	int64_t ms = u->flood_ms << (n > PAUSE_DOUBLINGS ? PAUSE_DOUBLINGS : n > 0 ? n - 1 : 0);

	flock(u->dir, LOCK_UN);
	for (; ms > 0 && !inbox_has(u, UPGRADE_OPERATOR); ms -= 500)
		usleep((unsigned)(ms < 500 ? ms : 500) * 1000);
}

/* One request, if there is one. 0, -errno. */
static int
serve(struct updater *u, enum upgrade_source source, char **argv)
{
	struct inbox inbox = { .release = -1 };
	int r = inbox_take(u, source, &inbox);
	_cleanup_close_ int release = inbox.release;

	if (r == 0 || (r < 0 && r != -ECANCELED))
		return r;
	unlinkat(u->dir, "progress", 0);
	unlinkat(u->dir, "cancel", 0);
	begin_state(u, &inbox);
	step(u, "request %s of the %s: sequence %" PRIu64, u->state.id, upgrade_source_name(source), u->state.sequence);
	r = r < 0 ? r : prepare(u, &inbox);
	if (r == 0) {
		inbox_forget(u, source);
		return store_fail(u, refuse(&u->why, "io", "privtrial cannot be run: %s", strerror(-hand_over(argv))));
	}
	r = store_fail(u, r);
	if (r == 0)	/* else the disk is full: the request stays until it can be answered */
		inbox_forget(u, source);
	if (r == 0 && source == UPGRADE_HUB)
		pause_after(u);
	return r;
}

static int
run(struct updater *u, char **argv)
{
	int r = updater_open(u);

	if (r <= 0)
		return r;
	if (u->open && u->state.phase != UPGRADE_STAGING)
		return hand_over(argv);
	if (u->open) {
		inbox_forget(u, u->state.source);
		stage_forget(u);
		r = store_fail(u, refuse(&u->why, "interrupted", "it was interrupted before it was in force"));
		if (r < 0)
			return r;
	}
	r = serve(u, UPGRADE_OPERATOR, argv);
	return r < 0 ? r : serve(u, UPGRADE_HUB, argv);
}

/* privupgrade -n: what would be said of this file, in lines; nothing is changed. */
static int
check(struct updater *u, const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	static struct release rel;
	struct upgrade_conf conf;
	struct fit fit = { 0 };
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		fatal("%s: %s", path, fd < 0 ? strerror(errno) : "is not a regular file");
	fit.size = (uint64_t)st.st_size;
	r = verify_conf(u, &conf);
	if (r == 0)
		r = verify_release(u, fd, &fit, &conf, &rel);
	if (r == 0)
		r = stage_files(u, fd, &rel, -1);
	if (r < 0 && r != -ECANCELED)
		refuse(&u->why, "io", "%s", strerror(-r));
	printf("release %s\ncode %s\ndetail %s\n", r == 0 ? "good" : "refused", r == 0 ? "ok" : u->why.code, r == 0 ? "-" : u->why.detail);
	if (r == 0)
		printf("version %s\nsequence %" PRIu64 "\nchannel %s\narch %s\n", rel.manifest.version, rel.manifest.sequence,
		    rel.manifest.channel, rel.manifest.arch);
	return r == 0 && fflush(stdout) == 0 ? 0 : 1;
}

int
main(int argc, char **argv)
{
	int r = updater_options(&self, "privupgrade", argc, argv);

	if (r < 0 || self.at_boot || self.begin) {
		fputs(USAGE, stderr);
		return 2;
	}
	if (r > 0)
		return 0;
	if (self.check != NULL)
		return check(&self, self.check);
	r = run(&self, argv);
	if (r < 0)
		fatal("%s: %s", self.base_path, strerror(-r));
	return 0;
}
