/*
 * Who calls: main() once, then workchan.c. Executables are looked for by name in the directories a payload's PATH has; nothing is
 * run, and no device is opened. What a file of the system holds is bounded and made printable, as is what devices say.
 */
#include "workerd/inventory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "proto/ipc/launch.h"
#include "workerd/admit.h"
#include "workerd/confinement.h"
#include "workerd/container.h"
#include "workerd/sweep.h"
#include "workerd/harness.h"
#include "workerd/usb.h"
#include "workerd/workerd.h"

#define TEXT_MAX	65536
#define OS_RELEASE_MAX	8192u	/* bytes of /etc/os-release that are looked at */
#define DIRS		"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Up to size - 1 bytes of a file; what is longer is cut. */
static void
read_text(const char *path, char *buf, size_t size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	while (fd >= 0 && len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0)
		len += (size_t)n;
	buf[len] = '\0';
}

void
inventory_field(const char *text, const char *key, char *dst, size_t size)
{
	size_t klen = strlen(key);

	memset(dst, 0, size);
	for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
		const char *v;
		size_t len;

		line += *line == '\n';
		v = line + klen;
		if (strncmp(line, key, klen) != 0)
			continue;
		v += strspn(v, " \t");
		if (*v != '=' && *v != ':')
			continue;
		v += 1 + strspn(v + 1, " \t");
		len = strcspn(v, "\n");
		if (len >= 2 && (*v == '"' || *v == '\'') && v[len - 1] == *v) {
			v++;
			len -= 2;
		}
		usb_text(dst, size, v, len);
		return;
	}
}

/* Whether it could be opened. The sandbox opens no device; a node without its driver, which may lie in a container, is in no class. */
static bool
has_kvm(void)
{
	return access("/dev/kvm", R_OK | W_OK) == 0 && (access("/sys/class/misc/kvm", F_OK) == 0 || access("/sys/class/misc", F_OK) < 0);
}

/* Where it is no link to below /usr/lib, the sandbox lets nobody read it again: what was there at the start stays. */
static void
read_os(char os[INVENTORY_TEXT])
{
	static char text[OS_RELEASE_MAX];

	read_text("/etc/os-release", text, sizeof(text));
	if (text[0] != '\0')
		inventory_field(text, "PRETTY_NAME", os, INVENTORY_TEXT);
}

uint32_t
inventory_machine(const struct inventory *inv)
{
	return machine_bits(inv->switches, launch_files);
}

void
inventory_init(struct inventory *inv)
{
	static char text[TEXT_MAX];

	memset(inv, 0, sizeof(*inv));
	read_os(inv->at_start.os);
	read_text("/proc/cpuinfo", text, sizeof(text));
	inventory_field(text, "model name", inv->at_start.cpu, sizeof(inv->at_start.cpu));
	if (inv->at_start.cpu[0] == '\0')	/* arm64 has it there, or nowhere */
		inventory_field(text, "Hardware", inv->at_start.cpu, sizeof(inv->at_start.cpu));
	read_text("/etc/group", inv->groups, sizeof(inv->groups));
	machine_open(inv->switches);	/* the sandbox lets nothing of /proc/sys be opened later */
	inv->machine = inventory_machine(inv);
}

static bool
is_program(const char *dir, size_t len, const char *name)
{
	char path[PATH_MAX];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%.*s/%s", (int)len, dir, name);

	return n > 0 && (size_t)n < sizeof(path) && stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111) != 0;
}

static bool
find(const char *name, const char *dirs, char *path, size_t size)
{
	for (size_t len; *dirs != '\0'; dirs += len + (dirs[len] == ':')) {
		len = strcspn(dirs, ":");
		if (len == 0 || !is_program(dirs, len, name))
			continue;
		snprintf(path, size, "%.*s/%s", (int)len, dirs, name);
		return true;
	}
	return false;
}

static bool
is_there(const char *name, const char *dirs)
{
	char path[PATH_MAX];

	return find(name, dirs, path, sizeof(path));
}

