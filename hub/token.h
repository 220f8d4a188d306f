/*
 * Enrollment tokens and agent credentials: PREFIX.ID.SECRET.MAC, cloop's form.
 *
 * ID is 12 random bytes, SECRET 32 (both base64url), MAC the first 16 bytes of HMAC-SHA256 over what stands before it,
 * in hex, under the hub's key. The MAC lets forgeries fail before the database is asked. Stored is only the SHA-256 of
 * the secret's text, so a stolen database opens no session.
 */
#ifndef EDGEWARD_HUB_TOKEN_H
#define EDGEWARD_HUB_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#define TOKEN_KEY_LEN		32
#define TOKEN_ID_SIZE		17	/* 16 characters */
#define TOKEN_SIZE		100	/* 99 characters */
#define TOKEN_HASH_LEN		32

enum token_kind { TOKEN_ENROLL, TOKEN_CREDENTIAL };	/* clet1, clac1 */

struct token {
	enum token_kind kind;
	char id[TOKEN_ID_SIZE];
	uint8_t hash[TOKEN_HASH_LEN];	/* SHA-256 of the secret's text */
};

/* Makes a new one. text is secret. id: NULL for a random one. -EIO when there are no random bytes. */
int token_mint(enum token_kind kind, const uint8_t key[TOKEN_KEY_LEN], const char *id, char text[TOKEN_SIZE],
    struct token *ret_token);

/* Checks form and MAC (constant time). -EINVAL otherwise; says nothing about what the store knows. */
int token_parse(const uint8_t key[TOKEN_KEY_LEN], const char *text, size_t len, struct token *ret_token);

/* Constant time. */
int token_hash_equal(const uint8_t a[TOKEN_HASH_LEN], const uint8_t b[TOKEN_HASH_LEN]);

/* 16 characters of base64url from 12 random bytes: ids and handles. -EIO. */
int token_random_id(char id[TOKEN_ID_SIZE]);

#endif
