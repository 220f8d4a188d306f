#include "proto/release/records.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/ipc/names.h"
#include "proto/release/lines.h"

#define COUNT(a)	(sizeof(a) / sizeof((a)[0]))

static const char *const phases[] = { [UPGRADE_STAGING] = "staging", [UPGRADE_TRIAL] = "trial", [UPGRADE_BACK] = "back",
	[UPGRADE_COMMIT] = "commit" };
static const char *const sources[] = { [UPGRADE_HUB] = "hub", [UPGRADE_OPERATOR] = "operator" };
static const char *const outcomes[] = { [UPGRADE_OUT_DONE] = "done", [UPGRADE_OUT_REFUSED] = "refused",
	[UPGRADE_OUT_BACK] = "rolled-back", [UPGRADE_OUT_FAILED] = "failed" };

/* A bounded text that is written piece by piece; sticky like struct lines. */
struct text {
	char *buf;
	size_t len, size;
};

static void __attribute__((format(printf, 2, 3)))
put(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = t->len < t->size ? vsnprintf(t->buf + t->len, t->size - t->len, fmt, ap) : -1;
	va_end(ap);
	t->len = n < 0 ? t->size : t->len + (size_t)n;
}

static int
put_done(const struct text *t)
{
	return t->len < t->size ? (int)t->len : -EMSGSIZE;
}

static int
look_up(const char *const *names, size_t n, const char *word, unsigned *ret_i)
{
	for (unsigned i = 0; i < n; i++)
		if (strcmp(names[i], word) == 0) {
			*ret_i = i;
			return 0;
		}
	return -EBADMSG;
}

static unsigned
need_name(struct lines *l, const char *key, const char *const *names, size_t n)
{
	char word[24];
	unsigned i = 0;

	lines_need(l, key, word, sizeof(word));
	if (l->err == 0)
		l->err = look_up(names, n, word, &i);
	return i;
}

static bool
need_yes_no(struct lines *l, const char *key)
{
	static const char *const names[] = { "no", "yes" };

	return need_name(l, key, names, 2) == 1;
}

static void
need_schema(struct lines *l, const char *key)
{
	uint64_t schema;

	lines_need_u64(l, key, 1, 1, &schema);
}

int
upgrade_request_parse(const void *data, size_t len, struct upgrade_request *ret)
{
	struct upgrade_request r = { 0 };
	struct lines l;

	lines_init(&l, data, len);
	need_schema(&l, "edgeward-upgrade-request");
	lines_need_u64(&l, "sequence", 1, RELEASE_SEQUENCE_MAX, &r.sequence);
	lines_need(&l, "id", r.id, sizeof(r.id));
	lines_need_u64(&l, "settle", 0, UPGRADE_SETTLE_MAX, &r.settle);
	r.downgrade = need_yes_no(&l, "downgrade");
	if (lines_done(&l) < 0 || !handle_ok(r.id))
		return -EBADMSG;
	*ret = r;
	return 0;
}

int
upgrade_request_write(const struct upgrade_request *r, char *buf, size_t size)
{
	struct text t = { .buf = buf, .size = size };

	put(&t, "edgeward-upgrade-request 1\nsequence %" PRIu64 "\nid %s\nsettle %" PRIu64 "\ndowngrade %s\n", r->sequence, r->id,
	    r->settle, r->downgrade ? "yes" : "no");
	return put_done(&t);
}

/* A target of `current`: releases/N or an absolute path without dots for names. */
static bool
link_ok(const char *s)
{
	uint64_t n;

	if (strncmp(s, "releases/", 9) == 0)
		return lines_number(s + 9, 1, RELEASE_SEQUENCE_MAX, &n) == 0;
	return s[0] == '/' && strstr(s, "/.") == NULL && strstr(s, "//") == NULL;
}

