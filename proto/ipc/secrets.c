#include "proto/ipc/secrets.h"

#include <errno.h>
#include <string.h>

void
secret_put(struct wire_w *w, const struct secret *s)
{
	wire_put_u32(w, s->kind);
	wire_put_u32(w, s->mode);
	wire_put_str(w, s->lease);
	wire_put_str(w, s->grant);
	wire_put_str(w, s->dir);
	wire_put_str(w, s->name);
	wire_put_bytes(w, s->value, s->len);
}

bool
secret_name_ok(const char *name)
{
	return name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

bool
secret_dir_ok(const char *dir)
{
	if (dir[0] != '/' || dir[1] == '\0')
		return false;
	for (const char *p = dir; *p != '\0'; ) {
		size_t n = strcspn(++p, "/");

		if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += n;
	}
	return true;
}

bool
secret_ok(const struct secret *s)
{
	if (s->len > SECRET_FILE_MAX)
		return false;
	switch (s->kind) {
	case SECRET_FILE:
		return secret_name_ok(s->name) && secret_dir_ok(s->dir) && s->mode != 0 && (s->mode & ~0700u) == 0;
	case SECRET_ENV:
		return s->name[0] != '\0' && strchr(s->name, '=') == NULL && s->mode == 0 && s->dir[0] == '\0';
	case SECRET_PATH:
		return s->name[0] == '\0' && s->dir[0] != '\0' && s->mode == 0 && s->len == 0;
	default:
		return false;
	}
}

int
secret_next(struct wire_r *r, struct secret *ret_s)
{
	if (r->err == 0 && r->p == r->end)
		return 0;
	ret_s->kind = wire_u32(r);
	ret_s->mode = wire_u32(r);
	wire_str(r, ret_s->lease, sizeof(ret_s->lease));
	wire_str(r, ret_s->grant, sizeof(ret_s->grant));
	wire_str(r, ret_s->dir, sizeof(ret_s->dir));
	wire_str(r, ret_s->name, sizeof(ret_s->name));
	ret_s->value = wire_bytes(r, &ret_s->len);
	return r->err == 0 && secret_ok(ret_s) ? 1 : -EBADMSG;
}

bool
secrets_ok(const void *data, size_t len)
{
	size_t total = 0;
	unsigned n = 0;
	struct secret s;
	struct wire_r r;
	int got;

	wire_r_init(&r, data, len);
	while ((got = secret_next(&r, &s)) == 1) {
		total += s.kind == SECRET_FILE ? s.len : 0;
		if (++n > SECRETS_MAX || total > SECRET_TOTAL_MAX)
			return false;
	}
	return got == 0;
}

bool
secret_is_of(const struct secret *s, const char *lease, const char *want)
{
	return s->lease[0] != '\0' && strcmp(s->lease, lease) == 0 &&
	    (want[0] == '\0' || s->grant[0] == '\0' || strcmp(s->grant, want) == 0);
}
