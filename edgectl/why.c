/*
 * Why a daemon does not answer, as far as it can be told from here: it ends at once when it cannot read what the operator
 * wrote, so the same files are read by the same code and the first mistake is told. Which files these are: run-foreground
 * links to them from its run directory; without such a link they are the ones of the units, if it is the units' directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/conf.h"
#include "edgectl/client.h"

#define UNITS_RUNDIR	"/run/edgeward"

/* 1 by run-foreground's link, 0 the units', -ENOENT when it is not known where the file lies. */
static int
find_file(const char *rundir, const char *name, char path[PATH_MAX])
{
	char link[PATH_MAX];
	int n = snprintf(link, sizeof(link), "%s/%s", rundir, name);
	ssize_t len = n > 0 && (size_t)n < sizeof(link) ? readlink(link, path, PATH_MAX - 1) : -1;

	if (len > 0) {
		path[len] = '\0';
		return 1;
	}
	if (strcmp(rundir, UNITS_RUNDIR) != 0)
		return -ENOENT;
	snprintf(path, PATH_MAX, "/etc/edgeward/%s", name);
	return 0;
}

static bool
may_look(const char *path)
{
	return access(path, R_OK) == 0 || errno != EACCES;
}

/* What root alone may read, a daemon may not. */
static bool
is_closed(const char *path, char err[CONF_ERR_SIZE])
{
	struct stat st;

	if (stat(path, &st) < 0 || (st.st_mode & S_IROTH) != 0 || st.st_uid != 0 || ((st.st_mode & S_IRGRP) != 0 && st.st_gid != 0))
		return false;
	snprintf(err, CONF_ERR_SIZE, "%.200s has mode %03o and the daemons may not read it: chmod 644", path, st.st_mode & 0777u);
	return true;
}

/* What connectd alone reads. Whether there is a certificate in it edgectl does not judge; doctor does. */
static bool
ca_is_missing(const char *path, char err[CONF_ERR_SIZE])
{
	if (path[0] == '\0' || !may_look(path) || (access(path, F_OK) < 0 && errno == EACCES))
		return false;
	if (access(path, F_OK) < 0) {
		snprintf(err, CONF_ERR_SIZE, "[hub] ca-file %.200s: %s", path, strerror(errno));
		return true;
	}
	return is_closed(path, err);
}

void
client_find_why(struct client *c)
{
	char conf_path[PATH_MAX], err[CONF_ERR_SIZE] = "";
	struct conf conf;
	int r = find_file(c->rundir, "edgeward.conf", conf_path);

	c->why[0] = '\0';
	c->foreground = r == 1;
	if (c->error != -ETIMEDOUT && c->error != -ENOENT && c->error != -ECONNREFUSED && c->error != -ECONNRESET)
		return;
	/* What we may not read ourselves says nothing about the daemon. */
	if (r < 0 || !may_look(conf_path))
		return;
	/* A policy that cannot be used ends no daemon: each says so itself. */
	if (is_closed(conf_path, err) || conf_load(&conf, conf_path, err) < 0 ||
	    (strcmp(c->name, "connectd") == 0 && ca_is_missing(conf.hub_ca_file, err)))
		snprintf(c->why, sizeof(c->why), "cannot start: %.300s; it starts by itself when that is put right (edgectl doctor)", err);
}
