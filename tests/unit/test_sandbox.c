/* The tables do what they say: each case in a child, which reads its own fate from the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sandbox.h"
#include "tests/unit/unit.h"

static const struct sandbox_rule unix_only[] = {
	{ SCMP_SYS(socket), 2, { SANDBOX_EQ(0, AF_UNIX), SANDBOX_MASK(1, 0xf, SOCK_STREAM) } },
};
static const struct sandbox_rule no_socket[] = { { .nr = SCMP_SYS(socket) } };

static int
in_child(void (*body)(void))
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		body();
		_exit(99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void
listed_call(void)
{
	if (sandbox_seccomp(unix_only, 1) != 0)
		_exit(1);
	_exit(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0 ? 0 : 2);
}

static void
both_arguments_count(void)
{
	if (sandbox_seccomp(unix_only, 1) != 0)
		_exit(1);
	_exit(socket(AF_UNIX, SOCK_DGRAM, 0) >= 0 ? 0 : 2);
}

static void
unlisted_call(void)
{
	if (sandbox_seccomp(unix_only, 1) != 0)
		_exit(1);
	_exit(open("/", O_RDONLY) >= 0 ? 0 : 2);
}

static void
executable_memory(void)
{
	if (sandbox_seccomp(NULL, 0) != 0)
		_exit(1);
	_exit(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED ? 0 : 2);
}

static pid_t other;

static void
signal_to_itself(void)
{
	if (sandbox_seccomp(NULL, 0) != 0)
		_exit(1);
	abort();
}

/* Both have one user: only the table can keep workerd from its launcher. */
static void
signal_to_another(void)
{
	if (sandbox_seccomp(NULL, 0) != 0)
		_exit(1);
	_exit(syscall(SYS_tgkill, other, other, 0) == 0 ? 0 : 2);
}

/* AT_EMPTY_PATH permits an empty path and does not demand one. */
static void
look_at_a_path(void)
{
	struct stat st;

	if (sandbox_seccomp(NULL, 0) != 0)
		_exit(1);
	_exit(fstatat(AT_FDCWD, "/etc/shadow", &st, AT_EMPTY_PATH) == 0 ? 0 : 2);
}

static void
denied_call(void)
{
	if (sandbox_seccomp_deny(no_socket, 1) != 0)
		_exit(1);
	if (open("/", O_RDONLY) < 0)
		_exit(2);
	_exit(socket(AF_UNIX, SOCK_STREAM, 0) < 0 && errno == EPERM ? 0 : 3);
}

#ifdef __x86_64__
/* What a 32-bit program does on this machine: i386's getpid (20) and socket (359). */
static long
call_i386(long nr, long a, long b, long c)
{
	long r;

	__asm__ volatile("int $0x80" : "=a"(r) : "a"(nr), "b"(a), "c"(b), "d"(c) : "memory", "r8", "r9", "r10", "r11");
	return (int)r;
}

static void
no_filter_i386(void)
{
	_exit(call_i386(20, 0, 0, 0) == getpid() ? 0 : 1);
}

static void
deny_i386(void)
{
	if (sandbox_seccomp_deny(no_socket, 1) != 0)
		_exit(1);
	if (call_i386(20, 0, 0, 0) != getpid())
		_exit(2);
	_exit(call_i386(359, AF_UNIX, SOCK_STREAM, 0) == -EPERM ? 0 : 3);
}

static void
allow_i386(void)
{
	if (sandbox_seccomp(NULL, 0) != 0)
		_exit(1);
	call_i386(20, 0, 0, 0);
	_exit(2);
}

/* The launcher's filter is inherited by workloads, which may be 32-bit programs; a daemon is none. */
static void
other_architectures(void **state)
{
	if (in_child(no_filter_i386) != 0) {
		print_message("skipped: this kernel runs no 32-bit programs\n");
		skip();
	}
	assert_int_equal(in_child(deny_i386), 0);
	assert_int_equal(in_child(allow_i386), -SIGSYS);
}
#else
static void
other_architectures(void **state)
{
	print_message("skipped: only written for x86-64\n");
	skip();
}
#endif

