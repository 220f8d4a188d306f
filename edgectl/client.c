/*
 * The channel is the one the daemons use (common/ipc.c), with tables of what each daemon may say to an operator. A daemon
 * that says anything else is of another version or broken; either way we stop listening to it.
 */
#include "edgectl/client.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "edgectl/edgectl.h"
#include "proto/ipc/ctl.h"
#include "version.h"

#define CURRENT		"/var/lib/edgeward/current"
#define AGAIN_MS	20
#define QUEUE_MAX	(4 * (IPC_MAX_CTL + sizeof(struct ipc_hdr)))

static int
on_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *c = ctx;
	int r = ipc_take_hello(chan, msg, c->role, &c->hello);

	c->greeted = r == 0;
	return r;
}

static int
on_answer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *c = ctx;

	if (msg->hdr.id != c->id || c->answered)
		return -EPROTO;
	c->answered = true;
	c->status = msg->hdr.status;
	c->len = msg->hdr.len;
	memcpy(c->answer, msg->data, msg->hdr.len);
	c->answer_fd = ipc_take_fd(msg, 0);
	return 0;
}

static int
on_attach_end(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *c = ctx;
	struct attach_end e;

	memcpy(&e, msg->data, sizeof(e));
	if (!attach_end_ok(&e) || c->attach_end == NULL)
		return -EPROTO;
	c->attach_end(&e, c->ctx);
	return 0;
}

static int
on_workload(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *c = ctx;
	char command[WORK_COMMAND_SIZE] = "";
	struct work_workload w;

	memcpy(&w, msg->data, sizeof(w));
	memcpy(command, msg->data + sizeof(w), msg->hdr.len - sizeof(w));
	if (msg->hdr.id != c->id || c->answered || !work_workload_ok(&w) || c->workload == NULL)
		return -EPROTO;
	c->workload(&w, command, c->ctx);
	return 0;
}

static int
on_policy_key(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *c = ctx;
	struct ctl_policy_key key;
	char value[CTL_POLICY_VALUE_MAX + 1];
	size_t len = msg->hdr.len - sizeof(key);

	memcpy(&key, msg->data, sizeof(key));
	memcpy(value, msg->data + sizeof(key), len);
	value[len] = '\0';
	if (msg->hdr.id != c->id || c->answered || c->policy_key == NULL || strlen(value) != len ||
	    !ipc_str_ok(key.section, sizeof(key.section)) || !ipc_str_ok(key.name, sizeof(key.name)))
		return -EPROTO;
	c->policy_key(&key, value, c->ctx);
	return 0;
}

static int
on_metric(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *c = ctx;
	struct ctl_metric m;

	memcpy(&m, msg->data, sizeof(m));
	if (msg->hdr.id != c->id || c->answered || c->metric == NULL || !ipc_str_ok(m.name, sizeof(m.name)) ||
	    !ipc_str_ok(m.label, sizeof(m.label)))
		return -EPROTO;
	c->metric(&m, c->ctx);
	return 0;
}

static int
on_event(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *c = ctx;
	struct ctl_event e;

	memcpy(&e, msg->data, sizeof(e));
	if (msg->hdr.id != c->id || c->answered || c->event == NULL || !ipc_str_ok(e.kind, sizeof(e.kind)) ||
	    !ipc_str_ok(e.subject, sizeof(e.subject)) || !ipc_str_ok(e.text, sizeof(e.text)))
		return -EPROTO;
	c->event(&e, c->ctx);
	return 0;
}

static int
on_device(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *c = ctx;
	struct device_info info;

	memcpy(&info, msg->data, sizeof(info));
	if (msg->hdr.id != c->id || c->answered || c->device == NULL || !device_info_ok(&info))
		return -EPROTO;
	c->device(&info, c->ctx);
	return 0;
}

