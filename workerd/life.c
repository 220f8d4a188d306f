#include "workerd/life.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/log.h"
#include "common/monotime.h"
#include "workerd/container.h"
#include "workerd/control.h"
#include "workerd/engine.h"
#include "workerd/harness.h"
#include "workerd/launchchan.h"
#include "workerd/leases.h"
#include "workerd/output.h"
#include "workerd/privchan.h"
#include "workerd/result.h"
#include "workerd/spill.h"
#include "workerd/stage.h"
#include "workerd/sweep.h"
#include "workerd/tally.h"
#include "workerd/vault.h"
#include "workerd/workchan.h"
#include "workerd/workerd.h"

#define DISOWNED_KEEP_MS	30000	/* its end is still told in a running session for so long */

/* ---- time ---- */

static void
arm(struct workload *wl)
{
	const struct record_head *h = wl->rec.h;
	int64_t when = INT64_MAX;

	if (h != NULL && h->deadline != 0 && wl->state <= ST_RUNNING)
		when = h->deadline;
	if (h != NULL && h->grace_end != 0 && h->grace_end < when)
		when = h->grace_end;
	loop_timer_set(wl->w->loop, &wl->timer, (monotime_t){ when });
}

static void
timer_over(struct loop_timer *timer)
{
	struct workload *wl = timer->ctx;
	struct record_head *h = wl->rec.h;
	int64_t now = monotime_now().ns;

	/* A workerd that is killed here has either left the time in the record or what follows from it. */
	if (h->deadline != 0 && h->deadline <= now) {
		workload_event(wl, EV_TIMEOUT);
		h->deadline = 0;
		arm(wl);
	} else if (h->grace_end != 0 && h->grace_end <= now) {
		if (wl->state <= ST_RUNNING)
			h->flags |= RECORD_F_KILL;
		h->grace_end = 0;
		arm(wl);
		workload_event(wl, EV_GRACE);
	} else {
		arm(wl);
	}
}

/* ---- the end ---- */

static void
outcome_from_status(struct workload *wl, int wstatus)
{
	uint32_t flags = wl->rec.h->flags;

	if (WIFEXITED(wstatus)) {
		wl->info.outcome = WORK_OUTCOME_EXITED;
		wl->info.exit_code = WEXITSTATUS(wstatus);
		return;
	}
	wl->info.term_signal = WTERMSIG(wstatus);
	if (container_is_one(wl) && wl->info.term_signal == CONTAINER_SIGNAL_LOST) {
		wl->info.term_signal = 0;
		wl->info.outcome = WORK_OUTCOME_LOST;
		snprintf(wl->info.error, sizeof(wl->info.error), "the container engine went away and does not say how the container ended");
		return;
	}
	if (container_is_one(wl) && (wl->info.term_signal == CONTAINER_SIGNAL_DISK || wl->info.term_signal == CONTAINER_SIGNAL_MEMORY)) {
		wl->info.limit = wl->info.term_signal == CONTAINER_SIGNAL_DISK ? WORK_LIMIT_DISK : WORK_LIMIT_MEMORY;
		wl->info.term_signal = SIGKILL;
		wl->info.outcome = WORK_OUTCOME_LIMIT;
		return;
	}
	wl->info.outcome = (flags & RECORD_F_TIMEOUT) != 0 ? WORK_OUTCOME_TIMEOUT :
	    (flags & RECORD_F_LIMIT) != 0 ? WORK_OUTCOME_LIMIT :
	    (flags & RECORD_F_CANCEL) != 0 ? WORK_OUTCOME_CANCELLED :
	    wl->end.oom_kills > 0 && wl->info.term_signal == SIGKILL ? WORK_OUTCOME_LIMIT : WORK_OUTCOME_SIGNALLED;
}

void
life_over_disk(struct workload *wl, const char *word)
{
	uint64_t used, limit;

	if (!engine_disk_word(word, &used, &limit))
		return;
	wl->info.disk_used = used;
	wl->info.disk_limit = limit;
}

