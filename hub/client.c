#include "hub/adminattach.h"
#include "hub/adminharness.h"
#include "hub/adminupgrade.h"
#include "hub/adminusb.h"
#include "hub/attach.h"
#include "hub/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "hub/forward.h"
#include "hub/result.h"
#include "hub/harness.h"
#include "hub/secret.h"
#include "hub/shell.h"
#include "hub/usb.h"
#include "hub/adminpipe.h"
#include "hub/file.h"
#include "hub/l2.h"
#include "hub/pipe.h"
#include "hub/upsend.h"

#define QUEUE_MAX	(16u << 20)	/* lists; logs never queue */
#define SNDBUF		(1 << 20)

static int
take_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	(void)ctx;
	return ipc_take_hello(chan, msg, IPC_ROLE_CONTROL, NULL);
}

static const struct ipc_rule rules[] = {
	{ IPC_HELLO, IPC_ST_HELLO, 0, 0, sizeof(struct ipc_hello), sizeof(struct ipc_hello), take_hello },
	{ ADMIN_REQ_STATUS, IPC_ST_OPEN, 0, 0, 0, 0, client_status },
	{ ADMIN_REQ_TOKEN, IPC_ST_OPEN, 0, 0, sizeof(struct admin_token_req), sizeof(struct admin_token_req),
	    client_token },
	{ ADMIN_REQ_TOKENS, IPC_ST_OPEN, 0, 0, 0, 0, client_tokens },
	{ ADMIN_REQ_TOKEN_REVOKE, IPC_ST_OPEN, 0, 0, sizeof(struct admin_text), sizeof(struct admin_text),
	    client_token_revoke },
	{ ADMIN_REQ_DEVICES, IPC_ST_OPEN, 0, 0, 0, 0, client_devices },
	{ ADMIN_REQ_RUNS, IPC_ST_OPEN, 0, 0, sizeof(struct admin_runs_req), sizeof(struct admin_runs_req), client_runs },
	{ ADMIN_REQ_RUN, IPC_ST_OPEN, 0, 2, 0, ADMIN_LOG_MAX, client_run },
	{ ADMIN_REQ_SHELL, IPC_ST_OPEN, 0, 0, 0, ADMIN_LOG_MAX, client_run },
	{ ADMIN_REQ_FOLLOW, IPC_ST_OPEN, 0, 0, sizeof(struct admin_follow), sizeof(struct admin_follow), client_follow },
	{ ADMIN_REQ_SIGNAL, IPC_ST_OPEN, 0, 0, sizeof(struct admin_signal), sizeof(struct admin_signal), client_signal },
	{ ADMIN_REQ_RESULT, IPC_ST_OPEN, 0, 0, sizeof(struct admin_text), sizeof(struct admin_text), client_result },
	{ ADMIN_REQ_SECRET_REVOKE, IPC_ST_OPEN, 0, 0, sizeof(struct admin_secret_revoke), sizeof(struct admin_secret_revoke),
	    client_secret_revoke },
	{ ADMIN_REQ_SECRET_REFRESH, IPC_ST_OPEN, 1, 1, 0, 0, client_secret_refresh },
	{ ADMIN_REQ_USB, IPC_ST_OPEN, 1, 1, sizeof(struct admin_usb), sizeof(struct admin_usb), client_usb },
	{ ADMIN_REQ_USB_LIST, IPC_ST_OPEN, 0, 0, 0, 0, client_usb_list },
	{ ADMIN_REQ_L2, IPC_ST_OPEN, 1, 1, sizeof(struct admin_l2), sizeof(struct admin_l2), client_l2 },
	{ ADMIN_REQ_L2_TAP, IPC_ST_OPEN, 1, 1, sizeof(struct admin_l2_tap), sizeof(struct admin_l2_tap), client_l2_tap },
	{ ADMIN_REQ_PIPE, IPC_ST_OPEN, 1, 1, sizeof(struct admin_pipe), sizeof(struct admin_pipe), client_pipe },
	{ ADMIN_REQ_ATTACH, IPC_ST_OPEN, 1, 2, sizeof(struct admin_attach), sizeof(struct admin_attach), client_attach },
	{ ADMIN_EV_ATTACH_SIZE, IPC_ST_OPEN, 0, 0, sizeof(struct admin_attach_size), sizeof(struct admin_attach_size), client_attach_size },
	{ ADMIN_EV_ATTACH_CLOSE, IPC_ST_OPEN, 0, 0, 0, 0, client_attach_close },
	{ ADMIN_REQ_FILE, IPC_ST_OPEN, 1, 1, sizeof(struct admin_file), sizeof(struct admin_file), client_file },
	{ ADMIN_REQ_UPGRADE, IPC_ST_OPEN, 0, 1, sizeof(struct admin_upgrade_req), sizeof(struct admin_upgrade_req), client_upgrade },
	{ ADMIN_REQ_HARNESS, IPC_ST_OPEN, 0, 0, sizeof(struct admin_harness_req), sizeof(struct admin_harness_req), client_harness },
	{ ADMIN_REQ_REVOKE, IPC_ST_OPEN, 0, 0, sizeof(struct admin_text), sizeof(struct admin_text), client_revoke },
};

static void
ended(struct ipc_chan *chan, int err, void *ctx)
{
	(void)chan;
	if (err < 0)
		log_debug("admin client: %s", strerror(-err));
	client_free(ctx);
}

static void
writable(struct ipc_chan *chan, void *ctx)
{
	(void)chan;
	client_pump(ctx);
}

static void
pump_cb(struct loop_timer *timer)
{
	client_pump(timer->ctx);
}

