#include "connectd/counts.h"

#include <stdio.h>
#include <string.h>

#include "proto/ipc/ctl.h"

void
count_add(struct count of[COUNT_NAMES], const char *name)
{
	struct count *c = of;

	while (c < &of[COUNT_NAMES - 1] && c->n > 0 && strcmp(c->name, name) != 0)
		c++;
	if (c->n == 0)
		snprintf(c->name, sizeof(c->name), "%s", c < &of[COUNT_NAMES - 1] ? name : "other");
	c->n++;
}

static int
send_one(struct ipc_chan *chan, uint32_t id, const char *name, const char *label, uint64_t value)
{
	const struct ipc_hdr hdr = { .type = CTL_EV_METRIC, .id = id };
	struct ctl_metric m = { .value = value };

	snprintf(m.name, sizeof(m.name), "%s", name);
	snprintf(m.label, sizeof(m.label), "%s", label);
	return ipc_send_fds(chan, &hdr, &m, sizeof(m), NULL, 0);
}

static int
send_all(struct ipc_chan *chan, uint32_t id, const char *name, const struct count of[COUNT_NAMES])
{
	int r = 0;

	for (unsigned i = 0; i < COUNT_NAMES && of[i].n > 0 && r == 0; i++)
		r = send_one(chan, id, name, of[i].name, of[i].n);
	return r;
}

static int
send_streams(struct ipc_chan *chan, uint32_t id, const struct mux_count *m, const char *kind)
{
	const struct { const char *name; uint64_t n; } all[] = { { "streams", m->open }, { "streams_opened", m->opened },
		{ "streams_cut", m->cut }, { "stream_received_bytes", m->rx_bytes }, { "stream_sent_bytes", m->tx_bytes } };
	int r = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && r == 0; i++)
		r = send_one(chan, id, all[i].name, kind, all[i].n);
	return r;
}

int
counts_answer(struct ipc_chan *chan, const struct ipc_msg *msg, const struct counts *c)
{
	static const char *const kinds[MUX_CLASSES] = { [MUX_ATTACH] = "attach", [MUX_HTTP] = "http", [MUX_USB] = "usb", [MUX_L2] = "l2",
		[MUX_FILE] = "file" };
	int r = send_all(chan, msg->hdr.id, "link_ends", c->ends);

	if (r == 0)
		r = send_all(chan, msg->hdr.id, "requests_refused", c->errors);
	if (r == 0)
		r = send_all(chan, msg->hdr.id, "service_requests", c->services);
	for (unsigned i = 0; i < MUX_CLASSES && r == 0; i++)
		r = send_streams(chan, msg->hdr.id, &c->streams[i], kinds[i]);
	return r < 0 ? r : ipc_answer(chan, &msg->hdr, 0, NULL, 0);
}
