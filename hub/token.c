#include "hub/token.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <string.h>

#include "proto/hub/base64.h"

#define ID_LEN		16u
#define SECRET_LEN	43u
#define MAC_LEN		32u	/* hex characters */
#define SIGNED_LEN	(5u + 1 + ID_LEN + 1 + SECRET_LEN)

static const char *const prefixes[] = { [TOKEN_ENROLL] = "clet1", [TOKEN_CREDENTIAL] = "clac1" };

static void
put_hex(char *dst, const uint8_t *src, size_t len)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		*dst++ = digits[src[i] >> 4];
		*dst++ = digits[src[i] & 15];
	}
}

static int
put_mac(char dst[MAC_LEN], const uint8_t key[TOKEN_KEY_LEN], const char *text)
{
	uint8_t mac[EVP_MAX_MD_SIZE];

	if (HMAC(EVP_sha256(), key, TOKEN_KEY_LEN, (const uint8_t *)text, SIGNED_LEN, mac, NULL) == NULL)
		return -EIO;
	put_hex(dst, mac, MAC_LEN / 2);
	return 0;
}

int
token_random_id(char id[TOKEN_ID_SIZE])
{
	uint8_t raw[12];

	/* One that begins with '-' would be taken for an option by every command line. */
	do {
		if (RAND_bytes(raw, sizeof(raw)) != 1)
			return -EIO;
		base64url_encode(id, raw, sizeof(raw));
	} while (id[0] == '-');
	return 0;
}

int
token_mint(enum token_kind kind, const uint8_t key[TOKEN_KEY_LEN], const char *id, char text[TOKEN_SIZE],
    struct token *ret_token)
{
	struct token t = { .kind = kind };
	uint8_t raw[32];
	char *secret = text + 5 + 1 + ID_LEN + 1;

	if (id != NULL && strlen(id) != ID_LEN)
		return -EINVAL;
	if (id != NULL)
		memcpy(t.id, id, ID_LEN + 1);
	else if (token_random_id(t.id) < 0)
		return -EIO;
	if (RAND_bytes(raw, sizeof(raw)) != 1)
		return -EIO;
	memcpy(text, prefixes[kind], 5);
	text[5] = '.';
	memcpy(text + 6, t.id, ID_LEN);
	secret[-1] = '.';
	base64url_encode(secret, raw, sizeof(raw));
	OPENSSL_cleanse(raw, sizeof(raw));
	SHA256((const uint8_t *)secret, SECRET_LEN, t.hash);
	if (put_mac(text + SIGNED_LEN + 1, key, text) < 0)
		return -EIO;
	text[SIGNED_LEN] = '.';
	text[TOKEN_SIZE - 1] = '\0';
	*ret_token = t;
	return 0;
}

static int
is_base64url(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!((s[i] >= 'A' && s[i] <= 'Z') || (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') ||
		    s[i] == '-' || s[i] == '_'))
			return 0;
	return 1;
}

int
token_parse(const uint8_t key[TOKEN_KEY_LEN], const char *text, size_t len, struct token *ret_token)
{
	struct token t = { .kind = TOKEN_ENROLL };
	const char *id = text + 6, *secret = id + ID_LEN + 1;
	char mac[MAC_LEN];

	if (len != TOKEN_SIZE - 1)
		return -EINVAL;
	if (memcmp(text, prefixes[TOKEN_CREDENTIAL], 5) == 0)
		t.kind = TOKEN_CREDENTIAL;
	else if (memcmp(text, prefixes[TOKEN_ENROLL], 5) != 0)
		return -EINVAL;
	if (text[5] != '.' || secret[-1] != '.' || text[SIGNED_LEN] != '.')
		return -EINVAL;
	if (!is_base64url(id, ID_LEN) || !is_base64url(secret, SECRET_LEN))
		return -EINVAL;
	if (put_mac(mac, key, text) < 0 || CRYPTO_memcmp(mac, text + SIGNED_LEN + 1, MAC_LEN) != 0)
		return -EINVAL;
	memcpy(t.id, id, ID_LEN);
	SHA256((const uint8_t *)secret, SECRET_LEN, t.hash);
	*ret_token = t;
	return 0;
}

int
token_hash_equal(const uint8_t a[TOKEN_HASH_LEN], const uint8_t b[TOKEN_HASH_LEN])
{
	return CRYPTO_memcmp(a, b, TOKEN_HASH_LEN) == 0;
}
