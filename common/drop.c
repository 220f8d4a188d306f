#include "common/drop.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int
set_caps(const cap_value_t *caps, size_t n)
{
	cap_t c = cap_init();
	int r = 0;

	if (c == NULL)
		return -errno;
	if (n > 0 && (cap_set_flag(c, CAP_PERMITTED, (int)n, caps, CAP_SET) < 0 ||
	    cap_set_flag(c, CAP_EFFECTIVE, (int)n, caps, CAP_SET) < 0))
		r = -errno;
	if (r == 0 && cap_set_proc(c) < 0)
		r = -errno;
	cap_free(c);
	return r;
}

static bool
listed(cap_value_t cap, const cap_value_t *caps, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (caps[i] == cap)
			return true;
	return false;
}

/* Without CAP_SETPCAP the bounding set stays; no_new_privs makes it meaningless. */
static int
drop_bounding(const cap_value_t *caps, size_t n)
{
	for (cap_value_t cap = 0; CAP_IS_SUPPORTED(cap); cap++)
		if (!listed(cap, caps, n) && cap_get_bound(cap) == 1 && cap_drop_bound(cap) < 0 && errno != EPERM)
			return -errno;
	return 0;
}

int
drop_to_caps(const cap_value_t *caps, size_t n)
{
	int r;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -errno;
	r = drop_bounding(caps, n);
	return r < 0 ? r : set_caps(caps, n);
}

bool
drop_is_permitted(cap_value_t cap)
{
	cap_flag_value_t value = CAP_CLEAR;
	cap_t now = cap_get_proc();
	bool permitted = now != NULL && cap_get_flag(now, cap, CAP_PERMITTED, &value) == 0 && value == CAP_SET;

	cap_free(now);
	return permitted;
}

static int
verify_none(void)
{
	cap_t now = cap_get_proc(), none = cap_init();
	int r = -EPERM;

	if (now != NULL && none != NULL && cap_compare(now, none) == 0)
		r = 0;
	cap_free(now);
	cap_free(none);
	return r;
}

int
drop_everything(void)
{
	uid_t r, e, s;
	int err = drop_to_caps(NULL, 0);

	if (err < 0)
		return err;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	if (getresuid(&r, &e, &s) < 0)
		return -errno;
	if (r == 0 || r != e || e != s)
		return -EPERM;
	return verify_none();
}

/* By system call and without libcap, which allocates: this runs between clone and exec. */
int
drop_to_runner(uid_t uid, gid_t gid)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	const struct __user_cap_data_struct none[2] = { { 0 }, { 0 } };

	if (uid != 0 && (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0))
		return -errno;
	if (syscall(SYS_capset, &head, none) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	return 0;
}
