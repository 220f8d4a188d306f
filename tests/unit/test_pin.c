#include <errno.h>
#include <string.h>

#include "connectd/pin.h"
#include "tests/unit/unit.h"

#define A	"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define B	"_____________________________________________"

static void
accepted(void **state)
{
	static const struct { const char *text; unsigned n; } t[] = {
		{ "", 0 }, { A, 1 }, { "sha256:" A, 1 }, { "SHA256:" A, 1 }, { " \tsha256:" A "\n", 1 },
		{ A "," A, 2 }, { A " sha256:" A, 2 }, { A ",, " A ",", 2 },
		{ "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", 1 },
		{ "-_ECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", 1 }, { "+/ECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", 1 },
	};
	struct pinset pins;
	char err[PIN_ERR_SIZE], text[PIN_TEXT_SIZE];

	for (size_t i = 0; i < COUNT(t); i++) {
		assert_int_equal(pin_parse(t[i].text, &pins, err), 0);
		assert_int_equal(pins.n, t[i].n);
	}
	assert_int_equal(pin_parse(A, &pins, err), 0);
	assert_string_equal(pin_format(pins.digest[0], text), "sha256:" A);
}

static void
refused(void **state)
{
	static const char *const t[] = {
		" ", ",", "sha1:" A, "md5:abc", ":" A, "sha256:", "sha256", "sha256:" A "=", "sha256:" A "A", "abc",
		"sha256:+-ECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "sha256:" B, A ";" A, "sha256:sha256:" A,
	};
	char many[(sizeof(A)) * 18] = "", err[PIN_ERR_SIZE];
	struct pinset pins = { .n = 7 };

	for (size_t i = 0; i < COUNT(t); i++)
		if (pin_parse(t[i], &pins, err) != -EINVAL)
			fail_msg("taken: %s", t[i]);
	for (unsigned i = 0; i < PINS_MAX + 1; i++)
		strcat(many, A ",");
	assert_int_equal(pin_parse(many, &pins, err), -EINVAL);
	assert_int_equal(pins.n, 7);
}

static void
match(void **state)
{
	uint8_t digest[PIN_DIGEST];
	struct pinset none = { .n = 0 }, two = { .n = 2 };

	for (unsigned i = 0; i < PIN_DIGEST; i++)
		digest[i] = (uint8_t)i;
	assert_true(pin_match(&none, digest));
	assert_false(pin_match(&two, digest));
	memcpy(two.digest[1], digest, PIN_DIGEST);
	assert_true(pin_match(&two, digest));
	two.n = 1;
	assert_false(pin_match(&two, digest));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepted), cmocka_unit_test(refused), cmocka_unit_test(match),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
