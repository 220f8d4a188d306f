/*
 * Finds known values in a stream of bytes and says what to write instead. Pure: memory only, no time, no descriptors.
 *
 * The patterns are an Aho-Corasick automaton in flat arrays, so the time is linear in the text whatever the text is (the
 * workload writes it and may know the secrets), and the memory is bounded by REDACT_NODES. While nothing has begun to match, a
 * table of three-byte blocks (as of Wu and Manber) skips ahead by nearly the length of the shortest pattern. Bytes that may be
 * the beginning of a value are held back until it is known; where the automaton is follows from the bytes held back, so a
 * reader that was killed begins again at struct redact_scan's from.
 */
#ifndef EDGEWARD_WORKERD_REDACT_H
#define EDGEWARD_WORKERD_REDACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define REDACT_MIN	6u		/* shorter values, and spellings, are not looked for: ordinary words would go */
#define REDACT_NODES	(1u << 20)	/* of the automaton, 21 bytes each: about the sum of the lengths of all spellings */
#define REDACT_LONGEST	(512u << 10)	/* bytes of one spelling */
#define REDACT_RELEASE	8u		/* fewer held bytes than these may be shown when the writer has fallen silent */
#define REDACT_MARK	"[redacted]"
#define REDACT_MARK_LEN	(sizeof(REDACT_MARK) - 1)

struct redact;

struct redact_value {
	const uint8_t *data;
	size_t len;
};

/*
 * Builds the automaton of the values in all spellings of spelling.h: each value as it is, then as many other spellings as
 * REDACT_NODES has room for. *ret_dropped says how many spellings were left out. -ENOMEM. The values are not needed afterwards.
 */
int redact_new(const struct redact_value *values, size_t n, struct redact **ret_redact, size_t *ret_dropped);
void redact_free(struct redact *r);

struct redact_span {
	uint64_t from, to;
};

/* Offsets are of the stream of raw bytes. Zero it for a new stream; free spans with redact_scan_done(). */
struct redact_scan {
	uint64_t from;		/* bytes below are done with: the next input begins here */
	uint64_t at;		/* scanned up to here */
	uint64_t out;		/* what is below has been written, from <= out */
	bool masked;		/* the byte before out belongs to a mark that was written */
	uint32_t state;
	struct redact_span *spans;	/* found, not yet written; in order, apart */
	size_t nspans, cap;
};

/*
 * Takes in [from, from + len) of the stream, of which everything below at was seen before, and writes what is certain to dst.
 * Returns the bytes written, at most size; 0 with a non-empty input: more must come first, or size is too small (REDACT_MARK_LEN is enough
 * for progress). Afterwards s->from says what of the input is not needed any more. -ENOMEM.
 */
ssize_t redact_run(const struct redact *r, struct redact_scan *s, const uint8_t *in, size_t len, uint8_t *dst, size_t size);

/*
 * The writer has fallen silent, or (final) has ended: also writes what is held back. Without final nothing is written if that is
 * REDACT_RELEASE bytes or more, and a value that goes on later is still recognised; with final so long a beginning of a value is masked.
 */
ssize_t redact_flush(const struct redact *r, struct redact_scan *s, const uint8_t *in, bool final, uint8_t *dst, size_t size);

/* True if nothing is held back; if something is certain and only waits for room. */
bool redact_is_idle(const struct redact_scan *s);
bool redact_is_due(const struct redact *r, const struct redact_scan *s);

/* Another automaton goes on from here: what was scanned and is not done with is scanned again. */
void redact_again(struct redact_scan *s);
void redact_scan_done(struct redact_scan *s);

#endif
