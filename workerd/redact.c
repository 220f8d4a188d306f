#include "workerd/redact.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "workerd/spelling.h"

#define NONE		0u		/* the root is nobody's child */
#define BLOCK		3u		/* bytes that are hashed for the skip */
#define SKIP_BITS	14u
#define WINDOW_MAX	32u		/* of the shortest pattern looked at for the skip */
#define LINE_MIN	16u		/* a line of a value that is looked for by itself: no ordinary word */

struct redact {
	size_t n, cap;			/* nodes; 0 is the root */
	uint8_t *label;
	uint32_t *child, *sibling;	/* first child, next sibling */
	uint32_t *fail, *depth, *match;	/* match: length of the longest pattern that ends here */
	uint32_t root[256];
	size_t window;			/* bytes of the shortest pattern, at most WINDOW_MAX; 0 = no patterns */
	uint8_t skip[1u << SKIP_BITS];	/* by the last block of a window: how far no pattern can begin */
	uint8_t begins[1u << 13];	/* bits: two bytes a pattern begins with */
};

/* ---- building ---- */

static int
grow(struct redact *r, size_t want)
{
	size_t cap = r->cap * 2 > want ? r->cap * 2 : want;
	uint32_t **const arrays[] = { &r->child, &r->sibling, &r->fail, &r->depth, &r->match };
	uint8_t *label;

	if (want <= r->cap)
		return 0;
	/* The labels are the values: no copy of them stays behind. */
	label = calloc(cap, 1);
	if (label == NULL)
		return -ENOMEM;
	if (r->n > 0) {
		memcpy(label, r->label, r->n);
		explicit_bzero(r->label, r->n);
	}
	free(r->label);
	r->label = label;
	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
		uint32_t *p = reallocarray(*arrays[i], cap, sizeof(*p));

		if (p == NULL)
			return -ENOMEM;
		*arrays[i] = p;
	}
	r->cap = cap;
	return 0;
}

static uint32_t
child_of(const struct redact *r, uint32_t node, uint8_t c)
{
	uint32_t k;

	if (node == 0)
		return r->root[c];
	for (k = r->child[node]; k != NONE && r->label[k] != c; k = r->sibling[k])
		;
	return k;
}

static void
add_node(struct redact *r, uint32_t parent, uint8_t c)
{
	uint32_t k = (uint32_t)r->n++;

	r->label[k] = c;
	r->child[k] = NONE;
	r->depth[k] = r->depth[parent] + 1;
	r->match[k] = 0;
	r->fail[k] = 0;
	r->sibling[k] = parent != 0 ? r->child[parent] : NONE;
	if (parent != 0)
		r->child[parent] = k;
	else
		r->root[c] = k;
}

/* 1, 0 when there is no room for it, -ENOMEM. */
static int
add_pattern(struct redact *r, const uint8_t *p, size_t len)
{
	uint32_t node = 0;

	if (len < REDACT_MIN)
		return 1;
	if (len > REDACT_LONGEST || r->n + len > REDACT_NODES)
		return 0;
	if (grow(r, r->n + len) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < len; i++) {
		uint32_t k = child_of(r, node, p[i]);

		if (k == NONE) {
			k = (uint32_t)r->n;
			add_node(r, node, p[i]);
		}
		node = k;
	}
	r->match[node] = (uint32_t)len;
	if (r->window == 0 || len < r->window)
		r->window = len < WINDOW_MAX ? len : WINDOW_MAX;
	return 1;
}

static uint32_t
step(const struct redact *r, uint32_t state, uint8_t c)
{
	uint32_t k;

	while ((k = child_of(r, state, c)) == NONE && state != 0)
		state = r->fail[state];
	return k;
}

/* Breadth first; fail and match of a node follow from those above it. */
static int
link_nodes(struct redact *r)
{
	uint32_t *queue = calloc(r->n, sizeof(*queue));
	size_t head = 0, tail = 0;

	if (queue == NULL)
		return -ENOMEM;
	for (unsigned c = 0; c < 256; c++)
		if (r->root[c] != NONE)
			queue[tail++] = r->root[c];
	while (head < tail) {
		uint32_t node = queue[head++];

		for (uint32_t k = r->child[node]; k != NONE; k = r->sibling[k]) {
			r->fail[k] = step(r, r->fail[node], r->label[k]);
			if (r->match[k] == 0)
				r->match[k] = r->match[r->fail[k]];
			queue[tail++] = k;
		}
	}
	free(queue);
	return 0;
}

static uint32_t
block(const uint8_t *p)
{
	return (((uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2]) * 2654435761u) >> (32 - SKIP_BITS);
}

/* Walks all first windows of the trie; path holds the labels. */
static void
note_windows(struct redact *r, uint32_t node, uint8_t path[WINDOW_MAX])
{
	size_t depth = r->depth[node];

	path[depth - 1] = r->label[node];
	if (depth == 2)
		r->begins[(path[0] << 8 | path[1]) >> 3] |= (uint8_t)(1u << (path[1] & 7));
	if (depth >= BLOCK) {
		uint8_t *s = &r->skip[block(path + depth - BLOCK)];

		if (r->window - depth < *s)
			*s = (uint8_t)(r->window - depth);
	}
	if (depth == r->window)
		return;
	for (uint32_t k = r->child[node]; k != NONE; k = r->sibling[k])
		note_windows(r, k, path);
}

