/*
 * One forwarded segment: workerd is asked for an interface in a workload's network namespace, then frames are carried both ways
 * between its descriptor and the stream. One without a workload waits for a start that names it; until then its frames go nowhere.
 *
 * Who calls: forward.c. What is trusted: nothing of the frames, which may come from an enemy on either side: what does not fit the MTU is
 * counted and dropped whole, what the interface does not take at once is dropped, as on any cable, and what the link does not take waits in
 * the interface's own short queue. A turn carries a bounded number of bytes, so that a storm costs the segment its frames and nobody else
 * his turn.
 */
#include "connectd/l2dev.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/log.h"
#include "proto/hub/l2fill.h"
#include "proto/ipc/priv.h"

#define TURN_BYTES	(256u * 1024)	/* towards the hub, before others have their turn */
#define MTU_DEFAULT	1500
#define REMOVED		"the workload has ended, or has removed its interface"

struct l2dev {
	struct forward f;		/* first; ipc_id until the interface is there */
	struct l2_open open;
	size_t budget;			/* bytes left of this turn */
	bool readable;			/* the interface has what was not read yet */
	uint64_t in, lost, verdicts[L2REC_VERDICTS];	/* frames; lost: no interface took them */
	struct l2rec rec;
	struct l2fill fill;
};

static void
over(struct forward *f, const char *why)
{
	struct l2dev *d = (struct l2dev *)f;
	struct l2_ref ref = { 0 };

	log_info("segment %s: %s (%llu frames to the workload, %llu from it; dropped: %llu too long, %llu too short, %llu not taken)", f->id,
	    why, (unsigned long long)d->in, (unsigned long long)d->fill.frames,
	    (unsigned long long)(d->verdicts[L2REC_LONG] + d->fill.dropped),
	    (unsigned long long)d->verdicts[L2REC_SHORT], (unsigned long long)d->lost);
	snprintf(ref.id, sizeof(ref.id), "%s", f->id);
	workchan_l2_close(f->s->p.work, &ref);
}

/* ---- frames ---- */

static void
to_workload(const uint8_t *data, size_t len, enum l2rec_verdict verdict, void *ctx)
{
	struct l2dev *d = ctx;

	d->verdicts[verdict]++;
	if (verdict != L2REC_GOOD)
		return;
	if (d->f.io.fd >= 0 && write(d->f.io.fd, data, len) == (ssize_t)len) {
		d->in++;
		return;
	}
	d->lost++;
	if (d->f.io.fd >= 0 && errno == EBADFD)
		forward_end_soon(&d->f, REMOVED);
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct l2dev *d = c->ctx;

	if (d->f.why[0] != '\0')
		return (ssize_t)len;
	if (!d->f.opened)
		return 0;
	if (l2rec_take(&d->rec, data, len, to_workload, d) < 0)
		forward_end_soon(&d->f, "the stream is not one of frames");
	return (ssize_t)len;
}

static ssize_t
read_frame(const struct iovec iov[2], void *ctx)
{
	struct l2dev *d = ctx;
	ssize_t n = readv(d->f.io.fd, iov, 2);

	if (n > 0)
		return n;
	d->readable = false;
	if (n == 0 || errno != EAGAIN)
		forward_end_soon(&d->f, REMOVED);
	return 0;
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct l2dev *d = c->ctx;
	size_t n;

	if (d->f.io.fd < 0 || d->f.why[0] != '\0' || (!d->readable && d->fill.len == 0))
		return 0;
	n = l2fill(&d->fill, buf, max, d->readable ? d->budget : 0, read_frame, d);
	d->budget = d->budget > n ? d->budget - n : 0;
	if (d->budget == 0)
		d->readable = false;	/* others have their turn; epoll tells of the rest again */
	if (!d->readable)
		loop_io_set(d->f.s->p.loop, &d->f.io, EPOLLIN);
	return (ssize_t)n;
}

static void
on_frames(struct loop_io *io, uint32_t events)
{
	struct l2dev *d = io->ctx;

	/* Told again of what nobody has read since: the hub takes nothing, and this loop must not become hot. */
	if (d->readable)
		loop_io_set(d->f.s->p.loop, io, 0);
	if ((events & EPOLLERR) != 0 && (events & EPOLLIN) == 0) {
		loop_io_del(d->f.s->p.loop, io);
		forward_end_soon(&d->f, REMOVED);
		return;
	}
	d->readable = true;
	d->budget = TURN_BYTES;
	mux_want(&d->f.chan);
}

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
read_fields(struct forward *f, const struct json *p)
{
	struct l2_open *o = &((struct l2dev *)f)->open;
	const struct json *handle = json_get(p, "handle"), *mac = json_get(p, "mac"), *offload = json_get(p, "offload");
	int64_t mtu = MTU_DEFAULT;

	snprintf(o->id, sizeof(o->id), "%s", f->id);
	if (handle != NULL && handle->type != JSON_NULL && (!json_copy_str(p, "handle", o->handle, sizeof(o->handle)) || !handle_ok(o->handle)))
		return "handle is none";
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

static void
begin(struct forward *f)
{
	struct l2dev *d = (struct l2dev *)f;

	if (workchan_l2(f->s->p.work, &d->open, &f->ipc_id) < 0)
		forward_end_soon(f, "the workload daemon of this device is restarting; try again");
}

/* One that carries frames needs workerd no more. */
static const char *
work_down(struct forward *f)
{
	return f->ipc_id != 0 ? "the workload daemon of this device has ended; try again" : NULL;
}

const struct forward_kind l2dev_kind = {
	.name = "l2", .what = "segment", .many = "segments", .size = sizeof(struct l2dev), .most = L2_LINKS_MAX, .policy = POLICY_L2,
	.mux = { .class = MUX_L2, .take = take, .ended = forward_ended, .fill = fill, .closed = forward_closed },
	.read = read_fields, .begin = begin, .over = over, .work_down = work_down,
};

/* ---- workerd's word ---- */

static void
send_opened(struct l2dev *d)
{
	const uint8_t *m = d->open.mac;
	char mac[18];
	struct json_w w;

	snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
	forward_begin_opened(&d->f, &w);
	json_w_str(&w, "interface", d->open.name);
	json_w_str(&w, "mac", mac);
	json_w_int(&w, "mtu", d->open.mtu);
	json_w_bool(&w, "offload", d->rec.offload);
	session_send(d->f.s, &w);
}

/* First, perhaps, that it waits for a start; then the descriptor. */
void
l2dev_answer(struct session *s, uint32_t ipc_id, const struct l2_answer *a, int *fd)
{
	struct forward *f = forward_asked(s, &l2dev_kind, ipc_id);
	struct l2dev *d = (struct l2dev *)f;

	if (f == NULL || f->why[0] != '\0')
		return;
	if (a->ok == L2_NO || (a->ok == L2_WAITS && f->opened)) {
		forward_end(f, a->ok == L2_NO ? a->error : "the workload daemon of this device says it waits, again");
		return;
	}
	if (a->ok == L2_IS_UP) {
		f->ipc_id = 0;
		if (!forward_take_fd(f, fd, on_frames))
			return;
	}
	if (!f->opened) {
		l2rec_init(&d->rec, a->offload != 0, d->open.mtu);
		l2fill_init(&d->fill, a->offload != 0, d->open.mtu);
		send_opened(d);
	}
	log_info("segment %s: interface %s, MTU %u, %s", f->id, d->open.name, d->open.mtu, a->ok == L2_IS_UP ? "up" : "waits for a start");
	mux_resume(&f->chan);
}
