/* Frames of a hub from memory, in pieces of every size; limits; what goes out is covered by test_hubconn.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/ws.h"
#include "tests/unit/unit.h"

static struct {
	const uint8_t *data;
	size_t len, off, step;
	unsigned texts, binaries;
	size_t bytes;
	uint64_t sum;		/* of what was in binary messages */
	bool stop;
	struct ws *ws;
} in;
static struct outq out;

static ssize_t
read_some(void *buf, size_t len, void *ctx)
{
	size_t n = in.len - in.off;

	n = n < in.step ? n : in.step;
	n = n < len ? n : len;
	if (n == 0)
		return -EAGAIN;
	memcpy(buf, in.data + in.off, n);
	in.off += n;
	return (ssize_t)n;
}

static void
text(const uint8_t *data, size_t len, void *ctx)
{
	in.texts++;
	in.bytes += len;
	if (in.stop)
		ws_stop(in.ws);
}

static void
binary(const uint8_t *data, size_t len, void *ctx)
{
	in.binaries++;
	in.bytes += len;
	for (size_t i = 0; i < len; i++)
		in.sum = in.sum * 31 + data[i];
	if (in.stop)
		ws_stop(in.ws);
}

static enum ws_state
feed(const void *data, size_t len, size_t step)
{
	static const struct ws_cb cb = { .read = read_some, .text = text, .binary = binary };
	enum ws_state state;

	ws_free(in.ws);
	outq_done(&out);
	memset(&in, 0, sizeof(in));
	in.data = data;
	in.len = len;
	in.step = step;
	assert_int_equal(ws_new(&cb, NULL, &out, &in.ws), 0);
	while ((state = ws_receive(in.ws, 4096)) == WS_BUDGET)
		;
	return state;
}

static void
done(void)
{
	ws_free(in.ws);
	in.ws = NULL;
	outq_done(&out);
}

/* Opcode and unmasked payload of the only frame in out, at most 125 bytes. */
static unsigned
sent(uint8_t *payload, size_t *ret_len)
{
	const uint8_t *p = outq_data(&out);
	size_t len = p[1] & 0x7f;

	assert_true((p[1] & 0x80) != 0 && len < 126);
	assert_int_equal(outq_len(&out), 6 + len);
	for (size_t i = 0; i < len; i++)
		payload[i] = p[6 + i] ^ p[2 + i % 4];
	*ret_len = len;
	return p[0];
}

static void
messages(void **state)
{
	static const uint8_t data[] = "\x81\x05hello" "\x82\x03\0\1\2" "\x01\x02h\xc3" "\x89\x02pi" "\x80\x01\xa9" "\x8a\0" "\x81\0";
	uint8_t payload[125];
	size_t len;

	for (size_t step = 1; step < sizeof(data); step++) {
		assert_int_equal(feed(data, sizeof(data) - 1, step), WS_DRAINED);
		assert_int_equal(in.texts, 3);
		assert_int_equal(in.binaries, 1);
		assert_int_equal(in.bytes, 5 + 3 + 3);
		assert_int_equal(sent(payload, &len), 0x8a);
		assert_int_equal(len, 2);
		assert_memory_equal(payload, "pi", 2);
	}
	done();
}

static void
closes(void **state)
{
	static const struct { const char *data; size_t len; uint16_t code; const char *reason, *answer; size_t answer_len; } t[] = {
		{ "\x88\x00", 2, 1005, "", "", 0 },
		{ "\x88\x02\x03\xe8", 4, 1000, "", "\x03\xe8", 2 },
		{ "\x88\x05\x03\xe9why", 7, 1001, "why", "\x03\xe9why", 5 },
		{ "\x88\x02\x0f\xa0", 4, 4000, "", "\x0f\xa0", 2 },
	};
	uint8_t payload[125];
	size_t len;

	for (size_t i = 0; i < COUNT(t); i++) {
		assert_int_equal(feed(t[i].data, t[i].len, 99), WS_CLOSED);
		assert_int_equal(ws_close_code(in.ws), t[i].code);
		assert_string_equal(ws_close_reason(in.ws), t[i].reason);
		assert_true(ws_close_sent(in.ws));
		assert_int_equal(sent(payload, &len), 0x88);
		assert_int_equal(len, t[i].answer_len);
		assert_memory_equal(payload, t[i].answer, len);
		/* Nothing more is read, nothing more is sent. */
		assert_int_equal(ws_receive(in.ws, 99), WS_CLOSED);
		assert_int_equal(ws_close(in.ws, 1000, ""), 0);
		assert_int_equal(outq_len(&out), 6 + len);
	}
	done();
}

