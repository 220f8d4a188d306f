/*
 * B05 and B06: how attempts end. Where it can occur: everything one attempt takes (c-ares channel, race, proxy talk, TLS,
 * upgrade, wslay, queue, timers, descriptors) is owned by struct hubconn or struct dial and given back in release() and
 * quiet(); every ending goes through hubconn_finish() or hubconn_free().
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connectd/dns.h"
#include "tests/unit/fakedns.h"
#include "tests/unit/netrig.h"
#include "tests/unit/unit.h"

static struct netrig rig;
static struct fakedns dns;

static void
defaults(void)
{
	rig.hub.stop = FAKEHUB_STOP_NEVER;
	rig.hub.proxy = rig.hub.reset_on_accept = rig.hub.close_on_accept = rig.hub.garbage_on_accept = false;
	rig.hub.close_after_answer = false;
	rig.hub.answer = rig.hub.proxy_answer = NULL;
	rig.hub.tls = NULL;
	dns.rcode[0] = dns.rcode[1] = 0;
	dns.n4 = 1;
	dns.n6 = 0;
}

/* The next attempt works, whatever the last one was. */
static void
works(void)
{
	defaults();
	rig.hub.tls = rig.tls;
	netrig_prepare(&rig, "wss", "localhost");
	assert_int_equal(netrig_start(&rig), 0);
	assert_true(netrig_until_n(&rig, &rig.opened, 5000));
	netrig_cancel(&rig);
}

enum kind {
	REFUSED, SILENT, RESET, FIN, ALERT, GARBAGE, BAD_PIN, HTTP_503, BAD_UPGRADE, SILENT_UPGRADE, PROXY_407, PROXY_SILENT,
	NO_NAME, DNS_SILENT, OPEN_RESET, OPEN_CLOSED, KINDS,
};

static void
set_up(enum kind kind)
{
	const char *scheme = kind == ALERT || kind == GARBAGE || kind == BAD_PIN ? "wss" : "ws";
	const char *host = kind == NO_NAME || kind == DNS_SILENT ? "hub.test" : "127.0.0.1";

	defaults();
	rig.hub.reset_on_accept = kind == RESET;
	rig.hub.close_on_accept = kind == FIN;
	rig.hub.garbage_on_accept = kind == GARBAGE;
	rig.hub.tls = kind == ALERT ? rig.stranger : kind == BAD_PIN ? rig.tls : NULL;
	rig.hub.proxy = kind == PROXY_407 || kind == PROXY_SILENT;
	rig.hub.proxy_answer = kind == PROXY_407 ? "HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n" : NULL;
	rig.hub.answer = kind == HTTP_503 ? "HTTP/1.1 503 Busy\r\n\r\n" : kind == BAD_UPGRADE ? "HTTP/1.1 101 X\r\n\r\n" : NULL;
	if (kind == SILENT || kind == SILENT_UPGRADE || kind == PROXY_SILENT)
		rig.hub.stop = kind == SILENT ? FAKEHUB_STOP_ACCEPTED : kind == PROXY_SILENT ? FAKEHUB_STOP_PROXY :
		    FAKEHUB_STOP_UPGRADE;
	dns.rcode[0] = dns.rcode[1] = kind == NO_NAME ? 3 : kind == DNS_SILENT ? FAKEDNS_SILENT : 0;
	netrig_prepare(&rig, scheme, host);
	if (kind == BAD_PIN)
		rig.params.pins = "sha256:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
	if (rig.hub.proxy) {
		rig.params.proxy = rig.proxy;
		rig.params.insecure = true;
	}
	if (kind == REFUSED)
		rig.params.url = "ws://127.0.0.1:1/";
	rig.params.insecure = true;
}

static void
attempt(enum kind kind)
{
	static const char *const code[KINDS] = {
		[REFUSED] = "refused", [SILENT] = "timeout", [RESET] = "lost", [FIN] = "http-bad", [ALERT] = "tls-untrusted",
		[GARBAGE] = "tls", [BAD_PIN] = "tls-pin", [HTTP_503] = "http-5xx", [BAD_UPGRADE] = "http-bad",
		[SILENT_UPGRADE] = "timeout", [PROXY_407] = "proxy-auth", [PROXY_SILENT] = "timeout", [NO_NAME] = "dns",
		[DNS_SILENT] = "timeout", [OPEN_RESET] = "lost", [OPEN_CLOSED] = "closed",
	};

	set_up(kind);
	assert_int_equal(netrig_start(&rig), 0);
	if (kind == SILENT || kind == SILENT_UPGRADE || kind == PROXY_SILENT)
		assert_true(netrig_until(&rig, &rig.hub.reached, 5000));
	if (kind == DNS_SILENT) {
		unsigned asked = dns.questions[0];

		for (unsigned i = 0; i < 1000 && dns.questions[0] == asked; i++)
			loop_turn(rig.loop, 5);
	}
	if (kind == SILENT || kind == SILENT_UPGRADE || kind == PROXY_SILENT || kind == DNS_SILENT)
		netrig_advance(NETRIG_TIMEOUT + 1);
	if (kind == OPEN_RESET || kind == OPEN_CLOSED) {
		assert_true(netrig_until_n(&rig, &rig.opened, 5000));
		if (kind == OPEN_CLOSED)
			fakehub_send(&rig.hub, "\x88\x02\x03\xe8", 4);
		else
			assert_int_equal(hubconn_send_text(rig.conn, "x", 1), 0);
		netrig_turns(&rig, 0);
		fakehub_rst(&rig.hub);
	}
	assert_true(netrig_until_n(&rig, &rig.ended, 5000));
	if (kind == RESET || kind == FIN)	/* the reset may come before or after our request */
		assert_true(rig.end.cause == HUBCONN_LOST || rig.end.cause == HUBCONN_HTTP_FAILED ||
		    rig.end.cause == HUBCONN_REFUSED);
	else if (strcmp(rig.end.code, code[kind]) != 0)
		fail_msg("kind %u: %s (%s)", kind, rig.end.code, rig.end.detail);
	assert_int_equal(rig.ended, 1);
	assert_null(rig.conn);
}

