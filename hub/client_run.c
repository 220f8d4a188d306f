/* Starting, following and signalling runs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "hub/client.h"
#include "hub/egress.h"
#include "hub/secret.h"
#include "hub/shell.h"
#include "hub/ship.h"
#include "proto/hub/limits.h"
#include "proto/ipc/job.h"

#define PUMP_TURN	16	/* records sent in one turn */

/* argv for display: cut, never more than fits. */
static void
describe(struct admin_start start, char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < start.argc && len + 2 < size; i++) {
		size_t n;
		const char *s = admin_start_next(&start, &n);
		char word[256];

		if (s == NULL)
			break;
		snprintf(word, sizeof(word), "%.*s", (int)(n < 255 ? n : 255), s);
		if (i > 0)
			buf[len++] = ' ';
		text_clean(buf + len, size - len, word);
		len += strlen(buf + len);
	}
}

static void
put_strings(struct json_w *w, const char *key, struct admin_start *start, uint32_t n)
{
	json_w_arr(w, key);
	for (uint32_t i = 0; i < n; i++) {
		size_t len;
		const char *s = admin_start_next(start, &len);

		json_w_strn(w, NULL, s != NULL ? s : "", len);
	}
	json_w_end_arr(w);
}

static void
put_some(struct json_w *w, const char *key, const struct work_str *s)
{
	if (s->len > 0)
		json_w_strn(w, key, s->s, s->len);
}

static void
put_workspace(struct json_w *w, const struct work_job *job)
{
	json_w_obj(w, "workspace");
	if (job->workspace == JOB_WORKSPACE_GIT) {
		json_w_str(w, "kind", "git");
		put_some(w, "repo", &job->repo);
		put_some(w, "ref", &job->ref);
	} else if (job->workspace == JOB_WORKSPACE_BUNDLE) {
		json_w_str(w, "kind", "bundle");
		json_w_obj(w, "branch_bundle");
		put_some(w, "branch", &job->branch);
		put_some(w, "head", &job->head);
		put_some(w, "sha256", &job->sha256);
		json_w_int(w, "bytes", (int64_t)job->bundle_bytes);
		json_w_end_obj(w);
	}
	json_w_end_obj(w);
	json_w_obj(w, "write_back");
	if (job->back != JOB_BACK_NONE) {
		json_w_str(w, "mode", job->back == JOB_BACK_PUSH ? "push" : "bundle");
		put_some(w, "branch", &job->branch);
		put_some(w, "message", &job->message);
		json_w_int(w, "max_bundle_bytes", (int64_t)job->max_bundle);
	}
	json_w_end_obj(w);
}

/* Beside the spec, so that it is stored nowhere but with the start, which goes when the device has it. */
static void
put_credential(struct json_w *w, const struct work_job *job)
{
	if (job->password.len == 0)
		return;
	json_w_obj(w, "workspace_credential");
	put_some(w, "username", &job->user);
	put_some(w, "password", &job->password);
	json_w_end_obj(w);
}

/* What was forwarded to the device under these names, and waits for this start. */
static void
put_devices(struct json_w *w, char list[DEVICE_LIST_SIZE])
{
	char *id;

	if (list[0] == '\0')
		return;
	json_w_arr(w, "devices");
	while ((id = strsep(&list, " ")) != NULL)
		json_w_str(w, NULL, id);
	json_w_end_arr(w);
}

static void
put_container(struct json_w *w, const struct work_job *job)
{
	struct work_str engine = { container_engine_name(job->engine), strlen(container_engine_name(job->engine)) };

	if (!job->container)
		return;
	json_w_obj(w, "sandbox");
	json_w_str(w, "mode", "container");
	put_some(w, "engine", &engine);
	put_some(w, "image", &job->image);
	put_some(w, "runtime", &job->runtime);
	put_some(w, "network", &job->engine_network);
	json_w_end_obj(w);
}

