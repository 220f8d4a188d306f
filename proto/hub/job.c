#include "proto/hub/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/base64.h"
#include "proto/hub/rfc3339.h"
#include "proto/ipc/job.h"

#define OVERHEAD	256	/* numbers and lengths of an encoded job */

static enum work_refusal
refuse(enum work_refusal why, char err[START_ERROR], const char *text)
{
	snprintf(err, START_ERROR, "%s", text);
	return why;
}

/* An optional string; false when it is something else. */
static bool
string(const struct json *obj, const char *key, struct work_str *ret_s)
{
	const struct json *j = json_get(obj, key);

	*ret_s = (struct work_str){ 0 };
	if (j == NULL || j->type == JSON_NULL)
		return true;
	if (j->type != JSON_STRING)
		return false;
	*ret_s = (struct work_str){ j->str, j->len };
	return true;
}

static int
word(const struct json *obj, const char *key, const char *const *words)
{
	const char *s = json_get_str(obj, key);
	const struct json *j = json_get(obj, key);

	if (j == NULL || j->type == JSON_NULL)
		return 0;
	for (int i = 0; s != NULL && words[i] != NULL; i++)
		if (strcmp(s, words[i]) == 0)
			return i;
	return -1;
}

static enum work_refusal
take_credential(const struct json *payload, struct work_job *job, char err[START_ERROR])
{
	const struct json *c = json_get(payload, "workspace_credential");
	const char *until = json_get_str(c, "expires_at");

	if (c == NULL || c->type == JSON_NULL || job->workspace != JOB_WORKSPACE_GIT)
		return WORK_OK;
	if (!string(c, "username", &job->user) || !string(c, "password", &job->password) || job->password.len == 0)
		return refuse(WORK_REFUSED_BAD_SPEC, err, "workspace_credential holds no password");
	if (until != NULL && strcmp(until, RFC3339_ZERO) != 0 && rfc3339_parse(until, &job->expires_at) < 0)
		return refuse(WORK_REFUSED_BAD_SPEC, err, "workspace_credential.expires_at is no time");
	return WORK_OK;
}

/* The boundary of a shallow branch, one blank between two: into a buffer of the caller's. */
static bool
take_shallow(const struct json *list, char *buf, size_t size, struct work_str *ret_s)
{
	size_t len = 0;

	*ret_s = (struct work_str){ 0 };
	if (list == NULL || list->type == JSON_NULL)
		return true;
	if (list->type != JSON_ARRAY)
		return false;
	for (const struct json *j = list->child; j != NULL; j = j->next) {
		if (j->type != JSON_STRING || j->len != 40 || len + 41 > size)
			return false;
		if (len > 0)
			buf[len++] = ' ';
		memcpy(buf + len, j->str, 40);
		len += 40;
	}
	*ret_s = (struct work_str){ buf, len };
	return true;
}

static enum work_refusal
take_workspace(const struct json *ws, char *shallow, size_t size, struct work_job *job, char err[START_ERROR])
{
	static const char *const kinds[] = { "", "none", "executor", "git", "bundle", NULL };
	const struct json *bundle = json_get(ws, "branch_bundle");
	int64_t depth, limit, bytes;
	int kind = word(ws, "kind", kinds);

	if (kind < 0)
		return refuse(WORK_REFUSED_UNSUPPORTED, err, "this device provides no workspace of that kind; use git, bundle or executor");
	job->workspace = kind == 3 ? JOB_WORKSPACE_GIT : kind == 4 ? JOB_WORKSPACE_BUNDLE : JOB_WORKSPACE_NONE;
	if (job->workspace == JOB_WORKSPACE_NONE)
		return WORK_OK;
	if (!json_opt_int(ws, "depth", 0, JOB_DEPTH_MAX, &depth) || !json_opt_int(ws, "size_limit_mb", 0, INT64_MAX >> 20, &limit) ||
	    !string(ws, "repo", &job->repo) || !string(ws, "ref", &job->ref))
		return refuse(WORK_REFUSED_BAD_SPEC, err, "the workspace is malformed");
	job->size_limit = (uint64_t)limit << 20;
	if (job->workspace == JOB_WORKSPACE_GIT) {
		job->depth = (uint32_t)depth;
		return WORK_OK;
	}
	job->repo = job->ref = (struct work_str){ 0 };
	if (!string(bundle, "branch", &job->branch) || !string(bundle, "head", &job->head) || !string(bundle, "sha256", &job->sha256) ||
	    !json_opt_int(bundle, "bytes", 0, JOB_BUNDLE_MAX, &bytes) || !take_shallow(json_get(bundle, "shallow"), shallow, size, &job->shallow))
		return refuse(WORK_REFUSED_BAD_SPEC, err, "workspace.branch_bundle is malformed");
	job->bundle_bytes = (uint64_t)bytes;
	return WORK_OK;
}