static void
test_b05_ten_thousand_failures(void **state)
{
	size_t heap = 0;
	unsigned fds = 0;

	for (unsigned i = 0; i <= 10000; i++) {
		/* A TLS handshake costs more than all the others together: every eighth time is enough. */
		attempt(i / KINDS % 8 != 0 && (i % KINDS == ALERT || i % KINDS == BAD_PIN) ? GARBAGE : i % KINDS);
		/* Always at the same place in the cycle, so that what the peers hold is the same too. */
		if (i == 64 * KINDS) {
			heap = netrig_heap();
			fds = netrig_fds();
		} else if (i > 0 && i % (64 * KINDS) == 0) {
			assert_int_equal(netrig_fds(), fds);
			assert_int_equal(netrig_heap(), heap);
		}
	}
	works();
}

enum ending { TIMEOUT, PEER_FIN, PEER_RST, CANCEL, CLOSE, ENDINGS };

static bool
deliver(enum ending ending, unsigned stage)
{
	switch (ending) {
	case TIMEOUT:
		netrig_advance(NETRIG_TIMEOUT * 5);
		break;
	case PEER_FIN:
	case PEER_RST:
		if (stage == HUBCONN_RESOLVING) {
			dns.rcode[0] = dns.rcode[1] = ending == PEER_FIN ? 3 : 2;
			fakedns_release(&dns);
		} else if (stage == HUBCONN_CONNECTING) {
			struct linger linger = { .l_onoff = 1 };
			int fd = accept4(rig.hub.listener.fd, NULL, NULL, SOCK_CLOEXEC);

			if (fd >= 0 && ending == PEER_RST)
				setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
			if (fd >= 0)
				close(fd);
		} else if (ending == PEER_FIN) {
			fakehub_fin(&rig.hub);
		} else {
			fakehub_rst(&rig.hub);
		}
		break;
	case CANCEL:
		netrig_cancel(&rig);
		return true;
	case CLOSE:
		if (rig.conn != NULL)
			hubconn_close(rig.conn, 1000, "stop");
		break;
	case ENDINGS:
		break;
	}
	return false;
}

/* Brings an attempt to the stage and leaves it there. */
static void
bring_to(unsigned stage)
{
	static const enum fakehub_stop stop[] = {
		[HUBCONN_PROXY] = FAKEHUB_STOP_PROXY, [HUBCONN_TLS] = FAKEHUB_STOP_TLS,
		[HUBCONN_UPGRADING] = FAKEHUB_STOP_UPGRADE, [HUBCONN_OPEN] = FAKEHUB_STOP_NEVER,
	};
	bool resolving = stage == HUBCONN_RESOLVING;

	defaults();
	if (stage >= HUBCONN_PROXY) {
		rig.hub.stop = stop[stage];
		rig.hub.proxy = true;
		rig.hub.tls = rig.tls;
	}
	dns.rcode[0] = dns.rcode[1] = resolving ? FAKEDNS_SILENT : 0;
	netrig_prepare(&rig, "wss", resolving ? "hub.test" : "localhost");
	if (rig.hub.proxy)
		rig.params.proxy = rig.proxy;
	assert_int_equal(netrig_start(&rig), 0);
	if (resolving) {
		netrig_turns(&rig, 1);
	} else if (stage == HUBCONN_CONNECTING) {
		/* The SYN is out and answered by the kernel; nobody has looked at it yet. */
		while (rig.stage != HUBCONN_CONNECTING)
			loop_turn(rig.loop, 1);
	} else {
		assert_true(netrig_until(&rig, &rig.hub.reached, 5000));
		if (stage == HUBCONN_OPEN)
			assert_true(netrig_until_n(&rig, &rig.opened, 5000));
	}
	assert_int_equal(rig.stage, stage);
}

