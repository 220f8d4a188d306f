/*
 * connectd's link and session between a fake hub connection and a fake workerd, on one mock clock. The work channel is a
 * real one; the other end is driven by the test.
 */
#ifndef EDGEWARD_TEST_RIG_H
#define EDGEWARD_TEST_RIG_H

#include "connectd/link.h"
#include "proto/hub/json.h"
#include "proto/ipc/work.h"
#include "tests/unit/fake_hubconn.h"
#include "tests/unit/unit.h"

/* A record connectd sent to workerd. */
struct rig_rec {
	struct rig_rec *next;
	uint16_t type;
	uint32_t id;
	size_t len;
	uint8_t data[];
};

struct rig {
	struct loop *loop;
	struct conf conf;
	struct policy policy;
	struct device_caps device;
	struct cred_store cred;
	struct clock_floor clock;
	struct mirror mirror;
	struct workchan work;
	struct link link;
	struct ipc_chan w;		/* workerd's end */
	struct ipc_conf w_conf;
	struct rig_rec *recs, **recs_tail;
	unsigned w_ended;
	char dir[64];
	struct json_doc *doc;		/* of the last frame taken */
	char taken_type[64];
};

extern struct rig rig;

void rig_setup(const char *conf_text);	/* NULL = a good configuration */
void rig_teardown(void);

void rig_turn(void);			/* lets everything happen that is due now */
void rig_advance(int64_t ms);		/* the clock moves in small steps */
int64_t rig_ms(void);			/* the mock clock */
int64_t rig_wall(void);			/* now, ns */
void rig_set_wall(int64_t ns);

void rig_enrolled(void);		/* a credential is there */
/* A workerd comes: HELLO, then CAPS, its workloads, SNAP_END; in two steps or in one. */
void rig_workerd_hello(void);
void rig_workerd_lists(const struct work_workload *list, size_t n);
void rig_workerd(const struct work_workload *list, size_t n);
void rig_workerd_dies(void);
struct work_workload rig_running(uint32_t wid, const char *handle, uint64_t produced);
struct work_workload rig_ended(uint32_t wid, const char *handle, uint64_t produced, int32_t exit_code);
void rig_tell(const struct work_workload *w);
void rig_send(uint16_t type, const void *data, size_t len);
void rig_output(uint32_t wid, uint32_t epoch, uint64_t offset, const void *data, size_t len);
void rig_output_end(uint32_t wid, uint32_t epoch, uint64_t total, const uint8_t *digest);
void rig_gone(uint32_t wid);
void rig_answer(uint16_t type, uint32_t id, enum work_refusal refusal, uint32_t wid, const char *error);

/* The next record of a type; records of other types before it are dropped. NULL when there is none. Freed by the rig. */
const struct rig_rec *rig_rec(uint16_t type);
unsigned rig_count(uint16_t type);	/* records of a type that wait */
void rig_forget(void);			/* drops all that wait */
const struct work_sub *rig_sub(void);	/* the next SUB, or fails */

/* Up to the hello, up to the first heartbeat. */
void rig_open(bool edgeward1);
void rig_connect(bool edgeward1, const char *verdicts);
void rig_hub(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * The next frame of a type that connectd sent; text frames of other types before it are dropped. Its payload, valid until
 * the next call, or NULL when there is none. "binary" takes a binary message.
 */
const struct json *rig_frame(const char *type);
/* The type of the next message of any kind, which is taken; "" = none. rig_payload() has its payload. */
const char *rig_next(void);
const struct json *rig_payload(void);
const struct json *rig_envelope(void);
void rig_drop_frames(void);

/* ---- what test programs share ---- */

/* Set-up and tear-down of one test: enrolled, without and with a workerd that holds nothing. */
int rig_test_setup(void **state);
int rig_test_setup_up(void **state);
int rig_test_teardown(void **state);

/* A session up to its welcome, on cloop, with nothing held. */
void rig_session_up(void);

/* The connection ends with this. */
void rig_lose(enum hubconn_cause cause, int http, uint16_t code, const char *name);

/* How long until the next attempt. */
int64_t rig_wait_ms(void);

/* Members of a frame; "(none)" and -999 for what is not there. */
const char *rig_str(const struct json *obj, const char *key);
int64_t rig_num(const struct json *obj, const char *key);

/* A start frame. */
#define RIG_START(id, h) "{\"v\":1,\"type\":\"start\",\"id\":\"" id "\",\"handle\":\"" h "\",\"payload\":{\"handle_id\":\"" h "\"," \
	"\"spec\":{\"work_dir\":\"p\",\"argv\":[\"/bin/true\"],\"resource_limits\":{}}}}"

#endif
