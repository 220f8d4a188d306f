#include "common/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/parse.h"

#define FILE_MAX	65536
#define LINE_MAX_LEN	198	/* inih's buffer is 200 bytes with newline and NUL */
#define KEYS_MAX	64

enum key_type { KEY_STR, KEY_BOOL, KEY_U32, KEY_MS, KEY_SIZE, KEY_CHOICE };

struct key {
	const char *section, *name;
	enum key_type type;
	size_t offset;
	uint64_t min, max;
	const char *const *choices;	/* NULL-terminated; the index is the enum's value */
	const char *def;
};

static const char *const overflow_choices[] = { "wait", "wait-forever", "drop", NULL };
static const char *const sandbox_choices[] = { "require", "best-effort", NULL };
static const char *const dialect_choices[] = { "auto", "cloop", NULL };
static const char *const level_choices[] = { "debug", "info", "warn", "error", NULL };

#define HOUR	3600000u
#define SPOOL_MIN	(1u << 20)	/* sixteen segments of 64 KiB */
#define C(field)	offsetof(struct conf, field)
#define P(field)	offsetof(struct policy, field)

static const struct key conf_keys[] = {
	{ "hub", "url", KEY_STR, C(hub_url), 0, 0, NULL, "" },
	{ "hub", "pin", KEY_STR, C(hub_pin), 0, 0, NULL, "" },
	{ "hub", "ca-file", KEY_STR, C(hub_ca_file), 0, 0, NULL, "" },
	{ "hub", "token-file", KEY_STR, C(hub_token_file), 0, 0, NULL, "" },
	{ "hub", "proxy", KEY_STR, C(hub_proxy), 0, 0, NULL, "" },
	{ "hub", "no-proxy", KEY_STR, C(hub_no_proxy), 0, 0, NULL, "" },
	{ "hub", "insecure-transport", KEY_BOOL, C(hub_insecure), 0, 0, NULL, "no" },
	{ "hub", "dialect", KEY_CHOICE, C(hub_dialect), 0, 0, dialect_choices, "auto" },
	{ "link", "connect-timeout", KEY_MS, C(connect_timeout), 1000, 10 * 60000, NULL, "30s" },
	{ "link", "handshake-timeout", KEY_MS, C(handshake_timeout), 1000, 10 * 60000, NULL, "15s" },
	{ "link", "write-timeout", KEY_MS, C(write_timeout), 1000, 10 * 60000, NULL, "20s" },
	{ "link", "heartbeat", KEY_MS, C(heartbeat), 100, 5 * 60000, NULL, "15s" },
	{ "link", "dead-after", KEY_MS, C(dead_after), 200, 10 * 60000, NULL, "30s" },
	{ "link", "retry-min", KEY_MS, C(retry_min), 1, 60000, NULL, "1s" },
	{ "link", "retry-max-local", KEY_MS, C(retry_max_local), 1, 5 * 60000, NULL, "12s" },
	{ "link", "retry-max", KEY_MS, C(retry_max), 1, 5 * 60000, NULL, "120s" },
	{ "link", "stable-after", KEY_MS, C(stable_after), 0, HOUR, NULL, "60s" },
	{ "device", "name", KEY_STR, C(device_name), 0, 63, NULL, "" },
	{ "device", "labels", KEY_STR, C(device_labels), 0, 0, NULL, "" },
	{ "work", "root", KEY_STR, C(work_root), 0, 0, NULL, "/var/lib/edgeward/work" },
	{ "work", "slots", KEY_U32, C(work_slots), 0, 1024, NULL, "0" },
	{ "work", "retain", KEY_SIZE, C(work_retain), 65536, 64u << 20, NULL, "1M" },
	{ "work", "spool", KEY_SIZE, C(work_spool), 0, 1ull << 40, NULL, "0" },
	{ "work", "spool-total", KEY_SIZE, C(work_spool_total), SPOOL_MIN, 1ull << 40, NULL, "256M" },
	{ "work", "overflow", KEY_CHOICE, C(work_overflow), 0, 0, overflow_choices, "wait" },
	{ "work", "overflow-wait", KEY_MS, C(work_overflow_wait), 0, 24 * HOUR, NULL, "60s" },
	{ "work", "kill-grace", KEY_MS, C(work_kill_grace), 0, HOUR, NULL, "5s" },
	{ "work", "disk-low", KEY_SIZE, C(work_disk_low), 0, UINT64_MAX, NULL, "64M" },
	{ "work", "sandbox", KEY_CHOICE, C(work_sandbox), 0, 0, sandbox_choices, "require" },
	{ "log", "level", KEY_CHOICE, C(log_level), 0, 0, level_choices, "info" },
};

