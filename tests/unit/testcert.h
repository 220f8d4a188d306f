/* Certificates for tests, made on the spot: one authority, leaves for any name and dates. */
#ifndef EDGEWARD_TESTCERT_H
#define EDGEWARD_TESTCERT_H

#include <openssl/ssl.h>
#include <stdint.h>

struct testca;

struct testca *testca_new(void);
void testca_free(struct testca *ca);

/* Writes the authority's certificate in PEM into a new temporary file; the caller unlinks it. */
void testca_write(const struct testca *ca, char path[64]);

/*
 * A server context with a leaf for san ("DNS:localhost,IP:127.0.0.1"), valid from..to (seconds since 1970), issued by
 * ca (NULL = by itself). ret_pin (may be NULL) gets the SHA-256 of its key.
 */
SSL_CTX *testca_server(const struct testca *ca, const char *san, int64_t from, int64_t to, uint8_t ret_pin[32]);

#endif
