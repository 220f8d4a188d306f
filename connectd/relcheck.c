#include "connectd/relcheck.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "proto/release/signify.h"

#define KEYS_MAX	32

int
relcheck_init(struct relcheck *rc, const char *keys)
{
	*rc = (struct relcheck){ .keys = keys, .md = EVP_MD_CTX_new(), .whole = EVP_MD_CTX_new() };
	return rc->md == NULL || rc->whole == NULL || EVP_DigestInit_ex(rc->whole, EVP_sha256(), NULL) != 1 ? -ENOMEM : 0;
}

void
relcheck_done(struct relcheck *rc)
{
	EVP_MD_CTX_free(rc->md);
	EVP_MD_CTX_free(rc->whole);
	rc->md = rc->whole = NULL;
}

static bool
fits(const struct signify_key *key, const struct signify_sig *sig, const struct release_head *head)
{
	EVP_PKEY *pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key->key, sizeof(key->key));
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool good = pkey != NULL && ctx != NULL && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, pkey) == 1 &&
	    EVP_DigestVerify(ctx, sig->sig, sizeof(sig->sig), (const uint8_t *)head->manifest, head->manifest_len) == 1;

	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(pkey);
	return good;
}

static int
read_key(int dir, const char *name, struct signify_key *ret_key)
{
	_cleanup_free_ uint8_t *data = NULL;
	const char *dot = strrchr(name, '.');
	size_t len;

	if (dot == NULL || strcmp(dot, ".pub") != 0 || fd_read_file(dir, name, SIGNIFY_FILE_MAX, &data, &len) < 0)
		return -ENOENT;
	return signify_key_parse(data, len, ret_key);
}

/* Any key that is there counts, so that two are valid while one replaces the other. */
static int
verify(struct relcheck *rc, const struct release_head *head)
{
	struct signify_sig sig;
	struct signify_key key;
	unsigned keys = 0;
	bool known = false, good = false;
	DIR *dir = opendir(rc->keys);

	if (dir == NULL)
		return refuse(&rc->why, "no-key", "%.100s: %s", rc->keys, strerror(errno));
	if (signify_sig_parse(head->signature, head->signature_len, &sig) < 0) {
		closedir(dir);
		return refuse(&rc->why, "bad-signature", "its signature is not one of signify");
	}
	for (struct dirent *d; !good && keys < KEYS_MAX && (d = readdir(dir)) != NULL; ) {
		if (read_key(dirfd(dir), d->d_name, &key) < 0)
			continue;
		keys++;
		if (memcmp(key.keynum, sig.keynum, sizeof(key.keynum)) != 0)
			continue;
		known = true;
		good = fits(&key, &sig, head);
	}
	closedir(dir);
	if (good)
		return 0;
	return keys == 0 ? refuse(&rc->why, "no-key", "there is no release key in %.100s", rc->keys) :
	    refuse(&rc->why, "bad-signature", known ? "the signature does not fit" : "it is not signed by a key of this device");
}

static int
begin_file(struct relcheck *rc)
{
	rc->left = rc->manifest.files[rc->file].size;
	return EVP_DigestInit_ex(rc->md, EVP_sha256(), NULL) == 1 ? 0 : refuse(&rc->why, "io", "out of memory");
}

static int
end_file(struct relcheck *rc)
{
	const struct release_file *f = &rc->manifest.files[rc->file];
	uint8_t hash[EVP_MAX_MD_SIZE];

	if (EVP_DigestFinal_ex(rc->md, hash, NULL) != 1 || memcmp(hash, f->sha256, RELEASE_HASH) != 0)
		return refuse(&rc->why, "bad-file", "%s is not what the manifest says", f->name);
	rc->file++;
	return rc->file < rc->manifest.nfiles ? begin_file(rc) : 0;
}

static int
feed_files(struct relcheck *rc, const uint8_t *data, size_t len)
{
	int r = 0;

	while (r == 0 && len > 0) {
		size_t n = len < rc->left ? len : (size_t)rc->left;

		if (rc->file == rc->manifest.nfiles)
			return refuse(&rc->why, "bad-size", "there are bytes behind its end");
		if (EVP_DigestUpdate(rc->md, data, n) != 1)
			return refuse(&rc->why, "io", "out of memory");
		data += n;
		len -= n;
		rc->left -= n;
		if (rc->left == 0)
			r = end_file(rc);
	}
	return r;
}

/* A signature has two short lines; what is no release shows early and is not waited for. */
static bool
may_be_signature(const struct relcheck *rc)
{
	static const char begin[] = "untrusted comment: ";
	size_t n = rc->have < sizeof(begin) - 1 ? rc->have : sizeof(begin) - 1;

	return memcmp(rc->head, begin, n) == 0;
}

/* Once the manifest is complete: 1. 0 = more is needed. */
static int
look_at_head(struct relcheck *rc)
{
	struct release_head head;
	size_t len;
	int r;

	if (!may_be_signature(rc))
		return refuse(&rc->why, "bad-release", "it is not a release file");
	if (release_split(rc->head, rc->have, &head) < 0)
		return rc->have < sizeof(rc->head) ? 0 : refuse(&rc->why, "bad-release", "it is not a release file");
	r = verify(rc, &head);
	if (r < 0)
		return r;
	if (manifest_parse(head.manifest, head.manifest_len, &rc->manifest) < 0)
		return refuse(&rc->why, "bad-manifest", "it is signed, but its manifest is not one we know");
	len = head.signature_len + head.manifest_len;
	rc->size = len + rc->manifest.total;
	rc->known = true;
	r = begin_file(rc);
	if (r == 0)
		r = feed_files(rc, rc->head + len, rc->have - len);
	return r < 0 ? r : 1;
}

int
relcheck_feed(struct relcheck *rc, const uint8_t *data, size_t len)
{
	int r = 0;

	rc->at += len;
	if (EVP_DigestUpdate(rc->whole, data, len) != 1)
		return refuse(&rc->why, "io", "out of memory");
	/* Piece by piece, so that a head is found before bytes of files look like another end of it. */
	while (!rc->known && len > 0) {
		size_t room = sizeof(rc->head) - rc->have, n = len < room ? len : room;
		const uint8_t *nl = memchr(data, '\n', n);

		n = nl != NULL ? (size_t)(nl - data) + 1 : n;
		memcpy(rc->head + rc->have, data, n);
		rc->have += n;
		data += n;
		len -= n;
		r = look_at_head(rc);
		if (r < 0)
			return r;
	}
	return rc->known ? feed_files(rc, data, len) : 0;
}

int
relcheck_is(struct relcheck *rc, uint64_t size, const uint8_t sha256[RELEASE_HASH])
{
	uint8_t hash[EVP_MAX_MD_SIZE];

	if (rc->at != size || EVP_DigestFinal_ex(rc->whole, hash, NULL) != 1 || memcmp(hash, sha256, RELEASE_HASH) != 0)
		return refuse(&rc->why, "bad-file", "it is not what was announced");
	return 0;
}

int
relcheck_end(struct relcheck *rc)
{
	if (!rc->known)
		return refuse(&rc->why, "bad-release", "it is not a release file");
	return rc->at == rc->size ? 0 : refuse(&rc->why, "bad-size", "it ends too early");
}
