/* proto/ipc/job: what a hub may ask for around a workload, and what of it never gets through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/ipc/job.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define SHA256 COMMIT "89abcdef0123456789abcdef"

static struct work_str
str(const char *s)
{
	return (struct work_str){ s, strlen(s) };
}

static struct work_job
git_job(void)
{
	return (struct work_job){ .workspace = JOB_WORKSPACE_GIT, .back = JOB_BACK_PUSH, .repo = str("https://git.example:8443/a/b.git"),
		.ref = str(COMMIT), .user = str("u"), .password = str("p w"), .branch = str("cloop/x"), .message = str("done\n"),
		.expires_at = 5, .depth = 3, .size_limit = 7, .max_bundle = 9 };
}

static void
survives_the_wire(void **state)
{
	struct work_job in = git_job(), out;
	uint8_t buf[4096];
	size_t len;

	assert_int_equal(job_encode(&in, buf, sizeof(buf), &len), 0);
	assert_int_equal(job_decode(&out, buf, len), 0);
	assert_int_equal(out.workspace, JOB_WORKSPACE_GIT);
	assert_int_equal(out.back, JOB_BACK_PUSH);
	assert_int_equal(out.expires_at, 5);
	assert_int_equal(out.depth, 3);
	assert_memory_equal(out.password.s, "p w", 3);
	assert_int_equal(out.message.len, 5);
	assert_memory_equal(job_base(&out).s, COMMIT, 40);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_not_equal(job_decode(&out, buf, cut), 0);
	assert_int_equal(job_encode(&in, buf, len - 1, &len), -28);
}

static void
repositories(void **state)
{
	static const struct {
		const char *url;
		bool good;
	} rows[] = {
		{ "https://h/r", true }, { "https://h:1/r.git", true }, { "http://h/r", false }, { "ext::sh -c id", false },
		{ "ssh://h/r", false }, { "git://h/r", false }, { "file:///etc", false }, { "/etc", false }, { "-oProxyCommand=x", false },
		{ "https://u:p@h/r", false }, { "https://h/r?a=b", false }, { "https://h/r#f", false }, { "https://h/a b", false },
		{ "https://", false }, { "https:///r", false }, { "https://-x/r", false }, { "https://h/\n", false }, { "HTTPS://h/r", false },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct work_job j = git_job();

		j.repo = str(rows[i].url);
		if ((job_problem(&j) == NULL) != rows[i].good)
			fail_msg("%s: %s", rows[i].url, job_problem(&j) != NULL ? job_problem(&j) : "taken");
	}
}

static void
refs_and_branches(void **state)
{
	static const char *const bad[] = { "-x", "+x", "a..b", "a:b", "a b", "a~1", "a^", "a*", "a\\b", "/a", "a/", "a//b", "a/.b", ".a",
		"a.lock", "a.lock/b", "a.", "a\n", "a$(id)", "@{-1}", "a;b", "a'b" };
	struct work_job j = git_job();

	j.back = JOB_BACK_NONE;
	j.branch = str("");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char branch[64];

		j.ref = str(bad[i]);
		if (job_problem(&j) == NULL)
			fail_msg("ref %s is taken", bad[i]);
		j.ref = str("");
		snprintf(branch, sizeof(branch), "cloop/%s", bad[i]);
		j.branch = str(branch);
		/* A first character that is bad for a name is none behind the prefix. */
		if (bad[i][0] != '-' && bad[i][0] != '+' && job_problem(&j) == NULL)
			fail_msg("branch %s is taken", branch);
		j.branch = str("");
	}
	j.ref = str("refs/heads/feature/x-1");
	assert_null(job_problem(&j));
	j.branch = str("main");
	assert_non_null(job_problem(&j));
	j.branch = str("cloop/");
	assert_non_null(job_problem(&j));
}

