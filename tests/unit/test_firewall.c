/* What a firewall object means, and the proof that one is inside another. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/ipc/firewall.h"
#include "tests/unit/unit.h"

static struct firewall inner, outer;
static struct netset set;

/* "allow a b; deny c; ports 80; resolvers x; public; proxy y" */
static void
make(struct firewall *fw, const char *text)
{
	char copy[512], *p = copy, *part;

	memset(fw, 0, sizeof(*fw));
	snprintf(copy, sizeof(copy), "%s", text);
	while ((part = strsep(&p, ";")) != NULL) {
		char *word = strsep(&part, " "), *item;

		fw->public_internet = fw->public_internet || strcmp(word, "public") == 0;
		while ((item = strsep(&part, " ")) != NULL) {
			if (strcmp(word, "allow") == 0)
				assert_int_equal(fw_cidr_parse(item, false, &fw->allow[fw->nallow++]), 0);
			else if (strcmp(word, "deny") == 0)
				assert_int_equal(fw_cidr_parse(item, true, &fw->deny[fw->ndeny++]), 0);
			else if (strcmp(word, "ports") == 0)
				assert_int_equal(sscanf(item, "%hu", &fw->ports[fw->nports++]), 1);
			else if (strcmp(word, "resolvers") == 0)
				assert_int_equal(fw_resolver_parse(item, &fw->resolvers[fw->nresolvers++]), 0);
			else if (strcmp(word, "proxy") == 0)
				fw->has_proxy = fw_resolver_parse(item, &fw->proxy) == 0;
		}
	}
}

static bool
goes(const struct firewall *fw, const char *address)
{
	struct fw_cidr c;

	assert_int_equal(fw_cidr_parse(address, true, &c), 0);
	assert_int_equal(fw_destinations(fw, (enum fw_family)c.family, &set), 0);
	return netset_has(&set, fw_range(&c).lo);
}

static void
parsing(void **state)
{
	static const char *const bad[] = { "", "/", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/08", "10.0.0.0/-1", "10.0.0/8", "10.0.0.0/8 ",
		"::/129", "fe80::1%eth0", "1.2.3.4.5", "host", "0x7f.1", "010.0.0.1", "[::1]", "10.0.0.0/8/8" };
	static const char *const bad_resolvers[] = { "", "127.0.0.1", "127.0.0.53:53", "[::1]:53", "::1", "1.1.1.1:0", "1.1.1.1:65536", "1.1.1.1:",
		"[2606::1", "[2606::1]53", "dns.example", "224.0.0.251", "::ffff:1.1.1.1", "1.1.1.1:53:53", "0.0.0.0", "fe80::1", "64:ff9b::1" };
	struct fw_endpoint e;
	struct fw_cidr c;
	char text[FW_TEXT];

	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(fw_cidr_parse(bad[i], true, &c), -EINVAL);
	for (size_t i = 0; i < COUNT(bad_resolvers); i++)
		assert_int_equal(fw_resolver_parse(bad_resolvers[i], &e), -EINVAL);
	assert_int_equal(fw_cidr_parse("0.0.0.0/0", false, &c), -ERANGE);
	assert_int_equal(fw_cidr_parse("::/0", false, &c), -ERANGE);
	assert_int_equal(fw_cidr_parse("::/0", true, &c), 0);
	assert_int_equal(fw_cidr_parse("10.9.8.7/8", false, &c), 0);
	assert_string_equal(fw_cidr_text(&c, text), "10.0.0.0/8");
	assert_int_equal(fw_cidr_parse("2001:DB8::1", false, &c), 0);
	assert_string_equal(fw_cidr_text(&c, text), "2001:db8::1/128");
	assert_int_equal(fw_resolver_parse("[2606:4700::1111]:5353", &e), 0);
	assert_string_equal(fw_endpoint_text(&e, text), "[2606:4700::1111]:5353");
	assert_int_equal(fw_resolver_parse("2606:4700::1111", &e), 0);
	assert_int_equal(e.port, 53);
}

static void
never_and_metadata(void **state)
{
	static const char *const never[] = { "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "192.0.0.1", "::1", "::", "::ffff:8.8.8.8",
		"64:ff9b::808:808", "2002:808:808::1", "2001:0:1::1", "fe80::1", "ff02::1", "fd65:6467:6577::1" };
	static const char *const meta[] = { "169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254" };

	make(&inner, "public;allow 0.0.0.0/1 128.0.0.0/1 ::/1 8000::/1");
	for (size_t i = 0; i < COUNT(never); i++)
		assert_false(goes(&inner, never[i]));
	for (size_t i = 0; i < COUNT(meta); i++)
		assert_false(goes(&inner, meta[i]));
	assert_true(goes(&inner, "169.254.1.1"));	/* it was named, if widely */
	make(&inner, "allow 169.254.169.254 fd00:ec2::254");
	assert_true(goes(&inner, meta[0]) && goes(&inner, meta[3]));
	assert_false(goes(&inner, meta[1]));
}