/* Which limit it was; one that was met and ended nothing is told, too, because it explains the exit code. */
static void
explain_limit(struct workload *wl)
{
	const struct record_head *h = wl->rec.h;
	char *text = wl->info.error;
	size_t size = sizeof(wl->info.error);

	if (wl->info.limit == WORK_LIMIT_DISK) {
		stage_last_word(wl, "ended at its limit of disk", text, size);
		life_over_disk(wl, text);
	} else if (wl->info.limit == WORK_LIMIT_MEMORY) {
		snprintf(text, size, "ended at its limit of memory; ask for more memory_mb");
	} else if (wl->info.outcome == WORK_OUTCOME_LIMIT) {
		wl->info.limit = h != NULL && (h->flags & RECORD_F_LIMIT) != 0 ? WORK_LIMIT_OUTPUT : WORK_LIMIT_MEMORY;
		if (wl->info.limit == WORK_LIMIT_OUTPUT)
			snprintf(text, size, "ended at its limit of %llu bytes of output; write less, or have [limits] output raised",
			    (unsigned long long)h->output_max);
		else
			snprintf(text, size, "ended at its limit of memory (%u processes killed); ask for more memory_mb", wl->end.oom_kills);
	} else if (text[0] != '\0' || container_is_one(wl) || (wl->info.outcome == WORK_OUTCOME_EXITED && wl->info.exit_code == 0)) {
		return;
	} else if (wl->end.pids_max > 0) {
		snprintf(text, size, "its limit of processes kept it from starting another %u times; ask for more pids", wl->end.pids_max);
	} else if (wl->end.oom_kills > 0) {
		snprintf(text, size, "its limit of memory ended %u of its processes; ask for more memory_mb", wl->end.oom_kills);
	}
}

void
life_failed_text(const struct launch_report *rep, char *buf, size_t size)
{
	static const char *const stages[] = { "", "switching to the runner id", "entering the work directory",
		"setting limits", "arranging descriptors", "setting up the sandbox", "running the program", "reading the spec",
		"sandbox: user namespace", "sandbox: namespaces", "sandbox: loopback", "sandbox: view of the file system", "sandbox: /proc",
		"sandbox: giving up capabilities", "sandbox: Landlock", "sandbox: seccomp", "filtered network: nft", "filtered network: pasta",
		"filtered network: the check that it holds", "placing the secret files" };
	uint32_t n = rep->failed.stage;

	if (n == INIT_STAGE_EXEC && rep->failed.error == ENOENT) {	/* by the shell's word or a typing error, mostly */
		snprintf(buf, size, "running the program: No such file or directory: it is not installed, or not where a workload sees it; "
		    "a line for a shell needs sh -c '...'");
		return;
	}
	snprintf(buf, size, "%s: %s", n > 0 && n < sizeof(stages) / sizeof(stages[0]) ? stages[n] : "starting",
	    strerror(rep->failed.error));
}

void
life_outcome(struct workload *wl)
{
	struct launch_report rep = { 0 };
	struct record_head *h = wl->rec.h;

	if (h != NULL)
		record_report(&wl->rec, &rep);
	if ((rep.flags & LAUNCH_REPORT_EXITED) != 0) {
		outcome_from_status(wl, rep.exited.wstatus);
		if ((rep.flags & LAUNCH_REPORT_NETWORK) != 0 && wl->info.outcome == WORK_OUTCOME_SIGNALLED)
			snprintf(wl->info.error, sizeof(wl->info.error), "its filtered network ended (pasta), so it was ended");
	} else if (h != NULL && (h->flags & (RECORD_F_TIMEOUT | RECORD_F_CANCEL | RECORD_F_LIMIT)) != 0) {
		outcome_from_status(wl, SIGKILL);
	} else if (wl->end.oom_kills > 0) {
		wl->info.outcome = WORK_OUTCOME_LIMIT;
		wl->info.term_signal = SIGKILL;
	} else {
		wl->info.outcome = WORK_OUTCOME_LOST;
		if ((rep.flags & LAUNCH_REPORT_FAILED) != 0)
			life_failed_text(&rep, wl->info.error, sizeof(wl->info.error));
		else if (wl->info.error[0] == '\0')
			snprintf(wl->info.error, sizeof(wl->info.error), "its init process ended without a report");
	}
	explain_limit(wl);
	if (h != NULL && h->finished_at == 0)
		h->finished_at = rep.exited.finished_at > 0 ? rep.exited.finished_at : monotime_wall_ns();
	wl->info.finished_at = h != NULL ? h->finished_at : monotime_wall_ns();
	if (container_is_one(wl))	/* what its client used says nothing of it */
		return;
	wl->info.cpu_ms = wl->end.cpu_ms;
	wl->info.mem_peak_kb = wl->end.mem_peak_kb;
	wl->info.io_read = wl->end.io_read;
	wl->info.io_write = wl->end.io_write;
}

