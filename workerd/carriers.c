/*
 * Who calls: workchan.c for connectd, which may have been taken over: what it asks for is checked here against policy.conf, and the path by
 * the carrier, beneath the work directory and as its runner. launchchan.c with the launcher's word. A carrier has one end of a socket pair,
 * connectd the other; when either goes, the other ends.
 */
#include "workerd/carriers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/beneath.h"
#include "common/cleanup.h"
#include "common/filepump.h"
#include "common/log.h"
#include "workerd/admit.h"
#include "workerd/confinement.h"
#include "workerd/launchchan.h"
#include "workerd/start.h"
#include "workerd/workerd.h"

#define MEMORY	(64u << 20)
#define PIDS	8
#define NICE	10
#define OOM	500

static void
answer(struct workerd *w, uint32_t asker, int fd, const char *error)
{
	struct ipc_hdr hdr = { .type = WORK_ANS_FILE, .id = asker };
	struct file_answer ans = { .ok = fd >= 0 };

	snprintf(ans.error, sizeof(ans.error), "%s", error);
	if (asker != 0 && ipc_chan_is_open(&w->work))
		ipc_send_fds(&w->work, &hdr, &ans, sizeof(ans), &fd, fd >= 0);
}

static struct carrier *
find(struct workerd *w, const char *handle)
{
	for (struct carrier *c = w->carriers.list; c < w->carriers.list + FILE_CARRIERS; c++)
		if (strcmp(c->handle, handle) == 0)
			return c;
	return NULL;
}

static void
forget(struct workerd *w, struct carrier *c)
{
	cleanup_close(&c->sock);
	record_free(&w->spares, &c->rec);
	*c = (struct carrier){ 0 };
}

/* ---- what is possible ---- */

static bool
permitted(const struct workerd *w, const struct file_open *o, char why[208])
{
	char where[POLICY_WHERE], value[32];

	if (w->policy.files >= (o->put != 0 ? POLICY_FILES_WRITE : POLICY_FILES_READ))
		return true;
	policy_value(&w->policy, POLICY_FILES, value, sizeof(value));
	snprintf(why, 208, "policy: %s = %s: this device lets a hub %s no files of work directories; its operator may, by files under [work]",
	    policy_where(&w->policy, POLICY_FILES, where), value, o->put != 0 ? "write" : "read");
	return false;
}

static bool
roomy(const struct workerd *w, const struct file_open *o, char why[208])
{
	uint64_t bytes = UINT64_MAX, inodes;
	struct statvfs st;

	if (o->put == 0)
		return true;
	if (fstatvfs(w->ids.root, &st) == 0)
		admit_free(&st, &bytes, &inodes);
	if (bytes >= w->conf.work_disk_low && bytes - w->conf.work_disk_low >= o->size)
		return true;
	snprintf(why, 208, "disk-full: %" PRIu64 " MiB free under the work root, of which [work] disk-low keeps %" PRIu64
	    "; the file has %" PRIu64, bytes >> 20, w->conf.work_disk_low >> 20, o->size >> 20);
	return false;
}

/* Which directory, and whose. */
static bool
place(struct workerd *w, const struct file_open *o, struct work_spec *spec, uint32_t *ret_slot, char why[208])
{
	const struct workload *wl = workload_by_handle(w, o->handle);
	char top[IDS_TOP_SIZE];
	int fd;

	memcpy(spec->handle, o->handle, sizeof(spec->handle));
	if (wl != NULL && wl->rec.h != NULL && (wl->rec.h->dir_known & 1) != 0) {
		snprintf(spec->work_dir, sizeof(spec->work_dir), "%s", wl->rec.h->work_dir);
	} else if (o->work_dir[0] != '\0') {
		snprintf(spec->work_dir, sizeof(spec->work_dir), "%s", o->work_dir);
	} else {
		snprintf(why, 208, "unknown_handle: no workload %.64s is known here", o->handle);
		return false;
	}
	if (start_find_dir(w, spec, top, ret_slot, why) != WORK_OK)
		return false;
	fd = beneath_open(w->ids.root, spec->work_dir);
	if (fd < 0 && fd != -EACCES)
		snprintf(why, 208, "its work directory: %s", strerror(-fd));
	if (fd >= 0)
		close(fd);
	return fd >= 0 || fd == -EACCES;
}

/* ---- from connectd ---- */

/* A socket pair whose far end holds the request. */
static int
ask_pair(const struct file_open *o, int ret[2])
{
	const struct file_rec rec = { .type = FILE_ASK };
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret) < 0)
		return -errno;
	r = filepump_say(ret[0], &rec, o, sizeof(*o));
	if (r < 0) {
		close(ret[0]);
		close(ret[1]);
	}
	return r;
}

static int
begin(struct workerd *w, struct carrier *c, const struct file_open *o, struct work_spec *spec, struct launch_start *s)
{
	_cleanup_close_ int fd = -1, far = -1;
	int pair[2], fds[5], r;

	spec->argc = 1;
	spec->argv[0] = (struct work_str){ "carrier", 7 };
	snprintf(c->handle, sizeof(c->handle), CARRIER_HANDLE "%" PRIu64 "-%d", ++w->carriers.last, (int)getpid());
	memcpy(s->handle, c->handle, sizeof(s->handle));
	memcpy(spec->handle, c->handle, sizeof(spec->handle));
	fd = start_spec(spec);
	if (fd < 0)
		return fd;
	r = record_new(&w->spares, c->handle, w->conf.work_retain, &c->rec);
	if (r == 0)
		r = ask_pair(o, pair);
	if (r < 0)
		return r;
	c->sock = pair[0];
	far = pair[1];
	memcpy(fds, (int[]){ fd, c->rec.fd, c->rec.report, w->ids.root, far }, sizeof(fds));
	return launchchan_ask(w, s, fds, 5, &c->start_id);
}

