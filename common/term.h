/*
 * The operator's end of an attach session, for edgehub and edgectl: bytes between the terminal, or whatever stdin and stdout are, and a
 * stream socket.
 *
 * On a terminal: raw mode, the size passed on when it changes, "~." at the beginning of a line to leave, "~^Z" to suspend. The terminal is as
 * it was when term_end() returns, after a signal, and even when this process was killed: a second process, which does nothing else, waits
 * for that. Nothing here logs; where something is said to the operator it is on stderr.
 */
#ifndef EDGEWARD_TERM_H
#define EDGEWARD_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/loop.h"

#define TERM_ROOM	32768u

enum term_state {
	TERM_GOES_ON,
	TERM_LEFT,		/* ~. */
	TERM_OVER,		/* the other end of the socket is closed, and everything was shown */
	TERM_BROKEN,		/* stdout takes nothing any more */
	TERM_SIGNALLED,		/* signo */
};

struct term {
	struct loop *loop;
	const char *name;	/* of the program, for messages */
	void (*resized)(uint16_t rows, uint16_t cols, void *ctx);
	void *ctx;
	enum term_state state;
	int signo;
	/* private */
	int sock, guard;
	bool raw, in_over, file;
	bool line_begin, tilde;	/* of what is typed */
	size_t len;		/* of buf: on its way to the socket */
	struct loop_io in_io, sock_io;
	struct loop_timer again;
	uint8_t buf[2 * TERM_ROOM];
};

/* True if stdin and stdout are a terminal. Its size; 0 where it says nothing. */
bool term_is_tty(void);
void term_size(uint16_t *ret_rows, uint16_t *ret_cols);

/*
 * Begins; sock is taken over. raw: the other end is a terminal, and so are we. input: stdin is read; else only shown. Signals of the loop
 * are handled from here on. -errno.
 */
int term_begin(struct term *t, int sock, bool raw, bool input);

/* Back to normal. crashed: the other end did not end in its own way, so the screen may be in any mode. */
void term_end(struct term *t, bool crashed);

#endif
