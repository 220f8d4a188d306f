/* The list, and the two processes: one that checks, one that prints and looks at the clock. */
#include "edgectl/doctor/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/monotime.h"

#define ENV_TEXT	16384
#define LOOKS		6		/* at daemons that do not answer in time */
#define STEP_DONE	UINT32_MAX	/* state of a record that ends a step */

static const struct {
	const char *name;
	void (*run)(struct doctor *d);
} steps[] = {
	{ "ask", step_start },
	{ "configuration", step_config },
	{ "files", step_files },
	{ "clock", step_clock },
	{ "route", step_route },
	{ "network", step_network },
	{ "identity", step_identity },
	{ "disk", step_disk },
	{ "cgroup", step_cgroup },
	{ "kernel", step_kernel },
	{ "lent", step_lent },
	{ "accounts", step_accounts },
	{ "pool", step_pool },
	{ "units", step_units },
	{ "processes", step_processes },
	{ "keys", step_keys },
	{ "upgrades", step_upgrade },
};
#define NSTEPS	(sizeof(steps) / sizeof(steps[0]))

const char *
doctor_step(unsigned i)
{
	return i < NSTEPS ? steps[i].name : NULL;
}

static void
start_checks(struct doctor *d)
{
	static char connectd[PATH_MAX], workerd[PATH_MAX];
	const char *const net[] = { connectd, "-n", "-c", d->conf_path, "-p", d->policy_path, NULL };
	const char *const work[] = { workerd, "-n", "-c", d->conf_path, "-p", d->policy_path, NULL };
	struct child_spec spec = { .argv = net, .uid = d->net_uid, .gid = d->net_gid, .errors_too = true };

	d->check_net = d->check_work = (struct child){ .fd = -1, .status = -1 };
	if (doctor_program("connectd", connectd, sizeof(connectd)))
		child_start(&d->check_net, &spec);
	spec.argv = work;
	spec.uid = spec.gid = d->work_uid;
	if (doctor_program("workerd", workerd, sizeof(workerd)))
		child_start(&d->check_work, &spec);
}

static void
start_probe(struct doctor *d)
{
	static char program[PATH_MAX], state[PATH_MAX + 16], floor[24], text[ENV_TEXT];
	const char *env[PROXYENV_MAX + 1];
	const char *argv[] = { program, "-c", d->conf_path, "-s", state, "-u", d->view.net.hub, "-f", floor, NULL };
	/* Where connectd's user cannot be told, nobody's does as well: never root. */
	const struct child_spec spec = { .argv = argv, .env = env, .uid = d->net_uid != 0 ? d->net_uid : NOBODY,
		.gid = d->net_uid != 0 ? d->net_gid : NOBODY };

	d->probe = (struct child){ .fd = -1, .status = -1 };
	snprintf(state, sizeof(state), "%s/connectd", d->state);
	snprintf(floor, sizeof(floor), "%" PRId64, d->view.net.clock_floor / 1000000000);
	if (!d->view.net_up || d->view.net.clock_floor <= 0)
		argv[7] = NULL;		/* the probe takes the build's */
	proxyenv_find(d, text, sizeof(text), env);
	if (doctor_program("netprobe", program, sizeof(program)))
		child_start(&d->probe, &spec);
	explicit_bzero(text, sizeof(text));
}

static void
start_systemctl(struct doctor *d)
{
	static const char *argv[] = { NULL, "show", "--no-pager", "--property=Id,LoadState,ActiveState,SubState,UnitFileState,"
		"NeedDaemonReload,Delegate,DropInPaths,NRestarts", "edgeward-connectd.service", "edgeward-workerd.service",
		"edgeward-privhelper.service", "edgeward-connectd.socket", "edgeward-workerd.socket", "edgeward-introduce.socket",
		"edgeward-upgrade.path", NULL };
	const struct child_spec spec = { .argv = argv, .errors_too = true };

	d->units_show = (struct child){ .fd = -1, .status = -1 };
	argv[0] = child_find("systemctl");
	if (d->systemd && argv[0] != NULL)
		child_start(&d->units_show, &spec);
}

