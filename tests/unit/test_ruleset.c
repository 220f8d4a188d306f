/* The rules as text. That nft takes them and the kernel keeps them: integration/test_filtered.py. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/unit.h"
#include "workerd/launcher/ruleset.h"

static struct firewall fw;
static char text[1 << 17];

static void
generate(void)
{
	int fd = memfd_create("rules", MFD_CLOEXEC);
	ssize_t n;

	assert_int_equal(ruleset_write(fd, &fw), 0);
	n = read(fd, text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = '\0';
	close(fd);
}

static void
everything(void **state)
{
	memset(&fw, 0, sizeof(fw));
	assert_int_equal(fw_cidr_parse("10.0.0.0/8", false, &fw.allow[fw.nallow++]), 0);
	assert_int_equal(fw_cidr_parse("fd00::1", false, &fw.allow[fw.nallow++]), 0);
	assert_int_equal(fw_cidr_parse("10.1.0.0/16", true, &fw.deny[fw.ndeny++]), 0);
	fw.ports[fw.nports++] = 80;
	fw.ports[fw.nports++] = 443;
	assert_int_equal(fw_resolver_parse("10.0.0.53", &fw.resolvers[fw.nresolvers++]), 0);
	generate();
	assert_non_null(strstr(text, "elements = { 10.0.0.0-10.0.255.255,\n\t\t\t10.2.0.0-10.255.255.255 }"));
	assert_non_null(strstr(text, "elements = { fd00::1 }"));
	assert_non_null(strstr(text, "ip daddr 10.0.0.53 udp dport 53 accept"));
	assert_non_null(strstr(text, "ip daddr @to_ip tcp dport { 80, 443 } accept"));
	assert_non_null(strstr(text, "hook output priority 0; policy drop;"));
	assert_null(strstr(text, "10.1."));
}

/* As many ranges as there can be: it fits, and is complete. */
static void
large(void **state)
{
	memset(&fw, 0, sizeof(fw));
	assert_int_equal(fw_cidr_parse("10.0.0.0/8", false, &fw.allow[fw.nallow++]), 0);
	for (uint32_t i = 0; i < FW_DENIES; i++)
		fw.deny[fw.ndeny++] = (struct fw_cidr){ FW_V4, 32, { 10, (uint8_t)(i >> 4), (uint8_t)(i << 4), 7 } };
	generate();
	assert_non_null(strstr(text, "10.63.240.8-10.255.255.255 }"));
	assert_string_equal(text + strlen(text) - 5, "\t}\n}\n");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything),
		cmocka_unit_test(large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
