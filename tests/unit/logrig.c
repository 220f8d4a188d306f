#include "tests/unit/logrig.h"

#include <stdlib.h>
#include <string.h>

int
setup(void **state)
{
	rig_setup(NULL);
	rig_enrolled();
	rig_workerd(NULL, 0);
	return 0;
}

int
teardown(void **state)
{
	rig_teardown();
	return 0;
}

void
begin(bool edgeward1)
{
	struct work_workload w = rig_running(1, "h", 0);

	rig_connect(edgeward1, "[]");
	rig_drop_frames();
	rig_tell(&w);
	rig_turn();
}

uint32_t
epoch(void)
{
	return mirror_by_handle(&rig.mirror, "h")->epoch;
}

static void
got_add(struct got *g, uint64_t offset, const void *data, size_t len)
{
	assert_int_equal(offset, g->next);
	if (g->len + len > g->size) {
		g->size = 2 * (g->len + len);
		g->data = realloc(g->data, g->size);
	}
	memcpy(g->data + g->len, data, len);
	g->len += len;
	g->next += len;
	g->frames++;
}

/* Reads all frames as a cloop hub does: an offset that is not the next byte is a failure here. */
void
collect_cloop(struct got *g)
{
	const struct json *p;
	int64_t offset;

	while ((p = rig_frame("log_chunk")) != NULL) {
		const struct json *t = json_get(p, "text");

		assert_true(json_get_int(p, "offset", 0, INT64_MAX, &offset));
		assert_non_null(t);
		assert_true(t->len >= 1 && t->len <= 32768);
		got_add(g, (uint64_t)offset, t->str, t->len);
	}
}

void
collect_stream(struct got *g)
{
	struct fake_msg *m;

	while ((m = fake_take(fake_conn())) != NULL) {
		struct stream_frame f;

		if (m->binary) {
			assert_int_equal(stream_parse(&f, m->data, m->len), 0);
			assert_int_equal(f.channel, mirror_by_handle(&rig.mirror, "h")->log.channel);
			if (f.type == STREAM_DATA)
				got_add(g, f.offset, f.data, f.len);
			else if (f.type == STREAM_GAP) {
				assert_int_equal(f.offset, g->next);
				g->next = f.gap_to;
				g->gaps++;
			}
		}
		free(m);
	}
}

void
window(uint64_t offset)
{
	uint8_t frame[64];

	stream_put_header(frame, STREAM_WINDOW_TO, mirror_by_handle(&rig.mirror, "h")->log.channel, offset);
	fake_binary(fake_conn(), frame, STREAM_HEADER);
	rig_turn();
}

/* Feeds data to connectd in records of at most n bytes, as far as the credit goes; acks everything. */
void
feed(const uint8_t *data, size_t len, size_t n, struct got *g)
{
	for (size_t at = 0, k; at < len; at += k) {
		k = len - at < n ? len - at : n;
		rig_output(1, epoch(), at, data + at, k);
		collect_cloop(g);
		rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"h\",\"payload\":{\"offset\":%llu}}", (unsigned long long)g->next);
	}
}
