/*
 * The thread that authorizes devices.
 *
 * Who calls: privhelper's usb.c. What is trusted: its jobs come from that process. Writing `authorized` makes the kernel ask the far side and wait, up
 * to 5 seconds for each question. In the event loop a device that answers slowly would keep the two daemons from being
 * introduced and the watchdog from being fed; here it keeps other devices waiting, until usb.c detaches its port.
 *
 * It shares nothing with the loop but what never changes (the open controllers, the set of classes); jobs are copied through
 * pipes. It is made after the capabilities are gone, and the first thing it does is to load the filter, for every thread of the
 * process at once; the start waits for that. On error: its write ends with a result below 0; with a pipe that
 * fails the thread ends, and whoever waits for it reads the end of the other.
 */
#include "common/usbauth.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static void *
work(void *ctx)
{
	const struct usbauth auth = *(const struct usbauth *)ctx;
	struct usbauth_job job = { .result = auth.narrow() };

	while (write(auth.done, &job, sizeof(job)) == sizeof(job) && read(auth.asked, &job, sizeof(job)) == sizeof(job))
		job.result = hcd_authorize(auth.hcd, &job.at, auth.set, &job.what);
	close(auth.done);
	return NULL;
}

int
usbauth_start(struct usbauth *auth, const struct hcd *hcd, const struct usbdesc_classes *set, int (*narrow)(void))
{
	struct usbauth_job first = { 0 };
	int ask[2], answer[2], r;
	pthread_t thread;

	if (pipe2(ask, O_CLOEXEC) < 0 || pipe2(answer, O_CLOEXEC) < 0)
		return -errno;
	*auth = (struct usbauth){ hcd, set, narrow, ask[1], ask[0], answer[1], answer[0] };
	r = pthread_create(&thread, NULL, work, auth);
	if (r != 0)
		return -r;
	return read(auth->answer, &first, sizeof(first)) == sizeof(first) ? first.result : -EIO;
}

int
usbauth_ask(const struct usbauth *auth, const struct usbauth_job *job)
{
	return write(auth->ask, job, sizeof(*job)) == sizeof(*job) ? 0 : -errno;
}
