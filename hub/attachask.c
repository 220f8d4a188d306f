/* What operators ask of attach sessions: to open one or to look on, its size, its end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "hub/attach_int.h"
#include "hub/token.h"

/* The session to look on at: the one there is. */
static const struct hub_attach *
to_watch(struct hub *hub, const char *handle, const char *session)
{
	const struct hub_attach *a = hub->attaches;

	while (a != NULL && (strcmp(a->handle, handle) != 0 || (a->flags & ATTACH_WATCH) != 0 || !a->opened ||
	    a->left || (session[0] != '\0' && strcmp(session, a->session) != 0)))
		a = a->next;
	return a;
}

static int
take_command(struct hub_attach *a, int fd)
{
	size_t len = 0;

	a->bytes = malloc(ATTACH_COMMAND_MAX);
	if (a->bytes == NULL)
		return -ENOMEM;
	if (fd_is_sealed_memfd(fd, ATTACH_COMMAND_MAX, &len) != 1 || pread(fd, a->bytes, len, 0) != (ssize_t)len)
		return -EINVAL;
	return attach_command_decode(&a->command, a->bytes, len);
}

/* Before the device may have it. A hub that cannot write is no reason against a session. */
static void
remember(const struct hub_attach *a)
{
	struct run *run = run_get(a->hub, a->handle);

	if (run != NULL) {
		run->owes = true;
		run_put(run);
	}
	if (store_attach_add(a->hub->store, a->session, a->handle, a->device, a->flags & (ATTACH_TTY | ATTACH_INPUT)) < 0)
		log_warn("device %s: session in %s cannot be stored: it is not ended there when the link is lost with its operator", a->device, a->handle);
}

static int
begin(struct client *client, struct session *s, const struct ipc_msg *msg, const struct admin_attach *req, const char *handle, int *fd,
    int command)
{
	struct hub *hub = client->hub;
	bool watch = (req->flags & ATTACH_WATCH) != 0;
	char id[TOKEN_ID_SIZE];
	struct hub_attach *a = token_random_id(id) == 0 && fd_set_nonblock(*fd) == 0 ? attach_new(hub, s->device, handle, watch ? req->session : id) : NULL;
	int r = 0;

	if (a != NULL)
		a->in = malloc(STREAM_WINDOW);
	if (a == NULL || a->in == NULL) {
		free(a);
		return client_say(client, &msg->hdr, -ENOSPC, "%u sessions are open, as many as this hub can", hub->nattaches);
	}
	a->client = client->serial;
	a->asked = msg->hdr;
	a->flags = req->flags;
	a->rows = req->rows;
	a->cols = req->cols;
	if (!watch)
		r = take_command(a, command);
	if (r == 0 && !watch)
		remember(a);
	if (r == 0)
		r = attach_begin(a, s, *fd);
	if (r < 0) {
		(void)store_attach_delete(hub->store, id);
		free(a->in);
		free(a->bytes);
		free(a);
		return client_say(client, &msg->hdr, r, r == -ENOTSUP ? "this device speaks no edgeward.1: sessions need it" :
		    r == -EBADMSG ? "malformed command" : "the device has too much to answer already");
	}
	*fd = -1;
	return 0;
}

/* Why there is no session in this run, where only the hub can tell: the device knows nothing of a run that it refused. False: ask the device. */
static bool
no_run(const struct run_info *info, bool own, char *buf, size_t size)
{
	char text[2 * sizeof(info->error)];

	if (info->state != RUN_REFUSED && !(own && run_state_is_final(info->state)))
		return false;
	if (info->error[0] != '\0')
		snprintf(text, sizeof(text), "%s%s%s: %s", run_state_name(info->state), info->code[0] != '\0' ? " " : "", info->code, info->error);
	else
		snprintf(text, sizeof(text), "the run of the shell has ended (%s)", run_state_name(info->state));
	text_clean(buf, size, text);
	return true;
}

int
client_attach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub *hub = client->hub;
	_cleanup_close_ int fd = ipc_take_fd(msg, 0), command = ipc_take_fd(msg, 1);
	const struct hub_attach *other;
	char why[sizeof(((struct admin_text *)0)->text)];
	struct run_info info;
	struct admin_attach req;
	struct session *s;
	bool own;
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !admin_attach_ok(&req) || ((req.flags & ATTACH_WATCH) == 0) != (command >= 0))
		return -EPROTO;
	r = store_run_find(hub->store, req.handle, &info);
	if (r < 0)
		return client_say(client, &msg->hdr, r, r == -ENOTUNIQ ? "more than one run fits %s" : "no run %s", req.handle);
	own = (req.flags & ADMIN_ATTACH_OWN) != 0;
	if (no_run(&info, own, why, sizeof(why)))
		return client_say(client, &msg->hdr, -ECHILD, "%s", why);
	s = session_find(hub, info.device);
	if (s == NULL)
		return client_say(client, &msg->hdr, -ENOTCONN, "the device of this run is not connected");
	if (own && info.state == RUN_PENDING)
		return client_say(client, &msg->hdr, -EAGAIN, "the device does not say whether it starts the run of the shell");
	other = to_watch(hub, info.handle, req.session);
	if ((req.flags & ATTACH_WATCH) != 0 && other == NULL)
		return client_say(client, &msg->hdr, -ENOENT, "nobody has a session open in %s", info.handle);
	if ((req.flags & ATTACH_WATCH) != 0)
		memcpy(req.session, other->session, sizeof(req.session));
	return begin(client, s, msg, &req, info.handle, &fd, command);
}

static struct hub_attach *
of_client(struct hub *hub, uint64_t serial)
{
	struct hub_attach *a = hub->attaches;

	while (a != NULL && a->client != serial)
		a = a->next;
	return a;
}

int
client_attach_size(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub_attach *a = of_client(client->hub, client->serial);
	struct admin_attach_size size;

	memcpy(&size, msg->data, sizeof(size));
	if (a == NULL || size.rows == 0 || size.cols == 0)
		return 0;
	a->rows = size.rows;
	a->cols = size.cols;
	if (a->ready)
		attach_send(a, "attach_resize", true);
	return 0;
}

int
client_attach_close(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub_attach *a = of_client(client->hub, client->serial);

	if (a != NULL)
		attach_leave(a, "left");
	return 0;
}

void
attach_client_gone(struct hub *hub, uint64_t serial)
{
	struct hub_attach *a;

	while ((a = of_client(hub, serial)) != NULL)
		attach_leave(a, "left");
}

static void
stops(struct hub_attach *a)
{
	bool own = (a->flags & ADMIN_ATTACH_OWN) != 0;
	char text[sizeof(a->end.reason)];

	snprintf(text, sizeof(text), "the hub is stopping; the session ends with it");
	if ((a->flags & ATTACH_WATCH) == 0)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "; when it is back: edgehub %s %s", own ? "shell" : "attach",
		    own ? a->device : a->handle);
	attach_leave(a, text);
}

void
attach_hub_stops(struct hub *hub)
{
	for (struct hub_attach *a = hub->attaches, *next; a != NULL; a = next) {
		next = a->next;
		if (!a->left)
			stops(a);
	}
}
