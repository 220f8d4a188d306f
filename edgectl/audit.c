/*
 * audit: what was done on this device with root's power, from the file that privhelper writes; audit verify: whether its chain is
 * whole. Read without asking anybody, so that it works while everything is down.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/audit.h"
#include "common/cleanup.h"
#include "common/parse.h"
#include "edgectl/edgectl.h"

#define AUDIT_FILE	"/var/lib/edgeward/privhelper/audit"

/* privhelper makes the file with the first thing it does, in a directory that is there: without it, it has done nothing. To verify a record there must be one. */
static FILE *
open_record(const struct edgectl *ctl, const char *path, bool verify, int *ret_code)
{
	FILE *f = fopen(path, "re");
	int err = errno;
	char dir[PATH_MAX];

	*ret_code = err == EACCES ? EXIT_DENIED : EXIT_FAILED;
	snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(path, '/') != NULL ? strrchr(path, '/') - path : 0), path);
	if (f == NULL && err == ENOENT && !verify && access(dir, F_OK) == 0) {
		*ret_code = EXIT_OK;
		if (ctl->json) {
			yajl_gen g = json_begin();

			json_open(g, "records", '[');
			json_close(g, ']');
			json_end(g);
		}
		fprintf(stderr, "edgectl: audit: nothing was recorded yet (%s is not there)\n", path);
		return NULL;
	}
	if (f == NULL && err == EACCES)
		fprintf(stderr, "edgectl: audit: %s: permission denied: root and the members of group edgeward may read it\n", path);
	else if (f == NULL && err == ENOENT)
		fprintf(stderr, "edgectl: audit: %s is not there: %s\n", path, verify ? "nothing was recorded, or it was taken away" :
		    "edgeward-privhelper never ran here");
	else if (f == NULL)
		fprintf(stderr, "edgectl: audit: %s: %s\n", path, strerror(err));
	return f;
}

/* "SEQ SECONDS.MMM TEXT DIGEST"; lines of another form are shown as they are. */
static void
show_line(char *line, yajl_gen g)
{
	char *text = line, *seq = strsep(&text, " "), *stamp = text == NULL ? NULL : strsep(&text, " ");
	char *digest = text == NULL ? NULL : strrchr(text, ' '), *dot = stamp == NULL ? NULL : strchr(stamp, '.');
	uint64_t s = 0, ms = 0;

	if (dot != NULL)
		*dot = '\0';
	if (digest == NULL || dot == NULL || parse_u64(stamp, 0, INT32_MAX, &s) < 0 || parse_u64(dot + 1, 0, 999, &ms) < 0) {
		fprintf(stderr, "edgectl: audit: a line is not a record: %s\n", out_safe(line));
		return;
	}
	*digest++ = '\0';
	if (g == NULL) {
		printf("%s %s %s\n", out_safe(seq), out_time((int64_t)(s * 1000 + ms) * 1000000), out_safe(text));
		return;
	}
	json_open(g, NULL, '{');
	json_str(g, "sequence", seq);
	json_time(g, "time", (int64_t)(s * 1000 + ms) * 1000000);
	json_str(g, "text", text);
	json_str(g, "digest", digest);
	json_close(g, '}');
}

static int
show(const struct edgectl *ctl, FILE *f)
{
	yajl_gen g = ctl->json ? json_begin() : NULL;
	char line[AUDIT_LINE];

	if (g != NULL)
		json_open(g, "records", '[');
	while (fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		show_line(line, g);
	}
	if (g != NULL) {
		json_close(g, ']');
		json_end(g);
	}
	return EXIT_OK;
}

/* The number of the first line that is wrong, 0 = none; *ret_n is the number of lines. */
static unsigned
first_wrong(FILE *f, struct audit_head *head, unsigned *ret_n)
{
	char line[AUDIT_LINE];
	unsigned n = 0;

	while (fgets(line, sizeof(line), f) != NULL) {
		size_t len = strlen(line);

		n++;
		if (len == 0 || line[len - 1] != '\n' || audit_check(head, line, len - 1) < 0) {
			*ret_n = n;
			return n;
		}
	}
	*ret_n = n;
	return 0;
}

static int
verify(const struct edgectl *ctl, FILE *f, const char *path)
{
	struct audit_head head = audit_first;
	unsigned n, wrong = first_wrong(f, &head, &n);

	if (ctl->json) {
		yajl_gen g = json_begin();

		json_bool(g, "whole", wrong == 0);
		json_uint(g, "lines", n);
		json_uint(g, "sequence", head.seq);
		json_str(g, "head", head.digest);
		json_end(g);
	} else if (wrong == 0) {
		printf("%u records, the chain is whole; head: %llu %s\n", n, (unsigned long long)head.seq, head.digest);
	}
	if (wrong != 0)
		fprintf(stderr, "edgectl: audit: %s: line %u is not what was written: it, or one before it, was changed or taken out\n", path, wrong);
	return wrong == 0 ? EXIT_OK : EXIT_FAILED;
}

int
cmd_audit(struct edgectl *ctl, int argc, char **argv)
{
	_cleanup_fclose_ FILE *f = NULL;
	const char *path = AUDIT_FILE;
	bool check = argc > 1 && strcmp(argv[1], "verify") == 0;
	int opt, code;

	optind = check ? 2 : 1;
	while ((opt = getopt(argc, argv, "f:")) != -1) {
		if (opt != 'f')
			return usage_error(argv[0], "what follows it is not understood");
		path = optarg;
	}
	if (optind != argc)
		return usage_error(argv[0], "what follows it is not understood");
	f = open_record(ctl, path, check, &code);
	if (f == NULL)
		return code;
	return check ? verify(ctl, f, path) : show(ctl, f);
}
