/* What is to end on a device with somebody here: attach sessions with their operators, the runs of shells with these. */
#include <errno.h>
#include <string.h>

#include "hub/store_int.h"

int
store_shell_put(struct store *store, const char *handle, int32_t code)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_SHELL_PUT, handle);

	sqlite3_bind_int(st, 2, code);
	return store_write(store, st, NULL);
}

int
store_shell_get(struct store *store, const char *handle, int32_t *ret_code)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_SHELL_GET, handle);
	int r = store_one(st);

	if (r < 0)
		return r;
	*ret_code = sqlite3_column_int(st, 0);
	sqlite3_reset(st);
	return 0;
}

int
store_attach_add(struct store *store, const char *session, const char *handle, const char *device, uint32_t flags)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_ATTACH_ADD, session);

	store_bind_text(st, 2, handle);
	store_bind_text(st, 3, device);
	sqlite3_bind_int64(st, 4, flags);
	return store_write(store, st, NULL);
}

int
store_attach_delete(struct store *store, const char *session)
{
	return store_write(store, store_stmt_for(store, ST_ATTACH_DELETE, session), NULL);
}

int
store_attaches(struct store *store, const char *device, struct store_attach *ret_list, unsigned max, unsigned *ret_n)
{
	sqlite3_stmt *st = store_stmt_for(store, ST_ATTACHES, device);
	int r = 0;

	*ret_n = 0;
	while (*ret_n < max && (r = store_row(st)) > 0) {
		struct store_attach *a = &ret_list[(*ret_n)++];

		store_col_text(st, 0, a->session, sizeof(a->session));
		store_col_text(st, 1, a->handle, sizeof(a->handle));
		a->flags = (uint32_t)sqlite3_column_int64(st, 2);
	}
	sqlite3_reset(st);
	return r < 0 ? r : 0;
}

int
store_shell_over(struct store *store, const char *handle)
{
	int r = store_write(store, store_stmt_for(store, ST_SHELL_DELETE, handle), NULL);

	return r < 0 ? r : store_write(store, store_stmt_for(store, ST_ATTACH_OF_RUN_DELETE, handle), NULL);
}
