#include "common/parse.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Reads digits; *ret_rest is the first character after them. */
static int
digits(const char *s, uint64_t *ret_v, const char **ret_rest)
{
	uint64_t v = 0;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	*ret_v = v;
	*ret_rest = s;
	return 0;
}

struct unit {
	const char *name;
	uint64_t factor;
};

static int
scaled(const char *s, const struct unit *units, size_t nunits, uint64_t *ret_v)
{
	const char *rest;
	uint64_t v;
	int r = digits(s, &v, &rest);

	if (r < 0)
		return r;
	for (size_t i = 0; i < nunits; i++)
		if (strcmp(rest, units[i].name) == 0)
			return __builtin_mul_overflow(v, units[i].factor, ret_v) ? -ERANGE : 0;
	return -EINVAL;
}

static int
ranged(const char *s, const struct unit *units, size_t nunits, uint64_t min, uint64_t max, uint64_t *ret_v)
{
	uint64_t v;
	int r = scaled(s, units, nunits, &v);

	if (r < 0)
		return r;
	if (v < min || v > max)
		return -ERANGE;
	*ret_v = v;
	return 0;
}

int
parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret_v)
{
	static const struct unit none[] = { { "", 1 } };

	return ranged(s, none, 1, min, max, ret_v);
}

int
parse_u32(const char *s, uint32_t min, uint32_t max, uint32_t *ret_v)
{
	uint64_t v;
	int r = parse_u64(s, min, max, &v);

	if (r == 0)
		*ret_v = (uint32_t)v;
	return r;
}

int
parse_duration_ms(const char *s, int64_t min_ms, int64_t max_ms, int64_t *ret_ms)
{
	static const struct unit units[] = {
		{ "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 },
	};
	uint64_t v;
	int r = scaled(s, units, sizeof(units) / sizeof(units[0]), &v);

	if (r < 0)
		return r;
	if (v > INT64_MAX || (int64_t)v < min_ms || (int64_t)v > max_ms)
		return -ERANGE;
	*ret_ms = (int64_t)v;
	return 0;
}

int
parse_size(const char *s, uint64_t min, uint64_t max, uint64_t *ret_bytes)
{
	static const struct unit units[] = {
		{ "", 1 }, { "K", 1024 }, { "M", 1024 * 1024 }, { "G", 1024 * 1024 * 1024 },
	};

	return ranged(s, units, sizeof(units) / sizeof(units[0]), min, max, ret_bytes);
}

int
parse_yes_no(const char *s, int *ret_v)
{
	if (strcmp(s, "yes") != 0 && strcmp(s, "no") != 0)
		return -EINVAL;
	*ret_v = s[0] == 'y';
	return 0;
}
