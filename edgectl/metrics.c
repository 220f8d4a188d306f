/*
 * metrics: what status, the daemons' counts, the audit record and /proc say, as OpenMetrics text 1.0. Families and their help are a table;
 * a daemon that does not answer has edgeward_up 0 and no other sample, so that nothing old is ever shown. Counters begin with the
 * daemon that counts, as Prometheus expects.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/parse.h"
#include "edgectl/metrics.h"

#define AUDIT_FILE	"/var/lib/edgeward/privhelper/audit"
#define VERBS		8

enum family {
	F_BUILD, F_CALLS, F_CLOCK, F_CLOCK_BAD, F_DEVICES, F_DRAINING, F_CONNECTED, F_ENDS, F_RECEIVED, F_RTT, F_SENT, F_SESSIONS, F_TROUBLE, F_OUTPUT,
	F_GAPS, F_HELD, F_MEMORY, F_WAKEUPS, F_READY, F_REQUESTS, F_SERVICES, F_SPOOL, F_SPOOL_MAX, F_STREAM_IN, F_STREAM_OUT, F_STREAMS, F_CUT, F_OPENED, F_PORTS, F_UP, F_FREE, F_INODES, F_WORKLOADS, F_SLOTS, F_ENDED,
	F_REFUSED, F_STARTED, FAMILIES
};
enum type { GAUGE, COUNTER, INFO };

static const struct { const char *name; enum type type; const char *unit, *label, *help; } families[FAMILIES] = {
	[F_BUILD] = { "edgeward_build", INFO, "", "process", "Version of each process that answers." },
	[F_CALLS] = { "edgeward_helper_calls", COUNTER, "", "verb", "Uses of root's power, from the audit record." },
	[F_CLOCK] = { "edgeward_clock_offset_seconds", GAUGE, "seconds", "", "The hub's clock minus ours." },
	[F_CLOCK_BAD] = { "edgeward_clock_implausible", GAUGE, "", "", "1: the clock is before the last time we know." },
	[F_DEVICES] = { "edgeward_devices", GAUGE, "", "kind", "USB devices and interfaces that a hub has forwarded here, now." },
	[F_DRAINING] = { "edgeward_draining", GAUGE, "", "", "1: no new work is taken." },
	[F_CONNECTED] = { "edgeward_link_connected", GAUGE, "", "", "1: there is a session with the hub." },
	[F_ENDS] = { "edgeward_link_ends", COUNTER, "", "cause", "Attempts and sessions that ended, by cause." },
	[F_RECEIVED] = { "edgeward_link_received_bytes", COUNTER, "bytes", "", "From the hub." },
	[F_RTT] = { "edgeward_link_round_trip_seconds", GAUGE, "seconds", "", "Last heartbeat to its acknowledgement." },
	[F_SENT] = { "edgeward_link_sent_bytes", COUNTER, "bytes", "", "To the hub." },
	[F_SESSIONS] = { "edgeward_link_sessions", COUNTER, "", "", "Sessions with the hub." },
	[F_TROUBLE] = { "edgeward_link_trouble", GAUGE, "", "cause", "1 for the cause that status shows, if there is one." },
	[F_OUTPUT] = { "edgeward_output_bytes", COUNTER, "bytes", "", "Written by workloads." },
	[F_GAPS] = { "edgeward_output_gap_bytes", COUNTER, "bytes", "", "Output that had to go before the hub had it." },
	[F_HELD] = { "edgeward_output_held_bytes", GAUGE, "bytes", "", "Output held in memory for the hub." },
	[F_MEMORY] = { "edgeward_process_resident_memory_bytes", GAUGE, "bytes", "process", "VmRSS." },
	[F_WAKEUPS] = { "edgeward_process_wakeups", COUNTER, "", "process", "Voluntary context switches." },
	[F_READY] = { "edgeward_ready", GAUGE, "", "", "1: all processes are up and the link is connected." },
	[F_REQUESTS] = { "edgeward_requests_refused", COUNTER, "", "code", "Requests of the hub that were answered by an error." },
	[F_SERVICES] = { "edgeward_service_requests", COUNTER, "", "outcome", "Requests to local services, by what came of dialling them." },
	[F_SPOOL] = { "edgeward_spool_bytes", GAUGE, "bytes", "", "Output on disk." },
	[F_SPOOL_MAX] = { "edgeward_spool_limit_bytes", GAUGE, "bytes", "", "Most that may be on disk; 0: the spool is off." },
	[F_STREAM_IN] = { "edgeward_stream_received_bytes", COUNTER, "bytes", "kind", "From the hub, of the content of streams." },
	[F_STREAM_OUT] = { "edgeward_stream_sent_bytes", COUNTER, "bytes", "kind", "To the hub, of the content of streams." },
	[F_STREAMS] = { "edgeward_streams", GAUGE, "", "kind", "Open now: attach sessions, services and ssh (http), devices, segments, files." },
	[F_CUT] = { "edgeward_streams_cut", COUNTER, "", "kind", "Of those opened, ended by a refusal, a reset or the end of the link." },
	[F_OPENED] = { "edgeward_streams_opened", COUNTER, "", "kind", "Streams that were opened for the hub." },
	[F_PORTS] = { "edgeward_usb_ports_free", GAUGE, "", "speed", "Virtual USB ports that are free." },
	[F_UP] = { "edgeward_up", GAUGE, "", "process", "1: the process answers." },
	[F_FREE] = { "edgeward_work_root_free_bytes", GAUGE, "bytes", "", "Room under the work root." },
	[F_INODES] = { "edgeward_work_root_free_inodes", GAUGE, "", "", "Inodes under the work root." },
	[F_WORKLOADS] = { "edgeward_workloads", GAUGE, "", "state", "What is there now." },
	[F_SLOTS] = { "edgeward_workload_slots", GAUGE, "", "", "How many may run at once." },
	[F_ENDED] = { "edgeward_workloads_ended", COUNTER, "", "outcome", "Workloads that ended." },
	[F_REFUSED] = { "edgeward_workloads_refused", COUNTER, "", "reason", "Starts that were refused." },
	[F_STARTED] = { "edgeward_workloads_started", COUNTER, "", "", "Workloads that were started." },
};

struct sample {
	enum family family;
	char label[40];
	double value;
	bool exact;		/* whole, from n */
	uint64_t n;
};

