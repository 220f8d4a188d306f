/*
 * B98: every byte of a release is covered. Here by the very code of privupgrade (verify.c, stage.c): bits of each byte flipped, cut at each
 * byte, padded, as wrong a size as there can be. Where it could go wrong: a length that is added up, a range that is hashed and another that is
 * used, bytes nobody looks at. What is not covered is said: the text of signify's "untrusted comment".
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "privupgrade/privupgrade.h"
#include "proto/hub/base64.h"
#include "proto/release/signify.h"
#include "tests/unit/unit.h"

#define COMMENT	"untrusted comment: "

static char keys[] = "/dev/shm/test_verify.XXXXXX";
static struct updater u;
static EVP_PKEY *key;
static char data[16384];
static size_t size, body;	/* body: where the files begin */
static int fd;

/* As small as a program can be that this machine would run. */
static size_t
tiny_program(char *buf)
{
	FILE *f = fopen("/proc/self/exe", "r");
	static uint8_t own[MACHINE_HEAD];
	struct machine kind;
	Elf64_Ehdr eh;
	Elf64_Phdr ph[2] = { { .p_type = PT_INTERP }, { .p_type = PT_LOAD } };
	size_t n;

	assert_non_null(f);
	n = fread(own, 1, sizeof(own), f);
	fclose(f);
	assert_int_equal(machine_of(own, n, &kind), 0);
	memcpy(&eh, own, sizeof(eh));
	eh.e_phoff = sizeof(eh);
	eh.e_phnum = 2;
	ph[0].p_offset = sizeof(eh) + sizeof(ph);
	ph[0].p_filesz = strlen(kind.interp) + 1;
	memcpy(buf, &eh, sizeof(eh));
	memcpy(buf + sizeof(eh), ph, sizeof(ph));
	memcpy(buf + ph[0].p_offset, kind.interp, ph[0].p_filesz);
	return ph[0].p_offset + ph[0].p_filesz;
}

static void
sign(const char *text, size_t len, char *out, size_t out_size)
{
	uint8_t raw[2 + SIGNIFY_KEYNUM + SIGNIFY_SIG] = "Ed01234567";
	size_t n = SIGNIFY_SIG;
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	char b64[BASE64_LEN(sizeof(raw)) + 1];

	assert_int_equal(EVP_DigestSignInit(ctx, NULL, NULL, NULL, key), 1);
	assert_int_equal(EVP_DigestSign(ctx, raw + 2 + SIGNIFY_KEYNUM, &n, (const uint8_t *)text, len), 1);
	EVP_MD_CTX_free(ctx);
	EVP_EncodeBlock((uint8_t *)b64, raw, sizeof(raw));
	snprintf(out, out_size, COMMENT "test\n%s\n", b64);
}

static void
make_key(void)
{
	uint8_t raw[2 + SIGNIFY_KEYNUM + SIGNIFY_KEY] = "Ed01234567";
	size_t n = SIGNIFY_KEY;
	char path[64], b64[BASE64_LEN(sizeof(raw)) + 1];
	FILE *f;

	key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	assert_int_equal(EVP_PKEY_get_raw_public_key(key, raw + 2 + SIGNIFY_KEYNUM, &n), 1);
	EVP_EncodeBlock((uint8_t *)b64, raw, sizeof(raw));
	assert_non_null(mkdtemp(keys));
	snprintf(path, sizeof(path), "%s/k.pub", keys);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "untrusted comment: public key\n%s\n", b64);
	assert_int_equal(fchmod(fileno(f), 0644), 0);
	fclose(f);
	u.keys_path = keys;
	u.conf_path = "/nonexistent/upgrade.conf";
}

