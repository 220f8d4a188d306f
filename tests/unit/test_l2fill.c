/* Frames of an interface as records of a stream: what fits is where it belongs at once, what does not is cut in the stream and nowhere else. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "proto/hub/l2fill.h"

static struct l2fill out;
static struct l2rec in;
static const size_t *sizes;	/* of the frames the interface has, 0 = the end */
static unsigned at, got;
static bool offload;

/* Every byte of frame i is i, but the virtio_net_hdr of one that was merged. */
static ssize_t
read_frame(const struct iovec iov[2], void *ctx)
{
	size_t len = sizes[at], first;

	if (len == 0)
		return -1;
	assert_true(len <= iov[0].iov_len + iov[1].iov_len);
	first = len < iov[0].iov_len ? len : iov[0].iov_len;
	memset(iov[0].iov_base, (int)at + 1, first);
	memset(iov[1].iov_base, (int)at + 1, len - first);
	at++;
	return (ssize_t)len;
}

static void
frame(const uint8_t *data, size_t len, enum l2rec_verdict verdict, void *ctx)
{
	const size_t *want = ctx;

	assert_int_equal(verdict, L2REC_GOOD);
	assert_int_equal(len, want[got++]);
	for (size_t i = 1; i < len; i++)
		assert_int_equal(data[i], data[0]);
}

/* All of the interface's frames through messages of that size. */
static void
through(const size_t *frames, const size_t *want, bool with_offload, uint32_t mtu, size_t message, size_t budget)
{
	uint8_t *buf = malloc(message);
	size_t n;

	sizes = frames;
	offload = with_offload;
	at = got = 0;
	l2fill_init(&out, offload, mtu);
	l2rec_init(&in, offload, mtu);
	while ((n = l2fill(&out, buf, message, budget, read_frame, NULL)) > 0) {
		uint8_t *copy = malloc(n);

		assert_true(n <= message);
		memcpy(copy, buf, n);
		assert_int_equal(l2rec_take(&in, copy, n, frame, (void *)(uintptr_t)want), 0);
		free(copy);
	}
	assert_true(sizes[at] == 0 && want[got] == 0);
	free(buf);
}

static void
whole_and_in_pieces(void **state)
{
	static const size_t plain[] = { 14, 60, 1514, 1518, 1400, 20, 1514, 1514, 1514, 99, 0 };
	static const size_t merged[] = { 24, 65240, 65550, 66, 65240, L2REC_MAX, 1524, 0 };
	static const size_t messages[] = { 1, 2, 3, 4, 5, 6, 7, 100, 256, 300, 1000, 2000, 4096, 65536 };

	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		through(plain, plain, false, 1500, messages[i], SIZE_MAX);
		through(merged, merged, true, 1500, messages[i], SIZE_MAX);
		through(plain, plain, false, 1500, messages[i], 1);
	}
}

/* B121: never cut, and counted. */
static void
test_b121_longer_than_the_mtu(void **state)
{
	static const size_t frames[] = { 1519, 60, 9014, 1518, 65535, 14, 0 }, good[] = { 60, 1518, 14, 0 };

	through(frames, good, false, 1500, 65536, SIZE_MAX);
	assert_true(out.dropped == 3 && out.frames == 3);
	through(frames, good, false, 1500, 700, SIZE_MAX);
	assert_true(out.dropped == 3 && out.frames == 3);
}

/* A turn ends with the frame that used its budget up. */
static void
a_budget_is_kept(void **state)
{
	static const size_t frames[] = { 1000, 1000, 1000, 1000, 0 };
	static uint8_t buf[65536];

	sizes = frames;
	at = 0;
	l2fill_init(&out, false, 1500);
	assert_int_equal(l2fill(&out, buf, sizeof(buf), 1500, read_frame, NULL), 2 * 1002);
	assert_int_equal(l2fill(&out, buf, sizeof(buf), 0, read_frame, NULL), 0);
	assert_int_equal(l2fill(&out, buf, sizeof(buf), 3000, read_frame, NULL), 2 * 1002);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_and_in_pieces), cmocka_unit_test(test_b121_longer_than_the_mtu), cmocka_unit_test(a_budget_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