static enum work_refusal
take_back(const struct json *back, struct work_job *job, char err[START_ERROR])
{
	static const char *const modes[] = { "", "none", "push", "bundle", NULL };
	struct work_str branch;
	int64_t most;
	int mode = word(back, "mode", modes);

	if (mode < 0)
		return refuse(WORK_REFUSED_UNSUPPORTED, err, "this device writes nothing back in that way; use push or bundle");
	job->back = mode == 2 ? JOB_BACK_PUSH : mode == 3 ? JOB_BACK_BUNDLE : JOB_BACK_NONE;
	if (job->back == JOB_BACK_NONE)
		return WORK_OK;
	if (!string(back, "branch", &branch) || !string(back, "message", &job->message) || !json_opt_int(back, "max_bundle_bytes", 0, JOB_BUNDLE_MAX, &most))
		return refuse(WORK_REFUSED_BAD_SPEC, err, "write_back is malformed");
	if (job->branch.len > 0 && (branch.len != job->branch.len || memcmp(branch.s, job->branch.s, branch.len) != 0))
		return refuse(WORK_REFUSED_BAD_SPEC, err, "write_back.branch is another than the shipped one");
	job->branch = branch;
	job->max_bundle = most > 0 ? (uint64_t)most : JOB_BUNDLE_DEFAULT;
	return WORK_OK;
}

static enum work_refusal
take_seed(const struct json *payload, uint8_t **ret_seed, struct work_job *job, char err[START_ERROR])
{
	struct work_str text;
	size_t len = 0;

	if (!string(payload, "project_seed", &text))
		return refuse(WORK_REFUSED_BAD_SPEC, err, "project_seed is no string");
	if (text.len == 0)
		return WORK_OK;
	*ret_seed = malloc(text.len + 4);
	if (*ret_seed == NULL)
		return refuse(WORK_REFUSED_MEMORY_LOW, err, "the agent is out of memory");
	if (base64_decode(*ret_seed, text.len + 4, text.s, text.len, &len) < 0)
		return refuse(WORK_REFUSED_BAD_SPEC, err, "project_seed is no base64");
	job->seeded = true;
	job->seed = (struct work_str){ (const char *)*ret_seed, len };
	return WORK_OK;
}

/* A virtual executor is a container with a firewall of its own (egress.c) and devices, which this device does not lend that way. */
static enum work_refusal
check_virtual(const struct json *virtual, const struct work_job *job, char err[START_ERROR])
{
	const struct json *devices = json_get(virtual, "devices"), *firewall = json_get(virtual, "firewall");
	const char *id = json_get_str(virtual, "id");

	if (virtual == NULL || virtual->type == JSON_NULL || (virtual->type == JSON_OBJECT && virtual->child == NULL))
		return WORK_OK;
	if (id == NULL || strlen(id) < 3 || strlen(id) > 63 || id[0] == '-' || strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(id))
		return refuse(WORK_REFUSED_BAD_SPEC, err, "virtual.id must be 3 to 63 characters a-z 0-9 - that begin with no dash");
	if (!job->container)
		return refuse(WORK_REFUSED_UNSUPPORTED, err, "a virtual executor runs containers only; set the sandbox mode to container");
	if (devices != NULL && devices->type != JSON_NULL && !(devices->type == JSON_ARRAY && devices->child == NULL))
		return refuse(WORK_REFUSED_UNSUPPORTED, err, "this device lends no devices of its own to a container; remove virtual.devices");
	if (firewall != NULL && firewall->type != JSON_NULL && job->engine_network.len > 0 && !container_is(&job->engine_network, "bridge"))
		return refuse(WORK_REFUSED_BAD_SPEC, err, "with virtual.firewall the network must be bridge");
	return WORK_OK;
}

