/* What the operator wrote, judged by those who read it: both daemons with -n, under the users they run as. */
#include <stdio.h>
#include <string.h>

#include "edgectl/doctor/doctor.h"

/* The last line says it; a log priority and the program's name stand before it. */
static const char *
last_line(struct child *c)
{
	char *line;

	while (c->len > 0 && c->out[c->len - 1] == '\n')
		c->out[--c->len] = '\0';
	line = strrchr(c->out, '\n');
	line = line != NULL ? line + 1 : c->out;
	if (line[0] == '<' && line[1] != '\0' && line[2] == '>')
		line += 3;
	return line;
}

static void
one(struct doctor *d, const char *name, const char *program, struct child *c)
{
	char command[200], path[PATH_MAX];

	if (!doctor_program(program, path, sizeof(path)))
		snprintf(path, sizeof(path), "%s", program);
	snprintf(command, sizeof(command), "%.60s -n -c %.60s -p %.60s", path, d->conf_path, d->policy_path);
	if (c->status == 0)
		check_ok(d, name, "%s takes %.120s and %.120s", program, d->conf_path, d->policy_path);
	else if (c->timeout)
		check_bad(d, name, CHECK_FAIL, "timeout", command, "%s -n does not come to an end", program);
	else if (c->status == 1)
		check_bad(d, name, CHECK_FAIL, "config", command, "%.300s", last_line(c));
	else
		check_bad(d, name, CHECK_FAIL, "not-installed", NULL, "the program %s cannot be run: is Edgeward installed whole?",
		    program);
}

void
step_config(struct doctor *d)
{
	one(d, "config-connectd", "connectd", &d->check_net);
	one(d, "config-workerd", "workerd", &d->check_work);
}
