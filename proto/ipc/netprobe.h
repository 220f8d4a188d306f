/*
 * What netprobe found, as edgectl doctor reads it: one record of fixed size on a pipe, between two programs of one build. It has no
 * field for a secret.
 */
#ifndef EDGEWARD_PROTO_NETPROBE_H
#define EDGEWARD_PROTO_NETPROBE_H

#include <assert.h>
#include <stdint.h>

#define NETPROBE_MAGIC	0x6e657431u

/* In the order of an attempt. */
enum netprobe_stage {
	NETPROBE_HUB = 0,		/* address, pins, proxy: understood? */
	NETPROBE_DNS = 1,
	NETPROBE_CONNECT = 2,
	NETPROBE_PROXY = 3,
	NETPROBE_TLS = 4,
	NETPROBE_UPGRADE = 5,
	NETPROBE_DONE = 6,		/* the hub has answered the request, with whatever status */
};

#define NETPROBE_PLAIN		0x1u	/* ws:// */
#define NETPROBE_LOOPBACK	0x2u	/* the hub is on this device */
#define NETPROBE_PROXIED	0x4u
#define NETPROBE_PROXY_AUTH	0x8u	/* the proxy's address has a user */
#define NETPROBE_CRED_HIDDEN	0x10u	/* the credential, and so a pin kept in it, could not be read */
#define NETPROBE_STORED_PIN	0x20u	/* the pins came from the credential */

struct netprobe_report {
	uint32_t magic;
	uint32_t stage;			/* enum netprobe_stage: where it stopped */
	uint32_t http_status;		/* of the hub's answer, 0 = none; in PROXY of the proxy's */
	uint32_t pins;			/* how many the hub's key was compared with */
	uint32_t flags;
	uint32_t reserved;
	int64_t hub_date;		/* the answer's Date in ns since 1970, 0 = none */
	int64_t wall;			/* our clock at that moment */
	char code[32];			/* of a failure: connectd's cause code; else empty */
	char detail[200];
	char hub[272];			/* host:port */
	char proxy[272];		/* host:port, empty = none */
	char peer[128];			/* the address that answered */
};
static_assert(sizeof(struct netprobe_report) == 944, "record size");

#endif
