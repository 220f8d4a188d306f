/*
 * upgrade: an operator's own command. It copies the release into a directory only root can write and puts a request beside it;
 * edgeward-upgrade.path starts privupgrade(8), which alone verifies and decides. Here nothing is trusted and nothing is installed: what
 * stands in the unverified manifest is used to say which release is meant. Then the progress is followed until the history has the end.
 */
#include "edgectl/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/monotime.h"
#include "common/parse.h"
#include "edgectl/client.h"

#define POLL_US		100000
#define UNTAKEN_MS	15000	/* a queued request is taken at once, or by nobody */

static int
parse_options(int argc, char **argv, struct upgrade_options *o)
{
	for (int i = 1; i < argc; i++) {
		const char *next = i + 1 < argc ? argv[i + 1] : NULL;

		if (strcmp(argv[i], "--check") == 0) {
			o->check = true;
		} else if (strcmp(argv[i], "--cancel") == 0) {
			o->cancel = true;
		} else if (strcmp(argv[i], "--history") == 0) {
			o->history = true;
		} else if (strcmp(argv[i], "--downgrade") == 0) {
			o->downgrade = true;
		} else if (strcmp(argv[i], "--no-wait") == 0) {
			o->no_wait = true;
		} else if (strcmp(argv[i], "--settle") == 0) {
			if (next == NULL || parse_u32(next, 1, UPGRADE_SETTLE_MAX, &o->settle) < 0)
				return usage_error("upgrade", "--settle takes 1 to %u seconds", UPGRADE_SETTLE_MAX);
			i++;
		} else if (strcmp(argv[i], "--state") == 0 && next != NULL) {
			o->state = next;
			i++;
		} else if (strcmp(argv[i], "--") == 0 && i + 2 == argc && o->file == NULL) {
			o->file = argv[++i];
		} else if (argv[i][0] == '-' || o->file != NULL) {
			return usage_error("upgrade", "\"%s\" is not known here", out_safe(argv[i]));
		} else {
			o->file = argv[i];
		}
	}
	if (o->check + o->cancel + o->history > 1 || (o->file == NULL) != (o->cancel || o->history || (o->check && o->file == NULL)) ||
	    ((o->downgrade || o->no_wait || o->settle != 0) && (o->check || o->cancel || o->history)))
		return usage_error("upgrade", "give a FILE, or one of --check, --cancel and --history");
	return 0;
}

static int
failed(const char *what, int r)
{
	fprintf(stderr, "edgectl: upgrade: %s: %s\n", out_safe(what), strerror(-r));
	return EXIT_FAILED;
}

/* Which release the file says it is. */
static int
read_manifest(int fd, struct manifest *ret_manifest)
{
	static char head[RELEASE_HEAD_MAX];
	struct release_head parts;
	ssize_t n = pread(fd, head, sizeof(head), 0);

	if (n < 0)
		return -errno;
	return release_split(head, (size_t)n, &parts) < 0 ? -EBADMSG : manifest_parse(parts.manifest, parts.manifest_len, ret_manifest);
}

static int
copy(int from, int dir, const char *name)
{
	_cleanup_close_ int to = -1;
	static char buf[65536];
	ssize_t n;
	int r = 0;

	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return -errno;
	to = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	while (r == 0 && (n = read(from, buf, sizeof(buf))) != 0)
		r = n < 0 ? -errno : fd_write_all(to, buf, (size_t)n);
	return r == 0 && fsync(to) < 0 ? -errno : r;
}

static int
make_request(const struct upgrade_options *o, const struct manifest *m, struct upgrade_request *ret_request)
{
	uint32_t raw[2];

	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
		return -EIO;
	*ret_request = (struct upgrade_request){ .sequence = m->sequence, .settle = o->settle, .downgrade = o->downgrade };
	snprintf(ret_request->id, sizeof(ret_request->id), "op-%08x%08x", raw[0], raw[1]);
	return 0;
}

