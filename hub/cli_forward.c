/* The life of a forward, on the side of the command that asked for it. */
#include "hub/cli_forward.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

void
cli_forward_name(char dst[32], const char *prefix)
{
	uint16_t v = 0;

	if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
		v = (uint16_t)getpid();
	snprintf(dst, 32, "%.22s-%04x", prefix, v);
	for (char *p = dst; *p != '\0'; p++)
		*p = *p == '.' || *p == ':' ? '-' : *p;
}

bool
cli_forward_copy(char *dst, size_t size, const char *arg)
{
	memset(dst, 0, size);
	return snprintf(dst, size, "%s", arg) < (int)size;
}

static void
on_signal(int signo, void *ctx)
{
	struct cli_forward *f = ctx;

	f->stopped = true;
}

int
cli_forward_ask(struct cli_forward *f, uint16_t type, const void *req, size_t len, int fd, void *ret_item, size_t size)
{
	struct cli *cli = f->cli;
	struct admin_text text;
	char clean[sizeof(text.text)];
	sigset_t mask;
	int r = cli_open(cli);

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	if (r == 0 && !f->watched) {
		r = loop_signals(cli->loop, &mask, on_signal, f);
		f->watched = r == 0;
	}
	r = r < 0 ? r : cli_call(cli, type, req, len, &fd, 1);
	close(fd);
	if (r < 0)
		return cli_say_unreachable(cli, r);
	if (cli->status < 0 && cli_answer(cli, &text, sizeof(text)) && admin_text_ok(&text))
		return cli_fail(CLI_FAILED, "%s", cli_text(clean, sizeof(clean), text.text));
	if (cli->status < 0 || !cli_answer(cli, ret_item, size))
		return cli_fail(CLI_FAILED, "the hub answers in a way this edgehub does not know");
	return 0;
}

int
cli_forward_stay(struct cli_forward *f)
{
	while (!f->ended && !f->stopped && f->cli->up)
		loop_turn(f->cli->loop, -1);
	if (f->stopped)
		return CLI_OK;
	return f->ended ? cli_fail(CLI_FAILED, "%s", f->why) : cli_say_unreachable(f->cli, -ECONNRESET);
}
