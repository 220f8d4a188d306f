/*
 * status and version: both daemons are asked at once, each answers for itself, and what one of them knows of privhelper is
 * as good as its own word. A daemon that does not answer is shown as such; the others are still told of.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "edgectl/edgectl.h"
#include "edgectl/status.h"
#include "version.h"

/* Every string has its NUL and nothing behind it; the sizes were checked. */
static bool
net_ok(const struct ctl_connectd_status *s)
{
	return ipc_str_ok(s->build, sizeof(s->build)) && ipc_str_ok(s->priv_build, sizeof(s->priv_build)) &&
	    ipc_str_ok(s->cause, sizeof(s->cause)) && ipc_str_ok(s->detail, sizeof(s->detail)) &&
	    ipc_str_ok(s->hub, sizeof(s->hub)) && ipc_str_ok(s->peer, sizeof(s->peer)) &&
	    ipc_str_ok(s->proxy, sizeof(s->proxy)) && ipc_str_ok(s->agent_id, sizeof(s->agent_id)) &&
	    ipc_str_ok(s->name, sizeof(s->name));
}

static bool
work_ok(const struct ctl_workerd_status *s)
{
	return ipc_str_ok(s->build, sizeof(s->build)) && ipc_str_ok(s->launcher_build, sizeof(s->launcher_build)) &&
	    ipc_str_ok(s->cause, sizeof(s->cause)) && ipc_str_ok(s->detail, sizeof(s->detail)) &&
	    ipc_str_ok(s->work_root, sizeof(s->work_root));
}

void
status_look(struct edgectl *ctl, struct view *v)
{
	struct client *both[] = { &v->connectd, &v->workerd };

	memset(v, 0, sizeof(*v));
	client_open(&v->connectd, ctl->loop, ctl->rundir, IPC_ROLE_CONNECTD);
	client_open(&v->workerd, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	client_ask(&v->connectd, CTL_REQ_STATUS, NULL, 0);
	client_ask(&v->workerd, CTL_REQ_STATUS, NULL, 0);
	client_wait(both, 2, CLIENT_ANSWER_MS);
	v->net_up = client_answer(&v->connectd, &v->net, sizeof(v->net)) && net_ok(&v->net);
	v->work_up = client_answer(&v->workerd, &v->work, sizeof(v->work)) && work_ok(&v->work);
	for (int i = 0; i < 2; i++)	/* answered, but nothing we understand */
		if (!(i == 0 ? v->net_up : v->work_up) && both[i]->error == 0)
			both[i]->error = both[i]->status < 0 ? both[i]->status : -EPROTO;
	for (int i = 0; i < 2; i++)
		client_find_why(both[i]);
	v->priv_known = v->net_up || v->work_up;
	v->priv_up = (v->net_up && v->net.priv_up) || (v->work_up && v->work.priv_up);
	v->healthy = v->net_up && v->work_up && v->net.priv_up && v->work.priv_up && v->work.launcher_up && v->net.work_up &&
	    v->work.work_up && v->net.link == CTL_LINK_CONNECTED;
	client_close(&v->connectd);
	client_close(&v->workerd);
}

static int
verdict(const struct view *v)
{
	bool denied = v->connectd.error == -EACCES || v->workerd.error == -EACCES;

	if (v->healthy)
		return EXIT_OK;
	if (v->net_up || v->work_up)
		return EXIT_DEGRADED;
	return denied ? EXIT_DENIED : EXIT_NOBODY;
}

int
cmd_status(struct edgectl *ctl, int argc, char **argv)
{
	struct view v;

	if (argc > 1)
		return no_arguments(argc, argv);
	status_look(ctl, &v);
	client_check_build(&v.connectd);
	client_check_build(&v.workerd);
	if (ctl->json)
		status_json(&v);
	else if (verdict(&v) == EXIT_DENIED)
		client_complain(&v.connectd, "status");
	else
		status_text(&v);
	return verdict(&v);
}

static void
version_line(const struct edgectl *ctl, yajl_gen g, const char *name, const char *build)
{
	if (!ctl->json)
		printf("%-12s%s\n", name, build[0] != '\0' ? out_safe(build) : "does not answer");
	else if (build[0] != '\0')
		json_str(g, name, build);
	else
		json_null(g, name);
}

int
cmd_version(struct edgectl *ctl, int argc, char **argv)
{
	yajl_gen g = NULL;
	struct view v;

	if (argc > 1)
		return no_arguments(argc, argv);
	status_look(ctl, &v);
	if (ctl->json)
		g = json_begin();
	if (verdict(&v) == EXIT_DENIED)
		client_complain(&v.connectd, "version");
	version_line(ctl, g, "edgectl", EDGEWARD_VERSION);
	version_line(ctl, g, "connectd", v.connectd.hello.build);
	version_line(ctl, g, "workerd", v.workerd.hello.build);
	version_line(ctl, g, "launcher", v.work_up && v.work.launcher_up ? v.work.launcher_build : "");
	version_line(ctl, g, "privhelper", v.net_up && v.net.priv_up ? v.net.priv_build : "");
	if (ctl->json)
		json_end(g);
	client_check_build(&v.connectd);
	client_check_build(&v.workerd);
	if (v.net_up && v.work_up)
		return EXIT_OK;
	return verdict(&v);
}
