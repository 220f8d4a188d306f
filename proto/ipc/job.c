/*
 * Everything here ends up in a command line or the environment of git, so that each string has one narrow form, and the form is
 * checked where it comes in and again where it is used.
 */
#include "proto/ipc/job.h"

#include <errno.h>
#include <string.h>

#include "proto/ipc/wire.h"

#define HTTPS	"https://"

static bool
is(const struct work_str *s, const char *text)
{
	return s->len == strlen(text) && memcmp(s->s, text, s->len) == 0;
}

static bool
begins(const struct work_str *s, const char *with)
{
	return s->len >= strlen(with) && memcmp(s->s, with, strlen(with)) == 0;
}

static bool
ends(const struct work_str *s, const char *with)
{
	size_t n = strlen(with);

	return s->len >= n && memcmp(s->s + s->len - n, with, n) == 0;
}

/* Printable ASCII without the characters of but. */
static bool
plain(const struct work_str *s, const char *but)
{
	for (size_t i = 0; i < s->len; i++)
		if (s->s[i] <= ' ' || s->s[i] > '~' || strchr(but, s->s[i]) != NULL)
			return false;
	return true;
}

static bool
hex(const struct work_str *s, size_t digits)
{
	for (size_t i = 0; i < s->len; i++)
		if (!((s->s[i] >= '0' && s->s[i] <= '9') || (s->s[i] >= 'a' && s->s[i] <= 'f')))
			return false;
	return s->len == digits;
}

static bool
no_nul(const struct work_str *s, size_t max)
{
	return s->len <= max && (s->len == 0 || memchr(s->s, '\0', s->len) == NULL);
}

/* Goes into an HTTP header. */
static bool
no_control(const struct work_str *s, size_t max)
{
	for (size_t i = 0; i < s->len; i++)
		if ((unsigned char)s->s[i] < 0x20 || s->s[i] == 0x7f)
			return false;
	return s->len <= max;
}

static bool
repo_ok(const struct work_str *s)
{
	const struct work_str rest = { s->s + strlen(HTTPS), s->len - strlen(HTTPS) };

	return s->len <= JOB_REPO_MAX && begins(s, HTTPS) && plain(s, "?#@\\\"'`<>{}|^") && rest.len > 0 && rest.s[0] != '/' &&
	    rest.s[0] != '-';
}

/* What git takes as the name of a ref; no pattern, no range, no option. */
static bool
ref_ok(const struct work_str *s, size_t max)
{
	if (s->len == 0)
		return true;
	if (s->len > max || !plain(s, "~^:?*[\\\"'`$;&|<>(){}!") || strchr("-+/.@", s->s[0]) != NULL || ends(s, "/") || ends(s, ".") ||
	    ends(s, ".lock"))
		return false;
	for (size_t i = 1; i < s->len; i++) {
		const struct work_str before = { s->s, i };

		if (((s->s[i] == '.' || s->s[i] == '/') && (s->s[i - 1] == '.' || s->s[i - 1] == '/')) || (s->s[i] == '/' && ends(&before, ".lock")))
			return false;
	}
	return true;
}

static bool
shallow_ok(const struct work_str *s)
{
	if (s->len > JOB_SHALLOW_MAX * 41u)
		return false;
	for (size_t i = 0; i < s->len; i += 41) {
		const struct work_str commit = { s->s + i, s->len - i < 40 ? s->len - i : 40 };

		if (!hex(&commit, 40) || (i + 40 < s->len && (s->s[i + 40] != ' ' || i + 41 == s->len)))
			return false;
	}
	return true;
}

