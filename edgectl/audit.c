/*
 * audit: what was done on this device with root's power, from the file that privhelper writes; audit verify: whether its chain is
 * whole, and holds the last line that workerd was told of, since no chain shows that lines were cut off at its end. It works while
 * everything is down: then nothing is compared, and that is said.
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
#include "edgectl/client.h"
#include "edgectl/edgectl.h"
#include "proto/ipc/device.h"

static const char file[] = "/var/lib/edgeward/privhelper/audit";

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

static void
no_device(const struct device_info *d, void *ctx)
{
}

static void
no_link(const struct l2_open *l, void *ctx)
{
}

/* The last line that workerd was told of: false, and the reason, where none is known. */
static bool
ask_head(const struct edgectl *ctl, struct audit_head *ret_head, const char **ret_why)
{
	static struct client c;
	struct device_offer offer;
	bool good;

	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	c.device = no_device;
	c.link = no_link;
	client_call(&c, CTL_REQ_DEVICES, NULL, 0, CLIENT_WAIT_MS);
	good = client_answer(&c, &offer, sizeof(offer)) && device_offer_ok(&offer);
	*ret_why = c.error == -EACCES ? "workerd may not be asked by this user" : good ? "workerd was told of no line" : "workerd does not answer";
	client_close(&c);
	if (!good || offer.audit_seq == 0)
		return false;
	*ret_head = (struct audit_head){ .seq = offer.audit_seq };
	memcpy(ret_head->digest, offer.audit_head, AUDIT_HEX);
	return true;
}

struct reading {
	struct audit_head head;
	unsigned n, wrong;		/* lines, and the number of the first that is wrong, 0 = none */
	bool found;			/* the line that was looked for is among them, or was the last of the file before */
};

static void
read_chain(FILE *f, const char *wanted, struct reading *r)
{
	char line[AUDIT_LINE];

	*r = (struct reading){ .head = audit_first };
	while (fgets(line, sizeof(line), f) != NULL) {
		size_t len = strlen(line);

		r->n++;
		if (len == 0 || line[len - 1] != '\n' || audit_check(&r->head, line, len - 1) < 0) {
			r->wrong = r->n;
			return;
		}
		r->found |= strcmp(r->head.digest, wanted) == 0 || (r->n == 1 && strstr(line, wanted) != NULL);
	}
}

static void
show_verified(const struct edgectl *ctl, const struct reading *r, bool whole, const char *unasked)
{
	yajl_gen g;

	if (!ctl->json) {
		if (whole)
			printf("%u records, the chain is whole; head: %llu %s\n", r->n, (unsigned long long)r->head.seq, r->head.digest);
		if (whole && unasked != NULL)
			printf("only the chain itself was checked, not whether lines are missing at its end: %s\n", unasked);
		return;
	}
	g = json_begin();
	json_bool(g, "whole", whole);
	json_bool(g, "compared", unasked == NULL);
	json_uint(g, "lines", r->n);
	json_uint(g, "sequence", r->head.seq);
	json_str(g, "head", r->head.digest);
	json_end(g);
}

static int
verify(const struct edgectl *ctl, FILE *f, const char *path, bool copy)
{
	const char *unasked = "this is a copy";
	struct audit_head known;
	struct reading r;
	bool cut;

	/* Asked before the file is read: what is done meanwhile is in it, too. */
	if (!copy && ask_head(ctl, &known, &unasked))
		unasked = NULL;
	read_chain(f, unasked == NULL ? known.digest : "-", &r);
	cut = r.wrong == 0 && unasked == NULL && !r.found;
	show_verified(ctl, &r, r.wrong == 0 && !cut, unasked);
	if (r.wrong != 0)
		fprintf(stderr, "edgectl: audit: %s: line %u is not what was written: it, or one before it, was changed or taken out\n", path, r.wrong);
	if (cut)
		fprintf(stderr, "edgectl: audit: %s: lines are missing at the end: number %llu, digest %s, which privhelper told workerd of, is not in it\n", path,
		    (unsigned long long)known.seq, known.digest);
	return r.wrong == 0 && !cut ? EXIT_OK : EXIT_FAILED;
}

int
cmd_audit(struct edgectl *ctl, int argc, char **argv)
{
	_cleanup_fclose_ FILE *f = NULL;
	const char *path = file;
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
	return check ? verify(ctl, f, path, path != file && !ctl->rundir_named) : show(ctl, f);
}
