/*
 * killat [-p|-z] N COMMAND...: runs COMMAND and kills it with SIGKILL just before its Nth system call that changes a file, in no more than that
 * process itself. With -p it is a power cut: every file that was written since its last fsync is as long as it was before that (a new one has
 * length 0 afterwards), as a file system may leave it. With -z its length has arrived and its content has not: zeros.
 *
 * N = 0 runs it to its end. Prints "COUNT NAME": how many such calls there were until then, and the one before which it ended ("-": none).
 * The calls are counted, not sampled: the test asks for 1, 2, 3, ... until the command ends by itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <linux/ptrace.h>
#include <unistd.h>

#define COUNT(a)	(sizeof(a) / sizeof((a)[0]))
#define DIRTY_MAX	64

static const struct { long nr; const char *name; } calls[] = {
	{ SYS_write, "write" }, { SYS_pwrite64, "pwrite64" }, { SYS_writev, "writev" }, { SYS_ftruncate, "ftruncate" },
	{ SYS_fsync, "fsync" }, { SYS_fdatasync, "fdatasync" }, { SYS_fchmod, "fchmod" }, { SYS_fchmodat, "fchmodat" },
	{ SYS_fchown, "fchown" }, { SYS_openat, "openat" }, { SYS_mkdirat, "mkdirat" }, { SYS_unlinkat, "unlinkat" },
	{ SYS_symlinkat, "symlinkat" }, { SYS_linkat, "linkat" }, { SYS_renameat2, "renameat2" },
#ifdef SYS_renameat
	{ SYS_renameat, "renameat" },
#endif
#ifdef SYS_rename
	{ SYS_rename, "rename" }, { SYS_unlink, "unlink" }, { SYS_mkdir, "mkdir" }, { SYS_rmdir, "rmdir" }, { SYS_symlink, "symlink" },
	{ SYS_open, "open" }, { SYS_creat, "creat" }, { SYS_chmod, "chmod" }, { SYS_chown, "chown" }, { SYS_truncate, "truncate" },
#endif
	{ SYS_copy_file_range, "copy_file_range" }, { SYS_sendfile, "sendfile" }, { SYS_fallocate, "fallocate" },
};

static struct { char path[PATH_MAX]; off_t size; } dirty[DIRTY_MAX];	/* size: what was there before, and synced */
static unsigned ndirty;

static int
is_regular(pid_t pid, unsigned long fd, char path[PATH_MAX], off_t *ret_size)
{
	char proc[64];
	struct stat st = { 0 };
	ssize_t n;
	int yes;

	snprintf(proc, sizeof(proc), "/proc/%d/fd/%d", (int)pid, (int)fd);
	n = readlink(proc, path, PATH_MAX - 1);
	path[n < 0 ? 0 : n] = '\0';
	yes = stat(proc, &st) == 0 && S_ISREG(st.st_mode);
	*ret_size = st.st_size;
	return yes;
}

static void
note(pid_t pid, long nr, unsigned long fd)
{
	char path[PATH_MAX];
	unsigned i = 0;
	off_t size;

	if (!is_regular(pid, fd, path, &size))
		return;
	while (i < ndirty && strcmp(dirty[i].path, path) != 0)
		i++;
	if (nr == SYS_fsync || nr == SYS_fdatasync) {
		if (i < ndirty)
			dirty[i] = dirty[--ndirty];
	} else if (i == ndirty && ndirty < DIRTY_MAX) {
		dirty[ndirty].size = size;
		strcpy(dirty[ndirty++].path, path);
	}
}

/* A call that changes a file; its name. */
static const char *
changes(pid_t pid, const struct ptrace_syscall_info *info)
{
	long nr = (long)info->entry.nr;
	char path[PATH_MAX];
	unsigned i = 0;
	off_t size;

	while (i < COUNT(calls) && calls[i].nr != nr)
		i++;
	if (i == COUNT(calls))
		return NULL;
#ifdef SYS_open
	if (nr == SYS_open && (info->entry.args[1] & (O_CREAT | O_TRUNC)) == 0)
		return NULL;
#endif
	if (nr == SYS_openat && (info->entry.args[2] & (O_CREAT | O_TRUNC)) == 0)
		return NULL;
	if ((nr == SYS_write || nr == SYS_pwrite64 || nr == SYS_writev) && !is_regular(pid, info->entry.args[0], path, &size))
		return NULL;
	return calls[i].name;
}