static const struct key policy_keys[] = {
	{ "work", "start", KEY_BOOL, P(start), 0, 0, NULL, "yes" },
	{ "work", "max-timeout", KEY_U32, P(max_timeout_s), 0, 366 * 86400, NULL, "0" },
};

struct parser {
	const struct key *keys;
	size_t nkeys;
	void *target;
	const char *name;		/* of the file */
	const char *p, *end;
	unsigned line;
	bool seen[KEYS_MAX];
	char *err;
};

static int
set_choice(const struct key *key, void *field, const char *value)
{
	for (unsigned i = 0; key->choices[i] != NULL; i++) {
		if (strcmp(value, key->choices[i]) == 0) {
			memcpy(field, &i, sizeof(i));
			return 0;
		}
	}
	return -EINVAL;
}

static int
set_str(const struct key *key, char *field, const char *value)
{
	size_t len = strlen(value);

	if (len >= CONF_STR || (key->max != 0 && len > key->max))
		return -ERANGE;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
			return -EINVAL;
	memset(field, 0, CONF_STR);
	memcpy(field, value, len);
	return 0;
}

static int
set_bool(bool *field, const char *value)
{
	int v, r = parse_yes_no(value, &v);

	if (r == 0)
		*field = v != 0;
	return r;
}

static int
set_value(const struct key *key, void *target, const char *value)
{
	void *field = (char *)target + key->offset;

	switch (key->type) {
	case KEY_STR:
		return set_str(key, field, value);
	case KEY_BOOL:
		return set_bool(field, value);
	case KEY_U32:
		return parse_u32(value, (uint32_t)key->min, (uint32_t)key->max, field);
	case KEY_MS:
		return parse_duration_ms(value, (int64_t)key->min, (int64_t)key->max, field);
	case KEY_SIZE:
		return parse_size(value, key->min, key->max, field);
	case KEY_CHOICE:
		return set_choice(key, field, value);
	}
	return -EINVAL;
}

/* What a good value looks like, for the message. */
static void
expected(const struct key *key, char *buf, size_t size)
{
	size_t o;

	switch (key->type) {
	case KEY_STR:
		snprintf(buf, size, "printable text of at most %u bytes", key->max != 0 ? (unsigned)key->max : CONF_STR - 1);
		return;
	case KEY_BOOL:
		snprintf(buf, size, "yes or no");
		return;
	case KEY_U32:
		snprintf(buf, size, "a number from %llu to %llu", (unsigned long long)key->min,
		    (unsigned long long)key->max);
		return;
	case KEY_MS:
		snprintf(buf, size, "a time from %llums to %llus, with unit ms, s, m or h", (unsigned long long)key->min,
		    (unsigned long long)key->max / 1000);
		return;
	case KEY_SIZE:
		snprintf(buf, size, "a size of at least %llu bytes, with unit K, M or G", (unsigned long long)key->min);
		return;
	case KEY_CHOICE:
		o = (size_t)snprintf(buf, size, "one of");
		for (unsigned i = 0; key->choices[i] != NULL && o < size; i++)
			o += (size_t)snprintf(buf + o, size - o, " %s", key->choices[i]);
		return;
	}
}

static int
fail(struct parser *p, const char *what, const char *section, const char *name, const char *value)
{
	char sec[LOG_QUOTE_SIZE], key[LOG_QUOTE_SIZE], val[LOG_QUOTE_SIZE];

	if (p->err[0] == '\0')
		snprintf(p->err, CONF_ERR_SIZE, "%s:%u: %s: [%s] %s%s%s", p->name, p->line, what,
		    log_quote(sec, sizeof(sec), section, strlen(section)), log_quote(key, sizeof(key), name, strlen(name)),
		    value != NULL ? " = " : "",
		    value != NULL ? log_quote(val, sizeof(val), value, strlen(value)) : "");
	return 0;
}

/* inih's handler: 1 = good. */
static int
on_key(void *user, const char *section, const char *name, const char *value)
{
	struct parser *p = user;
	char want[160], what[200];

	for (size_t i = 0; i < p->nkeys; i++) {
		const struct key *key = &p->keys[i];

		if (strcmp(section, key->section) != 0 || strcmp(name, key->name) != 0)
			continue;
		if (p->seen[i])
			return fail(p, "key given twice", section, name, NULL);
		p->seen[i] = true;
		if (set_value(key, p->target, value != NULL ? value : "") == 0)
			return 1;
		expected(key, want, sizeof(want));
		snprintf(what, sizeof(what), "bad value, expected %s", want);
		return fail(p, what, section, name, value != NULL ? value : "");
	}
	return fail(p, "unknown key", section, name, NULL);
}