void
life_record(const struct workload *wl, enum journal_type type, struct journal_record *ret_rec)
{
	*ret_rec = (struct journal_record){ .type = (uint16_t)type, .instance = wl->w->ready.instance,
		.started_at = wl->info.started_at, .finished_at = wl->info.finished_at, .produced = workload_head(wl),
		.exit_code = wl->info.exit_code, .term_signal = wl->info.term_signal, .outcome = wl->info.outcome,
		.flags = wl->info.flags };
	memcpy(ret_rec->handle, wl->info.handle, sizeof(ret_rec->handle));
	memcpy(ret_rec->xxh3, wl->info.log_xxh3, sizeof(ret_rec->xxh3));
}

int
life_journal(struct workload *wl, enum journal_type type)
{
	struct journal_record rec;
	int r;

	if (workload_is_own(wl))
		return 0;
	life_record(wl, type, &rec);
	r = journal_append(&wl->w->journal, &rec);
	if (r < 0)	/* the record in memory is right; only a launcher that dies now makes it "lost" */
		log_debug("journal: %s", strerror(-r));
	return r;
}

/* What was told as ended must not be told as running: nobody hears of us before the last of these has ended again. */
static void
no_longer_awaited(struct workload *wl)
{
	struct workerd *w = wl->w;

	if (!wl->awaited)
		return;
	wl->awaited = false;
	if (--w->awaited == 0 && w->up)
		privchan_open(w);
}

static void
finish(struct workload *wl)
{
	if (!stage_finish(wl))
		life_outcome(wl);
	if (!wl->journaled_end && (wl->rec.h == NULL || (wl->rec.h->flags & RECORD_F_FINAL) == 0))
		tally_ended(wl);	/* once: an earlier workerd has told what it made final */
	if (wl->rec.h != NULL && record_digest(&wl->rec, wl->info.log_xxh3))
		wl->info.flags |= WORK_F_DIGEST;
	if (wl->rec.h != NULL) {
		wl->rec.h->flags |= RECORD_F_FINAL;
		wl->rec.h->grace_end = (wl->rec.h->flags & RECORD_F_DISOWNED) != 0 ?
		    monotime_add_ms(monotime_now(), DISOWNED_KEEP_MS).ns : 0;
	}
	attach_workload_ended(wl);	/* its output is judged by the secrets */
	if (workload_is_own(wl))
		harness_ended(wl);
	leases_ended(wl);
	vault_free(wl);
	output_close(wl);
	ipc_chan_done(&wl->init);
	devices_workload_ended(wl);
	l2_workload_ended(wl);
	arm(wl);
	if (!wl->journaled_end)
		life_journal(wl, JOURNAL_ENDED);
	wl->journaled_end = true;
	workchan_tell(wl);
	output_send(wl);
	control_output(wl);
	spill_note(wl);
	no_longer_awaited(wl);
}

static void
forget(struct workload *wl)
{
	struct workerd *w = wl->w;

	no_longer_awaited(wl);
	devices_workload_ended(wl);
	l2_workload_ended(wl);	/* one that never ran had its lease, too */
	life_journal(wl, JOURNAL_DELIVERED);
	if (wl->held)
		launchchan_forget(wl);
	spill_forget(wl);
	result_forget(wl);
	workchan_gone(wl);
	workload_free(wl);
	if (journal_is_long(&w->journal))
		workload_compact(w);
}

/* ---- events ---- */

static void
pass_signal(struct workload *wl, int signo)
{
	struct init_signal sig = { .signo = signo };

	/* A step around the payload has nothing to put in order; the end of a container is what was asked for. */
	if (stage_of(wl) == STAGE_REMOVE)
		return;
	if (stage_of(wl) != STAGE_PAYLOAD || ipc_send(&wl->init, INIT_EV_SIGNAL, &sig, sizeof(sig)) < 0)
		launchchan_kill(wl);
}

