/* devices: the forwarded devices this device holds, who leases each, which ports are left, and why none can be lent here. */
#include <stdio.h>
#include <string.h>

#include "edgectl/client.h"
#include "edgectl/edgectl.h"
#include "proto/ipc/device.h"

#define COLS	6

struct show {
	yajl_gen g;			/* NULL: a table */
	struct device_info list[DEVICES_MAX];
	unsigned n;
};

static const char *
state_of(const struct device_info *d)
{
	return d->state == DEVICE_READY ? "ready" : d->state == DEVICE_ATTACHING ? "attaching" : "closed";
}

static void
json_device(yajl_gen g, const struct device_info *d)
{
	char hex[8];

	json_open(g, NULL, '{');
	json_str(g, "id", d->id);
	json_str(g, "kind", "usb");
	json_str(g, "state", state_of(d));
	json_str(g, "handle", d->handle);
	json_str(g, "busid", d->busid);
	snprintf(hex, sizeof(hex), "%04x", d->vendor);
	json_str(g, "vendor_id", hex);
	snprintf(hex, sizeof(hex), "%04x", d->product);
	json_str(g, "product_id", hex);
	json_uint(g, "port", d->port);
	json_uint(g, "bus", d->bus);
	json_uint(g, "dev", d->dev);
	json_uint(g, "speed", d->speed);
	json_uint(g, "interfaces", d->interfaces);
	json_uint(g, "authorized", d->authorized);
	json_open(g, "nodes", '[');
	for (uint32_t i = 0; i < d->nnodes; i++) {
		json_open(g, NULL, '{');
		json_str(g, "name", d->nodes[i].name);
		json_str(g, "subsystem", d->nodes[i].subsystem);
		json_close(g, '}');
	}
	json_close(g, ']');
	json_close(g, '}');
}

static void
on_device(const struct device_info *d, void *ctx)
{
	struct show *show = ctx;

	if (show->g != NULL)
		json_device(show->g, d);
	else if (show->n < DEVICES_MAX)
		show->list[show->n++] = *d;
}

static void
on_link(const struct l2_open *l, void *ctx)
{
	const struct show *show = ctx;
	bool waits = l->handle[0] == '\0';
	char mac[18];

	snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", l->mac[0], l->mac[1], l->mac[2], l->mac[3], l->mac[4], l->mac[5]);
	if (show->g == NULL) {
		printf("%s: interface %s of %s, %s, MTU %u%s\n", l->id, l->name, waits ? "a start that names it" : l->handle, mac, l->mtu, l->offload != 0 ? ", offload" : "");
		return;
	}
	json_open(show->g, NULL, '{');
	json_str(show->g, "id", l->id);
	json_str(show->g, "kind", "l2");
	json_str(show->g, "state", waits ? "waits" : "ready");
	json_str(show->g, "handle", l->handle);
	json_str(show->g, "interface", l->name);
	json_str(show->g, "mac", mac);
	json_uint(show->g, "mtu", l->mtu);
	json_bool(show->g, "offload", l->offload != 0);
	json_close(show->g, '}');
}

static void
nodes_text(const struct device_info *d, char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < d->nnodes && len < size; i++)
		len += (size_t)snprintf(buf + len, size - len, "%s%s", i > 0 ? " " : "", d->nodes[i].name);
}

static void
print_table(const struct show *show)
{
	static char text[DEVICES_MAX][3][400];
	const char *cells[(DEVICES_MAX + 1) * COLS] = { "DEVICE", "STATE", "LEASED TO", "USB", "PORT", "NODES IN /dev/edgeward" };

	for (unsigned i = 0; i < show->n; i++) {
		const struct device_info *d = &show->list[i];
		const char **row = &cells[(i + 1) * COLS];

		snprintf(text[i][0], sizeof(text[i][0]), "%04x:%04x (%s)", d->vendor, d->product, d->busid);
		snprintf(text[i][1], sizeof(text[i][1]), "%u", d->port);
		nodes_text(d, text[i][2], sizeof(text[i][2]));
		row[0] = d->id;
		row[1] = state_of(d);
		row[2] = d->handle[0] != '\0' ? d->handle : "-";
		row[3] = text[i][0];
		row[4] = text[i][1];
		row[5] = text[i][2];
	}
	if (show->n > 0)
		out_table(cells, show->n + 1, COLS);
}

static void
print_offer(const struct device_offer *o)
{
	if (o->usb == 0)
		printf("USB: none can be lent: %s\n", out_safe(o->issue));
	if (o->l2 == 0)
		printf("interfaces: none can be lent: %s\n", out_safe(o->l2_issue));
	if (o->hs + o->ss > 0)
		printf("USB ports free: %u of %u high-speed, %u of %u super-speed\n", o->hs_free, o->hs, o->ss_free, o->ss);
}

static void
json_offer(yajl_gen g, const struct device_offer *o, bool complete)
{
	json_close(g, ']');
	json_bool(g, "complete", complete);
	json_bool(g, "usb", o->usb == 1);
	json_str(g, "usb_issue", o->issue);
	json_bool(g, "l2", o->l2 == 1);
	json_str(g, "l2_issue", o->l2_issue);
	json_open(g, "ports", '{');
	json_uint(g, "hs", o->hs);
	json_uint(g, "hs_free", o->hs_free);
	json_uint(g, "ss", o->ss);
	json_uint(g, "ss_free", o->ss_free);
	json_close(g, '}');
	json_str(g, "audit_head", o->audit_head);
	json_end(g);
}

int
cmd_devices(struct edgectl *ctl, int argc, char **argv)
{
	static struct client c;
	static struct show show;
	struct device_offer offer;
	int code = EXIT_OK;
	bool good;

	if (argc != 1)
		return usage_error("devices", "takes nothing");
	show = (struct show){ .g = ctl->json ? json_begin() : NULL };
	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	c.device = on_device;
	c.link = on_link;
	c.ctx = &show;
	if (show.g != NULL)
		json_open(show.g, "devices", '[');
	client_call(&c, CTL_REQ_DEVICES, NULL, 0, CLIENT_WAIT_MS);
	good = client_answer(&c, &offer, sizeof(offer)) && device_offer_ok(&offer);
	if (!good)
		offer = (struct device_offer){ 0 };
	if (show.g != NULL)
		json_offer(show.g, &offer, good);
	else if (good)
		print_table(&show);
	if (show.g == NULL && good)
		print_offer(&offer);
	if (good)
		client_check_build(&c);
	else
		code = client_complain(&c, "devices");
	client_close(&c);
	return code;
}
