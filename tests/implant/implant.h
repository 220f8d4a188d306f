/* What differs between the implants: whose confinement is entered. */
#ifndef EDGEWARD_TESTS_IMPLANT_H
#define EDGEWARD_TESTS_IMPLANT_H

struct implant_dirs {
	const char *state;	/* this daemon's own */
	const char *token;	/* a token file, "" for none; connectd only */
	const char *root;	/* the work root; workerd holds it open */
	int statefd, rootfd;	/* held since before the confinement, as the daemon does; -1 where it does not */
};

/* Opens what the daemon opens, then, unless only_open, confines this process as the daemon does: Landlock's ABI or -errno. */
int implant_enter(struct implant_dirs *dirs, int only_open);

#endif
