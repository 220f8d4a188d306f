#include "hub/adminupgrade.h"
#include "hub/upsend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "hub/client.h"
#include "hub/streams.h"

#define PROGRESS_EVERY	(1u << 20)

enum phase { SENDING, ASKED, ACCEPTED };

struct upsend {
	struct upsend *next;
	struct hub *hub;
	uint64_t client;
	uint32_t client_id;
	struct admin_upgrade_req req;
	char device[DEVICE_ID_SIZE];
	char id[32];			/* of the frame, in every session */
	enum phase phase;
	int fd;				/* the release, -1 = from the device's mirror */
	struct hub_stream stream;
	bool streaming;
	uint64_t sent, told;
	struct admin_upgrade ev;
};

static void
free_one(struct upsend *up)
{
	struct upsend **p = &up->hub->upsends;

	while (*p != up)
		p = &(*p)->next;
	*p = up->next;
	if (up->streaming)
		mux_reset(&up->stream.chan, STREAM_RESET_GONE, "nobody waits for it any more");
	if (up->fd >= 0)
		close(up->fd);
	free(up);
}

/* ---- to the client ---- */

static void
tell(struct upsend *up, enum admin_upgrade_phase phase)
{
	struct client *c = client_find(up->hub, up->client);
	struct ipc_hdr hdr = { .type = ADMIN_EV_UPGRADE, .id = up->client_id };

	up->ev.phase = phase;
	up->ev.done = up->told = up->sent;
	up->ev.total = up->req.size;
	if (c != NULL)
		(void)ipc_send_fds(&c->chan, &hdr, &up->ev, sizeof(up->ev), NULL, 0);
}

static void
over(struct upsend *up, const char *outcome, const char *text)
{
	struct ipc_hdr req = { .type = ADMIN_REQ_UPGRADE, .id = up->client_id };
	struct client *c = client_find(up->hub, up->client);

	memset(up->ev.outcome, 0, sizeof(up->ev.outcome));
	memset(up->ev.text, 0, sizeof(up->ev.text));
	snprintf(up->ev.outcome, sizeof(up->ev.outcome), "%.23s", outcome);
	snprintf(up->ev.text, sizeof(up->ev.text), "%.255s", text);
	up->ev.phase = ADMIN_UPGRADE_OVER;
	log_info("device %s: upgrade: %s %s", up->device, up->ev.outcome, up->ev.text);
	if (c != NULL)
		(void)ipc_answer(&c->chan, &req, 0, &up->ev, sizeof(up->ev));
	free_one(up);
}

/* ---- the frame ---- */

static void
ask(struct upsend *up, struct session *s)
{
	char buf[1024];
	struct json_w w;

	json_w_init(&w, buf, sizeof(buf));
	frame_begin(&w, s->version, "upgrade", up->id, NULL);
	json_w_str(&w, "target_version", up->req.target);
	if (up->req.settle > 0)
		json_w_int(&w, "settle_seconds", up->req.settle);
	json_w_str(&w, "reason", "edgehub");
	frame_end(&w);
	up->phase = ASKED;
	session_send(s, &w);
}

static struct upsend *
find(struct session *s, const char *id)
{
	for (struct upsend *up = s->hub->upsends; up != NULL && id != NULL; up = up->next)
		if (strcmp(up->id, id) == 0 && strcmp(up->device, s->device) == 0)
			return up;
	return NULL;
}

static void
copy(const struct json *payload, const char *key, char *buf, size_t size)
{
	const char *s = json_get_str(payload, key);

	memset(buf, 0, size);
	text_clean(buf, size, s != NULL ? s : "");
}

void
upsend_upgrading(struct session *s, const struct frame *f)
{
	struct upsend *up = find(s, f->id);
	bool accepted = false, current = false;
	char text[256];

	if (up == NULL || up->phase != ASKED)
		return;
	json_get_bool(f->payload, "accepted", &accepted);
	json_get_bool(f->payload, "already_current", &current);
	copy(f->payload, "from_version", up->ev.from, sizeof(up->ev.from));
	copy(f->payload, "target_version", up->ev.to, sizeof(up->ev.to));
	copy(f->payload, "reason", text, sizeof(text));
	if (!accepted) {
		over(up, current ? "already_current" : "refused", text);
		return;
	}
	up->phase = ACCEPTED;
	if ((up->req.flags & ADMIN_UPGRADE_NO_WAIT) != 0)
		over(up, "accepted", text);
	else
		tell(up, ADMIN_UPGRADE_ACCEPTED);
}

void
upsend_result(struct session *s, const struct frame *f)
{
	struct upsend *up = find(s, f->id);
	char outcome[24], text[256];

	copy(f->payload, "outcome", outcome, sizeof(outcome));
	copy(f->payload, "reason", text, sizeof(text));
	if (up == NULL) {
		log_info("device %s (%s): upgrade: %s: %s", s->device, s->name, outcome, text);
		return;
	}
	copy(f->payload, "from_version", up->ev.from, sizeof(up->ev.from));
	copy(f->payload, "to_version", up->ev.to, sizeof(up->ev.to));
	over(up, outcome, text);
}

bool
upsend_error(struct session *s, const char *id, const char *text)
{
	struct upsend *up = find(s, id);

	if (up == NULL)
		return false;
	over(up, "refused", text);
	return true;
}

