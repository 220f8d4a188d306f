/*
 * TLS and WebSocket of the sink. It is the far end of every measurement, so it does as little as it can: it reads 128
 * KiB ahead, it unmasks of a binary message only the header, and it never copies payload.
 */
#include "conn.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "bench.h"

#define BUFFER		(4u << 20)
#define READ_AHEAD	(128u << 10)
#define HEADER_BYTES	16u	/* of a binary message that are unmasked */
#define SILENCE_S	90	/* longer without a byte: the agent hangs */

static SSL_CTX *ctx;
static SSL *ssl;
static int fd = -1, listener = -1;
static uint8_t *buf;
static size_t filled, consumed;

void
conn_setup(const char *cert, const char *key)
{
	ctx = SSL_CTX_new(TLS_server_method());
	buf = malloc(BUFFER);
	if (ctx == NULL || buf == NULL || SSL_CTX_use_certificate_chain_file(ctx, cert) != 1 ||
	    SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1) {
		ERR_print_errors_fp(stderr);
		exit(1);
	}
	SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
	SSL_CTX_set_ciphersuites(ctx, "TLS_AES_256_GCM_SHA384");
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_default_read_buffer_len(ctx, READ_AHEAD);
}

int
conn_listen(const char *address, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	socklen_t alen = sizeof(a);
	int one = 1;

	if (listener >= 0)
		return port;
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (inet_pton(AF_INET, address, &a.sin_addr) != 1 || bind(listener, (struct sockaddr *)&a, alen) != 0 ||
	    listen(listener, 16) != 0 || getsockname(listener, (struct sockaddr *)&a, &alen) != 0)
		die("listen");
	return ntohs(a.sin_port);
}

void
conn_deaf(void)
{
	if (listener >= 0)
		close(listener);
	listener = -1;
}

void
conn_close(void)
{
	SSL_free(ssl);
	ssl = NULL;
	if (fd >= 0)
		close(fd);
	fd = -1;
	filled = consumed = 0;
}

bool
conn_is_open(void)
{
	return fd >= 0;
}

int
conn_fd(void)
{
	return fd;
}

int
conn_listener(void)
{
	return listener;
}

bool
conn_has_data(void)
{
	return filled > consumed || (ssl != NULL && SSL_has_pending(ssl));
}

/* Has at least n unread bytes in the buffer afterwards. */
static bool
need(size_t n)
{
	if (filled - consumed >= n)
		return true;
	if (n > BUFFER)
		return false;
	if (filled == consumed) {
		filled = consumed = 0;
	} else if (BUFFER - consumed < n || BUFFER - filled < READ_AHEAD) {
		memmove(buf, buf + consumed, filled - consumed);
		filled -= consumed;
		consumed = 0;
	}
	while (filled - consumed < n) {
		int r = SSL_read(ssl, buf + filled, (int)(BUFFER - filled));
		if (r <= 0)
			return false;
		filled += (size_t)r;
	}
	return true;
}

static bool
write_all(const void *data, size_t len)
{
	return ssl != NULL && SSL_write(ssl, data, (int)len) > 0;
}

static bool
send_frame(int opcode, const void *data, size_t len)
{
	static uint8_t out[65536 + 4];
	size_t head = 2;

	if (len > 65535)
		return false;
	out[0] = (uint8_t)(0x80 | opcode);
	if (len < 126) {
		out[1] = (uint8_t)len;
	} else {
		out[1] = 126;
		out[2] = (uint8_t)(len >> 8);
		out[3] = (uint8_t)len;
		head = 4;
	}
	memcpy(out + head, data, len);
	return write_all(out, head + len);
}

bool
conn_text(const char *format, ...)
{
	char text[4096];
	va_list ap;

	va_start(ap, format);
	int n = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return n > 0 && (size_t)n < sizeof(text) && send_frame(1, text, (size_t)n);
}

bool
conn_binary(const void *data, size_t len)
{
	return send_frame(2, data, len);
}

