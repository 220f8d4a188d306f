/* Checks of the verbs' requests, the same for who asks and for privhelper. */
#include "proto/ipc/priv.h"

#define PORT_MAX	4095u	/* the kernel's own bound is 128 controllers of 30 */

bool
priv_usb_attach_ok(const struct priv_usb_attach *req)
{
	return req->devid >> 16 != 0 && (req->devid & 0xffff) != 0 && req->speed >= 1 && req->speed <= 6 && req->speed != 4;
}

bool
priv_usb_detach_ok(const struct priv_usb_detach *req)
{
	return req->port <= PORT_MAX && req->reserved == 0;
}
