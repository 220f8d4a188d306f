#include "hub/ship.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "hub/run.h"
#include "hub/shipfile.h"
#include "hub/streams.h"
#include "proto/ipc/file.h"

#define KEEP_TURN	(1u << 20)	/* bytes copied, of all branches together, before others have their turn */
#define AGAIN_MS	1000		/* a device that was busy is asked again after this */

struct ship {
	struct hub_stream st;		/* first */
	struct ship *next;
	struct hub *hub;
	struct session *s;		/* of the stream, while st is open */
	char handle[HANDLE_SIZE];
	char sha256[FILE_SHA_HEX];
	uint64_t size, at;
	int fd;				/* shipfile.h */
	int from;			/* while it is copied: what the command line gave; else -1 */
	ship_kept_fn *kept;
	void *ctx;
	monotime_t busy;		/* since when the device says that it is; 0 = it does not */
	struct loop_timer timer;	/* the next piece of the copy; or the device is asked again */
};

static void timer_due(struct loop_timer *timer);

static struct ship **
find(struct hub *hub, const char *handle)
{
	struct ship **p = &hub->ships;

	while (*p != NULL && strcmp((*p)->handle, handle) != 0)
		p = &(*p)->next;
	return p;
}

static struct ship *
make(struct hub *hub, const char *handle, int fd, uint64_t size, const char *sha256)
{
	struct ship *ship = calloc(1, sizeof(*ship));

	if (ship == NULL)
		return NULL;
	ship->hub = hub;
	ship->fd = fd;
	ship->from = -1;
	ship->size = size;
	snprintf(ship->handle, sizeof(ship->handle), "%s", handle);
	snprintf(ship->sha256, sizeof(ship->sha256), "%.64s", sha256);
	loop_timer_init(&ship->timer, timer_due, ship);
	ship->next = hub->ships;
	hub->ships = ship;
	return ship;
}

/* ---- the copy ---- */

/* The copy is made, or never will be. */
static void
tell_kept(struct ship *ship, int err)
{
	ship_kept_fn *kept = ship->kept;
	int from = take_fd(&ship->from);

	if (from >= 0)
		close(from);
	ship->at = 0;
	ship->kept = NULL;
	if (kept != NULL)
		kept(ship->hub, ship->handle, err, ship->ctx);
}

void
ship_drop(struct hub *hub, const char *handle)
{
	struct ship **p = find(hub, handle), *ship = *p;

	shipfile_drop(hub, handle);
	if (ship == NULL)
		return;
	*p = ship->next;
	mux_reset(&ship->st.chan, STREAM_RESET_GONE, "the run has ended");
	loop_timer_del(hub->loop, &ship->timer);
	tell_kept(ship, -ECANCELED);
	close(ship->fd);
	free(ship);
}

int
ship_new(struct hub *hub, const char *handle, int from, uint64_t size, const char *sha256, ship_kept_fn *kept, void *ctx)
{
	struct ship *ship;
	int fd;

	ship_drop(hub, handle);
	fd = shipfile_new(hub, handle);
	if (fd < 0)
		return fd;
	ship = make(hub, handle, fd, size, sha256);
	if (ship == NULL) {
		close(fd);
		shipfile_drop(hub, handle);
		return -ENOMEM;
	}
	ship->from = from;
	ship->kept = kept;
	ship->ctx = ctx;
	loop_timer_set(hub->loop, &ship->timer, monotime_now());
	return 0;
}

/* Its part of a turn of the loop, in which each that is being copied has one. */
static uint64_t
share(const struct hub *hub)
{
	unsigned n = 0;

	for (const struct ship *ship = hub->ships; ship != NULL; ship = ship->next)
		n += ship->from >= 0;
	return KEEP_TURN / n;
}

static int
keep_some(struct ship *ship)
{
	static uint8_t buf[64 << 10];
	uint64_t stop = ship->at + share(ship->hub);

	if (stop > ship->size)
		stop = ship->size;
	while (ship->at < stop) {
		size_t len = stop - ship->at < sizeof(buf) ? (size_t)(stop - ship->at) : sizeof(buf);
		ssize_t n = pread(ship->from, buf, len, (off_t)ship->at);
		int r = n == (ssize_t)len ? fd_write_all(ship->fd, buf, len) : n < 0 ? -errno : -EIO;

		if (r < 0)
			return r;
		ship->at += len;
	}
	return 0;
}

static void
keep(struct ship *ship)
{
	int r = keep_some(ship);

	if (r == 0 && ship->at < ship->size)
		loop_timer_set(ship->hub->loop, &ship->timer, monotime_now());
	else
		tell_kept(ship, r);	/* ship may be gone */
}

