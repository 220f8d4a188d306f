/* B97, B98: manifests, signatures, records of upgrades, and kinds of programs. proto/release is where an upgrade's bytes are read. */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/release/lines.h"
#include "proto/release/machine.h"
#include "proto/release/manifest.h"
#include "proto/release/records.h"
#include "proto/release/signify.h"

#define H	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HEAD	"edgeward-release 1\nversion 1.2.3\nsequence 42\nchannel stable\narch x86_64\nprotocol 3\nexpires 2027-11-29\n"
#define FILES	"program connectd 10 " H "\nprogram workerd 20 " H "\nprogram launcher 30 " H "\nprogram privhelper 40 " H "\n" \
		"program privupgrade 50 " H "\nprogram privtrial 55 " H "\nprogram privaccount 5 " H "\nprogram edgectl 60 " H "\n"
#define GOOD	HEAD FILES "data sbom.spdx.json 7 " H "\nend 9\n"

static int
parse(const char *text, struct manifest *m)
{
	/* Of its exact size, so that a byte too far is seen. */
	size_t len = strlen(text);
	char *copy = malloc(len);
	int r;

	memcpy(copy, text, len);
	r = manifest_parse(copy, len, m);
	free(copy);
	return r;
}

static void
test_good_manifest(void **state)
{
	struct manifest m;

	assert_int_equal(parse(GOOD, &m), 0);
	assert_string_equal(m.version, "1.2.3");
	assert_int_equal(m.sequence, 42);
	assert_int_equal(m.expires, 1827446400);	/* date -ud 2027-11-29 +%s */
	assert_int_equal(m.nfiles, 9);
	assert_int_equal(m.total, 277);
	assert_true(manifest_find(&m, "edgectl")->program);
	assert_false(manifest_find(&m, "sbom.spdx.json")->program);
	assert_null(manifest_find(&m, "sbom"));
	assert_int_equal(m.files[0].sha256[0], 0x01);
	assert_int_equal(m.files[0].sha256[31], 0xef);
}

/* Each with one piece of GOOD replaced by another; all refused. */
static void
test_b97_bad_manifests(void **state)
{
	static const struct { const char *old, *new; } cases[] = {
		{ "release 1", "release 2" }, { "release 1", "release 01" }, { "sequence 42", "sequence 0" }, { "sequence 42", "sequence -1" },
		{ "sequence 42", "sequence 042" }, { "sequence 42", "sequence 4 2" }, { "sequence 42", "sequence 9007199254740992" },
		{ "sequence 42", "sequence 18446744073709551658" }, { "sequence 42\n", "sequence 42\nsequence 42\n" }, { "sequence 42\n", "" },
		{ "sequence 42", "Sequence 42" }, { "sequence 42", "sequence  42" }, { "sequence 42", "sequence 42 " }, { "sequence 42", "sequence\t42" },
		{ "version 1.2.3", "version" }, { "version 1.2.3", "version " }, { "version 1.2.3", "version -1" },
		{ "version 1.2.3", "version 12345678901234567890123456789012" }, { "channel stable", "channel sta/ble" },
		{ "2027-11-29", "2027-02-29" }, { "2027-11-29", "2027-13-01" }, { "2027-11-29", "2027-11-29T00" }, { "2027-11-29", "2027-1-29" },
		{ "2027-11-29", "1969-12-31" }, { "connectd 10", "connectd 0" }, { "connectd 10", "connectd 67108865" }, { "connectd 10", "connectd -1" },
		{ "connectd 10", "../connectd 10" }, { "connectd 10", "Connectd 10" }, { "program connectd", "data connectd" },
		{ "program workerd", "program connectd" }, { "program workerd", "program other" }, { H, "0" H }, { "program connectd 10 0", "program connectd 10 G" },
		{ "end 9", "end 8" }, { "end 9", "end" }, { "end 9\n", "end 9" }, { "end 9\n", "end 9\n\n" }, { "end 9\n", "" }, { "sbom.spdx.json", "manifest" },
		{ "sbom.spdx.json", "manifest.sig" }, { "sbom.spdx.json", "edgectl" }, { "sbom.spdx.json", ".sbom" }, { "program connectd 10 0", "program connectd 10 A" },
		{ "program privtrial", "program other" },
	};
	char text[4096];
	struct manifest m;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *at = strstr(GOOD, cases[i].old);

		assert_non_null(at);
		snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - GOOD), GOOD, cases[i].new, at + strlen(cases[i].old));
		if (parse(text, &m) != -EBADMSG)
			fail_msg("\"%s\" for \"%s\" was taken", cases[i].new, cases[i].old);
	}
}

