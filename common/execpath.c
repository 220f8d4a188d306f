#include "common/execpath.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *
find_path(char *const env[])
{
	for (; *env != NULL; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return "/usr/local/bin:/usr/bin:/bin";
}

int
execpath(char *const argv[], char *const env[])
{
	char file[PATH_MAX];
	const char *dirs, *end;
	int err = ENOENT;

	if (strchr(argv[0], '/') != NULL) {
		execve(argv[0], argv, env);
		return -errno;
	}
	for (dirs = find_path(env); ; dirs = end + 1) {
		int len;

		end = strchrnul(dirs, ':');
		len = (int)(end - dirs);	/* an empty entry is the current directory */
		len = snprintf(file, sizeof(file), "%.*s/%s", len > 0 ? len : 1, len > 0 ? dirs : ".", argv[0]);
		if (len > 0 && (size_t)len < sizeof(file)) {
			execve(file, argv, env);
			if (err == ENOENT && errno != ENOTDIR)
				err = errno;
		}
		if (*end == '\0')
			return -err;
	}
}
