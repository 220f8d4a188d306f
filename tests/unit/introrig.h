/*
 * privhelper's introducer, in this process, with raw clients.
 */
#ifndef EDGEWARD_TEST_INTRORIG_H
#define EDGEWARD_TEST_INTRORIG_H

#include "common/cleanup.h"
#include "privhelper/introduce.h"
#include "privhelper/rules.h"
#include "proto/ipc/priv.h"
#include "tests/unit/unit.h"

#define C	SIDE_CONNECTD
#define W	SIDE_WORKERD

/* One daemon as the introducer sees it. */
struct client {
	int fd, work;			/* channel to privhelper, work channel */
	uint64_t pair;
	uint32_t max_data;
	unsigned hellos, peers, gone;
	bool eof;
};

#define NOBODY	{ .fd = -1, .work = -1 }

void pass_time(int64_t ms);
unsigned strikes(void);
void start(uid_t net, uid_t work);
void stop(void);
void settle(void);
int setup(void **state);
int teardown(void **state);
void hang_up(struct client *c);
void die(struct client *c);
void dial(struct client *c);
void put(struct client *c, const struct ipc_hdr *hdr, const void *data, size_t len, const int *fds, unsigned nfds);
void say_hello(struct client *c, uint32_t role, uint64_t have);
void listen_to(struct client *c);
void settle_with(struct client *c, struct client *w);
void come(struct client *c, enum side side, uint64_t have);
void assert_joined(struct client *c, struct client *w);

#endif
