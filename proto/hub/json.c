/*
 * Reading: yajl's callbacks build a tree in one arena. yajl has no depth limit and its own stack does not test realloc,
 * so the depth is bounded here, in the callbacks, long before.
 */
#include "proto/hub/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "proto/hub/utf8.h"

#define CHUNK_SIZE	16384

struct chunk {
	struct chunk *next;
	size_t used, size;
	_Alignas(16) char data[];
};

struct json_doc {
	struct chunk *chunks;
	struct json *root;
	/* while parsing */
	struct json *open[JSON_DEPTH_MAX];	/* containers, outermost first */
	struct json *last[JSON_DEPTH_MAX];	/* last element of each */
	unsigned depth, nodes;
	const char *key;
	bool nomem, nul_ok;
};

static void *
arena_alloc(struct json_doc *doc, size_t n)
{
	struct chunk *c = doc->chunks;
	size_t size = n > CHUNK_SIZE ? n : CHUNK_SIZE;
	void *p;

	n = (n + 15) & ~(size_t)15;
	if (c == NULL || c->size - c->used < n) {
		size = (size + 15) & ~(size_t)15;
		c = malloc(sizeof(*c) + size);
		if (c == NULL) {
			doc->nomem = true;
			return NULL;
		}
		*c = (struct chunk){ .next = doc->chunks, .size = size };
		doc->chunks = c;
	}
	p = c->data + c->used;
	c->used += n;
	return p;
}

static char *
arena_str(struct json_doc *doc, const unsigned char *s, size_t len, bool nul_ok)
{
	char *p = nul_ok || memchr(s, '\0', len) == NULL ? arena_alloc(doc, len + 1) : NULL;

	if (p == NULL)
		return NULL;
	memcpy(p, s, len);
	p[len] = '\0';
	return p;
}

/* A new node under the innermost open container; NULL ends the parse. */
static struct json *
add_node(struct json_doc *doc, enum json_type type)
{
	struct json *n = doc->nodes++ < JSON_NODES_MAX ? arena_alloc(doc, sizeof(*n)) : NULL;
	unsigned top = doc->depth - 1;

	if (n == NULL)
		return NULL;
	*n = (struct json){ .type = type, .key = doc->key };
	doc->key = NULL;
	if (doc->depth == 0)
		doc->root = n;
	else if (doc->last[top] == NULL)
		doc->open[top]->child = n;
	else
		doc->last[top]->next = n;
	if (doc->depth > 0)
		doc->last[top] = n;
	return n;
}

static int
on_null(void *ctx)
{
	return add_node(ctx, JSON_NULL) != NULL;
}

static int
on_bool(void *ctx, int v)
{
	struct json *n = add_node(ctx, JSON_BOOL);

	if (n == NULL)
		return 0;
	n->i = v != 0;
	return 1;
}

/* Numbers come as text: yajl's own conversion refuses the least int64_t. What is no int64_t is a JSON_REAL without value. */
static int
on_number(void *ctx, const char *s, size_t len)
{
	struct json *n = add_node(ctx, JSON_INT);
	bool neg = len > 0 && s[0] == '-';

	if (n == NULL)
		return 0;
	for (size_t i = neg; i < len; i++) {
		int digit = s[i] - '0';

		if (digit < 0 || digit > 9 || __builtin_mul_overflow(n->i, 10, &n->i) ||
		    __builtin_add_overflow(n->i, neg ? -digit : digit, &n->i)) {
			n->type = JSON_REAL;
			n->i = 0;
			break;
		}
	}
	return 1;
}

static int
on_str(void *ctx, const unsigned char *s, size_t len)
{
	struct json_doc *doc = ctx;
	struct json *n = add_node(doc, JSON_STRING);

	if (n == NULL)
		return 0;
	if (!doc->nul_ok && memchr(s, '\0', len) != NULL) {
		n->type = JSON_REAL;
		return 1;
	}
	n->str = arena_str(doc, s, len, true);
	n->len = len;
	return n->str != NULL;
}

static int
on_key(void *ctx, const unsigned char *s, size_t len)
{
	struct json_doc *doc = ctx;

	doc->key = arena_str(doc, s, len, false);
	return doc->key != NULL;
}

static int
open_container(struct json_doc *doc, enum json_type type)
{
	struct json *n = doc->depth < JSON_DEPTH_MAX ? add_node(doc, type) : NULL;

	if (n == NULL)
		return 0;
	doc->open[doc->depth] = n;
	doc->last[doc->depth] = NULL;
	doc->depth++;
	return 1;
}

static int
on_open_obj(void *ctx)
{
	return open_container(ctx, JSON_OBJECT);
}

static int
on_open_arr(void *ctx)
{
	return open_container(ctx, JSON_ARRAY);
}

