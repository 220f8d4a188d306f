/*
 * workerd: decides about workloads, owns their output and their records. Started by the launcher, which holds their
 * processes: descriptor 3 is the channel to it, descriptor 4 the listener of workerd.sock.
 *
 * What is trusted: configuration and policy (root's files, read before the sandbox closes), the launcher. What is not:
 * connectd, workinit, every operator's client. On error at start: one line and exit 1. It may be killed at any moment: its
 * state is in the records, which the launcher hands to the next one.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "common/cgroup.h"
#include "common/log.h"
#include "common/sandbox.h"
#include "common/trim.h"
#include "version.h"
#include "workerd/account.h"
#include "workerd/admit.h"
#include "workerd/control.h"
#include "workerd/launchchan.h"
#include "workerd/leases.h"
#include "workerd/output.h"
#include "workerd/privchan.h"
#include "workerd/pulse.h"
#include "workerd/sandbox.h"
#include "workerd/result.h"
#include "workerd/spill.h"
#include "workerd/sweep.h"
#include "workerd/workchan.h"

#define LAUNCHER	3
#define LISTENER	4
#define USAGE	"usage: workerd [-hnvV] [-c conf] [-p policy] [-r rundir] [-s statedir]\n"

static const char help[] = USAGE
    "\n"
    "workerd is the part of Edgeward that decides about workloads and holds their output. launcher starts it and starts\n"
    "it again; by hand it is good for one thing, to look over what you have written: workerd -n\n"
    "\n"
    "  -n        check configuration and policy; the first mistake is told with file and line; exit code 0 or 1\n"
    "  -c FILE   the configuration; default /etc/edgeward/edgeward.conf, see edgeward.conf(5)\n"
    "  -p FILE   the policy; default /etc/edgeward/policy.conf, see policy.conf(5)\n"
    "  -r DIR    where the sockets are; default /run/edgeward\n"
    "  -s DIR    its state; default /var/lib/edgeward/workerd\n"
    "  -v        log for developers, too\n"
    "  -V        print the version;  -h, --help  this text\n"
    "\n"
    "What runs: edgectl workloads. Exit codes: 0 asked to stop, 1 could not go on, 2 wrong usage. More: workerd(8).\n";

struct options {
	const char *statedir;
	bool only_check, verbose;
};

static struct workerd self;

static int
read_conf(struct conf *conf, char err[CONF_ERR_SIZE])
{
	int r = conf_load(conf, self.conf_file, err);

	if (r < 0)
		return r;
	if (conf->work_root[0] != '/')
		snprintf(err, CONF_ERR_SIZE, "%s: [work] root must be an absolute path", self.conf_file);
	else if (!launch_show_ok(conf->work_show))
		snprintf(err, CONF_ERR_SIZE, "%s: [work] show must be absolute paths without \"..\", one space between two", self.conf_file);
	else {
		launch_show_order(conf->work_show);
		return 0;
	}
	return -EINVAL;
}

static void
load(const struct options *o)
{
	char err[CONF_ERR_SIZE];

	if (read_conf(&self.conf, err) < 0)
		fatal("%s", err);
	log_set_level(o->verbose ? LOG_LEVEL_DEBUG : self.conf.log_level);
	if (policy_open(&self.policy, self.policy_file, o->only_check ? geteuid() : policy_owner(self.rundir)) == 0)
		return;
	if (o->only_check)
		fatal("%s", self.policy.problem);
	log_error("%s; nothing is started until that is put right", self.policy.problem);
}

/* What is told to the hub of this machine, as far as the kernel can be asked before the sandbox closes. */
static void
find_caps(void)
{
	struct sysinfo si;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	self.caps.cpus = cpus > 0 ? (uint32_t)cpus : 1;
	self.slots = self.conf.work_slots != 0 ? self.conf.work_slots : self.caps.cpus;
	if (self.policy.slots != 0 && self.slots > self.policy.slots)
		self.slots = self.policy.slots;
	self.caps.slots = self.slots;
	if (cgroup_disk(self.conf.work_root, &self.disk_major, &self.disk_minor) < 0)
		self.disk_major = self.disk_minor = 0;
	if (sysinfo(&si) == 0)
		self.caps.memory_kb = (uint64_t)si.totalram * si.mem_unit / 1024;
	snprintf(self.caps.work_root, sizeof(self.caps.work_root), "%.*s", (int)sizeof(self.caps.work_root) - 1,
	    self.ids.configured);
}

static void
remember(const struct journal_record *rec, void *ctx)
{
	struct journal_record *p = reallocarray(self.from_journal, self.nfrom_journal + 1, sizeof(*p));

	if (p == NULL)
		fatal("out of memory");
	self.from_journal = p;
	p[self.nfrom_journal++] = *rec;
}

