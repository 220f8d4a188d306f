#include "connectd/httpdate.h"

#include <string.h>
#include <time.h>

#define FORM	"%a, %d %b %Y %H:%M:%S GMT"
#define LENGTH	29u

int64_t
httpdate_parse(const char *text)
{
	char again[64];
	struct tm tm = { 0 };
	const char *end;
	time_t t;

	if (strlen(text) != LENGTH)
		return -1;
	end = strptime(text, FORM, &tm);
	if (end == NULL || *end != '\0')
		return -1;
	t = timegm(&tm);
	/* strptime() is generous: written again, it must be the same text. That also checks the day of the week. */
	if (t < 0 || gmtime_r(&t, &tm) == NULL || strftime(again, sizeof(again), FORM, &tm) != LENGTH || strcmp(again, text) != 0)
		return -1;
	return (int64_t)t * 1000000000;
}
