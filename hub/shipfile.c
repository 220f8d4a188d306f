#include "hub/shipfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "hub/frames.h"
#include "hub/result.h"
#include "proto/ipc/job.h"

void
shipfile_drop(struct hub *hub, const char *handle)
{
	char name[RESULT_NAME];

	result_name(name, "s", handle);
	if (unlinkat(hub->logfd, name, 0) == 0)
		hub->nshipfiles--;
}

int
shipfile_new(struct hub *hub, const char *handle)
{
	char name[RESULT_NAME];
	int fd;

	if (hub->nshipfiles >= SHIPFILES_MAX)
		return -EUSERS;
	result_name(name, "s", handle);
	fd = openat(hub->logfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	hub->nshipfiles++;
	return fd;
}

static bool
read_spec(const char *spec, size_t len, uint64_t *ret_size, char ret_sha256[FILE_SHA_HEX])
{
	struct json_doc *doc = NULL;
	const struct json *branch;
	int64_t size = 0;
	bool ok;

	if (json_parse(spec, len, &doc) < 0)
		return false;
	branch = json_get(json_get(json_get(json_root(doc), "spec"), "workspace"), "branch_bundle");
	ok = json_get_int(branch, "bytes", 1, JOB_BUNDLE_MAX, &size) && json_copy_str(branch, "sha256", ret_sha256, FILE_SHA_HEX);
	json_doc_free(doc);
	*ret_size = (uint64_t)size;
	return ok;
}

int
shipfile_get(struct hub *hub, const char *handle, const char *spec, size_t len, uint64_t *ret_size, char ret_sha256[FILE_SHA_HEX])
{
	_cleanup_close_ int fd = -1;
	char name[RESULT_NAME];
	struct stat st;

	result_name(name, "s", handle);
	fd = openat(hub->logfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!read_spec(spec, len, ret_size, ret_sha256) || (uint64_t)st.st_size != *ret_size)
		return -ENOENT;
	return take_fd(&fd);
}

void
shipfiles_sweep(struct hub *hub)
{
	int fd = openat(hub->logfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct run_info info;
	struct dirent *e;

	if (dir == NULL) {
		log_warn("branches nobody waits for cannot be removed: %s", strerror(errno));
		cleanup_close(&fd);
		return;
	}
	while ((e = readdir(dir)) != NULL) {
		int r;

		if (strncmp(e->d_name, "s.", 2) != 0)
			continue;
		hub->nshipfiles++;
		r = store_run_get(hub->store, e->d_name + 2, &info);
		if (r == -ENOENT || (r == 0 && info.state != RUN_PENDING))
			shipfile_drop(hub, e->d_name + 2);
	}
	closedir(dir);
}
