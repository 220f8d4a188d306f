#include "hub/cli_container.h"

#include <string.h>

static struct work_str
str(const char *s)
{
	return (struct work_str){ s, s != NULL ? strlen(s) : 0 };
}

bool
container_option(struct container_options *o, int opt, const char *arg)
{
	switch (opt) {
	case CONTAINER_IMAGE:
		o->image = arg;
		return true;
	case CONTAINER_ENGINE:
		o->engine = arg;
		return true;
	case CONTAINER_RUNTIME:
		o->runtime = arg;
		return true;
	case CONTAINER_NETWORK:
		o->network = arg;
		return true;
	default:
		return false;
	}
}

int
container_into(const struct container_options *o, struct work_job *job)
{
	int engine = JOB_ENGINE_ANY;

	if (o->image == NULL)
		return o->engine == NULL && o->runtime == NULL && o->network == NULL ? 0 :
		    cli_fail(RUN_EXIT_NOT_STARTED, "--engine, --runtime and --container-network need --image IMAGE");
	while (o->engine != NULL && engine < JOB_ENGINES && strcmp(container_engine_name((enum job_engine)engine), o->engine) != 0)
		engine++;
	if (engine == JOB_ENGINES)
		return cli_fail(RUN_EXIT_NOT_STARTED, "--engine: docker or podman");
	job->container = true;
	job->engine = (enum job_engine)engine;
	job->image = str(o->image);
	job->runtime = str(o->runtime);
	job->engine_network = str(o->network);
	return 0;
}
