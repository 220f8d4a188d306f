/* The texts edgectl doctor reads: an environment, what systemctl show printed, the Date of an answer. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/httpdate.h"
#include "edgectl/doctor/doctor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
environment(const uint8_t *data, size_t size, char sep)
{
	char *text = malloc(size + 1);
	const char *env[PROXYENV_MAX + 1];
	unsigned n;

	if (text == NULL)
		return;
	memcpy(text, data, size);
	text[size] = '\0';
	n = proxyenv_pick(text, size, sep, env);
	if (n > PROXYENV_MAX || env[n] != NULL)
		abort();
	for (unsigned i = 0; i < n; i++)
		if (env[i] < text || env[i] >= text + size || strchr(env[i], '=') == NULL)
			abort();
	free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	const char *p = text, *before;
	struct unit u;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (httpdate_parse(text) == 0 && strstr(text, "1970 00:00:00") == NULL)
		abort();
	do
		before = p;
	while (unit_next(&p, &u) && p > before);
	if (p < text || p > text + strlen(text))
		abort();
	free(text);
	environment(data, size, '\n');
	environment(data, size, '\0');
	return 0;
}
