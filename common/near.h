/* What somebody may have meant by a word that is none: for "did you mean" in both command lines. */
#ifndef EDGEWARD_COMMON_NEAR_H
#define EDGEWARD_COMMON_NEAR_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The one of words (n of them; NULLs are passed over) that is nearest to word by letters put in, left out, changed or swapped: at most two such
 * steps, and fewer than it has letters. NULL when none is. Of equals the first.
 */
const char *near_word(const char *word, const char *const *words, size_t n);

#define NEAR_SIZE	24u

/*
 * The first of argv that is no word of usage but near to one: what was typed (without a value behind '='), and what may have been meant.
 * Words of usage are its options and its words in small letters of at least three. False when there is none.
 */
bool near_usage(const char *usage, int argc, char *const *argv, char ret_typed[NEAR_SIZE], char ret_meant[NEAR_SIZE]);

#endif