void
ship_restore(struct hub *hub, const char *handle, const char *spec, size_t len)
{
	char sha256[FILE_SHA_HEX];
	uint64_t size;
	int fd = *find(hub, handle) == NULL ? shipfile_get(hub, handle, spec, len, &size, sha256) : -EEXIST;

	if (fd >= 0 && make(hub, handle, fd, size, sha256) == NULL)
		close(fd);
	else if (fd < 0 && fd != -EEXIST && fd != -ENOENT)
		log_error("run %s: its branch cannot be read: %s", handle, strerror(-fd));
}

/* ---- to the device ---- */

/* The device has all of it: now it can be started. Else there will be no start. ship may be gone afterwards. */
static void
done(struct ship *ship, const char *why)
{
	struct run *run = run_get(ship->hub, ship->handle);
	size_t len = 0;
	char *spec = NULL;

	if (run == NULL)
		return;
	if (why == NULL && run->info.state == RUN_PENDING && (spec = store_run_spec(ship->hub->store, ship->handle, &len)) == NULL)
		why = "its start was lost";
	if (why == NULL && spec != NULL && session_start_run(ship->s, ship->handle, spec, len) < 0)
		why = "the device has too much to answer already";
	free(spec);
	if (why != NULL)
		run_refused(run, "bundle", why);
	else
		run_put(run);
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct ship *ship = c->ctx;
	uint64_t left = ship->size - ship->at;
	size_t len = left < max ? (size_t)left : max;
	ssize_t n = pread(ship->fd, buf, len, (off_t)ship->at);

	if (n != (ssize_t)len)
		return n < 0 ? -errno : -EIO;
	ship->at += len;
	if (ship->at == ship->size)
		mux_end(c, NULL);
	return n;
}

/* False: it has been for too long. */
static bool
wait_turn(struct ship *ship)
{
	monotime_t now = monotime_now();

	if (ship->busy.ns == 0) {
		log_info("run %s: the device has no room for its branch now", ship->handle);
		ship->busy = now;
	}
	if (monotime_diff_ms(now, ship->busy) >= SHIP_BUSY_MS)
		return false;
	loop_timer_set_ms(ship->hub->loop, &ship->timer, AGAIN_MS);
	return true;
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct ship *ship = c->ctx;
	char why[300];

	if (ship->s->gone)
		return;		/* it is sent anew in the device's next session */
	if (code != 0 && strncmp(ship->st.refused, "busy:", 5) == 0 && wait_turn(ship))
		return;
	snprintf(why, sizeof(why), "the branch did not reach the device: %s", ship->st.refused[0] != '\0' ? ship->st.refused : reason);
	done(ship, code == 0 ? NULL : why);
}

static const struct mux_kind kind = { .class = MUX_FILE, .fill = fill, .closed = closed };

static void
opened(struct hub_stream *st, const struct json *payload)
{
	struct ship *ship = (struct ship *)st;
	int64_t offset = 0, window = 0;

	json_get_int(payload, "offset", 0, (int64_t)ship->size, &offset);
	json_get_int(payload, "window", 1, UINT32_MAX, &window);
	ship->at = (uint64_t)offset;
	mux_tx_start(&st->chan, ship->at, (uint64_t)window);
	if (ship->at == ship->size)
		mux_end(&st->chan, NULL);
	else
		mux_want(&st->chan);
}

/* 0, also when it waits for room; -errno. */
static int
ask(struct ship *ship, struct session *s)
{
	struct json_w w;
	int r;

	ship->s = s;
	ship->at = 0;
	ship->st.opened = opened;
	r = streams_begin(s, &ship->st, &kind, ship, &w, "stream_open", "bundle");
	if ((r == -EBUSY || r == -ENOSPC) && wait_turn(ship))
		return 0;
	if (r < 0)
		return r;
	json_w_str(&w, "handle", ship->handle);
	json_w_int(&w, "size", (int64_t)ship->size);
	json_w_str(&w, "sha256", ship->sha256);
	frame_end(&w);
	session_send(s, &w);
	return 0;
}

static void
ask_again(struct ship *ship)
{
	struct run *run = run_get(ship->hub, ship->handle);
	struct session *s = run != NULL ? session_find(ship->hub, run->info.device) : NULL;

	if (run != NULL)
		run_put(run);
	/* Without a session it waits for the next. */
	if (s != NULL && ask(ship, s) < 0)
		done(ship, "the device has too much to answer already");
}

static void
timer_due(struct loop_timer *timer)
{
	struct ship *ship = timer->ctx;

	if (ship->from >= 0)
		keep(ship);
	else
		ask_again(ship);
}

int
ship_start(struct session *s, const char *handle, const char *spec, size_t len)
{
	struct ship *ship = *find(s->hub, handle);

	if (ship == NULL)
		return session_start_run(s, handle, spec, len);
	if (ship->from >= 0 || ship->st.chan.mux != NULL)
		return 0;	/* being copied, or on its way */
	loop_timer_del(s->hub->loop, &ship->timer);
	ship->busy.ns = 0;
	return ask(ship, s);
}
