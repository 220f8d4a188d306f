/*
 * policy.conf from any bytes: a result or one line of error, never both. What was understood, written out by its values,
 * is understood the same again; and no start gets more than its ceilings.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/policy.h"
#include "workerd/permit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t
write_out(const struct policy *policy, char *text, size_t size)
{
	char value[KEYFILE_LIST + 1], *p, *item;
	size_t n = 0;

	for (int i = 0; i < POLICY_KEYS; i++) {
		const struct key *key = policy_key_info((enum policy_key)i);

		policy_value(policy, (enum policy_key)i, value, sizeof(value));
		n += (size_t)snprintf(text + n, size - n, "[%s]\n", key->section);
		p = value;	/* a list in one line may be too long for one */
		while ((item = strsep(&p, " ")) != NULL)
			n += (size_t)snprintf(text + n, size - n, "%s = %s\n", key->name, item);
	}
	return n;
}

static void
check_start(const struct policy *policy, uint32_t n)
{
	struct work_str argv = { "true", 4 };
	struct work_spec spec = { .argc = 1, .argv = &argv, .timeout_s = n % 5000, .pids = n >> 8, .cpu_millis = n >> 16,
		.memory_bytes = (uint64_t)n << 8 };
	char error[PERMIT_ERROR];
	enum work_refusal r = permit(policy, &spec, error);

	if ((r == WORK_OK) != (error[0] == '\0'))
		abort();
	if (r == WORK_OK && ((policy->timeout != 0 && (spec.timeout_s == 0 || spec.timeout_s * INT64_C(1000) > policy->timeout)) ||
	    (policy->pids != 0 && (spec.pids == 0 || spec.pids > policy->pids)) ||
	    (policy->cpu != 0 && (spec.cpu_millis == 0 || spec.cpu_millis > policy->cpu)) ||
	    (policy->memory != 0 && (spec.memory_bytes == 0 || spec.memory_bytes > policy->memory))))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct policy policy, again;
	static char text[1 << 17];
	char err[KEYFILE_ERR];
	uint32_t n = 0;
	int r = policy_parse(&policy, "fuzz", (const char *)data, size, err);

	if ((r == 0) != (err[0] == '\0') || strchr(err, '\n') != NULL)
		abort();
	if (r < 0)
		return 0;
	if (policy_parse(&again, "fuzz", text, write_out(&policy, text, sizeof(text)), err) < 0)
		abort();
	memcpy(again.lines, policy.lines, sizeof(again.lines));
	if (memcmp(&again, &policy, sizeof(policy)) != 0)
		abort();
	memcpy(&n, data, size < sizeof(n) ? size : sizeof(n));
	check_start(&policy, n);
	return 0;
}
