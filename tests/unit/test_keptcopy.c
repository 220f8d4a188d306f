/* Schema numbers of state files: B71, a number nobody knows; and going back to a release with a lower one. test_state_interrupt.py has the real files. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/keptcopy.h"

static int dir = -1;

static unsigned
of(const uint8_t *data, size_t len)
{
	return schema_number(data, len, "x ");
}

static const struct schema one = { .name = "x", .max = 100, .now = 1, .of = of }, two = { .name = "x", .max = 100, .now = 2, .of = of },
    three = { .name = "x", .max = 100, .now = 3, .of = of };

static void
put(const struct schema *s, const char *text)
{
	assert_int_equal(keptcopy_replace(dir, s, text, strlen(text), 0600), 0);
}

static void
is(const char *name, const char *text)
{
	uint8_t *data = NULL;
	size_t len = 0;
	int r = fd_read_file(dir, name, 100, &data, &len);

	assert_int_equal(r, text == NULL ? -ENOENT : 0);
	if (text != NULL)
		assert_true(len == strlen(text) && memcmp(data, text, len) == 0);
	free(data);
}

static void
test_numbers(void **state)
{
	static const struct { const char *text; unsigned number; } cases[] = {
		{ "x 1\n", 1 }, { "x 2 more", 2 }, { "x 4294967295\n", UINT32_MAX }, { "x 4294967296\n", 0 }, { "x 0\n", 0 }, { "x -1\n", 0 },
		{ "x \n", 0 }, { "x ", 0 }, { "x", 0 }, { "", 0 }, { "y 1\n", 0 }, { "x 1x\n", 0 }, { "x 99999999999999999999\n", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(of((const uint8_t *)cases[i].text, strlen(cases[i].text)), cases[i].number);
}

static void
test_b71_up_and_back(void **state)
{
	put(&one, "x 1\nfirst");
	is("x.schema-1", NULL);			/* nothing is kept of one's own */
	assert_int_equal(keptcopy_restore(dir, &two), 0);
	put(&two, "x 2\nsecond");
	put(&three, "x 3\nthird");
	is("x.schema-1", "x 1\nfirst");
	is("x.schema-2", "x 2\nsecond");
	assert_int_equal(keptcopy_restore(dir, &one), 1);	/* two releases back at once */
	is("x", "x 1\nfirst");
	is("x.schema-3", "x 3\nthird");
	assert_int_equal(keptcopy_restore(dir, &one), 0);
	put(&one, "x 1\nagain");
	assert_int_equal(keptcopy_restore(dir, &three), 0);	/* a lower number is read, not replaced by what was */
	is("x", "x 1\nagain");
	put(&three, "x 3\nonce more");
	is("x.schema-1", "x 1\nagain");		/* the newest */
}

static void
test_b71_nothing_was_kept(void **state)
{
	unlinkat(dir, "x.schema-1", 0);
	unlinkat(dir, "x.schema-3", 0);
	unlinkat(dir, "x.schema-2", 0);
	put(&three, "x 3\nonly");
	assert_int_equal(keptcopy_restore(dir, &two), 0);
	is("x", "x 3\nonly");
	assert_int_equal(fd_replace_file(dir, "x.schema-2", "rubbish", 7, 0600), 0);
	assert_int_equal(keptcopy_restore(dir, &two), 0);	/* a copy that is none */
	is("x", "x 3\nonly");
	put(&one, "x 1\nanew");			/* what is of a later number is not taken for a lower one */
	is("x.schema-3", NULL);
	assert_int_equal(fd_replace_file(dir, "x", "no number", 9, 0600), 0);
	assert_int_equal(keptcopy_restore(dir, &one), 0);
	put(&two, "x 2\nworks");
	is("x", "x 2\nworks");
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_numbers), cmocka_unit_test(test_b71_up_and_back), cmocka_unit_test(test_b71_nothing_was_kept) };
	char path[] = "/tmp/edgeward-keptcopy-XXXXXX";
	int failed;

	if (mkdtemp(path) == NULL || (dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	for (const char *const *n = (const char *const[]){ "x", "x.schema-1", "x.schema-2", "x.schema-3", NULL }; *n != NULL; n++)
		unlinkat(dir, *n, 0);
	rmdir(path);
	return failed;
}
