/*
 * A command line as an operator is shown it: what was asked for and never a variable, one line of printable ASCII, bounded; values of the
 * workload's secrets are masked as in its output.
 */
#ifndef EDGEWARD_WORKERD_SHOWN_H
#define EDGEWARD_WORKERD_SHOWN_H

#include "proto/ipc/spec.h"
#include "workerd/redact.h"

/* redact NULL: it has no secrets. What is too long ends with "...". Out of memory: "?". */
void shown_command(const struct work_str *argv, uint32_t argc, const struct redact *redact, char *buf, size_t size);

#endif
