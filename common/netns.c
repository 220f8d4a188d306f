#include "common/netns.h"

#include <errno.h>
#include <linux/magic.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "common/cleanup.h"

int
netns_self(dev_t *ret_dev, ino_t *ret_ino)
{
	struct stat st;

	if (stat("/proc/self/ns/net", &st) < 0)
		return -errno;
	*ret_dev = st.st_dev;
	*ret_ino = st.st_ino;
	return 0;
}

int
netns_owner(int fd, dev_t own_dev, ino_t own_ino, uid_t *ret_uid)
{
	_cleanup_close_ int user = -1;
	struct statfs fs;
	struct stat st;

	if (fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (fs.f_type != NSFS_MAGIC)
		return -EBADF;
	if (ioctl(fd, NS_GET_NSTYPE) != CLONE_NEWNET)
		return -EINVAL;
	if (st.st_dev == own_dev && st.st_ino == own_ino)
		return -EXDEV;
	user = ioctl(fd, NS_GET_USERNS);
	if (user < 0 || ioctl(user, NS_GET_OWNER_UID, ret_uid) < 0)
		return -errno;
	return 0;
}
