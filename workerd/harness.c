/*
 * Who calls: workchan.c with a name that connectd sent; life.c, when an installation has ended; start.c and inventory.c. Only the names of
 * the table are installed, from the addresses there. What the installer writes and leaves is trusted as little as any workload's: it counts
 * as installed when the executable is found, and its word is shown to the operator, no more. Its directory counts only while it belongs
 * to the runner it was made for.
 */
#include "workerd/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "workerd/owners.h"
#include "workerd/stage.h"
#include "workerd/start.h"
#include "workerd/stepenv.h"

#define EXCERPT		1500u	/* bytes of an installer's output that are told */
#define PATH_VALUE_MAX	(64u << 10)

/* The official installers of the protocol: name, script, and the domain its server may lead to. */
static const struct harness_source sources[] = {
	{ "claude", "https://claude.ai/install.sh", "claude.ai" },
};

/* ---- where they are ---- */

static bool
ours_is_there(const struct workerd *w)
{
	const struct pool pool = { .first = w->ids.first, .count = w->ids.count };
	struct stat st;

	if (fstatat(w->ids.root, HARNESS_DIR, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
		return false;
	if (w->ids.count <= 1)
		return true;
	return st.st_uid > pool.first && st.st_uid - pool.first < pool.count &&
	    owners_check((struct owners *)&w->owners, &pool, st.st_uid - pool.first, HARNESS_DIR, false) == 0;
}

void
harness_dirs(const struct workerd *w, char dirs[HARNESS_DIRS_SIZE])
{
	static const char *const below[] = { ".local/bin", ".npm-global/bin" };
	char path[PATH_MAX + 64];
	struct stat st;
	size_t len = 0;

	dirs[0] = '\0';
	if (!ours_is_there(w))
		return;
	for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++) {
		snprintf(path, sizeof(path), "%s/" HARNESS_DIR "/%s", w->ids.real, below[i]);
		if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && len + strlen(path) + 2 < HARNESS_DIRS_SIZE)
			len += (size_t)snprintf(dirs + len, HARNESS_DIRS_SIZE - len, "%s%s", len > 0 ? ":" : "", path);
	}
}

void
harness_show(const struct workerd *w, char *show, size_t size)
{
	size_t len = strlen(show);

	if (!ours_is_there(w) || strchr(w->ids.real, ' ') != NULL)
		return;
	if (len + strlen(w->ids.real) + sizeof(HARNESS_DIR) + 2 > size) {
		log_warn("[work] root and show are too long for workloads to see " HARNESS_DIR " as well");
		return;
	}
	snprintf(show + len, size - len, "%s%s/" HARNESS_DIR, len > 0 ? " " : "", w->ids.real);
	launch_show_order(show);
}

static bool
has_dir(const char *list, size_t len, const char *dir, size_t dlen)
{
	for (const char *end = list + len, *p = list; p < end; p += strcspn(p, ":") + 1) {
		const char *colon = memchr(p, ':', (size_t)(end - p));
		size_t n = colon != NULL ? (size_t)(colon - p) : (size_t)(end - p);

		if (n == dlen && memcmp(p, dir, n) == 0)
			return true;
		if (colon == NULL)
			break;
	}
	return false;
}

void
harness_path(const struct workerd *w, struct work_spec *spec)
{
	static char text[PATH_VALUE_MAX + HARNESS_DIRS_SIZE + 8];
	char dirs[HARNESS_DIRS_SIZE];
	struct work_str *path = NULL;
	size_t len = 5;

	for (uint32_t i = 0; i < spec->envc && path == NULL; i++)
		if (spec->env[i].len >= 5 && memcmp(spec->env[i].s, "PATH=", 5) == 0)
			path = &spec->env[i];
	if (path == NULL || path->len > PATH_VALUE_MAX)
		return;
	harness_dirs(w, dirs);
	memcpy(text, "PATH=", 5);
	for (const char *p = dirs; *p != '\0'; p += *p == ':') {
		size_t n = strcspn(p, ":");

		if (!has_dir(path->s + 5, path->len - 5, p, n)) {
			memcpy(text + len, p, n);
			text[len + n] = ':';
			len += n + 1;
		}
		p += n;
	}
	if (len == 5)
		return;
	memcpy(text + len, path->s + 5, path->len - 5);
	*path = (struct work_str){ text, len + path->len - 5 };
}

