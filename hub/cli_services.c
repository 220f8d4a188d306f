/* services: what a device serves. */
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/near.h"
#include "hub/cli_stream.h"

static void
print_row(const struct json *j)
{
	const char *name = json_get_str(j, "name"), *target = json_get_str(j, "target"), *source = json_get_str(j, "source");
	const struct json *reasons = json_get(j, "reasons");
	const char *reason = reasons != NULL && reasons->type == JSON_ARRAY && reasons->child != NULL ? reasons->child->str : NULL;
	bool ready = false;
	char n[64], t[320], s[16], r[256];

	json_get_bool(j, "ready", &ready);
	printf("%-20s  %-10s  %-36s  %s\n", cli_text(n, sizeof(n), name != NULL ? name : "?"), cli_text(s, sizeof(s), source != NULL ? source : "-"),
	    cli_text(t, sizeof(t), target != NULL ? target : "-"), ready ? "yes" : cli_text(r, sizeof(r), reason != NULL ? reason : "no"));
}

int
cli_services(struct cli *cli, int argc, char *argv[])
{
	_cleanup_free_ char *body = NULL;
	struct json_doc *doc = NULL;
	const struct json *list;
	size_t len = 0;
	int r;

	near_drop_dashes(&argc, &argv);
	if (argc != 2)
		return cli_usage("services DEVICE");
	r = cli_stream_get(cli, argv[1], "/api/v1/services", &body, &len);
	if (r != CLI_OK)
		return r;
	if (json_parse(body, len, &doc) < 0)
		return cli_fail(CLI_FAILED, "the device's list of services is not JSON");
	list = json_get(json_root(doc), "services");
	if (cli->json) {
		printf("%s\n", body);
	} else {
		printf("%-20s  %-10s  %-36s  %s\n", "NAME", "SOURCE", "TARGET", "ALLOWED");
		for (const struct json *j = list != NULL ? list->child : NULL; j != NULL; j = j->next)
			print_row(j);
		if (list == NULL || list->child == NULL)
			fprintf(stderr, "edgehub: nothing is served to a hub: on the device [services] allow in policy.conf names what may be reached\n");
	}
	json_doc_free(doc);
	return CLI_OK;
}
