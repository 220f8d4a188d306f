/*
 * start.payload -> work_spec. Everything that would make the workload run in another way than the hub believes is
 * refused by name: a refusal is always better than a downgrade (cloop.md part A). Hints that execute nothing (harness,
 * image in host mode, labels) are read past.
 */
#include "proto/hub/start.h"
#include "proto/hub/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/egress.h"

#define SPEC_OVERHEAD	2048	/* numbers, handle and work_dir of an encoded spec */
#define NET_OVERHEAD	(2 * (2 * FW_CIDRS * 22 + 1024))	/* two firewalls */
#define MINUTES_MAX	(366 * 24 * 60)

static enum work_refusal
refuse(enum work_refusal why, char err[START_ERROR], const char *text)
{
	snprintf(err, START_ERROR, "%s", text);
	return why;
}

static enum work_refusal
malformed(char err[START_ERROR], const char *text)
{
	return refuse(WORK_REFUSED_BAD_SPEC, err, text);
}

/* True for a member that asks for something: absent, null, "", false, 0, [] and {} do not. */
static bool
asks(const struct json *obj, const char *key)
{
	const struct json *j = json_get(obj, key);

	if (j == NULL || j->type == JSON_NULL)
		return false;
	switch (j->type) {
	case JSON_STRING:
		return j->len > 0;
	case JSON_BOOL:
	case JSON_INT:
		return j->i != 0;
	case JSON_REAL:
		return true;
	case JSON_ARRAY:
	case JSON_OBJECT:
		return j->child != NULL;
	case JSON_NULL:
		break;
	}
	return false;
}

struct wish {
	const char *key, *text;
};

static const struct wish spec_wishes[] = {
	{ "setup_commands", "this device runs no container setup commands; remove setup_commands" },
	{ "mounts", "this device mounts nothing into a container but its work directory; remove mounts" },
	{ "host_mounts", "this device mounts nothing of its own into a container; remove host_mounts" },
	{ "devices", "this device lends no devices of its own to a container; remove devices from the spec" },
	{ "interfaces", "this device lends no network interfaces; remove interfaces" },
	{ "egress_scope", "this device knows no egress scopes; send egress_rules and remove egress_scope" },
};

static enum work_refusal
check_wishes(const struct json *obj, const struct wish *wishes, size_t n, char err[START_ERROR])
{
	for (size_t i = 0; i < n; i++)
		if (asks(obj, wishes[i].key))
			return refuse(WORK_REFUSED_UNSUPPORTED, err, wishes[i].text);
	return WORK_OK;
}

static bool
take_numbers(const struct json *spec, struct work_spec *out)
{
	const struct json *limits = json_get(spec, "resource_limits");
	int64_t minutes, cpu, mem, disk, pids;

	if (limits != NULL && limits->type != JSON_OBJECT && limits->type != JSON_NULL)
		return false;
	if (!json_opt_int(spec, "timeout_minutes", 0, MINUTES_MAX, &minutes) || !json_opt_int(limits, "cpu_millis", 0, UINT32_MAX, &cpu) ||
	    !json_opt_int(limits, "memory_mb", 0, INT64_MAX >> 20, &mem) || !json_opt_int(limits, "disk_mb", 0, INT64_MAX >> 20, &disk) ||
	    !json_opt_int(limits, "pids", 0, UINT32_MAX, &pids))
		return false;
	out->timeout_s = (uint32_t)minutes * 60;
	out->cpu_millis = (uint32_t)cpu;
	out->memory_bytes = (uint64_t)mem << 20;
	out->disk_bytes = (uint64_t)disk << 20;
	out->pids = (uint32_t)pids;
	return true;
}

static bool
take_list(const struct json *list, struct work_str *dst, uint32_t max, uint32_t *ret_n)
{
	uint32_t n = 0;

	if (list->type != JSON_ARRAY)
		return false;
	for (const struct json *j = list->child; j != NULL; j = j->next, n++) {
		if (n == max || j->type != JSON_STRING)
			return false;
		dst[n] = (struct work_str){ j->str, j->len };
	}
	*ret_n = n;
	return true;
}

