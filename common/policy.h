/*
 * policy.conf: what a hub may do on this device, whatever it sends. Read by connectd and workerd before their sandboxes
 * close and again on SIGHUP; no frame can change it.
 *
 * Every key remembers its line, so that a refusal can name it. A policy is one flat struct: a new one is read beside the
 * old one and copied over it when it is good.
 */
#ifndef EDGEWARD_POLICY_H
#define EDGEWARD_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/keyfile.h"
#include "proto/ipc/firewall.h"

/* In the order of the table in policy.c, and of policy.conf(5). */
enum policy_key {
	POLICY_START, POLICY_PROGRAMS, POLICY_USERS, POLICY_NETWORK, POLICY_SANDBOX_LEVEL, POLICY_ATTACH, POLICY_FILES, POLICY_NESTED_USERNS,
	POLICY_MEMORY, POLICY_MEMORY_DEFAULT, POLICY_PIDS, POLICY_PIDS_DEFAULT, POLICY_CPU, POLICY_CPU_DEFAULT, POLICY_IO_RATE,
	POLICY_TIMEOUT, POLICY_TIMEOUT_DEFAULT, POLICY_OUTPUT, POLICY_SLOTS, POLICY_ENVIRONMENT,
	POLICY_NET_PUBLIC, POLICY_NET_ALLOW, POLICY_NET_DENY, POLICY_NET_PORTS, POLICY_NET_RESOLVERS,
	POLICY_USB, POLICY_USB_CLASSES, POLICY_L2, POLICY_L2_RAW,
	POLICY_ATTACH_INPUT, POLICY_ATTACH_SESSIONS, POLICY_ATTACH_EACH, POLICY_ATTACH_IDLE, POLICY_ATTACH_KEEP, POLICY_ATTACH_SCROLLBACK,
	POLICY_ATTACH_LOCAL,
	POLICY_SERVE, POLICY_SERVICES, POLICY_SERVICE_NETWORKS, POLICY_SERVICE_SOCKETS, POLICY_SERVICE_RULE, POLICY_SSH, POLICY_SSH_PORT,
	POLICY_HARNESSES, POLICY_HARNESS_INSTALL,
	POLICY_CHANNEL, POLICY_REMOTE_UPGRADE,
	POLICY_ENGINE_SOCKET, POLICY_IMAGES, POLICY_FILTERED_NETWORK,
	POLICY_KEYS
};

enum policy_network { POLICY_NETWORK_NONE, POLICY_NETWORK_FILTERED, POLICY_NETWORK_HOST };	/* each allows more */
enum policy_files { POLICY_FILES_NO, POLICY_FILES_READ, POLICY_FILES_WRITE };	/* each allows more */
enum policy_sandbox { POLICY_SANDBOX_NAMESPACES, POLICY_SANDBOX_UID };
enum policy_service_rule { POLICY_SERVICE_ENFORCE, POLICY_SERVICE_WARN, POLICY_SERVICE_ANY };	/* of targets that are not listed */
enum policy_channel { POLICY_CHANNEL_STABLE, POLICY_CHANNEL_EDGE };

#define POLICY_WORD	1	/* programs, harnesses: any; the other lists: none */

struct policy {
	/* [work] */
	bool start, attach, nested_userns;
	struct keyfile_list programs, users;
	enum policy_network network;	/* the most a start may have, and what one that asks for nothing gets */
	enum policy_sandbox sandbox_level;
	enum policy_files files;
	/* [limits]; 0 = none. A default of 0 is the ceiling. */
	uint64_t memory, memory_default, output, environment;	/* bytes */
	uint64_t io_rate;		/* bytes a second, each way */
	uint32_t pids, pids_default, slots;
	uint32_t cpu, cpu_default;	/* thousandths of a processor */
	int64_t timeout, timeout_default;	/* ms */
	/* [network]: with network = filtered */
	bool net_public;
	struct keyfile_list net_allow, net_deny, net_ports, net_resolvers;
	/* [devices] */
	bool usb, l2, l2_raw;
	struct keyfile_list usb_classes;
	/* [attach]: with attach = yes, and local for operators of this device */
	bool attach_input, attach_local;
	uint32_t attach_sessions, attach_each;
	int64_t attach_idle, attach_keep;	/* ms; 0 = for ever, not at all */
	uint64_t attach_scrollback;	/* bytes */
	/* [services], [harnesses] */
	bool serve, ssh;
	struct keyfile_list services, service_networks, service_sockets, harnesses;
	enum policy_service_rule service_rule;
	uint32_t ssh_port;
	bool harness_install;
	/* [upgrade], [containers] */
	enum policy_channel channel;
	bool remote_upgrade;
	char engine_socket[KEYFILE_STR];	/* "" = no containers */
	struct keyfile_list images, filtered_network;	/* of the latter one item at most */

	uint16_t lines[POLICY_KEYS];	/* 0: the default */
	char file[32];			/* last component of its name */
	struct keyfile_mark mark;	/* of the file this was read from */
	char problem[KEYFILE_ERR];	/* why the file as it is now cannot be used; "" = this is what it says */
	bool denied;			/* ... and no earlier one is in force: nothing may be started */
};

#define POLICY_WHERE	96

/* Defaults, then the text. name is for the messages. -EINVAL with err filled; *policy is untouched then. */
int policy_parse(struct policy *policy, const char *name, const char *text, size_t len, char err[KEYFILE_ERR]);

/*
 * From a file, which must belong to root or to owner and be writable by nobody else. A missing one means the defaults.
 * -errno with err filled (-EPERM: owner or mode); *policy is untouched then.
 */
int policy_load(struct policy *policy, const char *path, uid_t owner, char err[KEYFILE_ERR]);

/*
 * Who else may own policy.conf: whoever owns the run directory. Root, where root has installed Edgeward; the ordinary user
 * under whom run-foreground runs everything. Never a daemon's own user.
 */
uid_t policy_owner(const char *rundir);

/*
 * For a daemon. At its start: a file that cannot be used leaves a policy by which nothing may be started, because a device
 * that tells what is wrong is worth more than one that is gone. Again: it leaves the old policy in force. Either way policy->problem
 * says why. 0 or -errno.
 */
int policy_open(struct policy *policy, const char *path, uid_t owner);
int policy_reload(struct policy *policy, const char *path, uid_t owner);

/* Why nothing is started, when start is off. */
void policy_no_start(const struct policy *policy, char *buf, size_t size);

/* "policy.conf:12: programs", or "policy.conf (default): programs". Returns buf. */
const char *policy_where(const struct policy *policy, enum policy_key key, char buf[POLICY_WHERE]);

/* [network] as what it means. */
void policy_firewall(const struct policy *policy, struct firewall *ret_fw);

/* Section and name of a key, and its value as it could be written. */
const struct key *policy_key_info(enum policy_key key);
void policy_value(const struct policy *policy, enum policy_key key, char *buf, size_t size);

#endif
