#include "connectd/edgeward1.h"

#include <errno.h>
#include <string.h>

int
edgeward1_receive(const uint8_t *data, size_t len, const struct edgeward1_sink *sink, void *ctx)
{
	struct stream_frame f;

	if (stream_parse(&f, data, len) < 0)
		return -EBADMSG;
	if (sink->is_stream(f.channel, ctx)) {
		sink->stream(&f, ctx);
		return 0;
	}
	switch (f.type) {
	case STREAM_WINDOW_TO:
		sink->window(f.channel, f.offset, ctx);
		break;
	case STREAM_RESET:
		sink->reset(f.channel, (enum stream_reset)f.reset, f.data, f.len, ctx);
		break;
	case STREAM_DATA:
	case STREAM_END:
	case STREAM_GAP:
		sink->unwanted(f.channel, ctx);
		break;
	}
	return 0;
}

size_t
edgeward1_gap(uint8_t *dst, uint32_t channel, uint64_t from, uint64_t to, uint8_t reason)
{
	struct stream_frame f = { .type = STREAM_GAP, .channel = channel, .offset = from, .gap_to = to,
		.gap_reason = reason };

	return stream_put(dst, &f);
}

size_t
edgeward1_end(uint8_t *dst, uint32_t channel, uint64_t total, const uint8_t *xxh3)
{
	struct stream_frame f = { .type = STREAM_END, .channel = channel, .offset = total, .digest = xxh3 };

	return stream_put(dst, &f);
}

size_t
edgeward1_reset(uint8_t *dst, uint32_t channel, enum stream_reset code, const char *reason)
{
	struct stream_frame f = { .type = STREAM_RESET, .channel = channel, .reset = code,
		.data = (const uint8_t *)reason, .len = strlen(reason) };

	return stream_put(dst, &f);
}
