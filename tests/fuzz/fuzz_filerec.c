/* Records about files (proto/ipc/file.h): what is good by itself fits what came before, and paths lead nowhere above. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ipc/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
try_path(const uint8_t *data, size_t size)
{
	char path[256];

	size = size < sizeof(path) - 1 ? size : sizeof(path) - 1;
	memcpy(path, data, size);
	path[size] = '\0';
	if (!file_path_ok(path))
		return;
	assert(path[0] != '/' && path[0] != '\0' && strcmp(path, "..") != 0 && strncmp(path, "../", 3) != 0);
	assert(strstr(path, "/../") == NULL && strstr(path, "//") == NULL && path[strlen(path) - 1] != '/');
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct file_rec rec;
	uint64_t at = 0;

	try_path(data, size);
	if (size >= 8) {
		memcpy(&at, data, 8);
		at &= INT64_MAX;
		data += 8;
		size -= 8;
	}
	if (size == sizeof(struct file_request)) {
		struct file_request req;

		memcpy(&req, data, sizeof(req));
		if (file_request_ok(&req))
			assert(strlen(req.who) < sizeof(req.who) && strlen(req.open.path) < sizeof(req.open.path));
	}
	if (file_rec_check(data, size, at, &rec) < 0)
		return 0;
	assert(rec.type >= FILE_ASK && rec.type < FILE_RECS && size >= sizeof(rec));
	assert(rec.type != FILE_HOLE || (rec.at > at && rec.at <= INT64_MAX));
	assert(rec.type != FILE_DATA || (rec.at == at && size - sizeof(rec) <= FILE_DATA_MAX));
	if (size - sizeof(rec) == sizeof(struct file_open)) {
		struct file_open o;

		memcpy(&o, data + sizeof(rec), sizeof(o));
		if (file_open_ok(&o))
			assert(strlen(o.path) < sizeof(o.path) && o.mode <= 0777);
	}
	return 0;
}
