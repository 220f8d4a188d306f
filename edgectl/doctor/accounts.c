/*
 * Accounts, the pool of runner ids, and release keys. The accounts are read from /etc/passwd and /etc/group themselves: a name service that
 * hangs must not hang the doctor, and systemd-sysusers writes there.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/pool.h"
#include "edgectl/doctor/doctor.h"
#include "proto/release/signify.h"

#define SYSUSERS	"systemd-sysusers"

/* Of the files; all NULL or NOBODY when it is not there. */
struct accounts {
	uid_t net, work;
	gid_t run;
	bool operators, ipc;
	char member[32];		/* a daemon's user among the operators */
	uid_t inside;			/* an account with an id of the pool, NOBODY = none */
	char inside_name[32];
};

static void
read_users(const struct doctor *d, const struct pool *pool, struct accounts *a)
{
	char path[PATH_MAX];
	FILE *f = fopen(doctor_path(d, "/etc/passwd", path), "re");
	const struct passwd *pw;

	while (f != NULL && (pw = fgetpwent(f)) != NULL) {
		if (strcmp(pw->pw_name, "edgeward-net") == 0)
			a->net = pw->pw_uid;
		else if (strcmp(pw->pw_name, "edgeward-work") == 0)
			a->work = pw->pw_uid;
		if (pool->count > 0 && pw->pw_uid >= pool->first && pw->pw_uid - pool->first < pool->count) {
			a->inside = pw->pw_uid;
			snprintf(a->inside_name, sizeof(a->inside_name), "%.31s", pw->pw_name);
		}
	}
	if (f != NULL)
		fclose(f);
}

static void
read_groups(const struct doctor *d, struct accounts *a)
{
	char path[PATH_MAX];
	FILE *f = fopen(doctor_path(d, "/etc/group", path), "re");
	const struct group *gr;

	while (f != NULL && (gr = fgetgrent(f)) != NULL) {
		if (strcmp(gr->gr_name, "edgeward-run") == 0)
			a->run = gr->gr_gid;
		a->ipc = a->ipc || strcmp(gr->gr_name, "edgeward-ipc") == 0;
		if (strcmp(gr->gr_name, "edgeward") != 0)
			continue;
		a->operators = true;
		for (char **m = gr->gr_mem; *m != NULL; m++)
			if (strcmp(*m, "edgeward-net") == 0 || strcmp(*m, "edgeward-work") == 0)
				snprintf(a->member, sizeof(a->member), "%.31s", *m);
	}
	if (f != NULL)
		fclose(f);
}

static void
read_accounts(const struct doctor *d, const struct pool *pool, struct accounts *a)
{
	*a = (struct accounts){ .net = NOBODY, .work = NOBODY, .run = NOBODY, .inside = NOBODY };
	read_users(d, pool, a);
	read_groups(d, a);
}

void
step_accounts(struct doctor *d)
{
	const struct pool none = { 0 };
	struct accounts a;
	char command[200];

	if (!d->units) {
		check_skip(d, "accounts", "run-foreground takes numeric ids, no accounts");
		return;
	}
	read_accounts(d, &none, &a);
	if (a.net == NOBODY || a.work == NOBODY || a.run == NOBODY || !a.operators || !a.ipc) {
		check_bad(d, "accounts", CHECK_FAIL, "missing", SYSUSERS, "users edgeward-net and edgeward-work or groups edgeward, "
		    "edgeward-ipc and edgeward-run are not there: %s is missing", a.net == NOBODY ? "edgeward-net" :
		    a.work == NOBODY ? "edgeward-work" : a.run == NOBODY ? "edgeward-run" : !a.operators ? "edgeward" : "edgeward-ipc");
	} else if (a.member[0] != '\0') {
		snprintf(command, sizeof(command), "gpasswd -d %s edgeward", a.member);
		check_bad(d, "accounts", CHECK_FAIL, "operator-daemon", command, "%s is in group edgeward, where no daemon may be", a.member);
	} else if (a.net == 0 || a.work == 0 || a.net == a.work) {
		check_bad(d, "accounts", CHECK_FAIL, "not-separated", "grep edgeward /etc/passwd",
		    "edgeward-net and edgeward-work must be two users, neither of them root");
	} else {
		check_ok(d, "accounts", "edgeward-net is uid %u, edgeward-work uid %u, edgeward-run gid %u", a.net, a.work, a.run);
	}
}

