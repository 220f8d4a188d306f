#include "proto/hub/wshead.h"

#include <string.h>

/* Bytes of the length that follow the second byte. */
static unsigned
length_bytes(const uint8_t *head)
{
	unsigned len = head[1] & 0x7f;

	return len == 126 ? 2 : len == 127 ? 8 : 0;
}

size_t
wshead_size(const uint8_t *head, size_t have)
{
	if (have < 2)
		return 2;
	return 2 + length_bytes(head) + ((head[1] & WSHEAD_MASKED) != 0 ? WSHEAD_MASK : 0);
}

uint64_t
wshead_payload(const uint8_t head[WSHEAD_MAX])
{
	unsigned n = length_bytes(head);
	uint64_t len = n == 0 ? head[1] & 0x7f : 0;

	for (unsigned i = 0; i < n; i++)
		len = len << 8 | head[2 + i];
	return len;
}

/* A word at a time. */
void
wshead_mask(uint8_t *p, size_t len, const uint8_t mask[WSHEAD_MASK])
{
	uint32_t key;
	uint64_t key2, v;

	memcpy(&key, mask, WSHEAD_MASK);
	key2 = (uint64_t)key << 32 | key;
	for (; len >= sizeof(v); p += sizeof(v), len -= sizeof(v)) {
		memcpy(&v, p, sizeof(v));
		v ^= key2;
		memcpy(p, &v, sizeof(v));
	}
	for (size_t i = 0; i < len; i++)
		p[i] ^= mask[i % WSHEAD_MASK];
}
