/*
 * Attach sessions (proto/ipc/attach.h): the table of them, and who looks on.
 *
 * Opening, in this order: policy, workload, limits; the process is asked for; it answers with its ends, the session counts as open, whoever
 * asked is answered; only then a byte is moved. A session ends with its program, its workload, an order, or a time: no byte either way for
 * [attach] idle, or no operator for [attach] keep.
 */
#ifndef EDGEWARD_WORKERD_ATTACH_H
#define EDGEWARD_WORKERD_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ipc.h"
#include "common/loop.h"
#include "proto/ipc/attach.h"
#include "proto/ipc/outcome.h"
#include "workerd/redact.h"

#define ATTACH_TOTAL_MAX	64u	/* whatever policy.conf says */
#define ATTACH_VIEWERS_MAX	8u	/* of one session */
#define ATTACH_INPUT_ROOM	16384u	/* bytes on their way to the program */

struct workerd;
struct workload;
struct control_client;
struct attach;

enum attach_state { ATTACH_OPENING, ATTACH_OPEN, ATTACH_ENDED };

/* Output or errors of the program, or its terminal. */
struct attach_source {
	struct attach *a;
	struct loop_io io;		/* fd -1 = at its end */
	uint8_t *raw;			/* with secrets to look for: [0, len) was read and is not judged */
	size_t len, size;
	struct redact_scan scan;
	bool held;			/* something of it is held back */
	bool drained;			/* it had no more, and is watched: nothing to read until the loop says so */
};

struct attach_viewer {
	struct attach_viewer *next;
	struct attach *a;
	struct control_client *client;	/* NULL: connectd */
	uint32_t id;
	struct loop_io io;		/* its socket */
	uint64_t cursor;		/* next byte it gets */
	bool drives;			/* its input counts, and what it does not take is waited for */
	bool input_over;
};

struct attach {
	struct attach *next;
	struct workerd *w;
	struct workload *wl;		/* NULL: it has ended */
	enum attach_state state;
	bool local;			/* of an operator of this device; else of the hub */
	bool closing;			/* the holder was told to hang up */
	uint32_t flags;			/* ATTACH_* */
	uint16_t rows, cols;
	char session[ATTACH_ID_SIZE], handle[72], who[64];
	struct control_client *asker;	/* while opening; NULL: connectd */
	uint32_t asker_id;		/* 0 = gone */
	struct ipc_chan chan;		/* to the process that holds it */
	struct attach_source src[2];
	struct loop_io input;		/* fd -1 = no more */
	uint8_t in[ATTACH_INPUT_ROOM];
	size_t in_len;
	bool in_end;			/* nothing comes behind in */
	uint64_t taken, dropped;
	uint8_t *ring;			/* byte x at x % cap */
	uint64_t cap, head, tail;	/* [tail, head) is there */
	struct attach_viewer *viewers;
	unsigned nviewers;
	monotime_t active, since;
	int64_t gone_since;		/* ns; nobody is before it; 0 = somebody is */
	int32_t exit_code;
	char reason[80];		/* once it is known that it ends */
	struct loop_timer timer, quiet;
};

struct attaches {
	struct attach *list;
	unsigned n;
	uint32_t last_viewer, last_session;
	uint64_t opened, refused;	/* since start */
};

/* Handlers of workchan.c and control.c. */
int attach_on_open(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int attach_on_size(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int attach_on_close(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* connectd's channel is gone, with whoever waits for an answer; an operator's client; the workload, before its secrets are forgotten. */
void attach_work_down(struct workerd *w);
void attach_client_gone(struct workerd *w, const struct control_client *client);
void attach_workload_ended(struct workload *wl);
/* Other values are to be looked for in what the workload prints. */
void attach_secrets_changed(const struct workload *wl);
/* At workerd's own end, while those who look on can still be told. */
void attach_done(struct workerd *w);

/* ---- between attach.c, attachopen.c and attachio.c ---- */

/* attachopen.c. Who asks: client, or connectd if it is NULL. */
void attach_answer(struct workerd *w, struct control_client *client, uint32_t id, const struct attach_answer *ans, int fd);
/* One that is opening comes to nothing: whoever asked is told, and it is freed. */
void attach_fail(struct attach *a, enum work_refusal why, const char *error);
/* The holder has made it: takes what came with the record. -errno: the channel is to end. */
int attach_made(struct attach *a, struct ipc_msg *msg);

/* attach.c */
/* Somebody more before it, from offset from on. The other end of his socket, or -errno. */
int attach_join(struct attach *a, struct control_client *client, bool drives, uint64_t from, struct attach_viewer **ret_viewer);
/* Ends it, the reason is told; once. */
void attach_close(struct attach *a, const char *reason);
/* The program and all it had is gone: what is left of its output goes out, then each viewer is told. */
void attach_over(struct attach *a, int32_t exit_code, const char *reason);
void attach_free(struct attach *a);
/* A viewer who has left, or is sent away. told: with an end. */
void attach_leave(struct attach_viewer *v, bool told, const char *reason);
void attach_mind(struct attach *a);	/* sets the timer anew */

/* attachio.c */
/* Reads, shows and writes what can be; afterwards a may be gone. */
void attach_pump(struct attach *a);
/* What he sent before he left. */
void attach_last_words(struct attach_viewer *v);
/* Only reads, also what the loop has not told of yet. */
void attach_drain(struct attach *a);
void attach_on_viewer(struct loop_io *io, uint32_t events);
int attach_add_source(struct attach *a, unsigned i, int fd);
int attach_add_input(struct attach *a, int fd);
void attach_drop_source(struct attach_source *src);
void attach_drop_input(struct attach *a);
void attach_io_init(struct attach *a);

#endif
