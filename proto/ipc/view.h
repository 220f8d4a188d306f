/* What a workload's view of the file system has of the machine: the launcher shows it, workerd looks whether it is still the same. */
#ifndef EDGEWARD_PROTO_VIEW_H
#define EDGEWARD_PROTO_VIEW_H

/*
 * What a view shows of the machine, read-only with all that is mounted below (where names of users and hosts are looked up by whoever
 * asks: only with its network), and what it hides of that. A process that was prepared is of no use once one of these is another.
 */
#define LAUNCH_VIEW_SYSTEM(row)	row("/usr"), row("/bin"), row("/sbin"), row("/lib"), row("/lib32"), row("/lib64"), row("/libx32"), row("/opt"), \
				row("/etc"), row("/sys/devices/system")
#define LAUNCH_VIEW_NAMES(row)	row("/run/systemd/resolve"), row("/run/NetworkManager"), row("/run/resolvconf")
#define LAUNCH_VIEW_HIDDEN(row)	row("/etc/edgeward")
/* What a view lays its own files over, which are gone from there when the machine's are replaced. */
#define LAUNCH_VIEW_LAID_OVER(row)	row("/etc/passwd"), row("/etc/group")
#define LAUNCH_LENT	"/dev/edgeward"	/* a directory for each runner, by its slot, where devices were lent */

#endif