static void
test_b06_pairs_of_endings(void **state)
{
	for (unsigned stage = HUBCONN_RESOLVING; stage <= HUBCONN_OPEN; stage++)
		for (unsigned pair = 0; pair < ENDINGS * ENDINGS; pair++) {
			enum ending first = pair / ENDINGS, second = pair % ENDINGS;
			bool cancelled;

			bring_to(stage);
			cancelled = deliver(first, stage);
			cancelled = deliver(second, stage) || cancelled;
			for (unsigned i = 0; i < 3; i++)
				loop_turn(rig.loop, 0);
			/* Whatever was no ending at this stage gets one now. */
			deliver(PEER_RST, stage);
			for (unsigned i = 0; i < 200 && !cancelled && rig.ended == 0; i++) {
				netrig_advance(NETRIG_TIMEOUT);
				loop_turn(rig.loop, 1);
			}
			loop_turn(rig.loop, 0);
			if (rig.ended != (cancelled ? 0 : 1))
				fail_msg("stage %u, %u then %u: %u ended", stage, first, second, rig.ended);
			assert_null(rig.conn);
		}
	works();
}

static const char *cancel_in;
static unsigned cancel_at;

static void
cancelling_hook(struct netrig *r, const char *callback)
{
	if (strcmp(callback, cancel_in) == 0 && (strcmp(callback, "stage") != 0 || r->stage == cancel_at))
		netrig_cancel(r);
}

/* The owner may end it inside any callback. */
static void
test_b06_cancel_inside_callbacks(void **state)
{
	static const struct { const char *in; unsigned at; } t[] = {
		{ "stage", HUBCONN_CONNECTING }, { "stage", HUBCONN_PROXY }, { "stage", HUBCONN_TLS },
		{ "stage", HUBCONN_UPGRADING }, { "stage", HUBCONN_OPEN }, { "opened", 0 }, { "text", 0 }, { "binary", 0 },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		defaults();
		cancel_in = t[i].in;
		cancel_at = t[i].at;
		rig.hub.tls = rig.tls;
		rig.hub.proxy = true;
		netrig_prepare(&rig, "wss", "localhost");
		rig.params.proxy = rig.proxy;
		rig.hook = cancelling_hook;
		assert_int_equal(netrig_start(&rig), 0);
		for (unsigned k = 0; k < 3000 && rig.conn != NULL; k++) {
			loop_turn(rig.loop, 1);
			if (rig.opened > 0 && rig.hub.reached && rig.texts + rig.binaries == 0)
				fakehub_send(&rig.hub, "\x81\x01t\x82\x01" "b\x81\x01u", 9);
		}
		assert_null(rig.conn);
		netrig_turns(&rig, 5);
		assert_int_equal(rig.ended, 0);
		assert_in_range(rig.texts, 0, 1);
	}
	works();
}

/* The same for the hub's side of it: everything one segment can carry at once. */
static void
test_b06_close_and_data_in_one_segment(void **state)
{
	static const struct { const char *bytes; size_t len; enum hubconn_cause cause; unsigned texts; } t[] = {
		{ "\x81\x01" "a\x88\x02\x03\xe8", 7, HUBCONN_CLOSED, 1 },
		{ "\x88\x02\x03\xe8\x81\x01" "a", 7, HUBCONN_CLOSED, 0 },
		{ "\x88\x02\x03\xe8\x88\x02\x03\xe8", 8, HUBCONN_CLOSED, 0 },
		{ "\x83\x01" "a\x88\x02\x03\xe8", 7, HUBCONN_WS_PROTOCOL, 0 },
		{ "\x81\x01" "a\xff\xff\xff", 6, HUBCONN_WS_PROTOCOL, 1 },
	};

	for (size_t i = 0; i < COUNT(t); i++)
		for (unsigned reset = 0; reset < 2; reset++) {
			defaults();
			netrig_prepare(&rig, "ws", "127.0.0.1");
			assert_int_equal(netrig_start(&rig), 0);
			assert_true(netrig_until_n(&rig, &rig.opened, 5000));
			fakehub_send(&rig.hub, t[i].bytes, t[i].len);
			if (reset)
				fakehub_fin(&rig.hub);
			else
				netrig_turns(&rig, 5);
			if (!reset)
				netrig_advance(5000);
			assert_true(netrig_until_n(&rig, &rig.ended, 5000));
			assert_int_equal(rig.ended, 1);
			assert_int_equal(rig.end.cause, t[i].cause);
			assert_int_equal(rig.texts, t[i].texts);
		}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_b06_pairs_of_endings), cmocka_unit_test(test_b06_cancel_inside_callbacks),
		cmocka_unit_test(test_b06_close_and_data_in_one_segment), cmocka_unit_test(test_b05_ten_thousand_failures),
	};

	return netrig_run(&rig, &dns, tests, COUNT(tests));
}
