#include "connectd/upplace.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "proto/release/manifest.h"
#include "proto/release/records.h"

/* path without its last component, with another one in its place. */
static void
sibling(const char *path, const char *name, char *buf, size_t size)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	while (len > 0 && path[len - 1] != '/')
		len--;
	if (snprintf(buf, size, "%.*s%s", (int)len, path, name) >= (int)size)
		buf[0] = '\0';
}

static bool
same_directory(const char *a, const char *b)
{
	struct stat x, y;

	return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISDIR(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A release we installed has a manifest beside its programs, a packaged one the file `release`. */
static uint64_t
sequence_of(const char *directory)
{
	_cleanup_close_ int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ uint8_t *manifest = NULL, *release = NULL;
	char version[RELEASE_VERSION_SIZE];
	static struct manifest m;
	uint64_t sequence;
	size_t len;

	if (dir < 0)
		return 0;
	if (fd_read_file(dir, "manifest", RELEASE_HEAD_MAX, &manifest, &len) == 0 && manifest_parse(manifest, len, &m) == 0)
		return m.sequence;
	if (fd_read_file(dir, "release", 128, &release, &len) == 0 && upgrade_packaged_parse(release, len, version, &sequence) == 0)
		return sequence;
	return 0;
}

void
upplace_find(struct upgrade_place *ret, const char *statedir, const char *conf)
{
	char own[PATH_MAX], path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
	struct stat st;

	*ret = (struct upgrade_place){ .managed = false };
	sibling(statedir, "releases", ret->releases, sizeof(ret->releases));
	sibling(conf, "keys", ret->keys, sizeof(ret->keys));
	own[n > 0 ? n : 0] = '\0';
	if (n > 0)
		*strrchr(own, '/') = '\0';
	sibling(statedir, "current", path, sizeof(path));
	ret->managed = same_directory(own, path);
	sibling(statedir, "updater/privupgrade", path, sizeof(path));
	ret->helper = access(path, X_OK) == 0 && stat(ret->releases, &st) == 0 && S_ISDIR(st.st_mode);
	if (ret->managed)
		ret->sequence = sequence_of(own);
}