/* ---- answers ---- */

static void
answer(struct workerd *w, uint32_t id, const struct harness_done *done)
{
	struct ipc_hdr req = { .type = WORK_REQ_HARNESS, .id = id };

	if (ipc_chan_is_open(&w->work))
		ipc_answer(&w->work, &req, 0, done, sizeof(*done));
}

static void
answer_all(struct workerd *w, const struct harness_done *done)
{
	for (unsigned i = 0; i < w->harness.n; i++)
		answer(w, w->harness.asks[i], done);
	w->harness.n = 0;
}

void
harness_unasked(struct workerd *w)
{
	w->harness.n = 0;
}

static int
refuse(struct workerd *w, uint32_t id, const char *why)
{
	struct harness_done done = { 0 };

	snprintf(done.reason, sizeof(done.reason), "%s", why);
	log_info("a harness is not installed: %s", why);
	answer(w, id, &done);
	return 0;
}

/* ---- a request ---- */

static bool
permitted(const struct policy *policy, const char *name)
{
	return policy->harnesses.word == POLICY_WORD || keyfile_list_has(&policy->harnesses, name, strlen(name));
}

/* Why not, or an empty text: policy before ability. */
static void
why_not(const struct workerd *w, const char *name, const struct harness_source *source, char error[208])
{
	const struct policy *policy = &w->policy;
	char where[POLICY_WHERE];

	error[0] = '\0';
	if (!policy->harness_install)
		snprintf(error, 208, "%s is no; install %s on the device, below /usr/local/bin",
		    policy_where(policy, POLICY_HARNESS_INSTALL, where), name);
	else if (source == NULL)
		snprintf(error, 208, "there is no official installer for %s; install it on the device, below /usr/local/bin", name);
	else if (policy->network == POLICY_NETWORK_NONE)
		snprintf(error, 208, "%s = none: an installer cannot fetch anything; install %s on the device, below /usr/local/bin",
		    policy_where(policy, POLICY_NETWORK, where), name);
}

static int
attach(struct workerd *w, uint32_t id, const char *name)
{
	if (w->harness.n == HARNESS_ASKS)
		return refuse(w, id, "too many ask for the same installation; wait for it");
	w->harness.asks[w->harness.n++] = id;
	log_info("%s is being installed", name);
	return 0;
}

static int
install(struct workerd *w, const struct harness_source *source, uint32_t id)
{
	char handle[HANDLE_SIZE], home[PATH_MAX + 32], error[208] = "";
	struct work_spec spec = { .work_dir = HARNESS_DIR };
	enum work_refusal r;

	for (const struct workload *wl = w->all.first; wl != NULL; wl = wl->next) {
		if (!workload_is_own(wl))
			continue;
		if (strcmp(wl->info.handle + sizeof(HARNESS_HANDLE) - 1, source->name) == 0)
			return attach(w, id, source->name);
		return refuse(w, id, "another harness is being installed; ask again when it is done");
	}
	snprintf(handle, sizeof(handle), HARNESS_HANDLE "%s", source->name);
	snprintf(spec.handle, sizeof(spec.handle), "%s", handle);
	snprintf(home, sizeof(home), "%s/" HARNESS_DIR, w->ids.real);
	stepenv_install(&spec, source, home);
	r = workload_start_own(w, &spec, STAGE_INSTALL, error);
	stepenv_wipe();
	return r == WORK_OK ? attach(w, id, source->name) : refuse(w, id, error);
}

