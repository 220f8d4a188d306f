/*
 * Who calls: start.c with what connectd sent and admit() has bounded, stage.c and sweep.c for the processes. Everything is decided here
 * before anything is made; the pure part, what becomes an argument, is engine.c.
 */
#include "workerd/container.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/log.h"
#include "proto/ipc/netset.h"
#include "workerd/engine_steps.h"	/* generated */
#include "workerd/workerd.h"

#define PARTS	(LAUNCH_PART_USER | LAUNCH_PART_MOUNT | LAUNCH_PART_PID | LAUNCH_PART_NET | LAUNCH_PART_SECCOMP)
#define MEMORY	(512ull << 20)	/* of a client and its script */
#define PIDS	256u
#define TRIES	5	/* of one process; a second each, and what the engine takes */
#define VARS_MAX (WORK_ENV_MAX)

static struct {
	char text[ENGINE_TEXT], vars_text[160 << 10], program[64], socket[CONTAINER_SOCKET_MAX + 1];
	size_t len;
	struct work_str words[WORK_ARGV_MAX], vars[VARS_MAX];
	uint32_t n;
	bool full;
} step;

void
container_init(struct workerd *w)
{
	char text[64] = "";
	FILE *f = fopen("/etc/machine-id", "re");
	XXH64_hash_t seed = 0;

	if (f != NULL) {
		if (fgets(text, sizeof(text), f) != NULL)
			seed = XXH3_64bits(text, strlen(text));
		fclose(f);
	}
	/* One workerd has one work root: on a machine that is what tells Edgewards apart, and it is the same after a reboot. */
	w->containers.id.agent = XXH3_64bits_withSeed(w->ids.real, strlen(w->ids.real), seed);
	if (getrandom(&w->containers.id.instance, sizeof(w->containers.id.instance), 0) != (ssize_t)sizeof(w->containers.id.instance))
		fatal("no random numbers: %s", strerror(errno));
}

/* ---- the verdict ---- */

static uint32_t
bit_of(enum job_engine engine)
{
	for (unsigned bit = 0; inventory_name(INVENTORY_ENGINES, bit) != NULL; bit++)
		if (strcmp(inventory_name(INVENTORY_ENGINES, bit), container_engine_name(engine)) == 0)
			return 1u << bit;
	return 0;
}

uint32_t
container_engines(const struct workerd *w)
{
	if (w->policy.engine_socket[0] == '\0' || (w->ready.parts & PARTS) != PARTS || w->policy.sandbox_level == POLICY_SANDBOX_UID)
		return 0;
	return inventory_programs(INVENTORY_ENGINES) & (bit_of(JOB_ENGINE_DOCKER) | bit_of(JOB_ENGINE_PODMAN));
}

/* docker speaks to either engine, podman to podman's alone. */
static enum job_engine
choose_engine(const struct workerd *w, enum job_engine asked)
{
	const char *name = strrchr(w->policy.engine_socket, '/') + 1;
	enum job_engine first = strstr(name, "podman") != NULL ? JOB_ENGINE_PODMAN : JOB_ENGINE_DOCKER;
	enum job_engine second = first == JOB_ENGINE_PODMAN ? JOB_ENGINE_DOCKER : JOB_ENGINE_PODMAN;
	uint32_t found = inventory_programs(INVENTORY_ENGINES);

	if (asked != JOB_ENGINE_ANY)
		return (found & bit_of(asked)) != 0 ? asked : JOB_ENGINE_ANY;
	return (found & bit_of(first)) != 0 ? first : (found & bit_of(second)) != 0 ? second : JOB_ENGINE_ANY;
}

