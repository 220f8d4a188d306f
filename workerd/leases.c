#include "workerd/leases.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "workerd/handout.h"
#include "workerd/life.h"
#include "workerd/stage.h"
#include "workerd/vault.h"

#define DEADLINE_MS	5000		/* the hub waits 15 s */
#define NAMES_MAX	(WORK_REPORT_MAX / 2 - 256u)	/* bytes of each of the two lists */

struct names {
	char buf[NAMES_MAX];
	size_t len;
	uint32_t n;
};

/* One thing asked of one workinit. */
struct lease_step {
	struct lease_step *next;
	uint32_t wid, req;		/* req 0: its workload has no process yet */
	uint32_t files;			/* of its revocation, when it is gone before it could answer */
	struct init_secret ask;
	int content;			/* of REPLACE, else -1 */
};

struct lease_op {
	struct lease_op *next;
	struct workerd *w;
	struct loop_timer deadline;
	uint32_t id;			/* of connectd's request; 0 = nobody waits any more */
	bool refresh, building;		/* building: it is not complete yet */
	struct work_report rep;
	struct names env, handles;
	struct lease_step *steps;
};

/* ---- the report ---- */

static void
add_name(struct names *names, const char *name)
{
	size_t n = strlen(name) + 1;

	for (size_t i = 0; i < names->len; i += strlen(names->buf + i) + 1)
		if (strcmp(names->buf + i, name) == 0)
			return;
	if (n > NAMES_MAX - names->len)
		return;
	memcpy(names->buf + names->len, name, n);
	names->len += n;
	names->n++;
}

static void
add_error(struct lease_op *op, const char *handle, const char *what, const char *why)
{
	char quoted[LOG_QUOTE_SIZE];

	if (op->rep.error[0] != '\0')
		return;			/* the first one is told, all are logged */
	log_quote(quoted, sizeof(quoted), what, strlen(what));
	snprintf(op->rep.error, sizeof(op->rep.error), "%.64s: %s: %.60s", handle, quoted, why);
}

static void
free_op(struct lease_op *op)
{
	struct lease_op **p = &op->w->lease_ops;

	while (*p != op)
		p = &(*p)->next;
	*p = op->next;
	loop_timer_del(op->w->loop, &op->deadline);
	for (struct lease_step *s; (s = op->steps) != NULL; ) {
		op->steps = s->next;
		if (s->content >= 0)
			close(s->content);
		free(s);
	}
	free(op);
}

static void
report(struct lease_op *op)
{
	static uint8_t buf[WORK_REPORT_MAX];
	static char names[2 * NAMES_MAX];
	struct ipc_hdr req = { .type = op->refresh ? WORK_REQ_REFRESH : WORK_REQ_REVOKE, .id = op->id };
	size_t len;

	memcpy(names, op->env.buf, op->env.len);
	memcpy(names + op->env.len, op->handles.buf, op->handles.len);
	op->rep.nenv = op->env.n;
	op->rep.nhandles = op->handles.n;
	op->rep.names = names;
	op->rep.names_len = op->env.len + op->handles.len;
	if (op->rep.error[0] != '\0')
		log_warn("%s of a lease: %s", op->refresh ? "refresh" : "revocation", op->rep.error);
	if (op->id != 0 && ipc_chan_is_open(&op->w->work) && work_report_encode(&op->rep, buf, sizeof(buf), &len) == 0)
		ipc_answer(&op->w->work, &req, 0, buf, len);
	free_op(op);
}

static void
late(struct loop_timer *timer)
{
	struct lease_op *op = timer->ctx;
	const struct workload *wl = op->steps != NULL ? workload_by_wid(op->w, op->steps->wid) : NULL;

	add_error(op, wl != NULL ? wl->info.handle : "", op->steps != NULL ? op->steps->ask.name : "", "no answer in time");
	report(op);
}