static void
put_network(struct json_w *w, const struct admin_start *start)
{
	static struct firewall fw;
	struct wire_r r;

	wire_r_init(&r, start->net.firewall, start->net.firewall_len);
	if (start->net.network == WORK_NETWORK_FILTERED)
		fw_get(&r, &fw);	/* admin_start_decode() has seen that it is one */
	egress_put(w, start->net.network, &fw);
}

/* What plain cloop has no field for. An agent that knows neither takes them for bookkeeping. */
static void
put_labels(struct json_w *w, const struct admin_limits *l)
{
	char seconds[24];

	if (l->overflow == WORK_OVERFLOW_DEVICE && l->timeout_ms <= 0)
		return;
	json_w_obj(w, "labels");
	if (l->overflow != WORK_OVERFLOW_DEVICE)
		json_w_str(w, WORK_OVERFLOW_LABEL, work_overflow_name(l->overflow));
	if (l->timeout_ms > 0) {
		snprintf(seconds, sizeof(seconds), "%lld", (long long)(l->timeout_ms + 999) / 1000);
		json_w_str(w, WORK_TIMEOUT_LABEL, seconds);
	}
	json_w_end_obj(w);
}

/* The payload of the start frame. The device's own limit counts whole minutes; ours is exact and comes first. */
static int
build_spec(struct admin_start start, uint8_t *buf, size_t size, size_t *ret_len)
{
	struct work_job job = { 0 };
	struct json_w w;

	if (start.job_len > 0 && job_decode(&job, start.job, start.job_len) < 0)
		return -EBADMSG;
	json_w_init(&w, buf, size);
	json_w_obj(&w, NULL);
	json_w_str(&w, "handle_id", start.handle);
	json_w_obj(&w, "spec");
	json_w_str(&w, "work_dir", start.work_dir);
	put_strings(&w, "argv", &start, start.argc);
	if (start.env_given)
		put_strings(&w, "env", &start, start.envc);
	json_w_obj(&w, "resource_limits");
	if (start.limits.cpu_millis > 0)
		json_w_int(&w, "cpu_millis", start.limits.cpu_millis);
	if (start.limits.memory_mb > 0)
		json_w_int(&w, "memory_mb", start.limits.memory_mb);
	if (start.limits.pids > 0)
		json_w_int(&w, "pids", start.limits.pids);
	if (start.limits.disk_mb > 0)
		json_w_int(&w, "disk_mb", start.limits.disk_mb);
	json_w_end_obj(&w);
	put_labels(&w, &start.limits);
	if (start.limits.timeout_ms > 0)
		json_w_int(&w, "timeout_minutes", (start.limits.timeout_ms + 59999) / 60000);
	if (start.secrets != NULL)
		secret_put_leases(&w, start.secrets, start.nsecrets, start.handle);
	put_workspace(&w, &job);
	put_network(&w, &start);
	json_w_end_obj(&w);
	put_credential(&w, &job);
	put_devices(&w, start.devices);
	put_container(&w, &job);
	if (start.secrets != NULL)
		secret_put_files(&w, start.secrets, start.nsecrets, start.handle);
	json_w_end_obj(&w);
	return json_w_done(&w, ret_len);
}

/* What the command line waits for while its branch is copied. */
struct starting {
	uint64_t client;
	struct ipc_hdr req;
	struct run_info info;
	size_t len;
	char *spec;
};

static const char no_streams[] = "this device speaks no edgeward.1: no branch can be shipped to it";
static const char unanswered[] = "the device has too much to answer already";

static void
drop_spec(char *spec, size_t len)
{
	explicit_bzero(spec, len);
	free(spec);
}

