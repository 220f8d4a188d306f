/* The Date of an HTTP answer. */
#ifndef EDGEWARD_CONNECTD_HTTPDATE_H
#define EDGEWARD_CONNECTD_HTTPDATE_H

#include <stdint.h>

/* IMF-fixdate (RFC 9110 section 5.6.7), the one form senders may use: ns since 1970; -1 for anything else. */
int64_t httpdate_parse(const char *text);

#endif
