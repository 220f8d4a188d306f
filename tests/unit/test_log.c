#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/unit/unit.h"

static int saved_stderr;

static void
redirect(int fd)
{
	saved_stderr = dup(STDERR_FILENO);
	dup2(fd, STDERR_FILENO);
}

static void
restore(void)
{
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
}

/* As systemd does for a stream of its own. */
static void
name_stream(int fd)
{
	struct stat st;
	char text[48];

	assert_int_equal(fstat(fd, &st), 0);
	snprintf(text, sizeof(text), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", text, 1);
}

/* Only the journal gets priorities: not a terminal, not a file that stderr was sent to though JOURNAL_STREAM is inherited. */
static void
no_priority_for_people(void **state)
{
	char buf[4096] = { 0 };
	int p[2], other[2];

	assert_int_equal(pipe(p), 0);
	assert_int_equal(pipe(other), 0);
	redirect(p[1]);
	unsetenv("JOURNAL_STREAM");
	log_init("t", LOG_LEVEL_INFO);
	log_info("hello");
	name_stream(other[1]);
	log_init("t", LOG_LEVEL_INFO);
	log_error("bad");
	restore();
	assert_true(read(p[0], buf, sizeof(buf) - 1) > 0);
	assert_string_equal(buf, "t: hello\nt: bad\n");
	for (int i = 0; i < 2; i++) {
		close(p[i]);
		close(other[i]);
	}
}

static void
lines_have_priority_and_keep_errno(void **state)
{
	char buf[4096] = { 0 };
	int p[2];

	assert_int_equal(pipe(p), 0);
	redirect(p[1]);
	name_stream(p[1]);
	log_init("t", LOG_LEVEL_INFO);
	unsetenv("JOURNAL_STREAM");
	errno = ENOTDIR;
	log_debug("not shown");
	log_info("hello %d", 1);
	log_error("bad");
	assert_int_equal(errno, ENOTDIR);
	restore();
	assert_true(read(p[0], buf, sizeof(buf) - 1) > 0);
	assert_string_equal(buf, "<6>t: hello 1\n<3>t: bad\n");
	close(p[0]);
	close(p[1]);
}

/* B41 in small: what could not be written or was too much is counted, and the count is told. */
static void
b41_blocked_stderr_never_blocks(void **state)
{
	char buf[70000] = { 0 };
	int p[2];

	assert_int_equal(pipe(p), 0);
	fcntl(p[1], F_SETFL, O_NONBLOCK);
	while (write(p[1], "xxxxxxxxxxxxxxxx", 16) > 0)
		;
	fcntl(p[1], F_SETFL, 0);
	redirect(p[1]);
	alarm(5);
	log_error("lost");
	log_error("lost");
	restore();
	assert_true(read(p[0], buf, sizeof(buf) - 1) > 0);
	redirect(p[1]);
	log_error("seen");
	restore();
	alarm(0);
	memset(buf, 0, sizeof(buf));
	assert_true(read(p[0], buf, sizeof(buf) - 1) > 0);
	assert_string_equal(buf, "<4>t: 2 log lines suppressed\n<3>t: seen\n");
	close(p[0]);
	close(p[1]);
}

static void
closed_standard_descriptors_become_null(void **state)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		for (int fd = 0; fd < 64; fd++)
			close(fd);
		log_init("t", LOG_LEVEL_INFO);
		_exit(fcntl(0, F_GETFD) == 0 && fcntl(1, F_GETFD) == 0 && fcntl(2, F_GETFD) == 0 &&
		    open("/dev/null", O_RDONLY) == 3 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void
quoting(void **state)
{
	char buf[LOG_QUOTE_SIZE], big[200];

	assert_string_equal(log_quote(buf, sizeof(buf), "a\n\\\xff" "b", 5), "a\\x0a\\x5c\\xffb");
	memset(big, 'y', sizeof(big));
	log_quote(buf, sizeof(buf), big, sizeof(big));
	assert_int_equal(strlen(buf), 64 + 3);
	assert_string_equal(buf + 64, "...");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_priority_for_people), cmocka_unit_test(lines_have_priority_and_keep_errno),
		cmocka_unit_test(b41_blocked_stderr_never_blocks),
		cmocka_unit_test(closed_standard_descriptors_become_null),
		cmocka_unit_test(quoting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
