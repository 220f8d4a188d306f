/*
 * attach_data on plain cloop: 32 KiB of the socket at a time, in base64, written where it leaves. There is no window: when the link has
 * no room the socket is left alone, so that the program waits; what the hub sends beyond what workerd takes is kept up to a bound, and
 * then the session is ended, never this device's memory filled.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "connectd/attach.h"
#include "connectd/counts.h"
#include "proto/hub/attach.h"
#include "proto/hub/base64.h"

#define INPUT_MAX	(256u * 1024)
#define HEAD_MAX	(160u + HANDLE_SIZE + 6 * ATTACH_ID_SIZE)

/* Up to the value of data; session is printable. */
static size_t
put_head(char *dst, const struct attach *a)
{
	size_t n = (size_t)snprintf(dst, HEAD_MAX, "{\"v\":%" PRId64 ",\"type\":\"attach_data\",\"handle\":\"%s\",\"payload\":{\"session_id\":\"",
	    a->s->version, a->handle);

	n += json_escape(dst + n, a->session, strlen(a->session));
	return n + (size_t)snprintf(dst + n, HEAD_MAX - n, "\",\"data\":\"");
}

void
attachcloop_pump(struct attach *a)
{
	static uint8_t raw[ATTACH_DATA_MAX];

	while (a->io.fd >= 0 && a->opened && !a->eof) {
		char *dst = (char *)hubconn_text_begin(a->s->p.conn, HEAD_MAX + BASE64_LEN(ATTACH_DATA_MAX) + 8);
		ssize_t n;
		size_t len;

		if (dst == NULL)
			return;		/* attach_writable() */
		n = read(a->io.fd, raw, sizeof(raw));
		if (n <= 0) {
			hubconn_text_commit(a->s->p.conn, 0);
			if (n < 0 && errno == EAGAIN) {
				attach_watch(a, EPOLLIN);
				return;
			}
			a->eof = true;
			attach_finish(a);
			return;
		}
		if (attach_count(a) != NULL)
			attach_count(a)->tx_bytes += (size_t)n;
		len = put_head(dst, a);
		len += base64_encode(dst + len, raw, (size_t)n);
		memcpy(dst + len, "\"}}", 3);
		hubconn_text_commit(a->s->p.conn, len + 3);
	}
}

void
attachcloop_flush(struct attach *a)
{
	ssize_t n = a->in_len > 0 ? write(a->io.fd, a->in, a->in_len) : 0;

	if (n > 0) {
		a->in_len -= (size_t)n;
		memmove(a->in, a->in + n, a->in_len);
	}
	if (n < 0 && errno != EAGAIN)
		a->in_len = 0;		/* its end is on the way */
	attach_watch(a, a->in_len > 0 ? EPOLLOUT : 0);
}

bool
attachcloop_input(struct attach *a, const uint8_t *data, size_t len)
{
	ssize_t n = a->in_len == 0 ? write(a->io.fd, data, len) : 0;

	if (attach_count(a) != NULL)
		attach_count(a)->rx_bytes += len;
	if (n < 0 && errno != EAGAIN)
		return true;
	data += n > 0 ? n : 0;
	len -= n > 0 ? (size_t)n : 0;
	if (len == 0)
		return true;
	if (a->in == NULL)
		a->in = malloc(INPUT_MAX);
	if (a->in == NULL || len > INPUT_MAX - a->in_len)
		return false;
	memcpy(a->in + a->in_len, data, len);
	a->in_len += len;
	attach_watch(a, EPOLLOUT);
	return true;
}
