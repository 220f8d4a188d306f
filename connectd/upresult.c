/*
 * What became of upgrades, as privupgrade leaves it in releases/results: the history, readable by everybody. The hub is told of each entry
 * until it has said that it knows, and of a job that ended before privupgrade had it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "connectd/upgrader_impl.h"
#include "version.h"

#define RESULTS	"results"

/* Reads the file if it is another one than before. */
void
upgrader_look(struct upgrader *u)
{
	_cleanup_close_ int dir = open(u->p.releases, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ uint8_t *data = NULL;
	struct stat st;
	int64_t mtime;
	size_t len;

	if (dir < 0 || fstatat(dir, RESULTS, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	mtime = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	if (mtime == u->history_mtime)
		return;
	if (fd_read_file(dir, RESULTS, UPGRADE_RECORD_MAX, &data, &len) < 0 || upgrade_history_parse(data, len, &u->history) < 0)
		log_warn("upgrade: what privupgrade has left in %s cannot be read", u->p.releases);
	u->history_mtime = mtime;
}

static const char *
outcome_of(const struct upgrade_entry *e)
{
	switch (e->outcome) {
	case UPGRADE_OUT_DONE: return "installed";
	case UPGRADE_OUT_BACK: return "rolled_back";
	case UPGRADE_OUT_REFUSED:
	case UPGRADE_OUT_FAILED: break;
	}
	return "refused";
}

/* The version of a sequence, from whoever knows it. */
static const char *
version_of(const struct upgrader *u, uint64_t sequence)
{
	if (sequence != 0 && sequence == u->p.sequence)
		return EDGEWARD_VERSION;
	for (unsigned i = 0; sequence != 0 && i < u->history.n; i++)
		if (u->history.entries[i].to == sequence && strcmp(u->history.entries[i].version, "-") != 0)
			return u->history.entries[i].version;
	return "unknown";
}

static void
fill_entry(const struct upgrader *u, const struct upgrade_entry *e, struct upgrader_result *r)
{
	bool ours = u->job.phase != UPJOB_NONE && strcmp(u->job.id, e->id) == 0;
	const char *to = strcmp(e->version, "-") != 0 ? e->version : version_of(u, e->to);

	*r = (struct upgrader_result){ .attempt = e->attempt, .id = e->id, .outcome = outcome_of(e) };
	snprintf(r->from, sizeof(r->from), "%s", ours ? u->job.from : e->outcome != UPGRADE_OUT_DONE ? EDGEWARD_VERSION : version_of(u, e->from));
	snprintf(r->to, sizeof(r->to), "%s", to);
	snprintf(r->reason, sizeof(r->reason), "%s%s%s", e->outcome == UPGRADE_OUT_DONE ? "" : e->code, e->outcome == UPGRADE_OUT_DONE ? "" : ": ",
	    e->detail);
}

bool
upgrader_result(struct upgrader *u, unsigned i, struct upgrader_result *ret)
{
	if (i == 0)
		upgrader_look(u);
	if (u->job.phase == UPJOB_FAILED && i-- == 0) {
		*ret = (struct upgrader_result){ .id = u->job.id, .outcome = "refused" };
		snprintf(ret->from, sizeof(ret->from), "%s", u->job.from);
		snprintf(ret->to, sizeof(ret->to), "%.31s", strcmp(u->job.version, "-") != 0 ? u->job.version : u->job.target);
		snprintf(ret->reason, sizeof(ret->reason), "%s: %s", u->job.code, u->job.detail);
		return true;
	}
	for (unsigned k = 0; k < u->history.n; k++)
		if (u->history.entries[k].attempt > u->told && i-- == 0) {
			fill_entry(u, &u->history.entries[k], ret);
			return true;
		}
	return false;
}

static void
end_job(struct upgrader *u)
{
	u->job = (struct upjob){ .phase = UPJOB_NONE };
	if (upjob_save(u->p.statedir, &u->job) < 0)
		log_warn("upgrade: its state cannot be removed");
}

void
upgrader_told_job(struct upgrader *u, const char *id)
{
	if (u->job.phase == UPJOB_FAILED && strcmp(u->job.id, id) == 0)
		end_job(u);
}

void
upgrader_told(struct upgrader *u, uint64_t attempt)
{
	if (attempt <= u->told)
		return;
	for (unsigned k = 0; k < u->history.n; k++)
		if (u->history.entries[k].attempt <= attempt && u->history.entries[k].attempt > u->told && u->job.phase == UPJOB_QUEUED &&
		    strcmp(u->history.entries[k].id, u->job.id) == 0)
			end_job(u);
	u->told = attempt;
	if (upjob_save_told(u->p.statedir, attempt) < 0)
		log_warn("upgrade: it cannot be stored that the hub has been told of it");
}
