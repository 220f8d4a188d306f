#include "workerd/admit.h"

#include <stdio.h>

#include "workerd/permit.h"

void
admit_free(const struct statvfs *st, uint64_t *ret_bytes, uint64_t *ret_inodes)
{
	uint64_t unit = st->f_frsize != 0 ? st->f_frsize : st->f_bsize, blocks = st->f_bavail;

	if (blocks > st->f_blocks)
		blocks = 0;
	if (__builtin_mul_overflow(unit, blocks, ret_bytes))
		*ret_bytes = UINT64_MAX;
	*ret_inodes = st->f_files == 0 ? UINT64_MAX : st->f_favail > st->f_files ? 0 : st->f_favail;
}

/* A limit of the start's, or of the policy when the start had none: which it was is told by asked. */
static enum work_refusal
check_limits(const struct admit_now *now, const struct work_spec *asked, const struct work_spec *spec, char error[208])
{
	const struct {
		uint64_t limit, asked;
		uint8_t controller;
		enum policy_key key;
	} limits[] = {
		{ spec->memory_bytes, asked->memory_bytes, LAUNCH_CTL_MEMORY, POLICY_MEMORY },
		{ spec->pids, asked->pids, LAUNCH_CTL_PIDS, POLICY_PIDS },
		{ spec->cpu_millis, asked->cpu_millis, LAUNCH_CTL_CPU, POLICY_CPU },
	};
	char where[POLICY_WHERE];

	if (spec->contained)	/* the engine keeps them, and the disk is looked at */
		return WORK_OK;
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		enum policy_key key = limits[i].key;

		if (limits[i].limit == 0 || (now->ready->controllers & limits[i].controller) != 0)
			continue;
		if (limits[i].asked == 0 && now->policy->lines[key + 1] != 0)
			key++;		/* it is the default, not the ceiling */
		if (limits[i].asked == 0)
			snprintf(error, 208, "%s: the cgroup controller %s is not delegated on this device, so this limit cannot be "
			    "kept: delegate it or remove the line", policy_where(now->policy, key, where),
			    policy_key_info(limits[i].key)->name);
		else
			snprintf(error, 208, "resource limit %s: its cgroup controller is not delegated on this device",
			    policy_key_info(key)->name);
		return WORK_REFUSED_UNSUPPORTED;
	}
	if (spec->disk_bytes == 0)
		return WORK_OK;
	snprintf(error, 208, "resource limit disk: cannot be enforced for a host process");
	return WORK_REFUSED_UNSUPPORTED;
}

/* No start asks for this one: it is the device's own, or nothing. */
static enum work_refusal
check_rate(const struct admit_now *now, char error[208])
{
	const char *why = (now->ready->controllers & LAUNCH_CTL_IO) == 0 ? "the cgroup controller io is not delegated on this device" :
	    now->one_disk ? NULL : "the work root does not lie on one disk";
	char where[POLICY_WHERE];

	if (now->policy->io_rate == 0 || why == NULL)
		return WORK_OK;
	snprintf(error, 208, "%s: %s, so this limit cannot be kept: remove the line", policy_where(now->policy, POLICY_IO_RATE, where), why);
	return WORK_REFUSED_UNSUPPORTED;
}

static enum work_refusal
check_room(const struct admit_now *now, char error[208])
{
	uint64_t low = now->conf->work_disk_low, inodes = ADMIT_INODES_LOW;
	char where[POLICY_WHERE];

	if (now->disk_was_low) {
		low = low > UINT64_MAX - low / 8 ? UINT64_MAX : low + low / 8;
		inodes += inodes / 8;
	}
	if (now->held >= now->slots) {
		snprintf(error, 208, "all %u slots are in use%s%s", now->slots, now->slots == now->policy->slots ? ", the most by " :
		    "", now->slots == now->policy->slots ? policy_where(now->policy, POLICY_SLOTS, where) : "");
		return WORK_REFUSED_BUSY;
	}
	if (now->undelivered >= now->undelivered_max || now->retained > ADMIT_RETAINED_MAX) {
		snprintf(error, 208, "%u ended workloads with %llu MiB of output wait for the hub's confirmation",
		    now->undelivered, (unsigned long long)(now->retained >> 20));
		return WORK_REFUSED_MEMORY_LOW;
	}
	if (now->disk_free < low) {
		snprintf(error, 208, "disk-full: %llu MiB free under the work root, [work] disk-low is %llu MiB",
		    (unsigned long long)(now->disk_free >> 20), (unsigned long long)(now->conf->work_disk_low >> 20));
		return WORK_REFUSED_DISK_LOW;
	}
	if (now->inodes_free < inodes) {
		snprintf(error, 208, "inodes-full: %llu inodes free under the work root",
		    (unsigned long long)now->inodes_free);
		return WORK_REFUSED_DISK_LOW;
	}
	return WORK_OK;
}

enum work_refusal
admit(const struct admit_now *now, struct work_spec *spec, char error[208], uint32_t *ret_flags)
{
	const struct work_spec asked = *spec;
	enum work_refusal r;

	*ret_flags = 0;
	error[0] = '\0';
	if (now->draining) {
		*ret_flags = WORK_F_DRAINING;
		snprintf(error, 208, "the device is being drained by its operator");
		return WORK_REFUSED_BUSY;
	}
	r = (now->own ? permit_own : permit)(now->policy, spec, error);
	if (r != WORK_OK)
		return r;
	if (now->ready->tree == LAUNCH_TREE_NONE && now->conf->work_sandbox == CONF_SANDBOX_REQUIRE) {
		snprintf(error, 208, "no cgroup is delegated, and no pid namespace can take its place here: a workload could "
		    "leave processes behind");
		return WORK_REFUSED_SANDBOX;
	}
	r = check_limits(now, &asked, spec, error);
	if (r == WORK_OK)
		r = check_rate(now, error);
	return r == WORK_OK ? check_room(now, error) : r;
}
