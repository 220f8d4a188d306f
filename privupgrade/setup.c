/*
 * How privupgrade and privtrial begin: the same options, the same directories, one lock.
 *
 * Who calls: both main()s. What is trusted: the command line, which is the unit's, and directories that root alone can change. On error: the
 * process ends; the unit tries again later.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "common/parse.h"
#include "privupgrade/core.h"
#include "version.h"

static int
set_option(struct updater *u, int opt, const char *value)
{
	uint32_t ms;

	switch (opt) {
	case 'b': u->at_boot = true; return 0;
	case 's': u->begin = true; return 0;
	case 'n': u->check = value; return 0;
	case 'c': u->conf_path = value; return 0;
	case 'd': u->base_path = value; return 0;
	case 'e': u->packaged_edgectl = value; return 0;
	case 'k': u->keys_path = value; return 0;
	case 'l': u->packaged = value; return 0;
	case 'r': u->rundir = value; return 0;
	case 'S': u->systemctl = value; return 0;
	case 'u': return parse_u32(value, 1, UINT32_MAX - 1, &u->test_uid);
	case 'f':
	case 't':
		if (parse_u32(value, 0, 600000, &ms) < 0)
			return -EINVAL;
		*(opt == 't' ? &u->start_ms : &u->flood_ms) = ms;
		return 0;
	default: return -EINVAL;
	}
}

int
updater_options(struct updater *u, const char *name, int argc, char **argv)
{
	enum log_level level = LOG_LEVEL_INFO;
	int opt, r = 0;

	*u = (struct updater){ .base_path = "/var/lib/edgeward", .keys_path = "/etc/edgeward/keys", .conf_path = "/etc/edgeward/upgrade.conf",
		.packaged = EDGEWARD_LIBEXECDIR, .packaged_edgectl = EDGEWARD_BINDIR "/edgectl", .rundir = "/run/edgeward",
		.systemctl = "/bin/systemctl", .test_uid = 65534, .start_ms = 30000, .flood_ms = 5000 };
	while (r == 0 && (opt = getopt(argc, argv, "bsvVn:c:d:e:f:k:l:r:S:t:u:")) != -1) {
		if (opt == 'V')
			return printf("%s %s\n", name, EDGEWARD_VERSION) < 0 ? -EIO : 1;
		if (opt == 'v')
			level = LOG_LEVEL_DEBUG;
		else
			r = set_option(u, opt, optarg);
	}
	if (r < 0 || optind != argc)
		return -EINVAL;
	log_init(name, level);
	signal(SIGPIPE, SIG_IGN);
	umask(022);
	return 0;
}

/* A directory that only root can change. */
static int
open_dir(const char *parent, const char *name, mode_t mode)
{
	int fd = fd_open_own_dir(parent, name, mode);

	if (fd < 0)
		fatal("%s/%s: %s", parent, name, fd == -EPERM ? "others than root can change it" : strerror(-fd));
	return fd;
}

int
updater_open(struct updater *u)
{
	char path[512];
	int r;

	snprintf(path, sizeof(path), "%s/upgrade", u->base_path);
	u->base = open_dir(u->base_path, ".", 0755);
	u->dir = open_dir(u->base_path, "upgrade", 0700);
	u->taken = open_dir(path, "taken", 0700);
	close(open_dir(path, "queue", 0700));
	u->releases = open_dir(u->base_path, "releases", 0755);
	if (flock(u->dir, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 0 : -errno;
	r = store_load(u);
	return r < 0 ? r : 1;
}
