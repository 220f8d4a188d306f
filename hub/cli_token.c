/* token create, list, revoke. A token is printed on stdout and nowhere else. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/near.h"
#include "common/parse.h"
#include "hub/cli.h"
#include "proto/hub/base64.h"
#include "proto/hub/rfc3339.h"

static char json_buf[8192];

static void
print_bundle(const struct admin_token *t, const char *server, const char *workdir_root)
{
	char json[2048], out[BASE64_LEN(sizeof(json)) + 1], stamp[RFC3339_SIZE];
	struct json_w w;
	size_t len;

	json_w_init(&w, json, sizeof(json));
	json_w_obj(&w, NULL);
	json_w_str(&w, "server", server);
	json_w_str(&w, "token", t->token);
	json_w_str(&w, "pin", t->pin);
	json_w_str(&w, "enrollment_id", t->id);
	if (t->name[0] != '\0')
		json_w_str(&w, "name", t->name);
	if (workdir_root != NULL)
		json_w_str(&w, "workdir_root", workdir_root);
	json_w_str(&w, "expires_at", rfc3339_format(t->expires, stamp));
	json_w_end_obj(&w);
	if (json_w_done(&w, &len) < 0)
		return;
	base64url_encode(out, json, len);
	printf("cloopenroll1.%s\n", out);
}

/* Two of a name can only be told apart by their ids: better known before the second one is there. */
static int
look_for_name(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	const struct admin_token_req *req = ctx;
	struct admin_device d;
	char name[sizeof(d.name)];

	memcpy(&d, msg->data, sizeof(d));
	if (d.revoked == 0 && strncmp(d.name, req->name, sizeof(d.name)) == 0)
		fprintf(stderr, "edgehub: there is a device named %s already: two of that name have to be called by their ids; "
		    "edgehub revoke %s ends the old one\n", cli_text(name, sizeof(name), req->name), d.id);
	return 0;
}

static int
create_token(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "name", required_argument, NULL, 'n' }, { "ttl", required_argument, NULL, 't' },
		{ "bundle", no_argument, NULL, 'b' }, { "server", required_argument, NULL, 's' }, { 0 },
	};
	static const char line[] = "token create [--name NAME] [--ttl DURATION] [--bundle] [--server URL]";
	struct admin_token_req req = { 0 };
	struct admin_token t;
	const char *server = NULL;
	bool bundle = false;
	int opt, r;

	while ((opt = getopt_long(argc, argv, "+", options, NULL)) != -1) {
		if (opt == 'n' && strlen(optarg) >= sizeof(req.name))
			return cli_fail(CLI_USAGE, "--name: at most %zu bytes", sizeof(req.name) - 1);
		if (opt == 't' && parse_duration_ms(optarg, 1000, 24LL * 3600 * 1000, &req.ttl_ms) < 0)
			return cli_fail(CLI_USAGE, "--ttl: a duration of 1s to 24h, such as 15m");
		if (opt == 'n')
			snprintf(req.name, sizeof(req.name), "%s", optarg);
		else if (opt == 'b')
			bundle = true;
		else if (opt == 's')
			server = optarg;
		else if (opt != 't')
			return cli_usage(line);
	}
	if (optind != argc)
		return cli_usage(line);
	if (req.name[0] != '\0') {
		cli->event = look_for_name;
		cli->ctx = &req;
		r = cli_request(cli, ADMIN_REQ_DEVICES, NULL, 0);
		if (r != 0)
			return r;
	}
	r = cli_request(cli, ADMIN_REQ_TOKEN, &req, sizeof(req));
	if (r != 0)
		return r;
	if (!cli_answer(cli, &t, sizeof(t)))
		return cli_say_unreachable(cli, -EPROTO);
	if (bundle) {
		print_bundle(&t, server != NULL ? server : t.url, NULL);
	} else if (cli->json) {
		struct json_w w;

		json_w_init(&w, json_buf, sizeof(json_buf));
		json_w_obj(&w, NULL);
		json_w_str(&w, "token", t.token);
		json_w_str(&w, "id", t.id);
		json_w_str(&w, "name", t.name);
		json_w_str(&w, "pin", t.pin);
		json_w_str(&w, "server", server != NULL ? server : t.url);
		cli_json_time(&w, "expires", t.expires);
		json_w_end_obj(&w);
		cli_print_json(&w);
	} else {
		printf("%s\n", t.token);
	}
	return CLI_OK;
}

static const char *
token_state(const struct admin_token *t)
{
	if (t->revoked)
		return "revoked";
	if (t->used != 0)
		return "used";
	return t->expires <= monotime_wall_ns() ? "expired" : "open";
}

static int
print_token(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	unsigned *n = ctx;
	struct admin_token t;
	char name[64], when[32];
	struct json_w w;

	memcpy(&t, msg->data, sizeof(t));
	if (!cli->json) {
		if ((*n)++ == 0)
			printf("%-16s  %-20s  %-7s  %-20s  %s\n", "ID", "NAME", "STATE", "CREATED", "DEVICE");
		printf("%-16s  %-20s  %-7s  %-20s  %s\n", t.id, cli_text(name, sizeof(name), t.name), token_state(&t),
		    cli_time(when, t.created), t.device[0] != '\0' ? t.device : "-");
		return 0;
	}
	json_w_init(&w, json_buf, sizeof(json_buf));
	json_w_obj(&w, NULL);
	json_w_str(&w, "id", t.id);
	json_w_str(&w, "name", t.name);
	json_w_str(&w, "state", token_state(&t));
	json_w_str(&w, "device", t.device);
	cli_json_time(&w, "created", t.created);
	cli_json_time(&w, "expires", t.expires);
	cli_json_time(&w, "used", t.used);
	json_w_end_obj(&w);
	printf("%s", (*n)++ > 0 ? "," : "[");
	cli_print_json(&w);
	return 0;
}

static int
list_tokens(struct cli *cli, int argc)
{
	unsigned n = 0;
	int r;

	if (argc != 1)
		return cli_usage("token list");
	cli->event = print_token;
	cli->ctx = &n;
	r = cli_request(cli, ADMIN_REQ_TOKENS, NULL, 0);
	if (r == 0 && cli->json)
		printf("%s]\n", n == 0 ? "[" : "");
	return r;
}

static int
revoke_token(struct cli *cli, int argc, char *argv[])
{
	struct admin_text req = { 0 };

	near_drop_dashes(&argc, &argv);
	if (argc != 2 || strlen(argv[1]) >= sizeof(req.text))
		return cli_usage("token revoke ID");
	snprintf(req.text, sizeof(req.text), "%s", argv[1]);
	return cli_done(cli, cli_request(cli, ADMIN_REQ_TOKEN_REVOKE, &req, sizeof(req)));
}

int
cli_token(struct cli *cli, int argc, char *argv[])
{
	const char *what = argc > 1 ? argv[1] : "";

	if (strcmp(what, "create") == 0)
		return create_token(cli, argc - 1, argv + 1);
	if (strcmp(what, "list") == 0)
		return list_tokens(cli, argc - 1);
	if (strcmp(what, "revoke") == 0)
		return revoke_token(cli, argc - 1, argv + 1);
	return cli_usage("token create|list|revoke ...");
}