static enum work_refusal
check_engine(const struct workerd *w, struct work_job *job, char error[208])
{
	char where[POLICY_WHERE];
	enum job_engine engine;

	if (w->policy.engine_socket[0] == '\0') {
		snprintf(error, 208, "no container engine here: %s = none", policy_where(&w->policy, POLICY_ENGINE_SOCKET, where));
		return WORK_REFUSED_POLICY;
	}
	if (job->engine == JOB_ENGINE_NERDCTL) {
		snprintf(error, 208, "nerdctl is refused: it makes containers itself, as root, and is no client of a socket; use docker or podman");
		return WORK_REFUSED_UNSUPPORTED;
	}
	/* podman takes a runtime of this machine's only when it is not asked over a socket. */
	engine = choose_engine(w, job->engine == JOB_ENGINE_ANY && job->runtime.len > 0 ? JOB_ENGINE_DOCKER : job->engine);
	if (engine == JOB_ENGINE_PODMAN && job->runtime.len > 0) {
		snprintf(error, 208, "podman chooses the runtime itself when it is asked over a socket; leave the runtime out, or use docker");
		return WORK_REFUSED_UNSUPPORTED;
	}
	if (engine == JOB_ENGINE_ANY) {
		snprintf(error, 208, "no container engine here: %s is not installed in /usr/bin or the like", job->engine != JOB_ENGINE_ANY ?
		    container_engine_name(job->engine) : "neither docker nor podman");
		return WORK_REFUSED_UNSUPPORTED;
	}
	if ((w->ready.parts & PARTS) != PARTS || w->policy.sandbox_level == POLICY_SANDBOX_UID) {
		snprintf(error, 208, "containers need a view of the file system for each workload alone, or the engine's socket would be in reach "
		    "of all; this device does not give it (sandbox-level = uid, or no user namespaces)");
		return WORK_REFUSED_SANDBOX;
	}
	job->engine = engine;
	job->socket = (struct work_str){ w->policy.engine_socket, strlen(w->policy.engine_socket) };
	return WORK_OK;
}

static gid_t
runner_gid(const struct workerd *w)
{
	return w->ready.pool_count != 0 ? w->ready.pool_gid : getegid();
}

/* The socket's mode; what is above it the client will find out. Who may not look is not refused for that. */
static enum work_refusal
check_socket(const struct workerd *w, const struct work_job *job, char error[208])
{
	const char *path = w->policy.engine_socket;
	bool pool = w->ready.pool_count != 0;
	struct stat st;

	if (stat(path, &st) < 0 && errno == EACCES)
		return WORK_OK;
	if (stat(path, &st) < 0 || !S_ISSOCK(st.st_mode)) {
		snprintf(error, 208, "no container engine here: %.120s is no socket; is the engine running?", path);
		return WORK_REFUSED_UNSUPPORTED;
	}
	if (st.st_uid != 0 && (pool || st.st_uid != geteuid())) {
		snprintf(error, 208, "the engine behind %.80s is uid %u's, who cannot reach work directories; use root's, or run Edgeward as that "
		    "user", path, st.st_uid);
		return WORK_REFUSED_SANDBOX;
	}
	if (st.st_uid != 0 && job->engine == JOB_ENGINE_DOCKER) {
		snprintf(error, 208, "docker without root cannot give a container the id that work directories belong to; use podman");
		return WORK_REFUSED_UNSUPPORTED;
	}
	if ((st.st_mode & S_IWOTH) == 0 && !((st.st_mode & S_IWGRP) != 0 && st.st_gid == runner_gid(w)) &&
	    !((st.st_mode & S_IWUSR) != 0 && !pool && st.st_uid == geteuid())) {
		snprintf(error, 208, "%.80s is not open to the runners: give it group %u and mode 0660 (policy.conf(5) shows how)", path,
		    runner_gid(w));
		return WORK_REFUSED_SANDBOX;
	}
	return WORK_OK;
}

static enum work_refusal
check_image(const struct policy *p, const struct work_job *job, char error[208])
{
	char where[POLICY_WHERE];

	if (p->images.word != POLICY_WORD && !keyfile_list_has(&p->images, job->image.s, job->image.len)) {
		snprintf(error, 208, "%s: %.*s is not in the list; name one that is, or have it added there", policy_where(p, POLICY_IMAGES, where),
		    (int)(job->image.len < 80 ? job->image.len : 80), job->image.s);
		return WORK_REFUSED_POLICY;
	}
	/* An image holds what it likes under the name of a program. */
	if (p->images.word == POLICY_WORD && p->programs.word != POLICY_WORD) {
		snprintf(error, 208, "%s is a list, and an image may hold anything under those names: list the images, too ([containers] images)",
		    policy_where(p, POLICY_PROGRAMS, where));
		return WORK_REFUSED_POLICY;
	}
	return WORK_OK;
}

