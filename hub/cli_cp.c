/*
 * cp: a file of a device's work directory to this machine, or the other way. The hub passes the bytes on over a socket of ours
 * (proto/ipc/file.h); files are opened and written here alone, as the caller. What a lost link leaves stays beside its place and is gone on with.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/filepump.h"
#include "common/monotime.h"
#include "hub/adminfile.h"
#include "hub/cli.h"

#define USAGE		"cp [--no-wait] DEVICE:HANDLE/PATH FILE | cp [--no-wait] FILE DEVICE:HANDLE/PATH"
#define PROGRESS_MS	200
#define AGAIN_S		1
#define PART		".edgeward-part"
#define CODE		"protocol: "	/* of every error that has no code of its own */

enum { DONE, AGAIN = -1 };	/* of an attempt; above: an exit code */

static struct {
	struct cli *cli;
	struct admin_file req;
	const char *local, *shown;
	char part[4096];
	bool no_wait, tty;
	uint64_t total, started_at;	/* bytes of the file; of them here before this attempt */
	monotime_t begun, told;
	EVP_MD_CTX *md;
	char why[256];
	uint8_t buf[FILE_REC_MAX];
} self;

/* ---- what is seen ---- */

/* 100 only where nothing is left. */
static int
percent(uint64_t at)
{
	return self.total > 0 && at < self.total ? (int)((double)at * 100.0 / (double)self.total) : 100;
}

static void
progress(uint64_t at, bool last)
{
	monotime_t now = monotime_now();
	int64_t ms = monotime_diff_ms(now, self.begun);

	if (!self.tty || (!last && monotime_diff_ms(now, self.told) < PROGRESS_MS))
		return;
	self.told = now;
	fprintf(stderr, "\r%s: %" PRIu64 " of %" PRIu64 " KiB, %d %%, %.1f MB/s ", self.shown, at >> 10, self.total >> 10,
	    percent(at), ms > 0 ? (double)(at - self.started_at) / 1000.0 / (double)ms : 0.0);
	if (last)
		fputc('\n', stderr);
	fflush(stderr);
}

static int
report(uint64_t bytes)
{
	static char out[4096];
	uint8_t sha[32];
	char hex[FILE_SHA_HEX];
	struct json_w w;
	unsigned n;

	progress(bytes, true);
	if (!self.cli->json)
		return CLI_OK;
	if (self.req.put == 0) {
		if (EVP_DigestFinal_ex(self.md, sha, &n) != 1)
			return cli_fail(CLI_FAILED, "no SHA-256 here");
		memcpy(self.req.sha256, sha, sizeof(sha));
	}
	file_sha_put(self.req.sha256, hex);
	json_w_init(&w, out, sizeof(out));
	json_w_obj(&w, NULL);
	json_w_int(&w, "size", (int64_t)bytes);
	json_w_str(&w, "sha256", hex);
	json_w_int(&w, "resumed_from", (int64_t)self.started_at);
	json_w_end_obj(&w);
	cli_print_json(&w);
	return CLI_OK;
}

/* ---- the digest ---- */

static int
digest(uint64_t at, const uint8_t *data, size_t len, void *ctx)
{
	uint64_t *seen = ctx;

	while (data == NULL && *seen < at) {
		size_t n = at - *seen < FILEPUMP_ZEROS ? (size_t)(at - *seen) : FILEPUMP_ZEROS;

		if (EVP_DigestUpdate(self.md, filepump_zeros(), n) != 1)
			return -ENOMEM;
		*seen += n;
	}
	*seen = at;
	return data == NULL || EVP_DigestUpdate(self.md, data, len) == 1 ? 0 : -ENOMEM;
}

/* Of what fd has below end. 0 or -errno. */
static int
digest_file(int fd, uint64_t end)
{
	uint64_t at = 0, seen = 0;

	if (self.md == NULL)
		self.md = EVP_MD_CTX_new();
	if (self.md == NULL || EVP_DigestInit_ex(self.md, EVP_sha256(), NULL) != 1)
		return -ENOMEM;
	return filepump_send(-1, fd, &at, end, self.buf, digest, &seen);
}

