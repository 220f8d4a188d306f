#include "proto/release/fit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int __attribute__((format(printf, 3, 4)))
no(struct fit *f, const char *code, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	snprintf(f->code, sizeof(f->code), "%s", code);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	upgrade_detail(f->detail, text);
	return -ECANCELED;
}

static int
fit_device(struct fit *f, const struct release_head *head, const struct manifest *m)
{
	uint64_t size = head->signature_len + head->manifest_len + m->total;	/* each is bounded */

	if (size != f->size)
		return no(f, "bad-size", "the release has %" PRIu64 " bytes, its manifest says %" PRIu64, f->size, size);
	if (strcmp(m->arch, f->arch) != 0)
		return no(f, "wrong-arch", "it is for %s, this device is %s", m->arch, f->arch);
	if (strcmp(m->channel, f->channel) != 0)
		return no(f, "wrong-channel", "it is of channel %s, this device is on %s", m->channel, f->channel);
	if (m->expires <= f->now)
		return no(f, "expired", "it was to be installed before a day that has passed");
	return 0;
}

int
fit_release(struct fit *f, const struct release_head *head, const struct manifest *m)
{
	int r = fit_device(f, head, m);

	if (r < 0 || f->request == NULL)
		return r;
	if (f->request->sequence != m->sequence)
		return no(f, "other-release", "the request is for sequence %" PRIu64 ", the release is %" PRIu64, f->request->sequence,
		    m->sequence);
	if (m->sequence == f->from)
		return no(f, "already-current", "sequence %" PRIu64 " is what runs", f->from);
	if (m->sequence < f->from && !f->request->downgrade)
		return no(f, "old-sequence", "sequence %" PRIu64 " is lower than %" PRIu64 ", which runs", m->sequence, f->from);
	/* What is in force may be less than it was: a link that was lost on a damaged disk. */
	if (m->sequence < f->floor && !f->request->downgrade)
		return no(f, "old-sequence", "sequence %" PRIu64 " is lower than %" PRIu64 ", which was installed", m->sequence, f->floor);
	if (!f->operator && f->tries >= UPGRADE_TRIES)
		return no(f, "marked-bad", "sequence %" PRIu64 " has failed here before", m->sequence);
	return 0;
}

int
fit_protocol(struct fit *f, const struct manifest *m, uint64_t protocol)
{
	if (protocol != 0 && protocol < m->protocol)
		return no(f, "protocol", "the hub speaks protocol %" PRIu64 ", the release needs %" PRIu64, protocol, m->protocol);
	return 0;
}

int
fit_program(struct fit *f, const char *name, const void *data, size_t len, const struct machine *ours)
{
	struct machine theirs;

	if (machine_of(data, len, &theirs) < 0)
		return no(f, "bad-file", "%s is no program", name);
	if (theirs.class != ours->class || theirs.data != ours->data || theirs.machine != ours->machine)
		return no(f, "wrong-arch", "%s is for another machine (%s)", name, machine_arch(&theirs));
	if (strcmp(theirs.interp, ours->interp) != 0)
		return no(f, "wrong-arch", "%s wants another interpreter than this system's", name);
	return 0;
}