static struct lease_op *
new_op(struct workerd *w, uint32_t id, bool refresh)
{
	struct lease_op *op = calloc(1, sizeof(*op));

	if (op == NULL)
		fatal("out of memory");
	op->w = w;
	op->id = id;
	op->refresh = refresh;
	op->building = true;
	op->next = w->lease_ops;
	w->lease_ops = op;
	loop_timer_init(&op->deadline, late, op);
	return op;
}

static void
settle(struct lease_op *op)
{
	if (op->building)
		return;
	if (op->steps == NULL)
		report(op);
	else if (!loop_timer_armed(&op->deadline))
		loop_timer_set_ms(op->w->loop, &op->deadline, DEADLINE_MS);
}

/* ---- steps ---- */

static void
send_step(struct workload *wl, struct lease_step *s)
{
	if (!ipc_chan_is_open(&wl->init))
		return;
	if (ipc_request(&wl->init, INIT_REQ_SECRET, &s->ask, sizeof(s->ask), &s->content, s->content >= 0, &s->req) < 0)
		s->req = 0;	/* its channel is broken, and ended in a moment */
}

static void
add_step(struct lease_op *op, struct workload *wl, enum init_secret_op what, const struct secret *file, int content)
{
	const char *dir = strrchr(file->dir, '/');
	struct lease_step *s = calloc(1, sizeof(*s)), **p = &op->steps;

	if (s == NULL)
		fatal("out of memory");
	*s = (struct lease_step){ .wid = wl->info.wid, .files = 1, .ask = { .op = (uint32_t)what, .mode = file->mode }, .content = content };
	snprintf(s->ask.dir, sizeof(s->ask.dir), "%.63s", dir != NULL ? dir + 1 : "");
	if (what == INIT_SECRET_REPLACE)
		s->files = 0;
	if (what != INIT_SECRET_CLEAR)
		snprintf(s->ask.name, sizeof(s->ask.name), "%s", file->name);
	while (*p != NULL)
		p = &(*p)->next;
	*p = s;
	send_step(wl, s);
}

static void
end_step(struct lease_op *op, struct lease_step **p)
{
	struct lease_step *s = *p;

	*p = s->next;
	if (s->content >= 0)
		close(s->content);
	free(s);
}

void
leases_launched(struct workload *wl)
{
	for (struct lease_op *op = wl->w->lease_ops; op != NULL; op = op->next)
		for (struct lease_step *s = op->steps; s != NULL; s = s->next)
			if (s->wid == wl->info.wid && s->req == 0)
				send_step(wl, s);
}

static void
note_done(struct lease_op *op, struct workload *wl, const struct lease_step *s, const struct init_done *done)
{
	char dir[sizeof(LAUNCH_SECRETS) + sizeof(s->ask.dir)];

	op->rep.files += done->files;
	if (done->status < 0)
		add_error(op, wl->info.handle, s->ask.name[0] != '\0' ? s->ask.name : s->ask.dir, strerror(-done->status));
	if (!op->refresh || done->files == 0 || wl->vault == NULL)
		return;
	snprintf(dir, sizeof(dir), LAUNCH_SECRETS "/%s", s->ask.dir);
	vault_supersede(wl->vault, dir, s->ask.name);
	add_name(&op->handles, wl->info.handle);
}

void
leases_answer(struct workload *wl, uint32_t req, const struct init_done *done)
{
	for (struct lease_op *op = wl->w->lease_ops; op != NULL && req != 0; op = op->next)
		for (struct lease_step **p = &op->steps; *p != NULL; p = &(*p)->next) {
			if ((*p)->wid != wl->info.wid || (*p)->req != req)
				continue;
			note_done(op, wl, *p, done);
			end_step(op, p);
			settle(op);
			return;
		}
}

/* Its files went with it. */
void
leases_ended(const struct workload *wl)
{
	for (struct lease_op *op = wl->w->lease_ops, *next; op != NULL; op = next) {
		bool some = false;

		next = op->next;
		for (struct lease_step **p = &op->steps; *p != NULL; ) {
			if ((*p)->wid != wl->info.wid) {
				p = &(*p)->next;
				continue;
			}
			some = true;
			op->rep.files += (*p)->files;
			end_step(op, p);
		}
		if (some)
			settle(op);
	}
}

