/*
 * What a workload's directory gives back (reference cloop.md 5.9, 5.10): after its log and before its terminal status, once in each session
 * until that status is confirmed. The bundle comes from workerd as a descriptor and is read as the link takes it; each
 * session begins at offset 0, which begins the transfer anew at the hub; on edgeward.1 as a stream, which goes on where the hub has it
 * (bundlesend.h).
 */
#ifndef EDGEWARD_CONNECTD_RESULTS_H
#define EDGEWARD_CONNECTD_RESULTS_H

#include <stdbool.h>

#include "proto/ipc/work.h"

struct bundlesend;
struct mirror_entry;
struct result;
struct session;

/* workerd has told it; takes fd (-1 = no bundle). What was there before is dropped. -ENOMEM. */
int results_take(struct mirror_entry *e, const struct work_result *r, int fd);

/* A session begins: nothing of it was sent in this one. */
void results_begin(struct result *r);
void results_free(struct result *r);
/* A session ends: what is under way in it stops. */
void results_done(struct session *s);
/* The bundle as a stream; NULL for no result. */
struct bundlesend *results_stream(struct result *r);

/*
 * Sends what is owed of an ended workload as far as the link has room. True when the terminal status may follow; else it is
 * called again when there is room, or when workerd has told the result.
 */
bool results_send(struct session *s, struct mirror_entry *e);

#endif
