/* What a hub says of attach sessions: the payload of attach_open, of stream_open and of attach_data; and the command as workerd and workinit read it. */
#include <assert.h>
#include <string.h>

#include "proto/hub/attach.h"
#include "proto/ipc/ipc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_command(const uint8_t *bytes, size_t len)
{
	static uint8_t again[ATTACH_COMMAND_MAX];
	static struct attach_command c;
	size_t n;

	if (attach_command_decode(&c, bytes, len) < 0)
		return;
	assert(c.argc <= ATTACH_ARGS_MAX && attach_term_ok(c.term) && (c.argc == 0 || c.argv[0].len > 0));
	for (uint32_t i = 0; i < c.argc; i++)
		assert(c.argv[i].len == 0 || (c.argv[i].s >= (const char *)bytes && c.argv[i].s + c.argv[i].len <= (const char *)bytes + len));
	assert(attach_command_encode(&c, again, sizeof(again), &n) == 0 && n == len && memcmp(again, bytes, n) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t cmd[ATTACH_COMMAND_MAX], raw[ATTACH_DATA_MAX + 3];
	struct json_doc *doc = NULL;
	struct attach_open open;
	const char *why = NULL;
	size_t len;

	check_command(data, size);
	if (json_parse(data, size, &doc) < 0)
		return 0;
	for (int stream = 0; stream < 2; stream++) {
		if (attach_decode(json_root(doc), "h1", stream != 0, &open, cmd, &len, &why) < 0) {
			assert(why != NULL);
			continue;
		}
		assert(attach_open_ok(&open) && open.session[0] != '\0' && ipc_text_ok(open.who, sizeof(open.who)));
		assert(stream != 0 || ((open.flags & (ATTACH_KEEP | ATTACH_RESUME | ATTACH_WATCH)) == 0 && open.from == 0));
		check_command(cmd, len);
	}
	if (attach_decode_data(json_root(doc), raw, &len) == 0)
		assert(len <= ATTACH_DATA_MAX);
	json_doc_free(doc);
	return 0;
}