static void
fill_tables(struct redact *r)
{
	uint8_t path[WINDOW_MAX];

	if (r->window == 0)
		return;
	memset(r->skip, (int)(r->window - BLOCK + 1), sizeof(r->skip));
	for (unsigned c = 0; c < 256; c++)
		if (r->root[c] != NONE)
			note_windows(r, r->root[c], path);
	explicit_bzero(path, sizeof(path));
}

/* What stands around it is not the secret: a file ends with a newline, what prints it may not. */
static struct redact_value
trim(const struct redact_value *v)
{
	struct redact_value t = *v;

	while (t.len > 0 && memchr(" \t\r\n", t.data[t.len - 1], 4) != NULL)
		t.len--;
	while (t.len > 0 && memchr(" \t\r\n", t.data[0], 4) != NULL) {
		t.data++;
		t.len--;
	}
	return t;
}

/* Lines that look like keys: a file of several lines may be printed indented, or in parts. */
static int
add_lines(struct redact *r, const struct redact_value *v, size_t *dropped)
{
	for (size_t i = 0, n; i < v->len; i += n + 1) {
		const uint8_t *line = v->data + i, *end = memchr(line, '\n', v->len - i);
		int got = 1;

		n = end != NULL ? (size_t)(end - line) : v->len - i;
		if (n == v->len)
			return 0;
		const struct redact_value t = trim(&(struct redact_value){ line, n });

		if (t.len >= LINE_MIN && memchr(t.data, ' ', t.len) == NULL && t.data[0] != '-')
			got = add_pattern(r, t.data, t.len);
		if (got < 0)
			return got;
		*dropped += got == 0;
	}
	return 0;
}

static int
add_spelling(struct redact *r, const struct redact_value *v, unsigned which, size_t *dropped)
{
	struct redact_value t = trim(v);
	size_t room = spelling_room(t.len), len;
	uint8_t *buf;
	int got;

	if (which == 0)
		got = add_pattern(r, t.data, t.len);
	else if (t.len > SPELLING_VALUE_MAX && which > 2)
		got = which == 3 ? 0 : 1;	/* told once */
	else if ((buf = malloc(room)) == NULL)
		return -ENOMEM;
	else {
		len = spelling_make(which, t.data, t.len, buf);
		got = add_pattern(r, buf, len);
		explicit_bzero(buf, room);
		free(buf);
	}
	*dropped += got == 0;
	return got < 0 ? got : 0;
}

/* What is only sometimes printed, and takes the most room: what is left of it. */
static int
add_wrapped(struct redact *r, const struct redact_value *v, size_t *dropped)
{
	struct redact_value t = trim(v);
	uint8_t buf[SPELLING_WRAP_MAX * 2];
	int got = 1;

	for (unsigned which = 0; which < SPELLINGS_WRAPPED && got == 1 && t.len <= SPELLING_WRAP_MAX; which++)
		got = add_pattern(r, buf, spelling_wrapped(t.data, t.len, which, buf));
	explicit_bzero(buf, sizeof(buf));
	*dropped += got == 0;
	return got < 0 ? got : 0;
}

int
redact_new(const struct redact_value *values, size_t n, struct redact **ret_redact, size_t *ret_dropped)
{
	struct redact *r = calloc(1, sizeof(*r));
	size_t dropped = 0;
	int err = r == NULL || grow(r, 256) < 0 ? -ENOMEM : 0;

	if (err == 0) {
		r->n = 1;
		r->child[0] = r->sibling[0] = NONE;
		r->fail[0] = r->depth[0] = r->match[0] = 0;
	}
	for (unsigned which = 0; which < SPELLINGS; which++) {
		for (size_t i = 0; i < n && err == 0; i++)
			err = add_spelling(r, &values[i], which, &dropped);
		for (size_t i = 0; i < n && err == 0 && which == 2; i++)
			err = add_lines(r, &values[i], &dropped);
	}
	for (size_t i = 0; i < n && err == 0; i++)
		err = add_wrapped(r, &values[i], &dropped);
	if (err == 0)
		err = link_nodes(r);
	if (err < 0) {
		redact_free(r);
		return err;
	}
	fill_tables(r);
	*ret_redact = r;
	*ret_dropped = dropped;
	return 0;
}

void
redact_free(struct redact *r)
{
	if (r == NULL)
		return;
	if (r->label != NULL)
		explicit_bzero(r->label, r->n);
	free(r->label);
	free(r->child);
	free(r->sibling);
	free(r->fail);
	free(r->depth);
	free(r->match);
	free(r);
}

/* ---- scanning ---- */

