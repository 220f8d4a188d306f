#include "workerd/permit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"

__attribute__((format(printf, 4, 5))) static enum work_refusal
refuse(const struct policy *policy, enum policy_key key, char error[PERMIT_ERROR], const char *fmt, ...)
{
	char where[POLICY_WHERE], text[PERMIT_ERROR];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(error, PERMIT_ERROR, "%s%.*s", policy_where(policy, key, where), PERMIT_ERROR - POLICY_WHERE, text);
	return WORK_REFUSED_POLICY;
}

/* The item whose last component is the name; a name without a slash means that program and no other of its name. */
static const char *
by_name(const struct keyfile_list *list, const struct work_str *name)
{
	for (const char *item = NULL; (item = keyfile_list_next(list, item)) != NULL;) {
		const char *last = strrchr(item, '/') + 1;

		if (strlen(last) == name->len && memcmp(last, name->s, name->len) == 0)
			return item;
	}
	return NULL;
}

enum work_refusal
permit_program(const struct policy *policy, struct work_str *program, char error[PERMIT_ERROR])
{
	const struct keyfile_list *list = &policy->programs;
	char quoted[LOG_QUOTE_SIZE];
	const char *item;

	if (list->word == POLICY_WORD)
		return WORK_OK;
	if (memchr(program->s, '/', program->len) != NULL) {
		if (keyfile_list_has(list, program->s, program->len))
			return WORK_OK;
	} else if ((item = by_name(list, program)) != NULL) {
		*program = (struct work_str){ item, strlen(item) };
		return WORK_OK;
	}
	return refuse(policy, POLICY_PROGRAMS, error, ": %s is not in the list; name one that is, or have it added there",
	    log_quote(quoted, sizeof(quoted), program->s, program->len));
}

/* The C library takes code from where these say, whatever program it is that begins. What else a program reads is its own affair. */
static bool
loads_code(const struct work_str *entry)
{
	return (entry->len > 3 && memcmp(entry->s, "LD_", 3) == 0) || (entry->len > 11 && memcmp(entry->s, "GCONV_PATH=", 11) == 0);
}

static enum work_refusal
check_environment(const struct policy *policy, const struct work_spec *spec, char error[PERMIT_ERROR])
{
	char quoted[LOG_QUOTE_SIZE];
	uint64_t size = 0;

	for (uint32_t i = 0; i < spec->envc; i++) {
		const struct work_str *e = &spec->env[i];
		const char *end = memchr(e->s, '=', e->len);

		size += e->len + 1;
		if (policy->programs.word != POLICY_WORD && !spec->contained && loads_code(e))
			return refuse(policy, POLICY_PROGRAMS, error, ": the variable %.48s can have a program of the list run other code; remove it",
			    log_quote(quoted, sizeof(quoted), e->s, end != NULL ? (size_t)(end - e->s) : e->len));
	}
	if (size <= policy->environment)
		return WORK_OK;
	return refuse(policy, POLICY_ENVIRONMENT, error, " = %llu bytes; the environment of this start has %llu",
	    (unsigned long long)policy->environment, (unsigned long long)size);
}

/* One limit: what is asked must not be above the ceiling; what is not asked is the default, or else the ceiling. */
static enum work_refusal
bound(const struct policy *policy, enum policy_key key, uint64_t ceiling, uint64_t def, uint64_t *asked, char error[PERMIT_ERROR])
{
	char value[32];

	if (*asked == 0) {
		*asked = def != 0 ? def : ceiling;
		return WORK_OK;
	}
	if (ceiling == 0 || *asked <= ceiling)
		return WORK_OK;
	policy_value(policy, key, value, sizeof(value));
	return refuse(policy, key, error, " = %s; this start asks for %llu%s, ask for no more than the device gives", value,
	    (unsigned long long)(key == POLICY_MEMORY ? *asked >> 20 : *asked),
	    key == POLICY_MEMORY ? " MiB" : key == POLICY_TIMEOUT ? " s" : "");
}

