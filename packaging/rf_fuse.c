/*
 * Nobody in the work's cgroup opens /dev/fuse, as in the unit of workerd: close(2) of a file of a FUSE mount waits for who serves it, past
 * SIGKILL, and a taken-over workerd could hold up connectd and the launcher by one. By a filter of devices on the cgroup and not by a
 * mount namespace: where the machine's mounts are private, as init systems without systemd leave them, the work would not see what is
 * mounted later.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "packaging/rf.h"

#define FUSE_MAJOR	10	/* Documentation/admin-guide/devices.txt */
#define FUSE_MINOR	229

#define LOAD(reg, field)	{ BPF_LDX | BPF_MEM | BPF_W, (reg), BPF_REG_1, offsetof(struct bpf_cgroup_dev_ctx, field), 0 }
#define SET(reg, value)		{ BPF_ALU64 | BPF_MOV | BPF_K, (reg), 0, 0, (value) }
#define UNLESS(reg, value, skip)	{ BPF_JMP | BPF_JNE | BPF_K, (reg), 0, (skip), (value) }

static const struct bpf_insn all_but_fuse[] = {
	LOAD(BPF_REG_2, major),
	LOAD(BPF_REG_3, minor),
	SET(BPF_REG_0, 1),
	UNLESS(BPF_REG_2, FUSE_MAJOR, 2),
	UNLESS(BPF_REG_3, FUSE_MINOR, 1),
	SET(BPF_REG_0, 0),
	{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
};

static int
bpf(int cmd, union bpf_attr *attr)
{
	long r = syscall(SYS_bpf, cmd, attr, sizeof(*attr));

	return r < 0 ? -errno : (int)r;
}

static int
load_filter(void)
{
	union bpf_attr load;

	memset(&load, 0, sizeof(load));		/* the kernel looks at all of it, and = { 0 } need not set all of a union */
	load.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
	load.insns = (uintptr_t)all_but_fuse;
	load.insn_cnt = sizeof(all_but_fuse) / sizeof(all_but_fuse[0]);
	load.license = (uintptr_t)"ISC";
	return bpf(BPF_PROG_LOAD, &load);
}

/* How many filters hold there, those of its parents included. */
static int
count_filters(int dir)
{
	union bpf_attr query;
	int r;

	memset(&query, 0, sizeof(query));
	query.query.target_fd = (uint32_t)dir;
	query.query.attach_type = BPF_CGROUP_DEVICE;
	query.query.query_flags = BPF_F_QUERY_EFFECTIVE;
	r = bpf(BPF_PROG_QUERY, &query);
	return r < 0 ? r : (int)query.query.prog_cnt;
}

static int
attach_filter(int cmd, int dir, int prog)
{
	union bpf_attr attach;

	memset(&attach, 0, sizeof(attach));
	attach.target_fd = (uint32_t)dir;
	attach.attach_bpf_fd = (uint32_t)prog;
	attach.attach_type = BPF_CGROUP_DEVICE;
	attach.attach_flags = cmd == BPF_PROG_ATTACH ? BPF_F_ALLOW_MULTI : 0;	/* beside those of whoever manages this machine */
	return bpf(cmd, &attach);
}

/* A parent's filter that may be overridden holds no longer where there is one of our own: then that one has to do. */
int
rf_cgroup_deny_fuse(struct rf_cgroup *cg)
{
	_cleanup_close_ int dir = open(cg->base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), prog = -1;
	struct stat st;
	int before, r;

	if (dir < 0 || fstat(dir, &st) < 0)
		return -errno;
	/* One that could not be removed for the next start has it still, and takes no more than 64. */
	if (st.st_ino == cg->filtered)
		return 0;
	before = count_filters(dir);
	if (before < 0)
		return before;
	prog = load_filter();
	if (prog < 0)
		return prog;
	r = attach_filter(BPF_PROG_ATTACH, dir, prog);
	if (r == 0 && count_filters(dir) <= before) {
		(void)attach_filter(BPF_PROG_DETACH, dir, prog);
		r = -EPERM;
	}
	if (r == 0)
		cg->filtered = st.st_ino;
	return r;
}
