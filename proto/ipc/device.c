/* The checks that both ends make of what the other says about devices. */
#include "proto/ipc/device.h"

#include <string.h>

#include "proto/ipc/ipc.h"

#define LOWER	"abcdefghijklmnopqrstuvwxyz"
#define DIGITS	"0123456789"

static bool
made_of(const char *s, const char *set, size_t size)
{
	size_t len = strlen(s);

	return len > 0 && len < size && strspn(s, set) == len;
}

bool
device_id_ok(const char *s)
{
	return s[0] != '-' && made_of(s, LOWER DIGITS "-", FORWARD_ID_SIZE);
}

bool
device_busid_ok(const char *s)
{
	return made_of(s, DIGITS ".:-", DEVICE_BUSID_SIZE);
}

bool
device_list_ok(const char *s)
{
	char id[FORWARD_ID_SIZE];

	if (s[0] == '\0')
		return true;
	for (;;) {
		size_t len = strcspn(s, " ");

		if (len >= sizeof(id))
			return false;
		memcpy(id, s, len);
		id[len] = '\0';
		if (!device_id_ok(id))
			return false;
		if (s[len] == '\0')
			return true;
		s += len + 1;
	}
}

bool
device_listed(const char *list, const char *id)
{
	size_t len = strlen(id);

	for (const char *p = list; (p = strstr(p, id)) != NULL; p++)
		if ((p == list || p[-1] == ' ') && (p[len] == ' ' || p[len] == '\0'))
			return true;
	return false;
}

static bool
names_ok(const char id[FORWARD_ID_SIZE], const char handle[DEVICE_HANDLE_SIZE], const char busid[DEVICE_BUSID_SIZE])
{
	return ipc_str_ok(id, FORWARD_ID_SIZE) && device_id_ok(id) && ipc_str_ok(handle, DEVICE_HANDLE_SIZE) &&
	    (handle[0] == '\0' || handle_ok(handle)) && ipc_str_ok(busid, DEVICE_BUSID_SIZE) && device_busid_ok(busid);
}

bool
device_open_ok(const struct device_open *open)
{
	const struct priv_usb_attach attach = { open->devid, open->speed };

	return names_ok(open->id, open->handle, open->busid) && priv_usb_attach_ok(&attach) && open->reserved == 0;
}

bool
device_answer_ok(const struct device_answer *answer)
{
	return answer->ok <= 1 && ipc_text_ok(answer->error, sizeof(answer->error)) && (answer->error[0] == '\0') == (answer->ok == 1);
}

bool
device_info_ok(const struct device_info *info)
{
	struct priv_usb_granted nodes = { .n = info->nnodes };

	memcpy(nodes.nodes, info->nodes, sizeof(nodes.nodes));
	return names_ok(info->id, info->handle, info->busid) && info->state >= DEVICE_ATTACHING && info->state <= DEVICE_CLOSED &&
	    priv_usb_granted_ok(&nodes) && ipc_text_ok(info->error, sizeof(info->error));
}

bool
device_ref_ok(const struct device_ref *ref)
{
	return ipc_str_ok(ref->id, sizeof(ref->id)) && device_id_ok(ref->id) && ipc_text_ok(ref->reason, sizeof(ref->reason));
}

bool
device_offer_ok(const struct device_offer *caps)
{
	struct priv_state head = { .audit_seq = caps->audit_seq };

	memcpy(head.audit_head, caps->audit_head, sizeof(head.audit_head));
	return caps->usb <= 1 && caps->l2 <= 1 && caps->hs_free <= caps->hs && caps->ss_free <= caps->ss && priv_state_ok(&head) &&
	    ipc_text_ok(caps->issue, sizeof(caps->issue)) && (caps->issue[0] == '\0') == (caps->usb == 1) &&
	    ipc_text_ok(caps->l2_issue, sizeof(caps->l2_issue)) && (caps->l2_issue[0] == '\0') == (caps->l2 == 1);
}
