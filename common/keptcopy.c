#include "common/keptcopy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fdutil.h"
#include "common/parse.h"

unsigned
schema_number(const uint8_t *data, size_t len, const char *prefix)
{
	size_t at = strlen(prefix), n = 0;
	char digits[11];
	uint32_t v;

	if (len <= at || memcmp(data, prefix, at) != 0)
		return 0;
	while (at + n < len && n < sizeof(digits) - 1 && data[at + n] != ' ' && data[at + n] != '\n')
		n++;
	memcpy(digits, data + at, n);
	digits[n] = '\0';
	return parse_u32(digits, 1, UINT32_MAX, &v) < 0 ? 0 : v;
}

/* There may be a secret in it. */
static void
wipe(uint8_t *data, size_t len)
{
	if (data != NULL)
		explicit_bzero(data, len);
	free(data);
}

static int
keep(int dirfd, const struct schema *schema, unsigned number, const uint8_t *data, size_t len)
{
	char name[64];
	int n = snprintf(name, sizeof(name), "%s.schema-%u", schema->name, number);

	return n > 0 && (size_t)n < sizeof(name) ? fd_replace_file(dirfd, name, data, len, 0600) : -ENAMETOOLONG;
}

int
keptcopy_restore(int dirfd, const struct schema *schema)
{
	uint8_t *data = NULL, *kept = NULL;
	size_t len = 0, kept_len = 0;
	unsigned number = 0;
	char name[64];
	int r = fd_read_file(dirfd, schema->name, schema->max, &data, &len);

	if (r == 0)
		number = schema->of(data, len);
	if (number <= schema->now) {
		wipe(data, len);
		return 0;
	}
	snprintf(name, sizeof(name), "%s.schema-%u", schema->name, schema->now);
	r = fd_read_file(dirfd, name, schema->max, &kept, &kept_len);
	if (r == 0 && schema->of(kept, kept_len) == schema->now) {
		r = keep(dirfd, schema, number, data, len);
		if (r == 0)
			r = fd_replace_file(dirfd, schema->name, kept, kept_len, 0600);
		r = r == 0 ? 1 : r;
	} else {
		r = 0;
	}
	wipe(kept, kept_len);
	wipe(data, len);
	return r;
}

int
keptcopy_keep(int dirfd, const struct schema *schema)
{
	uint8_t *data = NULL;
	size_t len = 0;
	unsigned number = 0;
	/* What cannot be read is no state of before. */
	int r = fd_read_file(dirfd, schema->name, schema->max, &data, &len);

	if (r == 0)
		number = schema->of(data, len);
	r = number != 0 && number < schema->now ? keep(dirfd, schema, number, data, len) : 0;
	wipe(data, len);
	return r;
}

int
keptcopy_replace(int dirfd, const struct schema *schema, const void *data, size_t len, mode_t mode)
{
	int r = keptcopy_keep(dirfd, schema);

	return r < 0 ? r : fd_replace_file(dirfd, schema->name, data, len, mode);
}
