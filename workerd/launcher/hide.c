/*
 * Who calls: view.c, as the runner, while it builds the view. A name of ours may be a link, and so may a directory above it; the view
 * shows /opt, /usr, /etc and what edgeward.conf says, so it is the place that counts. It is looked up at each start: root may move it.
 *
 * On error the start ends. What the runner cannot look up it cannot reach in the view, which gives it no right more; as root may open a closed
 * directory later, that directory is hidden then. A mount covers what a name stands for: the kernel takes it off when root gives the name to
 * another file, so what takes a hidden place's own name is seen by workloads that run, and hidden from later ones.
 */
#include "workerd/launcher/hide.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

#define LINKS_MAX	40	/* the kernel's own bound */

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

const char *
hide_absolute(const char *path)
{
	_cleanup_free_ char *dir = path[0] != '/' ? getcwd(NULL, 0) : NULL;
	char *whole;

	return dir != NULL && asprintf(&whole, "%s/%s", dir, path) > 0 ? whole : path;
}

/*
 * Makes of a path that is closed to the runner the directory that closes it, link by link, as the kernel does not say where it stopped. 0 or -errno.
 */
static int
find_closed(char path[PATH_MAX])
{
	char target[PATH_MAX];

	for (int links = 0; links < LINKS_MAX; links++) {
		bool closed;
		char *end = path, c;
		ssize_t n;

		do {
			end += 1 + strcspn(end + 1, "/");
			c = *end;
			*end = '\0';
			closed = access(path, X_OK) < 0 && errno == EACCES;
			if (!closed)
				*end = c;
		} while (!closed && c != '\0');
		n = closed ? readlink(path, target, sizeof(target) - 1) : 0;
		if (n <= 0)
			return n == 0 || errno == EINVAL ? 0 : -errno;
		/* Its target is closed, or the way there: what stood behind it does not matter. */
		target[n] = '\0';
		end = target[0] == '/' ? path : strrchr(path, '/') + 1;
		if (end + n >= path + PATH_MAX)
			return -ENAMETOOLONG;
		memcpy(end, target, (size_t)n + 1);
	}
	return -ELOOP;
}

/* The place of one of ours, or what closes it to the runner. */
static int
find_own(int proc, const char *path, char real[PATH_MAX])
{
	char closed[PATH_MAX];
	int r = hide_resolve(proc, path, real);

	if (r < 0 || real[0] != '\0' || access(path, F_OK) == 0 || errno != EACCES)
		return r;
	if (strlen(path) >= sizeof(closed))
		return 0;	/* no longer path can be opened */
	memcpy(closed, path, strlen(path) + 1);
	r = find_closed(closed);
	return r == 0 ? hide_resolve(proc, closed, real) : is_nowhere(-r) ? 0 : r;
}

int
hide_find(struct hidden *h, int proc, const char *const own[HIDE_OWN])
{
	int r = 0;

	h->proc = proc;
	h->n = 0;
	for (size_t i = 0; i < HIDE_MAX && r == 0; i++) {
		const char *path = i < HIDE_MAX - HIDE_OWN ? ours[i] : own[i - (HIDE_MAX - HIDE_OWN)];

		if (path != NULL && (r = find_own(proc, path, h->real[h->n])) == 0 && h->real[h->n][0] != '\0')
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
