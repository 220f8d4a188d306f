/*
 * Who calls: connectd for a hub, and operators of this device on workerd.sock. Both are bounded by policy.conf alike; a hub neither sees
 * nor ends what an operator here has opened. What is trusted: nothing of the request; the command is encoded anew, and workinit decodes
 * it again. What the holder of a session sends are ends of a terminal or of pipes, or it is not taken.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "workerd/attach.h"
#include "workerd/container.h"
#include "workerd/permit.h"
#include "workerd/stage.h"
#include "workerd/shown.h"
#include "workerd/vault.h"
#include "workerd/workerd.h"

#define OPEN_MS		10000
#define ENDED_MS	500

struct asked {
	struct workerd *w;
	struct control_client *client;
	uint32_t id;
	struct attach_open open;
	struct attach_command command;
	uint8_t bytes[ATTACH_COMMAND_MAX];
};

/* ---- answers ---- */

void
attach_answer(struct workerd *w, struct control_client *client, uint32_t id, const struct attach_answer *ans, int fd)
{
	struct ipc_chan *chan = client != NULL ? &client->chan : &w->work;
	struct ipc_hdr hdr = { .type = client != NULL ? CTL_ANS_ATTACH : WORK_ANS_ATTACH, .id = id };

	if (id != 0 && ipc_chan_is_open(chan))
		(void)ipc_send_fds(chan, &hdr, ans, sizeof(*ans), &fd, fd >= 0);	/* a channel that is broken says so */
}

__attribute__((format(printf, 3, 4))) static void
refuse(struct asked *q, enum work_refusal why, const char *fmt, ...)
{
	struct attach_answer ans = { .refusal = (uint32_t)why };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(ans.error, sizeof(ans.error), fmt, ap);
	va_end(ap);
	memcpy(ans.session, q->open.session, sizeof(ans.session));
	q->w->attaches.refused++;
	if (why != WORK_REFUSED_UNKNOWN_HANDLE)		/* one that is tried until it runs would fill the record */
		eventlog_add(&q->w->events, "attach-refused", q->open.handle, "%s: %s", q->open.who, ans.error);
	attach_answer(q->w, q->client, q->id, &ans, -1);
}

void
attach_fail(struct attach *a, enum work_refusal why, const char *error)
{
	struct attach_answer ans = { .refusal = (uint32_t)why };

	snprintf(ans.error, sizeof(ans.error), "%s", error);
	memcpy(ans.session, a->session, sizeof(ans.session));
	a->w->attaches.refused++;
	eventlog_add(&a->w->events, "attach-refused", a->handle, "%s: %s", a->who, error);
	attach_answer(a->w, a->asker, a->asker_id, &ans, -1);
	attach_free(a);
}

/* ---- checks ---- */

static bool
permitted(struct asked *q)
{
	const struct policy *p = &q->w->policy;
	char where[POLICY_WHERE];

	if (p->denied)
		refuse(q, WORK_REFUSED_POLICY, "%.150s; nothing is started until that is put right", p->problem);
	else if (q->client == NULL && !p->attach)
		refuse(q, WORK_REFUSED_POLICY, "%s = no: this device opens no sessions for a hub; its operator may, by attach = yes under [work]", policy_where(p, POLICY_ATTACH, where));
	else if (q->client != NULL && !p->attach_local)
		refuse(q, WORK_REFUSED_POLICY, "%s = no: nobody attaches here", policy_where(p, POLICY_ATTACH_LOCAL, where));
	else if ((q->open.flags & ATTACH_INPUT) != 0 && !p->attach_input && (q->open.flags & ATTACH_WATCH) == 0)
		refuse(q, WORK_REFUSED_POLICY, "%s = no: only sessions that read nothing (--read-only)", policy_where(p, POLICY_ATTACH_INPUT, where));
	else
		return true;
	return false;
}

static struct attach *
find(struct asked *q)
{
	struct attach *a = q->w->attaches.list;

	while (a != NULL && (a->local != (q->client != NULL) || strcmp(a->session, q->open.session) != 0 || strcmp(a->handle, q->open.handle) != 0))
		a = a->next;
	return a;
}

