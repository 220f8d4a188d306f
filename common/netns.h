/* A descriptor that is said to be the network namespace of a workload. */
#ifndef EDGEWARD_NETNS_H
#define EDGEWARD_NETNS_H

#include <sys/types.h>

/*
 * The uid that owns the user namespace to which fd's network namespace belongs; with that uid comes the right over it. -EBADF: fd is no
 * file of nsfs; -EINVAL: it is another kind of namespace; -EXDEV: it is the one we are in ourselves; -EPERM: its user namespace is
 * none below ours. Needs /proc.
 */
int netns_owner(int fd, dev_t own_dev, ino_t own_ino, uid_t *ret_uid);

/* Device and inode of our own, for the above. 0 or -errno. */
int netns_self(dev_t *ret_dev, ino_t *ret_ino);

#endif
