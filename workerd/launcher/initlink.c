/*
 * What workinit does for interfaces of its workload (edgeward.md section 4, kind l2): passes on its network namespace, and sets the
 * addresses of an interface that root has put there.
 *
 * Who calls: workinit, when workerd asks; the records were checked there for size. What is trusted: nothing of them but that: this runs
 * as the runner, with CAP_NET_ADMIN in its own user namespace and nowhere else. On error: the answer says it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/ifaddr.h"
#include "proto/ipc/ipc.h"
#include "workerd/launcher/launcher.h"

static void
answer(const struct ipc_hdr *asked, int status, int fd)
{
	struct ipc_hdr hdr = { .type = (uint16_t)(asked->type + 1), .version = IPC_VERSION, .id = asked->id, .status = status,
		.nfds = fd >= 0 };
	struct iovec iov = { &hdr, sizeof(hdr) };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c = &control.align;

	if (fd >= 0) {
		memset(&control, 0, sizeof(control));
		m.msg_control = control.buf;
		m.msg_controllen = sizeof(control.buf);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	/* One that cannot be sent is missed by workerd, which has a deadline. */
	(void)!sendmsg(FD_INIT, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void
initlink_asked(const struct ipc_hdr *hdr, const void *payload, size_t len, int netns)
{
	struct l2_addresses what;

	if (hdr->type == INIT_REQ_NETNS && len == 0) {
		answer(hdr, netns >= 0 ? 0 : -EOPNOTSUPP, netns);
	} else if (hdr->type == INIT_REQ_ADDRESSES && len == sizeof(what)) {
		memcpy(&what, payload, sizeof(what));
		answer(hdr, l2_addresses_ok(&what) ? ifaddr_add(&what) : -EINVAL, -1);
	}
}
