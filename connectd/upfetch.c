#include "connectd/upfetch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "connectd/dial.h"
#include "connectd/outq.h"
#include "version.h"

#define TICK_MS		50
#define PIECE		16384u
#define RCVBUF		(64 * 1024)	/* what the kernel takes ahead of us: a fast mirror must not fill the line */

struct upfetch {
	struct loop *loop;
	struct dial_params dial_params;
	struct dial *dial;
	struct transport t;
	struct loop_io io;
	struct loop_timer tick, stall, late;
	struct upfetch_cb cb;
	void *ctx;
	uint64_t from, max, rate, left;
	char etag[HTTPGET_ETAG_SIZE];
	struct outq out;
	struct http_head *head;
	bool body;			/* the head is done */
	bool ready;			/* something may be there to read */
	int64_t stall_ms;
	struct upfetch_end end;
	bool ended;
};

static void
quiet(struct upfetch *f)
{
	dial_free(f->dial);
	f->dial = NULL;
	loop_io_del(f->loop, &f->io);
	loop_timer_del(f->loop, &f->tick);
	loop_timer_del(f->loop, &f->stall);
}

/* The first one counts; ended() follows from the loop. */
static void
finish(struct upfetch *f, enum httpget_what what, const char *code, const char *detail)
{
	if (f->ended)
		return;
	f->ended = true;
	f->end.what = what;
	snprintf(f->end.code, sizeof(f->end.code), "%s", code);
	snprintf(f->end.detail, sizeof(f->end.detail), "%s", detail);
	loop_timer_set(f->loop, &f->late, monotime_now());
}

static void
late(struct loop_timer *timer)
{
	struct upfetch *f = timer->ctx;
	struct upfetch_end end = f->end;

	quiet(f);
	f->cb.ended(&end, f->ctx);
}

static void
stalled(struct loop_timer *timer)
{
	finish(timer->ctx, HTTPGET_AGAIN, "mirror-slow", "the mirror has sent nothing for too long");
}

static void
progress(struct upfetch *f)
{
	loop_timer_set_ms(f->loop, &f->stall, f->stall_ms);
}

/* ---- the answer ---- */

static void
take_head(struct upfetch *f)
{
	struct httpget g;
	char detail[UPFETCH_DETAIL];

	httpget_judge(f->head, f->from, f->max, &g);
	f->end.retry_after_ms = g.retry_after_ms;
	if (g.what != HTTPGET_BODY) {
		snprintf(detail, sizeof(detail), "HTTP %u: %s", f->head->status, g.detail);
		finish(f, g.what, g.code, detail);
		return;
	}
	f->body = true;
	f->left = g.total - g.from;
	if (f->cb.head(&g, f->ctx) < 0)
		finish(f, HTTPGET_FINAL, "", "");
}

static void
take_body(struct upfetch *f, const uint8_t *data, size_t len)
{
	len = len < f->left ? len : (size_t)f->left;
	if (len == 0)
		return;
	f->left -= len;
	if (f->cb.body(data, len, f->ctx) < 0)
		finish(f, HTTPGET_FINAL, "", "");
	else if (f->left == 0)
		finish(f, HTTPGET_BODY, "", "");
}

static void
take(struct upfetch *f, const uint8_t *data, size_t len)
{
	size_t used;
	int r;

	progress(f);
	if (f->body) {
		take_body(f, data, len);
		return;
	}
	r = http_feed(f->head, data, len, &used);
	if (r < 0)
		finish(f, HTTPGET_AGAIN, "mirror-bad", "the mirror's answer is not HTTP");
	if (r <= 0)
		return;
	take_head(f);
	if (!f->ended)
		take_body(f, data + used, len - used);
}

/* At most what this moment may have. What is left is read at the next tick. */
static void
run(struct upfetch *f)
{
	uint64_t budget = f->rate * TICK_MS / 1000 + 1;
	uint8_t buf[PIECE];
	ssize_t n = 1;
	int r = transport_push(&f->t, &f->out);

	if (r < 0 && r != -EAGAIN) {
		finish(f, HTTPGET_AGAIN, "mirror-cut", "the connection to the mirror was lost");
		return;
	}
	while (!f->ended && budget > 0 && (n = transport_read(&f->t, buf, budget < sizeof(buf) ? (size_t)budget : sizeof(buf))) > 0) {
		budget -= (uint64_t)n;
		take(f, buf, (size_t)n);
	}
	f->ready = n > 0;
	if (f->ended || n == -EAGAIN)
		return;
	if (n <= 0)
		finish(f, HTTPGET_AGAIN, "mirror-cut", f->body ? "the connection to the mirror was cut" :
		    "the mirror closed the connection without an answer");
	else
		loop_timer_set_ms(f->loop, &f->tick, TICK_MS);
}

