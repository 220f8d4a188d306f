#include "hub/runinfo.h"

#include <string.h>

#include "proto/hub/utf8.h"

const char *
run_state_name(enum run_state state)
{
	switch (state) {
	case RUN_PENDING:
		return "pending";
	case RUN_RUNNING:
		return "running";
	case RUN_EXITED:
		return "exited";
	case RUN_KILLED:
		return "killed";
	case RUN_FAILED:
		return "failed";
	case RUN_REFUSED:
		return "refused";
	case RUN_LOST:
		return "lost";
	}
	return "unknown";
}

const char *
run_verify_name(enum run_verify verify)
{
	switch (verify) {
	case RUN_UNVERIFIED:
		return "unverified";
	case RUN_VERIFIED:
		return "verified";
	case RUN_MISMATCH:
		return "mismatch";
	case RUN_GAPPED:
		return "gap";
	case RUN_CUT:
		return "lost";
	}
	return "unknown";
}

/* Agents that do not name the signal send -1, 128 + n or a bare n as exit code; without any of these it was KILL. */
static int
signal_code(int32_t code, int32_t term_signal)
{
	if (term_signal > 0 && term_signal <= 64)
		return 128 + term_signal;
	if (code > 128 && code <= 128 + 64)
		return code;
	if (code > 0 && code <= 64)
		return 128 + code;
	return 128 + 9;
}

int
run_exit_code(const struct run_info *info)
{
	if (info->state == RUN_REFUSED)
		return RUN_EXIT_REFUSED;
	if (info->state == RUN_LOST || strcmp(info->outcome, "lost") == 0)
		return RUN_EXIT_LOST;
	if (info->timed_out || strcmp(info->outcome, "timeout") == 0)
		return RUN_EXIT_TIMEOUT;
	if (info->state == RUN_KILLED || strcmp(info->outcome, "signalled") == 0)
		return signal_code(info->exit_code, info->term_signal);
	if (info->exit_code != 0)
		return info->exit_code & 0xff ? info->exit_code & 0xff : 1;
	return info->state == RUN_EXITED ? 0 : 1;
}

void
text_clean(char *dst, size_t size, const char *src)
{
	size_t len = strlen(src), n;

	if (len > size - 1)
		len = size - 1;
	n = utf8_valid_prefix((const uint8_t *)src, len, NULL);
	for (size_t i = 0; i < n; i++)
		dst[i] = (unsigned char)src[i] < 0x20 || src[i] == 0x7f ? ' ' : src[i];
	dst[n] = '\0';
}
