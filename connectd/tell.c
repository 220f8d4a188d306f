/*
 * What the link tells of itself without being asked: STATUS= for the service manager, an event for `edgectl events`, and counts for
 * `edgectl metrics`, all with the stable codes that status shows. The steps of an attempt are no news; how it ended is.
 */
#include <stdio.h>
#include <string.h>

#include "connectd/link.h"

static void
tell_manager(const struct link *link)
{
	char text[400];

	if (link->p.notify == NULL)
		return;
	if (link->state == CTL_LINK_CONNECTED)
		snprintf(text, sizeof(text), "STATUS=connected to %s", link->peer);
	else
		snprintf(text, sizeof(text), "STATUS=%s: %s", link->cause, link->detail);
	notify_send(link->p.notify, text);
}

void
link_tell(struct link *link)
{
	bool up = link->state == CTL_LINK_CONNECTED, was_up = strcmp(link->told, "connected") == 0;
	const char *now = up ? "connected" : link->cause;

	if (link->state >= CTL_LINK_RESOLVING && link->state <= CTL_LINK_HELLO)
		return;
	/* The state changes before its cause does; and a cause without a change is told once. */
	if (now[0] == '\0' || strcmp(link->told, now) == 0)
		return;
	snprintf(link->told, sizeof(link->told), "%s", now);
	tell_manager(link);
	if (link->p.events == NULL)
		return;
	if (up)
		eventlog_add(link->p.events, "connected", "", "to %s, %s", link->peer, link->edgeward1 ? "edgeward.1" : "cloop");
	else
		eventlog_add(link->p.events, was_up ? "disconnected" : "link", link->cause, "%s", link->detail);
}

void
link_count(struct link *link)
{
	count_add(link->counts.ends, link->cause[0] != '\0' ? link->cause : "none");
}
