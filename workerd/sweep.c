/*
 * Who calls: launchchan.c, life.c, stage.c. What the process says is the engine's word and shown to the operator, no more; that it
 * ended with 0 says that the engine answered and named no container of ours that has no owner.
 */
#include "workerd/sweep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "workerd/confinement.h"
#include "workerd/container.h"
#include "workerd/launchchan.h"
#include "workerd/workerd.h"

#define LEFT_MAX	256u	/* handles whose container could not be removed */
#define AGAIN_MS	15000	/* after a failure; doubles to AGAIN_MAX_MS */
#define AGAIN_MAX_MS	600000
#define KEEP_MAX	(96u << 10)
#define SAID_MAX	4096u

struct sweep {
	struct workerd *w;
	struct record rec;
	uint32_t start_id;
	bool busy;			/* the launcher was asked, or holds one */
	bool again;			/* something came while it was busy */
	int pipe, init;
	struct loop_timer timer;
	int64_t delay;
	unsigned n, asked;		/* leftovers; as many of them the present process was given */
	char left[LEFT_MAX][HANDLE_SIZE];
	char problem[208];
};

static void go(struct sweep *s);

static void
timer_over(struct loop_timer *timer)
{
	go(timer->ctx);
}

int
sweep_init(struct workerd *w)
{
	struct sweep *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return -ENOMEM;
	s->w = w;
	s->pipe = s->init = s->rec.fd = s->rec.report = -1;
	loop_timer_init(&s->timer, timer_over, s);
	w->containers.sweep = s;
	return 0;
}

static void
let_go(struct sweep *s)
{
	cleanup_close(&s->pipe);
	cleanup_close(&s->init);
	s->pipe = s->init = -1;
	if (s->rec.h != NULL)
		record_free(NULL, &s->rec);
	s->rec = (struct record){ .fd = -1, .report = -1 };
	s->start_id = 0;
	s->busy = false;
}

void
sweep_done(struct workerd *w)
{
	if (w->containers.sweep == NULL)
		return;
	let_go(w->containers.sweep);
	loop_timer_del(w->loop, &w->containers.sweep->timer);
	free(w->containers.sweep);
	w->containers.sweep = NULL;
}

/* ---- starting ---- */

static void
join_handles(const struct sweep *s, char *handles, char *keep)
{
	size_t n = 0, k = 0;

	handles[0] = keep[0] = '\0';
	for (unsigned i = 0; i < s->n; i++)
		n += (size_t)snprintf(handles + n, LEFT_MAX * HANDLE_SIZE - n, "%s ", s->left[i]);
	for (const struct workload *wl = s->w->all.first; wl != NULL; wl = wl->next)
		if (wl->rec.h != NULL && (wl->rec.h->flags & RECORD_F_CONTAINER) != 0 && wl->state < ST_ENDED && k + HANDLE_SIZE < KEEP_MAX)
			k += (size_t)snprintf(keep + k, KEEP_MAX - k, "%s ", wl->info.handle);
}

static int
make_spec(struct sweep *s, struct work_spec *spec)
{
	static char handles[LEFT_MAX * HANDLE_SIZE + 1], keep[KEEP_MAX];
	static uint8_t buf[WORK_SPEC_MAX];
	size_t len;
	int r;

	*spec = (struct work_spec){ .handle = SWEEP_HANDLE };
	join_handles(s, handles, keep);
	s->asked = s->n;
	r = container_sweep_step(s->w, spec, handles, keep);
	if (r == 0)
		r = work_spec_encode(spec, buf, sizeof(buf), &len);
	return r < 0 ? r : fd_sealed_memfd("spec", buf, len);
}

static int
start(struct sweep *s)
{
	struct workerd *w = s->w;
	struct launch_start l = { .handle = SWEEP_HANDLE, .oom_score_adj = 200,
		.parts = confinement(&w->conf, &w->policy, &w->ready).parts };
	struct work_spec spec;
	_cleanup_close_ int fd = make_spec(s, &spec);
	int fds[4], r = fd < 0 ? fd : record_new_beyond(SWEEP_HANDLE, RECORD_PAGE, 0, &s->rec);

	if (r < 0)
		return r;
	container_launch(w, w->policy.engine_socket, &l);
	fds[0] = fd;
	fds[1] = s->rec.fd;
	fds[2] = s->rec.report;
	fds[3] = w->ids.root;
	r = ipc_request(&w->launcher, LAUNCH_REQ_START, &l, sizeof(l), fds, 4, &s->start_id);
	if (r == 0)
		s->busy = true;
	return r;
}

