#include "proto/ipc/names.h"

#include <stddef.h>
#include <string.h>

static const char lower_digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
static const char handle_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

bool
name_ok(const char *s)
{
	size_t len = strnlen(s, NAME_MAX_LEN + 1);

	if (len < 1 || len > NAME_MAX_LEN || s[0] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (s[i] != '-' && memchr(lower_digits, s[i], sizeof(lower_digits) - 1) == NULL)
			return false;
	return true;
}

bool
handle_ok(const char *s)
{
	size_t len = strnlen(s, HANDLE_MAX_LEN + 1);

	return len >= 1 && len <= HANDLE_MAX_LEN && strspn(s, handle_chars) == len;
}
