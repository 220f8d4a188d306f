/*
 * The one text format of everything an upgrade reads and keeps: lines "KEY VALUE", in a fixed order, each ended by a newline.
 *
 * KEY is [a-z][a-z-]*; one space; VALUE is printable ASCII, not empty, with no space at either end. No comment, no empty line, no
 * second way to write the same thing. Errors are sticky: take what is wanted, ask lines_done() once.
 */
#ifndef EDGEWARD_PROTO_LINES_H
#define EDGEWARD_PROTO_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINES_VALUE_MAX	480u		/* bytes of a value */

struct lines {
	const char *p, *end;
	int err;			/* 0 or -EBADMSG; nothing more is taken once it is set */
};

void lines_init(struct lines *l, const void *data, size_t len);

/* True if the next line has this key; its value, with a NUL, is then in value. Otherwise nothing moves. A value that does not fit or
 * a malformed line is an error. */
bool lines_take(struct lines *l, const char *key, char *value, size_t size);

/* The next line must have this key. */
void lines_need(struct lines *l, const char *key, char *value, size_t size);

/* The same with a number: decimal, no sign, no leading zero, within [min, max]. *ret_v is untouched on failure. */
void lines_need_u64(struct lines *l, const char *key, uint64_t min, uint64_t max, uint64_t *ret_v);

/* 0 when everything was well and nothing is left, -EBADMSG. */
int lines_done(const struct lines *l);

/* A number as above that is the whole string: 0 or -EBADMSG. */
int lines_number(const char *s, uint64_t min, uint64_t max, uint64_t *ret_v);

/* Splits a value at its first space: the part before goes to word, the rest is returned; NULL when there is no rest or it does not fit. */
const char *lines_word(const char *value, char *word, size_t size);

#endif
