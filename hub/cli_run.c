/*
 * `run` and `logs`: start, follow, come back. The place in the log is an offset, so a follower that lost the hub goes on
 * exactly where it was; a run that was asked for and not answered is asked for again under the same handle.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/parse.h"
#include "hub/cli.h"

#define RETRY_MS	300
#define AWAY_MS		(120LL * 1000)	/* how long the hub may be gone */
#define DEFAULT_PATH	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct follow {
	struct cli *cli;
	char handle[72];
	uint64_t offset;
	bool wait, ended, pipe_gone;
	struct admin_run end;
	/* run only */
	uint8_t *spec;
	size_t spec_len;
	bool asked;		/* the hub has confirmed the run */
	bool forward;		/* signals go to the run */
	unsigned signals;
	int64_t away_ms;
};

static int
write_out(struct follow *f, const void *data, size_t len)
{
	int r = fd_write_all(STDOUT_FILENO, data, len);

	if (r < 0)
		f->pipe_gone = true;
	return r;
}

static int
take_log(struct follow *f, const struct ipc_msg *msg)
{
	struct admin_log head;
	size_t len = msg->hdr.len - sizeof(head);

	memcpy(&head, msg->data, sizeof(head));
	if (head.offset != f->offset)
		return -EPROTO;
	f->offset += len;
	return write_out(f, msg->data + sizeof(head), len);
}

static int
take_event(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	struct follow *f = ctx;
	struct admin_gap gap;

	(void)cli;
	switch (msg->hdr.type) {
	case ADMIN_EV_LOG:
		return take_log(f, msg);
	case ADMIN_EV_GAP:
		memcpy(&gap, msg->data, sizeof(gap));
		fprintf(stderr, "edgehub: bytes %llu to %llu of the log are lost\n", (unsigned long long)gap.from,
		    (unsigned long long)gap.to);
		f->offset = gap.to;
		return 0;
	case ADMIN_EV_END:
		memcpy(&f->end, msg->data, sizeof(f->end));
		f->ended = true;
		return 0;
	default:
		return -EPROTO;
	}
}

/* Ctrl-C: first INT, then TERM, then KILL. SIGTERM skips the first. */
static void
on_signal(int signo, void *ctx)
{
	static const char *const names[] = { "interrupt", "terminate", "kill" };
	struct follow *f = ctx;
	struct admin_signal req = { 0 };
	uint32_t id;

	if (!f->forward || !f->asked) {
		signal(signo, SIG_DFL);
		_exit(128 + signo);
	}
	if (signo == SIGTERM && f->signals == 0)
		f->signals = 1;
	snprintf(req.handle, sizeof(req.handle), "%s", f->handle);
	snprintf(req.signal, sizeof(req.signal), "%s", names[f->signals < 2 ? f->signals : 2]);
	f->signals++;
	fprintf(stderr, "edgehub: %s sent to the run\n", req.signal);
	if (ipc_request(&f->cli->chan, ADMIN_REQ_SIGNAL, &req, sizeof(req), NULL, 0, &id) < 0)
		fprintf(stderr, "edgehub: the hub is away; press again when it is back\n");
}

static int
say_answer(const struct cli *cli, int code)
{
	char text[256];

	if (cli->answer_len == sizeof(struct admin_text) && admin_text_ok((struct admin_text *)cli->answer))
		return cli_fail(code, "%s", cli_text(text, sizeof(text), ((struct admin_text *)cli->answer)->text));
	return cli_fail(code, "%s", strerror(-cli->status));
}

/* Asks the hub to start it; *ret_code is set when it says no. -errno when the hub is gone. */
static int
ask_run(struct follow *f, int *ret_code)
{
	_cleanup_close_ int fd = -1;
	int r;

	if (f->spec_len > ADMIN_LOG_MAX) {
		fd = fd_sealed_memfd("edgehub-run", f->spec, f->spec_len);
		if (fd < 0)
			return fd;
		r = cli_call(f->cli, ADMIN_REQ_RUN, NULL, 0, &fd, 1);
	} else {
		r = cli_call(f->cli, ADMIN_REQ_RUN, f->spec, f->spec_len, NULL, 0);
	}
	if (r < 0)
		return r;
	if (f->cli->status != 0)
		*ret_code = say_answer(f->cli, RUN_EXIT_NOT_STARTED);
	else
		f->asked = true;
	return 0;
}

