#include "hub/pki.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/monotime.h"
#include "proto/hub/base64.h"

#define DAY		(24L * 60 * 60)
#define LIFETIME	(10 * 365 * DAY)
#define RENEW_BEFORE	(365 * DAY)
#define FILE_MAX	65536u

static int fail(char err[256], int r, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int
fail(char err[256], int r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, 256, fmt, ap);
	va_end(ap);
	ERR_clear_error();
	return r;
}

static void
cleanup_bio(BIO **bio)
{
	BIO_free(*bio);
}

static int
write_bio(int dirfd, const char *name, BIO *bio, mode_t mode, char err[256])
{
	char *data;
	long len = BIO_get_mem_data(bio, &data);
	int r = len > 0 ? fd_replace_file(dirfd, name, data, (size_t)len, mode) : -EIO;

	return r < 0 ? fail(err, r, "cannot write %s: %s", name, strerror(-r)) : 0;
}

/* Reads or makes an EC key. */
static int
get_key(int dirfd, const char *name, EVP_PKEY **ret_key, char err[256])
{
	__attribute__((cleanup(cleanup_bio))) BIO *bio = NULL;
	_cleanup_free_ uint8_t *data = NULL;
	EVP_PKEY *key = NULL;
	size_t len;
	int r = fd_read_file(dirfd, name, FILE_MAX, &data, &len);

	if (r < 0 && r != -ENOENT)
		return fail(err, r, "cannot read %s: %s", name, strerror(-r));
	if (r == 0) {
		bio = BIO_new_mem_buf(data, (int)len);
		key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
		OPENSSL_cleanse(data, len);
		if (key == NULL)
			return fail(err, -EINVAL, "%s holds no private key", name);
		*ret_key = key;
		return 0;
	}
	bio = BIO_new(BIO_s_secmem());
	key = EVP_EC_gen("P-256");
	if (bio == NULL || key == NULL || PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1)
		r = fail(err, -EIO, "cannot make a key");
	else
		r = write_bio(dirfd, name, bio, 0600, err);
	if (r < 0) {
		EVP_PKEY_free(key);
		return r;
	}
	*ret_key = key;
	return 1;
}

static X509 *
read_cert(int dirfd, const char *name)
{
	__attribute__((cleanup(cleanup_bio))) BIO *bio = NULL;
	_cleanup_free_ uint8_t *data = NULL;
	size_t len;

	if (fd_read_file(dirfd, name, FILE_MAX, &data, &len) < 0)
		return NULL;
	bio = BIO_new_mem_buf(data, (int)len);
	return bio != NULL ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
}

static int
write_cert(int dirfd, const char *name, X509 *cert, X509 *issuer, char err[256])
{
	__attribute__((cleanup(cleanup_bio))) BIO *bio = BIO_new(BIO_s_mem());

	if (bio == NULL || PEM_write_bio_X509(bio, cert) != 1 || (issuer != NULL && PEM_write_bio_X509(bio, issuer) != 1))
		return fail(err, -EIO, "cannot encode %s", name);
	return write_bio(dirfd, name, bio, 0644, err);
}

static int
add_ext(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *ext;
	int ok;

	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ok = ext != NULL && X509_add_ext(cert, ext, -1) == 1;
	X509_EXTENSION_free(ext);
	return ok ? 0 : -EINVAL;
}

/* An unsigned certificate with serial, dates, names and key. */
static X509 *
new_cert(EVP_PKEY *key, const char *cn, X509 *issuer)
{
	X509 *cert = X509_new();
	BIGNUM *serial = BN_new();
	X509_NAME *name = X509_NAME_new();
	bool ok = cert != NULL && serial != NULL && name != NULL && X509_set_version(cert, 2) == 1 &&
	    BN_rand(serial, 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
	    BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(cert)) != NULL &&
	    X509_gmtime_adj(X509_getm_notBefore(cert), -DAY) != NULL &&
	    X509_gmtime_adj(X509_getm_notAfter(cert), LIFETIME) != NULL && X509_set_pubkey(cert, key) == 1 &&
	    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const uint8_t *)cn, -1, -1, 0) == 1 &&
	    X509_set_subject_name(cert, name) == 1 &&
	    X509_set_issuer_name(cert, issuer != NULL ? X509_get_subject_name(issuer) : name) == 1;

	BN_free(serial);
	X509_NAME_free(name);
	if (!ok) {
		X509_free(cert);
		return NULL;
	}
	return cert;
}

