/*
 * Who calls: inventory.c, on connectd's request: nothing here waits for a device, the kernel has read its descriptors before. A
 * device that vanishes meanwhile, or lacks what the hub needs to name it, is left out.
 */
#include "workerd/usb.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"

#define ATTR_SIZE	256
#define ENTRIES_MAX	8192	/* of one directory */

const struct usb_places usb_places = { "/sys/bus/usb/devices", "/sys/class", "/dev" };

static void
close_dir(DIR **dir)
{
	if (*dir != NULL)
		closedir(*dir);
}
#define _cleanup_dir_ __attribute__((cleanup(close_dir)))

static DIR *
open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (dir == NULL && fd >= 0)
		close(fd);
	return dir;
}

void
usb_text(char *dst, size_t size, const char *src, size_t len)
{
	size_t n = 0;

	while (len > 0 && (src[0] == ' ' || src[0] == '\t' || src[0] == '\n')) {
		src++;
		len--;
	}
	while (len > 0 && (src[len - 1] == ' ' || src[len - 1] == '\t' || src[len - 1] == '\n' || src[len - 1] == '\0'))
		len--;
	for (; n < len && n + 1 < size; n++)
		dst[n] = src[n] >= ' ' && src[n] <= '~' ? src[n] : '?';
	memset(dst + n, 0, size - n);
}

/* One attribute; dst is empty when there is none. */
static void
attribute(int dir, const char *name, char *dst, size_t size)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char buf[ATTR_SIZE];
	ssize_t n = fd >= 0 ? read(fd, buf, sizeof(buf)) : 0;

	usb_text(dst, size, buf, n > 0 ? (size_t)n : 0);
}

static uint32_t
number(int dir, const char *name)
{
	char text[16];
	uint32_t v = 0;

	attribute(dir, name, text, sizeof(text));
	return parse_u32(text, 1, 999, &v) == 0 ? v : 0;
}

/* The line of the group with this id: "name:x:gid:...". */
static void
find_group(const char *groups, uint32_t gid, char *dst, size_t size)
{
	for (const char *line = groups; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
		const char *id;
		char text[12];
		uint32_t v;

		line += *line == '\n';
		id = strchr(line, ':');
		if (id == NULL || (id = strchr(id + 1, ':')) == NULL)
			return;
		snprintf(text, sizeof(text), "%.*s", (int)strcspn(id + 1, ":\n"), id + 1);
		if (parse_u32(text, 0, UINT32_MAX, &v) == 0 && v == gid) {
			usb_text(dst, size, line, strcspn(line, ":"));
			return;
		}
	}
}

static void
find_node(const struct usb_places *places, const char *groups, struct work_usb *usb)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/bus/usb/%03u/%03u", places->dev, usb->bus, usb->dev);
	if (stat(path, &st) < 0)
		return;
	usb->mode = st.st_mode & 07777;
	usb->uid = st.st_uid;
	usb->gid = st.st_gid;
	find_group(groups, usb->gid, usb->group, sizeof(usb->group));
}

/* The link of a class device leads through the interface it hangs on: ".../1-1.2/1-1.2:1.0/...". */
static bool
hangs_on(int dir, const char *name, const char *port)
{
	char target[PATH_MAX], want[48];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);

	if (n <= 0)
		return false;
	target[n] = '\0';
	snprintf(want, sizeof(want), "/%s:", port);
	return strstr(target, want) != NULL;
}

static void
find_class(const struct usb_places *places, const char *class, struct work_usb *usb)
{
	char path[PATH_MAX];
	const struct dirent *de;

	snprintf(path, sizeof(path), "%s/%s", places->classes, class);
	_cleanup_dir_ DIR *dir = open_dir(path);

	for (unsigned n = 0; dir != NULL && usb->nnodes < INVENTORY_NODES_MAX && n < ENTRIES_MAX && (de = readdir(dir)) != NULL; n++) {
		struct work_usb_node *node = &usb->nodes[usb->nnodes];
		size_t len = strlen(de->d_name);

		if (de->d_name[0] == '.' || len > 32 || !hangs_on(dirfd(dir), de->d_name, usb->port))
			continue;
		memcpy(node->path, "/dev/", 5);
		usb_text(node->path + 5, sizeof(node->path) - 5, de->d_name, len);
		usb_text(node->subsystem, sizeof(node->subsystem), class, strlen(class));
		usb->nnodes++;
	}
}

/* What was forwarded to this machine is another's: listed as its own it could be lent on, in a loop. Its link leads through the virtual controller. */
static bool
is_forwarded(int devices, const char *port)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(devices, port, target, sizeof(target) - 1);

	target[n > 0 ? n : 0] = '\0';
	return strstr(target, "/vhci_hcd.") != NULL;
}

static bool
fill(const struct usb_places *places, int devices, const char *port, const char *groups, struct work_usb *usb)
{
	static const char *const classes[] = { "tty", "hidraw", "video4linux" };
	_cleanup_close_ int dir = openat(devices, port, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	memset(usb, 0, sizeof(*usb));
	if (dir < 0)
		return false;
	memcpy(usb->port, port, strlen(port));	/* inventory_port_ok(): at most 31 */
	usb->bus = number(dir, "busnum");
	usb->dev = number(dir, "devnum");
	attribute(dir, "idVendor", usb->vendor_id, sizeof(usb->vendor_id));
	attribute(dir, "idProduct", usb->product_id, sizeof(usb->product_id));
	attribute(dir, "bDeviceClass", usb->class, sizeof(usb->class));
	attribute(dir, "speed", usb->speed, sizeof(usb->speed));
	attribute(dir, "manufacturer", usb->manufacturer, sizeof(usb->manufacturer));
	attribute(dir, "product", usb->product, sizeof(usb->product));
	attribute(dir, "serial", usb->serial, sizeof(usb->serial));
	find_node(places, groups, usb);
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		find_class(places, classes[i], usb);
	return inventory_usb_ok(usb);
}

uint32_t
usb_scan(const struct usb_places *places, const char *groups, void (*tell)(const struct work_usb *usb, void *ctx), void *ctx)
{
	_cleanup_dir_ DIR *dir = open_dir(places->devices);
	const struct dirent *de;
	uint32_t told = 0, left_out = 0;
	struct work_usb usb;

	for (unsigned n = 0; dir != NULL && n < ENTRIES_MAX && (de = readdir(dir)) != NULL; n++) {
		if (!inventory_port_ok(de->d_name) || is_forwarded(dirfd(dir), de->d_name) ||
		    !fill(places, dirfd(dir), de->d_name, groups, &usb))
			continue;
		if (told == INVENTORY_USB_MAX) {
			left_out++;
			continue;
		}
		tell(&usb, ctx);
		told++;
	}
	return left_out;
}