static void
write_backs_need_a_commit(void **state)
{
	struct work_job j = git_job();

	j.ref = str("main");
	assert_non_null(job_problem(&j));
	j.ref = str(COMMIT);
	assert_null(job_problem(&j));
	j.branch = str("");
	assert_non_null(job_problem(&j));
	j = (struct work_job){ .back = JOB_BACK_BUNDLE, .branch = str("cloop/x") };
	assert_non_null(job_problem(&j));
}

static void
shipped_branches(void **state)
{
	struct work_job j = { .workspace = JOB_WORKSPACE_BUNDLE, .branch = str("cloop/b"), .head = str(COMMIT), .sha256 = str(SHA256),
		.bundle_bytes = 5, .shallow = str(COMMIT " " COMMIT) };

	assert_null(job_problem(&j));
	j.shallow = str(COMMIT " ");
	assert_non_null(job_problem(&j));
	j.shallow = str(COMMIT COMMIT);
	assert_non_null(job_problem(&j));
	j.shallow = str("");
	j.head = str("0123");
	assert_non_null(job_problem(&j));
	j.head = str(COMMIT);
	j.bundle_bytes = JOB_BUNDLE_MAX + 1;
	assert_non_null(job_problem(&j));
	j.bundle_bytes = 5;
	j.back = JOB_BACK_PUSH;
	assert_non_null(job_problem(&j));
	j.back = JOB_BACK_BUNDLE;
	assert_null(job_problem(&j));
}

static void
credentials_and_seeds(void **state)
{
	struct work_job j = git_job();

	j.password = str("a\r\nX: y");
	assert_non_null(job_problem(&j));
	j = git_job();
	j.user = str("a:b");
	assert_non_null(job_problem(&j));
	j = (struct work_job){ .password = str("p") };
	assert_non_null(job_problem(&j));
	j = (struct work_job){ .seeded = true, .seed = str("PK") };
	assert_non_null(job_problem(&j));
	j.seed = str("\x1f\x8b");
	assert_null(job_problem(&j));
	assert_false(job_is_plain(&j));
	j = (struct work_job){ 0 };
	assert_null(job_problem(&j));
	assert_true(job_is_plain(&j));
}

static void
containers(void **state)
{
	struct work_job in = { .container = true, .engine = JOB_ENGINE_PODMAN, .image = str("a/b@sha256:0"), .runtime = str("crun"),
		.engine_network = str("bridge"), .socket = str("/run/x.sock") }, out;
	uint8_t buf[4096];
	size_t len, plain;

	assert_int_equal(job_encode(&in, buf, sizeof(buf), &len), 0);
	assert_int_equal(job_decode(&out, buf, len), 0);
	assert_true(out.container && out.engine == JOB_ENGINE_PODMAN && container_is(&out.image, "a/b@sha256:0") &&
	    container_is(&out.runtime, "crun") && container_is(&out.engine_network, "bridge") && container_is(&out.socket, "/run/x.sock"));
	assert_false(job_is_plain(&out));
	/* What an older one wrote ends where the container begins, and is none. */
	in = (struct work_job){ 0 };
	assert_int_equal(job_encode(&in, buf, sizeof(buf), &plain), 0);
	assert_true(plain < len && job_decode(&out, buf, plain) == 0 && !out.container);
	in.image = str("a");
	assert_non_null(job_problem(&in));
	in.container = true;
	assert_null(job_problem(&in));
	in.image = str("-a");
	assert_non_null(job_problem(&in));
	in = (struct work_job){ .container = true, .image = str("a"), .socket = str("/a b") };
	assert_non_null(job_problem(&in));
	in = (struct work_job){ .container = true, .image = str("a"), .engine = (enum job_engine)7 };
	assert_non_null(job_problem(&in));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survives_the_wire), cmocka_unit_test(repositories), cmocka_unit_test(refs_and_branches),
		cmocka_unit_test(write_backs_need_a_commit), cmocka_unit_test(shipped_branches),
		cmocka_unit_test(credentials_and_seeds), cmocka_unit_test(containers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
