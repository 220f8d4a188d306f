#include "proto/release/fit.h"

#include <inttypes.h>
#include <string.h>

static int
fit_device(struct fit *f, const struct release_head *head, const struct manifest *m)
{
	uint64_t size = head->signature_len + head->manifest_len + m->total;	/* each is bounded */

	if (size != f->size)
		return refuse(f->why, "bad-size", "the release has %" PRIu64 " bytes, its manifest says %" PRIu64, f->size, size);
	if (strcmp(m->arch, f->arch) != 0)
		return refuse(f->why, "wrong-arch", "it is for %s, this device is %s", m->arch, f->arch);
	if (strcmp(m->channel, f->channel) != 0)
		return refuse(f->why, "wrong-channel", "it is of channel %s, this device is on %s", m->channel, f->channel);
	if (m->expires <= f->now)
		return refuse(f->why, "expired", "it was to be installed before a day that has passed");
	return 0;
}

int
fit_release(struct fit *f, const struct release_head *head, const struct manifest *m)
{
	int r = fit_device(f, head, m);

	if (r < 0 || f->request == NULL)
		return r;
	if (f->request->sequence != m->sequence)
		return refuse(f->why, "other-release", "the request is for sequence %" PRIu64 ", the release is %" PRIu64, f->request->sequence,
		    m->sequence);
	if (m->sequence == f->from)
		return refuse(f->why, "already-current", "sequence %" PRIu64 " is what runs", f->from);
	if (m->sequence < f->from && !f->request->downgrade)
		return refuse(f->why, "old-sequence", "sequence %" PRIu64 " is lower than %" PRIu64 ", which runs", m->sequence, f->from);
	/* What is in force may be less than it was: a link that was lost on a damaged disk. */
	if (m->sequence < f->floor && !f->request->downgrade)
		return refuse(f->why, "old-sequence", "sequence %" PRIu64 " is lower than %" PRIu64 ", which was installed", m->sequence, f->floor);
	if (!f->operator && f->tries >= UPGRADE_TRIES)
		return refuse(f->why, "marked-bad", "sequence %" PRIu64 " has failed here before", m->sequence);
	return 0;
}

int
fit_protocol(struct refusal *why, const struct manifest *m, uint64_t protocol)
{
	if (protocol != 0 && protocol < m->protocol)
		return refuse(why, "protocol", "the hub speaks protocol %" PRIu64 ", the release needs %" PRIu64, protocol, m->protocol);
	return 0;
}

int
fit_program(struct refusal *why, const char *name, const void *data, size_t len, const struct machine *ours)
{
	struct machine theirs;

	if (machine_of(data, len, &theirs) < 0)
		return refuse(why, "bad-file", "%s is no program", name);
	if (theirs.class != ours->class || theirs.data != ours->data || theirs.machine != ours->machine)
		return refuse(why, "wrong-arch", "%s is for another machine (%s)", name, machine_arch(&theirs));
	if (strcmp(theirs.interp, ours->interp) != 0)
		return refuse(why, "wrong-arch", "%s wants another interpreter than this system's", name);
	return 0;
}
