#include "edgectl/doctor/tar.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/fdutil.h"

#define BLOCK	512u

/* POSIX.1-1988, "ustar". Numbers are octal with a NUL or blank behind. */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], chksum[8], typeflag, linkname[100], magic[6], version[2],
	    uname[32], gname[32], devmajor[8], devminor[8], prefix[155], pad[12];
};
static_assert(sizeof(struct header) == BLOCK, "a block");

int
tar_add(int fd, const char *name, int64_t mtime_s, const void *data, size_t len)
{
	static const char zeros[BLOCK];
	struct header h;
	unsigned sum = 0;
	int r;

	memset(&h, 0, sizeof(h));
	if (strlen(name) >= sizeof(h.name) || len > UINT32_MAX || mtime_s < 0)
		return -EINVAL;
	memcpy(h.name, name, strlen(name));
	memcpy(h.mode, "0000600", 8);
	memcpy(h.uid, "0000000", 8);
	memcpy(h.gid, "0000000", 8);
	snprintf(h.size, sizeof(h.size), "%011" PRIo64, (uint64_t)len);
	snprintf(h.mtime, sizeof(h.mtime), "%011" PRIo64, (uint64_t)mtime_s & 077777777777u);
	h.typeflag = '0';
	memcpy(h.magic, "ustar", 6);
	memcpy(h.version, "00", 2);
	/* The sum is made with blanks where it will stand. */
	memset(h.chksum, ' ', sizeof(h.chksum));
	for (size_t i = 0; i < BLOCK; i++)
		sum += ((const unsigned char *)&h)[i];
	snprintf(h.chksum, sizeof(h.chksum), "%06o", sum);
	r = fd_write_all(fd, &h, sizeof(h));
	if (r == 0)
		r = fd_write_all(fd, data, len);
	if (r == 0 && len % BLOCK != 0)
		r = fd_write_all(fd, zeros, BLOCK - len % BLOCK);
	return r;
}

int
tar_end(int fd)
{
	static const char zeros[2 * BLOCK];

	return fd_write_all(fd, zeros, sizeof(zeros));
}
