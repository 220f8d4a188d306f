/* What each side may say to privhelper: one table a side. */
#ifndef EDGEWARD_PRIVHELPER_RULES_H
#define EDGEWARD_PRIVHELPER_RULES_H

#include "privhelper/introduce.h"

struct priv_table {
	const struct ipc_rule *rules;
	size_t n;
};

/* Indexed by enum side. */
extern const struct priv_table priv_tables[TABLES];

#endif
