/*
 * edgectl: the operator's tool. It talks to connectd and workerd over their control sockets, each for itself, so that it
 * tells the truth while any process is down. It holds no state, needs no configuration and never waits without a bound.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/near.h"
#include "edgectl/edgectl.h"
#include "edgectl/watch.h"
#include "version.h"

static int cmd_help(struct edgectl *ctl, int argc, char **argv);

static const struct command {
	const char *name;
	int (*run)(struct edgectl *ctl, int argc, char **argv);
	const char *arguments;
	const char *summary;
	const char *more;	/* for help COMMAND; NULL where the summary says it all */
} commands[] = {
	{ "status", cmd_status, "", "all processes, the link, identity, work; exit code 3 unless all is well",
	    "Each daemon answers for itself, so it tells the truth while any of them is down. Trouble stands in capitals, with its\n"
	    "cause and the next step; \"cause\" of the link has a stable code first. -j prints the same as JSON." },
	{ "workloads", cmd_workloads, "", "what runs here, and what has ended and is not yet reported",
	    "HANDLE is what logs and signal take." },
	{ "top", cmd_top, "[-n LOOKS] [-d SECONDS]", "workloads with processor, memory and rate of output",
	    "On a terminal it goes on until it is interrupted; else it looks once (-n). CPU is of one processor, over the time between\n"
	    "two looks (-d, default 2)." },
	{ "events", cmd_events, "[-f]", "what happened here: links, workloads, refusals, commands; -f follows",
	    "connectd and workerd each keep the last few hundred, also over restarts. Lines: time, who tells it, event, subject, text." },
	{ "metrics", cmd_metrics, "[--listen 127.0.0.1:PORT|[::1]:PORT|unix:PATH]", "figures as OpenMetrics text, for Prometheus",
	    "--listen serves /metrics, /healthz (the daemons answer) and /readyz (and the link is connected) until it is ended; the unit\n"
	    "edgeward-metrics.service does it, and is off unless it is enabled." },
	{ "logs", cmd_logs, "HANDLE [-f] [--from OFFSET]\n       edgectl [options] logs verify HANDLE",
	    "output of a workload as far as it is held; -f follows it; verify: its digest",
	    "The hub keeps the whole log; this device holds what the hub has not acknowledged, 1 MiB in memory unless [work] retain\n"
	    "says otherwise, and what [work] spool allows on disk. A gap is told on stderr.\n"
	    "verify reads all that is held and compares its digest with the one counted while it was produced: exit code 0 verified,\n"
	    "1 mismatch, 3 not provable here (a part is with the hub already, the workload runs, or the digest was lost)." },
	{ "signal", cmd_signal, "HANDLE INT|TERM|KILL", "send a signal to a workload",
	    "KILL ends its whole tree of processes at once." },
	{ "attach", cmd_attach, "HANDLE [--read-only] [-T] [-- COMMAND [ARGUMENT ...]]", "a process inside a workload, with this terminal",
	    "A shell unless COMMAND is given, in the workload's directory, limits and sandbox; of its variables it has PATH and HOME.\n"
	    "--read-only: it reads nothing. -T: without a terminal. At the beginning of a line ~. leaves, and what was started ends;\n"
	    "~^Z suspends. policy.conf, [attach] decides; each session is an event. The exit code is the command's; 255: not known." },
	{ "drain", cmd_drain, "", "take no new work",
	    "What runs goes on. It holds until undrain, also over restarts." },
	{ "undrain", cmd_undrain, "", "take work again", NULL },
	{ "devices", cmd_devices, "", "forwarded devices, who leases each, and which ports are free",
	    "The devices a hub has forwarded to this one, with the run that leases each and the nodes it sees below /dev/edgeward;\n"
	    "the interfaces it has joined to a segment; how many virtual USB ports are free, or why none can be lent here." },
	{ "policy", cmd_policy, "[test START|-] | usb-classes [FILE] | l2 [FILE]", "what a hub may do here, and where that stands; would this start be taken",
	    "Without more: every key of policy.conf with its value and line, as workerd has it in force. test takes what a hub\n"
	    "would send, as JSON, and tells whether it would be started now, and why not; nothing is started:\n"
	    "  edgectl policy test '{\"spec\": {\"argv\": [\"/usr/bin/make\"]}}'\n"
	    "usb-classes and l2 read the file itself and print what privhelper is started with." },
	{ "reconnect", cmd_reconnect, "", "dial the hub now",
	    "Ends the wait for the next attempt; a connection that is up is made anew. Work goes on." },
	{ "enroll", cmd_enroll, "--token-file FILE|- [--url URL] [--pin PIN] [--name NAME] [--replace]\n"
	    "       edgectl [options] enroll --bundle-file FILE|- [--name NAME] [--replace]", "give this device an identity at a hub",
	    "Get a token at the hub (edgehub token create --name NAME), put it into a file only root can read or pipe it in; it is\n"
	    "never given on the command line, where every user can read it. With --bundle-file the hub's address and pin come\n"
	    "along (edgehub token create --bundle).\n"
	    "  --url URL     the hub, when [hub] url in edgeward.conf does not name it\n"
	    "  --pin PIN     sha256:... of the hub's key, as the hub shows it; checked in addition to its certificate\n"
	    "  --name NAME   what the hub shall call this device\n"
	    "  --replace     give up the identity this device has, for example after the hub revoked it; work of that identity is\n"
	    "                told to end" },
	{ "upgrade", cmd_upgrade, "FILE [--downgrade] [--settle SECONDS] [--no-wait] [--state DIR]\n"
	    "       edgectl [options] upgrade --check [FILE] | --cancel | --history [--state DIR]", "install a release, on trial",
	    "The release must be signed by a key in /etc/edgeward/keys; privupgrade(8) verifies it, runs it on trial and goes back by\n"
	    "itself when the trial fails. Work goes on meanwhile. Only root may do that.\n"
	    "  --downgrade   the sequence may be lower than that of what runs\n"
	    "  --settle N    how many seconds it must be healthy\n"
	    "  --no-wait     do not wait for the end\n"
	    "  --check       what is in force and under way, or whether FILE would be taken\n"
	    "  --cancel      take a queued upgrade back, or end a trial\n"
	    "  --history     the last upgrades and refusals" },
	{ "probe", cmd_probe, "[ADDRESS:PORT]", "what privupgrade(8) asks during a trial; not for scripts", NULL },
	{ "audit", cmd_audit, "[verify] [-f FILE]", "what was done with root's power; verify: whether the record is whole",
	    "Every attach and detach of a device: who asked, what, and what came of it. Each line carries the digest of the one before;\n"
	    "verify prints the last one, to be compared with one that was noted elsewhere, and fails where the last one that workerd was\n"
	    "told of is not in the record. A copy (-f) is compared with that only where -r names the daemons." },
	{ "doctor", cmd_doctor, "[-c CONF] [-p POLICY] [-s STATEDIR] [-P POOLFILE]",
	    "every part of this installation in order; each fault with its cause and a command to try",
	    "Configuration, files, clock, the way to the hub (name, proxy, TLS, upgrade), identity, disk, cgroups, the kernel,\n"
	    "accounts, units, processes, release keys. It needs no daemon, changes nothing, ends within 10 s, and says what this\n"
	    "user may not see. The exit code is 1 when a check failed, 3 when one is to be looked at. What it looks at follows\n"
	    "from -r; -c, -p, -s (the directory above connectd/ and workerd/) and -P name other places." },
	{ "support", cmd_support, "bundle FILE", "doctor, status, configuration and journal without secrets, in one tar, to ask for help",
	    "FILE must not exist and gets mode 0600. Tokens, credentials and passwords are left out; look through it all the same." },
	{ "version", cmd_version, "", "versions of edgectl and of what runs", NULL },
	{ "help", cmd_help, "[COMMAND]", "this list, or how a command is used", NULL },
};

