/* Runs and their gaps. */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "hub/store_int.h"

/* The columns of a run in the order of STORE_RUN_COLUMNS, for writing and reading alike. */
enum kind { TEXT, INT, INT64, BOOL, DIGEST };

#define COLUMN(kind, member)	{ kind, offsetof(struct run_info, member), sizeof(((struct run_info *)0)->member) }

static const struct column {
	enum kind kind;
	size_t offset, size;
} columns[] = {
	COLUMN(TEXT, handle), COLUMN(TEXT, device), COLUMN(INT, state), COLUMN(INT, verify), COLUMN(INT, exit_code),
	COLUMN(INT, pid), COLUMN(INT64, created), COLUMN(INT64, started), COLUMN(INT64, finished), COLUMN(INT64, timeout_ms),
	COLUMN(INT64, final_offset), COLUMN(BOOL, timed_out), COLUMN(BOOL, gapped), COLUMN(DIGEST, digest),
	COLUMN(TEXT, outcome), COLUMN(TEXT, limit), COLUMN(TEXT, code), COLUMN(TEXT, error), COLUMN(TEXT, command),
	COLUMN(TEXT, work_dir), COLUMN(INT, term_signal), COLUMN(INT64, ended),
};

#define NCOLUMNS	((int)(sizeof(columns) / sizeof(columns[0])))

static_assert(sizeof(enum run_state) == sizeof(int32_t) && sizeof(enum run_verify) == sizeof(int32_t), "kind INT");

static void
bind_run(sqlite3_stmt *st, const struct run_info *info)
{
	for (int i = 0; i < NCOLUMNS; i++) {
		const void *v = (const char *)info + columns[i].offset;
		int32_t n;
		int64_t wide;

		switch (columns[i].kind) {
		case TEXT:
			store_bind_text(st, i + 1, v);
			break;
		case INT:
			memcpy(&n, v, sizeof(n));
			sqlite3_bind_int(st, i + 1, n);
			break;
		case INT64:
			memcpy(&wide, v, sizeof(wide));
			sqlite3_bind_int64(st, i + 1, wide);
			break;
		case BOOL:
			sqlite3_bind_int(st, i + 1, *(const bool *)v);
			break;
		case DIGEST:
			if (info->has_digest)
				sqlite3_bind_blob(st, i + 1, v, (int)columns[i].size, SQLITE_STATIC);
			break;
		}
	}
}

void
store_col_run(sqlite3_stmt *st, struct run_info *info)
{
	*info = (struct run_info){ 0 };
	for (int i = 0; i < NCOLUMNS; i++) {
		void *v = (char *)info + columns[i].offset;
		int32_t n = sqlite3_column_int(st, i);
		int64_t wide = sqlite3_column_int64(st, i);

		switch (columns[i].kind) {
		case TEXT:
			store_col_text(st, i, v, columns[i].size);
			break;
		case INT:
			memcpy(v, &n, sizeof(n));
			break;
		case INT64:
			memcpy(v, &wide, sizeof(wide));
			break;
		case BOOL:
			*(bool *)v = n != 0;
			break;
		case DIGEST:
			info->has_digest = sqlite3_column_bytes(st, i) == (int)columns[i].size;
			if (info->has_digest)
				memcpy(v, sqlite3_column_blob(st, i), columns[i].size);
			break;
		}
	}
}

int
store_run_add(struct store *store, const struct run_info *info, const char *spec, size_t spec_len)
{
	sqlite3_stmt *st = store_stmt(store, ST_RUN_ADD);

	bind_run(st, info);
	sqlite3_bind_blob64(st, 23, spec, spec_len, SQLITE_STATIC);
	return store_write(store, st, NULL);
}

int
store_run_update(struct store *store, const struct run_info *info)
{
	sqlite3_stmt *st = store_stmt(store, ST_RUN_UPDATE);

	bind_run(st, info);
	return store_write(store, st, NULL);
}

int
store_run_drop_spec(struct store *store, const char *handle)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_RUN_DROP_SPEC, handle);
	int changes = 0, r;

	r = store_write(store, st, &changes);
	store->unscrubbed = store->unscrubbed || changes > 0;
	return r;
}

