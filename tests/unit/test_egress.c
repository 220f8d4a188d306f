/* The network part of a start, as a hub may write it. */
#include <stdio.h>
#include <string.h>

#include "proto/hub/egress.h"
#include "tests/unit/unit.h"

static struct work_net net;
static struct work_spec spec;

static const char *
decode(const char *text, bool *ret_bad)
{
	struct json_doc *doc;
	const char *why;

	assert_int_equal(json_parse((const uint8_t *)text, strlen(text), &doc), 0);
	spec = (struct work_spec){ .net = &net };
	*ret_bad = false;
	why = egress_decode(json_root(doc), &spec, ret_bad);
	json_doc_free(doc);
	return why;
}

static void
good(void **state)
{
	bool bad;

	assert_null(decode("{}", &bad));
	assert_int_equal(spec.network, WORK_NETWORK_DEFAULT);
	assert_null(decode("{\"egress_rules\":null,\"egress_bound\":null,\"disable_network\":false,\"egress_proxy\":{}}", &bad));
	assert_int_equal(spec.network, WORK_NETWORK_DEFAULT);
	assert_null(decode("{\"egress_rules\":{},\"disable_network\":true}", &bad));
	assert_int_equal(spec.network, WORK_NETWORK_NONE);
	assert_null(decode("{\"egress_rules\":{}}", &bad));	/* reaches nothing, which is not the same as absent */
	assert_int_equal(spec.network, WORK_NETWORK_FILTERED);
	assert_true(fw_reaches_nothing(&net.rules) && !net.bounded);
	assert_null(decode("{\"egress_rules\":{\"allow_public_internet\":true,\"allow_cidrs\":[\"10.0.0.0/8\"],\"deny_cidrs\":[\"0.0.0.0/0\"],"
	    "\"allow_ports\":[443],\"resolvers\":[\"1.1.1.1\",\"[2606::1]:53\"]},\"egress_bound\":{\"allow_cidrs\":[\"10.0.0.0/7\"]},"
	    "\"egress_proxy\":{\"host\":\"10.0.0.9\",\"port\":3128}}", &bad));
	assert_true(net.rules.public_internet && net.rules.nallow == 1 && net.rules.ndeny == 1 && net.rules.nports == 1 &&
	    net.rules.nresolvers == 2 && net.bounded && net.bound.nallow == 1 && net.rules.has_proxy && net.rules.proxy.port == 3128);
	assert_null(decode("{\"network\":\"host\"}", &bad));
	assert_int_equal(spec.network, WORK_NETWORK_HOST);
	assert_null(decode("{\"egress_bound\":{\"allow_cidrs\":[\"10.0.0.0/7\"]}}", &bad));
	assert_true(spec.network == WORK_NETWORK_FILTERED && net.rules.nallow == 1);
}

static void
refused(void **state)
{
	static const char *const malformed[] = { "{\"egress_rules\":7}", "{\"egress_rules\":[]}", "{\"egress_rules\":{\"allow_cidrs\":\"10.0.0.0/8\"}}",
		"{\"egress_rules\":{\"allow_cidrs\":[\"0.0.0.0/0\"]}}", "{\"egress_rules\":{\"allow_cidrs\":[8]}}",
		"{\"egress_rules\":{\"allow_cidrs\":[\"10.0.0.1\\u0000x\"]}}", "{\"egress_rules\":{\"allow_ports\":[0]}}",
		"{\"egress_rules\":{\"allow_ports\":[65536]}}", "{\"egress_rules\":{\"allow_ports\":[\"80\"]}}",
		"{\"egress_rules\":{\"resolvers\":[\"127.0.0.1\"]}}", "{\"egress_rules\":{\"allow_public_internet\":1}}",
		"{\"egress_bound\":{\"deny_cidrs\":[\"host\"]}}", "{\"disable_network\":\"yes\"}",
		"{\"network\":\"bridge\"}", "{\"network\":1}", "{\"network\":\"host\",\"egress_rules\":{}}",
		"{\"egress_rules\":{},\"egress_proxy\":{\"host\":\"10.0.0.1\"}}" };
	static const char *const cannot[] = { "{\"egress_rules\":{},\"egress_proxy\":{\"host\":\"proxy.example\",\"port\":1}}",
		"{\"egress_rules\":{},\"egress_proxy\":{\"host\":\"127.0.0.1\",\"port\":1}}",
		"{\"egress_rules\":{},\"egress_proxy\":{\"host\":\"p\",\"port\":1,\"gateway\":true}}" };
	static char many[8192] = "{\"egress_rules\":{\"allow_cidrs\":[";
	bool bad;

	for (size_t i = 0; i < COUNT(malformed); i++) {
		assert_non_null(decode(malformed[i], &bad));
		assert_true(bad);
	}
	for (size_t i = 0; i < COUNT(cannot); i++) {
		assert_non_null(decode(cannot[i], &bad));
		assert_false(bad);
	}
	for (int i = 0; i <= (int)FW_CIDRS; i++)
		snprintf(many + strlen(many), sizeof(many) - strlen(many), "%s\"10.0.%d.%d\"", i > 0 ? "," : "", i / 256, i % 256);
	snprintf(many + strlen(many), sizeof(many) - strlen(many), "]}}");
	assert_non_null(decode(many, &bad));
	assert_true(bad);
}

/* The firewall of a virtual executor bounds, or takes the place of, a start's own rules. */
static void
virtuals(void **state)
{
	static const struct {
		const char *spec, *payload;
		bool good, bad;
		uint8_t network;
	} rows[] = {
		{ "{}", "{}", true, false, WORK_NETWORK_DEFAULT },
		{ "{}", "{\"virtual\":{\"firewall\":null}}", true, false, WORK_NETWORK_DEFAULT },
		{ "{}", "{\"virtual\":{\"firewall\":{}}}", true, false, WORK_NETWORK_FILTERED },
		{ "{\"disable_network\":true}", "{\"virtual\":{\"firewall\":{}}}", true, false, WORK_NETWORK_NONE },
		{ "{\"egress_rules\":{\"allow_cidrs\":[\"10.0.0.1\"]}}", "{\"virtual\":{\"firewall\":{}}}", true, false, WORK_NETWORK_FILTERED },
		{ "{}", "{\"virtual\":{\"firewall\":[]}}", false, true, 0 },
		{ "{\"egress_bound\":{}}", "{\"virtual\":{\"firewall\":{}}}", false, false, 0 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct json_doc *doc;
		bool bad = false;

		assert_null(decode(rows[i].spec, &bad));
		assert_int_equal(json_parse(rows[i].payload, strlen(rows[i].payload), &doc), 0);
		assert_int_equal(egress_of_virtual(json_root(doc), &spec, &bad) == NULL, rows[i].good);
		if (rows[i].good)
			assert_int_equal(spec.network, rows[i].network);
		else
			assert_int_equal(bad, rows[i].bad);
		if (rows[i].good && spec.network == WORK_NETWORK_FILTERED)
			assert_true(net.bounded && fw_reaches_nothing(&net.bound));
		json_doc_free(doc);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good),
		cmocka_unit_test(refused),
		cmocka_unit_test(virtuals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
