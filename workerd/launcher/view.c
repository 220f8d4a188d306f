/*
 * The table of what a workload sees, and the mounts that make it so. Everything not named here is absent: homes, /root, /srv,
 * /var, sockets of the machine's services, other work directories. What is the agent's own is hidden wherever it lies (hide.c).
 *
 * Who calls: workinit, as the runner, in namespaces of its own, before it gives up the capabilities it has there; and the
 * payload's child for Landlock. The sources are paths of the machine that root owns, and the work directory, which is reached as
 * the current directory, so that no name is resolved twice. Any error ends that start.
 *
 * Mount calls are what a sandbox costs (10 us each): one tmpfs serves for the root and every private directory, one
 * mount_setattr makes all of the system read-only.
 */
#include "workerd/launcher/view.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/sandbox.h"
#include "proto/ipc/launch.h"
#include "workerd/launcher/hide.h"

/* Where the new root grows: there on every machine, and nothing that is shown lies below it. */
#define AT		"/proc"
#define AT_LEN		(sizeof(AT) - 1)
#define PATHS_MAX	(VIEW_ROWS + LAUNCH_SHOW_SIZE / 2 + 4)

enum kind {
	SYSTEM,		/* the machine's, read-only, with all that is mounted below; what is a link there is one here */
	NAMES,		/* the same, but only with the machine's network: sockets there look names up for whoever asks. Comes and goes with
			   the service it belongs to, so it is looked for at each start */
	DIR,		/* empty */
	OWN,		/* private, writable, gone with the workload */
	NODE,		/* a device everybody may use */
	LINK,
};

static const struct row {
	enum kind kind;
	const char *path;
	const char *target;	/* of LINK */
} rows[] = {
	{ SYSTEM, "/usr", NULL }, { SYSTEM, "/bin", NULL }, { SYSTEM, "/sbin", NULL }, { SYSTEM, "/lib", NULL },
	{ SYSTEM, "/lib32", NULL }, { SYSTEM, "/lib64", NULL }, { SYSTEM, "/libx32", NULL }, { SYSTEM, "/opt", NULL },
	{ SYSTEM, "/etc", NULL },
	/* processors and memory, for those who count them; the rest of /sys is other people's hardware */
	{ SYSTEM, "/sys/devices/system", NULL },
	/* where resolv.conf may lead */
	{ NAMES, "/run/systemd/resolve", NULL }, { NAMES, "/run/NetworkManager", NULL }, { NAMES, "/run/resolvconf", NULL },
	{ DIR, "/proc", NULL }, { DIR, "/dev", NULL }, { DIR, "/dev/pts", NULL }, { DIR, "/var", NULL }, { DIR, "/run", NULL },
	{ DIR, "/run/empty", NULL },
	{ OWN, "/tmp", NULL }, { OWN, "/dev/shm", NULL },
	{ NODE, "/dev/null", NULL }, { NODE, "/dev/zero", NULL }, { NODE, "/dev/full", NULL }, { NODE, "/dev/random", NULL },
	{ NODE, "/dev/urandom", NULL }, { NODE, "/dev/tty", NULL },
	{ DIR, "/dev/edgeward", NULL },	/* devices lent to it */
	{ LINK, "/dev/bus", "edgeward/bus" }, { LINK, "/dev/ptmx", "pts/ptmx" }, { LINK, "/dev/fd", "/proc/self/fd" }, { LINK, "/dev/stdin", "/proc/self/fd/0" },
	{ LINK, "/dev/stdout", "/proc/self/fd/1" }, { LINK, "/dev/stderr", "/proc/self/fd/2" },
	{ LINK, "/var/tmp", "/tmp" }, { LINK, "/var/run", "/run" },
};
static_assert(sizeof(rows) / sizeof(rows[0]) <= VIEW_ROWS, "room in struct view");

void
view_init(struct view *view)
{
	view->n = 0;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct view_entry *e = &view->entries[view->n];
		bool machines = rows[i].kind == SYSTEM || rows[i].kind == NODE;
		struct stat st;
		ssize_t n;

		*e = (struct view_entry){ .row = (int)i };
		if (machines && lstat(rows[i].path, &st) < 0)
			continue;
		n = machines && S_ISLNK(st.st_mode) ? readlink(rows[i].path, e->link, sizeof(e->link) - 1) : 0;
		e->link[n > 0 ? n : 0] = '\0';
		view->n++;
	}
}

/* The path in the new root. By hand: printf would touch pages of the C library that each start then has to copy. */
static const char *
below(char buf[PATH_MAX], const char *path, size_t len)
{
	memcpy(buf, AT, AT_LEN);
	memcpy(buf + AT_LEN, path, len);
	buf[AT_LEN + len] = '\0';
	return buf;
}

