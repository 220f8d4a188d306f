#include "common/term.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "common/fdutil.h"

#define ESCAPE		'~'
#define SUSPEND		0x1a

/* Of a program that did not come to put them back: other screen, hidden cursor, colours, mouse, brackets around pastes. */
static const char screen_reset[] = "\033[?1047l\033[?25h\033[0m\033[?1000l\033[?1002l\033[?1003l\033[?1006l\033[?2004l\033[?7h\033>\r\n";

static struct termios saved;

bool
term_is_tty(void)
{
	return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
}

void
term_size(uint16_t *ret_rows, uint16_t *ret_cols)
{
	struct winsize size = { 0 };

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
		memset(&size, 0, sizeof(size));
	*ret_rows = size.ws_row;
	*ret_cols = size.ws_col;
}

/* ---- modes ---- */

static void
go_raw(void)
{
	struct termios t = saved;

	cfmakeraw(&t);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &t);
}

/* Everything, whoever writes it may not block; a reader that is gone is an error. */
static int
show(const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, p, len);
		struct pollfd pfd = { .fd = STDOUT_FILENO, .events = POLLOUT };

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (n < 0)
			poll(&pfd, 1, -1);
		p += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* Lives until the pipe ends. A byte first: all is well. */
static _Noreturn void
guard(int pipe_fd)
{
	static const int ignored[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP, SIGTTOU, SIGTTIN, SIGPIPE };
	char c;
	ssize_t n;

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	do
		n = read(pipe_fd, &c, 1);
	while (n < 0 && errno == EINTR);
	if (n == 0) {
		tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
		(void)!write(STDOUT_FILENO, screen_reset, sizeof(screen_reset) - 1);
	}
	_exit(0);
}

static int
start_guard(struct term *t)
{
	int p[2];
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		/* Nothing of the session's but the terminal. */
		if (dup2(p[0], 3) < 0 || close_range(4, ~0u, 0) < 0)
			_exit(1);
		guard(3);
	}
	close(p[0]);
	if (pid < 0) {
		close(p[1]);
		return -errno;
	}
	t->guard = p[1];
	return 0;
}

static void
suspend(struct term *t)
{
	sigset_t stop, before;

	tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
	fprintf(stderr, "%s: suspended; fg goes on\n", t->name);
	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &stop, &before);
	kill(0, SIGSTOP);	/* with whoever stands in the same pipe line */
	sigprocmask(SIG_SETMASK, &before, NULL);
	go_raw();
}

/* ---- bytes ---- */

static void
over(struct term *t, enum term_state state)
{
	if (t->state == TERM_GOES_ON)
		t->state = state;
}

