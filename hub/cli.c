#include "hub/adminattach.h"
#include "hub/adminupgrade.h"
#include "hub/adminusb.h"
#include "hub/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "proto/hub/rfc3339.h"

#define QUEUE_MAX	(4u << 20)
#define HELLO_MS	5000

static int
take_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct cli *cli = ctx;
	int r = ipc_take_hello(chan, msg, IPC_ROLE_CONTROL, NULL);

	if (r == 0)
		cli->up = true;
	return r;
}

static void
say_text(const uint8_t *data)
{
	struct admin_text text;
	char clean[sizeof(text.text)];

	memcpy(&text, data, sizeof(text));
	if (admin_text_ok(&text))
		fprintf(stderr, "edgehub: %s\n", cli_text(clean, sizeof(clean), text.text));
}

static int
take_answer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct cli *cli = ctx;

	(void)chan;
	if (cli->answered || msg->hdr.id != cli->want) {
		/* Of a signal that was sent on the way. */
		if (cli->other != NULL)
			cli->other(cli, msg, cli->ctx);
		else if (msg->hdr.status < 0 && msg->hdr.len == sizeof(struct admin_text))
			say_text(msg->data);
		return 0;
	}
	cleanup_close(&cli->answer_fd);
	cli->answer_fd = ipc_take_fd(msg, 0);
	free(cli->answer);
	cli->answer = malloc(msg->hdr.len + 1u);
	if (cli->answer == NULL)
		return -ENOMEM;
	memcpy(cli->answer, msg->data, msg->hdr.len);
	cli->answer_len = msg->hdr.len;
	cli->status = msg->hdr.status;
	cli->answered = true;
	return 0;
}

static int
take_event(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct cli *cli = ctx;

	(void)chan;
	return cli->event != NULL ? cli->event(cli, msg, cli->ctx) : -EPROTO;
}

#define ANSWER(type) { type, IPC_ST_OPEN, 0, 0, 0, ADMIN_MAX, take_answer }
#define EVENT(type, min, max) { type, IPC_ST_OPEN, 0, 0, min, max, take_event }

static const struct ipc_rule rules[] = {
	{ IPC_HELLO, IPC_ST_HELLO, 0, 0, sizeof(struct ipc_hello), sizeof(struct ipc_hello), take_hello },
	ANSWER(ADMIN_ANS_SECRET_REVOKE), ANSWER(ADMIN_ANS_SECRET_REFRESH),
	ANSWER(ADMIN_ANS_STATUS), ANSWER(ADMIN_ANS_TOKEN), ANSWER(ADMIN_ANS_DEVICES), ANSWER(ADMIN_ANS_RUNS),
	ANSWER(ADMIN_ANS_TOKENS), ANSWER(ADMIN_ANS_TOKEN_REVOKE), ANSWER(ADMIN_ANS_UPGRADE),
	EVENT(ADMIN_EV_UPGRADE, sizeof(struct admin_upgrade), sizeof(struct admin_upgrade)),
	EVENT(ADMIN_EV_TOKEN, sizeof(struct admin_token), sizeof(struct admin_token)),
	ANSWER(ADMIN_ANS_USB), ANSWER(ADMIN_ANS_USB_LIST),
	EVENT(ADMIN_EV_USB, sizeof(struct admin_usb_item), sizeof(struct admin_usb_item)),
	EVENT(ADMIN_EV_USB_END, sizeof(struct admin_usb_item), sizeof(struct admin_usb_item)),
	ANSWER(ADMIN_ANS_RUN), ANSWER(ADMIN_ANS_SHELL), ANSWER(ADMIN_ANS_FOLLOW), ANSWER(ADMIN_ANS_SIGNAL), ANSWER(ADMIN_ANS_REVOKE),
	{ ADMIN_ANS_RESULT, IPC_ST_OPEN, 0, 1, 0, ADMIN_MAX, take_answer },
	EVENT(ADMIN_EV_DEVICE, sizeof(struct admin_device), ADMIN_MAX),
	EVENT(ADMIN_EV_RUN, sizeof(struct admin_run), sizeof(struct admin_run)),
	EVENT(ADMIN_EV_LOG, sizeof(struct admin_log) + 1, sizeof(struct admin_log) + ADMIN_LOG_MAX),
	EVENT(ADMIN_EV_AWAY, sizeof(struct admin_away), sizeof(struct admin_away)),
	EVENT(ADMIN_EV_GAP, sizeof(struct admin_gap), sizeof(struct admin_gap)),
	ANSWER(ADMIN_ANS_PIPE),
	EVENT(ADMIN_EV_PIPE_END, sizeof(struct admin_text), sizeof(struct admin_text)),
	ANSWER(ADMIN_ANS_ATTACH),
	EVENT(ADMIN_EV_ATTACH_STATE, sizeof(struct admin_attach_state), sizeof(struct admin_attach_state)),
	EVENT(ADMIN_EV_ATTACH_END, sizeof(struct admin_attach_end), sizeof(struct admin_attach_end)),
	ANSWER(ADMIN_ANS_FILE), ANSWER(ADMIN_ANS_L2), ANSWER(ADMIN_ANS_L2_TAP), ANSWER(ADMIN_ANS_HARNESS),
	EVENT(ADMIN_EV_L2_END, sizeof(struct admin_text), sizeof(struct admin_text)),
	EVENT(ADMIN_EV_END, sizeof(struct admin_run), sizeof(struct admin_run)),
};