void
leases_unasked(struct workerd *w)
{
	for (struct lease_op *op = w->lease_ops; op != NULL; op = op->next)
		op->id = 0;
}

void
leases_done(struct workerd *w)
{
	while (w->lease_ops != NULL)
		free_op(w->lease_ops);
}

/* ---- tombstones ---- */

static void
bury(struct workerd *w, const char *lease, const char *grant)
{
	struct lease_tombstone *t = &w->tombstones[w->next_tombstone++ % LEASE_TOMBSTONES];

	snprintf(t->lease, sizeof(t->lease), "%.128s", lease);
	snprintf(t->grant, sizeof(t->grant), "%.128s", grant);
}

void
leases_bound(struct workerd *w, const char *handle, const struct work_spec *spec)
{
	struct secret s;
	struct wire_r r;

	wire_r_init(&r, spec->secrets.s, spec->secrets.len);
	while (secret_next(&r, &s) == 1)
		for (unsigned i = 0; i < LEASE_TOMBSTONES; i++) {
			struct lease_tombstone *t = &w->tombstones[i];

			if (t->lease[0] == '\0' || !secret_is_of(&s, t->lease, t->grant))
				continue;
			log_info("%s brings a lease again that was revoked before", handle);
			memset(t, 0, sizeof(*t));
		}
}

/* ---- revoke ---- */

/* What has no grant of its own goes with any of the lease: then all of it goes. */
static const char *
meant(const struct vault *v, const char *lease, const char *grant)
{
	struct vault_item item;
	struct vault_iter it;

	vault_begin(v, &it);
	while (vault_next(&it, &item))
		if (strcmp(item.s.lease, lease) == 0 && item.s.grant[0] == '\0')
			return "";
	return grant;
}

/* Files of dir that nobody has taken back. */
static unsigned
live_in(const struct vault *v, const char *dir)
{
	struct vault_item item;
	struct vault_iter it;
	unsigned n = 0;

	vault_begin(v, &it);
	while (vault_next(&it, &item))
		n += item.s.kind == SECRET_FILE && *item.flags == 0 && strcmp(item.s.dir, dir) == 0;
	return n;
}

static void
take_back(struct lease_op *op, struct workload *wl, struct vault_item *item)
{
	bool again = *item->flags != 0;

	*item->flags = VAULT_REVOKED;
	/* What was marked may still be there: the one who marked it was killed, or could not remove it. Of the rest everything was said. */
	if (again && (item->s.kind != SECRET_FILE || stage_is_before(wl)))
		return;
	if (item->s.kind == SECRET_ENV)
		add_name(&op->env, item->s.name);
	if (item->s.kind == SECRET_PATH)
		add_error(op, wl->info.handle, item->s.dir, "not in a directory of this lease: refused");
	if (item->s.kind != SECRET_FILE)
		return;
	if (stage_is_before(wl)) {	/* it is nowhere yet, and is not placed */
		op->rep.files++;
		return;
	}
	add_step(op, wl, INIT_SECRET_SCRUB, &item->s, -1);
	if (live_in(wl->vault, item->s.dir) > 0)
		return;
	add_step(op, wl, INIT_SECRET_CLEAR, &item->s, -1);
}

/* True if it holds what is meant, taken back before or not. */
static bool
revoke_from(struct lease_op *op, struct workload *wl, const struct work_revoke *req)
{
	const char *grant = meant(wl->vault, req->lease, req->grant);
	struct vault_item item;
	struct vault_iter it;
	bool holds = false;

	vault_begin(wl->vault, &it);
	while (vault_next(&it, &item)) {
		if (!secret_is_of(&item.s, req->lease, grant))
			continue;
		holds = true;
		if ((*item.flags & VAULT_REPLACED) == 0)
			take_back(op, wl, &item);
	}
	return holds;
}

