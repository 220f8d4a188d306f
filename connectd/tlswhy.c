/* The handshake, and what is said about it when it fails: one stable code and one sentence with the next step. */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/monotime.h"
#include "connectd/tls.h"
#include "connectd/transport.h"

int
tls_handshake(struct transport *t)
{
	int r, err, sent;

	ERR_clear_error();
	r = SSL_do_handshake(t->ssl);
	err = SSL_get_error(t->ssl, r);
	/* Alerts too have to leave. What fails in sending shows up at the next read. */
	sent = transport_flush(t);
	if (r == 1)
		return sent == 0 || sent == -EAGAIN ? 1 : sent;
	if (err == SSL_ERROR_WANT_READ || err == SSL_ERROR_WANT_WRITE)
		return sent == 0 || sent == -EAGAIN ? 0 : sent;
	if (t->err < 0)
		return t->err;
	return err == SSL_ERROR_SYSCALL || t->eof ? -ECONNRESET : -EPROTO;
}

static const struct {
	const char *who, *other_name, *untrusted;
} peers[] = {
	[TLS_HUB] = { "the hub", "one of these belongs into [hub] url", "a private CA goes into [hub] ca-file, and it must be that of this hub" },
	[TLS_SERVICE] = { "the service", "ask for it by a name that is in it", "add its CA to those this device trusts, or to [hub] ca-file" },
};

static void
why_date(const char *code, const char *who, const char *what, int64_t floor_ns, struct hubconn_end *end)
{
	time_t at = (time_t)tls_check_time(monotime_wall_ns(), floor_ns);
	struct tm tm;
	char day[32] = "?";

	if (gmtime_r(&at, &tm) != NULL)
		strftime(day, sizeof(day), "%Y-%m-%d", &tm);
	hubend_set(end, HUBCONN_TLS_FAILED, HUBCONN_TLS, code,
	    "%s's certificate %s; this device takes today for %s: check its clock and the certificate", who, what, day);
}

/* ---- the names a certificate has ---- */

static void
drop_cert(void *parent, void *cert, CRYPTO_EX_DATA *data, int index, long argl, void *argp)
{
	X509_free(cert);
}

/* Of the SSL's own data; -1 = there is none, and then no name is told. */
static int
cert_index(void)
{
	static int index = -1;

	if (index < 0)
		index = SSL_get_ex_new_index(0, NULL, NULL, NULL, drop_cert);
	return index;
}

int
tls_on_verify(int good, X509_STORE_CTX *ctx)
{
	int err = X509_STORE_CTX_get_error(ctx);
	SSL *ssl = X509_STORE_CTX_get_ex_data(ctx, SSL_get_ex_data_X509_STORE_CTX_idx());
	X509 *cert = X509_STORE_CTX_get0_cert(ctx);

	if (good || (err != X509_V_ERR_HOSTNAME_MISMATCH && err != X509_V_ERR_IP_ADDRESS_MISMATCH) || ssl == NULL || cert == NULL ||
	    cert_index() < 0 || SSL_get_ex_data(ssl, cert_index()) != NULL || X509_up_ref(cert) != 1)
		return good;
	if (SSL_set_ex_data(ssl, cert_index(), cert) != 1)
		X509_free(cert);
	return good;
}

/* One of them as text, printable or nothing: whoever made the certificate has written it. */
static void
put_name(const GENERAL_NAME *name, char buf[64])
{
	int type;
	const ASN1_STRING *s = GENERAL_NAME_get0_value(name, &type);
	const unsigned char *p = type == GEN_DNS || type == GEN_IPADD ? ASN1_STRING_get0_data(s) : NULL;
	int len = p != NULL ? ASN1_STRING_length(s) : 0;

	buf[0] = '\0';
	if (type == GEN_IPADD && (len == 4 || len == 16))
		inet_ntop(len == 4 ? AF_INET : AF_INET6, p, buf, 64);
	if (type != GEN_DNS || len <= 0 || len > 63)
		return;
	for (int i = 0; i < len; i++) {
		if (p[i] <= ' ' || p[i] > '~')
			return;
	}
	memcpy(buf, p, (size_t)len);
	buf[len] = '\0';
}

