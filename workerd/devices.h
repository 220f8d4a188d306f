/*
 * Devices a hub forwards to this one: who leases each, and what privhelper is asked for on that account. The socket on which the
 * kernel speaks goes straight on to connectd; nothing of what a device says passes through here.
 */
#ifndef EDGEWARD_WORKERD_DEVICES_H
#define EDGEWARD_WORKERD_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ipc.h"
#include "common/loop.h"
#include "common/monotime.h"
#include "proto/ipc/device.h"

struct workerd;
struct workload;
struct work_spec;

struct device {
	struct workerd *w;
	bool used;
	bool closing;			/* forgotten by everybody else: its attach is still to be answered */
	bool attached;			/* info.port is ours */
	bool lends;			/* it has been authorized: nodes may be asked for */
	struct device_info info;
	uint32_t asker;			/* connectd's request, 0 = answered */
	uint32_t attach_id, grant_id;	/* of requests to privhelper under way, 0 = none */
	monotime_t since;		/* lends, to this workload */
	struct loop_timer timer;	/* the next look for nodes */
};

struct devices {
	struct device list[DEVICES_MAX];
	struct priv_state priv;		/* as privhelper last said */
};

void devices_init(struct workerd *w);
void devices_done(struct workerd *w);

/* From connectd: the two handlers of workchan.c. After its CAPS: what could be lent. */
int devices_on_open(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int devices_on_close(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
void devices_tell_caps(struct workerd *w);
/* connectd is gone, and with it every stream. */
void devices_work_down(struct workerd *w);

/* From privhelper: handlers of privchan.c; and its end, after which nothing is attached any more. */
int devices_on_attached(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int devices_on_device(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int devices_on_granted(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int devices_on_state(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
void devices_priv_down(struct workerd *w);

/* A start with this runner id: false, and it is for now, while a device is lent to another workload that has it. */
bool devices_slot_ok(struct workerd *w, const char *handle, uint32_t slot, char error[208]);
/* A start that names devices: are they there and free, and nobody else has its runner id? Then, once it is accepted, they are its own. What
 * another workload is in the way of is busy: the same start will do later, or elsewhere. */
enum work_refusal devices_check(struct workerd *w, const struct work_spec *spec, uint32_t slot, char error[208]);
void devices_lease(struct workload *wl, const char *list);
/* It has ended. */
void devices_workload_ended(const struct workload *wl);

/* For edgectl devices. */
void devices_caps(struct workerd *w, struct device_offer *ret_caps);

#endif
