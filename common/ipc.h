/*
 * Moves the records of proto/ipc/ipc.h: one struct ipc_chan is one AF_UNIX SOCK_SEQPACKET socket in an event loop.
 *
 * A record that does not pass ipc_check() or fits no row ends the channel, as does a handler that returns < 0. The end
 * is told exactly once, by ended(), from the loop and never from inside a send. Descriptors that came with a record are
 * closed after the handler unless it took them. Sends never block: what the socket does not take is queued, up to
 * queue_max bytes.
 */
#ifndef EDGEWARD_IPC_H
#define EDGEWARD_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common/closer.h"
#include "common/loop.h"
#include "proto/ipc/ipc.h"

struct ipc_queued;

struct ipc_conf {
	const struct ipc_rule *rules;
	size_t nrules;
	size_t max_payload;	/* IPC_MAX_* of the channel */
	size_t queue_max;	/* bytes that may wait in the send queue */
	void *ctx;		/* given to every handler and callback */
	bool no_fds;		/* a record with descriptors is refused before one of them is ours, and so needs no close() */
	struct closer *closer;	/* closes those that nobody took; NULL: the channel does */
	/* err: 0 = the peer closed, else -errno. The channel is already off the loop; call ipc_chan_done(). */
	void (*ended)(struct ipc_chan *chan, int err, void *ctx);
	/* May be NULL: the queue has become empty after a send that had to wait. */
	void (*writable)(struct ipc_chan *chan, void *ctx);
	/*
	 * May be NULL: where the next record's payload shall be received, at least max_payload bytes; NULL from it means
	 * the channel's own buffer. Lets bulk land in its final place.
	 */
	uint8_t *(*rx_buffer)(struct ipc_chan *chan, void *ctx);
	/* May be NULL: what rx_buffer gave was not used, there was no record or none that passed the checks. */
	void (*rx_unused)(struct ipc_chan *chan, void *ctx);
};

struct ipc_chan {
	struct loop_io io;
	struct loop *loop;
	const struct ipc_conf *conf;
	unsigned state;		/* IPC_ST_*; a handler moves it */
	uint8_t *buf;		/* max_payload bytes */
	struct ipc_queued *head, *tail;
	size_t queued;		/* bytes in the queue */
	uint32_t next_id;
	bool want_writable;
	bool paused;		/* nothing is received */
	bool lone;		/* the last turn brought one record: no look for a second, epoll says when there is more */
	uint64_t last_turn;	/* of the loop, in which this channel was readable */
	bool *gone;		/* set by ipc_chan_done() while a handler runs */
	struct ucred peer;	/* of the process that made the socket, SO_PEERCRED */
};

/* Takes fd over, makes it non-blocking. conf must outlive the channel. State starts as IPC_ST_HELLO. */
int ipc_chan_init(struct ipc_chan *chan, struct loop *loop, int fd, const struct ipc_conf *conf);

/* Closes, frees the queue. Safe from inside a handler and on a zeroed or finished channel. */
void ipc_chan_done(struct ipc_chan *chan);

bool ipc_chan_is_open(const struct ipc_chan *chan);

/*
 * Stops receiving, also in the middle of a turn, or goes on. For bulk whose consumer is full; sending goes on. When the
 * peer goes away in the meantime the channel ends at once, and what had not been read is lost.
 */
void ipc_chan_pause(struct ipc_chan *chan, bool paused);

/*
 * Sends or queues one record. fds stay the caller's (they are duplicated into the queue when it must wait). 0, or
 * -ENOBUFS (queue full), -EPIPE and other -errno of sendmsg: the channel is then as good as ended.
 */
int ipc_send(struct ipc_chan *chan, uint16_t type, const void *data, size_t len);
int ipc_send_fds(struct ipc_chan *chan, const struct ipc_hdr *hdr, const void *data, size_t len, const int *fds,
    unsigned nfds);

/* A request: a fresh id, never 0, goes to *ret_id. */
int ipc_request(struct ipc_chan *chan, uint16_t type, const void *data, size_t len, const int *fds, unsigned nfds,
    uint32_t *ret_id);

/* Answers a request: type + 1 and its id. status 0 or -errno. */
int ipc_answer(struct ipc_chan *chan, const struct ipc_hdr *req, int status, const void *data, size_t len);

/* The same; with status 0 a descriptor goes along. */
int ipc_answer_fd(struct ipc_chan *chan, const struct ipc_hdr *req, int status, const void *data, size_t len, int fd);

/*
 * Sends a record now or not at all: -EAGAIN when it would have to wait; writable() is then called once when it may be
 * tried again. For bulk, which stays where it is until the peer can take it. At most 3 parts.
 */
int ipc_try_sendv(struct ipc_chan *chan, uint16_t type, const struct iovec *iov, unsigned niov);

/* HELLO with our role and build. */
int ipc_send_hello(struct ipc_chan *chan, enum ipc_role role, uint64_t have_work);

/* The body of a handler for HELLO: checks the role and strings, opens the channel. *ret_hello may be NULL. */
int ipc_take_hello(struct ipc_chan *chan, const struct ipc_msg *msg, enum ipc_role role, struct ipc_hello *ret_hello);

/* Takes descriptor i out of a message: the caller owns it now. */
int ipc_take_fd(struct ipc_msg *msg, unsigned i);

/* A socketpair, SEQPACKET, close-on-exec, non-blocking. Buffers as large as size where the kernel permits;
 * *ret_size (may be NULL) is what it gave. */
int ipc_pair(int size, int ret_fds[2], int *ret_size);

/* A random number for a new pair that is neither of these, nor 0. 0: there are no random numbers. */
uint64_t ipc_pair_id(uint64_t a, uint64_t b);

/* Connects to a named socket, or accepts from a listener. Descriptor or -errno. */
int ipc_connect(const char *path);
int ipc_accept(int listener);
/* And who made the socket at the other end. */
int ipc_accept_from(int listener, struct ucred *ret_peer);

#endif
