#include "proto/ipc/file.h"

#include <errno.h>
#include <string.h>

#include "proto/ipc/ipc.h"
#include "proto/ipc/names.h"

bool
file_path_ok(const char *path)
{
	do {
		size_t n = strcspn(path, "/");

		if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += n;
	} while (*path++ == '/');
	return true;
}

void
file_sha_put(const uint8_t sha[32], char ret_hex[FILE_SHA_HEX])
{
	static const char digits[] = "0123456789abcdef";

	for (unsigned i = 0; i < 64; i++)
		ret_hex[i] = digits[sha[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
	ret_hex[64] = '\0';
}

bool
file_sha_parse(const char *hex, uint8_t ret_sha[32])
{
	if (hex == NULL || strlen(hex) != 64 || strspn(hex, "0123456789abcdef") != 64)
		return false;
	for (unsigned i = 0; i < 64; i++)
		ret_sha[i / 2] = (uint8_t)(ret_sha[i / 2] << 4 | (hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10));
	return true;
}

bool
file_open_ok(const struct file_open *o)
{
	return ipc_str_ok(o->handle, sizeof(o->handle)) && handle_ok(o->handle) && ipc_str_ok(o->work_dir, sizeof(o->work_dir)) &&
	    ipc_str_ok(o->path, sizeof(o->path)) && file_path_ok(o->path) && o->put <= 1 && o->mode <= 0777 && o->size <= INT64_MAX;
}

bool
file_request_ok(const struct file_request *req)
{
	return file_open_ok(&req->open) && ipc_text_ok(req->who, sizeof(req->who));
}

bool
file_answer_ok(const struct file_answer *a)
{
	return a->ok <= 1 && a->reserved == 0 && ipc_str_ok(a->error, sizeof(a->error)) && (a->ok == 1) == (a->error[0] == '\0');
}

int
file_rec_check(const void *data, size_t len, uint64_t at, struct file_rec *ret_rec)
{
	struct file_rec r;
	bool good = false;

	if (len < sizeof(r))
		return -EBADMSG;
	memcpy(&r, data, sizeof(r));
	len -= sizeof(r);
	switch (r.type) {
	case FILE_ASK:
		good = len == sizeof(struct file_open);
		break;
	case FILE_META:
		good = len == 0 && r.at <= INT64_MAX && r.mode <= 0777;
		break;
	case FILE_DATA:
		good = len >= 1 && len <= FILE_DATA_MAX && r.at == at && at <= INT64_MAX - len;
		break;
	case FILE_HOLE:
		good = len == 0 && r.at > at && r.at <= INT64_MAX;
		break;
	case FILE_END:
		good = (len == 0 || len == 32) && r.at == at;
		break;
	case FILE_DONE:
		good = len == 0;
		break;
	case FILE_FAIL:
		good = len <= FILE_TEXT_MAX && r.mode <= 1;
		break;
	default:
		break;
	}
	if (good)
		*ret_rec = r;
	return good ? 0 : -EBADMSG;
}
