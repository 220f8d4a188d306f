#include "proto/release/manifest.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "proto/release/lines.h"

#define SIGNATURE_MAX	1024u

const char *const release_required[] = { "connectd", "workerd", "launcher", "privhelper", "privupgrade", "privtrial", "privaccount", "edgectl",
	NULL };

/* first is one of a-z, 0-9 (and A-Z with upper); the rest of these and more. */
static bool
made_of(const char *s, size_t size, bool upper, const char *more)
{
	for (size_t i = 0; s[i] != '\0'; i++) {
		bool alnum = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') || (upper && s[i] >= 'A' && s[i] <= 'Z');

		if (i + 1 >= size || (!alnum && (i == 0 || strchr(more, s[i]) == NULL)))
			return false;
	}
	return s[0] != '\0';
}

bool
release_version_ok(const char *s)
{
	return made_of(s, RELEASE_VERSION_SIZE, true, ".+~-");
}

bool
release_name_ok(const char *s)
{
	return made_of(s, RELEASE_NAME_SIZE, false, "._-") && strcmp(s, "manifest") != 0 && strcmp(s, "manifest.sig") != 0;
}

bool
release_word_ok(const char *s)
{
	return made_of(s, RELEASE_WORD_SIZE, false, "_-");
}

/* YYYY-MM-DD, a day that exists. */
static int
parse_day(const char *s, int64_t *ret_s)
{
	struct tm tm = { 0 }, back;
	time_t t;

	for (unsigned i = 0; i < 10; i++)
		if (i == 4 || i == 7 ? s[i] != '-' : s[i] < '0' || s[i] > '9')
			return -EBADMSG;
	if (s[10] != '\0')
		return -EBADMSG;
	tm.tm_year = (s[0] - '0') * 1000 + (s[1] - '0') * 100 + (s[2] - '0') * 10 + (s[3] - '0') - 1900;
	tm.tm_mon = (s[5] - '0') * 10 + (s[6] - '0') - 1;
	tm.tm_mday = (s[8] - '0') * 10 + (s[9] - '0');
	back = tm;
	t = timegm(&back);
	if (tm.tm_year < 70 || back.tm_year != tm.tm_year || back.tm_mon != tm.tm_mon || back.tm_mday != tm.tm_mday)
		return -EBADMSG;
	*ret_s = t;
	return 0;
}

static int
parse_hash(const char *s, uint8_t hash[RELEASE_HASH])
{
	for (unsigned i = 0; i < 2 * RELEASE_HASH; i++) {
		int v = s[i] >= '0' && s[i] <= '9' ? s[i] - '0' : s[i] >= 'a' && s[i] <= 'f' ? s[i] - 'a' + 10 : -1;

		if (v < 0)
			return -EBADMSG;
		hash[i / 2] = (uint8_t)(i % 2 == 0 ? v << 4 : hash[i / 2] | v);
	}
	return s[2 * RELEASE_HASH] == '\0' ? 0 : -EBADMSG;
}

/* "NAME SIZE HASH" */
static int
parse_file(struct manifest *m, const char *value, bool program)
{
	struct release_file f = { .program = program };
	char size[24];
	const char *rest = lines_word(value, f.name, sizeof(f.name));

	rest = rest != NULL ? lines_word(rest, size, sizeof(size)) : NULL;
	if (rest == NULL || !release_name_ok(f.name) || lines_number(size, 1, RELEASE_FILE_MAX, &f.size) < 0 ||
	    parse_hash(rest, f.sha256) < 0)
		return -EBADMSG;
	if (m->nfiles == RELEASE_FILES_MAX || manifest_find(m, f.name) != NULL || m->total + f.size > RELEASE_TOTAL_MAX)
		return -EBADMSG;
	m->total += f.size;
	m->files[m->nfiles++] = f;
	return 0;
}

static bool
complete(const struct manifest *m)
{
	for (const char *const *name = release_required; *name != NULL; name++) {
		const struct release_file *f = manifest_find(m, *name);

		if (f == NULL || !f->program)
			return false;
	}
	return true;
}

int
manifest_parse(const void *data, size_t len, struct manifest *ret_manifest)
{
	struct manifest m = { 0 };
	char value[LINES_VALUE_MAX + 1];
	uint64_t format, count;
	struct lines l;

	lines_init(&l, data, len);
	lines_need_u64(&l, "edgeward-release", 1, 1, &format);
	lines_need(&l, "version", m.version, sizeof(m.version));
	lines_need_u64(&l, "sequence", 1, RELEASE_SEQUENCE_MAX, &m.sequence);
	lines_need(&l, "channel", m.channel, sizeof(m.channel));
	lines_need(&l, "arch", m.arch, sizeof(m.arch));
	lines_need_u64(&l, "protocol", 1, UINT32_MAX, &m.protocol);
	lines_need(&l, "expires", value, sizeof(value));
	if (l.err != 0 || !release_version_ok(m.version) || !release_word_ok(m.channel) || !release_word_ok(m.arch) ||
	    parse_day(value, &m.expires) < 0)
		return -EBADMSG;
	while (l.err == 0) {
		bool program = lines_take(&l, "program", value, sizeof(value));

		if (!program && !lines_take(&l, "data", value, sizeof(value)))
			break;
		if (parse_file(&m, value, program) < 0)
			return -EBADMSG;
	}
	lines_need_u64(&l, "end", m.nfiles, m.nfiles, &count);
	if (lines_done(&l) < 0 || !complete(&m))
		return -EBADMSG;
	*ret_manifest = m;
	return 0;
}

const struct release_file *
manifest_find(const struct manifest *m, const char *name)
{
	for (unsigned i = 0; i < m->nfiles; i++)
		if (strcmp(m->files[i].name, name) == 0)
			return &m->files[i];
	return NULL;
}

int
release_split(const void *data, size_t len, struct release_head *ret_head)
{
	const char *p = data, *end = p + (len < RELEASE_HEAD_MAX ? len : RELEASE_HEAD_MAX), *nl, *last;

	for (int line = 0; line < 2; line++) {
		nl = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
		if (nl == NULL || nl + 1 - (const char *)data > (ptrdiff_t)SIGNATURE_MAX)
			return -EBADMSG;
		p = nl + 1;
	}
	last = memmem(p, (size_t)(end - p), "\nend ", 5);
	nl = last != NULL ? memchr(last + 1, '\n', (size_t)(end - last - 1)) : NULL;
	if (nl == NULL)
		return -EBADMSG;
	*ret_head = (struct release_head){ .signature = data, .signature_len = (size_t)(p - (const char *)data),
		.manifest = p, .manifest_len = (size_t)(nl + 1 - p) };
	return 0;
}
