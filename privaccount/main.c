/*
 * privaccount: gives this device the ids its workloads run under, once.
 *
 * Who calls: edgeward-account.service, started by edgeward-account.path when workerd has left a request; or an operator. The request is
 * never opened, moved or removed: that it changed is all it says, so nothing of edgeward-work reaches root. What is trusted: files that
 * root alone can write, NSS, and what systemd-sysusers or useradd makes. Of accounts only `edgeward-run` is ever made.
 * On error: one line, the same in the result file for edgectl doctor, exit 1, and nothing recorded. It never keeps the agent from running.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/conf.h"
#include "common/fdutil.h"
#include "common/idranges.h"
#include "common/log.h"
#include "common/pool.h"
#include "common/runprog.h"
#include "version.h"

#define DEFAULT		"edgeward-run"
#define POOL_IDS	64u
#define LOOKUPS_MAX	20000u		/* of ids in NSS, before the range counts as used up */
#define TOOL_MS		60000
#define USAGE		"usage: privaccount [-hV]\n"

static const char *const powers[] = { "root", "sudo", "wheel", "admin", "adm", "disk", "shadow", "kmem", "docker", "lxd", "incus",
	"libvirt", "systemd-journal", "kvm", "staff", "input", "edgeward", "edgeward-ipc", "edgeward-net", "edgeward-work", "edgeward-test", "edgehub" };
static struct idranges taken;

