#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/notify.h"
#include "tests/unit/unit.h"

static struct loop *loop;
static int manager;
static char name[96];

static void
listen_on(const char *prefix)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	size_t len;

	snprintf(name, sizeof(name), "%sedgeward-unit-notify.%d", prefix, (int)getpid());
	len = strlen(name);
	memcpy(sun.sun_path, name, len);
	if (name[0] == '@')
		sun.sun_path[0] = '\0';
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(manager, (struct sockaddr *)&sun,
	    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (name[0] == '/'))), 0);
	setenv("NOTIFY_SOCKET", name, 1);
}

static void
assert_heard(const char *text)
{
	char buf[64] = "";

	assert_int_equal(recv(manager, buf, sizeof(buf) - 1, 0), (ssize_t)strlen(text));
	assert_string_equal(buf, text);
}

static void
speaks(const char *prefix)
{
	struct notify n;

	listen_on(prefix);
	assert_int_equal(notify_init(&n, loop), 0);
	assert_null(getenv("NOTIFY_SOCKET"));
	notify_send(&n, "READY=1");
	assert_heard("READY=1");
	notify_done(&n);
	close(manager);
	unlink(name);
}

static void
ready(void **state)
{
	speaks("/tmp/");
	speaks("@");
}

static void
watchdog(void **state)
{
	struct notify n;
	char pid[16];

	listen_on("/tmp/");
	setenv("WATCHDOG_USEC", "40000", 1);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(notify_init(&n, loop), 0);
	assert_int_equal(n.period_ms, 26);
	loop_turn(loop, 0);
	assert_heard("WATCHDOG=1");
	loop_turn(loop, 100);
	assert_heard("WATCHDOG=1");
	assert_null(getenv("WATCHDOG_USEC"));
	notify_done(&n);
	/* Not for this process: a child of the one it is for. */
	setenv("NOTIFY_SOCKET", name, 1);
	setenv("WATCHDOG_USEC", "40000", 1);
	setenv("WATCHDOG_PID", "1", 1);
	assert_int_equal(notify_init(&n, loop), 0);
	assert_int_equal(n.period_ms, 0);
	notify_done(&n);
	close(manager);
	unlink(name);
}

static void
nobody(void **state)
{
	struct notify n;

	assert_int_equal(notify_init(&n, loop), 0);
	notify_send(&n, "READY=1");
	notify_done(&n);
	setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
	assert_int_equal(notify_init(&n, loop), -ENOENT);
	notify_send(&n, "READY=1");
	notify_done(&n);
	setenv("NOTIFY_SOCKET", "vsock:2:3", 1);
	assert_int_equal(notify_init(&n, loop), -EINVAL);
	notify_done(&n);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(ready), cmocka_unit_test(watchdog), cmocka_unit_test(nobody) };
	int r;

	assert_int_equal(loop_new(&loop), 0);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	loop_free(loop);
	return r;
}
