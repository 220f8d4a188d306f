/* A device's descriptors and the classes that are permitted: what is let in, what is refused, and that a cut is never half believed. */
#include <errno.h>
#include <string.h>

#include "common/usbdesc.h"
#include "tests/unit/unit.h"

#define DEVICE(class)	18, 1, 0, 2, class, 0, 0, 64, 0x34, 0x12, 0x78, 0x56, 0, 1, 0, 0, 0, 1
#define CONFIG(total, n, value)	9, 2, total, 0, n, value, 0, 0xc0, 1
#define INTERFACE(number, alt, class)	9, 4, number, alt, 0, class, 0, 0, 0
#define DISK	0x08
#define KEYS	0x03

static struct usbdesc_classes set;

static int
setup(void **state)
{
	return usbdesc_classes_parse("ff 07 08", &set);
}

#define PARSE(d, ret)	usbdesc_parse(d, sizeof(d), &set, ret)

static void
test_classes(void **state)
{
	static const char *const bad[] = { "f", "ff ", " ff", "fff", "FF", "ff  07", "gg", "ff,07", "0x08" };
	struct usbdesc_classes c;

	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(usbdesc_classes_parse(bad[i], &c), -EINVAL);
	assert_int_equal(usbdesc_classes_parse("", &c), 0);
	for (unsigned i = 0; i <= 256; i++) {
		assert_false(usbdesc_class_in(&c, i));
		assert_int_equal(usbdesc_class_in(&set, i), i == 0xff || i == 7 || i == 8);
	}
}

static void
test_one_of_two(void **state)
{
	static const uint8_t d[] = { DEVICE(0), CONFIG(27, 2, 1), INTERFACE(0, 0, DISK), INTERFACE(1, 0, KEYS) };
	struct usbdesc desc;
	struct usbdesc_count c;

	assert_int_equal(PARSE(d, &desc), 0);
	assert_int_equal(desc.vendor, 0x1234);
	assert_int_equal(desc.product, 0x5678);
	c = usbdesc_count(&desc, 1);
	assert_int_equal(c.interfaces, 2);
	assert_int_equal(c.permitted, 1);
	assert_int_equal(c.refused, KEYS);
	assert_int_equal(usbdesc_count(&desc, 2).interfaces, 0);
}

/* A disk that is a keyboard in its other setting could become one without anybody being asked. */
static void
test_alternate_setting(void **state)
{
	static const uint8_t d[] = { DEVICE(0), CONFIG(27, 1, 1), INTERFACE(0, 0, DISK), INTERFACE(0, 1, KEYS) };
	struct usbdesc desc;

	assert_int_equal(PARSE(d, &desc), 0);
	assert_int_equal(desc.n, 1);
	assert_int_equal(desc.ifs[0].refused, KEYS);
	assert_int_equal(usbdesc_count(&desc, 1).permitted, 0);
}

static void
test_class_of_device(void **state)
{
	static const uint8_t hub[] = { DEVICE(9), CONFIG(18, 1, 1), INTERFACE(0, 0, DISK) };
	static const uint8_t misc[] = { DEVICE(0xef), CONFIG(18, 1, 1), INTERFACE(0, 0, DISK) };
	struct usbdesc desc;

	assert_int_equal(PARSE(hub, &desc), 0);
	assert_int_equal(desc.refused, 9);
	assert_int_equal(usbdesc_count(&desc, 1).permitted, 0);
	assert_int_equal(PARSE(misc, &desc), 0);
	assert_int_equal(usbdesc_count(&desc, 1).permitted, 1);
}

static void
test_configurations(void **state)
{
	static const uint8_t d[] = { DEVICE(0), CONFIG(18, 1, 1), INTERFACE(0, 0, DISK), CONFIG(18, 1, 2), INTERFACE(0, 0, KEYS) };
	static const uint8_t same[] = { DEVICE(0), CONFIG(18, 1, 1), INTERFACE(0, 0, DISK), CONFIG(18, 1, 1), INTERFACE(0, 0, KEYS) };
	static const uint8_t inside[] = { DEVICE(0), CONFIG(27, 1, 1), INTERFACE(0, 0, DISK), CONFIG(9, 1, 2) };
	struct usbdesc desc;

	assert_int_equal(PARSE(d, &desc), 0);
	assert_int_equal(usbdesc_count(&desc, 1).permitted, 1);
	assert_int_equal(usbdesc_count(&desc, 2).permitted, 0);
	assert_int_equal(PARSE(same, &desc), -EBADMSG);
	assert_int_equal(PARSE(inside, &desc), -EBADMSG);
}

static void
test_broken(void **state)
{
	static const uint8_t good[] = { DEVICE(0), CONFIG(18, 1, 1), INTERFACE(0, 0, DISK) };
	uint8_t d[sizeof(good)];
	struct usbdesc desc;

	for (size_t n = 0; n < sizeof(good); n++)
		assert_int_equal(usbdesc_parse(good, n, &set, &desc), n == 18 ? 0 : -EBADMSG);
	/* Each length, wrong. */
	static const struct { size_t at; uint8_t v; } wrong[] = { { 0, 17 }, { 1, 2 }, { 18, 8 }, { 19, 4 }, { 20, 8 }, { 20, 17 }, { 20, 19 },
		{ 21, 1 }, { 27, 0 }, { 27, 1 }, { 27, 8 }, { 27, 10 }, { 28, 1 } };

	for (size_t i = 0; i < COUNT(wrong); i++) {
		memcpy(d, good, sizeof(d));
		d[wrong[i].at] = wrong[i].v;
		assert_int_equal(PARSE(d, &desc), -EBADMSG);
	}
}

static void
test_too_many(void **state)
{
	static uint8_t d[18 + 9 + 9 * (USBDESC_IFS + 1)] = { DEVICE(0), CONFIG(0, 1, 1) };
	struct usbdesc desc;
	size_t n = 27;

	for (unsigned i = 0; i <= USBDESC_IFS; i++, n += 9)
		memcpy(d + n, (uint8_t[]){ INTERFACE((uint8_t)i, 0, DISK) }, 9);
	for (size_t total = n - 18, i = 0; i < 2; i++, total -= 9) {
		d[20] = (uint8_t)total;
		d[21] = (uint8_t)(total >> 8);
		assert_int_equal(usbdesc_parse(d, 18 + total, &set, &desc), i == 0 ? -EBADMSG : 0);
	}
	assert_int_equal(desc.n, USBDESC_IFS);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_classes), cmocka_unit_test(test_one_of_two), cmocka_unit_test(test_alternate_setting),
		cmocka_unit_test(test_class_of_device), cmocka_unit_test(test_configurations), cmocka_unit_test(test_broken),
		cmocka_unit_test(test_too_many),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
