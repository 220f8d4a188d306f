#include "proto/release/version.h"

#include <stddef.h>
#include <string.h>

/* The digits at p, without leading zeros; how many there are. */
static size_t
number(const char **p)
{
	*p += strspn(*p, "0");
	return strspn(*p, "0123456789");
}

static int
cmp_numbers(const char **a, const char **b)
{
	size_t na = number(a), nb = number(b);
	int r = na != nb ? (na < nb ? -1 : 1) : strncmp(*a, *b, na);

	*a += na;
	*b += nb;
	return r;
}

static size_t
suffix_len(const char *s)
{
	return strcspn(s, "+");
}

int
release_version_cmp(const char *a, const char *b)
{
	int r;

	a += *a == 'v';
	b += *b == 'v';
	do {
		r = cmp_numbers(&a, &b);
		if (r != 0)
			return r;
		a += *a == '.';
		b += *b == '.';
	} while (strchr("0123456789", *a) != NULL && strchr("0123456789", *b) != NULL && (*a != '\0' || *b != '\0'));
	if (suffix_len(a) == 0 || suffix_len(b) == 0)
		return suffix_len(a) == suffix_len(b) ? 0 : suffix_len(a) == 0 ? 1 : -1;
	r = strncmp(a, b, suffix_len(a) > suffix_len(b) ? suffix_len(a) : suffix_len(b));
	return r;
}
