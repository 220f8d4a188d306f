/* Starts and signals of a session, on both dialects (B54). Places: connectd/{requests,cloop_start,frames}.c. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/rig.h"


static void
start_is_answered_once(void **state)
{
	struct work_workload w = rig_running(1, "h", 0);
	const struct rig_rec *r;
	const struct json *p;
	uint32_t id;

	rig_workerd(NULL, 0);
	rig_connect(false, "[]");
	rig_hub(RIG_START("c1", "h"));
	r = rig_rec(WORK_REQ_START);
	assert_non_null(r);
	id = r->id;
	/* Pending first: no answer yet; a status query does not crash. */
	w.state = WORK_PENDING;
	w.pid = 0;
	rig_tell(&w);
	rig_answer(WORK_ANS_START, id, WORK_OK, 1, "");
	rig_hub("{\"v\":1,\"type\":\"status_req\",\"id\":\"q\",\"handle\":\"h\",\"payload\":{}}");
	assert_null(rig_frame("started"));
	w = rig_running(1, "h", 0);
	rig_tell(&w);
	rig_turn();
	p = rig_frame("started");
	assert_string_equal(rig_str(rig_envelope(), "id"), "c1");
	assert_string_equal(rig_str(rig_envelope(), "handle"), "h");
	assert_int_equal(rig_num(p, "pid"), 4001);
	assert_null(json_get(p, "error"));
	/* Again, with another id: the same answer; workerd knows it is a repetition. */
	rig_hub(RIG_START("c2", "h"));
	rig_answer(WORK_ANS_START, rig_rec(WORK_REQ_START)->id, WORK_OK, 1, "");
	p = rig_frame("started");
	assert_string_equal(rig_str(rig_envelope(), "id"), "c2");
	assert_int_equal(rig_num(p, "pid"), 4001);
	assert_null(rig_frame("started"));
}

static void
refusals_have_their_frames(void **state)
{
	static const struct { enum work_refusal why; const char *type, *code, *code1; } rows[] = {
		{ WORK_REFUSED_BUSY, "error", "busy", "busy" },
		{ WORK_REFUSED_FORBIDDEN_PATH, "error", "forbidden_path", "forbidden_path" },
		{ WORK_REFUSED_BAD_SPEC, "error", "protocol", "protocol" },
		{ WORK_REFUSED_POLICY, "started", "(none)", "policy" },
		{ WORK_REFUSED_SANDBOX, "started", "(none)", "sandbox" },
		{ WORK_REFUSED_DISK_LOW, "started", "(none)", "disk_low" },
		{ WORK_REFUSED_MEMORY_LOW, "started", "(none)", "memory_low" },
		{ WORK_REFUSED_UNSUPPORTED, "started", "(none)", "unsupported" },
		{ WORK_REFUSED_START_FAILED, "started", "(none)", "(none)" },
	};

	for (int dialect = 0; dialect < 2; dialect++) {
		rig_workerd(NULL, 0);
		rig_connect(dialect == 1, "[]");
		rig_drop_frames();
		for (size_t i = 0; i < COUNT(rows); i++) {
			rig_hub(RIG_START("c1", "h"));
			rig_answer(WORK_ANS_START, rig_rec(WORK_REQ_START)->id, rows[i].why, 0, "because");
			assert_string_equal(rig_next(), rows[i].type);
			assert_string_equal(rig_str(rig_envelope(), "id"), "c1");
			assert_string_equal(rig_str(rig_payload(), "code"), dialect == 1 ? rows[i].code1 : rows[i].code);
			assert_string_equal(rig_str(rig_payload(), rows[i].type[0] == 'e' ? "message" : "error"), "because");
			assert_string_equal(rig_next(), "");
		}
		fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
		rig_advance(5000);
	}
}

