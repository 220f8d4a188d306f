/* The ways in which a value may be printed: escaped, quoted, encoded. Pure. */
#ifndef EDGEWARD_WORKERD_SPELLING_H
#define EDGEWARD_WORKERD_SPELLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPELLINGS	48u
#define SPELLINGS_WRAPPED	(19u * 6u)
#define SPELLING_WRAP_MAX	1024u	/* longer values are looked for in lines of base64 only where the value itself begins the first */
#define SPELLING_VALUE_MAX	(32u << 10)	/* longer values are looked for as they are (spelling 0 to 2) only */

/* Bytes of room that every spelling of len bytes fits into. */
size_t spelling_room(size_t len);

/* Spelling number which (0: as it is) of a value into dst. Its length; 0 = this one does not exist for the value. */
size_t spelling_make(unsigned which, const uint8_t *value, size_t len, uint8_t *dst);

/* As base64 in lines, as base64(1) and openssl(1) print it, with something before it: number which of SPELLINGS_WRAPPED. */
size_t spelling_wrapped(const uint8_t *value, size_t len, unsigned which, uint8_t *dst);

#endif
