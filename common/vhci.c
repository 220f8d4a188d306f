/* Reading of vhci_hcd's status files. A line that is not understood is an error: a guess here would be a wrong port. */
#include "common/vhci.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/fdutil.h"
#include "common/parse.h"

#define STATUS_SIZE	4096	/* sysfs gives no more than a page */
#define FIELDS		7

int
vhci_hub_of(uint32_t speed, enum vhci_hub *ret_hub, uint32_t *ret_speed)
{
	if (speed < 1 || speed > 6 || speed == 4)
		return -EINVAL;
	*ret_hub = speed >= 5 ? VHCI_SUPER : VHCI_HIGH;
	*ret_speed = speed == 6 ? 5 : speed;
	return 0;
}

static int
hex(const char *s, uint32_t *ret_v)
{
	static const char digits[] = "0123456789abcdef";
	uint32_t v = 0;

	if (strlen(s) != 8)
		return -EINVAL;
	for (; *s != '\0'; s++) {
		const char *d = strchr(digits, *s);

		if (d == NULL)
			return -EINVAL;
		v = v << 4 | (uint32_t)(d - digits);
	}
	*ret_v = v;
	return 0;
}

/* "3-1": bus and place, or "0-0". */
static int
take_busid(char *s, struct vhci_port *p)
{
	char *dash = strchr(s, '-');

	if (dash == NULL)
		return -EBADMSG;
	*dash = '\0';
	return parse_u32(s, 0, 65535, &p->bus) < 0 || parse_u32(dash + 1, 0, 255, &p->place) < 0 ? -EBADMSG : 0;
}

static int
take_line(char *line, struct vhci_port *p)
{
	char *field[FIELDS + 1] = { NULL }, *word;
	unsigned n = 0;

	while (n <= FIELDS && (word = strsep(&line, " ")) != NULL)
		if (*word != '\0')
			field[n++] = word;
	if (n != FIELDS || (strcmp(field[0], "hs") != 0 && strcmp(field[0], "ss") != 0) ||
	    parse_u32(field[1], 0, VHCI_CONTROLLERS * 256, &p->port) < 0 || parse_u32(field[2], 0, 255, &p->state) < 0 ||
	    parse_u32(field[3], 0, 255, &p->speed) < 0 || hex(field[4], &p->devid) < 0 ||
	    parse_u32(field[5], 0, UINT32_MAX, &p->sockfd) < 0 || take_busid(field[6], p) < 0)
		return -EBADMSG;
	p->hub = field[0][0] == 's' ? VHCI_SUPER : VHCI_HIGH;
	return p->state == VHCI_USED && (p->bus == 0 || p->place == 0) ? -EBADMSG : 0;
}

int
vhci_parse(const char *text, uint32_t controller, struct vhci_port *ports, size_t max, size_t *n)
{
	const char *end = strchr(text, '\n');
	char line[128];

	if (end == NULL || strncmp(text, "hub port sta spd dev ", 21) != 0)
		return -EBADMSG;
	for (text = end + 1; *text != '\0'; text = end + 1) {
		struct vhci_port p = { .controller = controller };

		end = strchr(text, '\n');
		if (end == NULL || end - text >= (ptrdiff_t)sizeof(line))
			return -EBADMSG;
		snprintf(line, sizeof(line), "%.*s", (int)(end - text), text);
		if (take_line(line, &p) < 0)
			return -EBADMSG;
		if (*n >= max)
			return -ENOSPC;
		ports[(*n)++] = p;
	}
	return 0;
}

int
vhci_read(int dirfd, struct vhci_port *ports, size_t max, size_t *ret_n)
{
	char name[24] = "status", text[STATUS_SIZE + 1];
	size_t count = 0;

	for (uint32_t i = 0; i < VHCI_CONTROLLERS; i++) {
		ssize_t len;
		int r;

		if (i > 0)
			snprintf(name, sizeof(name), "status.%u", i);
		len = fd_get(dirfd, name, text, sizeof(text));
		if (len == -ENOENT && i > 0)
			break;
		if (len < 0)
			return (int)len;
		r = vhci_parse(text, i, ports, max, &count);
		if (r < 0)
			return r;
	}
	*ret_n = count;
	return 0;
}

const char *
vhci_path(const char *sysroot, size_t n, char buf[VHCI_PATH])
{
	snprintf(buf, VHCI_PATH, "%s/devices/platform/vhci_hcd.%zu", sysroot, n);
	return buf;
}
