#include "hub/cli_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/parse.h"
#include "hub/adminpipe.h"
#include "proto/hub/http.h"
#include "proto/hub/svcroute.h"

#define BODY_MAX	(4u << 20)
#define ANSWER_S	60
#define WHY_MS		500	/* the reason comes on another socket than the end */

static char why[256];

static int
on_event(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	struct admin_text text;

	if (msg->hdr.type != ADMIN_EV_PIPE_END)
		return -EPROTO;
	memcpy(&text, msg->data, sizeof(text));
	cli_text(why, sizeof(why), admin_text_ok(&text) ? text.text : "the hub ended it");
	return 0;
}

int
cli_stream_open(struct cli *cli, const char *device, const char *purpose, int *ret_code)
{
	_cleanup_close_ int ours = -1;
	struct admin_pipe req = { 0 };
	struct admin_text text;
	char clean[sizeof(text.text)];
	int ends[2], r = 0;

	*ret_code = CLI_FAILED;
	why[0] = '\0';
	if (snprintf(req.device, sizeof(req.device), "%s", device) >= (int)sizeof(req.device)) {
		*ret_code = cli_fail(CLI_USAGE, "no device has a name as long as that");
		return -1;
	}
	snprintf(req.purpose, sizeof(req.purpose), "%s", purpose);
	if (!cli->up)
		r = cli_open(cli);
	if (r == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		r = -errno;
	if (r < 0) {
		*ret_code = cli_say_unreachable(cli, r);
		return -1;
	}
	ours = ends[0];
	cli->event = on_event;
	r = cli_call(cli, ADMIN_REQ_PIPE, &req, sizeof(req), &ends[1], 1);
	close(ends[1]);
	if (r < 0)
		*ret_code = cli_say_unreachable(cli, r);
	else if (cli->status == 0)
		return take_fd(&ours);
	else if (cli_answer(cli, &text, sizeof(text)) && admin_text_ok(&text))
		*ret_code = cli_fail(CLI_FAILED, "%s", cli_text(clean, sizeof(clean), text.text));
	else
		*ret_code = cli_fail(CLI_FAILED, "the hub: %s", strerror(-cli->status));
	return -1;
}

const char *
cli_stream_why(struct cli *cli)
{
	monotime_t limit = monotime_add_ms(monotime_now(), WHY_MS);
	int64_t left;

	while (why[0] == '\0' && cli->up && (left = monotime_diff_ms(limit, monotime_now())) > 0)
		if (loop_turn(cli->loop, (int)left) < 0)
			break;
	return why[0] == '\0' && !cli->up ? "the hub is gone" : why;
}

/* Everything until the end, at most BODY_MAX. */
static int
read_all(int fd, char **ret_data, size_t *ret_len)
{
	_cleanup_free_ char *buf = malloc(BODY_MAX + 1);
	size_t len = 0;
	ssize_t n = 1;

	if (buf == NULL)
		return -ENOMEM;
	while (n > 0 && len < BODY_MAX) {
		n = read(fd, buf + len, BODY_MAX - len);
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		len += (size_t)n;
	}
	buf[len] = '\0';
	*ret_len = len;
	*ret_data = take_ptr(&buf);
	return n > 0 ? -EMSGSIZE : 0;
}

static int
take_answer(struct cli *cli, const char *data, size_t len, char **ret_body, size_t *ret_len)
{
	struct http_head *head = malloc(sizeof(*head));
	const char *reason;
	size_t used = 0;
	int r = CLI_OK;

	if (head == NULL)
		return cli_fail(CLI_FAILED, "out of memory");
	http_init(head, HTTP_RESPONSE);
	if (http_feed(head, data, len, &used) != 1 || head->content_length < 0 || (size_t)head->content_length != len - used) {
		reason = cli_stream_why(cli);
		r = cli_fail(CLI_FAILED, "%s", reason[0] != '\0' ? reason : "the device's answer is cut short");
	} else if (head->status != 200) {
		r = cli_fail(CLI_FAILED, "the device answers %u: %.*s", head->status, (int)strcspn(data + used, "\r\n"), data + used);
	} else {
		*ret_body = strdup(data + used);
		*ret_len = len - used;
		r = *ret_body != NULL ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
	}
	free(head);
	return r;
}

int
cli_stream_get(struct cli *cli, const char *device, const char *path, char **ret_body, size_t *ret_len)
{
	const struct timeval limit = { .tv_sec = ANSWER_S };
	_cleanup_free_ char *data = NULL;
	_cleanup_close_ int fd = -1;
	char request[256];
	size_t len = 0;
	int code, r;

	fd = cli_stream_open(cli, device, "status", &code);
	if (fd < 0)
		return code;
	r = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: edge-agent\r\nConnection: close\r\n\r\n", path);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	r = fd_write_all(fd, request, (size_t)r);
	if (r == 0)
		r = read_all(fd, &data, &len);
	if (r < 0)
		return cli_fail(CLI_FAILED, "the device's answer: %s", strerror(-r));
	return take_answer(cli, data, len, ret_body, ret_len);
}

/* ---- a service by its name ---- */

static int
look_up(struct cli *cli, const char *device, const char *name, char *target, size_t size)
{
	_cleanup_free_ char *body = NULL;
	struct json_doc *doc = NULL;
	const struct json *list;
	size_t len = 0;
	int r = cli_stream_get(cli, device, "/api/v1/services", &body, &len);

	if (r != CLI_OK)
		return r;
	if (json_parse(body, len, &doc) < 0)
		return cli_fail(CLI_FAILED, "the device's list of services is not JSON");
	list = json_get(json_root(doc), "services");
	r = CLI_FAILED;
	for (const struct json *j = list != NULL ? list->child : NULL; j != NULL && r != CLI_OK; j = j->next) {
		const char *n = json_get_str(j, "name"), *source = json_get_str(j, "source"), *t = json_get_str(j, "target");
		bool found = source != NULL && strcmp(source, "found") == 0 && t != NULL;

		if (n == NULL || strcmp(n, name) != 0)
			continue;
		r = snprintf(target, size, "%s%s", found ? "" : SVC_NAME_SCHEME, found ? t : name) < (int)size ? CLI_OK : CLI_FAILED;
	}
	json_doc_free(doc);
	return r == CLI_OK ? r : cli_fail(CLI_FAILED, "device %s has no service %s (edgehub services %s)", device, name, device);
}

int
cli_stream_target(struct cli *cli, const char *device, const char *service, char *target, size_t size)
{
	struct service_target t;
	uint32_t port;

	if (parse_u32(service, 1, 65535, &port) == 0)
		return snprintf(target, size, "http://localhost:%u", port) < (int)size ? CLI_OK : CLI_USAGE;
	if (strstr(service, "://") != NULL) {
		if (service_target_parse(service, false, &t) < 0 || snprintf(target, size, "%s", service) >= (int)size)
			return cli_fail(CLI_USAGE, "--to is a service's name, a port, or http:// or https:// with a host and a port");
		return CLI_OK;
	}
	if (!service_name_ok(service))
		return cli_fail(CLI_USAGE, "--to: a name has 1 to 32 of a-z 0-9 - _");
	return look_up(cli, device, service, target, size);
}