#define NCOMMANDS	(sizeof(commands) / sizeof(commands[0]))

static const struct command *
find(const char *name)
{
	for (size_t i = 0; i < NCOMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static void
print_usage(FILE *f)
{
	fprintf(f, "usage: edgectl [-hjV] [-r RUNDIR] [--watch[=SECONDS]] COMMAND ...\n");
	for (size_t i = 0; i < NCOMMANDS; i++)
		fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fprintf(f, "  -j         print JSON, also behind the command;  -r RUNDIR  where the sockets are, default /run/edgeward (run-foreground: DIR/run)\n"
	    "  --watch[=SECONDS]  status, workloads, devices, policy, metrics, audit, doctor: again and again, every 2 s unless told otherwise\n"
	    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 status: not all is well, 4 nobody answers, 5 not permitted (be root, or\n"
	    "in the group that the message names).\n");
}

int
usage_error(const char *command, const char *fmt, ...)
{
	const struct command *c = find(command);
	va_list ap;

	fprintf(stderr, "edgectl: %s: ", command);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nusage: edgectl [options] %s %s\n", command, c != NULL ? c->arguments : "");
	return EXIT_USAGE;
}

int
no_arguments(int argc, char **argv)
{
	return usage_error(argv[0], "takes no arguments");
}

static int
unknown_command(const char *name)
{
	const char *names[NCOMMANDS], *near;

	for (size_t i = 0; i < NCOMMANDS; i++)
		names[i] = commands[i].name;
	near = near_word(name, names, NCOMMANDS);
	fprintf(stderr, "edgectl: no command \"%s\"", out_safe(name));
	if (near != NULL)
		fprintf(stderr, ", did you mean \"%s\"?", near);
	fprintf(stderr, "\nedgectl help lists them\n");
	return EXIT_USAGE;
}

/* Behind what the command itself had to say. */
static void
suggest(const struct command *c, int argc, char **argv)
{
	char typed[NEAR_SIZE], meant[NEAR_SIZE];
	const char *operand = near_operand(c->arguments, argc, argv);

	if (near_usage(c->arguments, argc, argv, typed, meant))
		fprintf(stderr, "\"%s\": did you mean \"%s\"?\n", out_safe(typed), meant);
	/* A token on the command line is not repeated. */
	else if (operand != NULL && c->run != cmd_enroll)
		fprintf(stderr, "\"%s\" begins like an option; if it is none, put -- before it\n", out_safe(operand));
}

static int
cmd_help(struct edgectl *ctl, int argc, char **argv)
{
	const struct command *c;

	if (argc < 2) {
		print_usage(stdout);
		return EXIT_OK;
	}
	c = find(argv[1]);
	if (c == NULL)
		return unknown_command(argv[1]);
	printf("usage: edgectl [options] %s %s\n%s\n", c->name, c->arguments, c->summary);
	if (c->more != NULL)
		puts(c->more);
	return EXIT_OK;
}

/* They only look, and come to an end. */
static bool
may_watch(const struct command *c)
{
	return c->run == cmd_status || c->run == cmd_workloads || c->run == cmd_metrics || c->run == cmd_devices || c->run == cmd_policy ||
	    c->run == cmd_audit || c->run == cmd_doctor;
}

int
main(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { "json", no_argument, NULL, 'j' },
		{ "version", no_argument, NULL, 'V' }, { "watch", optional_argument, NULL, 'w' }, { 0 } };
	struct edgectl ctl = { .rundir = "/run/edgeward" };
	const struct command *c;
	uint32_t watch = 0;
	int opt, code;

	while ((opt = getopt_long(argc, argv, "+hjr:V", longs, NULL)) != -1) {
		switch (opt) {
		case 'h': print_usage(stdout); return EXIT_OK;
		case 'j': ctl.json = true; break;
		case 'r': ctl.rundir = optarg; ctl.rundir_named = true; break;
		case 'V': puts("edgectl " EDGEWARD_VERSION); return EXIT_OK;
		case 'w':
			if (watch_seconds(optarg, &watch) < 0)
				return EXIT_USAGE;
			break;
		default: print_usage(stderr); return EXIT_USAGE;
		}
	}
	if (optind == argc) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	c = find(argv[optind]);
	if (c == NULL)
		return unknown_command(argv[optind]);
	if (optind + 2 == argc && (strcmp(argv[optind + 1], "--help") == 0 || strcmp(argv[optind + 1], "-h") == 0))
		return cmd_help(&ctl, 2, (char *[]){ "help", argv[optind], NULL });
	argc -= optind;
	argv += optind;
	if (c->run != cmd_attach && near_take_json(&argc, argv))	/* what attach runs has options of its own */
		ctl.json = true;
	if (may_watch(c) && argc > 1 && strncmp(argv[argc - 1], "--watch", 7) == 0) {	/* also behind the command */
		if (watch_seconds(argv[argc - 1][7] == '=' ? argv[argc - 1] + 8 : NULL, &watch) < 0)
			return EXIT_USAGE;
		argc--;
	}
	if (watch != 0 && !may_watch(c))
		return usage_error(c->name, "--watch is for status, workloads, devices, policy, metrics, audit and doctor; logs, events and top have ways of their own");
	code = watch_run(&ctl, c->run, argc, argv, watch);
	if (code == EXIT_USAGE)
		suggest(c, argc - 1, argv + 1);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		perror("edgectl: output");
		return EXIT_FAILED;
	}
	return code;
}
