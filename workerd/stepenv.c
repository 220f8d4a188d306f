#include "workerd/stepenv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workerd/steps.h"	/* generated */

#define TEXT_MAX	(64u << 10)
#define VARS_MAX	40u
#define MEMORY_MIN	(256ull << 20)	/* git with a repository of ordinary size */
#define PIDS_MIN	64u

static struct {
	char text[TEXT_MAX];
	size_t len;
	struct work_str vars[VARS_MAX], words[4];
	uint32_t n;
	bool full;
} step;

static void
add(const char *name, const char *value, size_t len)
{
	size_t nlen = strlen(name), size = nlen + 1 + len;

	if (step.n == VARS_MAX || size > sizeof(step.text) - step.len) {
		step.full = true;
		return;
	}
	step.vars[step.n++] = (struct work_str){ step.text + step.len, size };
	memcpy(step.text + step.len, name, nlen);
	step.text[step.len + nlen] = '=';
	if (len > 0)
		memcpy(step.text + step.len + nlen + 1, value, len);
	step.len += size;
}

static void
add_str(const char *name, const struct work_str *s)
{
	add(name, s->s, s->len);
}

static void
add_text(const char *name, const char *s)
{
	add(name, s, strlen(s));
}

static void
add_number(const char *name, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, v);
	add_text(name, text);
}

/* How this machine reaches the world, as its administrator set it for workerd (reference cloop.md 5.8). */
static void
add_ways_out(void)
{
	static const char *const names[] = { "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy", "GIT_SSL_CAINFO",
		"GIT_SSL_CAPATH", "SSL_CERT_FILE", "SSL_CERT_DIR" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]) != NULL)
			add_text(names[i], getenv(names[i]));
}

static const char *
kind_of(const struct work_job *job)
{
	return job->workspace == JOB_WORKSPACE_GIT ? "git" : job->workspace == JOB_WORKSPACE_BUNDLE ? "bundle" : "none";
}

static void
add_remote(const struct work_job *job)
{
	add_ways_out();
	add_str("EW_REPO", &job->repo);
	add_str("EW_USER", &job->user);
	add_str("EW_PASSWORD", &job->password);
}

static void
add_fetch(const struct work_job *job)
{
	add_remote(job);
	add_str("EW_REF", &job->ref);
	if (job->depth > 0)
		add_number("EW_DEPTH", job->depth);
	add_str("EW_HEAD", &job->head);
	add_str("EW_SHA256", &job->sha256);
	add_str("EW_SHALLOW", &job->shallow);
	add_number("EW_BYTES", job->bundle_bytes);
}

static void
add_place(const struct work_job *job)
{
	struct work_str run = job->run_id;

	/* It goes into a JSON string of the script's. */
	for (size_t i = 0; i < run.len; i++)
		if (run.s[i] == '"' || run.s[i] == '\\')
			run.len = 0;
	add_str("EW_RUN", &run);
	add_number("EW_SEEDED", job->seeded);
}

static void
add_collect(const struct work_job *job, bool good)
{
	static const char *const modes[] = { [JOB_BACK_NONE] = "none", [JOB_BACK_PUSH] = "push", [JOB_BACK_BUNDLE] = "bundle" };
	struct work_str base = job_base(job);

	add_text("EW_BACK", modes[good ? job->back : JOB_BACK_NONE]);
	add_str("EW_BASE", &base);
	add("EW_MESSAGE", job->message.len > 0 ? job->message.s : "Work of a run", job->message.len > 0 ? job->message.len : 13);
	add_number("EW_MAX", job->max_bundle);
	add_number("EW_SEEDED", job->seeded);
}

static void
raise_limits(struct work_spec *spec)
{
	if (spec->memory_bytes != 0 && spec->memory_bytes < MEMORY_MIN)
		spec->memory_bytes = MEMORY_MIN;
	if (spec->pids != 0 && spec->pids < PIDS_MIN)
		spec->pids = PIDS_MIN;
}

static void
begin(void)
{
	step.n = 0;
	step.len = 0;
	step.full = false;
	add_text("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
}

static void
finish(struct work_spec *spec, const char *script)
{
	step.words[0] = (struct work_str){ "/bin/sh", 7 };
	step.words[1] = (struct work_str){ "-c", 2 };
	step.words[2] = (struct work_str){ script, strlen(script) };
	step.words[3] = (struct work_str){ "edgeward", 8 };
	spec->argv = step.words;
	spec->argc = 4;
	spec->env = step.vars;
	spec->envc = step.n;
	spec->env_given = true;
	spec->secrets = (struct work_str){ 0 };
	raise_limits(spec);
}

int
stepenv_make(struct work_spec *spec, const struct work_job *job, enum stage stage, const char *head, bool good)
{
	static const char *const scripts[STAGES] = { [STAGE_FETCH] = step_fetch, [STAGE_PLACE] = step_place, [STAGE_CLEAN] = step_clean,
		[STAGE_COLLECT] = step_collect, [STAGE_PUSH] = step_push };

	begin();
	add_text("HOME", "/nonexistent");
	add_text("EW_KIND", kind_of(job));
	add_number("EW_LIMIT", job->size_limit);
	add_str("EW_BRANCH", &job->branch);
	if (stage == STAGE_FETCH)
		add_fetch(job);
	else if (stage == STAGE_PLACE)
		add_place(job);
	else if (stage == STAGE_COLLECT)
		add_collect(job, good);
	else if (stage == STAGE_PUSH) {
		add_remote(job);
		add_text("EW_HEAD", head);
	}
	finish(spec, scripts[stage]);
	return step.full ? -E2BIG : 0;
}

void
stepenv_install(struct work_spec *spec, const struct harness_source *source, const char *home)
{
	begin();
	add_ways_out();
	add_text("HOME", home);
	add_text("EW_NAME", source->name);
	add_text("EW_URL", source->url);
	add_text("EW_DOMAIN", source->domain);
	finish(spec, step_install);
}

void
stepenv_wipe(void)
{
	explicit_bzero(step.text, step.len);
}
