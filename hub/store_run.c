/* Runs and their gaps. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hub/store_int.h"

static void
bind_run(sqlite3_stmt *st, const struct run_info *info)
{
	store_bind_text(st, 1, info->handle);
	store_bind_text(st, 2, info->device);
	sqlite3_bind_int(st, 3, (int)info->state);
	sqlite3_bind_int(st, 4, (int)info->verify);
	sqlite3_bind_int(st, 5, info->exit_code);
	sqlite3_bind_int(st, 6, info->pid);
	sqlite3_bind_int64(st, 7, info->created);
	sqlite3_bind_int64(st, 8, info->started);
	sqlite3_bind_int64(st, 9, info->finished);
	sqlite3_bind_int64(st, 10, info->timeout_ms);
	sqlite3_bind_int64(st, 11, info->final_offset);
	sqlite3_bind_int(st, 12, info->timed_out);
	sqlite3_bind_int(st, 13, info->gapped);
	if (info->has_digest)
		sqlite3_bind_blob(st, 14, info->digest, sizeof(info->digest), SQLITE_STATIC);
	store_bind_text(st, 15, info->outcome);
	store_bind_text(st, 16, info->limit);
	store_bind_text(st, 17, info->code);
	store_bind_text(st, 18, info->error);
	store_bind_text(st, 19, info->command);
	store_bind_text(st, 20, info->work_dir);
	sqlite3_bind_int(st, 21, info->term_signal);
	sqlite3_bind_int64(st, 22, info->ended);
}

void
store_col_run(sqlite3_stmt *st, struct run_info *info)
{
	*info = (struct run_info){ 0 };
	store_col_text(st, 0, info->handle, sizeof(info->handle));
	store_col_text(st, 1, info->device, sizeof(info->device));
	info->state = (enum run_state)sqlite3_column_int(st, 2);
	info->verify = (enum run_verify)sqlite3_column_int(st, 3);
	info->exit_code = sqlite3_column_int(st, 4);
	info->pid = sqlite3_column_int(st, 5);
	info->created = sqlite3_column_int64(st, 6);
	info->started = sqlite3_column_int64(st, 7);
	info->finished = sqlite3_column_int64(st, 8);
	info->timeout_ms = sqlite3_column_int64(st, 9);
	info->final_offset = sqlite3_column_int64(st, 10);
	info->timed_out = sqlite3_column_int(st, 11) != 0;
	info->gapped = sqlite3_column_int(st, 12) != 0;
	info->has_digest = sqlite3_column_bytes(st, 13) == (int)sizeof(info->digest);
	if (info->has_digest)
		memcpy(info->digest, sqlite3_column_blob(st, 13), sizeof(info->digest));
	store_col_text(st, 14, info->outcome, sizeof(info->outcome));
	store_col_text(st, 15, info->limit, sizeof(info->limit));
	store_col_text(st, 16, info->code, sizeof(info->code));
	store_col_text(st, 17, info->error, sizeof(info->error));
	store_col_text(st, 18, info->command, sizeof(info->command));
	store_col_text(st, 19, info->work_dir, sizeof(info->work_dir));
	info->term_signal = sqlite3_column_int(st, 20);
	info->ended = sqlite3_column_int64(st, 21);
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

static int
write_handle(struct store *store, enum store_stmt which, const char *handle)
{
	sqlite3_stmt *st = store_stmt(store, which);

	store_bind_text(st, 1, handle);
	return store_write(store, st, NULL);
}

int
store_run_drop_spec(struct store *store, const char *handle)
{
	sqlite3_stmt *st = store_stmt(store, ST_RUN_DROP_SPEC);
	int changes = 0, r;

	store_bind_text(st, 1, handle);
	r = store_write(store, st, &changes);
	store->unscrubbed = store->unscrubbed || changes > 0;
	return r;
}

char *
store_run_spec(struct store *store, const char *handle, size_t *ret_len)
{
	sqlite3_stmt *st = store_stmt(store, ST_RUN_SPEC);
	char *spec = NULL;

	store_bind_text(st, 1, handle);
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
	sqlite3_stmt *st = store_stmt(store, ST_RUN_GET);
	int r;

	store_bind_text(st, 1, handle);
	r = store_row(st);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
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
	r = store_row(st);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	store_col_text(st, 0, handle, HANDLE_SIZE);
	sqlite3_reset(st);
	return 0;
}

int
store_run_delete(struct store *store, const char *handle)
{
	int r = write_handle(store, ST_RUN_DELETE, handle);

	return r < 0 ? r : write_handle(store, ST_GAP_DELETE, handle);
}

int
store_gap_put(struct store *store, const char *handle, const struct logfile_gap *gap)
{
	sqlite3_stmt *st = store_stmt(store, ST_GAP_PUT);

	store_bind_text(st, 1, handle);
	sqlite3_bind_int64(st, 2, (int64_t)gap->from);
	sqlite3_bind_int64(st, 3, (int64_t)gap->to);
	sqlite3_bind_int(st, 4, gap->reason);
	return store_write(store, st, NULL);
}

int
store_gaps(struct store *store, const char *handle, struct logfile_gap **ret_gaps, size_t *ret_n)
{
	sqlite3_stmt *st = store_stmt(store, ST_GAPS);
	struct logfile_gap *gaps = NULL;
	size_t n = 0;
	int r;

	store_bind_text(st, 1, handle);
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
