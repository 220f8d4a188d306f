/* privhelper's USB verbs in this process, on a made-up sysfs: files that say what the kernel would. */
#ifndef EDGEWARD_TEST_USBRIG_H
#define EDGEWARD_TEST_USBRIG_H

#include <string.h>
#include <sys/stat.h>

#include "privhelper/rules.h"
#include "privhelper/usb.h"
#include "tests/unit/unit.h"

#define HEAD	"hub port sta spd dev      sockfd local_busid\n"
#define HCD	"sys/devices/platform/vhci_hcd.0"

#define PUT(name, text)	put(name, text, strlen(text))

/* The kernel's word on ports of which ours, 0, is free again. */
#define ALL_FREE	HEAD "hs  0000 004 000 00000000 000000 0-0\nhs  0001 004 000 00000000 000000 0-0\n" "ss  0002 004 000 00000000 000000 0-0\n"

extern char top[64];
extern struct introducer in;
extern struct usb usb;
extern struct peer *nobody;
extern struct ipc_chan chan;
extern int peer;
extern const uint8_t disk[36];		/* descriptors */
void put(const char *name, const void *text, size_t len);
const char *get(const char *name);
void begin(const char *classes);
int setup(void **state);
int teardown(void **state);
int ask_attach(uint32_t devid, uint32_t speed, struct priv_usb_attached *ret, int *ret_end);
int ask_detach(uint32_t port);
unsigned last_mark(void);
void turn_until(enum usb_state wanted);
void show_used(unsigned mark, unsigned devid);
void show_nodes(void);
int ask_grant(uint32_t port, uint32_t slot, struct priv_usb_granted *ret);
/* What the kernel shows of the device that was attached: with these descriptors; of a disk, with all that is to be authorized. */
void show_device(const uint8_t descriptors[36], const char *authorized);
void show_disk(void);
void attach_disk(int *ret_end);
/* A disk that is attached, and whose nodes were given to the runner of this slot; its end. */
int lend_disk(uint32_t slot, struct priv_usb_granted *ret);
mode_t node(const char *name, dev_t *ret);

#endif