#define SAMPLES		256

struct samples {
	struct sample all[SAMPLES];
	size_t n;
};

static struct sample *
add(struct samples *s, enum family family, const char *label)
{
	static struct sample full;
	struct sample *p = s->n < SAMPLES ? &s->all[s->n++] : &full;

	*p = (struct sample){ .family = family };
	snprintf(p->label, sizeof(p->label), "%.39s", label);
	return p;
}

static void
add_n(struct samples *s, enum family family, const char *label, uint64_t n)
{
	struct sample *p = add(s, family, label);

	p->exact = true;
	p->n = n;
}

static void
add_seconds(struct samples *s, enum family family, double value)
{
	add(s, family, "")->value = value;
}

/* ---- where they come from ---- */

/* A line "NAME:<blanks>NUMBER" of /proc/PID/status. */
static bool
proc_value(FILE *f, const char *name, uint64_t *ret)
{
	char line[256];
	size_t n = strlen(name);

	rewind(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		char *p = line + n;

		if (strncmp(line, name, n) != 0 || *p != ':')
			continue;
		p += 1 + strspn(p + 1, " \t");
		p[strspn(p, "0123456789")] = '\0';
		return parse_u64(p, 0, UINT64_MAX, ret) == 0;
	}
	return false;
}

static void
from_proc(struct samples *s, const char *process, int32_t pid)
{
	char path[64];
	_cleanup_fclose_ FILE *f = NULL;
	uint64_t n;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = pid > 0 ? fopen(path, "re") : NULL;
	if (f == NULL)
		return;
	if (proc_value(f, "VmRSS", &n))
		add_n(s, F_MEMORY, process, n * 1024);
	if (proc_value(f, "voluntary_ctxt_switches", &n))
		add_n(s, F_WAKEUPS, process, n);
}

static void
from_connectd(struct samples *s, const struct ctl_connectd_status *c)
{
	add_n(s, F_CONNECTED, "", c->link == CTL_LINK_CONNECTED);
	add_n(s, F_RECEIVED, "", c->rx_bytes);
	add_n(s, F_SENT, "", c->tx_bytes);
	add_n(s, F_SESSIONS, "", c->sessions);
	add_n(s, F_CLOCK_BAD, "", c->clock_implausible);
	if (c->cause[0] != '\0')
		add_n(s, F_TROUBLE, c->cause, 1);
	if (c->rtt_us >= 0)
		add_seconds(s, F_RTT, (double)c->rtt_us / 1e6);
	if (c->clock_offset_ms != INT64_MIN)
		add_seconds(s, F_CLOCK, (double)c->clock_offset_ms / 1e3);
}

