/*
 * What the sink says. Frames of the agent are searched for the keys that matter instead of parsed: the programs under
 * test are trusted here, and a parser would be measured with them.
 *
 * It acknowledges as a real hub does: cloop every 32 KiB, edgeward.1 with each window, which it opens again when a quarter
 * of it is used up. The window is a megabyte, as much as an agent retains.
 */
#include "hub.h"

#include <arpa/inet.h>
#include <endian.h>

#include "bench.h"

#define RUNS		65536u		/* remembered; older ones are over */
#define WINDOW		(1u << 20)
#define CLOOP_ACK	32768u
#define DATA_HEADER	16u

struct run {
	unsigned id;
	uint64_t received, acked;
	bool ended;
};

static enum conn_path dialect;
static struct run runs[RUNS];
static unsigned last_run;
static uint32_t channel_run[2 * RUNS];		/* run of a log channel, by channel / 2 */

static struct run *
find_run(unsigned id)
{
	struct run *r = &runs[id % RUNS];

	return r->id == id && id != 0 ? r : NULL;
}

/* The value of the first member so named, or NULL. Frames are not NUL-terminated: text is copied first. */
static const char *
member(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *p = text; (p = strstr(p, key)) != NULL; p += n) {
		if (p == text || p[-1] != '"' || p[n] != '"')
			continue;
		const char *v = p + n + 1;
		while (*v == ' ')
			v++;
		if (*v != ':')
			continue;
		for (v++; *v == ' '; v++)
			;
		return v;
	}
	return NULL;
}

static unsigned long
member_number(const char *text, const char *key)
{
	const char *v = member(text, key);

	return v != NULL ? strtoul(v, NULL, 10) : 0;
}

static bool
member_is(const char *text, const char *key, const char *value)
{
	const char *v = member(text, key);

	return v != NULL && *v == '"' && strncmp(v + 1, value, strlen(value)) == 0 && v[1 + strlen(value)] == '"';
}

/* Handles are "run-PID-N"; another number is a run of an earlier sink. */
static unsigned
run_of(const char *text)
{
	const char *v = member(text, "handle");
	int pid;
	unsigned id;

	if (v == NULL || sscanf(v, "\"run-%d-%u\"", &pid, &id) != 2 || pid != (int)getpid())
		return 0;
	return id;
}

bool
hub_start(const char *const argv[])
{
	char list[2048] = "";
	size_t n = 0;

	for (size_t i = 0; argv[i] != NULL; i++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s\"%s\"", i > 0 ? "," : "", argv[i]);
	unsigned id = ++last_run;
	runs[id % RUNS] = (struct run){ .id = id };
	if (dialect == CONN_PEER)
		return conn_text("{\"op\":\"run\",\"id\":%u,\"argv\":[%s]}", id, list);
	return conn_text("{\"v\":1,\"type\":\"start\",\"id\":\"c%u\",\"handle\":\"run-%d-%u\",\"payload\":{"
	    "\"handle_id\":\"run-%d-%u\",\"spec\":{\"work_dir\":\"bench\",\"argv\":[%s],\"resource_limits\":{},"
	    "\"workspace\":{},\"write_back\":{}},\"sandbox\":{}}}", id, (int)getpid(), id, (int)getpid(), id, list);
}

bool
hub_begin(enum conn_path path, bool enroll)
{
	struct conn_frame f;

	dialect = path;
	memset(channel_run, 0, sizeof(channel_run));
	if (path == CONN_PEER)
		return true;
	if (!conn_read(&f) || f.opcode != 1)
		return false;
	return conn_text("{\"v\":1,\"type\":\"welcome\",\"id\":\"hello\",\"payload\":{\"protocol_version\":1,"
	    "\"executor_id\":\"benchmark0000001\",%s\"heartbeat_seconds\":15}}",
	    enroll ? "\"credential\":\"clac1.benchmark0000001.0123456789012345678901234567890123456789012."
		     "00000000000000000000000000000000\"," : "");
}

static bool
open_window(uint32_t channel, uint64_t received)
{
	uint8_t frame[DATA_HEADER] = { 2 };
	uint32_t c = htonl(channel);
	uint64_t limit = htobe64(received + WINDOW);

	memcpy(frame + 4, &c, 4);
	memcpy(frame + 8, &limit, 8);
	return conn_binary(frame, sizeof(frame));
}

/* Acknowledges what has come when it is enough, or all of it at the end. */
static bool
acknowledge(struct run *r, uint32_t channel, bool all)
{
	uint64_t unacked = r->received - r->acked;
	uint64_t step = dialect == CONN_CLOOP ? CLOOP_ACK : WINDOW / 4;

	if (unacked == 0 || (unacked < step && !all))
		return true;
	r->acked = r->received;
	if (channel != 0 && !all && !open_window(channel, r->received))
		return false;
	return conn_text("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"run-%d-%u\",\"payload\":{\"offset\":%llu}}",
	    (int)getpid(), r->id, (unsigned long long)r->received);
}

