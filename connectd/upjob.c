#include "connectd/upjob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/keptcopy.h"
#include "connectd/statefile.h"
#include "proto/ipc/names.h"
#include "proto/release/lines.h"

#define JOB_MAX		1024u
#define JOB_WORD	"edgeward-upgrade-job"
#define JOB_SCHEMA	(1u + SCHEMA_RAISED)

static const char *const phases[] = { [UPJOB_NONE] = "none", [UPJOB_FETCH] = "fetch", [UPJOB_QUEUED] = "queued", [UPJOB_FAILED] = "failed" };

static enum upjob_phase
need_phase(struct lines *l)
{
	char word[16];

	lines_need(l, "phase", word, sizeof(word));
	for (unsigned i = UPJOB_FETCH; l->err == 0 && i <= UPJOB_FAILED; i++)
		if (strcmp(word, phases[i]) == 0)
			return (enum upjob_phase)i;
	l->err = -EBADMSG;
	return UPJOB_NONE;
}

static bool
version_ok(const char *s)
{
	return strcmp(s, "-") == 0 || release_version_ok(s);
}

int
upjob_parse(const void *data, size_t len, struct upjob *ret_job)
{
	struct upjob j = { 0 };
	struct uptarget target;
	uint64_t schema;
	struct lines l;

	lines_init(&l, data, len);
	lines_need_u64(&l, JOB_WORD, 1, JOB_SCHEMA, &schema);
	j.phase = need_phase(&l);
	lines_need(&l, "id", j.id, sizeof(j.id));
	lines_need(&l, "target", j.target, sizeof(j.target));
	lines_need(&l, "from", j.from, sizeof(j.from));
	lines_need(&l, "version", j.version, sizeof(j.version));
	lines_need_u64(&l, "sequence", 0, RELEASE_SEQUENCE_MAX, &j.sequence);
	lines_need_u64(&l, "settle", 0, UPGRADE_SETTLE_MAX, &j.settle);
	lines_need_u64(&l, "tries", 0, UINT32_MAX, &j.tries);
	lines_need(&l, "code", j.code, sizeof(j.code));
	lines_need(&l, "detail", j.detail, sizeof(j.detail));
	if (lines_done(&l) < 0 || !handle_ok(j.id) || uptarget_parse(j.target, &target) < 0 || !version_ok(j.from) || !version_ok(j.version) ||
	    !release_word_ok(j.code))
		return -EBADMSG;
	*ret_job = j;
	return 0;
}

int
upjob_write(const struct upjob *j, char *buf, size_t size)
{
	int n = snprintf(buf, size, JOB_WORD " %u\nphase %s\nid %s\ntarget %s\nfrom %s\nversion %s\nsequence %" PRIu64 "\nsettle %" PRIu64
	    "\ntries %" PRIu64 "\ncode %s\ndetail %s\n", JOB_SCHEMA, phases[j->phase], j->id, j->target, j->from, j->version, j->sequence, j->settle, j->tries,
	    j->code[0] != '\0' ? j->code : "none", j->detail[0] != '\0' ? j->detail : "-");

	return n > 0 && (size_t)n < size ? n : -EMSGSIZE;
}

static unsigned
schema_of_job(const uint8_t *data, size_t len)
{
	return schema_number(data, len, JOB_WORD " ");
}

static const struct schema job_file = { .name = UPJOB_FILE, .max = JOB_MAX, .now = JOB_SCHEMA, .of = schema_of_job };

static int
take_job(const uint8_t *data, size_t len, void *ctx)
{
	return upjob_parse(data, len, ctx);
}

void
upjob_load(int dir, struct upjob *ret_job)
{
	int err;

	*ret_job = (struct upjob){ .phase = UPJOB_NONE };
	(void)keptcopy_restore(dir, &job_file);
	(void)statefile_load(dir, UPJOB_FILE, JOB_MAX, take_job, ret_job, NULL, &err);
}

int
upjob_save(int dir, const struct upjob *job)
{
	char buf[JOB_MAX];
	int n;

	if (job->phase == UPJOB_NONE)
		return unlinkat(dir, UPJOB_FILE, 0) < 0 && errno != ENOENT ? -errno : 0;
	n = upjob_write(job, buf, sizeof(buf));
	return n < 0 ? n : keptcopy_replace(dir, &job_file, buf, (size_t)n, 0600);
}

static int
take_told(const uint8_t *data, size_t len, void *ctx)
{
	uint64_t attempt = 0;
	struct lines l;

	lines_init(&l, data, len);
	lines_need_u64(&l, "edgeward-upgrade-told", 0, UINT32_MAX, &attempt);
	if (lines_done(&l) < 0)
		return -EBADMSG;
	*(uint64_t *)ctx = attempt;
	return 0;
}

int
upjob_load_told(int dir, uint64_t *ret_attempt)
{
	int err;
	enum statefile_found found = statefile_load(dir, UPJOB_TOLD, 64, take_told, ret_attempt, NULL, &err);

	return found == STATEFILE_GOOD || found == STATEFILE_RECOVERED ? 0 : -ENOENT;
}

int
upjob_save_told(int dir, uint64_t attempt)
{
	char buf[64];
	int n = snprintf(buf, sizeof(buf), "edgeward-upgrade-told %" PRIu64 "\n", attempt);

	return fd_replace_file(dir, UPJOB_TOLD, buf, (size_t)n, 0600);
}
