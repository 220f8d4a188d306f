/* The words of both command lines: what somebody may have meant by one that is none, and where people like to write options. */
#ifndef EDGEWARD_COMMON_NEAR_H
#define EDGEWARD_COMMON_NEAR_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The one of words (n of them; NULLs are passed over) that is nearest to word by letters put in, left out, changed or swapped: at most two such
 * steps, one where word has less than five letters and is no beginning, and fewer than it has letters. NULL when none is. Of equals the first.
 */
const char *near_word(const char *word, const char *const *words, size_t n);

#define NEAR_SIZE	24u

/*
 * The first of argv that is no word of usage but near to one: what was typed (without a value behind '='), and what may have been meant.
 * Words of usage are its options and its words in small letters of at least three. False when there is none.
 */
bool near_usage(const char *usage, int argc, char *const *argv, char ret_typed[NEAR_SIZE], char ret_meant[NEAR_SIZE]);

/*
 * The first of argv, as far as "--", that begins with '-' and is no option of usage: it may be an operand all the same, as handles of
 * some hubs are, and belongs behind "--" then. NULL when there is none.
 */
const char *near_operand(const char *usage, int argc, char *const *argv);

/* Takes -j and --json from among what follows the name of a command, as far as "--", where people like to write it. Was there one? */
bool near_take_json(int *argc, char **argv);

/* Takes "--" from behind the name of a command that has no options: what follows are operands. */
void near_drop_dashes(int *argc, char ***argv);

struct option;

/*
 * getopt_long() for a command whose first operand stands before, behind or between its options, and who runs what follows: the operand goes to
 * *operand, NULL at first; after -1 argv[optind] is what follows. Only the first word that is no option, or what stands behind "--", is what is
 * to be run: an option never is. shorts begins with '+'.
 */
int near_option(int argc, char *const *argv, const char *shorts, const struct option *longs, const char **operand);

#endif
