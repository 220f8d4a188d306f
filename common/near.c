#include "common/near.h"

#include <getopt.h>
#include <string.h>

#define LETTERS		20u	/* longer words have no neighbours */
#define STEPS		2u

/* Edit distance: letters put in, left out or changed, and two neighbours swapped. */
static size_t
distance(const char *a, const char *b)
{
	size_t d[LETTERS + 1][LETTERS + 1];
	size_t la = strlen(a), lb = strlen(b);

	if (la > LETTERS || lb > LETTERS)
		return LETTERS;
	for (size_t i = 0; i <= la; i++) {
		for (size_t j = 0; j <= lb; j++) {
			size_t best;

			if (i == 0 || j == 0) {
				d[i][j] = i + j;
				continue;
			}
			best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
			best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[la][lb];
}

/* At most how many steps make a slip: two changes to four letters make another word, two more letters do not. */
static size_t
steps(const char *typed, const char *meant)
{
	size_t len = strlen(typed);

	return len < 5 && strncmp(typed, meant, len) != 0 ? 1 : STEPS;
}

const char *
near_word(const char *word, const char *const *words, size_t n)
{
	const char *near = NULL;
	size_t best = STEPS + 1;

	if (strlen(word) < best)
		best = strlen(word);
	for (size_t i = 0; i < n; i++) {
		size_t d = words[i] != NULL ? distance(word, words[i]) : LETTERS;

		if (d < best && d <= steps(word, words[i])) {
			best = d;
			near = words[i];
		}
	}
	return near;
}

/* Length of the next word of a usage text from *p on, which is moved there; 0 at its end. What has a capital in it is a placeholder. */
static size_t
next_word(const char **p)
{
	static const char part[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
	static const char whole[] = "abcdefghijklmnopqrstuvwxyz0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZ_.";

	while (**p != '\0') {
		size_t len = strspn(*p, whole);

		if (len >= 3 && len < NEAR_SIZE && strspn(*p, part) == len)
			return len;
		*p += len > 0 ? len : 1;
	}
	return 0;
}

/* 0: usage has the word itself; else the steps to the nearest, which is copied, or more than it may be. */
static size_t
nearest(const char *usage, const char *typed, char ret_meant[NEAR_SIZE])
{
	size_t best = STEPS + 1, len;

	for (const char *p = usage; (len = next_word(&p)) > 0; p += len) {
		char word[NEAR_SIZE];
		size_t d;

		memcpy(word, p, len);
		word[len] = '\0';
		/* An option is meant for an option. */
		d = (word[0] == '-') == (typed[0] == '-') ? distance(typed, word) : LETTERS;
		if (d < best && d <= steps(typed, word)) {
			best = d;
			memcpy(ret_meant, word, len + 1);
		}
	}
	return best;
}

bool
near_usage(const char *usage, int argc, char *const *argv, char ret_typed[NEAR_SIZE], char ret_meant[NEAR_SIZE])
{
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
		size_t len = strcspn(argv[i], "="), d;

		if (len < 3 || len >= NEAR_SIZE)
			continue;
		memcpy(ret_typed, argv[i], len);
		ret_typed[len] = '\0';
		d = nearest(usage, ret_typed, ret_meant);
		if (d > 0 && d <= STEPS)
			return true;
	}
	return false;
}

/* Whether usage has the option of len bytes, as a word of its own. */
static bool
has_option(const char *usage, const char *option, size_t len)
{
	static const char part[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

	for (const char *p = usage; (p = strchr(p, '-')) != NULL; p += strspn(p, part))
		if (strspn(p, part) == len && memcmp(p, option, len) == 0)
			return true;
	return false;
}

const char *
near_operand(const char *usage, int argc, char *const *argv)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (argv[i][0] == '-' && argv[i][1] != '\0' && !has_option(usage, argv[i], strcspn(argv[i], "=")))
			return argv[i];
	return NULL;
}

void
near_drop_dashes(int *argc, char ***argv)
{
	if (*argc < 2 || strcmp((*argv)[1], "--") != 0)
		return;
	(*argv)[1] = (*argv)[0];
	(*argc)--;
	(*argv)++;
}

bool
near_take_json(int *argc, char **argv)
{
	bool found = false;
	int n = 1, i;

	for (i = 1; i < *argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "-j") == 0 || strcmp(argv[i], "--json") == 0)
			found = true;
		else
			argv[n++] = argv[i];
	}
	while (i < *argc)
		argv[n++] = argv[i++];
	if (n < *argc)
		argv[n] = NULL;
	*argc = n;
	return found;
}

int
near_option(int argc, char *const *argv, const char *shorts, const struct option *longs, const char **operand)
{
	int opt;

	while ((opt = getopt_long(argc, argv, shorts, longs, NULL)) == -1 && *operand == NULL && optind < argc) {
		bool dashes = strcmp(argv[optind - 1], "--") == 0;

		*operand = argv[optind++];
		if (!dashes)
			continue;
		if (optind < argc && strcmp(argv[optind], "--") == 0)
			optind++;
		break;
	}
	return opt;
}