/* One connection's worth: asks, follows until the end. -errno when the hub is gone; *ret_code >= 0 ends it all. */
static int
attach(struct follow *f, int *ret_code)
{
	struct admin_follow req = { .from = f->offset, .flags = f->wait ? ADMIN_FOLLOW_WAIT : 0 };
	struct admin_run now;
	int r = cli_open(f->cli);

	if (r == 0 && f->spec != NULL && !f->asked)
		r = ask_run(f, ret_code);
	if (r < 0 || *ret_code >= 0)
		return r;
	snprintf(req.handle, sizeof(req.handle), "%s", f->handle);
	f->cli->event = take_event;
	f->cli->ctx = f;
	r = cli_call(f->cli, ADMIN_REQ_FOLLOW, &req, sizeof(req), NULL, 0);
	if (r < 0)
		return r;
	if (f->cli->status != 0) {
		*ret_code = say_answer(f->cli, f->spec != NULL ? RUN_EXIT_LOST : CLI_FAILED);
		return 0;
	}
	/* From here on the full name: the beginning that was given may fit another run later. */
	if (cli_answer(f->cli, &now, sizeof(now)) && ipc_str_ok(now.handle, sizeof(now.handle)))
		memcpy(f->handle, now.handle, sizeof(f->handle));
	f->asked = true;
	while (r >= 0 && f->cli->up && !f->ended)
		r = loop_turn(f->cli->loop, -1);
	return f->ended ? 0 : r < 0 ? r : f->cli->connect_err;
}

static int
follow_all(struct follow *f, int gone_code)
{
	monotime_t limit = MONOTIME_NEVER;
	bool told = false;

	for (;;) {
		bool was = f->asked;
		uint64_t before = f->offset;
		int code = -1, r = attach(f, &code);

		if (f->pipe_gone)
			return cli_fail(CLI_FAILED, "cannot write the log; the run goes on as %s", f->handle);
		if (code >= 0 || f->ended)
			return code >= 0 ? code : 0;
		if (!was && !f->asked && (r == -EACCES || r == -ENOENT || r == -ECONNREFUSED || r == -EPERM) && !told)
			return f->spec != NULL ? (cli_say_unreachable(f->cli, r), RUN_EXIT_NOT_STARTED) :
			    cli_say_unreachable(f->cli, r);
		if (!f->wait)
			return cli_say_unreachable(f->cli, r);
		if (limit.ns == MONOTIME_NEVER.ns || f->offset > before || (f->asked && !was))
			limit = monotime_add_ms(monotime_now(), f->away_ms);
		if (!told)
			fprintf(stderr, "edgehub: the hub is gone (%s); waiting for it\n", strerror(-r));
		told = true;
		if (!monotime_before(monotime_now(), limit))
			return cli_fail(gone_code, "the hub did not come back; the run may go on as %s", f->handle);
		loop_turn(f->cli->loop, RETRY_MS);
	}
}

static void
say_end(const struct follow *f)
{
	const struct admin_run *e = &f->end;
	enum run_state state = (enum run_state)e->state;
	char text[256];

	if (state == RUN_REFUSED || state == RUN_LOST || (state == RUN_FAILED && e->error[0] != '\0'))
		fprintf(stderr, "edgehub: %s%s%s: %s\n", run_state_name(state), e->code[0] != '\0' ? " " : "", e->code,
		    cli_text(text, sizeof(text), e->error));
	else if (e->limit[0] != '\0')
		fprintf(stderr, "edgehub: stopped at its limit: %s\n", cli_text(text, sizeof(text), e->limit));
	if ((e->flags & ADMIN_RUN_TIMED_OUT) != 0 || strcmp(e->outcome, "timeout") == 0)
		fprintf(stderr, "edgehub: ended at its timeout\n");
	if (e->verify == RUN_MISMATCH)
		fprintf(stderr, "edgehub: the log differs from what the device sent\n");
	else if (e->verify == RUN_GAPPED)
		fprintf(stderr, "edgehub: the log is not verifiable, gap [%llu,%llu)%s\n", (unsigned long long)e->gap_from,
		    (unsigned long long)e->gap_to, e->ngaps > 1 ? " and more" : "");
}

static int
follow_init(struct follow *f)
{
	sigset_t mask;
	int r = 0;

	if (f->cli->loop == NULL)
		r = loop_new(&f->cli->loop);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	return r < 0 ? r : loop_signals(f->cli->loop, &mask, on_signal, f);
}

static void
print_end_json(const struct admin_run *end)
{
	static char buf[8192];
	struct json_w w;
	size_t len;

	json_w_init(&w, buf, sizeof(buf));
	json_w_obj(&w, NULL);
	cli_json_run(&w, end);
	json_w_end_obj(&w);
	if (json_w_done(&w, &len) == 0)
		fprintf(stderr, "%.*s\n", (int)len, buf);
}

struct run_options {
	const char *work_dir;
	int64_t timeout_ms, away_ms;
	bool detach;
	char **env;
	size_t envc;
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
	if (o->envc > 0)
		(void)add_env(o, (char *)DEFAULT_PATH);
}

