/* Where this installation has its things: the units' places, or beside the run directory as run-foreground puts them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "edgectl/doctor/doctor.h"

#define UNITS_RUNDIR	"/run/edgeward"

const char *
doctor_path(const struct doctor *d, const char *path, char buf[PATH_MAX])
{
	if (snprintf(buf, PATH_MAX, "%s%s", d->root, path) >= PATH_MAX)
		buf[0] = '\0';
	return buf;
}

int
doctor_read(const struct doctor *d, const char *path, char *buf, size_t size)
{
	char full[PATH_MAX];
	_cleanup_close_ int fd = open(doctor_path(d, path, full), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return 0;
}

bool
doctor_program(const char *name, char *path, size_t size)
{
	/* Installed, then as a build directory has them. */
	static const char *const places[] = { "../lib/edgeward", "../connectd", "../workerd", "../workerd/launcher", "." };
	char self[PATH_MAX], found[PATH_MAX], plain[PATH_MAX];	/* plain: without .. for who reads it */
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;
	struct stat st;

	if (len <= 0)
		return false;
	self[len] = '\0';
	slash = strrchr(self, '/');
	if (slash == NULL)
		return false;
	*slash = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (snprintf(found, sizeof(found), "%s/%s/%s", self, places[i], name) < (int)sizeof(found) && stat(found, &st) == 0 &&
		    S_ISREG(st.st_mode) && access(found, X_OK) == 0)
			return realpath(found, plain) != NULL && snprintf(path, size, "%s", plain) < (int)size;
	return false;
}

/* o, or what run-foreground's link in the run directory says, or the file beside it, or the units'. */
static void
find_file(const struct doctor *d, const char *given, const char *name, char path[PATH_MAX])
{
	char link[PATH_MAX];
	ssize_t len = -1;

	if (given != NULL) {
		snprintf(path, PATH_MAX, "%s", given);
		return;
	}
	if (snprintf(link, sizeof(link), "%s/%s", d->ctl->rundir, name) < (int)sizeof(link))
		len = readlink(link, path, PATH_MAX - 1);
	if (len > 0)
		path[len] = '\0';
	else if (d->foreground && snprintf(path, PATH_MAX, "%s/../%s", d->ctl->rundir, name) < PATH_MAX && access(path, F_OK) == 0)
		return;
	else
		snprintf(path, PATH_MAX, "%s/etc/edgeward/%s", d->root, name);
}

static void
find_owners(struct doctor *d)
{
	char path[PATH_MAX];
	struct stat st;

	d->net_uid = d->work_uid = NOBODY;
	d->net_gid = NOBODY;
	if (snprintf(path, sizeof(path), "%s/connectd", d->state) < (int)sizeof(path) && lstat(path, &st) == 0) {
		d->net_uid = st.st_uid;
		d->net_gid = st.st_gid;
	}
	if (snprintf(path, sizeof(path), "%s/workerd", d->state) < (int)sizeof(path) && lstat(path, &st) == 0)
		d->work_uid = st.st_uid;
}

void
doctor_find(struct doctor *d, struct edgectl *ctl, const struct doctor_options *o)
{
	char beside[PATH_MAX];

	d->ctl = ctl;
	d->me = geteuid();
	d->units = strcmp(ctl->rundir, UNITS_RUNDIR) == 0;
	d->foreground = !d->units;
	d->systemd = d->units && access(doctor_path(d, "/run/systemd/system", beside), F_OK) == 0;
	find_file(d, o->conf, "edgeward.conf", d->conf_path);
	find_file(d, o->policy, "policy.conf", d->policy_path);
	snprintf(beside, sizeof(beside), "%s/..", ctl->rundir);
	if (o->state != NULL)
		snprintf(d->state, sizeof(d->state), "%s", o->state);
	else if (d->foreground)
		snprintf(d->state, sizeof(d->state), "%.4000s/state", beside);
	else
		snprintf(d->state, sizeof(d->state), "%s/var/lib/edgeward", d->root);
	if (o->pool != NULL)
		snprintf(d->pool, sizeof(d->pool), "%s", o->pool);
	else if (d->foreground)
		snprintf(d->pool, sizeof(d->pool), "%.4000s/pool", beside);
	else
		snprintf(d->pool, sizeof(d->pool), "%s/etc/edgeward/pool", d->root);
	find_owners(d);
}
