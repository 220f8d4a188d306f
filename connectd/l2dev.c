/*
 * One forwarded segment: workerd is asked for an interface in a workload's network namespace, then frames are carried both ways
 * between its descriptor and the stream.
 *
 * Who calls: devframes.c for the hub's device_open, the mux for its bytes, session.c for workerd's word. What is trusted: nothing of the
 * frames, which may come from an enemy on either side: what does not fit the MTU is counted and dropped whole, what the interface does
 * not take at once is dropped, as on any cable, and what the link does not take waits in the interface's own short queue. A turn carries a
 * bounded number of bytes, so that a storm costs the segment its frames and nobody else his turn.
 */
#include "connectd/l2dev.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "connectd/streams.h"
#include "proto/hub/l2rec.h"
#include "proto/ipc/priv.h"

#define TURN_BYTES	(256u * 1024)	/* towards the hub, before others have their turn */
#define MTU_DEFAULT	1500

struct l2dev {
	struct l2dev *next;
	struct session *s;
	struct mux_chan chan;
	char frame_id[CLOOP_ID_SIZE];
	struct l2_open open;
	bool answered, opened;		/* by workerd; device_opened was sent */
	uint32_t ipc_id;
	struct loop_io io;		/* the interface; fd -1 = not there yet */
	struct loop_timer timer;	/* ends it, from the loop */
	char why[200];
	size_t budget;			/* bytes left of this turn */
	uint64_t in, out, lost, verdicts[L2REC_VERDICTS];	/* frames; lost: the interface took none */
	struct l2rec rec;
	size_t carry, carried;		/* of buf: bytes of a record, and how many of them are gone */
	uint8_t buf[L2REC_ROOM];
};

static struct l2dev *
find(struct session *s, const char *id)
{
	struct l2dev *d = s->l2devs;

	while (d != NULL && strcmp(d->open.id, id) != 0)
		d = d->next;
	return d;
}

/* Out of the list, the descriptor closed, and with it the interface. The channel is the caller's. */
static void
drop(struct l2dev *d)
{
	struct session *s = d->s;
	struct l2dev **p = &s->l2devs;
	int fd = d->io.fd;

	while (*p != d)
		p = &(*p)->next;
	*p = d->next;
	s->nl2devs--;
	loop_timer_del(s->p.loop, &d->timer);
	loop_io_del(s->p.loop, &d->io);
	if (fd >= 0)
		close(fd);
	free(d);
}

static void
tell(struct l2dev *d, const char *why)
{
	struct l2_ref ref;
	struct json_w w;

	log_info("segment %s: %s (%llu frames to the workload, %llu from it; dropped: %llu too long, %llu too short, %llu not taken)", d->open.id,
	    why, (unsigned long long)d->in, (unsigned long long)d->out, (unsigned long long)d->verdicts[L2REC_LONG],
	    (unsigned long long)d->verdicts[L2REC_SHORT], (unsigned long long)d->lost);
	memcpy(ref.id, d->open.id, sizeof(ref.id));
	workchan_l2_close(d->s->p.work, &ref);
	if (d->s->state != SESSION_UP)
		return;
	if (!d->opened) {
		session_send_error(d->s, d->frame_id, "device_unavailable", why);
		return;
	}
	session_begin_frame(d->s, &w, "device_close", NULL, NULL);
	json_w_str(&w, "device_id", d->open.id);
	json_w_str(&w, "reason", why);
	session_send(d->s, &w);
}

static void
end(struct l2dev *d, const char *why)
{
	tell(d, why);
	mux_reset(&d->chan, d->opened ? STREAM_RESET_GONE : STREAM_RESET_REFUSED, why);
	drop(d);
}

/* Where the mux is at work on the channel it cannot be taken away: it goes at the next turn of the loop. */
static void
end_soon(struct l2dev *d, const char *why)
{
	if (d->why[0] != '\0')
		return;
	snprintf(d->why, sizeof(d->why), "%s", why);
	loop_timer_set(d->s->p.loop, &d->timer, monotime_now());
}

static void
timer_due(struct loop_timer *timer)
{
	struct l2dev *d = timer->ctx;

	end(d, d->why);
}

/* ---- frames ---- */

static void
to_workload(const uint8_t *data, size_t len, enum l2rec_verdict verdict, void *ctx)
{
	struct l2dev *d = ctx;

	d->verdicts[verdict]++;
	if (verdict != L2REC_GOOD)
		return;
	if (write(d->io.fd, data, len) == (ssize_t)len) {
		d->in++;
		return;
	}
	d->lost++;
	if (errno == EBADFD)
		end_soon(d, "the workload has ended, or has removed its interface");
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct l2dev *d = c->ctx;

	if (d->why[0] != '\0')
		return (ssize_t)len;
	if (!d->answered)
		return 0;
	if (l2rec_take(&d->rec, data, len, to_workload, d) < 0)
		end_soon(d, "the stream is not one of frames");
	return (ssize_t)len;
}

