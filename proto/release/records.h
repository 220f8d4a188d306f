/*
 * What an upgrade keeps on disk below /var/lib/edgeward/upgrade, and what asks for one. All of it is lines (lines.h) with a schema
 * number in the first one; a reader refuses a number it does not know. privupgrade(8) describes the files.
 */
#ifndef EDGEWARD_PROTO_RECORDS_H
#define EDGEWARD_PROTO_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/release/manifest.h"

#define UPGRADE_RECORD_MAX	16384u	/* bytes of any of these files */
#define UPGRADE_CODE_SIZE	24
#define UPGRADE_ID_SIZE		65
#define UPGRADE_DETAIL_SIZE	200
#define UPGRADE_LINK_SIZE	256	/* target of `current` */
#define UPGRADE_TRIES		3u	/* of one release; then it is bad */
#define UPGRADE_PEER_SIZE	64	/* "192.0.2.1:443", "[2001:db8::1]:443", "-" */
#define UPGRADE_SETTLE_MAX	600u	/* seconds */
#define UPGRADE_SETTLE_MIN	10u	/* unless upgrade.conf says otherwise */
#define UPGRADE_HISTORY_MAX	32u

/* Who asked: told by the place a request was found in, never by what it says. */
enum upgrade_source { UPGRADE_HUB, UPGRADE_OPERATOR };

struct upgrade_request {
	uint64_t sequence;		/* the release it is for */
	char id[UPGRADE_ID_SIZE];	/* handle_ok(): comes back in the report */
	uint64_t settle;		/* seconds; 0 = the device's own */
	bool downgrade;			/* operator: the sequence may be lower */
};

enum upgrade_phase {
	UPGRADE_STAGING,		/* nothing in force has been touched */
	UPGRADE_TRIAL,			/* `current` is, or is about to be, the new release */
	UPGRADE_BACK,			/* decided: the old one again */
	UPGRADE_COMMIT,			/* decided: the new one */
};

struct upgrade_state {
	enum upgrade_phase phase;
	uint64_t attempt;		/* number of this upgrade in the history */
	enum upgrade_source source;
	char id[UPGRADE_ID_SIZE];
	char from[UPGRADE_LINK_SIZE];	/* what `current` was */
	uint64_t from_sequence;		/* 0 = unknown */
	uint64_t sequence;		/* of the new release */
	char version[RELEASE_VERSION_SIZE];
	uint64_t entries;		/* how often the trial was begun; bounded */
	uint64_t settle;
	uint64_t units;			/* which ran before, a bit each: privhelper, connectd, workerd */
	bool connected;			/* there was a session with the hub before */
	char peer[UPGRADE_PEER_SIZE];	/* the address of it; "-" when it went by a proxy */
	char code[UPGRADE_CODE_SIZE];	/* BACK: why; else "none" */
	char detail[UPGRADE_DETAIL_SIZE];
};

enum upgrade_outcome { UPGRADE_OUT_DONE, UPGRADE_OUT_REFUSED, UPGRADE_OUT_BACK, UPGRADE_OUT_FAILED };

struct upgrade_entry {			/* one line of the history */
	uint64_t attempt;
	uint64_t time;			/* seconds since 1970, as the clock was */
	enum upgrade_source source;
	char id[UPGRADE_ID_SIZE];
	enum upgrade_outcome outcome;
	uint64_t from, to;		/* sequences, 0 = unknown */
	char version[RELEASE_VERSION_SIZE];	/* "-" = unknown */
	char code[UPGRADE_CODE_SIZE];	/* stable; "ok" when done */
	char detail[UPGRADE_DETAIL_SIZE];
};

struct upgrade_history {
	unsigned n;			/* oldest first */
	struct upgrade_entry entries[UPGRADE_HISTORY_MAX];
};

struct upgrade_conf {			/* /etc/edgeward/upgrade.conf */
	char channel[RELEASE_WORD_SIZE];
	uint64_t settle, settle_max;	/* seconds */
	uint64_t settle_min;		/* a hub cannot ask for less; an operator may */
};

