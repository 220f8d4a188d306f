/*
 * Copies a verified release into a directory of its own.
 *
 * Who calls: main.c, after verify_release(). What is trusted: the manifest, whose signature was verified. The release file itself may still be changed by whoever holds it
 * open, so what is hashed is what was read for the copy, and only the copy is ever used. On error: nothing but the directory SEQUENCE.new
 * is left, which is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "privupgrade/privupgrade.h"

#define CHUNK		65536
#define SPARE		((uint64_t)16 << 20)	/* must stay free */

/* size bytes at offset into to (-1: nowhere). The hash of what was read; its beginning into head. */
static int
copy_hashed(int from, uint64_t offset, uint64_t size, int to, EVP_MD_CTX *ctx, uint8_t hash[RELEASE_HASH], uint8_t head[MACHINE_HEAD])
{
	static uint8_t buf[CHUNK];
	uint64_t done = 0;

	if (EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1)
		return -EIO;
	while (done < size) {
		ssize_t n = pread(from, buf, size - done < CHUNK ? (size_t)(size - done) : CHUNK, (off_t)(offset + done));
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENODATA;
		if (done < MACHINE_HEAD)
			memcpy(head + done, buf, (size_t)n < MACHINE_HEAD - done ? (size_t)n : (size_t)(MACHINE_HEAD - done));
		r = EVP_DigestUpdate(ctx, buf, (size_t)n) == 1 ? 0 : -EIO;
		if (r == 0 && to >= 0)
			r = fd_write_all(to, buf, (size_t)n);
		if (r < 0)
			return r;
		done += (uint64_t)n;
	}
	return EVP_DigestFinal_ex(ctx, hash, NULL) == 1 ? 0 : -EIO;
}

/* Each file of the manifest is hashed; the programs go into dir (-1: nothing does). One can be executed only when its hash is known to be right.
 * Data (the bill of materials) is for whoever looks into the release: a flash is not written for it. */
static int
copy_files(struct updater *u, int fd, const struct release *rel, EVP_MD_CTX *ctx, int dir)
{
	uint64_t offset = rel->parts.signature_len + rel->parts.manifest_len;
	uint8_t hash[RELEASE_HASH], head[MACHINE_HEAD] = { 0 };

	for (unsigned i = 0; i < rel->manifest.nfiles; offset += rel->manifest.files[i++].size) {
		const struct release_file *f = &rel->manifest.files[i];
		bool keep = dir >= 0 && f->program;
		_cleanup_close_ int to = keep ? openat(dir, f->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
		int r = keep && to < 0 ? -errno : copy_hashed(fd, offset, f->size, to, ctx, hash, head);

		if (r == -ENODATA || (r == 0 && memcmp(hash, f->sha256, sizeof(hash)) != 0))
			return refuse(&u->why, "bad-file", "%s is not what the manifest says", f->name);
		if (r == 0 && f->program)
			r = fit_program(&u->why, f->name, head, f->size < MACHINE_HEAD ? (size_t)f->size : MACHINE_HEAD, &rel->ours);
		if (r == 0 && to >= 0 && (fchmod(to, 0755) < 0 || fsync(to) < 0))
			r = -errno;
		if (r < 0)
			return r;
	}
	return 0;
}

int
stage_files(struct updater *u, int fd, const struct release *release, int dir)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	int r = ctx != NULL ? copy_files(u, fd, release, ctx, dir) : -ENOMEM;

	EVP_MD_CTX_free(ctx);
	return r;
}

static int
fill(struct updater *u, int fd, const struct release *rel, const char *name)
{
	_cleanup_close_ int dir = -1;
	int r;

	if (mkdirat(u->releases, name, 0700) < 0)
		return -errno;
	dir = openat(u->releases, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = dir < 0 ? -errno : stage_files(u, fd, rel, dir);
	if (r == 0)
		r = fd_replace_file(dir, "manifest", rel->parts.manifest, rel->parts.manifest_len, 0644);
	if (r == 0)
		r = fd_replace_file(dir, "manifest.sig", rel->parts.signature, rel->parts.signature_len, 0644);
	return r == 0 && fchmod(dir, 0755) < 0 ? -errno : r;
}

/* Never what runs: fit_release() saw to that. */
int
stage_forget(struct updater *u)
{
	char name[32], tmp[40];
	int r;

	snprintf(name, sizeof(name), "%" PRIu64, u->state.sequence);
	snprintf(tmp, sizeof(tmp), "%s.new", name);
	r = fd_remove_flat_dir(u->releases, tmp);
	return r == 0 ? fd_remove_flat_dir(u->releases, name) : r;
}

int
stage_release(struct updater *u, int fd, const struct release *release)
{
	char name[32], tmp[40];
	uint64_t need = release->manifest.total + SPARE, avail = fd_free_space(u->releases);
	int r = avail < need ? refuse(&u->why, "no-space", "%" PRIu64 " bytes are free, the release needs %" PRIu64, avail, need) : 0;

	snprintf(name, sizeof(name), "%" PRIu64, release->manifest.sequence);
	snprintf(tmp, sizeof(tmp), "%s.new", name);
	if (r == 0)
		r = stage_forget(u);
	if (r == 0)
		r = fill(u, fd, release, tmp);
	if (r == 0 && (renameat2(u->releases, tmp, u->releases, name, RENAME_NOREPLACE) < 0 || fsync(u->releases) < 0))
		r = -errno;
	if (r < 0)
		fd_remove_flat_dir(u->releases, tmp);
	return r;
}