/* True if all that inner reaches outer allows as it stands. */
static bool
reaches_no_more(const struct firewall *inner, const struct firewall *outer, char why[160])
{
	static struct firewall copy;
	static struct netset before, after;

	copy = *inner;
	if (fw_narrow(&copy, outer, why) < 0)
		return false;
	for (int family = 0; family < FW_FAMILIES; family++) {
		if (fw_destinations(inner, (enum fw_family)family, &before) < 0 || fw_destinations(&copy, (enum fw_family)family, &after) < 0 ||
		    !netset_inside(&before, &after)) {
			snprintf(why, 160, "it reaches what this start denies");
			return false;
		}
	}
	return true;
}

/*
 * We hold no capability to make rules for an engine's bridge. Where the operator has a network of the engine that is filtered as [network]
 * of the policy says, a start gets it if that is no more than the start may reach.
 */
static enum work_refusal
filtered(const struct workerd *w, const struct work_spec *spec, struct work_job *job, char error[208])
{
	static struct firewall device;
	const struct keyfile_list *list = &w->policy.filtered_network;
	const char *name = list->word == 0 && list->n > 0 ? list->text : NULL;
	char where[POLICY_WHERE], why[160] = "too many addresses";

	if (name == NULL) {
		snprintf(error, 208, "a firewall for a container needs a network of the engine's owner, and %s names none",
		    policy_where(&w->policy, POLICY_FILTERED_NETWORK, where));
		return WORK_REFUSED_SANDBOX;
	}
	if (job->engine_network.len > 0 && !container_is(&job->engine_network, "bridge") && !container_is(&job->engine_network, name)) {
		snprintf(error, 208, "the network %.*s is not known to be filtered; leave it out", (int)job->engine_network.len, job->engine_network.s);
		return WORK_REFUSED_SANDBOX;
	}
	policy_firewall(&w->policy, &device);
	fw_drop_denied(&device);
	if (!reaches_no_more(&device, &spec->net->rules, why)) {
		snprintf(error, 208, "%s: the network %s is wider than this start's firewall: %s", policy_where(&w->policy, POLICY_FILTERED_NETWORK,
		    where), name, why);
		return WORK_REFUSED_SANDBOX;
	}
	job->engine_network = (struct work_str){ name, strlen(name) };
	return WORK_OK;
}

static enum work_refusal
check_network(const struct workerd *w, const struct work_spec *spec, struct work_job *job, char error[208])
{
	static const struct work_str none = { "none", 4 }, bridge = { "bridge", 6 };

	if (spec->network == WORK_NETWORK_FILTERED)
		return filtered(w, spec, job, error);
	if (spec->network == WORK_NETWORK_NONE) {
		if (job->engine_network.len > 0 && !container_is(&job->engine_network, "none") && w->policy.network == POLICY_NETWORK_NONE) {
			char where[POLICY_WHERE];

			snprintf(error, 208, "%s = none; this start asks for some network", policy_where(&w->policy, POLICY_NETWORK, where));
			return WORK_REFUSED_POLICY;
		}
		job->engine_network = none;
	} else if (job->engine_network.len == 0) {
		job->engine_network = bridge;
	}
	return WORK_OK;
}

static enum work_refusal
check_env(const struct work_spec *spec, char error[208])
{
	char quoted[LOG_QUOTE_SIZE];

	for (uint32_t i = 0; i < spec->envc; i++) {
		const char *eq = memchr(spec->env[i].s, '=', spec->env[i].len);

		if (engine_env(&spec->env[i]) != ENGINE_ENV_REFUSED)
			continue;
		snprintf(error, 208, "variable %s cannot be given to a container: it would act on the engine's client, or is no name of letters, "
		    "digits and _; set it in the command", log_quote(quoted, sizeof(quoted), spec->env[i].s, eq != NULL ?
		    (size_t)(eq - spec->env[i].s) : spec->env[i].len));
		return WORK_REFUSED_UNSUPPORTED;
	}
	if (2 * spec->envc + spec->argc + 64 < WORK_ARGV_MAX && spec->envc + 32 < VARS_MAX)
		return WORK_OK;
	snprintf(error, 208, "the command and environment have too many parts for an engine's command line");
	return WORK_REFUSED_BAD_SPEC;
}

