/*
 * Who calls: container.c, with what permit() has bounded and job_problem() has nothing against; the fuzzer with anything. Every value is
 * looked at again here, because here it becomes an argument. Options that take a value are two words each, so that a value cannot become
 * another option; the image comes behind "--".
 *
 * No label of the hub's, no mount but the work directory, no device, no option of anybody's own: there is no way to ask for one. The
 * engine's default seccomp and AppArmor profiles hold.
 */
#include "workerd/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/parse.h"

struct words {
	struct work_str *list;
	uint32_t n;
	char *text;
	size_t len;
	int err;
};

static void
add_view(struct words *w, const char *s, size_t len)
{
	if (w->n == WORK_ARGV_MAX) {
		w->err = -E2BIG;
		return;
	}
	w->list[w->n++] = (struct work_str){ s, len };
}

/* A constant. */
static void
add(struct words *w, const char *s)
{
	add_view(w, s, strlen(s));
}

__attribute__((format(printf, 3, 4))) static void
add_value(struct words *w, const char *option, const char *fmt, ...)
{
	char *at = w->text + w->len;
	size_t room = ENGINE_TEXT - w->len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(at, room, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= room) {
		w->err = -E2BIG;
		return;
	}
	w->len += (size_t)n + 1;
	add(w, option);
	add_view(w, at, (size_t)n);
}

void
engine_name(const struct engine_id *id, const char *handle, char buf[ENGINE_NAME])
{
	snprintf(buf, ENGINE_NAME, "edgeward-%016" PRIx64 "-%.*s", id->agent, HANDLE_SIZE, handle);
}

/* ---- variables ---- */

/* Of the shell and of every program: harmless, and no secret, as an argument, which other users of the device can read. */
static bool
is_plain_name(const struct work_str *name)
{
	static const char *const names[] = { "PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "PWD", "OLDPWD", "TERM", "TZ", "TMPDIR", "LANG",
		"LANGUAGE", "NO_COLOR", "IFS", "OPTIND", "PPID", "PS1", "PS2", "PS4", "SHLVL", "LINENO", "ENV", "CDPATH", "MAIL", "MAILCHECK",
		"MAILPATH", "_" };

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (container_is(name, names[i]))
			return true;
	return name->len > 3 && memcmp(name->s, "LC_", 3) == 0;
}

static bool
begins(const struct work_str *name, const char *with)
{
	size_t n = strlen(with);

	return name->len >= n && strncasecmp(name->s, with, n) == 0;
}

/* Would load code into the client, lead it elsewhere or give it another configuration. In any case of letters. */
static bool
acts_on_client(const struct work_str *name)
{
	static const char *const beginnings[] = { "LD_", "EW_", "EDGEWARD_", "DOCKER", "CONTAINER", "_CONTAINER", "PODMAN", "NERDCTL", "BUILDAH", "BUILDKIT",
		"STORAGE_", "REGISTR", "XDG_", "GLIBC_", "GCONV_", "MALLOC_", "NLSPATH", "LOCPATH", "RES_", "HOSTALIASES", "LOCALDOMAIN", "GETCONF_",
		"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "GOCOVERDIR", "GOFIPS", "SSL_CERT", "HTTP_PROXY", "HTTPS_PROXY",
		"ALL_PROXY", "NO_PROXY", "FTP_PROXY", "REQUEST_METHOD", "OTEL_", "LISTEN_", "NOTIFY_", "WATCHDOG_", "INVOCATION_ID", "JOURNAL_STREAM",
		"DBUS_", "SSH_", "CNI_", "NETAVARK", "TMP", "TEMP", "COMPOSE_", "BASH_", "KUBECONFIG", "IPFS_", "ROOTLESSKIT", "LIBPOD",
		"PLUGIN", "SUDO_", "UID", "EUID" };

	for (unsigned i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++)
		if (begins(name, beginnings[i]))
			return true;
	return false;
}

enum engine_env
engine_env(const struct work_str *entry)
{
	const char *eq = memchr(entry->s, '=', entry->len);
	struct work_str name = { entry->s, eq != NULL ? (size_t)(eq - entry->s) : 0 };

	if (name.len == 0 || name.len > 255 || (name.s[0] >= '0' && name.s[0] <= '9'))
		return ENGINE_ENV_REFUSED;
	/* No star, which some clients take for every variable that begins so; and nothing a shell would not pass on. */
	for (size_t i = 0; i < name.len; i++)
		if (!((name.s[i] >= 'a' && name.s[i] <= 'z') || (name.s[i] >= 'A' && name.s[i] <= 'Z') || (name.s[i] >= '0' && name.s[i] <= '9') ||
		    name.s[i] == '_'))
			return ENGINE_ENV_REFUSED;
	if (is_plain_name(&name))
		return ENGINE_ENV_VALUE;
	return acts_on_client(&name) ? ENGINE_ENV_REFUSED : ENGINE_ENV_NAME;
}

static void
add_env(struct words *w, const struct work_spec *spec)
{
	for (uint32_t i = 0; i < spec->envc; i++) {
		const struct work_str *e = &spec->env[i];
		enum engine_env how = engine_env(e);

		if (how == ENGINE_ENV_REFUSED || memchr(e->s, '\0', e->len) != NULL) {
			w->err = -EINVAL;
			return;
		}
		add(w, "--env");
		add_view(w, e->s, how == ENGINE_ENV_VALUE ? e->len : (size_t)((const char *)memchr(e->s, '=', e->len) - e->s));
	}
}

/* ---- the rest ---- */

