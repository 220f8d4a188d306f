/*
 * The hub's database: devices, enrollment tokens, runs, gaps. SQLite in WAL mode.
 *
 * A write is in the page cache when the call returns, so it survives the death of the hub. It survives a power cut
 * after the flush that store_sync_item() stands for: what must not be taken back (a spent token, a device's credential,
 * a final status the device may forget) is told to the device only after that.
 */
#ifndef EDGEWARD_HUB_STORE_H
#define EDGEWARD_HUB_STORE_H

#include "hub/logfile.h"
#include "hub/runinfo.h"
#include "hub/syncer.h"
#include "hub/token.h"

struct store;

struct store_device {
	char id[DEVICE_ID_SIZE];
	char name[DEVICE_NAME_SIZE];
	char version[64];		/* agent_version of the last hello */
	uint8_t hash[TOKEN_HASH_LEN];
	int64_t created, last_seen;	/* ns since 1970 */
	bool revoked;
};

/* Opens or makes PATH. On failure *ret_err (256 bytes) says why. -errno. */
int store_open(const char *path, struct syncer *syncer, char err[256], struct store **ret_store);
void store_free(struct store *store);

/* True when something was written that is not known to be on disk; a flush is then under way or queued. */
bool store_dirty(const struct store *store);
/* How many writes there were; and whether one of the first `mark` is not on disk yet. */
uint64_t store_mark(const struct store *store);
bool store_dirty_before(const struct store *store, uint64_t mark);
/* Flushes now, in the caller's time: for what is rare and must come before something else. */
int store_flush(struct store *store);
/*
 * What was dropped (environments may be secret) leaves the write-ahead log, too: copies it into the database, whose freed
 * pages are overwritten, and empties it. Nothing to do when nothing was dropped. Not at every drop: it flushes two files.
 */
int store_scrub(struct store *store);

/* ---- enrollment ---- */

int store_token_add(struct store *store, const struct token *token, const char *name, int64_t now, int64_t expires);

/*
 * Redeems a token: exists, not revoked, not used, not expired, secret equal; then claims it in one step, so that of
 * many only one wins. name (DEVICE_NAME_SIZE) gets the label it was made with. -EKEYREJECTED for every refusal.
 */
int store_token_redeem(struct store *store, const struct token *token, int64_t now, char *name);

/* Records which device a token has enrolled. */
int store_token_device(struct store *store, const char *id, const char *device);
/* Revokes a token and, if it was used, the device it enrolled: device (DEVICE_ID_SIZE) gets its id or "". -ENOENT. */
int store_token_revoke(struct store *store, const char *id, char *device);

struct store_token {
	char id[TOKEN_ID_SIZE];
	char name[DEVICE_NAME_SIZE];
	char device[DEVICE_ID_SIZE];
	int64_t created, expires, used;
	bool revoked;
};
int store_tokens(struct store *store, int (*cb)(const struct store_token *token, void *ctx), void *ctx);

/* ---- devices ---- */

int store_device_add(struct store *store, const struct store_device *device);
int store_device_get(struct store *store, const char *id, struct store_device *ret_device);	/* -ENOENT */
int store_device_hello(struct store *store, const char *id, const char *name, const char *version, const char *caps,
    size_t caps_len, int64_t now);
int store_device_seen(struct store *store, const char *id, int64_t now);
int store_device_revoke(struct store *store, const char *id);
/* The device's capabilities as JSON, malloc'd, or NULL. */
char *store_device_caps(struct store *store, const char *id);
/* Calls cb for each device; a callback that returns != 0 ends it, and that is returned. */
int store_devices(struct store *store, int (*cb)(const struct store_device *device, void *ctx), void *ctx);

/*
 * Finds one device by id, name or unique beginning of either; exact matches win. -ENOENT, -ENOTUNIQ. Revoked devices
 * are found by their id only.
 */
int store_device_find(struct store *store, const char *what, struct store_device *ret_device);
/* How it fits: 3 by its id, 2 by its name, 1 by the beginning of one, 0 not at all. The highest wins. */
int store_device_fit(const struct store_device *device, const char *what);

/* ---- runs ---- */

/* spec: the start frame's payload as JSON, kept until the device has answered. -EEXIST. */
int store_run_add(struct store *store, const struct run_info *info, const char *spec, size_t spec_len);
int store_run_update(struct store *store, const struct run_info *info);
/* The device has answered: forgets the spec, which may hold secrets. */
int store_run_drop_spec(struct store *store, const char *handle);
char *store_run_spec(struct store *store, const char *handle, size_t *ret_len);	/* malloc'd or NULL */
int store_run_get(struct store *store, const char *handle, struct run_info *ret_info);	/* -ENOENT */
/* Finds one by handle or unique beginning. -ENOENT, -ENOTUNIQ. */
int store_run_find(struct store *store, const char *what, struct run_info *ret_info);
/* Newest first; device NULL = all; open: only those not final; before: made earlier than that, 0 = no limit. */
int store_runs(struct store *store, const char *device, bool open, int64_t before, unsigned max,
    int (*cb)(const struct run_info *info, void *ctx), void *ctx);
/* One that ended before then. -ENOENT. */
int store_run_old(struct store *store, int64_t before, char handle[HANDLE_SIZE]);
int store_run_delete(struct store *store, const char *handle);

/* Adds a gap or makes the one that begins there longer. */
int store_gap_put(struct store *store, const char *handle, const struct logfile_gap *gap);
/* In order; malloc'd. */
int store_gaps(struct store *store, const char *handle, struct logfile_gap **ret_gaps, size_t *ret_n);

/* ---- what is to end with somebody here (store_shell.c) ---- */

/* The run of a shell; its code, -1 = none is known. */
int store_shell_put(struct store *store, const char *handle, int32_t code);
int store_shell_get(struct store *store, const char *handle, int32_t *ret_code);	/* -ENOENT */

/* An attach session that a device may hold. */
struct store_attach {
	char session[TOKEN_ID_SIZE];
	char handle[HANDLE_SIZE];
	uint32_t flags;
};

int store_attach_add(struct store *store, const char *session, const char *handle, const char *device, uint32_t flags);
int store_attach_delete(struct store *store, const char *session);
/* Those of a device, at most max. */
int store_attaches(struct store *store, const char *device, struct store_attach *ret_list, unsigned max, unsigned *ret_n);

/* The run has ended: nothing of it is to be ended any more. */
int store_shell_over(struct store *store, const char *handle);

#endif