static void
test_b98_cut_and_padded(void **state)
{
	char text[4096];
	struct manifest m;
	size_t len = strlen(GOOD);

	for (size_t n = 0; n < len; n++)
		assert_int_equal(manifest_parse(GOOD, n, &m), -EBADMSG);
	for (unsigned c = 0; c < 256; c++) {
		snprintf(text, sizeof(text), "%s", GOOD);
		text[len] = (char)c;
		assert_int_equal(manifest_parse(text, len + 1, &m), -EBADMSG);
	}
	/* The bound on all files together. */
	len = (size_t)snprintf(text, sizeof(text), "%s%s", HEAD, FILES);
	for (unsigned i = 0; i < 4; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "data f%u 67108864 %s\n", i, H);
	snprintf(text + len, sizeof(text) - len, "end 12\n");
	assert_int_equal(parse(text, &m), -EBADMSG);
}

static void
test_split(void **state)
{
	static const char file[] = "untrusted comment: x\nBASE64\n" GOOD "bytes\nend 3\nmore";
	struct release_head head;
	struct manifest m;

	assert_int_equal(release_split(file, sizeof(file) - 1, &head), 0);
	assert_int_equal(head.signature_len, 28);
	assert_int_equal(head.manifest_len, strlen(GOOD));
	assert_int_equal(manifest_parse(head.manifest, head.manifest_len, &m), 0);
	for (size_t n = 0; n < 28 + strlen(GOOD); n++)
		assert_int_equal(release_split(file, n, &head), -EBADMSG);
}

/* Made with signify-openbsd: key, signature of "edgeward\n". */
static const char pub[] = "untrusted comment: signify public key\nRWQAAQIDBAUGB///////////////////////////////////////////\n";

static void
test_signify(void **state)
{
	struct signify_key key;
	struct signify_sig sig;
	char bad[sizeof(pub)];

	assert_int_equal(signify_key_parse(pub, sizeof(pub) - 1, &key), 0);
	assert_int_equal(key.keynum[7], 7);
	assert_int_equal(key.key[31], 0xff);
	assert_int_equal(signify_sig_parse(pub, sizeof(pub) - 1, &sig), -EBADMSG);
	for (size_t n = 0; n < sizeof(pub) - 1; n++)
		assert_int_equal(signify_key_parse(pub, n, &key), -EBADMSG);
	assert_int_equal(signify_key_parse(pub, sizeof(pub), &key), -EBADMSG);
	memcpy(bad, pub, sizeof(bad));
	bad[strcspn(bad, "\n") + 2] = 'V';	/* another algorithm */
	assert_int_equal(signify_key_parse(bad, sizeof(bad) - 1, &key), -EBADMSG);
	memcpy(bad, pub, sizeof(bad));
	for (char *p = bad; (p = strchr(p, '/')) != NULL; )
		*p = '_';	/* the other alphabet: one key, one way to write it */
	assert_int_equal(signify_key_parse(bad, sizeof(bad) - 1, &key), -EBADMSG);
}

static void
test_request(void **state)
{
	struct upgrade_request r = { .sequence = 7, .id = "a-1", .settle = 30, .downgrade = true }, back;
	char text[512];
	int n = upgrade_request_write(&r, text, sizeof(text));

	assert_true(n > 0);
	assert_int_equal(upgrade_request_parse(text, (size_t)n, &back), 0);
	assert_int_equal(back.sequence, 7);
	assert_true(back.downgrade);
	for (int i = 0; i < n; i++)
		assert_int_equal(upgrade_request_parse(text, (size_t)i, &back), -EBADMSG);
	assert_int_equal(upgrade_request_write(&r, text, 20), -EMSGSIZE);
}

