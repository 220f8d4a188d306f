#include "connectd/tls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/monotime.h"
#include "connectd/transport.h"

#define READ_BUFFER	(128u * 1024)	/* with read-ahead: several records per recv() */

struct tls_trust {
	SSL_CTX *ctx;
	BIO_METHOD *bio;
};

/* Below OpenSSL: reads go to the socket, writes are gathered. */
static int
bio_read(BIO *bio, char *buf, size_t len, size_t *ret_n)
{
	ssize_t n = transport_recv(BIO_get_data(bio), buf, len);

	BIO_clear_retry_flags(bio);
	if (n == -EAGAIN)
		BIO_set_retry_read(bio);
	*ret_n = n > 0 ? (size_t)n : 0;
	return n > 0;
}

static int
bio_write(BIO *bio, const char *buf, size_t len, size_t *ret_n)
{
	*ret_n = transport_gather(BIO_get_data(bio), buf, len);
	BIO_clear_retry_flags(bio);
	if (*ret_n == 0)
		BIO_set_retry_write(bio);
	return *ret_n > 0;
}

static long
bio_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
	const struct transport *t = BIO_get_data(bio);

	(void)num;
	(void)ptr;
	if (cmd == BIO_CTRL_EOF)
		return t->eof;
	return cmd == BIO_CTRL_FLUSH;
}

static BIO_METHOD *
new_bio_method(void)
{
	BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "edgeward");

	if (m == NULL || BIO_meth_set_read_ex(m, bio_read) != 1 || BIO_meth_set_write_ex(m, bio_write) != 1 ||
	    BIO_meth_set_ctrl(m, bio_ctrl) != 1) {
		BIO_meth_free(m);
		return NULL;
	}
	return m;
}

/* True if the directory has a root under its hash, as c_rehash and update-ca-certificates leave it. */
static bool
is_hashed(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *de;
	bool found = false;

	if (dir == NULL)
		return false;
	while (!found && (de = readdir(dir)) != NULL)
		found = strlen(de->d_name) == 10 && strspn(de->d_name, "0123456789abcdef") == 8 && de->d_name[8] == '.';
	closedir(dir);
	return found;
}

static int
load_trust(SSL_CTX *ctx, const char *ca_file, char err[200])
{
	const char *dir = getenv(X509_get_default_cert_dir_env());
	_cleanup_close_ int fd = -1;

	if (dir == NULL)
		dir = X509_get_default_cert_dir();
	if (SSL_CTX_set_default_verify_dir(ctx) != 1)
		return -ENOMEM;
	/* A system without trust is no error here: the hub may be pinned to a private CA only. */
	if (!is_hashed(dir) || getenv(X509_get_default_cert_file_env()) != NULL)
		(void)SSL_CTX_set_default_verify_file(ctx);
	ERR_clear_error();
	if (ca_file[0] == '\0')
		return 0;
	fd = open(ca_file, O_RDONLY | O_CLOEXEC);	/* OpenSSL would not say why it cannot */
	if (fd < 0) {
		snprintf(err, 200, "ca-file %.120s: cannot be read: %s", ca_file, strerror(errno));
		return -EINVAL;
	}
	if (SSL_CTX_load_verify_file(ctx, ca_file) == 1)
		return 0;
	snprintf(err, 200, "ca-file %.120s: no certificate in PEM form", ca_file);
	ERR_clear_error();
	return -EINVAL;
}

static int
configure(SSL_CTX *ctx)
{
	static const unsigned char alpn[] = "\x08http/1.1";

	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_default_read_buffer_len(ctx, READ_BUFFER);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, tls_on_verify);
	/* What is left of TLS 1.2: forward secrecy and authenticated encryption. */
	if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
	    SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1 ||
	    SSL_CTX_set_alpn_protos(ctx, alpn, sizeof(alpn) - 1) != 0)
		return -ENOMEM;
	return 0;
}

int
tls_trust_new(const char *ca_file, struct tls_trust **ret_trust, char err[200])
{
	struct tls_trust *trust = calloc(1, sizeof(*trust));
	int r = -ENOMEM;

	snprintf(err, 200, "out of memory");
	if (trust == NULL)
		return r;
	trust->bio = new_bio_method();
	trust->ctx = SSL_CTX_new(TLS_client_method());
	if (trust->bio != NULL && trust->ctx != NULL)
		r = configure(trust->ctx);
	if (r == 0)
		r = load_trust(trust->ctx, ca_file, err);
	if (r < 0) {
		tls_trust_free(trust);
		return r;
	}
	*ret_trust = trust;
	return 0;
}

void
tls_trust_free(struct tls_trust *trust)
{
	if (trust == NULL)
		return;
	SSL_CTX_free(trust->ctx);
	BIO_meth_free(trust->bio);
	free(trust);
}

int64_t
tls_check_time(int64_t wall_ns, int64_t floor_ns)
{
	return (wall_ns > floor_ns ? wall_ns : floor_ns) / 1000000000;
}

/* The name or address the certificate must be for. */
static int
set_identity(SSL *ssl, const struct url *url)
{
	if (url->ip)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), url->host);
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(ssl, url->host) == 1 && SSL_set_tlsext_host_name(ssl, url->host) == 1;
}

int
tls_start(struct transport *t, const struct tls_trust *trust, const struct url *url, int64_t floor_ns)
{
	SSL *ssl = SSL_new(trust->ctx);
	BIO *bio = BIO_new(trust->bio);

	if (ssl == NULL || bio == NULL || set_identity(ssl, url) != 1) {
		BIO_free(bio);
		SSL_free(ssl);
		ERR_clear_error();
		return -ENOMEM;
	}
	BIO_set_data(bio, t);
	BIO_set_init(bio, 1);
	SSL_set_bio(ssl, bio, bio);
	SSL_set_connect_state(ssl);
	X509_VERIFY_PARAM_set_time(SSL_get0_param(ssl), (time_t)tls_check_time(monotime_wall_ns(), floor_ns));
	t->ssl = ssl;
	return 0;
}

void
tls_sha1(const void *data, size_t len, uint8_t ret_digest[20])
{
	SHA1(data, len, ret_digest);
}
