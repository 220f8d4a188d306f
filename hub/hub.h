/*
 * edgehub: the pieces of one server process.
 *
 * conn     one TLS connection: handshake, HTTP upgrade, WebSocket messages, bounded output
 * session  a device behind a conn, from its hello on; the newest of a device wins, each has an epoch
 * run      one workload and its log; in memory while it is open, watched or flushed, else a row of the store
 * client   one connection of the CLI on the admin socket
 *
 * One thread runs all of it. Two helpers (syncer.h) flush and compute digests; nothing else leaves the loop.
 */
#ifndef EDGEWARD_HUB_HUB_H
#define EDGEWARD_HUB_HUB_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/loop.h"
#include "hub/pki.h"
#include "hub/store.h"
#include "hub/syncer.h"

#define HUB_VERSION	1u	/* newest cloop protocol version this hub speaks */
#define HUB_SCRATCH	(HUB_MESSAGE_MAX + 4096u)

struct conn;
struct session;
struct run;
struct client;
struct hub_forward;
struct hub_attach;
struct upsend;

struct hub_counters {
	uint64_t sessions, refused, rx_bytes, tx_bytes, log_bytes;
};

struct hub_pipe;
struct hub_file;
struct bundle;
struct ship;

struct hub {
	struct hub_pipe *pipes;		/* pipe.c */
	unsigned npipes;
	struct hub_attach *attaches;	/* attach.c */
	unsigned nattaches;
	struct hub_file *files;		/* file.c */
	unsigned nfiles;
	struct bundle *bundles;		/* bundle.c */
	struct loop_timer read_begun;	/* of them */
	struct ship *ships;		/* ship.c */
	unsigned nshipfiles;		/* shipfile.c */
	struct loop *loop;
	struct store *store;
	struct syncer *syncer, *digests;
	SSL_CTX *ssl_ctx;
	int datafd, logfd;		/* directories */
	uint8_t key[TOKEN_KEY_LEN];
	char pin[PKI_PIN_SIZE];
	char url[256];			/* for bundles */
	char hosts[PKI_NAMES_MAX][256];	/* names this hub is known by, for the Origin check */
	unsigned nhosts;
	bool cloop_only, nosync;
	struct conn *conns;
	unsigned nconns, conns_max;
	struct session *sessions;
	struct run *runs;
	struct client *clients;
	struct upsend *upsends;		/* upgrades that a client waits for */
	unsigned nclients;
	struct hub_forward *forwards;	/* forward.c */
	uint64_t last_epoch, last_client;
	int64_t started;		/* wall ns */
	struct hub_counters count;
	struct loop_timer scrub;	/* a dropped start leaves the write-ahead log, see run.c */
	uint8_t *scratch;		/* HUB_SCRATCH bytes: the message being built */
};

#endif
