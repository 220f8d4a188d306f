/*
 * What policy.conf lets workloads have that this machine must give: devices, a filtered network, and the warning that belongs to the
 * socket of a container engine.
 *
 * Who calls: doctor.c, in its list. Reads the policy as the daemons do; whether it is good at all is said by the checks config and
 * workerd -n.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/policy.h"
#include "edgectl/doctor/doctor.h"
#include "proto/ipc/launch.h"

static bool
is_there(const struct doctor *d, const char *path, mode_t mode)
{
	char full[PATH_MAX];
	struct stat st;

	return stat(doctor_path(d, path, full), &st) == 0 && (st.st_mode & mode) == mode;
}

/* Kernel modules: without one all else goes on. privhelper looks for them at its start alone. */
static void
module(struct doctor *d, const char *name, const char *path, const char *load, const char *key, const char *lacks)
{
	char command[200];

	snprintf(command, sizeof(command), "modprobe %s%s", load, d->units ? " && systemctl restart edgeward-privhelper" : "");
	if (is_there(d, path, 0))
		check_ok(d, name, "%s is there", path);
	else if (key == NULL)
		check_skip(d, name, "no %s: %s", path, lacks);
	else
		check_bad(d, name, CHECK_WARN, "no-module", command, "policy.conf says %s = yes, but there is no %s: %s", key, path, lacks);
}

static void
modules(struct doctor *d, const struct policy *p)
{
	module(d, "vhci", "/sys/devices/platform/vhci_hcd.0", "vhci-hcd", p != NULL && p->usb ? "usb" : NULL,
	    "no USB device can be forwarded to this one (modprobe vhci-hcd)");
	module(d, "tun", LAUNCH_TUN, "tun", p != NULL && p->l2 ? "l2" : NULL,
	    "no Ethernet segment can be lent to a workload (modprobe tun)");
}

/* The same three things workerd looks for; whether they work is tried by the launcher, see packet_filter. */
static void
filter(struct doctor *d, bool wanted)
{
	const struct {
		const char *path, *command;
		mode_t mode;
		enum filter_issue issue;
	} needs[] = {
		{ LAUNCH_NFT, "apt install nftables", 0111, FILTER_NO_NFT },
		{ LAUNCH_PASTA, "apt install passt", 0111, FILTER_NO_PASTA },
		{ LAUNCH_TUN, "modprobe tun; chmod 666 " LAUNCH_TUN, 06, FILTER_NO_TUN },
	};

	for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
		if (is_there(d, needs[i].path, needs[i].mode))
			continue;
		if (wanted)
			check_bad(d, "filter", CHECK_FAIL, "no-filter", needs[i].command, "policy.conf says network = filtered, but %s",
			    launch_filter_issue_text(needs[i].issue));
		else
			check_skip(d, "filter", "no workload can have a filtered network: %s", launch_filter_issue_text(needs[i].issue));
		return;
	}
	check_ok(d, "filter", "nft, pasta and " LAUNCH_TUN " are there");
}

static void
engine(struct doctor *d, const char *path)
{
	char full[PATH_MAX];
	struct stat st;

	if (path[0] == '\0')
		check_skip(d, "engine", "no socket of a container engine is named in the policy");
	else if (stat(doctor_path(d, path, full), &st) < 0 || !S_ISSOCK(st.st_mode))
		check_bad(d, "engine", CHECK_WARN, "no-engine", "systemctl status podman.socket docker.socket",
		    "[containers] engine-socket = %.180s is no socket here", path);
	else if ((st.st_mode & S_IWOTH) == 0 && ((st.st_mode & S_IWGRP) == 0 || st.st_gid == 0) && st.st_uid == 0)
		check_bad(d, "engine", CHECK_WARN, "engine-closed", "man 5 policy.conf", "%.150s is root's alone, so no container can be started: give "
		    "it the group of the pool and mode 0660; it equals root all the same", path);
	else
		check_bad(d, "engine", CHECK_WARN, st.st_uid == 0 ? "engine-is-root" : "engine-is-user", "edgectl policy",
		    "%.150s belongs to uid %u: whoever may use it can do whatever that user can%s", path, st.st_uid,
		    st.st_uid == 0 ? ", which is everything" : "");
}

void
step_lent(struct doctor *d)
{
	_cleanup_free_ struct policy *policy = calloc(1, sizeof(*policy));
	char err[KEYFILE_ERR];

	if (policy == NULL || policy_load(policy, d->policy_path, d->me, err) < 0) {
		modules(d, NULL);
		check_skip(d, "filter", "the policy cannot be read");
		check_skip(d, "engine", "the policy cannot be read");
		return;
	}
	modules(d, policy);
	filter(d, policy->network == POLICY_NETWORK_FILTERED);
	engine(d, policy->engine_socket);
}
