/*
 * run-foreground: runs Edgeward's three processes where there is no systemd: containers, other init systems, tests, the
 * demonstration. It does what the units do and no more: directories, the three listeners, users, capabilities, the
 * delegated cgroup, and starting again what has ended. Nothing in the daemons knows who started them.
 *
 * As root every process gets its own user. As an ordinary user all run under that user: no separation between them.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/conf.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/parse.h"
#include "common/policy.h"
#include "packaging/rf.h"
#include "version.h"

#define BACKLOG		16

enum { PRIVHELPER, CONNECTD, LAUNCHER, JOBS };

static struct {
	struct rf_job jobs[JOBS];
	struct rf_cgroup cgroup;
	bool verbose;
	int dirfd;
	uint32_t net_uid, work_uid, pool_first, pool_count, pool_gid, operator_gid;
	const char *conf_opt, *policy_opt, *build;
	char dir[PATH_MAX];		/* what follows is made of it */
	char run[PATH_MAX], state[PATH_MAX], net_state[PATH_MAX], work_state[PATH_MAX], pool[PATH_MAX];
	char conf[PATH_MAX], policy[PATH_MAX], workerd[PATH_MAX], net_arg[16], work_arg[16], pool_arg[48];
	bool lends;			/* privhelper has verbs */
	char l2_arg[4];
	char priv_state[PATH_MAX], usb_arg[768];	/* usb_arg: classes of USB devices that are let in, "" = none are lent */
} self;

__attribute__((format(printf, 2, 3))) static void
form(char path[PATH_MAX], const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(path, PATH_MAX, fmt, ap);
	va_end(ap);
	if (n < 0 || n >= PATH_MAX)
		fatal("a path is too long");
}

/* Makes a directory or takes the one there is, and gives it owner and mode by descriptor. */
static void
make_dir(const char *path, uid_t uid, gid_t gid, mode_t mode)
{
	_cleanup_close_ int fd = -1;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		fatal("cannot make %s: %s", path, strerror(errno));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || (geteuid() == 0 && fchown(fd, uid, gid) < 0) || fchmod(fd, mode) < 0)
		fatal("cannot set up %s: %s", path, strerror(errno));
}

static int
make_listener(const char *name, uid_t uid, gid_t gid, mode_t mode)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int n = snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/%s", self.run, name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (n < 0 || (size_t)n >= sizeof(sun.sun_path))
		fatal("%s/%s is too long for a socket, give a shorter directory", self.run, name);
	unlink(sun.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0 || chmod(sun.sun_path, mode) < 0 ||
	    (geteuid() == 0 && lchown(sun.sun_path, uid, gid) < 0) || listen(fd, BACKLOG) < 0)
		fatal("cannot listen on %s: %s", sun.sun_path, strerror(errno));
	return fd;
}

static void
remove_listeners(void)
{
	static const char *const names[] = { "introduce.sock", "connectd.sock", "workerd.sock", "edgeward.conf",
		"policy.conf" };
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		form(path, "%s/%s", self.run, names[i]);
		unlink(path);
	}
}

/* One line, "FIRST COUNT GID"; without a pool no file, so that none of an earlier start counts. */
static void
write_pool(void)
{
	char text[64];
	int r = 0, n = snprintf(text, sizeof(text), "%u %u %u\n", self.pool_first, self.pool_count, self.pool_gid);

	if (self.pool_count > 0)
		r = fd_replace_file(self.dirfd, "pool", text, (size_t)n, 0644);
	else if (unlinkat(self.dirfd, "pool", 0) < 0 && errno != ENOENT)
		r = -errno;
	if (r < 0)
		fatal("cannot write %s/pool: %s", self.dir, strerror(-r));
}

/* What an option named, from where we are, or name in DIR. The processes run in "/". */
static void
set_file(char path[PATH_MAX], const char *opt, const char *name)
{
	char cwd[PATH_MAX];

	if (opt == NULL)
		form(path, "%s/%s", self.dir, name);
	else if (opt[0] == '/')
		form(path, "%s", opt);
	else if (getcwd(cwd, sizeof(cwd)) != NULL)
		form(path, "%s/%s", cwd, opt);
	else
		fatal("no working directory: %s", strerror(errno));
}

/* For edgectl, which tells what is wrong in it when a daemon does not come up. */
static void
link_file(const char *target, const char *name)
{
	char path[PATH_MAX];

	form(path, "%s/%s", self.run, name);
	unlink(path);
	if (symlink(target, path) < 0)
		fatal("cannot make %s: %s", path, strerror(errno));
}

