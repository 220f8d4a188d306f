/* Secrets in a hub's start, and as workerd and workinit take them out of a spec; what connectd is told of a revocation. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/start.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char err[START_ERROR] = "", lease[SECRET_ID_SIZE];
	struct work_report rep;
	struct json_doc *doc;
	uint8_t *items = NULL;
	size_t len;

	(void)secrets_ok(data, size);
	if (work_report_decode(&rep, data, size) == 0 && rep.names_len > 0 && rep.names[rep.names_len - 1] != '\0')
		abort();
	if (json_parse(data, size, &doc) < 0)
		return 0;
	if (start_secrets(json_root(doc), &items, &len, err) == WORK_OK ? items != NULL && !secrets_ok(items, len) : err[0] == '\0')
		abort();
	free(items);
	items = NULL;
	if (refresh_secrets(json_root(doc), lease, &items, &len, err) == WORK_OK && !secrets_ok(items, len))
		abort();
	free(items);
	json_doc_free(doc);
	return 0;
}
