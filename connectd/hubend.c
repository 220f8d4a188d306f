#include "connectd/hubend.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void
hubend_set(struct hubconn_end *end, enum hubconn_cause cause, enum hubconn_stage stage, const char *code,
    const char *fmt, ...)
{
	va_list ap;

	memset(end, 0, sizeof(*end));
	end->cause = cause;
	end->stage = stage;
	end->retry_after_ms = -1;
	snprintf(end->code, sizeof(end->code), "%s", code);
	va_start(ap, fmt);
	vsnprintf(end->detail, sizeof(end->detail), fmt, ap);
	va_end(ap);
	for (char *p = end->detail; *p != '\0'; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

void
hubend_set_errno(struct hubconn_end *end, enum hubconn_stage stage, int err, const char *what)
{
	switch (-err) {
	case ECONNREFUSED:
		hubend_set(end, HUBCONN_REFUSED, stage, "refused", "%s refused the connection: does it listen there?", what);
		break;
	case ETIMEDOUT:
		hubend_set(end, HUBCONN_TIMEOUT, stage, "timeout", "%s did not answer in time", what);
		break;
	case ENOMEM:
	case ENOBUFS:
	case EMFILE:
	case ENFILE:
		hubend_set(end, HUBCONN_LOCAL, stage, "internal", "%s: %s", what, strerror(-err));
		break;
	default:
		if (stage > HUBCONN_CONNECTING)
			hubend_set(end, HUBCONN_LOST, stage, "lost", "%s: %s", what, strerror(-err));
		else
			hubend_set(end, HUBCONN_NO_ROUTE, stage, "no-route", "%s cannot be reached: %s", what, strerror(-err));
	}
}