/* One frame of the interface into buf, with its length. Its bytes, 0 = there is none now. */
static size_t
read_frame(struct l2dev *d, uint8_t *buf, size_t size)
{
	size_t head = l2rec_head(d->rec.offload);
	ssize_t n = read(d->io.fd, buf + head, size - head);

	if (n > 0) {
		l2rec_put_head(buf, d->rec.offload, (size_t)n);
		d->out++;
		return head + (size_t)n;
	}
	if (n < 0 && errno == EAGAIN)
		loop_io_set(d->s->p.loop, &d->io, EPOLLIN);
	else
		end_soon(d, "the workload has ended, or has removed its interface");
	return 0;
}

static size_t
take_carried(struct l2dev *d, uint8_t *buf, size_t max)
{
	size_t n = d->carry - d->carried < max ? d->carry - d->carried : max;

	memcpy(buf, d->buf + d->carried, n);
	d->carried += n;
	return n;
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct l2dev *d = c->ctx;
	/* The longest that can come: a frame of the MTU, or what the kernel merges. */
	size_t longest = d->rec.offload ? L2REC_ROOM : 2 + d->open.mtu + L2REC_EXTRA, n, len;

	if (d->io.fd < 0 || d->why[0] != '\0')
		return 0;
	n = take_carried(d, buf, max);
	while (n < max && d->budget > 0) {
		if (max - n >= longest) {
			len = read_frame(d, buf + n, longest);
		} else {
			d->carried = 0;
			d->carry = read_frame(d, d->buf, sizeof(d->buf));
			len = take_carried(d, buf + n, max - n);
		}
		if (len == 0)
			break;
		n += len;
		d->budget = d->budget > len ? d->budget - len : 0;
	}
	if (d->budget == 0)
		loop_io_set(d->s->p.loop, &d->io, EPOLLIN);
	return (ssize_t)n;
}

static void
on_frames(struct loop_io *io, uint32_t events)
{
	struct l2dev *d = io->ctx;

	loop_io_set(d->s->p.loop, io, 0);
	if ((events & EPOLLERR) != 0 && (events & EPOLLIN) == 0) {
		loop_io_del(d->s->p.loop, io);
		end_soon(d, "the workload has ended, or has removed its interface");
		return;
	}
	d->budget = TURN_BYTES;
	mux_want(&d->chan);
}

static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	end_soon(c->ctx, "the forwarder ended the stream");
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct l2dev *d = c->ctx;
	char why[200];

	snprintf(why, sizeof(why), "the stream ended: %.150s", reason);
	tell(d, why);
	drop(d);
}

static const struct mux_kind kind = { .class = MUX_L2, .take = take, .ended = ended, .fill = fill, .closed = closed };

/* ---- device_open ---- */

static const char *
read_addresses(struct l2_open *o, const struct json *list)
{
	if (list == NULL || list->type == JSON_NULL)
		return NULL;
	if (list->type != JSON_ARRAY)
		return "addresses must be a list";
	for (const struct json *j = list->child; j != NULL; j = j->next)
		if (o->naddrs == L2_ADDRS || j->type != JSON_STRING || !l2_addr_parse(j->str, &o->addrs[o->naddrs++]))
			return "addresses must be at most 4 of a host, such as 192.0.2.2/24";
	return NULL;
}

static const char *
read_fields(struct l2_open *o, const struct json *p)
{
	const struct json *mac = json_get(p, "mac"), *offload = json_get(p, "offload");
	int64_t mtu = MTU_DEFAULT;

	if (!json_copy_str(p, "device_id", o->id, sizeof(o->id)) || !name_ok(o->id))
		return "device_id must be 1 to 31 of a-z 0-9 -";
	if (!json_copy_str(p, "handle", o->handle, sizeof(o->handle)) || !handle_ok(o->handle))
		return "an interface needs the workload it is for: handle";
	if (!json_copy_str(p, "name", o->name, sizeof(o->name)) || !priv_tap_name_ok(o->name))
		return "name must be one of an interface: a letter, then up to 14 of a-z A-Z 0-9 . _ -";
	if (json_get(p, "mtu") != NULL && !json_get_int(p, "mtu", PRIV_MTU_MIN, PRIV_MTU_MAX, &mtu))
		return "mtu must be 576 to 9000";
	if (offload != NULL && offload->type != JSON_NULL && offload->type != JSON_BOOL)
		return "offload must be true or false";
	if (mac != NULL && mac->type != JSON_NULL && (mac->type != JSON_STRING || !l2_mac_parse(mac->str, o->mac)))
		return "mac must be a locally administered one of a station, such as 02:00:00:00:00:01";
	if ((mac == NULL || mac->type == JSON_NULL) && getrandom(o->mac, sizeof(o->mac), 0) == (ssize_t)sizeof(o->mac))
		o->mac[0] = (uint8_t)((o->mac[0] & 0xfc) | 2);
	o->mtu = (uint16_t)mtu;
	o->offload = offload != NULL && offload->type == JSON_BOOL && offload->i != 0;
	return read_addresses(o, json_get(p, "addresses"));
}

