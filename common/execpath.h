/* execve with a search in the PATH of the new environment, not of ours. Makes no allocation: for a child after vfork. */
#ifndef EDGEWARD_EXECPATH_H
#define EDGEWARD_EXECPATH_H

/*
 * A name without '/' is looked up in env's PATH, without one in /usr/local/bin:/usr/bin:/bin. A file that is no program
 * is not given to a shell. Returns only on failure, -errno: the first that is not "no such file" when there is one.
 */
int execpath(char *const argv[], char *const env[]);

#endif
