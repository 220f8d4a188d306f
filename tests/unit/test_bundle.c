/* Results as streams of kind bundle: what a hub may answer, and when. Places: connectd/{bundlesend,results,frames}.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connectd/bundlesend.h"
#include "connectd/results.h"
#include "proto/hub/stream.h"
#include "proto/ipc/job.h"
#include "tests/unit/rig.h"

#define SIZE	600000u

static char path[] = "/tmp/test_bundle.XXXXXX";
static uint8_t content[SIZE];

static int
new_file(void)
{
	int fd;

	strcpy(path + sizeof(path) - 7, "XXXXXX");
	fd = mkstemp(path);
	for (size_t i = 0; i < SIZE; i++)
		content[i] = (uint8_t)(i * 7 + i / 251);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, SIZE), SIZE);
	unlink(path);
	return fd;
}

/* A workload that has ended and brings a bundle; its log is empty. */
static void
ended_with(int fd)
{
	struct work_workload w = rig_ended(1, "h", 0, 0);
	struct work_result r = { .wid = 1, .flags = WORK_RESULT_BACK, .mode = JOB_BACK_BUNDLE, .commits = 1, .files = 1, .bundle_bytes = SIZE,
		.branch = "cloop/b" };
	struct ipc_hdr hdr = { .type = WORK_EV_RESULT };
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	w.flags |= WORK_F_RESULT;
	memset(r.commit, 'a', 40);
	rig_tell(&w);
	assert_int_equal(ipc_send_fds(&rig.w, &hdr, &r, sizeof(r), &copy, 1), 0);
	rig_turn();
}

static void
connect_and_end(const char *verdicts)
{
	rig_connect(true, verdicts);
	if (rig.mirror.head != NULL)
		rig_output_end(1, rig.mirror.head->epoch, 0, NULL);
	rig_turn();
}

/* A session in which a workload has ended that brings a bundle; the file of it. */
static int
offered(void)
{
	int fd = new_file();

	rig_workerd(NULL, 0);
	connect_and_end("[]");
	ended_with(fd);
	rig_output_end(1, rig.mirror.head->epoch, 0, NULL);
	return fd;
}

static struct bundlesend *
stream(void)
{
	assert_non_null(rig.mirror.head);
	return results_stream(rig.mirror.head->result);
}

/* Up to the question. The channel. */
static uint32_t
asked(char id[24])
{
	const struct json *p = rig_frame("stream_open");

	assert_non_null(p);
	assert_string_equal(rig_str(p, "kind"), "bundle");
	assert_string_equal(rig_str(p, "handle"), "h");
	assert_int_equal(rig_num(p, "size"), SIZE);
	assert_int_equal(strlen(rig_str(p, "sha256")), 64);
	snprintf(id, 24, "%s", rig_str(rig_envelope(), "id"));
	return (uint32_t)rig_num(p, "channel");
}

static void
opened(const char *id, uint32_t channel, unsigned offset)
{
	rig_hub("{\"v\":1,\"type\":\"stream_opened\",\"id\":\"%s\",\"payload\":{\"channel\":%u,\"offset\":%u}}", id, channel, offset);
}

static void
say(const struct stream_frame *f)
{
	uint8_t buf[STREAM_HEADER + 4 + STREAM_REASON_MAX];

	fake_binary(fake_conn(), buf, stream_put(buf, f));
	rig_turn();
}

/* Takes what comes on the channel until END, with a window that is large enough. Bytes from offset on are compared. How many came. */
static uint64_t
receive(uint32_t channel, uint64_t offset, bool *ret_end)
{
	uint64_t at = offset;
	struct fake_msg *m;

	*ret_end = false;
	for (int idle = 0; idle < 3; ) {
		struct stream_frame f;

		rig_turn();
		m = fake_take(fake_conn());
		if (m == NULL) {
			idle++;
			fake_drain(fake_conn());
			say(&(struct stream_frame){ .type = STREAM_WINDOW_TO, .channel = channel, .offset = at + 262144 });
			continue;
		}
		idle = 0;
		if (m->binary && stream_parse(&f, m->data, m->len) == 0 && f.channel == channel && f.type == STREAM_DATA) {
			assert_int_equal(f.offset, at);
			assert_memory_equal(f.data, content + at, f.len);
			at += f.len;
		} else if (m->binary && f.channel == channel && f.type == STREAM_END) {
			assert_int_equal(f.offset, at);
			*ret_end = true;
		}
		free(m);
		if (*ret_end)
			break;
	}
	return at - offset;
}

