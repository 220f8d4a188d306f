#include "common/usbgrant.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/parse.h"

#define DEPTH_FIND	9	/* interface, host, target, LUN, "block", disk, partition, and room */
#define DEPTH_SWEEP	6
#define ENTRIES		4096u	/* looked at in one walk */
#define BUFFER		2048

/* A directory's entries without stdio's memory: f gets each name but "." and "..". Stops when f returns below 0. */
static int
each(int dir, int (*f)(int dir, const struct dirent64 *de, void *ctx), void *ctx)
{
	_Alignas(struct dirent64) char buf[BUFFER];
	ssize_t n;
	int r = 0;

	while (r >= 0 && (n = getdents64(dir, buf, sizeof(buf))) > 0)
		for (ssize_t at = 0; at < n && r >= 0;) {
			const struct dirent64 *de = (const struct dirent64 *)(void *)(buf + at);

			at += de->d_reclen;
			if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
				r = f(dir, de, ctx);
		}
	return r;
}

/* ---- what there is ---- */

struct find {
	struct usbgrant_node *nodes;
	unsigned n, max, depth, entries;
};

/* "8:1" */
static bool
read_number(int dir, dev_t *ret)
{
	char text[24], *colon;
	uint32_t maj, min;
	ssize_t n = fd_get(dir, "dev", text, sizeof(text));

	if (n <= 0 || (colon = strchr(text, ':')) == NULL)
		return false;
	*colon = '\0';
	text[n - (text[n - 1] == '\n')] = '\0';
	if (parse_u32(text, 1, 0xfff, &maj) < 0 || parse_u32(colon + 1, 0, 0xfffff, &min) < 0)
		return false;
	*ret = makedev(maj, min);
	return true;
}

/* Of the subsystems a workload may be lent; hub and driver internals, network and input are none of them. */
static bool
read_subsystem(int dir, char dst[16])
{
	static const char *const lent[] = { "usb", "tty", "hidraw", "block", "usbmisc" };
	char target[256];
	ssize_t n = readlinkat(dir, "subsystem", target, sizeof(target) - 1);
	const char *last;

	if (n <= 0)
		return false;
	target[n] = '\0';
	last = strrchr(target, '/');
	last = last != NULL ? last + 1 : target;
	for (size_t i = 0; i < sizeof(lent) / sizeof(lent[0]); i++)
		if (strcmp(last, lent[i]) == 0) {
			snprintf(dst, 16, "%s", lent[i]);
			return true;
		}
	return false;
}

static bool
name_ok(const char *s)
{
	return s[0] != '.' && s[0] != '\0' && strlen(s) < sizeof(((struct priv_usb_node *)0)->name) &&
	    s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")] == '\0';
}

static void
add_node(int dir, const char *name, struct find *f)
{
	struct usbgrant_node *node = &f->nodes[f->n];
	uint32_t bus, dev;

	if (f->n == f->max)
		return;
	*node = (struct usbgrant_node){ .type = S_IFCHR };
	if (!read_number(dir, &node->number) || !read_subsystem(dir, node->what.subsystem))
		return;
	if (strcmp(node->what.subsystem, "usb") == 0) {
		if (fd_get_u32(dir, "busnum", &bus) < 0 || fd_get_u32(dir, "devnum", &dev) < 0 || bus > 999 || dev > 999)
			return;
		snprintf(node->what.name, sizeof(node->what.name), "bus/usb/%03u/%03u", bus, dev);
	} else if (name_ok(name)) {
		snprintf(node->what.name, sizeof(node->what.name), "%.*s", (int)sizeof(node->what.name) - 1, name);
	} else {
		return;
	}
	if (strcmp(node->what.subsystem, "block") == 0)
		node->type = S_IFBLK;
	f->n++;
}

static int
look(int dir, const struct dirent64 *de, void *ctx)
{
	struct find *f = ctx;
	_cleanup_close_ int sub = -1;
	int r;

	if (++f->entries > ENTRIES)
		return -E2BIG;
	if (de->d_type != DT_DIR || f->depth == DEPTH_FIND)
		return 0;
	sub = openat(dir, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub < 0)
		return 0;	/* it went while we looked */
	add_node(sub, de->d_name, f);
	f->depth++;
	r = each(sub, look, f);
	f->depth--;
	return r;
}

unsigned
usbgrant_find(int devdir, struct usbgrant_node *nodes, unsigned max)
{
	struct find f = { .nodes = nodes, .max = max };

	add_node(devdir, "", &f);
	each(devdir, look, &f);
	return f.n;
}

/* ---- what is made of it ---- */

static bool
has(const struct usbgrant_node *nodes, unsigned n, const struct usbgrant_node *node)
{
	for (unsigned i = 0; i < n; i++)
		if (nodes[i].number == node->number && nodes[i].type == node->type && strcmp(nodes[i].what.name, node->what.name) == 0)
			return true;
	return false;
}

/* With up, the directories above a name are made; else those that are empty now are removed. */
static void
parents(int dir, const char *name, bool up)
{
	char path[sizeof(((struct priv_usb_node *)0)->name) + 12];

	snprintf(path, sizeof(path), "%s", name);
	if (up) {
		for (char *p = path; (p = strchr(p, '/')) != NULL; *p++ = '/') {
			*p = '\0';
			mkdirat(dir, path, 0755);
		}
		return;
	}
	for (char *p; (p = strrchr(path, '/')) != NULL && p != strchr(path, '/');) {
		*p = '\0';
		unlinkat(dir, path, AT_REMOVEDIR);
	}
}

