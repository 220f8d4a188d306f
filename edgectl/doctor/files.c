/* Owner and mode of what Edgeward keeps and reads: a table of places with what each must be. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "edgectl/doctor/doctor.h"

enum owner { ANYBODY, ROOT, NET, WORK };

struct place {
	const char *name, *path;
	mode_t type;
	mode_t never;			/* bits that must not be set */
	mode_t must;			/* bits that must */
	enum owner owner;
	const char *fix;		/* of the mode: "chmod FIX PATH" */
};

static bool
owner_ok(const struct doctor *d, enum owner owner, uid_t uid)
{
	switch (owner) {
	case ANYBODY:
		return true;
	case ROOT:	/* run-foreground may belong to an ordinary user altogether */
		return uid == 0 || (d->foreground && (uid == d->me || uid == d->net_uid));
	case NET:
		return uid == d->net_uid && (uid != 0 || d->foreground);
	case WORK:
		return uid == d->work_uid && (uid != 0 || d->foreground);
	}
	return false;
}

static const char *
owner_name(enum owner owner)
{
	return owner == ROOT ? "root" : owner == NET ? "edgeward-net" : "edgeward-work";
}

static void
missing(struct doctor *d, const struct place *p, const char *path, int err)
{
	if (err == EACCES)
		check_skip(d, p->name, "not visible for this user: %.200s; root sees it", path);
	else if (p->type == S_IFSOCK && access(d->ctl->rundir, F_OK) < 0)
		check_skip(d, p->name, "not reached: run-dir is missing");
	else if (p->type == S_IFSOCK)
		check_bad(d, p->name, CHECK_FAIL, "missing", d->systemd ? "systemctl enable --now edgeward-connectd.socket "
		    "edgeward-workerd.socket edgeward-introduce.socket" : NULL, "no socket %.200s: nobody listens", path);
	else
		check_bad(d, p->name, CHECK_FAIL, "missing", d->systemd ? "systemd-tmpfiles --create edgeward.conf" : NULL,
		    "%.200s: %s", path, strerror(err));
}

static void
look(struct doctor *d, const struct place *p)
{
	char command[200];
	struct stat st;

	if (stat(p->path, &st) < 0) {
		missing(d, p, p->path, errno);
		return;
	}
	if ((st.st_mode & S_IFMT) != p->type) {
		check_bad(d, p->name, CHECK_FAIL, "type", NULL, "%.200s is not a %s", p->path,
		    p->type == S_IFDIR ? "directory" : p->type == S_IFSOCK ? "socket" : "file");
	} else if (!owner_ok(d, p->owner, st.st_uid)) {
		snprintf(command, sizeof(command), "chown %s %.120s", owner_name(p->owner), p->path);
		check_bad(d, p->name, CHECK_FAIL, "owner", command, "%.200s belongs to uid %u, not to %s", p->path, st.st_uid,
		    owner_name(p->owner));
	} else if ((st.st_mode & p->never) != 0 || (st.st_mode & p->must) != p->must) {
		snprintf(command, sizeof(command), "chmod %s %.120s", p->fix, p->path);
		check_bad(d, p->name, CHECK_FAIL, "mode", command, "%.200s has mode %04o, wanted is %s", p->path,
		    (unsigned)(st.st_mode & 07777), p->fix);
	} else {
		check_ok(d, p->name, "%.200s, mode %04o, uid %u", p->path, (unsigned)(st.st_mode & 07777), st.st_uid);
	}
}

/* Without a pool nothing but the keeper of the work writes there, and the group does not matter. */
static void
look_work_root(struct doctor *d)
{
	const struct place p = { "work-root", d->conf.work_root, S_IFDIR, 0006, 01000, WORK, "1770" };

	if (d->conf_ok)
		look(d, &p);
	else
		check_skip(d, p.name, "the configuration that names it cannot be read");
}

void
step_files(struct doctor *d)
{
	static char path[6][PATH_MAX + 32];
	const struct place places[] = {
		{ "configuration", d->conf_path, S_IFREG, 0022, 0, ROOT, "644" },
		{ "policy", d->policy_path, S_IFREG, 0022, 0, ROOT, "644" },
		{ "state-connectd", path[0], S_IFDIR, 0077, 0700, NET, "700" },
		{ "state-workerd", path[1], S_IFDIR, 0077, 0700, WORK, "700" },
		{ "run-dir", d->ctl->rundir, S_IFDIR, 0022, 0, ROOT, "755" },
		{ "socket-introduce", path[2], S_IFSOCK, 0007, 0, ANYBODY, "660" },
		{ "socket-connectd", path[3], S_IFSOCK, 0007, 0, ANYBODY, "660" },
		{ "socket-workerd", path[4], S_IFSOCK, 0007, 0, ANYBODY, "660" },
	};

	snprintf(path[0], sizeof(path[0]), "%s/connectd", d->state);
	snprintf(path[1], sizeof(path[1]), "%s/workerd", d->state);
	snprintf(path[2], sizeof(path[2]), "%s/introduce.sock", d->ctl->rundir);
	snprintf(path[3], sizeof(path[3]), "%s/connectd.sock", d->ctl->rundir);
	snprintf(path[4], sizeof(path[4]), "%s/workerd.sock", d->ctl->rundir);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (i == 0 && d->conf_ok && d->conf.missing)
			check_bad(d, "configuration", CHECK_WARN, "missing", "cp /usr/share/edgeward/examples/edgeward.conf /etc/edgeward/",
			    "no %.200s: the defaults hold, and they name no hub", d->conf_path);
		else if (i != 1 || access(d->policy_path, F_OK) == 0)
			look(d, &places[i]);
		else
			check_ok(d, "policy", "no %.200s: the defaults hold", d->policy_path);
	look_work_root(d);
}
