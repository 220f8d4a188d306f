/*
 * Local services: targets, addresses that are never dialled, the policy's verdict, the chunked coding, the router, heads that are passed on, and
 * the gate of edgehub proxy. Request smuggling is in smuggling(); heads alone: test_http.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/svcjudge.h"
#include "proto/hub/chunked.h"
#include "proto/hub/svcgate.h"
#include "proto/hub/svcroute.h"
#include "tests/unit/unit.h"

static struct http_head head;

static int
parse(enum http_kind kind, const char *text)
{
	size_t used;

	http_init(&head, kind);
	return http_feed(&head, text, strlen(text), &used);
}

/* ---- targets and addresses ---- */

static void
targets(void **state)
{
	static const struct {
		const char *text, *host;
		int port;		/* -1: refused */
	} cases[] = {
		{ "http://127.0.0.1:8080", "127.0.0.1", 8080 }, { "http://Cam.LAN", "cam.lan", 80 }, { "HTTPS://cam.lan./", "cam.lan", 443 },
		{ "http://[::1]:81", "::1", 81 }, { "https://[FE80::1]", "fe80::1", 443 }, { "http://a_b.c:1", "a_b.c", 1 },
		{ "http://", "", -1 }, { "ftp://a", "", -1 }, { "http://a:0", "", -1 }, { "http://a:65536", "", -1 }, { "http://a:080", "", -1 },
		{ "http://a:", "", -1 }, { "http://a@b", "", -1 }, { "http://a/b", "", -1 }, { "http://a?b", "", -1 }, { "http://a#b", "", -1 },
		{ "http://127.1", "", -1 }, { "http://0x7f000001", "", -1 }, { "http://2130706433", "", -1 }, { "http://0177.0.0.1", "", -1 },
		{ "http://1.2.3.4.5", "", -1 }, { "http://[::1", "", -1 }, { "http://::1", "", -1 }, { "http://[fe80::1%eth0]", "", -1 },
		{ "http://a..b", "", -1 }, { "http://-a", "", -1 }, { "http://.", "", -1 }, { "http://a b", "", -1 }, { "unix:/run/x", "", -1 },
		{ "http://a.b\\c", "", -1 }, { "//a", "", -1 }, { "", "", -1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct service_target t;
		int r = service_target_parse(cases[i].text, false, &t);

		if (r != (cases[i].port < 0 ? -EINVAL : 0))
			fail_msg("%s: %d", cases[i].text, r);
		if (r < 0)
			continue;
		assert_string_equal(t.host, cases[i].host);
		assert_int_equal(t.port, cases[i].port);
	}
}

static void
declarations(void **state)
{
	struct service_target t;
	char name[SERVICE_NAME_SIZE], text[300];

	assert_int_equal(service_declared_parse("app=unix:/run/app.sock", name, &t), 0);
	assert_string_equal(name, "app");
	assert_int_equal(t.scheme, SERVICE_UNIX);
	assert_string_equal(service_target_text(&t, text, sizeof(text)), "unix:/run/app.sock");
	assert_int_equal(service_declared_parse("web=https://cam.lan", name, &t), 0);
	assert_string_equal(service_target_text(&t, text, sizeof(text)), "https://cam.lan:443");
	for (const char *const *p = (const char *const[]){ "app", "=unix:/x", "App=unix:/x", "a=unix:x", "a=unix:/a/../b", "a=tcp:1", "a=",
	    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=unix:/x", NULL }; *p != NULL; p++)
		assert_int_equal(service_declared_parse(*p, name, &t), -EINVAL);
	assert_true(service_is_cluster_name("db.prod.svc"));
	assert_true(service_is_cluster_name("db.prod.svc.cluster.local"));
	assert_false(service_is_cluster_name("db.svc"));
	assert_false(service_is_cluster_name("a.b.c.svc"));
	assert_false(service_is_cluster_name("svc"));
}

static void
to_addr(const char *text, union netaddr *ret, uint8_t addr[16])
{
	assert_true(netaddr_set(ret, text, strchr(text, ':') != NULL, 80));
	svcjudge_address(ret, addr);
}

static void
never_dialled(void **state)
{
	static const char *const never[] = { "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "169.254.169.254",
		"169.254.0.1", "100.100.100.200", "::", "ff02::1", "fe80::1", "febf::1", "fd00:ec2::254", "::ffff:169.254.169.254",
		"::ffff:0.0.0.0", "64:ff9b::169.254.169.254", "64:ff9b::224.0.0.1", "2002:a9fe:a9fe::1", "::169.254.169.254", "::2" };
	static const char *const may[] = { "127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "8.8.8.8", "100.100.100.201", "fd00::1", "2001:db8::1",
		"64:ff9b::8.8.8.8", "::ffff:10.0.0.1" };
	union netaddr a;
	uint8_t addr[16];

	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
		to_addr(never[i], &a, addr);
		if (service_never(addr) == NULL)
			fail_msg("%s", never[i]);
	}
	for (size_t i = 0; i < sizeof(may) / sizeof(may[0]); i++) {
		to_addr(may[i], &a, addr);
		if (service_never(addr) != NULL)
			fail_msg("%s: %s", may[i], service_never(addr));
	}
	to_addr("127.200.0.1", &a, addr);
	assert_true(service_is_loopback(addr));
	to_addr("::ffff:127.0.0.1", &a, addr);
	assert_true(service_is_loopback(addr));
	to_addr("64:ff9b::127.0.0.1", &a, addr);
	assert_true(service_is_loopback(addr));
}

/* ---- the policy ---- */

static struct policy policy;

static void
load(const char *text)
{
	char err[KEYFILE_ERR];

	if (policy_parse(&policy, "policy.conf", text, strlen(text), err) < 0)
		fail_msg("%s", err);
}

static enum svc_verdict
judge(const char *url, const char *addrs, bool own, char why[SVCJUDGE_WHY])
{
	struct service_target t;
	union netaddr list[4];
	bool owns[4] = { own, own, own, own };
	char copy[256], *p = copy, *item;
	uint8_t a[16];
	size_t n = 0;
	enum svc_verdict v;

	assert_int_equal(service_target_parse(url, false, &t), 0);
	v = svcjudge_target(&policy, &t, "", why);
	if (v == SVC_DENIED)
		return v;
	snprintf(copy, sizeof(copy), "%s", addrs);
	while ((item = strsep(&p, " ")) != NULL)
		to_addr(item, &list[n++], a);
	return svcjudge_addresses(&policy, &t, list, owns, n, why);
}

static void
verdicts(void **state)
{
	char why[SVCJUDGE_WHY];

	load("");
	assert_int_equal(judge("http://127.0.0.1:80", "127.0.0.1", false, why), SVC_DENIED);
	assert_non_null(strstr(why, "policy.conf (default): services allow"));
	load("[services]\nallow = 127.0.0.1:8080 cam.lan:80 192.0.2.7:443\nnetworks = 198.51.100.0/25 2001:db8::/33\n");
	assert_int_equal(judge("http://localhost:8080", "::1 127.0.0.1", false, why), SVC_ALLOWED);
	assert_int_equal(judge("http://127.0.0.1:8081", "127.0.0.1", false, why), SVC_DENIED);
	assert_non_null(strstr(why, "policy.conf:2: services allow"));
	assert_int_equal(judge("http://cam.lan", "192.0.2.1", false, why), SVC_ALLOWED);
	assert_int_equal(judge("http://cam.lan:81", "192.0.2.1", false, why), SVC_DENIED);
	/* A name that was made to lead elsewhere; the harder verdict wins. */
	assert_int_equal(judge("http://cam.lan", "127.0.0.1", false, why), SVC_DENIED);
	assert_int_equal(judge("http://cam.lan", "192.0.2.1 127.0.0.1", false, why), SVC_DENIED);
	assert_int_equal(judge("http://cam.lan", "192.0.2.1 169.254.169.254", false, why), SVC_DENIED);
	assert_non_null(strstr(why, "never dialled"));
	assert_int_equal(judge("https://x.lan", "192.0.2.7", false, why), SVC_ALLOWED);
	assert_int_equal(judge("http://198.51.100.127:1", "198.51.100.127", false, why), SVC_ALLOWED);
	assert_int_equal(judge("http://198.51.100.128:1", "198.51.100.128", false, why), SVC_DENIED);
	assert_int_equal(judge("http://[2001:db8:7fff::1]:9", "2001:db8:7fff::1", false, why), SVC_ALLOWED);
	assert_int_equal(judge("http://[2001:db8:8000::1]:9", "2001:db8:8000::1", false, why), SVC_DENIED);
	/* This device by another of its addresses is loopback: a network does not open it, only its own line. */
	assert_int_equal(judge("http://198.51.100.5:22", "198.51.100.5", true, why), SVC_DENIED);
	assert_int_equal(judge("https://192.0.2.7", "192.0.2.7", true, why), SVC_ALLOWED);
	assert_int_equal(judge("http://db.prod.svc", "192.0.2.7", false, why), SVC_DENIED);
	load("[services]\npolicy = warn\n");
	assert_int_equal(judge("http://8.8.8.8", "8.8.8.8", false, why), SVC_WARN);
	assert_int_equal(judge("http://127.0.0.1", "127.0.0.1", false, why), SVC_DENIED);
	load("[services]\npolicy = allow-any\nnetworks = 169.254.0.0/16\n");
	assert_int_equal(judge("http://8.8.8.8", "8.8.8.8", false, why), SVC_ALLOWED);
	assert_int_equal(judge("http://10.0.0.1:22", "10.0.0.1", true, why), SVC_DENIED);
	assert_int_equal(judge("http://169.254.169.254", "169.254.169.254", false, why), SVC_DENIED);
	load("[services]\nserve = no\nallow = 127.0.0.1:80\n");
	assert_int_equal(judge("http://127.0.0.1", "127.0.0.1", false, why), SVC_DENIED);
	assert_string_equal(why, "policy.conf:2: services serve = no");
}

static void
sockets(void **state)
{
	struct service_target t;
	char name[SERVICE_NAME_SIZE], why[SVCJUDGE_WHY];

	assert_int_equal(service_declared_parse("app=unix:/run/app.sock", name, &t), 0);
	load("[services]\npolicy = allow-any\n");
	assert_int_equal(svcjudge_target(&policy, &t, name, why), SVC_DENIED);
	assert_non_null(strstr(why, "services sockets: app is not in the list"));
	load("[services]\nsockets = other app\n");
	assert_int_equal(svcjudge_target(&policy, &t, name, why), SVC_ALLOWED);
}

/* ---- chunked ---- */

/* The content, or NULL when it is refused or not whole. */
static const char *
dechunk(const char *text, bool lenient, size_t step)
{
	static char out[512];
	struct chunked c;
	size_t len = strlen(text), at = 0, n = 0;
	int r = 0;

	chunked_init(&c, lenient);
	while (r == 0 && at < len) {
		size_t piece = len - at < step ? len - at : step, used, k;
		const uint8_t *content;
		uint8_t *exact = malloc(piece);

		assert_non_null(exact);
		memcpy(exact, text + at, piece);
		r = chunked_take(&c, exact, piece, &used, &content, &k);
		memcpy(out + n, content, k);
		free(exact);
		n += k;
		at += used;
	}
	out[n] = '\0';
	return r == 1 && at == len ? out : NULL;
}

static void
chunked_bodies(void **state)
{
	static const struct {
		const char *text, *strict, *lenient;
	} cases[] = {
		{ "0\r\n\r\n", "", "" },
		{ "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "hello!", "hello!" },
		{ "A\r\n0123456789\r\na\r\n0123456789\r\n000\r\n\r\n", "01234567890123456789", "01234567890123456789" },
		{ "5;x=y\r\nhello\r\n0\r\n\r\n", NULL, "hello" },
		{ "5 \r\nhello\r\n0\r\n\r\n", NULL, "hello" },
		{ "5\r\nhello\r\n0\r\nX: 1\r\n\r\n", NULL, "hello" },
		{ "5\r\nhello\r\n0\r\nContent-Length: 3\r\nX: 2\r\n\r\n", NULL, "hello" },
		{ "5\nhello\r\n0\r\n\r\n", NULL, NULL }, { "5\r\nhello\n0\r\n\r\n", NULL, NULL }, { "5\r\nhello\r\n0\n\n", NULL, NULL },
		{ "5\r\nhello0\r\n\r\n", NULL, NULL }, { "5\r\nhelloX\r\n0\r\n\r\n", NULL, NULL }, { "\r\nhello", NULL, NULL }, { "-5\r\nhello", NULL, NULL },
		{ "+5\r\nhello", NULL, NULL }, { "0x5\r\nhello", NULL, NULL }, { " 5\r\nhello", NULL, NULL }, { "5\r\r\nhello", NULL, NULL },
		{ "g\r\n", NULL, NULL }, { "fffffffffffffffff\r\n", NULL, NULL }, { "1000000000000000\r\n", NULL, NULL }, { "5;a\nb\r\nhello\r\n0\r\n\r\n", NULL, NULL },
		{ "0\r\nX: 1\n\r\n", NULL, NULL }, { "0\r\n\r", NULL, NULL }, { "5\r\nhell", NULL, NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t step = 1; step < 40; step += 3) {
			for (int lenient = 0; lenient < 2; lenient++) {
				const char *want = lenient ? cases[i].lenient : cases[i].strict, *got = dechunk(cases[i].text, lenient != 0, step);

				if ((want == NULL) != (got == NULL) || (want != NULL && strcmp(want, got) != 0))
					fail_msg("case %zu, step %zu, lenient %d", i, step, lenient);
			}
		}
}

/* ---- routes and heads ---- */

#define TARGET	"X-Railgrid-Svc-Target: http://127.0.0.1:8080\r\n"

static unsigned
route(const char *request, enum svc_purpose purpose, struct svc_route *ret)
{
	if (parse(HTTP_REQUEST, request) != 1)
		fail_msg("not parsed: %s", request);
	svcroute_decide(&head, purpose, ret);
	return ret->kind == SVC_REFUSED ? ret->status : 0;
}

static void
routes(void **state)
{
	static const struct {
		const char *line, *headers;
		enum svc_purpose purpose;
		enum svc_kind kind;
		unsigned status;
	} cases[] = {
		{ "GET /status", "", SVC_FOR_STATUS, SVC_STATUS, 0 }, { "GET /status?x", "", SVC_FOR_SVC, SVC_STATUS, 0 },
		{ "POST /status", "", SVC_FOR_STATUS, SVC_REFUSED, 405 }, { "GET /status", "", SVC_FOR_SSH, SVC_REFUSED, 403 },
		{ "GET /api/v1/services", "", SVC_FOR_STATUS, SVC_LIST, 0 }, { "GET /api/v1/servicesx", "", SVC_FOR_STATUS, SVC_REFUSED, 404 },
		{ "GET /svc", TARGET, SVC_FOR_SVC, SVC_PROXY, 0 }, { "PUT /svc/a", TARGET, SVC_FOR_SVC, SVC_PROXY, 0 },
		{ "GET /svc?a", TARGET, SVC_FOR_SVC, SVC_PROXY, 0 }, { "GET /svcx", TARGET, SVC_FOR_SVC, SVC_REFUSED, 404 },
		{ "GET /svc/a", "", SVC_FOR_SVC, SVC_REFUSED, 400 }, { "GET /svc/a", "X-Railgrid-Svc-Target: foo\r\n", SVC_FOR_SVC, SVC_REFUSED, 400 },
		{ "GET /svc/a", TARGET TARGET, SVC_FOR_SVC, SVC_REFUSED, 400 }, { "GET /svc/a", TARGET, SVC_FOR_STATUS, SVC_REFUSED, 403 },
		{ "GET /svc/a", "X-Railgrid-Svc-Target: unix:/run/x\r\n", SVC_FOR_SVC, SVC_REFUSED, 400 },
		{ "GET /svc/a", "X-Railgrid-Svc-Target: service://app\r\n", SVC_FOR_SVC, SVC_PROXY, 0 },
		{ "GET /svc/a", "X-Railgrid-Svc-Target: service://../x\r\n", SVC_FOR_SVC, SVC_REFUSED, 400 },
		{ "TRACE /svc/a", TARGET, SVC_FOR_SVC, SVC_REFUSED, 405 }, { "CONNECT a:1", TARGET, SVC_FOR_SVC, SVC_REFUSED, 400 },
		{ "GET http://x/svc/a", TARGET, SVC_FOR_SVC, SVC_REFUSED, 400 }, { "GET //svc", TARGET, SVC_FOR_SVC, SVC_REFUSED, 404 },
		{ "POST /svc/a", TARGET "Expect: magic\r\n", SVC_FOR_SVC, SVC_REFUSED, 417 },
		{ "GET /svc/a", TARGET "Connection: Upgrade\r\nUpgrade: x\r\nContent-Length: 3\r\n", SVC_FOR_SVC, SVC_REFUSED, 400 },
		{ "GET /ssh", "Connection: Upgrade\r\nUpgrade: ssh-tunnel\r\n", SVC_FOR_SSH, SVC_SSH, 0 },
		{ "GET /ssh", "Connection: Upgrade\r\nUpgrade: ssh-tunnel\r\n", SVC_FOR_SVC, SVC_REFUSED, 403 },
		{ "GET /ssh", "", SVC_FOR_SSH, SVC_REFUSED, 426 }, { "GET /k8s/api", "", SVC_FOR_SVC, SVC_REFUSED, 503 },
		{ "GET /", "", SVC_FOR_SVC, SVC_REFUSED, 404 }, { "OPTIONS *", "", SVC_FOR_SVC, SVC_REFUSED, 400 },
	};
	char text[512];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct svc_route r;

		snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: edge-agent\r\n%s\r\n", cases[i].line, cases[i].headers);
		route(text, cases[i].purpose, &r);
		if (r.kind != cases[i].kind || r.status != cases[i].status)
			fail_msg("%s %s: %d %u", cases[i].line, cases[i].headers, r.kind, r.status);
	}
	assert_int_equal(svcroute_purpose("ssh"), SVC_FOR_SSH);
	assert_int_equal(svcroute_purpose("SSH"), SVC_PURPOSES);
	assert_int_equal(svcroute_purpose(NULL), SVC_PURPOSES);
}

static void
requests(void **state)
{
	static char out[SVCHEAD_MAX];
	struct svc_route r;
	size_t len;

	assert_int_equal(route("POST /svc/a?b HTTP/1.1\r\nHost: edge-agent\r\n" TARGET "Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n"
	    "TE: trailers\r\nProxy-Authorization: x\r\nCookie: a=b\r\nX-Railgrid-Svc-TLS-Insecure: TRUE\r\nContent-Length: 4\r\n"
	    "Origin: http://127.0.0.1:999\r\nReferer: http://127.0.0.1:999/x?y\r\nX-Edgeward-Same-Origin: true\r\n\r\n", SVC_FOR_SVC, &r), 0);
	assert_true(r.insecure);
	assert_int_equal(svchead_request(&head, &r.target, r.path, false, false, out, &len), 0);
	assert_string_equal(out, "POST /a?b HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nCookie: a=b\r\nOrigin: http://127.0.0.1:8080\r\n"
	    "Referer: http://127.0.0.1:8080/x?y\r\nContent-Length: 4\r\nConnection: close\r\n\r\n");
	assert_int_equal(route("GET /svc?q HTTP/1.1\r\nHost: h\r\n" TARGET "Origin: http://evil\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	    SVC_FOR_SVC, &r), 0);
	assert_true(r.upgrade);
	assert_int_equal(svchead_request(&head, &r.target, r.path, true, false, out, &len), 0);
	assert_string_equal(out, "GET /?q HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nOrigin: http://evil\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
	/* HTTP/1.0 upgrades nothing. */
	assert_int_equal(route("GET /svc HTTP/1.0\r\nHost: h\r\n" TARGET "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", SVC_FOR_SVC, &r), 0);
	assert_false(r.upgrade);
}

static void
answers(void **state)
{
	static char out[SVCHEAD_MAX];
	struct service_target t;
	struct svchead_answer how = { .target = &t, .policy = "warn", .body = SVC_BODY_CHUNKED, .close = true };
	size_t len;

	assert_int_equal(service_target_parse("http://127.0.0.1:8080", false, &t), 0);
	assert_int_equal(parse(HTTP_RESPONSE, "HTTP/1.0 302 Found there\r\nLocation: http://127.0.0.1:8080/x?y\r\nX-Railgrid-Svc-Policy: none\r\n"
	    "Connection: X-Hop\r\nX-Hop: 1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\n"), 1);
	assert_int_equal(svchead_response_body(&head, "GET"), SVC_BODY_CLOSE);
	assert_int_equal(svchead_response_body(&head, "HEAD"), SVC_BODY_NONE);
	assert_int_equal(svchead_response(&head, &how, out, &len), 0);
	assert_string_equal(out, "HTTP/1.1 302 Found there\r\nLocation: /x?y\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nX-Railgrid-Svc-Policy: warn\r\n"
	    "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
	assert_int_equal(parse(HTTP_RESPONSE, "HTTP/1.1 200 OK\r\nLocation: http://127.0.0.1:80801/\r\nContent-Length: 7\r\n\r\n"), 1);
	how = (struct svchead_answer){ .target = &t, .body = SVC_BODY_LENGTH };
	assert_int_equal(svchead_response(&head, &how, out, &len), 0);
	assert_string_equal(out, "HTTP/1.1 200 OK\r\nLocation: http://127.0.0.1:80801/\r\nContent-Length: 7\r\n\r\n");
	for (unsigned status = 204; status <= 304; status += 100) {
		char text[64];

		snprintf(text, sizeof(text), "HTTP/1.1 %u -\r\nContent-Length: 7\r\n\r\n", status);
		assert_int_equal(parse(HTTP_RESPONSE, text), 1);
		assert_int_equal(svchead_response_body(&head, "GET"), SVC_BODY_NONE);
	}
}

/* What two readers could take for two different requests is none, for the device and for the gate alike. */
static void
smuggling(void **state)
{
	static const char *const bad[] = {
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4, 4\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nContent-Length: +4\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nContent-Length: 0x4\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\vchunked\r\n\r\n",
		"POST /svc/ HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nContent-Length : 4\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nX: y\r\n Content-Length: 4\r\n\r\n",
		"POST /svc/ HTTP/1.1\nHost: h\n\n", "POST /svc/ HTTP/1.1\r\nHost: h\nContent-Length: 4\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\rContent-Length: 4\r\n\r\n", "POST /svc/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"POST  /svc/ HTTP/1.1\r\nHost: h\r\n\r\n", "POST /svc/ x HTTP/1.1\r\nHost: h\r\n\r\n", "POST /svc/ HTTP/2.0\r\nHost: h\r\n\r\n",
		"\r\nPOST /svc/ HTTP/1.1\r\nHost: h\r\n\r\n", "POST /svc/ HTTP/1.1\r\n\r\n", "POST /svc/ HTTP/1.1\r\n: x\r\nHost: h\r\n\r\n",
		"POST /svc/ HTTP/1.1\r\nHost: h\r\nX(y): z\r\n\r\n",
	};
	static const struct svcgate_conf conf = { .hosts = { "h" }, .target = "http://localhost:1" };
	static struct svcgate gate;
	static char out[SVCHEAD_MAX];
	const char *why;
	size_t used, len;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (parse(HTTP_REQUEST, bad[i]) != -EBADMSG)
			fail_msg("taken: %s", bad[i]);
		svcgate_init(&gate, &conf);
		if (svcgate_take(&gate, (const uint8_t *)bad[i], strlen(bad[i]), &used, out, &len, &why) != 400 || len != 0)
			fail_msg("passed: %s", bad[i]);
	}
}

/* ---- the gate ---- */

static unsigned
gate_one(const char *line, const char *headers, char out[SVCHEAD_MAX], size_t *ret_len)
{
	static const struct svcgate_conf conf = { .hosts = { "127.0.0.1:8000", "localhost:8000", "Panel:8000" }, .target = "service://app" };
	static struct svcgate gate;
	const char *why;
	char text[1024];
	size_t used;

	snprintf(text, sizeof(text), "%s HTTP/1.1\r\n%s\r\n", line, headers);
	svcgate_init(&gate, &conf);
	return svcgate_take(&gate, (const uint8_t *)text, strlen(text), &used, out, ret_len, &why);
}

static void
gate(void **state)
{
	static const struct {
		const char *line, *headers;
		unsigned status;
	} cases[] = {
		{ "GET /", "Host: 127.0.0.1:8000\r\n", 0 }, { "GET /", "Host: LOCALHOST:8000\r\n", 0 }, { "GET /", "Host: panel:8000\r\n", 0 },
		{ "GET /", "Host: evil.example:8000\r\n", 421 }, { "GET /", "Host: 127.0.0.1\r\n", 421 }, { "GET /", "Host: 127.0.0.1:8001\r\n", 421 },
		{ "GET http://127.0.0.1:8000/", "Host: 127.0.0.1:8000\r\n", 400 },
		{ "POST /", "Host: localhost:8000\r\nOrigin: http://evil.example\r\n", 403 }, { "POST /", "Host: localhost:8000\r\nOrigin: null\r\n", 403 },
		{ "POST /", "Host: localhost:8000\r\nOrigin: https://localhost:8000\r\n", 403 },
		{ "POST /", "Host: localhost:8000\r\nOrigin: http://localhost:8000\r\n", 0 },
		{ "GET /x", "Host: localhost:8000\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n", 403 },
		{ "GET /x", "Host: localhost:8000\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n", 0 },
		{ "POST /x", "Host: localhost:8000\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n", 403 },
		{ "GET /x", "Host: localhost:8000\r\nSec-Fetch-Site: same-origin\r\n", 0 },
	};
	static char out[SVCHEAD_MAX];
	size_t len;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned status = gate_one(cases[i].line, cases[i].headers, out, &len);

		if (status != cases[i].status)
			fail_msg("%s %s: %u", cases[i].line, cases[i].headers, status);
	}
	/* A page cannot choose where the device dials. */
	assert_int_equal(gate_one("GET /a", "Host: localhost:8000\r\nX-Railgrid-Svc-Target: http://127.0.0.1:22\r\nX-railgrid-user: root\r\n"
	    "Connection: keep-alive\r\nX: y\r\n", out, &len), 0);
	out[len] = '\0';
	assert_string_equal(out, "GET /svc/a HTTP/1.1\r\nHost: edge-agent\r\nX-Railgrid-Svc-Target: service://app\r\nX: y\r\n\r\n");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(targets), cmocka_unit_test(declarations), cmocka_unit_test(never_dialled), cmocka_unit_test(verdicts),
		cmocka_unit_test(sockets), cmocka_unit_test(chunked_bodies), cmocka_unit_test(routes), cmocka_unit_test(requests),
		cmocka_unit_test(answers), cmocka_unit_test(smuggling), cmocka_unit_test(gate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
