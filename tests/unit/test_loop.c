#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/loop.h"
#include "tests/unit/unit.h"

static struct loop *loop;
static int64_t fake_ns;

static int
setup(void **state)
{
	assert_int_equal(loop_new(&loop), 0);
	return 0;
}

static int
teardown(void **state)
{
	monotime_set_source(NULL, NULL);
	loop_free(loop);
	return 0;
}

static int64_t
fake_now(void)
{
	return fake_ns;
}

static char order[16];
static unsigned norder;

static void
note(struct loop_timer *timer)
{
	order[norder++] = *(const char *)timer->ctx;
	order[norder] = '\0';
}

static void
timers_fire_in_order(void **state)
{
	struct loop_timer a, b, c, d;

	norder = 0;
	fake_ns = 1000;
	monotime_set_source(fake_now, NULL);
	loop_timer_init(&a, note, "a");
	loop_timer_init(&b, note, "b");
	loop_timer_init(&c, note, "c");
	loop_timer_init(&d, note, "d");
	loop_timer_set_ms(loop, &b, 20);
	loop_timer_set_ms(loop, &a, 10);
	loop_timer_set_ms(loop, &c, 20);
	loop_timer_set_ms(loop, &d, 5);
	loop_timer_del(loop, &d);
	loop_timer_del(loop, &d);
	fake_ns += 9999999;
	loop_turn(loop, 0);
	assert_int_equal(norder, 0);
	fake_ns += 1;
	loop_turn(loop, 0);
	assert_string_equal(order, "a");
	fake_ns += 10000000;
	loop_turn(loop, 0);
	assert_string_equal(order, "abc");
	assert_false(loop_timer_armed(&a));
}

static void
a_real_timer_wakes_the_loop(void **state)
{
	struct loop_timer t;
	monotime_t start = monotime_now();

	norder = 0;
	loop_timer_init(&t, note, "x");
	loop_timer_set_ms(loop, &t, 1100);	/* beyond the short wait: the timerfd */
	while (norder == 0)
		assert_int_equal(loop_turn(loop, -1), 0);
	assert_true(monotime_diff_ms(monotime_now(), start) >= 1099);
}

static struct loop_io io1, io2;
static unsigned hits;

static void
delete_both(struct loop_io *io, uint32_t events)
{
	hits++;
	loop_io_del(loop, &io1);
	loop_io_del(loop, &io2);
}

static void
deleted_sources_are_forgotten(void **state)
{
	int p1[2], p2[2];

	hits = 0;
	assert_int_equal(pipe(p1) | pipe(p2), 0);
	assert_int_equal(write(p1[1], "x", 1) + write(p2[1], "x", 1), 2);
	assert_int_equal(loop_io_add(loop, &io1, p1[0], EPOLLIN, delete_both, NULL), 0);
	assert_int_equal(loop_io_add(loop, &io2, p2[0], EPOLLIN, delete_both, NULL), 0);
	loop_turn(loop, 0);
	loop_turn(loop, 0);
	assert_int_equal(hits, 1);
	for (int i = 0; i < 2; i++) {
		close(p1[i]);
		close(p2[i]);
	}
}

static int got_signal;

static void
on_signal(int signo, void *ctx)
{
	got_signal = signo;
	loop_stop(loop);
}

static void
signals_arrive_as_events(void **state)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	assert_int_equal(loop_signals(loop, &set, on_signal, NULL), 0);
	kill(getpid(), SIGUSR1);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(got_signal, SIGUSR1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(timers_fire_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(a_real_timer_wakes_the_loop, setup, teardown),
		cmocka_unit_test_setup_teardown(deleted_sources_are_forgotten, setup, teardown),
		cmocka_unit_test_setup_teardown(signals_arrive_as_events, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
