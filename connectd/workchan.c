#include "connectd/workchan.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"

#define QUEUE_MAX	(1u << 20)

static void chan_ended(struct ipc_chan *chan, int err, void *ctx);

static uint8_t *
chan_rx_buffer(struct ipc_chan *chan, void *ctx)
{
	struct workchan *wc = ctx;

	if (!wc->synced || wc->listener == NULL || wc->listener->rx_buffer == NULL)
		return NULL;
	return wc->listener->rx_buffer(wc->listener_ctx);
}

static void
chan_rx_unused(struct ipc_chan *chan, void *ctx)
{
	struct workchan *wc = ctx;

	if (wc->listener != NULL && wc->listener->rx_unused != NULL)
		wc->listener->rx_unused(wc->listener_ctx);
}

/* There is one work channel in the process. */
static struct ipc_conf chan_conf;

static void end_broken(struct loop_timer *timer);

void
workchan_init(struct workchan *wc, struct loop *loop, struct mirror *mirror, void (*changed)(void *ctx), void *ctx)
{
	*wc = (struct workchan){ .loop = loop, .mirror = mirror, .changed = changed, .changed_ctx = ctx,
		.away_since = { 0 }, .chan.io.fd = -1 };
	chan_conf = (struct ipc_conf){ .rules = workchan_rules, .nrules = workchan_nrules, .max_payload = IPC_MAX_WORK,
		.queue_max = QUEUE_MAX, .ctx = wc, .ended = chan_ended, .rx_buffer = chan_rx_buffer,
		.rx_unused = chan_rx_unused };
	loop_timer_init(&wc->broken, end_broken, wc);
}

static void
down(struct workchan *wc)
{
	bool was = wc->up;

	ipc_chan_done(&wc->chan);
	loop_timer_del(wc->loop, &wc->broken);
	if (wc->synced)
		wc->away_since = monotime_now();
	wc->up = wc->synced = false;
	wc->pair = 0;
	mirror_channel_begin(wc->mirror);
	if (was && wc->listener != NULL && wc->listener->down != NULL)
		wc->listener->down(wc->listener_ctx);
}

void
workchan_done(struct workchan *wc)
{
	wc->listener = NULL;
	down(wc);
}

int
workchan_take(struct workchan *wc, int fd, uint64_t pair)
{
	int r;

	down(wc);
	r = ipc_chan_init(&wc->chan, wc->loop, fd, &chan_conf);
	if (r == 0) {
		wc->pair = pair;
		r = ipc_send_hello(&wc->chan, IPC_ROLE_CONNECTD, 0);
	}
	if (r < 0)
		down(wc);
	return r;
}

static void
chan_ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct workchan *wc = ctx;

	if (err < 0)
		log_error("work channel: %s; asking for a new one", strerror(-err));
	else
		log_info("work channel closed by workerd");
	wc->fault = err < 0;
	down(wc);
	wc->changed(wc->changed_ctx);
}

static void
end_broken(struct loop_timer *timer)
{
	struct workchan *wc = timer->ctx;

	log_error("work channel: workerd does not read; asking for a new one");
	wc->fault = true;
	down(wc);
	wc->changed(wc->changed_ctx);
}

/* A record that could not even be queued leaves the two sides with different ideas: the channel must go. */
static int
sent(struct workchan *wc, int r)
{
	if (r < 0 && r != -EPIPE)
		loop_timer_set(wc->loop, &wc->broken, monotime_now());
	return r;
}

void
workchan_listen(struct workchan *wc, const struct workchan_listener *listener, void *ctx)
{
	wc->listener = listener;
	wc->listener_ctx = ctx;
}

int
workchan_start(struct workchan *wc, const void *spec, size_t len, int branch, uint32_t *ret_id)
{
	int fds[2] = { -1, branch }, r;

	if (!wc->up)
		return -EPIPE;
	if (len <= wc->chan.conf->max_payload)
		return sent(wc, ipc_request(&wc->chan, WORK_REQ_START, spec, len, &branch, branch >= 0, ret_id));
	fds[0] = fd_sealed_memfd("spec", spec, len);
	if (fds[0] < 0)
		return fds[0];
	r = sent(wc, ipc_request(&wc->chan, WORK_REQ_START, NULL, 0, fds, branch >= 0 ? 2 : 1, ret_id));
	close(fds[0]);
	return r;
}

int
workchan_signal(struct workchan *wc, const struct work_signal *sig, uint32_t *ret_id)
{
	return wc->up ? sent(wc, ipc_request(&wc->chan, WORK_REQ_SIGNAL, sig, sizeof(*sig), NULL, 0, ret_id)) : -EPIPE;
}

int
workchan_revoke(struct workchan *wc, const struct work_revoke *req, uint32_t *ret_id)
{
	return wc->up ? sent(wc, ipc_request(&wc->chan, WORK_REQ_REVOKE, req, sizeof(*req), NULL, 0, ret_id)) : -EPIPE;
}

/* By descriptor, so that no queue keeps a copy. */
int
workchan_refresh(struct workchan *wc, const void *items, size_t len, uint32_t *ret_id)
{
	int fd = wc->up ? fd_sealed_memfd("refresh", items, len) : -EPIPE, r;

	if (fd < 0)
		return fd;
	r = sent(wc, ipc_request(&wc->chan, WORK_REQ_REFRESH, NULL, 0, &fd, 1, ret_id));
	close(fd);
	return r;
}

