/*
 * Records of workerd (first byte even) or of a control client (odd) to connectd: type, length and bytes of each go
 * through the table and its handlers. A session is up, so that output is passed on.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "connectd/control.h"
#include "tests/unit/fake_hubconn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct loop *loop;
static struct conf conf;
static struct policy policy;
static struct device_caps device;
static struct mirror mirror;
static struct workchan work;
static struct privchan priv;
static struct cred_store cred;
static struct clock_floor clock_;
static struct link link_;
static struct control control;

static void
nothing(void *ctx)
{
}

static void
set_up(void)
{
	static const char text[] = "[hub]\nurl = wss://h\n";
	char err[CONF_ERR_SIZE];

	log_init("fuzz", LOG_LEVEL_ERROR);
	if (loop_new(&loop) < 0 || conf_parse(&conf, "c", text, sizeof(text) - 1, err) < 0 ||
	    policy_parse(&policy, "p", "", 0, err) < 0 || caps_init(&device, "", err) < 0)
		abort();
	/* A directory that can hold nothing: no run leaves a trace for the next. */
	cred.dirfd = clock_.dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void
feed(const struct ipc_rule *rules, size_t nrules, void *ctx, struct ipc_chan *chan, const uint8_t *p, size_t size)
{
	while (size >= 4) {
		size_t len = (size_t)(p[2] << 8 | p[3]), n = len < size - 4 ? len : size - 4;
		struct ipc_msg msg = { .hdr = { .type = (uint16_t)(p[0] << 8 | p[1]), .len = (uint32_t)n, .id = 1 } };
		const struct ipc_rule *rule = ipc_rule_find(rules, nrules, IPC_ST_OPEN | IPC_ST_HELLO, &msg.hdr);

		if (rule != NULL) {
			struct workchan *wc = rules == workchan_rules ? ctx : NULL;
			uint8_t *own = NULL;

			/* As take_record() does it: into the link's buffer where there is room. */
			if (wc != NULL && wc->listener != NULL && wc->listener->rx_buffer != NULL)
				own = wc->listener->rx_buffer(wc->listener_ctx);
			msg.data = own != NULL ? own : malloc(n + 1);
			memcpy(msg.data, p + 4, n);
			rule->handler(chan, &msg, ctx);
			if (own == NULL)
				free(msg.data);
		}
		p += 4 + n;
		size -= 4 + n;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char welcome[] = "{\"v\":1,\"type\":\"welcome\",\"payload\":{\"protocol_version\":1,\"executor_id\":\"a\"}}";
	struct link_params params = { .conf = &conf, .policy = &policy, .device = &device, .cred = &cred, .clock = &clock_,
		.mirror = &mirror, .work = &work };

	if (loop == NULL)
		set_up();
	params.loop = loop;
	cred.state = CRED_GOOD;
	strcpy(cred.cred.credential, "x");
	mirror_init(&mirror);
	workchan_init(&work, loop, &mirror, nothing, NULL);
	privchan_init(&priv, loop, &work, "/nowhere");
	work.synced = mirror.known = true;
	link_init(&link_, &params);
	control_init(&control, loop, -1, &link_, &priv);
	link_kick(&link_);
	fake_open(fake_conn(), size > 0 && (data[0] & 2) != 0);
	fake_text(fake_conn(), welcome);
	if (size > 0 && (data[0] & 4) != 0)
		fake_conn()->room = 100;	/* a link that is soon full */
	if (size > 0 && (data[0] & 1) == 0) {
		feed(workchan_rules, workchan_nrules, &work, &work.chan, data + 1, size - 1);
	} else if (size > 0) {
		struct control_client *cl = &control.clients[0];

		*cl = (struct control_client){ .control = &control, .in_use = true };
		feed(control_rules, control_nrules, cl, &cl->chan, data + 1, size - 1);
	}
	loop_turn(loop, 0);
	control_done(&control);
	link_done(&link_);
	privchan_done(&priv);
	workchan_done(&work);
	mirror_done(&mirror);
	return 0;
}
