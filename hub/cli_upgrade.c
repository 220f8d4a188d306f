/* `upgrade`: what an operator says on the command line, and how it is shown what becomes of it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"
#include "hub/adminupgrade.h"
#include "hub/cli.h"
#include "proto/release/manifest.h"

#define SETTLE_MAX	600u
#define USAGE_LINE	"upgrade DEVICE [--to TARGET | --release FILE] [--settle SECONDS] [--no-wait]"

enum { CLI_BACK = 3 };

/* A directory stands for the one release file in it. */
static int
open_release(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), found = -1;
	struct stat st;
	DIR *dir;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
		return fd < 0 ? -errno : fd;
	dir = fdopendir(fd);
	if (dir == NULL) {
		close(fd);
		return -ENOMEM;
	}
	for (struct dirent *d; (d = readdir(dir)) != NULL; ) {
		const char *dot = strrchr(d->d_name, '.');

		if (dot == NULL || strcmp(dot, ".release") != 0)
			continue;
		if (found >= 0) {
			close(found);
			closedir(dir);
			return -ENOTUNIQ;
		}
		found = openat(dirfd(dir), d->d_name, O_RDONLY | O_CLOEXEC);
		if (found < 0)
			break;
	}
	closedir(dir);
	return found < 0 ? -ENOENT : found;
}

