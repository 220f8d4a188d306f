#include "proto/ipc/attach.h"

#include <errno.h>
#include <string.h>

#include "proto/ipc/ipc.h"
#include "proto/ipc/names.h"
#include "proto/ipc/outcome.h"
#include "proto/ipc/wire.h"

bool
attach_term_ok(const char *term)
{
	size_t n = 0;

	for (; term[n] != '\0'; n++)
		if (!((term[n] >= 'a' && term[n] <= 'z') || (term[n] >= 'A' && term[n] <= 'Z') || (term[n] >= '0' && term[n] <= '9') ||
		    term[n] == '+' || term[n] == '-' || term[n] == '.' || term[n] == '_'))
			return false;
	return n > 0 && n < ATTACH_TERM_SIZE;
}

static bool
command_ok(const struct attach_command *c)
{
	if (c->argc > ATTACH_ARGS_MAX || !attach_term_ok(c->term) || (c->argc > 0 && c->argv[0].len == 0))
		return false;
	for (uint32_t i = 0; i < c->argc; i++)
		if (c->argv[i].len > 0 && memchr(c->argv[i].s, '\0', c->argv[i].len) != NULL)
			return false;
	return true;
}

int
attach_command_encode(const struct attach_command *c, void *buf, size_t size, size_t *ret_len)
{
	struct wire_w w;

	if (!command_ok(c))
		return -EINVAL;
	wire_w_init(&w, buf, size < ATTACH_COMMAND_MAX ? size : ATTACH_COMMAND_MAX);
	wire_put_str(&w, c->term);
	wire_put_u32(&w, c->argc);
	for (uint32_t i = 0; i < c->argc; i++)
		wire_put_bytes(&w, c->argv[i].s, c->argv[i].len);
	return wire_w_done(&w, ret_len);
}

int
attach_command_decode(struct attach_command *ret_c, const void *data, size_t len)
{
	struct wire_r r;

	if (len > ATTACH_COMMAND_MAX)
		return -EBADMSG;
	wire_r_init(&r, data, len);
	wire_str(&r, ret_c->term, sizeof(ret_c->term));
	ret_c->argc = wire_u32(&r);
	if (r.err < 0 || ret_c->argc > ATTACH_ARGS_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < ret_c->argc; i++)
		ret_c->argv[i].s = (const char *)wire_bytes(&r, &ret_c->argv[i].len);
	return wire_done(&r) < 0 || !command_ok(ret_c) ? -EBADMSG : 0;
}

bool
attach_open_ok(const struct attach_open *o)
{
	bool there = (o->flags & (ATTACH_RESUME | ATTACH_WATCH)) != 0;

	return ipc_text_ok(o->session, sizeof(o->session)) && (o->session[0] != '\0' || !there) &&
	    ipc_str_ok(o->handle, sizeof(o->handle)) && handle_ok(o->handle) && ipc_text_ok(o->who, sizeof(o->who)) &&
	    (o->flags & ~ATTACH_FLAGS) == 0 && (o->flags & (ATTACH_RESUME | ATTACH_WATCH)) != (ATTACH_RESUME | ATTACH_WATCH) &&
	    (o->from == 0 || there);
}

bool
attach_answer_ok(const struct attach_answer *a)
{
	return a->refusal <= WORK_REFUSED_UNKNOWN_HANDLE && (a->flags & ~(ATTACH_TTY | ATTACH_INPUT)) == 0 &&
	    ipc_text_ok(a->session, sizeof(a->session)) && ipc_str_ok(a->error, sizeof(a->error));
}

bool
attach_end_ok(const struct attach_end *e)
{
	return e->exit_code >= -1 && e->exit_code <= 255 && ipc_str_ok(e->reason, sizeof(e->reason));
}

bool
init_attach_ok(const struct init_attach *a)
{
	return (a->flags & ~(ATTACH_TTY | ATTACH_INPUT)) == 0;
}