static bool
room_for(struct asked *q)
{
	const struct policy *p = &q->w->policy;
	char where[POLICY_WHERE];
	uint32_t here = 0;

	for (const struct attach *a = q->w->attaches.list; a != NULL; a = a->next)
		here += strcmp(a->handle, q->open.handle) == 0;
	if (q->w->attaches.n >= p->attach_sessions || q->w->attaches.n >= ATTACH_TOTAL_MAX)
		refuse(q, WORK_REFUSED_BUSY, "%s = %u: so many are open", policy_where(p, POLICY_ATTACH_SESSIONS, where), p->attach_sessions);
	else if (here >= p->attach_each)
		refuse(q, WORK_REFUSED_BUSY, "%s = %u: so many are open in this workload", policy_where(p, POLICY_ATTACH_EACH, where), p->attach_each);
	else
		return true;
	return false;
}

/* The program must be one that a start could name, the shell as well. */
static bool
take_command(struct asked *q, int fd)
{
	struct work_str program;
	char error[PERMIT_ERROR];
	size_t len = 0;

	if (fd < 0 || fd_is_sealed_memfd(fd, sizeof(q->bytes), &len) != 1 || pread(fd, q->bytes, len, 0) != (ssize_t)len ||
	    attach_command_decode(&q->command, q->bytes, len) < 0) {
		refuse(q, WORK_REFUSED_BAD_SPEC, "malformed command");
		return false;
	}
	if (q->w->policy.programs.word == POLICY_WORD)
		return true;
	program = q->command.argc > 0 ? (struct work_str){ q->command.argv[0].s, q->command.argv[0].len } : (struct work_str){ "sh", 2 };
	if (permit_program(&q->w->policy, &program, error) != WORK_OK) {
		refuse(q, WORK_REFUSED_POLICY, "%s", error);
		return false;
	}
	if (q->command.argc == 0)
		q->command.argc = 1;
	q->command.argv[0].s = program.s;
	q->command.argv[0].len = program.len;
	return true;
}

/* ---- the record of who did what ---- */

static void
describe(const struct workload *wl, const struct attach_command *c, char *buf, size_t size)
{
	if (c->argc == 0)
		snprintf(buf, size, "a shell");
	else
		shown_command(c->argv, c->argc, wl->vault != NULL ? wl->vault->redact : NULL, buf, size);
}

/* ---- a new one ---- */

static int
on_made(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	return attach_made((struct attach *)(void *)((char *)chan - offsetof(struct attach, chan)), msg);
}

static int
on_exited(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct attach *a = (struct attach *)(void *)((char *)chan - offsetof(struct attach, chan));
	struct init_attach_exited e;
	int status;

	memcpy(&e, msg->data, sizeof(e));
	status = e.wstatus;
	if (a->state != ATTACH_OPEN || (!WIFEXITED(status) && !WIFSIGNALED(status)))
		return -EPROTO;
	attach_over(a, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ATTACH_EXITED);
	return 0;
}

static void
holder_gone(struct ipc_chan *chan, int err, void *ctx)
{
	struct attach *a = (struct attach *)(void *)((char *)chan - offsetof(struct attach, chan));

	if (a->state == ATTACH_OPENING) {
		attach_fail(a, WORK_REFUSED_START_FAILED, "the workload's own process cannot start another one: it is out of processes or memory, "
		    "or was started by an older version of this agent");
		return;
	}
	ipc_chan_done(chan);
	if (a->state == ATTACH_ENDED)
		return;
	/* Mostly because the workload has ended, which is told in a moment. */
	a->closing = true;
	loop_timer_set_ms(a->w->loop, &a->timer, ENDED_MS);
}

static const struct ipc_rule rules[] = {
	{ INIT_EV_ATTACHED, IPC_ST_OPEN, 0, 3, sizeof(struct init_attached), sizeof(struct init_attached), on_made },
	{ INIT_EV_ATTACH_EXITED, IPC_ST_OPEN, 0, 0, sizeof(struct init_attach_exited), sizeof(struct init_attach_exited), on_exited },
};
static const struct ipc_conf conf = { .rules = rules, .nrules = sizeof(rules) / sizeof(rules[0]), .max_payload = 64, .queue_max = 4096,
	.ended = holder_gone };

/* Has workinit start the process that holds it. */
static int
launch(struct attach *a, const struct attach_command *command)
{
	static uint8_t buf[ATTACH_COMMAND_MAX];
	struct init_attach req = { .flags = a->flags & (ATTACH_TTY | ATTACH_INPUT) };
	struct ipc_hdr hdr = { .type = INIT_REQ_ATTACH };
	_cleanup_close_ int memfd = -1, theirs = -1;
	int pair[2], fds[2];
	size_t len;
	int r = attach_command_encode(command, buf, sizeof(buf), &len);

	if (r == 0)
		r = memfd = fd_sealed_memfd("attach", buf, len);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	theirs = pair[1];
	r = ipc_chan_init(&a->chan, a->w->loop, pair[0], &conf);
	if (r < 0)
		return r;
	a->chan.state = IPC_ST_OPEN;
	req.rows = a->rows;
	req.cols = a->cols;
	fds[0] = memfd;
	fds[1] = theirs;
	return ipc_send_fds(&a->wl->init, &hdr, &req, sizeof(req), fds, 2);
}

