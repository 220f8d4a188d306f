#include "workerd/placing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ipc/launch.h"

static int
find_dirs(struct placing *p, const struct work_spec *spec)
{
	struct secret s;
	struct wire_r r;

	wire_r_init(&r, spec->secrets.s, spec->secrets.len);
	while (secret_next(&r, &s) == 1) {
		unsigned i = 0;

		if (s.kind != SECRET_FILE)
			continue;
		p->files = true;
		while (i < p->ndirs && strcmp(p->dirs[i], s.dir) != 0)
			i++;
		if (i == PLACING_DIRS)
			return -E2BIG;
		if (i == p->ndirs)
			snprintf(p->dirs[p->ndirs++], SECRET_DIR_SIZE, "%s", s.dir);
	}
	return 0;
}

void
placing_real(const struct placing *p, const char *dir, char real[PLACING_REAL])
{
	real[0] = '\0';
	for (unsigned i = 0; i < p->ndirs; i++)
		if (strcmp(p->dirs[i], dir) == 0)
			snprintf(real, PLACING_REAL, LAUNCH_SECRETS "/" LAUNCH_LEASE_DIR "%u", i + 1);
}

bool
placing_is_path(const char *value, size_t len)
{
	static const char start[] = LAUNCH_SECRETS "/" LAUNCH_LEASE_DIR;

	return len >= sizeof(start) && memcmp(value, start, sizeof(start) - 1) == 0;
}

/* True if the name that ends before p cannot go on there. */
static bool
ends_here(const char *p, const char *end)
{
	static const char more[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	return p == end || *p == '\0' || strchr(more, *p) == NULL;
}

/* The directory that stands at p, the longest of several; its length, 0 = none. */
static size_t
dir_at(const struct placing *p, const char *s, const char *end, char real[PLACING_REAL])
{
	size_t best = 0;

	for (unsigned i = 0; i < p->ndirs; i++) {
		size_t n = strlen(p->dirs[i]);

		if (n > best && n <= (size_t)(end - s) && memcmp(s, p->dirs[i], n) == 0 && ends_here(s + n, end)) {
			best = n;
			placing_real(p, p->dirs[i], real);
		}
	}
	return best;
}

/* Writes a variable with the real directories to dst, or counts when that is NULL. */
static size_t
rewrite(const struct placing *p, const struct work_str *var, char *dst)
{
	const char *end = var->s + var->len, *s = var->s;
	const char *eq = memchr(var->s, '=', var->len);
	char real[PLACING_REAL];
	size_t n = 0;

	while (s < end) {
		size_t len = s > eq && *s == '/' ? dir_at(p, s, end, real) : 0;
		const char *from = len > 0 ? real : s;
		size_t take = len > 0 ? strlen(real) : 1;

		if (dst != NULL)
			memcpy(dst + n, from, take);
		n += take;
		s += len > 0 ? len : 1;
	}
	return n;
}

int
placing_make(struct placing *p, struct work_spec *spec)
{
	size_t used = 0;
	int r;

	*p = (struct placing){ 0 };
	r = find_dirs(p, spec);
	if (r < 0 || p->ndirs == 0)
		return r;
	for (uint32_t i = 0; i < spec->envc; i++)
		p->text_size += rewrite(p, &spec->env[i], NULL);
	p->text = malloc(p->text_size + 1);
	if (p->text == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < spec->envc; i++) {
		size_t n = rewrite(p, &spec->env[i], p->text + used);

		spec->env[i] = (struct work_str){ p->text + used, n };
		used += n;
	}
	return 0;
}

int
placing_for_init(const struct placing *p, const struct work_spec *spec, uint8_t *buf, size_t size, size_t *ret_len)
{
	char real[PLACING_REAL];
	struct secret s;
	struct wire_r r;
	struct wire_w w;

	wire_r_init(&r, spec->secrets.s, spec->secrets.len);
	wire_w_init(&w, buf, size);
	while (secret_next(&r, &s) == 1) {
		if (s.kind != SECRET_FILE)
			continue;
		placing_real(p, s.dir, real);
		snprintf(s.dir, sizeof(s.dir), "%s", real);
		s.lease[0] = s.grant[0] = '\0';	/* it is not asked about them */
		secret_put(&w, &s);
	}
	return wire_w_done(&w, ret_len);
}

void
placing_done(struct placing *p)
{
	if (p->text != NULL)
		explicit_bzero(p->text, p->text_size);
	free(p->text);
	*p = (struct placing){ 0 };
}