static void
ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct cli *cli = ctx;

	(void)chan;
	cli->connect_err = err < 0 ? err : -ECONNRESET;
	cli->up = false;
}

int
cli_open(struct cli *cli)
{
	static struct ipc_conf conf = { .rules = rules, .nrules = sizeof(rules) / sizeof(rules[0]),
		.max_payload = ADMIN_MAX, .queue_max = QUEUE_MAX, .ended = ended };
	monotime_t limit = monotime_add_ms(monotime_now(), HELLO_MS);
	int fd, r;

	if (cli->loop == NULL) {
		r = loop_new(&cli->loop);
		if (r < 0)
			return r;
	}
	cli_close(cli);
	fd = ipc_connect(cli->sock);
	if (fd < 0)
		return fd;
	conf.ctx = cli;
	cli->connect_err = 0;
	r = ipc_chan_init(&cli->chan, cli->loop, fd, &conf);
	if (r == 0)
		r = ipc_send_hello(&cli->chan, IPC_ROLE_CONTROL, 0);
	while (r == 0 && !cli->up && cli->connect_err == 0) {
		int64_t left = monotime_diff_ms(limit, monotime_now());

		r = left > 0 ? loop_turn(cli->loop, (int)left) : -ETIMEDOUT;
	}
	return r < 0 ? r : cli->connect_err;
}

void
cli_close(struct cli *cli)
{
	ipc_chan_done(&cli->chan);
	cli->up = false;
}

int
cli_call(struct cli *cli, uint16_t type, const void *data, size_t len, const int *fds, unsigned nfds)
{
	int r = ipc_request(&cli->chan, type, data, len, fds, nfds, &cli->want);

	cli->answered = false;
	while (r >= 0 && !cli->answered && cli->up)
		r = loop_turn(cli->loop, -1);
	if (r >= 0 && !cli->answered)
		r = cli->connect_err;
	return r < 0 ? r : 0;
}

int
cli_fail(int code, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fprintf(stderr, "edgehub: %s\n", line);
	return code;
}

int
cli_usage(const char *line)
{
	return cli_fail(CLI_USAGE, "usage: edgehub %s", line);
}

int
cli_say_unreachable(const struct cli *cli, int err)
{
	if (err == -EACCES || err == -EPERM)
		return cli_fail(CLI_DENIED, "%s: permission denied: be root (sudo edgehub ...), or the user that the hub runs as", cli->sock);
	if (err == -ENOENT || err == -ECONNREFUSED)
		return cli_fail(CLI_NOBODY, "%s: nobody answers; is the hub running (systemctl status edgehub, or edgehub serve)?", cli->sock);
	if (err == -EPROTO)
		return cli_fail(CLI_FAILED, "%s: the hub is of another version than this program", cli->sock);
	return cli_fail(CLI_NOBODY, "%s: %s", cli->sock, strerror(-err));
}

int
cli_request(struct cli *cli, uint16_t type, const void *data, size_t len)
{
	char text[256];
	int r = cli_open(cli);

	if (r == 0)
		r = cli_call(cli, type, data, len, NULL, 0);
	if (r < 0)
		return cli_say_unreachable(cli, r);
	if (cli->status == 0)
		return 0;
	if (cli->answer_len == sizeof(struct admin_text) && admin_text_ok((struct admin_text *)cli->answer))
		return cli_fail(CLI_FAILED, "%s", cli_text(text, sizeof(text), ((struct admin_text *)cli->answer)->text));
	return cli_fail(CLI_FAILED, "%s", strerror(-cli->status));
}

