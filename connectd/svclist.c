/*
 * The services of this device, for /api/v1/services: those that edgeward.conf declares, and what answers HTTP on the loopback ports that are
 * looked at. Nothing is executed and nothing is scanned: a port is asked only where the policy would let the hub reach it anyway. Each
 * question is one GET with a limit, all go at the same time, and of an answer only the head counts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/parse.h"
#include "connectd/svc.h"

#define PROBES_MAX	16u
#define PROBE_MS	2000
#define BODY_MAX	32768u
#define HASS_PORT	8123u		/* Home Assistant; its API answers 200 or 401 */

struct probe {
	struct svc_list *list;
	struct svcconn *conn;
	struct http_head *head;		/* while it is asked */
	uint16_t port;
	unsigned status;		/* 0: no HTTP there */
	char server[64];
};

struct svc_list {
	struct svc_stream *st;
	struct loop_timer timer;	/* the limit; or: all have answered */
	unsigned n, waiting;
	struct probe probes[PROBES_MAX];
};

static const char get_root[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: edgeward\r\nConnection: close\r\n\r\n";
static const char get_api[] = "GET /api/ HTTP/1.1\r\nHost: localhost\r\nUser-Agent: edgeward\r\nConnection: close\r\n\r\n";

bool
svc_list_find(const struct conf *conf, const char *name, struct service_target *ret_target)
{
	char found[SERVICE_NAME_SIZE];

	for (const char *i = NULL; (i = keyfile_list_next(&conf->services, i)) != NULL;)
		if (service_declared_parse(i, found, ret_target) == 0 && strcmp(found, name) == 0)
			return true;
	return false;
}

/* ---- one port ---- */

static void
over(struct probe *p)
{
	struct svc_list *list = p->list;

	svcconn_free(p->conn);
	p->conn = NULL;
	free(p->head);
	p->head = NULL;
	if (--list->waiting == 0)
		loop_timer_set(list->st->s->p.loop, &list->timer, monotime_now());
}

static void
take_answer(struct probe *p)
{
	const char *server = http_header(p->head, "Server");

	p->status = p->head->status;
	for (size_t i = 0; server != NULL && server[i] != '\0' && i < sizeof(p->server) - 1; i++)
		p->server[i] = server[i] >= ' ' && server[i] <= '~' ? server[i] : '?';
}

static void
readable(void *ctx)
{
	struct probe *p = ctx;
	char buf[1024];
	size_t used;
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = svcconn_read(p->conn, buf, sizeof(buf))) > 0)
		r = http_feed(p->head, buf, (size_t)n, &used);
	if (r == 0 && n == -EAGAIN)
		return;
	if (r == 1)
		take_answer(p);
	over(p);
}

static void
ready(bool warned, void *ctx)
{
	struct probe *p = ctx;
	const char *question = p->port == HASS_PORT ? get_api : get_root;

	if (svcconn_put(p->conn, question, strlen(question)) < 0)
		over(p);
	else
		readable(p);
}

static void
failed(const struct svcconn_end *end, void *ctx)
{
	over(ctx);
}

static void
writable(void *ctx)
{
}

static void
ask(struct svc_list *list, uint32_t port)
{
	static const struct svcconn_cb cb = { .ready = ready, .failed = failed, .readable = readable, .writable = writable };
	const struct session_params *sp = &list->st->s->p;
	struct svcconn_params params = { .loop = sp->loop, .env = sp->env, .policy = sp->policy, .timeout_ms = PROBE_MS,
		.target = { .scheme = SERVICE_HTTP, .host = "localhost", .port = (uint16_t)port } };
	struct probe *p = &list->probes[list->n];

	for (unsigned i = 0; i < list->n; i++)
		if (list->probes[i].port == port)
			return;
	if (list->n == PROBES_MAX)
		return;
	p->list = list;
	p->port = (uint16_t)port;
	p->head = malloc(sizeof(*p->head));
	if (p->head == NULL || svcconn_open(&params, &cb, p, &p->conn) < 0) {
		free(p->head);
		p->head = NULL;
		return;
	}
	http_init(p->head, HTTP_RESPONSE);
	list->n++;
	list->waiting++;
}

/* ---- the answer ---- */

static const char *
scheme_text(enum service_scheme scheme)
{
	return scheme == SERVICE_UNIX ? "unix" : scheme == SERVICE_HTTPS ? "https" : "http";
}

/* "" when the policy would let it be dialled, as far as that is known without a resolver. */
static void
judge(const struct policy *policy, const struct service_target *t, const char *name, char why[SVCJUDGE_WHY])
{
	union netaddr addrs[2];
	const bool own[2] = { false, false };
	size_t n = 0;

	if (svcjudge_target(policy, t, name, why) == SVC_DENIED || t->scheme == SERVICE_UNIX)
		return;
	if (t->ip) {
		n = netaddr_set(&addrs[0], t->host, t->ip6, t->port) ? 1 : 0;
	} else if (strcmp(t->host, "localhost") == 0) {
		netaddr_set(&addrs[0], "127.0.0.1", false, t->port);
		n = 1;
	}
	if (svcjudge_addresses(policy, t, addrs, own, n, why) != SVC_DENIED)
		why[0] = '\0';
}

