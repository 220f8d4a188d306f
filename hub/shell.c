/*
 * Runs that are there for one shell each. They end with it, whatever ends it: its program, the operator, the hub. While the device is away
 * the end is owed: the store knows which runs these are, and each session and each heartbeat of the device is an occasion to pay.
 */
#include "hub/shell.h"

#include <string.h>

#include "common/log.h"

int
shell_new(struct client *client, const struct run_info *info, const char *spec, size_t len, struct run **ret_run)
{
	struct store *store = client->hub->store;
	int r = store_shell_put(store, info->handle, -1);	/* first: a hub that ends between the two leaves no run that nobody ends */

	if (r == 0)
		r = run_new(client->hub, info, spec, len, ret_run);
	if (r < 0) {
		store_shell_over(store, info->handle);
		return r;
	}
	(*ret_run)->shell = (*ret_run)->owes = true;
	(*ret_run)->shell_owner = client->serial;
	(*ret_run)->shell_code = -1;
	return 0;
}

void
shell_load(struct run *run)
{
	run->shell = store_shell_get(run->hub->store, run->info.handle, &run->shell_code) == 0;
	run->owes = true;	/* sessions in it, for all that is known */
}

bool
shell_is_owed(const struct run *run)
{
	return run->shell && run->shell_owner == 0 && !run_state_is_final(run->info.state);
}

static void
end(struct run *run)
{
	struct session *s = session_find(run->hub, run->info.device);

	run->shell_owner = 0;
	if (!shell_is_owed(run))
		return;
	if (s == NULL)
		log_info("device %s: run %s, whose shell is over, is ended when the device is back", run->info.device, run->info.handle);
	else
		(void)session_signal_run(s, run->info.handle, "kill", 0, 0);	/* else at the next heartbeat */
}

void
shell_over(struct hub *hub, const char *handle, int32_t code)
{
	struct run *run = run_get(hub, handle);

	if (run == NULL)
		return;
	if (run->shell && code >= 0 && !run_state_is_final(run->info.state)) {
		run->shell_code = code;
		(void)store_shell_put(hub->store, handle, code);	/* it is for the list of runs */
	}
	end(run);
	run_put(run);
}

void
shell_client_gone(struct hub *hub, uint64_t serial)
{
	for (struct run *run = hub->runs, *next; run != NULL; run = next) {
		next = run->next;
		if (run->shell_owner == serial)
			end(run);
	}
}

void
shell_started(struct run *run)
{
	if (shell_is_owed(run))
		end(run);
}

void
shell_session(struct session *s)
{
	for (struct run *run = s->hub->runs, *next; run != NULL && !s->gone; run = next) {
		next = run->next;
		if (strcmp(run->info.device, s->device) == 0 && shell_is_owed(run))
			end(run);
	}
}
