/* A file to and from the records of proto/ipc/file.h, mostly for who may wait: a carrier, and edgehub cp. Nothing here logs. */
#ifndef EDGEWARD_FILEPUMP_H
#define EDGEWARD_FILEPUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/ipc/file.h"

/* Called for what was sent: bytes, or with data NULL zeroes up to at. 0, or -errno that ends it. */
typedef int filepump_fn(uint64_t at, const uint8_t *data, size_t len, void *ctx);

/* Sends one record, with len bytes behind its head. Waits. 0 or -errno. */
int filepump_say(int sock, const struct file_rec *rec, const void *data, size_t len);
/* The same without waiting, for who may not: -EAGAIN. */
int filepump_try(int sock, const struct file_rec *rec, const void *data, size_t len);
/* FAIL with this sentence, cut to its room; again: it may work later. The peer may be gone. */
void filepump_fail(int sock, const char *text, bool again);

/*
 * Reads the next record into buf (FILE_REC_MAX bytes), which must fit a file that is known up to at. Waits. The bytes behind its head, or
 * -errno: -EPIPE when the peer is gone, -EBADMSG.
 */
ssize_t filepump_hear(int sock, uint8_t *buf, uint64_t at, struct file_rec *ret_rec);

/*
 * Sends DATA and HOLE for [*io_at, size) of fd, which must stay of that size: -EBUSY when it does not. buf has FILE_DATA_MAX bytes. told may be
 * NULL; sock -1: nothing is sent, told() alone.
 */
int filepump_send(int sock, int fd, uint64_t *io_at, uint64_t size, uint8_t *buf, filepump_fn *told, void *ctx);

#define FILEPUMP_ZEROS	65536u
/* As many zeroes, for the digest of a hole. */
const uint8_t *filepump_zeros(void);

/* Writes a DATA or HOLE record that was heard. 0 or -errno. */
int filepump_store(int fd, const struct file_rec *rec, const uint8_t *data, size_t len, uint64_t *io_at);

#endif
