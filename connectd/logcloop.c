/*
 * Offsets are counts of the bytes a hub sees after decoding, so what is sent must decode to as many bytes as workerd
 * counted: every byte that belongs to no character becomes one '?', before anything is cut or measured, and cuts fall
 * between characters only (cloop.md 15.6 says what goes wrong otherwise).
 */
#include "connectd/logcloop.h"

#include <string.h>

#include "common/monotime.h"
#include "connectd/cloop.h"
#include "proto/hub/limits.h"
#include "proto/hub/utf8.h"

/* Makes p valid except for a character that its end cuts off; returns the bytes of that one. */
static size_t
sanitize(uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len;) {
		size_t partial;

		i += utf8_valid_prefix(p + i, len - i, &partial);
		if (partial > 0)
			return partial;
		if (i < len)
			p[i++] = '?';
	}
	return 0;
}

/* The longest piece of valid text that may go into one frame. */
static size_t
piece(const uint8_t *p, size_t len)
{
	size_t n = HUB_LOG_TEXT_MAX;

	if (len <= n)
		return len;
	while ((p[n] & 0xc0) == 0x80)
		n--;
	return n;
}

/* 1 = sent, 0 = no room. */
static int
send_chunk(struct hubconn *conn, int64_t version, const char *handle, uint64_t offset, const uint8_t *text, size_t len)
{
	char *dst = (char *)hubconn_text_begin(conn,
	    CLOOP_HEAD_MAX + json_escaped_len(text, len) + CLOOP_TAIL_MAX);
	size_t n;

	if (dst == NULL)
		return 0;
	n = cloop_chunk_head(dst, version, handle, offset);
	n += json_escape(dst + n, text, len);
	n += cloop_chunk_tail(dst + n, monotime_wall_ns());
	hubconn_text_commit(conn, n);
	return 1;
}

size_t
logcloop_send(struct hubconn *conn, int64_t version, struct mirror_entry *e, uint8_t *p, size_t len, uint64_t end,
    bool last)
{
	struct mirror_log *log = &e->log;
	uint64_t offset;
	size_t tail;

	p -= log->nheld;
	memcpy(p, log->held, log->nheld);
	len += log->nheld;
	log->nheld = 0;
	offset = end - len;
	tail = sanitize(p, len);
	if (last) {
		memset(p + len - tail, '?', tail);
		tail = 0;
	}
	for (size_t n; len > tail; p += n, offset += n, len -= n) {
		n = piece(p, len - tail);
		if (!send_chunk(conn, version, e->w.handle, offset, p, n))
			return len;
	}
	memcpy(log->held, p, tail);
	log->nheld = (uint8_t)tail;
	return 0;
}
