#include "connectd/uptarget.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/release/manifest.h"
#include "proto/release/version.h"

#define EDGE_MIN	7
#define EDGE_MAX	40

static int
parse_edge(const char *s, size_t len, struct uptarget *t)
{
	if (len < EDGE_MIN || len > EDGE_MAX)
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		char c = s[i] >= 'A' && s[i] <= 'F' ? (char)(s[i] - 'A' + 'a') : s[i];

		if (strchr("0123456789abcdef", c) == NULL)
			return -EINVAL;
		t->name[i] = c;
	}
	t->kind = UPTARGET_EDGE;
	return 0;
}

int
uptarget_parse(const char *text, struct uptarget *ret_target)
{
	struct uptarget t = { .kind = UPTARGET_TAG };
	size_t len;
	int r = 0;

	text += strspn(text, " \t\r\n");
	len = strlen(text);
	while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL)
		len--;
	if (len == 0 || len >= sizeof(t.name))
		return -EINVAL;
	if (len == 6 && memcmp(text, "latest", 6) == 0) {
		t.kind = UPTARGET_LATEST;
		memcpy(t.name, text, len);
	} else if (len > 5 && memcmp(text, "edge:", 5) == 0) {
		r = parse_edge(text + 5, len - 5, &t);
	} else {
		if (text[0] == 'v') {
			text++;
			len--;
		}
		memcpy(t.name, text, len);
		/* A tag begins with a number: "dev" and the like are no releases. */
		r = t.name[0] >= '0' && t.name[0] <= '9' && release_version_ok(t.name) ? 0 : -EINVAL;
	}
	if (r == 0)
		*ret_target = t;
	return r;
}

static const char *
cannot(const struct upfacts *f)
{
	if (!f->managed)
		return "this agent does not run from an installed release, so nothing can replace it";
	if (!f->helper)
		return "privupgrade is not installed on this device";
	return f->forbidden;
}

const char *
uptarget_issue(const struct upfacts *f)
{
	const char *why = cannot(f);

	return why != NULL ? why : f->mirror ? NULL : "no mirror is configured on the device: edgeward.conf, section upgrade, mirror";
}

/* "0.2.0+gabcdef012" was built from that commit. */
static bool
same_commit(const char *version, const char *commit)
{
	const char *built = strstr(version, "+g");
	size_t n = built != NULL ? strspn(built + 2, "0123456789abcdef") : 0, m = strlen(commit);

	return n >= EDGE_MIN && strncmp(built + 2, commit, n < m ? n : m) == 0;
}

static bool
refuse(char reason[UPTARGET_REASON], const char *why)
{
	snprintf(reason, UPTARGET_REASON, "%s", why);
	return false;
}

static bool
refuse_current(char reason[UPTARGET_REASON], const struct upfacts *f, bool *ret_current)
{
	*ret_current = true;
	snprintf(reason, UPTARGET_REASON, "%.64s is what runs", f->version);
	return false;
}

bool
uptarget_judge(const struct upfacts *f, const struct uptarget *t, char reason[UPTARGET_REASON], bool *ret_current)
{
	const char *why;
	int order;

	*ret_current = false;
	reason[0] = '\0';
	if (!f->managed)
		return refuse(reason, cannot(f));
	if (t->kind == UPTARGET_EDGE && !f->edge)
		return refuse(reason, "this device is on the stable channel, and only the device can change that: policy.conf and upgrade.conf");
	why = f->staged ? cannot(f) : uptarget_issue(f);
	if (why != NULL)
		return refuse(reason, why);
	if (t->kind == UPTARGET_EDGE && !f->staged && same_commit(f->version, t->name))
		return refuse_current(reason, f, ret_current);
	/* Of one that was sent here the sequence decides, and has. */
	if (t->kind == UPTARGET_TAG && !f->staged) {
		order = release_version_cmp(t->name, f->version);
		if (order == 0 && strcmp(t->name, f->version) == 0)
			return refuse_current(reason, f, ret_current);
		/* Not by force either: no frame can go back. */
		if (order < 0) {
			snprintf(reason, UPTARGET_REASON, "%.64s, which runs, is newer; only an operator on the device can go back", f->version);
			return false;
		}
	}
	if (f->bad)
		return refuse(reason, "this release has failed on this device before; an operator may insist with edgectl upgrade");
	return f->busy == NULL || refuse(reason, f->busy);
}