/* Removing a container is how it is ended: only its own time ends that. */
static void
kill_tree(struct workload *wl)
{
	if (stage_of(wl) != STAGE_REMOVE || (wl->rec.h->flags & RECORD_F_TIMEOUT) != 0)
		launchchan_kill(wl);
}

static void
note_run(struct workload *wl)
{
	struct launch_report rep;

	if (wl->rec.h == NULL)
		return;
	record_report(&wl->rec, &rep);
	if ((rep.flags & LAUNCH_REPORT_STARTED) == 0)
		return;
	wl->info.pid = container_is_one(wl) ? 0 : rep.started.pid;
	wl->info.started_at = rep.started.started_at;
	if (wl->rec.h->timeout_s != 0 && wl->rec.h->deadline == 0 && wl->state <= ST_RUNNING)
		wl->rec.h->deadline = monotime_add_ms(monotime_now(), wl->rec.h->timeout_s * 1000LL).ns;
}

/* One that was taken back was told when it began. A record that is damaged says nothing of it, and is always an old one's. */
static void
note_told(struct workload *wl)
{
	if (wl->rec.h == NULL || (wl->rec.h->flags & RECORD_F_TOLD) != 0)
		return;
	tally_started(wl);
	wl->rec.h->flags |= RECORD_F_TOLD;
}