static int
begin(struct client *client, const struct ipc_hdr *req, struct session *s, const struct run_info *info, const char *spec, size_t len)
{
	struct run *run;
	int r = req->type == ADMIN_REQ_SHELL ? shell_new(client, info, spec, len, &run) : run_new(client->hub, info, spec, len, &run);

	if (r < 0) {
		ship_drop(client->hub, info->handle);
		return client_say(client, req, r, "the run cannot be stored: %s", strerror(-r));
	}
	r = ship_start(s, info->handle, spec, len);
	if (r < 0) {	/* pending, the device's next session would start what the client was told has failed */
		run_refused(run, "busy", unanswered);
		return client_say(client, req, r, "%s", unanswered);
	}
	log_debug("run %s: sent to device %s (%s)", info->handle, s->device, s->name);
	return client_say(client, req, 0, "%s", info->handle);
}

/* NULL, or the client has been told why not. */
static struct session *
session_for(struct client *client, const struct starting *st, int err)
{
	struct store_device d;
	struct session *s;
	int r;

	if (err < 0) {
		(void)client_say(client, &st->req, err, "the branch cannot be kept for the device: %s", strerror(-err));
		return NULL;
	}
	if (!client_device(client, &st->req, st->info.device, &d, &r))
		return NULL;
	s = client_session(client, &st->req, &d, &r);
	if (s == NULL || s->edgeward)
		return s;
	(void)client_say(client, &st->req, -EINVAL, "%s", no_streams);
	return NULL;
}

/* Only now there is a run: what is accepted is shipped, whatever ends meanwhile. */
static void
kept(struct hub *hub, const char *handle, int err, void *ctx)
{
	struct starting *st = ctx;
	struct client *client = client_find(hub, st->client);
	struct session *s = client != NULL ? session_for(client, st, err) : NULL;

	if (s != NULL)
		(void)begin(client, &st->req, s, &st->info, st->spec, st->len);
	else if (err != -ECANCELED)
		ship_drop(hub, handle);
	drop_spec(st->spec, st->len);
	free(st);
}

/* NULL, or why the file is not taken. */
static const char *
check_branch(const struct session *s, const struct work_job *job, int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY ||
	    (uint64_t)st.st_size != job->bundle_bytes || job->sha256.len != 64 || st.st_size == 0)
		return "the bundle is not the file that was looked at";
	return s->edgeward ? NULL : no_streams;
}

/* Has the branch copied and begins the run then. Takes spec; *fd, unless it fails. */
static int
begin_later(struct client *client, const struct ipc_hdr *req, struct session *s, const struct work_job *job, const struct run_info *info,
    char *spec, size_t len, int *fd)
{
	const char *why = check_branch(s, job, *fd);
	struct starting *st = why == NULL ? malloc(sizeof(*st)) : NULL;
	int r = why != NULL ? -EINVAL : -ENOMEM;

	if (st != NULL) {
		*st = (struct starting){ .client = client->serial, .req = *req, .info = *info, .len = len, .spec = spec };
		r = ship_new(s->hub, info->handle, *fd, job->bundle_bytes, job->sha256.s, kept, st);
	}
	if (r == 0) {
		*fd = -1;
		return 0;
	}
	free(st);
	drop_spec(spec, len);
	if (r == -EUSERS)
		why = "as many branches as this hub keeps wait for their devices";
	return why != NULL ? client_say(client, req, r, "%s", why) :
	    client_say(client, req, r, "the branch cannot be kept for the device: %s", strerror(-r));
}

