/* Server side of the admin socket: one struct client for each connection of the CLI. */
#ifndef EDGEWARD_HUB_CLIENT_H
#define EDGEWARD_HUB_CLIENT_H

#include "common/ipc.h"
#include "hub/admin.h"
#include "hub/run.h"

#define CLIENTS_MAX	256u

struct client {
	struct hub *hub;
	struct client *prev, *next;
	uint64_t serial;
	struct ipc_conf conf;		/* with this client as its context */
	struct ipc_chan chan;
	struct run_watch watch;		/* the log it follows; watch.run NULL = none */
	uint64_t offset;		/* next byte it gets */
	bool wait;
	struct loop_timer pump;		/* next turn: send log */
	struct loop_timer look;		/* at the device of that run */
	uint32_t away;			/* enum admin_presence, as it was told */
	uint8_t *buf;			/* ADMIN_LOG_MAX, while following */
};

/* Accepts from the admin listener. */
void client_accept(struct hub *hub, int listener);
void client_free(struct client *client);

/* Answers a request that had to wait for a device. The client may be gone. status 0 or -errno. */
void client_answer(struct hub *hub, uint64_t serial, uint32_t id, int status, const char *text);

/* The client of this serial, or NULL. */
struct client *client_find(struct hub *hub, uint64_t serial);

/* Answers with a sentence. Returns 0, or -errno when the channel is of no use. */
int client_say(struct client *client, const struct ipc_hdr *req, int status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/*
 * The device that WHAT means: its id, its name, or the beginning of either that no other has; a revoked one by its whole id only. False: the
 * client was told why, and *ret_r is what the handler returns.
 */
bool client_device(struct client *client, const struct ipc_hdr *req, const char *what, struct store_device *ret_device, int *ret_r);
/* Its session; NULL: the client was told that there is none, *ret_r likewise. */
struct session *client_session(struct client *client, const struct ipc_hdr *req, const struct store_device *device, int *ret_r);
/* Says that. */
int client_say_away(struct client *client, const struct ipc_hdr *req, const struct store_device *device);

/* Handlers (client_list.c, client_token.c, client_run.c) */
int client_status(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_token(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_tokens(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_token_revoke(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_devices(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_runs(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_revoke(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_run(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_follow(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_signal(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_upgrade(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);	/* upsend.c */
void client_pump(struct client *client);

/* client_away.c: once; for each run that is followed to its end. */
void client_away_init(struct client *client);
void client_away_follow(struct client *client);

/* The record for one run; run NULL = it is not in memory. */
void client_fill_run(struct hub *hub, const struct run_info *info, const struct run *run, struct admin_run *ret_ev);

#endif