/* Notes in the record, which a later workerd reads. */
static void
mark(struct workload *wl, unsigned actions, int signo)
{
	static const struct {
		unsigned action;
		uint32_t flag;
	} marks[] = { { ACT_CANCEL, RECORD_F_CANCEL }, { ACT_MARK_TIMEOUT, RECORD_F_TIMEOUT }, { ACT_MARK_LIMIT, RECORD_F_LIMIT },
		{ ACT_KILL, RECORD_F_KILL } };
	struct record_head *h = wl->rec.h;
	uint32_t flags = 0;

	if (h == NULL)
		return;
	for (unsigned i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
		flags |= (actions & marks[i].action) != 0 ? marks[i].flag : 0;
	h->flags |= flags;	/* at one stroke: why, and that it is to end */
	if ((actions & ACT_REMEMBER) != 0 && h->pending_signal != SIGKILL)
		h->pending_signal = signo;
	if ((actions & ACT_MARK_DISOWN) != 0 && (h->flags & RECORD_F_DISOWNED) == 0) {
		h->grace_end = monotime_add_ms(monotime_now(), wl->state == ST_ENDED ? DISOWNED_KEEP_MS :
		    wl->w->conf.work_kill_grace).ns;
		h->flags |= RECORD_F_DISOWNED;
	}
}

static void
flush(struct workload *wl)
{
	int signo = wl->rec.h != NULL ? wl->rec.h->pending_signal : 0;

	if (signo == 0)
		return;
	if (signo == SIGKILL) {
		wl->rec.h->flags |= RECORD_F_KILL;
		kill_tree(wl);
	} else {
		pass_signal(wl, signo);
	}
	wl->rec.h->pending_signal = 0;
}

static void
launch_next(struct workload *wl)
{
	char error[160];
	int r = stage_launch(wl);

	workchan_tell(wl);
	if (r == 0)
		return;
	snprintf(error, sizeof(error), "cannot start the next step: %s", strerror(-r));
	workload_refused(wl, WORK_REFUSED_START_FAILED, error);
}

static void
act(struct workload *wl, unsigned actions, int signo, enum work_refusal refusal, const char *error)
{
	mark(wl, actions, signo);
	if ((actions & ACT_KILL) != 0)
		kill_tree(wl);
	if ((actions & ACT_SIGNAL) != 0)
		pass_signal(wl, signo);
	if ((actions & ACT_FLUSH) != 0)
		flush(wl);
	if ((actions & ACT_RUN) != 0 && stage_of(wl) == STAGE_PAYLOAD) {
		note_run(wl);
		note_told(wl);
		workchan_tell(wl);
		workchan_answer_askers(wl, WORK_OK, "");
		l2_workload_runs(wl);
	}
	arm(wl);
	if ((actions & ACT_REFUSE) != 0 && container_is_one(wl) && container_stage(wl, stage_of(wl)))
		sweep_leftover(wl->w, wl->info.handle);
	if ((actions & ACT_REFUSE) != 0) {
		tally_refused(wl->w, refusal, error);
		workchan_answer_askers(wl, refusal, error);
		if (workload_is_own(wl))
			harness_refused(wl, error);
	}
	if ((actions & ACT_FORGET) != 0)
		forget(wl);
	else if ((actions & ACT_FINISH) != 0)
		finish(wl);
	else if ((actions & ACT_DRAIN) != 0)
		output_drain(wl);
	else if ((actions & ACT_LAUNCH) != 0)
		launch_next(wl);
}

static void
event(struct workload *wl, enum event ev, int signo, enum work_refusal refusal, const char *error)
{
	struct step step = state_step(wl->state, ev);
	bool delivered = wl->delivered;

	if ((step.actions & ACT_BAD) != 0)
		fatal("launcher: event %d for %s in state %d", (int)ev, wl->info.handle, (int)wl->state);
	wl->w->all.counts[wl->state]--;
	wl->state = (enum state)step.next;
	wl->w->all.counts[wl->state]++;
	act(wl, step.actions, signo, refusal, error);
	if (delivered && step.next == ST_ENDED && (step.actions & ACT_FINISH) != 0)
		workload_event(wl, EV_DELIVERED);
}

void
workload_event(struct workload *wl, enum event ev)
{
	struct launch_report rep;
	char text[160] = "";
	enum work_refusal why = WORK_REFUSED_START_FAILED;

	if (ev == EV_DRAINED && wl->state == ST_DRAINING)
		ev = stage_drained(wl);
	if (ev == EVENTS)
		return;
	if (ev == EV_FAILED && wl->rec.h != NULL) {
		record_report(&wl->rec, &rep);
		life_failed_text(&rep, text, sizeof(text));
		if (rep.failed.stage == INIT_STAGE_WORKDIR &&
		    (rep.failed.error == EXDEV || rep.failed.error == ELOOP || rep.failed.error == ENOTDIR))
			why = WORK_REFUSED_FORBIDDEN_PATH;
		else if (rep.failed.stage >= INIT_STAGE_USER && rep.failed.stage != INIT_STAGE_SECRETS)
			why = WORK_REFUSED_SANDBOX;
	}
	event(wl, ev, ev == EV_DISOWN ? SIGTERM : SIGKILL, why, text);
}

void
workload_signal(struct workload *wl, int signo)
{
	/* Between two steps nothing lives that could get it: the next one is not begun. */
	if (wl->state == ST_DRAINING && stage_is_before(wl)) {
		wl->rec.h->flags |= RECORD_F_CANCEL;
		return;
	}
	event(wl, signo == SIGKILL ? EV_KILL : EV_SIGNAL, signo, WORK_OK, "");
}

void
workload_end(struct workload *wl)
{
	if (wl->state >= ST_DRAINING && !stage_is_before(wl))
		return;
	if (wl->rec.h != NULL && wl->rec.h->grace_end == 0)
		wl->rec.h->grace_end = monotime_add_ms(monotime_now(), wl->w->conf.work_kill_grace).ns;
	workload_signal(wl, SIGTERM);
	if (wl->rec.h != NULL)
		arm(wl);
}

void
workload_refused(struct workload *wl, enum work_refusal refusal, const char *error)
{
	char text[208];
	enum event ev;

	snprintf(text, sizeof(text), "%s", error);
	ev = stage_refused(wl, text);
	event(wl, ev, 0, refusal, text);
}

void
workload_unprepared(struct workload *wl, const char *error)
{
	char text[208];

	snprintf(text, sizeof(text), "%s", error);
	event(wl, EV_UNPREPARED, 0, WORK_REFUSED_START_FAILED, text);
}

void
life_init(struct workload *wl)
{
	loop_timer_init(&wl->timer, timer_over, wl);
}

void
life_resume(struct workload *wl)
{
	if (wl->rec.h->pending_signal != 0)
		flush(wl);
	if ((wl->rec.h->flags & RECORD_F_KILL) != 0)
		kill_tree(wl);
	arm(wl);
}

void
life_from_journal(struct workload *wl)
{
	if (!wl->journaled_end) {
		life_journal(wl, JOURNAL_ENDED);
		tally_ended(wl);
	}
	wl->journaled_end = true;
}
