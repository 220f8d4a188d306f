/*
 * Files of a work directory, read or written by the hub (edgeward.md section 3, kind file). connectd (C) asks workerd (W), which starts a
 * carrier: a copy of the launcher in the sandbox of that directory, as its runner, that opens one file beneath it. C gets a socket to it and
 * the bytes go over that; neither W nor C can open a file of a workload.
 *
 * On that socket, SOCK_SEQPACKET, go the records below. Reading: META, then DATA and HOLE in order, END. Writing: the carrier first says
 * what an earlier attempt has left (META, DATA and HOLE, END), then takes the rest, and END asks it to put the file in its place: DONE.
 * FAIL ends both, from either side; a writer's FAIL removes what was written. The same records go between edgehub and its command line.
 */
#ifndef EDGEWARD_PROTO_FILE_H
#define EDGEWARD_PROTO_FILE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILE_PATH_SIZE	1024u
#define FILE_DATA_MAX	65536u		/* bytes in one record */
#define FILE_TEXT_MAX	200u
#define FILE_HOLE_MIN	(1u << 20)	/* a shorter one goes as zeroes */
#define FILE_CARRIERS	8u		/* at a time */

/* Beside enum work_type. */
enum file_type {
	WORK_REQ_FILE = 0x02a0,		/* C: struct file_request */
	WORK_ANS_FILE = 0x02a1,		/* W: struct file_answer; with ok 1 descriptor */
};

struct file_open {
	char handle[72];
	char work_dir[1024];		/* of that handle, for one that workerd has forgotten; "" = not said */
	char path[FILE_PATH_SIZE];	/* file_path_ok() */
	uint8_t sha256[32];		/* PUT: of the whole file */
	uint64_t size;			/* PUT */
	uint32_t put;			/* 1: write, 0: read */
	uint32_t mode;			/* PUT: permissions, within 0777 */
};
static_assert(sizeof(struct file_open) == 2168, "wire size");

struct file_request {
	struct file_open open;
	char who[64];			/* for the record, as the hub says it; may be "" */
};
static_assert(sizeof(struct file_request) == 2232, "wire size");

struct file_answer {
	uint32_t ok;			/* 1: one descriptor comes with it */
	uint32_t reserved;
	char error[208];		/* one sentence, "" when ok */
};
static_assert(sizeof(struct file_answer) == 216, "wire size");

enum file_rec_type {
	FILE_ASK = 1,			/* + struct file_open, W to the carrier, the first one */
	FILE_META,			/* at: size; reading: mode */
	FILE_DATA,			/* at: offset of the first byte; + 1..FILE_DATA_MAX bytes */
	FILE_HOLE,			/* at: where it ends */
	FILE_END,			/* at: all bytes; from edgehub to its command line + 32 bytes, the SHA-256 */
	FILE_DONE,			/* it is in its place */
	FILE_FAIL,			/* mode 1: the link is gone, try again; + text */
	FILE_RECS
};

struct file_rec {
	uint32_t type, mode;
	uint64_t at;
};
static_assert(sizeof(struct file_rec) == 16, "wire size");

#define FILE_REC_MAX	(sizeof(struct file_rec) + FILE_DATA_MAX)

/* Relative, and no step is empty, "." or "..". */
bool file_path_ok(const char *path);

/* A SHA-256 as 64 lower-case digits, and back: false for anything else, NULL included. */
#define FILE_SHA_HEX	65u
void file_sha_put(const uint8_t sha[32], char ret_hex[FILE_SHA_HEX]);
bool file_sha_parse(const char *hex, uint8_t ret_sha[32]);

bool file_open_ok(const struct file_open *open);
bool file_request_ok(const struct file_request *req);
bool file_answer_ok(const struct file_answer *answer);

/* A record that follows the file up to at, len bytes with its head: 0, or -EBADMSG. What is behind the head stays where it is. */
int file_rec_check(const void *data, size_t len, uint64_t at, struct file_rec *ret_rec);

#endif