static void
seccomp_tables(void **state)
{
	assert_int_equal(in_child(listed_call), 0);
	assert_int_equal(in_child(both_arguments_count), -SIGSYS);
	assert_int_equal(in_child(unlisted_call), -SIGSYS);
	assert_int_equal(in_child(executable_memory), -SIGSYS);
	assert_int_equal(in_child(denied_call), 0);
	other = getpid();
	assert_int_equal(in_child(signal_to_itself), -SIGABRT);
	assert_int_equal(in_child(signal_to_another), -SIGSYS);
	assert_int_equal(in_child(look_at_a_path), -SIGSYS);
}

static char dir[] = "/tmp/edgeward-unit-XXXXXX";

static void
landlocked(void)
{
	char path[64];
	const struct sandbox_path paths[] = {
		{ dir, SANDBOX_READ | SANDBOX_WRITE }, { "/usr", SANDBOX_READ }, { "/nonexistent", SANDBOX_READ }, { NULL, 0 },
	};
	int fd;

	if (sandbox_landlock(paths, COUNT(paths)) <= 0)
		_exit(1);
	snprintf(path, sizeof(path), "%s/f", dir);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	if (fd < 0 || write(fd, "x", 1) != 1 || unlink(path) < 0)
		_exit(2);
	if (open("/etc/passwd", O_RDONLY) >= 0 || open("/usr/x", O_CREAT | O_WRONLY, 0600) >= 0)
		_exit(3);
	if (open("/usr/bin/env", O_RDONLY) < 0)
		_exit(4);
	execl("/usr/bin/env", "env", (char *)NULL);
	_exit(errno == EACCES ? 0 : 5);
}

/* A token's directory: what is there is read and removed, nothing is made. A device is a single file. */
static void
landlocked_narrowly(void)
{
	char path[64];
	const struct sandbox_path paths[] = {
		{ dir, SANDBOX_READ | SANDBOX_REMOVE }, { "/dev/null", SANDBOX_READ | SANDBOX_DEVICE },
		{ "/etc/passwd", SANDBOX_READ },	/* a file that is not said to be a device */
	};

	snprintf(path, sizeof(path), "%s/f", dir);
	if (close(open(path, O_CREAT | O_RDWR, 0600)) < 0 || sandbox_landlock(paths, COUNT(paths)) <= 0)
		_exit(1);
	if (open(path, O_RDONLY) < 0 || open("/dev/null", O_RDONLY) < 0)
		_exit(2);
	if (open(path, O_WRONLY) >= 0 || open("/dev/null", O_WRONLY) >= 0 || open("/dev/zero", O_RDONLY) >= 0 ||
	    open("/etc/passwd", O_RDONLY) >= 0)
		_exit(3);
	if (unlink(path) < 0)
		_exit(4);
	_exit(open(path, O_CREAT | O_RDWR, 0600) >= 0 ? 5 : 0);
}

static struct sockaddr_un abstract = { .sun_family = AF_UNIX };

static void
landlocked_alone(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (kill(other, 0) < 0 || sandbox_landlock(NULL, 0) <= 0)
		_exit(1);
	if (kill(getpid(), 0) < 0)
		_exit(2);
	if (kill(other, 0) == 0 || errno != EPERM)
		_exit(3);
	_exit(connect(fd, (struct sockaddr *)&abstract, sizeof(abstract)) < 0 && errno == EPERM ? 0 : 4);
}

static void
landlock_scopes(void **state)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sandbox_landlock_abi() < 6) {
		print_message("skipped: no scopes in this kernel\n");
		skip();
	}
	snprintf(abstract.sun_path + 1, sizeof(abstract.sun_path) - 1, "edgeward-unit-%d", (int)getpid());
	assert_int_equal(bind(fd, (struct sockaddr *)&abstract, sizeof(abstract)), 0);
	assert_int_equal(listen(fd, 1), 0);
	other = getpid();
	assert_int_equal(in_child(landlocked_alone), 0);
	close(fd);
}

static void
landlock_tables(void **state)
{
	if (sandbox_landlock_abi() == 0) {
		print_message("skipped: no Landlock in this kernel\n");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	assert_int_equal(in_child(landlocked), 0);
	assert_int_equal(in_child(landlocked_narrowly), 0);
	rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(seccomp_tables), cmocka_unit_test(other_architectures),
		cmocka_unit_test(landlock_tables), cmocka_unit_test(landlock_scopes) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