static int
setup(void **state)
{
	char program[512], manifest[4096], hex[65], sig[512];
	uint8_t hash[32];
	size_t psize, n;
	unsigned nfiles = 0;

	make_key();
	psize = tiny_program(program);
	assert_int_equal(EVP_Q_digest(NULL, "SHA256", NULL, program, psize, hash, NULL), 1);
	for (unsigned i = 0; i < 32; i++)
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	n = (size_t)snprintf(manifest, sizeof(manifest), "edgeward-release 1\nversion 2.0\nsequence 7\nchannel stable\narch %s\nprotocol 1\n"
	    "expires 2099-12-31\n", EM_X86_64 == ((Elf64_Ehdr *)(void *)program)->e_machine ? "x86_64" : "aarch64");
	for (const char *const *name = release_required; *name != NULL; name++, nfiles++)
		n += (size_t)snprintf(manifest + n, sizeof(manifest) - n, "program %s %zu %s\n", *name, psize, hex);
	n += (size_t)snprintf(manifest + n, sizeof(manifest) - n, "end %u\n", nfiles);
	sign(manifest, n, sig, sizeof(sig));
	size = (size_t)snprintf(data, sizeof(data), "%s%s", sig, manifest);
	body = size;
	for (unsigned i = 0; i < nfiles; i++, size += psize)
		memcpy(data + size, program, psize);
	fd = memfd_create("release", MFD_CLOEXEC);
	assert_true(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	return 0;
}

static int
teardown(void **state)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/k.pub", keys);
	unlink(path);
	rmdir(keys);
	close(fd);
	EVP_PKEY_free(key);
	return 0;
}

/* As privupgrade -n does it. */
static int
check(uint64_t file_size)
{
	static struct release rel;
	struct upgrade_conf conf;
	struct fit fit = { .size = file_size };
	int r = verify_conf(&u, &conf);

	assert_int_equal(r, 0);
	r = verify_release(&u, fd, &fit, &conf, &rel);
	return r == 0 ? stage_files(&u, fd, &rel, -1) : r;
}

static void
test_b98_every_byte(void **state)
{
	size_t comment = strlen(COMMENT), text_end = (size_t)(strchr(data, '\n') - data);

	assert_int_equal(check(size), 0);
	for (size_t at = 0; at < size; at++) {
		if (at >= comment && at < text_end)
			continue;
		for (unsigned bit = (unsigned)at % 4; bit < 8; bit += 4) {	/* two of them; the others cost time and show nothing more */
			char c = (char)(data[at] ^ 1 << bit);

			assert_int_equal(pwrite(fd, &c, 1, (off_t)at), 1);
			if (check(size) != -ECANCELED)
				fail_msg("bit %u of byte %zu makes no difference", bit, at);
		}
		assert_int_equal(pwrite(fd, data + at, 1, (off_t)at), 1);
	}
	assert_int_equal(check(size), 0);
}

static void
test_b98_every_cut(void **state)
{
	static const uint64_t wrong[] = { 0, 1, INT32_MAX, 1ull << 31, (1ull << 31) + 1, UINT32_MAX, 1ull << 32, (1ull << 32) + 1, INT64_MAX, UINT64_MAX };

	for (size_t n = 0; n < size; n++) {
		assert_int_equal(ftruncate(fd, (off_t)n), 0);
		assert_int_equal(check(n), -ECANCELED);
		/* Or it grew and shrank again between: what was read decides, not the size. */
		if (n >= body)
			assert_int_equal(check(size), -ECANCELED);
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, data, size, 0), (ssize_t)size);
	}
	for (size_t more = 1; more < 70; more++)
		assert_int_equal(check(size + more), -ECANCELED);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(check(wrong[i]), -ECANCELED);
	for (int64_t d = -3; d <= 3; d++)
		assert_int_equal(check((uint64_t)((int64_t)size + d)), d == 0 ? 0 : -ECANCELED);
}

/* Two files of one length exchanged in the body are two wrong files, unless they are the same. */
static void
test_b98_order_of_files(void **state)
{
	char c = data[size - 1], other = (char)(c ^ 1);

	assert_int_equal(pwrite(fd, &other, 1, (off_t)size - 1), 1);
	assert_int_equal(check(size), -ECANCELED);
	assert_string_equal(u.why.code, "bad-file");
	assert_int_equal(pwrite(fd, &c, 1, (off_t)size - 1), 1);
	assert_int_equal(check(size), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_b98_every_byte), cmocka_unit_test(test_b98_every_cut), cmocka_unit_test(test_b98_order_of_files),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