static int
on_link(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *c = ctx;
	struct l2_open info;

	memcpy(&info, msg->data, sizeof(info));
	if (msg->hdr.id != c->id || c->answered || c->link == NULL || !l2_open_ok(&info))
		return -EPROTO;
	c->link(&info, c->ctx);
	return 0;
}

/* An answer that only carries an error is empty. */
#define ANSWER(t, size)	{ .type = (t), .states = IPC_ST_OPEN, .max = (size), .handler = on_answer }
#define HELLO	{ .type = IPC_HELLO, .states = IPC_ST_HELLO, .min = sizeof(struct ipc_hello), \
		  .max = sizeof(struct ipc_hello), .handler = on_hello }

/* What both are asked. */
#define COMMON \
	HELLO, \
	ANSWER(CTL_ANS_METRICS, 0), \
	ANSWER(CTL_ANS_EVENTS, sizeof(struct ctl_events)), \
	{ .type = CTL_EV_METRIC, .states = IPC_ST_OPEN, .min = sizeof(struct ctl_metric), .max = sizeof(struct ctl_metric), \
	  .handler = on_metric }, \
	{ .type = CTL_EV_EVENT, .states = IPC_ST_OPEN, .min = sizeof(struct ctl_event), .max = sizeof(struct ctl_event), \
	  .handler = on_event }

static const struct ipc_rule rules_connectd[] = {
	COMMON,
	ANSWER(CTL_ANS_STATUS, sizeof(struct ctl_connectd_status)),
	ANSWER(CTL_ANS_RECONNECT, 0),
	ANSWER(CTL_ANS_ENROLL, sizeof(struct ctl_text)),
	ANSWER(CTL_ANS_UPGRADE, sizeof(struct ctl_text)),
};

static const struct ipc_rule rules_workerd[] = {
	COMMON,
	ANSWER(CTL_ANS_STATUS, sizeof(struct ctl_workerd_status)),
	ANSWER(CTL_ANS_WORKLOADS, 0),
	ANSWER(CTL_ANS_LOGS, sizeof(struct ctl_log_data) + CTL_LOG_MAX),
	ANSWER(CTL_ANS_SIGNAL, sizeof(struct work_answer)),
	ANSWER(CTL_ANS_DRAIN, sizeof(struct ctl_drain)),
	ANSWER(CTL_ANS_POLICY, sizeof(struct ctl_policy)),
	ANSWER(CTL_ANS_POLICY_TEST, sizeof(struct ctl_verdict)),
	ANSWER(CTL_ANS_DEVICES, sizeof(struct device_offer)),
	{ .type = CTL_ANS_ATTACH, .states = IPC_ST_OPEN, .max_fds = 1, .max = sizeof(struct attach_answer), .handler = on_answer },
	{ .type = CTL_EV_ATTACH_END, .states = IPC_ST_OPEN, .min = sizeof(struct attach_end), .max = sizeof(struct attach_end),
	  .handler = on_attach_end },
	{ .type = CTL_EV_DEVICE, .states = IPC_ST_OPEN, .min = sizeof(struct device_info), .max = sizeof(struct device_info),
	  .handler = on_device },
	{ .type = CTL_EV_LINK, .states = IPC_ST_OPEN, .min = sizeof(struct l2_open), .max = sizeof(struct l2_open), .handler = on_link },
	{ .type = CTL_EV_POLICY_KEY, .states = IPC_ST_OPEN, .min = sizeof(struct ctl_policy_key),
	  .max = sizeof(struct ctl_policy_key) + CTL_POLICY_VALUE_MAX, .handler = on_policy_key },
	{ .type = CTL_EV_WORKLOAD, .states = IPC_ST_OPEN, .min = sizeof(struct work_workload),
	  .max = sizeof(struct work_workload) + WORK_COMMAND_SIZE - 1, .handler = on_workload },
};

static void
on_ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct client *c = ctx;

	if (c->error == 0)
		c->error = err < 0 ? err : -ECONNRESET;
	ipc_chan_done(chan);
}

