/* The hub's database: one of many redeems a token, runs and gaps survive, names are found; and the flush thread. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "hub/store.h"

static char dir[64], path[96];
static struct loop *loop;
static struct syncer *syncer;
static struct store *store;

static void
open_store(void)
{
	char err[256] = "";

	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(syncer_new(loop, false, &syncer), 0);
	assert_int_equal(syncer_start(syncer), 0);
	if (store_open(path, syncer, err, &store) < 0)
		fail_msg("%s", err);
}

static void
close_store(void)
{
	syncer_free(syncer);
	store_free(store);
	loop_free(loop);
}

static int
set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/test-hub-store.XXXXXX");
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/hub.db", dir);
	open_store();
	return 0;
}

static int
tear_down(void **state)
{
	char wal[128];

	(void)state;
	close_store();
	snprintf(wal, sizeof(wal), "%s-wal", path);
	unlink(wal);
	unlink(path);
	return rmdir(dir);
}

static void
test_tokens(void **state)
{
	static const uint8_t key[TOKEN_KEY_LEN] = { 1 };
	char text[TOKEN_SIZE], name[DEVICE_NAME_SIZE] = "";
	struct token t, wrong;

	(void)state;
	assert_int_equal(token_mint(TOKEN_ENROLL, key, NULL, text, &t), 0);
	assert_int_equal(store_token_redeem(store, &t, 100, name), -EKEYREJECTED);
	assert_int_equal(store_token_add(store, &t, "edge", 100, 200), 0);
	assert_int_equal(store_token_add(store, &t, "edge", 100, 200), -EEXIST);
	wrong = t;
	wrong.hash[0] ^= 1;
	assert_int_equal(store_token_redeem(store, &wrong, 150, name), -EKEYREJECTED);
	assert_int_equal(store_token_redeem(store, &t, 200, name), -EKEYREJECTED);	/* expired */
	assert_int_equal(store_token_redeem(store, &t, 199, name), 0);
	assert_string_equal(name, "edge");
	assert_int_equal(store_token_redeem(store, &t, 199, name), -EKEYREJECTED);	/* once only */
}

static void
add_device(const char *id, const char *name)
{
	struct store_device d = { .created = 1 };

	snprintf(d.id, sizeof(d.id), "%s", id);
	snprintf(d.name, sizeof(d.name), "%s", name);
	assert_int_equal(store_device_add(store, &d), 0);
}

static void
test_find_device(void **state)
{
	static const struct {
		const char *what, *id;
		int r;
	} rows[] = {
		{ "id-aaaa", "id-aaaa", 0 }, { "alpha", "id-aaaa", 0 }, { "al", NULL, -ENOTUNIQ }, { "alphab", "id-bbbb", 0 },
		{ "id-b", "id-bbbb", 0 }, { "id-", NULL, -ENOTUNIQ }, { "nope", NULL, -ENOENT }, { "", NULL, -ENOENT },
		{ "twin", NULL, -ENOTUNIQ }, { "id-cccc", "id-cccc", 0 },
	};
	struct store_device d;

	(void)state;
	add_device("id-aaaa", "alpha");
	add_device("id-bbbb", "alphabet");
	add_device("id-cccc", "twin");
	add_device("id-dddd", "twin");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(store_device_find(store, rows[i].what, &d), rows[i].r);
		if (rows[i].id != NULL)
			assert_string_equal(d.id, rows[i].id);
	}
	assert_int_equal(store_device_revoke(store, "id-dddd"), 0);
	assert_int_equal(store_device_find(store, "twin", &d), 0);
	assert_string_equal(d.id, "id-cccc");
	assert_int_equal(store_device_find(store, "id-dddd", &d), 0);
	assert_true(d.revoked);
}

static int
count_run(const struct run_info *info, void *ctx)
{
	(void)info;
	(*(int *)ctx)++;
	return 0;
}

