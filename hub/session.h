/*
 * A device behind one connection. It is born with the upgrade, becomes the device's session with its hello (the older
 * one is closed as "superseded") and is gone with its connection. Whatever acts for a session later names its epoch, so
 * a late clean-up of an old session cannot touch the new one.
 */
#ifndef EDGEWARD_HUB_SESSION_H
#define EDGEWARD_HUB_SESSION_H

#include "hub/conn.h"
#include "hub/frames.h"
#include "proto/hub/mux.h"

#define SESSION_REQUESTS_MAX	1024u

enum request_kind { REQUEST_START, REQUEST_SECRET, REQUEST_SIGNAL, REQUEST_STREAM };

/* Something asked of the device that is not answered yet. */
struct request {
	struct request *next;
	uint32_t id;
	enum request_kind kind;
	char handle[HANDLE_SIZE];
	uint32_t channel;	/* REQUEST_STREAM */
	uint64_t client;	/* who waits for it (client.serial), 0 = nobody */
	uint32_t client_id;
};

struct session {
	struct hub *hub;
	struct session *prev, *next;
	struct conn *conn;
	uint64_t epoch;
	char device[DEVICE_ID_SIZE];
	char name[DEVICE_NAME_SIZE];
	bool edgeward, welcomed, listed, gone;
	bool enrolling;
	char token[TOKEN_ID_SIZE];	/* that was redeemed, when enrolling */
	unsigned version;	/* negotiated */
	int64_t since;		/* wall ns */
	struct mux mux;		/* streams.c */
	struct run *last;	/* of the last binary frame */
	struct request *requests;
	unsigned nrequests;
	uint32_t last_request;
	uint32_t reset[8];	/* channels answered by RESET lately: one is enough */
	unsigned nreset;
	char why[64];		/* it ends, when that is known */
	uint64_t read_again;	/* bundle.c: bytes */
};

/* conn has been upgraded for this device, or by this token (else NULL), for which a credential is to be made. -ENOMEM. */
int session_new(struct conn *conn, const char *device, const char *name, const char *token, bool edgeward);
void session_free(struct session *s);

/* From conn: a message, the end, the deadline (true: the session has dealt with it). */
void session_text(struct session *s, const uint8_t *data, size_t len);
void session_binary(struct session *s, const uint8_t *data, size_t len);
void session_gone(struct session *s);
bool session_deadline(struct session *s);

/* When the last byte came, CLOCK_REALTIME ns. */
int64_t session_heard(const struct session *s);

/* The welcomed session of a device, or NULL. */
struct session *session_find(struct hub *hub, const char *device);
struct session *session_by_epoch(struct hub *hub, uint64_t epoch);

/* Sends what w holds; a message that did not fit is a bug of the caller's bounds and ends the session. */
void session_send(struct session *s, const struct json_w *w);
void session_error(struct session *s, const char *id, const char *handle, const char *code, const char *message);

/* Asks the device to do something; -EBUSY when too much waits. */
int session_start_run(struct session *s, const char *handle, const char *spec, size_t spec_len);
int session_signal_run(struct session *s, const char *handle, const char *signame, uint64_t client, uint32_t client_id);

/* Room for streams: fills the connection's output. True if they have more for it. */
void session_pump(struct session *s);
bool session_has_more(const struct session *s);

/* A request of another kind, whose answer is for the stream of this channel (streams.h). id is what the frame carries. */
int session_request_stream(struct session *s, uint32_t channel, char id[16]);

/* Any other request about a run: payload is JSON. Its answer goes to the client. */
int session_ask(struct session *s, const char *type, const char *handle, const char *payload, size_t len, uint64_t client,
    uint32_t client_id);

/* Tells the device to go, for good unless reconnect. */
void session_bye(struct session *s, const char *reason, unsigned returning);

/* hello and heartbeat (session_hello.c, session_beat.c) */
void session_hello(struct session *s, const struct frame *f);
/* The device says anew what it can. */
void session_store_caps(struct session *s, const struct json *caps);
void session_heartbeat(struct session *s, const struct frame *f);

#endif
