/*
 * attach_open of cloop and stream_open of kind attach (cloop.md section 6, edgeward.md section 3) as what workerd is asked. Pure.
 *
 * Fields of a stream besides cloop's: handle (also in the envelope), resume or watch (bool: the session is there; go on with it in the
 * place of whoever had it, or look on), from_offset (first byte of output that is wanted), operator (who it is, for the device's record).
 * stream_opened: session_id, tty, stdin, from_offset (first byte that comes), input_offset (first byte of input that is wanted).
 */
#ifndef EDGEWARD_PROTO_HUB_ATTACH_H
#define EDGEWARD_PROTO_HUB_ATTACH_H

#include <stddef.h>
#include <stdint.h>

#include "proto/hub/json.h"
#include "proto/ipc/attach.h"

#define ATTACH_DATA_MAX		32768u	/* raw bytes of one attach_data */
#define ATTACH_DEFAULT_TERM	"xterm-256color"

/*
 * handle: of the envelope, may be "". cmd: at least ATTACH_COMMAND_MAX bytes, the encoded command. 0, or -EBADMSG with *ret_why,
 * a sentence for the operator.
 */
int attach_decode(const struct json *payload, const char *handle, bool stream, struct attach_open *ret_open, uint8_t *cmd, size_t *ret_len,
    const char **ret_why);

/* The bytes of attach_data: at most ATTACH_DATA_MAX into dst, which has 3 more. -EBADMSG. */
int attach_decode_data(const struct json *payload, uint8_t *dst, size_t *ret_len);

#endif