/* What belongs to a container is dropped in every other mode. */
static enum work_refusal
take_container(const struct json *payload, struct work_job *job, char err[START_ERROR])
{
	static const char *const modes[] = { "", "host", "container", NULL }, *const engines[] = { "", "docker", "podman", "nerdctl", NULL };
	const struct json *sandbox = json_get(payload, "sandbox");
	int mode = word(sandbox, "mode", modes), engine;

	if (mode < 0)
		return refuse(WORK_REFUSED_UNSUPPORTED, err, "this device knows no sandbox mode of that name; use host or container");
	job->container = mode == 2;
	if (!job->container)
		return check_virtual(json_get(payload, "virtual"), job, err);
	engine = word(sandbox, "engine", engines);
	if (engine < 0)
		return refuse(WORK_REFUSED_UNSUPPORTED, err, "no container engine here of that name; docker and podman are known");
	job->engine = (enum job_engine)engine;
	if (!string(sandbox, "image", &job->image) || !string(sandbox, "runtime", &job->runtime) ||
	    !string(sandbox, "network", &job->engine_network) || (job->image.len == 0 && !string(json_get(payload, "spec"), "image", &job->image)))
		return refuse(WORK_REFUSED_BAD_SPEC, err, "image, runtime and network must be strings");
	if (job->image.len == 0)
		return refuse(WORK_REFUSED_UNSUPPORTED, err, "the start asks for a container and names no image; set sandbox.image");
	return check_virtual(json_get(payload, "virtual"), job, err);
}

static enum work_refusal
encode(const struct work_job *job, uint8_t **ret_job, size_t *ret_len, char err[START_ERROR])
{
	const struct work_str *const all[] = { &job->repo, &job->ref, &job->user, &job->password, &job->branch, &job->message, &job->head,
		&job->sha256, &job->shallow, &job->run_id, &job->seed, &job->image, &job->runtime, &job->engine_network };
	const char *why = job_problem(job);
	size_t size = OVERHEAD;

	if (job_is_plain(job) && why == NULL)
		return WORK_OK;
	if (why != NULL)
		return refuse(WORK_REFUSED_BAD_SPEC, err, why);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		size += all[i]->len;
	*ret_job = malloc(size);
	if (*ret_job == NULL)
		return refuse(WORK_REFUSED_MEMORY_LOW, err, "the agent is out of memory");
	if (job_encode(job, *ret_job, size, ret_len) == 0)
		return WORK_OK;
	free(*ret_job);
	*ret_job = NULL;
	return refuse(WORK_REFUSED_BAD_SPEC, err, "the workspace, write-back or container is malformed");
}

enum work_refusal
job_from_start(const struct json *payload, uint8_t **ret_job, size_t *ret_len, char err[START_ERROR])
{
	static char shallow[JOB_SHALLOW_MAX * 41];
	const struct json *spec = json_get(payload, "spec");
	struct work_job job = { 0 };
	uint8_t *seed = NULL;
	enum work_refusal why = take_workspace(json_get(spec, "workspace"), shallow, sizeof(shallow), &job, err);

	*ret_job = NULL;
	*ret_len = 0;
	if (why == WORK_OK)
		why = take_credential(payload, &job, err);
	if (why == WORK_OK)
		why = take_back(json_get(spec, "write_back"), &job, err);
	if (why == WORK_OK)
		why = take_seed(payload, &seed, &job, err);
	if (why == WORK_OK)
		why = take_container(payload, &job, err);
	/* A label is bookkeeping: one that cannot be used is none. */
	if (job.seeded && (!string(json_get(spec, "labels"), "run_id", &job.run_id) || job.run_id.len > JOB_LABEL_MAX))
		job.run_id = (struct work_str){ 0 };
	if (why == WORK_OK)
		why = encode(&job, ret_job, ret_len, err);
	free(seed);
	return why;
}
