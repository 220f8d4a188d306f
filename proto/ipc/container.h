/*
 * What a start may say of a container (reference cloop.md 5.4): each string has one narrow form, because all of them become arguments
 * of an engine's command line, which may be root's. Part of a work_job (job.h); checked by connectd, by workerd, and where it is used.
 */
#ifndef EDGEWARD_PROTO_CONTAINER_H
#define EDGEWARD_PROTO_CONTAINER_H

#include <stdbool.h>

#include "proto/ipc/spec.h"

#define CONTAINER_IMAGE_MAX	512u
#define CONTAINER_SOCKET_MAX	200u
#define CONTAINER_NAME_MAX	64u	/* of a runtime, of a network */

enum job_engine { JOB_ENGINE_ANY, JOB_ENGINE_DOCKER, JOB_ENGINE_PODMAN, JOB_ENGINE_NERDCTL, JOB_ENGINES };

/* "", "docker", "podman", "nerdctl". */
const char *container_engine_name(enum job_engine engine);

/* A reference: letters, digits and ._-/:@, beginning with a letter or digit; no path behind a colon. */
bool container_image_ok(const struct work_str *s);
/* The name of an OCI runtime, never a path; or empty. */
bool container_runtime_ok(const struct work_str *s);
/* The name of a network of the engine, none, bridge; or empty. Not the host's, another container's or a namespace's. */
bool container_network_ok(const struct work_str *s);

/* Equal to a C string. */
bool container_is(const struct work_str *s, const char *text);

#endif
