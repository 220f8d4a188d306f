/* workerd/engine: the command line of a container, word for word, and what never gets into one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "workerd/engine.h"

static struct work_str words[WORK_ARGV_MAX], argv[8], env[WORK_ENV_MAX];
static struct work_net net;
static struct work_job job;
static struct work_spec spec;
static struct engine_wish wish;
static char text[ENGINE_TEXT], line[16384];

static struct work_str
str(const char *s)
{
	return (struct work_str){ s, strlen(s) };
}

static void
begin(void)
{
	job = (struct work_job){ .container = true, .image = str("reg.example:5000/a/b:1"), .engine_network = str("none") };
	spec = (struct work_spec){ .handle = "h-1", .work_dir = "proj", .argv = argv, .env = env, .net = &net, .argc = 2 };
	argv[0] = str("make");
	argv[1] = str("--all; rm -rf /");
	wish = (struct engine_wish){ .id = { 0xabcull, 0x1ull }, .engine = JOB_ENGINE_DOCKER, .top = "/var/lib/edgeward/work/proj", .below = "",
		.uid = 61010, .gid = 61002, .job = &job, .spec = &spec };
}

/* The words with a bar between two; NULL when there is no command line. */
static const char *
made(void)
{
	uint32_t n = 0;
	size_t len = 0;

	if (engine_create(&wish, words, text, &n) < 0)
		return NULL;
	for (uint32_t i = 0; i < n; i++)
		len += (size_t)snprintf(line + len, sizeof(line) - len, "%s%.*s", i > 0 ? "|" : "", (int)words[i].len, words[i].s);
	return line;
}

#define HEAD	"--pull=never|--name|edgeward-0000000000000abc-h-1|"
#define HARD	"--cap-drop=ALL|--security-opt=no-new-privileges|--read-only|--tmpfs|/tmp:rw,nosuid,nodev,exec,size=512m|"
#define TAIL	"--label|edgeward.agent=0000000000000abc|--label|edgeward.instance=0000000000000001|--label|edgeward.handle=h-1|" \
	"--log-driver|none|--mount|type=bind,source=/var/lib/edgeward/work/proj,destination=/workspace|"
#define END	"--|reg.example:5000/a/b:1|make|--all; rm -rf /"

static void
word_for_word(void **state)
{
	begin();
	assert_string_equal(made(), HEAD HARD "--user|61010:61002|--network|none|" TAIL "--workdir|/workspace|" END);
	job.runtime = str("runsc");
	job.engine_network = str("bridge");
	spec.cpu_millis = 1500;
	spec.memory_bytes = 64u << 20;
	spec.pids = 33;
	spec.envc = 3;
	env[0] = str("TOKEN=s3cret\n--privileged");
	env[1] = str("PATH=/bin");
	env[2] = str("_x=");
	wish.below = "a/b";
	assert_string_equal(made(), HEAD "--runtime|runsc|" HARD "--user|61010:61002|--network|bridge|--cpus|1.500|--memory|64m|--memory-swap|64m|"
	    "--pids-limit|33|--env|TOKEN|--env|PATH=/bin|--env|_x|" TAIL "--workdir|/workspace/a/b|" END);
	/* No value of a variable but those of the closed list. */
	assert_null(strstr(line, "s3cret"));
	spec.memory_bytes++;
	assert_non_null(strstr(made(), "|--memory|67108865b|--memory-swap|67108865b|"));
}

static void
an_engine_of_the_runners_own(void **state)
{
	begin();
	wish.engine = JOB_ENGINE_PODMAN;
	wish.keep_id = true;
	assert_non_null(strstr(made(), "|--userns|keep-id|"));
	assert_null(strstr(line, "--user|"));
	job.runtime = str("crun");
	assert_null(made());
}

static void
resolvers_of_a_firewall(void **state)
{
	begin();
	spec.network = WORK_NETWORK_FILTERED;
	job.engine_network = str("fenced");
	memset(&net, 0, sizeof(net));
	net.rules.nresolvers = 3;
	assert_int_equal(fw_resolver_parse("10.0.0.1", &net.rules.resolvers[0]), 0);
	assert_int_equal(fw_resolver_parse("10.0.0.2:5353", &net.rules.resolvers[1]), 0);
	assert_int_equal(fw_resolver_parse("fd00::1", &net.rules.resolvers[2]), 0);
	assert_non_null(strstr(made(), "|--network|fenced|--dns|10.0.0.1|--dns|fd00::1|"));
}

static void
never(void **state)
{
	static const char *const images[] = { "-v=/:/h", "--privileged", "", "a b", "a\tb", "a\nb", "a\"b", "a'b", "a$b", "a;b", "dir:/etc",
		"docker://x", "/x", ".x", "_x", "@x", "a\x80", "oci-archive:/x" };
	static const char *const networks[] = { "host", "container:x", "ns:/proc/1/ns/net", "-x", "a b", "private", "slirp4netns", "default", "" };
	static const char *const tops[] = { "/a,b", "/a:b", "/a\"b", "/a\nb", "relative", "/a'b", "/a=b", "/a\\b", "/a\x80" };

	for (unsigned i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
		begin();
		job.image = str(images[i]);
		assert_null(made());
	}
	begin();
	job.image = (struct work_str){ "a\0b", 3 };
	assert_null(made());
	for (unsigned i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
		begin();
		job.engine_network = str(networks[i]);
		assert_null(made());
	}
	for (unsigned i = 0; i < sizeof(tops) / sizeof(tops[0]); i++) {
		begin();
		wish.top = tops[i];
		assert_null(made());
	}
	begin();
	wish.uid = 0;
	assert_null(made());
	begin();
	job.runtime = str("/bin/sh");
	assert_null(made());
	begin();
	wish.engine = JOB_ENGINE_NERDCTL;
	assert_null(made());
	begin();
	job.container = false;
	assert_null(made());
	begin();
	snprintf(spec.handle, sizeof(spec.handle), "a b");
	assert_null(made());
}