static const char *
workspace_problem(const struct work_job *j)
{
	if (j->workspace == JOB_WORKSPACE_GIT) {
		if (!repo_ok(&j->repo))
			return "workspace.repo must be an https URL without user, query, fragment and blanks, of at most 2048 bytes";
		if (!ref_ok(&j->ref, JOB_REF_MAX))
			return "workspace.ref is not the name of a branch, tag or commit";
		if (j->depth > JOB_DEPTH_MAX)
			return "workspace.depth is above 100000";
	} else if (j->repo.len > 0 || j->ref.len > 0 || j->depth > 0 || j->password.len > 0 || j->user.len > 0) {
		return "a repository, ref, depth or credential belongs to a git workspace";
	}
	if (!no_control(&j->user, JOB_CREDENTIAL_MAX) || !no_control(&j->password, JOB_CREDENTIAL_MAX) ||
	    (j->user.len > 0 && memchr(j->user.s, ':', j->user.len) != NULL))
		return "the workspace credential cannot stand in an HTTP header";
	if (j->workspace != JOB_WORKSPACE_BUNDLE)
		return j->head.len + j->sha256.len + j->shallow.len + j->bundle_bytes > 0 ? "a shipped branch belongs to a bundle workspace" : NULL;
	if (!hex(&j->head, 40) || (j->sha256.len > 0 && !hex(&j->sha256, 64)) || !shallow_ok(&j->shallow) ||
	    j->bundle_bytes > JOB_BUNDLE_MAX || j->branch.len == 0)
		return "workspace.branch_bundle is malformed";
	return NULL;
}

static const char *
container_problem(const struct work_job *j)
{
	if (!j->container)
		return j->engine != JOB_ENGINE_ANY || j->image.len + j->runtime.len + j->engine_network.len + j->socket.len > 0 ? "an image, engine, runtime or network "
		    "of an engine belongs to a container" : NULL;
	if ((unsigned)j->engine >= JOB_ENGINES)
		return "the engine must be docker, podman or nerdctl";
	if (!container_image_ok(&j->image))
		return "the image must be a reference of at most 512 characters A-Z a-z 0-9 . _ - / : @ that begins with a letter or digit";
	if (!container_runtime_ok(&j->runtime))
		return "the runtime must be the name of an OCI runtime, at most 64 characters A-Z a-z 0-9 . _ -, never a path";
	if (!container_network_ok(&j->engine_network))
		return "the network must be none, bridge or the name of one of the engine's, and never the host's";
	if (!plain(&j->socket, "") || j->socket.len > CONTAINER_SOCKET_MAX)
		return "the engine's socket is no path";
	return NULL;
}

const char *
job_problem(const struct work_job *j)
{
	const char *why = workspace_problem(j);
	struct work_str base = job_base(j);

	if (why == NULL)
		why = container_problem(j);

	if (why != NULL)
		return why;
	if (j->branch.len > 0 && (!begins(&j->branch, JOB_BRANCH_PREFIX) || is(&j->branch, JOB_BRANCH_PREFIX) ||
	    !ref_ok(&j->branch, JOB_BRANCH_MAX)))
		return "the branch must be the name of one below cloop/, of at most 200 bytes";
	if (!no_nul(&j->message, JOB_MESSAGE_MAX))
		return "write_back.message is longer than 4096 bytes";
	if (j->max_bundle > JOB_BUNDLE_MAX)
		return "write_back.max_bundle_bytes is above 128 MiB";
	if (j->back != JOB_BACK_NONE && (j->branch.len == 0 || !hex(&base, 40)))
		return "a write-back needs a branch, and a workspace that is pinned to a commit of 40 digits";
	if (j->back == JOB_BACK_PUSH && j->workspace != JOB_WORKSPACE_GIT)
		return "a push needs a git workspace";
	if (!no_control(&j->run_id, JOB_LABEL_MAX))
		return "label run_id is longer than 128 bytes";
	if (j->seeded && (j->seed.len < 2 || j->seed.len > JOB_SEED_MAX || memcmp(j->seed.s, "\x1f\x8b", 2) != 0))
		return "project_seed is no gzip of at most 1 MiB";
	return !j->seeded && j->seed.len > 0 ? "a seed without seeding" : NULL;
}