char *
store_run_spec(struct store *store, const char *handle, size_t *ret_len)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_RUN_SPEC, handle);
	char *spec = NULL;

	if (store_row(st) == 1 && sqlite3_column_bytes(st, 0) > 0) {
		size_t len = (size_t)sqlite3_column_bytes(st, 0);

		spec = malloc(len + 1);
		if (spec != NULL) {
			memcpy(spec, sqlite3_column_blob(st, 0), len);
			spec[len] = '\0';
			*ret_len = len;
		}
	}
	sqlite3_reset(st);
	return spec;
}

int
store_run_get(struct store *store, const char *handle, struct run_info *ret_info)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_RUN_GET, handle);
	int r;

	r = store_one(st);
	if (r < 0)
		return r;
	store_col_run(st, ret_info);
	sqlite3_reset(st);
	return 0;
}

int
store_run_find(struct store *store, const char *what, struct run_info *ret_info)
{
	sqlite3_stmt *st;
	char end[HANDLE_SIZE + 1];
	struct run_info found;
	int r = store_run_get(store, what, ret_info), n = 0;

	if (r != -ENOENT)
		return r;
	if (!handle_ok(what))
		return -ENOENT;
	/* '~' sorts behind every character of a handle. */
	memcpy(end, what, strlen(what));
	memcpy(end + strlen(what), "~", 2);
	st = store_stmt(store, ST_RUN_PREFIX);
	store_bind_text(st, 1, what);
	store_bind_text(st, 2, end);
	while ((r = store_row(st)) > 0 && n++ == 0)
		store_col_run(st, &found);
	sqlite3_reset(st);
	if (r < 0)
		return r;
	if (n != 1)
		return n == 0 ? -ENOENT : -ENOTUNIQ;
	*ret_info = found;
	return 0;
}

int
store_runs(struct store *store, const char *device, bool open, int64_t before, unsigned max,
    int (*cb)(const struct run_info *info, void *ctx), void *ctx)
{
	sqlite3_stmt *st = store_stmt(store, ST_RUNS);
	struct run_info info;
	int r;

	if (device != NULL)
		store_bind_text(st, 1, device);
	sqlite3_bind_int(st, 2, open ? (int)RUN_EXITED : 100);
	sqlite3_bind_int64(st, 3, max);
	sqlite3_bind_int64(st, 4, before > 0 ? before : INT64_MAX);
	while ((r = store_row(st)) > 0) {
		store_col_run(st, &info);
		r = cb(&info, ctx);
		if (r != 0) {
			sqlite3_reset(st);
			return r;
		}
	}
	return r;
}

int
store_run_old(struct store *store, int64_t before, char handle[HANDLE_SIZE])
{
	sqlite3_stmt *st = store_stmt(store, ST_RUN_OLD);
	int r;

	sqlite3_bind_int64(st, 1, before);
	r = store_one(st);
	if (r < 0)
		return r;
	store_col_text(st, 0, handle, HANDLE_SIZE);
	sqlite3_reset(st);
	return 0;
}

int
store_run_delete(struct store *store, const char *handle)
{
	int r = store_write(store, store_stmt_for(store, ST_RUN_DELETE, handle), NULL);

	return r < 0 ? r : store_write(store, store_stmt_for(store, ST_GAP_DELETE, handle), NULL);
}

int
store_gap_put(struct store *store, const char *handle, const struct logfile_gap *gap)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_GAP_PUT, handle);

	sqlite3_bind_int64(st, 2, (int64_t)gap->from);
	sqlite3_bind_int64(st, 3, (int64_t)gap->to);
	sqlite3_bind_int(st, 4, gap->reason);
	return store_write(store, st, NULL);
}

int
store_gaps(struct store *store, const char *handle, struct logfile_gap **ret_gaps, size_t *ret_n)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_GAPS, handle);
	struct logfile_gap *gaps = NULL;
	size_t n = 0;
	int r;

	while ((r = store_row(st)) > 0 && n < LOGFILE_GAPS_MAX) {
		struct logfile_gap *more = reallocarray(gaps, n + 1, sizeof(*gaps));

		if (more == NULL) {
			r = -ENOMEM;
			break;
		}
		gaps = more;
		gaps[n++] = (struct logfile_gap){ .from = (uint64_t)sqlite3_column_int64(st, 0),
			.to = (uint64_t)sqlite3_column_int64(st, 1), .reason = (uint8_t)sqlite3_column_int(st, 2) };
	}
	sqlite3_reset(st);
	if (r < 0) {
		free(gaps);
		return r;
	}
	*ret_gaps = gaps;
	*ret_n = n;
	return 0;
}
