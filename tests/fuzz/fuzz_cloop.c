/*
 * Frames of a hub. First as bytes: envelope and start. Then into a whole session over a fake connection: the input is a
 * sequence of messages, each a kind byte (even = text, odd = binary), a 16-bit length and its bytes.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "connectd/session.h"
#include "proto/hub/start.h"
#include "proto/hub/limits.h"
#include "tests/unit/fake_hubconn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char welcome[] = "{\"v\":1,\"type\":\"welcome\",\"payload\":{\"protocol_version\":1,\"executor_id\":\"a\","
	"\"resume_accepted\":[{\"handle_id\":\"h1\",\"from_offset\":3}]}}";

static void
decode(const uint8_t *data, size_t size)
{
	struct json_doc *doc;
	struct cloop_frame f;
	const char *why = NULL;
	uint8_t *spec = NULL;
	size_t len;
	char err[208] = "";

	if (cloop_decode(data, size, CLOOP_VERSION, &doc, &f, &why) < 0) {
		if (why == NULL)
			abort();
		return;
	}
	if (start_decode(f.payload, f.handle, &spec, &len, err) == WORK_OK) {
		static struct work_str argv[WORK_ARGV_MAX], env[WORK_ENV_MAX];
		static struct work_net net;
		struct work_spec out = { .argv = argv, .env = env, .net = &net };

		if (work_spec_decode(&out, spec, len) < 0)
			abort();
	} else if (err[0] == '\0') {
		abort();
	}
	free(spec);
	json_doc_free(doc);
}

/* ---- a session ---- */

static struct loop *loop;
static struct conf conf;
static struct policy policy = { .start = true };
static struct device_caps device;
static struct mirror mirror;
static struct workchan work;
static struct session *session;
static bool edgeward1;
static char dir[] = "/tmp/fuzz_cloop.XXXXXX";	/* for branches that are shipped */
static int statefd;

static void
nothing(void *ctx)
{
}

static void
over(const struct session_over *o, void *ctx)
{
	if (o->code[0] == '\0' || o->detail[0] == '\0')
		abort();
}

static int
identity(const char *credential, const char *executor_id, void *ctx)
{
	return 0;
}

static void
server_time(int64_t wall, int64_t server, void *ctx)
{
}

static size_t
health(const char **codes, size_t max, void *ctx)
{
	codes[0] = "fuzz";
	return 1;
}

static const struct session_ops ops = { over, nothing, identity, server_time, health };

static void
stage(enum hubconn_stage s, void *ctx)
{
}

static void
opened(bool dialect, const char *peer, void *ctx)
{
	static uint64_t seq;
	struct session_params p = { .loop = loop, .conf = &conf, .policy = &policy, .device = &device, .mirror = &mirror,
		.work = &work, .conn = fake_conn(), .edgeward1 = dialect, .agent_id = "a", .name = "", .beat_seq = &seq,
		.statefd = statefd, .ops = &ops };

	if (session_new(&p, &session) < 0)
		abort();
}

static void
text(const uint8_t *data, size_t len, void *ctx)
{
	session_text(session, data, len);
}

static void
binary(const uint8_t *data, size_t len, void *ctx)
{
	session_binary(session, data, len);
}

static void
ended(const struct hubconn_end *end, void *ctx)
{
}

static const struct hubconn_cb cb = { stage, opened, text, binary, nothing, ended };

static void
remove_dir(void)
{
	rmdir(dir);
}

static void
set_up(void)
{
	static const char text_conf[] = "[hub]\nurl = wss://h\n";
	char err[CONF_ERR_SIZE];

	log_init("fuzz", LOG_LEVEL_ERROR);
	if (mkdtemp(dir) == NULL || (statefd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || atexit(remove_dir) != 0)
		abort();
	if (loop_new(&loop) < 0 || conf_parse(&conf, "c", text_conf, sizeof(text_conf) - 1, err) < 0 ||
	    caps_init(&device, "", err) < 0)
		abort();
}

static void
one_session(const uint8_t *p, size_t size)
{
	struct hubconn_params params = { .url = "wss://h", .bearer = "b", .pins = "" };
	struct work_workload w = { .wid = 1, .state = WORK_RUNNING, .produced = 100, .handle = "h1" };
	struct hubconn *conn;
	char err[200];
	bool is_new;

	mirror_init(&mirror);
	workchan_init(&work, loop, &mirror, nothing, NULL);
	work.synced = mirror.known = true;
	mirror_update(&mirror, &w, &is_new);
	w.wid = 2;
	w.state = WORK_ENDED;
	w.outcome = WORK_OUTCOME_EXITED;
	strcpy(w.handle, "h2");
	mirror_update(&mirror, &w, &is_new);
	if (hubconn_start(NULL, loop, &params, &cb, NULL, &conn, err) < 0)
		abort();
	fake_open(conn, edgeward1);
	if (size > 0 && (p[0] & 2) != 0)
		fake_text(conn, welcome);
	while (size >= 3) {
		size_t len = (size_t)(p[1] << 8 | p[2]), n = len < size - 3 ? len : size - 3;
		uint8_t *copy = malloc(n > 0 ? n : 1);

		memcpy(copy, p + 3, n);
		if ((p[0] & 1) != 0)
			fake_binary(conn, copy, n);
		else
			cb.text(copy, n, NULL);
		free(copy);
		p += 3 + n;
		size -= 3 + n;
	}
	loop_turn(loop, 0);
	session_free(session);
	hubconn_free(conn);
	workchan_done(&work);
	mirror_done(&mirror);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (loop == NULL)
		set_up();
	decode(data, size);
	for (int dialect = 0; dialect < 2; dialect++) {
		edgeward1 = dialect == 1;
		one_session(data, size);
	}
	return 0;
}