int
workchan_harness(struct workchan *wc, const struct harness_ask *ask, uint32_t *ret_id)
{
	return wc->up ? sent(wc, ipc_request(&wc->chan, WORK_REQ_HARNESS, ask, sizeof(*ask), NULL, 0, ret_id)) : -EPIPE;
}

int
workchan_sync(struct workchan *wc)
{
	uint32_t id;

	return wc->up ? sent(wc, ipc_request(&wc->chan, WORK_REQ_SYNC, NULL, 0, NULL, 0, &id)) : -EPIPE;
}

int
workchan_inventory(struct workchan *wc, uint32_t *ret_id)
{
	return wc->up ? sent(wc, ipc_request(&wc->chan, WORK_REQ_INVENTORY, NULL, 0, NULL, 0, ret_id)) : -EPIPE;
}

static int
tell(struct workchan *wc, const struct mirror_entry *e, uint16_t type, const void *rec, size_t len)
{
	return wc->up && e->here ? sent(wc, ipc_send(&wc->chan, type, rec, len)) : -EPIPE;
}

int
workchan_sub(struct workchan *wc, const struct mirror_entry *e, uint64_t from, uint64_t limit)
{
	struct work_sub sub = { .wid = e->w.wid, .epoch = e->epoch, .from = from, .limit = limit };

	return tell(wc, e, WORK_EV_SUB, &sub, sizeof(sub));
}

int
workchan_credit(struct workchan *wc, const struct mirror_entry *e, uint64_t limit)
{
	struct work_sub sub = { .wid = e->w.wid, .epoch = e->epoch, .from = e->acked, .limit = limit };

	return tell(wc, e, WORK_EV_CREDIT, &sub, sizeof(sub));
}

int
workchan_ack(struct workchan *wc, const struct mirror_entry *e, uint64_t offset)
{
	struct work_offset ack = { .wid = e->w.wid, .offset = offset };

	return tell(wc, e, WORK_EV_ACK, &ack, sizeof(ack));
}

int
workchan_delivered(struct workchan *wc, const struct mirror_entry *e)
{
	struct work_ref ref = { .wid = e->w.wid };

	return tell(wc, e, WORK_EV_DELIVERED, &ref, sizeof(ref));
}

int
workchan_disown(struct workchan *wc, const struct mirror_entry *e)
{
	struct work_ref ref = { .wid = e->w.wid };

	return tell(wc, e, WORK_EV_DISOWN, &ref, sizeof(ref));
}

int
workchan_session(struct workchan *wc, bool up, enum work_dialect dialect)
{
	struct work_session s = { .up = up, .dialect = dialect };

	return wc->up ? sent(wc, ipc_send(&wc->chan, WORK_EV_SESSION, &s, sizeof(s))) : -EPIPE;
}

int
workchan_device(struct workchan *wc, const struct device_open *open, uint32_t *ret_id)
{
	return wc->up ? sent(wc, ipc_request(&wc->chan, WORK_REQ_DEVICE, open, sizeof(*open), NULL, 0, ret_id)) : -EPIPE;
}

int
workchan_file(struct workchan *wc, const struct file_request *req, uint32_t *ret_id)
{
	return wc->up ? sent(wc, ipc_request(&wc->chan, WORK_REQ_FILE, req, sizeof(*req), NULL, 0, ret_id)) : -EPIPE;
}

int
workchan_l2(struct workchan *wc, const struct l2_open *open, uint32_t *ret_id)
{
	return wc->up ? sent(wc, ipc_request(&wc->chan, WORK_REQ_L2, open, sizeof(*open), NULL, 0, ret_id)) : -EPIPE;
}

int
workchan_l2_close(struct workchan *wc, const struct l2_ref *ref)
{
	return wc->up ? sent(wc, ipc_send(&wc->chan, WORK_EV_L2_CLOSE, ref, sizeof(*ref))) : -EPIPE;
}

int
workchan_device_close(struct workchan *wc, const struct device_ref *ref)
{
	return wc->up ? sent(wc, ipc_send(&wc->chan, WORK_EV_DEVICE_CLOSE, ref, sizeof(*ref))) : -EPIPE;
}

int
workchan_attach(struct workchan *wc, const struct attach_open *open, int command, uint32_t *ret_id)
{
	return wc->up ? sent(wc, ipc_request(&wc->chan, WORK_REQ_ATTACH, open, sizeof(*open), &command, command >= 0, ret_id)) : -EPIPE;
}

int
workchan_attach_size(struct workchan *wc, const struct attach_size *size)
{
	return wc->up ? sent(wc, ipc_send(&wc->chan, WORK_EV_ATTACH_SIZE, size, sizeof(*size))) : -EPIPE;
}

int
workchan_attach_close(struct workchan *wc, const struct attach_ref *ref)
{
	return wc->up ? sent(wc, ipc_send(&wc->chan, WORK_EV_ATTACH_CLOSE, ref, sizeof(*ref))) : -EPIPE;
}

void
workchan_pause(struct workchan *wc, bool paused)
{
	ipc_chan_pause(&wc->chan, paused);
}

bool
workchan_is_gone(const struct workchan *wc)
{
	struct pollfd p = { .fd = wc->chan.io.fd };

	return !wc->up || (poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR)) != 0);
}

int64_t
workchan_away_ms(const struct workchan *wc)
{
	int64_t ms;

	if (wc->synced)
		return 0;
	if (!wc->mirror->known)
		return -1;
	ms = monotime_diff_ms(monotime_now(), wc->away_since);
	return ms > 0 ? ms : 1;
}