static void
power_cut(int zeros)
{
	for (unsigned i = 0; i < ndirty; i++) {
		struct stat st;

		if (stat(dirty[i].path, &st) < 0 || st.st_size < dirty[i].size)
			continue;
		if (truncate(dirty[i].path, dirty[i].size) < 0 || (zeros && truncate(dirty[i].path, st.st_size) < 0))
			perror(dirty[i].path);
	}
}

/* The path that a call names by a directory's descriptor and a string in its memory. */
static void
path_of(pid_t pid, unsigned long fd, unsigned long at, char path[PATH_MAX])
{
	char proc[64], dir[PATH_MAX], word[8], text[PATH_MAX] = { 0 };
	ssize_t n;

	for (size_t i = 0; i + 8 < sizeof(text); i += 8) {
		errno = 0;
		*(long *)(void *)word = ptrace(PTRACE_PEEKDATA, pid, (void *)(at + i), NULL);
		memcpy(text + i, word, 8);
		if (errno != 0 || memchr(word, '\0', 8) != NULL)
			break;
	}
	snprintf(proc, sizeof(proc), "/proc/%d/fd/%d", (int)pid, (int)fd);
	n = readlink(proc, dir, sizeof(dir) - 1);
	dir[n < 0 ? 0 : n] = '\0';
	snprintf(path, PATH_MAX, "%.2000s/%.2000s", dir, text);
}

static void
forget(const char *path)
{
	for (unsigned i = 0; i < ndirty; i++)
		if (strcmp(dirty[i].path, path) == 0)
			dirty[i--] = dirty[--ndirty];
}

/* What was written under one name may be renamed before it is synced: its content is lost under the other. What was there is gone. */
static void
follow_rename(pid_t pid, const struct ptrace_syscall_info *info)
{
	char from[PATH_MAX], to[PATH_MAX];

	path_of(pid, info->entry.args[0], info->entry.args[1], from);
	path_of(pid, info->entry.args[2], info->entry.args[3], to);
	forget(to);
	for (unsigned i = 0; i < ndirty; i++)
		if (strcmp(dirty[i].path, from) == 0)
			strcpy(dirty[i].path, to);
}

static void
follow_unlink(pid_t pid, const struct ptrace_syscall_info *info)
{
	char path[PATH_MAX];

	path_of(pid, info->entry.args[0], info->entry.args[1], path);
	forget(path);
}

int
main(int argc, char **argv)
{
	int zeros = argc > 1 && strcmp(argv[1], "-z") == 0, power = zeros || (argc > 1 && strcmp(argv[1], "-p") == 0), status;
	unsigned long want = argc > 2 + power ? strtoul(argv[1 + power], NULL, 10) : 0, count = 0;
	const char *last = "-";
	pid_t pid = fork();

	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		execvp(argv[2 + power], argv + 2 + power);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
	for (int sig = 0; ; sig = 0) {
		struct ptrace_syscall_info info;
		const char *name;

		if (WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP && WSTOPSIG(status) != (SIGTRAP | 0x80))
			sig = WSTOPSIG(status);
		if (ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(long)sig) < 0 || waitpid(pid, &status, 0) < 0)
			break;
		if (WIFEXITED(status) || WIFSIGNALED(status))
			break;
		if (WSTOPSIG(status) != (SIGTRAP | 0x80) ||
		    ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info) <= 0 || info.op != PTRACE_SYSCALL_INFO_ENTRY)
			continue;
		name = changes(pid, &info);
		if (name == NULL)
			continue;
		if (++count == want) {
			last = name;
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			if (power)
				power_cut(zeros);
			break;
		}
		if (strncmp(name, "rename", 6) == 0 && info.entry.args[3] != 0)
			follow_rename(pid, &info);
		else if (strcmp(name, "unlinkat") == 0)
			follow_unlink(pid, &info);
		else
			note(pid, (long)info.entry.nr, info.entry.args[0]);
	}
	printf("%lu %s\n", count, last);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}
