#include "common/keyfile.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/keyvalue.h"
#include "common/log.h"
#include "common/near.h"

#define FILE_MAX	65536
#define LINE_MAX_LEN	198	/* inih's buffer is 200 bytes with newline and NUL */

struct parser {
	const struct key *keys;
	size_t nkeys;
	void *target;
	const char *name;		/* of the file */
	const char *p, *end;
	unsigned line;
	uint16_t *lines;		/* of the keys */
	char *err;
};

static int
fail(struct parser *p, const char *what, const char *section, const char *name, const char *value, const char *tail)
{
	char sec[LOG_QUOTE_SIZE], key[LOG_QUOTE_SIZE], val[LOG_QUOTE_SIZE];

	if (p->err[0] == '\0')
		snprintf(p->err, KEYFILE_ERR, "%s:%u: %s: [%s] %s%s%s%s", p->name, p->line, what,
		    log_quote(sec, sizeof(sec), section, strlen(section)), log_quote(key, sizeof(key), name, strlen(name)),
		    value != NULL ? " = " : "",
		    value != NULL ? log_quote(val, sizeof(val), value, strlen(value)) : "", tail);
	return 0;
}

static const struct key *
find(const struct parser *p, const char *section, const char *name)
{
	for (size_t i = 0; i < p->nkeys; i++)
		if (strcmp(section, p->keys[i].section) == 0 && strcmp(name, p->keys[i].name) == 0)
			return &p->keys[i];
	return NULL;
}

/* Where it would be right, or which one was meant: " (...)", or nothing. */
static void
hint(const struct parser *p, const char *section, const char *name, char ret[KEYFILE_STR])
{
	const char *sections[KEYFILE_KEYS] = { NULL }, *names[KEYFILE_KEYS] = { NULL }, *meant, *home = NULL;

	for (size_t i = 0; i < p->nkeys; i++) {
		sections[i] = p->keys[i].section;
		names[i] = strcmp(section, p->keys[i].section) == 0 ? p->keys[i].name : NULL;
		if (home == NULL && strcmp(name, p->keys[i].name) == 0)
			home = p->keys[i].section;
	}
	ret[0] = '\0';
	meant = near_word(section, sections, p->nkeys);
	if (meant != NULL && strcmp(meant, section) != 0)
		snprintf(ret, KEYFILE_STR, " (did you mean [%s]?)", meant);
	else if (home != NULL)
		snprintf(ret, KEYFILE_STR, " (it belongs below [%s])", home);
	else if ((meant = near_word(name, names, p->nkeys)) != NULL)
		snprintf(ret, KEYFILE_STR, " (did you mean %s?)", meant);
}

/* inih's handler: 1 = good. */
static int
on_key(void *user, const char *section, const char *name, const char *value)
{
	struct parser *p = user;
	const struct key *key = find(p, section, name);
	char want[160], what[200], meant[KEYFILE_STR];
	uint16_t *line;
	bool more;

	if (key == NULL) {
		hint(p, section, name, meant);
		return fail(p, section[0] == '\0' ? "key above the first section" : "unknown key", section, name, NULL, meant);
	}
	line = &p->lines[key - p->keys];
	more = *line != 0;
	if (more && !keyvalue_is_list(key))
		return fail(p, "key given twice", section, name, NULL, "");
	if (!more)
		*line = p->line < UINT16_MAX ? (uint16_t)p->line : UINT16_MAX;
	if (keyvalue_set(key, p->target, value != NULL ? value : "", more) == 0)
		return 1;
	keyvalue_expected(key, want, sizeof(want));
	snprintf(what, sizeof(what), "bad value, expected %s", want);
	return fail(p, what, section, name, value != NULL ? value : "", "");
}

