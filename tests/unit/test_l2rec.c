/* B121: the records of a segment, whole and in pieces, and what is counted instead of passed on. proto/hub/l2rec.c is where they are read. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/l2rec.h"

static struct l2rec rec;
static struct {
	unsigned n, verdicts[L2REC_VERDICTS];
	size_t bytes, last_len;
	uint8_t last;
} got;

static void
frame(const uint8_t *data, size_t len, enum l2rec_verdict verdict, void *ctx)
{
	got.n++;
	got.verdicts[verdict]++;
	got.bytes += len;
	got.last_len = len;
	got.last = len > 0 ? data[len - 1] : 0;
}

static size_t
add(uint8_t *buf, size_t at, bool offload, size_t len, uint8_t fill)
{
	l2rec_put_head(buf + at, offload, len);
	memset(buf + at + l2rec_head(offload), fill, len);
	if (offload)
		memset(buf + at + l2rec_head(offload), 0, len < L2REC_VNET ? len : L2REC_VNET);
	return at + l2rec_head(offload) + len;
}

/* The same bytes cut into pieces of every small size give the same frames. */
static void
test_b121_pieces(void **state)
{
	static const size_t sizes[] = { 13, 14, 60, 1514, 1518, 1519, 9000 };

	for (int offload = 0; offload < 2; offload++) {
		size_t len = 0, vnet = offload ? L2REC_VNET : 0;
		uint8_t *buf = malloc(20000);

		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			len = add(buf, len, offload, sizes[i] + vnet, (uint8_t)(i + 1));
		for (size_t piece = 1; piece <= len; piece = piece < 40 ? piece + 1 : piece * 3) {
			memset(&got, 0, sizeof(got));
			l2rec_init(&rec, offload, 1500);
			for (size_t at = 0; at < len; at += piece) {
				size_t n = piece < len - at ? piece : len - at;
				uint8_t *copy = malloc(n);

				memcpy(copy, buf + at, n);
				assert_int_equal(l2rec_take(&rec, copy, n, frame, NULL), 0);
				free(copy);
			}
			assert_int_equal(got.n, 7);
			assert_int_equal(got.verdicts[L2REC_SHORT], 1);
			assert_int_equal(got.verdicts[L2REC_GOOD], 4);
			assert_int_equal(got.verdicts[L2REC_LONG], 2);
			assert_int_equal(got.last_len, 9000 + vnet);
			assert_int_equal(got.last, 7);
			assert_int_equal(rec.have, 0);
		}
		free(buf);
	}
}

static void
test_b121_many_packets_in_one(void **state)
{
	static uint8_t buf[L2REC_ROOM];
	size_t len = add(buf, 0, true, L2REC_MAX, 5);

	memset(&got, 0, sizeof(got));
	l2rec_init(&rec, true, 1500);
	assert_int_equal(l2rec_take(&rec, buf, len, frame, NULL), 0);
	assert_int_equal(got.verdicts[L2REC_LONG], 1);		/* one packet of 65 590 bytes is none */
	buf[4 + 1] = 1;						/* gso_type: TCP over IPv4 */
	assert_int_equal(l2rec_take(&rec, buf, len, frame, NULL), 0);
	assert_int_equal(got.verdicts[L2REC_GOOD], 1);
	l2rec_put_head(buf, true, L2REC_MAX + 1);
	assert_int_equal(l2rec_take(&rec, buf, 5, frame, NULL), -EBADMSG);
	l2rec_init(&rec, true, 1500);
	assert_int_equal(l2rec_take(&rec, (const uint8_t *)"\xff\xff\xff", 3, frame, NULL), 0);
	assert_int_equal(l2rec_take(&rec, (const uint8_t *)"\xff", 1, frame, NULL), -EBADMSG);
}

static void
test_empty_records(void **state)
{
	memset(&got, 0, sizeof(got));
	l2rec_init(&rec, false, 576);
	assert_int_equal(l2rec_take(&rec, (const uint8_t *)"\0\0\0\0\0", 5, frame, NULL), 0);
	assert_int_equal(got.verdicts[L2REC_SHORT], 2);
	assert_int_equal(rec.have, 1);
	assert_int_equal(l2rec_take(&rec, (const uint8_t *)"\0", 1, frame, NULL), 0);
	assert_int_equal(got.n, 3);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_b121_pieces),
		cmocka_unit_test(test_b121_many_packets_in_one),
		cmocka_unit_test(test_empty_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
