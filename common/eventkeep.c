#include "common/eventkeep.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/eventlog.h"

struct line {
	uint32_t at, len;	/* with its newline */
	uint8_t kind;
	bool stays;
};

struct kinds {
	char name[EVENTKEEP_KINDS][sizeof(((struct ctl_event *)0)->kind)];
	size_t size[EVENTKEEP_KINDS], used[EVENTKEEP_KINDS];
	bool full[EVENTKEEP_KINDS];
	unsigned n;
};

static unsigned
kind_of(struct kinds *k, const char *name)
{
	unsigned i = 0;

	while (i < k->n && strcmp(k->name[i], name) != 0)
		i++;
	if (i < k->n)
		return i;
	if (k->n == EVENTKEEP_KINDS)
		return EVENTKEEP_KINDS - 1;
	memcpy(k->name[k->n], name, sizeof(k->name[0]));
	return k->n++;
}

static size_t
split(const char *lines, size_t len, struct line *list, struct kinds *k)
{
	const char *p = lines, *end = lines + len, *nl;
	struct ctl_event e;
	size_t n = 0;

	for (; (nl = memchr(p, '\n', (size_t)(end - p))) != NULL; p = nl + 1) {
		if (eventlog_parse(p, (size_t)(nl - p), &e) < 0)
			continue;
		list[n] = (struct line){ .at = (uint32_t)(p - lines), .len = (uint32_t)(nl + 1 - p), .kind = (uint8_t)kind_of(k, e.kind) };
		k->size[list[n].kind] += list[n].len;
		n++;
	}
	return n;
}

static size_t
total(const struct kinds *k, size_t share)
{
	size_t sum = 0;

	for (unsigned i = 0; i < k->n; i++)
		sum += k->size[i] < share ? k->size[i] : share;
	return sum;
}

/* The largest with which all of them together fit. */
static size_t
fair_share(const struct kinds *k, size_t max)
{
	size_t low = 0, high = max;

	while (low < high) {
		size_t mid = low + (high - low + 1) / 2;

		if (total(k, mid) <= max)
			low = mid;
		else
			high = mid - 1;
	}
	return low;
}

int
eventkeep(const char *lines, size_t len, char *out, size_t max, size_t *ret_len)
{
	_cleanup_free_ struct line *list = NULL;
	struct kinds k = { .n = 0 };
	size_t n = 0, share;

	*ret_len = 0;
	for (size_t i = 0; i < len; i++)
		n += lines[i] == '\n';
	list = calloc(n + 1, sizeof(*list));
	if (list == NULL)
		return -ENOMEM;
	n = split(lines, len, list, &k);
	share = fair_share(&k, max);
	for (size_t i = n; i-- > 0;) {
		struct line *l = &list[i];

		k.full[l->kind] = k.full[l->kind] || k.used[l->kind] + l->len > share;
		l->stays = !k.full[l->kind];
		k.used[l->kind] += l->stays ? l->len : 0;
	}
	for (size_t i = 0; i < n; i++) {
		if (!list[i].stays)
			continue;
		memcpy(out + *ret_len, lines + list[i].at, list[i].len);
		*ret_len += list[i].len;
	}
	return 0;
}
