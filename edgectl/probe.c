/*
 * probe: what privupgrade(8) asks while a release is on trial, in the lines of proto/release/records.h. It is run as an ordinary user in
 * the group of the sockets, from the release whose daemons it asks, because it speaks their version.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"
#include "edgectl/edgectl.h"
#include "edgectl/status.h"
#include "proto/release/records.h"

#define LIST_MS	2000
#define REACH_S	3

/* One that has ended, and not as lost, counts as taken over: its pid is 0 then. */
static void
on_work(const struct work_workload *w, const char *command, void *ctx)
{
	struct upgrade_probe *p = ctx;
	struct upgrade_work *to = &p->work[p->nwork];

	if (p->nwork == UPGRADE_WORK_MAX || w->state == WORK_PENDING || (w->state == WORK_ENDED && w->outcome == WORK_OUTCOME_LOST))
		return;
	p->nwork++;
	snprintf(to->handle, sizeof(to->handle), "%.64s", w->handle);
	to->pid = w->state == WORK_RUNNING && w->pid > 0 ? (uint64_t)w->pid : 0;
}

static void
list_work(struct edgectl *ctl, struct upgrade_probe *p)
{
	static struct client c;

	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	c.workload = on_work;
	c.ctx = p;
	client_call(&c, CTL_REQ_WORKLOADS, NULL, 0, LIST_MS);
	p->work_up = p->work_up && client_answer(&c, NULL, 0);
	client_close(&c);
}

/* The hub answers and what it says is no, or we cannot even ask: not the fault of a network. */
static bool
refused(const struct ctl_connectd_status *net)
{
	static const char *const starts[] = { "http-4", "token-", "no-credential", "credential-", "ws-protocol", "internal" };

	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		if (strncmp(net->cause, starts[i], strlen(starts[i])) == 0)
			return true;
	return net->link == CTL_LINK_STOPPED || net->link == CTL_LINK_UNENROLLED || net->link == CTL_LINK_UNCONFIGURED;
}

/* Whether somebody accepts a connection there: evidence that the network is not what is missing. The address is numeric. */
static bool
reachable(const char *peer)
{
	const char *colon = strrchr(peer, ':');
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	bool six = peer[0] == '[';
	const struct sockaddr *to = six ? (const struct sockaddr *)&in6 : (const struct sockaddr *)&in;
	const struct timeval bound = { .tv_sec = REACH_S };
	char host[UPGRADE_PEER_SIZE];
	uint32_t port;
	_cleanup_close_ int fd = -1;

	if (colon == NULL || parse_u32(colon + 1, 1, 65535, &port) < 0)
		return false;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - peer) - 2 * six, peer + six);
	in.sin_port = in6.sin6_port = htons((uint16_t)port);
	if (inet_pton(six ? AF_INET6 : AF_INET, host, six ? (void *)&in6.sin6_addr : (void *)&in.sin_addr) != 1)
		return false;
	fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound)) == 0 &&
	    connect(fd, to, six ? sizeof(in6) : sizeof(in)) == 0;
}

int
cmd_probe(struct edgectl *ctl, int argc, char **argv)
{
	static char text[UPGRADE_RECORD_MAX];
	static struct upgrade_probe p;
	static struct view v;
	int n;

	if (argc > 2 || (argc == 2 && !upgrade_peer_ok(argv[1])))
		return usage_error("probe", "takes a numeric address and port, or nothing");
	status_look(ctl, &v);
	p = (struct upgrade_probe){ .net_up = v.net_up, .work_up = v.work_up, .cause = "none", .peer = "-" };
	p.introduced = v.net_up && v.work_up && v.net.priv_up && v.work.priv_up && v.work.launcher_up && v.net.work_up && v.work.work_up;
	p.connected = v.net_up && v.net.link == CTL_LINK_CONNECTED;
	p.hub_refuses = v.net_up && refused(&v.net);
	p.protocol = p.connected ? v.net.protocol : 0;
	p.net_pid = v.net_up && v.net.pid > 0 ? (uint64_t)v.net.pid : 0;
	p.work_pid = v.work_up && v.work.pid > 0 ? (uint64_t)v.work.pid : 0;
	p.active = v.work_up ? (uint64_t)v.work.running + v.work.pending : 0;
	if (v.net_up && release_word_ok(v.net.cause))
		snprintf(p.cause, sizeof(p.cause), "%.31s", v.net.cause);
	if (p.connected && v.net.proxy[0] == '\0' && upgrade_peer_ok(v.net.peer))
		snprintf(p.peer, sizeof(p.peer), "%s", v.net.peer);
	p.reachable = argc == 2 && reachable(argv[1]);
	if (v.work_up)
		list_work(ctl, &p);
	n = upgrade_probe_write(&p, text, sizeof(text));
	return n > 0 && fwrite(text, 1, (size_t)n, stdout) == (size_t)n ? EXIT_OK : EXIT_FAILED;
}
