/*
 * statelife KIND old|new|check DIR: the life of one state file of a daemon, by the daemon's own code, for test_state_interrupt.py.
 *
 * old makes the file as it was, new changes it as the daemon does (and is killed at each call on its way), check loads what is there as the
 * daemon does at its start and prints "old", "new" or "between": exit code 0. Anything else that is found is told on stderr: exit code 1.
 * Between is allowed where a file is appended to: a beginning of what was to be written, every part of it as it was written. "gone" is a spool
 * of which nothing is left that the hub has not got.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/audit.h"
#include "common/fdutil.h"
#include "common/usbledger.h"
#include "connectd/clock.h"
#include "connectd/cred.h"
#include "proto/ipc/work.h"
#include "tests/tools/statelife.h"
#include "workerd/journal.h"
#include "workerd/owners.h"
#include "workerd/spool.h"

#define YEAR_NS		(INT64_C(365) * 86400 * 1000000000)
#define OLD_BYTES	100000u
#define NEW_BYTES	700000u

int dir;

void
wrong(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
	exit(1);
}

static const char *
old_or_new(bool is_new)
{
	return is_new ? "new" : "old";
}

/* ---- credential, with its pin ---- */

static void
cred_write(bool is_new)
{
	static struct cred_store store;
	struct cred c = { .server = "wss://hub.example/api", .name = "edge", .enrolled_at = "2026-09-30T12:00:00Z" };

	cred_load(&store, dir);
	snprintf(c.agent_id, sizeof(c.agent_id), "%s", is_new ? "zzzzzzzzzzzzzzzz" : "q83vEjRWeJA_Zm9v");
	snprintf(c.credential, sizeof(c.credential), "clac1.%s.secret", is_new ? "new" : "old");
	snprintf(c.pin, sizeof(c.pin), "sha256:%s=", is_new ? "new" : "old");
	NEED(cred_save(&store, &c) == 0);
}

static const char *
cred_check(void)
{
	static struct cred_store store;
	bool is_new;

	cred_load(&store, dir);
	NEED(store.state == CRED_GOOD);
	is_new = strcmp(store.cred.credential, "clac1.new.secret") == 0;
	NEED(strcmp(store.cred.credential, is_new ? "clac1.new.secret" : "clac1.old.secret") == 0);
	NEED(strcmp(store.cred.pin, is_new ? "sha256:new=" : "sha256:old=") == 0);
	NEED(strcmp(store.cred.agent_id, is_new ? "zzzzzzzzzzzzzzzz" : "q83vEjRWeJA_Zm9v") == 0);
	return old_or_new(is_new);
}

/* ---- the time that certificates are checked by ---- */

static void
clock_write(bool is_new)
{
	int64_t now = 57 * YEAR_NS + (is_new ? YEAR_NS : 0);
	struct clock_floor c;
	bool damaged;

	clock_init(&c, dir, 56 * YEAR_NS, &damaged);
	NEED(clock_confirm(&c, now, now) >= 0);
}

static const char *
clock_check(void)
{
	struct clock_floor c;
	bool damaged;

	clock_init(&c, dir, 56 * YEAR_NS, &damaged);
	NEED(!damaged && c.saved_ns >= 57 * YEAR_NS);
	return old_or_new(c.saved_ns >= 58 * YEAR_NS);
}

/* ---- to whom runner ids were given ---- */

static const struct pool pool = { .first = 70000, .count = 8, .gid = 70000 };

static void
owners_write(bool is_new)
{
	static struct owners o;

	owners_init(&o, dir);
	NEED(owners_claim(&o, &pool, 1, "first", false) == 0);
	NEED(!is_new || owners_claim(&o, &pool, 2, "second", false) == 0);
}

static const char *
owners_read(void)
{
	static struct owners o;
	bool is_new;

	owners_init(&o, dir);
	NEED(owners_check(&o, &pool, 1, "somebody-else", false) == -EPERM);	/* it was not forgotten */
	is_new = owners_check(&o, &pool, 2, "somebody-else", false) == -EPERM;
	NEED(faccessat(dir, "owners.bad", F_OK, 0) < 0);
	return old_or_new(is_new);
}

/* ---- what was started, ended, delivered ---- */

static char lives[8];
static struct journal_record kept[8];
static size_t nlives;

