/* A name from outside becomes a descriptor beneath a held directory, here and nowhere else. */
#ifndef EDGEWARD_BENEATH_H
#define EDGEWARD_BENEATH_H

/*
 * Opens the directory path (relative, "" = the root itself) with O_PATH. Symbolic links are followed while they stay
 * beneath root. -EXDEV: leads outside; -ELOOP, -ENOENT, -ENOTDIR, -EACCES and the like as openat2 says.
 */
int beneath_open(int root, const char *path);

/* The same, making what is missing with mode 0700. Every step is opened before the next is made in it, so nothing is
 * created outside. path is changed for a while and restored. */
int beneath_make(int root, char *path);

#endif
