/* Numbers from text: the whole string, decimal digits only, within [min, max]. No sign, no space, no exponent. */
#ifndef EDGEWARD_PARSE_H
#define EDGEWARD_PARSE_H

#include <stdint.h>

/* 0, -EINVAL (not a number) or -ERANGE; *ret_v is untouched on failure. */
int parse_u32(const char *s, uint32_t min, uint32_t max, uint32_t *ret_v);
int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret_v);

/* A duration: digits and one of ms, s, m, h (none = s). Result in milliseconds. */
int parse_duration_ms(const char *s, int64_t min_ms, int64_t max_ms, int64_t *ret_ms);

/* A size in bytes: digits and one of K, M, G (powers of 1024), none = bytes. */
int parse_size(const char *s, uint64_t min, uint64_t max, uint64_t *ret_bytes);

/* yes or no, nothing else. */
int parse_yes_no(const char *s, int *ret_v);

#endif
