/*
 * One hub connection from outside: the ordinary life of it, what it says when it fails, the limits on sending. The
 * endings of B05 and B06 have their own file, test_hubend.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/unit/netrig.h"
#include "tests/unit/unit.h"

static struct netrig rig;

static void
open_it(const char *scheme, const char *host, SSL_CTX *tls)
{
	rig.hub.tls = tls;
	netrig_prepare(&rig, scheme, host);
	assert_int_equal(netrig_start(&rig), 0);
	assert_true(netrig_until_n(&rig, &rig.opened, 5000));
	assert_int_equal(hubconn_stage(rig.conn), HUBCONN_OPEN);
	assert_true(netrig_until(&rig, &rig.hub.reached, 5000));
}

/* One unmasked frame of the hub, at most 125 bytes. */
static void
hub_says(unsigned first, const void *data, size_t len)
{
	uint8_t frame[127] = { (uint8_t)first, (uint8_t)len };

	memcpy(frame + 2, data, len);
	fakehub_send(&rig.hub, frame, len + 2);
}

/* Takes the mask off a frame the hub has received; its payload, with the length. */
static const uint8_t *
unmask(uint8_t *p, size_t *ret_len, size_t *ret_whole)
{
	size_t len = p[1] & 0x7f, head = 2;

	assert_true((p[1] & 0x80) != 0);
	if (len == 126) {
		len = (size_t)p[2] << 8 | p[3];
		assert_true(len >= 126);
		head = 4;
	} else if (len == 127) {
		len = (size_t)p[6] << 24 | (size_t)p[7] << 16 | (size_t)p[8] << 8 | p[9];
		assert_true(len >= 65536);
		head = 10;
	}
	for (size_t i = 0; i < len; i++)
		p[head + 4 + i] ^= p[head + i % 4];
	*ret_len = len;
	*ret_whole = head + 4 + len;
	return p + head + 4;
}

static void
life(void **state)
{
	static const struct { const char *scheme, *host; bool tls; } t[] = {
		{ "ws", "127.0.0.1", false }, { "http", "localhost", false }, { "wss", "localhost", true },
		{ "https", "127.0.0.1", true },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		size_t len, whole;

		open_it(t[i].scheme, t[i].host, t[i].tls ? rig.tls : NULL);
		assert_string_equal(http_header(&rig.hub.head, "Authorization"), "Bearer clac1.a.b.c");
		assert_null(http_header(&rig.hub.head, "Origin"));
		assert_null(http_header(&rig.hub.head, "Sec-WebSocket-Extensions"));
		assert_null(http_header(&rig.hub.head, "Sec-WebSocket-Protocol"));
		assert_string_equal(rig.hub.head.target, "/api");
		hub_says(0x81, "hello", 5);
		assert_true(netrig_until_n(&rig, &rig.texts, 5000));
		assert_int_equal(rig.last_len, 5);
		assert_memory_equal(rig.last, "hello", 5);
		assert_int_equal(hubconn_send_text(rig.conn, "answer", 6), 0);
		while (rig.hub.in_len == 0)
			netrig_turns(&rig, 1);
		assert_int_equal(rig.hub.in[0], 0x81);
		assert_memory_equal(unmask(rig.hub.in, &len, &whole), "answer", 6);
		/* The hub closes: the answer carries its code, then it closes the connection, then we are told. */
		rig.hub.in_len = 0;
		hub_says(0x88, "\x03\xf3retry after 30 s", 18);
		while (rig.hub.in_len < 8)
			netrig_turns(&rig, 1);
		assert_int_equal(rig.ended, 0);
		assert_int_equal(rig.hub.in[0], 0x88);
		assert_memory_equal(unmask(rig.hub.in, &len, &whole), "\x03\xf3", 2);
		fakehub_fin(&rig.hub);
		assert_true(netrig_until_n(&rig, &rig.ended, 1000));
		assert_int_equal(rig.end.cause, HUBCONN_CLOSED);
		assert_int_equal(rig.end.close_code, 1011);
		assert_true(rig.end.retry_after_ms == 30000);
		assert_true(rig.end.answered);
	}
}

