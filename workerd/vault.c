#include "workerd/vault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/log.h"
#include "workerd/placing.h"
#include "workerd/workerd.h"

#define AREA		(RECORD_PAGE + 2u * VAULT_HALF)
#define VALUES_MAX	1024u

/* The page at the beginning of the area. */
struct vault_head {
	uint32_t now;			/* the half that counts */
	uint32_t used[2];		/* bytes of items in each */
	uint32_t reserved;
};

static struct vault_head *
head_of(const struct vault *v)
{
	return (struct vault_head *)(void *)v->area;
}

static uint8_t *
half_of(const struct vault *v, uint32_t which)
{
	return v->area + RECORD_PAGE + which * VAULT_HALF;
}

/* ---- items ---- */

static size_t
padded(size_t len)
{
	return (len + 3) / 4 * 4;
}

/* Behind each other: flags, length, the item, padding, so that flags can be changed where they are. -ENOSPC. */
static int
put_item(struct vault *v, uint32_t which, uint32_t flags, const struct secret *s)
{
	struct vault_head *h = head_of(v);
	uint8_t *p = half_of(v, which) + h->used[which];
	size_t room = VAULT_HALF - h->used[which], len;
	uint32_t n;
	struct wire_w w;

	if (room < 8)
		return -ENOSPC;
	wire_w_init(&w, p + 8, room - 8);
	secret_put(&w, s);
	if (wire_w_done(&w, &len) < 0 || padded(len) > room - 8)
		return -ENOSPC;
	n = (uint32_t)len;
	memcpy(p, &flags, 4);
	memcpy(p + 4, &n, 4);
	__atomic_store_n(&h->used[which], h->used[which] + 8 + (uint32_t)padded(len), __ATOMIC_SEQ_CST);
	return 0;
}

void
vault_begin(const struct vault *v, struct vault_iter *it)
{
	const struct vault_head *h = head_of(v);

	it->p = half_of(v, h->now);
	it->end = it->p + h->used[h->now];
}

bool
vault_next(struct vault_iter *it, struct vault_item *ret_item)
{
	struct wire_r r;
	uint32_t len;

	if (it->end - it->p < 8)
		return false;
	memcpy(&len, it->p + 4, 4);
	if (len > (size_t)(it->end - it->p) - 8 || padded(len) > (size_t)(it->end - it->p) - 8)
		return false;
	wire_r_init(&r, it->p + 8, len);
	ret_item->flags = (uint32_t *)(void *)it->p;
	if (secret_next(&r, &ret_item->s) != 1)
		return false;
	it->p += 8 + padded(len);
	return true;
}

/* Every item is whole, and nothing lies behind the last one. */
static bool
area_ok(const struct vault *v)
{
	const struct vault_head *h = head_of(v);
	struct vault_item item;
	struct vault_iter it;

	if (h->now > 1 || h->used[0] > VAULT_HALF || h->used[1] > VAULT_HALF)
		return false;
	vault_begin(v, &it);
	while (vault_next(&it, &item))
		;
	return it.p == it.end;
}

/* ---- the automaton ---- */

static int
compile(struct workload *wl)
{
	struct redact_value values[VALUES_MAX];
	struct vault *v = wl->vault;
	struct redact *fresh;
	struct vault_item item;
	struct vault_iter it;
	size_t n = 0, dropped;
	int r;

	vault_begin(v, &it);
	while (n < VALUES_MAX && vault_next(&it, &item))
		if (item.s.len > 0)
			values[n++] = (struct redact_value){ item.s.value, item.s.len };
	r = redact_new(values, n, &fresh, &dropped);
	if (r < 0)
		return r;
	if (dropped > 0)
		log_warn("%s: its secrets are too long to look for all of their encodings: %zu of those are not masked",
		    wl->info.handle, dropped);
	redact_free(v->redact);
	v->redact = fresh;
	redact_again(&v->scan);
	attach_secrets_changed(wl);
	return 0;
}

/* ---- life ---- */

static int
open_area(struct workload *wl, bool fresh, int pipe)
{
	uint64_t base = RECORD_PAGE + wl->rec.h->ring;
	struct vault *v = calloc(1, sizeof(*v));
	int r;

	if (v == NULL)
		return -ENOMEM;
	v->raw.fd = -1;
	r = fresh ? record_inner_new(&wl->rec, base, VAULT_RAW, &v->raw) : record_inner_adopt(&wl->rec, base, VAULT_RAW, pipe, &v->raw);
	if (r == 0) {
		v->area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_SHARED, wl->rec.fd, (off_t)(base + RECORD_PAGE + VAULT_RAW));
		r = v->area == MAP_FAILED ? -errno : 0;
	}
	if (r < 0) {
		record_inner_done(&v->raw);
		free(v);
		return r;
	}
	wl->vault = v;
	mask_init(wl);
	return 0;
}

