/* The server's TLS context and its pin; the other half of pki.h. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>

#include "hub/pki.h"
#include "proto/hub/base64.h"

#define READ_BUFFER	(128u * 1024)	/* several records of 16 KiB in one read(2) */

int
pki_server_ctx(const char *cert, const char *key, SSL_CTX **ret_ctx, char err[256])
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	const char *what = "no TLS context";
	bool ok = ctx != NULL && SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
	    SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1;

	if (ok) {
		what = cert;
		ok = SSL_CTX_use_certificate_chain_file(ctx, cert) == 1;
	}
	if (ok) {
		what = key;
		ok = SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) == 1 && SSL_CTX_check_private_key(ctx) == 1;
	}
	if (!ok) {
		const char *reason = ERR_reason_error_string(ERR_get_error());

		snprintf(err, 256, "%.120s: %.100s", what, reason != NULL ? reason : "cannot be used");
		ERR_clear_error();
		SSL_CTX_free(ctx);
		return -EINVAL;
	}
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
	    SSL_OP_PRIORITIZE_CHACHA | SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_default_read_buffer_len(ctx, READ_BUFFER);
	/* Sessions are long and few: tickets would only be state. */
	SSL_CTX_set_num_tickets(ctx, 0);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	*ret_ctx = ctx;
	return 0;
}

int
pki_pin(SSL_CTX *ctx, char pin[PKI_PIN_SIZE])
{
	X509 *cert = SSL_CTX_get0_certificate(ctx);
	uint8_t *der = NULL, digest[SHA256_DIGEST_LENGTH];
	int len = cert != NULL ? i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &der) : -1;

	if (len <= 0)
		return -EINVAL;
	SHA256(der, (size_t)len, digest);
	OPENSSL_free(der);
	memcpy(pin, "sha256:", 7);
	base64_encode(pin + 7, digest, sizeof(digest));
	return 0;
}