/* ---- the hub ---- */

/* A record that says why. */
static int
failed(const struct file_rec *rec, ssize_t len)
{
	char text[FILE_TEXT_MAX + 1];

	if (len < 0 || rec->type != FILE_FAIL) {
		snprintf(self.why, sizeof(self.why), "%s", len == -EPIPE ? "the hub has ended" : "the hub answers in a way this edgehub does not know");
		return len == -EPIPE ? AGAIN : CLI_FAILED;
	}
	memcpy(text, self.buf + sizeof(*rec), (size_t)len);
	text[len] = '\0';
	cli_text(self.why, sizeof(self.why), text);
	return rec->mode == 1 ? AGAIN : CLI_FAILED;
}

/* The device has opened it: item and a socket. */
static int
ask(struct admin_file_item *ret_item, int *ret_sock)
{
	_cleanup_close_ int far = -1, near = -1;
	struct admin_text text;
	int ends[2], r;

	cli_close(self.cli);
	r = cli_open(self.cli);
	if (r == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return cli_fail(CLI_FAILED, "socketpair: %s", strerror(errno));
	if (r == 0) {
		near = ends[0];
		far = ends[1];
		r = cli_call(self.cli, ADMIN_REQ_FILE, &self.req, sizeof(self.req), &far, 1);
	}
	if (r < 0) {
		snprintf(self.why, sizeof(self.why), "the hub: %s", strerror(-r));
		return r == -EACCES ? cli_say_unreachable(self.cli, r) : AGAIN;
	}
	if (self.cli->status < 0 && cli_answer(self.cli, &text, sizeof(text)) && admin_text_ok(&text)) {
		cli_text(self.why, sizeof(self.why), text.text);
		return self.cli->status == -ENOTCONN || strncmp(self.why, "busy:", 5) == 0 ? AGAIN : CLI_FAILED;
	}
	if (self.cli->status < 0 || !cli_answer(self.cli, ret_item, sizeof(*ret_item)))
		return cli_fail(CLI_FAILED, "the hub answers in a way this edgehub does not know");
	*ret_sock = take_fd(&near);
	return DONE;
}

/* ---- from the device ---- */

static const char *
kind_of(mode_t mode)
{
	return S_ISLNK(mode) ? "a symbolic link" : S_ISFIFO(mode) ? "a FIFO" : S_ISSOCK(mode) ? "a socket" : S_ISCHR(mode) ? "a character device" :
	    S_ISBLK(mode) ? "a block device" : "a directory";
}

/* A rename would put a file in the place of whatever has the name, be it /dev/null. False: why says so. A link could be somebody else's. */
static bool
replaceable(void)
{
	struct stat st;

	if (lstat(self.local, &st) < 0 || S_ISREG(st.st_mode))
		return true;
	snprintf(self.why, sizeof(self.why), "%.190s is %s: %s", self.local, kind_of(st.st_mode),
	    S_ISLNK(st.st_mode) ? "name the file itself" : "only a regular file is replaced");
	return false;
}

static int
put_in_place(int fd, uint32_t mode, const uint8_t *want)
{
	uint8_t sha[32];
	unsigned n;
	EVP_MD_CTX *copy = EVP_MD_CTX_new();
	bool good = copy != NULL && EVP_MD_CTX_copy_ex(copy, self.md) == 1 && EVP_DigestFinal_ex(copy, sha, &n) == 1 && memcmp(sha, want, sizeof(sha)) == 0;

	EVP_MD_CTX_free(copy);
	if (!good) {
		unlink(self.part);
		snprintf(self.why, sizeof(self.why), "what came has another SHA-256 than the device read: the file has changed meanwhile");
		return AGAIN;
	}
	if (!replaceable())	/* it came meanwhile */
		return CLI_FAILED;
	if (fchmod(fd, mode) < 0 || fsync(fd) < 0 || rename(self.part, self.local) < 0)
		return cli_fail(CLI_FAILED, "%s: %s", self.local, strerror(errno));
	return DONE;
}

static int
receive(int fd, int sock, const struct admin_file_item *item, uint64_t at)
{
	struct file_rec rec;
	uint64_t seen = at;
	ssize_t n;
	int r = 0;

	self.total = item->size;
	while ((n = filepump_hear(sock, self.buf, at, &rec)) >= 0 && (rec.type == FILE_DATA || rec.type == FILE_HOLE)) {
		r = filepump_store(fd, &rec, self.buf + sizeof(rec), (size_t)n, &at);
		if (r == 0)
			r = digest(at, n > 0 ? self.buf + sizeof(rec) : NULL, (size_t)n, &seen);
		if (r < 0)
			return cli_fail(CLI_FAILED, "%s: %s", self.part, strerror(-r));
		progress(at, false);
	}
	if (n != 32 || rec.type != FILE_END)
		return failed(&rec, n);
	r = put_in_place(fd, item->mode, self.buf + sizeof(rec));
	return r == DONE ? report(at) : r;
}

/* What an earlier attempt has left, or nothing, with its digest; it is ours alone. */
static int
get(void)
{
	_cleanup_close_ int fd = -1, sock = -1;
	struct admin_file_item item;
	struct stat st;
	int r;

	if (!replaceable())
		return CLI_FAILED;
	fd = open(self.part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return cli_fail(CLI_FAILED, "%s: %s", self.part, fd < 0 ? strerror(errno) : "not a regular file");
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return cli_fail(CLI_FAILED, "%s: another edgehub cp writes it", self.part);
	self.req.offset = self.started_at = (uint64_t)st.st_size;
	r = digest_file(fd, self.req.offset);
	if (r < 0)
		return cli_fail(CLI_FAILED, "%s: %s", self.part, strerror(-r));
	r = ask(&item, &sock);
	if (r == CLI_FAILED && strncmp(self.why, CODE "offset:", strlen(CODE) + 7) == 0) {	/* it was another file */
		unlink(self.part);
		return AGAIN;
	}
	/* Nothing came of it, and nothing is left of it. */
	if (r != DONE && st.st_size == 0)
		unlink(self.part);
	return r != DONE ? r : receive(fd, sock, &item, self.req.offset);
}

/* ---- to the device ---- */

static int
told(uint64_t at, const uint8_t *data, size_t len, void *ctx)
{
	progress(at, false);
	return 0;
}

static int
send_rest(int fd, int sock, uint64_t at)
{
	struct file_rec rec = { .type = FILE_END };
	ssize_t n;
	int r = filepump_send(sock, fd, &at, self.req.size, self.buf, told, NULL);

	if (r == -EBUSY)
		return cli_fail(CLI_FAILED, "%s: it changes while it is read", self.local);
	rec.at = at;
	if (r == 0)
		r = filepump_say(sock, &rec, NULL, 0);
	if (r < 0 && r != -EPIPE)
		return cli_fail(CLI_FAILED, "%s: %s", self.local, strerror(-r));
	n = filepump_hear(sock, self.buf, at, &rec);
	if (n < 0 || rec.type != FILE_DONE)
		return failed(&rec, n);
	return report(at);
}

static int
put(void)
{
	_cleanup_close_ int fd = open(self.local, O_RDONLY | O_CLOEXEC | O_NONBLOCK), sock = -1;
	struct admin_file_item item;
	struct stat st;
	unsigned n;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return cli_fail(CLI_FAILED, "%s: %s", self.local, fd < 0 ? strerror(errno) : "not a regular file; tar makes one of a directory");
	self.req.size = self.total = (uint64_t)st.st_size;
	self.req.mode = st.st_mode & 0777;
	r = digest_file(fd, self.req.size);
	if (r < 0 || EVP_DigestFinal_ex(self.md, self.req.sha256, &n) != 1)
		return cli_fail(CLI_FAILED, "%s: %s", self.local, r < 0 ? strerror(-r) : "no SHA-256 here");
	r = ask(&item, &sock);
	self.started_at = r == DONE ? item.size : 0;
	return r == DONE ? send_rest(fd, sock, item.size) : r;
}

/* ---- */

/* "DEVICE:HANDLE/PATH"; false: it is a file here. */
static bool
parse_remote(const char *arg, struct admin_file *req)
{
	const char *colon = strchr(arg, ':'), *slash = colon != NULL ? strchr(colon, '/') : NULL;

	if (slash == NULL || memchr(arg, '/', (size_t)(colon - arg)) != NULL || colon == arg || slash == colon + 1)
		return false;
	return snprintf(req->device, sizeof(req->device), "%.*s", (int)(colon - arg), arg) < (int)sizeof(req->device) &&
	    snprintf(req->handle, sizeof(req->handle), "%.*s", (int)(slash - colon - 1), colon + 1) < (int)sizeof(req->handle) &&
	    snprintf(req->path, sizeof(req->path), "%s", slash + 1) < (int)sizeof(req->path);
}

/* Where it goes: into a directory under its own name; and what is begun lies beside it. */
static bool
name_local(const char *arg)
{
	static char path[3072];
	const char *base = strrchr(self.req.path, '/');
	struct stat st;
	bool dir = stat(arg, &st) == 0 && S_ISDIR(st.st_mode);
	int n = snprintf(path, sizeof(path), "%s%s%s", arg, dir ? "/" : "", !dir ? "" : base != NULL ? base + 1 : self.req.path);

	self.local = path;
	return n < (int)sizeof(path) && snprintf(self.part, sizeof(self.part), "%s%s", path, PART) < (int)sizeof(self.part);
}

int
cli_cp(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = { { "no-wait", no_argument, NULL, 'n' }, { 0 } };
	struct admin_file other;
	bool waited = false, from;
	int opt, r;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt != 'n')
			return cli_usage(USAGE);
		self.no_wait = true;
	}
	if (argc - optind != 2)
		return cli_usage(USAGE);
	from = parse_remote(argv[optind], &self.req);
	if (from == parse_remote(argv[optind + 1], from ? &other : &self.req))
		return cli_fail(CLI_USAGE, "one of the two is a file of a device, DEVICE:HANDLE/PATH, the other one of this machine (./a:b/c)");
	self.req.put = !from;
	self.local = self.shown = argv[optind + from];
	if (!admin_file_ok(&self.req))
		return cli_fail(CLI_USAGE, "DEVICE:HANDLE/PATH: %s must lead to a file beneath the work directory: no empty step, . or ..", self.req.path[0] != '\0' ? self.req.path : "PATH");
	if (self.req.put == 0 && !name_local(self.local))
		return cli_fail(CLI_USAGE, "%s: the name is too long", self.local);
	self.cli = cli;
	self.tty = isatty(STDERR_FILENO) == 1;
	do {
		self.begun = monotime_now();
		r = self.req.put != 0 ? put() : get();
		if (r != AGAIN || self.no_wait || (!waited && self.started_at == 0 && self.total == 0 && self.cli->status == -ENOTCONN))
			break;
		if (!waited)
			fprintf(stderr, "%sedgehub: %s; waiting to go on\n", self.tty ? "\n" : "", self.why);
		waited = true;
		sleep(AGAIN_S);
	} while (true);
	EVP_MD_CTX_free(self.md);
	if (r == AGAIN || (r == CLI_FAILED && self.why[0] != '\0'))
		return cli_fail(CLI_FAILED, "%s", strncmp(self.why, CODE, strlen(CODE)) == 0 ? self.why + strlen(CODE) : self.why);
	return r;
}
