/* What a start frame asks for around its workload: workspace, write-back, project seed, the container it runs in. */
#ifndef EDGEWARD_PROTO_HUB_JOB_H
#define EDGEWARD_PROTO_HUB_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "proto/hub/start.h"

/* payload of start -> an encoded work_job (malloc'd, NULL when there is nothing to do), or a refusal with err filled. */
enum work_refusal job_from_start(const struct json *payload, uint8_t **ret_job, size_t *ret_len, char err[START_ERROR]);

#endif
