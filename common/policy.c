#include "common/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"

#define P(field)	offsetof(struct policy, field)
#define SECONDS		1000
#define YEAR		(366ull * 86400 * SECONDS)
#define MIB		(1u << 20)

static const char *const any[] = { "any", NULL };
static const char *const none[] = { "none", NULL };
static const char *const any_none[] = { "any", "none", NULL };
static const char *const networks[] = { "none", "filtered", "host", NULL };
static const char *const files[] = { "no", "read", "write", NULL };
static const char *const levels[] = { "namespaces", "uid", NULL };
static const char *const rules[] = { "enforce", "warn", "allow-any", NULL };
static const char *const channels[] = { "stable", "edge", NULL };

static const struct key policy_keys[] = {
	[POLICY_START] = { "work", "start", KEY_BOOL, P(start), 0, 0, NULL, "yes" },
	[POLICY_PROGRAMS] = { "work", "programs", KEY_PATHS, P(programs), 0, 0, any, "any" },
	[POLICY_USERS] = { "work", "users", KEY_NAMES, P(users), 0, 0, NULL, "edgeward-run" },
	[POLICY_NETWORK] = { "work", "network", KEY_CHOICE, P(network), 0, 0, networks, "host" },
	[POLICY_SANDBOX_LEVEL] = { "work", "sandbox-level", KEY_CHOICE, P(sandbox_level), 0, 0, levels, "namespaces" },
	[POLICY_ATTACH] = { "work", "attach", KEY_BOOL, P(attach), 0, 0, NULL, "no" },
	[POLICY_FILES] = { "work", "files", KEY_CHOICE, P(files), 0, 0, files, "no" },
	[POLICY_NESTED_USERNS] = { "work", "nested-userns", KEY_BOOL, P(nested_userns), 0, 0, NULL, "no" },
	[POLICY_MEMORY] = { "limits", "memory", KEY_SIZE, P(memory), MIB, UINT64_MAX >> 1, none, "none" },
	[POLICY_MEMORY_DEFAULT] = { "limits", "memory-default", KEY_SIZE, P(memory_default), MIB, UINT64_MAX >> 1, none, "none" },
	[POLICY_PIDS] = { "limits", "pids", KEY_U32, P(pids), 1, 4194304, none, "none" },
	[POLICY_PIDS_DEFAULT] = { "limits", "pids-default", KEY_U32, P(pids_default), 1, 4194304, none, "none" },
	[POLICY_CPU] = { "limits", "cpu", KEY_U32, P(cpu), 10, 4096000, none, "none" },
	[POLICY_CPU_DEFAULT] = { "limits", "cpu-default", KEY_U32, P(cpu_default), 10, 4096000, none, "none" },
	[POLICY_IO_RATE] = { "limits", "io-rate", KEY_SIZE, P(io_rate), 64 * 1024, UINT64_MAX >> 1, none, "none" },
	[POLICY_TIMEOUT] = { "limits", "timeout", KEY_MS, P(timeout), SECONDS, YEAR, none, "none" },
	[POLICY_TIMEOUT_DEFAULT] = { "limits", "timeout-default", KEY_MS, P(timeout_default), SECONDS, YEAR, none, "none" },
	[POLICY_OUTPUT] = { "limits", "output", KEY_SIZE, P(output), 4096, UINT64_MAX >> 1, none, "none" },
	[POLICY_SLOTS] = { "limits", "slots", KEY_U32, P(slots), 1, 1024, none, "none" },
	[POLICY_ENVIRONMENT] = { "limits", "environment", KEY_SIZE, P(environment), 0, MIB, NULL, "1M" },
	[POLICY_NET_PUBLIC] = { "network", "public", KEY_BOOL, P(net_public), 0, 0, NULL, "no" },
	[POLICY_NET_ALLOW] = { "network", "allow", KEY_CIDRS, P(net_allow), 0, 0, none, "none" },
	[POLICY_NET_DENY] = { "network", "deny", KEY_CIDRS, P(net_deny), 0, 1, none, "none" },
	[POLICY_NET_PORTS] = { "network", "ports", KEY_PORTS, P(net_ports), 0, 0, any, "any" },
	[POLICY_NET_RESOLVERS] = { "network", "resolvers", KEY_RESOLVERS, P(net_resolvers), 0, 0, none, "none" },
	[POLICY_USB] = { "devices", "usb", KEY_BOOL, P(usb), 0, 0, NULL, "no" },
	[POLICY_USB_CLASSES] = { "devices", "usb-classes", KEY_CLASSES, P(usb_classes), 0, 0, NULL, "ff 07 08" },
	[POLICY_L2] = { "devices", "l2", KEY_BOOL, P(l2), 0, 0, NULL, "no" },
	[POLICY_L2_RAW] = { "devices", "l2-raw", KEY_BOOL, P(l2_raw), 0, 0, NULL, "no" },
	[POLICY_ATTACH_INPUT] = { "attach", "input", KEY_BOOL, P(attach_input), 0, 0, NULL, "yes" },
	[POLICY_ATTACH_SESSIONS] = { "attach", "sessions", KEY_U32, P(attach_sessions), 1, 64, NULL, "8" },
	[POLICY_ATTACH_EACH] = { "attach", "sessions-per-workload", KEY_U32, P(attach_each), 1, 64, NULL, "4" },
	[POLICY_ATTACH_IDLE] = { "attach", "idle", KEY_MS, P(attach_idle), SECONDS, YEAR, none, "30m" },
	[POLICY_ATTACH_KEEP] = { "attach", "keep", KEY_MS, P(attach_keep), SECONDS, YEAR, none, "5m" },
	[POLICY_ATTACH_SCROLLBACK] = { "attach", "scrollback", KEY_SIZE, P(attach_scrollback), 64 * 1024, 4 * MIB, NULL, "512K" },
	[POLICY_ATTACH_LOCAL] = { "attach", "local", KEY_BOOL, P(attach_local), 0, 0, NULL, "yes" },
	[POLICY_SERVE] = { "services", "serve", KEY_BOOL, P(serve), 0, 0, NULL, "yes" },
	[POLICY_SERVICES] = { "services", "allow", KEY_ADDRESSES, P(services), 0, 0, none, "none" },
	[POLICY_SERVICE_NETWORKS] = { "services", "networks", KEY_CIDRS, P(service_networks), 0, 0, none, "none" },
	[POLICY_SERVICE_SOCKETS] = { "services", "sockets", KEY_NAMES, P(service_sockets), 0, 0, none, "none" },
	[POLICY_SERVICE_RULE] = { "services", "policy", KEY_CHOICE, P(service_rule), 0, 0, rules, "enforce" },
	[POLICY_SSH] = { "services", "ssh", KEY_BOOL, P(ssh), 0, 0, NULL, "no" },
	[POLICY_SSH_PORT] = { "services", "ssh-port", KEY_U32, P(ssh_port), 1, 65535, NULL, "22" },
	[POLICY_HARNESSES] = { "harnesses", "names", KEY_NAMES, P(harnesses), 0, 0, any_none, "any" },
	[POLICY_HARNESS_INSTALL] = { "harnesses", "install", KEY_BOOL, P(harness_install), 0, 0, NULL, "no" },
	[POLICY_CHANNEL] = { "upgrade", "channel", KEY_CHOICE, P(channel), 0, 0, channels, "stable" },
	[POLICY_REMOTE_UPGRADE] = { "upgrade", "remote", KEY_BOOL, P(remote_upgrade), 0, 0, NULL, "no" },
	[POLICY_ENGINE_SOCKET] = { "containers", "engine-socket", KEY_PATH, P(engine_socket), 0, 0, none, "none" },
	[POLICY_IMAGES] = { "containers", "images", KEY_IMAGES, P(images), 0, 0, any, "any" },
	[POLICY_FILTERED_NETWORK] = { "containers", "filtered-network", KEY_NAMES, P(filtered_network), 0, 0, none, "none" },
};
_Static_assert(sizeof(policy_keys) / sizeof(policy_keys[0]) == POLICY_KEYS && POLICY_KEYS <= KEYFILE_KEYS, "the table has all keys");

