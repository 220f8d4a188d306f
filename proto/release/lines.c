#include "proto/release/lines.h"

#include <errno.h>
#include <string.h>

void
lines_init(struct lines *l, const void *data, size_t len)
{
	*l = (struct lines){ .p = data, .end = (const char *)data + len };
}

/* The line at p has this key: where its value begins, else NULL. */
static const char *
value_of(const struct lines *l, const char *key)
{
	size_t n = strlen(key);

	if (l->err != 0 || (size_t)(l->end - l->p) <= n || memcmp(l->p, key, n) != 0 || l->p[n] != ' ')
		return NULL;
	return l->p + n + 1;
}

static bool
printable(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] < 0x20 || s[i] > 0x7e)
			return false;
	return n > 0 && s[0] != ' ' && s[n - 1] != ' ';
}

bool
lines_take(struct lines *l, const char *key, char *value, size_t size)
{
	const char *v = value_of(l, key), *nl;
	size_t n;

	if (v == NULL)
		return false;
	nl = memchr(v, '\n', (size_t)(l->end - v));
	n = nl != NULL ? (size_t)(nl - v) : 0;
	if (n > LINES_VALUE_MAX || n >= size || !printable(v, n)) {
		l->err = -EBADMSG;
		return false;
	}
	memcpy(value, v, n);
	value[n] = '\0';
	l->p = nl + 1;
	return true;
}

void
lines_need(struct lines *l, const char *key, char *value, size_t size)
{
	if (!lines_take(l, key, value, size))
		l->err = -EBADMSG;
}

int
lines_number(const char *s, uint64_t min, uint64_t max, uint64_t *ret_v)
{
	uint64_t v = 0;

	if (s[0] == '\0' || (s[0] == '0' && s[1] != '\0'))
		return -EBADMSG;
	for (; *s != '\0'; s++)
		if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -EBADMSG;
	if (v < min || v > max)
		return -EBADMSG;
	*ret_v = v;
	return 0;
}

void
lines_need_u64(struct lines *l, const char *key, uint64_t min, uint64_t max, uint64_t *ret_v)
{
	char buf[24];

	lines_need(l, key, buf, sizeof(buf));
	if (l->err == 0)
		l->err = lines_number(buf, min, max, ret_v);
}

int
lines_done(const struct lines *l)
{
	return l->err != 0 ? l->err : l->p == l->end ? 0 : -EBADMSG;
}

const char *
lines_word(const char *value, char *word, size_t size)
{
	size_t n = strcspn(value, " ");

	if (value[n] == '\0' || value[n + 1] == '\0' || value[n + 1] == ' ' || n == 0 || n >= size)
		return NULL;
	memcpy(word, value, n);
	word[n] = '\0';
	return value + n + 1;
}
