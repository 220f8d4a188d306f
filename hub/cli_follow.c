#include "hub/cli_follow.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "hub/logfile.h"

#define RETRY_MS	300

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

/* As it was told already is not told again. A log in JSON has no sentences between. */
static void
take_away(struct follow *f, const struct ipc_msg *msg)
{
	const char *keys = f->forward ? "Ctrl-C does not reach it until then, Ctrl-\\ leaves it alone" : "Ctrl-C leaves it alone";
	char device[64], why[64], t[32];
	struct admin_away ev;

	memcpy(&ev, msg->data, sizeof(ev));
	if (!admin_away_ok(&ev))
		return;
	f->away = ev.state == ADMIN_AWAY;
	if (f->cli->json)
		return;
	cli_text(device, sizeof(device), ev.device);
	if (ev.state == ADMIN_BACK)
		fprintf(stderr, "edgehub: %s is back\n", device);
	else if (ev.state == ADMIN_SILENT)
		fprintf(stderr, "edgehub: %s is silent, last heard %s; waiting for it, the run goes on there; %s\n", device, cli_time(t, ev.since), keys);
	else
		fprintf(stderr, "edgehub: %s is away, last heard %s%s%s%s; waiting for it, the run may go on there; %s; edgehub revoke ends it for a device "
		    "that will not be back\n", device, cli_time(t, ev.since), ev.why[0] != '\0' ? " (" : "", cli_text(why, sizeof(why), ev.why),
		    ev.why[0] != '\0' ? ")" : "", keys);
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
		fprintf(stderr, "edgehub: bytes %llu to %llu of the log are lost (%s)\n", (unsigned long long)gap.from,
		    (unsigned long long)gap.to, logfile_gap_name(gap.reason));
		f->offset = gap.to;
		return 0;
	case ADMIN_EV_AWAY:
		take_away(f, msg);
		return 0;
	case ADMIN_EV_END:
		memcpy(&f->end, msg->data, sizeof(f->end));
		f->ended = true;
		return 0;
	default:
		return -EPROTO;
	}
}

/*
 * Ctrl-C: first INT, then TERM, then KILL. SIGTERM skips the first, and leaves when hub or device are away: a machine that goes down waits for us.
 * Ctrl-\ leaves.
 */
static void
on_signal(int signo, void *ctx)
{
	static const char *const names[] = { "interrupt", "terminate", "kill" };
	struct follow *f = ctx;
	struct admin_signal req = { 0 };
	uint32_t id;

	bool nobody = !f->cli->up || f->away;

	/* The hub has the start and has not answered: what to do is known in a moment. A second one does not wait. */
	if (f->asking && f->early == 0 && signo != SIGQUIT && f->forward) {
		f->early = signo;
		return;
	}
	if ((signo == SIGQUIT || (signo == SIGTERM && nobody)) && f->asked && f->forward)
		_exit(cli_fail(RUN_EXIT_HUB_GONE, "the run goes on: edgehub logs %s -f", f->handle));
	if (signo == SIGQUIT || !f->forward || !f->asked) {
		signal(signo, SIG_DFL);
		_exit(128 + signo);
	}
	if (signo == SIGTERM && f->signals == 0)
		f->signals = 1;
	snprintf(req.handle, sizeof(req.handle), "%s", f->handle);
	snprintf(req.signal, sizeof(req.signal), "%s", names[f->signals < 2 ? f->signals : 2]);
	if (nobody || ipc_request(&f->cli->chan, ADMIN_REQ_SIGNAL, &req, sizeof(req), NULL, 0, &id) < 0) {
		fprintf(stderr, "edgehub: the %s is away, nothing was sent; Ctrl-C again when it is back, or Ctrl-\\ to leave the run alone\n",
		    f->cli->up && f->away ? "device" : "hub");
		return;
	}
	f->signals++;
	fprintf(stderr, "edgehub: %s sent to the run\n", req.signal);
}

static int
say_answer(const struct cli *cli, int code)
{
	char text[256];

	if (cli->answer_len == sizeof(struct admin_text) && admin_text_ok((struct admin_text *)cli->answer))
		return cli_fail(code, "%s", cli_text(text, sizeof(text), ((struct admin_text *)cli->answer)->text));
	return cli_fail(code, "%s", strerror(-cli->status));
}

/* The one that waited for the hub's answer, if any. */
static void
early_signal(struct follow *f)
{
	int signo = f->early;

	f->early = 0;
	if (signo != 0)
		on_signal(signo, f);
}

int
follow_ask(struct follow *f, int *ret_code)
{
	_cleanup_close_ int fd = -1;
	int fds[2];
	int r;

	if (f->spec_len > ADMIN_LOG_MAX || f->bundle_given) {
		fd = fd_sealed_memfd("edgehub-run", f->spec, f->spec_len);
		if (fd < 0)
			return fd;
		fds[0] = fd;
		fds[1] = f->bundle;
		f->asking = true;
		r = cli_call(f->cli, ADMIN_REQ_RUN, NULL, 0, fds, f->bundle_given ? 2 : 1);
	} else {
		f->asking = true;
		r = cli_call(f->cli, ADMIN_REQ_RUN, f->spec, f->spec_len, NULL, 0);
	}
	f->asking = false;
	if (r < 0) {
		early_signal(f);	/* nobody answers: it ends us, as if it had come now */
		return r;
	}
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
		r = follow_ask(f, ret_code);
	if (r < 0 || *ret_code >= 0)
		return r;
	snprintf(req.handle, sizeof(req.handle), "%s", f->handle);
	f->away = false;
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
	early_signal(f);
	while (r >= 0 && f->cli->up && !f->ended)
		r = loop_turn(f->cli->loop, -1);
	return f->ended ? 0 : r < 0 ? r : f->cli->connect_err;
}

int
follow_all(struct follow *f, int gone_code)
{
	monotime_t limit = MONOTIME_NEVER;
	bool told = false;

	for (;;) {
		bool was = f->asked;
		uint64_t before = f->offset;
		int code = -1, r = attach(f, &code);

		if (f->pipe_gone)
			return cli_fail(CLI_FAILED, "nobody takes the output any more; the run goes on: edgehub logs %s -f", f->handle);
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

void
follow_say_end(const struct follow *f)
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
	else if (e->verify == RUN_CUT)
		fprintf(stderr, "edgehub: the device lost the run: the log ends with what had come until then\n");
}

int
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
	sigaddset(&mask, SIGQUIT);
	return r < 0 ? r : loop_signals(f->cli->loop, &mask, on_signal, f);
}

void
follow_print_json(const struct admin_run *end)
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
