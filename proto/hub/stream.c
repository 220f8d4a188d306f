#include "proto/hub/stream.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "proto/hub/utf8.h"

static uint32_t
get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static uint64_t
get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static void
put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static void
put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

static int
parse_data(struct stream_frame *f)
{
	if (f->len < 1 || f->len > STREAM_DATA_MAX || f->offset > UINT64_MAX - f->len)
		return -EBADMSG;
	return 0;
}

static int
parse_end(struct stream_frame *f)
{
	if (f->len != 0 && f->len != 16)
		return -EBADMSG;
	f->digest = f->len == 16 ? f->data : NULL;
	return 0;
}

static int
parse_gap(struct stream_frame *f)
{
	if (f->len != 9)
		return -EBADMSG;
	f->gap_to = get64(f->data);
	f->gap_reason = f->data[8];
	return f->gap_to > f->offset && f->gap_reason >= 1 && f->gap_reason <= STREAM_GAP_HOLE ? 0 : -EBADMSG;
}

static int
parse_reset(struct stream_frame *f)
{
	if (f->len < 4 || f->len > 4 + STREAM_REASON_MAX || f->offset != 0)
		return -EBADMSG;
	f->reset = get32(f->data);
	f->data += 4;
	f->len -= 4;
	if (f->reset < STREAM_RESET_PROTOCOL || f->reset > STREAM_RESET_INTERNAL)
		return -EBADMSG;
	return utf8_valid_prefix(f->data, f->len, NULL) == f->len ? 0 : -EBADMSG;
}

int
stream_parse(struct stream_frame *ret_frame, const uint8_t *data, size_t len)
{
	struct stream_frame f = { 0 };
	int r = -EBADMSG;

	if (len < STREAM_HEADER || data[1] != 0 || data[2] != 0 || data[3] != 0)
		return -EBADMSG;
	f.channel = get32(data + 4);
	f.offset = get64(data + 8);
	f.data = data + STREAM_HEADER;
	f.len = len - STREAM_HEADER;
	if (f.channel == 0 || data[0] < STREAM_DATA || data[0] > STREAM_RESET)
		return -EBADMSG;
	f.type = (enum stream_type)data[0];
	switch (f.type) {
	case STREAM_DATA:
		r = parse_data(&f);
		break;
	case STREAM_WINDOW_TO:
		r = f.len == 0 ? 0 : -EBADMSG;
		break;
	case STREAM_END:
		r = parse_end(&f);
		break;
	case STREAM_GAP:
		r = parse_gap(&f);
		break;
	case STREAM_RESET:
		r = parse_reset(&f);
		break;
	}
	if (r == 0)
		*ret_frame = f;
	return r;
}

void
stream_put_header(uint8_t dst[STREAM_HEADER], enum stream_type type, uint32_t channel, uint64_t offset)
{
	memset(dst, 0, 4);
	dst[0] = (uint8_t)type;
	put32(dst + 4, channel);
	put64(dst + 8, offset);
}

size_t
stream_put(uint8_t *dst, const struct stream_frame *f)
{
	uint8_t *p = dst + STREAM_HEADER;

	stream_put_header(dst, f->type, f->channel, f->offset);
	if (f->type == STREAM_END && f->digest != NULL) {
		memcpy(p, f->digest, 16);
		p += 16;
	} else if (f->type == STREAM_GAP) {
		put64(p, f->gap_to);
		p[8] = f->gap_reason;
		p += 9;
	} else if (f->type == STREAM_RESET) {
		size_t n = f->len < STREAM_REASON_MAX ? f->len : STREAM_REASON_MAX;

		put32(p, f->reset);
		if (n > 0)
			memcpy(p + 4, f->data, n);
		p += 4 + n;
	}
	return (size_t)(p - dst);
}
