/*
 * Bytes of a log on their way to the disk, and what goes back to the device because of them.
 *
 * A byte is written at once (page cache), flushed when 32 KiB are not acknowledged yet or a heartbeat comes, and
 * acknowledged when the flush is done. WINDOW follows the writing, so that the device never waits for the disk unless
 * RUN_DIRTY_MAX is reached; what it must still hold is decided by the acknowledgements alone.
 */
#include <errno.h>
#include <string.h>

#include "common/log.h"
#include "hub/run.h"
#include "proto/hub/limits.h"

void
run_flush(struct run *run)
{
	if (run->log.durable == run->log.next)
		return;
	run->sync.fd = run->log.fd;
	run->sync.mark = run->log.next;
	syncer_add(run->hub->syncer, &run->sync);
}

static void
send_log_ack(struct run *run, struct session *s)
{
	struct json_w w;
	char buf[256];

	json_w_init(&w, buf, sizeof(buf));
	frame_begin(&w, s->version, "log_ack", NULL, run->info.handle);
	json_w_int(&w, "offset", (int64_t)run->log.durable);
	frame_end(&w);
	session_send(s, &w);
	run->acked = run->log.durable;
}

static void
send_window(struct run *run, struct session *s)
{
	uint64_t to = run->log.next + RUN_WINDOW_AHEAD;
	uint8_t frame[STREAM_HEADER];

	if (!s->edgeward || run->channel == 0 || run->log.next - run->log.durable > RUN_DIRTY_MAX)
		return;
	if (to < run->window + RUN_WINDOW_AHEAD / 4)
		return;
	stream_put_header(frame, STREAM_WINDOW_TO, run->channel, to);
	conn_send_binary(s->conn, frame, sizeof(frame));
	run->window = to;
}

void
run_ack(struct run *run)
{
	struct session *s = run->epoch != 0 ? session_by_epoch(run->hub, run->epoch) : NULL;

	if (s == NULL)
		return;
	if (run->log.durable > run->acked && (run->acked < run->ack_to || run->log.durable - run->acked >= HUB_ACK_EVERY))
		send_log_ack(run, s);
	send_window(run, s);
}

void
run_want_ack(struct run *run)
{
	if (run->log.next == run->acked)
		return;
	run->ack_to = run->log.next;	/* a flush under way may have begun before its last bytes came */
	if (run->log.durable == run->log.next)
		run_ack(run);
	else
		run_flush(run);
}

static void
flushed(struct sync_item *item, int err)
{
	struct run *run = item->ctx;

	if (err < 0) {
		struct session *s = session_find(run->hub, run->info.device);

		/* What was not flushed may be gone from the cache, too: the device must send it again, if it can. */
		log_error("run %s: the log cannot be flushed: %s", run->info.handle, strerror(-err));
		if (s != NULL)
			conn_close(s->conn, 1013, "the hub cannot store logs now");
	} else if (item->synced > run->log.durable) {
		run->log.durable = item->synced;
		run_ack(run);
		if (run->log.next - run->acked >= HUB_ACK_EVERY && run->epoch != 0)
			run_flush(run);
	}
	run_put(run);
}

static int
digest_work(struct sync_item *item)
{
	struct run *run = item->ctx;

	/* The log is closed by now: nobody else writes these fields. */
	return logfile_digest(run->log.fd, run->log.next, run->digest_got);
}

/* What the device says of such a run's output is no more than what it still remembered. */
static bool
is_lost(const struct run_info *info)
{
	return info->state == RUN_LOST || strcmp(info->outcome, "lost") == 0;
}

static void
compare(struct run *run, int err)
{
	if (err < 0)
		log_error("run %s: the log cannot be read: %s", run->info.handle, strerror(-err));
	else
		run->info.verify = memcmp(run->digest_got, run->info.digest, sizeof(run->digest_got)) == 0 ?
		    RUN_VERIFIED : RUN_MISMATCH;
	if (run->info.verify == RUN_MISMATCH && is_lost(&run->info))
		run->info.verify = RUN_CUT;
	if (run->info.verify == RUN_MISMATCH)
		log_warn("run %s: the log differs from what the device sent", run->info.handle);
}

static void
digest_done(struct sync_item *item, int err)
{
	struct run *run = item->ctx;

	compare(run, err);
	run->closing = false;
	run_save(run);
	run_notify(run);
	run_put(run);
}

void
run_verify(struct run *run)
{
	struct run_info *info = &run->info;
	uint64_t final = info->final_offset >= 0 ? (uint64_t)info->final_offset : run->log.next;

	if (run->log.ngaps > 0 || final > run->log.next)
		info->gapped = true;
	if (info->gapped) {
		info->verify = RUN_GAPPED;
	} else if (is_lost(info) && (final < run->log.next || !info->has_digest)) {
		info->verify = RUN_CUT;
	} else if (final < run->log.next) {
		info->verify = RUN_MISMATCH;
	} else if (info->has_digest && run->log.next <= RUN_DIGEST_INLINE) {
		compare(run, logfile_digest(run->log.fd, run->log.next, run->digest_got));
	} else if (info->has_digest) {
		run->closing = true;
		syncer_add(run->hub->digests, &run->digest);
	}
}