static enum work_refusal
check_wishes(const struct workerd *w, const struct work_spec *spec, char error[208])
{
	char where[POLICY_WHERE], path[WORK_DIR_SIZE];
	const char *why = NULL;

	if (spec->secrets.len > 0)
		why = "leased secrets are not given to containers: an engine keeps a container's variables on its disk, and sees no file of "
		    "ours; use the sandbox mode host";
	else if (spec->devices[0] != '\0')
		why = "forwarded devices are not lent to containers; use the sandbox mode host";
	else if (ids_clean(&w->ids, spec->work_dir, path) == 0 && path[0] == '\0')
		why = "a container needs a work directory of its own, not the whole work root; set work_dir";
	if (why != NULL) {
		snprintf(error, 208, "%s", why);
		return WORK_REFUSED_UNSUPPORTED;
	}
	if (w->policy.io_rate != 0) {
		snprintf(error, 208, "%s: this limit cannot be kept for a container", policy_where(&w->policy, POLICY_IO_RATE, where));
		return WORK_REFUSED_UNSUPPORTED;
	}
	return WORK_OK;
}

enum work_refusal
container_check(const struct workerd *w, struct work_spec *spec, struct work_job *job, char error[208])
{
	enum work_refusal r = check_engine(w, job, error);

	if (r == WORK_OK)
		r = check_socket(w, job, error);
	if (r == WORK_OK)
		r = check_image(&w->policy, job, error);
	if (r == WORK_OK)
		r = check_wishes(w, spec, error);
	if (r == WORK_OK)
		r = check_env(spec, error);
	return r == WORK_OK ? check_network(w, spec, job, error) : r;
}

/*
 * The engine, which may be root, looks the directory up by its name: nobody may be able to lead that name elsewhere meanwhile. A
 * directory whose owner is not the root's own runner nobody but root can replace, the root being sticky; below it the engine looks up
 * nothing (the whole directory is mounted). With one id for all work there is nothing to tell apart.
 */
enum work_refusal
container_check_dir(const struct workerd *w, const char *top, uint32_t slot, char error[208])
{
	char path[PATH_MAX + IDS_TOP_SIZE + 2];
	const char *why;
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", w->ids.real, top);
	why = engine_path_problem(path);
	if (why != NULL) {
		snprintf(error, 208, "the work directory cannot be mounted into a container: %s", why);
		return WORK_REFUSED_BAD_SPEC;
	}
	if (fstatat(w->ids.root, top, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode)) {
		snprintf(error, 208, "the work directory of a container must be a directory, not a link to one");
		return WORK_REFUSED_FORBIDDEN_PATH;
	}
	if (slot == 0 && w->ready.pool_count > 1) {
		snprintf(error, 208, "this directory was made by work without a directory of its own, which could replace it; use another one for "
		    "a container");
		return WORK_REFUSED_FORBIDDEN_PATH;
	}
	if (w->ready.pool_count == 0 && geteuid() == 0) {
		snprintf(error, 208, "a container gets the runner's id, and here that is root's: configure a pool");
		return WORK_REFUSED_SANDBOX;
	}
	return WORK_OK;
}

/* ---- the processes ---- */

bool
container_is_one(const struct workload *wl)
{
	return wl->rec.h != NULL && (wl->rec.h->flags & RECORD_F_CONTAINER) != 0;
}

bool
container_stage(const struct workload *wl, enum stage stage)
{
	return stage == STAGE_CREATE || stage == STAGE_REMOVE ||
	    (stage == STAGE_PAYLOAD && container_is_one(wl));
}

void
container_launch(const struct workerd *w, const char *socket, struct launch_start *s)
{
	s->parts = (s->parts & ~(LAUNCH_PART_FILTER | LAUNCH_PART_LINKS)) | LAUNCH_PART_USER | LAUNCH_PART_NET;
	s->memory_bytes = (w->ready.controllers & LAUNCH_CTL_MEMORY) != 0 ? MEMORY : 0;
	s->pids = (w->ready.controllers & LAUNCH_CTL_PIDS) != 0 ? PIDS : 0;
	s->cpu_millis = 0;
	s->io_rate = 0;
	memset(s->show, 0, sizeof(s->show));
	snprintf(s->show, sizeof(s->show), "%s", socket);
}

