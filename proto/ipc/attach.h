/*
 * Attach: one more process inside a workload that runs, with a terminal or with pipes, and the operators who look on.
 *
 * connectd (C), or an operator's client on workerd.sock (C as well), asks workerd (W). W keeps the session: the terminal's end, what it has
 * printed lately, who sits before it. The bytes go over a stream socket of their own, both ways, so that no log stands in their way. W has
 * workinit make the process; a process between the two (A, workerd/launcher/attached.c) holds it and what it starts, and talks to W over the
 * session's own channel: when that ends, A ends all of it.
 */
#ifndef EDGEWARD_PROTO_ATTACH_H
#define EDGEWARD_PROTO_ATTACH_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/spec.h"

#define ATTACH_ID_SIZE		128	/* of a session, with its NUL; printable */
#define ATTACH_ARGS_MAX		256u	/* strings of a command */
#define ATTACH_COMMAND_MAX	32768u	/* bytes of an encoded one */
#define ATTACH_TERM_SIZE	64

/* Beside enum work_type and enum ctl_type: the same records on both channels. */
enum attach_type {
	WORK_REQ_ATTACH = 0x0288,	/* C: struct attach_open + 1 fd, a sealed memfd with the command, if the session is to be new */
	WORK_ANS_ATTACH = 0x0289,	/* W: struct attach_answer, and 1 fd unless refused: the bytes */
	WORK_EV_ATTACH_SIZE = 0x028a,	/* C: struct attach_size */
	WORK_EV_ATTACH_CLOSE = 0x028c,	/* C: struct attach_ref; end the session. One that is gone is no error */
	WORK_EV_ATTACH_END = 0x028e,	/* W: struct attach_end; its socket is closed behind the last byte */

	CTL_REQ_ATTACH = 0x0360,
	CTL_ANS_ATTACH = 0x0361,
	CTL_EV_ATTACH_SIZE = 0x0362,
	CTL_EV_ATTACH_CLOSE = 0x0364,
	CTL_EV_ATTACH_END = 0x0366,

	/* To workinit, on its channel. It answers nothing: A does, or the session's channel ends. */
	INIT_REQ_ATTACH = 0x0510,	/* W: struct init_attach + 2 fds: the command, A's end of the session's channel */
	/* The session's channel, without HELLO. */
	INIT_EV_ATTACHED = 0x0512,	/* A: struct init_attached + fds: the terminal; or output, errors and, for INPUT, input */
	INIT_EV_ATTACH_CLOSE = 0x0514,	/* W: empty; hang up, and end what does not go by itself */
	INIT_EV_ATTACH_EXITED = 0x0516,	/* A: struct init_attach_exited; nothing of it is left */
};

#define ATTACH_EXITED	"command exited"	/* the reason of an end that is the command's own (cloop.md 15.10); every other one is for the operator to read */

#define ATTACH_TTY	0x01u		/* a terminal is wanted, or was made */
#define ATTACH_INPUT	0x02u		/* it reads what the operator sends; else /dev/null */
#define ATTACH_RESUME	0x04u		/* the session is there: go on with it, in the place of whoever had it */
#define ATTACH_WATCH	0x08u		/* the session is there: look on */
#define ATTACH_KEEP	0x10u		/* it outlives the operator's link for a while */
#define ATTACH_FLAGS	0x1fu

struct attach_open {
	char session[ATTACH_ID_SIZE];	/* "" = W names it; not with RESUME or WATCH */
	char handle[72];
	char who[64];			/* for the record; may be "" */
	uint32_t flags;
	uint16_t rows, cols;		/* 0 = 24 and 80 */
	uint64_t from;			/* RESUME, WATCH: the first byte of output that is wanted */
};
static_assert(sizeof(struct attach_open) == 280, "wire size");

struct attach_answer {
	uint32_t refusal;		/* enum work_refusal */
	uint32_t viewer;		/* names this operator's end of it from now on */
	uint32_t flags;			/* TTY, INPUT: what it is */
	uint32_t reserved;
	uint64_t from;			/* offset of the first byte that comes */
	uint64_t taken;			/* bytes of input it has taken so far */
	char session[ATTACH_ID_SIZE];
	char error[208];
};
static_assert(sizeof(struct attach_answer) == 368, "wire size");

struct attach_size {
	uint32_t viewer;
	uint16_t rows, cols;
};
static_assert(sizeof(struct attach_size) == 8, "wire size");

struct attach_ref {
	uint32_t viewer;
};
static_assert(sizeof(struct attach_ref) == 4, "wire size");

struct attach_end {
	uint32_t viewer;
	int32_t exit_code;		/* 128 + signal; -1 = not observed */
	uint64_t total;			/* bytes of output in all */
	uint64_t dropped;		/* bytes of input that were not for it */
	char reason[80];
};
static_assert(sizeof(struct attach_end) == 104, "wire size");

struct init_attach {
	uint32_t flags;			/* TTY, INPUT */
	uint16_t rows, cols;
};
static_assert(sizeof(struct init_attach) == 8, "wire size");

struct init_attached {
	uint32_t flags;			/* what was made: TTY, INPUT */
	int32_t error;			/* positive errno: there is no session */
};
static_assert(sizeof(struct init_attached) == 8, "wire size");

struct init_attach_exited {
	int32_t wstatus;
	uint32_t reserved;
};
static_assert(sizeof(struct init_attach_exited) == 8, "wire size");

/* What a session runs. Strings are views into the encoded bytes, not NUL-terminated, without NULs. */
struct attach_command {
	char term[ATTACH_TERM_SIZE];
	uint32_t argc;			/* 0 = a shell */
	struct work_str argv[ATTACH_ARGS_MAX];
};

/* -ENOSPC; -EINVAL for what the other side would refuse. */
int attach_command_encode(const struct attach_command *c, void *buf, size_t size, size_t *ret_len);
/* -EBADMSG: too many, a NUL, an empty program, a TERM of other than letters, digits and +-._ */
int attach_command_decode(struct attach_command *ret_c, const void *data, size_t len);

/* A name of terminals as TERM has it. */
bool attach_term_ok(const char *term);

/* The checks of each receiver. */
bool attach_open_ok(const struct attach_open *o);
bool attach_answer_ok(const struct attach_answer *a);
bool attach_end_ok(const struct attach_end *e);
bool init_attach_ok(const struct init_attach *a);

#endif
