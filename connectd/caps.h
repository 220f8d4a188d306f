/* What the device says of itself in the hello: what does not change while connectd runs, and workerd's part. */
#ifndef EDGEWARD_CONNECTD_CAPS_H
#define EDGEWARD_CONNECTD_CAPS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/conf.h"
#include "connectd/mirror.h"
#include "proto/hub/json.h"
#include "proto/ipc/work.h"

struct upgrader;

#define CAPS_LABELS_MAX	32

struct device_label {
	char key[64], value[128];
};

struct device_caps {
	const char *arch;		/* Go's spelling */
	struct device_label labels[CAPS_LABELS_MAX];
	size_t nlabels;
	struct upgrader *upgrader;	/* NULL: no upgrade comes from a hub */
};

/* -EINVAL with err filled when the labels of the configuration are not "k=v, k=v". */
int caps_init(struct device_caps *device, const char *labels, char err[200]);

/* Writes the member "capabilities". extended: with what edgeward.1 adds. */
void caps_put(struct json_w *w, const struct device_caps *device, const struct mirror *mirror, enum conf_sandbox mode,
    const struct policy *policy, bool extended);

#endif