static void
open_directories(const char *statedir)
{
	int fd, r = ids_init(&self.ids, self.conf.work_root);

	if (r < 0)
		fatal("work root %s: %s", self.conf.work_root, strerror(-r));
	fd = open(statedir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		fatal("state directory %s: %s", statedir, strerror(errno));
	owners_init(&self.owners, fd);
	eventlog_open(&self.events, fd);
	eventlog_add(&self.events, "start", "", "workerd %s", EDGEWARD_VERSION);
	spill_open(&self, fd);
	result_open(&self, fd);
	account_open(&self);
	r = journal_open(&self.journal, fd, remember, NULL);
	if (r == 1)
		log_error("%s/journal was damaged: a copy is kept as journal.bad.0, what was good in it goes on", statedir);
	else if (r < 0)
		log_error("%s/journal: %s: starts are refused until it can be written", statedir, strerror(-r));
}

/* A new workerd reads what is there now and takes all work back: this one goes when the new one will be able to. */
static void
reload(void)
{
	static struct conf conf;
	static struct policy policy;

	if (read_conf(&conf, self.policy.problem) == 0 &&
	    policy_load(&policy, self.policy_file, policy_owner(self.rundir), self.policy.problem) == 0) {
		log_info("configuration and policy are read again by a new workerd");
		self.reloading = true;
		loop_stop(self.loop);
		return;
	}
	log_error("%s; what was in force before stays in force", self.policy.problem);
	eventlog_add(&self.events, "reload", "refused", "%s", self.policy.problem);
}

static void
on_signal(int signo, void *ctx)
{
	if (signo == SIGHUP) {
		reload();
		return;
	}
	spill_all(&self);
	loop_stop(self.loop);
}

static void
open_channels(void)
{
	struct stat st;
	sigset_t mask;
	int r = loop_new(&self.loop);

	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	if (r == 0)
		r = loop_signals(self.loop, &mask, on_signal, NULL);
	if (r == 0 && fstat(LISTENER, &st) == 0 && S_ISSOCK(st.st_mode))
		r = control_open(&self, LISTENER);
	if (r == 0)
		r = launchchan_open(&self, LAUNCHER);
	if (r < 0)
		fatal("cannot start (the launcher starts me): %s", strerror(-r));
	output_start(&self);
	pulse_start(self.loop);
}

static void
run(const struct options *o)
{
	struct rlimit nofile;
	int r;

	umask(077);
	signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &nofile) == 0) {
		nofile.rlim_cur = nofile.rlim_max;
		setrlimit(RLIMIT_NOFILE, &nofile);
		self.undelivered_max = nofile.rlim_max / ADMIT_FDS_EACH < ADMIT_UNDELIVERED_MAX ?
		    (uint32_t)(nofile.rlim_max / ADMIT_FDS_EACH) : ADMIT_UNDELIVERED_MAX;
	}
	self.since = monotime_now();
	self.control.fd = -1;
	open_directories(o->statedir);
	find_caps();
	inventory_init(&self.inventory);
	devices_init(&self);
	l2_init(&self);
	container_init(&self);
	if (sweep_init(&self) < 0)
		fatal("out of memory");
	open_channels();
	r = sandbox_enter(o->statedir, self.conf_file, self.policy_file);
	if (r < 0)
		fatal("sandbox: %s%s", strerror(-r), r == -EPERM ? " (must not run as root)" : "");
	trim_memory();	/* what the filter was made in */
	if (r == 0)
		log_warn("this kernel has no Landlock: seccomp alone confines workerd");
	r = loop_run(self.loop);
	if (r < 0)
		fatal("event loop: %s", strerror(-r));
}

int
main(int argc, char **argv)
{
	struct options o = { "/var/lib/edgeward/workerd", false, false };
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	int opt;

	opterr = 0;
	self.rundir = "/run/edgeward";
	self.conf_file = CONF_FILE;
	self.policy_file = "/etc/edgeward/policy.conf";
	self.pool_file = "/etc/edgeward/pool";
	while ((opt = getopt_long(argc, argv, "hnvVc:p:r:s:P:w:", longs, NULL)) != -1) {
		switch (opt) {
		case 'h': return fputs(help, stdout) < 0;
		case 'n': o.only_check = true; break;
		case 'v': o.verbose = true; break;
		case 'V': return puts("workerd " EDGEWARD_VERSION) < 0;
		case 'c': self.conf_file = optarg; break;
		case 'p': self.policy_file = optarg; break;
		case 'r': self.rundir = optarg; break;
		case 's': o.statedir = optarg; break;
		case 'P': self.pool_file = optarg; break;	/* the launcher's, who passes on what it was given */
		case 'w':
			break;
		default:
			fputs(USAGE, stderr);
			return 2;
		}
	}
	if (optind != argc) {
		fputs(USAGE, stderr);
		return 2;
	}
	log_init("workerd", o.verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
	load(&o);
	if (o.only_check)
		return 0;
	run(&o);
	attach_done(&self);
	devices_done(&self);
	l2_done(&self);
	sweep_done(&self);
	privchan_done(&self);
	workchan_done(&self);
	control_done(&self);
	workloads_done(&self);
	leases_done(&self);
	record_spares_done(&self.spares);
	spill_close(&self);
	journal_close(&self.journal);
	ipc_chan_done(&self.launcher);
	loop_free(self.loop);
	return self.exit_code;
}
