/* What workerd gives up before it takes the first record. */
#ifndef EDGEWARD_WORKERD_SANDBOX_H
#define EDGEWARD_WORKERD_SANDBOX_H

/*
 * statedir stays writable and the directories of conf and policy readable; nothing else of the file system can be opened.
 * Returns the Landlock ABI in force, -errno.
 */
int sandbox_enter(const char *statedir, const char *conf, const char *policy);

#endif
