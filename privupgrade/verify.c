/*
 * Is this release signed by a key of this device, and meant for it? proto/release/fit.c decides the second.
 *
 * Who calls: main.c. What is trusted: the public keys in /etc/edgeward/keys and upgrade.conf, as long as root alone can write them; nothing
 * of the release before its signature was verified. On error: the reason is kept and nothing is touched.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/monotime.h"
#include "privupgrade/privupgrade.h"
#include "proto/release/signify.h"
#include "version.h"

#define KEYS_MAX	32

int
verify_conf(struct updater *u, struct upgrade_conf *ret_conf)
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t len;
	int r = fd_read_own_file(AT_FDCWD, u->conf_path, 1024, &data, &len);

	*ret_conf = (struct upgrade_conf){ .channel = "stable", .settle = 90, .settle_max = UPGRADE_SETTLE_MAX, .settle_min = UPGRADE_SETTLE_MIN };
	if (r == 0 && upgrade_conf_parse(data, len, ret_conf) < 0)
		return refuse(&u->why, "bad-conf", "%s cannot be understood, see privupgrade(8)", u->conf_path);
	return r == 0 || r == -ENOENT ? 0 : refuse(&u->why, "bad-conf", "%s must be a file that root alone can write", u->conf_path);
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
	_cleanup_free_ uint8_t *data = NULL;
	size_t len;
	int r = fd_read_own_file(dir, name, SIGNIFY_FILE_MAX, &data, &len);

	return r < 0 ? r : signify_key_parse(data, len, ret_key);
}

/* Any key that is there counts, so that two are valid while one replaces the other. */
static int
verify_signature(struct updater *u, const struct release_head *head)
{
	int fd = fd_open_own_dir(u->keys_path, ".", 0755);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct signify_sig sig;
	struct signify_key key;
	unsigned keys = 0;
	bool readable = signify_sig_parse(head->signature, head->signature_len, &sig) == 0, known = false, good = false;

	if (dir == NULL)
		return refuse(&u->why, "no-key", "%s must be a directory that root alone can write", u->keys_path);
	for (struct dirent *d; !good && keys < KEYS_MAX && (d = readdir(dir)) != NULL; ) {
		const char *dot = strrchr(d->d_name, '.');

		if (dot == NULL || strcmp(dot, ".pub") != 0)
			continue;
		if (read_key(fd, d->d_name, &key) < 0) {
			log_warn("%s/%.64s is not a key that root alone can write: ignored", u->keys_path, d->d_name);
			continue;
		}
		keys++;
		if (!readable || memcmp(key.keynum, sig.keynum, sizeof(key.keynum)) != 0)
			continue;
		known = true;
		good = verify_with(&key, &sig, head->manifest, head->manifest_len);
	}
	closedir(dir);
	if (good)
		return 0;
	return keys == 0 ? refuse(&u->why, "no-key", "there is no release key in %s", u->keys_path) :
	    refuse(&u->why, "bad-signature", known ? "the signature does not fit" : "it is not signed by a key of this device");
}

static int
read_machine(struct updater *u, struct machine *ret_machine)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	static uint8_t head[MACHINE_HEAD];
	ssize_t n = fd >= 0 ? pread(fd, head, sizeof(head), 0) : -1;

	return n >= 0 && machine_of(head, (size_t)n, ret_machine) == 0 ? 0 : refuse(&u->why, "io", "our own program cannot be read");
}

int
verify_release(struct updater *u, int fd, struct fit *fit, const struct upgrade_conf *conf, struct release *ret_release)
{
	static uint8_t head[RELEASE_HEAD_MAX];
	struct release rel = { .head = head };
	int64_t now = monotime_wall_ns() / 1000000000;
	ssize_t n = pread(fd, head, sizeof(head), 0);
	int r;

	if (n < 0)
		return refuse(&u->why, "io", "the release cannot be read: %s", strerror(errno));
	if (release_split(head, (size_t)n, &rel.parts) < 0)
		return refuse(&u->why, "bad-release", "it is not a release file");
	r = verify_signature(u, &rel.parts);
	if (r < 0)
		return r;
	if (manifest_parse(rel.parts.manifest, rel.parts.manifest_len, &rel.manifest) < 0)
		return refuse(&u->why, "bad-manifest", "it is signed, but its manifest is not one we know");
	r = read_machine(u, &rel.ours);
	if (r < 0)
		return r;
	*ret_release = rel;
	fit->why = &u->why;
	fit->arch = machine_arch(&rel.ours);
	fit->channel = conf->channel;
	/* A clock before our own build is wrong, so time is at least that. */
	fit->now = now > EDGEWARD_BUILD_EPOCH ? now : EDGEWARD_BUILD_EPOCH;
	return fit_release(fit, &rel.parts, &rel.manifest);
}