/* inih's reader: one line from memory, counting lines. */
static char *
next_line(char *buf, int size, void *stream)
{
	struct parser *p = stream;
	const char *nl;
	size_t len;

	if (p->p == p->end || p->err[0] != '\0')
		return NULL;
	nl = memchr(p->p, '\n', (size_t)(p->end - p->p));
	len = nl != NULL ? (size_t)(nl - p->p) : (size_t)(p->end - p->p);
	p->line++;
	if (len > LINE_MAX_LEN || len >= (size_t)size) {
		snprintf(p->err, CONF_ERR_SIZE, "%s:%u: line longer than %d bytes", p->name, p->line, LINE_MAX_LEN);
		return NULL;
	}
	memcpy(buf, p->p, len);
	buf[len] = '\0';
	p->p += len + (nl != NULL);
	if ((buf[0] == ' ' || buf[0] == '\t') && strspn(buf, " \t\r") < len) {
		snprintf(p->err, CONF_ERR_SIZE, "%s:%u: line begins with white space (no continuation lines here)", p->name,
		    p->line);
		return NULL;
	}
	/* inih goes on after such a line and tells of it last; the first error is the one to show. */
	if (strspn(buf, " \t\r") < len && buf[0] != '#' && buf[0] != ';' && strpbrk(buf, buf[0] == '[' ? "]" : "=:") == NULL) {
		snprintf(p->err, CONF_ERR_SIZE, "%s:%u: not a section, a key or a comment", p->name, p->line);
		return NULL;
	}
	return buf;
}

static int
run(struct parser *p, const char *text, size_t len, char err[CONF_ERR_SIZE])
{
	int r;

	err[0] = '\0';
	p->err = err;
	for (size_t i = 0; i < p->nkeys; i++)
		if (set_value(&p->keys[i], p->target, p->keys[i].def) < 0)
			return -EINVAL;
	if (memchr(text, '\0', len) != NULL) {
		snprintf(err, CONF_ERR_SIZE, "%s: holds a NUL byte", p->name);
		return -EINVAL;
	}
	p->p = text;
	p->end = text + len;
	r = ini_parse_stream(next_line, p, on_key, p);
	if (r != 0 && err[0] == '\0')
		snprintf(err, CONF_ERR_SIZE, "%s:%d: not a section, a key or a comment", p->name, r > 0 ? r : 0);
	return err[0] != '\0' ? -EINVAL : 0;
}

int
conf_parse(struct conf *conf, const char *name, const char *text, size_t len, char err[CONF_ERR_SIZE])
{
	struct parser p = { .keys = conf_keys, .nkeys = sizeof(conf_keys) / sizeof(conf_keys[0]), .target = conf,
		.name = name };
	int r = run(&p, text, len, err);

	if (r == 0 && conf->dead_after < conf->heartbeat) {
		snprintf(err, CONF_ERR_SIZE, "%s: [link] dead-after must not be shorter than heartbeat", name);
		return -EINVAL;
	}
	if (r == 0 && (conf->retry_min > conf->retry_max_local || conf->retry_max_local > conf->retry_max)) {
		snprintf(err, CONF_ERR_SIZE, "%s: [link] must have retry-min <= retry-max-local <= retry-max", name);
		return -EINVAL;
	}
	if (r == 0 && conf->work_spool != 0 && (conf->work_spool < SPOOL_MIN || conf->work_spool > conf->work_spool_total)) {
		snprintf(err, CONF_ERR_SIZE, "%s: [work] spool must be 0, or at least 1M and not more than spool-total", name);
		return -EINVAL;
	}
	return r;
}

int
policy_parse(struct policy *policy, const char *name, const char *text, size_t len, char err[CONF_ERR_SIZE])
{
	struct parser p = { .keys = policy_keys, .nkeys = sizeof(policy_keys) / sizeof(policy_keys[0]),
		.target = policy, .name = name };

	return run(&p, text, len, err);
}

static int
read_conf(const char *path, char **ret_text, size_t *ret_len, char err[CONF_ERR_SIZE])
{
	int r = fd_read_file(AT_FDCWD, path, FILE_MAX, (uint8_t **)ret_text, ret_len);

	if (r < 0)
		snprintf(err, CONF_ERR_SIZE, "%s: %s", path, r == -EFBIG ? "larger than 64 KiB" :
		    r == -EINVAL ? "not a regular file" : strerror(-r));
	return r;
}

int
conf_load(struct conf *conf, const char *path, char err[CONF_ERR_SIZE])
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r = read_conf(path, &text, &len, err);

	return r < 0 ? r : conf_parse(conf, path, text, len, err);
}

int
policy_load(struct policy *policy, const char *path, char err[CONF_ERR_SIZE])
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r = read_conf(path, &text, &len, err);

	if (r == -ENOENT)
		return policy_parse(policy, path, "", 0, err);
	return r < 0 ? r : policy_parse(policy, path, text, len, err);
}
