/*
 * The command line of a container from any strings (separated by newlines: image, runtime, network, handle, directory, directory below, then
 * variables and words): every option is one of ours with one value, what was injected stays behind "--" or in its own word.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "workerd/engine.h"

#define FIELDS	64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool
is(const struct work_str *s, const char *const *list)
{
	for (; *list != NULL; list++)
		if (container_is(s, *list))
			return true;
	return false;
}

static void
check(const struct work_str *words, uint32_t n, const struct work_spec *spec, const struct work_job *job)
{
	static const char *const alone[] = { "--pull=never", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only", NULL };
	static const char *const valued[] = { "--name", "--runtime", "--tmpfs", "--user", "--network", "--cpus", "--memory", "--memory-swap", "--pids-limit",
		"--env", "--label", "--log-driver", "--mount", "--workdir", NULL };
	uint32_t i = 0;

	for (; i < n && !container_is(&words[i], "--"); i++) {
		if (is(&words[i], alone))
			continue;
		if (!is(&words[i], valued) || ++i == n || (words[i].len > 0 && words[i].s[0] == '-') || memchr(words[i].s, '\0', words[i].len) != NULL)
			abort();
		if (container_is(&words[i - 1], "--mount") && memchr(words[i].s, '"', words[i].len) != NULL)
			abort();
		if (container_is(&words[i - 1], "--network") && container_is(&words[i], "host"))
			abort();
	}
	if (n - i != 2 + spec->argc || words[i + 1].len != job->image.len || words[i + 1].s[0] == '-')
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct work_str words[WORK_ARGV_MAX], argv[FIELDS], env[FIELDS];
	static char text[ENGINE_TEXT], top[512], below[512];
	struct work_job job = { .container = true };
	struct work_spec spec = { .argv = argv, .env = env, .cpu_millis = (uint32_t)size, .memory_bytes = size * 1000, .pids = (uint32_t)size };
	struct engine_wish wish = { .engine = JOB_ENGINE_DOCKER, .top = top, .below = below, .uid = 7, .gid = 8, .job = &job, .spec = &spec };
	struct work_str f[FIELDS];
	uint32_t nf = 0, n = 0;

	for (size_t at = 0; at <= size && nf < FIELDS; nf++) {
		const uint8_t *end = at < size ? memchr(data + at, '\n', size - at) : NULL;
		size_t len = end != NULL ? (size_t)(end - data) - at : size - at;

		f[nf] = (struct work_str){ (const char *)data + at, len };
		at += len + 1;
	}
	for (uint32_t i = 0; i < nf; i++) {
		uint64_t used, limit;

		memset(top, 0, sizeof(top));
		memcpy(top, f[i].s, f[i].len < 500 ? f[i].len : 500);
		if (engine_disk_word(top, &used, &limit) && used <= limit)
			abort();
	}
	if (size == 0 || nf < 8)
		return 0;
	job.image = f[0];
	job.runtime = f[1];
	job.engine_network = f[2];
	memcpy(spec.handle, f[3].s, f[3].len < sizeof(spec.handle) - 1 ? f[3].len : sizeof(spec.handle) - 1);
	memcpy(top, f[4].s, f[4].len < 500 ? f[4].len : 500);
	memcpy(below, f[5].s, f[5].len < 500 ? f[5].len : 500);
	memset(top + (f[4].len < 500 ? f[4].len : 500), 0, 2);
	memset(below + (f[5].len < 500 ? f[5].len : 500), 0, 2);
	for (uint32_t i = 6; i < nf; i++) {
		env[spec.envc++] = f[i];
		argv[spec.argc++] = f[i];
	}
	if (engine_create(&wish, words, text, &n) == 0)
		check(words, n, &spec, &job);
	return 0;
}