bool
job_is_plain(const struct work_job *j)
{
	return j->workspace == JOB_WORKSPACE_NONE && j->back == JOB_BACK_NONE && !j->seeded && !j->container;
}

struct work_str
job_base(const struct work_job *j)
{
	return j->workspace == JOB_WORKSPACE_BUNDLE ? j->head : j->ref;
}

/* In the order of the wire. */
static struct work_str *const *
strings(struct work_job *j, struct work_str *list[11])
{
	struct work_str *const all[11] = { &j->repo, &j->ref, &j->user, &j->password, &j->branch, &j->message, &j->head, &j->sha256,
		&j->shallow, &j->run_id, &j->seed };

	memcpy(list, all, sizeof(all));
	return list;
}

int
job_encode(const struct work_job *job, void *buf, size_t size, size_t *ret_len)
{
	struct work_job j = *job;
	struct work_str *list[11];
	struct wire_w w;

	if (job_problem(job) != NULL)
		return -EINVAL;
	wire_w_init(&w, buf, size);
	wire_put_u8(&w, (uint8_t)j.workspace);
	wire_put_u8(&w, (uint8_t)j.back);
	wire_put_u8(&w, j.seeded);
	wire_put_u32(&w, j.depth);
	wire_put_u64(&w, j.size_limit);
	wire_put_u64(&w, j.max_bundle);
	wire_put_u64(&w, j.bundle_bytes);
	wire_put_i64(&w, j.expires_at);
	strings(&j, list);
	for (unsigned i = 0; i < 11; i++)
		wire_put_bytes(&w, list[i]->s, list[i]->len);
	if (j.container) {	/* the end of most jobs is here: one that an older workerd noted, too */
		wire_put_u8(&w, (uint8_t)j.engine);
		wire_put_bytes(&w, j.image.s, j.image.len);
		wire_put_bytes(&w, j.runtime.s, j.runtime.len);
		wire_put_bytes(&w, j.engine_network.s, j.engine_network.len);
		wire_put_bytes(&w, j.socket.s, j.socket.len);
	}
	return wire_w_done(&w, ret_len);
}

static void
get_container(struct wire_r *r, struct work_job *job)
{
	uint8_t engine = wire_u8(r);

	job->container = true;
	job->image.s = (const char *)wire_bytes(r, &job->image.len);
	job->runtime.s = (const char *)wire_bytes(r, &job->runtime.len);
	job->engine_network.s = (const char *)wire_bytes(r, &job->engine_network.len);
	job->socket.s = (const char *)wire_bytes(r, &job->socket.len);
	if (engine >= JOB_ENGINES)
		r->err = -EBADMSG;
	else
		job->engine = (enum job_engine)engine;
}

int
job_decode(struct work_job *job, const void *data, size_t len)
{
	struct work_str *list[11];
	struct wire_r r;
	uint8_t workspace, back, seeded;

	memset(job, 0, sizeof(*job));
	wire_r_init(&r, data, len);
	workspace = wire_u8(&r);
	back = wire_u8(&r);
	seeded = wire_u8(&r);
	job->depth = wire_u32(&r);
	job->size_limit = wire_u64(&r);
	job->max_bundle = wire_u64(&r);
	job->bundle_bytes = wire_u64(&r);
	job->expires_at = wire_i64(&r);
	strings(job, list);
	for (unsigned i = 0; i < 11; i++)
		list[i]->s = (const char *)wire_bytes(&r, &list[i]->len);
	if (r.err == 0 && r.p < r.end)
		get_container(&r, job);
	if (wire_done(&r) < 0 || workspace > JOB_WORKSPACE_BUNDLE || back > JOB_BACK_BUNDLE || seeded > 1)
		return -EBADMSG;
	job->workspace = (enum job_workspace)workspace;
	job->back = (enum job_back)back;
	job->seeded = seeded == 1;
	return job_problem(job) == NULL ? 0 : -EBADMSG;
}
