#include "hub/cli_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/near.h"

#define USAGE_REVOKE	"secret revoke HANDLE [NAME] [--kill]"
#define USAGE_REFRESH	"secret refresh HANDLE NAME=@FILE [NAME=@FILE ...]"
#define HEAD_ROOM	2048u		/* an item without its value */

/* Whole, into memory that the caller wipes. */
static int
read_all(const char *path, uint8_t *buf, size_t size, size_t *ret_len)
{
	_cleanup_close_ int fd = strcmp(path, "-") == 0 ? fcntl(0, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	while ((n = read(fd, buf + len, size - len)) > 0)
		len += (size_t)n;
	if (n < 0)
		return -errno;
	*ret_len = len;
	return len == size ? -EFBIG : 0;
}

/* Splits the argument and reads the file. */
static int
take(const char *arg, char name[SECRET_NAME_SIZE], uint8_t *buf, size_t size, size_t *ret_len)
{
	const char *eq = strchr(arg, '=');
	size_t n = eq != NULL ? (size_t)(eq - arg) : 0;
	int r;

	if (n == 0 || n >= SECRET_NAME_SIZE || eq[1] != '@' || eq[2] == '\0') {
		cli_fail(0, "a secret is NAME=@FILE, or NAME=@- for stdin: a value on a command line is no secret");
		return -EINVAL;
	}
	memcpy(name, arg, n);
	name[n] = '\0';
	r = read_all(eq + 2, buf, size, ret_len);
	if (r == -EFBIG)
		cli_fail(0, "%s: larger than 256 KiB", eq + 2);
	else if (r < 0)
		cli_fail(0, "%s: %s", eq + 2, strerror(-r));
	return r;
}

static int
add(struct cli_secrets *s, const struct secret *item)
{
	size_t need = s->len + HEAD_ROOM + item->len, len;
	struct wire_w w;
	uint8_t *more;

	if (!secret_ok(item)) {
		cli_fail(0, "%s: not a name a secret can have", item->name);
		return -EINVAL;
	}
	if (need > s->size) {
		more = malloc(need);
		if (more == NULL)
			return -ENOMEM;
		if (s->len > 0)
			memcpy(more, s->items, s->len);
		len = s->len;
		cli_secrets_done(s);
		*s = (struct cli_secrets){ more, len, need };
	}
	wire_w_init(&w, s->items + s->len, s->size - s->len);
	secret_put(&w, item);
	if (wire_w_done(&w, &len) < 0 || !secrets_ok(s->items, s->len + len)) {
		cli_fail(0, "more than 256 secrets, or 512 KiB of them");
		return -E2BIG;
	}
	s->len += len;
	return 0;
}

int
cli_secret_file(struct cli_secrets *s, const char *lease, const char *arg)
{
	static uint8_t buf[SECRET_FILE_MAX + 1];
	struct secret item = { .kind = SECRET_FILE, .mode = 0600, .dir = CLI_SECRET_DIR, .value = buf };
	int r = take(arg, item.name, buf, sizeof(buf), &item.len);

	snprintf(item.lease, sizeof(item.lease), "%s", lease);
	snprintf(item.grant, sizeof(item.grant), "%.128s", item.name);
	if (r == 0)
		r = add(s, &item);
	explicit_bzero(buf, sizeof(buf));
	return r;
}

int
cli_secret_env(struct cli_secrets *s, const char *lease, const char *arg, char **ret_kv)
{
	static uint8_t buf[SECRET_FILE_MAX + 1];
	struct secret item = { .kind = SECRET_ENV };
	size_t len = 0, n;
	int r = take(arg, item.name, buf, sizeof(buf), &len);

	snprintf(item.lease, sizeof(item.lease), "%s", lease);
	snprintf(item.grant, sizeof(item.grant), "%.128s", item.name);
	while (len > 0 && (buf[len - 1] == '\n' || buf[len - 1] == '\r'))
		len--;
	if (r == 0 && memchr(buf, '\0', len) != NULL) {
		cli_fail(0, "%s: a variable cannot hold a NUL; give it as --secret-file", item.name);
		r = -EINVAL;
	}
	if (r == 0)
		r = add(s, &item);
	n = strlen(item.name);
	*ret_kv = r == 0 ? malloc(n + len + 2) : NULL;
	if (r == 0 && *ret_kv == NULL)
		r = -ENOMEM;
	if (r == 0) {
		memcpy(*ret_kv, item.name, n);
		(*ret_kv)[n] = '=';
		memcpy(*ret_kv + n + 1, buf, len);
		(*ret_kv)[n + 1 + len] = '\0';
	}
	explicit_bzero(buf, sizeof(buf));
	return r;
}

void
cli_secrets_done(struct cli_secrets *s)
{
	if (s->items != NULL)
		explicit_bzero(s->items, s->size);
	free(s->items);
	*s = (struct cli_secrets){ 0 };
}

/* ---- secret revoke, secret refresh ---- */

static int
print_answer(const struct cli *cli)
{
	struct admin_text text;
	char clean[sizeof(text.text)], buf[6 * sizeof(text.text) + 64];	/* every character escaped */
	struct json_w w;

	if (!cli_answer(cli, &text, sizeof(text)) || !admin_text_ok(&text))
		return cli_done(cli, CLI_OK);
	if (cli->json) {
		json_w_init(&w, buf, sizeof(buf));
		json_w_obj(&w, NULL);
		json_w_bool(&w, "ok", true);
		json_w_str(&w, "text", text.text);
		json_w_end_obj(&w);
		cli_print_json(&w);
	} else {
		printf("%s\n", cli_text(clean, sizeof(clean), text.text));
	}
	return CLI_OK;
}

static int
secret_revoke(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = { { "kill", no_argument, NULL, 'k' }, { 0 } };
	struct admin_secret_revoke req = { 0 };
	int opt, r;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt != 'k')
			return cli_usage(USAGE_REVOKE);
		req.kill = 1;
	}
	argc -= optind;
	argv += optind;
	if (argc < 1 || argc > 2 || strlen(argv[0]) >= sizeof(req.handle) || (argc == 2 && strlen(argv[1]) >= SECRET_ID_SIZE))
		return cli_usage(USAGE_REVOKE);
	snprintf(req.handle, sizeof(req.handle), "%s", argv[0]);
	if (argc == 2)
		snprintf(req.name, sizeof(req.name), "%s", argv[1]);
	r = cli_request(cli, ADMIN_REQ_SECRET_REVOKE, &req, sizeof(req));
	return r != 0 ? r : print_answer(cli);
}