/* A file that we may read is not yet one that the daemons may: tried as one of them. */
static void
check_readable(const char *path, uint32_t uid, const char *who)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
			_exit(errno);
		_exit(open(path, O_RDONLY | O_CLOEXEC) < 0 && errno != ENOENT ? errno : 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		fatal("cannot look as %s: %s", who, strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fatal("%s cannot be read by %s (uid %u): %s", path, who, uid, strerror(WEXITSTATUS(status)));
}

/* DIR and what hangs below it, the work root of the configuration, and nobody else at work in it. */
static void
set_up(void)
{
	char err[CONF_ERR_SIZE], *real;
	struct conf conf;

	make_dir(self.dir, 0, 0, 0755);
	real = realpath(self.dir, NULL);
	if (real == NULL)
		fatal("%s: %s", self.dir, strerror(errno));
	form(self.dir, "%s", real);
	free(real);
	self.dirfd = open(self.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (self.dirfd < 0 || flock(self.dirfd, LOCK_EX | LOCK_NB) < 0)
		fatal("%s: %s", self.dir, errno == EWOULDBLOCK ? "another run-foreground uses it" : strerror(errno));
	set_file(self.conf, self.conf_opt, "edgeward.conf");
	set_file(self.policy, self.policy_opt, "policy.conf");
	/* As root what it says is done as root: [work] root becomes another user's, whatever it is. */
	if ((geteuid() == 0 ? conf_load_own : conf_load)(&conf, self.conf, err) < 0)
		fatal("%s", err);
	check_readable(self.conf, self.net_uid, "connectd");
	check_readable(self.conf, self.work_uid, "workerd");
	check_readable(self.policy, self.net_uid, "connectd");
	check_readable(self.policy, self.work_uid, "workerd");
	form(self.run, "%s/run", self.dir);
	form(self.state, "%s/state", self.dir);
	form(self.net_state, "%s/state/connectd", self.dir);
	form(self.work_state, "%s/state/workerd", self.dir);
	form(self.pool, "%s/pool", self.dir);
	make_dir(self.run, 0, 0, 0755);
	link_file(self.conf, "edgeward.conf");
	link_file(self.policy, "policy.conf");
	make_dir(self.state, 0, 0, 0755);
	form(self.priv_state, "%s/state/privhelper", self.dir);
	make_dir(self.net_state, self.net_uid, self.net_uid, 0700);
	make_dir(self.work_state, self.work_uid, self.work_uid, 0700);
	if (geteuid() != 0 && access(conf.work_root, W_OK) < 0 && errno == EACCES)
		fatal("%s: [work] root %s is not this user's: it must name a directory that is", self.conf, conf.work_root);
	make_dir(conf.work_root, self.work_uid, self.pool_count > 0 ? self.pool_gid : self.work_uid, 01770);
	write_pool();
}

/* Where the programs are: a build directory, or all beside this one. */
static void
find_programs(void)
{
	static const char *const built[JOBS] = { "privhelper/privhelper", "connectd/connectd", "workerd/launcher/launcher" };
	static const char *const names[JOBS] = { "privhelper", "connectd", "launcher" };
	char here[PATH_MAX] = "";
	ssize_t n = readlink("/proc/self/exe", here, sizeof(here) - 1);
	char *build = self.build != NULL ? realpath(self.build, NULL) : NULL;

	if (n < 0 || (self.build != NULL && build == NULL))
		fatal("%s: %s", self.build != NULL ? self.build : "/proc/self/exe", strerror(errno));
	*strrchr(here, '/') = '\0';
	for (int i = 0; i < JOBS; i++) {
		self.jobs[i].name = names[i];
		form(self.jobs[i].path, "%s/%s", build != NULL ? build : here, build != NULL ? built[i] : names[i]);
	}
	form(self.workerd, "%s/%s", build != NULL ? build : here, build != NULL ? "workerd/workerd" : "workerd");
	free(build);
}

static void
set_args(struct rf_job *job, const char *const *args, size_t n)
{
	job->argv[0] = job->name;
	memcpy(&job->argv[1], args, n * sizeof(args[0]));
	if (self.verbose)
		job->argv[1 + n] = "-v";
}

#define SET_ARGS(job, args)	set_args(job, args, sizeof(args) / sizeof((args)[0]))

/* Devices are lent where the policy says so. One that cannot be read lends nothing; the daemons say what is wrong with it. */
static void
set_usb(void)
{
	static struct policy policy;
	char err[KEYFILE_ERR];
	size_t len = 0;

	if (geteuid() != 0 || policy_load(&policy, self.policy, 0, err) < 0 || (!policy.usb && !policy.l2))
		return;
	self.lends = true;
	snprintf(self.l2_arg, sizeof(self.l2_arg), "%s", policy.l2 ? "yes" : "no");
	for (const char *item = NULL; policy.usb && (item = keyfile_list_next(&policy.usb_classes, item)) != NULL && len < sizeof(self.usb_arg);)
		len += (size_t)snprintf(self.usb_arg + len, sizeof(self.usb_arg) - len, "%s%s", len > 0 ? " " : "", item);
	if (self.pool_count > 0)
		snprintf(self.pool_arg, sizeof(self.pool_arg), "%u %u %u", self.pool_first, self.pool_count, self.pool_gid);
	make_dir(self.priv_state, 0, self.operator_gid, 02750);
	form(self.priv_state, "%s/privhelper", self.run);
	make_dir(self.priv_state, 0, 0, 0700);
}

/* The introduce socket is for the two daemons: owner one, group the other. Operators have the other two. */
static void
set_jobs(void)
{
	const char *const priv[] = { "-r", self.run, "-s", self.state, "-N", self.net_arg, "-W", self.work_arg };
	const char *const lend[] = { "-r", self.run, "-s", self.state, "-u", self.usb_arg, "-l", self.l2_arg, "-P", self.pool_arg, "-N", self.net_arg,
		"-W", self.work_arg };
	const char *const net[] = { "-c", self.conf, "-p", self.policy, "-r", self.run, "-s", self.net_state };
	const char *const work[] = { "-c", self.conf, "-p", self.policy, "-r", self.run, "-s", self.work_state,
		"-P", self.pool, "-w", self.workerd };
	struct rf_job *job = self.jobs;

	snprintf(self.net_arg, sizeof(self.net_arg), "%u", self.net_uid);
	snprintf(self.work_arg, sizeof(self.work_arg), "%u", self.work_uid);
	job[PRIVHELPER].uid = geteuid();
	job[PRIVHELPER].own_net = true;
	job[PRIVHELPER].caps[0] = CAP_NET_ADMIN;
	job[PRIVHELPER].caps[1] = CAP_MKNOD;	/* the nodes of devices that are lent */
	job[PRIVHELPER].caps[2] = CAP_CHOWN;
	job[PRIVHELPER].ncaps = self.usb_arg[0] != '\0' ? 3 : 1;
	job[PRIVHELPER].listener = make_listener("introduce.sock", self.net_uid, self.work_uid, 0660);
	if (self.lends)
		SET_ARGS(&job[PRIVHELPER], lend);
	else
		SET_ARGS(&job[PRIVHELPER], priv);
	job[CONNECTD].uid = self.net_uid;
	job[CONNECTD].listener = make_listener("connectd.sock", 0, self.operator_gid, 0660);
	SET_ARGS(&job[CONNECTD], net);
	job[LAUNCHER].uid = self.work_uid;
	job[LAUNCHER].caps[0] = CAP_SETUID;
	job[LAUNCHER].caps[1] = CAP_SETGID;
	job[LAUNCHER].ncaps = self.pool_count > 0 ? 2 : 0;	/* nobody makes a pool here later */
	job[LAUNCHER].in_cgroup = true;
	job[LAUNCHER].listener = make_listener("workerd.sock", 0, self.operator_gid, 0660);
	SET_ARGS(&job[LAUNCHER], work);
}

#define USAGE	"usage: run-foreground -d DIR [-hvV] [-c CONF] [-p POLICY] [-b BUILDDIR] [--net-uid N] [--work-uid N]\n" \
		"           [--pool FIRST:COUNT] [--pool-gid N] [--operator-gid N]\n"

static const char help[] = USAGE
    "\n"
    "Runs privhelper, connectd and launcher where there is no systemd, writes their log to its stderr and stops them all when\n"
    "it is stopped (Ctrl-C). In DIR it makes run/ (the sockets), state/, pids and pool.\n"
    "\n"
    "  -d DIR               where all this lies\n"
    "  -c CONF              the configuration; default DIR/edgeward.conf, see edgeward.conf(5)\n"
    "  -p POLICY            the policy; default DIR/policy.conf, which may be missing; see policy.conf(5)\n"
    "  -b BUILDDIR          take the programs from a build directory; default those beside run-foreground\n"
    "  -v                   log for developers, too\n"
    "  -V                   print the version;  -h, --help  this text\n"
    "As root, for processes and workloads each under its own user (numeric ids that nobody uses):\n"
    "  --net-uid N          connectd\n"
    "  --work-uid N         launcher and workerd\n"
    "  --pool FIRST:COUNT   workloads; --pool-gid N their group. Without it all run as --work-uid\n"
    "  --operator-gid N     the group that may use edgectl; default root alone\n"
    "\n"
    "Look at it with: edgectl -r DIR/run status. Exit codes: 0 asked to stop, 1 could not go on, 2 wrong usage.\n";

_Noreturn static void
usage(void)
{
	fputs(USAGE "run-foreground --help tells more\n", stderr);
	exit(2);
}

static uint32_t
id_arg(const char *s)
{
	uint32_t v;

	if (parse_u32(s, 0, UINT32_MAX - 1, &v) < 0)
		usage();
	return v;
}

static void
pool_arg(char *s)
{
	char *colon = strchr(s, ':');

	if (colon == NULL)
		usage();
	*colon = '\0';
	self.pool_first = id_arg(s);
	if (parse_u32(colon + 1, 1, 65536, &self.pool_count) < 0 || self.pool_first == 0)
		usage();
}

static void
parse_args(int argc, char **argv)
{
	enum { NET = 256, WORK, POOL, POOL_GID, OPERATOR_GID };
	static const struct option options[] = {
		{ "net-uid", required_argument, NULL, NET }, { "work-uid", required_argument, NULL, WORK },
		{ "pool", required_argument, NULL, POOL }, { "pool-gid", required_argument, NULL, POOL_GID },
		{ "operator-gid", required_argument, NULL, OPERATOR_GID }, { "help", no_argument, NULL, 'h' }, { 0 },
	};
	int opt;

	self.net_uid = self.work_uid = geteuid();
	while ((opt = getopt_long(argc, argv, "d:c:p:b:hvV", options, NULL)) != -1) {
		switch (opt) {
		case 'd': form(self.dir, "%s", optarg); break;
		case 'c': self.conf_opt = optarg; break;
		case 'p': self.policy_opt = optarg; break;
		case 'b': self.build = optarg; break;
		case 'h': fputs(help, stdout); exit(0);
		case 'v': self.verbose = true; break;
		case 'V': puts("run-foreground " EDGEWARD_VERSION); exit(0);
		case NET: self.net_uid = id_arg(optarg); break;
		case WORK: self.work_uid = id_arg(optarg); break;
		case POOL: pool_arg(optarg); break;
		case POOL_GID: self.pool_gid = id_arg(optarg); break;
		case OPERATOR_GID: self.operator_gid = id_arg(optarg); break;
		default: usage();
		}
	}
	if (optind != argc || self.dir[0] == '\0')
		usage();
}

/* Ids are only ours to give as root, and then nothing but privhelper may stay root. */
static void
check_ids(void)
{
	if (geteuid() != 0 && (self.net_uid != geteuid() || self.work_uid != geteuid() || self.pool_count > 0))
		fatal("--net-uid, --work-uid and --pool need root");
	if (geteuid() == 0 && (self.net_uid == 0 || self.work_uid == 0 || self.net_uid == self.work_uid))
		fatal("as root give --net-uid and --work-uid: two numeric ids that nobody uses, neither of them 0");
	if (self.pool_count > 0 && self.pool_gid == 0)
		fatal("--pool needs --pool-gid");
	if (geteuid() != 0)
		log_warn("not root: all processes and all work run as uid %u, with no separation between them", geteuid());
}

int
main(int argc, char **argv)
{
	sigset_t stop;
	int r;

	log_init("run-foreground", LOG_LEVEL_INFO);
	parse_args(argc, argv);
	check_ids();
	umask(022);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);	/* ignored, as a careless parent leaves it, there would be nobody to wait for */
	/* From here on there is something to remove: a stop waits for the loop. */
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGINT);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	set_up();
	find_programs();
	set_usb();
	set_jobs();
	r = rf_cgroup_find(&self.cgroup, self.work_uid);
	if (r < 0)
		log_warn("no cgroup v2 here: %s", strerror(-r));
	r = rf_supervise(self.jobs, JOBS, &self.cgroup, self.dirfd);
	remove_listeners();
	if (r < 0)
		fatal("event loop: %s", strerror(-r));
	return 0;
}