static void
takes(uint32_t channel)
{
	say(&(struct stream_frame){ .type = STREAM_END, .channel = channel });
}

/* The hub finds that what it has of the bundle is not right. */
static void
refuses(uint32_t channel)
{
	say(&(struct stream_frame){ .type = STREAM_RESET, .channel = channel, .reset = STREAM_RESET_REFUSED, .data = (const uint8_t *)"digest", .len = 6 });
}

static void
is_given_up(void)
{
	assert_string_equal(rig_str(json_get(rig_frame("result"), "result"), "error"), "the bundle did not reach the hub: digest");
	assert_non_null(rig_frame("status"));
}

static void
from_question_to_status(void **state)
{
	int fd = offered();
	const struct json *p;
	uint32_t channel;
	char id[24];
	bool end;

	channel = asked(id);
	assert_int_equal(channel % 2, 0);
	assert_int_not_equal(channel, rig.mirror.head->log.channel);
	assert_null(rig_frame("status"));
	opened(id, channel, 0);
	assert_int_equal(receive(channel, 0, &end), SIZE);
	assert_true(end);
	rig_turn();
	assert_null(rig_frame("result"));	/* not before the hub says that it has it */
	takes(channel);
	p = json_get(rig_frame("result"), "result");
	assert_int_equal(rig_num(p, "bundle_bytes"), SIZE);
	assert_string_equal(rig_str(p, "bundle_sha256"), stream()->sha256);
	assert_non_null(rig_frame("status"));
	close(fd);
}

/* Nothing is said for half a minute: such a hub knows none. Its word that comes later changes nothing. */
static void
no_answer_means_chunks(void **state)
{
	int fd = offered();
	uint32_t channel;
	char id[24];

	channel = asked(id);
	for (int ms = 0; ms < BUNDLE_ANSWER_MS - 4000; ms += 2000) {
		rig_advance(2000);
		rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"h\",\"payload\":{\"offset\":0}}");	/* a hub that lives */
		rig_hub("{\"v\":1,\"type\":\"heartbeat_ack\",\"payload\":{\"seq\":%llu}}", (unsigned long long)*rig.link.session->p.beat_seq);
	}
	assert_null(rig_frame("result_chunk"));
	rig_advance(6000);
	assert_non_null(rig_frame("result_chunk"));
	opened(id, channel, 0);
	assert_non_null(rig_frame("result"));
	assert_non_null(rig_frame("status"));
	close(fd);
}

static void
busy_is_asked_again(void **state)
{
	int fd = offered();
	uint32_t channel, again;
	char id[24];

	channel = asked(id);
	rig_hub("{\"v\":1,\"type\":\"error\",\"id\":\"%s\",\"payload\":{\"code\":\"busy\",\"message\":\"later\"}}", id);
	rig_advance(BUNDLE_LATER_MS - 1000);
	assert_null(rig_frame("stream_open"));
	rig_advance(2000);
	again = asked(id);
	assert_int_not_equal(again, channel);
	assert_int_equal(stream()->stage, BUNDLE_ASKED);
	close(fd);
}

/* What the hub kept is damaged: all of it comes again, once; then it has failed. */
static void
a_rest_that_is_refused(void **state)
{
	int fd = offered();
	uint32_t channel;
	char id[24];
	bool end;

	channel = asked(id);
	opened(id, channel, 500000);
	assert_int_equal(receive(channel, 500000, &end), SIZE - 500000);
	refuses(channel);
	channel = asked(id);
	opened(id, channel, 0);
	assert_int_equal(receive(channel, 0, &end), SIZE);
	refuses(channel);
	is_given_up();
	close(fd);
}

/* A hub that refuses a rest again and again: it does not hold the status up for ever. */
static void
a_rest_that_is_refused_twice(void **state)
{
	int fd = offered();
	uint32_t channel;
	char id[24];
	bool end;

	for (int i = 0; i < 2; i++) {
		channel = asked(id);
		opened(id, channel, 500000);
		assert_int_equal(receive(channel, 500000, &end), SIZE - 500000);
		refuses(channel);
	}
	is_given_up();
	close(fd);
}

