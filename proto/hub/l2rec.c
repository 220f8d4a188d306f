#include "proto/hub/l2rec.h"

#include <errno.h>
#include <string.h>

#define GSO_TYPE	1	/* offset in virtio_net_hdr; 0 = one packet */

void
l2rec_init(struct l2rec *r, bool offload, uint32_t mtu)
{
	r->offload = offload;
	r->mtu = mtu;
	r->have = 0;
}

size_t
l2rec_head(bool offload)
{
	return offload ? 4 : 2;
}

void
l2rec_put_head(uint8_t *dst, bool offload, size_t len)
{
	for (size_t n = l2rec_head(offload); n-- > 0; len >>= 8)
		dst[n] = (uint8_t)len;
}

static size_t
get_head(const uint8_t *src, bool offload)
{
	size_t v = 0;

	for (size_t i = 0; i < l2rec_head(offload); i++)
		v = v << 8 | src[i];
	return v;
}

static enum l2rec_verdict
judge(const struct l2rec *r, const uint8_t *data, size_t len)
{
	size_t vnet = r->offload ? L2REC_VNET : 0;

	if (len < vnet + L2REC_MIN)
		return L2REC_SHORT;
	if (r->offload && data[GSO_TYPE] != 0)
		return L2REC_GOOD;
	return len > vnet + r->mtu + L2REC_EXTRA ? L2REC_LONG : L2REC_GOOD;
}

int
l2rec_take(struct l2rec *r, const uint8_t *data, size_t len,
    void (*frame)(const uint8_t *data, size_t len, enum l2rec_verdict verdict, void *ctx), void *ctx)
{
	size_t head = l2rec_head(r->offload);

	while (len > 0) {
		const uint8_t *rec = r->have > 0 ? r->buf : data;
		size_t have = r->have > 0 ? r->have : len, whole, n;

		/* What is needed to know the length, then what is needed of the record; whole ones are used where they lie. */
		whole = have < head ? head : head + get_head(rec, r->offload);
		if (whole > head + L2REC_MAX)
			return -EBADMSG;
		if (r->have == 0 && have >= head && have >= whole) {
			frame(data + head, whole - head, judge(r, data + head, whole - head), ctx);
			data += whole;
			len -= whole;
			continue;
		}
		n = whole - r->have < len ? whole - r->have : len;
		memcpy(r->buf + r->have, data, n);
		r->have += n;
		data += n;
		len -= n;
		if (r->have < head)
			continue;
		whole = head + get_head(r->buf, r->offload);
		if (whole > head + L2REC_MAX)
			return -EBADMSG;
		if (r->have == whole) {
			r->have = 0;
			frame(r->buf + head, whole - head, judge(r, r->buf + head, whole - head), ctx);
		}
	}
	return 0;
}