static void
test_state(void **state)
{
	struct upgrade_state s = { .phase = UPGRADE_BACK, .attempt = 3, .source = UPGRADE_OPERATOR, .id = "x", .from = "/usr/lib/edgeward", .from_sequence = 4,
		.sequence = 5, .version = "1.0", .entries = 1, .settle = 60, .units = 7, .connected = true, .peer = "[::1]:443", .code = "crashed", .detail = "a b" }, back;
	static const char *const froms[] = { "releases/0", "releases/x", "releases/../../etc", "etc", "/etc/../x", "/a//b", "releases/1/x" };
	char text[2048];
	int n = upgrade_state_write(&s, text, sizeof(text));

	assert_int_equal(upgrade_state_parse(text, (size_t)n, &back), 0);
	assert_memory_equal(&s.phase, &back.phase, sizeof(s.phase));
	assert_string_equal(back.detail, "a b");
	assert_int_equal(back.units, 7);
	for (size_t i = 0; i < sizeof(froms) / sizeof(froms[0]); i++) {
		snprintf(s.from, sizeof(s.from), "%s", froms[i]);
		n = upgrade_state_write(&s, text, sizeof(text));
		assert_int_equal(upgrade_state_parse(text, (size_t)n, &back), -EBADMSG);
	}
}

static struct upgrade_entry
entry(uint64_t attempt, enum upgrade_outcome outcome, uint64_t to)
{
	struct upgrade_entry e = { .attempt = attempt, .time = 1, .outcome = outcome, .to = to };

	memset(e.id, 'i', sizeof(e.id) - 1);
	memset(e.version, 'v', sizeof(e.version) - 1);
	memset(e.code, 'c', sizeof(e.code) - 1);
	memset(e.detail, 'd', sizeof(e.detail) - 1);
	return e;
}

/* Full, with everything as long as it gets, it can be written and read; refusals go first (B90: a flood does not make us forget). */
static void
test_b90_history(void **state)
{
	static struct upgrade_history h, back;
	static char text[UPGRADE_RECORD_MAX];
	struct upgrade_entry e = entry(1, UPGRADE_OUT_BACK, RELEASE_SEQUENCE_MAX);
	int n;

	upgrade_history_add(&h, &e);
	for (uint64_t i = 2; i < 100; i++) {
		e = entry(i, UPGRADE_OUT_REFUSED, RELEASE_SEQUENCE_MAX);
		upgrade_history_add(&h, &e);
	}
	assert_int_equal(h.n, UPGRADE_HISTORY_MAX);
	assert_int_equal(h.entries[0].attempt, 1);
	assert_int_equal(h.entries[h.n - 1].attempt, 99);
	n = upgrade_history_write(&h, text, sizeof(text));
	assert_true(n > 0);
	assert_int_equal(upgrade_history_parse(text, (size_t)n, &back), 0);
	assert_memory_equal(h.entries, back.entries, sizeof(h.entries));
}

static void
test_b90_tries(void **state)
{
	static const struct { enum upgrade_outcome outcome; uint64_t tries; } cases[] = {
		{ UPGRADE_OUT_REFUSED, 0 }, { UPGRADE_OUT_FAILED, 1 }, { UPGRADE_OUT_FAILED, 2 }, { UPGRADE_OUT_REFUSED, 2 }, { UPGRADE_OUT_DONE, 0 },
		{ UPGRADE_OUT_BACK, UPGRADE_TRIES },
	};
	static struct upgrade_history h;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct upgrade_entry e = entry(i + 1, cases[i].outcome, 9);

		upgrade_history_add(&h, &e);
		assert_int_equal(upgrade_history_tries(&h, 9), cases[i].tries);
		assert_int_equal(upgrade_history_tries(&h, 8), 0);
	}
}

