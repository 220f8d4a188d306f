/*
 * Is this release signed by a key of this device, and meant for it?
 *
 * Who calls: main.c. What is trusted: the public keys in /etc/edgeward/keys and upgrade.conf, as long as root alone can write them; nothing
 * of the release before its signature was verified. On error: the reason is kept and nothing is touched.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/monotime.h"
#include "privupgrade/privupgrade.h"
#include "proto/release/machine.h"
#include "proto/release/signify.h"
#include "version.h"

#define KEYS_MAX	32

/* Root's, and writable by nobody else. */
static bool
is_roots(int fd, mode_t type)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type && (st.st_uid == 0 || st.st_uid == geteuid()) && (st.st_mode & 022) == 0;
}

static bool
verify_with(const struct signify_key *key, const struct signify_sig *sig, const char *data, size_t len)
{
	EVP_PKEY *pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key->key, sizeof(key->key));
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool good = pkey != NULL && ctx != NULL && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, pkey) == 1 &&
	    EVP_DigestVerify(ctx, sig->sig, sizeof(sig->sig), (const uint8_t *)data, len) == 1;

	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(pkey);
	return good;
}

static int
read_key(int dir, const char *name, struct signify_key *ret_key)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char buf[SIGNIFY_FILE_MAX];
	ssize_t n = fd >= 0 && is_roots(fd, S_IFREG) ? pread(fd, buf, sizeof(buf), 0) : -1;

	return n < 0 ? -EPERM : signify_key_parse(buf, (size_t)n, ret_key);
}

/* Any key that is there counts, so that two are valid while one replaces the other. */
static int
verify_signature(struct updater *u, const struct release_head *head)
{
	int fd = open(u->keys_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 && is_roots(fd, S_IFDIR) ? fdopendir(fd) : NULL;
	struct signify_sig sig;
	struct signify_key key;
	unsigned keys = 0;
	bool known = false, good = false;

	if (dir == NULL)
		return refuse(u, "no-key", "%s must be a directory that root alone can write", u->keys_path);
	if (signify_sig_parse(head->signature, head->signature_len, &sig) == 0) {
		for (struct dirent *d; !good && keys < KEYS_MAX && (d = readdir(dir)) != NULL; ) {
			const char *dot = strrchr(d->d_name, '.');

			if (dot == NULL || strcmp(dot, ".pub") != 0)
				continue;
			if (read_key(dirfd(dir), d->d_name, &key) < 0) {
				log_warn("%s/%.64s is not a key that root alone can write: ignored", u->keys_path, d->d_name);
				continue;
			}
			keys++;
			if (memcmp(key.keynum, sig.keynum, sizeof(key.keynum)) != 0)
				continue;
			known = true;
			good = verify_with(&key, &sig, head->manifest, head->manifest_len);
		}
	} else {
		keys = 1;
	}
	closedir(dir);
	if (good)
		return 0;
	return keys == 0 ? refuse(u, "no-key", "there is no release key in %s", u->keys_path) :
	    refuse(u, "bad-signature", known ? "the signature does not fit" : "it is not signed by a key of this device");
}

/* The name of the architecture we are built for, from our own ELF header. */
static const char *
own_arch(void)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	static uint8_t head[MACHINE_HEAD];
	ssize_t n = fd >= 0 ? pread(fd, head, sizeof(head), 0) : -1;
	struct machine kind;

	return n >= 0 && machine_of(head, (size_t)n, &kind) == 0 ? machine_arch(&kind) : "unknown";
}

static int
verify_manifest(struct updater *u, uint64_t size, const struct release *rel)
{
	const struct manifest *m = &rel->manifest;
	int64_t now = monotime_wall_ns() / 1000000000;

	if (rel->parts.signature_len + rel->parts.manifest_len + m->total != size)
		return refuse(u, "bad-size", "the release has %" PRIu64 " bytes, its manifest says %" PRIu64, size,
		    (uint64_t)(rel->parts.signature_len + rel->parts.manifest_len) + m->total);
	if (strcmp(m->arch, own_arch()) != 0)
		return refuse(u, "wrong-arch", "it is for %s, this device is %s", m->arch, own_arch());
	if (strcmp(m->channel, u->conf.channel) != 0)
		return refuse(u, "wrong-channel", "it is of channel %s, this device is on %s", m->channel, u->conf.channel);
	/* A clock before our own build is wrong, so time is at least that. */
	if (m->expires <= (now > EDGEWARD_BUILD_EPOCH ? now : EDGEWARD_BUILD_EPOCH))
		return refuse(u, "expired", "it was to be installed before a day that has passed");
	return 0;
}

int
verify_head(struct updater *u, int fd, uint64_t size, struct release *ret_release)
{
	static uint8_t head[RELEASE_HEAD_MAX];
	struct release rel = { .head = head };
	ssize_t n = pread(fd, head, sizeof(head), 0);
	int r;

	if (n < 0)
		return refuse(u, "io", "the release cannot be read: %s", strerror(errno));
	if (release_split(head, (size_t)n, &rel.parts) < 0)
		return refuse(u, "bad-release", "it is not a release file");
	r = verify_signature(u, &rel.parts);
	if (r < 0)
		return r;
	if (manifest_parse(rel.parts.manifest, rel.parts.manifest_len, &rel.manifest) < 0)
		return refuse(u, "bad-manifest", "it is signed, but its manifest is not one we know");
	*ret_release = rel;
	return verify_manifest(u, size, &rel);
}

int
verify_order(struct updater *u, const struct release *release, const struct inbox *inbox, uint64_t from, uint64_t protocol)
{
	const struct manifest *m = &release->manifest;
	bool operator = inbox->source == UPGRADE_OPERATOR;

	if (inbox->request.sequence != m->sequence)
		return refuse(u, "other-release", "the request is for sequence %" PRIu64 ", the release is %" PRIu64,
		    inbox->request.sequence, m->sequence);
	if (m->sequence == from)
		return refuse(u, "already-current", "sequence %" PRIu64 " is what runs", from);
	if (m->sequence < from && !inbox->request.downgrade)
		return refuse(u, "old-sequence", "sequence %" PRIu64 " is lower than %" PRIu64 ", which runs", m->sequence, from);
	if (!operator && upgrade_history_tries(&u->history, m->sequence) >= UPGRADE_TRIES)
		return refuse(u, "marked-bad", "sequence %" PRIu64 " has failed here before", m->sequence);
	if (!operator && protocol != 0 && protocol < m->protocol)
		return refuse(u, "protocol", "the hub speaks protocol %" PRIu64 ", the release needs %" PRIu64, protocol, m->protocol);
	return 0;
}
