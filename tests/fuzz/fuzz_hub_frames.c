/* What a device may send to edgehub: text frames through every payload decoder, binary frames through the stream parser. */
#include <stddef.h>
#include <stdint.h>

#include "hub/frames.h"
#include "proto/hub/limits.h"
#include "proto/hub/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
decode_all(const struct frame *f)
{
	struct frame_hello hello;
	struct frame_offer offer;
	struct frame_heartbeat beat;
	struct frame_started started;
	struct frame_chunk chunk;
	struct frame_status status;
	const char *handle;
	uint32_t channel;

	if (frame_hello(f->payload, &hello) == 0)
		for (const struct json *o = hello.resume; o != NULL; o = o->next)
			if (frame_offer(o, &offer) == 0 && !handle_ok(offer.handle))
				__builtin_trap();
	frame_heartbeat(f->payload, &beat);
	frame_started(f->payload, &started);
	if (frame_chunk(f->payload, &chunk) == 0 && chunk.len > HUB_LOG_TEXT_MAX)
		__builtin_trap();
	if (frame_status(f->payload, &status) == 0 && status.state > RUN_FAILED)
		__builtin_trap();
	if (frame_log_open(f, &handle, &channel) == 0 && ((channel & 1) != 0 || !handle_ok(handle)))
		__builtin_trap();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json_doc *doc = NULL;
	struct stream_frame sf;
	struct frame f;

	if (size > 0 && data[0] != '{')
		return stream_parse(&sf, data, size) == 0 && sf.channel == 0 ? (__builtin_trap(), 0) : 0;
	if (json_parse_nul(data, size, &doc) < 0)
		return 0;
	if (frame_decode(json_root(doc), 1, &f) == 0)
		decode_all(&f);
	json_doc_free(doc);
	return 0;
}