int
harness_request(struct workerd *w, const struct harness_ask *ask, uint32_t id)
{
	const struct harness_source *source = NULL;
	struct harness_done done = { .installed = 1, .present = 1 };
	char where[POLICY_WHERE], error[208];
	const char *name;
	unsigned bit = 0;

	if (id == 0 || !ipc_str_ok(ask->name, sizeof(ask->name)) || !harness_name_ok(ask->name))
		return -EPROTO;
	while ((name = inventory_name(INVENTORY_HARNESSES, bit)) != NULL && strcmp(name, ask->name) != 0)
		bit++;
	if (!permitted(&w->policy, ask->name)) {
		snprintf(error, sizeof(error), "%s does not name %.64s", policy_where(&w->policy, POLICY_HARNESSES, where), ask->name);
		return refuse(w, id, error);
	}
	if (name == NULL) {
		snprintf(error, sizeof(error), "%.64s is no harness that this device knows", ask->name);
		return refuse(w, id, error);
	}
	if (inventory_where(w, name, done.path, sizeof(done.path))) {
		answer(w, id, &done);
		return 0;
	}
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
		if (strcmp(sources[i].name, name) == 0)
			source = &sources[i];
	why_not(w, name, source, error);
	return error[0] != '\0' ? refuse(w, id, error) : install(w, source, id);
}

/* ---- the end ---- */

/* The last of its output, as text. */
static size_t
excerpt(const struct workload *wl, char *dst, size_t size)
{
	const struct record_head *h = wl->rec.h;
	uint64_t len = h->head - h->tail;
	const char *p;

	len = len < EXCERPT ? len : EXCERPT;
	len = len < size - 1 ? len : size - 1;
	p = (const char *)record_at(&wl->rec, h->head - len);
	for (uint64_t i = 0; i < len; i++)
		dst[i] = (p[i] >= ' ' && p[i] <= '~') || p[i] == '\n' ? p[i] : '?';
	dst[len] = '\0';
	return (size_t)len;
}

static void
tell_failure(const struct workload *wl, struct harness_done *done)
{
	char reason[208];
	size_t n;

	stage_last_word(wl, "its installer ended early", reason, sizeof(reason));
	if (wl->info.outcome == WORK_OUTCOME_TIMEOUT)
		snprintf(reason, sizeof(reason), "its installer took longer than 15 minutes");
	else if (wl->info.outcome != WORK_OUTCOME_EXITED && wl->info.error[0] != '\0')
		snprintf(reason, sizeof(reason), "%s", wl->info.error);
	else if (wl->info.outcome == WORK_OUTCOME_CANCELLED)
		snprintf(reason, sizeof(reason), "the installation was cancelled");
	n = (size_t)snprintf(done->reason, sizeof(done->reason), "%s; the end of its output:\n", reason);
	if (wl->rec.h != NULL && wl->rec.h->head > wl->rec.h->tail)
		excerpt(wl, done->reason + n, sizeof(done->reason) - n);
	else
		done->reason[n - sizeof("; the end of its output:\n") + 1] = '\0';
}

void
harness_ended(struct workload *wl)
{
	static const char mark[] = "version=";
	const char *name = wl->info.handle + sizeof(HARNESS_HANDLE) - 1;
	struct harness_done done = { 0 };
	char said[208];

	done.installed = wl->info.outcome == WORK_OUTCOME_EXITED && wl->info.exit_code == 0 &&
	    inventory_where(wl->w, name, done.path, sizeof(done.path));
	if (done.installed == 0) {
		tell_failure(wl, &done);
	} else {
		stage_last_word(wl, "", said, sizeof(said));
		if (strncmp(said, mark, sizeof(mark) - 1) == 0)
			snprintf(done.version, sizeof(done.version), "%.60s", said + sizeof(mark) - 1);
	}
	log_info("%s: %s", name, done.installed != 0 ? "installed" : "not installed");
	if (ipc_chan_is_open(&wl->w->work))
		inventory_send(wl->w, &wl->w->work);
	answer_all(wl->w, &done);
}

void
harness_refused(const struct workload *wl, const char *error)
{
	struct harness_done done = { 0 };

	snprintf(done.reason, sizeof(done.reason), "%s", error);
	answer_all(wl->w, &done);
}
