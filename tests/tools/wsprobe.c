/*
 * One hub connection driven from the command line, for tests: makes one attempt, sends every message back, and prints
 * each event as one line of JSON. The process ends when the attempt has ended, with 0.
 *
 *   -k FILE  extra CA           -p PINS  pins             -x URL   proxy ("none", "" = environment)   -n LIST  no_proxy
 *   -t MS    connect timeout    -w MS    write timeout    -f SECS  clock floor                       -e  offer edgeward.1
 *   -i       insecure           -s N:SIZE  send N bulk messages of SIZE bytes, then close            -q  no echo
 *   -c MS    close after MS     -r N     attempts one after the other
 * The bearer comes from WSPROBE_BEARER.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/loop.h"
#include "common/parse.h"
#include "connectd/hubconn.h"
#include "connectd/netenv.h"
#include "proto/hub/json.h"

static struct probe {
	struct loop *loop;
	struct netenv *env;
	struct hubconn *conn;
	struct hubconn_params params;
	struct loop_timer close_timer;
	const char *ca_file;
	uint32_t attempts, messages, size, close_ms;
	bool quiet;
	uint64_t texts, binaries, bytes;
} self = {
	.ca_file = "", .attempts = 1,
	.params = { .bearer = "", .pins = "", .proxy = "none", .no_proxy = "", .connect_timeout_ms = 5000,
	    .write_timeout_ms = 5000 },
};

static void start(void);

static void
print(struct json_w *w)
{
	size_t len;

	json_w_end_obj(w);
	if (json_w_done(w, &len) < 0)
		exit(3);
	printf("%.*s\n", (int)len, w->buf);
	fflush(stdout);
}

static void
event(struct json_w *w, char *buf, size_t size, const char *name)
{
	json_w_init(w, buf, size);
	json_w_obj(w, NULL);
	json_w_str(w, "event", name);
}

static void
on_stage(enum hubconn_stage stage, void *ctx)
{
	char buf[200];
	struct json_w w;

	(void)ctx;
	event(&w, buf, sizeof(buf), "stage");
	json_w_int(&w, "stage", stage);
	print(&w);
}

static void
send_bulk(void)
{
	while (self.messages > 0) {
		uint8_t *room = hubconn_bulk_begin(self.conn, self.size);

		if (room == NULL)
			return;
		memset(room, 'a' + (int)(self.messages % 26), self.size);
		hubconn_bulk_commit(self.conn, self.size);
		if (--self.messages == 0)
			hubconn_close(self.conn, 1000, "done");
	}
}

static void
on_opened(bool edgeward1, const char *peer, void *ctx)
{
	char buf[2000];
	struct json_w w;

	(void)ctx;
	event(&w, buf, sizeof(buf), "opened");
	json_w_bool(&w, "edgeward1", edgeward1);
	json_w_str(&w, "peer", peer);
	print(&w);
	if (self.close_ms > 0)
		loop_timer_set_ms(self.loop, &self.close_timer, self.close_ms);
	send_bulk();
}

static void
on_text(const uint8_t *data, size_t len, void *ctx)
{
	(void)ctx;
	self.texts++;
	self.bytes += len;
	if (!self.quiet && hubconn_send_text(self.conn, data, len) < 0)
		fprintf(stderr, "no echo\n");
}

static void
on_binary(const uint8_t *data, size_t len, void *ctx)
{
	(void)ctx;
	self.binaries++;
	self.bytes += len;
	if (!self.quiet && hubconn_send_binary(self.conn, data, len) < 0)
		fprintf(stderr, "no echo\n");
}

static void
on_writable(void *ctx)
{
	(void)ctx;
	send_bulk();
}

static void
on_ended(const struct hubconn_end *end, void *ctx)
{
	char buf[4000];		/* a text may grow sixfold by escaping */
	struct json_w w;
	uint64_t rx, tx;

	(void)ctx;
	hubconn_counters(self.conn, &rx, &tx);
	event(&w, buf, sizeof(buf), "ended");
	json_w_int(&w, "cause", end->cause);
	json_w_int(&w, "stage", end->stage);
	json_w_bool(&w, "answered", end->answered);
	json_w_int(&w, "http_status", end->http_status);
	json_w_int(&w, "close_code", end->close_code);
	json_w_int(&w, "retry_after_ms", end->retry_after_ms);
	json_w_str(&w, "code", end->code);
	json_w_str(&w, "detail", end->detail);
	json_w_int(&w, "texts", (int64_t)self.texts);
	json_w_int(&w, "binaries", (int64_t)self.binaries);
	json_w_int(&w, "bytes", (int64_t)self.bytes);
	json_w_int(&w, "rx", (int64_t)rx);
	json_w_int(&w, "tx", (int64_t)tx);
	print(&w);
	hubconn_free(self.conn);
	self.conn = NULL;
	if (--self.attempts > 0)
		start();
	else
		loop_stop(self.loop);
}