/* The request comes last: with it the release is complete. */
static int
queue(const struct upgrade_options *o, int dir, struct upgrade_request *ret_request)
{
	_cleanup_close_ int fd = open(o->file, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int box = openat(dir, "queue", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	static struct manifest m;
	char text[512];
	int r;

	if (fd < 0)
		return failed(o->file, -errno);
	if (box < 0)
		return failed("upgrade/queue", -errno);
	if (faccessat(box, "request", F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		fprintf(stderr, "edgectl: upgrade: one is queued already; --cancel takes it back\n");
		return EXIT_FAILED;
	}
	r = read_manifest(fd, &m);
	if (r == -EBADMSG) {
		fprintf(stderr, "edgectl: upgrade: %s is not a release file\n", out_safe(o->file));
		return EXIT_FAILED;
	}
	r = r < 0 ? r : make_request(o, &m, ret_request);
	r = r < 0 ? r : copy(fd, box, "release");
	if (r == 0) {
		int n = upgrade_request_write(ret_request, text, sizeof(text));

		r = n < 0 ? n : fd_replace_file(box, "request", text, (size_t)n, 0600);
	}
	return r < 0 ? failed(o->file, r) : EXIT_OK;
}

/* What has been added since the last look. */
static void
show_progress(int dir, off_t *at)
{
	_cleanup_close_ int fd = openat(dir, "progress", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char buf[1024];
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	*at = st.st_size < *at ? 0 : *at;
	while ((n = pread(fd, buf, sizeof(buf), *at)) > 0) {
		*at += n;
		fwrite(buf, 1, (size_t)n, stdout);
	}
	fflush(stdout);
}

/* Until the history has the end of this request. */
static int
follow(const struct edgectl *ctl, int dir, const struct upgrade_request *request)
{
	static struct upgrade_history h;
	monotime_t untaken = monotime_add_ms(monotime_now(), UNTAKEN_MS);
	off_t at = 0;

	for (;;) {
		bool queued = faccessat(dir, "queue/request", F_OK, AT_SYMLINK_NOFOLLOW) == 0;

		if (!queued && !ctl->json)
			show_progress(dir, &at);
		if (upgrade_read_history(dir, &h) == 0)
			for (unsigned i = h.n; i > 0; i--)
				if (strcmp(h.entries[i - 1].id, request->id) == 0)
					return upgrade_show_entry(ctl, &h.entries[i - 1]);
		if (faccessat(dir, "state", F_OK, AT_SYMLINK_NOFOLLOW) == 0)	/* another one is under way */
			untaken = monotime_add_ms(monotime_now(), UNTAKEN_MS);
		if (queued && !monotime_before(monotime_now(), untaken)) {
			fprintf(stderr, "edgectl: upgrade: nobody takes the request: is edgeward-upgrade.path active? It stays queued.\n");
			return EXIT_NOBODY;
		}
		usleep(POLL_US);
	}
}

/* What a hub asked for and connectd fetches, "" = nothing; it may be ended. A connectd that is away fetches nothing. */
static void
ask_connectd(struct edgectl *ctl, bool end, struct ctl_text *ret_text)
{
	const struct ctl_upgrade req = { .cancel = end };
	static struct client c;

	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_CONNECTD);
	client_call(&c, CTL_REQ_UPGRADE, &req, sizeof(req), CLIENT_WAIT_MS);
	if (!client_answer(&c, ret_text, sizeof(*ret_text)) || !ipc_str_ok(ret_text->text, sizeof(ret_text->text)))
		*ret_text = (struct ctl_text){ .text = "" };
	client_close(&c);
}

/* Queued: it is gone. On trial: privupgrade goes back. Being fetched for a hub: the hub is told. */
static int
cancel(struct edgectl *ctl, int dir)
{
	struct ctl_text text;
	_cleanup_close_ int fd = -1;

	if (unlinkat(dir, "queue/request", 0) == 0) {
		unlinkat(dir, "queue/release", 0);
		printf("the queued upgrade is cancelled\n");
		return EXIT_OK;
	}
	if (faccessat(dir, "state", F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		ask_connectd(ctl, true, &text);
		if (text.text[0] != '\0') {
			printf("cancelled, and the hub is told: %s\n", out_safe(text.text));
			return EXIT_OK;
		}
		fprintf(stderr, "edgectl: upgrade: none is queued, on trial or being fetched\n");
		return EXIT_FAILED;
	}
	fd = openat(dir, "cancel", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed("cancel", -errno);
	printf("the trial will be ended; see edgectl upgrade --history\n");
	return EXIT_OK;
}

int
cmd_upgrade(struct edgectl *ctl, int argc, char **argv)
{
	struct upgrade_options o = { .state = "/var/lib/edgeward" };
	_cleanup_close_ int base = -1, dir = -1;
	struct upgrade_request request;
	struct ctl_text text;
	int r = parse_options(argc, argv, &o);

	if (r != 0)
		return r;
	if (o.check && o.file != NULL)
		return upgrade_show_check(ctl, &o);
	if (geteuid() != 0) {
		fprintf(stderr, "edgectl: upgrade: only root may do that: sudo edgectl upgrade ...\n");
		return EXIT_DENIED;
	}
	base = open(o.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = base < 0 ? -1 : openat(base, "upgrade", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return failed(o.state, -errno);
	if (o.check) {
		ask_connectd(ctl, false, &text);
		return upgrade_show_state(ctl, base, dir, text.text);
	}
	if (o.history)
		return upgrade_show_history(ctl, dir);
	if (o.cancel)
		return cancel(ctl, dir);
	r = queue(&o, dir, &request);
	if (r != EXIT_OK || !o.no_wait)
		return r != EXIT_OK ? r : follow(ctl, dir, &request);
	if (!ctl->json)
		printf("queued as %s; see edgectl upgrade --history\n", request.id);
	return EXIT_OK;
}
