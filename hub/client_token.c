/* Enrollment tokens, and the end of devices. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "hub/client.h"

#define TOKEN_TTL_MS	(15LL * 60 * 1000)
#define TOKEN_TTL_MAX	(24LL * 60 * 60 * 1000)
#define RUNS_MAX	10000u	/* open ones of one device */

int
client_token(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub *hub = client->hub;
	struct admin_token_req req;
	struct admin_token ans = { 0 };
	char text[TOKEN_SIZE];
	struct token token;
	int64_t now = monotime_wall_ns();
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (!admin_token_req_ok(&req))
		return -EBADMSG;
	if (req.ttl_ms < 0 || req.ttl_ms > TOKEN_TTL_MAX)
		return client_say(client, &msg->hdr, -EINVAL, "a token lives at most 24 h");
	r = token_mint(TOKEN_ENROLL, hub->key, NULL, text, &token);
	text_clean(ans.name, sizeof(ans.name), req.name);
	ans.expires = now + (req.ttl_ms > 0 ? req.ttl_ms : TOKEN_TTL_MS) * 1000000;
	if (r == 0)
		r = store_token_add(hub->store, &token, ans.name, now, ans.expires);
	if (r < 0)
		return client_say(client, &msg->hdr, r, "the token cannot be stored: %s", strerror(-r));
	snprintf(ans.id, sizeof(ans.id), "%s", token.id);
	snprintf(ans.token, sizeof(ans.token), "%s", text);
	snprintf(ans.pin, sizeof(ans.pin), "%s", hub->pin);
	snprintf(ans.url, sizeof(ans.url), "%s", hub->url);
	r = ipc_answer(chan, &msg->hdr, 0, &ans, sizeof(ans));
	OPENSSL_cleanse(text, sizeof(text));
	OPENSSL_cleanse(&ans, sizeof(ans));
	return r;
}

struct list {
	struct client *client;
	uint32_t id;
};

static int
send_token(const struct store_token *t, void *ctx)
{
	struct list *list = ctx;
	struct ipc_hdr hdr = { .type = ADMIN_EV_TOKEN, .id = list->id };
	struct admin_token ev = { .created = t->created, .expires = t->expires, .used = t->used, .revoked = t->revoked };

	snprintf(ev.id, sizeof(ev.id), "%s", t->id);
	snprintf(ev.name, sizeof(ev.name), "%s", t->name);
	snprintf(ev.device, sizeof(ev.device), "%s", t->device);
	return ipc_send_fds(&list->client->chan, &hdr, &ev, sizeof(ev), NULL, 0);
}

int
client_tokens(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct list list = { client, msg->hdr.id };
	int r = store_tokens(client->hub->store, send_token, &list);

	return ipc_answer(chan, &msg->hdr, r, NULL, 0);
}

static int
bring_run(const struct run_info *info, void *ctx)
{
	(void)run_get(ctx, info->handle);
	return 0;
}

/* Nothing will be heard of its runs again: who follows one need not wait for that. */
static void
lose_runs(struct hub *hub, const char *id)
{
	struct run *next;

	store_runs(hub->store, id, true, 0, RUNS_MAX, bring_run, hub);
	for (struct run *run = hub->runs; run != NULL; run = next) {
		next = run->next;
		if (strcmp(run->info.device, id) == 0)
			run_lost(run, "its device was revoked");
	}
}

/* The device is told, if it is there. */
static int
end_device(struct hub *hub, const char *id)
{
	struct session *s = session_find(hub, id);
	int r = store_flush(hub->store);

	log_info("device %s: revoked", id);
	if (s != NULL)
		session_bye(s, "credential revoked", 0);
	lose_runs(hub, id);
	return r;
}

int
client_token_revoke(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub *hub = client->hub;
	char device[DEVICE_ID_SIZE] = "";
	struct admin_text req;
	int r;

	(void)chan;
	memcpy(&req, msg->data, sizeof(req));
	if (!admin_text_ok(&req))
		return -EBADMSG;
	r = store_token_revoke(hub->store, req.text, device);
	if (r == 0)
		r = device[0] != '\0' ? end_device(hub, device) : store_flush(hub->store);
	if (r < 0)
		return client_say(client, &msg->hdr, r, r == -ENOENT ? "no token %.64s" : "token %.64s: cannot be stored",
		    req.text);
	return client_say(client, &msg->hdr, 0, "%s", device);
}

int
client_revoke(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub *hub = client->hub;
	struct admin_text req;
	struct store_device d;
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (!admin_text_ok(&req))
		return -EBADMSG;
	if (!client_device(client, &msg->hdr, req.text, &d, &r))
		return r;
	r = store_device_revoke(hub->store, d.id);
	if (r == 0)
		r = end_device(hub, d.id);
	if (r < 0)
		return client_say(client, &msg->hdr, r, "cannot be stored: %s", strerror(-r));
	return client_say(client, &msg->hdr, 0, "%s", d.id);
}