static void
from_workerd(struct samples *s, const struct ctl_workerd_status *w)
{
	add_n(s, F_DRAINING, "", w->draining != 0);
	add_n(s, F_OUTPUT, "", w->output_bytes);
	add_n(s, F_GAPS, "", w->gap_bytes);
	add_n(s, F_HELD, "", w->retained_bytes);
	add_n(s, F_SPOOL, "", w->spool_bytes);
	add_n(s, F_SPOOL_MAX, "", w->spool_max);
	add_n(s, F_FREE, "", w->disk_free);
	add_n(s, F_INODES, "", w->inodes_free);
	add_n(s, F_SLOTS, "", w->slots);
	add_n(s, F_STARTED, "", w->started);
	add_n(s, F_WORKLOADS, "running", w->running);
	add_n(s, F_WORKLOADS, "pending", w->pending);
	add_n(s, F_WORKLOADS, "undelivered", w->undelivered);
}

static void
on_metric(const struct ctl_metric *m, void *ctx)
{
	static const struct { const char *name; enum family family; } known[] = { { "link_ends", F_ENDS },
		{ "requests_refused", F_REQUESTS }, { "service_requests", F_SERVICES }, { "streams", F_STREAMS }, { "streams_cut", F_CUT },
		{ "streams_opened", F_OPENED }, { "stream_received_bytes", F_STREAM_IN }, { "stream_sent_bytes", F_STREAM_OUT },
		{ "workloads_ended", F_ENDED }, { "workloads_refused", F_REFUSED } };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(m->name, known[i].name) == 0)
			add_n(ctx, known[i].family, m->label, m->value);
}

static void
from_counts(struct edgectl *ctl, struct samples *s)
{
	static struct client c[2];
	struct client *both[] = { &c[0], &c[1] };

	for (int i = 0; i < 2; i++) {
		client_open(both[i], ctl->loop, ctl->rundir, i == 0 ? IPC_ROLE_CONNECTD : IPC_ROLE_WORKERD);
		both[i]->metric = on_metric;
		both[i]->ctx = s;
		client_ask(both[i], CTL_REQ_METRICS, NULL, 0);
	}
	client_wait(both, 2, CLIENT_ANSWER_MS);
	for (int i = 0; i < 2; i++)
		client_close(both[i]);
}

struct lent {
	uint64_t usb, l2;
};

static void
on_device(const struct device_info *d, void *ctx)
{
	(void)d;
	((struct lent *)ctx)->usb++;
}

static void
on_link(const struct l2_open *l, void *ctx)
{
	(void)l;
	((struct lent *)ctx)->l2++;
}

static void
from_devices(struct edgectl *ctl, struct samples *s)
{
	static struct client c;
	struct lent n = { 0, 0 };
	struct device_offer offer;

	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	c.device = on_device;
	c.link = on_link;
	c.ctx = &n;
	client_call(&c, CTL_REQ_DEVICES, NULL, 0, CLIENT_ANSWER_MS);
	if (client_answer(&c, &offer, sizeof(offer)) && device_offer_ok(&offer)) {
		add_n(s, F_DEVICES, "usb", n.usb);
		add_n(s, F_DEVICES, "l2", n.l2);
		add_n(s, F_PORTS, "high", offer.hs_free);
		add_n(s, F_PORTS, "super", offer.ss_free);
	}
	client_close(&c);
}

/* "SEQ SECONDS VERB ...", counted by verb. */
static void
from_audit(struct samples *s)
{
	_cleanup_fclose_ FILE *f = fopen(AUDIT_FILE, "re");
	struct { char name[24]; uint64_t n; } verbs[VERBS] = { { { 0 }, 0 } };
	char line[1024];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		char *p = line, *verb;
		size_t i = 0;

		strsep(&p, " ");
		strsep(&p, " ");
		verb = strsep(&p, " ");
		if (verb == NULL || verb[0] == '\0' || strlen(verb) >= sizeof(verbs[0].name))
			continue;
		while (i < VERBS - 1 && verbs[i].n > 0 && strcmp(verbs[i].name, verb) != 0)
			i++;
		if (verbs[i].n++ == 0)
			snprintf(verbs[i].name, sizeof(verbs[i].name), "%s", i < VERBS - 1 ? verb : "other");
	}
	for (size_t i = 0; i < VERBS && verbs[i].n > 0; i++)
		add_n(s, F_CALLS, verbs[i].name, verbs[i].n);
}

