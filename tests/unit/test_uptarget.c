#include <errno.h>
#include <string.h>

#include "connectd/upjob.h"
#include "connectd/uptarget.h"
#include "proto/release/version.h"
#include "tests/unit/unit.h"

static void
versions_have_an_order(void **state)
{
	static const struct { const char *older, *newer; } t[] = {
		{ "0.1.0", "0.2.0" }, { "0.9", "0.10" }, { "1.0", "1.0.1" }, { "v1.2", "2" }, { "1.2-rc1", "1.2" }, { "1.2~1", "1.2" },
		{ "1.2-rc1", "1.2-rc2" }, { "1.2-rc1", "1.2.1" }, { "9", "99999999999999999999999" }, { "1.2+g1", "1.3+g0" },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		assert_true(release_version_cmp(t[i].older, t[i].newer) < 0);
		assert_true(release_version_cmp(t[i].newer, t[i].older) > 0);
	}
	assert_int_equal(release_version_cmp("1.2", "v1.2.0"), 0);
	assert_int_equal(release_version_cmp("1.02", "1.2"), 0);
	assert_int_equal(release_version_cmp("1.2+gabc", "1.2+gdef"), 0);
	assert_int_equal(release_version_cmp("", ""), 0);
}

static void
targets(void **state)
{
	static const char *const bad[] = { "", "  ", "dev", "v", "edge:", "edge:123456", "edge:1234567x", "https://x/y", "1/2", "../1", "1 2", "latest2",
		"edge:12345678901234567890123456789012345678901" };
	struct uptarget t;

	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(uptarget_parse(bad[i], &t), -EINVAL);
	assert_int_equal(uptarget_parse(" v0.2.0\n", &t), 0);
	assert_true(t.kind == UPTARGET_TAG && strcmp(t.name, "0.2.0") == 0);
	assert_int_equal(uptarget_parse("latest", &t), 0);
	assert_true(t.kind == UPTARGET_LATEST && strcmp(t.name, "latest") == 0);
	assert_int_equal(uptarget_parse("edge:ABCDEF0", &t), 0);
	assert_true(t.kind == UPTARGET_EDGE && strcmp(t.name, "abcdef0") == 0);
}

/* Each fact is put right in turn; the reason is always the first that is still wrong. */
static void
the_order_of_reasons(void **state)
{
	struct upfacts f = { .version = "0.2.0+gabcdef0123", .forbidden = "policy.conf:2: upgrade remote = no" };
	char reason[UPTARGET_REASON];
	struct uptarget edge, tag, current, older;
	bool now;

	uptarget_parse("edge:abcdef0", &edge);
	uptarget_parse("0.3.0", &tag);
	uptarget_parse("0.2.0+gabcdef0123", &current);
	uptarget_parse("0.1.9", &older);
	assert_false(uptarget_judge(&f, &edge, reason, &now));
	assert_non_null(strstr(reason, "installed release"));
	f.managed = true;
	assert_false(uptarget_judge(&f, &edge, reason, &now));
	assert_non_null(strstr(reason, "stable channel"));
	assert_false(uptarget_judge(&f, &tag, reason, &now));
	assert_non_null(strstr(reason, "privupgrade"));
	f.helper = true;
	assert_false(uptarget_judge(&f, &tag, reason, &now));
	assert_string_equal(reason, "policy.conf:2: upgrade remote = no");
	assert_non_null(uptarget_issue(&f));
	f.forbidden = NULL;
	assert_false(uptarget_judge(&f, &tag, reason, &now));
	assert_non_null(strstr(reason, "mirror"));
	f.mirror = true;
	assert_null(uptarget_issue(&f));
	assert_true(uptarget_judge(&f, &tag, reason, &now));
	assert_string_equal(reason, "");
	f.edge = true;
	assert_false(uptarget_judge(&f, &edge, reason, &now));
	assert_true(now);
	assert_false(uptarget_judge(&f, &current, reason, &now));
	assert_true(now);
	assert_false(uptarget_judge(&f, &older, reason, &now));
	assert_true(!now && strstr(reason, "newer") != NULL);
	f.bad = true;
	assert_false(uptarget_judge(&f, &tag, reason, &now));
	assert_non_null(strstr(reason, "failed"));
	f.bad = false;
	f.busy = "wait";
	assert_false(uptarget_judge(&f, &tag, reason, &now));
	assert_string_equal(reason, "wait");
	/* A release that was sent needs no mirror, and its sequence was judged already. */
	f = (struct upfacts){ .version = "0.2.0", .managed = true, .helper = true, .staged = true };
	assert_true(uptarget_judge(&f, &older, reason, &now));
}

static void
jobs_are_lines(void **state)
{
	struct upjob job = { .phase = UPJOB_FETCH, .id = "up-1", .target = "edge:0123456", .from = "0.1.0", .version = "-", .settle = 600, .tries = 3 };
	struct upjob back;
	char buf[1024];
	int n = upjob_write(&job, buf, sizeof(buf));

	assert_true(n > 0);
	assert_int_equal(upjob_parse(buf, (size_t)n, &back), 0);
	assert_true(back.phase == UPJOB_FETCH && back.tries == 3 && back.settle == 600 && strcmp(back.target, job.target) == 0);
	for (int cut = 0; cut < n; cut++)
		assert_int_equal(upjob_parse(buf, (size_t)cut, &back), -EBADMSG);
	for (int i = 0; i < n; i++) {
		char c = buf[i];

		buf[i] = '\n';
		if (c != '\n')
			assert_int_equal(upjob_parse(buf, (size_t)n, &back), -EBADMSG);
		buf[i] = c;
	}
	assert_int_equal(upjob_write(&job, buf, 20), -EMSGSIZE);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(versions_have_an_order), cmocka_unit_test(targets), cmocka_unit_test(the_order_of_reasons),
		cmocka_unit_test(jobs_are_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
