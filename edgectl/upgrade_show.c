/* What upgrade shows: the history, what is under way, and what privupgrade(8) says of a file. Text, or JSON with -j. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/runprog.h"
#include "edgectl/upgrade.h"
#include "proto/release/lines.h"
#include "version.h"

#define CHECK_MS	60000

int
upgrade_read_history(int dir, struct upgrade_history *ret_history)
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t len;
	int r = fd_read_file(dir, "history", UPGRADE_RECORD_MAX, &data, &len);

	ret_history->n = 0;
	return r == -ENOENT ? 0 : r < 0 ? r : upgrade_history_parse(data, len, ret_history);
}

static void
json_entry(yajl_gen g, const struct upgrade_entry *e)
{
	json_uint(g, "attempt", e->attempt);
	json_time(g, "time", (int64_t)e->time * 1000000000);
	json_str(g, "source", upgrade_source_name(e->source));
	json_str(g, "id", e->id);
	json_str(g, "outcome", upgrade_outcome_name(e->outcome));
	json_uint(g, "from", e->from);
	json_uint(g, "to", e->to);
	json_str(g, "version", e->version);
	json_str(g, "code", e->code);
	json_str(g, "detail", e->detail);
}

int
upgrade_show_entry(const struct edgectl *ctl, const struct upgrade_entry *e)
{
	if (ctl->json) {
		yajl_gen g = json_begin();

		json_entry(g, e);
		json_end(g);
	} else {
		printf("%s: %s\n", upgrade_outcome_name(e->outcome), e->detail);
	}
	return e->outcome == UPGRADE_OUT_DONE ? EXIT_OK : EXIT_FAILED;
}

int
upgrade_show_history(const struct edgectl *ctl, int dir)
{
	static struct upgrade_history h;
	int r = upgrade_read_history(dir, &h);
	yajl_gen g;

	if (r < 0) {
		fprintf(stderr, "edgectl: upgrade: the history cannot be read: %s\n", strerror(-r));
		return EXIT_FAILED;
	}
	if (!ctl->json) {
		for (unsigned i = 0; i < h.n; i++)
			printf("%" PRIu64 "  %s  %s  %" PRIu64 " -> %" PRIu64 " (%s)  %s: %s\n", h.entries[i].attempt,
			    out_time((int64_t)h.entries[i].time * 1000000000), upgrade_source_name(h.entries[i].source), h.entries[i].from,
			    h.entries[i].to, h.entries[i].version, upgrade_outcome_name(h.entries[i].outcome), h.entries[i].detail);
		return EXIT_OK;
	}
	g = json_begin();
	json_open(g, "history", '[');
	for (unsigned i = 0; i < h.n; i++) {
		json_open(g, NULL, '{');
		json_entry(g, &h.entries[i]);
		json_close(g, '}');
	}
	json_close(g, ']');
	json_end(g);
	return EXIT_OK;
}

static void
read_link(int base, const char *name, char *buf, size_t size)
{
	ssize_t n = readlinkat(base, name, buf, size - 1);

	buf[n < 0 ? 0 : n] = '\0';
}

int
upgrade_show_state(const struct edgectl *ctl, int base, int dir, const char *hub)
{
	char current[UPGRADE_LINK_SIZE], updater[UPGRADE_LINK_SIZE];
	_cleanup_free_ uint8_t *data = NULL;
	struct upgrade_state s = { 0 };
	size_t len;
	bool queued = faccessat(dir, "queue/request", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	bool open = fd_read_file(dir, "state", UPGRADE_RECORD_MAX, &data, &len) == 0 && upgrade_state_parse(data, len, &s) == 0;

	read_link(base, "current", current, sizeof(current));
	read_link(base, "updater", updater, sizeof(updater));
	if (ctl->json) {
		yajl_gen g = json_begin();

		json_str(g, "current", current);
		json_str(g, "updater", updater);
		json_bool(g, "queued", queued);
		if (open)
			json_str(g, "phase", upgrade_phase_name(s.phase));
		else
			json_null(g, "phase");
		json_uint(g, "sequence", s.sequence);
		json_str(g, "version", s.version);
		if (hub[0] != '\0')
			json_str(g, "hub", hub);
		else
			json_null(g, "hub");
		json_end(g);
		return EXIT_OK;
	}
	printf("current     %s\nupdater     %s\nqueued      %s\n", out_safe(current), out_safe(updater), queued ? "yes" : "no");
	if (open)
		printf("under way   sequence %" PRIu64 " (%s), %s\n", s.sequence, s.version, upgrade_phase_name(s.phase));
	else
		printf("under way   nothing\n");
	if (hub[0] != '\0')
		printf("for the hub %s\n", out_safe(hub));
	return EXIT_OK;
}

/* Each line "KEY VALUE" as a member. */
static void
lines_to_json(char *text)
{
	yajl_gen g = json_begin();

	for (char *line = text, *next; line != NULL && *line != '\0'; line = next) {
		char *space = strchr(line, ' ');
		uint64_t number;

		next = strchr(line, '\n');
		if (next != NULL)
			*next++ = '\0';
		if (space == NULL || space >= (next != NULL ? next : line + strlen(line)))
			continue;
		*space = '\0';
		if (strcmp(line, "sequence") == 0 && lines_number(space + 1, 0, RELEASE_SEQUENCE_MAX, &number) == 0)
			json_uint(g, line, number);
		else
			json_str(g, line, space + 1);
	}
	json_end(g);
}

int
upgrade_show_check(const struct edgectl *ctl, const struct upgrade_options *o)
{
	char privupgrade[512], file[4096], out[2048];
	const char *const argv[] = { privupgrade, "-n", file, NULL };
	int r;

	/* That of the updater in force, which would decide; it runs in another directory. */
	snprintf(privupgrade, sizeof(privupgrade), "%s/updater/privupgrade", o->state);
	if (access(privupgrade, X_OK) < 0)
		snprintf(privupgrade, sizeof(privupgrade), "%s/privupgrade", EDGEWARD_LIBEXECDIR);
	if (realpath(o->file, file) == NULL) {
		fprintf(stderr, "edgectl: upgrade: %s: %s\n", out_safe(o->file), strerror(errno));
		return EXIT_FAILED;
	}
	r = run_program(argv, 0, 0, CHECK_MS, out, sizeof(out));
	if (r != 0 && strncmp(out, "release ", 8) != 0) {
		fprintf(stderr, "edgectl: upgrade: %s: %s\n", privupgrade, r < 0 ? strerror(-r) : out_safe(out));
		return EXIT_FAILED;
	}
	if (ctl->json)
		lines_to_json(out);
	else
		fputs(out, stdout);
	return r == 0 ? EXIT_OK : EXIT_FAILED;
}