static void
full_name(uint32_t slot, const struct usbgrant_node *node, char dst[64])
{
	snprintf(dst, 64, "%u/%.39s", slot, node->what.name);
}

static int
make(const struct usbgrants *g, uint32_t slot, const struct usbgrant_node *node)
{
	mode_t mode = node->type | 0600;
	char path[64];

	full_name(slot, node, path);
	parents(g->dir, path, true);
	if (mknodat(g->dir, path, mode, node->number) < 0 &&
	    (errno != EEXIST || unlinkat(g->dir, path, 0) < 0 || mknodat(g->dir, path, mode, node->number) < 0))
		return -errno;
	return fchownat(g->dir, path, g->pool.first + slot, g->pool.gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static void
drop(const struct usbgrants *g, uint32_t slot, const struct usbgrant_node *node)
{
	char path[64];

	full_name(slot, node, path);
	unlinkat(g->dir, path, 0);
	parents(g->dir, path, false);
}

void
usbgrant_take(struct usbgrants *g, unsigned row)
{
	struct usbgrant_row *r = &g->rows[row];

	for (unsigned i = 0; i < r->n; i++)
		drop(g, r->slot, &r->nodes[i]);
	*r = (struct usbgrant_row){ 0 };
}

void
usbgrant_follow(struct usbgrants *g, unsigned row, int devdir)
{
	_cleanup_close_ int dir = devdir;
	struct usbgrant_node now[PRIV_USB_NODES];
	struct usbgrant_row *r = &g->rows[row];
	unsigned n = r->n > 0 && dir >= 0 ? usbgrant_find(dir, now, PRIV_USB_NODES) : 0;

	for (unsigned i = r->n; i-- > 0; )
		if (!has(now, n, &r->nodes[i])) {
			drop(g, r->slot, &r->nodes[i]);
			r->nodes[i] = r->nodes[--r->n];
		}
}

int
usbgrant_give(struct usbgrants *g, unsigned row, int devdir, uint32_t slot, struct priv_usb_granted *ret)
{
	struct usbgrant_row *r = &g->rows[row], now = { .given = true, .slot = slot };
	int changes = 0, err = g->dir < 0 ? g->problem : slot >= g->pool.count ? -EDOM : 0;

	if (err < 0 || (r->given && r->slot != slot))
		usbgrant_take(g, row);
	if (err < 0)
		return err;
	now.n = usbgrant_find(devdir, now.nodes, PRIV_USB_NODES);
	for (unsigned i = 0; i < r->n; i++)
		if (!has(now.nodes, now.n, &r->nodes[i])) {
			drop(g, slot, &r->nodes[i]);
			changes++;
		}
	for (unsigned i = 0; i < now.n && err == 0; i++)
		if (!has(r->nodes, r->n, &now.nodes[i])) {
			err = make(g, slot, &now.nodes[i]);
			changes++;
		}
	*r = now;
	if (err < 0)
		usbgrant_take(g, row);
	*ret = (struct priv_usb_granted){ .n = r->n };
	for (unsigned i = 0; i < r->n; i++)
		ret->nodes[i] = r->nodes[i].what;
	return err < 0 ? err : changes;
}

/* ---- at start ---- */

static int
sweep(int dir, const struct dirent64 *de, void *ctx)
{
	unsigned depth = *(unsigned *)ctx;
	_cleanup_close_ int sub = -1;

	if (unlinkat(dir, de->d_name, 0) == 0 || depth == DEPTH_SWEEP)
		return 0;
	sub = openat(dir, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	depth++;
	if (sub >= 0)
		each(sub, sweep, &depth);
	return unlinkat(dir, de->d_name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* Whatever runner id it was for: the pool may have been another one. */
static int
empty(int dir, const struct dirent64 *de, void *ctx)
{
	_cleanup_close_ int sub = openat(dir, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	unsigned depth = 0;

	return sub < 0 ? -errno : each(sub, sweep, &depth);
}

static int
make_slots(const struct usbgrants *g)
{
	char name[16];
	int r = 0;

	for (uint32_t i = 0; i < g->pool.count && r >= 0; i++) {
		snprintf(name, sizeof(name), "%u", i);
		r = mkdirat(g->dir, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
	}
	return r;
}

/* Without a pool nothing is made that is not there. */
static int
open_top(const char *parent, bool make)
{
	_cleanup_close_ int up = make ? -1 : open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (!make && (up < 0 || faccessat(up, USBGRANT_DIR, F_OK, AT_SYMLINK_NOFOLLOW) < 0))
		return -errno;
	return fd_open_own_dir(parent, USBGRANT_DIR, 0755);
}

void
usbgrant_open(struct usbgrants *g, const char *parent, const struct pool *pool)
{
	if (pool != NULL)
		umask(022);
	*g = (struct usbgrants){ .dir = open_top(parent, pool != NULL), .pool = pool != NULL ? *pool : (struct pool){ 0 } };
	g->problem = g->dir < 0 ? g->dir : each(g->dir, empty, NULL);
	g->problem = g->problem < 0 ? g->problem : make_slots(g);
	if (pool == NULL || g->problem < 0)
		usbgrant_close(g);
}

void
usbgrant_close(struct usbgrants *g)
{
	if (g->dir >= 0)
		close(g->dir);
	g->dir = -1;
}
