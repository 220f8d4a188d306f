/*
 * Which bytes of an output are counted as lost: each once, however often the gap they lie in is told. Ranges of offsets, ascending, none
 * touching the next. When there are too many the two lowest become one: what lies between them is not counted any more, nothing is twice.
 * Kept in a record, so zero is empty, and what an earlier process left is looked at with lostset_ok() first.
 */
#ifndef EDGEWARD_WORKERD_LOSTSET_H
#define EDGEWARD_WORKERD_LOSTSET_H

#include <stdbool.h>
#include <stdint.h>

#define LOSTSET_MAX	16u

struct lostset {
	uint32_t n, reserved;
	struct {
		uint64_t from, to;
	} at[LOSTSET_MAX + 1];		/* the last is room for one more while two become one */
};

bool lostset_ok(const struct lostset *set);

/* Adds [from, to): how many bytes of it were not there. *ret_gaps: by how many ranges they became more, below 0 when it joined some. */
uint64_t lostset_add(struct lostset *set, uint64_t from, uint64_t to, int *ret_gaps);

/* Nobody will ask for what is below offset again. A range that ends there may go on, and stays. */
void lostset_forget(struct lostset *set, uint64_t offset);

#endif
