/* "did you mean": what is near, what is not, and whatever somebody may type. */
#include "common/near.h"
#include "tests/unit/unit.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char *const words[] = { "status", "signal", NULL, "logs", "drain", "undrain", "create" };

static const char *
near(const char *word)
{
	return near_word(word, words, sizeof(words) / sizeof(words[0]));
}

static void
one_or_two_steps(void **state)
{
	(void)state;
	assert_string_equal(near("stauts"), "status");
	assert_string_equal(near("statsu"), "status");
	assert_string_equal(near("log"), "logs");
	assert_string_equal(near("stat"), "status");
	assert_string_equal(near("creat"), "create");
	assert_string_equal(near("udrain"), "drain");	/* as near as undrain, and the first */
	assert_string_equal(near("status"), "status");
}

static void
nothing_is_near(void **state)
{
	char longer[300];

	(void)state;
	assert_null(near(""));
	assert_null(near("x"));
	assert_null(near("zz"));
	assert_null(near("teleport"));
	assert_null(near("main"));		/* drain, by two of its four letters */
	memset(longer, 'a', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	assert_null(near(longer));
	assert_null(near_word("status", words, 0));
}

static const char usage[] = "usage: x token create [--name NAME] [--ttl DURATION] | token list | token revoke ID\n";

static bool
near2(const char *a, const char *b, const char *c)
{
	static char typed[NEAR_SIZE], meant[NEAR_SIZE];
	char *argv[] = { (char *)a, (char *)b, NULL };

	return near_usage(usage, b != NULL ? 2 : 1, argv, typed, meant) && strcmp(meant, c) == 0;
}

static void
words_of_a_usage(void **state)
{
	(void)state;
	assert_true(near2("token", "creat", "create"));
	assert_true(near2("create", "--nmae=press", "--name"));
	assert_true(near2("lsit", NULL, "list"));
	assert_false(near2("create", "--name", ""));
	assert_false(near2("create", "NAME", ""));	/* a placeholder is no word, and nothing is near it */
	assert_false(near2("--", "creat", "create"));	/* what belongs to somebody else */
	assert_false(near2("a-word-that-is-much-too-long-for-it", "", ""));
}

static void
operands_that_begin_like_options(void **state)
{
	static const char line[] = "HANDLE [-f] [--from OFFSET] [--watch[=SESSION]]";
	char *const argv[] = { "-", "x", "-f", "--from", "3", "--watch=s", "-_G4Qm2", "--", "-a" };

	(void)state;
	assert_string_equal(near_operand(line, 9, argv), "-_G4Qm2");
	assert_null(near_operand(line, 6, argv));
	assert_null(near_operand(line, 2, argv + 7));
	assert_string_equal(near_operand("", 1, argv + 2), "-f");
	assert_string_equal(near_operand(line, 1, (char *[]){ "--fro" }), "--fro");
}

static void
dashes_in_front_of_operands(void **state)
{
	char *with[] = { "signal", "--", "-x", NULL }, *without[] = { "signal", "-x", "--", NULL };
	char **argv = with;
	int argc = 3;

	(void)state;
	near_drop_dashes(&argc, &argv);
	assert_int_equal(argc, 2);
	assert_string_equal(argv[0], "signal");
	assert_string_equal(argv[1], "-x");
	argv = without;
	argc = 3;
	near_drop_dashes(&argc, &argv);
	assert_int_equal(argc, 3);
	argc = 1;
	near_drop_dashes(&argc, &argv);
	assert_int_equal(argc, 1);
}

static void
json_behind_the_command(void **state)
{
	char *args[] = { "logs", "-j", "verify", "--json", "h", "--", "-j", NULL }, *none[] = { "runs", "-jj", "--", "-j", NULL };
	int argc = 7;

	(void)state;
	assert_true(near_take_json(&argc, args));
	assert_int_equal(argc, 5);
	assert_string_equal(args[1], "verify");
	assert_string_equal(args[2], "h");
	assert_string_equal(args[4], "-j");	/* behind "--" it is an operand */
	assert_null(args[5]);
	argc = 4;
	assert_false(near_take_json(&argc, none));
	assert_int_equal(argc, 4);
	assert_string_equal(none[1], "-jj");
	argc = 1;
	assert_false(near_take_json(&argc, none));
}

/* "operand options | what is to be run" */
static const char *
split(char *const *argv)
{
	static const struct option longs[] = { { "read-only", no_argument, NULL, 'r' }, { "workdir", required_argument, NULL, 'w' }, { 0 } };
	static char text[128];
	const char *operand = NULL;
	int argc = 0, opt, n;
	char options[16] = "";

	while (argv[argc] != NULL)
		argc++;
	optind = 0;
	opterr = 0;
	while ((opt = near_option(argc, argv, "+T", longs, &operand)) != -1)
		options[strlen(options)] = (char)opt;
	n = snprintf(text, sizeof(text), "%s %s |", operand != NULL ? operand : "none", options);
	for (; optind < argc; optind++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, " %s", argv[optind]);
	return text;
}

static void
options_on_both_sides_of_the_operand(void **state)
{
	(void)state;
	assert_string_equal(split((char *[]){ "attach", "h", "-T", "--read-only", "--", "vi", "-T", NULL }), "h Tr | vi -T");
	assert_string_equal(split((char *[]){ "attach", "-T", "h", "--read-only", "--", "vi", "--", NULL }), "h Tr | vi --");
	assert_string_equal(split((char *[]){ "attach", "-T", "--read-only", "h", "--", "-T", NULL }), "h Tr | -T");
	assert_string_equal(split((char *[]){ "attach", "h", "vi", "-T", NULL }), "h  | vi -T");
	assert_string_equal(split((char *[]){ "attach", "--workdir", "w", "h", "-T", NULL }), "h wT |");
	assert_string_equal(split((char *[]){ "attach", "-T", "h", "--frob", "--", "vi", NULL }), "h T? | vi");
	assert_string_equal(split((char *[]){ "attach", "-T", "--", "-h", "--", "vi", NULL }), "-h T | vi");
	assert_string_equal(split((char *[]){ "attach", "--", "-h", "vi", NULL }), "-h  | vi");
	assert_string_equal(split((char *[]){ "attach", "-T", NULL }), "none T |");
	assert_string_equal(split((char *[]){ "attach", "h", "--", NULL }), "h  |");
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(one_or_two_steps), cmocka_unit_test(nothing_is_near),
		cmocka_unit_test(words_of_a_usage), cmocka_unit_test(operands_that_begin_like_options),
		cmocka_unit_test(dashes_in_front_of_operands), cmocka_unit_test(options_on_both_sides_of_the_operand),
		cmocka_unit_test(json_behind_the_command) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
