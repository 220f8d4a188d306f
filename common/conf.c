#include "common/conf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/keyfile.h"

static const char *const overflow_choices[] = { "wait", "wait-forever", "drop", NULL };
static const char *const sandbox_choices[] = { "require", "best-effort", NULL };
static const char *const dialect_choices[] = { "auto", "cloop", NULL };
static const char *const none[] = { "none", NULL };
static const char *const allowed_none[] = { "allowed", "none", NULL };
static const char *const level_choices[] = { "debug", "info", "warn", "error", NULL };

#define HOUR	3600000u
#define SPOOL_MIN	(1u << 20)	/* sixteen segments of 64 KiB */
#define C(field)	offsetof(struct conf, field)

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
	{ "work", "account", KEY_STR, C(work_account), 0, 31, NULL, "" },
	{ "work", "show", KEY_STR, C(work_show), 0, 0, NULL, "" },
	{ "upgrade", "mirror", KEY_STR, C(upgrade_mirror), 0, 0, NULL, "" },
	{ "upgrade", "rate", KEY_SIZE, C(upgrade_rate), 16384, 1u << 30, NULL, "1M" },
	{ "upgrade", "wait-min", KEY_MS, C(upgrade_wait_min), 10, HOUR, NULL, "10s" },
	{ "upgrade", "wait-max", KEY_MS, C(upgrade_wait_max), 10, 24 * HOUR, NULL, "30m" },
	{ "services", "declare", KEY_SERVICES, C(services), 0, 0, none, "none" },
	{ "services", "discover", KEY_PORTS, C(service_ports), 0, 0, allowed_none, "allowed" },
	{ "services", "dial-timeout", KEY_MS, C(service_connect), 100, 5 * 60000, NULL, "10s" },
	{ "services", "answer-timeout", KEY_MS, C(service_answer), 100, HOUR, NULL, "60s" },
	{ "services", "idle-timeout", KEY_MS, C(service_idle), 100, 24 * HOUR, NULL, "10m" },
	{ "services", "streams", KEY_U32, C(service_streams), 1, 192, NULL, "64" },
	{ "log", "level", KEY_CHOICE, C(log_level), 0, 0, level_choices, "info" },
};

int
conf_parse(struct conf *conf, const char *name, const char *text, size_t len, char err[CONF_ERR_SIZE])
{
	int r = keyfile_parse(conf_keys, sizeof(conf_keys) / sizeof(conf_keys[0]), conf, NULL, name, text, len, err);

	conf->missing = false;
	if (r == 0 && conf->dead_after < conf->heartbeat) {
		snprintf(err, CONF_ERR_SIZE, "%s: [link] dead-after must not be shorter than heartbeat", name);
		return -EINVAL;
	}
	if (r == 0 && (conf->retry_min > conf->retry_max_local || conf->retry_max_local > conf->retry_max)) {
		snprintf(err, CONF_ERR_SIZE, "%s: [link] must have retry-min <= retry-max-local <= retry-max", name);
		return -EINVAL;
	}
	if (r == 0 && conf->upgrade_mirror[0] != '\0' && strncmp(conf->upgrade_mirror, "https://", 8) != 0) {
		snprintf(err, CONF_ERR_SIZE, "%s: [upgrade] mirror must be an https:// address", name);
		return -EINVAL;
	}
	if (r == 0 && conf->upgrade_wait_min > conf->upgrade_wait_max) {
		snprintf(err, CONF_ERR_SIZE, "%s: [upgrade] must have wait-min <= wait-max", name);
		return -EINVAL;
	}
	if (r == 0 && conf->work_spool != 0 && (conf->work_spool < SPOOL_MIN || conf->work_spool > conf->work_spool_total)) {
		snprintf(err, CONF_ERR_SIZE, "%s: [work] spool must be 0, or at least 1M and not more than spool-total", name);
		return -EINVAL;
	}
	return r;
}

/* own: only when this user alone can write it. */
static int
load(struct conf *conf, const char *path, bool own, char err[CONF_ERR_SIZE])
{
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t len = 0;
	int r = keyfile_read(path, &text, &len, &st, err);
	bool missing = r == -ENOENT && strcmp(path, CONF_FILE) == 0;

	if (r < 0 && !missing)
		return r;
	if (own && !missing && (st.st_uid != geteuid() || (st.st_mode & 022) != 0)) {
		snprintf(err, CONF_ERR_SIZE, "%s can be written by others than uid %u: chown %u %s; chmod go-w %s", path, geteuid(), geteuid(), path, path);
		return -EPERM;
	}
	r = conf_parse(conf, path, missing ? "" : text, missing ? 0 : len, err);
	conf->missing = missing;
	keyfile_mark(&conf->mark, path, missing ? NULL : &st, text, len);
	return r;
}

int
conf_load(struct conf *conf, const char *path, char err[CONF_ERR_SIZE])
{
	return load(conf, path, false, err);
}

int
conf_load_own(struct conf *conf, const char *path, char err[CONF_ERR_SIZE])
{
	return load(conf, path, true, err);
}

/* Bytes of a field whose bytes are its value; 0: a string. */
static size_t
width(const struct key *key)
{
	switch (key->type) {
	case KEY_BOOL: return sizeof(bool);
	case KEY_U32: return sizeof(uint32_t);
	case KEY_MS: return sizeof(int64_t);
	case KEY_SIZE: return sizeof(uint64_t);
	case KEY_CHOICE: return sizeof(int);
	case KEY_STR: case KEY_PATH: return 0;
	case KEY_PATHS: case KEY_NAMES: case KEY_CLASSES: case KEY_ADDRESSES: case KEY_CIDRS: case KEY_PORTS: case KEY_IMAGES: case KEY_RESOLVERS:
	case KEY_SERVICES: return sizeof(struct keyfile_list);
	}
	return 0;
}

bool
conf_same(const struct conf *a, const struct conf *b, const char *section)
{
	for (size_t i = 0; i < sizeof(conf_keys) / sizeof(conf_keys[0]); i++) {
		const struct key *key = &conf_keys[i];
		const char *pa = (const char *)a + key->offset, *pb = (const char *)b + key->offset;

		if (strcmp(key->section, section) == 0 && (width(key) != 0 ? memcmp(pa, pb, width(key)) != 0 : strcmp(pa, pb) != 0))
			return false;
	}
	return true;
}
