#include "connectd/hold.h"

#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "connectd/session.h"

struct held_frame {
	struct held_frame *next;
	struct cloop_frame f;
	struct json_doc *doc;
	size_t len;
	int64_t channel;		/* it opens, 0 = none */
	uint64_t window;		/* the hub promises on it already */
};

static bool
opens(const struct cloop_frame *f, const char *kind)
{
	const char *k = json_get_str(f->payload, "kind");

	return strcmp(f->type, "stream_open") == 0 && k != NULL && strcmp(k, kind) == 0;
}

/* Without workerd it can only be refused. */
static bool
needs_work(const struct cloop_frame *f)
{
	static const char *const types[] = { "start", "device_open", "attach_open", "secret_refresh" };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(f->type, types[i]) == 0)
			return true;
	return opens(f, "attach") || opens(f, "file");
}

/* May be about something that waits: a workload that is to start, a stream of it, a lease. Streams to services, or with a release, are not. */
static bool
follows(const struct cloop_frame *f)
{
	static const char *const types[] = { "signal", "status_req", "device_close", "attach_data", "attach_resize", "attach_close", "revoke" };

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(f->type, types[i]) == 0)
			return true;
	return needs_work(f) || opens(f, "bundle");
}

static void
over(struct loop_timer *timer)
{
	hold_release(timer->ctx);
}

void
hold_init(struct session *s)
{
	s->hold.last = &s->hold.first;
	loop_timer_init(&s->hold.over, over, s);
}

static struct held_frame *
take_out(struct hold *h, struct held_frame **p)
{
	struct held_frame *e = *p;

	*p = e->next;
	if (h->last == &e->next)
		h->last = p;
	h->n--;
	h->bytes -= e->len;
	return e;
}

static void
forget(struct held_frame *e)
{
	json_doc_free(e->doc);
	free(e);
}

void
hold_done(struct session *s)
{
	loop_timer_del(s->p.loop, &s->hold.over);
	while (s->hold.first != NULL)
		forget(take_out(&s->hold, &s->hold.first));
}

void
hold_release(struct session *s)
{
	loop_timer_del(s->p.loop, &s->hold.over);
	/* One that ends the session is the last; they go with it. */
	while (s->hold.first != NULL && s->state == SESSION_UP) {
		struct held_frame *e = take_out(&s->hold, &s->hold.first);
		const struct stream_frame window = { .type = STREAM_WINDOW_TO, .channel = (uint32_t)e->channel, .offset = e->window };

		frames_dispatch(s, &e->f);
		if (e->window > 0 && s->state == SESSION_UP)
			mux_frame(&s->mux, &window);
		forget(e);
	}
}

bool
hold_take(struct session *s, const struct cloop_frame *f, struct json_doc *doc)
{
	struct hold *h = &s->hold;
	int64_t away = workchan_away_ms(s->p.work);
	size_t len = json_doc_size(doc);
	struct held_frame *e;

	if (s->state != SESSION_UP ||
	    (h->n == 0 ? !needs_work(f) || (away == 0 && !workchan_is_gone(s->p.work)) || away < 0 || away >= HOLD_MS : !follows(f)))
		return false;
	if (h->n >= HOLD_FRAMES || len > HOLD_BYTES - h->bytes || (e = malloc(sizeof(*e))) == NULL) {
		hold_release(s);
		return false;
	}
	if (h->n == 0) {
		log_info("%s waits for workerd", f->type);
		loop_timer_set_ms(s->p.loop, &h->over, HOLD_MS - away);
	}
	*e = (struct held_frame){ .f = *f, .doc = doc, .len = len };
	if (strcmp(f->type, "stream_open") == 0 || strcmp(f->type, "device_open") == 0)
		json_get_int(f->payload, "channel", 1, UINT32_MAX, &e->channel);
	*h->last = e;
	h->last = &e->next;
	h->n++;
	h->bytes += len;
	return true;
}

bool
hold_stream_frame(struct session *s, const struct stream_frame *f)
{
	for (struct held_frame **p = &s->hold.first; *p != NULL; p = &(*p)->next) {
		struct held_frame *e = *p;

		if (e->channel != f->channel)
			continue;
		if (f->type == STREAM_WINDOW_TO) {
			e->window = f->offset > e->window ? f->offset : e->window;
			return true;
		}
		if (f->type != STREAM_RESET) {
			hold_release(s);
			return false;
		}
		take_out(&s->hold, p);
		session_send_error(s, e->f.id, "protocol", "the hub has reset this channel");
		forget(e);
		return true;
	}
	return false;
}
