#include "connectd/mirror.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "connectd/results.h"

void
mirror_init(struct mirror *m)
{
	memset(m, 0, sizeof(*m));
}

static struct mirror_entry **
wid_slot(const struct mirror *m, uint32_t wid)
{
	return (struct mirror_entry **)&m->by_wid[wid & (MIRROR_HASH - 1)];
}

static struct mirror_entry **
handle_slot(const struct mirror *m, const char *handle)
{
	return (struct mirror_entry **)&m->by_handle[XXH3_64bits(handle, strlen(handle)) & (MIRROR_HASH - 1)];
}

static struct mirror_entry **
channel_slot(const struct mirror *m, uint32_t channel)
{
	return (struct mirror_entry **)&m->by_channel[channel / 2 & (MIRROR_HASH - 1)];
}

struct mirror_entry *
mirror_by_wid(const struct mirror *m, uint32_t wid)
{
	struct mirror_entry *e = *wid_slot(m, wid);

	while (e != NULL && e->w.wid != wid)
		e = e->wid_next;
	return e;
}

struct mirror_entry *
mirror_by_handle(const struct mirror *m, const char *handle)
{
	struct mirror_entry *e = *handle_slot(m, handle);

	while (e != NULL && strcmp(e->w.handle, handle) != 0)
		e = e->handle_next;
	return e;
}

struct mirror_entry *
mirror_by_channel(const struct mirror *m, uint32_t channel)
{
	struct mirror_entry *e = *channel_slot(m, channel);

	while (e != NULL && e->log.channel != channel)
		e = e->channel_next;
	return e;
}

/* Takes an entry out of the chain of by_wid; only entries that are here are in one. */
static void
unlink_wid(struct mirror *m, struct mirror_entry *e)
{
	struct mirror_entry **p = wid_slot(m, e->w.wid);

	if (!e->here)
		return;
	while (*p != e)
		p = &(*p)->wid_next;
	*p = e->wid_next;
	e->here = false;
}

static void
link_wid(struct mirror *m, struct mirror_entry *e)
{
	struct mirror_entry **p = wid_slot(m, e->w.wid);

	e->wid_next = *p;
	*p = e;
	e->here = true;
}

void
mirror_set_channel(struct mirror *m, struct mirror_entry *e, uint32_t channel)
{
	struct mirror_entry **p;

	if (e->log.channel != 0) {
		for (p = channel_slot(m, e->log.channel); *p != e; p = &(*p)->channel_next)
			;
		*p = e->channel_next;
	}
	e->log.channel = channel;
	if (channel == 0)
		return;
	p = channel_slot(m, channel);
	e->channel_next = *p;
	*p = e;
}

static struct mirror_entry *
add(struct mirror *m, const char *handle)
{
	struct mirror_entry *e = m->n < MIRROR_MAX ? calloc(1, sizeof(*e)) : NULL;
	struct mirror_entry **p = handle_slot(m, handle);

	if (e == NULL) {
		m->refused_some = true;
		return NULL;
	}
	e->log.retry_at = MONOTIME_NEVER;
	e->handle_next = *p;
	*p = e;
	e->prev = m->tail;
	if (m->tail != NULL)
		m->tail->next = e;
	else
		m->head = e;
	m->tail = e;
	m->n++;
	return e;
}

struct mirror_entry *
mirror_update(struct mirror *m, const struct work_workload *w, bool *ret_new)
{
	struct mirror_entry *e = mirror_by_handle(m, w->handle);

	*ret_new = e == NULL;
	if (e == NULL)
		e = add(m, w->handle);
	if (e == NULL)
		return NULL;
	if (!e->here || e->w.wid != w->wid) {
		unlink_wid(m, e);
		e->w = *w;
		link_wid(m, e);
	} else {
		e->w = *w;
	}
	if ((w->flags & WORK_F_DISOWNED) != 0)
		e->disowned = true;
	return e;
}

void
mirror_remove(struct mirror *m, struct mirror_entry *e)
{
	struct mirror_entry **p = handle_slot(m, e->w.handle);

	mirror_set_channel(m, e, 0);
	unlink_wid(m, e);
	while (*p != e)
		p = &(*p)->handle_next;
	*p = e->handle_next;
	if (e->prev != NULL)
		e->prev->next = e->next;
	else
		m->head = e->next;
	if (e->next != NULL)
		e->next->prev = e->prev;
	else
		m->tail = e->prev;
	m->n--;
	results_free(e->result);
	free(e);
}

void
mirror_done(struct mirror *m)
{
	while (m->head != NULL)
		mirror_remove(m, m->head);
	inventory_done(&m->inventory);
}

void
mirror_channel_begin(struct mirror *m)
{
	inventory_begin(&m->inventory);
	for (struct mirror_entry *e = m->head; e != NULL; e = e->next)
		unlink_wid(m, e);
}

void
mirror_session_begin(struct mirror *m)
{
	for (struct mirror_entry *e = m->head; e != NULL; e = e->next) {
		mirror_set_channel(m, e, 0);
		e->offered = e->verdict_given = e->verdict_stop = false;
		e->verdict_from = 0;
		e->log = (struct mirror_log){ .retry_at = MONOTIME_NEVER };
		e->report = (struct mirror_report){ 0 };
		results_begin(e->result);
	}
}

bool
mirror_listed(const struct mirror_entry *e)
{
	return !e->disowned && !e->delivered;
}