/* The daemons first, since the probe is told what they know; then all programs at once, in the time that is left. */
void
step_start(struct doctor *d)
{
	struct child *all[] = { &d->probe, &d->check_net, &d->check_work, &d->units_show };
	monotime_t deadline = monotime_add_ms(monotime_now(), DOCTOR_CHILDREN_MS);
	char err[CONF_ERR_SIZE];

	d->conf_ok = conf_load(&d->conf, d->conf_path, err) == 0;
	/* status has to be quick; here a device that is busy gets the time to answer. */
	for (int i = 0; i < LOOKS; i++) {
		status_look(d->ctl, &d->view);
		if (d->view.connectd.error != -ETIMEDOUT && d->view.workerd.error != -ETIMEDOUT)
			break;
	}
	start_checks(d);
	start_systemctl(d);
	start_probe(d);
	child_wait(all, 4, deadline);
	if (d->probe.len == sizeof(d->net))
		memcpy(&d->net, d->probe.out, sizeof(d->net));
	if (d->probe.len != sizeof(d->net) || !ipc_str_ok(d->net.code, sizeof(d->net.code)) ||
	    !ipc_str_ok(d->net.detail, sizeof(d->net.detail)) || memchr(d->net.hub, '\0', sizeof(d->net.hub)) == NULL ||
	    memchr(d->net.proxy, '\0', sizeof(d->net.proxy)) == NULL || memchr(d->net.peer, '\0', sizeof(d->net.peer)) == NULL ||
	    d->net.stage > NETPROBE_DONE)
		d->net.magic = 0;
}

/* ---- the two processes ---- */

static void
send_record(const struct check *check, void *ctx)
{
	if (fd_write_all(*(const int *)ctx, check, sizeof(*check)) < 0)
		_exit(EXIT_FAILED);
}

void
doctor_run(struct doctor *d)
{
	const struct check done = { .state = STEP_DONE };

	for (size_t i = 0; i < NSTEPS; i++) {
		steps[i].run(d);
		d->emit(&done, d->ctx);
	}
}

/* Whatever has not come by then is told as not known: a file system that hangs, most of all. */
static void
give_up(struct report *r, size_t step)
{
	struct check c = { .state = CHECK_FAIL, .cause = "timeout", .command = "dmesg | tail; mount" };

	snprintf(c.name, sizeof(c.name), "%s", steps[step].name);
	snprintf(c.detail, sizeof(c.detail), "this check did not come to an end in %d s; those behind it were not made", DOCTOR_TOTAL_MS / 1000);
	report_add(r, &c);
	for (size_t i = step + 1; i < NSTEPS; i++) {
		c = (struct check){ .state = CHECK_SKIPPED };
		snprintf(c.name, sizeof(c.name), "%s", steps[i].name);
		snprintf(c.detail, sizeof(c.detail), "not reached: %s did not come to an end", steps[step].name);
		report_add(r, &c);
	}
}

/* One record, or 0 when the time is up or the other process has ended. */
static int
next_record(int fd, monotime_t deadline, struct check *c)
{
	size_t len = 0;

	while (len < sizeof(*c)) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int64_t ms = monotime_diff_ms(deadline, monotime_now());
		ssize_t n;

		if (ms <= 0 || poll(&p, 1, (int)ms) == 0)
			return 0;
		n = read(fd, (char *)c + len, sizeof(*c) - len);
		if (n == 0 || (n < 0 && errno != EINTR))
			return 0;
		len += n > 0 ? (size_t)n : 0;
	}
	return 1;
}

static int
show(int fd, pid_t pid, bool json)
{
	monotime_t deadline = monotime_add_ms(monotime_now(), DOCTOR_TOTAL_MS);
	struct report report;
	struct check c;
	size_t step = 0;

	report_begin(&report, json);
	while (step < NSTEPS && next_record(fd, deadline, &c)) {
		if (c.state == STEP_DONE)
			step++;
		else if (check_valid(&c))
			report_add(&report, &c);
	}
	if (step < NSTEPS)
		give_up(&report, step);
	/* It cannot be waited for while the kernel holds it; it ends with its call. */
	kill(pid, SIGKILL);
	waitpid(pid, NULL, step < NSTEPS ? WNOHANG : 0);
	return report_end(&report);
}

static int
doctor_main(struct edgectl *ctl, const struct doctor_options *o)
{
	static struct doctor d;
	int p[2];
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return EXIT_FAILED;
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return EXIT_FAILED;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		signal(SIGPIPE, SIG_IGN);
		d = (struct doctor){ .root = "", .emit = send_record, .ctx = &p[1] };
		doctor_find(&d, ctl, o);
		doctor_run(&d);
		_exit(EXIT_OK);
	}
	close(p[1]);
	return show(p[0], pid, ctl->json);
}

int
cmd_doctor(struct edgectl *ctl, int argc, char **argv)
{
	struct doctor_options o = { 0 };
	int c;

	optind = 0;
	while ((c = getopt(argc, argv, "+c:p:s:P:")) != -1) {
		switch (c) {
		case 'c': o.conf = optarg; break;
		case 'p': o.policy = optarg; break;
		case 's': o.state = optarg; break;
		case 'P': o.pool = optarg; break;
		default: return usage_error("doctor", "there is no such option");
		}
	}
	if (optind != argc)
		return usage_error("doctor", "takes no arguments");
	return doctor_main(ctl, &o);
}
