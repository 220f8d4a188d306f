/*
 * What a hub may ask for with the frame upgrade, and whether this device does it: cloop.md section 8.1, in its order. Pure. Nothing in a
 * request names an address, a path, a key or a switch; the device decides by its own configuration.
 */
#ifndef EDGEWARD_CONNECTD_UPTARGET_H
#define EDGEWARD_CONNECTD_UPTARGET_H

#include <stdbool.h>
#include <stdint.h>

#define UPTARGET_SIZE	64
#define UPTARGET_REASON	200

enum uptarget_kind { UPTARGET_LATEST, UPTARGET_TAG, UPTARGET_EDGE };

struct uptarget {
	enum uptarget_kind kind;
	char name[UPTARGET_SIZE];	/* "latest", a version without "v", 7 to 40 hexadecimal digits in lower case */
};

/* Facts about this device. */
struct upfacts {
	bool managed;			/* runs from an installed release */
	bool helper;			/* privupgrade is there, and a place where it tells what became of a request */
	const char *forbidden;		/* the line of policy.conf that says so, or NULL */
	bool edge;			/* the channel of this device */
	bool mirror;			/* one is configured */
	bool staged;			/* or the very release was sent by the hub */
	bool bad;			/* this release has failed here */
	const char *busy;		/* what is under way, or NULL */
	const char *version;
	uint64_t sequence;		/* 0 = unknown */
};

/* latest, a release tag, edge:HEX; blanks around it do not count. -EINVAL. */
int uptarget_parse(const char *text, struct uptarget *ret_target);

/* True: accepted. Else the reason, and whether it is that this release runs already. */
bool uptarget_judge(const struct upfacts *f, const struct uptarget *t, char reason[UPTARGET_REASON], bool *ret_current);

/* Why this device takes no upgrade from a hub at all, NULL = it does: capability remote_upgrade. */
const char *uptarget_issue(const struct upfacts *f);

#endif
