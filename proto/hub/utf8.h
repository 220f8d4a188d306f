/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef EDGEWARD_PROTO_HUB_UTF8_H
#define EDGEWARD_PROTO_HUB_UTF8_H

#include <stddef.h>
#include <stdint.h>

/*
 * Length of the valid prefix of s. *ret_partial (may be NULL) is set to the number of bytes behind it that are the
 * beginning of a sequence cut off by the end: 0..3.
 */
size_t utf8_valid_prefix(const uint8_t *s, size_t len, size_t *ret_partial);

/* Replaces every byte that belongs to no valid sequence by '?', one for one, so that the length stays. */
void utf8_sanitize(uint8_t *s, size_t len);

#endif