/* The value of a variable of the workload's, unless it is the path of a file. */
static void
take_value(struct secret *s, const struct work_spec *spec)
{
	size_t n = strlen(s->name);

	for (uint32_t i = 0; i < spec->envc; i++) {
		const struct work_str *var = &spec->env[i];

		if (var->len <= n || var->s[n] != '=' || memcmp(var->s, s->name, n) != 0)
			continue;
		if (placing_is_path(var->s + n + 1, var->len - n - 1) || var->len - n - 1 > SECRET_FILE_MAX)
			continue;
		s->value = (const uint8_t *)var->s + n + 1;
		s->len = var->len - n - 1;
	}
}

int
vault_new(struct workload *wl, const struct work_spec *spec, const struct placing *placing, const struct work_str *credential)
{
	struct secret s = { .kind = SECRET_ENV, .name = "workspace_credential", .value = (const uint8_t *)credential->s,
		.len = credential->len };
	char real[PLACING_REAL];
	struct wire_r items;
	int r = record_new_beyond(spec->handle, wl->w->conf.work_retain, VAULT_BEYOND, &wl->rec);

	if (r == 0)
		r = open_area(wl, true, -1);
	if (r < 0)
		return r;
	if (credential->len > 0)
		r = put_item(wl->vault, 0, 0, &s);
	wire_r_init(&items, spec->secrets.s, spec->secrets.len);
	while (r == 0 && secret_next(&items, &s) == 1) {
		if (s.kind == SECRET_FILE) {
			placing_real(placing, s.dir, real);
			memcpy(s.dir, real, sizeof(real));
		} else if (s.kind == SECRET_ENV) {
			take_value(&s, spec);
		}
		r = put_item(wl->vault, 0, 0, &s);
	}
	return r < 0 ? r : compile(wl);
}

int
vault_adopt(struct workload *wl, int pipe)
{
	const struct record_head *h = wl->rec.h;
	const struct record_seam *seam;
	int r;

	if (h->beyond == 0)
		return 0;
	r = h->beyond == VAULT_BEYOND ? open_area(wl, false, pipe) : -EBADMSG;
	if (r == 0 && !area_ok(wl->vault))
		r = -EBADMSG;
	if (r < 0)
		return r;
	seam = &h->seam[h->seam_now];
	wl->vault->scan = (struct redact_scan){ .from = seam->from, .at = seam->from, .out = seam->out, .masked = seam->masked != 0 };
	return compile(wl);
}

static void
let_go(struct workload *wl)
{
	struct vault *v = wl->vault;

	mask_done(wl);
	munmap(v->area, AREA);
	redact_free(v->redact);
	redact_scan_done(&v->scan);
	free(v);
	wl->vault = NULL;
}

void
vault_close(struct workload *wl)
{
	if (wl->vault == NULL)
		return;
	record_inner_close(&wl->vault->raw);
	let_go(wl);
}

void
vault_free(struct workload *wl)
{
	struct vault *v = wl->vault;

	if (v == NULL)
		return;
	record_inner_done(&v->raw);
	explicit_bzero(half_of(v, 0), head_of(v)->used[0]);
	explicit_bzero(half_of(v, 1), head_of(v)->used[1]);
	explicit_bzero(v->area, sizeof(struct vault_head));
	let_go(wl);
}

/* ---- change ---- */

/* The list without contents that were replaced, in the other half. */
static int
rewrite(struct vault *v)
{
	struct vault_head *h = head_of(v);
	uint32_t other = 1 - h->now, old = h->now;
	struct vault_item item;
	struct vault_iter it;
	int r = 0;

	h->used[other] = 0;
	vault_begin(v, &it);
	while (r == 0 && vault_next(&it, &item))
		if ((*item.flags & VAULT_REPLACED) == 0)
			r = put_item(v, other, *item.flags, &item.s);
	if (r < 0)
		return r;
	__atomic_store_n(&h->now, other, __ATOMIC_SEQ_CST);
	explicit_bzero(half_of(v, old), h->used[old]);
	h->used[old] = 0;
	return 0;
}

int
vault_add(struct workload *wl, const struct secret *like, const uint8_t *value, size_t len)
{
	struct vault *v = wl->vault;
	struct secret s = *like;
	int r;

	s.value = value;
	s.len = len;
	r = put_item(v, head_of(v)->now, VAULT_REPLACED, &s);
	if (r == -ENOSPC) {
		log_warn("%s: what its secrets were before earlier refreshes is not looked for any more", wl->info.handle);
		r = rewrite(v);
		if (r == 0)
			r = put_item(v, head_of(v)->now, VAULT_REPLACED, &s);
	}
	return r < 0 ? r : compile(wl);
}

void
vault_supersede(const struct vault *v, const char *dir, const char *name)
{
	uint32_t *last = NULL, kept = 0;
	struct vault_item item;
	struct vault_iter it;

	vault_begin(v, &it);
	while (vault_next(&it, &item)) {
		if (item.s.kind != SECRET_FILE || strcmp(item.s.dir, dir) != 0 || strcmp(item.s.name, name) != 0)
			continue;
		kept |= *item.flags & VAULT_REVOKED;
		*item.flags |= VAULT_REPLACED;
		last = item.flags;
	}
	if (last != NULL)
		*last = kept;
}
