/*
 * The first time anything of the new release is run: as an ordinary user, for a moment, before it is in force.
 *
 * Who calls: trial.c. What is trusted: nothing of what the programs do; common/runprog.c bounds it. What this shows: that they can be loaded
 * and executed here (libraries, instructions), are what the manifest says, and accept this device's configuration. On error: refused.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/runprog.h"
#include "privupgrade/privtrial.h"

#define SELFTEST_MS	15000
#define NOGROUP		65534

static int
run_one(struct updater *u, const char *path, const char *name, const char *option, char *out, size_t size)
{
	const char *const argv[] = { path, option, NULL };
	int r = run_program(argv, u->test_uid, NOGROUP, SELFTEST_MS, out, size);

	for (char *p = out; *p != '\0'; p++)
		if (*p < 0x20 || *p > 0x7e)
			*p = ' ';
	if (r == -ECHILD)
		return refuse(&u->why, "self-test", "%s %s was ended by signal %s", name, option, out);
	if (r < 0)
		return refuse(&u->why, "self-test", "%s %s: %s", name, option, r == -ETIMEDOUT ? "does not end" : r == -EFBIG ? "says too much" :
		    strerror(-r));
	return r == 0 ? 0 : refuse(&u->why, "self-test", "%s %s: exit code %d: %.100s", name, option, r, out);
}

int
self_test(struct updater *u, const struct manifest *m)
{
	static const char *const configured[] = { "connectd", "launcher" };	/* launcher -n is workerd -n */
	char dir[512], path[600], out[1024], want[128];
	int r = 0;

	snprintf(dir, sizeof(dir), "%s/releases/%" PRIu64, u->base_path, m->sequence);
	for (unsigned i = 0; r == 0 && i < m->nfiles; i++) {
		const char *name = m->files[i].name;

		if (!m->files[i].program)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		snprintf(want, sizeof(want), "%s %s ", name, m->version);	/* its newline is a blank by now */
		r = run_one(u, path, name, "-V", out, sizeof(out));
		if (r == 0 && strcmp(out, want) != 0)
			r = refuse(&u->why, "self-test", "%s says it is \"%.60s\"", name, out);
	}
	for (unsigned i = 0; r == 0 && i < sizeof(configured) / sizeof(configured[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, configured[i]);
		r = run_one(u, path, configured[i], "-n", out, sizeof(out));
	}
	return r;
}
