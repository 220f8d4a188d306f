/* Inside of the upgrader: upgrader.c (the job), upmirror.c (fetching), upresult.c (what became of it). */
#ifndef EDGEWARD_CONNECTD_UPGRADER_IMPL_H
#define EDGEWARD_CONNECTD_UPGRADER_IMPL_H

#include "connectd/upgrader.h"

/* upgrader.c */
void upgrader_drop_part(struct upgrader *u);
int upgrader_begin_part(struct upgrader *u);
int upgrader_complete(struct upgrader *u);
void upgrader_again(struct upgrader *u, const char *code, const char *detail, int64_t retry_after_ms);
void upgrader_fetched(struct upgrader *u);

/* upmirror.c */
void upgrader_attempt(struct upgrader *u);
/* The manifest has just become known: is this release for this device? -ECANCELED with the reason in u->check. */
int upgrader_judge(struct upgrader *u);

/* upresult.c */
void upgrader_look(struct upgrader *u);

#endif