static int
hash_file(int fd, char hex[72])
{
	static uint8_t buf[65536];
	uint8_t hash[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	bool good = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;
	ssize_t n = 0;

	for (off_t at = 0; good && (n = pread(fd, buf, sizeof(buf), at)) > 0; at += n)
		good = EVP_DigestUpdate(md, buf, (size_t)n) == 1;
	good = good && n == 0 && EVP_DigestFinal_ex(md, hash, NULL) == 1;
	EVP_MD_CTX_free(md);
	for (unsigned i = 0; good && i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	return good ? 0 : -EIO;
}

/* Which release it is, from its manifest. Whether it may be installed is the device's to say. */
static int
read_release(int fd, struct admin_upgrade_req *req)
{
	static uint8_t head[RELEASE_HEAD_MAX];
	static struct manifest m;
	struct release_head parts;
	struct stat st;
	ssize_t n = pread(fd, head, sizeof(head), 0);

	if (n < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return n < 0 ? -errno : -EINVAL;
	if (release_split(head, (size_t)n, &parts) < 0 || manifest_parse(parts.manifest, parts.manifest_len, &m) < 0)
		return -EBADMSG;
	req->size = (uint64_t)st.st_size;
	req->sequence = m.sequence;
	memset(req->target, 0, sizeof(req->target));
	snprintf(req->target, sizeof(req->target), "%s", m.version);
	return hash_file(fd, req->sha256);
}

static int
on_event(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	struct admin_upgrade ev;
	char from[64], to[64];

	if (msg->hdr.type != ADMIN_EV_UPGRADE || msg->hdr.len != sizeof(ev))
		return -EPROTO;
	memcpy(&ev, msg->data, sizeof(ev));
	if (!admin_upgrade_ok(&ev))
		return -EPROTO;
	if (cli->json)
		return 0;
	if (ev.phase == ADMIN_UPGRADE_SENDING)
		fprintf(stderr, "edgehub: sending: %llu of %llu KiB\n", (unsigned long long)ev.done >> 10, (unsigned long long)ev.total >> 10);
	else if (ev.phase == ADMIN_UPGRADE_SENT)
		fprintf(stderr, "edgehub: sent; the device has verified it\n");
	else if (ev.phase == ADMIN_UPGRADE_AWAY)
		fprintf(stderr, "edgehub: the device is away; it goes on when it is back\n");
	else if (ev.phase == ADMIN_UPGRADE_ACCEPTED)
		fprintf(stderr, "edgehub: upgrading from %s to %s\n", cli_text(from, sizeof(from), ev.from), cli_text(to, sizeof(to), ev.to));
	return 0;
}

static int
show(const struct cli *cli, const struct admin_upgrade *ev)
{
	char buf[4096], text[256];
	struct json_w w;

	if (cli->json) {
		json_w_init(&w, buf, sizeof(buf));
		json_w_obj(&w, NULL);
		json_w_str(&w, "outcome", ev->outcome);
		json_w_str(&w, "from_version", ev->from);
		json_w_str(&w, "to_version", ev->to);
		json_w_str(&w, "reason", ev->text);
		json_w_end_obj(&w);
		cli_print_json(&w);
	} else {
		printf("%s%s%s\n", ev->outcome, ev->text[0] != '\0' ? ": " : "", cli_text(text, sizeof(text), ev->text));
	}
	if (strcmp(ev->outcome, "rolled_back") == 0)
		return CLI_BACK;
	return strcmp(ev->outcome, "refused") == 0 ? CLI_FAILED : CLI_OK;
}

static int
run(struct cli *cli, const struct admin_upgrade_req *req, int fd)
{
	struct admin_upgrade ev;
	char text[256];
	int r = cli_open(cli);

	cli->event = on_event;
	if (r == 0)
		r = cli_call(cli, ADMIN_REQ_UPGRADE, req, sizeof(*req), &fd, fd >= 0 ? 1 : 0);
	if (r < 0)
		return cli_say_unreachable(cli, r);
	if (cli->status == 0 && cli_answer(cli, &ev, sizeof(ev)) && admin_upgrade_ok(&ev))
		return show(cli, &ev);
	if (cli->answer_len == sizeof(struct admin_text) && admin_text_ok((struct admin_text *)cli->answer))
		return cli_fail(CLI_FAILED, "%s", cli_text(text, sizeof(text), ((struct admin_text *)cli->answer)->text));
	return cli_fail(CLI_FAILED, "%s", strerror(-cli->status));
}

static int
parse(int argc, char *argv[], struct admin_upgrade_req *req, const char **ret_release)
{
	static const struct option options[] = {
		{ "to", required_argument, NULL, 't' }, { "release", required_argument, NULL, 'r' },
		{ "settle", required_argument, NULL, 's' }, { "no-wait", no_argument, NULL, 'n' }, { 0 },
	};
	const char *to = NULL;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 't')
			to = optarg;
		else if (opt == 'r')
			*ret_release = optarg;
		else if (opt == 'n')
			req->flags |= ADMIN_UPGRADE_NO_WAIT;
		else if (opt != 's' || parse_u32(optarg, 1, SETTLE_MAX, &req->settle) < 0)
			return cli_usage(USAGE_LINE);
	}
	if (argc - optind != 1 || (to != NULL && *ret_release != NULL) || strlen(argv[optind]) >= sizeof(req->device) ||
	    (to != NULL && strlen(to) >= sizeof(req->target)))
		return cli_usage(USAGE_LINE);
	snprintf(req->device, sizeof(req->device), "%s", argv[optind]);
	snprintf(req->target, sizeof(req->target), "%s", to != NULL ? to : "latest");
	return 0;
}

int
cli_upgrade(struct cli *cli, int argc, char *argv[])
{
	struct admin_upgrade_req req = { .settle = 0 };
	const char *release = NULL;
	_cleanup_close_ int fd = -1;
	int r = parse(argc, argv, &req, &release);

	if (r != 0)
		return r;
	if (release == NULL)
		return run(cli, &req, -1);
	fd = open_release(release);
	r = fd < 0 ? fd : read_release(fd, &req);
	if (r < 0)
		return cli_fail(CLI_FAILED, "%s: %s", release, r == -EBADMSG ? "is not a release file (packaging/release --join makes one)" :
		    r == -ENOTUNIQ ? "there is more than one release file in it" : strerror(-r));
	return run(cli, &req, fd);
}
