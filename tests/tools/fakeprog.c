/*
 * Stands in for every program of a release in tests of privupgrade. What it is and does is the last line of its own file, put behind the
 * ELF image: "EDGEWARD-FAKE NAME VERSION BEHAVIOUR". Compiled by the tests themselves, small and without sanitizers.
 *
 * -V and -n: as the real ones, or as BEHAVIOUR says. edgectl -r DIR probe: prints DIR/probe, with the pid of the workerd that runs. Anything
 * else: a daemon. The launcher starts workerd from the directory of `current`, and again when it ends.
 */
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char name[64], version[64], behaviour[64];

static void
read_trailer(void)
{
	FILE *f = fopen("/proc/self/exe", "r");
	char buf[256] = { 0 }, *p = NULL;

	if (f == NULL || fseek(f, -200, SEEK_END) < 0 || fread(buf, 1, 200, f) != 200)
		exit(9);
	for (char *s = buf; s < buf + 186; s++)
		if (memcmp(s, "EDGEWARD-FAKE ", 14) == 0)
			p = s;
	if (p == NULL || sscanf(p, "EDGEWARD-FAKE %63s %63s %63s", name, version, behaviour) != 3)
		exit(9);
	fclose(f);
}

static int
is(const char *what)
{
	return strcmp(behaviour, what) == 0;
}

static void
self_test(const char *option)
{
	if (is("segv"))
		raise(SIGSEGV);
	if (is("sigill"))
		raise(SIGILL);
	if (is("sigsys"))
		raise(SIGSYS);
	if (is("hang"))
		pause();
	if (is("fork") && fork() == 0)
		pause();
	while (is("flood"))
		puts("x");
	if (is("exit1"))
		exit(1);
	if (option[1] == 'n' && is("badconf"))
		exit(1);
	if (option[1] == 'n' && is("write"))
		exit(fopen("/var/lib/fakeprog-was-here", "w") == NULL && getuid() != 0 && setuid(0) < 0 ? 0 : 1);
	if (option[1] == 'V')
		printf("%s %s\n", name, is("liar") ? "9.9.9" : version);
	exit(0);
}

static void
probe(const char *dir)
{
	char path[512], line[512], pid[32] = "0";
	FILE *f;

	snprintf(path, sizeof(path), "%s/workerd.pid", dir);
	f = fopen(path, "r");
	if (f != NULL && fscanf(f, "%31s", pid) == 1)
		fclose(f);
	snprintf(path, sizeof(path), "%s/probe", dir);
	f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, "workerd-pid ", 12) == 0)
			printf("workerd-pid %s\n", pid);
		else
			fputs(line, stdout);
	exit(f == NULL);
}

/* As sd_notify(3) has it. */
static void
say_ready(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	size_t len = path != NULL ? strlen(path) : 0;

	if (fd < 0 || len == 0 || len >= sizeof(sun.sun_path))
		return;
	memcpy(sun.sun_path, path, len);
	if (path[0] == '@')
		sun.sun_path[0] = '\0';
	if (sendto(fd, "READY=1", 7, 0, (struct sockaddr *)&sun, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		perror("NOTIFY_SOCKET");
}

static void
launch(const char *current, const char *rundir)
{
	char path[512];

	for (;;) {
		pid_t pid = fork();
		FILE *f;

		if (pid == 0) {
			snprintf(path, sizeof(path), "%s/workerd", current);
			execl(path, path, "daemon", current, rundir, (char *)NULL);
			_exit(1);
		}
		snprintf(path, sizeof(path), "%s/workerd.pid", rundir);
		f = fopen(path, "w");
		fprintf(f, "%d\n", (int)pid);
		fclose(f);
		waitpid(pid, NULL, 0);
		usleep(50000);
	}
}

int
main(int argc, char **argv)
{
	read_trailer();
	if (argc == 2 && argv[1][0] == '-')
		self_test(argv[1]);
	if (argc >= 4 && strcmp(argv[3], "probe") == 0)
		probe(argv[2]);
	if (is("crash"))
		return 1;
	if (is("crash-later")) {
		usleep(1500000);
		return 1;
	}
	if (is("mute"))
		say_ready();
	signal(SIGTERM, is("stubborn") ? SIG_IGN : SIG_DFL);
	if (strcmp(name, "launcher") == 0 && argc == 4)
		launch(argv[2], argv[3]);
	for (;;)
		pause();
}
