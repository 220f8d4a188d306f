/*
 * Nothing is claimed that does not hold: a capability this agent does not have is left out or false. In particular the
 * sandbox object tells what workloads really get, not what the kernel could give.
 */
#include "connectd/caps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "connectd/devframes.h"
#include "connectd/upgrader.h"
#include "proto/ipc/launch.h"

static const char *
go_arch(const char *machine)
{
	static const struct { const char *machine, *go; } names[] = {
		{ "x86_64", "amd64" }, { "aarch64", "arm64" }, { "armv7l", "arm" }, { "armv6l", "arm" }, { "i686", "386" },
		{ "riscv64", "riscv64" }, { "ppc64le", "ppc64le" }, { "s390x", "s390x" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(machine, names[i].machine) == 0)
			return names[i].go;
	return "unknown";
}

static size_t
trim(const char **s, size_t len)
{
	while (len > 0 && (*s)[0] == ' ') {
		(*s)++;
		len--;
	}
	while (len > 0 && (*s)[len - 1] == ' ')
		len--;
	return len;
}

/* Into the next place; a key that was there already would make the object two things to two readers. */
static bool
take_label(struct device_caps *device, const char *s, size_t len)
{
	struct device_label *label = &device->labels[device->nlabels];
	const char *eq = memchr(s, '=', len), *end = s + len, *v;
	size_t klen, vlen;

	if (eq == NULL || device->nlabels == CAPS_LABELS_MAX)
		return false;
	v = eq + 1;
	klen = trim(&s, (size_t)(eq - s));
	vlen = trim(&v, (size_t)(end - v));
	if (klen == 0 || klen >= sizeof(label->key) || vlen >= sizeof(label->value))
		return false;
	memcpy(label->key, s, klen);
	label->key[klen] = '\0';
	memcpy(label->value, v, vlen);
	label->value[vlen] = '\0';
	for (size_t i = 0; i < device->nlabels; i++)
		if (strcmp(device->labels[i].key, label->key) == 0)
			return false;
	device->nlabels++;
	return true;
}

int
caps_init(struct device_caps *device, const char *labels, char err[200])
{
	struct utsname uts;

	memset(device, 0, sizeof(*device));
	device->arch = uname(&uts) == 0 ? go_arch(uts.machine) : "unknown";
	while (*labels != '\0') {
		size_t len = strcspn(labels, ",");
		const char *s = labels;
		size_t n = trim(&s, len);

		if (n > 0 && !take_label(device, s, n)) {
			snprintf(err, 200, "[device] labels must be \"key=value, key=value\", each key once, at most %d of them, keys up to 63 and "
			    "values up to 127 bytes", CAPS_LABELS_MAX);
			return -EINVAL;
		}
		labels += len + (labels[len] == ',');
	}
	return 0;
}

static void
put_sandbox(struct json_w *w, const struct work_caps *work, uint8_t controllers, enum conf_sandbox mode)
{
	static const char *const limits[] = { "memory", "pids", "cpu" };	/* LAUNCH_CTL_* in this order */

	json_w_obj(w, "sandbox");
	json_w_bool(w, "user_ns", (work->sandbox & LAUNCH_PART_USER) != 0);
	json_w_bool(w, "mount_ns", (work->sandbox & LAUNCH_PART_MOUNT) != 0);
	json_w_bool(w, "pid_ns", (work->sandbox & LAUNCH_PART_PID) != 0);
	json_w_bool(w, "net_ns", (work->sandbox & LAUNCH_PART_NET) != 0);
	json_w_int(w, "landlock_abi", work->landlock_abi);
	json_w_bool(w, "seccomp", (work->sandbox & LAUNCH_PART_SECCOMP) != 0);
	json_w_int(w, "cgroup", work->cgroup);
	json_w_arr(w, "limits");
	for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if ((controllers >> i & 1) != 0)
			json_w_str(w, NULL, limits[i]);
	json_w_end_arr(w);
	json_w_bool(w, "uid_pool", work->uid_pool != 0);
	json_w_str(w, "mode", mode == CONF_SANDBOX_REQUIRE ? "require" : "best-effort");
	json_w_end_obj(w);
}

static void
put_upgrade(struct json_w *w, struct upgrader *u)
{
	const char *issue = "this agent takes no upgrades";
	struct upfacts facts;

	if (u != NULL) {
		upgrader_facts(u, NULL, &facts);
		issue = uptarget_issue(&facts);
		if (facts.sequence > 0)
			json_w_int(w, "build_sequence", (int64_t)facts.sequence);
	}
	json_w_bool(w, "remote_upgrade", issue == NULL);
	if (issue != NULL)
		json_w_str(w, "remote_upgrade_issue", issue);
}

void
caps_put(struct json_w *w, const struct device_caps *device, const struct mirror *mirror, enum conf_sandbox mode,
    const struct policy *policy, bool extended)
{
	const struct work_caps *work = &mirror->caps;

	json_w_obj(w, "capabilities");
	json_w_str(w, "os", "linux");
	json_w_str(w, "arch", device->arch);
	if (work->cpus > 0)
		json_w_int(w, "cpus", work->cpus);
	if (work->memory_kb > 0)
		json_w_int(w, "memory_mb", (int64_t)(work->memory_kb / 1024));
	if (work->work_root[0] != '\0')
		json_w_str(w, "workdir_root", work->work_root);
	if (work->slots > 0)
		json_w_int(w, "max_concurrent", work->slots);
	if (device->nlabels > 0) {
		json_w_obj(w, "labels");
		for (size_t i = 0; i < device->nlabels; i++)
			json_w_str(w, device->labels[i].key, device->labels[i].value);
		json_w_end_obj(w);
	}
	inventory_put(w, &mirror->inventory, policy, extended);
	put_upgrade(w, device->upgrader);
	if (extended)
		put_sandbox(w, work, mirror->inventory.head.limits, mode);
	if (extended)
		devframes_put_caps(w, mirror);
	json_w_end_obj(w);
}
