/* Shared by store*.c alone: the prepared statements. */
#ifndef EDGEWARD_HUB_STORE_INT_H
#define EDGEWARD_HUB_STORE_INT_H

#include <sqlite3.h>

#include "hub/store.h"

enum store_stmt {
	ST_TOKEN_ADD, ST_TOKEN_GET, ST_TOKEN_CLAIM, ST_TOKEN_DEVICE, ST_TOKEN_REVOKE, ST_TOKENS,
	ST_DEVICE_ADD, ST_DEVICE_GET, ST_DEVICE_HELLO, ST_DEVICE_SEEN, ST_DEVICE_REVOKE, ST_DEVICE_CAPS, ST_DEVICES,
	ST_RUN_ADD, ST_RUN_UPDATE, ST_RUN_DROP_SPEC, ST_RUN_SPEC, ST_RUN_GET, ST_RUNS, ST_RUN_PREFIX, ST_RUN_DELETE, ST_RUN_OLD,
	ST_GAP_PUT, ST_GAPS, ST_GAP_DELETE,
	ST_SHELL_PUT, ST_SHELL_GET, ST_SHELL_DELETE, ST_ATTACH_ADD, ST_ATTACH_DELETE, ST_ATTACH_OF_RUN_DELETE, ST_ATTACHES,
	ST_COUNT,
};

struct store {
	sqlite3 *db;
	sqlite3_stmt *st[ST_COUNT];
	struct syncer *syncer;
	struct sync_item wal;		/* mark and synced count writes */
	uint64_t durable;		/* writes known to be on disk */
	bool unscrubbed;		/* a start was dropped whose pages are still in the write-ahead log */
};

/* A statement ready for binding. */
sqlite3_stmt *store_stmt(struct store *store, enum store_stmt which);
/* The same with its first parameter bound: an id or handle, which must live until the statement is reset. */
sqlite3_stmt *store_stmt_for(struct store *store, enum store_stmt which, const char *key);
/* Runs a statement that writes: 0, -EEXIST (constraint), -EIO; *ret_changes may be NULL. Marks the store dirty. */
int store_write(struct store *store, sqlite3_stmt *st, int *ret_changes);
/* One row of a statement that reads: 1 = a row, 0 = no more, -EIO. */
int store_row(sqlite3_stmt *st);
/* The one row there may be: 0 = it is there (reset the statement when it has been read), -ENOENT, -EIO. */
int store_one(sqlite3_stmt *st);
void store_bind_text(sqlite3_stmt *st, int i, const char *s);
/* Copies a column, cut to size. */
void store_col_text(sqlite3_stmt *st, int i, char *buf, size_t size);
/* The rows of `where` as run_info, columns in the order of STORE_RUN_COLUMNS. */
void store_col_run(sqlite3_stmt *st, struct run_info *ret_info);

#define STORE_RUN_COLUMNS "handle, device, state, verify, exit_code, pid, created, started, finished, timeout_ms," \
	" final_offset, timed_out, gapped, digest, outcome, lim, code, error, command, work_dir, term_signal, ended"

#endif
