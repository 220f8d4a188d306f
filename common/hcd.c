/*
 * vhci_hcd in sysfs: attach, detach, and what of an attached device this kernel may use.
 *
 * Who calls: privhelper's usb.c, and its thread for the part that waits. What is trusted: sysfs, and of the far side nothing: its descriptors are
 * read before anything is authorized and refused unless they are plain. On error: -errno, and the device stays shut.
 *
 * Every name opened here is made of numbers that sysfs gave, beneath descriptors held since the start. An attached device is handed
 * to this kernel first: a keyboard would type on the console, a network adapter would come up. Hence, on all hubs of all
 * controllers: authorized_default 0, so that it gets no configuration, and interface_authorized_default 0, so that no driver
 * takes an interface of the one it gets. A device that is unplugged and comes back as another one is met by the same defaults.
 */
#include "common/hcd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/fdutil.h"

#define BUS_MAX	255u

int
hcd_open(struct hcd *hcd, const char *sysroot)
{
	char path[128];

	*hcd = (struct hcd){ .probe = -1 };
	for (; hcd->n < VHCI_CONTROLLERS; hcd->n++) {
		snprintf(path, sizeof(path), "%s/devices/platform/vhci_hcd.%u", sysroot, hcd->n);
		hcd->dir[hcd->n] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (hcd->dir[hcd->n] < 0)
			break;
	}
	if (hcd->n == 0)
		return errno == ENOENT ? 0 : -errno;
	snprintf(path, sizeof(path), "%s/bus/usb/drivers_probe", sysroot);
	hcd->probe = open(path, O_WRONLY | O_CLOEXEC);
	return hcd->probe < 0 ? -errno : 0;
}

void
hcd_close(struct hcd *hcd)
{
	while (hcd->n > 0)
		close(hcd->dir[--hcd->n]);
	if (hcd->probe >= 0)
		close(hcd->probe);
	hcd->probe = -1;
}

/* Written and read back, since what an unwritable or deaf file lets through is a device. */
static int
forbid(int dirfd, uint32_t hub, const char *file)
{
	char path[64];
	uint32_t v = 1;
	int r;

	snprintf(path, sizeof(path), "usb%u/%s", hub, file);
	r = fd_get_u32(dirfd, path, &v);
	if (r == 0 && v != 0) {
		r = fd_put(dirfd, path, "0");
		r = r < 0 ? r : fd_get_u32(dirfd, path, &v);
	}
	return r == 0 && v != 0 ? -EPERM : r;
}

int
hcd_forbid(const struct hcd *hcd)
{
	for (unsigned i = 0; i < hcd->n; i++) {
		unsigned hubs = 0;

		/* Two hubs a controller, one for each kind of port; their numbers are whatever was free. */
		for (uint32_t bus = 1; bus <= BUS_MAX && hubs < 2; bus++) {
			int r = forbid(hcd->dir[i], bus, "authorized_default");

			if (r == -ENOENT)
				continue;
			r = r < 0 ? r : forbid(hcd->dir[i], bus, "interface_authorized_default");
			if (r < 0)
				return r;
			hubs++;
		}
		if (hubs < 2)
			return -ENODEV;
	}
	return 0;
}

int
hcd_attach(const struct hcd *hcd, uint32_t port, int sockfd, uint32_t devid, uint32_t speed)
{
	char text[64];

	snprintf(text, sizeof(text), "%u %d %u %u", port, sockfd, devid, speed);
	return fd_put(hcd->dir[0], "attach", text);
}

int
hcd_attach_free(const struct hcd *hcd, const struct vhci_port *ports, size_t n, int sockfd, const struct priv_usb_attach *what,
    void (*before)(uint32_t port, void *ctx), void *ctx, struct priv_usb_attached *ret)
{
	enum vhci_hub hub;
	uint32_t speed;
	int r = vhci_hub_of(what->speed, &hub, &speed) < 0 ? -EINVAL : -EBUSY;

	for (size_t i = 0; i < n && r != -EINVAL; i++) {
		bool try = ports[i].hub == hub && ports[i].state == VHCI_FREE && r == -EBUSY;

		ret->ports += ports[i].hub == hub;
		ret->used += try || (ports[i].hub == hub && ports[i].state != VHCI_FREE);
		if (!try)
			continue;
		ret->port = ports[i].port;
		before(ret->port, ctx);
		r = hcd_attach(hcd, ret->port, sockfd, what->devid, speed);
	}
	return r;
}