void
l2dev_open(struct session *s, const struct cloop_frame *f, uint32_t channel)
{
	struct l2dev *d = calloc(1, sizeof(*d));
	const char *why = d == NULL ? "out of memory" : read_fields(&d->open, f->payload);
	char where[POLICY_WHERE], text[POLICY_WHERE + 8];

	if (why == NULL && !s->p.policy->l2) {
		snprintf(text, sizeof(text), "%s = no", policy_where(s->p.policy, POLICY_L2, where));
		why = text;
	}
	if (why == NULL && (s->nl2devs == L2_LINKS_MAX || find(s, d->open.id) != NULL))
		why = s->nl2devs == L2_LINKS_MAX ? "as many segments are open as this agent holds" : "a segment of this id is open already";
	if (why == NULL && mux_open(&s->mux, &d->chan, channel, &kind, d, 0, 0, 0, 0) < 0)
		why = "too many streams are open";
	if (why != NULL) {
		free(d);
		session_send_error(s, f->id, "device_unavailable", why);
		return;
	}
	d->s = s;
	d->io.fd = -1;
	snprintf(d->frame_id, sizeof(d->frame_id), "%s", f->id);
	loop_timer_init(&d->timer, timer_due, d);
	d->next = s->l2devs;
	s->l2devs = d;
	s->nl2devs++;
	if (workchan_l2(s->p.work, &d->open, &d->ipc_id) < 0)
		end_soon(d, "the workload daemon of this device is restarting; try again");
}

bool
l2dev_close(struct session *s, const char *id, const char *reason)
{
	struct l2dev *d = find(s, id);

	if (d != NULL)
		end(d, reason);
	return d != NULL;
}

/* ---- workerd's word ---- */

static void
send_opened(struct l2dev *d)
{
	const uint8_t *m = d->open.mac;
	char mac[18];
	struct json_w w;

	snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
	session_begin_frame(d->s, &w, "device_opened", d->frame_id, NULL);
	json_w_str(&w, "device_id", d->open.id);
	json_w_str(&w, "kind", "l2");
	json_w_int(&w, "channel", d->chan.id);
	json_w_str(&w, "interface", d->open.name);
	json_w_str(&w, "mac", mac);
	json_w_int(&w, "mtu", d->open.mtu);
	json_w_bool(&w, "offload", d->rec.offload);
	d->opened = true;
	session_send(d->s, &w);
}

void
l2dev_answer(struct session *s, uint32_t ipc_id, const struct l2_answer *a, int *fd)
{
	struct l2dev *d = s->l2devs;

	while (d != NULL && (d->answered || d->ipc_id != ipc_id))
		d = d->next;
	if (d == NULL || d->why[0] != '\0')
		return;
	if (a->ok == 0) {
		end(d, a->error);
		return;
	}
	if (fd_set_nonblock(*fd) < 0 || loop_io_add(s->p.loop, &d->io, *fd, EPOLLIN, on_frames, d) < 0) {
		end(d, "no room for its descriptor");
		return;
	}
	*fd = -1;
	d->answered = true;
	l2rec_init(&d->rec, a->offload != 0, d->open.mtu);
	log_info("segment %s: interface %s of %s, MTU %u", d->open.id, d->open.name, d->open.handle, d->open.mtu);
	send_opened(d);
	mux_resume(&d->chan);
}

void
l2dev_work_down(struct session *s)
{
	for (struct l2dev *d = s->l2devs; d != NULL; d = d->next)
		if (!d->answered)
			end_soon(d, "the workload daemon of this device has ended; try again");
}

void
l2dev_done(struct session *s)
{
	while (s->l2devs != NULL) {
		struct l2dev *d = s->l2devs;

		tell(d, "the session has ended");
		mux_drop(&d->chan);
		drop(d);
	}
}
