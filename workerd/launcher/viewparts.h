/* What view.c and viewadd.c share: the table, and the small steps. Nobody else includes it. */
#ifndef EDGEWARD_LAUNCHER_VIEWPARTS_H
#define EDGEWARD_LAUNCHER_VIEWPARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "workerd/launcher/view.h"

enum view_kind {
	SYSTEM,		/* the machine's, read-only, with all that is mounted below; what is a link there is one here */
	NAMES,		/* the same, but only with the machine's network: sockets there look names up for whoever asks. Comes and goes with
			   the service it belongs to, so it is looked for at each start */
	DIR,		/* empty */
	OWN,		/* private, writable, gone with the workload */
	NODE,		/* a device everybody may use */
	LINK,
	HIDDEN,		/* of a SYSTEM directory, where it is there: empty */
};

struct view_row {
	enum view_kind kind;
	const char *path;
	const char *target;	/* of LINK */
};
extern const struct view_row view_rows[];
extern const unsigned view_nrows;

/* Appends without a NUL; where the text ends. By hand: printf would touch pages of the C library that each start then has to copy. */
char *view_text(char *p, const char *s);
char *view_number(char *p, uint32_t v);

/* With all above it; at is as it was afterwards. The first six bytes of it are there already. 0 or -errno, like all that follow. */
int view_make_dir(char *at);
/* What was there when the launcher started may have gone since: less to see is no reason to start nothing any more. */
int view_gone_is_fine(int r);
/* The runner has no line in the machine's passwd: programs that ask who they are find these files. */
int view_name_runner(const struct view_wish *wish, const char *home, const char *passwd, const char *group);
/* Nothing if the workload brings none. Out of the way of everything else it may fill. */
int view_mount_secrets(const struct view_wish *wish, const char *at);
/* Terminals and processes; machine_proc is what wish->own_proc does without. */
int view_mount_kernel(const struct view_wish *wish, int machine_proc, const char *pts, const char *proc, bool *ret_proc);

#endif
