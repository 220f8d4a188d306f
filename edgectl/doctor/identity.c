/* Who the device is to its hub, and who of Edgeward is running: from the credential's file as seen from outside, and from status. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "edgectl/doctor/doctor.h"

static void
no_credential(struct doctor *d, const char *path, int err)
{
	if (err == EACCES)
		check_skip(d, "credential", "not visible for this user; root sees it");
	else if (access(d->state, F_OK) < 0)
		check_skip(d, "credential", "not reached: there is no %.200s", d->state);
	else
		check_bad(d, "credential", CHECK_FAIL, "unenrolled", "edgectl enroll --token-file FILE",
		    "this device has no identity: no %.200s", path);
}

static void
look_credential(struct doctor *d, const char *path)
{
	char command[200];
	struct stat st;

	snprintf(command, sizeof(command), "chmod 600 %.150s", path);
	if (lstat(path, &st) < 0)
		no_credential(d, path, errno);
	else if (!S_ISREG(st.st_mode) || st.st_size == 0)
		check_bad(d, "credential", CHECK_FAIL, "credential-damaged", "edgectl enroll --token-file FILE --replace",
		    "%.200s is empty or no file", path);
	else if (st.st_uid != d->net_uid)
		check_bad(d, "credential", CHECK_FAIL, "credential-unreadable", "edgectl enroll --token-file FILE --replace",
		    "%.200s belongs to uid %u and connectd is uid %u", path, st.st_uid, d->net_uid);
	else if ((st.st_mode & 077) != 0)
		check_bad(d, "credential", CHECK_WARN, "mode", command, "%.200s has mode %04o: others can read it", path,
		    (unsigned)(st.st_mode & 07777));
	else
		check_ok(d, "credential", "%.200s is there, for connectd alone", path);
}

/* Causes of connectd that say something about who we are; the others say that the way is broken. */
static bool
about_identity(const char *cause)
{
	static const char *const starts[] = { "http-401", "http-403", "token-", "unenrolled", "credential-", "closed", "revoked", "unauthorized" };

	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		if (strncmp(cause, starts[i], strlen(starts[i])) == 0)
			return true;
	return false;
}

static void
look_authentication(struct doctor *d)
{
	const struct ctl_connectd_status *s = &d->view.net;
	const char *name = "authentication";

	if (d->view.connectd.error == -EACCES)
		check_skip(d, name, "connectd may not be asked by this user");
	else if (!d->view.net_up)
		check_skip(d, name, "connectd does not answer; an authenticated attempt is its alone");
	else if (s->link == CTL_LINK_CONNECTED)
		check_ok(d, name, "the hub knows this device as %.60s", s->agent_id);
	else if (about_identity(s->cause) || (s->link == CTL_LINK_STOPPED && strcmp(s->cause, "hub-bye") == 0))
		check_bad(d, name, CHECK_FAIL, s->cause, "edgectl status; edgectl enroll --token-file FILE --replace", "%.250s",
		    s->detail);
	else
		check_skip(d, name, "not reached: connectd says %.30s%s%.150s", s->cause[0] != '\0' ? s->cause : name_of_link(s->link),
		    s->detail[0] != '\0' ? ": " : "", s->detail);
}

void
step_identity(struct doctor *d)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/connectd/credential.json", d->state);
	look_credential(d, path);
	look_authentication(d);
}

static void
one_daemon(struct doctor *d, const struct client *c, bool up, int pid)
{
	char text[512], command[64];

	snprintf(command, sizeof(command), "journalctl -eu edgeward-%s", c->name);
	if (up) {
		check_ok(d, c->name, "answers, pid %d", pid);
		return;
	}
	client_error_text(c, text, sizeof(text));
	if (c->error == -EACCES)
		check_skip(d, c->name, "%.250s", text);
	else
		check_bad(d, c->name, CHECK_FAIL, client_error_code(c), d->systemd ? command : NULL, "%.250s", text);
}

static void
one_helper(struct doctor *d, const char *name, bool known, bool up, int pid)
{
	if (!known)
		check_skip(d, name, "nobody who would know answers");
	else if (up)
		check_ok(d, name, "is there, pid %d", pid);
	else
		check_bad(d, name, CHECK_FAIL, "not-running", d->systemd ? "systemctl status edgeward-privhelper edgeward-workerd" : NULL,
		    "is not connected to the others");
}

void
step_processes(struct doctor *d)
{
	const struct view *v = &d->view;

	one_daemon(d, &v->connectd, v->net_up, v->net.pid);
	one_daemon(d, &v->workerd, v->work_up, v->work.pid);
	one_helper(d, "launcher", v->work_up, v->work_up && v->work.launcher_up, v->work.launcher_pid);
	one_helper(d, "privhelper", v->priv_known, v->priv_up, v->net.priv_up ? v->net.priv_pid : v->work.priv_pid);
	if (v->net_up && v->work_up && v->net.work_up && v->work.work_up)
		check_ok(d, "introduction", "connectd and workerd know each other");
	else if (v->net_up && v->work_up)
		check_bad(d, "introduction", CHECK_FAIL, "not-introduced", d->systemd ? "systemctl restart edgeward-privhelper" : NULL,
		    "connectd and workerd have not been introduced to each other");
	else
		check_skip(d, "introduction", v->connectd.error == -EACCES || v->workerd.error == -EACCES ?
		    "connectd and workerd may not be asked by this user" : "connectd or workerd does not answer");
	if (v->net_up && strcmp(v->net.cause, CTL_CONFIG_CHANGED) == 0)
		check_bad(d, "in-force", CHECK_WARN, v->net.cause, "systemctl restart edgeward-connectd", "%.250s", v->net.detail);
	if (v->work_up && v->work.cause[0] != '\0')
		check_bad(d, "work", CHECK_WARN, v->work.cause, strcmp(v->work.cause, CTL_CONFIG_CHANGED) == 0 ?
		    "systemctl reload edgeward-workerd" : "edgectl status", "%.250s", v->work.detail);
}