static void
bad_starts_do_not_reach_workerd(void **state)
{
	static const struct { const char *payload, *type; } rows[] = {
		{ "{\"spec\":{\"argv\":[]}}", "error" },
		{ "{\"spec\":{\"argv\":[\" \"]}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\",1]}}", "error" },
		{ "{\"spec\":{}}", "error" },
		{ "{}", "error" },
		{ "{\"handle_id\":\"other\",\"spec\":{\"argv\":[\"a\"]}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"env\":[\"NOEQ\"]}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"env\":\"X=1\"}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"timeout_minutes\":-1}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"resource_limits\":{\"memory_mb\":-1}}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"resource_limits\":{\"memory_mb\":99999999999999999}}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"sandbox\":{\"mode\":\"container\"}}", "started" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"sandbox\":{\"mode\":\"magic\"}}", "started" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"sandbox\":{\"mode\":\"container\",\"image\":\"-v=/:/h\"}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"sandbox\":{\"mode\":\"container\",\"image\":\"a\",\"network\":\"host\"}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"sandbox\":{\"mode\":\"container\",\"image\":\"a\",\"runtime\":\"/bin/sh\"}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"sandbox\":{\"mode\":\"container\",\"image\":\"a\",\"engine\":\"/bin/sh\"}}", "started" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"mounts\":[\"/:/h\"]},\"sandbox\":{\"mode\":\"container\",\"image\":\"a\"}}", "started" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"setup_commands\":[\"x\"]},\"sandbox\":{\"mode\":\"container\",\"image\":\"a\"}}", "started" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"sandbox\":{\"mode\":\"container\",\"image\":\"a\"},\"virtual\":{\"id\":\"abc\","
		    "\"devices\":[{\"name\":\"x\"}]}}", "started" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"sandbox\":{\"mode\":\"container\",\"image\":\"a\"},\"virtual\":{\"id\":\"A\"}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"sandbox\":{\"mode\":\"container\",\"image\":\"a\",\"network\":\"x\"},"
		    "\"virtual\":{\"id\":\"abc\",\"firewall\":{}}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"workspace\":{\"kind\":\"git\",\"repo\":\"ext::sh\"}}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"workspace\":{\"kind\":\"bind\"}}}", "started" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"write_back\":{\"mode\":\"push\"}}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"write_back\":{\"mode\":\"mail\"}}}", "started" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"egress_rules\":{\"allow_cidrs\":[\"x\"]}}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"disable_network\":1}}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"],\"devices\":[{\"name\":\"x\"}]}}", "started" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"secret_files\":[{\"name\":\"t\"}]}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"project_seed\":\"UEs=\"}", "error" },
		{ "{\"spec\":{\"argv\":[\"a\"]},\"virtual\":{\"id\":\"abc\"}}", "started" },
	};

	rig_workerd(NULL, 0);
	rig_connect(false, "[]");
	rig_drop_frames();
	for (size_t i = 0; i < COUNT(rows); i++) {
		rig_hub("{\"v\":1,\"type\":\"start\",\"id\":\"c1\",\"handle\":\"h\",\"payload\":%s}", rows[i].payload);
		assert_string_equal(rig_next(), rows[i].type);
		assert_string_equal(rig_str(rig_envelope(), "id"), "c1");
		assert_string_equal(rig_next(), "");
	}
	rig_hub("{\"v\":1,\"type\":\"start\",\"id\":\"c1\",\"handle\":\"../h\",\"payload\":{\"spec\":{\"argv\":[\"a\"]}}}");
	assert_string_equal(rig_next(), "error");
	rig.policy.start = false;
	rig_hub(RIG_START("c1", "h"));
	assert_string_equal(rig_next(), "started");
	assert_int_equal(rig_count(WORK_REQ_START), 0);
	assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
}