static void
tick(struct loop_timer *timer)
{
	struct upfetch *f = timer->ctx;

	if (f->ended)
		return;
	if (f->cb.busy(f->ctx)) {
		progress(f);		/* it is us who wait */
		loop_timer_set_ms(f->loop, &f->tick, TICK_MS);
		return;
	}
	run(f);
}

static void
readable(struct loop_io *io, uint32_t events)
{
	struct upfetch *f = io->ctx;

	if (!f->ended && !loop_timer_armed(&f->tick))
		loop_timer_set_ms(f->loop, &f->tick, f->ready ? TICK_MS : 0);
}

/* ---- the request ---- */

static int
ask(struct upfetch *f)
{
	char authority[URL_AUTHORITY_SIZE], range[HTTPGET_ETAG_SIZE + 64] = "";
	size_t size = URL_PATH_SIZE + URL_AUTHORITY_SIZE + sizeof(range) + 256;
	char *room = (char *)outq_room(&f->out, size);
	int n;

	if (room == NULL)
		return -ENOMEM;
	if (f->from > 0)
		snprintf(range, sizeof(range), "Range: bytes=%llu-\r\n%s%s%s", (unsigned long long)f->from, f->etag[0] != '\0' ? "If-Range: " : "",
		    f->etag, f->etag[0] != '\0' ? "\r\n" : "");
	url_authority(&f->dial_params.url, false, authority);
	n = snprintf(room, size, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: edgeward/%s\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
	    "%sConnection: close\r\n\r\n", f->dial_params.url.path, authority, EDGEWARD_VERSION, range);
	outq_commit(&f->out, (size_t)n);
	return 0;
}

static void
dialled(const char *peer, void *ctx)
{
	struct upfetch *f = ctx;
	int size = RCVBUF, r;

	dial_free(f->dial);
	f->dial = NULL;
	setsockopt(f->t.fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	progress(f);
	r = ask(f);
	if (r == 0)
		r = loop_io_add(f->loop, &f->io, f->t.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, readable, f);
	if (r < 0)
		finish(f, HTTPGET_AGAIN, "internal", strerror(-r));
	else
		run(f);
}

static void
dial_stage(enum hubconn_stage stage, void *ctx)
{
}

static void
dial_failed(const struct hubconn_end *end, void *ctx)
{
	char detail[UPFETCH_DETAIL];

	/* The sentences are of a connection to the hub. */
	if (strncmp(end->detail, "the hub", 7) == 0)
		snprintf(detail, sizeof(detail), "the mirror%.150s", end->detail + 7);
	else
		snprintf(detail, sizeof(detail), "%.160s", end->detail);
	finish(ctx, HTTPGET_AGAIN, end->cause == HUBCONN_TLS_FAILED ? "mirror-tls" : "mirror-away", detail);
}

static int
init(struct upfetch *f, struct netenv *env, const struct upfetch_params *p, char err[200])
{
	static const struct dial_cb cb = { .stage = dial_stage, .done = dialled, .failed = dial_failed };
	int r;

	if (strncasecmp(p->hub.url, "https://", 8) != 0) {
		snprintf(err, 200, "a mirror has an https:// address");
		return -EINVAL;
	}
	r = dial_params_init(&f->dial_params, &p->hub, netenv_proxy(env), err);
	if (r < 0)
		return r;
	f->head = malloc(sizeof(*f->head));
	if (f->head == NULL)
		return -ENOMEM;
	http_init(f->head, HTTP_RESPONSE);
	return dial_start(env, f->loop, &f->dial_params, &cb, f, &f->t, &f->dial);
}

int
upfetch_start(struct netenv *env, struct loop *loop, const struct upfetch_params *params, const struct upfetch_cb *cb, void *ctx,
    struct upfetch **ret_fetch, char err[200])
{
	struct upfetch *f = calloc(1, sizeof(*f));
	int r;

	snprintf(err, 200, "out of memory or descriptors");
	if (f == NULL)
		return -ENOMEM;
	f->loop = loop;
	f->cb = *cb;
	f->ctx = ctx;
	f->io.fd = f->t.fd = -1;
	f->from = params->from;
	f->max = params->max;
	f->rate = params->rate;
	f->stall_ms = params->hub.connect_timeout_ms;
	f->end.retry_after_ms = -1;
	snprintf(f->etag, sizeof(f->etag), "%s", params->etag);
	loop_timer_init(&f->tick, tick, f);
	loop_timer_init(&f->stall, stalled, f);
	loop_timer_init(&f->late, late, f);
	r = init(f, env, params, err);
	if (r < 0) {
		upfetch_free(f);
		return r;
	}
	*ret_fetch = f;
	return 0;
}

void
upfetch_free(struct upfetch *f)
{
	if (f == NULL)
		return;
	quiet(f);
	loop_timer_del(f->loop, &f->late);
	transport_done(&f->t);
	outq_done(&f->out);
	explicit_bzero(&f->dial_params.proxy, sizeof(f->dial_params.proxy));
	free(f->head);
	free(f);
}