static enum work_refusal
check_limits(const struct policy *p, struct work_spec *spec, char error[PERMIT_ERROR])
{
	uint64_t pids = spec->pids, cpu = spec->cpu_millis, timeout = spec->asked_s != 0 ? spec->asked_s : spec->timeout_s;
	/* Rounded down: what a start may ask for is in seconds. */
	uint64_t most = (uint64_t)p->timeout / 1000, def = (uint64_t)p->timeout_default / 1000;
	enum work_refusal r = bound(p, POLICY_MEMORY, p->memory, p->memory_default, &spec->memory_bytes, error);

	if (r == WORK_OK)
		r = bound(p, POLICY_PIDS, p->pids, p->pids_default, &pids, error);
	if (r == WORK_OK)
		r = bound(p, POLICY_CPU, p->cpu, p->cpu_default, &cpu, error);
	if (r == WORK_OK)
		r = bound(p, POLICY_TIMEOUT, most, def, &timeout, error);
	spec->pids = (uint32_t)pids;
	spec->cpu_millis = (uint32_t)cpu;
	/* What was rounded up stays so, up to the ceiling: that is the time the hub has to end it by a signal first. */
	if (spec->asked_s == 0)
		spec->timeout_s = (uint32_t)timeout;
	else if (most != 0 && spec->timeout_s > most)
		spec->timeout_s = (uint32_t)most;
	return r;
}

/* What is asked for must be inside of what the hub itself bounds it by, and of the device's own rules. */
static enum work_refusal
narrow(const struct policy *policy, struct work_net *net, char error[PERMIT_ERROR])
{
	static struct firewall device;
	char why[160] = "too many addresses are denied";

	if (net->bounded && fw_narrow(&net->rules, &net->bound, why) < 0) {
		snprintf(error, PERMIT_ERROR, "egress_rules: %s by egress_bound", why);
		return WORK_REFUSED_POLICY;
	}
	net->bounded = false;
	if (policy->network != POLICY_NETWORK_FILTERED)
		return WORK_OK;
	policy_firewall(policy, &device);
	if (fw_narrow(&net->rules, &device, why) < 0)
		return refuse(policy, POLICY_NETWORK, error, " = filtered; this start's egress_rules: %s", why);
	return WORK_OK;
}

/* Never more network than the device's, and less when less is asked for. Afterwards it is no DEFAULT. */
static enum work_refusal
check_network(const struct policy *policy, struct work_spec *spec, char error[PERMIT_ERROR])
{
	static struct work_net device;
	bool asked = spec->network == WORK_NETWORK_FILTERED;
	enum work_refusal r;

	if (spec->network == WORK_NETWORK_HOST && policy->network != POLICY_NETWORK_HOST)
		return refuse(policy, POLICY_NETWORK, error, ": this start asks for the device's own network");
	if (spec->network == WORK_NETWORK_DEFAULT)
		spec->network = policy->network == POLICY_NETWORK_HOST ? WORK_NETWORK_HOST :
		    policy->network == POLICY_NETWORK_FILTERED ? WORK_NETWORK_FILTERED : WORK_NETWORK_NONE;
	if (spec->network != WORK_NETWORK_FILTERED)
		return WORK_OK;
	if (!asked) {
		policy_firewall(policy, &device.rules);
		device.bounded = false;
		spec->net = &device;
	}
	r = narrow(policy, spec->net, error);
	if (r != WORK_OK)
		return r;
	fw_drop_denied(&spec->net->rules);
	if (fw_reaches_nothing(&spec->net->rules))
		spec->network = WORK_NETWORK_NONE;
	else if (policy->network == POLICY_NETWORK_NONE)
		return refuse(policy, POLICY_NETWORK, error, " = none; this start asks for some network");
	return WORK_OK;
}

enum work_refusal
permit_own(const struct policy *policy, struct work_spec *spec, char error[PERMIT_ERROR])
{
	enum work_refusal r;

	error[0] = '\0';
	if (!policy->start) {
		policy_no_start(policy, error, PERMIT_ERROR);
		return WORK_REFUSED_POLICY;
	}
	r = check_network(policy, spec, error);
	return r == WORK_OK ? check_limits(policy, spec, error) : r;
}

enum work_refusal
permit(const struct policy *policy, struct work_spec *spec, char error[PERMIT_ERROR])
{
	enum work_refusal r;

	error[0] = '\0';
	if (!policy->start) {
		policy_no_start(policy, error, PERMIT_ERROR);
		return WORK_REFUSED_POLICY;
	}
	r = spec->contained ? WORK_OK : permit_program(policy, &spec->argv[0], error);	/* of a container's the images are bounded: container.c */
	if (r == WORK_OK)
		r = check_environment(policy, spec, error);
	if (r == WORK_OK)
		r = check_network(policy, spec, error);
	return r == WORK_OK ? check_limits(policy, spec, error) : r;
}
