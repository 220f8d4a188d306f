#include "proto/ipc/spec.h"

#include <errno.h>
#include <string.h>

#include "proto/ipc/secrets.h"
#include "proto/ipc/wire.h"

static bool
str_ok(const struct work_str *s)
{
	return s->s != NULL && memchr(s->s, '\0', s->len) == NULL;
}

static bool
env_ok(const struct work_str *s)
{
	const char *eq = str_ok(s) ? memchr(s->s, '=', s->len) : NULL;

	return eq != NULL && eq != s->s;
}

static bool
spec_ok(const struct work_spec *spec)
{
	if (!handle_ok(spec->handle) || spec->argc < 1 || spec->argc > WORK_ARGV_MAX ||
	    spec->network > WORK_NETWORK_HOST || spec->overflow >= WORK_OVERFLOWS || (spec->network == WORK_NETWORK_FILTERED && spec->net == NULL) ||
	    spec->envc > WORK_ENV_MAX || spec->argv[0].len == 0 || (!spec->env_given && spec->envc != 0))
		return false;
	for (uint32_t i = 0; i < spec->argc; i++)
		if (!str_ok(&spec->argv[i]))
			return false;
	for (uint32_t i = 0; i < spec->envc; i++)
		if (!env_ok(&spec->env[i]))
			return false;
	return device_list_ok(spec->devices) && (spec->secrets.len == 0 || secrets_ok(spec->secrets.s, spec->secrets.len));
}

static const char *const overflows[WORK_OVERFLOWS] = { "", "wait", "wait-forever", "drop" };

int
work_overflow_parse(const char *word)
{
	for (int i = WORK_OVERFLOW_WAIT; i < WORK_OVERFLOWS; i++)
		if (strcmp(word, overflows[i]) == 0)
			return i;
	return -EINVAL;
}

const char *
work_overflow_name(enum work_overflow overflow)
{
	return overflows[overflow];
}

static void
put_net(struct wire_w *w, const struct work_spec *spec)
{
	wire_put_u8(w, spec->network);
	if (spec->network != WORK_NETWORK_FILTERED)
		return;
	fw_put(w, &spec->net->rules);
	wire_put_u8(w, spec->net->bounded);
	if (spec->net->bounded)
		fw_put(w, &spec->net->bound);
}

int
work_spec_encode(const struct work_spec *spec, void *buf, size_t size, size_t *ret_len)
{
	struct wire_w w;

	if (!spec_ok(spec))
		return -EINVAL;
	wire_w_init(&w, buf, size);
	wire_put_str(&w, spec->handle);
	wire_put_str(&w, spec->work_dir);
	wire_put_u32(&w, spec->timeout_s);
	wire_put_u32(&w, spec->asked_s);
	wire_put_u32(&w, spec->cpu_millis);
	wire_put_u64(&w, spec->memory_bytes);
	wire_put_u64(&w, spec->disk_bytes);
	wire_put_u32(&w, spec->pids);
	wire_put_u8(&w, spec->env_given);
	wire_put_u32(&w, spec->argc);
	for (uint32_t i = 0; i < spec->argc; i++)
		wire_put_bytes(&w, spec->argv[i].s, spec->argv[i].len);
	wire_put_u32(&w, spec->envc);
	for (uint32_t i = 0; i < spec->envc; i++)
		wire_put_bytes(&w, spec->env[i].s, spec->env[i].len);
	wire_put_bytes(&w, spec->secrets.s, spec->secrets.len);
	wire_put_str(&w, spec->devices);
	wire_put_bytes(&w, spec->job.s, spec->job.len);
	wire_put_u8(&w, spec->overflow);
	put_net(&w, spec);
	return wire_w_done(&w, ret_len);
}

static void
get_list(struct wire_r *r, struct work_str *list, uint32_t max, uint32_t *ret_n)
{
	uint32_t n = wire_u32(r);

	if (n > max)
		r->err = -EBADMSG;
	*ret_n = r->err == 0 ? n : 0;
	for (uint32_t i = 0; i < *ret_n; i++)
		list[i].s = (const char *)wire_bytes(r, &list[i].len);
}

static void
get_net(struct wire_r *r, struct work_spec *spec)
{
	uint8_t bounded;

	spec->network = wire_u8(r);
	if (spec->network != WORK_NETWORK_FILTERED || spec->net == NULL)
		return;
	fw_get(r, &spec->net->rules);
	bounded = wire_u8(r);
	spec->net->bounded = bounded == 1;
	if (spec->net->bounded)
		fw_get(r, &spec->net->bound);
	if (bounded > 1)
		r->err = -EBADMSG;
}

int
work_spec_decode(struct work_spec *spec, const void *data, size_t len)
{
	struct wire_r r;
	uint8_t given;

	wire_r_init(&r, data, len);
	wire_str(&r, spec->handle, sizeof(spec->handle));
	wire_str(&r, spec->work_dir, sizeof(spec->work_dir));
	spec->timeout_s = wire_u32(&r);
	spec->asked_s = wire_u32(&r);
	spec->cpu_millis = wire_u32(&r);
	spec->memory_bytes = wire_u64(&r);
	spec->disk_bytes = wire_u64(&r);
	spec->pids = wire_u32(&r);
	given = wire_u8(&r);
	spec->env_given = given == 1;
	get_list(&r, spec->argv, WORK_ARGV_MAX, &spec->argc);
	get_list(&r, spec->env, WORK_ENV_MAX, &spec->envc);
	spec->secrets.s = (const char *)wire_bytes(&r, &spec->secrets.len);
	wire_str(&r, spec->devices, sizeof(spec->devices));
	spec->job.s = (const char *)wire_bytes(&r, &spec->job.len);
	spec->overflow = wire_u8(&r);
	get_net(&r, spec);
	if (wire_done(&r) < 0 || given > 1 || !spec_ok(spec))
		return -EBADMSG;
	return 0;
}

void
work_spec_strings(const struct work_str *from, uint32_t n, char *data, char **list)
{
	for (uint32_t i = 0; i < n; i++) {
		list[i] = data + (from[i].s - data);	/* from[i].s without its const */
		list[i][from[i].len] = '\0';
	}
	list[n] = NULL;
}