static void
open_new(struct asked *q, struct workload *wl)
{
	struct workerd *w = q->w;
	struct attach *a = calloc(1, sizeof(*a));
	char what[100];
	int r;

	if (a != NULL)
		a->ring = malloc(w->policy.attach_scrollback);
	if (a == NULL || a->ring == NULL) {
		free(a);
		refuse(q, WORK_REFUSED_START_FAILED, "out of memory");
		return;
	}
	a->w = w;
	a->wl = wl;
	a->cap = w->policy.attach_scrollback;
	a->local = q->client != NULL;
	a->flags = q->open.flags;
	a->rows = q->open.rows;
	a->cols = q->open.cols;
	a->asker = q->client;
	a->asker_id = q->id;
	a->exit_code = -1;
	a->active = a->since = monotime_now();
	memcpy(a->session, q->open.session, sizeof(a->session));
	memcpy(a->handle, q->open.handle, sizeof(a->handle));
	memcpy(a->who, q->open.who, sizeof(a->who));
	if (a->session[0] == '\0')
		snprintf(a->session, sizeof(a->session), "local-%u", ++w->attaches.last_session);
	attach_io_init(a);
	a->next = w->attaches.list;
	w->attaches.list = a;
	w->attaches.n++;
	describe(wl, &q->command, what, sizeof(what));
	r = container_is_one(wl) ? container_exec(wl, a->flags, &q->command) : 0;
	if (r == 0)
		r = launch(a, &q->command);
	if (r < 0) {
		attach_free(a);
		refuse(q, WORK_REFUSED_START_FAILED, "%s", strerror(-r));
		return;
	}
	eventlog_add(&w->events, "attach", a->handle, "%s%s%s: %s", a->who, (a->flags & ATTACH_INPUT) == 0 ? ", read-only" : "",
	    (a->flags & ATTACH_TTY) != 0 ? ", terminal" : "", what);
	loop_timer_set_ms(w->loop, &a->timer, OPEN_MS);
}

static int
check_end(const struct attach *a, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return (a->flags & ATTACH_TTY) != 0 ? (S_ISCHR(st.st_mode) ? 0 : -EPROTO) : S_ISFIFO(st.st_mode) ? 0 : -EPROTO;
}

int
attach_made(struct attach *a, struct ipc_msg *msg)
{
	struct attach_answer ans = { .refusal = WORK_OK };
	struct attach_viewer *v;
	struct init_attached made;
	char error[120];
	unsigned want;
	int fd = -1, r = 0;

	memcpy(&made, msg->data, sizeof(made));
	memcpy(ans.session, a->session, sizeof(ans.session));
	if (a->state != ATTACH_OPENING)
		return -EPROTO;
	if (made.error != 0) {
		snprintf(error, sizeof(error), "cannot run the command: %s", strerror(made.error));
		attach_fail(a, WORK_REFUSED_START_FAILED, error);
		return 0;
	}
	a->flags = (a->flags & ATTACH_KEEP) | (made.flags & (ATTACH_TTY | ATTACH_INPUT));
	want = (made.flags & ATTACH_TTY) != 0 ? 1 : (made.flags & ATTACH_INPUT) != 0 ? 3 : 2;
	if (msg->nfds != want)
		return -EPROTO;
	for (unsigned i = 0; i < want && r == 0; i++)
		r = check_end(a, msg->fds[i]);
	if (r == 0)
		r = attach_add_source(a, 0, ipc_take_fd(msg, 0));
	if (r == 0 && want >= 2)
		r = attach_add_source(a, 1, ipc_take_fd(msg, 1));
	if (r == 0 && (made.flags & ATTACH_INPUT) != 0)
		r = attach_add_input(a, want == 3 ? ipc_take_fd(msg, 2) : fcntl(a->src[0].io.fd, F_DUPFD_CLOEXEC, 3));
	if (r == 0)
		r = fd = attach_join(a, a->asker, true, 0, &v);
	if (r < 0)
		return r;
	a->state = ATTACH_OPEN;
	a->w->attaches.opened++;
	ans.viewer = v->id;
	ans.flags = a->flags & (ATTACH_TTY | ATTACH_INPUT);
	attach_answer(a->w, a->asker, a->asker_id, &ans, fd);
	close(fd);
	if (a->asker_id == 0)
		attach_close(a, "whoever asked is gone");
	a->asker = NULL;
	a->asker_id = 0;
	attach_mind(a);
	return 0;	/* the loop says when there is something to move */
}

