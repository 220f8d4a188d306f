/*
 * What of its secrets a payload gets that begins after other steps (stage.h): the vault says it at that moment. What was taken
 * back during a fetch is never placed, and what was refreshed comes in its last content.
 */
#ifndef EDGEWARD_WORKERD_HANDOUT_H
#define EDGEWARD_WORKERD_HANDOUT_H

#include "proto/ipc/spec.h"
#include "workerd/workload.h"

/*
 * The files that nobody has taken back, as spec->secrets, and an environment without the variables that were. Views are valid until
 * handout_wipe(). 0 or -E2BIG; a workload without a vault has none.
 */
int handout_make(const struct workload *wl, struct work_spec *spec);
void handout_wipe(void);

/* True while a file of that many bytes can take the place of dir/name, among those that are still to be placed. */
bool handout_has_room(const struct workload *wl, const char *dir, const char *name, size_t len);

#endif
