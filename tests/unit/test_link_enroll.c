/*
 * The link and its identity: tokens, credentials, edgectl enroll (B72, B75). Places: connectd/{linkid,linkend}.c.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "connectd/jitter.h"
#include "tests/unit/rig.h"

#define WELCOME	"{\"v\":1,\"type\":\"welcome\",\"payload\":{\"protocol_version\":1,\"executor_id\":\"agent-1\"}}"
#define FIRST	"{\"v\":1,\"type\":\"welcome\",\"payload\":{\"protocol_version\":1,\"executor_id\":\"agent-9\",\"credential\":" \
	"\"clac1.agent-9.S.M\"}}"

static char token_path[128];

static void
put_token(const char *text)
{
	FILE *f;

	f = fopen(token_path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int
setup_unenrolled(void **state)
{
	char conf[300];

	snprintf(token_path, sizeof(token_path), "/tmp/test_link_token.%d", (int)getpid());
	unlink(token_path);
	snprintf(conf, sizeof(conf), "[hub]\nurl = wss://hub.example/x\ntoken-file = %s\n", token_path);
	rig_setup(conf);
	rig_workerd(NULL, 0);
	return 0;
}

static int
teardown_token(void **state)
{
	unlink(token_path);
	rig_teardown();
	return 0;
}

static void
token_file_is_redeemed_once(void **state)
{
	const struct json *p;
	struct stat st;

	assert_int_equal(rig.link.state, CTL_LINK_UNENROLLED);
	assert_null(fake_conn());
	put_token("clet1.AAAA.BBBB.CCCC\n");
	rig_advance(11000);
	assert_non_null(fake_conn());
	assert_string_equal(fake_conn()->bearer, "clet1.AAAA.BBBB.CCCC");
	rig_open(false);
	p = rig_frame("hello");
	assert_string_equal(json_get_str(p, "agent_id"), "");
	assert_int_equal(access(token_path, F_OK), 0);
	rig_hub(FIRST);
	assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
	assert_int_equal(access(token_path, F_OK), -1);
	assert_int_equal(fstatat(rig.cred.dirfd, CRED_FILE, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_string_equal(rig.cred.cred.agent_id, "agent-9");
	rig_lose(HUBCONN_LOST, 0, 0, "lost");
	rig_advance(3000);
	assert_string_equal(fake_conn()->bearer, "clac1.agent-9.S.M");
	rig_open(false);
	assert_string_equal(json_get_str(rig_frame("hello"), "agent_id"), "agent-9");
}

/* 15.19: a drop between upgrade and welcome spends the token; that is said, and it is not tried for ever. */
static void
a_token_without_welcome_is_spent(void **state)
{
	unsigned n;

	put_token("clet1.AAAA.BBBB.CCCC");
	rig_advance(11000);
	rig_open(false);
	rig_lose(HUBCONN_LOST, 0, 0, "lost");
	assert_string_equal(rig.link.cause, "token-spent");
	n = fake_started;
	rig_advance(600000);
	assert_int_equal(fake_started, n);
	assert_int_equal(rig.link.state, CTL_LINK_STOPPED);
	assert_int_equal(access(token_path, F_OK), 0);
	put_token("clet1.DDDD.EEEE.FFFF");
	rig_advance(11000);
	assert_string_equal(fake_conn()->bearer, "clet1.DDDD.EEEE.FFFF");
	rig_open(false);
	rig_hub(FIRST);
	assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
}

/* Lost before the upgrade it is not spent. */
static void
a_token_survives_a_failed_dial(void **state)
{
	put_token("clet1.AAAA.BBBB.CCCC");
	rig_advance(11000);
	rig_lose(HUBCONN_REFUSED, 0, 0, "refused");
	rig_advance(15000);
	assert_string_equal(fake_conn()->bearer, "clet1.AAAA.BBBB.CCCC");
}

static void
a_credential_that_cannot_be_stored(void **state)
{
	put_token("clet1.AAAA.BBBB.CCCC");
	rig_advance(11000);
	rig_open(false);
	assert_int_equal(mkdirat(rig.cred.dirfd, CRED_FILE ".tmp", 0700), 0);
	assert_int_equal(mkdirat(rig.cred.dirfd, CRED_FILE ".tmp/x", 0700), 0);
	rig_hub(FIRST);
	assert_string_equal(rig.link.cause, "token-spent");
	assert_int_equal(rig.cred.state, CRED_NONE);
	assert_int_equal(access(token_path, F_OK), 0);
}

static int enroll_status;
static char enroll_text[256];
static unsigned enroll_calls;

static void
enroll_done(int status, const char *text, void *ctx)
{
	enroll_status = status;
	snprintf(enroll_text, sizeof(enroll_text), "%s", text);
	enroll_calls++;
}

static void
enroll_by_operator(void **state)
{
	struct enroll e = { .token = "clet1.A.B.C", .pin = "sha256:xyz" };
	char err[ENROLL_ERR] = "";

	enroll_calls = 0;
	assert_int_equal(link_enroll(&rig.link, &e, false, err, enroll_done, NULL), 0);
	assert_int_equal(link_enroll(&rig.link, &e, false, err, enroll_done, NULL), -16);
	rig_turn();
	assert_string_equal(fake_conn()->bearer, "clet1.A.B.C");
	assert_string_equal(fake_conn()->pins, "sha256:xyz");
	rig_open(false);
	rig_hub(FIRST);
	assert_int_equal(enroll_calls, 1);
	assert_int_equal(enroll_status, 0);
	assert_string_equal(enroll_text, "agent-9");
	assert_string_equal(rig.cred.cred.pin, "sha256:xyz");
	/* Enrolled: not again by accident. */
	assert_int_equal(link_enroll(&rig.link, &e, false, err, enroll_done, NULL), -17);
	snprintf(e.server, sizeof(e.server), "wss://other.example/x");
	assert_int_equal(link_enroll(&rig.link, &e, true, err, enroll_done, NULL), -22);
	assert_non_null(strstr(err, "another hub"));
}

/* B75, B72: the old identity stays in use until the new one has worked; refused, the old one goes on. */
static void
test_b75_replacing_fails(void **state)
{
	struct enroll e = { .token = "clet1.A.B.C" };
	char err[ENROLL_ERR];

	enroll_calls = 0;
	rig_session_up();
	rig_advance(2000);
	assert_int_equal(link_enroll(&rig.link, &e, true, err, enroll_done, NULL), 0);
	rig_turn();
	assert_string_equal(fake_conn()->bearer, "clet1.A.B.C");
	rig_lose(HUBCONN_HTTP_FAILED, 401, 0, "http-401");
	assert_int_equal(enroll_calls, 1);
	assert_true(enroll_status != 0);
	assert_string_equal(rig.cred.cred.agent_id, "agent-1");
	assert_non_null(strstr(enroll_text, "--replace"));
	/* Soon, whatever attempts there were before. */
	rig_advance(1000);
	assert_string_equal(fake_conn()->bearer, "clac1.agent-1.S.M");
	rig_session_up();
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, rig_test_setup_up, rig_test_teardown)
#define U(f)	cmocka_unit_test_setup_teardown(f, setup_unenrolled, teardown_token)
	const struct CMUnitTest tests[] = {
		U(token_file_is_redeemed_once), U(a_token_without_welcome_is_spent), U(a_token_survives_a_failed_dial),
		U(a_credential_that_cannot_be_stored), U(enroll_by_operator), T(test_b75_replacing_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
