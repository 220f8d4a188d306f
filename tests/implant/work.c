/* workerd taken over: its run() opens the work root and its state directory; sandbox_enter() gives up the rest. */
#include <errno.h>
#include <fcntl.h>

#include "tests/implant/implant.h"
#include "workerd/sandbox.h"

int
implant_enter(struct implant_dirs *dirs, int only_open)
{
	dirs->rootfd = open(dirs->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dirs->statefd = open(dirs->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirs->rootfd < 0 || dirs->statefd < 0)
		return -errno;
	return only_open ? 0 : sandbox_enter(dirs->state, "/etc/edgeward/edgeward.conf", "/etc/edgeward/policy.conf");
}
