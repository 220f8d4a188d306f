/*
 * The second step of a view that is made in two: what belongs to one workload alone, in a copy of the mount namespace that view_base() made for
 * its runner.
 *
 * Who calls: workinit, as the runner, in namespaces of its own, before it gives up the capabilities it has there. Nothing that is
 * writable here, and no name, is shared with another workload: the common part is read-only and knows of no work directory. What is
 * covered stays so: the copy was made by a user namespace with less to say, so the kernel lets nobody in it take a mount of the common part away.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/ipc/launch.h"
#include "workerd/launcher/viewparts.h"

/* The tmpfs of one workload lies at VIEW_OWN until its parts are where they belong. */
static const struct {
	const char *part, *at;
	mode_t mode;
} parts[] = { { VIEW_OWN "/tmp", "/tmp", 01777 }, { VIEW_OWN "/shm", "/dev/shm", 01777 }, { VIEW_OWN "/var", VIEW_OWN, 0755 } };
#define PART_ROOT	VIEW_OWN "/work"	/* lies at place, which is none of these */
#define PARTS		(sizeof(parts) / sizeof(parts[0]))

/* Where in that tmpfs the mount point of the work directory is made: *ret_apart is false when it is part of another one. */
static char *
find_part(const char *place, const char *rel, char buf[PATH_MAX], bool *ret_apart)
{
	const char *part = PART_ROOT, *rest = "";

	for (unsigned i = 0; i < PARTS; i++) {
		size_t len = strlen(parts[i].at);

		if (strncmp(place, parts[i].at, len) == 0 && (place[len] == '/' || place[len] == '\0')) {
			part = parts[i].part;
			rest = place + len;
		}
	}
	*ret_apart = rest[0] == '\0' && strcmp(part, PART_ROOT) == 0;
	*view_text(view_text(view_text(buf, part), rest), rel) = '\0';
	return buf;
}

static int
make_parts(const struct view_wish *wish, const char *home, char *mountpoint)
{
	int r = mount("tmpfs", VIEW_OWN, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=25%") < 0 || mkdir(PART_ROOT, 0755) < 0 ? -errno : 0;

	for (unsigned i = 0; i < PARTS && r == 0; i++)
		if (mkdir(parts[i].part, parts[i].mode) < 0 || (parts[i].mode != 0755 && chmod(parts[i].part, parts[i].mode) < 0))
			r = -errno;
	for (unsigned i = 0; i < view_nrows && r == 0; i++)		/* what lies at VIEW_OWN itself */
		if (view_rows[i].kind == LINK && strncmp(view_rows[i].path, VIEW_OWN "/", sizeof(VIEW_OWN)) == 0) {
			char link[64];

			*view_text(view_text(link, VIEW_OWN), view_rows[i].path) = '\0';
			r = symlink(view_rows[i].target, link) < 0 ? -errno : 0;
		}
	if (r == 0)
		r = view_make_dir(mountpoint);
	return r < 0 ? r : view_name_runner(wish, home, VIEW_OWN "/passwd", VIEW_OWN "/group");
}

static int
place_parts(const char *place, bool apart)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };

	for (unsigned i = 0; i < PARTS; i++)
		if (parts[i].mode != 0755 && mount(parts[i].part, parts[i].at, NULL, MS_BIND, NULL) < 0)
			return -errno;
	if (mount_setattr(AT_FDCWD, VIEW_OWN, 0, &ro, sizeof(ro)) < 0 || (apart && mount(PART_ROOT, place, NULL, MS_BIND, NULL) < 0))
		return -errno;
	if (mount(VIEW_OWN "/passwd", "/etc/passwd", NULL, MS_BIND, NULL) < 0 || mount(VIEW_OWN "/group", "/etc/group", NULL, MS_BIND, NULL) < 0)
		return view_gone_is_fine(-errno);
	return 0;
}

static int
hide(void)
{
	int r = 0;

	for (unsigned i = 0; i < view_nrows && r == 0; i++)
		if (view_rows[i].kind == HIDDEN)
			r = mount("/run/empty", view_rows[i].path, NULL, MS_BIND, NULL) < 0 ? view_gone_is_fine(-errno) : 0;
	return r;
}

int
view_add(const struct view_wish *wish, const char *place, bool *ret_proc)
{
	struct mount_attr work = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
	char dir[PATH_MAX], full[PATH_MAX], mountpoint[PATH_MAX];
	const size_t len = sizeof(VIEW_ROOT) - 1;
	bool apart;
	int r;

	*ret_proc = false;
	if (syscall(SYS_getcwd, dir, sizeof(dir) - VIEW_PLACE - 16) < 0)
		return -errno;
	if (strncmp(dir, VIEW_ROOT, len) != 0 || (dir[len] != '\0' && dir[len] != '/'))
		return -ENOENT;
	*view_text(view_text(full, place), dir + len) = '\0';
	r = make_parts(wish, full, find_part(place, dir + len, mountpoint, &apart));
	if (r == 0)
		r = place_parts(place, apart);
	if (r == 0)
		r = hide();
	if (r == 0)
		r = view_mount_secrets(wish, LAUNCH_SECRETS);
	if (r == 0)
		r = view_mount_kernel(wish, -1, "/dev/pts", "/proc", ret_proc);
	if (r < 0)
		return r;
	return mount(parts[PARTS - 1].part, VIEW_OWN, NULL, MS_BIND, NULL) < 0 || mount(".", full, NULL, MS_BIND | MS_REC, NULL) < 0 ||
	    mount_setattr(AT_FDCWD, full, AT_RECURSIVE, &work, sizeof(work)) < 0 || chdir(full) < 0 ? -errno : 0;
}
