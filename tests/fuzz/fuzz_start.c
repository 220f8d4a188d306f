/* The payload of a start from any bytes, as edgectl policy test reads it: a spec that decodes, or a reason. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/start.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct work_str argv[WORK_ARGV_MAX], env[WORK_ENV_MAX];
	static struct work_net net;
	struct work_spec out = { .argv = argv, .env = env, .net = &net };
	char err[START_ERROR] = "";
	struct json_doc *doc;
	uint8_t *spec = NULL;
	size_t len = 0;

	if (json_parse(data, size, &doc) < 0)
		return 0;
	if (start_decode(json_root(doc), "fuzz", &spec, &len, err) == WORK_OK) {
		if (err[0] != '\0' || work_spec_decode(&out, spec, len) < 0)
			abort();
	} else if (err[0] == '\0' || spec != NULL || memchr(err, '\0', sizeof(err)) == NULL) {
		abort();
	}
	free(spec);
	json_doc_free(doc);
	return 0;
}
