#include "tests/unit/testcert.h"

#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct testca {
	EVP_PKEY *key;
	X509 *cert;
};

static void
must(int ok)
{
	if (!ok) {
		fprintf(stderr, "testcert: OpenSSL failed\n");
		abort();
	}
}

static void
add_ext(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *ext;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	must(ext != NULL && X509_add_ext(cert, ext, -1));
	X509_EXTENSION_free(ext);
}

static X509 *
make(EVP_PKEY *key, const char *cn, const struct testca *ca, const char *san, int64_t from, int64_t to)
{
	static long serial;
	X509 *cert = X509_new();
	X509_NAME *name = X509_NAME_new();

	must(cert != NULL && name != NULL);
	must(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0));
	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial);
	must(ASN1_TIME_adj(X509_getm_notBefore(cert), (time_t)from, 0, 0) != NULL);
	must(ASN1_TIME_adj(X509_getm_notAfter(cert), (time_t)to, 0, 0) != NULL);
	X509_set_pubkey(cert, key);
	X509_set_subject_name(cert, name);
	X509_set_issuer_name(cert, ca != NULL ? X509_get_subject_name(ca->cert) : name);
	add_ext(cert, ca != NULL ? ca->cert : cert, NID_basic_constraints, san == NULL ? "critical,CA:TRUE" : "CA:FALSE");
	if (san != NULL)
		add_ext(cert, cert, NID_subject_alt_name, san);
	must(X509_sign(cert, ca != NULL ? ca->key : key, EVP_sha256()) > 0);
	X509_NAME_free(name);
	return cert;
}

struct testca *
testca_new(void)
{
	struct testca *ca = calloc(1, sizeof(*ca));

	must(ca != NULL);
	ca->key = EVP_EC_gen("P-256");
	/* Older than any time a test asks about. */
	ca->cert = make(ca->key, "edgeward test authority", NULL, NULL, 0, (int64_t)1 << 33);
	return ca;
}

void
testca_free(struct testca *ca)
{
	X509_free(ca->cert);
	EVP_PKEY_free(ca->key);
	free(ca);
}

void
testca_write(const struct testca *ca, char path[64])
{
	FILE *f;
	int fd;

	snprintf(path, 64, "/tmp/edgeward-test-ca.XXXXXX");
	fd = mkstemp(path);
	must(fd >= 0);
	f = fdopen(fd, "w");
	must(f != NULL && PEM_write_X509(f, ca->cert));
	fclose(f);
}

SSL_CTX *
testca_server(const struct testca *ca, const char *san, int64_t from, int64_t to, uint8_t ret_pin[32])
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = make(key, "edgeward test hub", ca, san, from, to);
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	unsigned char *der = NULL;

	must(ctx != NULL && SSL_CTX_use_certificate(ctx, cert) == 1 && SSL_CTX_use_PrivateKey(ctx, key) == 1);
	if (ret_pin != NULL) {
		int len = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &der);

		must(len > 0);
		SHA256(der, (size_t)len, ret_pin);
		OPENSSL_free(der);
	}
	X509_free(cert);
	EVP_PKEY_free(key);
	return ctx;
}
