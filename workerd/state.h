/*
 * The life of a workload as one table: in every state every event has a written-down result. Pure: no system call, no
 * knowledge of the rest.
 */
#ifndef EDGEWARD_WORKERD_STATE_H
#define EDGEWARD_WORKERD_STATE_H

#include <stdint.h>

enum state {
	ST_ACCEPTED,	/* the launcher has been asked */
	ST_HELD,	/* it has a process, the payload does not run yet */
	ST_RUNNING,
	ST_DRAINING,	/* nothing lives any more, its output is being read */
	ST_ENDED,	/* outcome and output are final; kept until delivered */
	ST_GONE,
	STATES
};

enum event {
	EV_LAUNCHED,	/* launcher: it is held */
	EV_REFUSED,	/* launcher: it is not */
	EV_STARTED,	/* workinit: execve succeeded */
	EV_FAILED,	/* nothing lives and the payload never ran; somebody waits for the answer */
	EV_TREE_GONE,	/* nothing lives */
	EV_DRAINED,	/* its output is complete */
	EV_SIGNAL,	/* INT or TERM was asked for */
	EV_KILL,
	EV_TIMEOUT,
	EV_LIMIT,	/* it has written more than it may */
	EV_DISOWN,	/* the hub does not know it */
	EV_GRACE,	/* the time after a disown is over */
	EV_DELIVERED,	/* the hub has the terminal status */
	EV_NEXT,	/* its output is complete, and its next stage is to be started (stage.h) */
	EV_NO_MORE,	/* a stage after the payload cannot be started */
	EV_UNPREPARED,	/* what had to be there before the payload is not */
	EVENTS
};

#define ACT_CANCEL	0x0001u	/* note: a stop was asked for */
#define ACT_SIGNAL	0x0002u	/* pass the signal to workinit */
#define ACT_KILL	0x0004u	/* the whole tree, by the launcher */
#define ACT_REMEMBER	0x0008u	/* there is nobody to signal yet: keep it for ACT_FLUSH */
#define ACT_FLUSH	0x0010u
#define ACT_MARK_TIMEOUT 0x0020u
#define ACT_MARK_DISOWN	0x0040u	/* note it and start the grace */
#define ACT_RUN		0x0080u	/* note the start, answer who asked for it */
#define ACT_REFUSE	0x0100u	/* answer with the reason */
#define ACT_DRAIN	0x0200u	/* read what is left in the pipe */
#define ACT_FINISH	0x0400u	/* outcome, journal, tell */
#define ACT_FORGET	0x0800u
#define ACT_BAD		0x1000u	/* the launcher cannot have said that */
#define ACT_MARK_LIMIT	0x2000u
#define ACT_LAUNCH	0x4000u	/* ask the launcher for the stage in the record */

struct step {
	uint16_t next;		/* enum state */
	uint16_t actions;	/* ACT_* */
};

struct step state_step(enum state state, enum event event);

#endif