/* The forwarded devices it leases, by the ids the hub gave them. */
static bool
take_devices(const struct json *payload, char dst[DEVICE_LIST_SIZE])
{
	const struct json *list = json_get(payload, "devices");
	size_t len = 0;

	if (list == NULL || list->type == JSON_NULL)
		return true;
	if (list->type != JSON_ARRAY)
		return false;
	for (const struct json *j = list->child; j != NULL; j = j->next) {
		if (j->type != JSON_STRING || strlen(j->str) != j->len || !device_id_ok(j->str) || len + j->len + 2 > DEVICE_LIST_SIZE)
			return false;
		len += (size_t)snprintf(dst + len, DEVICE_LIST_SIZE - len, "%s%s", len > 0 ? " " : "", j->str);
	}
	return true;
}

/* Labels are bookkeeping, but for the two of ours. This one is the time that timeout_minutes was rounded up from. */
static bool
take_timeout(const struct json *spec, struct work_spec *out)
{
	const struct json *label = json_get(json_get(spec, "labels"), WORK_TIMEOUT_LABEL);
	uint64_t v = 0;

	if (label == NULL || label->type == JSON_NULL)
		return true;
	if (label->type != JSON_STRING || label->len == 0 || label->len > 9 || label->str[0] == '0')
		return false;
	for (size_t i = 0; i < label->len; i++) {
		if (label->str[i] < '0' || label->str[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(label->str[i] - '0');
	}
	out->asked_s = (uint32_t)v;
	return v <= out->timeout_s;
}

static bool
take_overflow(const struct json *spec, struct work_spec *out)
{
	const struct json *label = json_get(json_get(spec, "labels"), WORK_OVERFLOW_LABEL);
	int r;

	if (label == NULL || label->type == JSON_NULL)
		return true;
	r = label->type == JSON_STRING && strlen(label->str) == label->len ? work_overflow_parse(label->str) : -EINVAL;
	out->overflow = r > 0 ? (uint8_t)r : WORK_OVERFLOW_DEVICE;
	return r > 0;
}

static bool
blank(const struct work_str *s)
{
	for (size_t i = 0; i < s->len; i++)
		if (s->s[i] != ' ' && s->s[i] != '\t' && s->s[i] != '\n' && s->s[i] != '\r')
			return false;
	return true;
}

static enum work_refusal
take_spec(const struct json *spec, const char *handle, struct work_spec *out, char err[START_ERROR])
{
	const struct json *argv = json_get(spec, "argv"), *env = json_get(spec, "env"), *dir = json_get(spec, "work_dir");

	snprintf(out->handle, sizeof(out->handle), "%s", handle);
	if (dir != NULL && dir->type != JSON_NULL && !json_copy_str(spec, "work_dir", out->work_dir, sizeof(out->work_dir)))
		return malformed(err, "work_dir is no string of at most 1023 bytes");
	if (argv == NULL || !take_list(argv, out->argv, WORK_ARGV_MAX, &out->argc) || out->argc == 0 || blank(&out->argv[0]))
		return malformed(err, "argv must be a list of at most 4096 strings that begins with a program");
	out->env_given = env != NULL && env->type != JSON_NULL;
	if (out->env_given && !take_list(env, out->env, WORK_ENV_MAX, &out->envc))
		return malformed(err, "env must be a list of at most 4096 strings of the form NAME=VALUE");
	if (!take_numbers(spec, out))
		return malformed(err, "timeout_minutes or a resource limit is no number this device can use");
	if (!take_timeout(spec, out))
		return refuse(WORK_REFUSED_UNSUPPORTED, err, "the label " WORK_TIMEOUT_LABEL " must be a number of seconds, and no more than timeout_minutes");
	if (!take_overflow(spec, out))
		return refuse(WORK_REFUSED_UNSUPPORTED, err, "the label " WORK_OVERFLOW_LABEL " must be wait, wait-forever or drop");
	return WORK_OK;
}

static enum work_refusal
take_network(const struct json *payload, const struct json *spec, struct work_spec *out, char err[START_ERROR])
{
	bool bad = false;
	const char *why = egress_decode(spec, out, &bad);

	if (why == NULL)
		why = egress_of_virtual(payload, out, &bad);
	return why == NULL ? WORK_OK : refuse(bad ? WORK_REFUSED_BAD_SPEC : WORK_REFUSED_UNSUPPORTED, err, why);
}

static enum work_refusal
encode(const struct work_spec *spec, uint8_t **ret_spec, size_t *ret_len, char err[START_ERROR])
{
	size_t size = SPEC_OVERHEAD + spec->secrets.len + spec->job.len + (spec->network == WORK_NETWORK_FILTERED ? NET_OVERHEAD : 0);
	uint8_t *buf;

	for (uint32_t i = 0; i < spec->argc; i++)
		size += 4 + spec->argv[i].len;
	for (uint32_t i = 0; i < spec->envc; i++)
		size += 4 + spec->env[i].len;
	if (size > WORK_SPEC_MAX)
		return malformed(err, "argv and env together are larger than 1 MiB");
	buf = malloc(size);
	if (buf == NULL)
		return refuse(WORK_REFUSED_MEMORY_LOW, err, "the agent is out of memory");
	if (work_spec_encode(spec, buf, size, ret_len) < 0) {
		explicit_bzero(buf, size);
		free(buf);
		return malformed(err, "env must be a list of strings of the form NAME=VALUE");
	}
	*ret_spec = buf;
	return WORK_OK;
}

enum work_refusal
start_decode(const struct json *payload, const char *handle, uint8_t **ret_spec, size_t *ret_len,
    char err[START_ERROR])
{
	/* Views only; touched as far as the longest list so far. */
	static struct work_str argv[WORK_ARGV_MAX], env[WORK_ENV_MAX];
	static struct work_net net;
	const struct json *spec = json_get(payload, "spec"), *id = json_get(payload, "handle_id");
	struct work_spec out = { .argv = argv, .env = env, .net = &net };
	uint8_t *secrets = NULL, *job = NULL;
	size_t nsecrets = 0, njob = 0;
	enum work_refusal why;

	if (!handle_ok(handle))
		return malformed(err, "the handle is not 1 to 64 characters of A-Z a-z 0-9 _ -");
	if (id != NULL && id->type != JSON_NULL && (id->type != JSON_STRING || strcmp(id->str, handle) != 0))
		return malformed(err, "handle and handle_id differ");
	if (spec == NULL || spec->type != JSON_OBJECT)
		return malformed(err, "the start holds no spec");
	why = take_spec(spec, handle, &out, err);
	if (why == WORK_OK)
		why = check_wishes(spec, spec_wishes, sizeof(spec_wishes) / sizeof(spec_wishes[0]), err);
	if (why == WORK_OK && !take_devices(payload, out.devices))
		why = malformed(err, "devices must be a list of at most eight ids of devices that were opened");
	if (why == WORK_OK)
		why = take_network(payload, spec, &out, err);
	if (why == WORK_OK)
		why = start_secrets(payload, &secrets, &nsecrets, err);
	if (why == WORK_OK)
		why = job_from_start(payload, &job, &njob, err);
	out.secrets = (struct work_str){ (const char *)secrets, nsecrets };
	out.job = (struct work_str){ (const char *)job, njob };
	if (why == WORK_OK)
		why = encode(&out, ret_spec, ret_len, err);
	if (job != NULL)
		explicit_bzero(job, njob);	/* it may hold a credential */
	free(job);
	if (secrets != NULL)
		explicit_bzero(secrets, nsecrets);
	free(secrets);
	return why;
}