static void
public_internet(void **state)
{
	static const char *const in[] = { "8.8.8.8", "1.1.1.1", "223.255.255.255", "2606:4700::1", "2a00::1", "192.0.1.1" };
	static const char *const out[] = { "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "169.254.0.1", "192.0.2.1",
		"198.18.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "fd00::1", "fc00::1", "2001:db8::1", "2001::1", "3fff::1", "4000::1" };

	make(&inner, "public;deny 1.1.1.0/24 2a00::/12");
	for (size_t i = 0; i < COUNT(in); i++)
		assert_int_equal(goes(&inner, in[i]), i != 1 && i != 4);
	for (size_t i = 0; i < COUNT(out); i++)
		assert_false(goes(&inner, out[i]));
	make(&inner, "public;allow 10.0.0.0/8;deny 10.1.0.0/16");
	assert_true(goes(&inner, "10.0.0.1"));
	assert_false(goes(&inner, "10.1.2.3"));
}

static void
nothing(void **state)
{
	make(&inner, "");
	assert_true(fw_reaches_nothing(&inner));
	make(&inner, "deny 10.0.0.0/8;ports 80");	/* only denies: no network */
	assert_true(fw_reaches_nothing(&inner));
	make(&inner, "allow 10.0.0.0/8;deny 0.0.0.0/0");
	assert_true(fw_reaches_nothing(&inner));
	make(&inner, "resolvers 10.0.0.1;deny 10.0.0.0/8");
	fw_drop_denied(&inner);
	assert_true(fw_reaches_nothing(&inner));
	make(&inner, "allow 127.0.0.0/8");
	assert_true(fw_reaches_nothing(&inner));
	make(&inner, "resolvers 10.0.0.1");
	assert_false(fw_reaches_nothing(&inner));
}

static void
containment(void **state)
{
	static const struct {
		const char *inner, *outer, *why;	/* NULL: inside */
	} cases[] = {
		{ "", "", NULL },
		{ "allow 10.0.0.0/9 10.128.0.0/9", "allow 10.0.0.0/8", NULL },
		{ "allow 10.0.0.0/8", "allow 10.0.0.0/9 10.128.0.0/9", NULL },	/* the union counts, not the list */
		{ "allow 10.0.0.0/8", "allow 10.0.0.0/9", "address 10.128.0.0" },
		{ "allow 10.0.0.0/8", "allow 10.0.0.0/8;deny 10.5.0.0/16", NULL },	/* the deny is inherited */
		{ "allow 8.8.8.8", "public", NULL },
		{ "allow 10.0.0.1", "public", "address 10.0.0.1" },
		{ "public", "allow 8.0.0.0/8", "address " },
		{ "public", "public", NULL },
		{ "allow fd00::/16", "allow fd00::/8", NULL },
		{ "allow fd00::/7", "allow fd00::/8", "address fc00::" },
		{ "allow 169.254.169.254", "allow 169.254.0.0/16", "address 169.254.169.254" },	/* named at every level */
		{ "allow 169.254.169.254", "allow 169.254.169.254", NULL },
		{ "allow 169.254.0.0/16", "allow 169.254.0.0/16", NULL },
		{ "allow 10.0.0.1;ports 80", "allow 10.0.0.0/8;ports 80 443", NULL },
		{ "allow 10.0.0.1", "allow 10.0.0.0/8;ports 80 443", "port (every one)" },
		{ "allow 10.0.0.1;ports 80 22", "allow 10.0.0.0/8;ports 80 443", "port 22" },
		{ "ports 22", "allow 10.0.0.0/8;ports 80", NULL },	/* a port to nowhere */
		{ "resolvers 10.0.0.1", "resolvers 10.0.0.1:53", NULL },
		{ "resolvers 10.0.0.1:5353", "resolvers 10.0.0.1", "resolver 10.0.0.1:5353" },
		{ "resolvers 10.0.0.1", "allow 10.0.0.0/8", "resolver 10.0.0.1:53" },
		{ "proxy 10.0.0.1:3128", "allow 10.0.0.0/8;ports 3128", NULL },
		{ "proxy 10.0.0.1:3128", "allow 10.0.0.0/8;ports 80", "proxy 10.0.0.1:3128" },
		{ "allow 10.0.0.1;proxy 10.0.0.2:3128", "allow 10.0.0.1", "proxy 10.0.0.2:3128" },
	};
	char why[160];

	for (size_t i = 0; i < COUNT(cases); i++) {
		make(&inner, cases[i].inner);
		make(&outer, cases[i].outer);
		why[0] = '\0';
		assert_int_equal(fw_narrow(&inner, &outer, why), cases[i].why == NULL ? 0 : -EPERM);
		if (cases[i].why != NULL && strstr(why, cases[i].why) == NULL)
			fail_msg("case %zu: \"%s\" is not in \"%s\"", i, cases[i].why, why);
	}
	make(&inner, "allow 10.0.0.0/8");
	make(&outer, "allow 10.0.0.0/8;deny 10.5.0.0/16");
	assert_int_equal(fw_narrow(&inner, &outer, why), 0);
	assert_false(goes(&inner, "10.5.0.1"));
}

static void
on_the_wire(void **state)
{
	static uint8_t buf[1 << 16];
	struct wire_w w;
	struct wire_r r;
	size_t len;

	make(&outer, "public;allow 10.0.0.0/8 fd00::/8;deny 10.1.0.0/16 ::/0;ports 80 443;resolvers 10.0.0.1 [fd00::1]:5353;proxy 10.0.0.9:1");
	wire_w_init(&w, buf, sizeof(buf));
	fw_put(&w, &outer);
	assert_int_equal(wire_w_done(&w, &len), 0);
	wire_r_init(&r, buf, len);
	fw_get(&r, &inner);
	assert_int_equal(wire_done(&r), 0);
	assert_memory_equal(&inner, &outer, sizeof(inner));
	for (size_t cut = 0; cut < len; cut++) {
		wire_r_init(&r, buf, cut);
		fw_get(&r, &inner);
		assert_int_not_equal(wire_done(&r), 0);
	}
	buf[6] = 33;	/* the first prefix */
	wire_r_init(&r, buf, len);
	fw_get(&r, &inner);
	assert_int_not_equal(wire_done(&r), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parsing),
		cmocka_unit_test(never_and_metadata),
		cmocka_unit_test(public_internet),
		cmocka_unit_test(nothing),
		cmocka_unit_test(containment),
		cmocka_unit_test(on_the_wire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