const char *
container_socket(void)
{
	return step.socket;
}

void
container_step_limits(const struct workerd *w, struct launch_start *s)
{
	s->memory_bytes = (w->ready.controllers & LAUNCH_CTL_MEMORY) != 0 ? s->memory_bytes : 0;
	s->pids = (w->ready.controllers & LAUNCH_CTL_PIDS) != 0 ? s->pids : 0;
	s->cpu_millis = (w->ready.controllers & LAUNCH_CTL_CPU) != 0 ? s->cpu_millis : 0;
}

__attribute__((format(printf, 2, 3))) static void
set(const char *name, const char *fmt, ...)
{
	size_t room = sizeof(step.vars_text) - step.len;
	char *at = step.vars_text + step.len;
	va_list ap;
	int n = snprintf(at, room, "%s=", name), m;

	va_start(ap, fmt);
	m = (size_t)n < room ? vsnprintf(at + n, room - (size_t)n, fmt, ap) : 0;
	va_end(ap);
	if (m < 0 || (size_t)(n + m) >= room || step.n == VARS_MAX) {
		step.full = true;
		return;
	}
	step.vars[step.n++] = (struct work_str){ at, (size_t)(n + m) };
	step.len += (size_t)(n + m) + 1;
}

/* A name of the closed list where it is installed. */
static void
set_engine(const struct engine_id *id, enum job_engine engine, const char *socket)
{
	step.n = 0;
	step.len = 0;
	step.full = false;
	set("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	set("HOME", "/tmp");
	set("XDG_RUNTIME_DIR", "/tmp");
	set("LC_ALL", "C");
	inventory_path(container_engine_name(engine), step.program, sizeof(step.program));
	set("EW_ENGINE", "%s", step.program);
	set("EW_WHERE", engine == JOB_ENGINE_PODMAN ? "--url" : "--host");
	set("EW_RM_MORE", engine == JOB_ENGINE_PODMAN ? "--time 0" : "");
	set("EW_SOCKET", "%s", socket);
	set("EW_AGENT", "%016" PRIx64, id->agent);
}

static void
use(struct work_spec *spec, const char *script, uint32_t nwords)
{
	step.words[0] = (struct work_str){ "/bin/sh", 7 };
	step.words[1] = (struct work_str){ "-c", 2 };
	step.words[2] = (struct work_str){ script, strlen(script) };
	step.words[3] = (struct work_str){ "edgeward", 8 };
	spec->argv = step.words;
	spec->argc = 4 + nwords;
	spec->env = step.vars;
	spec->envc = step.n;
	spec->env_given = true;
	spec->network = WORK_NETWORK_NONE;
	spec->secrets = spec->job = (struct work_str){ 0 };
	spec->devices[0] = '\0';
}

/* The values of the variables that are named in the arguments. */
static void
lend_env(const struct work_spec *spec)
{
	for (uint32_t i = 0; i < spec->envc; i++) {
		if (engine_env(&spec->env[i]) != ENGINE_ENV_NAME)
			continue;
		if (step.n == VARS_MAX)
			step.full = true;
		else
			step.vars[step.n++] = spec->env[i];
	}
}

static int
create_words(const struct workload *wl, struct work_spec *spec, const struct work_job *job, uint32_t *ret_n)
{
	const struct workerd *w = wl->w;
	static char top[PATH_MAX + IDS_TOP_SIZE + 2];
	size_t len = strcspn(spec->work_dir, "/");
	struct stat st;
	struct engine_wish wish = { .id = w->containers.id, .engine = job->engine, .top = top,
		.below = spec->work_dir[len] == '/' ? spec->work_dir + len + 1 : "",
		.uid = w->ready.pool_count != 0 ? w->ready.pool_first + wl->rec.h->slot : geteuid(), .gid = runner_gid(w), .job = job, .spec = spec };
	int r;

	wish.keep_id = w->ready.pool_count == 0 && job->engine == JOB_ENGINE_PODMAN && stat(w->policy.engine_socket, &st) == 0 && st.st_uid != 0;
	snprintf(top, sizeof(top), "%s/%.*s", w->ids.real, (int)len, spec->work_dir);
	r = engine_create(&wish, step.words, step.text, ret_n);
	if (r == 0 && *ret_n + 4 > WORK_ARGV_MAX)
		r = -E2BIG;
	if (r == 0)	/* the first four are the shell's */
		memmove(step.words + 4, step.words, *ret_n * sizeof(step.words[0]));
	return r;
}

int
container_step(const struct workload *wl, struct work_spec *spec, const struct work_job *job, enum stage stage)
{
	const struct workerd *w = wl->w;
	char name[ENGINE_NAME];
	uint32_t n = 0;
	int r = 0;

	snprintf(step.socket, sizeof(step.socket), "%.*s", (int)job->socket.len, job->socket.s);
	engine_name(&w->containers.id, spec->handle, name);
	set_engine(&w->containers.id, job->engine, step.socket);
	set("EW_HANDLE", "%s", spec->handle);
	set("EW_NAME", "%s", name);
	set("EW_DISK", "%" PRIu64, spec->disk_bytes);
	set("EW_PAUSE", "%u", CONTAINER_DISK_PAUSE);
	set("EW_TRIES", "%u", TRIES);
	set("EW_SURE", "1");
	if (stage == STAGE_CREATE) {
		lend_env(spec);
		r = create_words(wl, spec, job, &n);
	}
	use(spec, stage == STAGE_CREATE ? step_create : stage == STAGE_REMOVE ? step_remove : step_attach, n);
	return r < 0 ? r : step.full ? -E2BIG : 0;
}

int
container_sweep_step(const struct workerd *w, struct work_spec *spec, const char *handles, const char *keep)
{
	set_engine(&w->containers.id, choose_engine(w, JOB_ENGINE_ANY), w->policy.engine_socket);
	set("EW_INSTANCE", "%016" PRIx64, w->containers.id.instance);
	set("EW_HANDLES", "%s", handles);
	set("EW_KEEP", "%s", keep);
	set("EW_TRIES", "8");
	set("EW_SURE", "%u", handles[0] != '\0' ? 3 : 1);	/* the engine may still be making what a killed client asked for */
	use(spec, step_sweep, 0);
	return step.full ? -E2BIG : 0;
}

void
container_wipe(void)
{
	explicit_bzero(step.vars_text, step.len);
}

int
container_exec(const struct workload *wl, uint32_t flags, struct attach_command *c)
{
	static struct { char program[64], socket[CONTAINER_SOCKET_MAX + 1], name[ENGINE_NAME], term[ATTACH_TERM_SIZE], mark[40]; } with;
	static uint64_t last;
	const struct workerd *w = wl->w;
	enum job_engine engine = choose_engine(w, JOB_ENGINE_ANY);
	const char *mode = (flags & ATTACH_INPUT) == 0 ? "n" : (flags & ATTACH_TTY) != 0 ? "t" : "i";
	const char *const words[] = { "/bin/sh", "-c", step_exec, "edgeward", with.program, engine == JOB_ENGINE_PODMAN ? "--url" : "--host", with.socket,
		with.name, mode, with.term, with.mark };
	const uint32_t n = sizeof(words) / sizeof(words[0]);

	if (c->argc + n > ATTACH_ARGS_MAX)
		return -E2BIG;
	inventory_path(container_engine_name(engine), with.program, sizeof(with.program));
	snprintf(with.socket, sizeof(with.socket), "%s", w->policy.engine_socket);
	engine_name(&w->containers.id, wl->info.handle, with.name);
	memcpy(with.term, c->term, sizeof(with.term));
	snprintf(with.mark, sizeof(with.mark), "%08x.%" PRIu64 ".", (unsigned)w->containers.id.instance, ++last);
	memmove(c->argv + n, c->argv, c->argc * sizeof(c->argv[0]));
	for (uint32_t i = 0; i < n; i++) {
		c->argv[i].s = words[i];
		c->argv[i].len = strlen(words[i]);
	}
	c->argc += n;
	return 0;
}