#define UPGRADE_WORK_MAX	64u

struct upgrade_work {
	char handle[UPGRADE_ID_SIZE];
	uint64_t pid;			/* 0 = it has ended properly */
};

struct upgrade_probe {			/* what `edgectl probe` says of the daemons */
	bool net_up, work_up;		/* connectd, workerd answer */
	bool introduced;		/* they know each other, privhelper and launcher */
	bool connected;			/* there is a session with the hub */
	bool hub_refuses;		/* the hub is there, and refuses us */
	bool reachable;			/* the address that was asked for accepts connections */
	char peer[UPGRADE_PEER_SIZE];	/* of the session, "-" */
	uint64_t protocol;		/* of the session, 0 = none */
	uint64_t net_pid, work_pid;	/* 0 = not up */
	uint64_t active;		/* workloads that run or are about to */
	char cause[UPGRADE_CODE_SIZE + 8];	/* connectd's, "none" */
	unsigned nwork;
	struct upgrade_work work[UPGRADE_WORK_MAX];	/* those that run, and those that have ended and were not lost */
};

/* Each 0 or -EBADMSG; *ret is untouched on failure. */
int upgrade_request_parse(const void *data, size_t len, struct upgrade_request *ret);
int upgrade_state_parse(const void *data, size_t len, struct upgrade_state *ret);
int upgrade_history_parse(const void *data, size_t len, struct upgrade_history *ret);
int upgrade_conf_parse(const void *data, size_t len, struct upgrade_conf *ret);

int upgrade_probe_parse(const void *data, size_t len, struct upgrade_probe *ret);

/* Each writes into buf and returns the length, or -EMSGSIZE. */
int upgrade_request_write(const struct upgrade_request *r, char *buf, size_t size);
int upgrade_state_write(const struct upgrade_state *s, char *buf, size_t size);
int upgrade_history_write(const struct upgrade_history *h, char *buf, size_t size);

int upgrade_probe_write(const struct upgrade_probe *p, char *buf, size_t size);

/* Adds at the end. When it is full the oldest refusal goes, or if there is none the oldest entry: refusals are cheap to cause and must not
 * push out what was done. Full, it still fits into UPGRADE_RECORD_MAX. */
void upgrade_history_add(struct upgrade_history *h, const struct upgrade_entry *e);

/* How often this release was tried without success since it last had any; one that was rolled back counts as UPGRADE_TRIES. */
uint64_t upgrade_history_tries(const struct upgrade_history *h, uint64_t sequence);

/* Number of the next attempt, from 1. */
uint64_t upgrade_history_next(const struct upgrade_history *h);

/* The sequence that was last installed with success, 0 = none. */
uint64_t upgrade_history_floor(const struct upgrade_history *h);

/* How many of the hub's requests were refused one after the other, up to now. */
unsigned upgrade_history_refusals(const struct upgrade_history *h);

/* What a request's time to settle comes to on this device: settle 0 = the device's own; a hub gets at least settle_min, nobody more than
 * settle_max. */
uint64_t upgrade_settle(const struct upgrade_conf *conf, enum upgrade_source source, uint64_t settle);

/* The one line "VERSION SEQUENCE" beside a packaged release. */
int upgrade_packaged_parse(const void *data, size_t len, char version[RELEASE_VERSION_SIZE], uint64_t *ret_sequence);

/* An address with a port in numbers, or "-". */
bool upgrade_peer_ok(const char *s);

/* Makes any text fit to be a detail: printable, no space at an end, not empty. */
void upgrade_detail(char detail[UPGRADE_DETAIL_SIZE], const char *text);

const char *upgrade_outcome_name(enum upgrade_outcome outcome);	/* "done", "refused", "rolled-back", "failed" */
const char *upgrade_source_name(enum upgrade_source source);	/* "hub", "operator" */
const char *upgrade_phase_name(enum upgrade_phase phase);	/* "staging", "trial", "back", "commit" */

#endif