/* "a, b, ..."; "" when it has none. */
static void
put_names(const SSL *ssl, char *buf, size_t size)
{
	X509 *cert = cert_index() >= 0 ? SSL_get_ex_data(ssl, cert_index()) : NULL;
	GENERAL_NAMES *names = cert != NULL ? X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL) : NULL;
	size_t len = 0;

	buf[0] = '\0';
	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		char name[64];

		put_name(sk_GENERAL_NAME_value(names, i), name);
		if (name[0] == '\0')
			continue;
		if (len + strlen(name) + 8 > size) {
			snprintf(buf + len, size - len, ", ...");
			break;
		}
		len += (size_t)snprintf(buf + len, size - len, "%s%s", len > 0 ? ", " : "", name);
	}
	GENERAL_NAMES_free(names);
}

static void
why_name(const SSL *ssl, enum tls_peer peer, const struct url *url, struct hubconn_end *end)
{
	const char *who = peers[peer].who;
	char names[80];

	put_names(ssl, names, sizeof(names));
	if (names[0] != '\0')
		hubend_set(end, HUBCONN_TLS_FAILED, HUBCONN_TLS, "tls-name", "%s's certificate is not for %.63s but for %s: %s", who, url->host,
		    names, peers[peer].other_name);
	else
		hubend_set(end, HUBCONN_TLS_FAILED, HUBCONN_TLS, "tls-name", "%s's certificate is not for %.63s, and has no name", who, url->host);
}

void
tls_why(const struct transport *t, int err, enum tls_peer peer, const struct url *url, int64_t floor_ns, struct hubconn_end *end)
{
	const char *who = peers[peer].who;
	/* Where any certificate will do, what is wrong with it is not the reason. */
	long verify = SSL_get_verify_mode(t->ssl) == SSL_VERIFY_NONE ? X509_V_OK : SSL_get_verify_result(t->ssl);
	unsigned long queued = ERR_peek_error();
	const char *reason = ERR_reason_error_string(queued);

	if (verify == X509_V_ERR_HOSTNAME_MISMATCH || verify == X509_V_ERR_IP_ADDRESS_MISMATCH)
		why_name(t->ssl, peer, url, end);
	else if (verify == X509_V_ERR_CERT_HAS_EXPIRED)
		why_date("tls-expired", who, "has expired", floor_ns, end);
	else if (verify == X509_V_ERR_CERT_NOT_YET_VALID)
		why_date("tls-not-yet-valid", who, "is not yet valid", floor_ns, end);
	else if (verify != X509_V_OK)
		hubend_set(end, HUBCONN_TLS_FAILED, HUBCONN_TLS, "tls-untrusted",
		    "%s's certificate is not trusted (%.80s): %s", who, X509_verify_cert_error_string(verify), peers[peer].untrusted);
	else if (err == -EPROTO)
		hubend_set(end, HUBCONN_TLS_FAILED, HUBCONN_TLS, "tls", "the TLS handshake failed: %.120s",
		    reason != NULL ? reason : "protocol error");
	else if (err == -ECONNRESET || err == -EPIPE)
		hubend_set(end, HUBCONN_TLS_FAILED, HUBCONN_TLS, "tls", "the connection was closed during the TLS handshake");
	else
		hubend_set_errno(end, HUBCONN_TLS, err, who);
	ERR_clear_error();
}

int
tls_check_pins(const struct transport *t, const struct pinset *pins, struct hubconn_end *end)
{
	X509 *leaf = SSL_get0_peer_certificate(t->ssl);
	unsigned char *der = NULL;
	uint8_t digest[PIN_DIGEST];
	char text[PIN_TEXT_SIZE];
	int len;

	if (pins->n == 0)
		return 0;
	len = leaf != NULL ? i2d_X509_PUBKEY(X509_get_X509_PUBKEY(leaf), &der) : -1;
	if (len <= 0) {
		hubend_set(end, HUBCONN_TLS_FAILED, HUBCONN_TLS, "tls-pin", "the hub's key cannot be read");
		return -EPERM;
	}
	SHA256(der, (size_t)len, digest);
	OPENSSL_free(der);
	if (pin_match(pins, digest))
		return 0;
	hubend_set(end, HUBCONN_TLS_FAILED, HUBCONN_TLS, "tls-pin",
	    "the hub's key %s is none of the pinned ones",
	    pin_format(digest, text));
	return -EPERM;
}