void
runlog_init(struct run *run)
{
	run->sync = (struct sync_item){ .fd = run->log.fd, .done = flushed, .ctx = run };
	run->digest = (struct sync_item){ .fd = -1, .work = digest_work, .done = digest_done, .ctx = run };
}

/* New bytes at the end of the log. */
static int
append(struct run *run, const void *data, size_t len)
{
	int r = logfile_append(&run->log, data, len);

	if (r < 0)
		return r;
	run->hub->count.log_bytes += len;
	if (run->log.next - run->acked >= HUB_ACK_EVERY)
		run_flush(run);
	run_notify(run);
	return 0;
}

/* The store first: a hole in the file must never be taken for bytes. */
static int
record_gap(struct run *run, struct session *s, uint64_t to, uint8_t reason)
{
	uint64_t from = run->log.next;
	struct logfile_gap gap;
	int r = logfile_gap(&run->log, to, reason, &gap);

	if (r == 0)
		r = store_gap_put(run->hub->store, run->info.handle, &gap);
	if (r == 0)
		r = store_flush(run->hub->store);
	if (r < 0)
		return r;
	conn_yield(s->conn);	/* a flush for 25 bytes: others come first now */
	log_warn("run %s: bytes %llu to %llu of its log are lost", run->info.handle, (unsigned long long)from,
	    (unsigned long long)to);
	run->info.gapped = true;
	run_flush(run);
	run_notify(run);
	return 0;
}

int
run_text(struct run *run, struct session *s, const struct frame_chunk *chunk)
{
	size_t skip;
	int r = 0;

	if (run_state_is_final(run->info.state) || chunk->len == 0)
		return 0;	/* chunks after the end are late repeats */
	switch (logfile_place(run->log.next, chunk->offset, chunk->len, &skip)) {
	case LOGFILE_DUPLICATE:
		return 0;
	case LOGFILE_JUMP:
		r = record_gap(run, s, chunk->offset, 0);
		if (r < 0)
			return r;
		break;
	case LOGFILE_NEW:
	case LOGFILE_OVERLAP:
		break;
	}
	return append(run, chunk->text + skip, chunk->len - skip);
}

static int
take_data(struct run *run, const struct stream_frame *f, enum stream_reset *ret_reset)
{
	size_t skip;
	int r;

	*ret_reset = STREAM_RESET_WINDOW;
	if (f->offset + f->len > run->window)
		return -EPROTO;
	*ret_reset = STREAM_RESET_PROTOCOL;
	switch (logfile_place(run->log.next, f->offset, f->len, &skip)) {
	case LOGFILE_JUMP:
		return -EPROTO;
	case LOGFILE_DUPLICATE:
		return 0;
	case LOGFILE_NEW:
	case LOGFILE_OVERLAP:
		break;
	}
	*ret_reset = STREAM_RESET_LIMIT;
	r = append(run, f->data + skip, f->len - skip);
	return r == -EFBIG ? -EPROTO : r;
}

static int
take_gap(struct run *run, struct session *s, const struct stream_frame *f, enum stream_reset *ret_reset)
{
	int r;

	*ret_reset = STREAM_RESET_PROTOCOL;
	if (f->offset > run->log.next || f->gap_reason == STREAM_GAP_HOLE)
		return -EPROTO;
	*ret_reset = STREAM_RESET_LIMIT;
	if (f->gap_to > run->log.next) {
		r = record_gap(run, s, f->gap_to, f->gap_reason);
		if (r < 0)
			return r == -EFBIG || r == -ENOSPC ? -EPROTO : r;
	}
	return 0;
}

static int
take_end(struct run *run, const struct stream_frame *f, enum stream_reset *ret_reset)
{
	*ret_reset = STREAM_RESET_PROTOCOL;
	if (f->offset != run->log.next)
		return -EPROTO;
	run->info.final_offset = (int64_t)f->offset;
	if (f->digest != NULL) {
		run->info.has_digest = true;
		memcpy(run->info.digest, f->digest, sizeof(run->info.digest));
	}
	return 0;
}

int
run_stream(struct run *run, struct session *s, const struct stream_frame *f, enum stream_reset *ret_reset)
{
	int r = 0;

	/* After the final status the log is closed; a device that has not heard of it repeats its end. */
	if (run_state_is_final(run->info.state))
		return 0;
	switch (f->type) {
	case STREAM_DATA:
		r = take_data(run, f, ret_reset);
		break;
	case STREAM_GAP:
		r = take_gap(run, s, f, ret_reset);
		break;
	case STREAM_END:
		r = take_end(run, f, ret_reset);
		break;
	case STREAM_RESET:
		log_warn("run %s: the device reset its log channel (code %u)", run->info.handle, f->reset);
		run->channel = 0;
		return 0;
	case STREAM_WINDOW_TO:
		*ret_reset = STREAM_RESET_PROTOCOL;	/* we send nothing here */
		return -EPROTO;
	}
	if (r == 0)
		send_window(run, s);
	return r;
}
