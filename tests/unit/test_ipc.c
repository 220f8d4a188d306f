#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/ipc.h"
#include "proto/ipc/ctl.h"
#include "proto/ipc/launch.h"
#include "proto/ipc/names.h"
#include "proto/ipc/priv.h"
#include "proto/ipc/work.h"
#include "tests/unit/unit.h"

enum { PING = 0x0a00, PONG = 0x0a01, BLOB = 0x0a02, WITH_FD = 0x0a04, CLOSE_ME = 0x0a06 };

struct end {
	struct ipc_chan chan;
	unsigned hello, ping, pong, blob, fd, ended, writable;
	int err;
	uint32_t last_id;
	int last_status;
	size_t blob_bytes;
	int held;
};

static struct loop *loop;
static struct end a, b;

static int
on_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	((struct end *)ctx)->hello++;
	return ipc_take_hello(chan, msg, IPC_ROLE_WORKERD, NULL);
}

static int
on_ping(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	((struct end *)ctx)->ping++;
	return ipc_answer(chan, &msg->hdr, -ENOENT, "pong", 4);
}

static int
on_pong(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct end *e = ctx;

	e->pong++;
	e->last_id = msg->hdr.id;
	e->last_status = msg->hdr.status;
	assert_memory_equal(msg->data, "pong", 4);
	return 0;
}

static int
on_blob(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct end *e = ctx;

	e->blob++;
	e->blob_bytes += msg->hdr.len;
	return 0;
}

static int
on_fd(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct end *e = ctx;

	e->fd++;
	e->held = ipc_take_fd(msg, 0);
	return 0;
}

static int
on_close_me(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	ipc_chan_done(chan);
	return 0;
}

static const struct ipc_rule rules[] = {
	{ IPC_HELLO, IPC_ST_HELLO, 0, 0, sizeof(struct ipc_hello), sizeof(struct ipc_hello), on_hello },
	{ PING, IPC_ST_OPEN, 0, 0, 0, 8, on_ping },
	{ PONG, IPC_ST_OPEN, 0, 0, 4, 4, on_pong },
	{ BLOB, IPC_ST_OPEN, 0, 0, 1, IPC_MAX_WORK, on_blob },
	{ WITH_FD, IPC_ST_OPEN, 1, 2, 0, 0, on_fd },
	{ CLOSE_ME, IPC_ST_OPEN, 0, 0, 0, 0, on_close_me },
};

static void
ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct end *e = ctx;

	e->ended++;
	e->err = err;
	ipc_chan_done(chan);
}

static void
writable(struct ipc_chan *chan, void *ctx)
{
	((struct end *)ctx)->writable++;
}

static const struct ipc_conf conf_a = { .rules = rules, .nrules = COUNT(rules), .max_payload = IPC_MAX_WORK,
	.queue_max = 1 << 20, .ctx = &a, .ended = ended, .writable = writable };
static const struct ipc_conf conf_b = { .rules = rules, .nrules = COUNT(rules), .max_payload = IPC_MAX_WORK,
	.queue_max = 1 << 20, .ctx = &b, .ended = ended, .writable = writable };

static void
turn(void)
{
	for (int i = 0; i < 20; i++)
		assert_int_equal(loop_turn(loop, 0), 0);
}

static int
setup(void **state)
{
	int fds[2];

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	a.held = b.held = -1;
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(ipc_pair(1 << 20, fds, NULL), 0);
	assert_int_equal(ipc_chan_init(&a.chan, loop, fds[0], &conf_a), 0);
	assert_int_equal(ipc_chan_init(&b.chan, loop, fds[1], &conf_b), 0);
	assert_int_equal(ipc_send_hello(&a.chan, IPC_ROLE_WORKERD, 0), 0);
	assert_int_equal(ipc_send_hello(&b.chan, IPC_ROLE_WORKERD, 0), 0);
	turn();
	assert_true(ipc_chan_is_open(&a.chan) && ipc_chan_is_open(&b.chan));
	return 0;
}

static int
teardown(void **state)
{
	ipc_chan_done(&a.chan);
	ipc_chan_done(&b.chan);
	if (a.held >= 0)
		close(a.held);
	if (b.held >= 0)
		close(b.held);
	loop_free(loop);
	return 0;
}

static unsigned
open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void
request_and_answer(void **state)
{
	uint32_t id = 0;

	assert_int_equal(ipc_request(&a.chan, PING, NULL, 0, NULL, 0, &id), 0);
	turn();
	assert_int_equal(b.ping, 1);
	assert_int_equal(a.pong, 1);
	assert_int_equal(a.last_id, id);
	assert_int_equal(a.last_status, -ENOENT);
}

