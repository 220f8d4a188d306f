/* What privupgrade and privtrial parse as root: the first byte chooses the parser. What is taken must be within its bounds, and be read back the same. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/release/fit.h"
#include "proto/release/judge.h"
#include "proto/release/machine.h"
#include "proto/release/manifest.h"
#include "proto/release/records.h"
#include "proto/release/signify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_manifest(const void *data, size_t size)
{
	struct release_head head;
	struct manifest m;

	if (release_split(data, size, &head) == 0)
		assert(head.signature_len + head.manifest_len <= size && head.manifest[head.manifest_len - 1] == '\n');
	if (manifest_parse(data, size, &m) < 0)
		return;
	assert(m.sequence >= 1 && m.sequence <= RELEASE_SEQUENCE_MAX && m.nfiles <= RELEASE_FILES_MAX && m.total <= RELEASE_TOTAL_MAX);
	for (unsigned i = 0; i < m.nfiles; i++)
		assert(strchr(m.files[i].name, '/') == NULL && m.files[i].name[0] != '.' && m.files[i].size > 0);
}

/* What systemctl says, and a line of /proc/PID/cgroup. */
static void
check_units(const void *data, size_t size)
{
	struct judge_unit_facts units[JUDGE_UNITS];
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	judge_is_work(text, "0::/system.slice/edgeward-workerd.service/launch\n");
	judge_is_work("0::/system.slice/edgeward-workerd.service/launch\n", text);
	judge_read_units(text, units);
	for (unsigned i = 0; i < JUDGE_UNITS; i++)
		assert(!(units[i].active && units[i].failed) && units[i].pid <= INT32_MAX);
	free(text);
}

/* Writing what was read gives the same bytes: there is one way to write a thing. */
#define ROUND_TRIP(what) do { \
	static struct upgrade_##what v; \
	if (upgrade_##what##_parse(data, size, &v) == 0) { \
		int n = upgrade_##what##_write(&v, text, sizeof(text)); \
		assert(n == (int)size && memcmp(text, data, size) == 0); \
	} \
} while (0)

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char text[2 * UPGRADE_RECORD_MAX];
	uint8_t which = size > 0 ? data[0] : 0;
	char version[RELEASE_VERSION_SIZE];
	struct upgrade_conf conf;
	struct signify_key key;
	struct signify_sig sig;
	struct machine kind;
	uint64_t sequence;

	if (size == 0)
		return 0;
	data++;
	size--;
	switch (which) {
	case 'm': check_manifest(data, size); break;
	case 'r': ROUND_TRIP(request); break;
	case 's': ROUND_TRIP(state); break;
	case 'h': ROUND_TRIP(history); break;
	case 'p': ROUND_TRIP(probe); break;
	case 'c': upgrade_conf_parse(data, size, &conf); break;
	case 'l': upgrade_packaged_parse(data, size, version, &sequence); break;
	case 'k': signify_key_parse(data, size, &key); break;
	case 'g': signify_sig_parse(data, size, &sig); break;
	case 'e':
		if (machine_of(data, size, &kind) == 0)
			assert(memchr(kind.interp, '\0', sizeof(kind.interp)) != NULL);
		break;
	case 'u': check_units(data, size); break;
	default: break;
	}
	return 0;
}
