/* The subcommands that ask once and print. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/near.h"
#include "common/parse.h"
#include "hub/cli.h"

#define JSON_SIZE	65536u

static char json_buf[JSON_SIZE];

/* A list in JSON is one array; the elements are printed as they come. */
struct list {
	unsigned n, page;	/* printed; of them in this page */
	unsigned hidden;	/* revoked, and not asked for */
	bool all;
	int64_t last;		/* when the last one was made */
};

static int
print_device(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	struct list *list = ctx;
	struct admin_device d;
	char t[32], name[64], state[16];
	struct json_w w;

	memcpy(&d, msg->data, sizeof(d));
	if (d.revoked && !list->all) {
		list->hidden++;
		return 0;
	}
	snprintf(state, sizeof(state), "%s", d.revoked ? "revoked" : d.connected ? "connected" : "offline");
	if (!cli->json) {
		if (list->n++ == 0)
			printf("%-16s  %-20s  %-9s  %-10s  %-20s  %s\n", "ID", "NAME", "STATE", "DIALECT", "LAST SEEN", "AGENT");
		printf("%-16s  %-20s  %-9s  %-10s  %-20s  %s\n", d.id, cli_text(name, sizeof(name), d.name), state,
		    d.connected ? d.edgeward ? "edgeward.1" : "cloop" : "-", cli_time(t, d.last_seen), d.version);
		return 0;
	}
	json_w_init(&w, json_buf, sizeof(json_buf));
	json_w_obj(&w, NULL);
	json_w_str(&w, "id", d.id);
	json_w_str(&w, "name", d.name);
	json_w_str(&w, "state", state);
	json_w_str(&w, "agent_version", d.version);
	if (d.connected)
		json_w_str(&w, "dialect", d.edgeward ? "edgeward.1" : "cloop");
	else
		json_w_null(&w, "dialect");
	json_w_int(&w, "epoch", (int64_t)d.epoch);
	json_w_str(&w, "peer", d.peer);
	cli_json_time(&w, "enrolled", d.created);
	cli_json_time(&w, "last_seen", d.last_seen);
	cli_json_time(&w, "connected_since", d.since);
	if (msg->hdr.len > sizeof(d))
		json_w_raw(&w, "capabilities", (const char *)msg->data + sizeof(d), msg->hdr.len - sizeof(d));
	json_w_end_obj(&w);
	printf("%s", list->n++ > 0 ? "," : "[");
	cli_print_json(&w);
	return 0;
}

int
cli_devices(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = { { "all", no_argument, NULL, 'a' }, { 0 } };
	struct list list = { 0 };
	int opt, r;

	while ((opt = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (opt != 'a')
			return cli_usage("devices [--all]");
		list.all = true;
	}
	if (argc != optind)
		return cli_usage("devices [--all]");
	cli->event = print_device;
	cli->ctx = &list;
	r = cli_request(cli, ADMIN_REQ_DEVICES, NULL, 0);
	if (r == 0 && cli->json)
		printf("%s]\n", list.n == 0 ? "[" : "");
	else if (r == 0 && list.n == 0)
		fputs(list.hidden > 0 ? "edgehub: no device but revoked ones: edgehub devices --all\n" :
		    "edgehub: no device yet; edgehub token create --name NAME makes a token for one\n", stderr);
	return r;
}

static int
print_run(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	struct list *list = ctx;
	struct admin_run run;
	char t[32], command[128], name[64];
	struct json_w w;

	memcpy(&run, msg->data, sizeof(run));
	list->page++;
	list->last = run.created;
	if (!cli->json) {
		bool final = run_state_is_final((enum run_state)run.state);
		char code[16] = "-";

		if (list->n++ == 0)
			printf("%-16s  %-16s  %-8s  %4s  %12s  %-10s  %-20s  %s\n", "HANDLE", "DEVICE", "STATE", "CODE", "BYTES",
			    "LOG", "CREATED", "COMMAND");
		if (final)
			snprintf(code, sizeof(code), "%d", cli_exit_code(&run));
		printf("%-16s  %-16s  %-8s  %4s  %12llu  %-10s  %-20s  %s\n", run.handle,
		    cli_text(name, sizeof(name), run.device_name[0] != '\0' ? run.device_name : run.device),
		    final || (run.flags & ADMIN_RUN_CONNECTED) != 0 ? run_state_name((enum run_state)run.state) : "away", code, (unsigned long long)run.bytes,
		    run_verify_name((enum run_verify)run.verify), cli_time(t, run.created),
		    cli_text(command, sizeof(command), run.command));
		return 0;
	}
	json_w_init(&w, json_buf, sizeof(json_buf));
	json_w_obj(&w, NULL);
	cli_json_run(&w, &run);
	json_w_end_obj(&w);
	printf("%s", list->n++ > 0 ? "," : "[");
	cli_print_json(&w);
	return 0;
}

int
cli_runs(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "open", no_argument, NULL, 'o' }, { "max", required_argument, NULL, 'm' }, { 0 },
	};
	static const char line[] = "runs [--open] [--max N] [DEVICE]";
	struct admin_runs_req req = { 0 };
	struct list list = { 0 };
	uint32_t max = 100;
	int opt, r;

	while ((opt = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (opt == 'o')
			req.flags |= ADMIN_RUNS_OPEN;
		else if (opt != 'm' || parse_u32(optarg, 1, UINT32_MAX, &max) < 0)
			return cli_usage(line);
	}
	if (argc - optind > 1 || (optind < argc && strlen(argv[optind]) >= sizeof(req.device)))
		return cli_usage(line);
	if (optind < argc)
		snprintf(req.device, sizeof(req.device), "%s", argv[optind]);
	cli->event = print_run;
	cli->ctx = &list;
	do {
		list.page = 0;
		req.before = list.last;
		req.max = max - list.n < ADMIN_RUNS_PAGE ? max - list.n : ADMIN_RUNS_PAGE;
		r = cli_request(cli, ADMIN_REQ_RUNS, &req, sizeof(req));
	} while (r == 0 && list.page == ADMIN_RUNS_PAGE && list.n < max);
	if (r == 0 && cli->json)
		printf("%s]\n", list.n == 0 ? "[" : "");
	return r;
}

