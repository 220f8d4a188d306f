/* Why a release, or a request for one, is not taken: what privupgrade(8) lists as codes, and a sentence. Whoever refuses fills it in once. */
#ifndef EDGEWARD_PROTO_REFUSAL_H
#define EDGEWARD_PROTO_REFUSAL_H

#include "proto/release/records.h"

struct refusal {
	char code[UPGRADE_CODE_SIZE];		/* stable, documented in privupgrade(8) */
	char detail[UPGRADE_DETAIL_SIZE];	/* as upgrade_detail() leaves it */
};

/* Always -ECANCELED, which is how a function says that it has refused and *why is filled. */
int refuse(struct refusal *why, const char *code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
