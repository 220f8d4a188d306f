/* B59: what a child gets is decided here: spawn_set_state() and spawn_daemon(), used by the launcher for workerd. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/spawn.h"
#include "common/userns.h"
#include "tests/unit/unit.h"

/* Runs a shell script through spawn_daemon() in a process of its own; exit status, output in buf. */
static int
run(const char *script, char *buf, size_t size)
{
	int p[2], status;
	pid_t pid;
	ssize_t n;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct rlimit nofile;
		sigset_t all;
		char *argv[] = { (char *)"/bin/sh", (char *)"-c", (char *)script, NULL };
		int fds[2];

		signal(SIGPIPE, SIG_IGN);
		signal(SIGUSR1, SIG_IGN);
		sigfillset(&all);
		sigprocmask(SIG_BLOCK, &all, NULL);
		umask(0);
		dup2(p[1], STDOUT_FILENO);
		if (spawn_set_state(8, &nofile) < 0)
			_exit(90);
		fds[0] = open("/etc/passwd", O_RDONLY);		/* would leak */
		fds[1] = open("/etc/group", O_RDONLY);
		if (fds[0] < 8 || fds[1] < 8)
			_exit(91);
		nofile.rlim_cur = 77;
		pid = spawn_daemon(argv, (int[]){ fds[0], -1, fds[1] }, 3, &nofile);
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			_exit(92);
		_exit(WEXITSTATUS(status));
	}
	close(p[1]);
	for (size_t len = 0; (n = read(p[0], buf + len, size - 1 - len)) > 0; buf[len] = '\0')
		len += (size_t)n;
	close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void
child_state(void **state)
{
	char out[512];

	assert_int_equal(run("ls /proc/self/fd | tr '\n' ' '", out, sizeof(out)), 0);
	assert_string_equal(out, "0 1 2 3 4 5 ");	/* 4 is ls's own: what was there is closed on exec */
	assert_int_equal(run("readlink /proc/self/fd/0 /proc/$$/fd/3 /proc/$$/fd/5; umask; ulimit -n", out, sizeof(out)), 0);
	assert_string_equal(out, "/dev/null\n/etc/passwd\n/etc/group\n0022\n77\n");
	assert_int_equal(run("grep -E 'Sig(Ign|Blk)' /proc/self/status | tr -d '\\t\\n'", out, sizeof(out)), 0);
	assert_string_equal(out, "SigBlk:0000000000000000SigIgn:0000000000000000");
	assert_int_equal(run("exit 7", out, sizeof(out)), 7);
}

static void
beside(void **state)
{
	char path[512];

	spawn_beside("other", path, sizeof(path));
	assert_true(path[0] == '/' && strlen(path) > 6);
	assert_string_equal(path + strlen(path) - 6, "/other");
}

static void
what_cannot_run_says_so(void **state)
{
	char *argv[] = { (char *)"/nonexistent/program", NULL };
	struct rlimit nofile;
	int status;
	pid_t pid;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &nofile), 0);
	pid = spawn_daemon(argv, NULL, 0, &nofile);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 1);
}

static void
own_ids_in_a_namespace(void **state)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		uid_t uid = getuid();
		gid_t gid = getgid();

		if (userns_enter(uid, gid) < 0)
			_exit(1);
		_exit(getuid() == uid && getgid() == gid ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WEXITSTATUS(status) == 1) {
		print_message("skipped: user namespaces are withheld here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(child_state),
		cmocka_unit_test(beside),
		cmocka_unit_test(what_cannot_run_says_so),
		cmocka_unit_test(own_ids_in_a_namespace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