static int
add_span(struct redact_scan *s, uint64_t from, uint64_t to)
{
	while (s->nspans > 0 && from < s->spans[s->nspans - 1].to) {
		from = from < s->spans[s->nspans - 1].from ? from : s->spans[s->nspans - 1].from;
		s->nspans--;
	}
	if (s->nspans == s->cap) {
		size_t cap = s->cap == 0 ? 8 : 2 * s->cap;
		struct redact_span *p = reallocarray(s->spans, cap, sizeof(*p));

		if (p == NULL)
			return -ENOMEM;
		s->spans = p;
		s->cap = cap;
	}
	s->spans[s->nspans++] = (struct redact_span){ from, to };
	return 0;
}

/* From the root: how many bytes begin no pattern. */
static size_t
skip_ahead(const struct redact *r, const uint8_t *p, size_t len)
{
	size_t i = 0;

	while (i + r->window <= len) {
		size_t far = r->skip[block(p + i + r->window - BLOCK)];

		if (far == 0 && (r->begins[(p[i] << 8 | p[i + 1]) >> 3] & 1u << (p[i + 1] & 7)) != 0)
			break;
		i += far > 0 ? far : 1;
	}
	return i;
}

static int
scan(const struct redact *r, struct redact_scan *s, const uint8_t *in, size_t len)
{
	uint32_t state = s->state;
	size_t i = (size_t)(s->at - s->from);
	int err = 0;

	while (i < len && err == 0) {
		if (state == 0 && r->window >= BLOCK) {
			i += skip_ahead(r, in + i, len - i);
			if (i >= len)
				break;
		}
		state = step(r, state, in[i++]);
		if (r->match[state] != 0)
			err = add_span(s, s->from + i - r->match[state], s->from + i);
	}
	s->state = state;
	s->at = s->from + i;
	return err;
}

static void
drop_written(struct redact_scan *s)
{
	size_t n = 0;

	while (n < s->nspans && s->spans[n].to <= s->out)
		n++;
	if (n == 0)
		return;
	memmove(s->spans, s->spans + n, (s->nspans - n) * sizeof(s->spans[0]));
	s->nspans -= n;
}

/* Writes what lies below limit; in begins at s->from. */
static size_t
emit(struct redact_scan *s, const uint8_t *in, uint64_t limit, uint8_t *dst, size_t size)
{
	size_t n = 0, k = 0;

	while (s->out < limit) {
		const struct redact_span *span;
		uint64_t end = limit;
		size_t len;

		while (k < s->nspans && s->spans[k].to <= s->out)
			k++;
		span = k < s->nspans ? &s->spans[k] : NULL;
		if (span != NULL && span->from <= s->out) {
			if (!s->masked || span->from == s->out) {
				if (size - n < REDACT_MARK_LEN)
					break;
				memcpy(dst + n, REDACT_MARK, REDACT_MARK_LEN);
				n += REDACT_MARK_LEN;
			}
			s->out = span->to;
			s->masked = true;
			continue;
		}
		if (span != NULL && span->from < limit)
			end = span->from;
		len = end - s->out < size - n ? (size_t)(end - s->out) : size - n;
		if (len == 0)
			break;
		memcpy(dst + n, in + (s->out - s->from), len);
		n += len;
		s->out += len;
		s->masked = false;
	}
	drop_written(s);
	return n;
}

static uint64_t
held_from(const struct redact *r, const struct redact_scan *s)
{
	return s->at - r->depth[s->state];
}

static void
settle(const struct redact *r, struct redact_scan *s)
{
	uint64_t held = held_from(r, s);

	s->from = s->out < held ? s->out : held;
	if (s->nspans > 0 && s->spans[0].from < s->from)
		s->from = s->spans[0].from;	/* it has not been written whole: who begins again must find it again */
}

ssize_t
redact_run(const struct redact *r, struct redact_scan *s, const uint8_t *in, size_t len, uint8_t *dst, size_t size)
{
	int err = scan(r, s, in, len);
	size_t n;

	if (err < 0)
		return err;
	n = emit(s, in, held_from(r, s), dst, size);
	settle(r, s);
	return (ssize_t)n;
}

ssize_t
redact_flush(const struct redact *r, struct redact_scan *s, const uint8_t *in, bool final, uint8_t *dst, size_t size)
{
	uint64_t plain = s->nspans > 0 && s->spans[s->nspans - 1].to > s->out ? s->spans[s->nspans - 1].to : s->out;
	size_t n;

	if (plain < s->at && s->at - plain >= REDACT_RELEASE) {
		if (!final)
			return 0;
		if (add_span(s, plain, s->at) < 0)
			return -ENOMEM;
	}
	n = emit(s, in, s->at, dst, size);
	if (final && s->out >= s->at)
		s->state = 0;
	settle(r, s);
	return (ssize_t)n;
}

bool
redact_is_idle(const struct redact_scan *s)
{
	return s->out >= s->at;
}

bool
redact_is_due(const struct redact *r, const struct redact_scan *s)
{
	return s->out < held_from(r, s);
}

void
redact_again(struct redact_scan *s)
{
	s->at = s->from;
	s->state = 0;
	s->nspans = 0;
}

void
redact_scan_done(struct redact_scan *s)
{
	free(s->spans);
	*s = (struct redact_scan){ 0 };
}
