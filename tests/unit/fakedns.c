#include "tests/unit/fakedns.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADER	12u

/* Length of the question section of one question, or 0. */
static size_t
question_len(const uint8_t *p, size_t len)
{
	size_t i = HEADER;

	while (i < len && p[i] != 0)
		i += p[i] + 1u;
	return i + 5 <= len ? i + 5 - HEADER : 0;
}

static void
answer(struct fakedns *dns, const struct fakedns_question *q)
{
	uint8_t out[1500];
	size_t n = HEADER + question_len(q->packet, q->len);
	int rcode = dns->rcode[q->v6];
	unsigned count = rcode == 0 ? (q->v6 ? dns->n6 : dns->n4) : 0;

	memcpy(out, q->packet, n);
	out[2] |= 0x84;			/* an answer, authoritative */
	out[3] = (uint8_t)(0x80 | rcode);
	out[6] = 0;
	out[7] = (uint8_t)count;
	memset(out + 8, 0, 4);
	for (unsigned i = 0; i < count; i++) {
		static const uint8_t v6[16] = { [15] = 1 };
		uint8_t rr[12] = { 0xc0, HEADER, 0, q->v6 ? 28 : 1, 0, 1, 0, 0, 0x0e, 0x10, 0, q->v6 ? 16 : 4 };
		const uint8_t v4[4] = { 127, 0, 0, (uint8_t)(i + 1) };

		memcpy(out + n, rr, sizeof(rr));
		n += sizeof(rr);
		memcpy(out + n, q->v6 ? v6 : v4, q->v6 ? 16 : 4);
		n += q->v6 ? 16 : 4;
	}
	sendto(dns->io.fd, out, n, 0, (const struct sockaddr *)&q->from, sizeof(q->from));
}

void
fakedns_release(struct fakedns *dns)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < dns->nheld; i++) {
		if (dns->rcode[dns->held[i].v6] == FAKEDNS_SILENT)
			dns->held[kept++] = dns->held[i];
		else
			answer(dns, &dns->held[i]);
	}
	dns->nheld = kept;
}

static void
ready(struct loop_io *io, uint32_t events)
{
	struct fakedns *dns = io->ctx;

	(void)events;
	for (;;) {
		struct fakedns_question q;
		socklen_t len = sizeof(q.from);
		ssize_t n = recvfrom(io->fd, q.packet, sizeof(q.packet), 0, (struct sockaddr *)&q.from, &len);
		size_t qlen;

		if (n < (ssize_t)HEADER)
			break;
		q.len = (size_t)n;
		qlen = question_len(q.packet, q.len);
		if (qlen == 0)
			continue;
		q.v6 = q.packet[HEADER + qlen - 3] == 28;
		dns->questions[q.v6]++;
		if (dns->nheld == FAKEDNS_HELD)
			memmove(dns->held, dns->held + 1, --dns->nheld * sizeof(q));
		dns->held[dns->nheld++] = q;
	}
	fakedns_release(dns);
}

void
fakedns_init(struct fakedns *dns, struct loop *loop)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	memset(dns, 0, sizeof(*dns));
	dns->loop = loop;
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &len) < 0 || loop_io_add(loop, &dns->io, fd, EPOLLIN, ready, dns) < 0)
		abort();
	snprintf(dns->server, sizeof(dns->server), "127.0.0.1:%u", ntohs(sa.sin_port));
}

void
fakedns_done(struct fakedns *dns)
{
	int fd = dns->io.fd;

	loop_io_del(dns->loop, &dns->io);
	close(fd);
}
