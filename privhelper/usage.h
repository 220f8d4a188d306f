/* What privhelper says about itself. */
#ifndef EDGEWARD_PRIVHELPER_USAGE_H
#define EDGEWARD_PRIVHELPER_USAGE_H

#define USAGE	"usage: privhelper [-hvV] [-l yes|no] [-r rundir] [-s statedir] [-u usb-classes] [-P pool] -N uid-of-connectd -W uid-of-workerd\n"

static const char help[] = USAGE
    "\n"
    "privhelper is the part of Edgeward that runs as root. It introduces connectd and workerd to each other, attaches USB\n"
    "devices for workerd and lends workloads their nodes. It reads no configuration. The service manager starts it (edgeward-privhelper.service, or run-foreground), with the listener of\n"
    "introduce.sock as descriptor 3; by hand it does nothing useful.\n"
    "\n"
    "  -N UID    numeric uid of connectd; any other but the next is turned away\n"
    "  -W UID    numeric uid of workerd\n"
    "  -r DIR    where introduce.sock is; default /run/edgeward\n"
    "  -s DIR    state; default /var/lib/edgeward: the audit record is in privhelper/ below it\n"
    "  -u LIST   interface classes a USB device may have, such as \"ff 07 08\"; without it none is attached\n"
    "  -l yes    Ethernet interfaces are made for workloads; default no\n"
    "  -P POOL   runner ids, as in /etc/edgeward/pool: first uid, count, gid; workloads under these may be lent devices\n"
    "  -v        log for developers, too\n"
    "  -V        print the version;  -h, --help  this text\n"
    "\n"
    "Exit codes: 0 asked to stop, 1 could not go on, 2 wrong usage. More: privhelper(8).\n";

#endif
