#include "hub/cli_bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hub/cli.h"
#include "proto/ipc/job.h"

#define HEADER_MAX	8192u
#define REF_PREFIX	"refs/heads/"

static int
digest(struct cli_bundle *b)
{
	static uint8_t buf[64 << 10];
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	uint8_t sha[EVP_MAX_MD_SIZE];
	uint64_t at = 0;
	unsigned n = 0;
	ssize_t got = 0;
	int r = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;

	for (; r == 0 && (got = pread(b->fd, buf, sizeof(buf), (off_t)at)) > 0; at += (uint64_t)got)
		if (EVP_DigestUpdate(md, buf, (size_t)got) != 1)
			r = -ENOMEM;
	if (r == 0 && (got < 0 || at != b->size))
		r = got < 0 ? -errno : -EIO;
	if (r == 0 && EVP_DigestFinal_ex(md, sha, &n) != 1)
		r = -ENOMEM;
	if (r == 0)
		file_sha_put(sha, b->sha256);
	EVP_MD_CTX_free(md);
	return r;
}

/* One line of the header, without its end. False: there is none. */
static bool
next_line(char **pos, char **ret_line)
{
	char *end = strchr(*pos, '\n');

	if (end == NULL)
		return false;
	*end = '\0';
	*ret_line = *pos;
	*pos = end + 1;
	return true;
}

/* The format of git-bundle: a signature, capabilities, commits it needs, refs, an empty line. NULL, or what is wrong. */
static const char *
read_header(struct cli_bundle *b)
{
	static const char unknown[] = "no git bundle (git bundle create FILE cloop/NAME makes one)";
	static char buf[HEADER_MAX];
	ssize_t n = pread(b->fd, buf, sizeof(buf) - 1, 0);
	char *pos = buf, *line;

	buf[n > 0 ? n : 0] = '\0';
	if (!next_line(&pos, &line) || (strcmp(line, "# v2 git bundle") != 0 && strcmp(line, "# v3 git bundle") != 0))
		return unknown;
	while (next_line(&pos, &line) && line[0] != '\0') {
		if (line[0] == '@')
			continue;
		if (line[0] == '-')
			return "it needs commits that are not in it; make it of the whole branch";
		if (b->head[0] != '\0')
			return "more than one branch is in it";
		if (strspn(line, "0123456789abcdef") != 40 || strncmp(line + 40, " " REF_PREFIX, sizeof(REF_PREFIX)) != 0)
			return "what it holds is no branch";
		snprintf(b->head, sizeof(b->head), "%.40s", line);
		snprintf(b->branch, sizeof(b->branch), "%s", line + 40 + sizeof(REF_PREFIX));
	}
	return b->head[0] != '\0' ? NULL : unknown;
}

int
cli_bundle_open(const char *path, struct cli_bundle *b)
{
	struct stat st;
	const char *why;
	int r;

	*b = (struct cli_bundle){ .fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) };
	if (b->fd < 0 || fstat(b->fd, &st) < 0)
		return cli_fail(RUN_EXIT_NOT_STARTED, "%s: %s", path, strerror(errno));
	b->size = (uint64_t)st.st_size;
	why = !S_ISREG(st.st_mode) ? "no regular file" : b->size > JOB_BUNDLE_MAX ? "a bundle of more than 128 MiB is not shipped" : read_header(b);
	if (why != NULL)
		return cli_fail(RUN_EXIT_NOT_STARTED, "%s: %s", path, why);
	r = digest(b);
	return r < 0 ? cli_fail(RUN_EXIT_NOT_STARTED, "%s: %s", path, strerror(-r)) : 0;
}