static void
subprotocol(void **state)
{
	rig.hub.tls = NULL;
	rig.hub.select = "edgeward.1";
	netrig_prepare(&rig, "ws", "127.0.0.1");
	rig.params.offer_edgeward1 = true;
	assert_int_equal(netrig_start(&rig), 0);
	assert_true(netrig_until_n(&rig, &rig.opened, 5000));
	assert_true(rig.edgeward1);
	assert_string_equal(http_header(&rig.hub.head, "Sec-WebSocket-Protocol"), "edgeward.1");
	netrig_cancel(&rig);
	/* Selected without having been offered: no upgrade. */
	netrig_prepare(&rig, "ws", "127.0.0.1");
	assert_int_equal(netrig_start(&rig), 0);
	assert_true(netrig_until_n(&rig, &rig.ended, 5000));
	assert_string_equal(rig.end.code, "http-bad");
	rig.hub.select = NULL;
}

static void
frames_behind_the_head(void **state)
{
	static const char text[] = "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ";
	char accept[64] = "";
	uint8_t frame[] = { 0x81, 2, 'h', 'i', 0x82, 1, 'x' };
	char all[400];
	int n;

	(void)accept;
	/* Stop the hub before its answer and give one by hand, in a single segment with two frames. */
	rig.hub.tls = NULL;
	rig.hub.stop = FAKEHUB_STOP_UPGRADE;
	netrig_prepare(&rig, "ws", "127.0.0.1");
	assert_int_equal(netrig_start(&rig), 0);
	assert_true(netrig_until(&rig, &rig.hub.reached, 5000));
	fakehub_accept_text(&rig.hub, accept);
	n = snprintf(all, sizeof(all), "%s%s\r\n\r\n", text, accept);
	memcpy(all + n, frame, sizeof(frame));
	fakehub_send(&rig.hub, all, (size_t)n + sizeof(frame));
	assert_true(netrig_until_n(&rig, &rig.binaries, 5000));
	assert_int_equal(rig.texts, 1);
	assert_int_equal(rig.last[0], 'x');
	netrig_cancel(&rig);
	rig.hub.stop = FAKEHUB_STOP_NEVER;
}

