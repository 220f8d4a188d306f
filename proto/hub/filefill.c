#include "proto/hub/filefill.h"

#include <string.h>

bool
filefill(struct filefill *f, struct mux_chan *c, uint8_t *buf, size_t max, ssize_t *ret_n)
{
	size_t n = f->len - f->off < max ? f->len - f->off : max;

	memcpy(buf, f->buf + f->off, n);
	f->off += n;
	*ret_n = (ssize_t)n;
	if (f->off < f->len)
		return false;
	if (f->hole != 0)
		mux_hole(c, f->hole);
	f->hole = 0;
	return true;
}
