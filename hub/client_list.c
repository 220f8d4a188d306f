/* Status, devices, runs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hub/client.h"
#include "version.h"

#define CAPS_MAX	(32u * 1024)

static int
count_device(const struct store_device *device, void *ctx)
{
	(void)device;
	(*(uint32_t *)ctx)++;
	return 0;
}

static int
count_run(const struct run_info *info, void *ctx)
{
	(void)info;
	(*(uint32_t *)ctx)++;
	return 0;
}

int
client_status(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub *hub = client->hub;
	struct admin_status st = { .pid = getpid(), .connections = hub->nconns, .clients = hub->nclients,
		.started = hub->started, .sessions = hub->count.sessions, .refused = hub->count.refused,
		.rx_bytes = hub->count.rx_bytes, .tx_bytes = hub->count.tx_bytes, .log_bytes = hub->count.log_bytes,
		.durable = !hub->nosync };

	for (struct session *s = hub->sessions; s != NULL; s = s->next)
		st.connected += s->welcomed;
	if (store_devices(hub->store, count_device, &st.devices) < 0 ||
	    store_runs(hub->store, NULL, true, 0, UINT32_MAX, count_run, &st.open_runs) < 0)
		return client_say(client, &msg->hdr, -EIO, "the database cannot be read");
	snprintf(st.build, sizeof(st.build), "%s", EDGEWARD_VERSION);
	snprintf(st.pin, sizeof(st.pin), "%s", hub->pin);
	snprintf(st.url, sizeof(st.url), "%s", hub->url);
	return ipc_answer(chan, &msg->hdr, 0, &st, sizeof(st));
}

struct list {
	struct client *client;
	uint32_t id;
};

static int
send_device(const struct store_device *d, void *ctx)
{
	struct list *list = ctx;
	struct hub *hub = list->client->hub;
	struct session *s = session_find(hub, d->id);
	struct ipc_hdr hdr = { .type = ADMIN_EV_DEVICE, .id = list->id };
	struct admin_device ev = { .created = d->created, .last_seen = d->last_seen, .revoked = d->revoked };
	char *caps = store_device_caps(hub->store, d->id);
	size_t len = caps != NULL ? strlen(caps) : 0;
	uint8_t *buf = malloc(sizeof(ev) + CAPS_MAX);
	int r = -ENOMEM;

	if (s != NULL) {
		ev.connected = 1;
		ev.edgeward = s->edgeward;
		ev.since = s->since;
		ev.epoch = s->epoch;
		ev.last_seen = session_heard(s);
		snprintf(ev.peer, sizeof(ev.peer), "%s", s->conn->peer);
	}
	snprintf(ev.id, sizeof(ev.id), "%s", d->id);
	snprintf(ev.name, sizeof(ev.name), "%s", d->name);
	snprintf(ev.version, sizeof(ev.version), "%s", d->version);
	if (len > CAPS_MAX)
		len = 0;
	if (buf != NULL) {
		memcpy(buf, &ev, sizeof(ev));
		if (len > 0)
			memcpy(buf + sizeof(ev), caps, len);
		r = ipc_send_fds(&list->client->chan, &hdr, buf, sizeof(ev) + len, NULL, 0);
	}
	free(buf);
	free(caps);
	return r;
}

int
client_devices(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub *hub = client->hub;
	struct list list = { client, msg->hdr.id };
	int r = store_devices(hub->store, send_device, &list);

	return ipc_answer(chan, &msg->hdr, r, NULL, 0);
}

/* The record for one run; run NULL = it is not in memory. */
void
client_fill_run(struct hub *hub, const struct run_info *info, const struct run *run, struct admin_run *ev)
{
	struct store_device d;

	*ev = (struct admin_run){ .state = info->state, .verify = info->verify, .exit_code = info->exit_code, .term_signal = info->term_signal,
		.pid = info->pid, .created = info->created, .started = info->started, .finished = info->finished,
		.timeout_ms = info->timeout_ms, .final_offset = info->final_offset };
	ev->flags = (info->gapped ? ADMIN_RUN_GAPPED : 0) | (info->has_digest ? ADMIN_RUN_DIGEST : 0) |
	    (info->timed_out ? ADMIN_RUN_TIMED_OUT : 0) |
	    (session_find(hub, info->device) != NULL ? ADMIN_RUN_CONNECTED : 0);
	if (run != NULL) {
		ev->bytes = run->log.next;
		ev->durable = run->log.durable;
		ev->ngaps = (uint32_t)run->log.ngaps;
		ev->gap_from = run->log.ngaps > 0 ? run->log.gaps[0].from : 0;
		ev->gap_to = run->log.ngaps > 0 ? run->log.gaps[0].to : 0;
	}
	/* Missing at the end: the device counted more than it could send. */
	if (run != NULL && info->gapped && run->log.ngaps == 0 && info->final_offset > (int64_t)run->log.next) {
		ev->ngaps = 1;
		ev->gap_from = run->log.next;
		ev->gap_to = (uint64_t)info->final_offset;
	}
	if (info->has_digest)
		memcpy(ev->digest, info->digest, sizeof(ev->digest));
	snprintf(ev->handle, sizeof(ev->handle), "%s", info->handle);
	snprintf(ev->device, sizeof(ev->device), "%s", info->device);
	if (store_device_get(hub->store, info->device, &d) == 0)
		snprintf(ev->device_name, sizeof(ev->device_name), "%s", d.name);
	snprintf(ev->outcome, sizeof(ev->outcome), "%s", info->outcome);
	snprintf(ev->limit, sizeof(ev->limit), "%s", info->limit);
	snprintf(ev->code, sizeof(ev->code), "%s", info->code);
	snprintf(ev->error, sizeof(ev->error), "%s", info->error);
	snprintf(ev->command, sizeof(ev->command), "%s", info->command);
	snprintf(ev->work_dir, sizeof(ev->work_dir), "%s", info->work_dir);
}

static int
send_run(const struct run_info *info, void *ctx)
{
	struct list *list = ctx;
	struct ipc_hdr hdr = { .type = ADMIN_EV_RUN, .id = list->id };
	struct run *run = run_get(list->client->hub, info->handle);
	struct admin_run ev;

	client_fill_run(list->client->hub, info, run, &ev);
	if (run != NULL)
		run_put(run);
	return ipc_send_fds(&list->client->chan, &hdr, &ev, sizeof(ev), NULL, 0);
}

int
client_runs(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub *hub = client->hub;
	struct list list = { client, msg->hdr.id };
	struct admin_runs_req req;
	struct store_device d;
	int r = 0;

	memcpy(&req, msg->data, sizeof(req));
	if (!admin_runs_req_ok(&req))
		return -EBADMSG;
	if (req.device[0] != '\0' && !client_device(client, &msg->hdr, req.device, &d, &r))
		return r;
	r = store_runs(hub->store, req.device[0] != '\0' ? d.id : NULL, (req.flags & ADMIN_RUNS_OPEN) != 0, req.before,
	    req.max > 0 && req.max < ADMIN_RUNS_PAGE ? req.max : ADMIN_RUNS_PAGE, send_run, &list);
	return ipc_answer(chan, &msg->hdr, r, NULL, 0);
}