static void
configuration(void **state)
{
	static const struct { const char *url, *pins, *proxy, *bearer; bool insecure; int want; } t[] = {
		{ "ws://hub.example/", "", "none", "", false, -EINVAL },
		{ "ws://192.0.2.1/", "", "none", "", false, -EINVAL },
		{ "ws://127.0.0.1:9/", "", "none", "", false, 0 },
		{ "ws://[::1]:9/", "", "none", "", false, 0 },
		{ "ws://127.0.0.1:9/", "sha256:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "none", "", true, -EINVAL },
		{ "wss://127.0.0.1:9/", "sha256:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "none", "", false, 0 },
		{ "wss://127.0.0.1:9/", "sha1:x", "none", "", false, -EINVAL },
		{ "wss://127.0.0.1:9/", "", "ftp://x", "", false, -EINVAL },
		{ "wss://u:p@127.0.0.1:9/", "", "none", "", false, -EINVAL },
		{ "wss://127.0.0.1:9/", "", "none", "two words", false, -EINVAL },
		{ "wss://127.0.0.1:9/", "", "none", "line\r\nInjected: 1", false, -EINVAL },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		netrig_prepare(&rig, "ws", "127.0.0.1");
		rig.params.url = t[i].url;
		rig.params.pins = t[i].pins;
		rig.params.proxy = t[i].proxy;
		rig.params.bearer = t[i].bearer;
		rig.params.insecure = t[i].insecure;
		if (netrig_start(&rig) != t[i].want)
			fail_msg("row %zu", i);
		if (t[i].want == 0)
			netrig_cancel(&rig);
	}
}

static void
http_answers(void **state)
{
	static const struct { const char *answer, *code; int status; int64_t retry; } t[] = {
		{ "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "http-401", 401, -1 },
		{ "HTTP/1.1 403 Forbidden\r\n\r\n<html>", "http-403", 403, -1 },
		{ "HTTP/1.1 503 Busy\r\nRetry-After: 120\r\n\r\n", "http-5xx", 503, 120000 },
		{ "HTTP/1.1 429 Slow\r\nRetry-After: 7\r\n\r\n", "http-bad", 429, 7000 },
		{ "HTTP/1.1 429 Slow\r\nRetry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\n\r\n", "http-bad", 429, -1 },
		{ "HTTP/1.1 302 Found\r\nLocation: https://elsewhere/\r\n\r\n", "http-bad", 302, -1 },
		{ "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", "http-bad", 200, -1 },
		{ "HTTP/1.1 100 Continue\r\n\r\n", "http-bad", 100, -1 },
		{ "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
		    "http-bad", 101, -1 },
		{ "SSH-2.0-x\r\n", "http-bad", 0, -1 },
		{ "\r\n", "http-bad", 0, -1 },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		rig.hub.answer = t[i].answer;
		rig.hub.tls = NULL;
		netrig_prepare(&rig, "ws", "127.0.0.1");
		assert_int_equal(netrig_start(&rig), 0);
		assert_true(netrig_until_n(&rig, &rig.ended, 5000));
		assert_int_equal(rig.opened, 0);
		assert_int_equal(rig.end.cause, HUBCONN_HTTP_FAILED);
		assert_string_equal(rig.end.code, t[i].code);
		assert_int_equal(rig.end.http_status, t[i].status);
		assert_true(rig.end.retry_after_ms == t[i].retry);
		assert_true(rig.end.answered);
		assert_null(strstr(rig.end.detail, "clac1"));
	}
	rig.hub.answer = NULL;
}

/* Every length at which the header changes, by each way of sending, read back as the hub sees it. */
static void
sending(void **state)
{
	static const size_t lengths[] = { 1, 125, 126, 127, 65535, 65536, 65552, 100000 };

	open_it("wss", "localhost", rig.tls);
	for (size_t i = 0; i < COUNT(lengths); i++)
		for (unsigned way = 0; way < 3; way++) {
			static uint8_t data[100000];
			size_t want = lengths[i], len, whole, off = 0;
			uint8_t *room;

			for (size_t k = 0; k < want; k++)
				data[k] = (uint8_t)(k * 7 + way);
			rig.hub.in_len = 0;
			/* A small one first, so that a shorter header cannot just begin later. */
			if (way == 2)
				assert_int_equal(hubconn_send_binary(rig.conn, "s", 1), 0);
			if (way == 0) {
				assert_int_equal(hubconn_send_binary(rig.conn, data, want), 0);
			} else {
				room = hubconn_bulk_begin(rig.conn, want + 70000);
				assert_non_null(room);
				memcpy(room, data, want);
				hubconn_bulk_commit(rig.conn, want);
			}
			while (rig.hub.in_len < want + 6)
				netrig_turns(&rig, 1);
			netrig_turns(&rig, 2);
			if (way == 2) {
				assert_memory_equal(unmask(rig.hub.in, &len, &whole), "s", 1);
				off = whole;
			}
			assert_int_equal(rig.hub.in[off], 0x82);
			assert_memory_equal(unmask(rig.hub.in + off, &len, &whole), data, want);
			assert_int_equal(len, want);
			assert_int_equal(off + whole, rig.hub.in_len);
		}
	uint8_t *room = hubconn_text_begin(rig.conn, 10);

	assert_non_null(room);
	hubconn_text_commit(rig.conn, 0);
	assert_int_equal(hubconn_queued(rig.conn), 0);
	static char big[(1u << 20) + 1];

	assert_int_equal(hubconn_send_text(rig.conn, big, sizeof(big)), -EMSGSIZE);
	netrig_cancel(&rig);
}

/* A connection whose hub does not read, with as much bulk as is taken. */
static void
open_and_fill(void)
{
	size_t sent = 0;
	uint8_t *room;

	open_it("ws", "127.0.0.1", NULL);
	rig.hub.read_limit = 1;
	while ((room = hubconn_bulk_begin(rig.conn, 65552)) != NULL) {
		memset(room, 'x', 65552);
		hubconn_bulk_commit(rig.conn, 65552);
		sent += 65552;
		netrig_turns(&rig, 1);
		assert_true(sent < 64u << 20);
	}
}

/* The hub stops reading: bulk is refused, memory stays bounded, writable() comes when it reads again. */
static void
backpressure(void **state)
{
	open_and_fill();
	assert_true(hubconn_queued(rig.conn) < 65536 + 65552 + 100);
	assert_int_equal(rig.writables, 0);
	/* Messages still have room, up to the limit. */
	static char text[1u << 20];
	int r = 0;

	for (unsigned i = 0; i < 6 && r == 0; i++)
		r = hubconn_send_text(rig.conn, memset(text, 'a', sizeof(text)), sizeof(text));
	assert_int_equal(r, -ENOBUFS);
	assert_true(hubconn_queued(rig.conn) <= (4u << 20) + 65552);
	rig.hub.read_limit = 0;
	fakehub_kick(&rig.hub);
	assert_true(netrig_until_n(&rig, &rig.writables, 5000));
	netrig_cancel(&rig);
}

/*
 * B08: a receiver that takes nothing, or a byte now and then, ends the connection at the write deadline. The kind can
 * occur wherever bytes wait for a peer: here (all bytes to the hub leave through hubsend.c), the work channel, control.
 */
static void
test_b08_write_deadline(void **state)
{
	for (unsigned trickle = 0; trickle < 2; trickle++) {
		int64_t ms = 0;

		open_and_fill();
		netrig_turns(&rig, 300);	/* until the kernels have agreed on what is acknowledged */
		for (; rig.ended == 0 && ms < 3 * NETRIG_WRITE; ms += 50) {
			netrig_advance(50);
			if (trickle == 1 && ms % 1000 == 0)
				fakehub_take(&rig.hub, 1);
			netrig_turns(&rig, 1);
		}
		assert_int_equal(rig.ended, 1);
		assert_int_equal(rig.end.cause, HUBCONN_STALLED);
		assert_string_equal(rig.end.code, "stalled");
		assert_in_range(ms, NETRIG_WRITE - 1000, NETRIG_WRITE + 1000);
	}
}

/*
 * B12: a slow reader that makes progress is not cut off, however long it takes, although what is queued does not get away
 * within the deadline: here 1 MiB at 300 kB a second and a deadline of 1.5 s. In real time: the kernels' timers belong to it.
 */
static void
test_b12_slow_but_alive(void **state)
{
	static char text[1u << 20];
	unsigned waits = 0;
	int size = 131072;

	/* A receiver announces room in steps that grow with its buffer. The accepted socket inherits this one. */
	assert_int_equal(setsockopt(rig.hub.listener.fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
	rig.hub.tls = NULL;
	netrig_prepare(&rig, "ws", "127.0.0.1");
	rig.params.write_timeout_ms = 1500;
	assert_int_equal(netrig_start(&rig), 0);
	assert_true(netrig_until_n(&rig, &rig.opened, 5000));
	rig.hub.read_limit = 1;
	assert_int_equal(hubconn_send_text(rig.conn, memset(text, 'a', sizeof(text)), sizeof(text)), 0);
	for (unsigned i = 0; i < 300 && (i == 0 || hubconn_queued(rig.conn) > 0); i++) {
		fakehub_take(&rig.hub, 15000);
		netrig_turns(&rig, 50);
		waits++;
		assert_int_equal(rig.ended, 0);
	}
	assert_int_equal(hubconn_queued(rig.conn), 0);
	assert_true(waits > 30);
	netrig_cancel(&rig);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(life), cmocka_unit_test(subprotocol), cmocka_unit_test(frames_behind_the_head),
		cmocka_unit_test(configuration), cmocka_unit_test(http_answers), cmocka_unit_test(sending),
		cmocka_unit_test(backpressure), cmocka_unit_test(test_b08_write_deadline),
		cmocka_unit_test(test_b12_slow_but_alive),
	};

	return netrig_run(&rig, NULL, tests, COUNT(tests));
}
