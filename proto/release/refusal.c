#include "proto/release/refusal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int
refuse(struct refusal *why, const char *code, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(why->code, sizeof(why->code), "%s", code);
	upgrade_detail(why->detail, text);
	return -ECANCELED;
}