static void
later(struct sweep *s)
{
	s->delay = s->delay == 0 ? AGAIN_MS : s->delay < AGAIN_MAX_MS / 2 ? 2 * s->delay : AGAIN_MAX_MS;
	loop_timer_set_ms(s->w->loop, &s->timer, s->delay);
}

static void
failed(struct sweep *s, const char *why)
{
	if (strcmp(s->problem, why) != 0)
		log_warn("containers: %s", why);
	snprintf(s->problem, sizeof(s->problem), "%s", why);
	later(s);
}

static void
go(struct sweep *s)
{
	char why[208];
	int r;

	if (!s->w->up || container_engines(s->w) == 0)
		return;
	s->again = s->busy;
	if (s->busy)
		return;
	r = start(s);
	if (r == 0)
		return;
	let_go(s);
	snprintf(why, sizeof(why), "the engine cannot be asked for leftovers: %s", strerror(-r));
	failed(s, why);
}

void
sweep_begin(struct workerd *w)
{
	go(w->containers.sweep);
}

void
sweep_leftover(struct workerd *w, const char *handle)
{
	struct sweep *s = w->containers.sweep;

	for (unsigned i = 0; i < s->n; i++)
		if (strcmp(s->left[i], handle) == 0)
			return go(s);
	if (s->n == LEFT_MAX)
		log_error("containers: too many could not be removed; that of %s is left until workerd starts again", handle);
	else
		snprintf(s->left[s->n++], HANDLE_SIZE, "%s", handle);
	go(s);
}

const char *
sweep_problem(const struct workerd *w)
{
	return w->containers.sweep != NULL && w->containers.sweep->problem[0] != '\0' ? w->containers.sweep->problem : NULL;
}

/* ---- what the launcher says ---- */

bool
sweep_held(struct workerd *w, const struct launch_held *held)
{
	if (strcmp(held->handle, SWEEP_HANDLE) != 0)
		return false;
	/* An earlier workerd's: its ENDED follows. */
	w->containers.sweep->busy = true;
	if (!held->ended)
		launchchan_about(w, SWEEP_HANDLE, LAUNCH_EV_KILL);
	return true;
}

bool
sweep_answer(struct workerd *w, struct ipc_msg *msg)
{
	struct sweep *s = w->containers.sweep;

	if (s->start_id == 0 || s->start_id != msg->hdr.id)
		return false;
	s->start_id = 0;
	if (msg->hdr.status < 0 || msg->nfds != 2) {
		let_go(s);
		failed(s, "the launcher does not start what looks for leftovers");
		return true;
	}
	s->pipe = ipc_take_fd(msg, 0);
	s->init = ipc_take_fd(msg, 1);
	return true;
}

/* The last line of ours in what it printed, or what became of it. */
static void
read_why(const struct sweep *s, char why[208])
{
	static const char mark[] = "edgeward: ";
	char buf[SAID_MAX + 1], *line = NULL;
	ssize_t n = s->pipe >= 0 ? read(s->pipe, buf, SAID_MAX) : 0;

	buf[n > 0 ? n : 0] = '\0';
	for (char *p = buf; (p = strstr(p, mark)) != NULL; p++)
		line = p + sizeof(mark) - 1;
	if (line != NULL)
		line[strcspn(line, "\n")] = '\0';
	for (char *p = line; p != NULL && *p != '\0'; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	snprintf(why, 208, "the engine does not answer: %.170s", line != NULL && line[0] != '\0' ? line : "its client ended early");
}

bool
sweep_ended(struct workerd *w, const struct launch_ended *end)
{
	struct sweep *s = w->containers.sweep;
	struct launch_report rep = { 0 };
	char why[208];
	bool good;

	if (strcmp(end->handle, SWEEP_HANDLE) != 0)
		return false;
	if (s->rec.h != NULL)
		record_report(&s->rec, &rep);
	good = (rep.flags & LAUNCH_REPORT_EXITED) != 0 && rep.exited.wstatus == 0;
	read_why(s, why);
	launchchan_about(w, SWEEP_HANDLE, LAUNCH_EV_FORGET);
	if (s->rec.h == NULL) {		/* an earlier workerd's */
		let_go(s);
		go(s);
		return true;
	}
	let_go(s);
	if (!good) {
		failed(s, why);
		return true;
	}
	if (s->problem[0] != '\0')
		log_info("containers: the engine answers again");
	s->problem[0] = '\0';
	s->delay = 0;
	loop_timer_del(w->loop, &s->timer);
	memmove(s->left, s->left + s->asked, (s->n - s->asked) * sizeof(s->left[0]));
	s->n -= s->asked;
	s->asked = 0;
	if (s->n > 0 || s->again)
		go(s);
	return true;
}
