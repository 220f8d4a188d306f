/* `run` and `logs`: their options, and what they return. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/near.h"
#include "common/parse.h"
#include "hub/cli_follow.h"
#include "hub/cli_net.h"
#include "hub/cli_result.h"
#include "hub/cli_secret.h"

#define DEFAULT_PATH	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct run_options {
	const char *work_dir;
	struct admin_limits limits;
	int64_t away_ms;
	bool detach;
	char **env;
	size_t envc;
	const char *lease;		/* the handle to be */
	struct cli_secrets secrets;
	char **own;			/* entries of env that are ours to wipe */
	size_t nown;
	struct workspace_options workspace;
	struct net_options net;
	char devices[DEVICE_LIST_SIZE];
	struct container_options container;
};

static int
add_env(struct run_options *o, char *kv)
{
	char **more;

	if (kv[0] == '=' || strchr(kv, '=') == NULL)
		return -EINVAL;
	more = reallocarray(o->env, o->envc + 3, sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	o->env = more;
	o->env[o->envc++] = kv;
	o->env[o->envc] = NULL;
	return 0;
}

/* An environment that was given is all a workload gets: without a PATH hardly any command would be found. */
static void
add_path(struct run_options *o)
{
	for (size_t i = 0; i < o->envc; i++)
		if (strncmp(o->env[i], "PATH=", 5) == 0)
			return;
	if (o->envc > 0 && o->container.image == NULL)	/* an image brings its own */
		(void)add_env(o, (char *)DEFAULT_PATH);
}

/* What --secret or --secret-file makes of the environment is wiped with it. */
static int
own_env(struct run_options *o, char *kv)
{
	char **more = kv != NULL ? reallocarray(o->own, o->nown + 1, sizeof(*more)) : NULL;

	if (more == NULL)
		return -ENOMEM;
	o->own = more;
	o->own[o->nown++] = kv;
	return add_env(o, kv);
}

static int
add_secret(struct run_options *o, const char *arg)
{
	char *kv = NULL;
	int r = cli_secret_env(&o->secrets, o->lease, arg, &kv);

	return r < 0 ? r : own_env(o, kv);
}

static int
add_secret_file(struct run_options *o, const char *arg)
{
	int r = cli_secret_file(&o->secrets, o->lease, arg);
	char *kv = NULL;

	for (size_t i = 0; i < o->envc && r == 0; i++)
		if (strncmp(o->env[i], "SECRETS_DIR=", 12) == 0)
			return 0;
	if (r == 0 && asprintf(&kv, "SECRETS_DIR=%s", CLI_SECRET_DIR) < 0)
		kv = NULL;
	return r < 0 ? r : own_env(o, kv);
}

static void
free_options(struct run_options *o)
{
	for (size_t i = 0; i < o->nown; i++) {
		explicit_bzero(o->own[i], strlen(o->own[i]));
		free(o->own[i]);
	}
	free(o->own);
	free(o->env);
	cli_secrets_done(&o->secrets);
}

static int
add_device(struct run_options *o, const char *id)
{
	size_t len = strlen(o->devices);

	if (!device_id_ok(id) || len + strlen(id) + 2 > sizeof(o->devices))
		return -EINVAL;
	snprintf(o->devices + len, sizeof(o->devices) - len, "%s%s", len > 0 ? " " : "", id);
	return 0;
}

/* 0, or an exit code: then the reason was printed. */
static int
take_limit(int opt, struct admin_limits *l)
{
	uint64_t bytes = 0;
	int r = opt == 'c' ? parse_u32(optarg, 1, UINT32_MAX, &l->cpu_millis) : opt == 'p' ? parse_u32(optarg, 1, UINT32_MAX, &l->pids) :
	    opt == 'O' ? work_overflow_parse(optarg) : parse_size(optarg, 1 << 20, (uint64_t)UINT32_MAX << 20, &bytes);

	if (r < 0)
		return cli_fail(RUN_EXIT_NOT_STARTED, "%s", opt == 'O' ? "--overflow: wait, wait-forever or drop" :
		    opt == 'c' ? "--cpu: thousandths of a processor, such as 1500" : opt == 'p' ? "--pids: a number from 1 on" :
		    opt == 'm' ? "--memory: a size of at least 1M, such as 512M or 2G" : "--disk-limit: a size of at least 1M, such as 512M or 2G");
	if (opt == 'm')
		l->memory_mb = (uint32_t)(bytes >> 20);
	else if (opt == 'L')
		l->disk_mb = (uint32_t)(bytes >> 20);
	else if (opt == 'O')
		l->overflow = (uint8_t)r;
	return 0;
}

static int
parse_run(int argc, char *argv[], struct run_options *o, const char **device)
{
	static const struct option options[] = {
		{ "workdir", required_argument, NULL, 'w' }, { "env", required_argument, NULL, 'e' },
		{ "timeout", required_argument, NULL, 't' }, { "detach", no_argument, NULL, 'd' },
		{ "reconnect", required_argument, NULL, 'r' }, { "memory", required_argument, NULL, 'm' },
		{ "cpu", required_argument, NULL, 'c' }, { "pids", required_argument, NULL, 'p' }, { "secret", required_argument, NULL, 's' },
		{ "disk-limit", required_argument, NULL, 'L' }, { "overflow", required_argument, NULL, 'O' },
		{ "secret-file", required_argument, NULL, 'f' },
		{ "device", required_argument, NULL, 'D' }, WORKSPACE_OPTIONS, CONTAINER_OPTIONS, NET_OPTIONS, { 0 },
	};
	int opt;

	while ((opt = near_option(argc, argv, "+", options, device)) != -1) {
		int net = net_option(&o->net, opt, optarg);

		if (net < 0)
			return RUN_EXIT_NOT_STARTED;
		if (net > 0 || workspace_option(&o->workspace, opt, optarg) || container_option(&o->container, opt, optarg))
			continue;
		if (opt == 'w')
			o->work_dir = optarg;
		else if (opt == 'd')
			o->detach = true;
		else if ((opt == 's' && add_secret(o, optarg) < 0) || (opt == 'f' && add_secret_file(o, optarg) < 0))
			return RUN_EXIT_NOT_STARTED;
		else if (opt == 'D' && add_device(o, optarg) < 0)
			return cli_fail(RUN_EXIT_NOT_STARTED, "--device: names of usb forward or l2 forward, at most eight");
		else if (opt == 'e' && add_env(o, optarg) < 0)
			return cli_fail(RUN_EXIT_NOT_STARTED, "--env: K=V is needed");
		else if (opt == 't' && parse_duration_ms(optarg, 1000, 366LL * 86400 * 1000, &o->limits.timeout_ms) < 0)
			return cli_fail(RUN_EXIT_NOT_STARTED, "--timeout: a duration of at least 1s, such as 90s or 2h");
		else if (opt == 'r' && parse_duration_ms(optarg, 0, 366LL * 86400 * 1000, &o->away_ms) < 0)
			return cli_fail(RUN_EXIT_NOT_STARTED, "--reconnect: a duration, such as 120s");
		else if (strchr("mcpLO", opt) != NULL && take_limit(opt, &o->limits) != 0)
			return RUN_EXIT_NOT_STARTED;
		else if (opt == '?')
			return cli_fail(RUN_EXIT_NOT_STARTED, "run: %s: no such option, or one without its value", argv[optind - 1]);
	}
	return net_check(&o->net);
}

static int
run_it(struct cli *cli, struct follow *f, const struct run_options *o)
{
	int code = -1, r;

	if (follow_init(f) < 0)
		return cli_fail(RUN_EXIT_NOT_STARTED, "out of memory");
	if (o->detach) {
		f->forward = false;	/* a signal ends us, not the run */
		r = cli_open(cli);
		if (r == 0)
			r = follow_ask(f, &code);
		if (r < 0)
			return cli_say_unreachable(cli, r), RUN_EXIT_NOT_STARTED;
		if (code < 0)
			printf(cli->json ? "{\"handle\":\"%s\"}\n" : "%s\n", f->handle);
		return code < 0 ? 0 : code;
	}
	code = follow_all(f, RUN_EXIT_HUB_GONE);
	if (!f->ended)
		return code;
	follow_say_end(f);
	if (cli->json)
		follow_print_json(&f->end);
	code = cli_exit_code(&f->end);
	if (o->workspace.back != NULL && f->end.state == RUN_EXITED && code == 0)
		code = result_say(cli, f->handle);
	return code;
}

int
cli_run(struct cli *cli, int argc, char *argv[])
{
	static struct run_options o = { .work_dir = "", .away_ms = FOLLOW_AWAY_MS };
	struct follow f = { .cli = cli, .wait = true, .forward = true };
	const char *device = NULL;
	static uint8_t job[32 << 10];
	size_t job_len;
	int r;

	if (token_random_id(f.handle) < 0)
		return cli_fail(RUN_EXIT_NOT_STARTED, "no random numbers");
	o.lease = f.handle;
	r = parse_run(argc, argv, &o, &device);
	if (r == 0 && (device == NULL || optind >= argc))
		r = cli_fail(RUN_EXIT_NOT_STARTED, device == NULL ? "run: on which device? edgehub run DEVICE [OPTION ...] -- COMMAND [ARGUMENT ...]; "
		    "edgehub devices lists them, edgehub help run the options" : "run: no command: edgehub run %.64s [OPTION ...] -- COMMAND "
		    "[ARGUMENT ...]; edgehub help run lists the options", device);
	if (r != 0) {
		free_options(&o);
		return r;
	}
	add_path(&o);
	f.away_ms = o.away_ms;
	f.spec = malloc(ADMIN_SPEC_MAX);
	if (f.spec == NULL)
		r = cli_fail(RUN_EXIT_NOT_STARTED, "out of memory");
	else if ((r = workspace_encode(&o.workspace, &o.container, f.handle, job, sizeof(job), &job_len)) != 0)
		;
	else if (admin_start_encode(f.spec, ADMIN_SPEC_MAX, &f.spec_len, f.handle, device, o.work_dir, &o.limits, job, job_len,
	    argv + optind, o.env) < 0)
		r = cli_fail(RUN_EXIT_NOT_STARTED, "the command line and environment are too long");
	else if (admin_start_more(f.spec, ADMIN_SPEC_MAX, &f.spec_len, o.secrets.items, o.secrets.len, o.devices, o.net.network,
	    &o.net.fw) < 0)
		r = cli_fail(RUN_EXIT_NOT_STARTED, "the command line, environment, secrets and devices are too long");
	else {
		f.bundle_given = o.workspace.ship.fd >= 0;
		f.bundle = o.workspace.ship.fd;
		r = run_it(cli, &f, &o);
	}
	explicit_bzero(job, sizeof(job));
	if (f.spec != NULL)
		explicit_bzero(f.spec, ADMIN_SPEC_MAX);
	free(f.spec);
	free_options(&o);
	return r;
}

int
cli_logs(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "follow", no_argument, NULL, 'f' }, { "from", required_argument, NULL, 'o' }, { 0 },
	};
	struct follow f = { .cli = cli, .away_ms = FOLLOW_AWAY_MS };
	int opt, r;

	if (argc > 1 && strcmp(argv[1], "verify") == 0)
		return cli_verify(cli, argc - 1, argv + 1);
	while ((opt = getopt_long(argc, argv, "f", options, NULL)) != -1) {
		if (opt == 'f')
			f.wait = true;
		else if (opt != 'o' || parse_u64(optarg, 0, INT64_MAX, &f.offset) < 0)
			return cli_fail(CLI_USAGE, "usage: edgehub logs HANDLE [-f] [--from OFFSET] | logs verify HANDLE");
	}
	if (argc - optind != 1 || strlen(argv[optind]) >= sizeof(f.handle))
		return cli_fail(CLI_USAGE, "usage: edgehub logs HANDLE [-f] [--from OFFSET] | logs verify HANDLE");
	snprintf(f.handle, sizeof(f.handle), "%s", argv[optind]);
	if (follow_init(&f) < 0)
		return cli_fail(CLI_FAILED, "out of memory");
	r = follow_all(&f, CLI_NOBODY);
	if (!f.ended)
		return r;
	if (f.end.verify == RUN_MISMATCH || f.end.verify == RUN_GAPPED)
		follow_say_end(&f);
	return CLI_OK;
}
