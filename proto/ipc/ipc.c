#include "proto/ipc/ipc.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

int
ipc_check(const struct ipc_hdr *hdr, size_t record_len, size_t max_payload, unsigned nfds)
{
	if (record_len < sizeof(*hdr) || record_len - sizeof(*hdr) > max_payload)
		return -EBADMSG;
	if (hdr->version != IPC_VERSION)
		return -EPROTO;
	if (hdr->len != record_len - sizeof(*hdr) || hdr->nfds != nfds || nfds > IPC_MAX_FDS)
		return -EBADMSG;
	return 0;
}

static bool
rule_allows(const struct ipc_rule *rule, unsigned state, const struct ipc_hdr *hdr)
{
	return (rule->states & state) != 0 && hdr->len >= rule->min && hdr->len <= rule->max &&
	    hdr->nfds >= rule->min_fds && hdr->nfds <= rule->max_fds;
}

const struct ipc_rule *
ipc_rule_find(const struct ipc_rule *rules, size_t nrules, unsigned state, const struct ipc_hdr *hdr)
{
	for (size_t i = 0; i < nrules; i++)
		if (rules[i].type == hdr->type)
			return rule_allows(&rules[i], state, hdr) ? &rules[i] : NULL;
	return NULL;
}

int
ipc_str_ok(const char *s, size_t size)
{
	size_t len = strnlen(s, size);

	if (len == size)
		return 0;
	for (size_t i = len; i < size; i++)
		if (s[i] != '\0')
			return 0;
	return 1;
}

int
ipc_text_ok(const char *s, size_t size)
{
	if (!ipc_str_ok(s, size))
		return 0;
	while (*s >= ' ' && *s <= '~')
		s++;
	return *s == '\0';
}
