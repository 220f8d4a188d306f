/* What happens to a workload, and what follows from it: carries out the actions of state.h. */
#ifndef EDGEWARD_WORKERD_LIFE_H
#define EDGEWARD_WORKERD_LIFE_H

#include "proto/ipc/work.h"
#include "workerd/journal.h"
#include "workerd/workload.h"

/* Something happened. wl may be gone afterwards. */
void workload_event(struct workload *wl, enum event event);
/* A stop was asked for: SIGINT, SIGTERM or SIGKILL. */
void workload_signal(struct workload *wl, int signo);
/* A lease it holds was taken away from it: SIGTERM, and after kill-grace the end. */
void workload_end(struct workload *wl);
/* The launcher refused it. */
void workload_refused(struct workload *wl, enum work_refusal refusal, const char *error);

/* Its workspace could not be made; wl is gone afterwards. */
void workload_unprepared(struct workload *wl, const char *error);

/* What the payload's end means, into wl->info. */
void life_outcome(struct workload *wl);
/* What a step said about the limit of disk, if that is what it said, into wl->info. */
void life_over_disk(struct workload *wl, const char *word);
/* Where a process of ours failed to start, for people. */
void life_failed_text(const struct launch_report *rep, char *buf, size_t size);

/* Of a new workload; of one that was adopted: signals that were still owed, deadlines. */
void life_init(struct workload *wl);
void life_resume(struct workload *wl);
/* Of one that the journal alone knows: it has ended. */
void life_from_journal(struct workload *wl);

/* Its line in the journal. */
void life_record(const struct workload *wl, enum journal_type type, struct journal_record *ret_rec);
int life_journal(struct workload *wl, enum journal_type type);

#endif