int
cli_status(struct cli *cli, int argc, char *argv[])
{
	struct admin_status st;
	struct json_w w;
	char t[32];
	int r;

	(void)argv;
	if (argc != 1)
		return cli_usage("status");
	r = cli_request(cli, ADMIN_REQ_STATUS, NULL, 0);
	if (r != 0)
		return r;
	if (!cli_answer(cli, &st, sizeof(st)))
		return cli_say_unreachable(cli, -EPROTO);
	if (!cli->json) {
		printf("edgehub %s, pid %d, started %s\nurl      %s\npin      %s\ndevices  %u, %u connected\n"
		    "runs     %u open\nlogs     %llu bytes since start, acknowledged from %s\n", st.build, st.pid,
		    cli_time(t, st.started), st.url, st.pin, st.devices, st.connected, st.open_runs,
		    (unsigned long long)st.log_bytes, st.durable ? "disk" : "cache");
		return CLI_OK;
	}
	json_w_init(&w, json_buf, sizeof(json_buf));
	json_w_obj(&w, NULL);
	json_w_str(&w, "version", st.build);
	json_w_int(&w, "pid", st.pid);
	cli_json_time(&w, "started", st.started);
	json_w_str(&w, "url", st.url);
	json_w_str(&w, "pin", st.pin);
	json_w_int(&w, "devices", st.devices);
	json_w_int(&w, "connected", st.connected);
	json_w_int(&w, "open_runs", st.open_runs);
	json_w_int(&w, "connections", st.connections);
	json_w_int(&w, "sessions", (int64_t)st.sessions);
	json_w_int(&w, "refused", (int64_t)st.refused);
	json_w_int(&w, "rx_bytes", (int64_t)st.rx_bytes);
	json_w_int(&w, "tx_bytes", (int64_t)st.tx_bytes);
	json_w_int(&w, "log_bytes", (int64_t)st.log_bytes);
	json_w_str(&w, "ack_from", st.durable ? "disk" : "cache");
	json_w_end_obj(&w);
	cli_print_json(&w);
	return CLI_OK;
}

int
cli_signal(struct cli *cli, int argc, char *argv[])
{
	static const char *const names[][3] = {
		{ "INT", "interrupt" }, { "TERM", "terminate" }, { "KILL", "kill" },
	};
	struct admin_signal req = { 0 };
	struct admin_text text;
	char clean[sizeof(text.text)];
	const char *want;
	int r;

	near_drop_dashes(&argc, &argv);
	want = argc == 3 ? argv[2] : "TERM";
	if (argc < 2 || argc > 3 || strlen(argv[1]) >= sizeof(req.handle))
		return cli_usage("signal HANDLE [INT|TERM|KILL]");
	snprintf(req.handle, sizeof(req.handle), "%s", argv[1]);
	for (size_t i = 0; i < 3; i++)
		if (strcmp(names[i][0], want) == 0 || strcmp(names[i][1], want) == 0 ||
		    (strncmp(want, "SIG", 3) == 0 && strcmp(names[i][0], want + 3) == 0))
			snprintf(req.signal, sizeof(req.signal), "%s", names[i][1]);
	if (req.signal[0] == '\0')
		return cli_usage("signal HANDLE [INT|TERM|KILL]");
	r = cli_request(cli, ADMIN_REQ_SIGNAL, &req, sizeof(req));
	/* No error, but no signal either: it has ended already. */
	if (r == CLI_OK && cli_answer(cli, &text, sizeof(text)) && admin_text_ok(&text) && text.text[0] != '\0')
		fprintf(stderr, "edgehub: %s\n", cli_text(clean, sizeof(clean), text.text));
	return cli_done(cli, r);
}

int
cli_revoke(struct cli *cli, int argc, char *argv[])
{
	struct admin_text req = { 0 };

	near_drop_dashes(&argc, &argv);
	if (argc != 2 || strlen(argv[1]) >= sizeof(req.text))
		return cli_usage("revoke DEVICE");
	snprintf(req.text, sizeof(req.text), "%s", argv[1]);
	return cli_done(cli, cli_request(cli, ADMIN_REQ_REVOKE, &req, sizeof(req)));
}