static int
start_run(struct client *client, const struct ipc_hdr *req, const struct admin_start *start, int *bundle)
{
	struct hub *hub = client->hub;
	struct run_info info = { .state = RUN_PENDING, .created = monotime_wall_ns(), .timeout_ms = start->limits.timeout_ms,
		.final_offset = -1 };
	struct work_job job = { 0 };
	struct store_device d;
	struct session *s;
	struct run *run;
	size_t len;
	char *spec;
	int r;

	if (!client_device(client, req, start->device, &d, &r))
		return r;
	run = run_get(hub, start->handle);
	if (run != NULL)	/* asked before, the answer was lost */
		return strcmp(run->info.device, d.id) == 0 ? client_say(client, req, 0, "%s", start->handle) :
		    client_say(client, req, -EEXIST, "the handle is in use");
	s = client_session(client, req, &d, &r);
	if (s == NULL)
		return r;
	spec = malloc(HUB_MESSAGE_MAX);
	if (spec == NULL || build_spec(*start, (uint8_t *)spec, HUB_MESSAGE_MAX - 1024, &len) < 0) {
		free(spec);
		return client_say(client, req, -E2BIG, "the command line and environment do not fit into one message");
	}
	snprintf(info.handle, sizeof(info.handle), "%s", start->handle);
	snprintf(info.device, sizeof(info.device), "%s", d.id);
	text_clean(info.work_dir, sizeof(info.work_dir), start->work_dir);
	if (req->type == ADMIN_REQ_SHELL)	/* what its process does is nobody's interest */
		snprintf(info.command, sizeof(info.command), "shell");
	else
		describe(*start, info.command, sizeof(info.command));
	if (start->job_len > 0)
		(void)job_decode(&job, start->job, start->job_len);	/* build_spec() has seen that it is one */
	if (job.workspace == JOB_WORKSPACE_BUNDLE)
		return begin_later(client, req, s, &job, &info, spec, len, bundle);
	r = begin(client, req, s, &info, spec, len);
	drop_spec(spec, len);
	return r;
}

int
client_run(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	_cleanup_close_ int bundle = -1;
	struct admin_start start;
	const char *why;
	size_t len = 0;
	void *map;
	int r;

	if (msg->nfds == 0) {
		if (admin_start_decode(&start, msg->data, msg->hdr.len, &why) < 0)
			return client_say(client, &msg->hdr, -EINVAL, "%s", why);
		return start_run(client, &msg->hdr, &start, &bundle);
	}
	bundle = msg->nfds > 1 ? ipc_take_fd(msg, 1) : -1;
	if (msg->hdr.len != 0 || fd_is_sealed_memfd(msg->fds[0], ADMIN_SPEC_MAX, &len) <= 0 || len == 0)
		return client_say(client, &msg->hdr, -E2BIG, "the command line and environment are too long");
	map = mmap(NULL, len, PROT_READ, MAP_PRIVATE, msg->fds[0], 0);
	if (map == MAP_FAILED)
		return client_say(client, &msg->hdr, -ENOMEM, "out of memory");
	if (admin_start_decode(&start, map, len, &why) < 0)
		r = client_say(client, &msg->hdr, -EINVAL, "%s", why);
	else
		r = start_run(client, &msg->hdr, &start, &bundle);
	munmap(map, len);
	return r;
}

/* Something changed in the run it follows: not from inside the caller's work. */
static void
watch_cb(struct run_watch *watch)
{
	struct client *client = watch->ctx;

	if (!loop_timer_armed(&client->pump))
		loop_timer_set(client->hub->loop, &client->pump, monotime_now());
}

static struct run *
find_run(struct hub *hub, const char *what, int *ret_err)
{
	struct run_info info;
	struct run *run;

	*ret_err = store_run_find(hub->store, what, &info);
	if (*ret_err < 0)
		return NULL;
	run = run_get(hub, info.handle);
	if (run == NULL)
		*ret_err = -EIO;
	return run;
}

static int
say_no_run(struct client *client, const struct ipc_hdr *req, int err, const char *what)
{
	if (err == -ENOENT)
		return client_say(client, req, err, "no run %s", what);
	if (err == -ENOTUNIQ)
		return client_say(client, req, err, "more than one run fits %s", what);
	return client_say(client, req, err, "the log of %s cannot be read", what);
}