static void
see_live(const struct journal_record *rec, void *ctx)
{
	NEED(nlives < sizeof(lives) && rec->handle[1] == '\0');
	kept[nlives] = *rec;
	lives[nlives++] = rec->handle[0];
}

static void
journal_add(struct journal *j, enum journal_type type, const char *handle)
{
	struct journal_record rec = { .type = (uint16_t)type, .instance = 5, .outcome = type == JOURNAL_ENDED ? WORK_OUTCOME_EXITED : 0 };

	snprintf(rec.handle, sizeof(rec.handle), "%s", handle);
	NEED(journal_append(j, &rec) == 0);
}

static void
journal_write(bool is_new)
{
	static struct journal j;

	NEED(journal_open(&j, dir, see_live, NULL) >= 0);
	if (!is_new) {
		journal_add(&j, JOURNAL_STARTED, "x");
		journal_add(&j, JOURNAL_DELIVERED, "x");
		journal_add(&j, JOURNAL_STARTED, "a");
	} else if (!journal_seen(&j, "a")) {
		journal_add(&j, JOURNAL_STARTED, "b");
		journal_add(&j, JOURNAL_ENDED, "a");
		journal_add(&j, JOURNAL_DELIVERED, "a");
		journal_close(&j);
		nlives = 0;
		NEED(journal_open(&j, dir, see_live, NULL) == 0);
		NEED(journal_rewrite(&j, kept, nlives) == 0);
	}
	journal_close(&j);
}

static const char *
journal_check(void)
{
	static struct journal j;
	bool a, b;

	NEED(journal_open(&j, dir, see_live, NULL) == 0);	/* nothing had to be set aside */
	NEED(journal_seen(&j, "x"));
	a = memchr(lives, 'a', nlives) != NULL;
	b = memchr(lives, 'b', nlives) != NULL;
	NEED(a != journal_seen(&j, "a") && nlives == (size_t)a + b && (a || b));
	journal_close(&j);
	return a ? b ? "between" : "old" : "new";
}

/* ---- spooled output ---- */

static struct spooldir sd;
static const struct conf conf = { .work_spool = 1600000, .work_spool_total = 8000000 };

static uint8_t
byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 2654435761u >> 13);
}

static uint64_t
spool_fill(struct spool *sp, uint64_t from, uint64_t to)
{
	static uint8_t text[50000];

	while (from < to) {
		size_t len = to - from < sizeof(text) ? (size_t)(to - from) : sizeof(text);
		ssize_t n;

		for (size_t i = 0; i < len; i++)
			text[i] = byte_at(from + i);
		n = spool_write(sp, from, text, len, WORK_GAP_DISK, from + len);
		NEED(n > 0);
		from += (uint64_t)n;
	}
	return from;
}

static void
spool_life(bool is_new)
{
	struct spool *sp;

	spooldir_open(&sd, dir, &conf);
	sp = spool_adopt(&sd, "a", UINT64_MAX);
	if (sp == NULL)
		sp = spool_new(&sd, "a");
	NEED(sp != NULL);
	spool_fill(sp, spool_end(sp), is_new ? NEW_BYTES : OLD_BYTES);
	if (is_new)
		spool_ack(sp, NEW_BYTES / 3);
	spool_finish(sp);
	spool_free(sp);
	spooldir_close(&sd);
}

/* Every byte that is told is the right one, and those that were there before are there, or acknowledged. */
static const char *
spool_check(void)
{
	uint64_t from, end;
	struct retained at;
	struct spool *sp;
	bool lost = false;

	spooldir_open(&sd, dir, &conf);
	sp = spool_adopt(&sd, "a", UINT64_MAX);
	NEED(sp != NULL);
	from = spool_from(sp);
	end = spool_end(sp);
	if (end == 0)
		return "gone";	/* a power cut after the hub had acknowledged what is synced */
	NEED(end >= OLD_BYTES && end <= NEW_BYTES && from <= NEW_BYTES / 3);
	for (uint64_t i = from; i < end; i += at.len) {
		if (!spool_at(sp, i, &at, &lost) || at.len == 0) {
			NEED(i >= OLD_BYTES);	/* of what a power cut took the end is a gap */
			break;
		}
		for (uint64_t k = 0; k < at.len; k++)
			NEED(at.data[k] == byte_at(i + k));
	}
	spool_free(sp);
	spooldir_close(&sd);
	return end == NEW_BYTES && from > 0 ? "new" : end == OLD_BYTES ? "old" : "between";
}

