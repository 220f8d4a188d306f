/* Encoding and checks of admin.h: pure, fuzzed. */
#include <errno.h>
#include <string.h>

#include "hub/adminpipe.h"
#include "hub/admin.h"
#include "hub/adminattach.h"
#include "hub/adminharness.h"
#include "hub/adminupgrade.h"
#include "hub/adminusb.h"
#include "hub/adminfile.h"
#include "hub/adminl2.h"
#include "proto/hub/svcroute.h"
#include "proto/hub/utf8.h"
#include "proto/ipc/device.h"
#include "proto/ipc/job.h"
#include "proto/ipc/secrets.h"
#include "proto/ipc/l2.h"
#include "proto/ipc/names.h"
#include "proto/ipc/priv.h"

bool
admin_upgrade_req_ok(const struct admin_upgrade_req *req)
{
	bool release = req->size != 0;

	return ipc_str_ok(req->device, sizeof(req->device)) && ipc_str_ok(req->target, sizeof(req->target)) &&
	    ipc_str_ok(req->sha256, sizeof(req->sha256)) && (req->flags & ~ADMIN_UPGRADE_NO_WAIT) == 0 && req->settle <= INT32_MAX &&
	    req->size <= INT64_MAX && req->sequence <= INT64_MAX &&
	    strspn(req->sha256, "0123456789abcdef") == (release ? 64 : 0) && req->sha256[release ? 64 : 0] == '\0' &&
	    utf8_valid_prefix((const uint8_t *)req->target, strlen(req->target), NULL) == strlen(req->target);
}

bool
admin_upgrade_ok(const struct admin_upgrade *ev)
{
	return ev->phase <= ADMIN_UPGRADE_OVER && ipc_str_ok(ev->outcome, sizeof(ev->outcome)) && ipc_str_ok(ev->from, sizeof(ev->from)) &&
	    ipc_str_ok(ev->to, sizeof(ev->to)) && ipc_str_ok(ev->text, sizeof(ev->text));
}

bool
admin_file_ok(const struct admin_file *req)
{
	return ipc_str_ok(req->device, sizeof(req->device)) && ipc_str_ok(req->handle, sizeof(req->handle)) && handle_ok(req->handle) &&
	    ipc_str_ok(req->path, sizeof(req->path)) && file_path_ok(req->path) && utf8_valid_prefix((const uint8_t *)req->path,
	    strlen(req->path), NULL) == strlen(req->path) && req->put <= 1 && req->mode <= 0777 && req->size <= INT64_MAX &&
	    req->offset <= INT64_MAX;
}

bool
admin_text_ok(const struct admin_text *text)
{
	return ipc_str_ok(text->text, sizeof(text->text));
}

bool
admin_token_req_ok(const struct admin_token_req *req)
{
	return ipc_str_ok(req->name, sizeof(req->name));
}

bool
admin_runs_req_ok(const struct admin_runs_req *req)
{
	return ipc_str_ok(req->device, sizeof(req->device)) && (req->flags & ~ADMIN_RUNS_OPEN) == 0;
}

bool
admin_follow_ok(const struct admin_follow *req)
{
	return ipc_str_ok(req->handle, sizeof(req->handle)) && (req->flags & ~ADMIN_FOLLOW_WAIT) == 0 && req->reserved == 0;
}

bool
admin_away_ok(const struct admin_away *ev)
{
	return ipc_str_ok(ev->device, sizeof(ev->device)) && ipc_str_ok(ev->why, sizeof(ev->why)) && ev->state <= ADMIN_AWAY && ev->reserved == 0;
}

bool
admin_signal_ok(const struct admin_signal *req)
{
	return ipc_str_ok(req->handle, sizeof(req->handle)) && ipc_str_ok(req->signal, sizeof(req->signal)) &&
	    (strcmp(req->signal, "interrupt") == 0 || strcmp(req->signal, "terminate") == 0 ||
	    strcmp(req->signal, "kill") == 0);
}

bool
admin_secret_revoke_ok(const struct admin_secret_revoke *req)
{
	return ipc_str_ok(req->handle, sizeof(req->handle)) && ipc_str_ok(req->name, sizeof(req->name)) && req->kill <= 1 &&
	    req->reserved == 0;
}

int
admin_start_more(void *buf, size_t size, size_t *len, const void *items, size_t nitems, const char *devices, enum work_network network,
    const struct firewall *fw)
{
	bool net = network != WORK_NETWORK_DEFAULT;
	struct wire_w w;
	size_t more;
	int r;

	wire_w_init(&w, (uint8_t *)buf + *len, size - *len);
	if (nitems > 0 || devices[0] != '\0' || net)
		wire_put_bytes(&w, items, nitems);
	if (devices[0] != '\0' || net)
		wire_put_str(&w, devices);
	if (net)
		wire_put_u8(&w, (uint8_t)network);
	if (network == WORK_NETWORK_FILTERED)
		fw_put(&w, fw);
	r = wire_w_done(&w, &more);
	if (r == 0)
		*len += more;
	return r;
}

