/* B100: other programs are run with a bound on everything. Where the kind could occur: common/runprog.c alone runs them to their end. */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/monotime.h"
#include "common/runprog.h"

static char out[256];

static int
sh(const char *script, uid_t uid, int64_t ms)
{
	const char *const argv[] = { "/bin/sh", "-c", script, NULL };

	return run_program(argv, uid, uid, ms, out, sizeof(out));
}

static void
test_exit_code_and_output(void **state)
{
	assert_int_equal(sh("echo one; echo two >&2; exit 7", 0, 5000), 7);
	assert_string_equal(out, "one\ntwo\n");
	assert_int_equal(sh("kill -SEGV $$", 0, 5000), -ECHILD);
	assert_string_equal(out, "11");
	assert_int_equal(run_program((const char *const[]){ "/nonexistent", NULL }, 0, 0, 5000, out, sizeof(out)), 127);
	assert_non_null(strstr(out, "No such file"));
}

static void
test_bounds(void **state)
{
	monotime_t begin = monotime_now();

	assert_int_equal(sh("sleep 100", 0, 200), -ETIMEDOUT);
	assert_int_equal(sh("exec >&- 2>&-; sleep 100", 0, 200), -ETIMEDOUT);
	assert_int_equal(sh("yes", 0, 20000), -EFBIG);
	assert_int_equal(sh("trap '' TERM HUP INT; sleep 100", 0, 200), -ETIMEDOUT);
	assert_true(monotime_diff_ms(monotime_now(), begin) < 20000);
}

/* What it leaves behind in its session does not hold us up, and is gone. */
static void
test_what_is_left_behind(void **state)
{
	monotime_t begin = monotime_now();
	long pid;

	assert_int_equal(sh("sleep 100 & echo $!", 0, 20000), 0);
	assert_true(monotime_diff_ms(monotime_now(), begin) < 10000);
	assert_int_equal(sscanf(out, "%ld", &pid), 1);
	for (int i = 0; i < 500 && kill((pid_t)pid, 0) == 0; i++)
		usleep(10000);
	assert_int_equal(kill((pid_t)pid, 0), -1);
}

static void
test_state_is_set_not_inherited(void **state)
{
	assert_int_equal(sh("cat /dev/stdin; pwd; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD=; ls /proc/self/fd | wc -l; ulimit -c", 0, 5000), 0);
	/* 0, 1, 2 and the one ls reads the directory with */
	assert_string_equal(out, "/\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\n4\n0\n");
}

static void
test_as_a_user(void **state)
{
	if (geteuid() != 0)
		skip();
	assert_int_equal(sh("id -u; id -G; grep -c 'Cap\\(Prm\\|Eff\\|Inh\\|Amb\\).*0000000000000000' /proc/self/status; "
	    "grep NoNewPrivs /proc/self/status; ulimit -f", 65534, 5000), 0);
	assert_string_equal(out, "65534\n65534\n4\nNoNewPrivs:\t1\n0\n");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exit_code_and_output), cmocka_unit_test(test_bounds), cmocka_unit_test(test_what_is_left_behind),
		cmocka_unit_test(test_state_is_set_not_inherited), cmocka_unit_test(test_as_a_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
