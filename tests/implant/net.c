/* connectd taken over: its startup() gives up privilege, opens its state directory, then closes its sandbox. */
#include <errno.h>
#include <fcntl.h>

#include "common/drop.h"
#include "connectd/sandbox.h"
#include "tests/implant/implant.h"

int
implant_enter(struct implant_dirs *dirs, int only_open)
{
	int r = only_open ? 0 : drop_everything();

	dirs->rootfd = -1;
	dirs->statefd = r < 0 ? -1 : open(dirs->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dirs->statefd < 0)
		return r < 0 ? r : -errno;
	return only_open ? 0 : connectd_sandbox_enter(dirs->state, dirs->token, "/etc/edgeward/policy.conf", NULL, NULL, false);
}
