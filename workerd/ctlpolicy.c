/*
 * Who calls: an operator, through workerd.sock. Nothing here changes anything: the policy is root's file, and a test goes
 * through the checks of a start and stops before the first thing is made.
 */
#include "workerd/ctlpolicy.h"

#include <stdio.h>
#include <string.h>

#include "proto/ipc/ctl.h"
#include "workerd/start.h"

int
ctlpolicy_show(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	const struct workerd *w = ctx;
	struct ipc_hdr hdr = { .type = CTL_EV_POLICY_KEY, .id = msg->hdr.id };
	struct ctl_policy ans = { .denied = w->policy.denied, .changed = keyfile_changed(&w->policy.mark) };
	struct {
		struct ctl_policy_key head;
		char value[CTL_POLICY_VALUE_MAX];
	} out;
	int r = 0;

	for (int i = 0; i < POLICY_KEYS && r == 0 && !w->policy.denied; i++) {
		const struct key *key = policy_key_info((enum policy_key)i);

		memset(&out.head, 0, sizeof(out.head));
		out.head.line = w->policy.lines[i];
		snprintf(out.head.section, sizeof(out.head.section), "%s", key->section);
		snprintf(out.head.name, sizeof(out.head.name), "%s", key->name);
		policy_value(&w->policy, (enum policy_key)i, out.value, sizeof(out.value));
		r = ipc_send_fds(chan, &hdr, &out, sizeof(out.head) + strlen(out.value), NULL, 0);
	}
	snprintf(ans.file, sizeof(ans.file), "%s", w->policy_file);
	snprintf(ans.problem, sizeof(ans.problem), "%s", w->policy.problem);
	return r < 0 ? r : ipc_answer(chan, &msg->hdr, 0, &ans, sizeof(ans));
}

/* For show: what is no printable ASCII is not shown. */
static void
put_text(char *buf, size_t size, const char *s, size_t len)
{
	for (size_t i = 0; i < len && i + 1 < size; i++)
		buf[i] = s[i] >= ' ' && s[i] <= '~' ? s[i] : '?';
}

int
ctlpolicy_test(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	static struct work_str argv[WORK_ARGV_MAX], env[WORK_ENV_MAX];
	static uint8_t buf[WORK_SPEC_MAX];
	static struct work_net net;
	struct work_spec spec = { .argv = argv, .env = env, .net = &net };
	struct ctl_verdict v = { .refusal = WORK_REFUSED_BAD_SPEC };
	uint32_t flags;
	size_t len;
	const uint8_t *data = workload_spec_bytes(msg, buf, &len);
	char error[sizeof(v.error)] = "malformed specification";

	if (work_spec_decode(&spec, data, len) == 0)
		v.refusal = workload_would_start(ctx, &spec, error, &flags);
	if (v.refusal == WORK_OK) {
		v.timeout_s = spec.timeout_s;
		v.memory_bytes = spec.memory_bytes;
		v.pids = spec.pids;
		v.cpu_millis = spec.cpu_millis;
		v.network = spec.network;
		put_text(v.program, sizeof(v.program), spec.argv[0].s, spec.argv[0].len);
		put_text(v.work_dir, sizeof(v.work_dir), spec.work_dir, strlen(spec.work_dir));
	} else {
		snprintf(v.error, sizeof(v.error), "%s", error);
	}
	explicit_bzero((void *)data, len);	/* environments may hold secrets */
	return ipc_answer(chan, &msg->hdr, 0, &v, sizeof(v));
}
