#include "proto/hub/l2fill.h"

#include <string.h>

#define ROOM_MIN	256u	/* with less room than this behind others a frame waits for the next message: most would be cut in two */

void
l2fill_init(struct l2fill *f, bool offload, uint32_t mtu)
{
	f->offload = offload;
	f->mtu = mtu;
	f->frames = f->dropped = 0;
	f->off = f->len = 0;
}

static size_t
take_rest(struct l2fill *f, uint8_t *buf, size_t max)
{
	size_t n = f->len - f->off < max ? f->len - f->off : max;

	memcpy(buf, f->rest + f->off, n);
	f->off += n;
	if (f->off == f->len)
		f->off = f->len = 0;
	return n;
}

/* Without offload nothing is merged, and the far end would drop it, too; there is no u16 for the longest. */
static bool
fits(const struct l2fill *f, size_t len)
{
	return f->offload ? len <= L2REC_MAX : len <= f->mtu + L2REC_EXTRA;
}

/* One frame, at buf as far as it fits. Its bytes there, 0: it was dropped; -1: there is none. */
static ssize_t
one(struct l2fill *f, uint8_t *buf, size_t max, ssize_t (*read)(const struct iovec iov[2], void *ctx), void *ctx)
{
	size_t head = l2rec_head(f->offload), room = max > head ? max - head : 0, len;
	struct iovec iov[2] = { { buf + head, room }, { f->rest, sizeof(f->rest) } };
	ssize_t r;

	if (room == 0) {	/* not even for its length */
		iov[0] = (struct iovec){ f->rest + head, sizeof(f->rest) - head };
		iov[1].iov_len = 0;
	}
	r = read(iov, ctx);
	if (r <= 0)
		return -1;
	len = (size_t)r;
	if (!fits(f, len)) {
		f->dropped++;
		return 0;
	}
	f->frames++;
	l2rec_put_head(room > 0 ? buf : f->rest, f->offload, len);
	f->len = room == 0 ? head + len : len > room ? len - room : 0;
	return (ssize_t)(room == 0 ? take_rest(f, buf, max) : head + len - f->len);
}

size_t
l2fill(struct l2fill *f, uint8_t *buf, size_t max, size_t budget, ssize_t (*read)(const struct iovec iov[2], void *ctx), void *ctx)
{
	size_t n = take_rest(f, buf, max);

	while (f->len == 0 && n < budget && n < max && (n == 0 || max - n >= ROOM_MIN)) {
		ssize_t r = one(f, buf + n, max - n, read, ctx);

		if (r < 0)
			break;
		n += (size_t)r;
	}
	return n;
}
