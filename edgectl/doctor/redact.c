#include "edgectl/doctor/redact.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/hub/base64.h"

#define LEAST	4u

static void
add_one(struct redact *r, const char *secret, size_t len)
{
	if (len < LEAST || len >= REDACT_SECRET || r->n == REDACT_SECRETS)
		return;
	memcpy(r->secret[r->n], secret, len);
	r->secret[r->n][len] = '\0';
	r->n++;
}

void
redact_add(struct redact *r, const char *secret, size_t len)
{
	char coded[REDACT_SECRET * 2];

	if (len >= REDACT_SECRET)
		return;
	add_one(r, secret, len);
	base64_encode(coded, (const uint8_t *)secret, len);
	/* Without the end, which depends on what follows. */
	add_one(r, coded, len / 3 * 4);
	explicit_bzero(coded, sizeof(coded));
}

void
redact_add_url(struct redact *r, const char *url)
{
	const char *scheme = strstr(url, "://"), *from = scheme != NULL ? scheme + 3 : url;
	const char *at = memrchr(from, '@', strcspn(from, "/?#")), *colon;

	if (at == NULL)
		return;
	redact_add(r, from, (size_t)(at - from));
	colon = memchr(from, ':', (size_t)(at - from));
	add_one(r, from, (size_t)((colon != NULL ? colon : at) - from));
	if (colon != NULL)
		redact_add(r, colon + 1, (size_t)(at - colon - 1));
}

void
redact_wipe(struct redact *r)
{
	explicit_bzero(r, sizeof(*r));
}

static void
blank(char *from, size_t len)
{
	memset(from, 'x', len);
}

static size_t
word_len(const char *p)
{
	return strcspn(p, " \t\r\n\"'\\,;<>()[]{}");
}

/* From "://" up to the last '@' before the path. */
static void
blank_userinfo(char *text)
{
	for (char *p = strstr(text, "://"); p != NULL; p = strstr(p + 3, "://")) {
		char *from = p + 3, *at = memrchr(from, '@', strcspn(from, "/?# \t\r\n\"'"));

		if (at != NULL)
			blank(from, (size_t)(at - from));
	}
}

/* The word behind each introduction; with whole, the introduction belongs to it. */
static void
blank_after(char *text, const char *intro, int whole)
{
	size_t skip = strlen(intro);

	for (char *p = strcasestr(text, intro); p != NULL; p = strcasestr(p + 1, intro)) {
		char *from = whole ? p : p + skip;

		blank(from, word_len(from));
	}
}

void
redact_text(const struct redact *r, char *text)
{
	static const struct {
		const char *intro;
		int whole;
	} words[] = { { "bearer ", 0 }, { "basic ", 0 }, { "clet1.", 1 }, { "cloopenroll1.", 1 }, { "\"credential\": \"", 0 },
		{ "\"credential\":\"", 0 } };

	for (unsigned i = 0; i < r->n; i++)
		for (char *p = strstr(text, r->secret[i]); p != NULL; p = strstr(p, r->secret[i]))
			blank(p, strlen(r->secret[i]));
	blank_userinfo(text);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		blank_after(text, words[i].intro, words[i].whole);
}

static int
is_listed(const char *section, size_t slen, const char *key, size_t klen, const char *const *keys)
{
	for (; *keys != NULL; keys++)
		if (strlen(*keys) == slen + 1 + klen && strncmp(*keys, section, slen) == 0 && (*keys)[slen] == '.' &&
		    strncmp(*keys + slen + 1, key, klen) == 0)
			return 1;
	return 0;
}

void
redact_conf(const char *text, const char *const *keys, char *out, size_t size)
{
	const char *section = "";
	size_t slen = 0, o = 0, len;

	out[0] = '\0';
	for (const char *p = text; *p != '\0'; p += len + (p[len] == '\n')) {
		const char *eq, *key = p;
		size_t klen;
		int n;

		len = strcspn(p, "\n");
		eq = memchr(p, '=', len);
		klen = eq != NULL ? (size_t)(eq - p) : 0;
		while (klen > 0 && isspace((unsigned char)key[klen - 1]))
			klen--;
		if (p[0] == '[' && memchr(p, ']', len) != NULL) {
			section = p + 1;
			slen = (size_t)((const char *)memchr(p, ']', len) - section);
			n = snprintf(out + o, size - o, "[%.*s]\n", (int)slen, section);
		} else if (p[0] == '#' || p[0] == ';' || eq == NULL) {
			continue;
		} else if (is_listed(section, slen, key, klen, keys)) {
			n = snprintf(out + o, size - o, "%.*s\n", (int)len, p);
		} else {
			n = snprintf(out + o, size - o, "%.*s = (withheld)\n", (int)klen, key);
		}
		if (n < 0 || (size_t)n >= size - o) {
			out[o] = '\0';	/* half a line could be half a secret, which nothing recognises */
			return;
		}
		o += (size_t)n;
	}
}
