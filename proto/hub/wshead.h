/* The head of a WebSocket frame (RFC 6455 section 5.2) as both ends read it, and the mask. */
#ifndef EDGEWARD_PROTO_HUB_WSHEAD_H
#define EDGEWARD_PROTO_HUB_WSHEAD_H

#include <stddef.h>
#include <stdint.h>

#define WSHEAD_MAX	14u
#define WSHEAD_MASK	4u
#define WSHEAD_FIN	0x80u		/* in the first byte */
#define WSHEAD_MASKED	0x80u		/* in the second */

/* How long the head is, as far as the bytes that are there tell: 2 until the second one is. */
size_t wshead_size(const uint8_t *head, size_t have);
/* The length of the payload, once all of the head is there. */
uint64_t wshead_payload(const uint8_t head[WSHEAD_MAX]);
/* Masks, or takes the mask off. */
void wshead_mask(uint8_t *p, size_t len, const uint8_t mask[WSHEAD_MASK]);

#endif
