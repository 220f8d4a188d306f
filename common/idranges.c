#include "common/idranges.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/parse.h"

#define LINE_SIZE	256
#define TEXT_MAX	(1u << 20)
#define NSS_SIZE	16384

/*
 * Below 65536: root's, system accounts, people, Debian's 60000-64999, systemd's homed, dynamic and foreign ids, nobody. Then systemd's
 * containers, and all from its foreign range to the ids that are negative to somebody. See UIDS-GIDS of systemd, Debian policy 9.2.
 */
static const struct {
	uint32_t first, last;
} fixed[] = { { 0, 65535 }, { 524288, 1879048191 }, { 2147352576, UINT32_MAX } };

/* Both of a pair in one row. The subordinate ids that newusers(8) and useradd(8) will give away count although nobody has them yet. */
static const struct {
	const char *min, *max;
	uint32_t first, last;
} bounds[] = {
	{ "UID_MIN", "UID_MAX", 1000, 60000 }, { "GID_MIN", "GID_MAX", 1000, 60000 },
	{ "SYS_UID_MIN", "SYS_UID_MAX", 100, 999 }, { "SYS_GID_MIN", "SYS_GID_MAX", 100, 999 },
	{ "SUB_UID_MIN", "SUB_UID_MAX", 100000, 600100000 }, { "SUB_GID_MIN", "SUB_GID_MAX", 100000, 600100000 },
};
#define BOUNDS	(sizeof(bounds) / sizeof(bounds[0]))

static int
add(struct idranges *set, uint32_t first, uint32_t last)
{
	if (first > last)
		return 0;
	if (set->n == IDRANGES_MAX)
		return -E2BIG;
	set->r[set->n].first = first;
	set->r[set->n++].last = last;
	return 0;
}

void
idranges_init(struct idranges *set)
{
	set->n = 0;
	set->human_min = bounds[0].first;
	for (unsigned i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		add(set, fixed[i].first, fixed[i].last);
}

/* The next line without its comment, as a string. 1, 0 at the end, -EINVAL when it is too long or holds a NUL. */
static int
next_line(const char **text, const char *end, char line[LINE_SIZE])
{
	const char *p = *text, *nl;
	size_t len;

	if (p == end)
		return 0;
	nl = memchr(p, '\n', (size_t)(end - p));
	len = (size_t)((nl != NULL ? nl : end) - p);
	*text = nl != NULL ? nl + 1 : end;
	if (memchr(p, '#', len) != NULL)
		len = (size_t)((const char *)memchr(p, '#', len) - p);
	if (len >= LINE_SIZE || memchr(p, '\0', len) != NULL)
		return -EINVAL;
	memcpy(line, p, len);
	line[len] = '\0';
	return 1;
}

/* "KEY VALUE" between blanks; NULL in both when there is nothing. */
static void
split(char *line, const char **ret_key, const char **ret_value)
{
	char *save = NULL;

	*ret_key = strtok_r(line, " \t\r", &save);
	*ret_value = *ret_key != NULL ? strtok_r(NULL, " \t\r\"", &save) : NULL;
}

int
idranges_login_defs(struct idranges *set, const char *text, size_t len)
{
	uint32_t first[BOUNDS], last[BOUNDS];
	const char *end = text + len, *key, *value;
	char line[LINE_SIZE];
	int r;

	for (unsigned i = 0; i < BOUNDS; i++) {
		first[i] = bounds[i].first;
		last[i] = bounds[i].last;
	}
	while ((r = next_line(&text, end, line)) > 0) {
		split(line, &key, &value);
		for (unsigned i = 0; key != NULL && i < BOUNDS; i++) {
			bool min = strcmp(key, bounds[i].min) == 0;

			if ((min || strcmp(key, bounds[i].max) == 0) &&
			    (value == NULL || parse_u32(value, 0, UINT32_MAX, min ? &first[i] : &last[i]) < 0))
				return -EINVAL;
		}
	}
	set->human_min = first[0];
	for (unsigned i = 0; r == 0 && i < BOUNDS; i++)
		r = add(set, first[i], last[i]);
	return r;
}

int
idranges_subid(struct idranges *set, const char *text, size_t len)
{
	const char *end = text + len;
	char line[LINE_SIZE];
	int r;

	while ((r = next_line(&text, end, line)) > 0) {
		char *p = line;
		const char *name = strsep(&p, ":"), *first = strsep(&p, ":"), *count = strsep(&p, ":");
		uint32_t a, n;

		if (name[strspn(name, " \t\r")] == '\0' && first == NULL)
			continue;
		if (first == NULL || count == NULL || p != NULL || parse_u32(first, 0, UINT32_MAX, &a) < 0 ||
		    parse_u32(count, 0, UINT32_MAX, &n) < 0)
			return -EINVAL;
		if (n > 0 && (r = add(set, a, n - 1 > UINT32_MAX - a ? UINT32_MAX : a + n - 1)) < 0)
			return r;
	}
	return r;
}

int
idranges_read(struct idranges *set, int etc, const char **ret_name)
{
	static const struct {
		const char *name;
		int (*parse)(struct idranges *set, const char *text, size_t len);
	} files[] = { { "login.defs", idranges_login_defs }, { "subuid", idranges_subid }, { "subgid", idranges_subid } };

	idranges_init(set);
	for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		_cleanup_free_ uint8_t *text = NULL;
		size_t len = 0;
		int r = fd_read_file(etc, files[i].name, TEXT_MAX, &text, &len);

		*ret_name = files[i].name;
		if (r == 0 || r == -ENOENT)
			r = files[i].parse(set, text != NULL ? (const char *)text : "", len);
		if (r < 0)
			return r;
	}
	return 0;
}

/* What NSS says to a look-up that finds nothing has several names. */
static int
verdict(int r, bool found)
{
	if (found || r == ERANGE)
		return 1;
	return r == 0 || r == ENOENT || r == ESRCH ? 0 : -r;
}

int
idranges_in_use(uint32_t id)
{
	char buf[NSS_SIZE];
	struct passwd pw, *user = NULL;
	struct group gr, *group = NULL;
	int r = getpwuid_r(id, &pw, buf, sizeof(buf), &user);

	r = verdict(r, user != NULL);
	if (r != 0)
		return r;
	r = getgrgid_r(id, &gr, buf, sizeof(buf), &group);
	return verdict(r, group != NULL);
}

int
idranges_next(const struct idranges *set, uint32_t from, uint32_t count, uint32_t *ret_first)
{
	bool moved = count > 0;

	while (moved) {
		moved = false;
		for (unsigned i = 0; i < set->n; i++) {
			if (count - 1 > UINT32_MAX - from)
				return -ENOSPC;
			if (from > set->r[i].last || from + (count - 1) < set->r[i].first)
				continue;
			if (set->r[i].last == UINT32_MAX)
				return -ENOSPC;
			from = set->r[i].last + 1;
			moved = true;
		}
	}
	*ret_first = from;
	return count > 0 ? 0 : -ENOSPC;
}