static void
second_hello_ends(void **state)
{
	assert_int_equal(ipc_send_hello(&a.chan, IPC_ROLE_WORKERD, 0), 0);
	turn();
	assert_int_equal(b.ended, 1);
	assert_int_equal(b.err, -EPROTO);
	assert_int_equal(a.ended, 1);
	assert_int_equal(a.err, 0);
}

static void
unknown_type_and_bad_size_end(void **state)
{
	static const struct { uint16_t type; size_t len; } bad[] = { { 0x0bad, 0 }, { PING, 9 }, { BLOB, 0 }, { WITH_FD, 0 } };

	for (size_t i = 0; i < COUNT(bad); i++) {
		if (i > 0) {
			teardown(NULL);
			setup(NULL);
		}
		assert_int_equal(ipc_send(&a.chan, bad[i].type, "123456789", bad[i].len), 0);
		turn();
		assert_int_equal(b.ended, 1);
	}
}

static void
descriptors_have_an_owner(void **state)
{
	struct ipc_hdr hdr = { .type = WITH_FD };
	int p[2];
	unsigned before;

	assert_int_equal(pipe(p), 0);
	before = open_fds();
	assert_int_equal(ipc_send_fds(&a.chan, &hdr, NULL, 0, p, 2), 0);
	turn();
	assert_int_equal(b.fd, 1);
	/* the first was taken, the second closed */
	assert_int_equal(open_fds(), before + 1);
	assert_int_equal(fcntl(b.held, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	/* a record that fits no row: nothing stays open */
	hdr.type = PING;
	assert_int_equal(ipc_send_fds(&a.chan, &hdr, NULL, 0, p, 2), 0);
	turn();
	assert_int_equal(b.ended, 1);
	assert_int_equal(open_fds(), before + 1 - 2);	/* both channel sockets are closed */
	close(p[0]);
	close(p[1]);
}

/*
 * Where none may come, or as many wait to be closed as may, a descriptor is never ours: the record is refused, and nothing waits for close(). The
 * thread closes the others.
 */
static void
descriptors_are_not_received(void **state)
{
	static struct closer closer;
	struct ipc_conf conf = *b.chan.conf;
	struct ipc_hdr hdr = { .type = WITH_FD };
	int p[2], pipe_to[2];

	for (int full = 0; full < 2; full++) {
		if (full) {
			teardown(NULL);
			setup(NULL);
			assert_int_equal(pipe(pipe_to), 0);
			closer = (struct closer){ .to = pipe_to[1], .waiting = CLOSER_MAX };
			conf.closer = &closer;
		}
		conf.no_fds = !full;
		b.chan.conf = &conf;
		assert_int_equal(pipe(p), 0);
		assert_int_equal(ipc_send_fds(&a.chan, &hdr, NULL, 0, &p[1], 1), 0);
		close(p[1]);
		turn();
		assert_int_equal(b.fd, 0);
		assert_int_equal(b.ended, 1);
		assert_int_equal(b.err, -EMSGSIZE);
		assert_int_equal(read(p[0], &hdr, 1), 0);	/* ours was the last */
		close(p[0]);
	}
	assert_int_equal(closer.waiting, CLOSER_MAX);
	close(pipe_to[0]);
	close(pipe_to[1]);
}

static void
a_thread_closes(void **state)
{
	static struct closer closer;
	char byte;
	int p[2];

	assert_int_equal(closer_start(&closer), 0);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(pipe(p), 0);
		closer_drop(&closer, p[1]);
		assert_int_equal(read(p[0], &byte, 1), 0);
		close(p[0]);
	}
	assert_false(closer_full(&closer));
}

static void
raw_records(void **state)
{
	struct ipc_hdr good = { .type = PING, .version = IPC_VERSION };
	struct ipc_hdr bad[4] = { good, good, good, good };

	bad[0].version++;
	bad[1].len = 1;
	bad[2].nfds = 1;
	bad[3].type = PONG;
	for (size_t i = 0; i < COUNT(bad); i++) {
		size_t len = i == 0 ? 3 : sizeof(good);

		if (i > 0) {
			teardown(NULL);
			setup(NULL);
		}
		assert_int_equal(send(a.chan.io.fd, &bad[i], len, 0), len);
		turn();
		assert_int_equal(b.ended, 1);
		assert_int_equal(b.ping + b.pong, 0);
	}
}

static void
queue_is_bounded_and_drains(void **state)
{
	static uint8_t blob[65536];
	unsigned sent = 0;

	while (ipc_send(&a.chan, BLOB, blob, sizeof(blob)) == 0)
		assert_true(++sent < 10000);
	assert_true(sent > 15);
	assert_true(a.chan.queued <= conf_a.queue_max);
	for (int i = 0; i < 50; i++)
		turn();
	assert_int_equal(b.blob, sent);
	assert_int_equal(b.blob_bytes, (size_t)sent * sizeof(blob));
	assert_int_equal(a.chan.queued, 0);
}

static void
bulk_waits_for_room(void **state)
{
	static uint8_t blob[65536];
	struct iovec iov = { blob, sizeof(blob) };
	unsigned sent = 0;

	while (ipc_try_sendv(&a.chan, BLOB, &iov, 1) == 0)
		assert_true(++sent < 10000);
	assert_int_equal(a.writable, 0);
	for (int i = 0; i < 50; i++)
		turn();
	assert_int_equal(b.blob, sent);
	assert_int_equal(a.writable, 1);
}

/* A pause holds in the middle of a turn, nothing is lost by it, and a peer that goes away meanwhile does not spin. */
static void
a_pause_holds_and_a_dead_peer_ends_it(void **state)
{
	ipc_send(&b.chan, BLOB, "1", 1);
	ipc_send(&b.chan, BLOB, "2", 1);
	ipc_chan_pause(&a.chan, true);
	for (int i = 0; i < 5; i++)
		loop_turn(loop, 0);
	assert_int_equal(a.blob, 0);
	ipc_chan_pause(&a.chan, false);
	for (int i = 0; i < 2; i++)
		loop_turn(loop, 0);
	assert_int_equal(a.blob, 2);
	ipc_chan_pause(&a.chan, true);
	ipc_chan_done(&b.chan);
	loop_turn(loop, 0);
	assert_int_equal(a.ended, 1);
}

static void
handler_may_end_its_channel(void **state)
{
	assert_int_equal(ipc_send(&a.chan, CLOSE_ME, NULL, 0), 0);
	assert_int_equal(ipc_send(&a.chan, PING, NULL, 0), 0);
	turn();
	assert_int_equal(b.ended, 0);
	assert_int_equal(b.ping, 0);
	assert_int_equal(a.ended, 1);
	assert_int_equal(ipc_send(&b.chan, PING, NULL, 0), -EPIPE);
}

static void
names(void **state)
{
	static const char *const good[] = { "a", "edgeward-run", "0", "abcdefghijklmnopqrstuvwxyz01234" };
	static const char *const bad[] = { "", "-a", "A", "a/b", "a.b", "abcdefghijklmnopqrstuvwxyz012345", "a b" };
	static const char *const bad_handles[] = { "", "..", "a/b", "a.b", "a b", "\xc3\xa4" };
	char long_handle[66];

	for (size_t i = 0; i < COUNT(good); i++)
		assert_true(name_ok(good[i]));
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_false(name_ok(bad[i]));
	for (size_t i = 0; i < COUNT(bad_handles); i++)
		assert_false(handle_ok(bad_handles[i]));
	memset(long_handle, 'A', 65);
	long_handle[65] = '\0';
	assert_false(handle_ok(long_handle));
	long_handle[64] = '\0';
	assert_true(handle_ok(long_handle));
	assert_true(handle_ok("Qk3vT0x9mZ2dLr8A_-"));
}

static void
sizes_fit_their_channels(void **state)
{
	assert_true(sizeof(struct ipc_hello) <= IPC_MAX_PRIV && sizeof(struct priv_peer) <= IPC_MAX_PRIV);
	assert_true(sizeof(struct ctl_connectd_status) <= IPC_MAX_CTL);
	assert_true(sizeof(struct ctl_workerd_status) <= IPC_MAX_CTL);
	assert_true(sizeof(struct ctl_enroll) <= IPC_MAX_CTL);
	assert_true(sizeof(struct ctl_log_data) + CTL_LOG_MAX <= IPC_MAX_CTL);
	assert_true(sizeof(struct work_workload) <= IPC_MAX_CTL);
	assert_true(sizeof(struct work_output) + WORK_DATA_MAX <= IPC_MAX_WORK);
	assert_true(sizeof(struct launch_ended) <= IPC_MAX_LAUNCH);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(request_and_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(second_hello_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(unknown_type_and_bad_size_end, setup, teardown),
		cmocka_unit_test_setup_teardown(descriptors_have_an_owner, setup, teardown),
		cmocka_unit_test_setup_teardown(descriptors_are_not_received, setup, teardown),
		cmocka_unit_test(a_thread_closes),
		cmocka_unit_test_setup_teardown(raw_records, setup, teardown),
		cmocka_unit_test_setup_teardown(queue_is_bounded_and_drains, setup, teardown),
		cmocka_unit_test_setup_teardown(bulk_waits_for_room, setup, teardown),
		cmocka_unit_test_setup_teardown(a_pause_holds_and_a_dead_peer_ends_it, setup, teardown),
		cmocka_unit_test_setup_teardown(handler_may_end_its_channel, setup, teardown),
		cmocka_unit_test(names),
		cmocka_unit_test(sizes_fit_their_channels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
