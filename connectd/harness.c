/*
 * install_harness (cloop.md 5.11). A harness that is there is a success without more ado. This agent fetches and runs no installer:
 * what a hub names is refused with the reason that comes first, policy before ability, and the operator is told what helps.
 */
#include <stdio.h>
#include <string.h>

#include "connectd/session.h"
#include "proto/ipc/inventory.h"

#define INSTALLABLE	"claude"	/* the only one with an official installer in the protocol's table */
#define NAME_SIZE	65u

static bool
name_is_bare(const char *name)
{
	return name != NULL && name[0] != '\0' && strlen(name) < NAME_SIZE &&
	    strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(name);
}

static bool
is_there(const struct session *s, const char *name)
{
	const char *known;

	for (unsigned bit = 0; (known = inventory_name(INVENTORY_HARNESSES, bit)) != NULL; bit++)
		if (strcmp(known, name) == 0)
			return (s->p.mirror->inventory.head.found[INVENTORY_HARNESSES] & 1u << bit) != 0;
	return false;
}

static void
why_not(const struct policy *policy, const char *name, char *buf, size_t size)
{
	char where[POLICY_WHERE];

	if (policy->harnesses.word != POLICY_WORD && !keyfile_list_has(&policy->harnesses, name, strlen(name)))
		snprintf(buf, size, "%s does not name %s", policy_where(policy, POLICY_HARNESSES, where), name);
	else if (!policy->harness_install)
		snprintf(buf, size, "%s is no; install %s on the device, below /usr/local/bin", policy_where(policy, POLICY_HARNESS_INSTALL, where),
		    name);
	else if (strcmp(name, INSTALLABLE) != 0)
		snprintf(buf, size, "there is no official installer for %s; install it on the device, below /usr/local/bin", name);
	else
		snprintf(buf, size, "this version of the agent runs no installers; install %s on the device, below /usr/local/bin", name);
}

void
harness_install(struct session *s, const struct cloop_frame *f)
{
	const char *name = json_get_str(f->payload, "harness");
	char reason[300];
	struct json_w w;

	if (!name_is_bare(name)) {
		session_send_error(s, f->id, "protocol", "the harness is no bare name");
		return;
	}
	session_begin_frame(s, &w, "harness_installed", f->id, NULL);
	json_w_bool(&w, "installed", is_there(s, name));
	json_w_str(&w, "harness", name);
	if (is_there(s, name)) {
		json_w_bool(&w, "already_present", true);
	} else {
		why_not(s->p.policy, name, reason, sizeof(reason));
		json_w_str(&w, "reason", reason);
	}
	session_send(s, &w);
}
