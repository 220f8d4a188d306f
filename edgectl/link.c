/*
 * reconnect and enroll: what connectd answers for.
 *
 * A token never stands on the command line, where every user of the machine can read it (B80): it comes from a file or from
 * standard input, is sent once and wiped.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "edgectl/client.h"
#include "edgectl/edgectl.h"

#define ENROLL_MS	180000	/* name, connection, TLS and the hub's word, with everything slow */
#define BUNDLE		"cloopenroll1."
#define TOKEN		"clet1."
#define TOKEN_HINT	"an option that is not known. A token is not taken from the command line, where every user can read it: " \
			"put it into a file and give --token-file FILE, or pipe it to --token-file -"

int
cmd_reconnect(struct edgectl *ctl, int argc, char **argv)
{
	static struct client c;

	if (argc > 1)
		return no_arguments(argc, argv);
	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_CONNECTD);
	client_call(&c, CTL_REQ_RECONNECT, NULL, 0, CLIENT_WAIT_MS);
	if (!client_answer(&c, NULL, 0)) {
		int code = client_complain(&c, "reconnect");

		client_close(&c);
		return code;
	}
	client_close(&c);
	puts(ctl->json ? "{\"ok\": true}" : "dialling now; see edgectl status");
	return EXIT_OK;
}

/* Reads a secret of at most size - 1 bytes and cuts the line end. 0 or -errno. */
static int
read_secret(const char *path, char *buf, size_t size)
{
	_cleanup_close_ int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	int r = fd < 0 ? -errno : fd_read_all(fd, buf, size, &len);

	if (r < 0)
		return r;
	while (len > 0 && strchr(" \t\r\n", buf[len - 1]) != NULL)
		len--;
	if (len == 0)
		return -ENODATA;
	if (len >= size)
		return -EFBIG;
	memset(buf + len, 0, size - len);
	return memchr(buf, '\0', len) != NULL || strcspn(buf, " \t\r\n") != len ? -EINVAL : 0;
}

static bool
looks_secret(const char *s)
{
	return strncmp(s, TOKEN, strlen(TOKEN)) == 0 || strncmp(s, BUNDLE, strlen(BUNDLE)) == 0;
}

static int
secret_error(const char *path, int r)
{
	fprintf(stderr, "edgectl: enroll: %s: %s\n", strcmp(path, "-") == 0 ? "standard input" : path,
	    r == -ENODATA ? "is empty" : r == -EFBIG ? "is too long for a token" :
	    r == -EINVAL ? "is not one line with a token" : strerror(-r));
	return EXIT_FAILED;
}

static void
warn_if_readable(const char *path)
{
	struct stat st;

	if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077) != 0)
		fprintf(stderr, "edgectl: enroll: %s can be read by others (mode %03o)\n", path, st.st_mode & 0777);
}

/* The value of an option into its field of the request. */
static int
put(char *field, size_t size, const char *option, const char *value)
{
	size_t len = strlen(value);

	if (len == 0 || len >= size)
		return usage_error("enroll", len == 0 ? "%s is empty" : "%s is too long", option);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
			return usage_error("enroll", "%s holds a control character", option);
	memset(field, 0, size);
	memcpy(field, value, len);
	return 0;
}

struct sources {
	const char *token, *bundle;
};

/* One option with its value. Names are matched whole: --token is not --token-file, whose value would be shown in errors. */
static int
set_option(struct ctl_enroll *req, struct sources *from, const char *name, const char *value)
{
	if (strcmp(name, "--url") == 0)
		return put(req->url, sizeof(req->url), name, value);
	if (strcmp(name, "--pin") == 0)
		return put(req->pin, sizeof(req->pin), name, value);
	if (strcmp(name, "--name") == 0)
		return put(req->name, sizeof(req->name), name, value);
	if (looks_secret(value))
		return usage_error("enroll", TOKEN_HINT);
	if (strcmp(name, "--token-file") == 0)
		from->token = value;
	else
		from->bundle = value;
	return 0;
}

static bool
takes_value(const char *arg)
{
	static const char *const names[] = { "--token-file", "--bundle-file", "--url", "--pin", "--name" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(arg, names[i]) == 0)
			return true;
	return false;
}

static int
parse_enroll(int argc, char **argv, struct ctl_enroll *req, struct sources *from)
{
	for (int i = 1; i < argc; i++) {
		int r = 0;

		if (strcmp(argv[i], "--replace") == 0)
			req->replace = 1;
		else if (!takes_value(argv[i]))	/* not echoed: it may be the token itself */
			return usage_error("enroll", TOKEN_HINT);
		else if (i + 1 == argc)
			return usage_error("enroll", "%s lacks its value", argv[i]);
		else
			r = set_option(req, from, argv[i], argv[i + 1]);
		if (r != 0)
			return r;
		i += takes_value(argv[i]);
	}
	if ((from->token == NULL) == (from->bundle == NULL))
		return usage_error("enroll", "give one of --token-file and --bundle-file");
	return 0;
}

/* A bundle names the hub itself; a token by its look is never taken for one. */
static int
read_source(const struct sources *from, struct ctl_enroll *req)
{
	const char *path = from->bundle != NULL ? from->bundle : from->token;
	int r;

	warn_if_readable(path);
	r = read_secret(path, req->token, sizeof(req->token));
	if (r < 0)
		return secret_error(path, r);
	if (from->bundle != NULL && strncmp(req->token, BUNDLE, strlen(BUNDLE)) != 0) {
		fprintf(stderr, "edgectl: enroll: %s does not hold a bundle (%s...)\n", path, BUNDLE);
		return EXIT_FAILED;
	}
	return 0;
}

static int
report(const struct edgectl *ctl, struct client *c)
{
	struct ctl_text text = { 0 };
	bool told = c->answered && c->len == sizeof(text);

	if (told)
		memcpy(&text, c->answer, sizeof(text));
	if (!told || !ipc_str_ok(text.text, sizeof(text.text)))
		return client_complain(c, "enroll");
	if (c->status != 0) {
		fprintf(stderr, "edgectl: enroll: %s\n", text.text[0] != '\0' ? out_safe(text.text) : strerror(-c->status));
		return EXIT_FAILED;
	}
	if (ctl->json) {
		yajl_gen g = json_begin();

		json_str(g, "agent_id", text.text);
		json_end(g);
	} else {
		printf("enrolled as %s\n", out_safe(text.text));
	}
	return EXIT_OK;
}

int
cmd_enroll(struct edgectl *ctl, int argc, char **argv)
{
	static struct client c;
	struct ctl_enroll req = { 0 };
	struct sources from = { 0 };
	int r = parse_enroll(argc, argv, &req, &from);

	if (r == 0)
		r = read_source(&from, &req);
	if (r == 0) {
		client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_CONNECTD);
		client_ask(&c, CTL_REQ_ENROLL, &req, sizeof(req));
	}
	explicit_bzero(&req, sizeof(req));
	if (r != 0)
		return r;
	/* A daemon that is there greets at once; the hub's answer may take its time. */
	client_wait_hello(&c, CLIENT_WAIT_MS);
	client_wait(&(struct client *){ &c }, 1, ENROLL_MS);
	r = report(ctl, &c);
	client_close(&c);
	return r;
}