static int
parse_run(int argc, char *argv[], struct run_options *o)
{
	static const struct option options[] = {
		{ "workdir", required_argument, NULL, 'w' }, { "env", required_argument, NULL, 'e' },
		{ "timeout", required_argument, NULL, 't' }, { "detach", no_argument, NULL, 'd' },
		{ "reconnect", required_argument, NULL, 'r' }, { 0 },
	};
	int opt;

	while ((opt = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (opt == 'w')
			o->work_dir = optarg;
		else if (opt == 'd')
			o->detach = true;
		else if (opt == 'e' && add_env(o, optarg) < 0)
			return cli_fail(RUN_EXIT_NOT_STARTED, "--env: K=V is needed");
		else if (opt == 't' && parse_duration_ms(optarg, 1000, 366LL * 86400 * 1000, &o->timeout_ms) < 0)
			return cli_fail(RUN_EXIT_NOT_STARTED, "--timeout: a duration of at least 1s, such as 90s or 2h");
		else if (opt == 'r' && parse_duration_ms(optarg, 0, 366LL * 86400 * 1000, &o->away_ms) < 0)
			return cli_fail(RUN_EXIT_NOT_STARTED, "--reconnect: a duration, such as 120s");
		else if (opt == '?')
			return RUN_EXIT_NOT_STARTED;
	}
	return 0;
}

static int
run_it(struct cli *cli, struct follow *f, const struct run_options *o)
{
	int code = -1, r;

	if (follow_init(f) < 0)
		return cli_fail(RUN_EXIT_NOT_STARTED, "out of memory");
	if (o->detach) {
		r = cli_open(cli);
		if (r == 0)
			r = ask_run(f, &code);
		if (r < 0)
			return cli_say_unreachable(cli, r), RUN_EXIT_NOT_STARTED;
		if (code < 0)
			printf("%s\n", f->handle);
		return code < 0 ? 0 : code;
	}
	code = follow_all(f, RUN_EXIT_HUB_GONE);
	if (!f->ended)
		return code;
	say_end(f);
	if (cli->json)
		print_end_json(&f->end);
	return cli_exit_code(&f->end);
}

int
cli_run(struct cli *cli, int argc, char *argv[])
{
	struct run_options o = { .work_dir = "", .away_ms = AWAY_MS };
	struct follow f = { .cli = cli, .wait = true, .forward = true };
	const char *device = NULL;
	int r;

	/* DEVICE may stand before or behind the options; what it stood in front of takes the place of argv[0]. */
	if (argc >= 2 && argv[1][0] != '-') {
		device = argv[1];
		argc--;
		argv++;
	}
	r = parse_run(argc, argv, &o);
	if (r == 0 && device == NULL && optind < argc)
		device = argv[optind++];
	if (r == 0 && optind < argc && strcmp(argv[optind], "--") == 0)
		optind++;
	if (r == 0 && (device == NULL || optind >= argc))
		r = cli_fail(RUN_EXIT_NOT_STARTED, "usage: edgehub run DEVICE [--workdir DIR] [--env K=V] [--timeout DURATION] "
		    "[--detach] [--reconnect DURATION] -- COMMAND [ARGUMENT ...]");
	if (r != 0) {
		free(o.env);
		return r;
	}
	add_path(&o);
	f.away_ms = o.away_ms;
	f.spec = malloc(ADMIN_SPEC_MAX);
	if (f.spec == NULL || token_random_id(f.handle) < 0)
		r = cli_fail(RUN_EXIT_NOT_STARTED, "out of memory");
	else if (admin_start_encode(f.spec, ADMIN_SPEC_MAX, &f.spec_len, f.handle, device, o.work_dir, o.timeout_ms,
	    argv + optind, o.env) < 0)
		r = cli_fail(RUN_EXIT_NOT_STARTED, "the command line and environment are too long");
	else
		r = run_it(cli, &f, &o);
	free(f.spec);
	free(o.env);
	return r;
}

int
cli_logs(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "follow", no_argument, NULL, 'f' }, { "from", required_argument, NULL, 'o' }, { 0 },
	};
	struct follow f = { .cli = cli, .away_ms = AWAY_MS };
	bool verify = argc > 1 && strcmp(argv[1], "verify") == 0;
	int opt, r;

	if (verify) {
		argc--;
		argv++;
	}
	while ((opt = getopt_long(argc, argv, "f", options, NULL)) != -1) {
		if (opt == 'f')
			f.wait = true;
		else if (opt != 'o' || parse_u64(optarg, 0, INT64_MAX, &f.offset) < 0)
			return cli_fail(CLI_USAGE, "usage: edgehub logs [verify] HANDLE [-f] [--from OFFSET]");
	}
	if (argc - optind != 1 || strlen(argv[optind]) >= sizeof(f.handle))
		return cli_fail(CLI_USAGE, "usage: edgehub logs [verify] HANDLE [-f] [--from OFFSET]");
	snprintf(f.handle, sizeof(f.handle), "%s", argv[optind]);
	if (verify)
		f.offset = INT64_MAX;	/* beyond every log: only the end is told */
	if (follow_init(&f) < 0)
		return cli_fail(CLI_FAILED, "out of memory");
	r = follow_all(&f, CLI_NOBODY);
	if (!f.ended)
		return r;
	if (verify) {
		if (cli->json)
			print_end_json(&f.end);
		else
			printf("%s\n", run_verify_name((enum run_verify)f.end.verify));
		if (f.end.verify == RUN_GAPPED)
			say_end(&f);
		return f.end.verify == RUN_VERIFIED ? CLI_OK : CLI_FAILED;
	}
	if (f.end.verify == RUN_MISMATCH || f.end.verify == RUN_GAPPED)
		say_end(&f);
	return CLI_OK;
}