/* A large start goes by descriptor; what is encoded decodes to the same. */
static void
a_large_start_goes_by_memfd(void **state)
{
	static struct work_str argv[WORK_ARGV_MAX], env[WORK_ENV_MAX];
	struct work_spec spec = { .argv = argv, .env = env };
	static char frame[400000];
	const struct rig_rec *r;
	size_t n;

	rig_workerd(NULL, 0);
	rig_connect(false, "[]");
	rig_hub("{\"v\":1,\"type\":\"start\",\"id\":\"c\",\"handle\":\"h\",\"payload\":{\"spec\":{\"work_dir\":\"a/b\",\"argv\":[\"x\",\"\"],"
	    "\"env\":[],\"timeout_minutes\":2,\"harness\":\"claude\",\"image\":\"hint\",\"labels\":{\"run_id\":\"1\"},"
	    "\"resource_limits\":{\"memory_mb\":64,\"pids\":9,\"cpu_millis\":500,\"disk_mb\":1}}}}");
	r = rig_rec(WORK_REQ_START);
	assert_non_null(r);
	assert_int_equal(work_spec_decode(&spec, r->data, r->len), 0);
	assert_string_equal(spec.work_dir, "a/b");
	assert_int_equal(spec.argc, 2);
	assert_true(spec.env_given && spec.envc == 0);
	assert_int_equal(spec.timeout_s, 120);
	assert_true(spec.memory_bytes == 64u << 20 && spec.pids == 9 && spec.cpu_millis == 500 && spec.disk_bytes == 1u << 20);
	n = (size_t)sprintf(frame, "{\"v\":1,\"type\":\"start\",\"id\":\"c\",\"handle\":\"h\",\"payload\":{\"spec\":{\"argv\":[\"x\",\"");
	memset(frame + n, 'a', 300000);
	strcpy(frame + n + 300000, "\"]}}}");
	fake_text(fake_conn(), frame);
	r = rig_rec(WORK_REQ_START);
	assert_non_null(r);
	assert_int_equal(r->len, 0);
}

/* A stop at the limit of disk: "disk_limit" with the measurement from version 20 on; below there are the words alone. */
static void
over_disk(bool edgeward1, int version, bool told)
{
	struct work_workload w = { .wid = 1, .state = WORK_PENDING, .handle = "h", .disk_used = 9 << 20, .disk_limit = 8 << 20 };
	const struct json *p, *s;
	int64_t v;

	rig_workerd(NULL, 0);
	rig_open(edgeward1);
	assert_non_null(rig_frame("hello"));
	rig_hub("{\"v\":1,\"type\":\"welcome\",\"id\":\"hello\",\"payload\":{\"protocol_version\":%d,\"executor_id\":\"agent-1\","
	    "\"heartbeat_seconds\":15,\"resume_accepted\":[]}}", version);
	rig_hub(RIG_START("c1", "h"));
	rig_tell(&w);
	rig_answer(WORK_ANS_START, rig_rec(WORK_REQ_START)->id, WORK_REFUSED_START_FAILED, 0, "disk-limit: full");
	p = rig_frame("started");
	assert_non_null(p);
	assert_string_equal(json_get_str(p, "error"), "disk-limit: full");
	assert_int_equal(json_get(p, "disk_limit") != NULL, told);
	if (told)
		assert_true(json_get_int(json_get(p, "disk_limit"), "used_bytes", 9 << 20, 9 << 20, &v) &&
		    json_get_int(json_get(p, "disk_limit"), "limit_mb", 8, 8, &v) &&
		    json_get_str(json_get(p, "disk_limit"), "measured_at") != NULL);
	rig_gone(1);

	w = (struct work_workload){ .wid = 2, .state = WORK_ENDED, .outcome = WORK_OUTCOME_LIMIT, .limit = WORK_LIMIT_DISK, .handle = "i",
		.term_signal = SIGKILL, .finished_at = rig_wall(), .disk_used = 3 << 20, .disk_limit = 2 << 20 };
	rig_tell(&w);
	rig_output_end(2, rig_sub()->epoch, 0, NULL);
	p = rig_frame("status");
	assert_non_null(p);
	s = json_get(p, "status");
	assert_string_equal(json_get_str(s, "state"), "killed");
	assert_int_equal(json_get(s, "disk_limit") != NULL, told);
	if (told) {
		assert_string_equal(json_get_str(s, "outcome"), "disk_limit");
		assert_true(json_get_int(json_get(s, "disk_limit"), "used_bytes", 3 << 20, 3 << 20, &v) &&
		    json_get_int(json_get(s, "disk_limit"), "limit_mb", 2, 2, &v));
	} else {
		assert_null(json_get(s, "outcome"));
	}
	assert_null(json_get(s, "usage"));
}

