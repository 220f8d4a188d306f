#include "hub/egress.h"

#include <stdio.h>

static void
put_cidrs(struct json_w *w, const char *key, const struct fw_cidr *list, uint32_t n)
{
	char text[FW_TEXT];

	if (n == 0)
		return;
	json_w_arr(w, key);
	for (uint32_t i = 0; i < n; i++)
		json_w_str(w, NULL, fw_cidr_text(&list[i], text));
	json_w_end_arr(w);
}

static void
put_rules(struct json_w *w, const struct firewall *fw)
{
	char text[FW_TEXT];

	json_w_obj(w, "egress_rules");
	if (fw->public_internet)
		json_w_bool(w, "allow_public_internet", true);
	put_cidrs(w, "allow_cidrs", fw->allow, fw->nallow);
	put_cidrs(w, "deny_cidrs", fw->deny, fw->ndeny);
	if (fw->nports > 0) {
		json_w_arr(w, "allow_ports");
		for (uint32_t i = 0; i < fw->nports; i++)
			json_w_int(w, NULL, fw->ports[i]);
		json_w_end_arr(w);
	}
	if (fw->nresolvers > 0) {
		json_w_arr(w, "resolvers");
		for (uint32_t i = 0; i < fw->nresolvers; i++)
			json_w_str(w, NULL, fw_endpoint_text(&fw->resolvers[i], text));
		json_w_end_arr(w);
	}
	json_w_end_obj(w);
	if (!fw->has_proxy)
		return;
	json_w_obj(w, "egress_proxy");
	json_w_str(w, "host", fw_address_text(fw->proxy.family, fw_address(fw->proxy.family, fw->proxy.addr), text));
	json_w_int(w, "port", fw->proxy.port);
	json_w_end_obj(w);
}

void
egress_put(struct json_w *w, enum work_network network, const struct firewall *fw)
{
	switch (network) {
	case WORK_NETWORK_DEFAULT:
		break;
	case WORK_NETWORK_NONE:
		json_w_bool(w, "disable_network", true);
		break;
	case WORK_NETWORK_HOST:
		json_w_str(w, "network", "host");
		break;
	case WORK_NETWORK_FILTERED:
		put_rules(w, fw);
		break;
	}
}
