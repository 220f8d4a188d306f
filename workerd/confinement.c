#include "workerd/confinement.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct confinement
confinement(const struct conf *conf, const struct policy *policy, const struct launch_ready *ready)
{
	uint32_t wanted = policy->sandbox_level == POLICY_SANDBOX_UID ? LAUNCH_PARTS_UID : LAUNCH_PARTS_NAMESPACES;
	struct confinement c = { .parts = wanted & ready->parts, .missing = wanted & ~ready->parts,
		.pool_missing = policy->sandbox_level == POLICY_SANDBOX_UID && ready->pool_count == 0 };

	if ((c.parts & LAUNCH_PART_USER) == 0)
		c.parts &= ~LAUNCH_PARTS_IN_USER;
	if ((c.parts & LAUNCH_PART_PID) == 0)
		c.parts &= ~LAUNCH_PART_PROC;
	if (ready->tree == LAUNCH_TREE_PIDNS)	/* nothing else ends its processes */
		c.parts |= LAUNCH_PART_USER | LAUNCH_PART_PID;
	return c;
}

static enum work_refusal
check_shown(const struct conf *conf, char error[208])
{
	char path[CONF_STR];
	struct stat st;

	for (const char *p = conf->work_show; *p != '\0'; p += p[0] == ' ') {
		size_t len = strcspn(p, " ");

		memcpy(path, p, len);
		path[len] = '\0';
		p += len;
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
			continue;
		snprintf(error, 208, "edgeward.conf: [work] show: %.120s is no directory here", path);
		return WORK_REFUSED_SANDBOX;
	}
	return WORK_OK;
}

enum work_refusal
confinement_decide(const struct conf *conf, const struct policy *policy, const struct launch_ready *ready,
    uint32_t *ret_parts, char error[208])
{
	struct confinement c = confinement(conf, policy, ready);
	char names[140];

	if (conf->work_sandbox == CONF_SANDBOX_REQUIRE && ready->pool_count == 0 && ready->pool_first == LAUNCH_POOL_AWAITED) {
		snprintf(error, 208, "this device has no ids for workloads yet; they were asked for, and edgectl doctor tells what became of it");
		return WORK_REFUSED_SANDBOX;
	}
	if (conf->work_sandbox == CONF_SANDBOX_REQUIRE && c.pool_missing) {
		snprintf(error, 208, "policy.conf: sandbox-level = uid, but this device has no pool of runner ids");
		return WORK_REFUSED_SANDBOX;
	}
	if (conf->work_sandbox == CONF_SANDBOX_REQUIRE && c.missing != 0) {
		launch_parts_text(c.missing, names, sizeof(names));
		snprintf(error, 208, "this machine does not give: %.129s%s", names,
		    (c.missing & LAUNCH_PARTS_UID) == 0 && ready->pool_count != 0 ? "; sandbox-level = uid in policy.conf does without" :
		    "");
		return WORK_REFUSED_SANDBOX;
	}
	if (policy->network == POLICY_NETWORK_NONE) {
		uint32_t need = LAUNCH_PART_USER | LAUNCH_PART_NET;

		if ((ready->parts & need) != need) {
			snprintf(error, 208, "policy.conf: network = none, but this machine gives no network namespaces");
			return WORK_REFUSED_SANDBOX;
		}
		c.parts |= need;
	}
	*ret_parts = c.parts;
	return check_shown(conf, error);
}