static void
broken(void **state)
{
	static const struct { const char *what; const char *data; size_t len; uint16_t code; } t[] = {
		{ "reserved bit", "\xc1\x01" "a", 3, 1002 }, { "reserved bits, and no whole head", "\xff\xff\xff", 3, 1002 },
		{ "long ping, and no whole head", "\x89\xff", 2, 1002 }, { "reserved opcode", "\x83\x00", 2, 1002 },
		{ "reserved control opcode", "\x8b\x00", 2, 1002 }, { "masked", "\x81\x81" "abcdx", 7, 1002 },
		{ "fragmented ping", "\x09\x00", 2, 1002 }, { "long ping", "\x89\x7e\x00\x7e", 4, 1002 },
		{ "continuation of nothing", "\x80\x01" "a", 3, 1002 },
		{ "new message inside another", "\x01\x01" "a\x81\x01" "b", 6, 1002 },
		{ "length not minimal", "\x81\x7e\x00\x05hello", 9, 1002 },
		{ "length not minimal, 64 bit", "\x81\x7f\0\0\0\0\0\0\0\x05hello", 15, 1002 },
		{ "length with the top bit", "\x82\x7f\x80\0\0\0\0\0\0\0", 10, 1002 },
		{ "close of one byte", "\x88\x01\x03", 3, 1002 }, { "close 1005", "\x88\x02\x03\xed", 4, 1002 },
		{ "close 1006", "\x88\x02\x03\xee", 4, 1002 }, { "close 999", "\x88\x02\x03\xe7", 4, 1002 },
		{ "close 2000", "\x88\x02\x07\xd0", 4, 1002 }, { "close reason not UTF-8", "\x88\x03\x03\xe8\xff", 5, 1007 },
		{ "text not UTF-8", "\x81\x02\xc3\x28", 4, 1007 }, { "text cut", "\x81\x01\xc3", 3, 1007 },
		{ "surrogate", "\x81\x03\xed\xa0\x80", 5, 1007 }, { "overlong", "\x81\x02\xc0\x80", 4, 1007 },
		{ "beyond U+10FFFF", "\x81\x04\xf4\x90\x80\x80", 6, 1007 },
		{ "message over the limit", "\x82\x7f\0\0\0\0\0\x10\0\x01x", 11, 1009 },
		{ "second fragment over the limit", "\x02\x01" "a\x80\x7f\0\0\0\0\0\x10\0\0x", 14, 1009 },
		{ "exactly the limit", "\x02\x7f\0\0\0\0\0\x10\0\0x", 11, 0 },
	};
	uint8_t payload[125];
	size_t len;

	for (size_t i = 0; i < COUNT(t); i++)
		for (size_t step = 1; step < 20; step += 18) {
			enum ws_state want = t[i].code == 0 ? WS_DRAINED : WS_BROKEN;

			if (feed(t[i].data, t[i].len, step) != want)
				fail_msg("%s: taken", t[i].what);
			if (t[i].code == 0)
				continue;
			if (ws_close_code(in.ws) != t[i].code)
				fail_msg("%s: %u", t[i].what, ws_close_code(in.ws));
			assert_int_equal(sent(payload, &len), 0x88);
			assert_int_equal(payload[0] << 8 | payload[1], t[i].code);
			assert_int_equal(ws_receive(in.ws, 99), WS_BROKEN);
		}
	done();
}

/* Empty fragments cost an allocation each at wslay: they are counted. */
static void
fragments(void **state)
{
	size_t n = WS_FRAGMENTS_MAX + 10;
	uint8_t *data = calloc(n, 2);

	assert_non_null(data);
	data[0] = 0x02;
	assert_int_equal(feed(data, 2 * (WS_FRAGMENTS_MAX - 1), 4096), WS_DRAINED);
	assert_int_equal(feed(data, 2 * n, 4096), WS_BROKEN);
	assert_int_equal(ws_close_code(in.ws), 1009);
	free(data);
	done();
}