static void
variables(void **state)
{
	static const struct {
		const char *entry;
		enum engine_env how;
	} rows[] = {
		{ "TOKEN=x", ENGINE_ENV_NAME }, { "a1=", ENGINE_ENV_NAME }, { "GITHUB_TOKEN=a=b", ENGINE_ENV_NAME }, { "GOPATH=/x", ENGINE_ENV_NAME },
		{ "PATH=/bin", ENGINE_ENV_VALUE }, { "HOME=/x", ENGINE_ENV_VALUE }, { "LC_ALL=C", ENGINE_ENV_VALUE }, { "IFS=x", ENGINE_ENV_VALUE },
		{ "LD_PRELOAD=x", ENGINE_ENV_REFUSED }, { "ld_library_path=x", ENGINE_ENV_REFUSED }, { "DOCKER_HOST=x", ENGINE_ENV_REFUSED },
		{ "CONTAINER_HOST=x", ENGINE_ENV_REFUSED }, { "CONTAINERS_CONF=x", ENGINE_ENV_REFUSED }, { "_CONTAINERS_USERNS_CONFIGURED=x", ENGINE_ENV_REFUSED },
		{ "XDG_CONFIG_HOME=x", ENGINE_ENV_REFUSED }, { "GODEBUG=x", ENGINE_ENV_REFUSED }, { "https_proxy=x", ENGINE_ENV_REFUSED },
		{ "HTTP_PROXY=x", ENGINE_ENV_REFUSED }, { "SSL_CERT_FILE=x", ENGINE_ENV_REFUSED }, { "EW_ENGINE=/x", ENGINE_ENV_REFUSED },
		{ "GLIBC_TUNABLES=x", ENGINE_ENV_REFUSED }, { "BASH_ENV=x", ENGINE_ENV_REFUSED }, { "TMP=x", ENGINE_ENV_REFUSED },
		{ "A*=x", ENGINE_ENV_REFUSED }, { "*=x", ENGINE_ENV_REFUSED }, { "A B=x", ENGINE_ENV_REFUSED }, { "A\n=x", ENGINE_ENV_REFUSED },
		{ "-e=x", ENGINE_ENV_REFUSED }, { "1A=x", ENGINE_ENV_REFUSED }, { "=x", ENGINE_ENV_REFUSED }, { "NAME", ENGINE_ENV_REFUSED },
		{ "", ENGINE_ENV_REFUSED },
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct work_str s = str(rows[i].entry);

		assert_int_equal(engine_env(&s), rows[i].how);
		if (rows[i].how != ENGINE_ENV_REFUSED)
			continue;
		begin();
		spec.envc = 1;
		env[0] = s;
		assert_null(made());
	}
}

static void
too_much(void **state)
{
	begin();
	spec.envc = WORK_ENV_MAX;
	for (uint32_t i = 0; i < WORK_ENV_MAX; i++)
		env[i] = str("A=b");
	assert_null(made());
	begin();
	snprintf(line, sizeof(line), "/%0*d", 4094, 0);
	wish.top = line;
	assert_null(made());
}

/* What steps/engine/create.sh and attach.sh say of the limit of disk; a container that prints the like gets no further than a claim. */
static void
words_of_a_limit(void **state)
{
	const struct {
		const char *word;
		bool is;
		uint64_t used, limit;
	} words_of[] = {
		{ "disk-limit: the work directory held 9437184 bytes, its limit is 8388608", true, 9437184, 8388608 },
		{ "disk-limit: the work directory holds 9 bytes already, its limit is 8", true, 9, 8 },
		{ "disk-limit: the work directory held 18446744073709551615 bytes, its limit is 1", true, UINT64_MAX, 1 },
		{ "disk-limit: the work directory held 18446744073709551616 bytes, its limit is 1", false, 0, 0 },
		{ "disk-limit: the work directory held 7 bytes, its limit is 8", false, 0, 0 },
		{ "disk-limit: the work directory held 7 bytes, its limit is 0", false, 0, 0 },
		{ "disk-limit: the work directory held 7 bytes, its limit is 5 ", false, 0, 0 },
		{ "disk-limit: the work directory held  bytes, its limit is 5", false, 0, 0 },
		{ "disk-limit: the work directory held -7 bytes, its limit is 5", false, 0, 0 },
		{ "disk-limit: its limit is 5, it held 7", false, 0, 0 },
		{ "the work directory held 9 bytes, its limit is 8", false, 0, 0 },
		{ "disk-limit: ", false, 0, 0 }, { "", false, 0, 0 },
	};
	uint64_t used, limit;

	for (size_t i = 0; i < sizeof(words_of) / sizeof(words_of[0]); i++) {
		assert_int_equal(engine_disk_word(words_of[i].word, &used, &limit), words_of[i].is);
		if (words_of[i].is)
			assert_true(used == words_of[i].used && limit == words_of[i].limit);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(word_for_word), cmocka_unit_test(an_engine_of_the_runners_own), cmocka_unit_test(resolvers_of_a_firewall),
		cmocka_unit_test(never), cmocka_unit_test(variables), cmocka_unit_test(too_much),
		cmocka_unit_test(words_of_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
