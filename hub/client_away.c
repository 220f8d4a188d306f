/*
 * Whoever follows a run is told when its device goes quiet, goes away and comes back: else a run that waits for a cable and one that works
 * look the same. One look in two seconds, and only while somebody follows.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hub/client.h"
#include "proto/hub/limits.h"

#define LOOK_MS		2000
#define AWAY_NS		3000000000LL			/* shorter than that is nobody's business */
#define SILENT_MS	(HUB_HEARTBEAT_MS + 5000)	/* a heartbeat is overdue */

static struct admin_away
look_at(struct hub *hub, const struct run *run)
{
	struct session *s = session_find(hub, run->info.device);
	struct admin_away ev = { .state = ADMIN_BACK };
	int64_t now = monotime_wall_ns();
	struct store_device d;

	if (store_device_get(hub->store, run->info.device, &d) < 0)
		return ev;
	snprintf(ev.device, sizeof(ev.device), "%s", d.name[0] != '\0' ? d.name : d.id);
	ev.since = s != NULL ? session_heard(s) : d.last_seen;
	if (s != NULL) {
		ev.state = now - ev.since >= SILENT_MS * 1000000LL ? ADMIN_SILENT : ADMIN_BACK;
	} else {
		ev.state = now - ev.since >= AWAY_NS ? ADMIN_AWAY : ADMIN_BACK;
		snprintf(ev.why, sizeof(ev.why), "%s", run->away);
	}
	return ev;
}

static void
look(struct loop_timer *timer)
{
	struct client *client = timer->ctx;
	struct run *run = client->watch.run;
	struct admin_away ev;
	struct iovec iov = { &ev, sizeof(ev) };

	if (run == NULL || run_is_closed(run))
		return;
	ev = look_at(client->hub, run);
	/* A client that takes nothing now is told at the next look, if it is still so. */
	if (ev.state != client->away && ipc_try_sendv(&client->chan, ADMIN_EV_AWAY, &iov, 1) == 0)
		client->away = ev.state;
	loop_timer_set_ms(client->hub->loop, &client->look, LOOK_MS);
}

void
client_away_init(struct client *client)
{
	loop_timer_init(&client->look, look, client);
}

void
client_away_follow(struct client *client)
{
	client->away = ADMIN_BACK;
	loop_timer_set_ms(client->hub->loop, &client->look, LOOK_MS);
}