static void
unmask(uint8_t *p, size_t n, const uint8_t key[4])
{
	uint64_t k, v;
	size_t i = 0;

	memcpy(&k, key, 4);
	memcpy((uint8_t *)&k + 4, key, 4);
	for (; i + 8 <= n; i += 8) {
		memcpy(&v, p + i, 8);
		v ^= k;
		memcpy(p + i, &v, 8);
	}
	for (; i < n; i++)
		p[i] ^= key[i & 3];
}

bool
conn_read(struct conn_frame *ret_frame)
{
	for (;;) {
		if (!need(2))
			return false;
		int opcode = buf[consumed] & 15;
		bool masked = (buf[consumed + 1] & 0x80) != 0;
		size_t len = buf[consumed + 1] & 127, head = len < 126 ? 2 : len == 126 ? 4 : 10;
		size_t mask = masked ? 4 : 0;
		if (!need(head + mask))
			return false;
		if (head > 2) {
			len = 0;
			for (size_t i = 2; i < head; i++)
				len = len << 8 | buf[consumed + i];
		}
		if (!need(head + mask + len))
			return false;
		uint8_t *p = buf + consumed + head + mask;
		consumed += head + mask + len;
		if (masked)
			unmask(p, opcode == 2 && len > HEADER_BYTES ? HEADER_BYTES : len, p - 4);
		if (opcode == 8)
			return false;
		if (opcode == 9)
			send_frame(10, p, len);
		if (opcode == 9 || opcode == 10)
			continue;
		*ret_frame = (struct conn_frame){ .opcode = opcode, .data = p, .len = len };
		return true;
	}
}

static bool
start_tls(void)
{
	int one = 1;
	struct timeval silence = { .tv_sec = SILENCE_S };

	conn_close();
	fd = accept(listener, NULL, NULL);
	if (fd < 0)
		return false;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
	ssl = SSL_new(ctx);
	return SSL_set_fd(ssl, fd) == 1 && SSL_accept(ssl) == 1;
}

/* The request up to its blank line, terminated. */
static bool
read_request(char *dst, size_t size)
{
	for (size_t n = 0; n < size - 1 && need(1);) {
		dst[n++] = (char)buf[consumed++];
		dst[n] = '\0';
		if (n >= 4 && memcmp(dst + n - 4, "\r\n\r\n", 4) == 0)
			return true;
	}
	return false;
}

bool
conn_accept(bool allow_edgeward1, enum conn_path *ret_path, bool *ret_enroll)
{
	char request[8192], key[128], reply[512];
	uint8_t digest[SHA_DIGEST_LENGTH], accept_key[64];

	if (!start_tls() || !read_request(request, sizeof(request))) {
		conn_close();
		return false;
	}
	const char *k = strcasestr(request, "sec-websocket-key:");
	if (k == NULL || sscanf(k + 18, " %60s", key) != 1) {
		conn_close();
		return false;
	}
	strcat(key, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
	SHA1((const uint8_t *)key, strlen(key), digest);
	EVP_EncodeBlock(accept_key, digest, sizeof(digest));
	bool edgeward1 = allow_edgeward1 && strcasestr(request, "edgeward.1") != NULL;
	int n = snprintf(reply, sizeof(reply), "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
	    "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s\r\n", (const char *)accept_key,
	    edgeward1 ? "Sec-WebSocket-Protocol: edgeward.1\r\n" : "");
	*ret_path = strncmp(request, "GET /peer ", 10) == 0 ? CONN_PEER : edgeward1 ? CONN_EDGEWARD1 : CONN_CLOOP;
	*ret_enroll = strstr(request, "Bearer clet1.") != NULL;
	return write_all(reply, (size_t)n);
}

void
conn_reject(enum conn_reject how)
{
	static const char refusal[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
	struct linger reset = { .l_onoff = 1 };
	char request[8192];

	if (how == REJECT_RESET) {
		fd = accept(listener, NULL, NULL);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	} else if (start_tls() && how == REJECT_HTTP && read_request(request, sizeof(request))) {
		write_all(refusal, sizeof(refusal) - 1);
	}
	conn_close();
}