static void
from_processes(struct samples *s, const struct view *v)
{
	bool launcher = v->work_up && v->work.launcher_up;

	add_n(s, F_UP, "connectd", v->net_up);
	add_n(s, F_UP, "workerd", v->work_up);
	if (v->work_up)
		add_n(s, F_UP, "launcher", launcher);
	if (v->priv_known)
		add_n(s, F_UP, "privhelper", v->priv_up);
	add_n(s, F_READY, "", v->healthy);
	if (v->net_up)
		from_proc(s, "connectd", v->net.pid);
	if (v->work_up)
		from_proc(s, "workerd", v->work.pid);
	if (launcher)
		from_proc(s, "launcher", v->work.launcher_pid);
	if (v->priv_up)
		from_proc(s, "privhelper", v->net_up && v->net.priv_up ? v->net.priv_pid : v->work.priv_pid);
}

/* ---- the text ---- */

/* A label's value, with what must be escaped. */
static void
put_label(FILE *out, const char *name, const char *value)
{
	fprintf(out, "%s=\"", name);
	for (const char *p = out_safe(value); *p != '\0'; p++) {
		if (*p == '"' || *p == '\\')
			putc('\\', out);
		putc(*p, out);
	}
	putc('"', out);
}

static void
put_sample(FILE *out, const struct sample *s)
{
	const char *label = families[s->family].label;

	fprintf(out, "%s%s", families[s->family].name, families[s->family].type == COUNTER ? "_total" : "");
	if (label[0] != '\0') {
		putc('{', out);
		put_label(out, label, s->label);
		putc('}', out);
	}
	if (s->exact)
		fprintf(out, " %" PRIu64 "\n", s->n);
	else
		fprintf(out, " %.6f\n", s->value);
}

static void
put_build(FILE *out, const char *process, const char *version)
{
	if (version[0] == '\0')
		return;
	fputs("edgeward_build_info{", out);
	put_label(out, "process", process);
	putc(',', out);
	put_label(out, "version", version);
	fputs("} 1\n", out);
}

static void
put_builds(FILE *out, const struct view *v)
{
	put_build(out, "connectd", v->net_up ? v->net.build : "");
	put_build(out, "workerd", v->work_up ? v->work.build : "");
	put_build(out, "launcher", v->work_up && v->work.launcher_up ? v->work.launcher_build : "");
	put_build(out, "privhelper", v->net_up && v->net.priv_up ? v->net.priv_build : "");
}

void
metrics_write(struct edgectl *ctl, struct view *v, FILE *out)
{
	static const char *const types[] = { [GAUGE] = "gauge", [COUNTER] = "counter", [INFO] = "info" };
	static struct samples s;

	s.n = 0;
	status_look(ctl, v);
	from_processes(&s, v);
	if (v->net_up)
		from_connectd(&s, &v->net);
	if (v->work_up)
		from_workerd(&s, &v->work);
	from_counts(ctl, &s);
	if (v->work_up)
		from_devices(ctl, &s);
	from_audit(&s);
	for (unsigned f = 0; f < FAMILIES; f++) {
		fprintf(out, "# TYPE %s %s\n", families[f].name, types[families[f].type]);
		if (families[f].unit[0] != '\0')
			fprintf(out, "# UNIT %s %s\n", families[f].name, families[f].unit);
		fprintf(out, "# HELP %s %s\n", families[f].name, families[f].help);
		if (f == F_BUILD)
			put_builds(out, v);
		for (size_t i = 0; i < s.n; i++)
			if (s.all[i].family == f)
				put_sample(out, &s.all[i]);
	}
	fputs("# EOF\n", out);
}

int
cmd_metrics(struct edgectl *ctl, int argc, char **argv)
{
	struct view v;

	if (argc == 3 && strcmp(argv[1], "--listen") == 0)
		return metrics_listen(ctl, argv[2]);
	if (argc > 1)
		return usage_error("metrics", argc == 2 && strcmp(argv[1], "--listen") == 0 ? "--listen wants 127.0.0.1:PORT, [::1]:PORT or unix:PATH" :
		    "no argument %s", argv[1]);
	metrics_write(ctl, &v, stdout);
	return v.net_up || v.work_up ? EXIT_OK : client_complain(&v.connectd, "metrics");
}