static int
make_dir(char *at)
{
	if (mkdir(at, 0755) == 0 || errno == EEXIST)
		return 0;
	if (errno != ENOENT)
		return -errno;
	for (char *p = at + AT_LEN + 1; (p = strchr(p, '/')) != NULL; p++) {
		int r;

		*p = '\0';
		r = mkdir(at, 0755) < 0 && errno != EEXIST ? -errno : 0;
		*p = '/';
		if (r < 0)
			return r;
	}
	return mkdir(at, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

static int
bind_dir(const char *from, char *at)
{
	int r = make_dir(at);

	if (r < 0)
		return r;
	return mount(from, at, NULL, MS_BIND | MS_REC, NULL) < 0 ? -errno : 0;
}

/* What was there when the launcher started may have gone since: less to see is no reason to start nothing any more. */
static int
gone_is_fine(int r)
{
	return r == -ENOENT ? 0 : r;
}

static int
show_names(const char *path, char *at)
{
	char link[64];
	ssize_t n = readlink(path, link, sizeof(link) - 1);

	if (n < 0)
		return errno == EINVAL ? gone_is_fine(bind_dir(path, at)) : gone_is_fine(-errno);
	link[n] = '\0';
	return symlink(link, at) < 0 ? -errno : 0;
}

static int
make_file(const char *at, const char *text, size_t len)
{
	_cleanup_close_ int fd = open(at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	return fd < 0 || (len > 0 && write(fd, text, len) != (ssize_t)len) ? -errno : 0;
}

/* Before the root becomes read-only: directories, files and links, and the mounts that shall be read-only with it. */
static int
lay_out(const struct view_entry *e, bool own_net)
{
	const struct row *row = &rows[e->row];
	char at[PATH_MAX];

	below(at, row->path, strlen(row->path));
	switch (row->kind) {
	case NAMES:
		return own_net ? 0 : show_names(row->path, at);
	case SYSTEM:
		if (e->link[0] != '\0')
			return symlink(e->link, at) < 0 ? -errno : 0;
		return gone_is_fine(bind_dir(row->path, at));
	case OWN:
		return mkdir(at, 01777) < 0 || chmod(at, 01777) < 0 ? -errno : 0;
	case DIR:
		return make_dir(at);
	case NODE:
		return make_file(at, NULL, 0);
	case LINK:
		return symlink(row->target, at) < 0 ? -errno : 0;
	}
	return 0;
}

/* What is writable, or lies over something of the machine. */
static int
open_up(const struct view_entry *e)
{
	struct mount_attr writable = { .attr_clr = MOUNT_ATTR_RDONLY }, kept = { .attr_set = MOUNT_ATTR_RDONLY };
	const struct row *row = &rows[e->row];
	char at[PATH_MAX];

	below(at, row->path, strlen(row->path));
	switch (row->kind) {
	case OWN:
		return mount(at, at, NULL, MS_BIND | MS_REC, NULL) < 0 || mount_setattr(AT_FDCWD, at, 0, &writable,
		    sizeof(writable)) < 0 ? -errno : 0;
	case NODE:
		/* The machine's own, of which a runner may be the owner: it can be written to, and not be given another mode. */
		return mount(row->path, at, NULL, MS_BIND, NULL) < 0 || mount_setattr(AT_FDCWD, at, 0, &kept, sizeof(kept)) < 0 ? -errno : 0;
	case SYSTEM:
	case NAMES:
	case DIR:
	case LINK:
		return 0;
	}
	return 0;
}

/* A socket: what listens there may be asked, and nothing beside it is seen. */
static int
bind_socket(const char *from, char *at)
{
	char *slash = strrchr(at, '/');
	int r;

	*slash = '\0';
	r = make_dir(at);
	*slash = '/';
	if (r == 0)
		r = make_file(at, NULL, 0);
	if (r < 0)
		return r;
	return mount(from, at, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

/* What is shown may lead to where something of ours lies below. */
static int
show_dir(const struct hidden *hidden, const char *from, char *at, const char *work_dir, const char *all)
{
	char real[PATH_MAX];
	int r = hide_resolve(hidden->proc, from, real);

	if (r == 0)
		r = bind_dir(from, at);
	return r == 0 && real[0] != '\0' ? hide_below(hidden, real, at, AT, work_dir, all) : r;
}

static int
show(const struct hidden *hidden, const char *all, const char *work_dir)
{
	char from[PATH_MAX], at[PATH_MAX];
	struct stat st;
	int r = 0;

	for (const char *list = all; *list != '\0' && r == 0;) {
		size_t len = strcspn(list, " ");

		memcpy(from, list, len);
		from[len] = '\0';
		below(at, list, len);
		r = stat(from, &st) < 0 ? -errno : S_ISSOCK(st.st_mode) ? bind_socket(from, at) : show_dir(hidden, from, at, work_dir, all);
		list += len + (list[len] == ' ');
	}
	return r;
}

static char *
add_number(char *p, uint32_t v)
{
	char digits[10];
	int n = 0;

	do {
		digits[n++] = (char)('0' + v % 10);
		v /= 10;
	} while (v != 0);
	while (n > 0)
		*p++ = digits[--n];
	return p;
}

#define LENT	"/dev/edgeward"

/*
 * The directory of devices lent to this runner, empty or not: what privhelper makes there later appears as well. The one place that is
 * not nodev; there is none where no devices are lent.
 */
static int
show_lent(uint32_t slot)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, .propagation = MS_PRIVATE };
	char from[sizeof(LENT) + 12] = LENT "/", *end = add_number(from + sizeof(LENT), slot);

	*end = '\0';
	if (mount(from, AT LENT, NULL, MS_BIND, NULL) < 0)
		return errno == ENOENT ? 0 : -errno;
	return mount_setattr(AT_FDCWD, AT LENT, 0, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

static char *
add(char *p, const char *s)
{
	size_t len = strlen(s);

	memcpy(p, s, len);
	return p + len;
}

/* The runner has no line in the machine's passwd: programs that ask who they are find this one. */
static int
name_runner(const struct view_wish *wish, const char *home)
{
	char text[PATH_MAX + 128], *p;
	int r;

	p = add(text, "edgeward-run:x:");
	p = add(add_number(p, wish->uid), ":");
	p = add(add(add(add_number(p, wish->gid), ":workload:"), home), ":/bin/sh\n");
	r = make_file(AT "/run/passwd", text, (size_t)(p - text));
	p = add(add(add_number(add(text, "edgeward-run:x:"), wish->gid), ":"), "\n");
	return r < 0 ? r : make_file(AT "/run/group", text, (size_t)(p - text));
}

static int
mount_names(void)
{
	if (mount(AT "/run/passwd", AT "/etc/passwd", NULL, MS_BIND, NULL) < 0 ||
	    mount(AT "/run/group", AT "/etc/group", NULL, MS_BIND, NULL) < 0)
		return errno == ENOENT ? 0 : -errno;	/* a machine without them has other ways to name users */
	return 0;
}

/*
 * resolv.conf names the resolvers the filter lets pass, on their usual port. Where the machine has a link, mostly to below /run, the file is
 * made where that leads; else it is laid over the machine's.
 */
static int
name_resolvers(const struct firewall *fw)
{
	char text[FW_RESOLVERS * (FW_TEXT + 12)] = "", link[64] = "", at[PATH_MAX], *p = text, addr[FW_TEXT];
	const char *run;
	int r;

	for (uint32_t i = 0; i < fw->nresolvers; i++)
		if (fw->resolvers[i].port == 53)
			p = add(add(add(p, "nameserver "), fw_address_text(fw->resolvers[i].family, fw_address(fw->resolvers[i].family,
			    fw->resolvers[i].addr), addr)), "\n");
	run = readlink("/etc/resolv.conf", link, sizeof(link) - 1) > 0 ? strstr(link, "run/") : NULL;
	if (run == NULL || strstr(run, "..") != NULL || (run != link && run[-1] != '/'))
		return make_file(AT "/run/resolv.conf", text, (size_t)(p - text));
	memcpy(at, AT "/", AT_LEN + 1);
	memcpy(at + AT_LEN + 1, run, strlen(run) + 1);
	*strrchr(at, '/') = '\0';
	r = make_dir(at);
	at[strlen(at)] = '/';
	return r < 0 ? r : make_file(at, text, (size_t)(p - text));
}

/* After the view has become the root: links lead where they will lead. */
static int
mount_resolvers(void)
{
	struct stat st;

	if (lstat("/run/resolv.conf", &st) < 0 || lstat("/etc/resolv.conf", &st) < 0)
		return 0;
	return mount("/run/resolv.conf", "/etc/resolv.conf", NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

static int
mount_kernel(const struct view_wish *wish, int machine_proc, bool *ret_proc)
{
	const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

	if (mount("devpts", AT "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620") < 0)
		return -errno;
	*ret_proc = true;
	if (wish->own_proc ? mount("proc", AT "/proc", "proc", flags, NULL) < 0 :
	    move_mount(machine_proc, "", AT_FDCWD, AT "/proc", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	*ret_proc = false;
	return 0;
}

/* Out of the way of everything else the workload may fill. */
static int
mount_secrets(const struct view_wish *wish)
{
	if (!wish->secrets)
		return 0;
	return mount("tmpfs", AT LAUNCH_SECRETS, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
	    "mode=700,nr_inodes=2k,size=" LAUNCH_SECRETS_SIZE) < 0 ? -errno : 0;
}

static int
mount_all(const struct view *view, const struct view_wish *wish, const struct hidden *hidden, char *work_dir, int machine_proc, bool *ret_proc)
{
	struct mount_attr system = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, .propagation = MS_PRIVATE };
	struct mount_attr work = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, .propagation = MS_PRIVATE };
	int r = mount("tmpfs", AT, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=25%") < 0 ? -errno : 0;

	for (unsigned i = 0; i < view->n && r == 0; i++)
		r = lay_out(&view->entries[i], wish->own_net);
	if (r == 0)
		r = name_runner(wish, work_dir + AT_LEN);
	if (r == 0 && wish->fw != NULL)
		r = name_resolvers(wish->fw);
	if (r == 0)
		r = hide_below(hidden, "", AT, AT, work_dir, wish->show);
	if (r == 0)
		r = show(hidden, wish->show, work_dir);
	if (r == 0)
		r = make_dir(work_dir);
	if (r == 0 && wish->secrets && mkdir(AT LAUNCH_SECRETS, 0755) < 0)
		r = -errno;
	if (r == 0 && mount_setattr(AT_FDCWD, AT, AT_RECURSIVE, &system, sizeof(system)) < 0)
		r = -errno;
	for (unsigned i = 0; i < view->n && r == 0; i++)
		r = open_up(&view->entries[i]);
	if (r == 0)
		r = show_lent(wish->slot);
	if (r == 0)
		r = mount_names();
	if (r == 0)
		r = mount_secrets(wish);
	if (r == 0)
		r = mount_kernel(wish, machine_proc, ret_proc);
	if (r < 0)
		return r;
	return mount(".", work_dir, NULL, MS_BIND | MS_REC, NULL) < 0 ||
	    mount_setattr(AT_FDCWD, work_dir, AT_RECURSIVE, &work, sizeof(work)) < 0 ? -errno : 0;
}

int
view_enter(const struct view *view, const struct view_wish *wish, bool *ret_proc)
{
	_cleanup_close_ int machine_proc = -1, proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	static struct hidden hidden;
	char dir[PATH_MAX] = AT;
	int r;

	*ret_proc = false;
	/* The kernel's own name of the work directory, without links; it says "(unreachable)" of a place that is not below the root. */
	if (syscall(SYS_getcwd, dir + AT_LEN, sizeof(dir) - AT_LEN) < 0 || dir[AT_LEN] != '/')
		return -ENOENT;
	if (!wish->own_proc && (machine_proc = open_tree(AT_FDCWD, "/proc", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)) < 0)
		return -errno;
	r = hide_find(&hidden, proc, view->own);
	if (r == 0)
		r = mount_all(view, wish, &hidden, dir, machine_proc, ret_proc);
	if (r < 0)
		return r;
	if (chdir(AT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir(dir + AT_LEN) < 0)
		return -errno;
	return wish->fw != NULL ? mount_resolvers() : 0;
}

/* Splits show into list[n..]; text holds the strings. */
static size_t
add_show(const char *list, char text[LAUNCH_SHOW_SIZE], struct sandbox_path *paths, size_t n)
{
	char *p = text, *word;

	memcpy(text, list, strlen(list) + 1);
	while ((word = strsep(&p, " ")) != NULL)
		if (word[0] != '\0')
			paths[n++] = (struct sandbox_path){ word, SANDBOX_READ | SANDBOX_EXEC };
	return n;
}

int
view_landlock(const struct view *view, const char *list, bool in_view)
{
	struct sandbox_path paths[PATHS_MAX] = { { ".", SANDBOX_ALL }, { "/proc", SANDBOX_READ }, { "/dev", SANDBOX_NODES } };
	char text[LAUNCH_SHOW_SIZE];
	size_t n = 3;
	int r;

	if (in_view)
		paths[n++] = (struct sandbox_path){ "/", SANDBOX_READ | SANDBOX_EXEC };
	else
		n = add_show(list, text, paths, n);
	for (unsigned i = 0; i < view->n; i++) {
		const struct row *row = &rows[view->entries[i].row];

		if (row->kind == OWN || ((row->kind == SYSTEM || row->kind == NAMES) && !in_view))
			paths[n++] = (struct sandbox_path){ row->path, row->kind == OWN ? SANDBOX_ALL : SANDBOX_READ | SANDBOX_EXEC };
	}
	r = sandbox_landlock(paths, n);
	return r < 0 ? r : 0;
}