/* ---- the release ---- */

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct upsend *up = c->ctx;
	uint64_t left = up->req.size - up->sent;
	ssize_t n = pread(up->fd, buf, left < max ? (size_t)left : max, (off_t)up->sent);

	if (n <= 0)
		return n < 0 ? -errno : -ENODATA;	/* it has become shorter */
	up->sent += (size_t)n;
	if (up->sent == up->req.size)
		mux_end(c, NULL);
	if (up->sent - up->told >= PROGRESS_EVERY)
		tell(up, ADMIN_UPGRADE_SENDING);
	return n;
}

/* It says where it goes on: nothing, or what came before the link was cut. */
static void
opened(struct hub_stream *st, const struct json *payload)
{
	struct upsend *up = st->chan.ctx;
	int64_t from = 0, window = 0;

	json_get_int(payload, "offset", 0, (int64_t)up->req.size, &from);
	json_get_int(payload, "window", 1, INT64_MAX, &window);
	up->sent = (uint64_t)from;
	mux_tx_start(&st->chan, (uint64_t)from, (uint64_t)window);
	tell(up, ADMIN_UPGRADE_SENDING);
	if (up->sent == up->req.size)
		mux_end(&st->chan, NULL);
	else
		mux_want(&st->chan);
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct upsend *up = c->ctx;
	struct session *s = session_find(up->hub, up->device);

	up->streaming = false;
	if (code == 0 && s != NULL) {
		tell(up, ADMIN_UPGRADE_SENT);
		ask(up, s);
	} else if (code == STREAM_RESET_GONE) {
		tell(up, ADMIN_UPGRADE_AWAY);	/* with the session: the next one goes on */
	} else {
		over(up, "refused", reason);
	}
}

static const struct mux_kind kind = { .class = MUX_FILE, .fill = fill, .closed = closed };

static int
send_release(struct upsend *up, struct session *s)
{
	struct json_w w;
	int r;

	up->stream.opened = opened;
	r = streams_begin(s, &up->stream, &kind, up, &w, "stream_open", "release");
	if (r < 0)
		return r;
	up->streaming = true;
	json_w_int(&w, "sequence", (int64_t)up->req.sequence);
	json_w_int(&w, "size", (int64_t)up->req.size);
	json_w_str(&w, "sha256", up->req.sha256);
	json_w_int(&w, "offset", (int64_t)up->sent);
	frame_end(&w);
	session_send(s, &w);
	return 0;
}

static int
go_on(struct upsend *up, struct session *s)
{
	if (!s->edgeward)
		return -ENOTSUP;
	if (up->phase == SENDING)
		return send_release(up, s);
	if (up->phase == ASKED)
		ask(up, s);	/* the same id: the device knows whether it has had it */
	return 0;
}

void
upsend_session(struct session *s)
{
	struct upsend *next;

	for (struct upsend *up = s->hub->upsends; up != NULL && !s->gone; up = next) {
		next = up->next;
		if (strcmp(up->device, s->device) == 0 && !up->streaming && go_on(up, s) < 0)
			over(up, "refused", "the device came back without edgeward.1");
	}
}

void
upsend_client_gone(struct hub *hub, uint64_t serial)
{
	struct upsend *next;

	for (struct upsend *up = hub->upsends; up != NULL; up = next) {
		next = up->next;
		if (up->client == serial)
			free_one(up);
	}
}

/* ---- the request ---- */

static int
begin(struct client *client, const struct ipc_hdr *hdr, const struct admin_upgrade_req *req, const struct store_device *d, int *fd)
{
	struct upsend *up;
	int r;
	struct session *s = client_session(client, hdr, d, &r);

	if (s == NULL)
		return r;
	up = calloc(1, sizeof(*up));
	if (up == NULL)
		return client_say(client, hdr, -ENOMEM, "out of memory");
	*up = (struct upsend){ .next = client->hub->upsends, .hub = client->hub, .client = client->serial, .client_id = hdr->id, .req = *req,
		.phase = SENDING, .fd = -1 };
	client->hub->upsends = up;
	snprintf(up->device, sizeof(up->device), "%s", d->id);
	memcpy(up->id, "up-", 3);
	r = token_random_id(up->id + 3);
	up->phase = *fd < 0 ? ASKED : SENDING;
	up->fd = take_fd(fd);
	if (r == 0)
		r = go_on(up, s);
	if (r == 0)
		return 0;
	free_one(up);
	return client_say(client, hdr, r, r == -ENOTSUP ? "the session with the device is plain cloop; upgrades need edgeward.1" : "%s", strerror(-r));
}

int
client_upgrade(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct admin_upgrade_req req;
	struct store_device d;
	struct stat st;
	_cleanup_close_ int fd = -1;
	int r;

	(void)chan;
	memcpy(&req, msg->data, sizeof(req));
	if (!admin_upgrade_req_ok(&req) || (req.size != 0) != (msg->nfds == 1))
		return -EBADMSG;
	if (!client_device(client, &msg->hdr, req.device, &d, &r))
		return r;
	if (req.size != 0)
		fd = ipc_take_fd(msg, 0);
	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != req.size))
		return client_say(client, &msg->hdr, -EINVAL, "the release is no regular file of that size");
	return begin(client, &msg->hdr, &req, &d, &fd);
}