static void
test_runs_survive(void **state)
{
	struct run_info info = { .device = "dev", .state = RUN_PENDING, .created = 5, .final_offset = -1,
		.command = "make -j2" }, got;
	struct logfile_gap gap = { 10, 20, 2 }, *gaps;
	size_t len = 0, n = 0;
	char *spec;
	int open_runs = 0;

	(void)state;
	snprintf(info.handle, sizeof(info.handle), "abcdef");
	assert_int_equal(store_run_add(store, &info, "{\"env\":1}", 9), 0);
	assert_int_equal(store_run_add(store, &info, "x", 1), -EEXIST);
	assert_int_equal(store_gap_put(store, "abcdef", &gap), 0);
	gap.to = 30;	/* the same one, longer */
	assert_int_equal(store_gap_put(store, "abcdef", &gap), 0);
	close_store();
	open_store();
	assert_int_equal(store_run_get(store, "abcdef", &got), 0);
	assert_string_equal(got.command, "make -j2");
	assert_int_equal(got.final_offset, -1);
	assert_false(got.has_digest);
	spec = store_run_spec(store, "abcdef", &len);
	assert_non_null(spec);
	assert_int_equal(len, 9);
	free(spec);
	assert_int_equal(store_gaps(store, "abcdef", &gaps, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(gaps[0].from, 10);
	assert_int_equal(gaps[0].to, 30);
	free(gaps);
	assert_int_equal(store_run_find(store, "abc", &got), 0);
	assert_int_equal(store_run_find(store, "abx", &got), -ENOENT);
	assert_int_equal(store_run_find(store, "%", &got), -ENOENT);
	assert_int_equal(store_runs(store, "dev", true, 0, 10, count_run, &open_runs), 0);
	assert_int_equal(open_runs, 1);
	got.state = RUN_EXITED;
	got.has_digest = true;
	memset(got.digest, 7, sizeof(got.digest));
	snprintf(got.handle, sizeof(got.handle), "abcdef");
	assert_int_equal(store_run_update(store, &got), 0);
	assert_int_equal(store_run_drop_spec(store, "abcdef"), 0);
	assert_null(store_run_spec(store, "abcdef", &len));
	assert_int_equal(store_run_get(store, "abcdef", &info), 0);
	assert_true(info.has_digest);
	assert_int_equal(info.digest[15], 7);
	open_runs = 0;
	assert_int_equal(store_runs(store, NULL, true, 0, 10, count_run, &open_runs), 0);
	assert_int_equal(open_runs, 0);
	assert_int_equal(store_run_delete(store, "abcdef"), 0);
	assert_int_equal(store_run_get(store, "abcdef", &info), -ENOENT);
}

static int
take_created(const struct run_info *info, void *ctx)
{
	*(int64_t *)ctx = info->created;
	return 0;
}

static void
test_pages_and_age(void **state)
{
	struct run_info info = { .device = "dev", .final_offset = -1 };
	char handle[HANDLE_SIZE];
	int64_t last = 0;

	(void)state;
	for (int i = 1; i <= 25; i++) {
		snprintf(info.handle, sizeof(info.handle), "run-%d", i);
		info.created = i;
		info.state = i == 7 ? RUN_RUNNING : RUN_EXITED;
		info.ended = i + 100;
		assert_int_equal(store_run_add(store, &info, "x", 1), 0);
	}
	/* Newest first, then from where the page ended. */
	assert_int_equal(store_runs(store, NULL, false, 0, 10, take_created, &last), 0);
	assert_int_equal(last, 16);
	assert_int_equal(store_runs(store, NULL, false, last, 10, take_created, &last), 0);
	assert_int_equal(last, 6);
	assert_int_equal(store_runs(store, "dev", false, last, 10, take_created, &last), 0);
	assert_int_equal(last, 1);
	assert_int_equal(store_runs(store, "dev", true, 0, 10, take_created, &last), 0);
	assert_int_equal(last, 7);
	/* What runs never grows old. */
	for (int i = 1; i <= 9; i++) {
		assert_int_equal(store_run_old(store, 111, handle), 0);
		assert_string_not_equal(handle, "run-7");
		assert_int_equal(store_run_delete(store, handle), 0);
	}
	assert_int_equal(store_run_old(store, 111, handle), -ENOENT);
}

static void
test_revoke_token(void **state)
{
	static const uint8_t key[TOKEN_KEY_LEN] = { 1 };
	char text[TOKEN_SIZE], name[DEVICE_NAME_SIZE], device[DEVICE_ID_SIZE] = "?";
	struct store_device d;
	struct token t;

	(void)state;
	assert_int_equal(token_mint(TOKEN_ENROLL, key, NULL, text, &t), 0);
	assert_int_equal(store_token_revoke(store, t.id, device), -ENOENT);
	assert_int_equal(store_token_add(store, &t, "n", 1, 1000), 0);
	assert_int_equal(store_token_revoke(store, t.id, device), 0);
	assert_string_equal(device, "");
	assert_int_equal(store_token_redeem(store, &t, 2, name), -EKEYREJECTED);
	/* One that was used takes its device with it. */
	assert_int_equal(token_mint(TOKEN_ENROLL, key, NULL, text, &t), 0);
	assert_int_equal(store_token_add(store, &t, "n", 1, 1000), 0);
	assert_int_equal(store_token_redeem(store, &t, 2, name), 0);
	add_device("id-eeee", "e");
	assert_int_equal(store_token_device(store, t.id, "id-eeee"), 0);
	assert_int_equal(store_token_revoke(store, t.id, device), 0);
	assert_string_equal(device, "id-eeee");
	assert_int_equal(store_device_get(store, "id-eeee", &d), 0);
	assert_true(d.revoked);
}

static int order[8], norder;

static void
note(struct sync_item *item, int err)
{
	order[norder++] = *(int *)item->ctx;
	item->err = err;
}

/* What was written before a barrier is on disk when the barrier is done, an item asked for again while it runs included. */
static void
test_barrier(void **state)
{
	int one = 1, two = 2, fd = open(path, O_RDWR | O_CLOEXEC);
	struct sync_item a = { .fd = fd, .done = note, .ctx = &one, .mark = 5 };
	struct sync_item b = { .fd = -1, .done = note, .ctx = &two };

	(void)state;
	norder = 0;
	syncer_add(syncer, &a);
	assert_true(syncer_busy(syncer));
	while (!a.running)
		assert_int_equal(loop_turn(loop, 100), 0);
	a.mark = 9;
	syncer_add(syncer, &a);
	syncer_add(syncer, &b);
	while (syncer_busy(syncer))
		assert_int_equal(loop_turn(loop, 1000), 0);
	assert_int_equal(norder, 3);
	assert_int_equal(order[0], 1);
	assert_int_equal(order[1], 1);	/* the barrier was queued first, and is told last */
	assert_int_equal(order[2], 2);
	assert_int_equal(a.synced, 9);
	assert_false(sync_item_busy(&a));
	close(fd);

	/* The store counts as dirty until its flush is done. */
	assert_int_equal(store_device_seen(store, "nobody", 1), 0);
	assert_true(store_dirty(store));
	while (store_dirty(store))
		assert_int_equal(loop_turn(loop, 1000), 0);
	assert_false(store_dirty_before(store, store_mark(store)));
}

static void
test_second_hub(void **state)
{
	struct store *other;
	char err[256] = "";

	(void)state;
	assert_true(store_open(path, syncer, err, &other) < 0);
	assert_non_null(strstr(err, "in use"));
}

/* What is to end outlives the hub, and ends with its run. */
static void
test_shells(void **state)
{
	struct store_attach list[2];
	unsigned n;
	int32_t code;

	(void)state;
	assert_int_equal(store_shell_get(store, "run-a", &code), -ENOENT);
	assert_int_equal(store_shell_put(store, "run-a", -1), 0);
	assert_int_equal(store_attach_add(store, "one", "run-a", "dev-a", 3), 0);
	assert_int_equal(store_attach_add(store, "two", "run-b", "dev-a", 1), 0);
	assert_int_equal(store_attach_add(store, "three", "run-a", "dev-b", 1), 0);
	assert_int_equal(store_attach_add(store, "one", "run-a", "dev-a", 3), -EEXIST);
	close_store();
	open_store();
	assert_int_equal(store_shell_get(store, "run-a", &code), 0);
	assert_int_equal(code, -1);
	assert_int_equal(store_shell_put(store, "run-a", 7), 0);
	assert_int_equal(store_shell_get(store, "run-a", &code), 0);
	assert_int_equal(code, 7);
	assert_int_equal(store_attaches(store, "dev-a", list, 1, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(store_attaches(store, "dev-a", list, 2, &n), 0);
	assert_int_equal(n, 2);
	assert_string_equal(list[0].session, "one");
	assert_string_equal(list[0].handle, "run-a");
	assert_int_equal(list[0].flags, 3);
	assert_int_equal(store_shell_over(store, "run-a"), 0);
	assert_int_equal(store_shell_get(store, "run-a", &code), -ENOENT);
	assert_int_equal(store_attaches(store, "dev-b", list, 2, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(store_attaches(store, "dev-a", list, 2, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(store_attach_delete(store, "two"), 0);
	assert_int_equal(store_attaches(store, "dev-a", list, 2, &n), 0);
	assert_int_equal(n, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tokens, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_find_device, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_runs_survive, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pages_and_age, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_revoke_token, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_shells, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_barrier, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_second_hub, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
