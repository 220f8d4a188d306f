/* attach: a process inside a workload of this device, through workerd.sock; the terminal is common/term.c. Policy decides ([attach] local). */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/near.h"
#include "common/term.h"
#include "edgectl/client.h"
#include "edgectl/edgectl.h"
#include "proto/ipc/attach.h"

#define OPEN_MS		15000
#define EXIT_LOST	255	/* how it ended is not known */

static struct {
	struct client client;
	struct term term;
	uint32_t viewer;	/* never 0 */
	struct attach_end end;
} self;

/* Of a short command it comes in the same turn as the answer: before we have looked at that and know who we are. */
static void
on_end(const struct attach_end *e, void *ctx)
{
	self.end = *e;
}

static bool
ended(void)
{
	return self.end.viewer == self.viewer;
}

static void
on_resize(uint16_t rows, uint16_t cols, void *ctx)
{
	const struct attach_size size = { self.viewer, rows, cols };

	(void)ipc_send(&self.client.chan, CTL_EV_ATTACH_SIZE, &size, sizeof(size));	/* a daemon that is gone shows in the loop */
}

static int
encode(char **argv)
{
	static uint8_t buf[ATTACH_COMMAND_MAX];
	static struct attach_command c;
	const char *term = getenv("TERM");
	size_t len;
	int r;

	snprintf(c.term, sizeof(c.term), "%s", term != NULL && attach_term_ok(term) ? term : "xterm-256color");
	for (c.argc = 0; argv[c.argc] != NULL; c.argc++) {
		if (c.argc == ATTACH_ARGS_MAX)
			return -E2BIG;
		c.argv[c.argc].s = argv[c.argc];
		c.argv[c.argc].len = strlen(argv[c.argc]);
	}
	r = attach_command_encode(&c, buf, sizeof(buf), &len);
	return r < 0 ? r : fd_sealed_memfd("attach", buf, len);
}

static int
stay(struct edgectl *ctl, const struct attach_answer *ans)
{
	const struct attach_ref ref = { ans->viewer };
	bool over, tty = (ans->flags & ATTACH_TTY) != 0 && term_is_tty();
	int r;

	self.term.loop = ctl->loop;
	self.term.name = "edgectl";
	self.term.resized = on_resize;
	self.viewer = ans->viewer;
	r = term_begin(&self.term, take_fd(&self.client.answer_fd), tty, (ans->flags & ATTACH_INPUT) != 0);
	if (r < 0) {
		fprintf(stderr, "edgectl: attach: the terminal: %s\n", strerror(-r));
		return EXIT_LOST;
	}
	do {
		loop_turn(ctl->loop, -1);
		over = self.term.state == TERM_OVER && (ended() || self.client.error != 0);
	} while (!over && (self.term.state == TERM_GOES_ON || self.term.state == TERM_OVER));
	term_end(&self.term, !over || !ended() || self.end.exit_code < 0);
	if (self.term.state == TERM_SIGNALLED)
		return 128 + self.term.signo;
	if (self.term.state == TERM_LEFT) {
		(void)ipc_send(&self.client.chan, CTL_EV_ATTACH_CLOSE, &ref, sizeof(ref));
		fprintf(stderr, "edgectl: left\n");
		return EXIT_LOST;
	}
	if (!ended())
		self.end = (struct attach_end){ .exit_code = -1, .reason = "workerd is gone, and the session with it" };
	if (strcmp(self.end.reason, ATTACH_EXITED) != 0)
		fprintf(stderr, "edgectl: attach: %s\n", out_safe(self.end.reason));
	return self.end.exit_code >= 0 ? self.end.exit_code : EXIT_LOST;
}

static int
attach(struct edgectl *ctl, struct attach_open *req, char **command)
{
	struct client *c = &self.client;
	_cleanup_close_ int fd = encode(command);
	struct attach_answer ans;
	int code;

	if (fd < 0)
		return usage_error("attach", "the command is too long, or its program is empty");
	term_size(&req->rows, &req->cols);
	client_open(c, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	c->attach_end = on_end;
	client_ask_fd(c, CTL_REQ_ATTACH, req, sizeof(*req), fd);
	client_wait(&c, 1, OPEN_MS);
	if (!client_answer(c, &ans, sizeof(ans))) {
		code = client_complain(c, "attach");
	} else if (!attach_answer_ok(&ans) || (ans.refusal == WORK_OK) != (c->answer_fd >= 0) || ans.refusal != WORK_OK) {
		fprintf(stderr, "edgectl: attach: %s\n", out_safe(ans.error));
		code = EXIT_LOST;
	} else {
		code = stay(ctl, &ans);
	}
	client_close(c);
	return code;
}

int
cmd_attach(struct edgectl *ctl, int argc, char **argv)
{
	static const struct option options[] = { { "read-only", no_argument, NULL, 'r' }, { "no-tty", no_argument, NULL, 'T' }, { 0 } };
	struct attach_open req = { .flags = ATTACH_INPUT | (term_is_tty() ? ATTACH_TTY : 0) };
	const char *handle = NULL;
	int opt;

	optind = 0;
	opterr = 0;
	while ((opt = near_option(argc, argv, "+T", options, &handle)) != -1) {
		if (opt == 'r')
			req.flags = 0;
		else if (opt == 'T')
			req.flags &= ~ATTACH_TTY;
		else
			return usage_error("attach", "no option %s", out_safe(argv[optind - 1]));
	}
	if (handle == NULL || !handle_ok(handle))
		return usage_error("attach", "which workload? edgectl workloads lists them");
	snprintf(req.handle, sizeof(req.handle), "%s", handle);
	return attach(ctl, &req, argv + optind);
}
