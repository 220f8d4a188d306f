/*
 * The terminal status of a workload: sent when the outcome is known and all output is on the wire, once a session, until
 * the ack of a heartbeat that was sent after it proves that the hub has read it. Then workerd may forget. Each entry
 * carries its own state from the first byte to that proof; nothing here means "the current one".
 */
#include "common/log.h"
#include "connectd/session.h"

static void
put_digest(struct json_w *w, const struct mirror_log *log)
{
	static const char hex[] = "0123456789abcdef";
	char text[33];

	for (unsigned i = 0; i < 16; i++) {
		text[2 * i] = hex[log->xxh3[i] >> 4];
		text[2 * i + 1] = hex[log->xxh3[i] & 15];
	}
	text[32] = '\0';
	json_w_str(w, "log_xxh3", text);
}

static void
send_terminal(struct session *s, struct mirror_entry *e)
{
	struct json_w w;

	logsend_end(&s->logs, e);
	session_begin_frame(s, &w, "status", NULL, e->w.handle);
	cloop_put_status(&w, &e->w, true, s->version, s->p.edgeward1);
	json_w_int(&w, "final_offset", (int64_t)e->log.total);
	if (s->p.edgeward1 && e->log.has_digest)
		put_digest(&w, &e->log);
	session_send(s, &w);
	e->report.sent = true;
	e->report.after_beat = *s->p.beat_seq + 1;
	s->unconfirmed++;
	beat_soon(s);
}

void
report_try(struct session *s, struct mirror_entry *e)
{
	if (s->state != SESSION_UP || e->w.state != WORK_ENDED || e->report.sent || e->delivered)
		return;
	if (logsend_complete(&s->logs, e)) {
		if (results_send(s, e))
			send_terminal(s, e);
	} else if (e->disowned && !e->log.open) {
		/* Disowned in an earlier session: nobody waits for its end any more. */
		e->delivered = true;
		workchan_delivered(s->p.work, e);
	}
}

void
report_all(struct session *s)
{
	for (struct mirror_entry *e = s->p.mirror->head; e != NULL; e = e->next)
		report_try(s, e);
}

void
report_acked(struct session *s, uint64_t seq)
{
	for (struct mirror_entry *e = s->p.mirror->head; e != NULL; e = e->next) {
		if (!e->report.sent || e->delivered || e->report.after_beat > seq)
			continue;
		e->delivered = true;
		workchan_delivered(s->p.work, e);
	}
}
