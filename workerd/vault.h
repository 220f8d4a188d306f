/*
 * The secrets of one workload, while it lives: which lease and grant each belongs to, and their values, which its output must
 * not show. All of it lies behind the ring of the workload's record (record.h), so it survives a workerd that is killed and goes
 * with the workload; nothing of it is on a disk.
 *
 * Behind the ring: an inner record with what was read from the pipe and is not judged yet, and two halves of items, of which
 * one counts: a list is changed in place only by flags and at its end, and else written anew into the other half.
 */
#ifndef EDGEWARD_WORKERD_VAULT_H
#define EDGEWARD_WORKERD_VAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/loop.h"
#include "proto/ipc/secrets.h"
#include "proto/ipc/spec.h"
#include "workerd/record.h"
#include "workerd/redact.h"

struct workload;
struct placing;

#define VAULT_RAW	(1u << 20)	/* ring of the inner record: REDACT_LONGEST may be held back */
#define VAULT_HALF	(768u << 10)	/* a start's 512 KiB, variables, and values that were replaced */
#define VAULT_BEYOND	(RECORD_PAGE + VAULT_RAW + RECORD_PAGE + 2u * VAULT_HALF)

#define VAULT_REVOKED	0x1u		/* scrubbed; its value is still looked for, since a process may remember it */
#define VAULT_REPLACED	0x2u		/* an earlier content of a file: only to be looked for */

struct vault {
	struct record raw;
	uint8_t *area;			/* the page with the number of the half that counts, and both halves */
	struct redact *redact;
	struct redact_scan scan;
	struct loop_timer quiet;	/* the writer has said nothing for so long: what is held back may be shown */
};

/* Items as they lie in the vault. flags may be changed where they are. */
struct vault_item {
	uint32_t *flags;
	struct secret s;		/* FILE: dir is where it really is */
};

struct vault_iter {
	uint8_t *p;
	uint8_t *end;
};

/*
 * The record of a workload that brings secrets, and its vault, which takes the items of spec with the values of variables out of
 * its environment, where placing has been at work; and what git is told (empty = nothing), which is no lease's. -ENOMEM and the like; -ENOSPC: too much. What is half done vault_free() ends.
 */
int vault_new(struct workload *wl, const struct work_spec *spec, const struct placing *placing, const struct work_str *credential);

/* After record_adopt(), which found room behind the ring. -EBADMSG. */
int vault_adopt(struct workload *wl, int pipe);

/* Zeroes and forgets everything but the record. No output may follow. */
void vault_free(struct workload *wl);

/* Forgets, and leaves all of it as it is to the next workerd. */
void vault_close(struct workload *wl);

void vault_begin(const struct vault *v, struct vault_iter *it);
bool vault_next(struct vault_iter *it, struct vault_item *ret_item);

/*
 * A new content of a file, as like describes it: it is looked for from now on, as REPLACED; pointers into items are void afterwards. When
 * the workload has it, vault_supersede() makes the last content the one that counts. -ENOMEM, -ENOSPC.
 */
int vault_add(struct workload *wl, const struct secret *like, const uint8_t *value, size_t len);
void vault_supersede(const struct vault *v, const char *dir, const char *name);

/* ---- mask.c: from the pipe through the automaton into the ring of the record ---- */

void mask_init(struct workload *wl);
void mask_done(struct workload *wl);

/* Moves what has been judged into the ring as far as there is room. True if something moved. */
bool mask_move(struct workload *wl);

/* Nothing more comes: writes what is held back. True when all of it is in the ring. */
bool mask_end(struct workload *wl);

/* True if bytes are waiting for room in the ring. */
bool mask_waits(const struct workload *wl);

#endif
