/* status for people: one line a subject, the trouble in capitals. */
#include <inttypes.h>
#include <stdio.h>

#include "edgectl/edgectl.h"
#include "edgectl/status.h"
#include "proto/ipc/launch.h"

#define LABEL	"%-12s"

static void
text_link(const struct ctl_connectd_status *s)
{
	printf(LABEL "%s%s%s", "link", out_mark(s->link == CTL_LINK_CONNECTED ? OUT_GOOD : OUT_BAD), name_of_link(s->link), out_mark(OUT_PLAIN));
	if (s->link == CTL_LINK_CONNECTED)
		printf(", %s, protocol %u", name_of_dialect(s->dialect), s->protocol);
	if (s->since != 0)
		printf(", for %s", out_span((monotime_wall_ns() - s->since) / 1000000000));
	putchar('\n');
	if (s->cause[0] != '\0')
		printf(LABEL "%s: %s\n", "cause", out_safe(s->cause), out_safe(s->detail));
	if (s->next_retry_ms >= 0)
		printf(LABEL "in %.1f s, after %" PRIu64 " attempt%s\n", "next retry", (double)s->next_retry_ms / 1000, s->attempts,
		    s->attempts == 1 ? "" : "s");
	printf(LABEL "%s%s%s%s%s%s\n", "hub", s->hub[0] != '\0' ? out_safe(s->hub) : "none configured",
	    s->peer[0] != '\0' ? ", at " : "", out_safe(s->peer), s->proxy[0] != '\0' ? ", through proxy " : "",
	    out_safe(s->proxy), s->insecure ? ", WITHOUT ENCRYPTION" : "");
	printf(LABEL "%s%s%s\n", "identity", s->agent_id[0] != '\0' ? out_safe(s->agent_id) : "not enrolled",
	    s->name[0] != '\0' ? ", named " : "", out_safe(s->name));
}

static void
text_traffic(const struct ctl_connectd_status *s)
{
	if (s->link == CTL_LINK_CONNECTED) {
		printf(LABEL "received %s, sent %s", "traffic", out_bytes(s->rx_bytes), out_bytes(s->tx_bytes));
		if (s->last_rx_ms >= 0)
			printf(", last heard %.1f s ago", (double)s->last_rx_ms / 1000);
		if (s->rtt_us >= 0)
			printf(", round trip %.1f ms", (double)s->rtt_us / 1000);
		putchar('\n');
	}
	printf(LABEL, "clock");
	if (s->clock_implausible)
		printf("IMPLAUSIBLE: before %s, which is used for certificates instead", out_time(s->clock_floor));
	else
		printf("plausible");
	if (s->clock_offset_ms != INT64_MIN)
		printf(", the hub is %" PRId64 " ms %s", s->clock_offset_ms < 0 ? -s->clock_offset_ms : s->clock_offset_ms,
		    s->clock_offset_ms < 0 ? "behind" : "ahead");
	putchar('\n');
}

/* What workloads get, and what they lack. */
static void
text_sandbox(const struct ctl_workerd_status *s)
{
	char names[160];

	launch_parts_text(s->sandbox, names, sizeof(names));
	printf(LABEL "%s", "sandbox", names[0] != '\0' ? names : "NONE");
	if (s->sandbox_level != 0)
		printf(" (sandbox-level = uid)");
	launch_parts_text(s->sandbox_missing, names, sizeof(names));
	if (names[0] != '\0')
		printf("; NOT GIVEN by this machine: %s", names);
	putchar('\n');
}

static void
text_work(const struct ctl_workerd_status *s)
{
	printf(LABEL "%u running, %u starting, %u slots%s; %u ended and not yet reported\n", "work", s->running, s->pending,
	    s->slots, s->draining ? ", DRAINING: takes no new work" : "", s->undelivered);
	printf(LABEL "%s produced, %s held", "output", out_bytes(s->output_bytes), out_bytes(s->retained_bytes));
	if (s->spool_max > 0 || s->spool_bytes > 0)
		printf(", %s on disk", out_bytes(s->spool_bytes));
	if (s->gap_bytes > 0)
		printf(", %s lost", out_bytes(s->gap_bytes));
	printf("\n" LABEL "%s, %s free\n", "work root", out_safe(s->work_root), out_bytes(s->disk_free));
	printf(LABEL "%s; %s\n", "separation", s->uid_pool ? "a user for each work directory" : "NONE: all workloads share one user",
	    s->cgroup == 0 ? "no cgroup" : s->cgroup == 1 ? "cgroup v2 without limits" : "cgroup v2");
	text_sandbox(s);
	if (s->cause[0] != '\0')
		printf(LABEL "%s: %s\n", "work cause", out_safe(s->cause), out_safe(s->detail));
}

static void
text_process(const char *name, bool up, int32_t pid, const char *build, int64_t uptime)
{
	printf(LABEL, name);
	if (!up) {
		printf("%sDOWN%s\n", out_mark(OUT_BAD), out_mark(OUT_PLAIN));
		return;
	}
	printf("up, pid %d, %s", pid, out_safe(build));
	if (uptime >= 0)
		printf(", for %s", out_span(uptime));
	putchar('\n');
}

static void
text_down(const struct client *c)
{
	char text[CLIENT_TEXT];

	client_error_text(c, text, sizeof(text));
	printf(LABEL "%sDOWN%s: %s\n", c->name, out_mark(OUT_BAD), out_mark(OUT_PLAIN), out_safe(text));
}

static void
text_processes(const struct view *v)
{
	if (v->net_up)
		text_process("connectd", true, v->net.pid, v->net.build, v->net.uptime_s);
	else
		text_down(&v->connectd);
	if (v->work_up) {
		text_process("workerd", true, v->work.pid, v->work.build, v->work.uptime_s);
		text_process("launcher", v->work.launcher_up, v->work.launcher_pid, v->work.launcher_build, -1);
	} else {
		text_down(&v->workerd);
		printf(LABEL "unknown, workerd would know\n", "launcher");
	}
	if (!v->priv_known)
		printf(LABEL "unknown, nobody answers\n", "privhelper");
	else if (v->net.priv_up)
		text_process("privhelper", true, v->net.priv_pid, v->net.priv_build, -1);
	else if (v->priv_up)
		printf(LABEL "up, pid %d\n", "privhelper", v->work.priv_pid);
	else
		printf(LABEL "DOWN: see %s\n", "privhelper", v->connectd.foreground ? "the log of run-foreground" :
		    "systemctl status edgeward-privhelper");
	if (v->net_up && v->work_up && !(v->net.work_up && v->work.work_up))
		printf(LABEL "DOWN: connectd and workerd have not been introduced to each other\n", "channel");
}

void
status_text(const struct view *v)
{
	text_processes(v);
	if (v->net_up) {
		text_link(&v->net);
		text_traffic(&v->net);
	}
	if (v->work_up)
		text_work(&v->work);
}
