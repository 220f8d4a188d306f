/*
 * ssh-proxy: for OpenSSH's ProxyCommand. stdin and stdout are joined to the device's own sshd; keys and passwords are between ssh and sshd, neither
 * this program nor the hub nor the agent sees any. The end of the link is the end of both.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/near.h"
#include "hub/cli_stream.h"
#include "proto/hub/http.h"
#include "proto/hub/svcroute.h"

#define BUFFER	65536u

static const char question[] = "GET /ssh HTTP/1.1\r\nHost: edge-agent\r\nConnection: Upgrade\r\nUpgrade: " SVC_SSH_UPGRADE "\r\n\r\n";

static uint8_t buf[BUFFER];

/* The answer, and what of the banner came with it. */
static int
take_answer(struct cli *cli, int fd)
{
	static struct http_head head;
	size_t used = 0;
	ssize_t n = 0;
	int r = 0;

	http_init(&head, HTTP_RESPONSE);
	while (r == 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		r = http_feed(&head, buf, (size_t)n, &used);
	if (r != 1) {
		const char *why = cli_stream_why(cli);

		return cli_fail(CLI_FAILED, "%s", why[0] != '\0' ? why : "the device ended the stream");
	}
	if (head.status != 101) {
		size_t len = (size_t)n - used;
		ssize_t more = len == 0 ? read(fd, buf, sizeof(buf) - 1) : 0;

		memmove(buf, buf + (len > 0 ? used : 0), len > 0 ? len : more > 0 ? (size_t)more : 0);
		buf[len > 0 ? len : more > 0 ? (size_t)more : 0] = '\0';
		return cli_fail(CLI_FAILED, "the device answers %u: %.*s", head.status, (int)strcspn((char *)buf, "\r\n"), (char *)buf);
	}
	return fd_write_all(STDOUT_FILENO, buf + used, (size_t)n - used) < 0 ? CLI_FAILED : CLI_OK;
}

/* 1 = go on, 0 = the end, -errno. */
static int
copy(int from, int to)
{
	ssize_t n = read(from, buf, sizeof(buf));

	if (n <= 0)
		return n == 0 ? 0 : -errno;
	return fd_write_all(to, buf, (size_t)n) < 0 ? -EPIPE : 1;
}

static int
relay(struct cli *cli, int fd)
{
	struct pollfd p[2] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
	const char *why;
	int r = 1;

	while (r == 1) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return cli_fail(CLI_FAILED, "poll: %s", strerror(errno));
		if (p[1].revents != 0)
			r = copy(fd, STDOUT_FILENO);
		if (r == 1 && p[0].revents != 0 && copy(STDIN_FILENO, fd) != 1) {
			shutdown(fd, SHUT_WR);
			p[0].fd = -1;
			p[0].revents = 0;
		}
	}
	why = cli_stream_why(cli);
	return why[0] == '\0' ? CLI_OK : cli_fail(CLI_FAILED, "the way to the device's sshd has ended: %s", why);
}

int
cli_ssh_proxy(struct cli *cli, int argc, char *argv[])
{
	_cleanup_close_ int fd = -1;
	int code;

	near_drop_dashes(&argc, &argv);
	if (argc != 2)
		return cli_usage("ssh-proxy DEVICE   (ssh -o ProxyCommand='edgehub ssh-proxy DEVICE' USER@DEVICE)");
	fd = cli_stream_open(cli, argv[1], "ssh", &code);
	if (fd < 0)
		return code;
	if (fd_write_all(fd, question, sizeof(question) - 1) < 0)
		return cli_fail(CLI_FAILED, "the hub ended the stream");
	code = take_answer(cli, fd);
	return code != CLI_OK ? code : relay(cli, fd);
}