/* The longest message, and a ping flood that asks for more answers than are read. */
static void
limits(void **state)
{
	size_t len = WS_MESSAGE_MAX + 10, pings = 20000;
	uint8_t *data = calloc(1, len);

	assert_non_null(data);
	memcpy(data, "\x82\x7f\0\0\0\0\0\x10\0\0", 10);
	assert_int_equal(feed(data, len, 4096), WS_DRAINED);
	assert_int_equal(in.bytes, WS_MESSAGE_MAX);
	for (size_t i = 0; i < pings; i++)
		memcpy(data + 2 * i, "\x89\0", 2);
	assert_int_equal(feed(data, 2 * pings, 4096), WS_DRAINED);
	assert_int_equal(outq_len(&out), 6 * pings);
	free(data);
	done();
}

/* One frame behind what is in buf. big: its length in eight bytes however small. How long it is. */
static size_t
put_frame(uint8_t *buf, uint8_t first, size_t len, bool big, uint64_t *sum)
{
	size_t head = big || len > 65535 ? 10 : len > 125 ? 4 : 2;

	buf[0] = first;
	buf[1] = (uint8_t)(head == 10 ? 127 : head == 4 ? 126 : len);
	for (size_t i = 0; i < head - 2; i++)
		buf[2 + i] = (uint8_t)((uint64_t)len >> (8 * (head - 3 - i)));
	for (size_t i = 0; i < len; i++) {
		buf[head + i] = (uint8_t)(i * 7 + len);
		*sum = *sum * 31 + buf[head + i];
	}
	return head + len;
}

/* Whole binary messages go past wslay: around the border where that begins, and with all that may stand between two of them. */
static void
bulk(void **state)
{
	static const size_t lens[] = { 1022, 1023, 1024, 1025, 4096, 65535, 65536, 65552, 1024, 200000, 1 };
	static const size_t steps[] = { 1, 3, 1000, 4096, 99999, 1 << 20 };
	uint8_t *data = malloc(1 << 20);
	size_t len = 0;
	uint64_t sum = 0, none = 0;

	assert_non_null(data);
	for (size_t i = 0; i < COUNT(lens); i++) {
		len += put_frame(data + len, 0x82, lens[i], false, &sum);
		len += put_frame(data + len, 0x89, 3, false, &none);
	}
	len += put_frame(data + len, 0x02, 3000, false, &sum);		/* a message in two frames, a ping between them */
	len += put_frame(data + len, 0x89, 3, false, &none);
	len += put_frame(data + len, 0x80, 3000, false, &sum);
	len += put_frame(data + len, 0x82, 5000, false, &sum);
	for (size_t i = 0; i < COUNT(steps); i++) {
		assert_int_equal(feed(data, len, steps[i]), WS_DRAINED);
		assert_int_equal(in.binaries, COUNT(lens) + 2);
		assert_true(in.sum == sum);
		assert_int_equal(outq_len(&out), (COUNT(lens) + 1) * (6 + 3));
	}
	free(data);
	done();
}

/* What looks like bulk and is against the rules is refused as everything else is, and the end in the midst of it is one. */
static void
bulk_broken(void **state)
{
	static const struct { const char *what; uint8_t first, mask; bool big, inside; uint16_t code; } t[] = {
		{ "masked", 0x82, 0x80, false, false, 1002 }, { "reserved bit", 0xc2, 0, false, false, 1002 },
		{ "length not minimal", 0x82, 0, true, false, 1002 }, { "inside another message", 0x82, 0, false, true, 1002 },
		{ "good", 0x82, 0, false, false, 0 },
	};
	static uint8_t data[4096];
	uint64_t sum = 0;

	for (size_t i = 0; i < COUNT(t); i++)
		for (size_t step = 1; step < sizeof(data); step += 997) {
			size_t at = t[i].inside ? put_frame(data, 0x02, 5, false, &sum) : 0, len;

			len = at + put_frame(data + at, t[i].first, 2000, t[i].big, &sum);
			data[at + 1] |= t[i].mask;
			if (feed(data, len, step) != (t[i].code != 0 ? WS_BROKEN : WS_DRAINED) || ws_close_code(in.ws) != t[i].code)
				fail_msg("%s: %u", t[i].what, ws_close_code(in.ws));
			assert_int_equal(in.binaries, t[i].code == 0);
		}
	assert_int_equal(feed(data, 1500, 700), WS_DRAINED);
	assert_int_equal(in.binaries, 0);
	done();
}

