#include "connectd/enroll.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "connectd/cred.h"
#include "proto/hub/base64.h"
#include "proto/hub/json.h"
#include "proto/hub/rfc3339.h"

static int
bad(char err[ENROLL_ERR], const char *what)
{
	snprintf(err, ENROLL_ERR, "%s", what);
	return -EINVAL;
}

static int
check_expiry(const struct json *root, int64_t now_ns, char err[ENROLL_ERR])
{
	const char *text = json_get_str(root, "expires_at");
	char stamp[RFC3339_SIZE];
	int64_t ns;

	if (text == NULL)
		return json_get(root, "expires_at") == NULL ? 0 : bad(err, "the bundle's expiry is not a time");
	if (rfc3339_parse(text, &ns) < 0)
		return bad(err, "the bundle's expiry is not a time");
	if (ns == 0 || ns > now_ns)
		return 0;
	snprintf(err, ENROLL_ERR, "the bundle expired at %s; make a new one at the hub", rfc3339_format(ns, stamp));
	return -ESTALE;
}

static bool
known_scheme(const char *url)
{
	static const char *const schemes[] = { "wss://", "https://", "ws://", "http://" };

	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (strncmp(url, schemes[i], strlen(schemes[i])) == 0)
			return true;
	return false;
}

static int
take_bundle(const struct json *root, int64_t now_ns, struct enroll *e, char err[ENROLL_ERR])
{
	if (root->type != JSON_OBJECT)
		return bad(err, "the bundle is not a JSON object");
	if (!json_copy_str(root, "server", e->server, sizeof(e->server)) || !known_scheme(e->server) ||
	    !cred_token_ok(e->server))
		return bad(err, "the bundle names no server that can be used");
	if (!json_copy_str(root, "token", e->token, sizeof(e->token)) || !cred_token_ok(e->token))
		return bad(err, "the bundle holds no token");
	if (!json_opt_str(root, "pin", e->pin, sizeof(e->pin)))
		return bad(err, "the bundle's pin cannot be used");
	(void)json_opt_str(root, "name", e->name, sizeof(e->name));	/* cosmetic; the hub knows the name anyway */
	return check_expiry(root, now_ns, err);
}

static int
parse_bundle(const char *text, size_t len, int64_t now_ns, struct enroll *e, char err[ENROLL_ERR])
{
	uint8_t json[ENROLL_TEXT_MAX];
	struct json_doc *doc;
	size_t n;
	int r;

	if (base64_decode(json, sizeof(json), text, len, &n) < 0)
		return bad(err, "the bundle is not whole: it is not base64url");
	r = json_parse(json, n, &doc);
	explicit_bzero(json, sizeof(json));
	if (r < 0)
		return bad(err, "the bundle is not whole: no JSON in it");
	r = take_bundle(json_root(doc), now_ns, e, err);
	json_doc_free(doc);
	return r;
}

static bool
is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

int
enroll_parse(const char *text, size_t len, int64_t now_ns, struct enroll *ret_enroll, char err[ENROLL_ERR])
{
	const size_t prefix = sizeof(ENROLL_BUNDLE_PREFIX) - 1;
	struct enroll e = { 0 };
	int r = 0;

	while (len > 0 && is_space(text[0])) {
		text++;
		len--;
	}
	while (len > 0 && is_space(text[len - 1]))
		len--;
	if (len == 0)
		return bad(err, "there is no token in it");
	if (len > ENROLL_TEXT_MAX)
		return bad(err, "it is longer than a token or bundle can be");
	if (len > prefix && memcmp(text, ENROLL_BUNDLE_PREFIX, prefix) == 0) {
		r = parse_bundle(text + prefix, len - prefix, now_ns, &e, err);
	} else if (len >= sizeof(e.token)) {
		r = bad(err, "the token is too long");
	} else {
		memcpy(e.token, text, len);
		if (strlen(e.token) != len || !cred_token_ok(e.token))
			r = bad(err, "the token holds characters that no token has");
	}
	if (r == 0)
		*ret_enroll = e;
	enroll_wipe(&e);
	return r;
}

int
enroll_read_file(const char *path, int64_t now_ns, struct enroll *ret_enroll, char err[ENROLL_ERR])
{
	_cleanup_free_ uint8_t *text = NULL;
	size_t len;
	int r = fd_read_file(AT_FDCWD, path, 2 * ENROLL_TEXT_MAX, &text, &len);

	if (r < 0) {
		snprintf(err, ENROLL_ERR, "%s", r == -EFBIG ? "it is longer than a token or bundle can be" :
		    r == -EINVAL ? "it is not a regular file" : strerror(-r));
		return r;
	}
	r = enroll_parse((const char *)text, len, now_ns, ret_enroll, err);
	explicit_bzero(text, len);
	return r;
}

int
enroll_remove_file(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[512] = ".";
	_cleanup_close_ int fd = -1;

	if (slash != NULL && (size_t)(slash - path) < sizeof(dir)) {
		size_t n = slash == path ? 1 : (size_t)(slash - path);

		memcpy(dir, path, n);
		dir[n] = '\0';
	}
	if (unlinkat(AT_FDCWD, path, 0) < 0)
		return -errno;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

void
enroll_wipe(struct enroll *enroll)
{
	explicit_bzero(enroll, sizeof(*enroll));
}
