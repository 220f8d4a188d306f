/*
 * Who calls: start.c, when a payload is started; launchchan.c with the launcher's word.
 *
 * kill -9 at any step: the record is in the launcher's hands from the beginning and names the workload before anybody is told that the
 * process is its; so the next workerd knows whom it was promised to, says so again, and says "abandon" behind it: what was told to run runs, what
 * was not ends, and its workload is lost without having run.
 */
#include "workerd/prepared.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/parse.h"
#include "proto/ipc/view.h"
#include "workerd/launchchan.h"
#include "workerd/leases.h"
#include "workerd/life.h"
#include "workerd/output.h"
#include "workerd/start.h"
#include "workerd/workerd.h"

#define KEEP_MS	3000	/* without another start like the last one */

/* Done before the workload's spec is known: what depends on more than the struct, or is seldom, is not. */
#define NEVER	(LAUNCH_PART_FILTER | LAUNCH_PART_LINKS | LAUNCH_PART_CARRIER)

static struct launch_start
shape(const struct launch_start *s)
{
	struct launch_start like = *s;

	memset(like.handle, 0, sizeof(like.handle));
	like.parts |= LAUNCH_PART_PREPARED;
	like.stage = LAUNCH_STAGE_PREPARED;
	return like;
}

/* A directory is what it was while it is the same; for the rest a number may come back soon, and the time of its change does not. */
static uint64_t
look_at(const char *path, bool follow, uint64_t seen)
{
	struct stat st = { 0 };
	uint64_t which[4] = { 0 };

	if ((follow ? stat(path, &st) : lstat(path, &st)) == 0)
		which[0] = st.st_dev, which[1] = st.st_ino;
	if (!S_ISDIR(st.st_mode))
		which[2] = (uint64_t)st.st_ctim.tv_sec, which[3] = (uint64_t)st.st_ctim.tv_nsec;
	return XXH3_64bits_withSeed(which, sizeof(which), seen);
}

/* A view has the mounts of its time, and not what is mounted or unmounted below one of its directories later. */
static uint64_t
mounts(struct prepared *p)
{
	struct pollfd changed = { .fd = p->mountinfo, .events = POLLPRI };

	if (poll(&changed, 1, 0) != 0)
		p->mounts++;
	return p->mounts;
}

/* A view shows what was there when it was made: another number when something of that came, went or was replaced. */
static uint64_t
surroundings(struct prepared *p, const struct launch_start *s)
{
#define PATH(path)	path
	static const char *const paths[] = { LAUNCH_VIEW_SYSTEM(PATH), LAUNCH_VIEW_NAMES(PATH), LAUNCH_VIEW_HIDDEN(PATH), LAUNCH_VIEW_LAID_OVER(PATH) };
	char show[sizeof(s->show)], lent[sizeof(LAUNCH_LENT) + 16], *rest = show, *path;
	uint64_t seen = mounts(p);

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		seen = look_at(paths[i], false, seen);
	snprintf(lent, sizeof(lent), LAUNCH_LENT "/%u", s->slot);
	seen = look_at(lent, false, seen);
	memcpy(show, s->show, sizeof(show));
	while ((path = strsep(&rest, " ")) != NULL && path[0] != '\0')
		seen = look_at(path, true, seen);
	return seen;
}

static bool
exists(const struct prepared *p)
{
	return p->is.handle[0] != '\0';
}

static bool
is_like(const struct prepared *p, const struct launch_start *like)
{
	const struct launch_start is = shape(&p->is);

	return exists(p) && memcmp(&is, like, sizeof(is)) == 0;
}

static void
close_ends(struct workerd *w)
{
	struct prepared *p = &w->prepared;

	ipc_chan_done(&p->init);
	cleanup_close(&p->output);
	p->output = -1;
	record_free(NULL, &p->rec);
	cleanup_close(&p->spec);
	p->spec = -1;
	p->is.handle[0] = '\0';
	p->ready = p->ending = false;
}

static void
end(struct workerd *w)
{
	if (!w->prepared.ending)
		launchchan_about(w, w->prepared.is.handle, LAUNCH_EV_KILL);
	w->prepared.ending = true;	/* ENDED follows */
	w->prepared.ready = false;
}

