/*
 * attach and shell: the operator's terminal, joined to a process inside a run. The hub gets one end of a socket pair, the terminal has the
 * other (common/term.c). The exit code is that of the process.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/near.h"
#include "common/parse.h"
#include "common/term.h"
#include "hub/adminattach.h"
#include "hub/cli.h"
#include "hub/token.h"

#define USAGE		"attach HANDLE [--read-only | --watch] [-T] [-- COMMAND [ARGUMENT ...]]"
#define SHELL_USAGE	"shell DEVICE [--workdir DIR] [--timeout DURATION] [-T] [-- COMMAND [ARGUMENT ...]]"
#define EXIT_LOST	255		/* how it ended is not known */
#define GONE_CODE	"unknown_handle: "
#define STARTING_MS	20000		/* a fresh run may take so long until it runs */

static struct {
	struct cli *cli;
	struct term term;
	bool ended, away;
	struct admin_attach_end end;
} self;

static int
on_event(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	struct admin_attach_state st;
	struct admin_attach_end end;

	if (msg->hdr.type == ADMIN_EV_ATTACH_STATE && msg->hdr.len == sizeof(st)) {
		memcpy(&st, msg->data, sizeof(st));
		self.away = st.away != 0;
		fprintf(stderr, "\r\nedgehub: %s\r\n", self.away ? "the link to the device is lost; waiting (~. leaves)" : "the device is back");
		if (st.lost > 0)
			fprintf(stderr, "edgehub: %llu bytes of output are lost\r\n", (unsigned long long)st.lost);
		return 0;
	}
	if (msg->hdr.type != ADMIN_EV_ATTACH_END || msg->hdr.len != sizeof(end))
		return -EPROTO;
	memcpy(&end, msg->data, sizeof(end));
	if (!ipc_str_ok(end.reason, sizeof(end.reason)))
		return -EPROTO;
	self.end = end;
	self.ended = true;
	return 0;
}

static void
on_resize(uint16_t rows, uint16_t cols, void *ctx)
{
	const struct admin_attach_size size = { rows, cols };

	(void)ipc_send(&self.cli->chan, ADMIN_EV_ATTACH_SIZE, &size, sizeof(size));	/* a hub that is gone shows in the loop */
}

/* Until the end of both: what the hub says, and the bytes. The exit code. */
static int
stay(int sock, const struct admin_attached *is)
{
	bool raw = (is->flags & ATTACH_TTY) != 0 && term_is_tty(), watch = (is->flags & ATTACH_WATCH) != 0;
	char text[sizeof(self.end.reason)];
	int r;

	self.term.loop = self.cli->loop;
	self.term.name = "edgehub";
	self.term.resized = on_resize;
	r = term_begin(&self.term, sock, raw, (is->flags & ATTACH_INPUT) != 0 || (watch && raw));
	if (r < 0)
		return cli_fail(EXIT_LOST, "the terminal: %s", strerror(-r));
	while (self.cli->up && !(self.ended && self.term.state == TERM_OVER) && (self.term.state == TERM_GOES_ON || self.term.state == TERM_OVER))
		loop_turn(self.cli->loop, -1);
	term_end(&self.term, self.term.state != TERM_OVER || !self.ended || self.end.exit_code < 0);
	switch (self.term.state) {
	case TERM_LEFT:
		(void)ipc_send(&self.cli->chan, ADMIN_EV_ATTACH_CLOSE, NULL, 0);
		fprintf(stderr, "edgehub: left\n");
		return watch ? CLI_OK : EXIT_LOST;
	case TERM_SIGNALLED:
		return 128 + self.term.signo;
	case TERM_BROKEN:
		return cli_fail(CLI_FAILED, "cannot write the output");
	case TERM_GOES_ON:
	case TERM_OVER:
		break;
	}
	if (!self.ended)
		return cli_fail(EXIT_LOST, "the hub is gone; the session ends with it");
	cli_text(text, sizeof(text), self.end.reason);
	/* The code of a refusal says nothing to whoever had the session. */
	if (strcmp(text, ATTACH_EXITED) != 0)
		fprintf(stderr, "edgehub: %s\n", text + (strncmp(text, GONE_CODE, strlen(GONE_CODE)) == 0 ? strlen(GONE_CODE) : 0));
	return self.end.exit_code >= 0 ? self.end.exit_code : watch ? CLI_OK : EXIT_LOST;
}

static int
encode(struct attach_command *c, char *argv[], int *ret_fd)
{
	static uint8_t buf[ATTACH_COMMAND_MAX];
	const char *term = getenv("TERM");
	size_t len;
	int r;

	snprintf(c->term, sizeof(c->term), "%s", term != NULL && attach_term_ok(term) ? term : "xterm-256color");
	for (; argv != NULL && argv[c->argc] != NULL; c->argc++) {
		if (c->argc == ATTACH_ARGS_MAX)
			return -E2BIG;
		c->argv[c->argc].s = argv[c->argc];
		c->argv[c->argc].len = strlen(argv[c->argc]);
	}
	r = attach_command_encode(c, buf, sizeof(buf), &len);
	return r < 0 ? r : (*ret_fd = fd_sealed_memfd("attach", buf, len)) < 0 ? *ret_fd : 0;
}

