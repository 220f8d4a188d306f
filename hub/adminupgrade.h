/* The admin records of upgrades that an operator asks a device for; their types stand in admin.h. */
#ifndef EDGEWARD_HUB_ADMINUPGRADE_H
#define EDGEWARD_HUB_ADMINUPGRADE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define ADMIN_UPGRADE_NO_WAIT	0x1u	/* answer when the device has accepted it */

struct admin_upgrade_req {
	char device[64];
	char target[64];		/* release tag, "latest", "edge:HEX"; with a release its version */
	uint32_t settle;		/* seconds, 0 = the device's own */
	uint32_t flags;
	uint64_t size, sequence;	/* of the release; 0 = it comes from the device's mirror */
	char sha256[72];		/* 64 hexadecimal digits */
};
static_assert(sizeof(struct admin_upgrade_req) == 224, "wire size");

enum admin_upgrade_phase { ADMIN_UPGRADE_SENDING, ADMIN_UPGRADE_SENT, ADMIN_UPGRADE_ACCEPTED, ADMIN_UPGRADE_AWAY, ADMIN_UPGRADE_OVER };

struct admin_upgrade {
	uint32_t phase;
	uint32_t reserved;
	uint64_t done, total;		/* bytes, while it is sent */
	char outcome[24];		/* OVER: installed, already_current, refused, rolled_back; accepted with NO_WAIT */
	char from[64], to[64];
	char text[256];			/* the device's own words */
};
static_assert(sizeof(struct admin_upgrade) == 432, "wire size");

bool admin_upgrade_req_ok(const struct admin_upgrade_req *req);
bool admin_upgrade_ok(const struct admin_upgrade *ev);

#endif
