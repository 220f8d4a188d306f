/* A stream of kind l2: the first byte says with what MTU and offload, the second how it is cut. Frames do not depend on the cuts. */
#include <assert.h>
#include <string.h>

#include "proto/hub/l2rec.h"
#include "proto/ipc/l2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	const struct l2rec *rec;
	size_t n, bytes;
};

static void
frame(const uint8_t *data, size_t len, enum l2rec_verdict verdict, void *ctx)
{
	struct seen *s = ctx;

	assert(len <= L2REC_MAX && verdict < L2REC_VERDICTS);
	assert(verdict != L2REC_GOOD || len >= L2REC_MIN);
	s->n++;
	for (size_t i = 0; i < len; i++)
		s->bytes += data[i] + 1u;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct l2rec whole, cut;
	struct seen a = { .rec = &whole }, b = { .rec = &cut };
	size_t piece, at = 2, n;
	int r, q = 0;

	if (size < 2)
		return 0;
	l2rec_init(&whole, data[0] & 1, 576u + data[0]);
	l2rec_init(&cut, data[0] & 1, 576u + data[0]);
	piece = 1u + data[1];
	r = l2rec_take(&whole, data + 2, size - 2, frame, &a);
	for (; at < size && q == 0; at += n) {
		n = piece < size - at ? piece : size - at;
		q = l2rec_take(&cut, data + at, n, frame, &b);
	}
	assert(r == q && a.n == b.n && a.bytes == b.bytes && (r < 0 || whole.have == cut.have));
	if (size > sizeof(struct l2_open)) {
		struct l2_open open;
		struct l2_addresses addresses;
		struct l2_answer answer;

		memcpy(&open, data + 1, sizeof(open));
		memcpy(&addresses, data + 1, sizeof(addresses));
		memcpy(&answer, data + 1, sizeof(answer));
		assert(!l2_open_ok(&open) || (open.mtu >= 576 && open.naddrs <= L2_ADDRS && memchr(open.name, '\0', sizeof(open.name)) != NULL));
		assert(!l2_addresses_ok(&addresses) || addresses.n <= L2_ADDRS);
		assert(!l2_answer_ok(&answer) || memchr(answer.error, '\0', sizeof(answer.error)) != NULL);
	}
	if (size < 64) {
		char text[64] = "";
		struct l2_addr addr;
		uint8_t m[6];

		memcpy(text, data, size);
		assert(!l2_addr_parse(text, &addr) || (addr.prefix > 0 && (addr.family == 4 || addr.family == 6)));
		assert(!l2_mac_parse(text, m) || (m[0] & 3) == 2);
	}
	return 0;
}