static void
open_one(struct workerd *w, uint32_t asker, const struct file_request *req)
{
	const struct file_open *o = &req->open;
	struct work_str argv[1];
	struct work_spec spec = { .argv = argv, .env_given = true, .network = WORK_NETWORK_NONE };
	struct launch_start s = { .nice = NICE, .oom_score_adj = OOM, .stage = LAUNCH_STAGE_CARRIER };
	struct carrier *c = find(w, "");
	char why[208] = "", quoted[LOG_QUOTE_SIZE];
	int r;

	log_quote(quoted, sizeof(quoted), o->path, strlen(o->path));
	if (c == NULL)
		snprintf(why, sizeof(why), "busy: %u files are carried, as many as this agent does at a time", FILE_CARRIERS);
	else if (permitted(w, o, why) && roomy(w, o, why) && place(w, o, &spec, &s.slot, why))
		(void)confinement_decide(&w->conf, &w->policy, &w->ready, WORK_NETWORK_NONE, &s.parts, why);
	if (why[0] == '\0') {
		s.parts |= LAUNCH_PART_CARRIER;
		s.memory_bytes = (w->ready.controllers & LAUNCH_CTL_MEMORY) != 0 ? MEMORY : 0;
		s.pids = (w->ready.controllers & LAUNCH_CTL_PIDS) != 0 ? PIDS : 0;
		memcpy(s.show, w->conf.work_show, sizeof(s.show));
		*c = (struct carrier){ .asker = asker, .sock = -1, .rec = { .fd = -1, .report = -1 } };
		snprintf(c->path, sizeof(c->path), "%s", o->path);
		r = begin(w, c, o, &spec, &s);
		if (r < 0) {
			snprintf(why, sizeof(why), "cannot start: %s", strerror(-r));
			forget(w, c);
		}
	}
	eventlog_add(&w->events, why[0] != '\0' ? "file-refused" : o->put != 0 ? "file-put" : "file-get", o->handle, "%s: %s%s%s", req->who[0] != '\0' ? req->who :
	    "the hub", quoted, why[0] != '\0' ? ": " : "", why);
	log_info("file %s of %s: %s%s%s", quoted, o->handle, o->put != 0 ? "written by the hub" : "read by the hub", why[0] != '\0' ?
	    "; refused: " : "", why);
	if (why[0] != '\0')
		answer(w, asker, -1, why);
}

int
carriers_on_open(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	static struct file_request req;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !file_request_ok(&req))
		return -EPROTO;
	open_one(ctx, msg->hdr.id, &req);
	return 0;
}

void
carriers_unasked(struct workerd *w)
{
	for (struct carrier *c = w->carriers.list; c < w->carriers.list + FILE_CARRIERS; c++)
		if (c->handle[0] != '\0' && c->asker != 0) {
			c->asker = 0;
			cleanup_close(&c->sock);	/* the carrier reads the end and goes */
			c->sock = -1;
		}
}

/* ---- from the launcher ---- */

bool
carriers_answer(struct workerd *w, struct ipc_msg *msg, int *ret)
{
	struct carrier *c = w->carriers.list;
	char why[208];

	while (c < w->carriers.list + FILE_CARRIERS && (c->start_id == 0 || c->start_id != msg->hdr.id))
		c++;
	if (c == w->carriers.list + FILE_CARRIERS)
		return false;
	c->start_id = 0;
	*ret = (msg->hdr.status == 0) != (msg->nfds == 2) ? -EPROTO : 0;
	if (msg->hdr.status < 0) {
		snprintf(why, sizeof(why), "launcher: %s", strerror(-msg->hdr.status));
		answer(w, c->asker, -1, why);
		forget(w, c);
		return true;
	}
	answer(w, c->asker, c->sock, c->asker != 0 && c->sock >= 0 ? "" : "nobody waits for it");
	c->asker = 0;
	cleanup_close(&c->sock);
	c->sock = -1;
	return true;
}

bool
carriers_ended(struct workerd *w, const struct launch_ended *end)
{
	struct carrier *c = end->stage == LAUNCH_STAGE_CARRIER ? find(w, end->handle) : NULL;
	struct launch_report rep = { 0 };

	if (end->stage != LAUNCH_STAGE_CARRIER)
		return false;
	if (c != NULL && c->rec.h != NULL) {
		record_report(&c->rec, &rep);
		if ((rep.flags & LAUNCH_REPORT_FAILED) != 0)
			log_warn("file %s: its carrier failed at stage %u: %s", c->path, rep.failed.stage, strerror(rep.failed.error));
	}
	launchchan_about(w, end->handle, LAUNCH_EV_FORGET);
	if (c != NULL)
		forget(w, c);
	return true;
}

void
carriers_held(struct workerd *w, const struct launch_held *held)
{
	struct carrier *c = find(w, "");

	if (c == NULL) {	/* there are no more than there may be, unless an earlier one let there be more */
		launchchan_about(w, held->handle, LAUNCH_EV_KILL);
		return;
	}
	*c = (struct carrier){ .sock = -1, .rec = { .fd = -1, .report = -1 } };
	memcpy(c->handle, held->handle, sizeof(c->handle));
}
