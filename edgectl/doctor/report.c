/* A check as it is made, and as it is shown: lines for people, one object for programs, an exit code for both. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "edgectl/doctor/doctor.h"
#include "version.h"

static const struct {
	const char *name, *label, *colour;
} states[CHECK_STATES] = {
	[CHECK_OK] = { "ok", "ok", "\033[32m" },
	[CHECK_WARN] = { "warn", "WARN", "\033[33m" },
	[CHECK_FAIL] = { "fail", "FAIL", "\033[31m" },
	[CHECK_SKIPPED] = { "skipped", "skipped", "\033[2m" },
};

static void __attribute__((format(printf, 4, 0)))
emit(struct doctor *d, struct check *c, const char *name, const char *fmt, va_list ap)
{
	int n;

	snprintf(c->name, sizeof(c->name), "%s", name);
	n = vsnprintf(c->detail, sizeof(c->detail), fmt, ap);
	if (n >= (int)sizeof(c->detail))
		memcpy(c->detail + sizeof(c->detail) - 4, "...", 4);
	d->emit(c, d->ctx);
}

void
check_ok(struct doctor *d, const char *name, const char *fmt, ...)
{
	struct check c = { .state = CHECK_OK };
	va_list ap;

	va_start(ap, fmt);
	emit(d, &c, name, fmt, ap);
	va_end(ap);
}

void
check_skip(struct doctor *d, const char *name, const char *fmt, ...)
{
	struct check c = { .state = CHECK_SKIPPED };
	va_list ap;

	va_start(ap, fmt);
	emit(d, &c, name, fmt, ap);
	va_end(ap);
}

void
check_bad(struct doctor *d, const char *name, enum check_state state, const char *cause, const char *command,
    const char *fmt, ...)
{
	struct check c = { .state = (uint32_t)state };
	va_list ap;

	snprintf(c.cause, sizeof(c.cause), "%s", cause);
	snprintf(c.command, sizeof(c.command), "%s", command != NULL ? command : "");
	va_start(ap, fmt);
	emit(d, &c, name, fmt, ap);
	va_end(ap);
}

bool
check_valid(const struct check *c)
{
	return c->state < CHECK_STATES && memchr(c->name, '\0', sizeof(c->name)) != NULL &&
	    memchr(c->cause, '\0', sizeof(c->cause)) != NULL && memchr(c->detail, '\0', sizeof(c->detail)) != NULL &&
	    memchr(c->command, '\0', sizeof(c->command)) != NULL;
}

void
report_begin(struct report *r, bool json)
{
	const char *no = getenv("NO_COLOR");

	*r = (struct report){ .json = json, .colour = isatty(STDOUT_FILENO) == 1 && (no == NULL || *no == '\0') };
	if (!json)
		return;
	r->g = json_begin();
	json_str(r->g, "edgectl", EDGEWARD_VERSION);
	json_open(r->g, "checks", '[');
}

static void
add_json(struct report *r, const struct check *c)
{
	json_open(r->g, NULL, '{');
	json_str(r->g, "check", c->name);
	json_str(r->g, "state", states[c->state].name);
	json_str(r->g, "cause", c->cause);
	json_str(r->g, "detail", c->detail);
	json_str(r->g, "command", c->command);
	json_close(r->g, '}');
}

static void
add_text(const struct report *r, const struct check *c)
{
	printf("%s%-8s%s%-16s %s%s%s\n", r->colour ? states[c->state].colour : "", states[c->state].label,
	    r->colour ? "\033[0m" : "", out_safe(c->name), out_safe(c->cause), c->cause[0] != '\0' ? ": " : "",
	    out_safe(c->detail));
	if (c->command[0] != '\0')
		printf("%-25stry: %s\n", "", out_safe(c->command));
	/* One by one: a check that takes its time is not held back with those before it. */
	fflush(stdout);
}

void
report_add(struct report *r, const struct check *c)
{
	r->count[c->state]++;
	if (r->json)
		add_json(r, c);
	else
		add_text(r, c);
}

int
report_end(struct report *r)
{
	enum check_state worst = r->count[CHECK_FAIL] > 0 ? CHECK_FAIL : r->count[CHECK_WARN] > 0 ? CHECK_WARN : CHECK_OK;

	if (r->json) {
		json_close(r->g, ']');
		json_str(r->g, "state", states[worst].name);
		for (unsigned i = 0; i < CHECK_STATES; i++)
			json_uint(r->g, states[i].name, r->count[i]);
		json_end(r->g);
	} else {
		printf("%u ok, %u to look at, %u failed, %u skipped%s\n", r->count[CHECK_OK], r->count[CHECK_WARN],
		    r->count[CHECK_FAIL], r->count[CHECK_SKIPPED], geteuid() != 0 ? " (root may see more)" : "");
	}
	return worst == CHECK_FAIL ? EXIT_FAILED : worst == CHECK_WARN ? EXIT_DEGRADED : EXIT_OK;
}
