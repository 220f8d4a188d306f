#include "proto/release/signify.h"

#include <errno.h>
#include <string.h>

#include "proto/hub/base64.h"

#define COMMENT	"untrusted comment: "
#define ALG	"Ed"

/* "untrusted comment: TEXT\nBASE64\n", where the base64 is "Ed", keynum and n bytes. */
static int
parse(const void *data, size_t len, uint8_t *keynum, uint8_t *body, size_t n)
{
	uint8_t raw[2 + SIGNIFY_KEYNUM + SIGNIFY_SIG + 4];
	size_t want = 2 + SIGNIFY_KEYNUM + n, got;
	const char *p = data, *nl;

	if (len > SIGNIFY_FILE_MAX || len < strlen(COMMENT) || memcmp(p, COMMENT, strlen(COMMENT)) != 0)
		return -EBADMSG;
	nl = memchr(p, '\n', len);
	if (nl == NULL)
		return -EBADMSG;
	len -= (size_t)(nl + 1 - p);
	p = nl + 1;
	/* With its padding, in the standard alphabet and nothing else; the decoder is content with less. */
	if (len != BASE64_LEN(want) + 1 || p[len - 1] != '\n' || memchr(p, '-', len) != NULL || memchr(p, '_', len) != NULL ||
	    base64_decode(raw, sizeof(raw), p, len - 1, &got) < 0 || got != want ||
	    memcmp(raw, ALG, 2) != 0)
		return -EBADMSG;
	memcpy(keynum, raw + 2, SIGNIFY_KEYNUM);
	memcpy(body, raw + 2 + SIGNIFY_KEYNUM, n);
	return 0;
}

int
signify_key_parse(const void *data, size_t len, struct signify_key *ret_key)
{
	struct signify_key k;

	if (parse(data, len, k.keynum, k.key, sizeof(k.key)) < 0)
		return -EBADMSG;
	*ret_key = k;
	return 0;
}

int
signify_sig_parse(const void *data, size_t len, struct signify_sig *ret_sig)
{
	struct signify_sig s;

	if (parse(data, len, s.keynum, s.sig, sizeof(s.sig)) < 0)
		return -EBADMSG;
	*ret_sig = s;
	return 0;
}
