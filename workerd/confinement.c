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

/* The manual has the socket given to the runners' group, and whoever reaches it is root: without a view of its own all work would. */
static enum work_refusal
check_socket(const struct policy *policy, uint32_t parts, char error[208])
{
	char where[POLICY_WHERE];

	if (policy->engine_socket[0] == '\0' || (parts & LAUNCH_PART_MOUNT) != 0)
		return WORK_OK;
	snprintf(error, 208, "%s: without a view of the file system for each workload alone (sandbox-level = uid, or no user namespaces) the "
	    "socket would be in reach of all work; remove this line", policy_where(policy, POLICY_ENGINE_SOCKET, where));
	return WORK_REFUSED_SANDBOX;
}

enum work_network
confinement_network(const struct policy *policy)
{
	switch (policy->network) {
	case POLICY_NETWORK_NONE:
		return WORK_NETWORK_NONE;
	case POLICY_NETWORK_FILTERED:
		return WORK_NETWORK_FILTERED;
	case POLICY_NETWORK_HOST:
		break;
	}
	return WORK_NETWORK_HOST;
}

enum filter_issue
confinement_filter_issue(const struct launch_ready *ready)
{
	struct stat st;

	if ((ready->parts & LAUNCH_PARTS_FILTERED) == LAUNCH_PARTS_FILTERED)
		return FILTER_WORKS;
	if ((ready->parts & (LAUNCH_PARTS_FILTERED & ~LAUNCH_PART_FILTER)) != (LAUNCH_PARTS_FILTERED & ~LAUNCH_PART_FILTER))
		return FILTER_NO_NAMESPACES;
	if (stat(LAUNCH_NFT, &st) < 0)
		return FILTER_NO_NFT;
	if (stat(LAUNCH_PASTA, &st) < 0)
		return FILTER_NO_PASTA;
	if (stat(LAUNCH_TUN, &st) < 0 || (st.st_mode & 06) != 06)
		return FILTER_NO_TUN;
	return FILTER_FAILED;
}

enum work_refusal
confinement_decide(const struct conf *conf, const struct policy *policy, const struct launch_ready *ready,
    enum work_network network, uint32_t *ret_parts, char error[208])
{
	struct confinement c = confinement(conf, policy, ready);
	char names[140], where[POLICY_WHERE];

	if (conf->work_sandbox == CONF_SANDBOX_REQUIRE && ready->pool_count == 0 && ready->pool_first == LAUNCH_POOL_AWAITED) {
		snprintf(error, 208, "this device has no ids for workloads yet; they were asked for, and edgectl doctor tells what became of it");
		return WORK_REFUSED_SANDBOX;
	}
	if (conf->work_sandbox == CONF_SANDBOX_REQUIRE && c.pool_missing) {
		snprintf(error, 208, "%s = uid, but this device has no pool of runner ids", policy_where(policy, POLICY_SANDBOX_LEVEL, where));
		return WORK_REFUSED_SANDBOX;
	}
	if (conf->work_sandbox == CONF_SANDBOX_REQUIRE && c.missing != 0) {
		launch_parts_text(c.missing, names, sizeof(names));
		snprintf(error, 208, "this machine does not give: %.129s%s", names,
		    (c.missing & LAUNCH_PARTS_UID) == 0 && ready->pool_count != 0 ? "; sandbox-level = uid in policy.conf does without" :
		    "");
		return WORK_REFUSED_SANDBOX;
	}
	if (network == WORK_NETWORK_NONE || network == WORK_NETWORK_FILTERED) {
		uint32_t need = network == WORK_NETWORK_NONE ? LAUNCH_PART_USER | LAUNCH_PART_NET : LAUNCH_PARTS_FILTERED;

		if ((ready->parts & need) != need) {
			snprintf(error, 208, "%s network, but %s", network == WORK_NETWORK_NONE ? "a start without" : "a start with a filtered",
			    network == WORK_NETWORK_NONE ? "this machine gives no network namespaces" :
			    launch_filter_issue_text(confinement_filter_issue(ready)));
			return WORK_REFUSED_SANDBOX;
		}
		c.parts |= need;
		if (policy->l2 && network == WORK_NETWORK_NONE)
			c.parts |= LAUNCH_PART_LINKS;
	}
	*ret_parts = c.parts;
	return check_socket(policy, c.parts, error) == WORK_OK ? check_shown(conf, error) : WORK_REFUSED_SANDBOX;
}