void
client_open(struct client *c, struct loop *loop, const char *rundir, enum ipc_role role)
{
	bool net = role == IPC_ROLE_CONNECTD;
	int n, fd;

	*c = (struct client){ .loop = loop, .rundir = rundir, .role = role, .name = net ? "connectd" : "workerd",
		.answer_fd = -1 };
	c->conf = (struct ipc_conf){ .max_payload = IPC_MAX_CTL, .queue_max = QUEUE_MAX, .ctx = c, .ended = on_ended,
		.rules = net ? rules_connectd : rules_workerd,
		.nrules = net ? sizeof(rules_connectd) / sizeof(rules_connectd[0]) :
		    sizeof(rules_workerd) / sizeof(rules_workerd[0]) };
	n = snprintf(c->socket, sizeof(c->socket), "%s/%s.sock", rundir, c->name);
	fd = n < 0 || (size_t)n >= sizeof(c->socket) ? -ENAMETOOLONG : ipc_connect(c->socket);
	if (fd < 0)	/* -EAGAIN: nobody has accepted for so long that the queue is full */
		c->error = fd == -EAGAIN ? -ETIMEDOUT : fd;
	else
		c->error = ipc_chan_init(&c->chan, loop, fd, &c->conf);
	if (c->error == 0)
		c->error = ipc_send_hello(&c->chan, IPC_ROLE_CONTROL, 0);
}

void
client_close(struct client *c)
{
	ipc_chan_done(&c->chan);
	cleanup_close(&c->answer_fd);
	c->answer_fd = -1;
}

void
client_ask(struct client *c, uint16_t type, const void *data, size_t len)
{
	client_ask_fd(c, type, data, len, -1);
}

void
client_ask_fd(struct client *c, uint16_t type, const void *data, size_t len, int fd)
{
	c->answered = false;
	if (c->error == 0)
		c->error = ipc_request(&c->chan, type, data, len, &fd, fd >= 0 ? 1 : 0, &c->id);
}

static bool
all_done(struct client **clients, size_t n, bool hello)
{
	for (size_t i = 0; i < n; i++)
		if (clients[i]->error == 0 && !clients[i]->answered && !(hello && clients[i]->greeted))
			return false;
	return true;
}

static void
wait_for(struct client **clients, size_t n, int64_t ms, bool hello)
{
	monotime_t end = monotime_add_ms(monotime_now(), ms);
	int r = 0;

	while (r == 0 && !all_done(clients, n, hello)) {
		int64_t left = ms < 0 ? -1 : monotime_diff_ms(end, monotime_now());

		r = ms >= 0 && left <= 0 ? -ETIMEDOUT : loop_turn(clients[0]->loop, (int)left);
	}
	for (size_t i = 0; r < 0 && i < n; i++)
		if (!all_done(&clients[i], 1, hello))
			clients[i]->error = r;
}

void
client_wait(struct client **clients, size_t n, int64_t ms)
{
	wait_for(clients, n, ms, false);
}

void
client_wait_hello(struct client *c, int64_t ms)
{
	wait_for(&c, 1, ms, true);
}

void
client_call(struct client *c, uint16_t type, const void *data, size_t len, int64_t ms)
{
	const struct timespec pause = { .tv_nsec = AGAIN_MS * 1000000L };

	for (;;) {
		client_ask(c, type, data, len);
		client_wait(&c, 1, ms);
		if (c->error != 0 || !c->answered || c->status != -EAGAIN || (ms >= 0 && (ms -= AGAIN_MS) < 0))
			return;
		nanosleep(&pause, NULL);	/* it has just come and does not know yet */
	}
}

bool
client_answer(const struct client *c, void *data, size_t size)
{
	/* A daemon that ended behind its answer has answered. */
	if (!c->answered || c->status != 0 || c->len != size)
		return false;
	if (size > 0)
		memcpy(data, c->answer, size);
	return true;
}

