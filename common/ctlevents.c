#include "common/ctlevents.h"

#include <string.h>

struct answer {
	struct ipc_chan *chan;
	struct ipc_hdr hdr;
	struct ctl_events next;
};

static int
send_event(const struct ctl_event *e, void *ctx)
{
	struct answer *a = ctx;
	int r = ipc_send_fds(a->chan, &a->hdr, e, sizeof(*e), NULL, 0);

	a->next.from = e->seq + 1;
	return r < 0 ? r : 0;
}

int
ctlevents_answer(struct ipc_chan *chan, struct ipc_msg *msg, struct eventlog *log)
{
	struct answer a = { .chan = chan, .hdr = { .type = CTL_EV_EVENT, .id = msg->hdr.id } };
	int r;

	memcpy(&a.next, msg->data, sizeof(a.next));
	r = eventlog_read(log, a.next.from, CTL_EVENTS_MAX, send_event, &a);
	return r < 0 ? r : ipc_answer(chan, &msg->hdr, 0, &a.next, sizeof(a.next));
}