static void
test_detail(void **state)
{
	static const struct { const char *text, *want; } cases[] = { { "", "-" }, { "  ", "-" }, { " a b ", "a b" }, { "a\nb\x01", "a b" }, { "\xff", "-" } };
	char detail[UPGRADE_DETAIL_SIZE], longer[400];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		upgrade_detail(detail, cases[i].text);
		assert_string_equal(detail, cases[i].want);
	}
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	upgrade_detail(detail, longer);
	assert_int_equal(strlen(detail), UPGRADE_DETAIL_SIZE - 1);
}

static void
test_probe(void **state)
{
	static struct upgrade_probe p = { .net_up = true, .connected = true, .protocol = 20, .work_pid = 5, .peer = "-", .cause = "none", .nwork = UPGRADE_WORK_MAX }, back;
	static char text[UPGRADE_RECORD_MAX];
	int n;

	for (unsigned i = 0; i < p.nwork; i++) {
		memset(p.work[i].handle, 'h', sizeof(p.work[i].handle) - 1);
		p.work[i].pid = INT32_MAX;
	}
	n = upgrade_probe_write(&p, text, sizeof(text));
	assert_true(n > 0);
	assert_int_equal(upgrade_probe_parse(text, (size_t)n, &back), 0);
	assert_memory_equal(&p, &back, sizeof(p));
	n += snprintf(text + n, sizeof(text) - (size_t)n, "work x 1\n");
	assert_int_equal(upgrade_probe_parse(text, (size_t)n, &back), -EBADMSG);
}

static void
test_conf_and_package(void **state)
{
	static const char good[] = "channel edge\nsettle 5\nsettle-max 600\n", twice[] = "channel edge\nchannel edge\nsettle 5\nsettle-max 600\n",
	    big[] = "channel edge\nsettle 5\nsettle-max 601\n", line[] = "release 1.2 34\n";
	struct upgrade_conf c;
	char version[RELEASE_VERSION_SIZE];
	uint64_t sequence;

	assert_int_equal(upgrade_conf_parse(good, sizeof(good) - 1, &c), 0);
	assert_int_equal(c.settle_max, 600);
	assert_int_equal(upgrade_conf_parse(twice, sizeof(twice) - 1, &c), -EBADMSG);
	assert_int_equal(upgrade_conf_parse(big, sizeof(big) - 1, &c), -EBADMSG);
	assert_int_equal(upgrade_packaged_parse(line, sizeof(line) - 1, version, &sequence), 0);
	assert_int_equal(sequence, 34);
	for (size_t n = 0; n < sizeof(line) - 1; n++)
		assert_int_equal(upgrade_packaged_parse(line, n, version, &sequence), -EBADMSG);
}

/* B100: this very program is of this machine's kind; a byte changed in what counts and it is not. */
static void
test_b100_machine(void **state)
{
	static uint8_t head[MACHINE_HEAD];
	static const struct { size_t at; uint8_t value; } bad[] = { { 0, 0 }, { 4, 1 }, { 5, 9 }, { 16, 1 }, { 54, 1 }, { 57, 0xff }, { 39, 0xff } };
	FILE *f = fopen("/proc/self/exe", "r");
	struct machine kind, other;
	size_t n = fread(head, 1, sizeof(head), f);

	fclose(f);
	assert_int_equal(machine_of(head, n, &kind), 0);
	assert_string_not_equal(machine_arch(&kind), "unknown");
	assert_true(strncmp(kind.interp, "/lib", 4) == 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint8_t old = head[bad[i].at];

		head[bad[i].at] = bad[i].value;
		assert_int_equal(machine_of(head, n, &other), -EBADMSG);
		head[bad[i].at] = old;
	}
	for (n = 0; n < 64 + 56; n++)
		assert_int_equal(machine_of(head, n, &other), -EBADMSG);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_manifest), cmocka_unit_test(test_b97_bad_manifests), cmocka_unit_test(test_b98_cut_and_padded),
		cmocka_unit_test(test_split), cmocka_unit_test(test_signify), cmocka_unit_test(test_request), cmocka_unit_test(test_state),
		cmocka_unit_test(test_b90_history), cmocka_unit_test(test_b90_tries), cmocka_unit_test(test_detail), cmocka_unit_test(test_probe),
		cmocka_unit_test(test_conf_and_package), cmocka_unit_test(test_b100_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
