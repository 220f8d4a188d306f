/*
 * Introduces connectd and workerd to each other.
 *
 * Who calls: the two daemons, over the introduce socket. What is trusted: the kernel's word on the caller's uid
 * (SO_PEERCRED) and our own argv; of HELLO only that a daemon lies about its own pair to its own harm. On error: an
 * unknown uid is turned away without a record; a peer that closes is told to the other; a record that fits no row ends
 * its channel, and its role is refused for a time that doubles with each one. The process and the other side go on, so
 * that one daemon that was taken over cannot keep the other from root. A state that cannot be is fatal; the pair between
 * the two lives on without us and the service manager starts us again.
 *
 * A pair is made only when both are here and the ids of the pairs they hold differ or are absent. So a daemon that was
 * restarted, or lost its channel, gets a fresh pair and the other its new end, and a restart of privhelper, after which
 * both come back with the same id, changes nothing.
 */
#include "privhelper/introduce.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "privhelper/rules.h"
#include "privhelper/usb.h"
#include "proto/ipc/priv.h"

#define PAIR_BUFFER	(1 << 20)	/* bytes; the kernel books twice that */
#define QUEUE_MAX	4096
#define OTHER(side)	((side) == SIDE_CONNECTD ? SIDE_WORKERD : SIDE_CONNECTD)
#define DATA_LARGE	65536u		/* bulk a record may carry */
#define DATA_SMALL	32768u		/* the same where the buffer stayed small */

static const char *const names[TABLES] = { "connectd", "workerd", "a daemon" };

/* Takes a live or waiting peer out and tells the other side of a live one. */
static void
drop_peer(struct introducer *in, struct peer *peer)
{
	struct peer *other;

	log_info("%s, pid %d, is gone", names[peer->side], peer->chan.peer.pid);
	ipc_chan_done(&peer->chan);
	if (peer->side == SIDE_EITHER || in->live[peer->side] != peer)
		return;
	in->live[peer->side] = NULL;
	if (peer->side == SIDE_WORKERD)
		usb_asker_gone(in->usb);
	other = in->live[OTHER(peer->side)];
	/* A send that fails needs no answer here: that channel is about to end, too. */
	if (other != NULL)
		ipc_send(&other->chan, PRIV_EV_GONE, NULL, 0);
}

static void
peer_ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct introducer *in = ctx;
	struct peer *peer = (struct peer *)chan;

	if (err < 0)
		log_error("%s, pid %d, broke the protocol: %s; it is refused for %" PRId64 " ms", names[peer->side], chan->peer.pid,
		    strerror(-err), strikes_add(&in->strikes[peer->side]));
	drop_peer(in, peer);
	if (err < 0 && in->usb != NULL)
		USB_REFUSE(in->usb, REFUSED_RECORD + peer->side, names[peer->side], chan, "record result=%s", strerrorname_np(-err));
}

/* first is the side that has just said HELLO: if it is gone already, the other keeps what it has. */
static void
make_pair(struct introducer *in, enum side first)
{
	struct peer *const takers[SIDES] = { in->live[first], in->live[OTHER(first)] };
	struct ipc_hdr hdr = { .type = PRIV_EV_PEER };
	struct priv_peer what = { 0 };
	int fds[SIDES], size, r;

	if (takers[1] == NULL || (takers[0]->pair == takers[1]->pair && takers[0]->pair != 0))
		return;
	what.pair = ipc_pair_id(takers[0]->pair, takers[1]->pair);
	if (what.pair == 0)
		fatal("no random numbers: %s", strerror(errno));
	r = ipc_pair(PAIR_BUFFER, fds, &size);
	if (r < 0)
		fatal("cannot make a work channel: %s", strerror(-r));
	what.max_data = size >= PAIR_BUFFER ? DATA_LARGE : DATA_SMALL;
	for (unsigned i = 0; i < SIDES && r == 0; i++) {
		r = ipc_send_fds(&takers[i]->chan, &hdr, &what, sizeof(what), &fds[i], 1);
		takers[i]->pair = what.pair;
		if (r < 0)	/* it does not read, or has just ended */
			drop_peer(in, takers[i]);
	}
	log_info("new work channel, records of %u KiB: %s", what.max_data / 1024, r == 0 ? "handed out" : strerror(-r));
	close(fds[0]);
	close(fds[1]);
}

