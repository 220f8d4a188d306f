/* Tokens and devices. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hub/store_int.h"

static void
hash_hex(char hex[TOKEN_HASH_LEN * 2 + 1], const uint8_t hash[TOKEN_HASH_LEN])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < TOKEN_HASH_LEN; i++) {
		hex[2 * i] = digits[hash[i] >> 4];
		hex[2 * i + 1] = digits[hash[i] & 15];
	}
	hex[TOKEN_HASH_LEN * 2] = '\0';
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* All zero, which no secret hashes to, when the column is not a hash. */
static void
col_hash(sqlite3_stmt *st, int i, uint8_t hash[TOKEN_HASH_LEN])
{
	const char *hex = (const char *)sqlite3_column_text(st, i);

	memset(hash, 0, TOKEN_HASH_LEN);
	if (hex == NULL || strlen(hex) != TOKEN_HASH_LEN * 2)
		return;
	for (int k = 0; k < TOKEN_HASH_LEN; k++) {
		int hi = hex_digit(hex[2 * k]), lo = hex_digit(hex[2 * k + 1]);

		if (hi < 0 || lo < 0) {
			memset(hash, 0, TOKEN_HASH_LEN);
			return;
		}
		hash[k] = (uint8_t)(hi << 4 | lo);
	}
}

int
store_token_add(struct store *store, const struct token *token, const char *name, int64_t now, int64_t expires)
{
	sqlite3_stmt *st = store_stmt(store, ST_TOKEN_ADD);
	char hex[TOKEN_HASH_LEN * 2 + 1];

	hash_hex(hex, token->hash);
	store_bind_text(st, 1, token->id);
	store_bind_text(st, 2, hex);
	store_bind_text(st, 3, name);
	sqlite3_bind_int64(st, 4, now);
	sqlite3_bind_int64(st, 5, expires);
	return store_write(store, st, NULL);
}

int
store_token_redeem(struct store *store, const struct token *token, int64_t now, char *name)
{
	sqlite3_stmt *st = store_stmt(store, ST_TOKEN_GET);
	uint8_t hash[TOKEN_HASH_LEN];
	int r, changes = 0;

	store_bind_text(st, 1, token->id);
	r = store_row(st);
	if (r <= 0)
		return r < 0 ? r : -EKEYREJECTED;
	col_hash(st, 0, hash);
	store_col_text(st, 1, name, DEVICE_NAME_SIZE);
	sqlite3_reset(st);
	if (!token_hash_equal(hash, token->hash))
		return -EKEYREJECTED;
	st = store_stmt(store, ST_TOKEN_CLAIM);
	store_bind_text(st, 1, token->id);
	sqlite3_bind_int64(st, 2, now);
	r = store_write(store, st, &changes);
	if (r < 0)
		return r;
	return changes == 1 ? 0 : -EKEYREJECTED;
}

int
store_token_device(struct store *store, const char *id, const char *device)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_TOKEN_DEVICE, id);

	store_bind_text(st, 2, device);
	return store_write(store, st, NULL);
}

int
store_tokens(struct store *store, int (*cb)(const struct store_token *token, void *ctx), void *ctx)
{
	sqlite3_stmt *st = store_stmt(store, ST_TOKENS);
	int r;

	while ((r = store_row(st)) > 0) {
		struct store_token t = { .created = sqlite3_column_int64(st, 2), .expires = sqlite3_column_int64(st, 3),
			.used = sqlite3_column_int64(st, 4), .revoked = sqlite3_column_int(st, 5) != 0 };

		store_col_text(st, 0, t.id, sizeof(t.id));
		store_col_text(st, 1, t.name, sizeof(t.name));
		store_col_text(st, 6, t.device, sizeof(t.device));
		r = cb(&t, ctx);
		if (r != 0) {
			sqlite3_reset(st);
			return r;
		}
	}
	return r;
}

struct find_token {
	const char *id;
	char *device;
};

static int
find_token(const struct store_token *t, void *ctx)
{
	struct find_token *f = ctx;

	if (strcmp(t->id, f->id) != 0)
		return 0;
	memcpy(f->device, t->device, DEVICE_ID_SIZE);
	return 1;
}