static void
watch(struct term *t)
{
	bool room = t->len <= TERM_ROOM;

	if (t->file && !t->in_over && room && t->state == TERM_GOES_ON)
		loop_timer_set(t->loop, &t->again, monotime_now());
	(void)loop_io_set(t->loop, &t->in_io, room && !t->in_over ? EPOLLIN : 0);
	(void)loop_io_set(t->loop, &t->sock_io, t->len > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void
send_some(struct term *t)
{
	ssize_t n = t->len > 0 ? send(t->sock, t->buf, t->len, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

	if (n > 0) {
		t->len -= (size_t)n;
		memmove(t->buf, t->buf + n, t->len);
	} else if (n < 0 && errno != EAGAIN) {
		t->len = 0;		/* its end shows where it is read */
	}
	if (t->in_over && t->len == 0)
		shutdown(t->sock, SHUT_WR);
	watch(t);
}

static void
put(struct term *t, uint8_t c)
{
	t->buf[t->len++] = c;
	t->line_begin = c == '\r' || c == '\n';
}

static void
help(const struct term *t)
{
	fprintf(stderr, "\r\n%s: ~. leaves, ~^Z suspends, ~~ types ~; at the beginning of a line\r\n", t->name);
}

/* One byte of what is typed into a terminal: the escapes are ours. */
static void
typed(struct term *t, uint8_t c)
{
	if (!t->tilde) {
		t->tilde = c == ESCAPE && t->line_begin;
		if (!t->tilde)
			put(t, c);
		return;
	}
	t->tilde = false;
	switch (c) {
	case '.':
		over(t, TERM_LEFT);
		break;
	case SUSPEND:
		suspend(t);
		break;
	case '?':
		help(t);
		break;
	case ESCAPE:
		put(t, c);
		break;
	default:
		put(t, ESCAPE);
		put(t, c);
		break;
	}
}

static void
read_input(struct term *t)
{
	uint8_t in[TERM_ROOM / 2];
	ssize_t n = read(STDIN_FILENO, in, sizeof(in));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		t->in_over = true;
	for (ssize_t i = 0; i < n && t->state == TERM_GOES_ON; i++) {
		if (t->raw)
			typed(t, in[i]);
		else
			t->buf[t->len++] = in[i];
	}
	send_some(t);
}

static void
on_input(struct loop_io *io, uint32_t events)
{
	read_input(io->ctx);
}

static void
on_again(struct loop_timer *timer)
{
	read_input(timer->ctx);
}

static void
on_sock(struct loop_io *io, uint32_t events)
{
	static uint8_t out[65536];
	struct term *t = io->ctx;
	ssize_t n = (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 ? recv(t->sock, out, sizeof(out), MSG_DONTWAIT) : -1;

	if (n > 0 && show(out, (size_t)n) < 0)
		over(t, TERM_BROKEN);
	if (n == 0 || (n < 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && errno != EAGAIN)) {
		loop_io_del(t->loop, io);
		over(t, TERM_OVER);
		return;
	}
	send_some(t);
}

static void
on_signal(int signo, void *ctx)
{
	struct term *t = ctx;
	uint16_t rows, cols;

	if (signo == SIGCONT) {
		if (t->raw)
			go_raw();
		signo = SIGWINCH;	/* it may have changed meanwhile */
	}
	if (signo == SIGWINCH) {
		term_size(&rows, &cols);
		if (t->raw && rows > 0 && cols > 0)
			t->resized(rows, cols, t->ctx);
		return;
	}
	t->signo = signo;
	over(t, TERM_SIGNALLED);
}

int
term_begin(struct term *t, int sock, bool raw, bool input)
{
	sigset_t mask;
	int r = fd_set_nonblock(sock);

	t->sock = sock;
	t->guard = -1;
	t->raw = raw;
	t->line_begin = true;
	t->in_over = !input;
	t->in_io.fd = t->sock_io.fd = -1;
	loop_timer_init(&t->again, on_again, t);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTTOU, SIG_IGN);	/* modes are set whoever is in front */
	sigemptyset(&mask);
	for (const int *s = (const int[]){ SIGWINCH, SIGCONT, SIGTERM, SIGHUP, SIGINT, SIGQUIT, 0 }; *s != 0; s++)
		sigaddset(&mask, *s);
	if (r == 0)
		r = loop_signals(t->loop, &mask, on_signal, t);
	if (r == 0)
		r = loop_io_add(t->loop, &t->sock_io, sock, EPOLLIN, on_sock, t);
	if (r == 0 && input) {
		r = loop_io_add(t->loop, &t->in_io, STDIN_FILENO, EPOLLIN, on_input, t);
		t->file = r == -EPERM;	/* of a kind that is always ready */
		if (t->file)
			t->in_io.fd = -1;
		r = t->file ? 0 : r;
	}
	if (r == 0 && raw && tcgetattr(STDIN_FILENO, &saved) < 0)
		r = -errno;
	if (r == 0 && raw)
		r = start_guard(t);
	if (r < 0)
		return r;
	if (raw)
		go_raw();
	send_some(t);
	return 0;
}

void
term_end(struct term *t, bool crashed)
{
	loop_timer_del(t->loop, &t->again);
	loop_io_del(t->loop, &t->in_io);
	loop_io_del(t->loop, &t->sock_io);
	close(t->sock);
	if (!t->raw)
		return;
	if (crashed)
		(void)show(screen_reset, sizeof(screen_reset) - 1);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
	if (t->guard >= 0 && write(t->guard, "x", 1) == 1)
		close(t->guard);
	t->guard = -1;
}
