/*
 * The rig of doctor's tests: a root directory that is made for each, what the probe and the daemons would say in d, and the checks that
 * came of it in seen. Every function is static, as each test is one program.
 */
#ifndef EDGEWARD_TESTS_UNIT_DOCTORRIG_H
#define EDGEWARD_TESTS_UNIT_DOCTORRIG_H

#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "edgectl/doctor/doctor.h"

#define MOST	64

static struct check seen[MOST];
static size_t nseen;
static struct doctor d;
static struct edgectl ctl;
static char root[64];

/* The executable's other parts, which the library calls. */
int
usage_error(const char *command, const char *fmt, ...)
{
	(void)fmt;
	return EXIT_USAGE;
}

void
status_look(struct edgectl *c, struct view *v)
{
	(void)c;
	(void)v;
}

const char *
client_error_code(const struct client *c)
{
	return c->error == -EACCES ? "denied" : "not-running";
}

void
client_error_text(const struct client *c, char *buf, size_t size)
{
	snprintf(buf, size, "%s is away", c->name);
}

static inline void
keep(const struct check *c, void *ctx)
{
	(void)ctx;
	assert_true(check_valid(c));
	assert_true(nseen < MOST);
	seen[nseen++] = *c;
}

static inline const struct check *
got(const char *name)
{
	for (size_t i = 0; i < nseen; i++)
		if (strcmp(seen[i].name, name) == 0)
			return &seen[i];
	fail_msg("no check %s", name);
	return NULL;
}

static inline void
says(const char *name, enum check_state state, const char *cause)
{
	const struct check *c = got(name);

	assert_int_equal(c->state, state);
	assert_string_equal(c->cause, cause);
	assert_true(c->detail[0] != '\0');
}

/* Writes a file below the root, with its directories. */
static inline void
put(const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
		*p = '\0';
		mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static inline int
set_up(void **state)
{
	char path[80];

	(void)state;
	snprintf(root, sizeof(root), "/tmp/edgeward-unit.XXXXXX");
	assert_non_null(mkdtemp(root));
	nseen = 0;
	ctl = (struct edgectl){ .rundir = "/run/edgeward" };
	memset(&d, 0, sizeof(d));
	d.root = root;
	d.emit = keep;
	d.proxy_from = "this test";
	d.view.connectd.name = "connectd";
	d.view.workerd.name = "workerd";
	d.net.magic = NETPROBE_MAGIC;
	doctor_find(&d, &ctl, &(struct doctor_options){ 0 });
	snprintf(path, sizeof(path), "%s/etc", root);
	mkdir(path, 0755);
	return 0;
}

static inline int
tear_down(void **state)
{
	const char *const argv[] = { "/bin/rm", "-rf", root, NULL };
	struct child c, *all[] = { &c };

	(void)state;
	child_start(&c, &(struct child_spec){ .argv = argv });
	child_wait(all, 1, monotime_add_ms(monotime_now(), 10000));
	return c.status;
}

#define T(name)	cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