/* The file is shorter than it was: found when it is digested, or when it is sent. */
static void
a_file_that_shrinks(void **state)
{
	int fd = offered();
	uint32_t channel;
	char id[24];
	bool end;

	channel = asked(id);
	assert_int_equal(ftruncate(fd, 100000), 0);
	opened(id, channel, 0);
	(void)receive(channel, 0, &end);
	assert_false(end);
	assert_int_equal(stream()->stage, BUNDLE_FAILED);
	close(fd);
}

/* The link is lost, or the workload is forgotten, at each point of it: nothing of it stays in a timer or the mux. */
static void
ends_at_each_point(void **state)
{
	int fd = new_file();

	rig_workerd(NULL, 0);
	for (int point = 0; point < 8; point++) {
		bool lost = (point & 1) == 0, end;
		uint32_t channel;
		char id[24];

		connect_and_end("[]");
		ended_with(fd);
		if (point / 2 >= 1) {
			rig_output_end(1, rig.mirror.head->epoch, 0, NULL);
			channel = asked(id);
		}
		if (point / 2 >= 2)
			opened(id, channel, 0);
		if (point / 2 >= 3)
			receive(channel, 0, &end);
		if (lost) {
			fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
			rig_turn();
			assert_int_equal(stream()->stage, BUNDLE_IDLE);
			assert_null(stream()->chan.mux);
		}
		rig_gone(1);
		assert_null(rig.mirror.head);
		if (!lost)
			fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
		rig_advance(60000);
		rig_drop_frames();
		rig_forget();
	}
	close(fd);
}

/* What workerd says again, when it is replaced while the session goes on, is no second result: whether the bundle arrived or not. */
static void
one_result_whatever_workerd_says_again(void **state)
{
	for (int arrives = 0; arrives <= 1; arrives++) {
		struct work_workload w = rig_ended(1, "h", 0, 0);
		int fd = new_file();
		uint32_t channel;
		char id[24];
		bool end;

		w.flags |= WORK_F_RESULT;
		rig_workerd(NULL, 0);
		connect_and_end("[]");
		ended_with(fd);
		rig_output_end(1, rig.mirror.head->epoch, 0, NULL);
		channel = asked(id);
		if (arrives) {
			opened(id, channel, 0);
			assert_int_equal(receive(channel, 0, &end), SIZE);
			takes(channel);
		} else {
			rig_hub("{\"v\":1,\"type\":\"error\",\"id\":\"%s\",\"payload\":{\"code\":\"write_back_failed\",\"message\":\"no room\"}}", id);
		}
		assert_int_equal(json_get(json_get(rig_frame("result"), "result"), "error") == NULL, arrives);
		assert_non_null(rig_frame("status"));
		rig_workerd_dies();
		rig_workerd(&w, 1);
		ended_with(fd);
		assert_true(results_send(rig.link.session, rig.mirror.head));
		for (const char *type; (type = rig_next())[0] != '\0';)
			assert_true(strcmp(type, "result") != 0 && strcmp(type, "stream_open") != 0 && strcmp(type, "status") != 0);
		fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
		rig_gone(1);
		rig_advance(60000);
		rig_drop_frames();
		rig_forget();
		close(fd);
	}
}

/* A hub that opened a stream we did not ask for, or names no offset of the file. */
static void
answers_that_make_no_sense(void **state)
{
	int fd = new_file();
	uint32_t channel;
	char id[24];

	rig_workerd(NULL, 0);
	connect_and_end("[]");
	opened("b-2", 2, 0);
	opened("", 4, 0);
	ended_with(fd);
	rig_output_end(1, rig.mirror.head->epoch, 0, NULL);
	channel = asked(id);
	opened("b-777", channel, 0);
	assert_int_equal(stream()->stage, BUNDLE_ASKED);
	opened(id, channel, SIZE + 1);
	assert_non_null(strstr(rig_str(json_get(rig_frame("result"), "result"), "error"), "beyond its end"));
	close(fd);
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, rig_test_setup, rig_test_teardown)
	const struct CMUnitTest tests[] = {
		T(from_question_to_status), T(no_answer_means_chunks), T(busy_is_asked_again), T(a_rest_that_is_refused), T(a_rest_that_is_refused_twice), T(a_file_that_shrinks),
		T(ends_at_each_point), T(one_result_whatever_workerd_says_again), T(answers_that_make_no_sense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
