/*
 * The proxy variables that count are connectd's, not those of the shell edgectl was started from (sudo drops them, a unit has its
 * own file). Where they are looked for: in the running connectd, if we may; else in the unit's file; else in our own environment.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "edgectl/doctor/doctor.h"

/* As connectd/proxy.c reads them. */
static const char *const names[PROXYENV_MAX] = {
	"https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_DIR",
};

static bool
wanted(const char *line)
{
	for (unsigned i = 0; i < PROXYENV_MAX; i++) {
		size_t len = strlen(names[i]);

		if (strncmp(line, names[i], len) == 0 && line[len] == '=')
			return true;
	}
	return false;
}

/* A file of systemd may have its values in quotes. */
static void
unquote(char *line)
{
	char *value = strchr(line, '=') + 1;
	size_t len = strlen(value);

	if (len >= 2 && (value[0] == '"' || value[0] == '\'') && value[len - 1] == value[0]) {
		memmove(value, value + 1, len - 2);
		value[len - 2] = '\0';
	}
}

unsigned
proxyenv_pick(char *text, size_t len, char sep, const char *env[PROXYENV_MAX + 1])
{
	unsigned n = 0;

	for (char *p = text, *end = text + len; p < end && n < PROXYENV_MAX;) {
		char *stop = memchr(p, sep, (size_t)(end - p));

		if (stop == NULL)
			stop = end;	/* the caller has a NUL there */
		*stop = '\0';
		while (*p == ' ' || *p == '\t')
			p++;
		if (wanted(p)) {
			if (sep == '\n')
				unquote(p);
			env[n++] = p;
		}
		p = stop + 1;
	}
	env[n] = NULL;
	return n;
}

static ssize_t
read_whole(const char *path, char *buf, size_t size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t len = 0;
	ssize_t n = 0;

	if (fd < 0)
		return -1;
	while (len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0)
		len += (size_t)n;
	buf[len] = '\0';
	return n < 0 ? -1 : (ssize_t)len;
}

static unsigned
ours(char *buf, size_t size, const char *env[PROXYENV_MAX + 1])
{
	size_t o = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < PROXYENV_MAX; i++) {
		const char *v = getenv(names[i]);
		int len = v != NULL ? snprintf(buf + o, size - o, "%s=%s", names[i], v) : -1;

		if (len < 0 || (size_t)len >= size - o)
			continue;
		env[n++] = buf + o;
		o += (size_t)len + 1;
	}
	env[n] = NULL;
	return n;
}

void
proxyenv_find(struct doctor *d, char *buf, size_t size, const char *env[PROXYENV_MAX + 1])
{
	char path[PATH_MAX];
	ssize_t len;

	if (d->view.net_up) {
		snprintf(path, sizeof(path), "/proc/%d/environ", d->view.net.pid);
		len = read_whole(path, buf, size);
		if (len >= 0) {
			d->proxy_from = "the running connectd";
			proxyenv_pick(buf, (size_t)len, '\0', env);
			return;
		}
	}
	if (d->units) {
		len = read_whole(doctor_path(d, "/etc/edgeward/environment", path), buf, size);
		d->proxy_from = "/etc/edgeward/environment";
		proxyenv_pick(buf, len > 0 ? (size_t)len : 0, '\n', env);
		return;
	}
	d->proxy_from = "this shell";
	ours(buf, size, env);
}