static int
make_ca(int dirfd, EVP_PKEY *key, X509 **ret_ca, char err[256])
{
	X509 *ca = new_cert(key, "edgehub private CA", NULL);
	int r = 0;

	if (ca == NULL || add_ext(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") < 0 ||
	    add_ext(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign") < 0 ||
	    add_ext(ca, ca, NID_subject_key_identifier, "hash") < 0 || X509_sign(ca, key, EVP_sha256()) == 0)
		r = fail(err, -EIO, "cannot make the CA certificate");
	if (r == 0)
		r = write_cert(dirfd, "ca.pem", ca, NULL, err);
	if (r < 0)
		X509_free(ca);
	else
		*ret_ca = ca;
	return r;
}

static bool
is_address(const char *name)
{
	uint8_t buf[16];

	return inet_pton(AF_INET, name, buf) == 1 || inet_pton(AF_INET6, name, buf) == 1;
}

/* subjectAltName as OpenSSL's configuration text. Names are checked: this is a little language with commas. */
static int
san_text(char *buf, size_t size, const char *const *names, size_t nnames, char err[256])
{
	size_t len = 0;

	for (size_t i = 0; i < nnames; i++) {
		const char *n = names[i];
		int w;

		if (n[0] == '\0' || strlen(n) > 253 || strspn(n, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
		    "0123456789.-*:") != strlen(n) || (strchr(n, ':') != NULL && !is_address(n)))
			return fail(err, -EINVAL, "not a host name or address: %.64s", n);
		w = snprintf(buf + len, size - len, "%s%s:%s", i > 0 ? "," : "", is_address(n) ? "IP" : "DNS", n);
		if (w < 0 || (size_t)w >= size - len)
			return fail(err, -E2BIG, "too many names");
		len += (size_t)w;
	}
	return 0;
}

static int
make_server(int dirfd, EVP_PKEY *key, EVP_PKEY *ca_key, X509 *ca, const char *san, const char *cn, char err[256])
{
	X509 *cert = new_cert(key, cn, ca);
	int r = 0;

	if (cert == NULL || add_ext(cert, ca, NID_basic_constraints, "critical,CA:FALSE") < 0 ||
	    add_ext(cert, ca, NID_key_usage, "critical,digitalSignature") < 0 ||
	    add_ext(cert, ca, NID_ext_key_usage, "serverAuth") < 0 ||
	    add_ext(cert, ca, NID_subject_key_identifier, "hash") < 0 ||
	    add_ext(cert, ca, NID_authority_key_identifier, "keyid:always") < 0 ||
	    add_ext(cert, ca, NID_subject_alt_name, san) < 0 || X509_sign(cert, ca_key, EVP_sha256()) == 0)
		r = fail(err, -EIO, "cannot make the server certificate");
	if (r == 0)
		r = write_cert(dirfd, "server.pem", cert, ca, err);
	X509_free(cert);
	return r;
}

/* True if the certificate belongs to key, was issued by ca, lasts and has all names. */
static bool
server_ok(X509 *cert, EVP_PKEY *key, EVP_PKEY *ca_key, const char *const *names, size_t nnames)
{
	time_t limit = (time_t)(monotime_wall_ns() / 1000000000) + RENEW_BEFORE;

	if (cert == NULL || X509_verify(cert, ca_key) != 1 || EVP_PKEY_eq(X509_get0_pubkey(cert), key) != 1 ||
	    X509_cmp_time(X509_get0_notAfter(cert), &limit) <= 0) {
		ERR_clear_error();
		return false;
	}
	for (size_t i = 0; i < nnames; i++)
		if ((is_address(names[i]) ? X509_check_ip_asc(cert, names[i], 0) :
		    X509_check_host(cert, names[i], 0, 0, NULL)) != 1)
			return false;
	return true;
}

static int
setup(int dirfd, const char *const *names, size_t nnames, EVP_PKEY *ca_key, EVP_PKEY *key, bool *ret_new, char err[256])
{
	X509 *ca = read_cert(dirfd, "ca.pem"), *cert = read_cert(dirfd, "server.pem");
	char san[PKI_NAMES_MAX * 280];
	int r = san_text(san, sizeof(san), names, nnames, err);

	ERR_clear_error();
	*ret_new = ca == NULL;
	if (r == 0 && ca == NULL)
		r = make_ca(dirfd, ca_key, &ca, err);
	else if (r == 0 && EVP_PKEY_eq(X509_get0_pubkey(ca), ca_key) != 1)
		r = fail(err, -EINVAL, "ca.pem does not belong to ca.key");
	if (r == 0 && !server_ok(cert, key, ca_key, names, nnames))
		r = make_server(dirfd, key, ca_key, ca, san, names[0], err);
	X509_free(ca);
	X509_free(cert);
	return r;
}

int
pki_setup(int dirfd, const char *const *names, size_t nnames, bool *ret_new, char err[256])
{
	const char *all[PKI_NAMES_MAX];
	char host[HOST_NAME_MAX + 1] = "";
	EVP_PKEY *ca_key = NULL, *key = NULL;
	size_t n = 0;
	int r;

	if (gethostname(host, sizeof(host) - 1) == 0 && host[0] != '\0' && strchr(host, '_') == NULL)
		all[n++] = host;
	all[n++] = "localhost";
	all[n++] = "127.0.0.1";
	all[n++] = "::1";
	if (nnames > PKI_NAMES_MAX - n)
		return fail(err, -E2BIG, "at most %zu names", PKI_NAMES_MAX - n);
	for (size_t i = 0; i < nnames; i++)
		all[n++] = names[i];
	r = get_key(dirfd, "ca.key", &ca_key, err);
	if (r >= 0)
		r = get_key(dirfd, "server.key", &key, err);
	if (r >= 0)
		r = setup(dirfd, all, n, ca_key, key, ret_new, err);
	EVP_PKEY_free(ca_key);
	EVP_PKEY_free(key);
	return r < 0 ? r : 0;
}

int
pki_hub_key(int dirfd, const char *name, uint8_t key[32], char err[256])
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t len = 0;
	int r = fd_read_file(dirfd, name, 32, &data, &len);

	if (r == 0 && len == 32) {
		memcpy(key, data, 32);
		return 0;
	}
	if (r != -ENOENT)
		return fail(err, r < 0 ? r : -EINVAL, "cannot use %s: %s", name, r < 0 ? strerror(-r) : "it must have 32 bytes");
	if (RAND_bytes(key, 32) != 1)
		return fail(err, -EIO, "no random bytes");
	r = fd_replace_file(dirfd, name, key, 32, 0600);
	return r < 0 ? fail(err, r, "cannot write %s: %s", name, strerror(-r)) : 0;
}
