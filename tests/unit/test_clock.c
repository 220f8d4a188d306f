/*
 * B28, B26: the time certificates are checked by. The only places that know it: connectd/clock.c, and hubconn's
 * min_wall_ns, which is clock_floor_ns().
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "connectd/clock.h"
#include "tests/unit/unit.h"

#define DAY	(INT64_C(86400) * 1000000000)
#define Y2026	(INT64_C(1767225600) * 1000000000)
#define YEAR	(365 * DAY)

static char dir[64];
static int dirfd_;

static int
setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/test_clock.XXXXXX");
	assert_non_null(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return 0;
}

static int
teardown(void **state)
{
	char cmd[256];

	close(dirfd_);
	snprintf(cmd, sizeof(cmd), "chmod -R u+rwx %s; rm -rf %s", dir, dir);
	return system(cmd);
}

struct row {
	int64_t clock, saved, not_before, not_after;
	bool valid;
};

/* The verdict over (clock, saved, notBefore, notAfter) with the build at the beginning of 2026. */
static void
test_b28_table(void **state)
{
	static const struct row rows[] = {
		/* clock right */
		{ Y2026 + 30 * DAY, 0, Y2026, Y2026 + 90 * DAY, true },
		{ Y2026 + 100 * DAY, 0, Y2026, Y2026 + 90 * DAY, false },
		/* 1970, nothing saved: the build time */
		{ 0, 0, Y2026 - DAY, Y2026 + 90 * DAY, true },
		{ 0, 0, Y2026 + DAY, Y2026 + 90 * DAY, false },
		/* 1970, saved inside the validity: connects */
		{ 0, Y2026 + 20 * DAY, Y2026 + 10 * DAY, Y2026 + 90 * DAY, true },
		/* expired before the saved time: refused even in 1970 */
		{ 0, Y2026 + 100 * DAY, Y2026, Y2026 + 90 * DAY, false },
		/* the clock a day back while the saved time is later */
		{ Y2026 + 50 * DAY, Y2026 + 51 * DAY, Y2026, Y2026 + 51 * DAY - 1, false },
		/* 2099: no certificate of today is valid, and nothing can be done about it */
		{ Y2026 + 73 * YEAR, Y2026 + 20 * DAY, Y2026, Y2026 + 90 * DAY, false },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct clock_floor c = { .build_ns = Y2026, .saved_ns = rows[i].saved };
		int64_t t = clock_check_ns(&c, rows[i].clock);

		assert_int_equal(t >= rows[i].not_before && t <= rows[i].not_after, rows[i].valid);
		assert_int_equal(clock_implausible(&c, rows[i].clock), rows[i].clock < clock_floor_ns(&c));
	}
}

static int64_t
reload(void)
{
	struct clock_floor c;
	bool damaged;

	clock_init(&c, dirfd_, Y2026, &damaged);
	assert_false(damaged);
	return c.saved_ns;
}

/* Only a session saves, at most once an hour, and never what one side alone claims. */
static void
test_b28_saving(void **state)
{
	struct clock_floor c;
	bool damaged;
	int64_t now = Y2026 + 10 * DAY, hour = DAY / 24;

	clock_init(&c, dirfd_, Y2026, &damaged);
	assert_int_equal(clock_confirm(&c, now, now + 5), 1);
	assert_int_equal(reload(), now);
	assert_int_equal(clock_confirm(&c, now + hour - 1, now + hour), 0);
	assert_int_equal(clock_confirm(&c, now + 2 * hour, now + 3 * hour), 1);
	assert_int_equal(reload(), now + 2 * hour);
	/* Our clock is in 2099, the hub knows better. */
	assert_int_equal(clock_confirm(&c, now + 70 * YEAR, now + 5 * hour), 1);
	assert_int_equal(reload(), now + 5 * hour);
	/* Our clock is in 1970: the hub's word counts, but not as far as it likes. */
	assert_int_equal(clock_confirm(&c, 0, now + 10 * hour), 1);
	assert_int_equal(clock_confirm(&c, 0, now + 70 * YEAR), 0);
	/* The floor never goes down, and a hub without a time saves nothing. */
	assert_int_equal(clock_confirm(&c, now, now), 0);
	assert_int_equal(clock_confirm(&c, now + 20 * hour, 0), 0);
	assert_int_equal(clock_confirm(&c, INT64_MAX, INT64_MAX), 0);
	assert_int_equal(reload(), now + 10 * hour);
}

/* B71: the file cut at every byte, every bit flipped, nonsense in its place: start succeeds, the floor is sane. */
static void
test_b71_damaged_file(void **state)
{
	struct clock_floor c;
	bool damaged;
	uint8_t *good;
	size_t len;

	clock_init(&c, dirfd_, Y2026, &damaged);
	assert_int_equal(clock_confirm(&c, Y2026 + DAY, Y2026 + DAY), 1);
	assert_int_equal(fd_read_file(dirfd_, CLOCK_FILE, 1000, &good, &len), 0);
	for (size_t i = 0; i < len; i++) {
		assert_int_equal(fd_replace_file(dirfd_, CLOCK_FILE, good, i, 0600), 0);
		clock_init(&c, dirfd_, Y2026, &damaged);
		assert_true(damaged);
		assert_int_equal(clock_floor_ns(&c), Y2026);
	}
	for (size_t i = 0; i < len * 8; i++) {
		uint8_t bad[128];

		memcpy(bad, good, len);
		bad[i / 8] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(fd_replace_file(dirfd_, CLOCK_FILE, bad, len, 0600), 0);
		clock_init(&c, dirfd_, Y2026, &damaged);
		assert_true(damaged);
	}
	assert_int_equal(mkfifoat(dirfd_, CLOCK_FILE, 0600), 0);
	clock_init(&c, dirfd_, Y2026, &damaged);
	assert_true(damaged);
	free(good);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_b28_table),
		cmocka_unit_test_setup_teardown(test_b28_saving, setup, teardown),
		cmocka_unit_test_setup_teardown(test_b71_damaged_file, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
