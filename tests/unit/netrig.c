#include "tests/unit/netrig.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "connectd/dns.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
/* Of the sanitizers' runtime; absent without them. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));
#endif

static int64_t offset_ns, wall_s;

static int64_t
clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t
boot_ns(void)
{
	return clock_ns(CLOCK_BOOTTIME) + offset_ns;
}

static int64_t
wall_ns(void)
{
	return wall_s != 0 ? wall_s * 1000000000 : clock_ns(CLOCK_REALTIME);
}

void
netrig_advance(int64_t ms)
{
	offset_ns += ms * 1000000;
}

void
netrig_set_wall(int64_t seconds)
{
	wall_s = seconds;
}

size_t
netrig_heap(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
	if (__sanitizer_get_current_allocated_bytes != NULL)
		return __sanitizer_get_current_allocated_bytes();
#endif
	return mallinfo2().uordblks;
}

unsigned
netrig_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	if (dir == NULL)
		abort();
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

static void
hook(struct netrig *rig, const char *callback)
{
	if (rig->hook != NULL)
		rig->hook(rig, callback);
}

static void
on_stage(enum hubconn_stage stage, void *ctx)
{
	struct netrig *rig = ctx;

	rig->stages++;
	rig->stage = stage;
	hook(rig, "stage");
}

static void
on_opened(bool edgeward1, const char *peer, void *ctx)
{
	struct netrig *rig = ctx;

	rig->opened++;
	rig->edgeward1 = edgeward1;
	snprintf(rig->peer, sizeof(rig->peer), "%s", peer);
	hook(rig, "opened");
}

static void
keep(struct netrig *rig, const uint8_t *data, size_t len)
{
	rig->last_len = len;
	memcpy(rig->last, data, len < sizeof(rig->last) ? len : sizeof(rig->last));
}

static void
on_text(const uint8_t *data, size_t len, void *ctx)
{
	struct netrig *rig = ctx;

	rig->texts++;
	keep(rig, data, len);
	hook(rig, "text");
}

static void
on_binary(const uint8_t *data, size_t len, void *ctx)
{
	struct netrig *rig = ctx;

	rig->binaries++;
	keep(rig, data, len);
	hook(rig, "binary");
}

static void
on_writable(void *ctx)
{
	struct netrig *rig = ctx;

	rig->writables++;
	hook(rig, "writable");
}

static void
on_ended(const struct hubconn_end *end, void *ctx)
{
	struct netrig *rig = ctx;

	rig->ended++;
	rig->end = *end;
	hubconn_free(rig->conn);
	rig->conn = NULL;
}

int
netrig_start(struct netrig *rig)
{
	static const struct hubconn_cb cb = { .stage = on_stage, .opened = on_opened, .text = on_text, .binary = on_binary,
	    .writable = on_writable, .ended = on_ended };
	char err[200];

	return hubconn_start(rig->env, rig->loop, &rig->params, &cb, rig, &rig->conn, err);
}

void
netrig_cancel(struct netrig *rig)
{
	hubconn_free(rig->conn);
	rig->conn = NULL;
}

void
netrig_prepare(struct netrig *rig, const char *scheme, const char *host)
{
	snprintf(rig->url, sizeof(rig->url), "%s://%s:%u/api", scheme, host, rig->hub.port);
	snprintf(rig->proxy, sizeof(rig->proxy), "http://127.0.0.1:%u", rig->hub.port);
	rig->params = (struct hubconn_params){ .url = rig->url, .bearer = "clac1.a.b.c", .pins = "", .proxy = "none",
	    .no_proxy = "", .connect_timeout_ms = NETRIG_TIMEOUT, .write_timeout_ms = NETRIG_WRITE };
	rig->opened = rig->ended = rig->texts = rig->binaries = rig->writables = rig->stages = 0;
	rig->stage = HUBCONN_RESOLVING;
	rig->hook = NULL;
	rig->hub.reached = false;
}

void
netrig_turns(struct netrig *rig, int ms)
{
	int64_t end = clock_ns(CLOCK_MONOTONIC) + (int64_t)ms * 1000000;

	do
		loop_turn(rig->loop, 1);
	while (clock_ns(CLOCK_MONOTONIC) < end);
}

bool
netrig_until(struct netrig *rig, const bool *what, int real_ms)
{
	int64_t end = clock_ns(CLOCK_MONOTONIC) + (int64_t)real_ms * 1000000;

	while (!*what && clock_ns(CLOCK_MONOTONIC) < end)
		loop_turn(rig->loop, 20);
	return *what;
}

bool
netrig_until_n(struct netrig *rig, const unsigned *what, int real_ms)
{
	int64_t end = clock_ns(CLOCK_MONOTONIC) + (int64_t)real_ms * 1000000;

	while (*what == 0 && clock_ns(CLOCK_MONOTONIC) < end)
		loop_turn(rig->loop, 20);
	return *what > 0;
}

void
netrig_init(struct netrig *rig)
{
	int64_t now = clock_ns(CLOCK_REALTIME) / 1000000000;
	char err[200];

	memset(rig, 0, sizeof(*rig));
	monotime_set_source(boot_ns, wall_ns);
	rig->ca = testca_new();
	testca_write(rig->ca, rig->ca_file);
	rig->tls = testca_server(rig->ca, "DNS:localhost,IP:127.0.0.1", now - 3600, now + 86400, rig->pin);
	rig->stranger = testca_server(NULL, "DNS:localhost,IP:127.0.0.1", now - 3600, now + 86400, NULL);
	if (loop_new(&rig->loop) < 0 || netenv_new(rig->loop, rig->ca_file, &rig->env, err) < 0)
		abort();
	fakehub_init(&rig->hub, rig->loop);
}

void
netrig_done(struct netrig *rig)
{
	hubconn_free(rig->conn);
	fakehub_done(&rig->hub);
	SSL_CTX_free(rig->tls);
	SSL_CTX_free(rig->stranger);
	testca_free(rig->ca);
	netenv_free(rig->env);
	loop_free(rig->loop);
	unlink(rig->ca_file);
	monotime_set_source(NULL, NULL);
}

static struct netrig *group_rig;
static struct fakedns *group_dns;

static int
group_setup(void **state)
{
	netrig_init(group_rig);
	if (group_dns != NULL) {
		fakedns_init(group_dns, group_rig->loop);
		dns_set_server(group_dns->server);
	}
	return 0;
}

static int
group_teardown(void **state)
{
	if (group_dns != NULL) {
		dns_set_server(NULL);
		fakedns_done(group_dns);
	}
	netrig_done(group_rig);
	return 0;
}

int
netrig_run(struct netrig *rig, struct fakedns *dns, const struct CMUnitTest *tests, size_t n)
{
	group_rig = rig;
	group_dns = dns;
	return _cmocka_run_group_tests("net", tests, n, group_setup, group_teardown);
}
