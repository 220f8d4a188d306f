/* From configuration and environment to what dial.c needs for one attempt. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "connectd/dial.h"

/*
 * TCP_USER_TIMEOUT is the last resort, for a link that is dead while nobody looks. On one that loses a tenth of its segments
 * with seconds of round trip, a segment lost three times in a row is ordinary, and its retries are 4, 8, 16 s apart.
 */
#define USER_TIMEOUT	3	/* times the write deadline */

int
dial_params_init(struct dial_params *ret_params, const struct hubconn_params *conf, const struct proxy_env *env,
    char err[200])
{
	struct dial_params p = {
		.timeout_ms = conf->connect_timeout_ms, .user_timeout_ms = USER_TIMEOUT * conf->write_timeout_ms,
		.min_wall_ns = conf->min_wall_ns,
	};
	int r;

	if (url_parse(conf->url, &p.url, err) < 0 || pin_parse(conf->pins, &p.pins, err) < 0)
		return -EINVAL;
	if (!p.url.tls && p.pins.n > 0) {
		snprintf(err, 200, "a pin has no meaning without TLS: use wss:// or remove the pin");
		return -EINVAL;
	}
	if (!p.url.tls && !conf->insecure && !url_is_loopback(&p.url)) {
		snprintf(err, 200, "without TLS only the loopback is allowed: use wss:// (or, knowing what it means, "
		    "insecure-transport = yes)");
		return -EINVAL;
	}
	r = proxy_choose(conf->proxy, conf->no_proxy, env, &p.url, &p.proxy, err);
	if (r == 0)
		*ret_params = p;
	explicit_bzero(&p.proxy, sizeof(p.proxy));
	return r;
}