int
upgrade_state_parse(const void *data, size_t len, struct upgrade_state *ret)
{
	struct upgrade_state s = { 0 };
	struct lines l;

	lines_init(&l, data, len);
	need_schema(&l, "edgeward-upgrade-state");
	s.phase = need_name(&l, "phase", phases, COUNT(phases));
	lines_need_u64(&l, "attempt", 1, UINT32_MAX, &s.attempt);
	s.source = need_name(&l, "source", sources, COUNT(sources));
	lines_need(&l, "id", s.id, sizeof(s.id));
	lines_need(&l, "from", s.from, sizeof(s.from));
	lines_need_u64(&l, "from-sequence", 0, RELEASE_SEQUENCE_MAX, &s.from_sequence);
	lines_need_u64(&l, "sequence", 1, RELEASE_SEQUENCE_MAX, &s.sequence);
	lines_need(&l, "version", s.version, sizeof(s.version));
	lines_need_u64(&l, "entries", 0, UINT32_MAX, &s.entries);
	lines_need_u64(&l, "settle", 0, UPGRADE_SETTLE_MAX, &s.settle);
	lines_need_u64(&l, "units", 0, 7, &s.units);
	s.connected = need_yes_no(&l, "connected");
	lines_need(&l, "peer", s.peer, sizeof(s.peer));
	lines_need(&l, "code", s.code, sizeof(s.code));
	lines_need(&l, "detail", s.detail, sizeof(s.detail));
	if (lines_done(&l) < 0 || !handle_ok(s.id) || !link_ok(s.from) || (strcmp(s.version, "-") != 0 && !release_version_ok(s.version)) || !release_word_ok(s.code) ||
	    !upgrade_peer_ok(s.peer))
		return -EBADMSG;
	*ret = s;
	return 0;
}

int
upgrade_state_write(const struct upgrade_state *s, char *buf, size_t size)
{
	struct text t = { .buf = buf, .size = size };

	put(&t, "edgeward-upgrade-state 1\nphase %s\nattempt %" PRIu64 "\nsource %s\nid %s\n", phases[s->phase], s->attempt,
	    sources[s->source], s->id);
	put(&t, "from %s\nfrom-sequence %" PRIu64 "\nsequence %" PRIu64 "\nversion %s\nentries %" PRIu64 "\nsettle %" PRIu64 "\n", s->from,
	    s->from_sequence, s->sequence, s->version, s->entries, s->settle);
	put(&t, "units %" PRIu64 "\nconnected %s\npeer %s\ncode %s\ndetail %s\n", s->units, s->connected ? "yes" : "no", s->peer, s->code,
	    s->detail);
	return put_done(&t);
}

/* "ATTEMPT TIME SOURCE ID OUTCOME FROM TO VERSION CODE DETAIL..." */
static int
parse_entry(const char *value, struct upgrade_entry *e)
{
	char word[9][UPGRADE_ID_SIZE];
	unsigned source, outcome;

	for (unsigned i = 0; i < 9; i++) {
		value = lines_word(value, word[i], sizeof(word[i]));
		if (value == NULL)
			return -EBADMSG;
	}
	if (lines_number(word[0], 1, UINT32_MAX, &e->attempt) < 0 || lines_number(word[1], 0, INT64_MAX, &e->time) < 0 ||
	    look_up(sources, COUNT(sources), word[2], &source) < 0 || !handle_ok(word[3]) ||
	    look_up(outcomes, COUNT(outcomes), word[4], &outcome) < 0 ||
	    lines_number(word[5], 0, RELEASE_SEQUENCE_MAX, &e->from) < 0 || lines_number(word[6], 0, RELEASE_SEQUENCE_MAX, &e->to) < 0 ||
	    (strcmp(word[7], "-") != 0 && !release_version_ok(word[7])) || !release_word_ok(word[8]) ||
	    strlen(word[8]) >= sizeof(e->code) || strlen(value) >= sizeof(e->detail))
		return -EBADMSG;
	e->source = source;
	e->outcome = outcome;
	snprintf(e->id, sizeof(e->id), "%s", word[3]);
	snprintf(e->version, sizeof(e->version), "%.31s", word[7]);
	snprintf(e->code, sizeof(e->code), "%.23s", word[8]);
	snprintf(e->detail, sizeof(e->detail), "%s", value);
	return 0;
}

int
upgrade_history_parse(const void *data, size_t len, struct upgrade_history *ret)
{
	static struct upgrade_history h;
	char value[LINES_VALUE_MAX + 1];
	struct lines l;

	h = (struct upgrade_history){ 0 };
	lines_init(&l, data, len);
	need_schema(&l, "edgeward-upgrade-history");
	while (lines_take(&l, "entry", value, sizeof(value)))
		if (h.n == UPGRADE_HISTORY_MAX || parse_entry(value, &h.entries[h.n++]) < 0)
			return -EBADMSG;
	if (lines_done(&l) < 0)
		return -EBADMSG;
	*ret = h;
	return 0;
}

