#include "connectd/devframes.h"

#include <string.h>

#include "common/log.h"
#include "connectd/l2dev.h"
#include "connectd/streams.h"
#include "connectd/usbdev.h"

static const struct forward_kind *const kinds[] = { &usbdev_kind, &l2dev_kind };
#define KINDS	(sizeof(kinds) / sizeof(kinds[0]))

void
devframes_open(struct session *s, const struct cloop_frame *f)
{
	const char *kind = json_get_str(f->payload, "kind");
	uint32_t channel;

	if (!s->p.edgeward1) {
		session_send_error(s, f->id, "device_unavailable", "forwarded devices need the edgeward.1 dialect");
		return;
	}
	for (size_t i = 0; i < KINDS; i++)
		if (kind != NULL && strcmp(kind, kinds[i]->name) == 0) {
			channel = streams_claim(s, f);
			if (channel != 0)
				forward_open(s, f, channel, kinds[i]);
			return;
		}
	session_send_error(s, f->id, "device_unavailable", "this agent lends no devices of that kind");
}

/* Idempotent: one that is not there is closed. */
void
devframes_close(struct session *s, const struct cloop_frame *f)
{
	const char *id = json_get_str(f->payload, "device_id"), *reason = json_get_str(f->payload, "reason");
	char quoted[LOG_QUOTE_SIZE];

	if (id == NULL) {
		session_send_error(s, f->id, "protocol", "device_id is missing");
		return;
	}
	reason = reason != NULL && reason[0] != '\0' ? reason : "closed by the hub";
	log_quote(quoted, sizeof(quoted), reason, strlen(reason));
	forward_close(s, id, quoted);
}

void
devframes_put_caps(struct json_w *w, const struct mirror *mirror)
{
	const struct device_offer *c = &mirror->devices;

	json_w_obj(w, "devices");
	json_w_bool(w, "usb", c->usb == 1);
	if (c->usb == 0)
		json_w_str(w, "usb_issue", c->issue[0] != '\0' ? c->issue : "workerd has not said yet");
	if (c->hs + c->ss > 0) {
		json_w_obj(w, "usb_ports_free");
		json_w_int(w, "hs", c->hs_free);
		json_w_int(w, "ss", c->ss_free);
		json_w_end_obj(w);
	}
	json_w_bool(w, "l2", c->l2 == 1);
	if (c->l2 == 0)
		json_w_str(w, "l2_issue", c->l2_issue[0] != '\0' ? c->l2_issue : "workerd has not said yet");
	json_w_end_obj(w);
}