/* ---- making ---- */

static int
on_prepared(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;

	w->prepared.ready = !w->prepared.ending;
	return 0;
}

static void
init_ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct workerd *w = ctx;

	ipc_chan_done(chan);
	end(w);
}

static const struct ipc_rule rules[] = {
	{ INIT_EV_PREPARED, IPC_ST_OPEN, 0, 0, 0, 0, on_prepared },
};

static struct ipc_conf conf = { .rules = rules, .nrules = 1, .max_payload = sizeof(struct launch_report), .queue_max = 4096,
	.ended = init_ended };

static int
ask(struct workerd *w)
{
	struct work_str argv[1] = { { "prepared", 8 } };
	const struct work_spec spec = { .handle = "prepared", .argc = 1, .argv = argv, .env_given = true };
	struct prepared *p = &w->prepared;
	int r;

	if (p->spec < 0 && (p->spec = start_spec(&spec)) < 0)
		return p->spec;
	p->is = p->wanted;
	p->around = surroundings(p, &p->is);
	snprintf(p->is.handle, sizeof(p->is.handle), PREPARED_HANDLE "%" PRIu64 "-%d", ++p->last, (int)getpid());
	r = record_new(&w->spares, p->is.handle, w->conf.work_retain, &p->rec);
	if (r == 0)
		p->rec.h->flags = RECORD_F_PREPARED;
	if (r == 0)
		r = launchchan_ask(w, &p->is, (int[]){ p->spec, p->rec.fd, p->rec.report, w->ids.root }, 4, &p->start_id);
	if (r < 0)
		close_ends(w);
	return r;
}

static void
timer_over(struct loop_timer *timer)
{
	struct workerd *w = timer->ctx;
	struct prepared *p = &w->prepared;
	bool want = p->want;

	p->want = false;
	if (exists(p)) {
		if (p->start_id == 0)	/* else its answer comes first, and this again */
			end(w);
		else
			loop_timer_set_ms(w->loop, timer, KEEP_MS);
		return;
	}
	if (want && ask(w) == 0)
		loop_timer_set_ms(w->loop, timer, KEEP_MS);
}

void
prepared_init(struct workerd *w)
{
	w->prepared = (struct prepared){ .output = -1, .spec = -1, .rec = { .fd = -1, .report = -1 }, .init.io.fd = -1,
		.mountinfo = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC) };
	conf.ctx = w;
	loop_timer_init(&w->prepared.timer, timer_over, w);
}

void
prepared_done(struct workerd *w)
{
	loop_timer_del(w->loop, &w->prepared.timer);
	close_ends(w);
	cleanup_close(&w->prepared.mountinfo);
}

/* What such a process may run: its record is of the plainest, and nobody else can reach it while it waits. */
static bool
is_for(const struct workload *wl, const struct launch_start *s)
{
	return (s->parts & NEVER) == 0 && launch_may_wait(s->parts, &wl->w->ready) && wl->vault == NULL && wl->rec.h->beyond == 0 &&
	    wl->rec.h->job_len == 0;
}

void
prepared_want(const struct workload *wl, const struct launch_start *s)
{
	struct workerd *w = wl->w;
	struct prepared *p = &w->prepared;

	if (!is_for(wl, s) || p->mountinfo < 0)
		return;
	p->wanted = shape(s);
	if (is_like(p, &p->wanted) && !p->ending && p->around == surroundings(p, s)) {
		loop_timer_set_ms(w->loop, &p->timer, KEEP_MS);
		return;
	}
	p->want = true;		/* when another is in the way: with its end */
	if (exists(p) && p->start_id == 0)
		end(w);
	if (!exists(p))
		loop_timer_set_ms(w->loop, &p->timer, 0);
}

/* ---- use ---- */

