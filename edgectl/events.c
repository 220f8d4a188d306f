/*
 * events: what happened on this device, from the two records that connectd and workerd keep, as one list by time. -f asks again each
 * second from where it was; a daemon that is away meanwhile is asked when it is back.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "edgectl/client.h"
#include "edgectl/edgectl.h"

#define EVENTS_MAX	4096	/* more than two files of each daemon hold */

struct item {
	struct ctl_event e;
	const char *source;
};

struct list {
	struct item *items;
	size_t n;
	const char *source;
};

static void
on_event(const struct ctl_event *e, void *ctx)
{
	struct list *list = ctx;

	if (list->n < EVENTS_MAX)
		list->items[list->n++] = (struct item){ *e, list->source };
}

/* Everything from *next on; moves it. The client's error is kept in it. */
static void
collect(struct edgectl *ctl, struct client *c, enum ipc_role role, struct list *list, uint64_t *next)
{
	struct ctl_events req = { .from = *next }, ans;

	client_open(c, ctl->loop, ctl->rundir, role);
	list->source = c->name;
	c->event = on_event;
	c->ctx = list;
	for (;;) {
		client_call(c, CTL_REQ_EVENTS, &req, sizeof(req), CLIENT_WAIT_MS);
		if (!client_answer(c, &ans, sizeof(ans)) || ans.from <= req.from)
			break;
		req = ans;
	}
	*next = req.from;
	client_close(c);
}

static int
by_time(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->e.at != y->e.at)
		return x->e.at < y->e.at ? -1 : 1;
	return x->e.seq < y->e.seq ? -1 : x->e.seq > y->e.seq;
}

static void
print_json(yajl_gen g, const struct item *i)
{
	json_time(g, "time", i->e.at);
	json_str(g, "source", i->source);
	json_uint(g, "sequence", i->e.seq);
	json_str(g, "event", i->e.kind);
	json_str(g, "subject", i->e.subject);
	json_str(g, "text", i->e.text);
}

static void
print_list(const struct edgectl *ctl, struct list *list, bool follow)
{
	yajl_gen g = NULL;

	qsort(list->items, list->n, sizeof(list->items[0]), by_time);
	if (ctl->json && !follow) {
		g = json_begin();
		json_open(g, "events", '[');
	}
	for (size_t i = 0; i < list->n; i++) {
		const struct item *item = &list->items[i];

		if (g != NULL) {
			json_open(g, NULL, '{');
			print_json(g, item);
			json_close(g, '}');
		} else if (ctl->json) {		/* a stream of documents */
			yajl_gen one = json_begin();

			print_json(one, item);
			json_end(one);
		} else {
			printf("%s %-8s %-12s %s%s%s\n", out_time(item->e.at), item->source, out_safe(item->e.kind), out_safe(item->e.subject),
			    item->e.subject[0] != '\0' && item->e.text[0] != '\0' ? ": " : "", out_safe(item->e.text));
		}
	}
	if (g != NULL) {
		json_close(g, ']');
		json_end(g);
	}
	fflush(stdout);
}

int
cmd_events(struct edgectl *ctl, int argc, char **argv)
{
	static struct client c[2];
	uint64_t next[2] = { 1, 1 };
	bool follow = argc == 2 && strcmp(argv[1], "-f") == 0;
	struct list list = { .n = 0 };
	_cleanup_free_ struct item *items = calloc(EVENTS_MAX, sizeof(*items));
	int code;

	if (argc > 1 && !follow)
		return usage_error("events", "no argument %s", argv[argc - 1]);
	if (items == NULL)
		return EXIT_FAILED;
	list.items = items;
	for (;;) {
		list.n = 0;
		collect(ctl, &c[0], IPC_ROLE_CONNECTD, &list, &next[0]);
		collect(ctl, &c[1], IPC_ROLE_WORKERD, &list, &next[1]);
		print_list(ctl, &list, follow);
		if (!follow || ferror(stdout))
			break;
		nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
	}
	code = c[0].error != 0 ? client_complain(&c[0], "events") : EXIT_OK;
	if (c[1].error != 0)
		code = client_complain(&c[1], "events");
	return code;
}