/* ---- the record of root's verbs ---- */

static void
audit_write(bool is_new)
{
	struct audit a;

	if (!is_new) {
		NEED(audit_open(dir, "audit", 1 << 20, &a) == 0);
		for (unsigned i = 1; i <= 3; i++)
			NEED(audit_append(&a, "verb number=%u", i) == 0);
		close(a.fd);
		return;
	}
	NEED(audit_open(dir, "audit", 1 << 20, &a) == 0);
	if (a.head.seq < 4)
		NEED(audit_append(&a, "verb number=4") == 0);
	close(a.fd);
	NEED(audit_open(dir, "audit", 10, &a) == 0);	/* has grown too long: a new one continues it */
	NEED(audit_append(&a, "verb number=5") == 0);
	close(a.fd);
}

/* Line after line, the old file first. */
static unsigned
audit_lines(const char *name, struct audit_head *head)
{
	uint8_t *data;
	size_t len;
	unsigned n = 0;

	if (fd_read_file(dir, name, 1 << 20, &data, &len) < 0)
		return 0;
	for (char *p = (char *)data, *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1, n++)
		NEED(audit_check(head, p, (size_t)(nl - p)) == 0);
	free(data);
	return n;
}

static const char *
audit_read(void)
{
	struct audit_head head = audit_first;
	struct audit a;
	unsigned n;

	NEED(audit_open(dir, "audit", 1 << 20, &a) == 0);
	NEED(audit_append(&a, "after that") == 0);
	n = audit_lines("audit.old", &head);
	n += audit_lines("audit", &head);
	NEED(n >= 2 && head.seq == a.head.seq && strcmp(head.digest, a.head.digest) == 0);
	close(a.fd);
	return head.seq == 4 ? "old" : head.seq >= 7 ? "new" : "between";
}

/* ---- ports of root's USB verb ---- */

static int
ledger_open(struct usbledger *l)
{
	NEED(usbledger_open(l, dir, "usb", monotime_now()) >= 0);
	return l->fd;
}

static void
ledger_write(bool is_new)
{
	static struct usbledger l;
	int fd = ledger_open(&l);

	for (unsigned i = 0; i < (is_new ? 3u : 1u); i++) {
		l.slots[i] = (struct usb_slot){ USB_WAITING, i, 100 + i, 1000 + i, monotime_now() };
		NEED(usbledger_keep(&l, &l.slots[i]) == 0);
	}
	close(fd);
}

static const char *
ledger_check(void)
{
	static struct usbledger l;
	int fd = ledger_open(&l);
	unsigned n = 0;

	for (unsigned i = 0; i < USBLEDGER_SLOTS; i++) {
		if (l.slots[i].state != USB_STALE)
			continue;
		NEED(i == n && l.slots[i].port == i && l.slots[i].devid == 100 + i && l.slots[i].mark == 1000 + i);
		n++;
	}
	close(fd);
	NEED(n >= 1 && n <= 3);
	return n == 1 ? "old" : n == 3 ? "new" : "between";
}

static const struct {
	const char *name;
	void (*write)(bool is_new);
	const char *(*check)(void);
} kinds[] = {
	{ "credential", cred_write, cred_check }, { "clock", clock_write, clock_check }, { "owners", owners_write, owners_read },
	{ "journal", journal_write, journal_check }, { "spool", spool_life, spool_check }, { "audit", audit_write, audit_read },
	{ "ledger", ledger_write, ledger_check }, { "job", job_write, job_check }, { "upgrade", upgrade_write, upgrade_check }, { "told", told_write, told_check },
	{ "events", events_write, events_check }, { "result", result_write, result_check },
};

int
main(int argc, char **argv)
{
	dir = argc == 4 ? open(argv[3], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	umask(022);
	for (size_t i = 0; dir >= 0 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(argv[1], kinds[i].name) != 0)
			continue;
		if (strcmp(argv[2], "check") == 0)
			puts(kinds[i].check());
		else
			kinds[i].write(strcmp(argv[2], "new") == 0);
		return 0;
	}
	return 2;
}
