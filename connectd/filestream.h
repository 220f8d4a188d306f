/*
 * Streams of kind file (edgeward.md section 3): a file of a work directory to the hub or from it. The bytes go between the stream and a carrier's
 * socket (proto/ipc/file.h); here they are counted and digested, never kept beyond one record.
 *
 * stream_open {handle, work_dir, path, mode: get, offset} or {..., mode: put, size, sha256, file_mode}; stream_opened {size, file_mode} or
 * {offset}: the hub goes on from there. get ends with END and file_done {channel, size, sha256}, of the whole file; put with file_done when the
 * file is in its place. A hole of a file goes as GAP with reason 5. What fails resets the channel: REFUSED for good, GONE try again.
 */
#ifndef EDGEWARD_CONNECTD_FILESTREAM_H
#define EDGEWARD_CONNECTD_FILESTREAM_H

#include "connectd/session.h"
#include "proto/ipc/file.h"

/* stream_open; channel is claimed. */
void filestream_open(struct session *s, const struct cloop_frame *f, uint32_t channel);

/* From workerd: the answer, with the socket (taken when it is used); workerd is gone. */
void filestream_answer(struct session *s, uint32_t ipc_id, const struct file_answer *a, int *fd);
void filestream_work_down(struct session *s);

/* The session is over: all are closed. */
void filestream_done(struct session *s);

#endif
