#include "proto/ipc/launch.h"

#include <stdlib.h>
#include <string.h>

#include "proto/ipc/ipc.h"
#include "proto/ipc/names.h"
#include "proto/ipc/secrets.h"

const char *const launch_files[] = { LAUNCH_NFT, LAUNCH_PASTA, LAUNCH_TUN, NULL };

static bool
handle_field_ok(const char handle[72])
{
	return ipc_str_ok(handle, 72) && handle_ok(handle);
}

static bool
slot_ok(uint32_t slot, const struct launch_ready *ready)
{
	return ready->pool_count == 0 ? slot == 0 : slot < ready->pool_count;
}

/* "/a/b", no step empty, "." or "..": what is joined to the new root stays below it. */
static bool
path_ok(const char *path, size_t len)
{
	const char *end = path + len;

	if (len < 2 || path[0] != '/')
		return false;
	while (path < end) {
		const char *step = path + 1;
		size_t n = 0;

		while (step + n < end && step[n] != '/')
			n++;
		if (n == 0 || (n == 1 && step[0] == '.') || (n == 2 && step[0] == '.' && step[1] == '.'))
			return false;
		path = step + n;
	}
	return true;
}

bool
launch_show_ok(const char *show)
{
	while (*show != '\0') {
		size_t len = 0;

		while (show[len] != '\0' && show[len] != ' ')
			len++;
		if (!path_ok(show, len) || (show[len] == ' ' && show[len + 1] == '\0'))
			return false;
		show += len + (show[len] == ' ');
	}
	return true;
}

static int
by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void
launch_show_order(char *show)
{
	char text[LAUNCH_SHOW_SIZE], *rest = text, *word, *words[LAUNCH_SHOW_SIZE / 2];
	size_t n = 0, len;

	if (show[0] == '\0' || strlen(show) >= sizeof(text))
		return;
	memcpy(text, show, strlen(show) + 1);
	while ((word = strsep(&rest, " ")) != NULL)
		words[n++] = word;
	qsort(words, n, sizeof(words[0]), by_name);
	for (size_t i = 0; i < n; i++) {
		len = strlen(words[i]);
		memcpy(show, words[i], len);
		show[len] = i + 1 < n ? ' ' : '\0';
		show += len + 1;
	}
}

void
launch_parts_text(uint32_t parts, char *buf, size_t size)
{
	static const char *const names[] = { "user namespaces", "a view of its own", "a pid namespace", "an ipc namespace",
		"a uts namespace", "a network namespace", "a /proc of its own", "Landlock", "seccomp", "a packet filter" };
	size_t len = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if ((parts & 1u << i) == 0)
			continue;
		for (const char *s = len > 0 ? ", " : ""; *s != '\0' && len + 1 < size; s++)
			buf[len++] = *s;
		for (const char *s = names[i]; *s != '\0' && len + 1 < size; s++)
			buf[len++] = *s;
	}
	buf[len] = '\0';
}

const char *
launch_filter_issue_text(enum filter_issue issue)
{
	static const char *const texts[] = { [FILTER_WORKS] = "",
		[FILTER_NO_NAMESPACES] = "this machine gives no user, network, mount or pid namespaces, seccomp or Landlock",
		[FILTER_NO_NFT] = LAUNCH_NFT " is not installed (package nftables)",
		[FILTER_NO_PASTA] = LAUNCH_PASTA " is not installed (package passt)",
		[FILTER_NO_TUN] = LAUNCH_TUN " is not there for everybody (module tun, mode 0666)",
		[FILTER_FAILED] = "nft or pasta did not work when the launcher tried them: its log says why; a reload of workerd tries again" };

	return (unsigned)issue < FILTER_ISSUES ? texts[issue] : "";
}

static bool
parts_ok(uint32_t parts, const struct launch_ready *ready)
{
	return (parts & ~(ready->parts | LAUNCH_PART_LINKS | LAUNCH_PART_CARRIER)) == 0 && ((parts & LAUNCH_PART_LINKS) == 0 || (parts & LAUNCH_PART_NET) != 0) &&
	    ((parts & LAUNCH_PARTS_IN_USER) == 0 || (parts & LAUNCH_PART_USER) != 0) &&
	    ((parts & LAUNCH_PART_FILTER) == 0 || (parts & LAUNCH_PARTS_FILTERED) == LAUNCH_PARTS_FILTERED) &&
	    (ready->tree != LAUNCH_TREE_PIDNS || (parts & LAUNCH_PART_PID) != 0);
}

bool
launch_start_ok(const struct launch_start *s, const struct launch_ready *ready)
{
	return handle_field_ok(s->handle) && slot_ok(s->slot, ready) && s->nice >= 0 && s->nice <= 19 &&
	    s->oom_score_adj >= 0 && s->oom_score_adj <= 1000 && s->nofile <= 1u << 20 && s->stage <= LAUNCH_STAGE_MAX &&
	    parts_ok(s->parts, ready) && (s->io_rate == 0 || s->io_major != 0) && ipc_str_ok(s->show, sizeof(s->show)) && launch_show_ok(s->show);
}

bool
init_secret_ok(const struct init_secret *s)
{
	const char *lease = s->dir + sizeof(LAUNCH_LEASE_DIR) - 1;

	return s->op >= INIT_SECRET_REPLACE && s->op <= INIT_SECRET_CLEAR && (s->mode & ~0700u) == 0 &&
	    ipc_str_ok(s->dir, sizeof(s->dir)) && ipc_str_ok(s->name, sizeof(s->name)) &&
	    strncmp(s->dir, LAUNCH_LEASE_DIR, sizeof(LAUNCH_LEASE_DIR) - 1) == 0 && lease[0] != '\0' &&
	    strspn(lease, "0123456789") == strlen(lease) && (s->op == INIT_SECRET_CLEAR ? s->name[0] == '\0' : secret_name_ok(s->name));
}

bool
launch_ref_ok(const struct launch_ref *r)
{
	return handle_field_ok(r->handle);
}

bool
launch_held_ok(const struct launch_held *h, const struct launch_ready *ready)
{
	return handle_field_ok(h->handle) && slot_ok(h->slot, ready) && h->ended <= 1 &&
	    h->stage <= LAUNCH_STAGE_MAX;
}
