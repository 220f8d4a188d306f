#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "hub/store_int.h"

#define SCHEMA_VERSION	1

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS tokens (id TEXT PRIMARY KEY, hash TEXT NOT NULL, name TEXT NOT NULL,"
    " created INTEGER NOT NULL, expires INTEGER NOT NULL, used INTEGER NOT NULL DEFAULT 0,"
    " revoked INTEGER NOT NULL DEFAULT 0, device TEXT) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS devices (id TEXT PRIMARY KEY, hash TEXT NOT NULL, name TEXT NOT NULL,"
    " version TEXT NOT NULL DEFAULT '', caps TEXT, created INTEGER NOT NULL, last_seen INTEGER NOT NULL,"
    " revoked INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS runs (handle TEXT PRIMARY KEY, device TEXT NOT NULL, state INTEGER NOT NULL,"
    " verify INTEGER NOT NULL, exit_code INTEGER NOT NULL, pid INTEGER NOT NULL, created INTEGER NOT NULL,"
    " started INTEGER NOT NULL, finished INTEGER NOT NULL, timeout_ms INTEGER NOT NULL,"
    " final_offset INTEGER NOT NULL, timed_out INTEGER NOT NULL, gapped INTEGER NOT NULL, digest BLOB,"
    " outcome TEXT NOT NULL, lim TEXT NOT NULL, code TEXT NOT NULL, error TEXT NOT NULL, command TEXT NOT NULL,"
    " work_dir TEXT NOT NULL, term_signal INTEGER NOT NULL, ended INTEGER NOT NULL, spec BLOB) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS runs_open ON runs (device) WHERE state < 3;"
    "CREATE INDEX IF NOT EXISTS runs_ended ON runs (ended) WHERE state >= 3;"
    "CREATE INDEX IF NOT EXISTS runs_created ON runs (created);"
    "CREATE TABLE IF NOT EXISTS gaps (handle TEXT NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL,"
    " reason INTEGER NOT NULL, PRIMARY KEY (handle, lo)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS shells (handle TEXT PRIMARY KEY, code INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS attaches (session TEXT PRIMARY KEY, handle TEXT NOT NULL, device TEXT NOT NULL,"
    " flags INTEGER NOT NULL) WITHOUT ROWID;";

static const char *const sql[ST_COUNT] = {
	[ST_TOKEN_ADD] = "INSERT INTO tokens (id, hash, name, created, expires) VALUES (?1, ?2, ?3, ?4, ?5)",
	[ST_TOKEN_GET] = "SELECT hash, name, expires, used, revoked FROM tokens WHERE id = ?1",
	[ST_TOKEN_CLAIM] = "UPDATE tokens SET used = ?2 WHERE id = ?1 AND used = 0 AND revoked = 0 AND expires > ?2",
	[ST_TOKEN_DEVICE] = "UPDATE tokens SET device = ?2 WHERE id = ?1",
	[ST_TOKEN_REVOKE] = "UPDATE tokens SET revoked = 1 WHERE id = ?1",
	[ST_TOKENS] = "SELECT id, name, created, expires, used, revoked, device FROM tokens ORDER BY created",
	[ST_DEVICE_ADD] = "INSERT INTO devices (id, hash, name, created, last_seen) VALUES (?1, ?2, ?3, ?4, ?4)",
	[ST_DEVICE_GET] = "SELECT id, name, version, hash, created, last_seen, revoked FROM devices WHERE id = ?1",
	[ST_DEVICE_HELLO] = "UPDATE devices SET name = CASE WHEN name = '' THEN ?2 ELSE name END, version = ?3,"
	    " caps = ?4, last_seen = ?5 WHERE id = ?1",
	[ST_DEVICE_SEEN] = "UPDATE devices SET last_seen = ?2 WHERE id = ?1",
	[ST_DEVICE_REVOKE] = "UPDATE devices SET revoked = 1 WHERE id = ?1",
	[ST_DEVICE_CAPS] = "SELECT caps FROM devices WHERE id = ?1",
	[ST_DEVICES] = "SELECT id, name, version, hash, created, last_seen, revoked FROM devices ORDER BY created",
	[ST_RUN_ADD] = "INSERT INTO runs (" STORE_RUN_COLUMNS ", spec) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
	    " ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
	[ST_RUN_UPDATE] = "UPDATE runs SET device = ?2, state = ?3, verify = ?4, exit_code = ?5, pid = ?6, created = ?7,"
	    " started = ?8, finished = ?9, timeout_ms = ?10, final_offset = ?11, timed_out = ?12, gapped = ?13,"
	    " digest = ?14, outcome = ?15, lim = ?16, code = ?17, error = ?18, command = ?19, work_dir = ?20, term_signal = ?21, ended = ?22"
	    " WHERE handle = ?1",
	[ST_RUN_DROP_SPEC] = "UPDATE runs SET spec = NULL WHERE handle = ?1 AND spec IS NOT NULL",
	[ST_RUN_SPEC] = "SELECT spec FROM runs WHERE handle = ?1",
	[ST_RUN_GET] = "SELECT " STORE_RUN_COLUMNS " FROM runs WHERE handle = ?1",
	[ST_RUNS] = "SELECT " STORE_RUN_COLUMNS " FROM runs WHERE (?1 IS NULL OR device = ?1) AND state < ?2"
	    " AND created < ?4"
	    " ORDER BY created DESC LIMIT ?3",
	[ST_RUN_PREFIX] = "SELECT " STORE_RUN_COLUMNS " FROM runs WHERE handle >= ?1 AND handle < ?2 LIMIT 2",
	[ST_RUN_OLD] = "SELECT handle FROM runs WHERE state >= 3 AND ended < ?1 LIMIT 1",
	[ST_RUN_DELETE] = "DELETE FROM runs WHERE handle = ?1",
	[ST_GAP_PUT] = "INSERT INTO gaps (handle, lo, hi, reason) VALUES (?1, ?2, ?3, ?4)"
	    " ON CONFLICT (handle, lo) DO UPDATE SET hi = excluded.hi",
	[ST_GAPS] = "SELECT lo, hi, reason FROM gaps WHERE handle = ?1 ORDER BY lo",
	[ST_GAP_DELETE] = "DELETE FROM gaps WHERE handle = ?1",
	[ST_SHELL_PUT] = "INSERT INTO shells (handle, code) VALUES (?1, ?2) ON CONFLICT (handle) DO UPDATE SET code = excluded.code",
	[ST_SHELL_GET] = "SELECT code FROM shells WHERE handle = ?1",
	[ST_SHELL_DELETE] = "DELETE FROM shells WHERE handle = ?1",
	[ST_ATTACH_ADD] = "INSERT INTO attaches (session, handle, device, flags) VALUES (?1, ?2, ?3, ?4)",
	[ST_ATTACH_DELETE] = "DELETE FROM attaches WHERE session = ?1",
	[ST_ATTACH_OF_RUN_DELETE] = "DELETE FROM attaches WHERE handle = ?1",
	[ST_ATTACHES] = "SELECT session, handle, flags FROM attaches WHERE device = ?1",
};

static void
flushed(struct sync_item *item, int err)
{
	struct store *store = item->ctx;

	if (err == 0 && item->synced > store->durable)
		store->durable = item->synced;
}

static int
check_version(struct store *store)
{
	sqlite3_stmt *st;
	int version = -1;

	if (sqlite3_prepare_v2(store->db, "PRAGMA user_version", -1, &st, NULL) != SQLITE_OK)
		return -EIO;
	if (sqlite3_step(st) == SQLITE_ROW)
		version = sqlite3_column_int(st, 0);
	sqlite3_finalize(st);
	return version == 0 || version == SCHEMA_VERSION ? 0 : -EPROTO;
}

/* An own descriptor of the write-ahead log, so that another thread can flush it; SQLite takes no lock on that file. */
static int
open_wal(struct store *store, const char *path)
{
	char wal[4096];

	if (snprintf(wal, sizeof(wal), "%s-wal", path) >= (int)sizeof(wal))
		return -ENAMETOOLONG;
	store->wal.fd = open(wal, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return store->wal.fd < 0 ? -errno : 0;
}

static int
set_up(struct store *store, const char *path)
{
	static const char pragmas[] = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
	    " PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF;";
	int r;

	if (sqlite3_exec(store->db, pragmas, NULL, NULL, NULL) != SQLITE_OK)
		return -EIO;
	r = check_version(store);
	if (r < 0)
		return r;
	if (sqlite3_exec(store->db, schema, NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_exec(store->db, "PRAGMA user_version = 1", NULL, NULL, NULL) != SQLITE_OK)
		return -EIO;
	for (int i = 0; i < ST_COUNT; i++)
		if (sqlite3_prepare_v3(store->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &store->st[i], NULL) != SQLITE_OK)
			return -EIO;
	return open_wal(store, path);
}

int
store_open(const char *path, struct syncer *syncer, char err[256], struct store **ret_store)
{
	struct store *store = calloc(1, sizeof(*store));
	mode_t old = umask(0077);
	int r = 0;

	if (store == NULL)
		return -ENOMEM;
	store->syncer = syncer;
	store->wal = (struct sync_item){ .fd = -1, .done = flushed, .ctx = store };
	if (sqlite3_open_v2(path, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
	    SQLITE_OPEN_NOFOLLOW, NULL) != SQLITE_OK)
		r = -EIO;
	if (r == 0)
		r = set_up(store, path);
	umask(old);
	if (r < 0) {
		snprintf(err, 256, "%s", r == -EPROTO ? "made by a newer edgehub" :
		    sqlite3_errcode(store->db) == SQLITE_BUSY ? "in use: is another edgehub running here?" :
		    r == -EIO ? sqlite3_errmsg(store->db) : strerror(-r));
		store_free(store);
		return r;
	}
	*ret_store = store;
	return 0;
}

void
store_free(struct store *store)
{
	if (store == NULL)
		return;
	for (int i = 0; i < ST_COUNT; i++)
		sqlite3_finalize(store->st[i]);
	sqlite3_close(store->db);
	if (store->wal.fd >= 0)
		close(store->wal.fd);
	free(store);
}

bool
store_dirty(const struct store *store)
{
	return store->durable < store->wal.mark;
}

uint64_t
store_mark(const struct store *store)
{
	return store->wal.mark;
}

bool
store_dirty_before(const struct store *store, uint64_t mark)
{
	return store->durable < mark;
}

int
store_flush(struct store *store)
{
	if (fdatasync(store->wal.fd) < 0)
		return -errno;
	store->durable = store->wal.mark;
	return 0;
}

int
store_scrub(struct store *store)
{
	if (!store->unscrubbed)
		return 0;
	if (sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) != SQLITE_OK)
		return -EIO;
	store->unscrubbed = false;
	store->durable = store->wal.mark;	/* it flushes both files */
	return 0;
}

sqlite3_stmt *
store_stmt(struct store *store, enum store_stmt which)
{
	sqlite3_stmt *st = store->st[which];

	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return st;
}

sqlite3_stmt *
store_stmt_for(struct store *store, enum store_stmt which, const char *key)
{
	sqlite3_stmt *st = store_stmt(store, which);

	store_bind_text(st, 1, key);
	return st;
}

int
store_write(struct store *store, sqlite3_stmt *st, int *ret_changes)
{
	int rc = sqlite3_step(st);

	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	if (rc == SQLITE_CONSTRAINT)
		return -EEXIST;
	if (rc == SQLITE_FULL)
		return -ENOSPC;
	if (rc == SQLITE_IOERR && sqlite3_system_errno(store->db) == EDQUOT)
		return -EDQUOT;
	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		return -EIO;
	if (ret_changes != NULL)
		*ret_changes = sqlite3_changes(store->db);
	store->wal.mark++;
	syncer_add(store->syncer, &store->wal);
	return 0;
}

int
store_row(sqlite3_stmt *st)
{
	int rc = sqlite3_step(st);

	if (rc == SQLITE_ROW)
		return 1;
	sqlite3_reset(st);
	return rc == SQLITE_DONE ? 0 : -EIO;
}

int
store_one(sqlite3_stmt *st)
{
	int r = store_row(st);

	return r > 0 ? 0 : r < 0 ? r : -ENOENT;
}

void
store_bind_text(sqlite3_stmt *st, int i, const char *s)
{
	sqlite3_bind_text(st, i, s, -1, SQLITE_STATIC);
}

void
store_col_text(sqlite3_stmt *st, int i, char *buf, size_t size)
{
	const char *s = (const char *)sqlite3_column_text(st, i);

	snprintf(buf, size, "%s", s != NULL ? s : "");
}
