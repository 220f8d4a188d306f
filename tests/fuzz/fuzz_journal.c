/* journal_parse over the bytes of a file; what it calls good must be good when it is read again. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ipc/names.h"
#include "workerd/journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
live(const struct journal_record *rec, void *ctx)
{
	assert(handle_ok(rec->handle));
	assert(rec->type == JOURNAL_STARTED || rec->type == JOURNAL_ENDED);
	++*(size_t *)ctx;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct journal j, again;
	size_t n = 0, m = 0, good = 0, good2 = 0;
	bool clean;

	memset(&j, 0, sizeof(j));
	memset(&again, 0, sizeof(again));
	clean = journal_parse(&j, data, size, live, &n, &good);
	assert(good <= size && good % sizeof(struct journal_record) == 0);
	assert(journal_parse(&again, data, good, live, &m, &good2) == clean);
	assert(m == n && good2 == good && again.seen_n == j.seen_n && again.drain == j.drain);
	return 0;
}