void
leases_revoke(struct workerd *w, const struct work_revoke *req, uint32_t id)
{
	struct lease_op *op = new_op(w, id, false);

	for (struct workload *wl = w->all.first, *next; wl != NULL; wl = next) {
		next = wl->next;
		if (wl->vault == NULL || stage_is_after(wl) || !revoke_from(op, wl, req))
			continue;
		op->rep.known = 1;
		if (wl->state >= ST_DRAINING && !stage_is_before(wl)) {
			leases_ended(wl);	/* nobody is left to ask */
			continue;
		}
		if (req->kill == 0)
			continue;
		add_name(&op->handles, wl->info.handle);
		workload_end(wl);
	}
	if (op->rep.known != 0)
		bury(w, req->lease, req->grant);
	log_info("a lease was revoked: %s, %u files, %u variables, %u workloads to end", op->rep.known != 0 ? "held here" : "not held here",
	    op->rep.files, op->env.n, op->handles.n);
	op->building = false;
	settle(op);
}

/* ---- refresh ---- */

/* The one file that is meant: by name among those of the lease that are alive, by grant where the name does not decide. */
static unsigned
find_file(const struct vault *v, const struct secret *want, bool by_grant, struct secret *ret_file, bool *ret_holds)
{
	struct vault_item item;
	struct vault_iter it;
	unsigned n = 0;

	vault_begin(v, &it);
	while (vault_next(&it, &item)) {
		if (strcmp(item.s.lease, want->lease) != 0)
			continue;
		*ret_holds = true;
		if (item.s.kind != SECRET_FILE || *item.flags != 0 || strcmp(item.s.name, want->name) != 0 ||
		    (by_grant && strcmp(item.s.grant, want->grant) != 0))
			continue;
		*ret_file = item.s;
		n++;
	}
	return n;
}

static void
refresh_in(struct lease_op *op, struct workload *wl, const struct secret *want)
{
	struct secret file;
	bool holds = false;
	unsigned n = find_file(wl->vault, want, false, &file, &holds);
	int fd, r;

	if (n > 1 && want->grant[0] != '\0')
		n = find_file(wl->vault, want, true, &file, &holds);
	if (!holds)
		return;
	op->rep.known = 1;
	if (n != 1) {
		add_error(op, wl->info.handle, want->name, n == 0 ? "no such file, or it was revoked" : "more than one file of that name");
		return;
	}
	if (wl->state >= ST_DRAINING && !stage_is_before(wl))
		return;
	if (stage_is_before(wl) && !handout_has_room(wl, file.dir, file.name, want->len)) {
		add_error(op, wl->info.handle, want->name, "more than 512 KiB of files");
		return;
	}
	file.mode = want->mode;
	r = vault_add(wl, &file, want->value, want->len);	/* it must be known before it can be printed */
	if (r == 0 && stage_is_before(wl)) {	/* the payload begins with it */
		vault_supersede(wl->vault, file.dir, file.name);
		op->rep.files++;
		add_name(&op->handles, wl->info.handle);
		return;
	}
	fd = r < 0 ? r : fd_sealed_memfd("secret", want->value, want->len);
	if (fd < 0) {
		add_error(op, wl->info.handle, want->name, strerror(-fd));
		return;
	}
	add_step(op, wl, INIT_SECRET_REPLACE, &file, fd);
}

int
leases_refresh(struct workerd *w, const void *items, size_t len, uint32_t id)
{
	struct lease_op *op;
	struct secret s, first = { 0 };
	struct wire_r r;

	if (!secrets_ok(items, len))
		return -EBADMSG;
	wire_r_init(&r, items, len);
	while (secret_next(&r, &s) == 1) {
		if (first.lease[0] == '\0')
			first = s;
		if (s.kind != SECRET_FILE || s.lease[0] == '\0' || strcmp(s.lease, first.lease) != 0)
			return -EBADMSG;
	}
	op = new_op(w, id, true);
	wire_r_init(&r, items, len);
	while (secret_next(&r, &s) == 1)
		for (struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
			if (wl->vault != NULL && !stage_is_after(wl))
				refresh_in(op, wl, &s);
	op->building = false;
	settle(op);
	return 0;
}
