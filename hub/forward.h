/*
 * What is forwarded from this machine to a device: a socket the CLI handed over, joined to a stream of the device's session. It lives as
 * long as the CLI that asked, the session, the far end of the socket and what the device made of it do; whatever ends, ends the others.
 * What the bytes are is known to the two ends, not to this hub. usb.c and l2.c are its kinds.
 */
#ifndef EDGEWARD_HUB_FORWARD_H
#define EDGEWARD_HUB_FORWARD_H

#include "hub/client.h"
#include "hub/streams.h"

#define FORWARDS_MAX	64u	/* of one kind */

/* A session on which something is forwarded ends after this time of silence: the far end gets back what is its own. */
#define FORWARD_SILENCE_MS	28000

struct hub_forward;

struct hub_forward_kind {
	enum mux_class class;
	const char *name;		/* "kind" of device_open */
	const char *what, *many;	/* "segment", "segments" */
	const char *ended;		/* the reason when the socket's far end closes it */
	bool early;			/* bytes go before the device has answered device_open */
	/* The device has opened it: answers the client's request. c is NULL when it is gone. */
	void (*opened)(struct hub_forward *f, struct client *c, const struct json *payload);
	/*
	 * Where bytes of the stream are not what the descriptor carries; NULL: read(2) and write(2). -1 with errno: EAGAIN, or the end. more: it is
	 * worth another call at once. After EAGAIN of write, mux_resume() is the kind's to call.
	 */
	ssize_t (*read)(struct hub_forward *f, uint8_t *buf, size_t max, bool *ret_more);
	ssize_t (*write)(struct hub_forward *f, const uint8_t *data, size_t len);
	/* It is over, and the client knows of it: tell it why. */
	void (*over)(struct hub_forward *f, struct client *c, const char *why);
};

struct hub_forward {
	struct hub_stream st;		/* first */
	struct hub_forward *next;
	const struct hub_forward_kind *kind;
	struct hub *hub;
	struct session *session;
	uint64_t client;		/* its serial */
	struct ipc_hdr asked;		/* the client's request; id 0 = answered */
	int fd;				/* the socket's or the TAP's */
	struct loop_io io;		/* ... while it is watched */
	bool readable;			/* it has what was not read yet */
	char device[DEVICE_ID_SIZE], id[32];
	uint64_t in, out;		/* bytes from the socket, to it */
};

/*
 * What msg, a request with one descriptor, asks for: the forward, of size bytes, and its device_open begun in w, to which the kind adds its
 * fields before forward_send(). NULL: the client was told why not; ret_r is what its handler returns.
 */
struct hub_forward *forward_begin(struct client *client, struct ipc_msg *msg, const struct hub_forward_kind *kind, size_t size,
    const char *device, const char *id, struct json_w *w, int *ret_r);
void forward_send(struct hub_forward *f, struct json_w *w);

/* What a kind without read() and write() does; what is not taken is asked for again when there is room. */
ssize_t forward_read(struct hub_forward *f, uint8_t *buf, size_t max, bool *ret_more);
ssize_t forward_write(struct hub_forward *f, const uint8_t *data, size_t len);

/* Another descriptor in the place of the one it has, which is closed. 0 or -errno: fd is still the caller's. */
int forward_replace(struct hub_forward *f, int fd);

/* The client it belongs to, NULL when it is gone. */
struct client *forward_client(const struct hub_forward *f);

/* A client has ended: what it forwards ends with it. */
void forward_client_gone(struct hub *hub, uint64_t serial);

/* True while something is forwarded on this session: then silence counts sooner. */
bool forward_any(const struct session *s);

#endif