static void
stop_in_bulk(void **state)
{
	static const struct ws_cb cb = { .read = read_some, .text = text, .binary = binary };
	static uint8_t data[8192];
	uint64_t sum = 0;

	memset(&in, 0, sizeof(in));
	in.data = data;
	in.len = put_frame(data, 0x82, 2000, false, &sum);
	in.len += put_frame(data + in.len, 0x82, 2000, false, &sum);
	in.step = sizeof(data);
	in.stop = true;
	assert_int_equal(ws_new(&cb, NULL, &out, &in.ws), 0);
	assert_int_equal(ws_receive(in.ws, sizeof(data)), WS_STOPPED);
	assert_int_equal(in.binaries, 1);
	done();
}

static void
stop(void **state)
{
	static const struct ws_cb cb = { .read = read_some, .text = text, .binary = binary };
	static const uint8_t data[] = "\x81\x01" "a\x81\x01" "b\x89\0";

	memset(&in, 0, sizeof(in));
	in.data = data;
	in.len = sizeof(data) - 1;
	in.step = 99;
	in.stop = true;
	assert_int_equal(ws_new(&cb, NULL, &out, &in.ws), 0);
	assert_int_equal(ws_receive(in.ws, 999), WS_STOPPED);
	assert_int_equal(in.texts, 1);
	assert_int_equal(outq_len(&out), 0);
	done();
}

static void
own_close(void **state)
{
	uint8_t payload[125];
	char reason[200];
	size_t len;

	assert_int_equal(feed("", 0, 1), WS_DRAINED);
	/* 122 letters and a character of two bytes: cut before it, not through it. */
	memset(reason, 'r', sizeof(reason));
	memcpy(reason + 122, "\xc3\xa9", 2);
	reason[199] = '\0';
	assert_int_equal(ws_close(in.ws, 1001, reason), 0);
	assert_int_equal(sent(payload, &len), 0x88);
	assert_int_equal(len, 2 + 122);
	/* The answer of the other side is taken, a ping before it no longer answered. */
	in.data = (const uint8_t *)"\x89\0\x88\x02\x03\xe9";
	in.len = 6;
	in.step = 99;
	assert_int_equal(ws_receive(in.ws, 99), WS_CLOSED);
	assert_int_equal(ws_close_code(in.ws), 1001);
	assert_int_equal(outq_len(&out), 6 + 2 + 122);
	done();
}

/* Masks differ from frame to frame. */
static void
masks(void **state)
{
	uint8_t first[4];
	unsigned same = 0;

	assert_int_equal(feed("", 0, 1), WS_DRAINED);
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(ws_put(in.ws, WS_TEXT, "x", 1), 0);
		if (i == 0)
			memcpy(first, outq_data(&out) + 2, 4);
		else
			same += memcmp(first, outq_data(&out) + 2, 4) == 0;
		outq_drop(&out, outq_len(&out));
	}
	assert_in_range(same, 0, 2);
	done();
}

static void
queue(void **state)
{
	struct outq q = { .buf = NULL };
	static uint8_t block[100000];
	size_t put = 0, got = 0;

	/* Bytes come out as they went in, through growing and moving. */
	for (unsigned i = 0; i < 2000; i++) {
		size_t n = i * 37 % 3000, drop;

		for (size_t k = 0; k < n; k++)
			block[k] = (uint8_t)(put + k);
		assert_int_equal(outq_put(&q, block, n), 0);
		put += n;
		drop = outq_len(&q) * (i % 3) / 2;
		for (size_t k = 0; k < drop; k++)
			if (outq_data(&q)[k] != (uint8_t)(got + k))
				fail_msg("byte %zu", got + k);
		got += drop;
		outq_drop(&q, drop);
	}
	assert_int_equal(outq_len(&q), put - got);
	outq_drop(&q, outq_len(&q));
	assert_true(q.cap <= OUTQ_KEEP);
	assert_non_null(outq_room(&q, 3u << 20));
	outq_commit(&q, 3u << 20);
	outq_drop(&q, 3u << 20);
	assert_int_equal(q.cap, 0);
	outq_done(&q);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages), cmocka_unit_test(closes), cmocka_unit_test(broken), cmocka_unit_test(fragments),
		cmocka_unit_test(limits), cmocka_unit_test(stop), cmocka_unit_test(own_close), cmocka_unit_test(masks),
		cmocka_unit_test(queue), cmocka_unit_test(bulk), cmocka_unit_test(bulk_broken), cmocka_unit_test(stop_in_bulk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
