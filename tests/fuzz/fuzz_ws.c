/*
 * Frames of a hub: the first byte is the size of the pieces. Limits hold, text is UTF-8, and after the end of the protocol
 * nothing more is read or delivered.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/ws.h"
#include "proto/hub/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *data;
	size_t len, off, step;
	bool over;
};

static ssize_t
read_some(void *buf, size_t len, void *ctx)
{
	struct input *in = ctx;
	size_t n = in->len - in->off;

	if (in->over)
		abort();
	n = n < in->step ? n : in->step;
	n = n < len ? n : len;
	if (n == 0)
		return -EAGAIN;
	memcpy(buf, in->data + in->off, n);
	in->off += n;
	return (ssize_t)n;
}

static void
text(const uint8_t *data, size_t len, void *ctx)
{
	struct input *in = ctx;

	if (in->over || len > WS_MESSAGE_MAX || utf8_valid_prefix(data, len, NULL) != len)
		abort();
}

static void
binary(const uint8_t *data, size_t len, void *ctx)
{
	struct input *in = ctx;

	if (in->over || len > WS_MESSAGE_MAX)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct ws_cb cb = { .read = read_some, .text = text, .binary = binary };
	struct outq out = { .buf = NULL };
	struct input in;
	struct ws *ws;
	enum ws_state state;

	if (size < 1)
		return 0;
	in = (struct input){ .data = data + 1, .len = size - 1, .step = data[0] + 1u };
	if (ws_new(&cb, &in, &out, &ws) < 0)
		return 0;
	while ((state = ws_receive(ws, 512)) == WS_BUDGET)
		;
	if (state == WS_CLOSED || state == WS_BROKEN) {
		in.over = true;
		if (!ws_close_sent(ws) || ws_close_code(ws) == 0 || ws_receive(ws, 512) != state)
			abort();
	} else if (state != WS_DRAINED || in.off != in.len) {
		abort();
	}
	ws_free(ws);
	outq_done(&out);
	return 0;
}