/* ---- one that is there ---- */

static void
join(struct asked *q, struct attach *a)
{
	bool drives = (q->open.flags & ATTACH_RESUME) != 0;
	struct attach_answer ans = { .refusal = WORK_OK, .flags = a->flags & (ATTACH_TTY | ATTACH_INPUT), .taken = drives ? a->taken : 0 };
	struct attach_viewer *v;
	int fd;

	for (v = a->viewers; drives && v != NULL && !v->drives; )
		v = v->next;
	if (drives && v != NULL)
		attach_leave(v, true, "taken up elsewhere");
	fd = attach_join(a, q->client, drives, q->open.from, &v);
	if (fd < 0) {
		refuse(q, WORK_REFUSED_BUSY, fd == -EMFILE ? "as many as may look on at one session do" : "%s", strerror(-fd));
		return;
	}
	ans.viewer = v->id;
	ans.from = v->cursor;
	memcpy(ans.session, a->session, sizeof(ans.session));
	eventlog_add(&q->w->events, drives ? "attach-resume" : "attach-watch", a->handle, "%s: %s", q->open.who, a->session);
	attach_answer(q->w, q->client, q->id, &ans, fd);
	close(fd);
	a->active = monotime_now();
	attach_mind(a);
	attach_pump(a);
}

/* Whoever comes back to one had it: he is told what became of it as far as it is still known. */
static void
refuse_gone(struct asked *q)
{
	char keep[32];

	policy_value(&q->w->policy, POLICY_ATTACH_KEEP, keep, sizeof(keep));
	if ((q->open.flags & ATTACH_RESUME) != 0)
		refuse(q, WORK_REFUSED_UNKNOWN_HANDLE, "the session is over: without its operator one is kept for %s; [attach] keep", keep);
	else
		refuse(q, WORK_REFUSED_UNKNOWN_HANDLE, "no session %.100s in %s", q->open.session, q->open.handle);
}

static void
open_session(struct asked *q, int fd)
{
	struct workload *wl = workload_by_handle(q->w, q->open.handle);
	struct attach *a;

	if (!permitted(q))
		return;
	a = q->open.session[0] != '\0' ? find(q) : NULL;
	if ((q->open.flags & (ATTACH_RESUME | ATTACH_WATCH)) != 0) {
		if (a == NULL || a->state == ATTACH_OPENING)
			refuse_gone(q);
		else
			join(q, a);
		return;
	}
	if (wl == NULL || wl->state != ST_RUNNING || stage_of(wl) != STAGE_PAYLOAD || !ipc_chan_is_open(&wl->init))
		refuse(q, WORK_REFUSED_UNKNOWN_HANDLE, wl == NULL || wl->state >= ST_DRAINING ? "no workload of that handle runs here" :
		    "the workload does not run yet");
	else if (a != NULL)
		refuse(q, WORK_REFUSED_BAD_SPEC, "a session of that name is open already");
	else if (room_for(q) && take_command(q, fd))
		open_new(q, wl);
}

int
attach_on_open(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	static struct asked q;
	_cleanup_close_ int fd = ipc_take_fd(msg, 0);

	q.w = ctx;
	q.client = msg->hdr.type == CTL_REQ_ATTACH ? (struct control_client *)(void *)((char *)chan - offsetof(struct control_client, chan)) : NULL;
	q.id = msg->hdr.id;
	memcpy(&q.open, msg->data, sizeof(q.open));
	if (q.id == 0 || !attach_open_ok(&q.open))
		return -EPROTO;
	if (q.open.who[0] == '\0')
		snprintf(q.open.who, sizeof(q.open.who), "the hub");
	/* Here the kernel says who it is. */
	if (q.client != NULL)
		snprintf(q.open.who, sizeof(q.open.who), "uid %u of this device", (unsigned)chan->peer.uid);
	open_session(&q, fd);
	explicit_bzero(q.bytes, sizeof(q.bytes));
	return 0;
}