bool
cli_answer(const struct cli *cli, void *ret_v, size_t size)
{
	if (cli->answer_len != size)
		return false;
	memcpy(ret_v, cli->answer, size);
	return true;
}

void
cli_print_json(const struct json_w *w)
{
	size_t len;

	if (json_w_done(w, &len) == 0)
		printf("%.*s\n", (int)len, w->buf);
}

int
cli_done(const struct cli *cli, int code)
{
	if (code == CLI_OK && cli->json)
		puts("{\"ok\":true}");
	return code;
}

const char *
cli_text(char *buf, size_t size, const char *s)
{
	size_t i = 0;

	for (; s[i] != '\0' && i < size - 1; i++)
		buf[i] = (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? '?' : s[i];
	buf[i] = '\0';
	return buf;
}

const char *
cli_time(char buf[32], int64_t ns)
{
	time_t t = (time_t)(ns / 1000000000);
	int64_t age = (monotime_wall_ns() - ns) / 1000000000;
	struct tm tm;

	if (ns == 0)
		snprintf(buf, 32, "-");
	else if (age >= 0 && age < 120)
		snprintf(buf, 32, "%lld s ago", (long long)age);
	else if (gmtime_r(&t, &tm) == NULL || strftime(buf, 32, "%Y-%m-%d %H:%M:%SZ", &tm) == 0)
		snprintf(buf, 32, "?");
	return buf;
}

void
cli_json_time(struct json_w *w, const char *key, int64_t ns)
{
	char stamp[RFC3339_SIZE];

	if (ns == 0)
		json_w_null(w, key);
	else
		json_w_str(w, key, rfc3339_format(ns, stamp));
}

int
cli_exit_code(const struct admin_run *run)
{
	struct run_info info = { .state = (enum run_state)run->state, .exit_code = run->exit_code, .term_signal = run->term_signal,
		.timed_out = (run->flags & ADMIN_RUN_TIMED_OUT) != 0 };

	snprintf(info.outcome, sizeof(info.outcome), "%.15s", run->outcome);
	return run_exit_code(&info);
}

void
cli_json_run(struct json_w *w, const struct admin_run *run)
{
	char hex[33];

	json_w_str(w, "handle", run->handle);
	json_w_str(w, "device", run->device);
	json_w_str(w, "device_name", run->device_name);
	json_w_str(w, "state", run_state_name((enum run_state)run->state));
	json_w_bool(w, "device_connected", (run->flags & ADMIN_RUN_CONNECTED) != 0);
	json_w_str(w, "command", run->command);
	json_w_str(w, "work_dir", run->work_dir);
	json_w_int(w, "pid", run->pid);
	if (run_state_is_final((enum run_state)run->state)) {
		json_w_int(w, "exit_code", run->exit_code);
		json_w_int(w, "run_exit_code", cli_exit_code(run));
	} else {
		json_w_null(w, "exit_code");
		json_w_null(w, "run_exit_code");
	}
	json_w_int(w, "signal", run->term_signal);
	json_w_str(w, "outcome", run->outcome);
	json_w_str(w, "limit", run->limit);
	json_w_str(w, "code", run->code);
	json_w_str(w, "error", run->error);
	json_w_bool(w, "timed_out", (run->flags & ADMIN_RUN_TIMED_OUT) != 0);
	cli_json_time(w, "created", run->created);
	cli_json_time(w, "started", run->started);
	cli_json_time(w, "finished", run->finished);
	json_w_int(w, "log_bytes", (int64_t)run->bytes);
	json_w_int(w, "log_durable", (int64_t)run->durable);
	json_w_bool(w, "log_gapped", (run->flags & ADMIN_RUN_GAPPED) != 0);
	json_w_int(w, "log_gaps", run->ngaps);
	json_w_str(w, "log_verify", run_verify_name((enum run_verify)run->verify));
	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", run->digest[i]);
	if ((run->flags & ADMIN_RUN_DIGEST) != 0)
		json_w_str(w, "log_xxh3", hex);
	else
		json_w_null(w, "log_xxh3");
}
