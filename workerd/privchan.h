/* workerd's channel to privhelper: it introduces us to connectd, and does it again whenever one of the three was away. */
#ifndef EDGEWARD_WORKERD_PRIVCHAN_H
#define EDGEWARD_WORKERD_PRIVCHAN_H

#include "workerd/workerd.h"

/* Connects now, or later when privhelper is there; goes on trying for ever. */
void privchan_open(struct workerd *w);

/* The work channel has ended without a successor: asks for one. */
void privchan_again(struct workerd *w);

/* The work channel has ended by a fault: the same, with a pause that doubles, in which nobody can give us a new one. */
void privchan_fault(struct workerd *w);

void privchan_done(struct workerd *w);

#endif
