/*
 * What a proxy answers. The first byte picks the kind, whether there is a password, and the size of the pieces. The
 * outcome has a sentence without the secret (whose "_" no quoted scheme can have), and nothing is taken behind an answer.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/proxy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const proxies[] = {
		"http://p", "http://user:c4_n4ry@p", "socks5://p", "socks5://user:c4_n4ry@p",
	};
	static const char *const urls[] = { "wss://hub.example/", "wss://10.0.0.1/", "wss://[::1]:8443/" };
	static struct proxy_talk talk;
	struct proxy proxy;
	struct url url;
	char err[URL_ERR_SIZE];
	size_t step, off;
	int r = 0;

	if (size < 1)
		return 0;
	if (proxy_parse(proxies[data[0] & 3], &proxy, err) < 0 || url_parse(urls[(data[0] >> 2 & 3) % 3], &url, err) < 0)
		abort();
	step = (data[0] >> 4) + 1u;
	proxy_talk_start(&talk, &proxy, &url);
	for (off = 1; off < size && r == 0; off += step) {
		if (talk.out_len == 0 && off == 1)
			abort();
		talk.out_len = 0;
		r = proxy_talk_feed(&talk, data + off, size - off < step ? size - off : step);
	}
	if (r == 0)
		proxy_talk_eof(&talk);
	if (r != 1 && talk.detail[0] == '\0')
		abort();
	for (const char *p = talk.detail; *p != '\0'; p++)
		if (*p < ' ' || *p > '~')
			abort();
	if (strstr(talk.detail, "c4_n4ry") != NULL)
		abort();
	return 0;
}
