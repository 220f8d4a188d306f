/*
 * Who calls: view.c, as the runner, while it builds the view. A name of ours may be a link, and so may a directory above it; the view
 * shows /opt, /usr, /etc and what edgeward.conf says, so it is the place that counts. It is looked up at each start: root may move it.
 *
 * On error the start ends. What the runner cannot look up it cannot reach in the view, which gives it no right more.
 */
#include "workerd/launcher/hide.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

static const char *const ours[HIDE_MAX - HIDE_OWN] = { "/etc/edgeward", "/var/lib/edgeward", "/run/edgeward" };

static bool
is_nowhere(int err)
{
	return err == ENOENT || err == EACCES || err == ENOTDIR || err == ELOOP;
}

int
hide_resolve(int proc, const char *path, char real[PATH_MAX])
{
	_cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
	char name[] = "self/fd/0000", *p = name + sizeof(name) - 5;
	ssize_t n;

	real[0] = '\0';
	if (fd < 0)
		return is_nowhere(errno) ? 0 : -errno;
	if (fd > 9999)
		return -EMFILE;
	for (int v = 1000; v > 0; v /= 10)	/* no printf: it would touch pages that each start then has to copy */
		if (fd >= v || v == 1)
			*p++ = (char)('0' + fd / v % 10);
	*p = '\0';
	n = readlinkat(proc, name, real, PATH_MAX - 1);
	if (n < 0 || n == PATH_MAX - 1 || real[0] != '/')
		return n < 0 ? -errno : -ENAMETOOLONG;
	real[n] = '\0';
	return 0;
}

int
hide_find(struct hidden *h, int proc, const char *const own[HIDE_OWN])
{
	int r = 0;

	h->proc = proc;
	h->n = 0;
	for (size_t i = 0; i < HIDE_MAX && r == 0; i++) {
		const char *path = i < HIDE_MAX - HIDE_OWN ? ours[i] : own[i - (HIDE_MAX - HIDE_OWN)];

		if (path != NULL && (r = hide_resolve(proc, path, h->real[h->n])) == 0 && h->real[h->n][0] != '\0')
			h->n++;
	}
	return r;
}

/* What stands behind dir in path, "" or from its slash on; NULL = path is elsewhere. Both "" and "/", where a link may lead, are the root. */
static const char *
rest(const char *path, const char *dir)
{
	size_t len = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0') ? path + len : NULL;
}

/* Whether something will still be made in it. */
static bool
needs_room(const char *at, const char *root, const char *work_dir, const char *show)
{
	const char *inside = at + strlen(root);
	size_t len = strlen(inside);

	if (rest(work_dir, at) != NULL)
		return true;
	for (; *show != '\0'; show += strcspn(show, " "), show += *show == ' ')
		if (strncmp(show, inside, len) == 0 && show[len] == '/')
			return true;
	return false;
}

static char *
add(char *p, const char *s)
{
	size_t len = strlen(s);

	memcpy(p, s, len + 1);
	return p + len;
}

static int
hide(const char *at, const char *root, const char *work_dir, const char *show)
{
	char empty[PATH_MAX];
	struct stat st;

	if (lstat(at, &st) < 0)
		return is_nowhere(errno) ? 0 : -errno;
	if (S_ISLNK(st.st_mode))	/* by its name show asks for one of ours; it leads to where that is hidden */
		return 0;
	if (!S_ISDIR(st.st_mode))	/* the view has no devices but its own: it cannot be opened */
		return mount("/dev/null", at, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
	if (needs_room(at, root, work_dir, show))
		return mount("tmpfs", at, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,nr_inodes=1k,size=1m") < 0 ? -errno : 0;
	add(add(empty, root), "/run/empty");
	return mount(empty, at, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

int
hide_below(const struct hidden *h, const char *real, const char *at, const char *root, const char *work_dir, const char *show)
{
	char path[2 * PATH_MAX];
	int r = 0;

	for (size_t i = 0; i < h->n && r == 0; i++) {
		const char *behind = rest(h->real[i], real);

		if (behind == NULL)
			continue;
		add(add(path, at), behind);
		r = strlen(path) < PATH_MAX ? hide(path, root, work_dir, show) : 0;	/* no longer path can be opened */
	}
	return r;
}