int
hcd_detach(const struct hcd *hcd, uint32_t port)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", port);
	return fd_put(hcd->dir[0], "detach", text);
}

/* Authorized, then offered to the drivers, which the kernel does not do by itself. */
static int
authorize_interface(const struct hcd *hcd, int dev, const struct vhci_port *at, const struct usbdesc_if *i)
{
	char name[48], path[64];
	int r;

	snprintf(name, sizeof(name), "%u-%u:%u.%u", at->bus, at->place, i->config, i->number);
	snprintf(path, sizeof(path), "%s/authorized", name);
	r = fd_put(dev, path, "1");
	/* That no driver wants it is no error: a workload may use it through usbfs. */
	if (r == 0 && write(hcd->probe, name, strlen(name)) < 0 && errno != EINVAL && errno != ENODEV)
		r = -errno;
	return r;
}

/* The device gets a configuration, which one is the kernel's choice, and of that the interfaces of permitted classes. */
static int
authorize(const struct hcd *hcd, int dev, const struct vhci_port *at, const struct usbdesc *d, struct priv_usb_device *what)
{
	struct usbdesc_count c;
	uint32_t config = 0;
	int r = fd_put(dev, "authorized", "1");

	r = r < 0 ? r : fd_get_u32(dev, "bConfigurationValue", &config);
	c = usbdesc_count(d, (uint8_t)config);
	what->interfaces = c.interfaces;
	what->refused_class = c.refused;
	for (unsigned i = 0; i < d->n && r == 0; i++)
		if (d->ifs[i].config == config && d->ifs[i].refused == USBDESC_NONE) {
			r = authorize_interface(hcd, dev, at, &d->ifs[i]);
			what->authorized = (uint16_t)(what->authorized + (r == 0));
		}
	if (what->authorized > 0)
		what->outcome = PRIV_USB_READY;
	return r;
}

int
hcd_open_device(const struct hcd *hcd, const struct vhci_port *at)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "usb%u/%u-%u", at->bus, at->bus, at->place);
	fd = at->controller < hcd->n ? openat(hcd->dir[at->controller], path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	return fd < 0 ? -EAGAIN : fd;
}

int
hcd_authorize(const struct hcd *hcd, const struct vhci_port *at, const struct usbdesc_classes *set, struct priv_usb_device *what)
{
	static uint8_t raw[USBDESC_SIZE + 2];	/* one thread calls */
	_cleanup_close_ int dev = hcd_open_device(hcd, at);
	struct usbdesc_count c;
	struct usbdesc d;
	uint32_t open = 1;
	ssize_t n;
	int r;

	if (dev < 0 || fd_get_u32(dev, "busnum", &what->bus) < 0 || fd_get_u32(dev, "devnum", &what->dev) < 0)
		return -EAGAIN;
	what->outcome = PRIV_USB_UNAUTHORIZED;
	/* The kernel makes these two after those; only what is there says anything about the device. */
	r = fd_get_u32(dev, "authorized", &open);
	if (r == -ENOENT)
		return -EAGAIN;
	if (r < 0 || open != 0)
		return -EPERM;	/* somebody opened the hub again while we were at it */
	n = fd_get(dev, "descriptors", raw, sizeof(raw));
	if (n == -ENOENT || (n >= 0 && n < USBDESC_DEVICE_LEN))
		return -EAGAIN;
	if (n < 0 || usbdesc_parse(raw, (size_t)n, set, &d) < 0)
		return 0;
	what->vendor = d.vendor;
	what->product = d.product;
	c = usbdesc_count(&d, d.n > 0 ? d.ifs[0].config : 0);
	what->interfaces = c.interfaces;
	what->refused_class = c.refused;
	for (unsigned i = 0; i < d.n && d.refused == USBDESC_NONE; i++)
		if (d.ifs[i].refused == USBDESC_NONE)
			return authorize(hcd, dev, at, &d, what);
	return 0;
}
