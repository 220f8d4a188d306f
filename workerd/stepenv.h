/* A step around a workload as a spec: /bin/sh with the script of its stage, and an environment of what it needs and no more. */
#ifndef EDGEWARD_WORKERD_STEPENV_H
#define EDGEWARD_WORKERD_STEPENV_H

#include "proto/ipc/job.h"
#include "workerd/stage.h"

/*
 * Replaces command, environment and secrets of the spec; limits that git could not live with are raised. head is the commit to push;
 * good: the workload ended with exit code 0. The strings are valid until stepenv_wipe(). -E2BIG.
 */
int stepenv_make(struct work_spec *spec, const struct work_job *job, enum stage stage, const char *head, bool good);

/* The official installer of a harness; the domain its server may lead to. */
struct harness_source {
	const char *name, *url, *domain;
};

/* The same for the step that installs one; nothing of it is a hub's. home is its work directory as everybody sees it. */
void stepenv_install(struct work_spec *spec, const struct harness_source *source, const char *home);

/* Nothing of the credential stays. */
void stepenv_wipe(void);

#endif
