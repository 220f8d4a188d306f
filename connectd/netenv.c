/*
 * What is made once, before the sandbox closes. For the sandbox of connectd, the part of this folder that talks to the
 * network needs:
 *
 * system calls beyond the base table
 *   socket(AF_INET or AF_INET6, SOCK_STREAM or SOCK_DGRAM), connect, setsockopt(IPPROTO_TCP), writev (c-ares over TCP)
 *   openat read-only, newfstatat with a path, readlink, uname, inotify_add_watch, inotify_rm_watch
 *   before the sandbox only: socket(AF_NETLINK), inotify_init1, timerfd_create
 *
 * paths, read-only
 *   /etc (resolv.conf, hosts, nsswitch.conf, host.conf, ssl/certs), the directory resolv.conf leads to
 *   (/run/systemd/resolve, /run/NetworkManager, /run/resolvconf), where the roots' links lead to (/usr/share/ca-certificates,
 *   /usr/local/share/ca-certificates, /usr/lib/ssl), /dev/urandom (c-ares makes its query ids from it)
 */
#include "connectd/netenv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/dns.h"
#include "connectd/netwatch.h"
#include "connectd/proxy.h"
#include "connectd/tls.h"

struct netenv {
	struct loop *loop;
	struct tls_trust *trust;
	struct netwatch *watch;
	struct proxy_env proxy;
	bool dns;
};

int
netenv_new(struct loop *loop, const char *ca_file, struct netenv **ret_env, char err[200])
{
	struct netenv *env = calloc(1, sizeof(*env));
	int r;

	if (env == NULL)
		return -ENOMEM;
	env->loop = loop;
	r = proxy_env_read(&env->proxy);
	if (r < 0)
		snprintf(err, 200, "a proxy variable of the environment is too long");
	if (r == 0)
		r = tls_trust_new(ca_file, &env->trust, err);
	if (r == 0) {
		r = dns_library_init();
		env->dns = r == 0;
		if (r < 0)
			snprintf(err, 200, "out of memory");
	}
	if (r < 0) {
		netenv_free(env);
		return r;
	}
	*ret_env = env;
	return 0;
}

void
netenv_free(struct netenv *env)
{
	if (env == NULL)
		return;
	netwatch_free(env->watch);
	tls_trust_free(env->trust);
	if (env->dns)
		dns_library_done();
	explicit_bzero(&env->proxy, sizeof(env->proxy));
	free(env);
}

int
netenv_watch(struct netenv *env, void (*changed)(const char *what, void *ctx), void *ctx)
{
	return env->watch != NULL ? -EALREADY : netwatch_new(env->loop, "/etc/resolv.conf", changed, ctx, &env->watch);
}

const struct tls_trust *
netenv_trust(const struct netenv *env)
{
	return env->trust;
}

const struct proxy_env *
netenv_proxy(const struct netenv *env)
{
	return &env->proxy;
}
