/*
 * An NSS service for test_privaccount.py: accounts that no file of this machine has, as a directory server would give them. The file
 * /etc/faraway has lines "NAME UID GID HOME"; each is an account and a group. (One that fails is not to be told from one that knows nobody:
 * getpwuid_r() of glibc 2.36 answers 0 and NULL to both.)
 */
#include <errno.h>
#include <grp.h>
#include <nss.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

static enum nss_status
find(const char *name, long uid, long gid, char *buf, size_t size, unsigned long ids[2], char **ret_home, int *ret_errno)
{
	enum nss_status found = NSS_STATUS_NOTFOUND;
	FILE *f = fopen("/etc/faraway", "re");
	char line[200], who[64], home[64];

	while (f != NULL && found == NSS_STATUS_NOTFOUND && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%63s %lu %lu %63s", who, &ids[0], &ids[1], home) != 4 ||
		    (name != NULL ? strcmp(name, who) != 0 : uid >= 0 ? ids[0] != (unsigned long)uid : ids[1] != (unsigned long)gid))
			continue;
		if (snprintf(buf, size, "%s%c%s", who, 0, home) >= (int)size) {
			*ret_errno = ERANGE;
			found = NSS_STATUS_TRYAGAIN;
		} else {
			*ret_home = buf + strlen(buf) + 1;
			found = NSS_STATUS_SUCCESS;
		}
	}
	if (f != NULL)
		fclose(f);
	return found;
}

static enum nss_status
passwd(const char *name, long uid, struct passwd *pw, char *buf, size_t size, int *ret_errno)
{
	unsigned long ids[2];
	char *home;
	enum nss_status r = find(name, uid, -1, buf, size, ids, &home, ret_errno);

	if (r == NSS_STATUS_SUCCESS)
		*pw = (struct passwd){ .pw_name = buf, .pw_passwd = (char *)"x", .pw_uid = (uid_t)ids[0], .pw_gid = (gid_t)ids[1], .pw_gecos = (char *)"",
			.pw_dir = home, .pw_shell = (char *)"/bin/sh" };
	return r;
}

static enum nss_status
group(const char *name, long gid, struct group *gr, char *buf, size_t size, int *ret_errno)
{
	static char *nobody[] = { NULL };
	unsigned long ids[2];
	char *home;
	enum nss_status r = find(name, -1, gid, buf, size, ids, &home, ret_errno);

	if (r == NSS_STATUS_SUCCESS)
		*gr = (struct group){ .gr_name = buf, .gr_passwd = (char *)"x", .gr_gid = (gid_t)ids[1], .gr_mem = nobody };
	return r;
}

enum nss_status _nss_faraway_getpwnam_r(const char *name, struct passwd *pw, char *buf, size_t size, int *ret_errno);
enum nss_status _nss_faraway_getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t size, int *ret_errno);
enum nss_status _nss_faraway_getgrnam_r(const char *name, struct group *gr, char *buf, size_t size, int *ret_errno);
enum nss_status _nss_faraway_getgrgid_r(gid_t gid, struct group *gr, char *buf, size_t size, int *ret_errno);

enum nss_status
_nss_faraway_getpwnam_r(const char *name, struct passwd *pw, char *buf, size_t size, int *ret_errno)
{
	return passwd(name, -1, pw, buf, size, ret_errno);
}

enum nss_status
_nss_faraway_getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t size, int *ret_errno)
{
	return passwd(NULL, uid, pw, buf, size, ret_errno);
}

enum nss_status
_nss_faraway_getgrnam_r(const char *name, struct group *gr, char *buf, size_t size, int *ret_errno)
{
	return group(name, -1, gr, buf, size, ret_errno);
}

enum nss_status
_nss_faraway_getgrgid_r(gid_t gid, struct group *gr, char *buf, size_t size, int *ret_errno)
{
	return group(NULL, gid, gr, buf, size, ret_errno);
}