/* inih's reader: one line from memory, counting lines. */
static char *
next_line(char *buf, int size, void *stream)
{
	struct parser *p = stream;
	const char *nl;
	size_t len;

	if (p->p == p->end || p->err[0] != '\0')
		return NULL;
	nl = memchr(p->p, '\n', (size_t)(p->end - p->p));
	len = nl != NULL ? (size_t)(nl - p->p) : (size_t)(p->end - p->p);
	p->line++;
	if (len > LINE_MAX_LEN || len >= (size_t)size) {
		snprintf(p->err, KEYFILE_ERR, "%s:%u: line longer than %d bytes", p->name, p->line, LINE_MAX_LEN);
		return NULL;
	}
	memcpy(buf, p->p, len);
	buf[len] = '\0';
	p->p += len + (nl != NULL);
	if ((buf[0] == ' ' || buf[0] == '\t') && strspn(buf, " \t\r") < len) {
		snprintf(p->err, KEYFILE_ERR, "%s:%u: line begins with white space (no continuation lines here)", p->name,
		    p->line);
		return NULL;
	}
	/* inih goes on after such a line and tells of it last; the first error is the one to show. */
	if (strspn(buf, " \t\r") < len && buf[0] != '#' && buf[0] != ';' && strpbrk(buf, buf[0] == '[' ? "]" : "=:") == NULL) {
		snprintf(p->err, KEYFILE_ERR, "%s:%u: not a section, a key or a comment", p->name, p->line);
		return NULL;
	}
	return buf;
}

int
keyfile_parse(const struct key *keys, size_t nkeys, void *target, uint16_t *lines, const char *name, const char *text,
    size_t len, char err[KEYFILE_ERR])
{
	uint16_t own[KEYFILE_KEYS] = { 0 };
	struct parser p = { keys, nkeys, target, name, text, text + len, 0, lines != NULL ? lines : own, err };
	int r;

	err[0] = '\0';
	memset(p.lines, 0, nkeys * sizeof(p.lines[0]));
	for (size_t i = 0; i < nkeys; i++)
		if (keyvalue_set(&keys[i], target, keys[i].def, false) < 0)
			return -EINVAL;
	if (memchr(text, '\0', len) != NULL) {
		snprintf(err, KEYFILE_ERR, "%s: holds a NUL byte", name);
		return -EINVAL;
	}
	r = ini_parse_stream(next_line, &p, on_key, &p);
	if (r != 0 && err[0] == '\0')
		snprintf(err, KEYFILE_ERR, "%s:%d: not a section, a key or a comment", name, r > 0 ? r : 0);
	return err[0] != '\0' ? -EINVAL : 0;
}

int
keyfile_read(const char *path, char **ret_text, size_t *ret_len, struct stat *ret_st, char err[KEYFILE_ERR])
{
	int r = fd_read_file_stat(AT_FDCWD, path, FILE_MAX, (uint8_t **)ret_text, ret_len, ret_st);

	if (r < 0)
		snprintf(err, KEYFILE_ERR, "%s: %s", path, r == -EFBIG ? "larger than 64 KiB" :
		    r == -EINVAL ? "not a regular file" : r == -ELOOP ? "a symbolic link; put the file itself there" : strerror(-r));
	return r;
}

/* FNV-1a: it tells edits of one file apart, and who may write that file needs no collision. */
static uint64_t
digest(const char *text, size_t len)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
	return h;
}

void
keyfile_mark(struct keyfile_mark *mark, const char *path, const struct stat *st, const char *text, size_t len)
{
	*mark = (struct keyfile_mark){ .path = path };
	if (st == NULL)
		return;
	mark->mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
	mark->ino = st->st_ino;
	mark->size = (uint64_t)st->st_size;
	mark->digest = digest(text, len);
}

bool
keyfile_changed(const struct keyfile_mark *mark)
{
	_cleanup_free_ char *text = NULL;
	char err[KEYFILE_ERR];
	struct keyfile_mark now;
	struct stat st;
	size_t len;
	bool there;

	if (mark->path == NULL)
		return false;
	there = stat(mark->path, &st) == 0;
	if (!there && errno != ENOENT)
		return false;
	keyfile_mark(&now, mark->path, there ? &st : NULL, "", 0);
	if (now.mtime_ns == mark->mtime_ns && now.ino == mark->ino && now.size == mark->size)
		return false;
	if (!there || mark->ino == 0 || keyfile_read(mark->path, &text, &len, &st, err) < 0)
		return true;
	return digest(text, len) != mark->digest;
}