static int
on_close(void *ctx)
{
	struct json_doc *doc = ctx;

	doc->depth--;
	return 1;
}

static const yajl_callbacks callbacks = {
	.yajl_null = on_null, .yajl_boolean = on_bool, .yajl_number = on_number,
	.yajl_string = on_str, .yajl_start_map = on_open_obj, .yajl_map_key = on_key, .yajl_end_map = on_close,
	.yajl_start_array = on_open_arr, .yajl_end_array = on_close,
};

static int
parse(const void *data, size_t len, bool nul_ok, struct json_doc **ret_doc)
{
	struct json_doc *doc;
	yajl_handle y;
	yajl_status st;
	int r = 0;

	/* yajl's own check lets surrogates and overlong forms pass. */
	if (utf8_valid_prefix(data, len, NULL) != len)
		return -EBADMSG;
	doc = calloc(1, sizeof(*doc));
	y = doc != NULL ? yajl_alloc(&callbacks, NULL, doc) : NULL;
	if (y == NULL) {
		free(doc);
		return -ENOMEM;
	}
	doc->nul_ok = nul_ok;
	st = yajl_parse(y, data, len);
	if (st == yajl_status_ok)
		st = yajl_complete_parse(y);
	if (st != yajl_status_ok || doc->root == NULL || doc->depth != 0)
		r = doc->nomem ? -ENOMEM : -EBADMSG;
	yajl_free(y);
	if (r < 0)
		json_doc_free(doc);
	else
		*ret_doc = doc;
	return r;
}

int
json_parse(const void *data, size_t len, struct json_doc **ret_doc)
{
	return parse(data, len, false, ret_doc);
}

int
json_parse_nul(const void *data, size_t len, struct json_doc **ret_doc)
{
	return parse(data, len, true, ret_doc);
}

void
json_doc_free(struct json_doc *doc)
{
	if (doc == NULL)
		return;
	for (struct chunk *c = doc->chunks, *next; c != NULL; c = next) {
		next = c->next;
		explicit_bzero(c->data, c->used);	/* frames carry credentials and the environments of workloads */
		free(c);
	}
	free(doc);
}

const struct json *
json_root(const struct json_doc *doc)
{
	return doc->root;
}

size_t
json_doc_size(const struct json_doc *doc)
{
	size_t size = sizeof(*doc);

	for (const struct chunk *c = doc->chunks; c != NULL; c = c->next)
		size += sizeof(*c) + c->size;
	return size;
}

const struct json *
json_get(const struct json *obj, const char *key)
{
	if (obj == NULL || obj->type != JSON_OBJECT)
		return NULL;
	for (const struct json *n = obj->child; n != NULL; n = n->next)
		if (strcmp(n->key, key) == 0)
			return n;
	return NULL;
}

bool
json_get_int(const struct json *obj, const char *key, int64_t min, int64_t max, int64_t *ret_v)
{
	const struct json *n = json_get(obj, key);

	if (n == NULL || n->type != JSON_INT || n->i < min || n->i > max)
		return false;
	*ret_v = n->i;
	return true;
}

bool
json_get_bool(const struct json *obj, const char *key, bool *ret_v)
{
	const struct json *n = json_get(obj, key);

	if (n == NULL || n->type != JSON_BOOL)
		return false;
	*ret_v = n->i != 0;
	return true;
}

const char *
json_get_str(const struct json *obj, const char *key)
{
	const struct json *n = json_get(obj, key);

	return n != NULL && n->type == JSON_STRING && memchr(n->str, '\0', n->len) == NULL ? n->str : NULL;
}

bool
json_copy_str(const struct json *obj, const char *key, char *buf, size_t size)
{
	const char *s = json_get_str(obj, key);
	size_t len = s != NULL ? strlen(s) : 0;

	buf[0] = '\0';
	if (s == NULL || len >= size)
		return false;
	memcpy(buf, s, len + 1);
	return true;
}

static bool
is_absent(const struct json *obj, const char *key)
{
	const struct json *n = json_get(obj, key);

	return n == NULL || n->type == JSON_NULL;
}

bool
json_opt_int(const struct json *obj, const char *key, int64_t min, int64_t max, int64_t *ret_v)
{
	*ret_v = 0;
	return is_absent(obj, key) || json_get_int(obj, key, min, max, ret_v);
}

bool
json_opt_str(const struct json *obj, const char *key, char *buf, size_t size)
{
	buf[0] = '\0';
	return is_absent(obj, key) || json_copy_str(obj, key, buf, size);
}

/* ---- writing ---- */

void
json_w_init(struct json_w *w, void *buf, size_t size)
{
	*w = (struct json_w){ .buf = buf, .size = size };
}

static void
put(struct json_w *w, const char *s, size_t len)
{
	if (w->err != 0 || w->size - w->len < len) {
		w->err = -ENOSPC;
		return;
	}
	memcpy(w->buf + w->len, s, len);
	w->len += len;
}