/* The one line, for the journal and for who looks later; code is stable and listed in privaccount(8). */
static int
say(const char *code, const char *fmt, ...)
{
	_cleanup_close_ int dir = open("/run/edgeward", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char text[512], line[600];
	va_list ap;
	int n;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text[strcspn(text, "\n")] = '\0';
	n = snprintf(line, sizeof(line), "%s %s\n", code, text);
	if (dir >= 0 && fd_replace_file(dir, "account", line, (size_t)n, 0644) < 0)
		log_warn("/run/edgeward/account cannot be written");
	if (strcmp(code, "ok") == 0) {
		log_info("%s", text);
		return 0;
	}
	log_error("no ids for workloads (%s): %s", code, text);
	return 1;
}

/* POOL_IDS in a row that are nobody's. */
static int
reserve(uint32_t *ret_first)
{
	uint32_t from = 0, looked = 0;

	while (looked < LOOKUPS_MAX && idranges_next(&taken, from, POOL_IDS, &from) == 0) {
		uint32_t i = 0;
		int r = 0;

		while (i < POOL_IDS && (r = idranges_in_use(from + i)) == 0)
			i++;
		if (r < 0)
			return say("nss", "whose uid %u is cannot be found out: %s", from + i, strerror(-r));
		if (i == POOL_IDS) {
			*ret_first = from;
			return 0;
		}
		from += i + 1;
		looked += i + 1;
	}
	return say("exhausted", "no %u uids in a row are free outside login.defs, subuid and what the name services know", POOL_IDS);
}

static int
make_account(void)
{
	static const char *const sysusers[] = { "/usr/bin/systemd-sysusers", "--inline", "u " DEFAULT " - \"Edgeward workloads\" /nonexistent "
		"/usr/sbin/nologin", NULL };
	static const char *const useradd[] = { "/usr/sbin/useradd", "--system", "--no-log-init", "--no-create-home", "--home-dir", "/nonexistent", "--shell",
		"/usr/sbin/nologin", "--gid", DEFAULT, DEFAULT, NULL };
	static const char *const groupadd[] = { "/usr/sbin/groupadd", "--system", "--force", DEFAULT, NULL };
	bool modern = access(sysusers[0], X_OK) == 0;
	char out[2048] = "";
	int r = modern ? 0 : run_program(groupadd, 0, 0, TOOL_MS, out, sizeof(out));

	if (access("/etc", W_OK) < 0)
		return say("read-only", "/etc cannot be written (%s): make the account " DEFAULT " and /etc/edgeward/pool in the image", strerror(errno));
	r = r != 0 ? r : run_program(modern ? sysusers : useradd, 0, 0, TOOL_MS, out, sizeof(out));
	return r == 0 ? 0 : say("tool", "%s could not make " DEFAULT ": %s", modern ? "systemd-sysusers" : "useradd", r < 0 ? strerror(-r) : out);
}

/* Neither root, nor a person, nor one of our daemons, nor in a group that gives power. 0, or 1 and it was said why. *pw is overwritten. */
static int
check_account(const struct passwd *pw, const char *name, uid_t uid)
{
	gid_t groups[256];
	int n = (int)(sizeof(groups) / sizeof(groups[0]));

	if (uid == 0 || pw->pw_gid == 0)
		return say("root", "account %s has uid or gid 0", pw->pw_name);
	if (uid >= taken.human_min)
		return say("person", "account %s, uid %u, is none of the system's (UID_MIN %u in login.defs)", pw->pw_name, uid, taken.human_min);
	if (strcmp(pw->pw_dir, "/") == 0)
		return say("home", "account %s has / as its home", pw->pw_name);
	if (getgrouplist(pw->pw_name, pw->pw_gid, groups, &n) < 0)
		return say("groups", "account %s is in too many groups", pw->pw_name);
	for (unsigned j = 0; j < sizeof(powers) / sizeof(powers[0]); j++) {	/* by number: the same may have two names */
		const struct group *gr = getgrnam(powers[j]);

		for (int i = 0; gr != NULL && i < n; i++)
			if (groups[i] == gr->gr_gid)
				return say("groups", "account %s is in group %s", name, gr->gr_name);
		if ((pw = getpwnam(powers[j])) != NULL && pw->pw_uid == uid)
			return say("daemon", "account %s has the uid of %s", name, powers[j]);
	}
	return 0;
}

/* dir: /etc/edgeward. We are the only one. */
static int
run(int dir, const char *name)
{
	bool named = strcmp(name, DEFAULT) != 0;
	const struct passwd *pw = getpwnam(name);
	struct pool now = { 0 }, want = { 0 };
	char line[64];
	_cleanup_close_ int etc = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *file = "";
	int r = pool_load("/etc/edgeward/pool", &now);

	if (r < 0)
		return say("pool", "/etc/edgeward/pool: %s", pool_error(r));
	if ((r = idranges_read(&taken, etc, &file)) < 0)
		return say("ranges", "/etc/%s cannot be understood: %s", file, strerror(-r));
	if (pw == NULL && named)
		return say("missing", "account %s does not exist, and only " DEFAULT " is ever made", name);
	if (pw == NULL && make_account() != 0)
		return 1;
	if (pw == NULL && (pw = getpwnam(name)) == NULL)
		return say("tool", DEFAULT " was made and is still not there");
	want = (struct pool){ .first = pw->pw_uid, .count = named ? 1 : POOL_IDS, .gid = pw->pw_gid };
	if (check_account(pw, name, want.first) != 0)
		return 1;
	if (now.gid == want.gid && (named ? now.count == 1 && now.first == want.first : now.count > 1))
		return say("ok", "uids %u to %u, gid %u, as before", now.first, now.first + now.count - 1, now.gid);
	if (!named && reserve(&want.first) != 0)
		return 1;
	snprintf(line, sizeof(line), "%u %u %u\n", want.first, want.count, want.gid);
	r = fd_replace_file(dir, "pool", line, strlen(line), 0644);
	if (r < 0)
		return say(r == -EROFS ? "read-only" : "io", "/etc/edgeward/pool cannot be written: %s", strerror(-r));
	return say("ok", "uids %u to %u, gid %u, account %s", want.first, want.first + want.count - 1, want.gid, name);
}

int
main(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	static struct conf conf;
	char err[CONF_ERR_SIZE];
	int dir, lock, opt;

	while ((opt = getopt_long(argc, argv, "hV", longs, NULL)) != -1) {
		switch (opt) {
		case 'h': return fputs(USAGE "Makes the account " DEFAULT " and reserves the ids of workloads in /etc/edgeward/pool; privaccount(8).\n", stdout) < 0;
		case 'V': return puts("privaccount " EDGEWARD_VERSION) < 0;
		default: fputs(USAGE, stderr); return 2;
		}
	}
	log_init("privaccount", LOG_LEVEL_INFO);
	signal(SIGPIPE, SIG_IGN);
	umask(022);
	if (optind != argc || geteuid() != 0)
		fatal(optind != argc ? "takes no arguments" : "must run as root");
	dir = open("/etc/edgeward", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return say("io", "/etc/edgeward: %s", strerror(errno));
	lock = fd_open_own_dir("/run/edgeward", "privhelper", 0700);	/* that of the pool everybody may open, and so lock */
	if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) < 0)
		return 0;	/* another one is at it */
	if (conf_load_own(&conf, CONF_FILE, err) < 0)
		return say("conf", "%s", err);
	return run(dir, conf.work_account[0] != '\0' ? conf.work_account : DEFAULT);
}