const char *
engine_path_problem(const char *path)
{
	if (path[0] != '/')
		return "it is not absolute";
	for (const char *p = path; *p != '\0'; p++)
		if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr("/._-+@%~ ", *p) != NULL))
			return "an engine takes only A-Z a-z 0-9 . _ - + @ % ~ and blanks in it";
	return NULL;
}

static void
add_identity(struct words *w, const struct engine_wish *wish)
{
	/* A container has the runner's id, never root's: what it writes is the runner's. */
	if (wish->keep_id)
		add_value(w, "--userns", "keep-id");
	else
		add_value(w, "--user", "%" PRIu32 ":%" PRIu32, wish->uid, wish->gid);
	if (wish->uid == 0 || (!wish->keep_id && wish->gid == 0))
		w->err = -EINVAL;
}

static void
add_network(struct words *w, const struct engine_wish *wish)
{
	const struct work_str *name = &wish->job->engine_network;
	const struct work_spec *spec = wish->spec;
	char text[FW_TEXT];

	if (name->len == 0 || !container_network_ok(name))
		w->err = -EINVAL;
	add_value(w, "--network", "%.*s", (int)name->len, name->len > 0 ? name->s : "");
	if (spec->network != WORK_NETWORK_FILTERED)
		return;
	for (uint32_t i = 0; i < spec->net->rules.nresolvers; i++) {
		const struct fw_endpoint *e = &spec->net->rules.resolvers[i];

		if (e->port == 53)
			add_value(w, "--dns", "%s", fw_address_text(e->family, fw_address(e->family, e->addr), text));
	}
}

static void
add_limits(struct words *w, const struct work_spec *spec)
{
	unsigned long long mib = spec->memory_bytes >> 20, bytes = spec->memory_bytes;

	if (spec->cpu_millis != 0)
		add_value(w, "--cpus", "%" PRIu32 ".%03" PRIu32, spec->cpu_millis / 1000, spec->cpu_millis % 1000);
	if (bytes != 0 && bytes % (1u << 20) == 0) {
		add_value(w, "--memory", "%llum", mib);
		add_value(w, "--memory-swap", "%llum", mib);
	} else if (bytes != 0) {
		add_value(w, "--memory", "%llub", bytes);
		add_value(w, "--memory-swap", "%llub", bytes);
	}
	if (spec->pids != 0)
		add_value(w, "--pids-limit", "%" PRIu32, spec->pids);
}

int
engine_create(const struct engine_wish *wish, struct work_str *words, char text[ENGINE_TEXT], uint32_t *ret_n)
{
	const struct work_job *job = wish->job;
	const struct work_spec *spec = wish->spec;
	struct words w = { .list = words, .text = text };
	char name[ENGINE_NAME];

	if (!job->container || !container_image_ok(&job->image) || !container_runtime_ok(&job->runtime) || !handle_ok(spec->handle) ||
	    (wish->engine != JOB_ENGINE_DOCKER && (wish->engine != JOB_ENGINE_PODMAN || job->runtime.len > 0)) || engine_path_problem(wish->top) != NULL || spec->argc == 0)
		return -EINVAL;
	engine_name(&wish->id, spec->handle, name);
	add(&w, "--pull=never");
	add_value(&w, "--name", "%s", name);
	if (job->runtime.len > 0)
		add_value(&w, "--runtime", "%.*s", (int)job->runtime.len, job->runtime.s);
	add(&w, "--cap-drop=ALL");
	add(&w, "--security-opt=no-new-privileges");
	add(&w, "--read-only");
	add_value(&w, "--tmpfs", "/tmp:rw,nosuid,nodev,exec,size=512m");
	add_identity(&w, wish);
	add_network(&w, wish);
	add_limits(&w, spec);
	add_env(&w, spec);
	add_value(&w, "--label", ENGINE_LABEL_AGENT "=%016" PRIx64, wish->id.agent);
	add_value(&w, "--label", ENGINE_LABEL_INSTANCE "=%016" PRIx64, wish->id.instance);
	add_value(&w, "--label", ENGINE_LABEL_HANDLE "=%s", spec->handle);
	/* What an engine would keep of the output on its disk has no bound of ours. */
	add_value(&w, "--log-driver", "none");
	add_value(&w, "--mount", "type=bind,source=%s,destination=" ENGINE_PLACE, wish->top);
	add_value(&w, "--workdir", ENGINE_PLACE "%s%s", wish->below[0] != '\0' ? "/" : "", wish->below);
	add(&w, "--");
	add_view(&w, job->image.s, job->image.len);
	for (uint32_t i = 0; i < spec->argc; i++)
		add_view(&w, spec->argv[i].s, spec->argv[i].len);
	*ret_n = w.n;
	return w.err;
}

static bool
take_number(const char **p, const char *before, uint64_t *ret)
{
	const char *at = strstr(*p, before);
	char digits[24];
	size_t n;

	if (at == NULL)
		return false;
	at += strlen(before);
	n = strspn(at, "0123456789");
	if (n >= sizeof(digits))
		return false;
	memcpy(digits, at, n);
	digits[n] = '\0';
	*p = at + n;
	return parse_u64(digits, 0, UINT64_MAX, ret) == 0;
}

bool
engine_disk_word(const char *word, uint64_t *ret_used, uint64_t *ret_limit)
{
	const char *p = word;

	if (strncmp(word, "disk-limit: ", 12) != 0)
		return false;
	if (!take_number(&p, " held ", ret_used) && !take_number(&p, " holds ", ret_used))
		return false;
	return take_number(&p, ", its limit is ", ret_limit) && *p == '\0' && *ret_limit > 0 && *ret_used > *ret_limit;
}
