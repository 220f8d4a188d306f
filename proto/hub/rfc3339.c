#include "proto/hub/rfc3339.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DAY	86400

/* Days since 1970-01-01 of a proleptic Gregorian date (Howard Hinnant's days_from_civil). */
static int64_t
days_from_civil(int64_t y, int64_t m, int64_t d)
{
	int64_t era, yoe, doy, doe;

	y -= m <= 2;
	era = (y >= 0 ? y : y - 399) / 400;
	yoe = y - era * 400;
	doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
	doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
	return era * 146097 + doe - 719468;
}

static void
civil_from_days(int64_t z, int64_t *ret_y, int64_t *ret_m, int64_t *ret_d)
{
	int64_t era, doe, yoe, doy, mp;

	z += 719468;
	era = (z >= 0 ? z : z - 146096) / 146097;
	doe = z - era * 146097;
	yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	mp = (5 * doy + 2) / 153;
	*ret_d = doy - (153 * mp + 2) / 5 + 1;
	*ret_m = mp + (mp < 10 ? 3 : -9);
	*ret_y = yoe + era * 400 + (*ret_m <= 2);
}

const char *
rfc3339_format(int64_t ns, char buf[RFC3339_SIZE])
{
	int64_t sec = ns / 1000000000, frac = ns % 1000000000, days, rest, y, m, d;

	if (ns == 0) {
		memcpy(buf, RFC3339_ZERO, sizeof(RFC3339_ZERO));
		return buf;
	}
	if (frac < 0) {
		frac += 1000000000;
		sec--;
	}
	days = sec / DAY;
	rest = sec % DAY;
	if (rest < 0) {
		rest += DAY;
		days--;
	}
	civil_from_days(days, &y, &m, &d);
	snprintf(buf, RFC3339_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d.%09dZ", (int)y, (int)m, (int)d, (int)(rest / 3600),
	    (int)(rest / 60 % 60), (int)(rest % 60), (int)frac);
	return buf;
}

/* Exactly n digits. */
static bool
number(const char **s, unsigned n, int64_t *ret_v)
{
	*ret_v = 0;
	for (unsigned i = 0; i < n; i++, (*s)++) {
		if (**s < '0' || **s > '9')
			return false;
		*ret_v = *ret_v * 10 + (**s - '0');
	}
	return true;
}

static bool
literal(const char **s, char c, char alt)
{
	if (**s != c && **s != alt)
		return false;
	(*s)++;
	return true;
}

static bool
fraction(const char **s, int64_t *ret_ns)
{
	int64_t scale = 100000000;

	*ret_ns = 0;
	if (**s != '.')
		return true;
	(*s)++;
	if (**s < '0' || **s > '9')
		return false;
	for (; **s >= '0' && **s <= '9'; (*s)++, scale /= 10)
		*ret_ns += (**s - '0') * scale;
	return true;
}

static bool
zone(const char **s, int64_t *ret_sec)
{
	int64_t h, m, sign = **s == '-' ? -1 : 1;

	*ret_sec = 0;
	if (literal(s, 'Z', 'z'))
		return true;
	if (!literal(s, '+', '-') || !number(s, 2, &h) || !literal(s, ':', ':') || !number(s, 2, &m) || h > 23 || m > 59)
		return false;
	*ret_sec = sign * (h * 3600 + m * 60);
	return true;
}

int
rfc3339_parse(const char *s, int64_t *ret_ns)
{
	int64_t y, mo, d, h, mi, sec, frac, off, total;

	if (!number(&s, 4, &y) || !literal(&s, '-', '-') || !number(&s, 2, &mo) || !literal(&s, '-', '-') ||
	    !number(&s, 2, &d) || !literal(&s, 'T', 't') || !number(&s, 2, &h) || !literal(&s, ':', ':') ||
	    !number(&s, 2, &mi) || !literal(&s, ':', ':') || !number(&s, 2, &sec) || !fraction(&s, &frac) ||
	    !zone(&s, &off) || *s != '\0')
		return -EINVAL;
	if (mo < 1 || mo > 12 || d < 1 || d > 31 || h > 23 || mi > 59 || sec > 60)
		return -EINVAL;
	total = days_from_civil(y, mo, d) * DAY + h * 3600 + mi * 60 + sec - off;
	if (y < 1678 || y > 2261)
		*ret_ns = 0;
	else
		*ret_ns = total * 1000000000 + frac;
	return 0;
}
