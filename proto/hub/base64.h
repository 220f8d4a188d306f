/* RFC 4648: standard with padding for byte fields, URL-safe without padding for tokens and bundles. */
#ifndef EDGEWARD_PROTO_HUB_BASE64_H
#define EDGEWARD_PROTO_HUB_BASE64_H

#include <stddef.h>
#include <stdint.h>

#define BASE64_LEN(n)	(((n) + 2) / 3 * 4)

/* Standard alphabet with padding; dst needs BASE64_LEN(len) + 1 bytes. Returns the length. */
size_t base64_encode(char *dst, const void *src, size_t len);
/* URL-safe alphabet, no padding. */
size_t base64url_encode(char *dst, const void *src, size_t len);

/*
 * Decodes either alphabet, padded or not, in one go. dst needs len / 4 * 3 + 3 bytes. -EINVAL for any other character,
 * a mixed alphabet, wrong padding or leftover bits.
 */
int base64_decode(void *dst, size_t size, const char *src, size_t len, size_t *ret_len);

#endif
