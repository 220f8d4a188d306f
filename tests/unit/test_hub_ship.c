/* Branches that wait for a device: what a turn of the hub's loop copies, and how many there may be, also of an earlier hub. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "hub/result.h"
#include "hub/run.h"
#include "hub/ship.h"
#include "hub/shipfile.h"
#include "hub/streams.h"

#define SIZE	(4u << 20)	/* of a branch */
#define TURN	(1u << 20)
#define MANY	64u

static char dir[64], store_path[96];
static struct hub hub;
static int source;
static unsigned kept_ones;

/* ---- the rest of the hub, which no test here comes to ---- */

struct run *
run_get(struct hub *of, const char *handle)
{
	fail_msg("%s", handle);
	return NULL;
}

void
run_put(struct run *run)
{
}

void
run_refused(struct run *run, const char *code, const char *error)
{
	fail_msg("%s: %s", code, error);
}

struct session *
session_find(struct hub *of, const char *device)
{
	fail_msg("%s", device);
	return NULL;
}

int
session_start_run(struct session *s, const char *handle, const char *spec, size_t len)
{
	fail_msg("%s", handle);
	return 0;
}

void
session_send(struct session *s, const struct json_w *w)
{
	fail();
}

int
streams_begin(struct session *s, struct hub_stream *st, const struct mux_kind *kind, void *ctx, struct json_w *w, const char *type,
    const char *name)
{
	fail_msg("%s", name);
	return 0;
}

void
result_name(char name[RESULT_NAME], const char *prefix, const char *handle)
{
	snprintf(name, RESULT_NAME, "%s.%s", prefix, handle);
}

/* ---- */

static void
open_hub(void)
{
	char err[256] = "";

	memset(&hub, 0, sizeof(hub));
	assert_int_equal(loop_new(&hub.loop), 0);
	assert_int_equal(syncer_new(hub.loop, true, &hub.syncer), 0);
	if (store_open(store_path, hub.syncer, err, &hub.store) < 0)
		fail_msg("%s", err);
	hub.logfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	shipfiles_sweep(&hub);
}

/* As one that is killed: the files stay. */
static void
close_hub(void)
{
	char handle[HANDLE_SIZE], from[16], to[16];

	for (unsigned i = 0; i <= MANY; i++) {
		snprintf(handle, sizeof(handle), "h%u", i);
		snprintf(from, sizeof(from), "s.h%u", i);
		snprintf(to, sizeof(to), "kept%u", i);
		(void)renameat(hub.logfd, from, hub.logfd, to);
		ship_drop(&hub, handle);
		(void)renameat(hub.logfd, to, hub.logfd, from);
	}
	syncer_free(hub.syncer);
	store_free(hub.store);
	loop_free(hub.loop);
	close(hub.logfd);
}

static int
set_up(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/test-hub-ship.XXXXXX");
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(store_path, sizeof(store_path), "%s/hub.db", dir);
	source = memfd_create("branch", MFD_CLOEXEC);
	kept_ones = 0;
	open_hub();
	return source < 0 ? -1 : ftruncate(source, SIZE);
}

static int
tear_down(void **state)
{
	char command[128];

	close_hub();
	close(source);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static void
kept(struct hub *of, const char *handle, int err, void *ctx)
{
	if (err == 0)
		kept_ones++;
}

static int
add(unsigned i)
{
	char handle[HANDLE_SIZE], sha256[65];
	int fd = fcntl(source, F_DUPFD_CLOEXEC, 0), r;

	snprintf(handle, sizeof(handle), "h%u", i);
	memset(sha256, 'a', sizeof(sha256));
	r = ship_new(&hub, handle, fd, SIZE, sha256, kept, NULL);
	if (r < 0)
		close(fd);
	return r;
}

static uint64_t
copied(void)
{
	uint64_t sum = 0;
	struct stat st;
	char name[16];

	for (unsigned i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "s.h%u", i);
		sum += fstatat(hub.logfd, name, &st, 0) == 0 ? (uint64_t)st.st_size : 0;
	}
	return sum;
}

static void
a_turn_is_bounded_for_all_together(void **state)
{
	uint64_t before = 0;

	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(add(i), 0);
	while (kept_ones < MANY) {
		assert_true(loop_turn(hub.loop, 1000) >= 0);
		assert_in_range(copied() - before, 1, TURN);
		before = copied();
	}
	assert_int_equal(before, (uint64_t)MANY * SIZE);
}

static void
a_turn_is_one_branchs_where_there_is_one(void **state)
{
	assert_int_equal(add(0), 0);
	for (unsigned turns = 1; kept_ones == 0; turns++) {
		assert_true(loop_turn(hub.loop, 1000) >= 0);
		assert_int_equal(copied(), (uint64_t)turns * TURN);
	}
}

static void
there_are_no_more_after_a_restart(void **state)
{
	struct run_info info = { .device = "dev", .state = RUN_PENDING, .created = 5, .final_offset = -1 };

	for (unsigned i = 0; i < MANY; i++) {
		snprintf(info.handle, sizeof(info.handle), "h%u", i);
		assert_int_equal(store_run_add(hub.store, &info, "x", 1), 0);
		assert_int_equal(add(i), 0);
	}
	assert_int_equal(add(MANY), -EUSERS);
	close_hub();
	open_hub();
	assert_int_equal(add(MANY), -EUSERS);
	ship_drop(&hub, "h7");
	assert_int_equal(add(MANY), 0);
	ship_drop(&hub, "h64");
	ship_drop(&hub, "h64");
	assert_int_equal(add(7), 0);
	assert_int_equal(add(MANY), -EUSERS);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_turn_is_bounded_for_all_together, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_turn_is_one_branchs_where_there_is_one, set_up, tear_down),
		cmocka_unit_test_setup_teardown(there_are_no_more_after_a_restart, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