static bool
take_network(struct wire_r *r, struct admin_start *start)
{
	static struct firewall fw;
	uint8_t network = wire_u8(r);

	if (network == WORK_NETWORK_DEFAULT || network > WORK_NETWORK_HOST)
		return false;
	start->net.network = (enum work_network)network;
	if (start->net.network != WORK_NETWORK_FILTERED)
		return true;
	start->net.firewall = r->p;
	fw_get(r, &fw);
	start->net.firewall_len = (size_t)(r->p - start->net.firewall);
	return r->err == 0;
}

static const char *
check_args(struct admin_start *start)
{
	struct wire_r r = start->args;

	for (uint32_t i = 0; i < start->argc + start->envc; i++) {
		size_t len;
		const uint8_t *s = wire_bytes(&r, &len);

		if (s == NULL)
			return "cut off";
		if (memchr(s, '\0', len) != NULL || utf8_valid_prefix(s, len, NULL) != len)
			return "an argument or variable is not valid UTF-8, which the protocol to the device needs";
		if (i == 0 && len == 0)
			return "the command is empty";
		if (i >= start->argc && (len == 0 || s[0] == '=' || memchr(s, '=', len) == NULL))
			return "a variable is not of the form K=V";
	}
	if (r.p != r.end)
		start->secrets = wire_bytes(&r, &start->nsecrets);
	if (r.p != r.end)
		wire_str(&r, start->devices, sizeof(start->devices));
	if (r.p != r.end && !take_network(&r, start))
		return "the network of the run is none that can be asked for";
	if (start->nsecrets == 0)
		start->secrets = NULL;
	if (r.err == 0 && !device_list_ok(start->devices))
		return "a device to lend is no id of one";
	if (start->secrets != NULL && !secrets_ok(start->secrets, start->nsecrets))
		return "a secret has a name or size that cannot be used";
	return wire_done(&r) == 0 ? NULL : "trailing bytes";
}

int
admin_start_decode(struct admin_start *ret_start, const void *data, size_t len, const char **ret_why)
{
	struct admin_start s = { 0 };
	struct work_job job;

	*ret_why = "malformed request";
	if (len > ADMIN_SPEC_MAX) {
		*ret_why = "the command line and environment are too long";
		return -EBADMSG;
	}
	wire_r_init(&s.args, data, len);
	wire_str(&s.args, s.handle, sizeof(s.handle));
	wire_str(&s.args, s.device, sizeof(s.device));
	wire_str(&s.args, s.work_dir, sizeof(s.work_dir));
	s.limits.timeout_ms = wire_i64(&s.args);
	s.limits.cpu_millis = wire_u32(&s.args);
	s.limits.memory_mb = wire_u32(&s.args);
	s.limits.pids = wire_u32(&s.args);
	s.limits.disk_mb = wire_u32(&s.args);
	s.limits.overflow = wire_u8(&s.args);
	s.job = wire_bytes(&s.args, &s.job_len);
	s.env_given = wire_u8(&s.args) != 0;
	s.argc = wire_u32(&s.args);
	s.envc = wire_u32(&s.args);
	if (s.args.err != 0 || !handle_ok(s.handle) || s.limits.timeout_ms < 0 || s.limits.overflow >= WORK_OVERFLOWS || (!s.env_given && s.envc != 0))
		return -EBADMSG;
	if (s.job_len > 0 && job_decode(&job, s.job, s.job_len) < 0)
		return -EBADMSG;
	if (s.argc == 0 || s.argc > ADMIN_ARGS_MAX || s.envc > ADMIN_ARGS_MAX) {
		*ret_why = s.argc == 0 ? "no command" : "too many arguments or variables";
		return -EBADMSG;
	}
	if (utf8_valid_prefix((const uint8_t *)s.work_dir, strlen(s.work_dir), NULL) != strlen(s.work_dir)) {
		*ret_why = "the work directory is not valid UTF-8";
		return -EBADMSG;
	}
	*ret_why = check_args(&s);
	if (*ret_why != NULL)
		return -EBADMSG;
	*ret_start = s;
	return 0;
}

const char *
admin_start_next(struct admin_start *start, size_t *ret_len)
{
	return (const char *)wire_bytes(&start->args, ret_len);
}

static uint32_t
count(char *const *strings)
{
	uint32_t n = 0;

	while (strings != NULL && strings[n] != NULL)
		n++;
	return n;
}