const char *
client_error_code(const struct client *c)
{
	if (c->why[0] != '\0')
		return "config";
	switch (-c->error) {
	case ENOENT:
	case ECONNREFUSED:
		return "not-running";
	case EACCES:
	case EPERM:
		return "denied";
	case ETIMEDOUT:
		return "timeout";
	case EPROTO:
	case EBADMSG:
	case EMSGSIZE:
		return "version";
	default:
		return "failed";
	}
}

/* Where its last words are. */
static const char *
where_to_look(const struct client *c)
{
	static char unit[64];

	if (c->foreground)
		return "the log of run-foreground";
	snprintf(unit, sizeof(unit), "systemctl status edgeward-%s", c->name);
	return unit;
}

/* Who may use the socket, read off its group. */
static void
denied_text(const struct client *c, char *buf, size_t size)
{
	struct stat st;
	const struct group *group = stat(c->socket, &st) == 0 && st.st_gid != 0 ? getgrgid(st.st_gid) : NULL;

	if (group != NULL)
		snprintf(buf, size, "you may not use it: be root, or a member of group %s (usermod -aG %s NAME, then log in again)",
		    group->gr_name, group->gr_name);
	else
		snprintf(buf, size, "you may not use it: be root");
}

void
client_error_text(const struct client *c, char *buf, size_t size)
{
	const char *code = client_error_code(c);

	if (strcmp(code, "config") == 0)
		snprintf(buf, size, "%s", c->why);
	else if (strcmp(code, "not-running") == 0)
		snprintf(buf, size, "not running (%s: %s): see %s", c->socket,
		    c->error == -ENOENT ? "no such socket" : "nobody listens", where_to_look(c));
	else if (strcmp(code, "denied") == 0)
		denied_text(c, buf, size);
	else if (strcmp(code, "timeout") == 0)
		snprintf(buf, size, "does not answer: see edgectl doctor and %s", where_to_look(c));
	else if (strcmp(code, "version") == 0)
		snprintf(buf, size, "speaks another protocol than this edgectl %s: restart edgeward-%s.service", EDGEWARD_VERSION,
		    c->name);
	else
		snprintf(buf, size, "%s", c->error == -ECONNRESET || c->error == -EPIPE ? "closed the connection" : strerror(-c->error));
}

void
client_check_build(const struct client *c)
{
	char target[32];

	if (!c->greeted || strcmp(c->hello.build, EDGEWARD_VERSION) == 0)
		return;
	fprintf(stderr, "edgectl: %s is %s, edgectl is %s: ", c->name, out_safe(c->hello.build), EDGEWARD_VERSION);
	/* A release that was installed by itself has an edgectl of its own; the packaged one may well be older. */
	if (readlink(CURRENT, target, sizeof(target)) > 9 && strncmp(target, "releases/", 9) == 0)
		fprintf(stderr, "use " CURRENT "/edgectl, or restart edgeward-%s.service\n", c->name);
	else
		fprintf(stderr, "restart edgeward-%s.service\n", c->name);
}

int
client_complain(struct client *c, const char *what)
{
	char text[CLIENT_TEXT];

	client_find_why(c);
	client_check_build(c);
	if (c->error == 0) {
		fprintf(stderr, "edgectl: %s: %s: %s\n", what, c->name,
		    c->status < 0 ? strerror(-c->status) : "an answer that is not understood");
		return EXIT_FAILED;
	}
	client_error_text(c, text, sizeof(text));
	fprintf(stderr, "edgectl: %s: %s: %s\n", what, c->name, text);
	if (strcmp(client_error_code(c), "denied") == 0)
		return EXIT_DENIED;
	return c->error == -ENOENT || c->error == -ECONNREFUSED || c->error == -ETIMEDOUT || c->why[0] != '\0' ?
	    EXIT_NOBODY : EXIT_FAILED;
}
