/*
 * logs verify: reads the stored log once more, as `logs` does, and holds its XXH3-128 against the digest the device counted while
 * the workload ran. So it also notices what happened to the file since the run ended, when the hub compared for the first time.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/near.h"
#include "hub/cli.h"
#include "hub/logfile.h"

#define GAPS_SHOWN	64u

struct verify {
	struct cli *cli;
	XXH3_state_t *state;
	uint64_t offset;		/* the next byte */
	struct admin_gap gaps[GAPS_SHOWN];
	uint32_t ngaps;
	bool ended;
	struct admin_run end;
};

static int
take_event(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	struct verify *v = ctx;
	struct admin_log head;
	struct admin_gap gap;

	(void)cli;
	switch (msg->hdr.type) {
	case ADMIN_EV_LOG:
		memcpy(&head, msg->data, sizeof(head));
		if (head.offset != v->offset)
			return -EPROTO;
		XXH3_128bits_update(v->state, msg->data + sizeof(head), msg->hdr.len - sizeof(head));
		v->offset += msg->hdr.len - sizeof(head);
		return 0;
	case ADMIN_EV_GAP:
		memcpy(&gap, msg->data, sizeof(gap));
		if (v->ngaps < GAPS_SHOWN)
			v->gaps[v->ngaps] = gap;
		v->ngaps++;
		v->offset = gap.to;
		return 0;
	case ADMIN_EV_END:
		memcpy(&v->end, msg->data, sizeof(v->end));
		v->ended = true;
		return 0;
	default:
		return -EPROTO;
	}
}

/* Reads all of it. 0, or an exit code: it has said why. */
static int
read_log(struct verify *v, const char *handle)
{
	struct admin_follow req = { .from = 0 };
	int r;

	snprintf(req.handle, sizeof(req.handle), "%s", handle);
	v->cli->event = take_event;
	v->cli->ctx = v;
	r = cli_request(v->cli, ADMIN_REQ_FOLLOW, &req, sizeof(req));
	if (r != 0)
		return r;
	while (r >= 0 && v->cli->up && !v->ended)
		r = loop_turn(v->cli->loop, -1);
	return v->ended ? 0 : cli_say_unreachable(v->cli, r < 0 ? r : v->cli->connect_err);
}

static enum run_verify
decide(const struct verify *v, const uint8_t digest[16])
{
	const struct admin_run *e = &v->end;
	uint64_t final = e->final_offset >= 0 ? (uint64_t)e->final_offset : e->bytes;

	if (!run_state_is_final((enum run_state)e->state))
		return RUN_UNVERIFIED;
	if (v->ngaps > 0 || (e->flags & ADMIN_RUN_GAPPED) != 0)
		return RUN_GAPPED;
	if (e->verify == RUN_CUT)
		return RUN_CUT;
	if (v->offset != final)
		return RUN_MISMATCH;	/* the file was cut, or is longer than it can be */
	if ((e->flags & ADMIN_RUN_DIGEST) == 0)
		return RUN_UNVERIFIED;
	return memcmp(digest, e->digest, sizeof(e->digest)) == 0 ? RUN_VERIFIED : RUN_MISMATCH;
}

static void
hex_of(char hex[33], const uint8_t digest[16])
{
	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

static void
print_json(const struct verify *v, enum run_verify result, const uint8_t digest[16])
{
	static char buf[16384];
	struct json_w w;
	char hex[33];

	json_w_init(&w, buf, sizeof(buf));
	json_w_obj(&w, NULL);
	json_w_str(&w, "handle", v->end.handle);
	json_w_str(&w, "result", run_verify_name(result));
	json_w_int(&w, "bytes", (int64_t)v->offset);
	json_w_int(&w, "final_offset", v->end.final_offset);
	hex_of(hex, v->end.digest);
	if ((v->end.flags & ADMIN_RUN_DIGEST) != 0)
		json_w_str(&w, "device_xxh3", hex);
	else
		json_w_null(&w, "device_xxh3");
	hex_of(hex, digest);
	if (v->ngaps == 0)
		json_w_str(&w, "stored_xxh3", hex);
	else
		json_w_null(&w, "stored_xxh3");
	json_w_arr(&w, "gaps");
	for (uint32_t i = 0; i < v->ngaps && i < GAPS_SHOWN; i++) {
		json_w_obj(&w, NULL);
		json_w_int(&w, "from", (int64_t)v->gaps[i].from);
		json_w_int(&w, "to", (int64_t)v->gaps[i].to);
		json_w_str(&w, "reason", logfile_gap_name(v->gaps[i].reason));
		json_w_end_obj(&w);
	}
	json_w_end_arr(&w);
	json_w_int(&w, "gap_count", v->ngaps);
	json_w_end_obj(&w);
	cli_print_json(&w);
}

static void
print_text(const struct verify *v, enum run_verify result)
{
	const struct admin_run *e = &v->end;

	printf("%s\n", run_verify_name(result));
	for (uint32_t i = 0; i < v->ngaps && i < GAPS_SHOWN; i++)
		fprintf(stderr, "edgehub: not verifiable, gap [%llu,%llu): %s\n", (unsigned long long)v->gaps[i].from,
		    (unsigned long long)v->gaps[i].to, logfile_gap_name(v->gaps[i].reason));
	if (result == RUN_GAPPED && v->ngaps == 0)
		fprintf(stderr, "edgehub: not verifiable: the device counted %lld bytes, %llu are here\n",
		    (long long)e->final_offset, (unsigned long long)e->bytes);
	else if (result == RUN_MISMATCH)
		fprintf(stderr, "edgehub: the device counted %lld bytes, %llu can be read\n", (long long)e->final_offset,
		    (unsigned long long)v->offset);
	else if (result == RUN_CUT)
		fprintf(stderr, "edgehub: the device lost the run: its log ends where it was\n");
	else if (result == RUN_UNVERIFIED)
		fprintf(stderr, "edgehub: %s\n", run_state_is_final((enum run_state)e->state) ?
		    "the device gave no digest" : "the run has not ended");
}

int
cli_verify(struct cli *cli, int argc, char *argv[])
{
	struct verify v = { .cli = cli, .state = XXH3_createState() };
	XXH128_canonical_t canon;
	enum run_verify result;
	int r;

	near_drop_dashes(&argc, &argv);
	if (argc != 2 || strlen(argv[1]) >= sizeof(v.end.handle)) {
		XXH3_freeState(v.state);
		return cli_usage("logs verify HANDLE");
	}
	if (v.state == NULL || XXH3_128bits_reset(v.state) != XXH_OK)
		return cli_fail(CLI_FAILED, "out of memory");
	r = read_log(&v, argv[1]);
	XXH128_canonicalFromHash(&canon, XXH3_128bits_digest(v.state));
	XXH3_freeState(v.state);
	if (r != 0)
		return r;
	result = decide(&v, canon.digest);
	if (cli->json)
		print_json(&v, result, canon.digest);
	else
		print_text(&v, result);
	return result == RUN_VERIFIED ? CLI_OK : result == RUN_MISMATCH ? CLI_FAILED : CLI_UNPROVEN;
}
