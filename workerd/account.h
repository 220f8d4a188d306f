/* A device without ids for workloads asks root for them. */
#ifndef EDGEWARD_WORKERD_ACCOUNT_H
#define EDGEWARD_WORKERD_ACCOUNT_H

#include "workerd/workerd.h"

/* The launcher has no pool and could use one: asks, and ends this workerd for one that has it when it is there. */
/* Before the sandbox closes. */
void account_open(struct workerd *w);

void account_await(struct workerd *w);

#endif
