/* One value of a key file: from text into its field, back into text, and what a good one looks like. */
#ifndef EDGEWARD_KEYVALUE_H
#define EDGEWARD_KEYVALUE_H

#include <stdbool.h>

#include "common/keyfile.h"

bool keyvalue_is_list(const struct key *key);

/* more: adds to a list that has been given before. 0, -EINVAL or -ERANGE; a list may have been changed then. */
int keyvalue_set(const struct key *key, void *target, const char *value, bool more);

void keyvalue_expected(const struct key *key, char *buf, size_t size);

#endif