int
upgrade_history_write(const struct upgrade_history *h, char *buf, size_t size)
{
	struct text t = { .buf = buf, .size = size };

	put(&t, "edgeward-upgrade-history 1\n");
	for (unsigned i = 0; i < h->n; i++) {
		const struct upgrade_entry *e = &h->entries[i];

		put(&t, "entry %" PRIu64 " %" PRIu64 " %s %s %s %" PRIu64 " %" PRIu64 " %s %s %s\n", e->attempt, e->time,
		    sources[e->source], e->id, outcomes[e->outcome], e->from, e->to, e->version, e->code, e->detail);
	}
	return put_done(&t);
}

static void
drop_one(struct upgrade_history *h)
{
	unsigned i = 0;

	while (i < h->n && h->entries[i].outcome != UPGRADE_OUT_REFUSED)
		i++;
	i = i < h->n ? i : 0;
	h->n--;
	memmove(&h->entries[i], &h->entries[i + 1], (h->n - i) * sizeof(h->entries[0]));
}

void
upgrade_history_add(struct upgrade_history *h, const struct upgrade_entry *e)
{
	if (h->n == UPGRADE_HISTORY_MAX)
		drop_one(h);
	h->entries[h->n++] = *e;
}

uint64_t
upgrade_history_tries(const struct upgrade_history *h, uint64_t sequence)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < h->n; i++) {
		if (h->entries[i].to != sequence)
			continue;
		switch (h->entries[i].outcome) {
		case UPGRADE_OUT_DONE: n = 0; break;
		case UPGRADE_OUT_REFUSED: break;
		case UPGRADE_OUT_BACK: n += UPGRADE_TRIES; break;
		case UPGRADE_OUT_FAILED: n++; break;
		}
	}
	return n;
}

uint64_t
upgrade_history_next(const struct upgrade_history *h)
{
	return h->n > 0 ? h->entries[h->n - 1].attempt + 1 : 1;
}

uint64_t
upgrade_history_floor(const struct upgrade_history *h)
{
	uint64_t floor = 0;

	for (unsigned i = 0; i < h->n; i++)
		if (h->entries[i].outcome == UPGRADE_OUT_DONE)
			floor = h->entries[i].to;
	return floor;
}

unsigned
upgrade_history_refusals(const struct upgrade_history *h)
{
	unsigned n = 0;

	while (n < h->n && h->entries[h->n - 1 - n].source == UPGRADE_HUB && h->entries[h->n - 1 - n].outcome == UPGRADE_OUT_REFUSED)
		n++;
	return n;
}

uint64_t
upgrade_settle(const struct upgrade_conf *conf, enum upgrade_source source, uint64_t settle)
{
	if (settle == 0)
		settle = conf->settle;
	else if (source == UPGRADE_HUB && settle < conf->settle_min)
		settle = conf->settle_min;
	return settle < conf->settle_max ? settle : conf->settle_max;
}

int
upgrade_packaged_parse(const void *data, size_t len, char version[RELEASE_VERSION_SIZE], uint64_t *ret_sequence)
{
	char value[64], word[RELEASE_VERSION_SIZE];
	const char *rest = NULL;
	uint64_t sequence;
	struct lines l;

	lines_init(&l, data, len);
	lines_need(&l, "release", value, sizeof(value));
	if (lines_done(&l) == 0)
		rest = lines_word(value, word, sizeof(word));
	if (rest == NULL || !release_version_ok(word) || lines_number(rest, 0, RELEASE_SEQUENCE_MAX, &sequence) < 0)
		return -EBADMSG;
	memcpy(version, word, sizeof(word));
	*ret_sequence = sequence;
	return 0;
}

int
upgrade_conf_parse(const void *data, size_t len, struct upgrade_conf *ret)
{
	struct upgrade_conf c = { .settle_min = UPGRADE_SETTLE_MIN };
	char min[8];
	struct lines l;

	lines_init(&l, data, len);
	lines_need(&l, "channel", c.channel, sizeof(c.channel));
	lines_need_u64(&l, "settle", 0, UPGRADE_SETTLE_MAX, &c.settle);
	lines_need_u64(&l, "settle-max", 0, UPGRADE_SETTLE_MAX, &c.settle_max);
	if (lines_take(&l, "settle-min", min, sizeof(min)))	/* came later, so it may be missing */
		l.err = lines_number(min, 1, UPGRADE_SETTLE_MAX, &c.settle_min);
	if (lines_done(&l) < 0 || !release_word_ok(c.channel))
		return -EBADMSG;
	*ret = c;
	return 0;
}

