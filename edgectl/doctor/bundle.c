/*
 * edgectl support bundle FILE: what somebody far away needs to help, in one tar. It is made from a list of what may leave: doctor, status,
 * versions, the configuration without what could be secret, unit states, the last lines of the journal. Every text is looked through for
 * the secrets this user can see before it is written.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "edgectl/doctor/doctor.h"
#include "edgectl/doctor/redact.h"
#include "edgectl/doctor/tar.h"
#include "proto/hub/json.h"

#define ANSWER_MS	15000	/* doctor takes 10 s at most */
#define FILE_MAX	65536u
#define CRED_MAX	16384u

/* Keys whose values help and hold no secret; userinfo of the two addresses is blanked besides. */
static const char *const conf_keys[] = {
	"hub.url", "hub.pin", "hub.ca-file", "hub.token-file", "hub.proxy", "hub.no-proxy", "hub.insecure-transport", "hub.dialect",
	"link.connect-timeout", "link.handshake-timeout", "link.write-timeout", "link.heartbeat", "link.dead-after", "link.retry-min",
	"link.retry-max-local", "link.retry-max", "link.stable-after", "device.name", "work.root", "work.slots", "work.retain",
	"work.spool", "work.spool-total", "work.overflow", "work.overflow-wait", "work.kill-grace", "work.disk-low", "work.sandbox",
	"upgrade.rate", "upgrade.wait-min", "upgrade.wait-max", "log.level", NULL,
};
static const char *const policy_keys[] = {
	"work.start", "work.programs", "work.users", "work.network", "work.attach", "work.nested-userns", "limits.memory",
	"limits.memory-default", "limits.pids", "limits.pids-default", "limits.cpu", "limits.cpu-default", "limits.timeout",
	"limits.timeout-default", "limits.output", "limits.slots", "limits.environment", "network.public", "network.allow",
	"network.deny", "network.ports", "network.resolvers", "devices.usb",
	"devices.usb-classes", "services.allow", "harnesses.names", "harnesses.install", "upgrade.channel",
	"upgrade.remote", "containers.engine-socket", "containers.images", "containers.filtered-network", NULL,
};

struct bundle {
	struct edgectl *ctl;
	struct doctor d;		/* for where things are */
	struct redact redact;
	int fd, err;
	int64_t now_s;
	struct child child;
	char text[FILE_MAX + 1], out[FILE_MAX + 1];
};

static void
put(struct bundle *b, const char *name, char *text)
{
	char path[100];

	redact_text(&b->redact, text);
	snprintf(path, sizeof(path), "edgeward-support/%.60s", name);
	if (b->err == 0)
		b->err = tar_add(b->fd, path, b->now_s, text, strlen(text));
}

static void
put_program(struct bundle *b, const char *name, const char *const *argv)
{
	const struct child_spec spec = { .argv = argv, .errors_too = true };
	struct child *all[] = { &b->child };

	b->child = (struct child){ .fd = -1, .status = -1 };
	if (argv[0] != NULL)
		child_start(&b->child, &spec);
	child_wait(all, 1, monotime_add_ms(monotime_now(), ANSWER_MS));
	if (b->child.len == CHILD_OUT && strrchr(b->child.out, '\n') != NULL)
		*strrchr(b->child.out, '\n') = '\0';	/* half a line could be half a secret */
	if (b->child.len == 0)
		snprintf(b->child.out, sizeof(b->child.out), "not available on this device, or not for this user\n");
	put(b, name, b->child.out);
}

/* Ourselves with -j. */
static void
put_own(struct bundle *b, const char *name, const char *command)
{
	const char *const argv[] = { "/proc/self/exe", "-j", "-r", b->ctl->rundir, command, NULL };

	put_program(b, name, argv);
}

static bool
read_text(const char *path, char *buf)
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t len;

	if (fd_read_file(AT_FDCWD, path, FILE_MAX, &data, &len) < 0)
		return false;
	memcpy(buf, data, len);
	buf[len] = '\0';
	return true;
}

static void
put_conf(struct bundle *b, const char *name, const char *path, const char *const *keys)
{
	if (read_text(path, b->text))
		redact_conf(b->text, keys, b->out, sizeof(b->out));
	else
		snprintf(b->out, sizeof(b->out), "%.200s is not there, or not for this user\n", path);
	explicit_bzero(b->text, sizeof(b->text));
	put(b, name, b->out);
}

