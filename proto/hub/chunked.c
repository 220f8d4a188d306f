#include "proto/hub/chunked.h"

#include <errno.h>
#include <stdio.h>

#define DIGITS_MAX	15u	/* less than 2^60: no overflow, and more than any body */

void
chunked_init(struct chunked *c, bool lenient)
{
	*c = (struct chunked){ .lenient = lenient };
}

static int
hex(uint8_t b)
{
	if (b >= '0' && b <= '9')
		return b - '0';
	b |= 0x20;
	return b >= 'a' && b <= 'f' ? b - 'a' + 10 : -1;
}

static int
take_size(struct chunked *c, uint8_t b)
{
	int v = hex(b);

	if (v >= 0) {
		c->left = c->left << 4 | (unsigned)v;
		return ++c->digits <= DIGITS_MAX ? 0 : -EBADMSG;
	}
	if (c->digits == 0)
		return -EBADMSG;
	if (b == '\r')
		c->state = CHUNKED_SIZE_LF;
	else if (c->lenient && (b == ';' || b == ' ' || b == '\t'))
		c->state = CHUNKED_EXT;
	else
		return -EBADMSG;
	return 0;
}

static int
take_ext(struct chunked *c, uint8_t b)
{
	if (b == '\r')
		c->state = CHUNKED_SIZE_LF;
	else if ((b < ' ' && b != '\t') || b == 0x7f || ++c->line > CHUNKED_LINE_MAX)
		return -EBADMSG;
	return 0;
}

static int
size_ended(struct chunked *c, uint8_t b)
{
	if (b != '\n')
		return -EBADMSG;
	c->digits = c->line = 0;
	c->state = c->left > 0 ? CHUNKED_DATA : CHUNKED_TRAILER;
	return 0;
}

/* An empty line ends it: line counts the bytes of the one in hand. */
static int
take_trailer(struct chunked *c, uint8_t b)
{
	if (c->after_cr != (b == '\n') || ((b < ' ' && b != '\r' && b != '\n' && b != '\t') || b == 0x7f) ||
	    ++c->trailer > CHUNKED_TRAILER_MAX)
		return -EBADMSG;
	c->after_cr = b == '\r';
	if (b == '\n') {
		if (c->line == 0)
			c->state = CHUNKED_DONE;
		c->line = 0;
	} else if (b != '\r') {
		if (!c->lenient)
			return -EBADMSG;
		c->line++;
	}
	return 0;
}

static int
take_byte(struct chunked *c, uint8_t b)
{
	switch (c->state) {
	case CHUNKED_SIZE:
		return take_size(c, b);
	case CHUNKED_EXT:
		return take_ext(c, b);
	case CHUNKED_SIZE_LF:
		return size_ended(c, b);
	case CHUNKED_CR:
		c->state = CHUNKED_LF;
		return b == '\r' ? 0 : -EBADMSG;
	case CHUNKED_LF:
		c->state = CHUNKED_SIZE;
		return b == '\n' ? 0 : -EBADMSG;
	case CHUNKED_TRAILER:
		return take_trailer(c, b);
	case CHUNKED_DATA:
	case CHUNKED_DONE:
		break;
	}
	return -EBADMSG;
}

int
chunked_take(struct chunked *c, const uint8_t *data, size_t len, size_t *ret_used, const uint8_t **ret_content, size_t *ret_len)
{
	size_t used = 0;
	int r = 0;

	*ret_len = 0;
	*ret_content = data;
	while (r == 0 && used < len && c->state != CHUNKED_DATA && c->state != CHUNKED_DONE)
		r = take_byte(c, data[used++]);
	if (r == 0 && c->state == CHUNKED_DATA && used < len) {
		size_t n = c->left < len - used ? (size_t)c->left : len - used;

		*ret_content = data + used;
		*ret_len = n;
		used += n;
		c->left -= n;
		if (c->left == 0)
			c->state = CHUNKED_CR;
	}
	*ret_used = used;
	return r < 0 ? r : c->state == CHUNKED_DONE;
}

size_t
chunked_put_size(char buf[CHUNKED_HEAD + 1], size_t len)
{
	return (size_t)snprintf(buf, CHUNKED_HEAD + 1, "%zx\r\n", len);
}
