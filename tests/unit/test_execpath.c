#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/execpath.h"
#include "tests/unit/unit.h"

static char dir[] = "/tmp/test_execpath.XXXXXX";

/* Exit status of the program, or 1000 + errno when it could not be run. */
static int
try(const char *file, const char *path)
{
	char env[512];
	char *argv[] = { (char *)file, NULL }, *envp[] = { (char *)"A=b", env, NULL };
	int p[2], r = 0, status;
	pid_t pid;

	snprintf(env, sizeof(env), "PATH=%s", path != NULL ? path : "");
	if (path == NULL)
		envp[1] = NULL;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		if (chdir(dir) < 0)
			_exit(1);
		r = execpath(argv, envp);
		if (write(p[1], &r, sizeof(r)) < 0)
			_exit(1);
		_exit(0);
	}
	close(p[1]);
	if (read(p[0], &r, sizeof(r)) <= 0)
		r = 0;
	close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return r < 0 ? 1000 - r : WEXITSTATUS(status);
}

static void
script(const char *name, const char *text, mode_t mode)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void
looks_in_the_new_path(void **state)
{
	char both[256];

	setenv("PATH", "/nonexistent", 1);	/* ours does not count */
	assert_int_equal(try("true", "/usr/bin:/bin"), 0);
	assert_int_equal(try("false", "/nonexistent:/usr/bin"), 1);
	assert_int_equal(try("false", NULL), 1);
	assert_int_equal(try("true", "/nonexistent"), 1000 + ENOENT);
	assert_int_equal(try("true", "/etc/passwd"), 1000 + ENOENT);
	assert_int_equal(try("/bin/false", "/nonexistent"), 1);
	assert_int_equal(try("/nonexistent", "/bin"), 1000 + ENOENT);
	script("three", "#!/bin/sh\nexit 3\n", 0755);
	script("noexec", "#!/bin/sh\nexit 4\n", 0644);
	script("plain", "exit 5\n", 0755);
	assert_int_equal(try("three", "/nonexistent:"), 3);	/* an empty entry is the current directory */
	assert_int_equal(try("three", ""), 3);
	assert_int_equal(try("./three", "/bin"), 3);
	assert_int_equal(try("noexec", dir), 1000 + EACCES);
	snprintf(both, sizeof(both), "%s:/nonexistent", dir);
	assert_int_equal(try("noexec", both), 1000 + EACCES);
	assert_int_equal(try("plain", dir), 1000 + ENOEXEC);	/* never handed to a shell */
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(looks_in_the_new_path) };
	char cmd[64];
	int r;

	if (mkdtemp(dir) == NULL)
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	setenv("PATH", "/usr/bin:/bin", 1);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd) != 0 ? 1 : r;
}