/* A default above its ceiling would refuse every start that asks for nothing. */
static int
check_defaults(const struct policy *p, const char *name, char err[KEYFILE_ERR])
{
	const struct {
		enum policy_key key;
		uint64_t ceiling, def;
	} pairs[] = {
		{ POLICY_MEMORY_DEFAULT, p->memory, p->memory_default },
		{ POLICY_PIDS_DEFAULT, p->pids, p->pids_default },
		{ POLICY_CPU_DEFAULT, p->cpu, p->cpu_default },
		{ POLICY_TIMEOUT_DEFAULT, (uint64_t)p->timeout, (uint64_t)p->timeout_default },
	};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		if (pairs[i].ceiling == 0 || pairs[i].def <= pairs[i].ceiling)
			continue;
		snprintf(err, KEYFILE_ERR, "%s:%u: [limits] %s is above [limits] %s", name, p->lines[pairs[i].key],
		    policy_keys[pairs[i].key].name, policy_keys[pairs[i].key - 1].name);
		return -EINVAL;
	}
	return 0;
}

static int
check_network(const struct policy *p, const char *name, char err[KEYFILE_ERR])
{
	const struct {
		enum policy_key key;
		uint32_t n, max;
	} lists[] = {
		{ POLICY_NET_ALLOW, p->net_allow.n, FW_CIDRS },
		{ POLICY_NET_DENY, p->net_deny.n, FW_CIDRS },
		{ POLICY_NET_PORTS, p->net_ports.n, FW_PORTS },
		{ POLICY_NET_RESOLVERS, p->net_resolvers.n, FW_RESOLVERS },
		{ POLICY_FILTERED_NETWORK, p->filtered_network.n, 1 },
	};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		if (lists[i].n <= lists[i].max)
			continue;
		snprintf(err, KEYFILE_ERR, "%s:%u: [%s] %s has more than %u item%s", name, p->lines[lists[i].key],
		    policy_keys[lists[i].key].section, policy_keys[lists[i].key].name, lists[i].max, lists[i].max > 1 ? "s" : "");
		return -EINVAL;
	}
	return 0;
}