static bool
binary_frame(const struct conn_frame *f, struct hub_event *ev)
{
	uint32_t id;

	if (dialect == CONN_PEER) {
		if (f->len < 4)
			return false;
		memcpy(&id, f->data, 4);
		*ev = (struct hub_event){ HUB_OUTPUT, ntohl(id), f->len - 4 };
		return true;
	}
	if (f->len <= DATA_HEADER || f->data[0] != 1)
		return true;
	uint32_t channel;
	memcpy(&channel, f->data + 4, 4);
	channel = ntohl(channel);
	struct run *r = find_run(channel_run[channel / 2 % (2 * RUNS)]);
	if (r == NULL) {
		fprintf(stderr, "sink: data on unknown channel %u\n", channel);
		return true;
	}
	r->received += f->len - DATA_HEADER;
	*ev = (struct hub_event){ HUB_OUTPUT, r->id, f->len - DATA_HEADER };
	return acknowledge(r, channel, false);
}

/* The length of a JSON string's value: an escape is one byte, \u00xx as well (the generator writes ASCII). */
static size_t
decoded_length(const char *v)
{
	const char *start = v, *p = v;
	size_t less = 0;

	for (;;) {
		p += strcspn(p, "\"\\");
		if (*p != '\\')
			return (size_t)(p - start) - less;
		size_t n = p[1] == 'u' ? 6 : 2;
		less += n - 1;
		p += n;
	}
}

static bool
log_chunk(const char *text, struct hub_event *ev)
{
	struct run *r = find_run(run_of(text));
	const char *v = member(text, "text");

	if (r == NULL || v == NULL || *v != '"')
		return true;
	size_t n = decoded_length(v + 1);
	uint64_t offset = member_number(text, "offset");
	if (offset != r->received)
		fprintf(stderr, "sink: chunk at %llu, expected %llu\n", (unsigned long long)offset,
		    (unsigned long long)r->received);
	r->received = offset + n;
	*ev = (struct hub_event){ HUB_OUTPUT, r->id, n };
	return acknowledge(r, 0, false);
}

static bool
status(const char *text, struct hub_event *ev)
{
	struct run *r = find_run(run_of(text));

	if (r == NULL || r->ended || member_is(text, "state", "running") || member_is(text, "state", "pending"))
		return true;
	if (!member_is(text, "state", "exited"))
		fprintf(stderr, "sink: %s\n", text);
	r->ended = true;
	*ev = (struct hub_event){ HUB_ENDED, r->id, 0 };
	return acknowledge(r, 0, true);
}

static bool
refused(const char *text, struct hub_event *ev)
{
	struct run *r = find_run(run_of(text));

	fprintf(stderr, "sink: refused: %s\n", text);
	if (r != NULL && !r->ended) {
		r->ended = true;
		*ev = (struct hub_event){ HUB_ENDED, r->id, 0 };
	}
	return true;
}

static bool
log_open(const char *text)
{
	uint32_t channel = (uint32_t)member_number(text, "channel");

	channel_run[channel / 2 % (2 * RUNS)] = run_of(text);
	return open_window(channel, 0);
}

static bool
text_frame(const char *text, struct hub_event *ev)
{
	if (dialect == CONN_PEER) {
		struct run *r = find_run((unsigned)member_number(text, "id"));
		if (r != NULL && member_is(text, "op", "exit"))
			*ev = (struct hub_event){ HUB_ENDED, r->id, 0 };
		return true;
	}
	if (member_is(text, "type", "log_chunk"))
		return log_chunk(text, ev);
	if (member_is(text, "type", "status"))
		return status(text, ev);
	if (member_is(text, "type", "log_open"))
		return log_open(text);
	if (member_is(text, "type", "heartbeat"))
		return conn_text("{\"v\":1,\"type\":\"heartbeat_ack\",\"id\":\"hb-%lu\",\"payload\":{\"seq\":%lu,"
		    "\"server_time\":\"2026-01-01T00:00:00Z\"}}", member_number(text, "seq"), member_number(text, "seq"));
	if (member_is(text, "type", "error") ||
	    (member_is(text, "type", "started") && member(text, "error") != NULL))
		return refused(text, ev);
	return true;
}

bool
hub_next(struct hub_event *ev)
{
	static char text[1 << 20];
	struct conn_frame f;

	*ev = (struct hub_event){ HUB_NOTHING };
	if (!conn_read(&f))
		return false;
	if (f.opcode == 2)
		return binary_frame(&f, ev);
	if (f.len >= sizeof(text))
		return false;
	memcpy(text, f.data, f.len);
	text[f.len] = '\0';
	return text_frame(text, ev);
}
