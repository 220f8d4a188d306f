#include "hub/ship.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "hub/run.h"
#include "hub/streams.h"
#include "proto/ipc/file.h"

struct ship {
	struct hub_stream st;		/* first */
	struct ship *next;
	struct hub *hub;
	struct session *s;		/* of the stream, while st is open */
	char handle[HANDLE_SIZE];
	char sha256[FILE_SHA_HEX];
	uint64_t size, at;
	int fd;
};

static struct ship **
find(struct hub *hub, const char *handle)
{
	struct ship **p = &hub->ships;

	while (*p != NULL && strcmp((*p)->handle, handle) != 0)
		p = &(*p)->next;
	return p;
}

void
ship_drop(struct hub *hub, const char *handle)
{
	struct ship **p = find(hub, handle), *ship = *p;

	if (ship == NULL)
		return;
	*p = ship->next;
	mux_reset(&ship->st.chan, STREAM_RESET_GONE, "the run has ended");
	close(ship->fd);
	free(ship);
}

int
ship_new(struct hub *hub, const char *handle, int fd, uint64_t size, const char *sha256)
{
	struct ship *ship;
	unsigned n = 0;

	for (ship = hub->ships; ship != NULL; ship = ship->next)
		n++;
	ship = n < SHIPS_MAX ? calloc(1, sizeof(*ship)) : NULL;
	if (ship == NULL)
		return n < SHIPS_MAX ? -ENOMEM : -ENOSPC;
	ship->hub = hub;
	ship->fd = fd;
	ship->size = size;
	snprintf(ship->handle, sizeof(ship->handle), "%s", handle);
	snprintf(ship->sha256, sizeof(ship->sha256), "%.64s", sha256);
	ship->next = hub->ships;
	hub->ships = ship;
	return 0;
}

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

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct ship *ship = c->ctx;
	char why[300];

	if (ship->s->gone)
		return;		/* it is sent anew in the device's next session */
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

int
ship_start(struct session *s, const char *handle, const char *spec, size_t len)
{
	struct ship *ship = *find(s->hub, handle);
	struct json_w w;
	int r;

	if (ship == NULL)
		return session_start_run(s, handle, spec, len);
	if (ship->st.chan.mux != NULL)
		return 0;	/* on its way */
	ship->s = s;
	ship->at = 0;
	ship->st.opened = opened;
	r = streams_begin(s, &ship->st, &kind, ship, &w, "stream_open", "bundle");
	if (r < 0)
		return r;
	json_w_str(&w, "handle", handle);
	json_w_int(&w, "size", (int64_t)ship->size);
	json_w_str(&w, "sha256", ship->sha256);
	frame_end(&w);
	session_send(s, &w);
	return 0;
}