int
policy_parse(struct policy *policy, const char *name, const char *text, size_t len, char err[KEYFILE_ERR])
{
	_cleanup_free_ struct policy *p = calloc(1, sizeof(*p));
	const char *slash = strrchr(name, '/');
	int r;

	if (p == NULL) {
		snprintf(err, KEYFILE_ERR, "%s: out of memory", name);
		return -ENOMEM;
	}
	r = keyfile_parse(policy_keys, POLICY_KEYS, p, p->lines, name, text, len, err);
	if (r == 0)
		r = check_defaults(p, name, err);
	if (r == 0)
		r = check_network(p, name, err);
	if (r < 0)
		return r;
	snprintf(p->file, sizeof(p->file), "%s", slash != NULL ? slash + 1 : name);
	*policy = *p;
	return 0;
}

static int
check_owner(const struct stat *st, const char *path, uid_t owner, char err[KEYFILE_ERR])
{
	if (st->st_uid != 0 && st->st_uid != owner) {
		if (owner == 0)
			snprintf(err, KEYFILE_ERR, "%s belongs to uid %u and must belong to root: chown root %s", path, st->st_uid,
			    path);
		else
			snprintf(err, KEYFILE_ERR, "%s belongs to uid %u and must belong to root or to uid %u, under whom all runs "
			    "here: chown %u %s", path, st->st_uid, owner, owner, path);
		return -EPERM;
	}
	if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0) {
		snprintf(err, KEYFILE_ERR, "%s may be written by others (mode %04o): chmod go-w %s", path,
		    (unsigned)st->st_mode & 07777, path);
		return -EPERM;
	}
	return 0;
}

