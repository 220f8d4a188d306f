#include "tests/unit/rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connectd/jitter.h"

struct rig rig;
static int64_t boot_ns, wall_ns;

static const char good_conf[] = "[hub]\nurl = wss://hub.example/api/executors/connect\n";

static int64_t
fake_boot(void)
{
	return boot_ns;
}

static int64_t
fake_wall(void)
{
	return wall_ns;
}

int64_t
rig_ms(void)
{
	return boot_ns / 1000000;
}

int64_t
rig_wall(void)
{
	return wall_ns;
}

void
rig_set_wall(int64_t ns)
{
	wall_ns = ns;
}

static void
work_changed(void *ctx)
{
	(void)ctx;
	link_kick(&rig.link);
}

void
rig_setup(const char *conf_text)
{
	struct link_params params = { .conf = &rig.conf, .policy = &rig.policy, .device = &rig.device, .cred = &rig.cred,
		.clock = &rig.clock, .mirror = &rig.mirror, .work = &rig.work };
	char err[CONF_ERR_SIZE];
	bool damaged;
	int fd;

	memset(&rig, 0, sizeof(rig));
	rig.recs_tail = &rig.recs;
	rig.w.io.fd = -1;
	boot_ns = INT64_C(1000) * 1000000000;
	wall_ns = INT64_C(1790000000) * 1000000000;
	monotime_set_source(fake_boot, fake_wall);
	log_init("test", LOG_LEVEL_ERROR);
	if (conf_text == NULL)
		conf_text = good_conf;
	assert_int_equal(conf_parse(&rig.conf, "test", conf_text, strlen(conf_text), err), 0);
	assert_int_equal(policy_parse(&rig.policy, "test", "", 0, err), 0);
	assert_int_equal(caps_init(&rig.device, "site=lab", err), 0);
	snprintf(rig.dir, sizeof(rig.dir), "/tmp/test_rig.XXXXXX");
	assert_non_null(mkdtemp(rig.dir));
	fd = open(rig.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cred_load(&rig.cred, fd);
	clock_init(&rig.clock, fd, INT64_C(1780000000) * 1000000000, &damaged);
	assert_int_equal(loop_new(&rig.loop), 0);
	mirror_init(&rig.mirror);
	workchan_init(&rig.work, rig.loop, &rig.mirror, work_changed, NULL);
	params.loop = rig.loop;
	link_init(&rig.link, &params);
	fake_started = fake_freed = 0;
	fake_start_result = 0;
}

void
rig_teardown(void)
{
	char cmd[256];

	link_done(&rig.link);
	assert_null(fake_conns);
	assert_int_equal(fake_started, fake_freed);
	workchan_done(&rig.work);
	ipc_chan_done(&rig.w);
	mirror_done(&rig.mirror);
	rig_forget();
	json_doc_free(rig.doc);
	close(rig.cred.dirfd);
	loop_free(rig.loop);
	monotime_set_source(NULL, NULL);
	jitter_set_source(NULL);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", rig.dir);
	assert_int_equal(system(cmd), 0);
}

void
rig_turn(void)
{
	for (int i = 0; i < 6; i++)
		assert_int_equal(loop_turn(rig.loop, 0), 0);
}

void
rig_advance(int64_t ms)
{
	for (int64_t step; ms > 0; ms -= step) {
		step = ms > 50 ? 50 : ms;
		boot_ns += step * 1000000;
		wall_ns += step * 1000000;
		loop_turn(rig.loop, 0);
	}
	rig_turn();
}

void
rig_enrolled(void)
{
	static const struct cred cred = { .server = "wss://hub.example/x", .agent_id = "agent-1",
		.credential = "clac1.agent-1.S.M", .enrolled_at = "2026-01-01T00:00:00Z" };

	assert_int_equal(cred_save(&rig.cred, &cred), 0);
}

/* ---- workerd ---- */

static int
w_record(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct rig_rec *r = calloc(1, sizeof(*r) + msg->hdr.len + 1);

	(void)ctx;
	if (msg->hdr.type == IPC_HELLO)
		chan->state = IPC_ST_OPEN;
	r->type = msg->hdr.type;
	r->id = msg->hdr.id;
	r->len = msg->hdr.len;
	memcpy(r->data, msg->data, r->len);
	*rig.recs_tail = r;
	rig.recs_tail = &r->next;
	return 0;
}

static void
w_ended(struct ipc_chan *chan, int err, void *ctx)
{
	(void)err;
	(void)ctx;
	ipc_chan_done(chan);
	rig.w_ended++;
}

#define ANY	IPC_ST_HELLO | IPC_ST_OPEN
#define ROW(t)	{ .type = (t), .states = ANY, .max = IPC_MAX_WORK, .max_fds = 1, .handler = w_record }

static const struct ipc_rule w_rules[] = {
	ROW(IPC_HELLO), ROW(WORK_REQ_START), ROW(WORK_REQ_SIGNAL), ROW(WORK_REQ_SYNC), ROW(WORK_EV_SUB), ROW(WORK_EV_CREDIT),
	ROW(WORK_EV_ACK), ROW(WORK_EV_DELIVERED), ROW(WORK_EV_DISOWN), ROW(WORK_EV_SESSION), ROW(WORK_REQ_FILE), ROW(WORK_REQ_REVOKE),
	ROW(WORK_REQ_INVENTORY),
};

void
rig_send(uint16_t type, const void *data, size_t len)
{
	assert_int_equal(ipc_send(&rig.w, type, data, len), 0);
}

void
rig_workerd_hello(void)
{
	static uint64_t pair;
	int fds[2];

	rig.w_conf = (struct ipc_conf){ .rules = w_rules, .nrules = COUNT(w_rules), .max_payload = IPC_MAX_WORK,
		.queue_max = 8u << 20, .ended = w_ended };
	ipc_chan_done(&rig.w);
	assert_int_equal(ipc_pair(1 << 20, fds, NULL), 0);
	assert_int_equal(ipc_chan_init(&rig.w, rig.loop, fds[1], &rig.w_conf), 0);
	assert_int_equal(workchan_take(&rig.work, fds[0], ++pair), 0);
	ipc_send_hello(&rig.w, IPC_ROLE_WORKERD, 0);
	rig_turn();
}

void
rig_workerd_lists(const struct work_workload *list, size_t n)
{
	struct work_caps caps = { .slots = 4, .cpus = 8, .memory_kb = 16281600, .cgroup = 2, .work_root = "/srv/work" };

	rig_send(WORK_EV_CAPS, &caps, sizeof(caps));
	for (size_t i = 0; i < n; i++)
		rig_tell(&list[i]);
	rig_send(WORK_EV_SNAP_END, NULL, 0);
	rig_turn();
}

void
rig_workerd(const struct work_workload *list, size_t n)
{
	rig_workerd_hello();
	rig_workerd_lists(list, n);
}

void
rig_workerd_dies(void)
{
	ipc_chan_done(&rig.w);
	rig_turn();
}

struct work_workload
rig_running(uint32_t wid, const char *handle, uint64_t produced)
{
	struct work_workload w = { .wid = wid, .state = WORK_RUNNING, .pid = 4000 + (int32_t)wid, .produced = produced,
		.started_at = INT64_C(1789999000) * 1000000000 };

	snprintf(w.handle, sizeof(w.handle), "%s", handle);
	return w;
}

struct work_workload
rig_ended(uint32_t wid, const char *handle, uint64_t produced, int32_t exit_code)
{
	struct work_workload w = rig_running(wid, handle, produced);

	w.state = WORK_ENDED;
	w.outcome = WORK_OUTCOME_EXITED;
	w.exit_code = exit_code;
	w.finished_at = w.started_at + 5000000000;
	return w;
}

void
rig_tell(const struct work_workload *w)
{
	rig_send(WORK_EV_WORKLOAD, w, sizeof(*w));
}

void
rig_output(uint32_t wid, uint32_t epoch, uint64_t offset, const void *data, size_t len)
{
	static uint8_t buf[sizeof(struct work_output) + WORK_DATA_MAX];
	struct work_output o = { .wid = wid, .epoch = epoch, .offset = offset };

	memcpy(buf, &o, sizeof(o));
	memcpy(buf + sizeof(o), data, len);
	rig_send(WORK_EV_OUTPUT, buf, sizeof(o) + len);
	rig_turn();
}

void
rig_output_end(uint32_t wid, uint32_t epoch, uint64_t total, const uint8_t *digest)
{
	struct work_output_end end = { .wid = wid, .epoch = epoch, .total = total, .has_digest = digest != NULL };

	if (digest != NULL)
		memcpy(end.xxh3, digest, sizeof(end.xxh3));
	rig_send(WORK_EV_OUTPUT_END, &end, sizeof(end));
	rig_turn();
}

void
rig_gone(uint32_t wid)
{
	struct work_ref ref = { .wid = wid };

	rig_send(WORK_EV_GONE, &ref, sizeof(ref));
	rig_turn();
}

void
rig_answer(uint16_t type, uint32_t id, enum work_refusal refusal, uint32_t wid, const char *error)
{
	struct work_answer a = { .refusal = refusal, .wid = wid };
	struct ipc_hdr req = { .type = (uint16_t)(type - 1), .id = id };

	snprintf(a.error, sizeof(a.error), "%s", error);
	assert_int_equal(ipc_answer(&rig.w, &req, 0, &a, sizeof(a)), 0);
	rig_turn();
}

const struct rig_rec *
rig_rec(uint16_t type)
{
	static struct rig_rec *held;
	struct rig_rec *r;

	free(held);
	held = NULL;
	rig_turn();
	while ((r = rig.recs) != NULL) {
		rig.recs = r->next;
		if (rig.recs == NULL)
			rig.recs_tail = &rig.recs;
		if (r->type == type) {
			held = r;
			return r;
		}
		free(r);
	}
	return NULL;
}

unsigned
rig_count(uint16_t type)
{
	unsigned n = 0;

	rig_turn();
	for (const struct rig_rec *r = rig.recs; r != NULL; r = r->next)
		n += r->type == type;
	return n;
}

void
rig_forget(void)
{
	while (rig.recs != NULL && rig_rec(0) == NULL)
		;
	rig_rec(0);
}

const struct work_sub *
rig_sub(void)
{
	const struct rig_rec *r = rig_rec(WORK_EV_SUB);

	assert_non_null(r);
	return (const struct work_sub *)(const void *)r->data;
}

/* ---- hub ---- */

void
rig_hub(const char *fmt, ...)
{
	char text[16384];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fake_text(fake_conn(), text);
	rig_turn();
}

const char *
rig_next(void)
{
	struct fake_msg *m = fake_conn() != NULL ? fake_take(fake_conn()) : NULL;

	json_doc_free(rig.doc);
	rig.doc = NULL;
	if (m == NULL)
		return "";
	if (m->binary) {
		free(m);
		return "binary";
	}
	assert_int_equal(json_parse(m->data, m->len, &rig.doc), 0);
	free(m);
	assert_non_null(json_get_str(rig_envelope(), "type"));
	snprintf(rig.taken_type, sizeof(rig.taken_type), "%s", json_get_str(rig_envelope(), "type"));
	return rig.taken_type;
}

const struct json *
rig_envelope(void)
{
	return rig.doc != NULL ? json_root(rig.doc) : NULL;
}

const struct json *
rig_payload(void)
{
	return json_get(rig_envelope(), "payload");
}

const struct json *
rig_frame(const char *type)
{
	const char *got;

	while ((got = rig_next())[0] != '\0')
		if (strcmp(got, type) == 0)
			return rig_payload();
	return NULL;
}

void
rig_drop_frames(void)
{
	struct fake_msg *m;

	while ((m = fake_take(fake_conn())) != NULL)
		free(m);
}

void
rig_open(bool edgeward1)
{
	const struct rig_rec *r;

	link_kick(&rig.link);
	rig_turn();
	assert_non_null(fake_conn());
	fake_open(fake_conn(), edgeward1);
	r = rig_rec(WORK_REQ_SYNC);
	if (r != NULL) {
		struct ipc_hdr req = { .type = WORK_REQ_SYNC, .id = r->id };

		ipc_answer(&rig.w, &req, 0, NULL, 0);
		rig_turn();
	}
}

void
rig_connect(bool edgeward1, const char *verdicts)
{
	rig_open(edgeward1);
	assert_non_null(rig_frame("hello"));
	rig_hub("{\"v\":1,\"type\":\"welcome\",\"id\":\"hello\",\"payload\":{\"protocol_version\":1,\"executor_id\":\"agent-1\","
	    "\"heartbeat_seconds\":15,\"resume_accepted\":%s}}", verdicts);
}

int
rig_test_setup(void **state)
{
	rig_setup(NULL);
	rig_enrolled();
	return 0;
}

int
rig_test_setup_up(void **state)
{
	rig_test_setup(state);
	rig_workerd(NULL, 0);
	return 0;
}

int
rig_test_teardown(void **state)
{
	rig_teardown();
	return 0;
}

void
rig_session_up(void)
{
	rig_connect(false, "[]");
	assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
}

void
rig_lose(enum hubconn_cause cause, int http, uint16_t code, const char *name)
{
	fake_end(fake_conn(), cause, http, code, name);
	rig_turn();
}

int64_t
rig_wait_ms(void)
{
	assert_true(loop_timer_armed(&rig.link.retry));
	return monotime_diff_ms(rig.link.retry.when, monotime_now());
}

const char *
rig_str(const struct json *obj, const char *key)
{
	const char *s = json_get_str(obj, key);

	return s != NULL ? s : "(none)";
}

int64_t
rig_num(const struct json *obj, const char *key)
{
	int64_t v = -999;

	json_get_int(obj, key, INT64_MIN, INT64_MAX, &v);
	return v;
}