int
client_follow(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub *hub = client->hub;
	struct admin_follow req;
	struct admin_run ans;
	struct run *run;
	int err, r;

	memcpy(&req, msg->data, sizeof(req));
	if (!admin_follow_ok(&req))
		return -EBADMSG;
	run = find_run(hub, req.handle, &err);
	if (run == NULL)
		return say_no_run(client, &msg->hdr, err, req.handle);
	if (client->buf == NULL)
		client->buf = malloc(ADMIN_LOG_MAX);
	if (client->buf == NULL) {
		run_put(run);
		return client_say(client, &msg->hdr, -ENOMEM, "out of memory");
	}
	client_fill_run(hub, &run->info, run, &ans);
	client->offset = req.from;
	client->wait = (req.flags & ADMIN_FOLLOW_WAIT) != 0;
	client->watch.cb = watch_cb;
	client->watch.ctx = client;
	if (client->watch.run != run) {
		run_unwatch(&client->watch);
		run_watch(run, &client->watch);
	}
	if (client->wait)
		client_away_follow(client);
	r = ipc_answer(chan, &msg->hdr, 0, &ans, sizeof(ans));
	watch_cb(&client->watch);
	return r;
}

/* Sends one record. 1 = go on, 0 = wait for room or for more bytes, -errno. */
static int
pump_one(struct client *client, struct run *run)
{
	struct admin_log head = { .offset = client->offset };
	struct admin_run end;
	uint64_t gap_to;
	ssize_t n = logfile_read(&run->log, client->offset, client->buf, ADMIN_LOG_MAX, &gap_to);
	int r;

	if (n > 0) {
		struct iovec iov[2] = { { &head, sizeof(head) }, { client->buf, (size_t)n } };

		r = ipc_try_sendv(&client->chan, ADMIN_EV_LOG, iov, 2);
		if (r == 0)
			client->offset += (size_t)n;
	} else if (gap_to > 0) {
		struct admin_gap gap = { .from = client->offset, .to = gap_to,
			.reason = logfile_gap_reason(&run->log, client->offset) };
		struct iovec iov = { &gap, sizeof(gap) };

		r = ipc_try_sendv(&client->chan, ADMIN_EV_GAP, &iov, 1);
		if (r == 0)
			client->offset = gap_to;
	} else if (n == 0 && client->wait && !run_is_closed(run)) {
		return 0;
	} else {
		struct iovec iov = { &end, sizeof(end) };

		if (n < 0)
			log_error("run %s: the log cannot be read: %s", run->info.handle, strerror((int)-n));
		client_fill_run(client->hub, &run->info, run, &end);
		r = ipc_try_sendv(&client->chan, ADMIN_EV_END, &iov, 1);
		if (r == 0)
			run_unwatch(&client->watch);
	}
	return r == 0 ? 1 : r == -EAGAIN ? 0 : r;
}

void
client_pump(struct client *client)
{
	int r = 1;

	for (int i = 0; i < PUMP_TURN && r > 0 && client->watch.run != NULL; i++)
		r = pump_one(client, client->watch.run);
	/* A broken channel is told by the loop; more to send waits for its turn. */
	if (r > 0 && client->watch.run != NULL)
		watch_cb(&client->watch);
}

int
client_signal(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub *hub = client->hub;
	struct admin_signal req;
	struct session *s;
	struct run *run;
	int err, r = 0;

	memcpy(&req, msg->data, sizeof(req));
	if (!admin_signal_ok(&req))
		return -EBADMSG;
	run = find_run(hub, req.handle, &err);
	if (run == NULL)
		return say_no_run(client, &msg->hdr, err, req.handle);
	s = session_find(hub, run->info.device);
	if (run_state_is_final(run->info.state))
		r = client_say(client, &msg->hdr, 0, "it has ended already");
	else if (s == NULL)
		r = client_say(client, &msg->hdr, -ENOTCONN, "its device is not connected");
	else if (session_signal_run(s, run->info.handle, req.signal, client->serial, msg->hdr.id) < 0)
		r = client_say(client, &msg->hdr, -EBUSY, "the device answers nothing");
	run_put(run);
	return r;
}