int
policy_load(struct policy *policy, const char *path, uid_t owner, char err[KEYFILE_ERR])
{
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t len = 0;
	int r = keyfile_read(path, &text, &len, &st, err);

	bool missing = r == -ENOENT;

	if (r == 0)
		r = check_owner(&st, path, owner, err);
	if (r == 0 || missing)
		r = policy_parse(policy, path, missing ? "" : text, missing ? 0 : len, err);
	if (r == 0)
		keyfile_mark(&policy->mark, path, missing ? NULL : &st, text, len);
	return r;
}

uid_t
policy_owner(const char *rundir)
{
	struct stat st;

	return stat(rundir, &st) == 0 ? st.st_uid : geteuid();
}

int
policy_reload(struct policy *policy, const char *path, uid_t owner)
{
	char err[KEYFILE_ERR];
	int r = policy_load(policy, path, owner, err);

	if (r < 0)
		snprintf(policy->problem, sizeof(policy->problem), "%s", err);
	return r;
}

int
policy_open(struct policy *policy, const char *path, uid_t owner)
{
	memset(policy, 0, sizeof(*policy));	/* every switch is off, no list has an item */
	policy->denied = true;
	return policy_reload(policy, path, owner);
}

const char *
policy_where(const struct policy *policy, enum policy_key key, char buf[POLICY_WHERE])
{
	const char *section = policy_keys[key].section;

	/* "allow" alone says too little. */
	if (strcmp(section, "work") == 0 || strcmp(section, "limits") == 0)
		section = "";
	if (policy->lines[key] != 0)
		snprintf(buf, POLICY_WHERE, "%s:%u: %s%s%s", policy->file, policy->lines[key], section,
		    section[0] != '\0' ? " " : "", policy_keys[key].name);
	else
		snprintf(buf, POLICY_WHERE, "%s (default): %s%s%s", policy->file, section, section[0] != '\0' ? " " : "",
		    policy_keys[key].name);
	return buf;
}

void
policy_no_start(const struct policy *policy, char *buf, size_t size)
{
	char where[POLICY_WHERE];

	if (policy->denied)
		snprintf(buf, size, "%.150s; nothing is started until that is put right", policy->problem);
	else
		snprintf(buf, size, "%s = no: this device starts nothing for a hub", policy_where(policy, POLICY_START, where));
}

/* The items were looked at when the file was read. */
void
policy_firewall(const struct policy *policy, struct firewall *ret_fw)
{
	const char *item;
	uint32_t port;

	memset(ret_fw, 0, sizeof(*ret_fw));
	ret_fw->public_internet = policy->net_public;
	for (item = NULL; (item = keyfile_list_next(&policy->net_allow, item)) != NULL; )
		ret_fw->nallow += fw_cidr_parse(item, false, &ret_fw->allow[ret_fw->nallow]) == 0;
	for (item = NULL; (item = keyfile_list_next(&policy->net_deny, item)) != NULL; )
		ret_fw->ndeny += fw_cidr_parse(item, true, &ret_fw->deny[ret_fw->ndeny]) == 0;
	for (item = NULL; (item = keyfile_list_next(&policy->net_ports, item)) != NULL; )
		if (parse_u32(item, 1, 65535, &port) == 0)
			ret_fw->ports[ret_fw->nports++] = (uint16_t)port;
	for (item = NULL; (item = keyfile_list_next(&policy->net_resolvers, item)) != NULL; )
		ret_fw->nresolvers += fw_resolver_parse(item, &ret_fw->resolvers[ret_fw->nresolvers]) == 0;
}

const struct key *
policy_key_info(enum policy_key key)
{
	return &policy_keys[key];
}

void
policy_value(const struct policy *policy, enum policy_key key, char *buf, size_t size)
{
	keyfile_value(&policy_keys[key], policy, buf, size);
}