void
client_free(struct client *client)
{
	struct hub *hub = client->hub;

	forward_client_gone(hub, client->serial);
	pipe_client_gone(hub, client->serial);
	attach_client_gone(hub, client->serial);
	shell_client_gone(hub, client->serial);
	run_unwatch(&client->watch);
	upsend_client_gone(hub, client->serial);
	loop_timer_del(hub->loop, &client->pump);
	loop_timer_del(hub->loop, &client->look);
	ipc_chan_done(&client->chan);
	if (client->prev != NULL)
		client->prev->next = client->next;
	else
		hub->clients = client->next;
	if (client->next != NULL)
		client->next->prev = client->prev;
	hub->nclients--;
	free(client->buf);
	free(client);
}

void
client_accept(struct hub *hub, int listener)
{
	int fd = ipc_accept(listener), size = SNDBUF;
	struct client *client;

	if (fd < 0)
		return;
	client = hub->nclients < CLIENTS_MAX ? calloc(1, sizeof(*client)) : NULL;
	if (client == NULL) {
		close(fd);
		return;
	}
	client->conf = (struct ipc_conf){ .rules = rules, .nrules = sizeof(rules) / sizeof(rules[0]),
		.max_payload = ADMIN_MAX, .queue_max = QUEUE_MAX, .ctx = client, .ended = ended, .writable = writable };
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (ipc_chan_init(&client->chan, hub->loop, fd, &client->conf) < 0) {
		free(client);
		return;
	}
	client->hub = hub;
	client->serial = ++hub->last_client;
	client->next = hub->clients;
	if (client->next != NULL)
		client->next->prev = client;
	hub->clients = client;
	hub->nclients++;
	loop_timer_init(&client->pump, pump_cb, client);
	client_away_init(client);
	/* A peer that is gone already shows in the loop. */
	(void)ipc_send_hello(&client->chan, IPC_ROLE_CONTROL, 0);
}

int
client_say(struct client *client, const struct ipc_hdr *req, int status, const char *fmt, ...)
{
	struct admin_text text = { 0 };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text.text, sizeof(text.text), fmt, ap);
	va_end(ap);
	/* vsnprintf has written one NUL; the rest is zero already. */
	return ipc_answer(&client->chan, req, status, &text, sizeof(text));
}

struct client *
client_find(struct hub *hub, uint64_t serial)
{
	for (struct client *c = hub->clients; c != NULL; c = c->next)
		if (c->serial == serial)
			return c;
	return NULL;
}

/* Those a word fits, for the sentence that tells them apart. */
struct fits {
	struct hub *hub;
	const char *what;
	int rank;
	unsigned n;
	char ids[112];		/* three of them, so that the sentence fits into struct admin_text */
	char revoked[DEVICE_ID_SIZE];
};

static int
list_fit(const struct store_device *d, void *ctx)
{
	struct fits *f = ctx;
	int rank = store_device_fit(d, f->what);
	size_t len;

	if (d->revoked && strcmp(d->name, f->what) == 0)
		snprintf(f->revoked, sizeof(f->revoked), "%s", d->id);
	if (rank == 0 || rank < f->rank)
		return 0;
	f->n = rank == f->rank ? f->n + 1 : 1;
	f->rank = rank;
	len = f->n == 1 ? 0 : strlen(f->ids);
	if (f->n <= 3)
		snprintf(f->ids + len, sizeof(f->ids) - len, "%s%s (%s)", f->n > 1 ? ", " : "", d->id,
		    session_find(f->hub, d->id) != NULL ? "connected" : "offline");
	return 0;
}

bool
client_device(struct client *client, const struct ipc_hdr *req, const char *what, struct store_device *ret_device, int *ret_r)
{
	struct fits f = { .hub = client->hub, .what = what };
	int r = store_device_find(client->hub->store, what, ret_device);

	if (r == 0)
		return true;
	(void)store_devices(client->hub->store, list_fit, &f);	/* one that cannot be read has no sentence but the last */
	if (r == -ENOTUNIQ)
		*ret_r = client_say(client, req, r, "more than one device fits %.32s: %s%s: give an id; edgehub revoke ID ends one that is no more", what, f.ids,
		    f.n > 3 ? " ..." : "");
	else if (r == -ENOENT && f.revoked[0] != '\0')
		*ret_r = client_say(client, req, r, "no device %.64s: %s had the name and was revoked (edgehub devices --all)", what, f.revoked);
	else if (r == -ENOENT)
		*ret_r = client_say(client, req, r, "no device %.64s (edgehub devices lists them)", what);
	else
		*ret_r = client_say(client, req, r, "the database cannot be read");
	return false;
}

int
client_say_away(struct client *client, const struct ipc_hdr *req, const struct store_device *d)
{
	return client_say(client, req, -ENOTCONN, "device %s is %s", d->name[0] != '\0' ? d->name : d->id, d->revoked ? "revoked" : "not connected");
}

struct session *
client_session(struct client *client, const struct ipc_hdr *req, const struct store_device *d, int *ret_r)
{
	struct session *s = d->revoked ? NULL : session_find(client->hub, d->id);

	if (s == NULL)
		*ret_r = client_say_away(client, req, d);
	return s;
}

void
client_answer(struct hub *hub, uint64_t serial, uint32_t id, int status, const char *text)
{
	struct ipc_hdr req = { .type = ADMIN_REQ_SIGNAL, .id = id };

	struct client *c = client_find(hub, serial);

	if (c != NULL)
		(void)client_say(c, &req, status, "%s", text);
}
