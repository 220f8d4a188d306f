/*
 * The file is JSON so that a device can move from the stock agent and back. A damaged bit could still be valid JSON and
 * a wrong secret, so the file also carries "format" and "check", an XXH3 over all fields. A file with neither is one that
 * the stock agent wrote; with either, both must be right.
 */
#include "connectd/cred.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "common/keptcopy.h"
#include "connectd/statefile.h"
#include "proto/hub/json.h"

#define FORMAT	(1 + (int)SCHEMA_RAISED)	/* the schema number */

struct field {
	const char *key;
	size_t offset, size;
};

#define F(name)	{ #name, offsetof(struct cred, name), sizeof(((struct cred *)0)->name) }

static const struct field fields[] = {
	F(server), F(agent_id), F(name), F(credential), F(workdir_root), F(pin), F(enrolled_at),
};
#define NFIELDS	(sizeof(fields) / sizeof(fields[0]))

bool
cred_token_ok(const char *s)
{
	size_t len = strnlen(s, CRED_SIZE);

	if (len < 1 || len >= CRED_SIZE)
		return false;
	for (size_t i = 0; i < len; i++)
		if (s[i] <= 0x20 || s[i] >= 0x7f)
			return false;
	return true;
}

static void
check_text(const struct cred *cred, char buf[17])
{
	char all[sizeof(*cred)];
	size_t n = 0;

	for (size_t i = 0; i < NFIELDS; i++) {
		const char *v = (const char *)cred + fields[i].offset;
		size_t len = strlen(v) + 1;

		memcpy(all + n, v, len);
		n += len;
	}
	snprintf(buf, 17, "%016" PRIx64, (uint64_t)XXH3_64bits(all, n));
	explicit_bzero(all, sizeof(all));
}

static int
take_root(const struct json *root, struct cred *cred)
{
	char check[17];
	const char *given = json_get_str(root, "check");
	const struct json *format = json_get(root, "format");
	int64_t v;

	if (root->type != JSON_OBJECT)
		return -EBADMSG;
	for (size_t i = 0; i < NFIELDS; i++)
		if (!json_opt_str(root, fields[i].key, (char *)cred + fields[i].offset, fields[i].size))
			return -EBADMSG;
	if (!cred_token_ok(cred->credential) || cred->agent_id[0] == '\0')
		return -EBADMSG;
	if (format == NULL && json_get(root, "check") == NULL)
		return 0;
	check_text(cred, check);
	return json_get_int(root, "format", 1, FORMAT, &v) && given != NULL && strcmp(given, check) == 0 ? 0 : -EBADMSG;
}

int
cred_parse(const uint8_t *data, size_t len, struct cred *ret_cred)
{
	struct cred cred = { 0 };
	struct json_doc *doc;
	int r;

	if (len == 0 || json_parse(data, len, &doc) < 0)
		return -EBADMSG;
	r = take_root(json_root(doc), &cred);
	json_doc_free(doc);
	if (r == 0)
		*ret_cred = cred;
	explicit_bzero(&cred, sizeof(cred));
	return r;
}

int
cred_format(const struct cred *cred, char *buf, size_t size, size_t *ret_len)
{
	char check[17];
	struct json_w w;

	check_text(cred, check);
	json_w_init(&w, buf, size);
	json_w_obj(&w, NULL);
	for (size_t i = 0; i < NFIELDS; i++)
		json_w_str(&w, fields[i].key, (const char *)cred + fields[i].offset);
	json_w_int(&w, "format", FORMAT);
	json_w_str(&w, "check", check);
	json_w_end_obj(&w);
	if (json_w_done(&w, ret_len) < 0 || *ret_len + 1 > size)
		return -ENOSPC;
	buf[(*ret_len)++] = '\n';
	return 0;
}

static unsigned
schema_of(const uint8_t *data, size_t len)
{
	struct json_doc *doc;
	int64_t v = 0;

	if (len == 0 || json_parse(data, len, &doc) < 0)
		return 0;
	if (!json_get_int(json_root(doc), "format", 1, INT32_MAX, &v))
		v = 0;
	json_doc_free(doc);
	return (unsigned)v;
}

static const struct schema file = { .name = CRED_FILE, .max = CRED_FILE_MAX, .now = (unsigned)FORMAT, .of = schema_of };

static int
take(const uint8_t *data, size_t len, void *ctx)
{
	return cred_parse(data, len, ctx);
}

void
cred_wipe(struct cred_store *store)
{
	explicit_bzero(&store->cred, sizeof(store->cred));
	store->state = CRED_NONE;
}

static void
identify(int dirfd, uint64_t *ret_ino, int64_t *ret_mtime)
{
	struct stat st = { 0 };

	if (fstatat(dirfd, CRED_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0)
		memset(&st, 0, sizeof(st));
	*ret_ino = st.st_ino;
	*ret_mtime = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

bool
cred_changed(const struct cred_store *store)
{
	uint64_t ino;
	int64_t mtime;

	identify(store->dirfd, &ino, &mtime);
	return ino != store->ino || mtime != store->mtime_ns;
}

static void
note(struct cred_store *store, const char *what)
{
	snprintf(store->note, sizeof(store->note), "%s", what);
}

static void
load(struct cred_store *store, int dirfd)
{
	mode_t mode;
	int err;

	cred_wipe(store);
	store->dirfd = dirfd;
	store->note[0] = '\0';
	(void)keptcopy_restore(dirfd, &file);	/* what then is there says whether it could be done */
	switch (statefile_load(dirfd, CRED_FILE, CRED_FILE_MAX, take, &store->cred, &mode, &err)) {
	case STATEFILE_NONE:
		store->state = CRED_NONE;
		return;
	case STATEFILE_RECOVERED:
		note(store, CRED_FILE " was missing or damaged; the complete " CRED_FILE ".tmp beside it was taken");
		break;
	case STATEFILE_GOOD:
		if ((mode & 077) != 0)
			snprintf(store->note, sizeof(store->note), CRED_FILE " has mode %04o; others can read the "
			    "credential: chmod 600 it", (unsigned)mode);
		break;
	case STATEFILE_DAMAGED:
		store->state = CRED_DAMAGED;
		note(store, CRED_FILE " is damaged and was kept aside as " CRED_FILE ".bad-N; enroll again: edgectl enroll --token-file FILE");
		return;
	case STATEFILE_UNREADABLE:
		store->state = CRED_UNREADABLE;
		snprintf(store->note, sizeof(store->note), "cannot read " CRED_FILE ": %s; repair its owner and mode, or "
		    "enroll again: edgectl enroll --replace", strerror(-err));
		return;
	}
	store->state = CRED_GOOD;
}

void
cred_load(struct cred_store *store, int dirfd)
{
	load(store, dirfd);
	identify(dirfd, &store->ino, &store->mtime_ns);
}

int
cred_save(struct cred_store *store, const struct cred *cred)
{
	/* Every string could be all escapes, and the writer wants that room before it starts. */
	char buf[6 * sizeof(struct cred) + 512];
	size_t len;
	int r = cred_format(cred, buf, sizeof(buf), &len);

	if (r == 0)
		r = keptcopy_replace(store->dirfd, &file, buf, len, 0600);
	explicit_bzero(buf, sizeof(buf));
	if (r < 0)
		return r;
	identify(store->dirfd, &store->ino, &store->mtime_ns);
	store->cred = *cred;
	store->state = CRED_GOOD;
	store->note[0] = '\0';
	return 0;
}
