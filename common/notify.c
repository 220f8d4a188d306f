#include "common/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"

/* A path, or "@name" in the abstract namespace. */
static int
open_socket(const char *name)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	size_t len = strlen(name);
	_cleanup_close_ int fd = -1;

	if ((name[0] != '/' && name[0] != '@') || len >= sizeof(sun.sun_path))
		return -EINVAL;
	memcpy(sun.sun_path, name, len);
	if (name[0] == '@')
		sun.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&sun,
	    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (name[0] == '/'))) < 0)
		return -errno;
	return take_fd(&fd);
}

/* Two thirds of what the manager allows, in ms: each time is a wake-up of an idle device. 0 = no watchdog, or not for this process. */
static int64_t
watchdog_period(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t us;
	uint32_t want;

	if (usec == NULL || parse_u64(usec, 3000, UINT64_MAX / 2, &us) < 0)
		return 0;
	if (pid != NULL && (parse_u32(pid, 1, INT32_MAX, &want) < 0 || (pid_t)want != getpid()))
		return 0;
	return (int64_t)(us / 3000 * 2);
}

static void
feed(struct loop_timer *timer)
{
	struct notify *notify = timer->ctx;

	notify_send(notify, "WATCHDOG=1");
	loop_timer_set_ms(notify->loop, timer, notify->period_ms);
}

int
notify_init(struct notify *notify, struct loop *loop)
{
	const char *name = getenv("NOTIFY_SOCKET");

	*notify = (struct notify){ .fd = -1, .loop = loop };
	loop_timer_init(&notify->watchdog, feed, notify);
	if (name != NULL)
		notify->fd = open_socket(name);
	if (notify->fd >= 0) {
		notify->period_ms = watchdog_period();
		if (notify->period_ms > 0)
			loop_timer_set_ms(loop, &notify->watchdog, 0);
	}
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	return name != NULL && notify->fd < 0 ? notify->fd : 0;
}

void
notify_send(const struct notify *notify, const char *text)
{
	ssize_t n;

	if (notify->fd < 0)
		return;
	do
		n = send(notify->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
}

void
notify_done(struct notify *notify)
{
	loop_timer_del(notify->loop, &notify->watchdog);
	if (notify->fd >= 0)
		close(notify->fd);
	notify->fd = -1;
}
