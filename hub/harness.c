/*
 * Who calls: clients of the operator's socket, and sessions with what devices answered. A device's word is shown, so it is cleaned; it decides
 * nothing here.
 */
#include "hub/harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hub/adminharness.h"

/* What is printable stays, and so do newlines: an installer's last words are lines. */
static void
copy(char *dst, size_t size, const char *src)
{
	size_t n = 0;

	for (; src != NULL && *src != '\0' && n + 1 < size; src++)
		dst[n++] = (*src >= ' ' && *src <= '~') || *src == '\n' ? *src : '?';
	memset(dst + n, 0, size - n);
}

static void
add_names(const struct json *caps, struct admin_harness *ans)
{
	const struct json *list = json_get(caps, "harnesses");
	size_t len = 0;

	for (const struct json *j = list != NULL && list->type == JSON_ARRAY ? list->child : NULL; j != NULL; j = j->next)
		if (j->type == JSON_STRING && harness_name_ok(j->str) && len + j->len + 2 <= sizeof(ans->list))
			len += (size_t)snprintf(ans->list + len, sizeof(ans->list) - len, "%s%s", len > 0 ? " " : "", j->str);
}

static void
answer(struct hub *hub, uint64_t client, uint32_t id, const struct admin_harness *ans)
{
	const struct ipc_hdr req = { .type = ADMIN_REQ_HARNESS, .id = id };
	struct client *c = client_find(hub, client);

	if (c != NULL)
		(void)ipc_answer(&c->chan, &req, 0, ans, sizeof(*ans));
}

static int
ask_inventory(struct session *s, uint64_t client, uint32_t id)
{
	return session_ask(s, "inventory_req", "", "{}", 2, client, id);
}

/* Not connected: as it was when it last was. */
static int
answer_stored(struct client *client, const struct ipc_hdr *req, const char *device)
{
	struct admin_harness ans = { 0 };
	char *caps = store_device_caps(client->hub->store, device);
	struct json_doc *doc = NULL;

	if (caps != NULL && json_parse((const uint8_t *)caps, strlen(caps), &doc) == 0)
		add_names(json_root(doc), &ans);
	json_doc_free(doc);
	free(caps);
	return ipc_answer(&client->chan, req, 0, &ans, sizeof(ans));
}

static int
ask_install(struct session *s, const char *name, uint64_t client, uint32_t id)
{
	char buf[256];
	struct json_w w;
	size_t len;

	json_w_init(&w, buf, sizeof(buf));
	json_w_obj(&w, NULL);
	json_w_str(&w, "harness", name);
	json_w_str(&w, "reason", "operator");
	json_w_end_obj(&w);
	return json_w_done(&w, &len) < 0 ? -EINVAL : session_ask(s, "install_harness", "", buf, len, client, id);
}

int
client_harness(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct admin_harness_req req;
	struct store_device d;
	struct session *s;
	int r;

	(void)chan;
	memcpy(&req, msg->data, sizeof(req));
	if (!admin_harness_req_ok(&req))
		return -EBADMSG;
	if (!client_device(client, &msg->hdr, req.device, &d, &r))
		return r;
	s = session_find(client->hub, d.id);
	if (s == NULL)
		return req.name[0] == '\0' ? answer_stored(client, &msg->hdr, d.id) :
		    client_say_away(client, &msg->hdr, &d);
	r = req.name[0] == '\0' ? ask_inventory(s, client->serial, msg->hdr.id) : ask_install(s, req.name, client->serial, msg->hdr.id);
	return r < 0 ? client_say(client, &msg->hdr, -EBUSY, "the device answers nothing") : 0;
}

void
harness_inventory(struct session *s, const struct json *payload, uint64_t client, uint32_t client_id)
{
	const struct json *caps = json_get(payload, "capabilities");
	struct admin_harness ans = { .fresh = 1 };

	if (caps == NULL || caps->type != JSON_OBJECT) {
		if (client != 0)
			client_answer(s->hub, client, client_id, -EREMOTEIO, "the device's inventory is none");
		return;
	}
	session_store_caps(s, caps);
	add_names(caps, &ans);
	if (client != 0)
		answer(s->hub, client, client_id, &ans);
}

void
harness_installed(struct session *s, const struct json *payload, uint64_t client, uint32_t client_id)
{
	struct admin_harness ans = { 0 };
	bool yes = false;

	json_get_bool(payload, "installed", &yes);
	ans.installed = yes;
	yes = false;
	json_get_bool(payload, "already_present", &yes);
	ans.present = yes;
	copy(ans.path, sizeof(ans.path), json_get_str(payload, "path"));
	copy(ans.version, sizeof(ans.version), json_get_str(payload, "version"));
	copy(ans.reason, sizeof(ans.reason), json_get_str(payload, "reason"));
	if (ans.installed == 0 && ans.reason[0] == '\0')
		copy(ans.reason, sizeof(ans.reason), "the device gave no reason");
	log_info("device %s: harness: %s", s->device, ans.installed == 0 ? "not installed" : ans.present != 0 ? "was there" : "installed");
	/* What it can do has changed: what is stored of it follows. */
	if (ans.installed != 0 && ans.present == 0)
		(void)ask_inventory(s, 0, 0);
	if (client != 0)
		answer(s->hub, client, client_id, &ans);
}
