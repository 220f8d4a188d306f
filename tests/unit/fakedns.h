/* A name server in the test's own loop: holds questions back, answers them with addresses or with an error. */
#ifndef EDGEWARD_FAKEDNS_H
#define EDGEWARD_FAKEDNS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/loop.h"

#define FAKEDNS_HELD	16u
#define FAKEDNS_SILENT	(-1)

struct fakedns_question {
	uint8_t packet[512];
	size_t len;
	struct sockaddr_in from;
	bool v6;
};

struct fakedns {
	struct loop *loop;
	struct loop_io io;
	char server[32];		/* for dns_set_server() */
	/* Per family, [0] = A, [1] = AAAA: FAKEDNS_SILENT or the rcode; with 0 the addresses are given. */
	int rcode[2];
	unsigned n4, n6;		/* addresses to give: 127.0.0.1, 127.0.0.2, ... and ::1 */
	unsigned questions[2];
	struct fakedns_question held[FAKEDNS_HELD];
	unsigned nheld;
};

void fakedns_init(struct fakedns *dns, struct loop *loop);
void fakedns_done(struct fakedns *dns);

/* Answers everything held with the rcodes as they are now; what is silent stays. */
void fakedns_release(struct fakedns *dns);

#endif
