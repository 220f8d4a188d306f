#include "proto/ipc/wire.h"

#include <errno.h>
#include <string.h>

void
wire_r_init(struct wire_r *r, const void *data, size_t len)
{
	r->p = data;
	r->end = r->p + len;
	r->err = 0;
}

/* The next n bytes, or NULL with the error set. */
static const uint8_t *
take(struct wire_r *r, size_t n)
{
	const uint8_t *p = r->p;

	if (r->err != 0 || (size_t)(r->end - r->p) < n) {
		r->err = -EBADMSG;
		return NULL;
	}
	r->p += n;
	return p;
}

static void
get(struct wire_r *r, void *ret_v, size_t n)
{
	const uint8_t *p = take(r, n);

	if (p != NULL)
		memcpy(ret_v, p, n);
}

uint8_t
wire_u8(struct wire_r *r)
{
	uint8_t v = 0;

	get(r, &v, sizeof(v));
	return v;
}

uint16_t
wire_u16(struct wire_r *r)
{
	uint16_t v = 0;

	get(r, &v, sizeof(v));
	return v;
}

uint32_t
wire_u32(struct wire_r *r)
{
	uint32_t v = 0;

	get(r, &v, sizeof(v));
	return v;
}

uint64_t
wire_u64(struct wire_r *r)
{
	uint64_t v = 0;

	get(r, &v, sizeof(v));
	return v;
}

int64_t
wire_i64(struct wire_r *r)
{
	int64_t v = 0;

	get(r, &v, sizeof(v));
	return v;
}

const uint8_t *
wire_bytes(struct wire_r *r, size_t *ret_len)
{
	uint32_t len = wire_u32(r);
	const uint8_t *p = take(r, len);

	*ret_len = p != NULL ? len : 0;
	return p;
}

void
wire_str(struct wire_r *r, char *buf, size_t size)
{
	size_t len;
	const uint8_t *p = wire_bytes(r, &len);

	memset(buf, 0, size);
	if (p == NULL)
		return;
	if (len >= size || memchr(p, '\0', len) != NULL) {
		r->err = -EBADMSG;
		return;
	}
	memcpy(buf, p, len);
}

int
wire_done(const struct wire_r *r)
{
	return r->err == 0 && r->p == r->end ? 0 : -EBADMSG;
}

void
wire_w_init(struct wire_w *w, void *buf, size_t size)
{
	w->start = w->p = buf;
	w->end = w->p + size;
	w->err = 0;
}

static void
put(struct wire_w *w, const void *v, size_t n)
{
	if (w->err != 0 || (size_t)(w->end - w->p) < n) {
		w->err = -ENOSPC;
		return;
	}
	if (n > 0)
		memcpy(w->p, v, n);
	w->p += n;
}

void
wire_put_u8(struct wire_w *w, uint8_t v)
{
	put(w, &v, sizeof(v));
}

void
wire_put_u16(struct wire_w *w, uint16_t v)
{
	put(w, &v, sizeof(v));
}

void
wire_put_u32(struct wire_w *w, uint32_t v)
{
	put(w, &v, sizeof(v));
}

void
wire_put_u64(struct wire_w *w, uint64_t v)
{
	put(w, &v, sizeof(v));
}

void
wire_put_i64(struct wire_w *w, int64_t v)
{
	put(w, &v, sizeof(v));
}

void
wire_put_bytes(struct wire_w *w, const void *data, size_t len)
{
	if (len > UINT32_MAX) {
		w->err = -ENOSPC;
		return;
	}
	wire_put_u32(w, (uint32_t)len);
	put(w, data, len);
}

void
wire_put_str(struct wire_w *w, const char *s)
{
	wire_put_bytes(w, s, strlen(s));
}

int
wire_w_done(const struct wire_w *w, size_t *ret_len)
{
	if (w->err != 0)
		return w->err;
	*ret_len = (size_t)(w->p - w->start);
	return 0;
}