bool
inventory_where(const struct workerd *w, const char *name, char *path, size_t size)
{
	char dirs[HARNESS_DIRS_SIZE];

	harness_dirs(w, dirs);
	return find(name, dirs, path, size) || find(name, DIRS, path, size);
}

uint32_t
inventory_find(enum inventory_list list, const char *dirs)
{
	const char *name;
	uint32_t found = 0;

	for (unsigned bit = 0; (name = inventory_name(list, bit)) != NULL; bit++)
		if (is_there(name, dirs))
			found |= 1u << bit;
	return found;
}

uint32_t
inventory_programs(enum inventory_list list)
{
	return inventory_find(list, DIRS);
}

void
inventory_path(const char *name, char *buf, size_t size)
{
	for (const char *dir = DIRS; ; dir += strcspn(dir, ":") + 1) {
		size_t len = strcspn(dir, ":");

		if (is_program(dir, len, name)) {
			snprintf(buf, size, "%.*s/%s", (int)len, dir, name);
			return;
		}
		if (dir[len] == '\0')
			break;
	}
	buf[0] = '\0';
}

bool
inventory_has_git(void)
{
	return is_there("git", DIRS);
}

/* Of the harnesses those the policy lets the hub know of. */
static uint32_t
permitted(const struct policy *policy, uint32_t found)
{
	const char *name;

	for (unsigned bit = 0; (name = inventory_name(INVENTORY_HARNESSES, bit)) != NULL; bit++)
		if (policy->harnesses.word != POLICY_WORD && !keyfile_list_has(&policy->harnesses, name, strlen(name)))
			found &= ~(1u << bit);
	return found;
}

struct sending {
	struct ipc_chan *chan;
	uint32_t n;
	int err;
};

static void
send_usb(const struct work_usb *usb, void *ctx)
{
	struct sending *s = ctx;

	if (s->err == 0)
		s->err = ipc_send(s->chan, WORK_EV_USB, usb, sizeof(*usb));
	s->n++;
}

int
inventory_send(const struct workerd *w, struct ipc_chan *chan)
{
	struct work_inventory inv = w->inventory.at_start;
	struct sending s = { .chan = chan };
	struct statvfs st;
	uint64_t inodes;
	char dirs[HARNESS_DIRS_SIZE];

	harness_dirs(w, dirs);
	inv.usb_left_out = usb_scan(&usb_places, w->inventory.groups, send_usb, &s);
	inv.usb = s.n;
	inv.limits = w->ready.controllers;
	inv.filter_issue = (uint8_t)confinement_filter_issue(&w->ready);
	inv.found[INVENTORY_HARNESSES] = permitted(&w->policy, inventory_find(INVENTORY_HARNESSES, dirs) |
	    inventory_find(INVENTORY_HARNESSES, DIRS));
	inv.found[INVENTORY_ENGINES] = inventory_programs(INVENTORY_ENGINES);
	inv.found[INVENTORY_RUNTIMES] = inventory_programs(INVENTORY_RUNTIMES);
	inv.engines = sweep_problem(w) == NULL ? (uint8_t)container_engines(w) : 0;
	read_os(inv.os);
	if (has_kvm())
		inv.flags |= INVENTORY_F_KVM;
	if (inventory_has_git())
		inv.flags |= INVENTORY_F_GIT;
	if (is_there("nft", DIRS))
		inv.flags |= INVENTORY_F_NFT;
	if (fstatvfs(w->ids.root, &st) == 0) {
		admit_free(&st, &inv.disk_free, &inodes);
		if (__builtin_mul_overflow((uint64_t)st.f_blocks, (uint64_t)st.f_frsize, &inv.disk_total))
			inv.disk_total = UINT64_MAX;
	}
	return s.err < 0 ? s.err : ipc_send(chan, WORK_EV_INVENTORY, &inv, sizeof(inv));
}