static void
over_the_limit_of_disk_20(void **state)
{
	over_disk(false, 20, true);
}

static void
over_the_limit_of_disk_19(void **state)
{
	over_disk(false, 19, false);
}

static void
over_the_limit_of_disk_edgeward1(void **state)
{
	over_disk(true, 20, true);
}

/*
 * B54: every order and repetition of start, signal and status, with the answers of workerd in between: each request is
 * answered exactly once with its own id. workerd's idempotence by handle has its own test.
 */
static void
test_b54_orders_and_repetitions(void **state)
{
	static const char *const frames[] = { RIG_START("s1", "h"), RIG_START("s2", "h"),
		"{\"v\":1,\"type\":\"signal\",\"id\":\"k1\",\"handle\":\"h\",\"payload\":{\"signal\":\"terminate\"}}",
		"{\"v\":1,\"type\":\"status_req\",\"id\":\"q1\",\"handle\":\"h\",\"payload\":{}}" };
	static const char *const ids[] = { "s1", "s2", "k1", "q1" };
	unsigned rounds = 0;

	for (unsigned code = 0; code < 256; code++) {
		unsigned at[4] = { code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3 }, answered[4] = { 0 };
		bool started = false;
		const char *type;

		if ((1u << at[0] | 1u << at[1] | 1u << at[2] | 1u << at[3]) != 15)
			continue;
		rounds++;
		rig_workerd(NULL, 0);
		rig_connect(false, "[]");
		rig_drop_frames();
		for (int i = 0; i < 4; i++)
			rig_hub("%s", frames[at[i]]);
		/* workerd answers in the order it was asked: unknown before the start, known after it. */
		for (struct rig_rec *r; (r = rig.recs) != NULL;) {
			uint16_t t = r->type;
			uint32_t id = r->id;

			rig.recs = r->next;
			if (rig.recs == NULL)
				rig.recs_tail = &rig.recs;
			free(r);
			if (t == WORK_REQ_START) {
				struct work_workload w = rig_running(1, "h", 0);

				if (!started)
					rig_tell(&w);
				started = true;
				rig_answer(WORK_ANS_START, id, WORK_OK, 1, "");
			} else if (t == WORK_REQ_SIGNAL) {
				rig_answer(WORK_ANS_SIGNAL, id, started ? WORK_OK : WORK_REFUSED_UNKNOWN_HANDLE, 0, "");
			}
		}
		while ((type = rig_next())[0] != '\0')
			for (size_t i = 0; i < 4; i++)
				if (strcmp(rig_str(rig_envelope(), "id"), ids[i]) == 0) {
					answered[i]++;
					assert_string_equal(i < 2 ? type : "x", i < 2 ? "started" : "x");
				}
		for (size_t i = 0; i < 4; i++)
			assert_int_equal(answered[i], 1);
		fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
		rig_turn();
		rig_gone(1);
		rig_forget();
		rig_advance(15000);
	}
	assert_int_equal(rounds, 24);
}

static unsigned
open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

static void
ship(const char *handle)
{
	rig_hub("{\"v\":1,\"type\":\"branch_chunk\",\"handle\":\"%s\",\"payload\":{\"offset\":0,\"total\":3,\"data\":\"YWJj\"}}", handle);
}

