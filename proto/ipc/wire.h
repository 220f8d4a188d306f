/*
 * A cursor over a byte string, for messages with variable parts. The error is sticky: decode everything, then
 * look once at wire_done(). Native byte order; both ends are on one machine.
 */
#ifndef EDGEWARD_PROTO_WIRE_H
#define EDGEWARD_PROTO_WIRE_H

#include <stddef.h>
#include <stdint.h>

struct wire_r {
	const uint8_t *p, *end;
	int err;		/* 0 or -EBADMSG; once set, every getter returns zero */
};

struct wire_w {
	uint8_t *p, *end, *start;
	int err;		/* 0 or -ENOSPC */
};

void wire_r_init(struct wire_r *r, const void *data, size_t len);
uint8_t wire_u8(struct wire_r *r);
uint16_t wire_u16(struct wire_r *r);
uint32_t wire_u32(struct wire_r *r);
uint64_t wire_u64(struct wire_r *r);
int64_t wire_i64(struct wire_r *r);

/* A string of u32 length + bytes without NUL. Copied with its NUL into buf; longer than size - 1 is an error. */
void wire_str(struct wire_r *r, char *buf, size_t size);

/* The same as a view into the message, not NUL-terminated; NULL and 0 on error. May hold NULs: it is bytes. */
const uint8_t *wire_bytes(struct wire_r *r, size_t *ret_len);

/* 0 if everything was there and nothing is left, else -EBADMSG. */
int wire_done(const struct wire_r *r);

void wire_w_init(struct wire_w *w, void *buf, size_t size);
void wire_put_u8(struct wire_w *w, uint8_t v);
void wire_put_u16(struct wire_w *w, uint16_t v);
void wire_put_u32(struct wire_w *w, uint32_t v);
void wire_put_u64(struct wire_w *w, uint64_t v);
void wire_put_i64(struct wire_w *w, int64_t v);
void wire_put_bytes(struct wire_w *w, const void *data, size_t len);
void wire_put_str(struct wire_w *w, const char *s);

/* Bytes written, or -ENOSPC if they did not fit. */
int wire_w_done(const struct wire_w *w, size_t *ret_len);

#endif