/* What we can see of secrets, so that they are recognised wherever they should turn up. */
static void
learn_secrets(struct bundle *b)
{
	_cleanup_free_ uint8_t *data = NULL;
	const char *env[PROXYENV_MAX + 1];
	char path[PATH_MAX + 64];
	struct json_doc *doc;
	const char *secret;
	size_t len;

	if (conf_load(&b->d.conf, b->d.conf_path, b->text) == 0)
		redact_add_url(&b->redact, b->d.conf.hub_proxy);
	proxyenv_find(&b->d, b->text, sizeof(b->text), env);
	for (size_t i = 0; env[i] != NULL; i++)
		redact_add_url(&b->redact, strchr(env[i], '=') + 1);
	snprintf(path, sizeof(path), "%s/connectd/credential.json", b->d.state);
	if (fd_read_file(AT_FDCWD, path, CRED_MAX, &data, &len) < 0)
		return;
	if (json_parse(data, len, &doc) == 0) {
		secret = json_get_str(json_root(doc), "credential");
		if (secret != NULL)
			redact_add(&b->redact, secret, strlen(secret));
		json_doc_free(doc);
	}
	explicit_bzero(data, len);
}

static void
fill(struct bundle *b)
{
	const char *systemctl[] = { child_find("systemctl"), "show", "--no-pager", "--property=Id,LoadState,ActiveState,SubState,Result,"
		"UnitFileState,NeedDaemonReload,Delegate,DropInPaths,NRestarts,ExecMainStatus,ActiveEnterTimestamp,MemoryCurrent,TasksCurrent",
		"edgeward-connectd.service", "edgeward-workerd.service", "edgeward-privhelper.service", "edgeward-connectd.socket",
		"edgeward-workerd.socket", "edgeward-introduce.socket", "edgeward-upgrade.path", "edgeward-upgrade.service", NULL };
	const char *journal[] = { NULL, "--no-pager", "--quiet", "--lines=300", "--output=short-iso", "--unit=edgeward-*", NULL };
	const char *uname[] = { child_find("uname"), "-srvm", NULL };

	put_own(b, "doctor.json", "doctor");
	put_own(b, "status.json", "status");
	put_own(b, "versions.json", "version");
	put_program(b, "kernel.txt", uname);
	if (read_text("/usr/lib/os-release", b->text))
		put(b, "os-release", b->text);
	put_conf(b, "edgeward.conf", b->d.conf_path, conf_keys);
	put_conf(b, "policy.conf", b->d.policy_path, policy_keys);
	systemctl[0] = b->d.systemd ? child_find("systemctl") : NULL;
	put_program(b, "units.txt", systemctl);
	journal[0] = b->d.systemd ? child_find("journalctl") : NULL;
	put_program(b, "journal.txt", journal);
	if (b->err == 0)
		b->err = tar_end(b->fd);
	if (b->err == 0 && fsync(b->fd) < 0)
		b->err = -errno;
}

static int
make(struct bundle *b, const char *file)
{
	/* Never over what is there, never through a link. */
	b->fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (b->fd < 0) {
		fprintf(stderr, "edgectl: support bundle: %s: %s\n", out_safe(file), strerror(errno));
		return EXIT_FAILED;
	}
	learn_secrets(b);
	explicit_bzero(b->text, sizeof(b->text));
	fill(b);
	redact_wipe(&b->redact);
	if (close(b->fd) < 0 && b->err == 0)
		b->err = -errno;
	if (b->err < 0) {
		unlink(file);
		fprintf(stderr, "edgectl: support bundle: %s: %s\n", out_safe(file), strerror(-b->err));
		return EXIT_FAILED;
	}
	if (b->ctl->json) {
		yajl_gen g = json_begin();

		json_str(g, "file", file);
		json_end(g);
	} else {
		printf("%s: look through it (tar -tvf, tar -xOf) before you give it away\n", out_safe(file));
	}
	return EXIT_OK;
}

int
cmd_support(struct edgectl *ctl, int argc, char **argv)
{
	static struct bundle b;
	const struct doctor_options none = { 0 };

	if (argc != 3 || strcmp(argv[1], "bundle") != 0)
		return usage_error("support", "wants bundle and a file");
	b = (struct bundle){ .ctl = ctl, .d = { .root = "" }, .now_s = monotime_wall_ns() / 1000000000 };
	doctor_find(&b.d, ctl, &none);
	return make(&b, argv[2]);
}
