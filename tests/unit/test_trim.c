/* What trim_memory() gives back, and that nothing is lost by it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/trim.h"
#include "tests/unit/unit.h"

/* Pages of files that are mapped into us. */
static long
file_pages(void)
{
	long size, resident, shared = -1;
	FILE *f = fopen("/proc/self/statm", "re");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%ld %ld %ld", &size, &resident, &shared), 3);
	fclose(f);
	return shared;
}

static void
pages_go_and_come_back(void **state)
{
	static const char constant[4096] = "still here";
	static char variable[4096] = "and this";
	char *heap = strdup("and that");
	long before = file_pages();

	trim_memory();
	assert_true(file_pages() < before);
	assert_string_equal(constant, "still here");
	assert_string_equal(variable, "and this");
	assert_string_equal(heap, "and that");
	free(heap);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(pages_go_and_come_back) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
