/* `result`: what a run brought back; and the options of `run` that ask for a workspace. */
#include "hub/cli_result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/parse.h"
#include "proto/ipc/job.h"

#define TOKEN_MAX	4096u

static struct work_str
str(const char *s)
{
	return (struct work_str){ s, s != NULL ? strlen(s) : 0 };
}

bool
workspace_option(struct workspace_options *o, int opt, const char *arg)
{
	switch (opt) {
	case WORKSPACE_GIT: o->git = arg; return true;
	case WORKSPACE_REF: o->ref = arg; return true;
	case WORKSPACE_USER: o->user = arg; return true;
	case WORKSPACE_TOKEN_FILE: o->token_file = arg; return true;
	case WORKSPACE_BACK: o->back = arg; return true;
	case WORKSPACE_BRANCH: o->branch = arg; return true;
	case WORKSPACE_MESSAGE: o->message = arg; return true;
	case WORKSPACE_BUNDLE: o->bundle = arg; return true;
	default: return false;
	}
}

/* The token from a file, so that it is on no command line. */
static int
read_token(const char *path, char token[TOKEN_MAX])
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t len;
	int r = fd_read_file(AT_FDCWD, path, TOKEN_MAX - 1, &data, &len);

	if (r < 0)
		return r;
	while (len > 0 && (data[len - 1] == '\n' || data[len - 1] == '\r'))
		len--;
	memcpy(token, data, len);
	token[len] = '\0';
	explicit_bzero(data, len);
	return len > 0 ? 0 : -ENODATA;
}

static int
take_bundle(struct workspace_options *o, struct work_job *job)
{
	int r = cli_bundle_open(o->bundle, &o->ship);

	job->workspace = JOB_WORKSPACE_BUNDLE;
	job->branch = str(o->ship.branch);
	job->head = str(o->ship.head);
	job->sha256 = str(o->ship.sha256);
	job->bundle_bytes = o->ship.size;
	return r;
}

int
workspace_encode(struct workspace_options *o, const struct container_options *container, const char *handle, uint8_t *buf, size_t size, size_t *ret_len)
{
	static char token[TOKEN_MAX], branch[128];
	struct work_job job = { .workspace = o->git != NULL ? JOB_WORKSPACE_GIT : JOB_WORKSPACE_NONE, .repo = str(o->git), .ref = str(o->ref),
		.user = str(o->user), .message = str(o->message) };
	const char *why;
	int r;

	*ret_len = 0;
	o->ship.fd = -1;
	if (o->git == NULL && (o->ref != NULL || (o->back != NULL && o->bundle == NULL) || o->token_file != NULL))
		return cli_fail(RUN_EXIT_NOT_STARTED, "--ref, --git-token-file and --write-back need --git URL");
	if (o->bundle != NULL && (o->git != NULL || o->branch != NULL))
		return cli_fail(RUN_EXIT_NOT_STARTED, "--bundle goes without --git and --branch: what it holds is the branch");
	if (o->bundle != NULL && (r = take_bundle(o, &job)) != 0)
		return r;
	r = container_into(container, &job);
	if (r != 0 || (o->git == NULL && o->bundle == NULL && !job.container))
		return r;
	if (o->token_file != NULL && (r = read_token(o->token_file, token)) < 0)
		return cli_fail(RUN_EXIT_NOT_STARTED, "%s: %s", o->token_file, strerror(-r));
	job.password = str(o->token_file != NULL ? token : NULL);
	if (o->back != NULL) {
		job.back = strcmp(o->back, "branch") == 0 ? JOB_BACK_PUSH : strcmp(o->back, "bundle") == 0 ? JOB_BACK_BUNDLE : JOB_BACK_NONE;
		if (job.back == JOB_BACK_NONE)
			return cli_fail(RUN_EXIT_NOT_STARTED, "--write-back: branch or bundle");
		snprintf(branch, sizeof(branch), "%s%.100s", o->branch != NULL ? "" : JOB_BRANCH_PREFIX "run-", o->branch != NULL ? o->branch : handle);
		if (o->bundle == NULL)
			job.branch = str(branch);
		job.max_bundle = JOB_BUNDLE_MAX;
	}
	why = job_problem(&job);
	r = why == NULL ? job_encode(&job, buf, size, ret_len) : 0;
	explicit_bzero(token, sizeof(token));
	if (why != NULL || r < 0)
		return cli_fail(RUN_EXIT_NOT_STARTED, "%s: %s", o->git != NULL ? "--git" : o->bundle != NULL ? "--bundle" : "--image", why != NULL ? why : "the workspace is too long");
	return 0;
}

/* ---- result ---- */

static int
ask(struct cli *cli, const char *handle)
{
	struct admin_text what = { 0 };

	if (strlen(handle) >= sizeof(what.text))
		return cli_fail(CLI_USAGE, "no such run");
	snprintf(what.text, sizeof(what.text), "%s", handle);
	return cli_request(cli, ADMIN_REQ_RESULT, &what, sizeof(what));
}

int
result_say(struct cli *cli, const char *handle)
{
	struct json_doc *doc = NULL;
	const struct json *res;
	char text[512];
	bool pushed = false, skipped = false;
	int code = RUN_EXIT_NO_RESULT;

	if (ask(cli, handle) != 0 || json_parse(cli->answer, cli->answer_len, &doc) < 0)
		return code;
	res = json_root(doc);
	json_get_bool(res, "pushed", &pushed);
	json_get_bool(res, "skipped", &skipped);
	if (json_get_str(res, "error") != NULL) {
		fprintf(stderr, "edgehub: write-back failed: %s\n", cli_text(text, sizeof(text), json_get_str(res, "error")));
	} else {
		const char *what = json_get_str(res, skipped ? "skip_reason" : "branch");

		code = 0;
		fprintf(stderr, "edgehub: write-back: %s%s", skipped ? "nothing, " : pushed ? "pushed to " : "a bundle of ",
		    cli_text(text, sizeof(text), what != NULL ? what : ""));
		fprintf(stderr, skipped || pushed ? "\n" : "; edgehub result %s -o FILE gets it\n", handle);
	}
	json_doc_free(doc);
	return code;
}

static int
save(int from, const char *path)
{
	static uint8_t buf[64 << 10];
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	ssize_t n;
	int r = fd < 0 ? -errno : 0;

	while (r == 0 && (n = read(from, buf, sizeof(buf))) != 0)
		r = n < 0 ? -errno : fd_write_all(fd, buf, (size_t)n);
	return r < 0 ? cli_fail(CLI_FAILED, "%s: %s", path, strerror(-r)) : 0;
}

int
cli_result(struct cli *cli, int argc, char *argv[])
{
	const char *out = NULL;
	int opt, r;

	while ((opt = getopt(argc, argv, "o:")) != -1) {
		if (opt != 'o')
			return cli_usage("result HANDLE [-o FILE]");
		out = optarg;
	}
	if (argc - optind != 1)
		return cli_usage("result HANDLE [-o FILE]");
	r = ask(cli, argv[optind]);
	if (r != 0)
		return r;
	if (out != NULL)
		return cli->answer_fd >= 0 ? save(cli->answer_fd, out) : cli_fail(CLI_FAILED, "this run brought no bundle back");
	printf("%.*s\n", (int)cli->answer_len, (const char *)cli->answer);
	return CLI_OK;
}