static void
put_str(struct json_w *w, const void *s, size_t len)
{
	put(w, "\"", 1);
	if (w->err != 0 || len > w->size || (w->size - w->len) / 6 < len) {
		w->err = -ENOSPC;
		return;
	}
	/* The escaped form is at least as long: the raw bytes go to the far end of the room first, to be made valid there. */
	char *raw = w->buf + w->size - len;

	memmove(raw, s, len);
	utf8_sanitize((uint8_t *)raw, len);
	w->len += json_escape(w->buf + w->len, raw, len);
	put(w, "\"", 1);
}

/* Comma and key before a value. */
static void
lead(struct json_w *w, const char *key)
{
	if (w->comma)
		put(w, ",", 1);
	w->comma = true;
	if (key != NULL) {
		put_str(w, key, strlen(key));
		put(w, ":", 1);
	}
}

static void
open_with(struct json_w *w, const char *key, const char *bracket)
{
	lead(w, key);
	put(w, bracket, 1);
	w->comma = false;
}

static void
close_with(struct json_w *w, const char *bracket)
{
	put(w, bracket, 1);
	w->comma = true;
}

void
json_w_obj(struct json_w *w, const char *key)
{
	open_with(w, key, "{");
}

void
json_w_end_obj(struct json_w *w)
{
	close_with(w, "}");
}

void
json_w_arr(struct json_w *w, const char *key)
{
	open_with(w, key, "[");
}

void
json_w_end_arr(struct json_w *w)
{
	close_with(w, "]");
}

void
json_w_strn(struct json_w *w, const char *key, const void *v, size_t len)
{
	lead(w, key);
	put_str(w, v, len);
}

void
json_w_str(struct json_w *w, const char *key, const char *v)
{
	json_w_strn(w, key, v, strlen(v));
}

void
json_w_int(struct json_w *w, const char *key, int64_t v)
{
	char digits[24];
	size_t n = sizeof(digits);
	uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;

	do
		digits[--n] = (char)('0' + u % 10);
	while ((u /= 10) != 0);
	if (v < 0)
		digits[--n] = '-';
	lead(w, key);
	put(w, digits + n, sizeof(digits) - n);
}

void
json_w_bool(struct json_w *w, const char *key, bool v)
{
	lead(w, key);
	put(w, v ? "true" : "false", v ? 4 : 5);
}

void
json_w_null(struct json_w *w, const char *key)
{
	lead(w, key);
	put(w, "null", 4);
}

void
json_w_raw(struct json_w *w, const char *key, const char *json, size_t len)
{
	lead(w, key);
	put(w, json, len);
}

int
json_w_done(const struct json_w *w, size_t *ret_len)
{
	if (w->err != 0)
		return w->err;
	*ret_len = w->len;
	return 0;
}

static bool
plain(uint8_t c)
{
	return c >= 0x20 && c != '"' && c != '\\';
}

/* Bytes at the front that stand for themselves, a word at a time: nearly all of a log. */
static size_t
plain_run(const uint8_t *s, size_t len)
{
	const uint64_t ones = 0x0101010101010101ull, highs = ones << 7;
	size_t i = 0;

	for (uint64_t w, quote, slash; len - i >= sizeof(w); i += sizeof(w)) {
		memcpy(&w, s + i, sizeof(w));
		quote = w ^ ones * '"';
		slash = w ^ ones * '\\';
		/* x - n borrows into the high bit where a byte x is less than n; ~x leaves out bytes that had it set. */
		if ((((w - ones * 0x20) & ~w) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & highs)
			break;
	}
	while (i < len && plain(s[i]))
		i++;
	return i;
}

static const char short_form[32] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r' };

size_t
json_escape(char *dst, const void *src, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	const uint8_t *s = src, *end = s + len;
	char *d = dst;

	for (; s < end; s++) {
		size_t n = plain_run(s, (size_t)(end - s));

		memcpy(d, s, n);
		d += n;
		s += n;
		if (s == end)
			break;
		*d++ = '\\';
		if (*s >= 0x20) {
			*d++ = (char)*s;
		} else if (short_form[*s] != 0) {
			*d++ = short_form[*s];
		} else {
			memcpy(d, "u00", 3);
			d[3] = hex[*s >> 4];
			d[4] = hex[*s & 15];
			d += 5;
		}
	}
	return (size_t)(d - dst);
}

size_t
json_escaped_len(const void *src, size_t len)
{
	const uint8_t *s = src;
	size_t n = len;

	for (size_t i = plain_run(s, len); i < len; i += plain_run(s + i, len - i)) {
		n += s[i] >= 0x20 || short_form[s[i]] != 0 ? 1 : 5;
		i++;
	}
	return n;
}