/* One try: 0 with *ret_sock, or an exit code. early: a run that does not run yet is no reason to say anything. */
static int
ask(struct cli *cli, const struct admin_attach *req, int command, bool early, int *ret_sock, struct admin_attached *ret_is)
{
	int pair[2], fds[2], r;
	struct admin_text text;
	char clean[sizeof(text.text)];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return cli_fail(EXIT_LOST, "%s", strerror(errno));
	fds[0] = pair[1];
	fds[1] = command;
	r = cli_call(cli, ADMIN_REQ_ATTACH, req, sizeof(*req), fds, command >= 0 ? 2 : 1);
	close(pair[1]);		/* the hub has it: its end must be the end */
	if (r == 0 && cli->status == 0 && cli_answer(cli, ret_is, sizeof(*ret_is))) {
		*ret_sock = pair[0];
		return 0;
	}
	close(pair[0]);
	if (r < 0)
		return cli_say_unreachable(cli, r), EXIT_LOST;
	if (cli->status < 0 && cli_answer(cli, &text, sizeof(text)) && admin_text_ok(&text))
		return early && (cli->status == -EAGAIN || strstr(text.text, "unknown_handle") != NULL) ? -EAGAIN :
		    cli_fail(EXIT_LOST, "%s", cli_text(clean, sizeof(clean), text.text));
	return cli_fail(EXIT_LOST, "the hub answers in a way this edgehub does not know");
}

static int
attach(struct cli *cli, struct admin_attach *req, char *argv[], bool early)
{
	monotime_t limit = monotime_add_ms(monotime_now(), STARTING_MS);
	struct attach_command c = { .argc = 0 };
	_cleanup_close_ int command = -1;
	struct admin_attached is = { .flags = 0 };
	int sock, r = (req->flags & ATTACH_WATCH) != 0 ? 0 : encode(&c, argv, &command);

	if (r < 0)
		return cli_fail(CLI_USAGE, "the command is too long");
	self.cli = cli;
	cli->event = on_event;
	term_size(&req->rows, &req->cols);
	while ((r = ask(cli, req, command, early && monotime_before(monotime_now(), limit), &sock, &is)) == -EAGAIN)
		loop_turn(cli->loop, 100);
	return r != 0 ? r : stay(sock, &is);
}

int
cli_attach(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "read-only", no_argument, NULL, 'r' }, { "watch", optional_argument, NULL, 'w' }, { "no-tty", no_argument, NULL, 'T' }, { 0 },
	};
	struct admin_attach req = { .flags = ATTACH_INPUT | (term_is_tty() ? ATTACH_TTY : 0) };
	const char *handle = NULL;
	bool good = true;
	int opt, r;

	while ((opt = near_option(argc, argv, "+T", options, &handle)) != -1) {
		if (opt == 'r')
			req.flags = req.flags & ATTACH_WATCH;
		else if (opt == 'T')
			req.flags &= ~ATTACH_TTY;
		else if (opt == 'w') {
			req.flags = ATTACH_WATCH;
			good = good && (optarg == NULL || (size_t)snprintf(req.session, sizeof(req.session), "%s", optarg) < sizeof(req.session));
		} else
			good = false;
	}
	if (!good || handle == NULL || (size_t)snprintf(req.handle, sizeof(req.handle), "%s", handle) >= sizeof(req.handle) ||
	    ((req.flags & ATTACH_WATCH) != 0 && optind < argc))
		return cli_usage(USAGE);
	if (!admin_attach_ok(&req))
		return cli_usage(USAGE);
	r = cli_open(cli);
	return r < 0 ? cli_say_unreachable(cli, r) : attach(cli, &req, argv + optind, false);
}

/* A run that does nothing but be there. */
static int
start_run(struct cli *cli, const char *device, const char *work_dir, int64_t timeout_ms, char handle[TOKEN_ID_SIZE])
{
	static uint8_t spec[16384];
	char *argv[] = { "sleep", "infinity", NULL };
	const struct admin_limits limits = { .timeout_ms = timeout_ms };
	struct admin_text text;
	size_t len;
	int r = cli_open(cli);

	if (r < 0)
		return cli_say_unreachable(cli, r);
	if (token_random_id(handle) < 0 ||
	    admin_start_encode(spec, sizeof(spec), &len, handle, device, work_dir, &limits, NULL, 0, argv, NULL) < 0)
		return cli_fail(CLI_FAILED, "the work directory is too long");
	r = cli_call(cli, ADMIN_REQ_SHELL, spec, len, NULL, 0);
	if (r < 0)
		return cli_say_unreachable(cli, r);
	if (cli->status < 0)
		return cli_fail(CLI_FAILED, "%s", cli_answer(cli, &text, sizeof(text)) && admin_text_ok(&text) ? text.text : strerror(-cli->status));
	return 0;
}

int
cli_shell(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "workdir", required_argument, NULL, 'w' }, { "timeout", required_argument, NULL, 't' }, { "no-tty", no_argument, NULL, 'T' }, { 0 },
	};
	struct admin_attach req = { .flags = ATTACH_INPUT | ADMIN_ATTACH_OWN | (term_is_tty() ? ATTACH_TTY : 0) };
	const char *device = NULL, *work_dir = "";
	int64_t timeout_ms = 0;
	char handle[TOKEN_ID_SIZE];
	int opt, r;

	while ((opt = near_option(argc, argv, "+T", options, &device)) != -1) {
		if (opt == 'w')
			work_dir = optarg;
		else if (opt == 'T')
			req.flags &= ~ATTACH_TTY;
		else if (opt != 't' || parse_duration_ms(optarg, 1000, 366LL * 86400 * 1000, &timeout_ms) < 0)
			return cli_usage(SHELL_USAGE);
	}
	if (device == NULL)
		return cli_usage(SHELL_USAGE);
	r = start_run(cli, device, work_dir, timeout_ms, handle);
	if (r != 0)
		return r;
	snprintf(req.handle, sizeof(req.handle), "%s", handle);
	return attach(cli, &req, argv + optind, true);	/* the hub ends the run with our connection, whatever comes of this */
}
