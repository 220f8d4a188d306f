/* The payload of a start frame as a specification: what connectd does with a hub's, and edgectl with an operator's question. */
#ifndef EDGEWARD_PROTO_HUB_START_H
#define EDGEWARD_PROTO_HUB_START_H

#include <stddef.h>
#include <stdint.h>

#include "proto/hub/json.h"
#include "proto/ipc/secrets.h"
#include "proto/ipc/work.h"

#define START_ERROR	208	/* as work_answer.error */

/*
 * payload of start -> encoded work_spec (malloc'd). handle is the envelope's. Returns WORK_OK, or the refusal with err
 * filled: BAD_SPEC for what is malformed (error "protocol"), UNSUPPORTED for what this agent cannot honour.
 */
enum work_refusal start_decode(const struct json *payload, const char *handle, uint8_t **ret_spec, size_t *ret_len,
    char err[START_ERROR]);

/*
 * The part of it that is secret: items of proto/ipc/secrets.h (malloc'd; the caller wipes and frees), NULL and 0 when there are none.
 * WORK_OK, or WORK_REFUSED_BAD_SPEC with err.
 */
enum work_refusal start_secrets(const struct json *payload, uint8_t **ret_items, size_t *ret_len, char err[START_ERROR]);

/* The same for the files of a secret_refresh, all of its lease. */
enum work_refusal refresh_secrets(const struct json *payload, char lease[SECRET_ID_SIZE], uint8_t **ret_items, size_t *ret_len,
    char err[START_ERROR]);

#endif
