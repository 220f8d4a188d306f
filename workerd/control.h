/* workerd.sock: what edgectl asks. */
#ifndef EDGEWARD_WORKERD_CONTROL_H
#define EDGEWARD_WORKERD_CONTROL_H

#include "workerd/workerd.h"

/* Serves the listener (owned). */
int control_open(struct workerd *w, int listener);

/* A workload has new output, or an end: who waits for it gets it. */
void control_output(struct workload *wl);
/* It is forgotten. */
void control_gone(const struct workload *wl);

void control_done(struct workerd *w);

#endif
