/* The JSON document of status. Its schema stands in edgectl(8) and, for programs, in edgectl/edgectl.schema.json. */
#include "edgectl/edgectl.h"
#include "edgectl/status.h"
#include "proto/ipc/launch.h"
#include "version.h"

static void
json_down(yajl_gen g, const struct client *c)
{
	char text[CLIENT_TEXT];

	client_error_text(c, text, sizeof(text));
	json_bool(g, "up", false);
	json_str(g, "cause", client_error_code(c));
	json_str(g, "detail", text);
}

static void
json_connectd(yajl_gen g, const struct ctl_connectd_status *s)
{
	json_bool(g, "up", true);
	json_int(g, "pid", s->pid);
	json_str(g, "build", s->build);
	json_uint(g, "uptime_s", s->uptime_s);
	json_str(g, "link", name_of_link(s->link));
	json_time(g, "since", s->since);
	json_str(g, "cause", s->cause);
	json_str(g, "detail", s->detail);
	json_int(g, "next_retry_ms", s->next_retry_ms);
	json_uint(g, "attempts", s->attempts);
	json_uint(g, "sessions", s->sessions);
	json_str(g, "hub", s->hub);
	json_str(g, "peer", s->peer);
	json_str(g, "proxy", s->proxy);
	json_bool(g, "insecure", s->insecure);
	json_str(g, "agent_id", s->agent_id);
	json_str(g, "name", s->name);
	json_str(g, "dialect", name_of_dialect(s->dialect));
	json_uint(g, "protocol", s->protocol);
	json_int(g, "last_rx_ms", s->last_rx_ms);
	json_int(g, "rtt_us", s->rtt_us);
	json_uint(g, "rx_bytes", s->rx_bytes);
	json_uint(g, "tx_bytes", s->tx_bytes);
	if (s->clock_offset_ms == INT64_MIN)
		json_null(g, "clock_offset_ms");
	else
		json_int(g, "clock_offset_ms", s->clock_offset_ms);
	json_time(g, "clock_floor", s->clock_floor);
	json_bool(g, "clock_implausible", s->clock_implausible);
	json_bool(g, "work_up", s->work_up);
	json_bool(g, "priv_up", s->priv_up);
}

static void
json_sandbox(yajl_gen g, const struct ctl_workerd_status *s)
{
	static const char *const names[] = { "user", "mount", "pid", "ipc", "uts", "net", "proc", "landlock", "seccomp" };
	char text[160];

	json_open(g, "sandbox", '{');
	json_str(g, "level", s->sandbox_level == 0 ? "namespaces" : "uid");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (1u << i != LAUNCH_PART_NET)
			json_bool(g, names[i], (s->sandbox & 1u << i) != 0);
	json_int(g, "landlock_abi", s->landlock_abi);
	launch_parts_text(s->sandbox_missing, text, sizeof(text));
	json_str(g, "missing", text);
	json_close(g, '}');
}

static void
json_workerd(yajl_gen g, const struct ctl_workerd_status *s)
{
	json_bool(g, "up", true);
	json_int(g, "pid", s->pid);
	json_str(g, "build", s->build);
	json_uint(g, "uptime_s", s->uptime_s);
	json_str(g, "cause", s->cause);
	json_str(g, "detail", s->detail);
	json_uint(g, "slots", s->slots);
	json_uint(g, "running", s->running);
	json_uint(g, "pending", s->pending);
	json_uint(g, "undelivered", s->undelivered);
	json_bool(g, "draining", s->draining != 0);
	json_uint(g, "started", s->started);
	json_uint(g, "refused", s->refused);
	json_uint(g, "output_bytes", s->output_bytes);
	json_uint(g, "gap_bytes", s->gap_bytes);
	json_uint(g, "retained_bytes", s->retained_bytes);
	json_uint(g, "spool_bytes", s->spool_bytes);
	json_uint(g, "spool_max", s->spool_max);
	json_str(g, "work_root", s->work_root);
	json_uint(g, "disk_free", s->disk_free);
	json_uint(g, "inodes_free", s->inodes_free);
	json_bool(g, "uid_pool", s->uid_pool);
	json_str(g, "cgroup", name_of_cgroup(s->cgroup));
	json_str(g, "tree", name_of_tree(s->tree));
	json_sandbox(g, s);
	json_bool(g, "work_up", s->work_up);
	json_bool(g, "priv_up", s->priv_up);
}

static void
json_helpers(yajl_gen g, const struct view *v)
{
	json_open(g, "launcher", '{');
	if (v->work_up)
		json_bool(g, "up", v->work.launcher_up);
	else
		json_null(g, "up");
	json_int(g, "pid", v->work.launcher_pid);
	json_str(g, "build", v->work.launcher_build);
	json_close(g, '}');
	json_open(g, "privhelper", '{');
	if (v->priv_known)
		json_bool(g, "up", v->priv_up);
	else
		json_null(g, "up");
	json_int(g, "pid", v->net.priv_up ? v->net.priv_pid : v->work.priv_up ? v->work.priv_pid : 0);
	json_str(g, "build", v->net.priv_up ? v->net.priv_build : "");
	json_close(g, '}');
}

void
status_json(const struct view *v)
{
	yajl_gen g = json_begin();

	json_str(g, "edgectl", EDGEWARD_VERSION);
	json_bool(g, "healthy", v->healthy);
	json_open(g, "connectd", '{');
	if (v->net_up)
		json_connectd(g, &v->net);
	else
		json_down(g, &v->connectd);
	json_close(g, '}');
	json_open(g, "workerd", '{');
	if (v->work_up)
		json_workerd(g, &v->work);
	else
		json_down(g, &v->workerd);
	json_close(g, '}');
	json_helpers(g, v);
	json_end(g);
}