static void
close_now(struct loop_timer *timer)
{
	(void)timer;
	hubconn_close(self.conn, 1000, "time");
}

static void
start(void)
{
	static const struct hubconn_cb cb = { .stage = on_stage, .opened = on_opened, .text = on_text, .binary = on_binary,
	    .writable = on_writable, .ended = on_ended };
	char err[200];

	if (hubconn_start(self.env, self.loop, &self.params, &cb, NULL, &self.conn, err) < 0) {
		fprintf(stderr, "wsprobe: %s\n", err);
		exit(1);
	}
}

static int
usage(void)
{
	fprintf(stderr, "usage: wsprobe [-eiq] [-c MS] [-f SECS] [-k FILE] [-n LIST] [-p PINS] [-r N] [-s N:SIZE] [-t MS] [-w MS] "
	    "[-x URL] URL\n");
	return 2;
}

static int
bulk_option(char *arg)
{
	char *colon = strchr(arg, ':');

	if (colon == NULL)
		return -1;
	*colon = '\0';
	return parse_u32(arg, 1, UINT32_MAX, &self.messages) < 0 || parse_u32(colon + 1, 1, 1u << 20, &self.size) < 0 ? -1 : 0;
}

static int
option(int opt, char *arg)
{
	uint32_t n = 0;

	if (strchr("cfrtw", opt) != NULL && parse_u32(arg, 0, UINT32_MAX, &n) < 0)
		return -1;
	switch (opt) {
	case 'c': self.close_ms = n; return 0;
	case 'e': self.params.offer_edgeward1 = true; return 0;
	case 'f': self.params.min_wall_ns = (int64_t)n * 1000000000; return 0;
	case 'i': self.params.insecure = true; return 0;
	case 'k': self.ca_file = arg; return 0;
	case 'n': self.params.no_proxy = arg; return 0;
	case 'p': self.params.pins = arg; return 0;
	case 'q': self.quiet = true; return 0;
	case 'r': self.attempts = n; return 0;
	case 's': return bulk_option(arg);
	case 't': self.params.connect_timeout_ms = n; return 0;
	case 'w': self.params.write_timeout_ms = n; return 0;
	case 'x': self.params.proxy = arg; return 0;
	default: return -1;
	}
}

int
main(int argc, char **argv)
{
	char err[200];
	int opt;

	while ((opt = getopt(argc, argv, "c:ef:ik:n:p:qr:s:t:w:x:")) != -1)
		if (option(opt, optarg) < 0)
			return usage();
	if (argc - optind != 1)
		return usage();
	self.params.url = argv[optind];
	if (getenv("WSPROBE_BEARER") != NULL)
		self.params.bearer = getenv("WSPROBE_BEARER");
	if (loop_new(&self.loop) < 0)
		return 1;
	loop_timer_init(&self.close_timer, close_now, NULL);
	if (netenv_new(self.loop, self.ca_file, &self.env, err) < 0) {
		fprintf(stderr, "wsprobe: %s\n", err);
		return 1;
	}
	start();
	loop_run(self.loop);
	loop_timer_del(self.loop, &self.close_timer);
	netenv_free(self.env);
	loop_free(self.loop);
	return 0;
}