static void
put_declared(struct json_w *w, const struct session_params *p, const char *item)
{
	struct service_target t;
	char name[SERVICE_NAME_SIZE], text[SERVICE_AUTHORITY_SIZE + 16], why[SVCJUDGE_WHY];

	if (service_declared_parse(item, name, &t) < 0)
		return;
	judge(p->policy, &t, name, why);
	json_w_obj(w, NULL);
	json_w_str(w, "name", name);
	json_w_str(w, "type", name);
	json_w_str(w, "scheme", scheme_text(t.scheme));
	if (t.scheme != SERVICE_UNIX)
		json_w_int(w, "port", t.port);
	json_w_str(w, "source", "declared");
	json_w_str(w, "target", service_target_text(&t, text, sizeof(text)));
	json_w_bool(w, "ready", why[0] == '\0');
	if (why[0] != '\0') {
		json_w_arr(w, "reasons");
		json_w_str(w, NULL, why);
		json_w_end_arr(w);
	}
	json_w_end_obj(w);
}

static void
put_found(struct json_w *w, const struct probe *p)
{
	bool hass = p->port == HASS_PORT && (p->status == 200 || p->status == 401);
	char name[32], target[40];

	snprintf(name, sizeof(name), "http-%u", p->port);
	snprintf(target, sizeof(target), "http://localhost:%u", p->port);
	json_w_obj(w, NULL);
	json_w_str(w, "name", hass ? "home-assistant" : name);
	json_w_str(w, "type", hass ? "home-assistant" : name);
	json_w_str(w, "scheme", "http");
	json_w_int(w, "port", p->port);
	json_w_str(w, "source", "found");
	json_w_str(w, "target", target);
	json_w_bool(w, "ready", true);
	if (p->server[0] != '\0')
		json_w_str(w, "server", p->server);
	json_w_end_obj(w);
}

/* A port that is declared is not told twice. */
static bool
is_declared(const struct conf *conf, uint16_t port)
{
	struct service_target t;
	char name[SERVICE_NAME_SIZE];

	for (const char *i = NULL; (i = keyfile_list_next(&conf->services, i)) != NULL;)
		if (service_declared_parse(i, name, &t) == 0 && t.scheme != SERVICE_UNIX && t.port == port &&
		    (strcmp(t.host, "localhost") == 0 || strcmp(t.host, "127.0.0.1") == 0 || strcmp(t.host, "::1") == 0))
			return true;
	return false;
}

static void
finish(struct loop_timer *timer)
{
	struct svc_list *list = timer->ctx;
	struct svc_stream *st = list->st;
	const struct conf *conf = st->s->p.conf;
	char *body = malloc(BODY_MAX);
	struct json_w w;
	size_t len = 0;

	if (body != NULL) {
		json_w_init(&w, body, BODY_MAX);
		json_w_obj(&w, NULL);
		json_w_arr(&w, "services");
		for (const char *i = NULL; (i = keyfile_list_next(&conf->services, i)) != NULL;)
			put_declared(&w, &st->s->p, i);
		for (unsigned i = 0; i < list->n; i++)
			if (list->probes[i].status != 0)
				put_found(&w, &list->probes[i]);
		json_w_end_arr(&w);
		json_w_end_obj(&w);
	}
	svc_list_free(list);
	st->list = NULL;
	if (body == NULL || json_w_done(&w, &len) < 0)
		svc_answer_text(st, 503, "this device is out of memory");
	else
		svc_answer(st, 200, "application/json", "", body, len);
	free(body);
}

/* The ports of the policy's list that are loopback's, and of them, where edgeward.conf names some, these alone. */
static void
ask_all(struct svc_list *list)
{
	const struct session_params *p = &list->st->s->p;
	struct service_target t;
	char text[KEYFILE_STR + 8], port[8];

	for (const char *i = NULL; (i = keyfile_list_next(&p->policy->services, i)) != NULL;) {
		snprintf(text, sizeof(text), "http://%s", i);
		if (service_target_parse(text, false, &t) < 0 || (strcmp(t.host, "localhost") != 0 && strcmp(t.host, "127.0.0.1") != 0 &&
		    strcmp(t.host, "::1") != 0))
			continue;
		snprintf(port, sizeof(port), "%u", t.port);
		if ((p->conf->service_ports.word == POLICY_WORD || keyfile_list_has(&p->conf->service_ports, port, strlen(port))) &&
		    !is_declared(p->conf, t.port))
			ask(list, t.port);
	}
}

void
svc_list_begin(struct svc_stream *st)
{
	struct svc_list *list = calloc(1, sizeof(*list));

	if (list == NULL) {
		svc_answer_text(st, 503, "this device is out of memory");
		return;
	}
	st->list = list;
	list->st = st;
	loop_timer_init(&list->timer, finish, list);
	ask_all(list);
	loop_timer_set_ms(st->s->p.loop, &list->timer, list->waiting > 0 ? PROBE_MS : 0);
}

void
svc_list_free(struct svc_list *list)
{
	if (list == NULL)
		return;
	loop_timer_del(list->st->s->p.loop, &list->timer);
	for (unsigned i = 0; i < list->n; i++) {
		svcconn_free(list->probes[i].conn);
		free(list->probes[i].head);
	}
	free(list);
}
