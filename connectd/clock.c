#include "connectd/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/keptcopy.h"
#include "common/parse.h"
#include "connectd/statefile.h"

#define FILE_MAX	128
#define YEAR_NS		(INT64_C(365) * 86400 * 1000000000)
#define MAGIC		"edgeward-clock "
#define SCHEMA		(1u + SCHEMA_RAISED)

/* "edgeward-clock 1 NS CHECK\n", 1 being the schema number: the check is XXH64 of everything before it, 16 hex digits. */
static int
format(unsigned schema, int64_t ns, char *buf, size_t size)
{
	int n = snprintf(buf, size, MAGIC "%u %" PRId64 " ", schema, ns);

	return n + snprintf(buf + n, size - (size_t)n, "%016" PRIx64 "\n", (uint64_t)XXH64(buf, (size_t)n, 0));
}

static unsigned
schema_of(const uint8_t *data, size_t len)
{
	return schema_number(data, len, MAGIC);
}

static const struct schema file = { .name = CLOCK_FILE, .max = FILE_MAX, .now = SCHEMA, .of = schema_of };

static int
take(const uint8_t *data, size_t len, void *ctx)
{
	const char *text = (const char *)data + sizeof(MAGIC) - 1, *end;
	unsigned schema = schema_of(data, len);
	char number[24], again[FILE_MAX];
	uint64_t ns;
	size_t digits;

	if (schema == 0 || schema > SCHEMA || (end = memchr(text, ' ', len - (sizeof(MAGIC) - 1))) == NULL)
		return -EBADMSG;
	text = end + 1;
	end = memchr(text, ' ', len - (size_t)(text - (const char *)data));
	digits = end != NULL ? (size_t)(end - text) : sizeof(number);
	if (digits >= sizeof(number))
		return -EBADMSG;
	memcpy(number, text, digits);
	number[digits] = '\0';
	/* Written again it must be the same bytes: that covers the check, the spelling and the length at once. */
	if (parse_u64(number, 0, INT64_MAX, &ns) < 0 || (size_t)format(schema, (int64_t)ns, again, sizeof(again)) != len ||
	    memcmp(again, data, len) != 0)
		return -EBADMSG;
	*(int64_t *)ctx = (int64_t)ns;
	return 0;
}

static int64_t
ceiling(const struct clock_floor *c)
{
	return c->build_ns + CLOCK_YEARS_AHEAD * YEAR_NS;
}

void
clock_init(struct clock_floor *c, int dirfd, int64_t build_ns, bool *ret_damaged)
{
	int err;

	*c = (struct clock_floor){ .dirfd = dirfd, .build_ns = build_ns };
	(void)keptcopy_restore(dirfd, &file);
	*ret_damaged = statefile_load(dirfd, CLOCK_FILE, FILE_MAX, take, &c->saved_ns, NULL, &err) == STATEFILE_DAMAGED;
	if (c->saved_ns > ceiling(c))
		c->saved_ns = 0;
}

int64_t
clock_floor_ns(const struct clock_floor *c)
{
	return c->saved_ns > c->build_ns ? c->saved_ns : c->build_ns;
}

int64_t
clock_check_ns(const struct clock_floor *c, int64_t wall_ns)
{
	int64_t floor = clock_floor_ns(c);

	return wall_ns > floor ? wall_ns : floor;
}

bool
clock_implausible(const struct clock_floor *c, int64_t wall_ns)
{
	return wall_ns < clock_floor_ns(c);
}

int
clock_confirm(struct clock_floor *c, int64_t wall_ns, int64_t server_ns)
{
	char buf[FILE_MAX];
	/* With a sound clock of our own the earlier of the two is what both sides vouch for. */
	int64_t ns = clock_implausible(c, wall_ns) || server_ns < wall_ns ? server_ns : wall_ns;
	int r;

	if (server_ns <= 0 || ns > ceiling(c) || ns < clock_floor_ns(c) ||
	    (c->saved_ns != 0 && ns - c->saved_ns < CLOCK_SAVE_EVERY_NS))
		return 0;
	r = keptcopy_replace(c->dirfd, &file, buf, (size_t)format(SCHEMA, ns, buf, sizeof(buf)), 0600);
	if (r < 0)
		return r;
	c->saved_ns = ns;
	return 1;
}