int
admin_start_encode(void *buf, size_t size, size_t *ret_len, const char *handle, const char *device,
    const char *work_dir, const struct admin_limits *limits, const void *job, size_t job_len, char *const argv[], char *const env[])
{
	struct wire_w w;
	uint32_t argc = count(argv), envc = count(env);

	wire_w_init(&w, buf, size);
	wire_put_str(&w, handle);
	wire_put_str(&w, device);
	wire_put_str(&w, work_dir);
	wire_put_i64(&w, limits->timeout_ms);
	wire_put_u32(&w, limits->cpu_millis);
	wire_put_u32(&w, limits->memory_mb);
	wire_put_u32(&w, limits->pids);
	wire_put_u32(&w, limits->disk_mb);
	wire_put_u8(&w, limits->overflow);
	wire_put_bytes(&w, job, job_len);
	wire_put_u8(&w, env != NULL);
	wire_put_u32(&w, argc);
	wire_put_u32(&w, envc);
	for (uint32_t i = 0; i < argc; i++)
		wire_put_str(&w, argv[i]);
	for (uint32_t i = 0; i < envc; i++)
		wire_put_str(&w, env[i]);
	return wire_w_done(&w, ret_len);
}

static bool
hex_or_none(const char s[8])
{
	return ipc_str_ok(s, 8) && (s[0] == '\0' || (strlen(s) == 4 && strspn(s, "0123456789abcdefABCDEF") == 4));
}

bool
admin_usb_ok(const struct admin_usb *req)
{
	return ipc_str_ok(req->device, sizeof(req->device)) && ipc_str_ok(req->id, sizeof(req->id)) && device_id_ok(req->id) &&
	    ipc_str_ok(req->handle, sizeof(req->handle)) && (req->handle[0] == '\0' || handle_ok(req->handle)) &&
	    ipc_str_ok(req->busid, sizeof(req->busid)) && device_busid_ok(req->busid) && hex_or_none(req->vendor) && hex_or_none(req->product);
}

bool
admin_l2_tap_ok(const struct admin_l2_tap *req)
{
	return ipc_str_ok(req->id, sizeof(req->id)) && name_ok(req->id);
}

bool
admin_l2_ok(const struct admin_l2 *req)
{
	struct l2_addr addr;
	uint8_t mac[6];

	for (unsigned i = 0; i < sizeof(req->addrs) / sizeof(req->addrs[0]); i++)
		if (!ipc_str_ok(req->addrs[i], sizeof(req->addrs[i])) || (req->addrs[i][0] != '\0' && !l2_addr_parse(req->addrs[i], &addr)))
			return false;
	return ipc_str_ok(req->device, sizeof(req->device)) && ipc_str_ok(req->id, sizeof(req->id)) && name_ok(req->id) &&
	    ipc_str_ok(req->handle, sizeof(req->handle)) && (req->handle[0] == '\0' || handle_ok(req->handle)) && priv_tap_name_ok(req->name) &&
	    ipc_str_ok(req->mac, sizeof(req->mac)) && (req->mac[0] == '\0' || l2_mac_parse(req->mac, mac)) &&
	    (req->mtu == 0 || (req->mtu >= PRIV_MTU_MIN && req->mtu <= PRIV_MTU_MAX)) && req->offload <= 1 && req->tap <= 1;
}

bool
admin_pipe_ok(const struct admin_pipe *req)
{
	return ipc_str_ok(req->device, sizeof(req->device)) && ipc_str_ok(req->purpose, sizeof(req->purpose)) &&
	    svcroute_purpose(req->purpose) != SVC_PURPOSES;
}

bool
admin_harness_req_ok(const struct admin_harness_req *req)
{
	return ipc_str_ok(req->device, sizeof(req->device)) && ipc_str_ok(req->name, sizeof(req->name)) &&
	    (req->name[0] == '\0' || harness_name_ok(req->name));
}

bool
admin_harness_ok(const struct admin_harness *ans)
{
	return ans->installed <= 1 && ans->present <= 1 && ans->fresh <= 1 && ipc_str_ok(ans->list, sizeof(ans->list)) &&
	    ipc_str_ok(ans->path, sizeof(ans->path)) && ipc_str_ok(ans->version, sizeof(ans->version)) &&
	    ipc_str_ok(ans->reason, sizeof(ans->reason));
}

bool
admin_attach_ok(const struct admin_attach *req)
{
	return ipc_str_ok(req->handle, sizeof(req->handle)) && req->handle[0] != '\0' && ipc_text_ok(req->session, sizeof(req->session)) &&
	    (req->flags & ~(ATTACH_TTY | ATTACH_INPUT | ATTACH_WATCH | ADMIN_ATTACH_OWN)) == 0;
}