/* Its file is as large as the branch, and the answer to a start with a workspace comes when the payload runs. */
static void
a_branch_is_kept_until_workerd_has_it(void **state)
{
	struct work_workload w = rig_running(1, "h", 0);
	unsigned before;
	uint32_t id;

	w.state = WORK_PENDING;
	w.pid = 0;
	rig_workerd(NULL, 0);
	rig_connect(true, "[]");
	before = open_fds();
	ship("h");
	assert_int_equal(open_fds(), before + 2);
	rig_hub(RIG_START("c1", "h"));
	assert_non_null(rig_rec(WORK_REQ_START));
	assert_int_equal(open_fds(), before + 1);
	/* This workerd ends before it took it: the next one is given it, and what it has not answered is not kept again. */
	rig_workerd_dies();
	rig_workerd(NULL, 0);
	id = rig_rec(WORK_REQ_START)->id;
	rig_tell(&w);
	assert_int_equal(open_fds(), before);
	rig_answer(WORK_ANS_START, id, WORK_REFUSED_START_FAILED, 0, "no");
	rig_gone(1);
	/* One that shows it as a workload has taken it. */
	ship("g");
	rig_hub(RIG_START("c2", "g"));
	id = rig_rec(WORK_REQ_START)->id;
	assert_int_equal(open_fds(), before + 1);
	w.wid = 2;
	snprintf(w.handle, sizeof(w.handle), "g");
	rig_tell(&w);
	rig_turn();
	assert_int_equal(open_fds(), before);
	rig_drop_frames();
	rig_answer(WORK_ANS_START, id, WORK_OK, 2, "");
	w.state = WORK_RUNNING;
	w.pid = 7;
	rig_tell(&w);
	rig_turn();
	assert_string_equal(rig_str(rig_frame("started"), "handle_id"), "g");
	assert_string_equal(rig_str(rig_envelope(), "id"), "c2");
}

/* With beats, each of which is answered; fds: how many descriptors are open all the while, 0 = any number. */
static void
pass_time(int64_t ms, unsigned fds)
{
	for (; ms > 0; ms -= 5000) {
		rig_advance(5000);
		rig_hub("{\"v\":1,\"type\":\"heartbeat_ack\",\"payload\":{\"seq\":%llu}}", (unsigned long long)rig.link.beat_seq);
		rig_drop_frames();
		if (fds != 0)
			assert_int_equal(open_fds(), fds);
	}
	assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
}

static void
a_branch_that_no_start_comes_for_goes(void **state)
{
	unsigned before;

	rig_workerd(NULL, 0);
	rig_connect(true, "[]");
	before = open_fds();
	ship("h");
	pass_time(BRANCH_KEEP_MS - 5000, before + 2);
	pass_time(35000, 0);
	assert_int_equal(open_fds(), before);
}

/* 128 MiB over a slow link take longer than that: as long as something comes of it, it is waited for. */
static void
a_branch_may_come_slowly(void **state)
{
	unsigned before;

	rig_workerd(NULL, 0);
	rig_connect(true, "[]");
	before = open_fds();
	for (unsigned at = 0; at < 9; at += 3) {
		rig_hub("{\"v\":1,\"type\":\"branch_chunk\",\"handle\":\"h\",\"payload\":{\"offset\":%u,\"total\":9,\"data\":\"YWJj\"}}", at);
		pass_time(BRANCH_KEEP_MS - 60000, before + 2);
	}
	rig_hub(RIG_START("c1", "h"));
	assert_non_null(rig_rec(WORK_REQ_START));
	assert_int_equal(open_fds(), before + 1);
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, rig_test_setup, rig_test_teardown)
	const struct CMUnitTest tests[] = {
		T(start_is_answered_once), T(refusals_have_their_frames), T(bad_starts_do_not_reach_workerd),
		T(a_large_start_goes_by_memfd),
		T(over_the_limit_of_disk_20), T(over_the_limit_of_disk_19), T(over_the_limit_of_disk_edgeward1), T(test_b54_orders_and_repetitions),
		T(a_branch_is_kept_until_workerd_has_it), T(a_branch_that_no_start_comes_for_goes), T(a_branch_may_come_slowly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
