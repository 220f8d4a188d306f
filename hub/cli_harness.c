/* `harness`: what a device has of the programs hubs ask for by name, and having one installed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/near.h"
#include "hub/adminharness.h"
#include "hub/cli.h"

#define USAGE_LINE	"harness list DEVICE | harness install DEVICE NAME"

static void
put_names(struct json_w *w, char *list)
{
	char *name;

	json_w_arr(w, "harnesses");
	while (list[0] != '\0' && (name = strsep(&list, " ")) != NULL) {
		json_w_str(w, NULL, name);
		if (list == NULL)
			break;
	}
	json_w_end_arr(w);
}

static void
say_list(struct admin_harness *ans)
{
	for (char *p = ans->list; *p != '\0'; p++)
		*p = *p == ' ' ? '\n' : *p;
	if (ans->list[0] != '\0')
		puts(ans->list);
	else
		fputs("edgehub: the device has none; edgehub harness install DEVICE NAME has one installed, where it permits\n", stderr);
	if (ans->fresh == 0)
		fputs("edgehub: it is not connected; this is what it had when it last was\n", stderr);
}

static void
say_installed(const struct admin_harness *ans)
{
	char text[sizeof(ans->path)];

	if (ans->installed != 0)
		printf("%s%s%s%s\n", ans->present != 0 ? "was there: " : "installed: ", cli_text(text, sizeof(text), ans->path),
		    ans->version[0] != '\0' ? ", " : "", ans->version);
	else
		fprintf(stderr, "edgehub: not installed: %s\n", ans->reason);	/* printable, with the installer's lines */
}

static void
put_installed(struct json_w *w, const char *name, const struct admin_harness *ans)
{
	json_w_str(w, "harness", name);
	json_w_bool(w, "installed", ans->installed != 0);
	json_w_bool(w, "already_present", ans->present != 0);
	json_w_str(w, "path", ans->path);
	json_w_str(w, "version", ans->version);
	json_w_str(w, "reason", ans->reason);
}

/* Without a name the list, with one the installation. */
static int
ask(struct cli *cli, const struct admin_harness_req *req)
{
	bool list = req->name[0] == '\0';
	struct admin_harness ans;
	char buf[8192];
	struct json_w w;
	int r = cli_request(cli, ADMIN_REQ_HARNESS, req, sizeof(*req));

	if (r != 0)
		return r;
	if (!cli_answer(cli, &ans, sizeof(ans)) || !admin_harness_ok(&ans))
		return cli_say_unreachable(cli, -EPROTO);
	if (cli->json) {
		json_w_init(&w, buf, sizeof(buf));
		json_w_obj(&w, NULL);
		if (list) {
			json_w_bool(&w, "connected", ans.fresh != 0);
			put_names(&w, ans.list);
		} else {
			put_installed(&w, req->name, &ans);
		}
		json_w_end_obj(&w);
		cli_print_json(&w);
	} else if (list) {
		say_list(&ans);
	} else {
		say_installed(&ans);
	}
	return list || ans.installed != 0 ? CLI_OK : CLI_FAILED;
}

int
cli_harness(struct cli *cli, int argc, char *argv[])
{
	struct admin_harness_req req = { 0 };
	bool more = argc > 1 && strcmp(argv[1], "install") == 0;

	if (argc < 2 || (!more && strcmp(argv[1], "list") != 0))
		return cli_usage(USAGE_LINE);
	argc--;
	argv++;
	near_drop_dashes(&argc, &argv);
	if (argc != (more ? 3 : 2) || strlen(argv[1]) >= sizeof(req.device))
		return cli_usage(USAGE_LINE);
	snprintf(req.device, sizeof(req.device), "%s", argv[1]);
	if (!more)
		return ask(cli, &req);
	if (!harness_name_ok(argv[2]))
		return cli_fail(CLI_USAGE, "a harness is a bare name, such as claude");
	snprintf(req.name, sizeof(req.name), "%s", argv[2]);
	return ask(cli, &req);
}