int
store_token_revoke(struct store *store, const char *id, char *device)
{
	struct find_token f = { id, device };
	sqlite3_stmt *st;
	int r = store_tokens(store, find_token, &f);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	st = store_stmt(store, ST_TOKEN_REVOKE);
	store_bind_text(st, 1, id);
	r = store_write(store, st, NULL);
	if (r == 0 && device[0] != '\0')
		r = store_device_revoke(store, device);
	return r;
}

int
store_device_add(struct store *store, const struct store_device *device)
{
	sqlite3_stmt *st = store_stmt(store, ST_DEVICE_ADD);
	char hex[TOKEN_HASH_LEN * 2 + 1];

	hash_hex(hex, device->hash);
	store_bind_text(st, 1, device->id);
	store_bind_text(st, 2, hex);
	store_bind_text(st, 3, device->name);
	sqlite3_bind_int64(st, 4, device->created);
	return store_write(store, st, NULL);
}

static void
col_device(sqlite3_stmt *st, struct store_device *d)
{
	*d = (struct store_device){ 0 };
	store_col_text(st, 0, d->id, sizeof(d->id));
	store_col_text(st, 1, d->name, sizeof(d->name));
	store_col_text(st, 2, d->version, sizeof(d->version));
	col_hash(st, 3, d->hash);
	d->created = sqlite3_column_int64(st, 4);
	d->last_seen = sqlite3_column_int64(st, 5);
	d->revoked = sqlite3_column_int(st, 6) != 0;
}

int
store_device_get(struct store *store, const char *id, struct store_device *ret_device)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_DEVICE_GET, id);
	int r;

	r = store_one(st);
	if (r < 0)
		return r;
	col_device(st, ret_device);
	sqlite3_reset(st);
	return 0;
}

int
store_device_hello(struct store *store, const char *id, const char *name, const char *version, const char *caps,
    size_t caps_len, int64_t now)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_DEVICE_HELLO, id);

	store_bind_text(st, 2, name);
	store_bind_text(st, 3, version);
	sqlite3_bind_text64(st, 4, caps, caps_len, SQLITE_STATIC, SQLITE_UTF8);
	sqlite3_bind_int64(st, 5, now);
	return store_write(store, st, NULL);
}

int
store_device_seen(struct store *store, const char *id, int64_t now)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_DEVICE_SEEN, id);

	sqlite3_bind_int64(st, 2, now);
	return store_write(store, st, NULL);
}

int
store_device_revoke(struct store *store, const char *id)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_DEVICE_REVOKE, id);

	return store_write(store, st, NULL);
}

char *
store_device_caps(struct store *store, const char *id)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_DEVICE_CAPS, id);
	char *caps = NULL;

	if (store_row(st) == 1 && sqlite3_column_text(st, 0) != NULL)
		caps = strdup((const char *)sqlite3_column_text(st, 0));
	sqlite3_reset(st);
	return caps;
}

int
store_devices(struct store *store, int (*cb)(const struct store_device *device, void *ctx), void *ctx)
{
	sqlite3_stmt *st = store_stmt(store, ST_DEVICES);
	struct store_device d;
	int r;

	while ((r = store_row(st)) > 0) {
		col_device(st, &d);
		r = cb(&d, ctx);
		if (r != 0) {
			sqlite3_reset(st);
			return r;
		}
	}
	return r;
}

struct find {
	const char *what;
	struct store_device best;
	int rank;	/* store_device_fit() */
	unsigned n;	/* matches of that rank */
};

int
store_device_fit(const struct store_device *d, const char *what)
{
	size_t len = strlen(what);

	if (strcmp(d->id, what) == 0)
		return 3;
	if (!d->revoked && strcmp(d->name, what) == 0)
		return 2;
	return !d->revoked && (strncmp(d->id, what, len) == 0 || strncmp(d->name, what, len) == 0) ? 1 : 0;
}

static int
find_one(const struct store_device *d, void *ctx)
{
	struct find *f = ctx;
	int rank = store_device_fit(d, f->what);

	if (rank == 0 || rank < f->rank)
		return 0;
	f->n = rank == f->rank ? f->n + 1 : 1;
	f->rank = rank;
	f->best = *d;
	return 0;
}

int
store_device_find(struct store *store, const char *what, struct store_device *ret_device)
{
	struct find f = { .what = what };
	int r = what[0] != '\0' ? store_devices(store, find_one, &f) : -ENOENT;

	if (r < 0)
		return r;
	if (f.n != 1)
		return f.n == 0 ? -ENOENT : -ENOTUNIQ;
	*ret_device = f.best;
	return 0;
}