static int
send_refresh(struct cli *cli, const char *handle, const struct cli_secrets *s)
{
	_cleanup_close_ int fd = -1;
	struct wire_w w;
	uint8_t *buf = malloc(s->len + 256);
	size_t len = 0;
	int r = buf == NULL ? -ENOMEM : cli_open(cli);

	if (r == 0) {
		wire_w_init(&w, buf, s->len + 256);
		wire_put_str(&w, handle);
		wire_put_bytes(&w, s->items, s->len);
		r = wire_w_done(&w, &len);
	}
	if (r == 0)
		r = fd = fd_sealed_memfd("refresh", buf, len);
	if (r >= 0)
		r = cli_call(cli, ADMIN_REQ_SECRET_REFRESH, NULL, 0, &fd, 1);
	if (buf != NULL)
		explicit_bzero(buf, s->len + 256);
	free(buf);
	if (r < 0)
		return cli_say_unreachable(cli, r);
	if (cli->status < 0) {
		struct admin_text text = { 0 };

		(void)cli_answer(cli, &text, sizeof(text));
		return cli_fail(CLI_FAILED, "%s", admin_text_ok(&text) && text.text[0] != '\0' ? text.text : strerror(-cli->status));
	}
	return print_answer(cli);
}

static int
secret_refresh(struct cli *cli, int argc, char *argv[])
{
	struct cli_secrets s = { 0 };
	int r = 0;

	near_drop_dashes(&argc, &argv);
	if (argc < 3 || strlen(argv[1]) >= HANDLE_SIZE)
		return cli_usage(USAGE_REFRESH);
	for (int i = 2; i < argc && r == 0; i++)
		r = cli_secret_file(&s, "", argv[i]);
	r = r < 0 ? CLI_FAILED : send_refresh(cli, argv[1], &s);
	cli_secrets_done(&s);
	return r;
}

int
cli_secret(struct cli *cli, int argc, char *argv[])
{
	if (argc > 1 && strcmp(argv[1], "revoke") == 0)
		return secret_revoke(cli, argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "refresh") == 0)
		return secret_refresh(cli, argc - 1, argv + 1);
	return cli_usage(USAGE_REVOKE " | " USAGE_REFRESH);
}