int
introduce_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct introducer *in = ctx;
	struct peer *peer = (struct peer *)chan;
	enum side side = peer->side;
	struct ipc_hello hello;

	if (peer == in->live[SIDE_CONNECTD] || peer == in->live[SIDE_WORKERD])
		fatal("a second HELLO got past the table");
	memcpy(&hello, msg->data, sizeof(hello));
	if (side == SIDE_EITHER)
		side = hello.role == IPC_ROLE_WORKERD ? SIDE_WORKERD : SIDE_CONNECTD;
	if (ipc_take_hello(chan, msg, side == SIDE_CONNECTD ? IPC_ROLE_CONNECTD : IPC_ROLE_WORKERD, NULL) < 0)
		return -EPROTO;
	if (strikes_hold(&in->strikes[side])) {	/* where the uid did not tell: see on_connection() */
		ipc_chan_done(chan);
		return 0;
	}
	/* The newest connection is the side; an older one is a process on its way out. */
	if (in->live[side] != NULL)
		ipc_chan_done(&in->live[side]->chan);
	if (side == SIDE_WORKERD)
		usb_asker_gone(in->usb);
	in->live[side] = peer;
	peer->side = side;
	peer->pair = hello.have_work;
	chan->conf = &in->conf[side];
	log_info("%s is here, pid %d", names[side], chan->peer.pid);
	/* If it is gone again, the loop will tell. */
	if (ipc_send_hello(chan, IPC_ROLE_PRIVHELPER, 0) < 0)
		return 0;
	if (side == SIDE_WORKERD && in->usb != NULL)
		usb_asker_here(in->usb);
	make_pair(in, side);
	return 0;
}

/* The next place of this uid that is not a live side's. A connection that sits there without a HELLO has had its time. */
static struct peer *
take_place(struct introducer *in, struct peer *places)
{
	struct peer *p;

	do
		p = &places[in->accepted++ % PEERS_A_UID];
	while (p == in->live[SIDE_CONNECTD] || p == in->live[SIDE_WORKERD]);
	ipc_chan_done(&p->chan);
	return p;
}

static void
on_connection(struct loop_io *io, uint32_t events)
{
	struct introducer *in = io->ctx;
	struct ucred cred;
	_cleanup_close_ int fd = ipc_accept_from(io->fd, &cred);
	struct peer *peer;
	enum side side, places;

	if (fd == -EAGAIN || fd == -ECONNABORTED)
		return;
	if (fd < 0)
		fatal("cannot accept a connection: %s", strerror(-fd));
	if (cred.uid != in->uids[SIDE_CONNECTD] && cred.uid != in->uids[SIDE_WORKERD]) {
		log_warn("uid %u pid %d has no business here", cred.uid, cred.pid);
		return;
	}
	places = cred.uid == in->uids[SIDE_CONNECTD] ? SIDE_CONNECTD : SIDE_WORKERD;
	side = in->uids[SIDE_CONNECTD] == in->uids[SIDE_WORKERD] ? SIDE_EITHER : places;
	if (strikes_hold(&in->strikes[side]))
		return;
	peer = take_place(in, in->peers[places]);
	*peer = (struct peer){ .side = side };
	if (ipc_chan_init(&peer->chan, in->loop, take_fd(&fd), &in->conf[side]) < 0)
		fatal("cannot watch a connection");
}

int
introduce_init(struct introducer *in, struct loop *loop, int listener, uid_t net_uid, uid_t work_uid)
{
	*in = (struct introducer){ .loop = loop, .uids = { net_uid, work_uid } };
	for (unsigned i = 0; i < TABLES; i++)
		in->conf[i] = (struct ipc_conf){ .rules = priv_tables[i].rules, .nrules = priv_tables[i].n,
			.max_payload = IPC_MAX_PRIV, .queue_max = QUEUE_MAX, .ctx = in, .ended = peer_ended, .no_fds = true, .closer = &in->closer };
	return loop_io_add(loop, &in->listen, listener, EPOLLIN, on_connection, in);
}
