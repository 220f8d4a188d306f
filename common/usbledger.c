/* The ledger of attached ports. The file is in a directory of root's alone; what is in it is checked against the kernel's word. */
#include "common/usbledger.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define MARK_MIN	512	/* usual tools hold such sockets at numbers below 10 */
#define MARK_RANGE	448u

struct row {
	uint32_t used, port, devid, mark;
};
static_assert(sizeof(struct row) == 16, "file format");

bool
usbledger_left(const char *rundir)
{
	char path[4096];

	return snprintf(path, sizeof(path), "%s/privhelper/usb", rundir) < (int)sizeof(path) && access(path, F_OK) == 0;
}

int
usbledger_open(struct usbledger *ledger, int dirfd, const char *name, monotime_t until)
{
	int rows = 0, fd = openat(dirfd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct row row;

	*ledger = (struct usbledger){ .fd = fd };
	if (fd < 0)
		return -errno;
	for (uint32_t i = 0; i < USBLEDGER_SLOTS; i++) {
		ssize_t n = pread(fd, &row, sizeof(row), (off_t)(i * sizeof(row)));

		if (n < 0)
			return -errno;
		if (n != sizeof(row) || row.used != 1)
			continue;
		ledger->slots[i] = (struct usb_slot){ USB_STALE, row.port, row.devid, row.mark, until };
		rows++;
	}
	return rows;
}

int
usbledger_keep(const struct usbledger *ledger, const struct usb_slot *slot)
{
	const struct row row = { slot->state != USB_FREE, slot->port, slot->devid, slot->mark };
	off_t at = (slot - ledger->slots) * (off_t)sizeof(row);

	return pwrite(ledger->fd, &row, sizeof(row), at) == sizeof(row) ? 0 : -errno;
}

int
usbledger_is_ours(const struct usb_slot *slot, const struct vhci_port *ports, size_t n, const struct vhci_port **ret_port)
{
	for (size_t i = 0; i < n; i++) {
		const struct vhci_port *p = &ports[i];

		if (p->port != slot->port)
			continue;
		/* One that was seen as ours does not start again: that is the next one on this port. */
		if (p->state == VHCI_STARTING && (slot->state == USB_ASKED || slot->state == USB_THERE))
			return 0;
		if (p->state == VHCI_STARTING || p->state == VHCI_ERROR)
			return -EAGAIN;
		if (p->state != VHCI_USED || p->devid != slot->devid || p->sockfd != slot->mark)
			return 0;
		if (ret_port != NULL)
			*ret_port = p;
		return 1;
	}
	return 0;
}

int
usbledger_socket(int ends[2])
{
	int pair[2];
	uint32_t mark;

	if (getrandom(&mark, sizeof(mark), 0) != (ssize_t)sizeof(mark) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	ends[0] = fcntl(pair[0], F_DUPFD_CLOEXEC, MARK_MIN + (int)(mark % MARK_RANGE));
	ends[1] = pair[1];
	close(pair[0]);
	if (ends[0] < 0)
		close(pair[1]);
	return ends[0] < 0 ? -EMFILE : 0;
}

unsigned
usbledger_row(const struct usbledger *ledger, const struct usb_slot *slot)
{
	return (unsigned)(slot - ledger->slots);
}

struct usb_slot *
usbledger_take(struct usbledger *ledger)
{
	for (struct usb_slot *s = ledger->slots; s < ledger->slots + USBLEDGER_SLOTS; s++)
		if (s->state == USB_FREE)
			return s;
	return NULL;
}

bool
usbledger_busy(const struct usbledger *ledger)
{
	for (const struct usb_slot *s = ledger->slots; s < ledger->slots + USBLEDGER_SLOTS; s++)
		if (s->state != USB_FREE)
			return true;
	return false;
}

void
usbledger_abandon(struct usbledger *ledger, monotime_t until)
{
	for (struct usb_slot *s = ledger->slots; s < ledger->slots + USBLEDGER_SLOTS; s++) {
		if (s->state == USB_WAITING || s->state == USB_THERE)
			s->state = USB_STALE;
		if (s->state != USB_ASKED)
			s->until = until;
		else if (s->until.ns != MONOTIME_NEVER.ns)	/* else it was given up already, and once is enough */
			s->until = monotime_now();
	}
}

bool
usbledger_given_up(const struct usb_slot *slot)
{
	return slot->until.ns == MONOTIME_NEVER.ns || !monotime_before(monotime_now(), slot->until);
}

struct usb_slot *
usbledger_find(struct usbledger *ledger, uint32_t port)
{
	struct usb_slot *found = NULL;

	for (struct usb_slot *s = ledger->slots; s < ledger->slots + USBLEDGER_SLOTS; s++)
		if (s->port == port && s->until.ns != MONOTIME_NEVER.ns &&
		    (s->state == USB_WAITING || s->state == USB_THERE || (s->state == USB_ASKED && found == NULL)))
			found = s;
	return found;
}
