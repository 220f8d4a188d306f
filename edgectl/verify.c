/*
 * logs verify: reads what is held of a workload's output, in memory and in the spool, and holds its XXH3-128 against the digest
 * workerd counted while it was produced. What the hub has acknowledged is freed here, so often only a part can be read: then the
 * ranges are told. That they read back at all means something: workerd checks each block of the spool before it gives it out.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "edgectl/client.h"
#include "edgectl/edgectl.h"

#define MISSING_SHOWN	32u

struct missing {
	uint64_t from, to;
	uint32_t reason;
};

struct verify {
	char handle[72];
	bool known;
	struct work_workload info;	/* after everything was read */
	struct missing missing[MISSING_SHOWN];
	uint32_t nmissing;
	uint64_t offset, held;		/* next byte; bytes that were read */
	uint8_t digest[16];		/* of them */
};

static void
on_workload(const struct work_workload *w, const char *command, void *ctx)
{
	struct verify *v = ctx;

	if (strcmp(w->handle, v->handle) == 0) {
		v->info = *w;
		v->known = true;
	}
}

static void
note_missing(struct verify *v, uint64_t from, uint64_t to, uint32_t reason)
{
	if (from >= to)
		return;
	if (v->nmissing < MISSING_SHOWN)
		v->missing[v->nmissing] = (struct missing){ from, to, reason };
	v->nmissing++;
}

/* Takes one answer. 1 = more may come, 0 = all there is now, -EPROTO. */
static int
take_answer(struct verify *v, const struct client *c, XXH3_state_t *state)
{
	struct ctl_log_data head;
	size_t len = c->len - sizeof(head);

	memcpy(&head, c->answer, sizeof(head));
	if (head.offset < v->offset)
		return -EPROTO;
	note_missing(v, v->offset, head.offset, head.reason);
	XXH3_128bits_update(state, c->answer + sizeof(head), len);
	v->offset = head.offset + len;
	v->held += len;
	return len > 0 && (head.flags & CTL_LOG_EOF) == 0;
}

/* Reads all that is held. False: the answers stopped, client_complain() knows why. */
static bool
read_output(struct verify *v, struct client *c, XXH3_state_t *state)
{
	struct ctl_logs req = { .max = CTL_LOG_MAX };
	int r;

	memcpy(req.handle, v->handle, sizeof(req.handle));
	do {
		req.from = v->offset;
		client_call(c, CTL_REQ_LOGS, &req, sizeof(req), CLIENT_WAIT_MS);
		if (c->answered && c->status == -ENOENT)
			return true;	/* forgotten meanwhile: the list says so, too */
		if (!c->answered || c->status != 0 || c->len < sizeof(struct ctl_log_data))
			return false;
		r = take_answer(v, c, state);
	} while (r > 0);
	return r == 0;
}

static bool
gather(struct verify *v, struct client *c)
{
	XXH3_state_t *state = XXH3_createState();
	XXH128_canonical_t canon;
	bool ok = state != NULL && XXH3_128bits_reset(state) == XXH_OK && read_output(v, c, state);

	if (ok) {
		XXH128_canonicalFromHash(&canon, XXH3_128bits_digest(state));
		memcpy(v->digest, canon.digest, sizeof(v->digest));
		c->workload = on_workload;
		c->ctx = v;
		client_call(c, CTL_REQ_WORKLOADS, NULL, 0, CLIENT_WAIT_MS);
		ok = client_answer(c, NULL, 0);
	}
	XXH3_freeState(state);
	return ok;
}

static const char *
result_of(const struct verify *v)
{
	bool whole = v->nmissing == 0 && v->held == v->info.produced;

	if (v->info.state != WORK_ENDED)
		return "running";
	if (!whole)
		return "partial";
	if ((v->info.flags & WORK_F_DIGEST) == 0)
		return "no-digest";
	return memcmp(v->digest, v->info.log_xxh3, sizeof(v->digest)) == 0 ? "verified" : "mismatch";
}

static void
json_digest(yajl_gen g, const char *key, const uint8_t digest[16], bool known)
{
	char hex[33];

	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	if (known)
		json_str(g, key, hex);
	else
		json_null(g, key);
}

static void
print_json(const struct verify *v, const char *result)
{
	yajl_gen g = json_begin();

	json_str(g, "handle", v->handle);
	json_str(g, "result", result);
	json_uint(g, "produced", v->info.produced);
	json_uint(g, "held", v->held);
	json_digest(g, "log_xxh3", v->info.log_xxh3, (v->info.flags & WORK_F_DIGEST) != 0);
	json_digest(g, "held_xxh3", v->digest, v->nmissing == 0);
	json_open(g, "missing", '[');
	for (uint32_t i = 0; i < v->nmissing && i < MISSING_SHOWN; i++) {
		json_open(g, NULL, '{');
		json_uint(g, "from", v->missing[i].from);
		json_uint(g, "to", v->missing[i].to);
		json_str(g, "reason", name_of_gap(v->missing[i].reason));
		json_close(g, '}');
	}
	json_close(g, ']');
	json_uint(g, "missing_count", v->nmissing);
	json_end(g);
}

/* The ranges between what is missing: all of them read back as they were written. */
static void
print_ranges(const struct verify *v)
{
	uint64_t from = 0;

	for (uint32_t i = 0; i < v->nmissing && i < MISSING_SHOWN; i++) {
		const struct missing *m = &v->missing[i];

		if (m->from > from)
			printf("  [%" PRIu64 ",%" PRIu64 ") is here and intact\n", from, m->from);
		printf("  [%" PRIu64 ",%" PRIu64 ") is not here: %s\n", m->from, m->to,
		    m->from == 0 && m->reason == WORK_GAP_MEMORY ? "the hub has it, or it went for want of room" :
		    name_of_gap(m->reason));
		from = m->to;
	}
	if (v->offset > from)
		printf("  [%" PRIu64 ",%" PRIu64 ") is here and intact\n", from, v->offset);
}

static void
print_text(const struct verify *v, const char *result)
{
	static const char *const words[][2] = {
		{ "verified", "all bytes are here, and their digest is the one counted while they were produced" },
		{ "mismatch", "the digest of what is here is not the one counted while it was produced" },
		{ "partial", "not all of it is here: edgehub logs verify proves what the hub has" },
		{ "no-digest", "all bytes are here, but their digest was lost" },
		{ "running", "it has not ended: there is no digest to compare with yet" },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(words[i][0], result) == 0)
			printf("%s: %s\n", result, words[i][1]);
	if (strcmp(result, "verified") != 0)
		print_ranges(v);
}

int
cmd_logs_verify(struct edgectl *ctl, const char *handle)
{
	static struct client c;
	struct verify v = { .known = false };
	const char *result;

	if (!handle_ok(handle))
		return usage_error("logs", "%s is not a handle", handle);
	memcpy(v.handle, handle, strlen(handle));
	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	if (!gather(&v, &c)) {
		int code = client_complain(&c, "logs");

		client_close(&c);
		return code;
	}
	client_close(&c);
	if (!v.known) {
		fprintf(stderr, "edgectl: logs: no workload %s is known; what the hub has confirmed is forgotten here\n", handle);
		return EXIT_FAILED;
	}
	result = result_of(&v);
	if (ctl->json)
		print_json(&v, result);
	else
		print_text(&v, result);
	return strcmp(result, "verified") == 0 ? EXIT_OK : strcmp(result, "mismatch") == 0 ? EXIT_FAILED : EXIT_DEGRADED;
}