/* What became of it when the ids were asked for: "CODE text", by privaccount. */
static void
tell_why(struct doctor *d)
{
	char path[PATH_MAX], why[320] = "";
	int r = snprintf(path, sizeof(path), "%s/account", d->ctl->rundir);

	if (r < 0 || r >= (int)sizeof(path) || doctor_read(d, path, why, sizeof(why)) < 0 || strncmp(why, "ok ", 3) == 0)
		check_bad(d, "pool", d->units ? CHECK_FAIL : CHECK_WARN, "no-pool", d->units ? "systemctl start edgeward-account" :
		    "man 7 edgeward", "no %.200s: %s", d->pool, d->units ? "no workload is started" : "all workloads share one user");
	else
		check_bad(d, "pool", CHECK_FAIL, "no-pool", "man 8 privaccount", "no %.100s, no workload is started: %.200s", d->pool, why);
}

/* A named account: may it enter the work root, and make its directory there? */
static void
one_account(struct doctor *d, const struct pool *pool, const char *name)
{
	char command[200];
	struct stat st;

	if (!d->conf_ok || stat(d->conf.work_root, &st) < 0 || (st.st_mode & 03) == 03 || (st.st_gid == pool->gid && (st.st_mode & 030) == 030)) {
		check_ok(d, "pool", "one account for all workloads: uid %u, gid %u", pool->first, pool->gid);
		return;
	}
	if (st.st_gid == pool->gid)
		snprintf(command, sizeof(command), "chmod 1770 %.120s", d->conf.work_root);
	else if (d->units)
		snprintf(command, sizeof(command), "usermod -g edgeward-run %.32s && systemctl restart edgeward-account && "
		    "systemctl restart edgeward-privhelper edgeward-workerd", name);
	else
		snprintf(command, sizeof(command), "chgrp %u %.120s", pool->gid, d->conf.work_root);
	check_bad(d, "pool", CHECK_FAIL, "pool-group", command, "no start can enter %.120s, which is for gid %u (mode %04o): the one account "
	    "for all workloads, uid %u, has gid %u", d->conf.work_root, st.st_gid, (unsigned)(st.st_mode & 07777), pool->first, pool->gid);
}

void
step_pool(struct doctor *d)
{
	struct pool pool = { 0 };
	int r = pool_load(d->pool, &pool);
	struct accounts a;

	read_accounts(d, &pool, &a);
	if (r < 0)
		check_bad(d, "pool", CHECK_FAIL, "pool", "man 7 edgeward", "%.200s: %s", d->pool, pool_error(r));
	else if (pool.count == 0 && d->foreground && d->me != 0)
		check_skip(d, "pool", "Edgeward runs as an ordinary user here, who has no other ids");
	else if (pool.count == 0)
		tell_why(d);
	else if (pool.count == 1)
		one_account(d, &pool, a.inside_name[0] != '\0' ? a.inside_name : d->conf.work_account);
	else if (a.inside != NOBODY)
		check_bad(d, "pool", CHECK_FAIL, "pool-taken", "man 7 edgeward", "uid %u of the pool is the account %s: choose a range "
		    "nobody uses", a.inside, a.inside_name);
	else if (d->units && pool.gid != a.run)
		check_bad(d, "pool", CHECK_WARN, "pool-group", "getent group edgeward-run", "the pool has gid %u, and edgeward-run is gid %u",
		    pool.gid, a.run);
	else
		check_ok(d, "pool", "uids %u to %u, gid %u", pool.first, pool.first + pool.count - 1, pool.gid);
}

static bool
is_key(const char *name)
{
	size_t len = strlen(name);

	return len > 4 && strcmp(name + len - 4, ".pub") == 0;
}

/* The very parser of who will use it. */
static bool
key_form_ok(int dirfd, const char *name)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct signify_key key;
	size_t len;

	return fd_read_file(dirfd, name, SIGNIFY_FILE_MAX, &data, &len) == 0 && signify_key_parse(data, len, &key) == 0;
}

void
step_keys(struct doctor *d)
{
	char path[PATH_MAX], command[200];
	DIR *dir = opendir(doctor_path(d, "/etc/edgeward/keys", path));
	unsigned good = 0, bad = 0;
	const struct dirent *de;
	struct stat st;

	command[0] = '\0';
	while (dir != NULL && (de = readdir(dir)) != NULL) {
		if (!is_key(de->d_name))
			continue;
		if (fstatat(dirfd(dir), de->d_name, &st, 0) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0022) == 0 &&
		    (st.st_uid == 0 || d->root[0] != '\0') && key_form_ok(dirfd(dir), de->d_name)) {
			good++;
			continue;
		}
		bad++;
		snprintf(command, sizeof(command), "ls -l %.60s/%.60s", path, de->d_name);
	}
	if (dir != NULL)
		closedir(dir);
	if (bad > 0)
		check_bad(d, "keys", CHECK_FAIL, "key", command, "%u release key%s not root's alone to write, or not in signify's form",
		    bad, bad == 1 ? " is" : "s are");
	else if (good > 0)
		check_ok(d, "keys", "%u release key%s", good, good == 1 ? "" : "s");
	else
		check_skip(d, "keys", "no release key in %.100s: this device takes releases from its package manager alone", path);
}