bool
prepared_take(struct workload *wl, const struct launch_start *s, int spec)
{
	struct workerd *w = wl->w;
	struct prepared *p = &w->prepared;
	const struct launch_start like = shape(s);
	struct ipc_hdr go = { .type = INIT_EV_GO };
	struct launch_rename name = { .stage = s->stage };
	struct record spare = wl->rec;
	int fd;

	if (!p->ready || !is_for(wl, s) || !is_like(p, &like) || wl->rec.h->ring != p->rec.h->ring || surroundings(p, s) != p->around ||
	    (fd = fcntl(p->init.io.fd, F_DUPFD_CLOEXEC, 3)) < 0)
		return false;
	record_promise(&p->rec, &wl->rec);
	memcpy(name.from, p->is.handle, sizeof(name.from));
	memcpy(name.to, s->handle, sizeof(name.to));
	if (ipc_send(&w->launcher, LAUNCH_EV_RENAME, &name, sizeof(name)) < 0)
		fatal("launcher: cannot send about %s", name.to);	/* it was promised: the next workerd says so again */
	wl->rec = p->rec;
	p->rec = (struct record){ .fd = -1, .report = -1 };
	record_free(&w->spares, &spare);
	wl->held = true;
	/* What fails from here on is its process's end, which the launcher tells; it holds the channel as well, so the process would wait on. */
	if (launchchan_init(wl, fd) < 0 || ipc_send_fds(&wl->init, &go, NULL, 0, &spec, 1) < 0 || output_open(wl, take_fd(&p->output)) < 0)
		launchchan_kill(wl);
	close_ends(w);
	leases_launched(wl);
	workload_event(wl, EV_LAUNCHED);
	return true;
}

/* ---- from the launcher ---- */

bool
prepared_answer(struct workerd *w, struct ipc_msg *msg, int *ret)
{
	struct prepared *p = &w->prepared;

	if (p->start_id == 0 || p->start_id != msg->hdr.id)
		return false;
	p->start_id = 0;
	*ret = (msg->hdr.status == 0) != (msg->nfds == 2) ? -EPROTO : 0;
	if (msg->hdr.status < 0 || *ret < 0) {
		close_ends(w);		/* the next start will say why */
		return true;
	}
	p->output = ipc_take_fd(msg, 0);
	*ret = ipc_chan_init(&p->init, w->loop, ipc_take_fd(msg, 1), &conf);
	p->init.state = IPC_ST_OPEN;
	if (p->want)		/* of another kind, by now */
		end(w);
	return true;
}

/* Its end crossed its new name, under which it is told again. Of ours all have one but the last. */
static bool
has_new_name(const struct prepared *p, const char *handle)
{
	const char *pid = strrchr(handle, '-');
	uint32_t maker;

	if (strcmp(handle, p->promised) == 0)
		return true;
	return strcmp(handle, p->is.handle) != 0 && pid != NULL && parse_u32(pid + 1, 1, INT32_MAX, &maker) == 0 && (pid_t)maker == getpid();
}

bool
prepared_ended(struct workerd *w, const struct launch_ended *ended)
{
	struct prepared *p = &w->prepared;

	if (ended->stage != LAUNCH_STAGE_PREPARED)
		return false;
	if (has_new_name(p, ended->handle))
		return true;
	launchchan_about(w, ended->handle, LAUNCH_EV_FORGET);
	if (strcmp(ended->handle, p->is.handle) != 0)
		return true;
	close_ends(w);
	if (p->want)
		loop_timer_set_ms(w->loop, &p->timer, 0);
	else
		loop_timer_del(w->loop, &p->timer);
	return true;
}

bool
prepared_held(struct workerd *w, struct launch_held *held, int record)
{
	struct launch_rename name = { .stage = STAGE_PAYLOAD };

	memcpy(name.from, held->handle, sizeof(name.from));
	if (record_names(record, name.to) < 0 || !launch_rename_ok(&name) || strcmp(name.from, name.to) == 0) {
		launchchan_about(w, held->handle, LAUNCH_EV_KILL);
		return false;
	}
	if (ipc_send(&w->launcher, LAUNCH_EV_RENAME, &name, sizeof(name)) < 0)
		fatal("launcher: cannot send about %s", name.to);
	memcpy(w->prepared.promised, name.from, sizeof(name.from));
	memcpy(held->handle, name.to, sizeof(held->handle));
	held->stage = STAGE_PAYLOAD;
	return true;
}
