#include "connectd/race.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "connectd/dns.h"

/*
 * What the kernel may hold beyond what the path has taken. The default is megabytes, behind which a heartbeat would wait
 * for minutes on a slow link; throughput on a fast one is the same.
 */
#define UNSENT_MAX	65536

struct runner {
	struct loop_io io;
	struct race *race;
	union netaddr addr;
	bool begun;
};

struct race {
	struct loop *loop;
	struct loop_timer next;		/* begins the next attempt; also delivers the end */
	struct runner runners[DNS_ADDRS_MAX];
	size_t n;
	unsigned begun, running;
	int last_family;
	bool complete;			/* all addresses are known */
	int err;			/* most telling so far */
	int won;			/* descriptor, or -1 */
	struct runner *winner;
	unsigned user_timeout_ms;
	race_cb cb;
	void *ctx;
};

/* What says most about the other side comes last: an answer, then silence, then our own network. */
static int
rank(int err)
{
	switch (err) {
	case -ECONNREFUSED:
	case -ECONNRESET:
		return 4;
	case -ETIMEDOUT:
		return 3;
	case -EMFILE:
	case -ENFILE:
	case -ENOMEM:
	case -ENOBUFS:
		return 2;
	case 0:
		return 0;
	default:
		return 1;
	}
}

static void
note(struct race *race, int err)
{
	if (rank(err) > rank(race->err))
		race->err = err == -ECONNRESET ? -ECONNREFUSED : err;
}

static void
stop(struct race *race, struct runner *r)
{
	int fd = r->io.fd;

	if (fd < 0)
		return;
	loop_io_del(race->loop, &r->io);
	close(fd);
	race->running--;
}

static void
soon(struct race *race)
{
	loop_timer_set(race->loop, &race->next, (monotime_t){ 0 });
}

static void
connected(struct loop_io *io, uint32_t events)
{
	struct runner *r = io->ctx;
	struct race *race = r->race;
	int err = 0;
	socklen_t len = sizeof(err);

	(void)events;
	if (getsockopt(io->fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		err = errno;
	if (err != 0) {
		stop(race, r);
		note(race, -err);
		soon(race);
		return;
	}
	race->won = io->fd;
	race->winner = r;
	loop_io_del(race->loop, io);
	race->running--;
	for (size_t i = 0; i < race->n; i++)
		stop(race, &race->runners[i]);
	soon(race);
}

static int
begin(struct race *race, struct runner *r)
{
	_cleanup_close_ int fd = socket(r->addr.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1, unsent = UNSENT_MAX, err;

	r->begun = true;
	race->begun++;
	race->last_family = r->addr.sa.sa_family;
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
	    (race->user_timeout_ms > 0 && setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &race->user_timeout_ms,
	    sizeof(race->user_timeout_ms)) < 0))
		return -errno;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
	if (connect(fd, &r->addr.sa, netaddr_len(&r->addr)) < 0 && errno != EINPROGRESS)
		return -errno;
	err = loop_io_add(race->loop, &r->io, fd, EPOLLOUT, connected, r);
	if (err < 0)
		return err;
	take_fd(&fd);
	race->running++;
	return 0;
}

/* The next address, of the other family than the last one if there is one. */
static struct runner *
pick(struct race *race)
{
	struct runner *other = NULL;

	for (size_t i = 0; i < race->n; i++) {
		struct runner *r = &race->runners[i];
		bool v6 = r->addr.sa.sa_family == AF_INET6;

		if (r->begun)
			continue;
		if (race->last_family == 0 ? v6 : r->addr.sa.sa_family != race->last_family)
			return r;
		if (other == NULL)
			other = r;
	}
	return other;
}

static void
next(struct loop_timer *timer)
{
	struct race *race = timer->ctx;
	struct runner *r;

	if (race->won >= 0) {
		race->cb(take_fd(&race->won), &race->winner->addr, race->ctx);
		return;
	}
	while ((r = pick(race)) != NULL) {
		int err = begin(race, r);

		if (err == 0) {
			loop_timer_set_ms(race->loop, &race->next, RACE_STAGGER_MS);
			return;
		}
		note(race, err);
	}
	if (race->complete && race->running == 0)
		race->cb(race->err != 0 ? race->err : -EADDRNOTAVAIL, NULL, race->ctx);
}

int
race_new(struct loop *loop, unsigned user_timeout_ms, race_cb cb, void *ctx, struct race **ret_race)
{
	struct race *race = calloc(1, sizeof(*race));

	if (race == NULL)
		return -ENOMEM;
	race->loop = loop;
	race->won = -1;
	race->user_timeout_ms = user_timeout_ms;
	race->cb = cb;
	race->ctx = ctx;
	loop_timer_init(&race->next, next, race);
	*ret_race = race;
	return 0;
}

void
race_add(struct race *race, const union netaddr *addrs, size_t n, bool last)
{
	for (size_t i = 0; i < n && race->n < DNS_ADDRS_MAX; i++)
		race->runners[race->n++] = (struct runner){ .io.fd = -1, .race = race, .addr = addrs[i] };
	race->complete = race->complete || last;
	/* While a stagger runs, it decides; otherwise there was nothing to do, and now there may be. */
	if (!loop_timer_armed(&race->next))
		soon(race);
}

void
race_free(struct race *race)
{
	if (race == NULL)
		return;
	for (size_t i = 0; i < race->n; i++)
		stop(race, &race->runners[i]);
	if (race->won >= 0)
		close(race->won);
	loop_timer_del(race->loop, &race->next);
	free(race);
}

unsigned
race_attempts(const struct race *race)
{
	return race->begun;
}
