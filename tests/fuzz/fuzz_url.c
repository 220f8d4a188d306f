/* Addresses of hubs and proxies, and no_proxy lists, from any text: what is taken can be written down and taken again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/proxy.h"
#include "connectd/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), err[URL_ERR_SIZE] = "";
	char authority[URL_AUTHORITY_SIZE], again[URL_AUTHORITY_SIZE + URL_PATH_SIZE + 16];
	struct url url, url2;
	struct proxy proxy;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (url_parse(text, &url, err) == 0) {
		url_authority(&url, true, authority);
		snprintf(again, sizeof(again), "%s://%s%s", url.tls ? "wss" : "ws", authority, url.path);
		if (url_parse(again, &url2, err) < 0 || strcmp(url.host, url2.host) != 0 || url.port != url2.port ||
		    strcmp(url.path, url2.path) != 0 || url.ip != url2.ip || url_is_loopback(&url) != url_is_loopback(&url2))
			abort();
		if (!proxy_exempt("*", &url) || !proxy_exempt(url.host, &url))
			abort();
		proxy_exempt(text, &url);
	} else if (err[0] == '\0') {
		abort();
	}
	if (proxy_parse(text, &proxy, err) < 0 && err[0] == '\0')
		abort();
	if (url_parse("wss://[2001:db8::1]:8443/", &url, err) == 0)
		proxy_exempt(text, &url);
	free(text);
	return 0;
}