int
upgrade_probe_parse(const void *data, size_t len, struct upgrade_probe *ret)
{
	struct upgrade_probe p = { 0 };
	char value[128];
	struct lines l;

	lines_init(&l, data, len);
	need_schema(&l, "edgeward-probe");
	p.net_up = need_yes_no(&l, "connectd");
	p.work_up = need_yes_no(&l, "workerd");
	p.introduced = need_yes_no(&l, "introduced");
	p.connected = need_yes_no(&l, "connected");
	p.hub_refuses = need_yes_no(&l, "hub-refuses");
	p.reachable = need_yes_no(&l, "reachable");
	lines_need(&l, "peer", p.peer, sizeof(p.peer));
	lines_need_u64(&l, "protocol", 0, UINT32_MAX, &p.protocol);
	lines_need_u64(&l, "connectd-pid", 0, INT32_MAX, &p.net_pid);
	lines_need_u64(&l, "workerd-pid", 0, INT32_MAX, &p.work_pid);
	lines_need_u64(&l, "active", 0, UINT32_MAX, &p.active);
	lines_need(&l, "cause", p.cause, sizeof(p.cause));
	while (lines_take(&l, "work", value, sizeof(value))) {
		struct upgrade_work *w = &p.work[p.nwork];
		const char *pid = p.nwork < UPGRADE_WORK_MAX ? lines_word(value, w->handle, sizeof(w->handle)) : NULL;

		if (pid == NULL || !handle_ok(w->handle) || lines_number(pid, 0, INT32_MAX, &w->pid) < 0)
			return -EBADMSG;
		p.nwork++;
	}
	if (lines_done(&l) < 0 || !release_word_ok(p.cause) || !upgrade_peer_ok(p.peer))
		return -EBADMSG;
	*ret = p;
	return 0;
}

int
upgrade_probe_write(const struct upgrade_probe *p, char *buf, size_t size)
{
	static const char *const yes_no[] = { "no", "yes" };
	struct text t = { .buf = buf, .size = size };

	put(&t, "edgeward-probe 1\nconnectd %s\nworkerd %s\nintroduced %s\nconnected %s\nhub-refuses %s\n", yes_no[p->net_up],
	    yes_no[p->work_up], yes_no[p->introduced], yes_no[p->connected], yes_no[p->hub_refuses]);
	put(&t, "reachable %s\npeer %s\n", yes_no[p->reachable], p->peer);
	put(&t, "protocol %" PRIu64 "\nconnectd-pid %" PRIu64 "\nworkerd-pid %" PRIu64 "\nactive %" PRIu64 "\ncause %s\n", p->protocol,
	    p->net_pid, p->work_pid, p->active, p->cause);
	for (unsigned i = 0; i < p->nwork; i++)
		put(&t, "work %s %" PRIu64 "\n", p->work[i].handle, p->work[i].pid);
	return put_done(&t);
}

bool
upgrade_peer_ok(const char *s)
{
	size_t n = strspn(s, "0123456789abcdefABCDEF.:[]%");

	return strcmp(s, "-") == 0 || (n > 0 && n < UPGRADE_PEER_SIZE && s[n] == '\0');
}

void
upgrade_detail(char detail[UPGRADE_DETAIL_SIZE], const char *text)
{
	size_t n = 0;

	for (; *text != '\0' && n + 1 < UPGRADE_DETAIL_SIZE; text++)
		if (n > 0 || (*text > ' ' && *text <= '~')) {
			detail[n] = *text >= ' ' && *text <= '~' ? *text : ' ';
			n++;
		}
	while (n > 0 && detail[n - 1] == ' ')
		n--;
	if (n == 0)
		detail[n++] = '-';
	detail[n] = '\0';
}

const char *
upgrade_outcome_name(enum upgrade_outcome outcome)
{
	return outcomes[outcome];
}

const char *
upgrade_source_name(enum upgrade_source source)
{
	return sources[source];
}

const char *
upgrade_phase_name(enum upgrade_phase phase)
{
	return phases[phase];
}
